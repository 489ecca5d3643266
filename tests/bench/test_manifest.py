"""benchmarks/results/manifest.json says of every file of results what made it, at which commit, and where it is quoted."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from absences import DASK, DISTRIBUTED, TORCH, skip_without
from gemmport import kernels
from gemmport.cli import cli

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import manifest

BENCHMARKS = manifest.ROOT / "benchmarks"

MADE_BY_OTHERS = ("clblast_tuner_xgemm", "clblast_tuner_xgemm_direct", "clblast_tuner_routine_xgemm", "clblast_tuner_copy_fast",
                  "clblast_tuner_copy_pad", "clblast_tuner_transpose_fast", "clblast_tuner_transpose_pad")  # fmt: skip
"""Commands of CLBlast's."""

RECORDED = manifest.recorded()


def test_the_manifest_is_what_files_and_texts_say() -> None:
    found = list(manifest.differences())
    assert not found, "\n".join(["", *found, "python benchmarks/manifest.py writes it anew"])


def test_every_file_has_a_reader_a_date_versions_and_a_commit() -> None:
    for name, entry in RECORDED.items():
        assert entry["quoted by"], f"nothing quotes {name}: quote it, or remove it"
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", entry["date"] or ""), name
        assert re.fullmatch(r"[0-9a-f]{7,40}", entry["commit"] or ""), name
        assert entry["device"], name
        assert entry["versions"], name


def test_files_lie_by_device_and_kind() -> None:
    assert {len(Path(name).parts) for name in RECORDED if "/clblast/" not in name} == {3}


def parse(command: str) -> None:
    """Raises where a command is none of today's, or has an option that it does not know."""
    words = shlex.split(command)
    for path in re.findall(r"benchmarks/\S*", command):
        assert (manifest.ROOT / path).exists(), f"there is no {path}"
    while re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    program, *arguments = words
    named = re.search(r"--kernel (\S+)", command)
    names = [name for name in named[1].split(",") if name != "auto"] if named else []
    known = {p.name for name in names for p in kernels.variant(name).parameters}
    for settings in re.findall(r"--(?:set|trial) (\S+)", command):
        for setting in settings.split(","):
            assert not named or setting.partition("=")[0] in known, f"{named[1]} has no {setting}"
    if program == "gemmport":
        parsed(cli, arguments[0], arguments[1:])
    elif program == "python":
        path = BENCHMARKS.parent / arguments[0]
        spec = importlib.util.spec_from_file_location(f"command_{path.stem}", path)
        assert spec
        assert spec.loader
        script = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = script
        spec.loader.exec_module(script)
        script.main.make_context(path.name, arguments[1:])
    elif program == "make":
        assert re.search(rf"^{arguments[0]}:", (BENCHMARKS.parent / "Makefile").read_text("utf-8"), re.MULTILINE)
    elif program == "gcc":
        source = next(word for word in arguments if word.endswith(".c"))
        if shutil.which(program):
            subprocess.run([program, "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", source], check=True)
    else:
        assert program in MADE_BY_OTHERS


def parsed(group: click.Command, name: str, arguments: list[str]) -> None:
    assert isinstance(group, click.Group)
    command = group.get_command(click.Context(group), name)
    assert command is not None, f"gemmport has no {name}"
    if isinstance(command, click.Group) and arguments[0] in command.commands:
        parsed(command, arguments[0], arguments[1:])
    else:
        command.make_context(name, arguments)


@pytest.mark.parametrize("command", sorted({entry["command"] for entry in RECORDED.values()}))
def test_every_file_has_a_command_of_today(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "gpt2.py" in command or "sanitized.py" in command:
        skip_without(TORCH)
    if "cluster.py" in command:
        skip_without(DASK, DISTRIBUTED)
    monkeypatch.chdir(BENCHMARKS.parent)
    parse(command)


@pytest.mark.parametrize(
    "command",
    ["gemmport walk", "gemmport run --haste", "python benchmarks/startup.py --haste", "python benchmarks/gone.py",
     "make haste", "harness", "gcc benchmarks/gone.c",
     "gemmport run --shapes benchmarks/shapes/gone.csv", "gemmport run --kernel simt --set HASTE=1",
     "python benchmarks/parameters.py --kernel simt,batched --trial PRODUCTS=4,HASTE=1"],
)  # fmt: skip
def test_a_command_that_is_not_there_is_a_fault(command: str) -> None:
    with pytest.raises((AssertionError, click.ClickException, OSError)):
        parse(command)


# A repository of two files


ORIGINS = """
schema: 1
selectors: {here: "pocl 3.1"}
devices: {here: {name: this machine, versions: {python: 3.11.7}}}
files:
  - pattern: here/sweep/{size}.csv
    command: "python benchmarks/sweep.py --device {device} --sizes {size}"
    date: "2026-11-21"
"""

PAGE = "# Speed\n\nAt abcdef1:\n\n<!-- figures at abcdef1: benchmarks/results/here/run/a.json -->\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / manifest.FOLDER
    for part in ("run", "sweep"):
        (folder / "here" / part).mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("See `benchmarks/results/here/{run/a.json,sweep/*}`.")
    (tmp_path / "docs" / "page.md").write_text(PAGE)
    (folder / manifest.ORIGINS).write_text(ORIGINS)
    told = {"command": "gemmport run", "environment": {"date": "2026-11-22", "gemmport": "0.1.0"},
            "results": [{"launches": [{"digest": "0" * 16}], "call_path": "1" * 16}]}  # fmt: skip
    (folder / "here" / "run" / "a.json").write_text(json.dumps(told))
    (folder / "here" / "sweep" / "512.csv").write_text("kernel,gflops\n")
    written(tmp_path)
    return tmp_path


def written(root: Path) -> None:
    (root / manifest.FOLDER / manifest.MANIFEST).write_text(manifest.text_of(manifest.manifest(root)))


def test_an_entry_has_what_file_origins_and_texts_say(repository: Path) -> None:
    run, sweep = manifest.recorded(repository).values()
    assert (run["command"], run["date"], run["commit"]) == ("gemmport run", "2026-11-22", "abcdef1")
    assert run["versions"] == {"gemmport": "0.1.0"}
    assert run["call_path"] == "1" * 16
    assert run["quoted by"] == ["README.md", "docs/page.md"]
    assert sweep["command"] == "python benchmarks/sweep.py --device 'pocl 3.1' --sizes 512"
    assert (sweep["device"], sweep["versions"]) == ("this machine", {"python": "3.11.7"})
    assert sweep["quoted by"] == ["README.md"]
    assert list(manifest.differences(repository)) == []


@pytest.mark.parametrize(
    ("path", "text", "fault"),
    [
        ("benchmarks/results/here/run/b.json", '{"command": "gemmport run"}', "here/run/b.json has no entry"),
        ("benchmarks/results/here/run/a.json", '{"command": "gemmport run"}', "here/run/a.json: sha256 is"),
        ("benchmarks/results/here/sweep/512.csv", None, "here/sweep/512.csv has an entry, but is not there"),
        ("docs/page.md", "# Speed\n", "here/run/a.json: quoted by is ['README.md']"),
        ("docs/more.md", "[file](../benchmarks/results/here/run/a.json)", "here/run/a.json: quoted by is"),
        ("docs/page.md", PAGE.replace("abcdef1", "1234567"), "here/run/a.json: commit is '1234567'"),
        ("benchmarks/results/origins.yaml", ORIGINS.replace("21", "23"), "here/sweep/512.csv: date is '2026-11-23'"),
    ],
    ids=["new", "changed", "gone", "not quoted", "quoted", "another commit", "another date"],
)  # fmt: skip
def test_what_changed_is_told(repository: Path, path: str, text: str | None, fault: str) -> None:
    if text is None:
        (repository / "README.md").write_text("See `benchmarks/results/here/run/a.json`.")
        (repository / path).unlink()
    else:
        (repository / path).write_text(text)
    found = list(manifest.differences(repository))
    assert any(fault in line for line in found), found
    written(repository)
    assert list(manifest.differences(repository)) == []


def test_a_file_from_nowhere_and_a_text_about_nothing_are_refused(repository: Path) -> None:
    (repository / "docs" / "more.md").write_text("`benchmarks/results/here/run/{a,gone}.json`")
    with pytest.raises(manifest.ManifestError, match=r"docs/more.md names benchmarks/results/here/run/gone.json"):
        manifest.manifest(repository)
    (repository / "docs" / "more.md").unlink()
    (repository / manifest.FOLDER / "here" / "run" / "b.json").write_text("{}")
    for origins in (
        ORIGINS,
        f"{ORIGINS}  - {{pattern: here/run/b.json, command: null, why: by a program that was not kept}}\n",
    ):
        (repository / manifest.FOLDER / manifest.ORIGINS).write_text(origins)
        with pytest.raises(manifest.ManifestError, match=r"b.json must say its command"):
            manifest.manifest(repository)


def test_a_file_that_is_as_it_was_keeps_its_commit(repository: Path) -> None:
    file = repository / manifest.FOLDER / manifest.MANIFEST
    entries = manifest.recorded(repository)
    entries["here/sweep/512.csv"]["commit"] = "7654321"
    file.write_text(manifest.text_of(entries))
    assert list(manifest.differences(repository)) == []
    (repository / manifest.FOLDER / "here" / "sweep" / "512.csv").write_text("kernel,gflops\nnaive,1\n")
    assert manifest.manifest(repository)["here/sweep/512.csv"]["commit"] != "7654321"
