"""benchmarks/renew.py runs the commands of files of results again, each within its time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import renew

PROGRAM = """
import json, os, sys, time
document = json.dumps({"seen": os.environ.get("SEEN"), "how": sys.argv[1]})
try:
    if sys.argv[1] == "hangs":
        print("begun", flush=True)
        time.sleep(60)
except KeyboardInterrupt:
    pass
if sys.argv[1] == "fails":
    sys.exit("out of luck")
if sys.argv[1] != "silent":
    print(document) if "json" in sys.argv else open(sys.argv[sys.argv.index("--output") + 1], "w").write(document)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "benchmarks" / "program.py").write_text(PROGRAM, "utf-8")
    return tmp_path


def run(root: Path, how: str, more: str = "", limit: float = 60.0) -> tuple[renew.Renewal, Path]:
    folder = root / "new"
    renewal = renew.renew("h/run/x.json", f"SEEN=1 python benchmarks/program.py {how}{more}", folder, limit, root)
    return renewal, folder / "h/run/x.json"


@pytest.mark.parametrize("more", ["", " --format json"])
def test_a_command_runs_with_its_environment_and_its_document_is_kept(root: Path, more: str) -> None:
    renewal, file = run(root, "well", more)
    assert renewal.outcome == "renewed"
    assert json.loads(file.read_text("utf-8")) == {"seen": "1", "how": "well"}


def test_what_takes_too_long_is_interrupted_and_keeps_what_it_has(root: Path) -> None:
    renewal, file = run(root, "hangs", limit=3.0)
    assert renewal.outcome == "interrupted, with what it had"
    assert renewal.seconds < 30
    assert json.loads(file.read_text("utf-8"))["how"] == "hangs"


@pytest.mark.parametrize(("how", "outcome"), [("fails", "exit 1: out of luck"), ("silent", "exit 0, with nothing")])
def test_what_makes_no_document_is_not_called_renewed(root: Path, how: str, outcome: str) -> None:
    assert run(root, how)[0].outcome == outcome


def test_files_are_named_by_patterns_in_their_order(root: Path) -> None:
    known = {name: {"command": f"make {name}"} for name in ("h/calls/a.json", "h/run/a.json", "h/run/b.json")}
    (root / "benchmarks/results/manifest.json").write_text(json.dumps({"files": known}), "utf-8")
    assert list(renew.named(["h/run/b.json", "h/*/a.json"], root)) == ["h/run/b.json", "h/calls/a.json", "h/run/a.json"]
    with pytest.raises(click.ClickException, match=r"got 'h/run/c\.json'; see there"):
        renew.named(["h/run/c.json"], root)
