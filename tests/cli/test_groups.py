"""What all commands have in common: -v anywhere, near names, first steps, sections, and what is told once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from gemmport import cli
from gemmport.cli import once
from terminals import COMMAND

ROOT = click.Context(cli.cli, info_name="gemmport")


def every_command(group: click.Group = cli.cli, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The commands, and those in them, by their words."""
    found = []
    for name in group.list_commands(ROOT):
        command = group.get_command(ROOT, name)
        found.append((*above, name))
        found += every_command(command, (*above, name)) if isinstance(command, click.Group) else []
    return found


def test_every_command_is_loaded_by_its_name_and_stands_in_one_section() -> None:
    names = [name for section in cli.SECTIONS.values() for name in section]
    assert len(set(names)) == len(names)
    assert all(cli.cli.get_command(ROOT, name) for name in names)
    told = cli.cli.get_help(ROOT)
    assert [
        line.split()[0] for line in told.splitlines() if line.startswith("  ") and line.split()[0] in names
    ] == names
    assert "Others" not in told


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
def test_every_command_takes_v(gemmport_command: Any, words: tuple[str, ...]) -> None:
    status, out, _ = gemmport_command(*words, "-v", "--help")
    assert status == 0
    assert out.count("-v, --verbose") == 1


@pytest.mark.parametrize(
    ("words", "level"),
    [
        ("kernels tiled", "WARNING"), ("-v kernels tiled", "INFO"), ("kernels -v tiled", "INFO"),
        ("-v kernels -v tiled", "DEBUG"), ("kernels tiled -vv", "DEBUG"), ("-vvv kernels tiled", "DEBUG"),
    ],
)  # fmt: skip
def test_v_counts_wherever_it_stands(words: str, level: str) -> None:
    script = (
        "import logging, sys, gemmport.cli as c; sys.argv = ['gemmport', *sys.argv[1:]]; c._run_command(); "
        "print(logging.getLevelName(logging.getLogger().level), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script, *words.split()], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == level


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("rnu",), "No such command 'rnu'. Did you mean run?"),
        (("ladder", "gem"), "No such command 'gem'. Did you mean gemm?"),
        (("cache", "wram"), "No such command 'wram'. Did you mean warm?"),
        (("nonsense",), "No such command 'nonsense'. gemmport --help lists them."),
        (("run", "--kernle", "x"), "Did you mean '--kernel'?"),
    ],
)
def test_what_is_not_known_is_told_with_what_is_near(
    gemmport_command: Any, arguments: tuple[str, ...], told: str
) -> None:
    status, out, err = gemmport_command(*arguments)
    assert (status, out) == (2, "")
    assert told in err


def test_without_a_command_the_first_steps_are_told(gemmport_command: Any) -> None:
    status, out, err = gemmport_command()
    assert (status, out, err) == (2, "", cli.FIRST_STEPS)
    assert len(err.splitlines()) <= 24
    assert max(map(len, err.splitlines())) <= 80


def test_what_is_missing_is_told_once_on_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))
    first = once.news({"baseline x": "X is not installed", "backend y": "backend y is not there"})
    assert first == [
        "baseline x: X is not installed (told once; gemmport doctor tells it again)",
        "backend y is not there (told once; gemmport doctor tells it again)",
    ]
    assert once.news({"baseline x": "X is not installed"}) == []
    assert len(once.news({"baseline x": "X is too old"})) == 1
    monkeypatch.setattr(once.logging.getLogger("gemmport"), "isEnabledFor", lambda level: True)
    assert once.news({"baseline x": "X is not installed"}) == ["baseline x: X is not installed"]


def test_a_baseline_that_was_named_is_told_each_time(
    gemmport_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gemmport import baselines  # noqa: PLC0415
    from gemmport.core.errors import BaselineUnavailableError  # noqa: PLC0415

    def missing(name: str) -> None:
        raise BaselineUnavailableError(f"{name} is not installed, says a test")

    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))  # where nothing was told yet
    monkeypatch.setattr(baselines, "load", missing)
    monkeypatch.setattr(baselines, "for_device", lambda device: ("numpy",))  # as beside CPUs
    job = ("run", "--size", 8, "--repeat", 1, "--kernel", "naive")
    told = [gemmport_command(*job)[1].count("numpy is not installed, says a test") for _ in range(2)]
    assert told == [1, 0]
    for _ in range(2):
        assert "numpy is not installed, says a test" in gemmport_command(*job, "--baseline", "numpy")[1]


# Completion


def completed(*words: str) -> list[str]:
    """What the shell is offered for the last of the words."""
    done = subprocess.run(
        COMMAND, capture_output=True, text=True, check=True,
        env={
            **os.environ, "_GEMMPORT_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["gemmport", *words]),
            "COMP_CWORD": str(len(words)),
        },
    )  # fmt: skip
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_commands_options_and_values_are_completed() -> None:
    assert completed("re") == ["regret"]
    assert "--device" in completed("run", "--de")
    assert completed("run", "--kernel", "register") == ["register_tiled", "register_tiled_vectorized"]
    assert completed("run", "--kernel", "tiled,ti") == []
    assert completed("kernels", "shu") == ["shuffle"]
    assert completed("run", "--dtype", "float6") == ["float64"]
    assert completed("matrix", "--backend", "op") == ["opencl"]


def test_devices_are_completed() -> None:
    assert "all" in completed("run", "--backend", "opencl", "--device", "a")


@pytest.mark.parametrize("words", [["run", "--kernel", "t"], ["run", "--dtype", "f"], ["r"]], ids=" ".join)
def test_completion_loads_no_runtime_and_no_more_than_its_command(words: list[str]) -> None:
    script = (
        "import os, sys; os.environ |= {'_GEMMPORT_COMPLETE': 'bash_complete', "
        "'COMP_WORDS': ' '.join(['gemmport', *sys.argv[1:]]), 'COMP_CWORD': str(len(sys.argv) - 1)}; "
        "import gemmport.cli as c; c._run_command(); print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert not loaded & {"pyopencl", "pycuda", "pydantic", "matplotlib", "gemmport.cli.matrix", "gemmport.cli.doctor"}
