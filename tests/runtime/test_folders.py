"""Whole processes where folders cannot be written to, or others may write to them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import gemmport as gp
from absences import INTEL, POCL_WHEEL, skip_without

PRODUCT = """
import logging, sys
import numpy as np
import gemmport as gp
logging.basicConfig(format="%(levelname)s %(message)s")
a = np.arange(64, dtype=np.float32).reshape(8, 8)
assert np.array_equal(gp.gemm(a, a, backend=sys.argv[1], device=sys.argv[2], kernel="naive"), a @ a)
"""

NO_TEMPORARY_FILES = "import tempfile; tempfile.tempdir = '/proc/nowhere'\n"
"""Stands before a script: no folder for temporary files can be written to."""

REFUSED = """
import gemmport as gp
for backend in ("opencl", None):
    try:
        gp.get_backend(backend, "pocl")
    except (gp.DeviceNotFoundError, gp.BackendUnavailableError) as error:
        print(error)
"""

READ_ONLY = """
mount --make-rprivate /
for place in $(awk '{print $5}' /proc/self/mountinfo); do mount -o remount,bind,ro "$place" 2>/dev/null; done
exec "$@"
"""
"""What a shell in a name space of its own does, so that a command can write to no file system."""


def environment(**told: str) -> dict[str, str]:
    """Of a user whose home cannot be written to, and who set no variable about folders."""
    set_elsewhere = (
        "GEMMPORT_CACHE_DIR",
        "POCL_CACHE_DIR",
        "MESA_SHADER_CACHE_DIR",
        "XDG_CACHE_HOME",
        "OCL_ICD_VENDORS",
    )
    kept = {name: value for name, value in os.environ.items() if name not in set_elsewhere}
    return {**kept, "HOME": "/proc/nohome", "PYTHONDONTWRITEBYTECODE": "1", **told}


def run(script: str, *arguments: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=dict(variables), capture_output=True, text=True, check=False)


def warnings_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


@pytest.mark.every_runtime
def test_a_home_that_cannot_be_written_to_costs_the_cache_alone(backend: gp.Backend) -> None:
    """The log says so, once."""
    done = run(PRODUCT, backend.name, _words(backend), variables=environment())
    (line,) = warnings_of(done)
    assert line.startswith("WARNING cannot write the program cache /proc/nohome/.cache/gemmport/")
    assert line.endswith("; without it each process compiles anew: set GEMMPORT_CACHE_DIR")


def test_nor_does_it_cost_that_where_a_cache_is_named(tmp_path: Path, best_backend: gp.Backend) -> None:
    variables = environment(GEMMPORT_CACHE_DIR=str(tmp_path))
    assert not warnings_of(run(PRODUCT, best_backend.name, _words(best_backend), variables=variables))
    assert (tmp_path / "configs").exists()


def test_without_any_folder_pocl_is_refused_by_name_and_intels_runtime_works() -> None:
    skip_without(INTEL, POCL_WHEEL)
    done = run(NO_TEMPORARY_FILES + PRODUCT + REFUSED, "opencl", "intel", variables=environment())
    assert any("each process compiles anew" in line for line in warnings_of(done))
    assert len(warnings_of(done)) <= 2  # the other: that runtimes of the system are not seen
    for line in done.stdout.splitlines():
        assert line.startswith("no device 'pocl'; there are ")
        assert "PoCL is left out: it writes what it compiles to a folder" in line
        assert "; set POCL_CACHE_DIR or TMPDIR to a folder of your own" in line
    assert len(done.stdout.splitlines()) == 2


def test_where_pocl_is_refused_it_is_no_device_although_the_loader_finds_it(tmp_path: Path) -> None:
    """It would load what others put into this folder."""
    skip_without(POCL_WHEEL)
    (tmp_path / "icd").mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    folders = {"OCL_ICD_VENDORS": str(tmp_path / "icd"), "POCL_CACHE_DIR": str(tmp_path / "shared")}
    done = run(NO_TEMPORARY_FILES + REFUSED, variables=environment(**folders))
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2), done.stderr
    for line in done.stdout.splitlines():
        assert f"{tmp_path / 'shared'} must be owned by root or by you" in line.partition("PoCL is left out: ")[2]
        assert "there are" not in line


@pytest.mark.processes
@pytest.mark.parametrize(
    "arguments", [["run", "--size", "64", "--baseline", "none"], ["doctor"], ["devices"], ["configs"]]
)
def test_commands_work_where_every_file_system_is_read_only(arguments: list[str]) -> None:
    skip_without(INTEL)
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("file systems are made read-only by root alone")
    script = "import sys; sys.argv[0] = 'gemmport'; from gemmport.cli import main; main()"
    command = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", sys.executable, "-c", script, *arguments]
    chosen = {} if arguments == ["doctor"] else {"GEMMPORT_DEVICE": "intel"}
    done = subprocess.run(command, env=environment(**chosen), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.every_runtime
@pytest.mark.processes
def test_folders_that_others_may_write_to_cost_the_cache_alone(backend: gp.Backend, tmp_path: Path) -> None:
    """PoCL's, too: it loads what it finds there."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    variables = environment(HOME=str(tmp_path / "home"), XDG_CACHE_HOME=str(shared))
    (line,) = warnings_of(run(PRODUCT, backend.name, _words(backend), variables=variables))
    assert f"{shared} must be owned by root or by you" in line
    assert {path.name for path in shared.iterdir()} <= {"mesa_shader_cache"}  # Mesa's own affair


def _words(backend: gp.Backend) -> str:
    """The device by its platform's name, whose number is another one where runtimes are found in another order."""
    return f"{backend.device.platform} {backend.device.platform_version}:{backend.device.index[1]}"
