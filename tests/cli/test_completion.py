"""What shells complete: the same by an outline as by the command, without waiting for its modules, in the real shells."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from absences import FISH, ZSH, needs
from gemmport import cli
from gemmport.cli import completion, outline

SHELL_SECONDS = 120
"""After which a shell is given up."""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path / "cache"))


class Asked(ShellComplete):
    """Completion without a shell."""

    def __init__(self, command: click.Command) -> None:
        super().__init__(command, {}, "gemmport", "")

    def told(self, *words: str) -> list[tuple[str, str, str | None]]:
        """What is offered for the last of the words."""
        *before, last = words
        return [(item.type, item.value, item.help) for item in self.get_completions(before, last)]


def loaded(name: str) -> click.Command:
    command = cli.cli.get_command(click.Context(cli.cli), name)
    assert command is not None
    return command


def parts(command: click.Command, above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found = [(above, command)]
    for name, inner in getattr(command, "commands", {}).items():
        found += parts(inner, (*above, name))
    return found


@pytest.mark.parametrize("name", [name for section in cli.SECTIONS.values() for name in section])
def test_an_outline_completes_as_its_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options with what they say, and the values of each; of devices, that they are looked for."""
    monkeypatch.setattr("gemmport.execution.selection.devices", lambda _: [])
    command = loaded(name)
    with click.Context(command, info_name=name) as context:
        of_outline = Asked(outline._of(outline._outline(command, context)))
    itself = Asked(command)
    for words, part in parts(command):
        assert of_outline.told(*words, "--") == itself.told(*words, "--")
        assert of_outline.told(*words, "") == itself.told(*words, "")
        for parameter in part.params:
            values = [
                opt for opt in parameter.opts if opt.startswith("--") and not getattr(parameter, "is_flag", False)
            ]
            for option in values:
                for typed in ("", "a", "tiled,", "float32,f"):
                    expected = itself.told(*words, option, typed)
                    assert of_outline.told(*words, option, typed) == expected, (option, typed)


SCRIPT = """
import os, sys
os.environ |= {"_GEMMPORT_COMPLETE": "bash_complete", "COMP_WORDS": "gemmport run --kernel til", "COMP_CWORD": "3"}
import gemmport.cli as c
c._run_command()
print(*sys.modules, sep="\\n", file=sys.stderr)
"""


def test_from_the_second_time_on_a_command_is_completed_without_its_modules() -> None:
    first, second = (
        subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True) for _ in range(2)
    )
    assert first.stdout == second.stdout == "plain,tiled\n"
    assert "gemmport.cli.run" in first.stderr.split()
    never = {"numpy", "gemmport.cli.run", "gemmport.kernels", "gemmport.backends", "gemmport.api"}
    assert not never & set(second.stderr.split())


def test_an_outline_holds_as_long_as_the_files_are_what_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "command.py"
    file.write_text("1")

    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(outline, "find_spec", lambda _: Spec)
    first, again = outline._key(), outline._key()
    assert first == again
    file.write_text("12")
    changed = outline._key()
    assert changed != first
    (tmp_path / "other.py").touch()
    assert outline._key() not in (first, changed)


def test_devices_are_looked_for_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    command = loaded("run")
    with click.Context(command, info_name="run") as context:
        told = outline._outline(command, context)
    assert completion.DEVICES in str(told)
    asked: list[str] = []
    monkeypatch.setattr("gemmport.execution.selection.devices", lambda backend: asked.append(backend) or [])
    assert Asked(outline._of(told)).told("--backend", "opencl", "--device", "") == [("plain", "all", "every device")]
    assert asked == ["opencl"]


# The shells themselves


@pytest.fixture
def on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `gemmport` for shells, of this Python."""
    command = tmp_path / "bin" / "gemmport"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom gemmport.cli import main\nmain()\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")


def script_for(shell: str, folder: Path) -> Path:
    done = subprocess.run(
        ["gemmport"],
        env={**os.environ, "_GEMMPORT_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=True,
    )
    path = folder / f"completion.{shell}"
    path.write_text(done.stdout)
    return path


@needs(FISH)
@pytest.mark.usefixtures("on_the_path")
def test_fish_completes(tmp_path: Path) -> None:
    script = script_for("fish", tmp_path)

    def told(line: str) -> list[str]:
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"],
            capture_output=True, text=True, check=True, timeout=SHELL_SECONDS,
            env={**os.environ, "HOME": str(tmp_path)},
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout.splitlines()

    assert told("gemmport reg") == ["regret"]
    assert "--device" in [line.partition("\t")[0] for line in told("gemmport run --dev")]
    assert told("gemmport run --kernel shu")[0].startswith("shuffle\t")
    assert told("gemmport run --kernel tiled,shu")[0].startswith("tiled,shuffle\t")
    assert told(f"gemmport explain --recorded {script.parent}/completion.f") == [str(script)]


@needs(ZSH)
@pytest.mark.usefixtures("on_the_path")
def test_zsh_completes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = script_for("zsh", tmp_path)
    for name, value in (("TERM", "dumb"), ("PS1", "READY> "), ("HOME", str(tmp_path)), ("ZDOTDIR", str(tmp_path))):
        monkeypatch.setenv(name, value)
    leader, follower = pty.openpty()
    with subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=follower, stdout=follower, stderr=follower, start_new_session=True
    ) as shell:
        os.close(follower)
        try:
            said_until(leader, "READY> ")
            os.write(leader, f"autoload -Uz compinit; compinit -u -D; source {script}; echo DO''NE\n".encode())
            said_until(leader, "DONE\r.*READY> ")
            for typed, completed in (
                ("gemmport reg", "gemmport regret "),
                ("gemmport run --kernel shu", "gemmport run --kernel shuffle "),
                ("gemmport run --kernel tiled,shu", "gemmport run --kernel tiled,shuffle "),
            ):
                os.write(leader, typed.encode() + b"\t")
                said_until(leader, re.escape(completed))
                os.write(leader, b"\x15")  # and the line is empty again
        finally:
            shell.kill()
    os.close(leader)


def said_until(terminal: int, pattern: str) -> str:
    """What a terminal shows until there is what is waited for."""
    said, end = "", time.monotonic() + SHELL_SECONDS
    while not re.search(pattern, said, re.DOTALL):
        assert time.monotonic() < end, f"waited for {pattern!r}; there is {said!r}"
        if select.select([terminal], [], [], 1.0)[0]:
            said += os.read(terminal, 1 << 16).decode(errors="replace")
    return said
