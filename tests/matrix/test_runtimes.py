"""`make matrix` names the runtimes that it could not get, and counts those that were tested."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import runtimes
from made_up_devices import DEVICES

FOLDER = Path(__file__).parent
POCL = replace(DEVICES["CPU under PoCL"], platform_version="3.1")


def test_what_is_missing_is_named_with_how_to_get_it() -> None:
    said = dict.fromkeys(text for _, text in runtimes.lines([POCL, DEVICES["Apple"]], None))
    assert f"PoCL, from Debian: {POCL.label}" in said
    assert "PoCL, from PyPI: NOT here; pip install pocl-binary-distribution" in said
    assert "Oclgrind: NOT here; apt-get install oclgrind" in said
    assert DEVICES["Apple"].label in said  # no runtime that anybody can install, but one that counts
    assert len(said) == len(runtimes.RUNTIMES) + 1
    assert [counts for counts, _ in runtimes.lines([POCL, DEVICES["Apple"]], None)].count(True) == 2


def test_only_devices_with_verified_cells_count() -> None:
    old = replace(POCL, platform_version="3.0-rc2")
    said = list(runtimes.lines([POCL, old], {POCL: 0, old: 1234}))
    assert (True, f"PoCL, from PyPI: {old.label}: 1,234 cells verified") in said
    assert (False, f"PoCL, from Debian: {POCL.label}: 0 cells verified") in said
    assert sum(counts for counts, _ in said) == 1


@pytest.mark.parametrize("least", [1, 2])
def test_too_few_runtimes_end_with_1(
    least: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runtimes, "here", lambda: [POCL])
    monkeypatch.setattr("sys.argv", ["runtimes.py", "--at-least", str(least)])
    assert runtimes.main() == (least > 1)
    assert ("1 runtimes, and at least 2 are asked for" in capsys.readouterr().out) == (least > 1)


def installed(folder: Path, **programs: str) -> subprocess.CompletedProcess[str]:
    """install-runtimes.sh where these are the only programs, beside those of the shell: name → script."""
    for name, script in programs.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    os.symlink("/bin/grep", folder / "grep")
    script = str(FOLDER / "install-runtimes.sh")
    return subprocess.run(
        ["/bin/sh", script], env={"PATH": str(folder)}, capture_output=True, text=True, check=False, timeout=30
    )


NOT_INSTALLED = "exit 1"
HERE = "echo 'install ok installed'"


def test_where_all_is_installed_nothing_is_done(tmp_path: Path) -> None:
    done = installed(tmp_path, dpkg_query=HERE, id="echo 0", apt_get="echo must not run; exit 1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_who_is_not_root_is_told_the_command(tmp_path: Path) -> None:
    done = installed(tmp_path, dpkg_query=NOT_INSTALLED, id="echo 1000", apt_get="echo must not run; exit 1")
    assert done.returncode == 0
    assert "only root may: sudo apt-get install ocl-icd-libopencl1 pocl-opencl-icd" in done.stderr


def test_where_there_is_no_apt_get_the_packages_are_named(tmp_path: Path) -> None:
    done = installed(tmp_path, dpkg_query=NOT_INSTALLED, id="echo 0")
    assert done.returncode == 0
    assert "no apt-get here: ocl-icd-libopencl1" in done.stderr


def test_root_installs_what_is_to_be_had_and_names_the_rest(tmp_path: Path) -> None:
    log = tmp_path / "log"
    apt = f'echo "$@" >>{log}; case "$*" in *oclgrind*) exit 100;; esac'
    done = installed(tmp_path, dpkg_query=NOT_INSTALLED, id="echo 0", apt_get=apt)
    assert done.returncode == 0
    assert done.stderr.splitlines() == ["not installed, apt-get cannot: oclgrind"]
    asked = log.read_text()
    for package in ("pocl-opencl-icd", "mesa-opencl-icd", "oclgrind", "libclblast1"):
        assert f"install -y -qq --no-install-recommends {package}\n" in asked
