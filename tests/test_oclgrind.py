"""Oclgrind, a simulator of OpenCL devices, finds no data race, no uninitialized read and no access out of bounds."""

from __future__ import annotations

import importlib.resources
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from extensions import EXTENSIONS
from gemmport import kernels

pytestmark = pytest.mark.skipif(
    shutil.which("oclgrind") is None, reason="oclgrind is not on the PATH: install it, e.g. Debian's package oclgrind"
)

HERE = Path(__file__).parent

# Everything Oclgrind complains of; where it meets what it cannot simulate, it says so and goes on with wrong data.
COMPLAINT = re.compile(
    r"race|uninitialized|invalid|unsupported|out of bounds|divergence|error|fatal|unrecogni[sz]ed|oclgrind",
    re.IGNORECASE,
)

CASES = [
    ("naive", {"TS": 4}),
    ("tiled", {"TS": 4, "PAD": 0}),
    ("tiled", {"TS": 8, "PAD": 1}),
    *(
        ("register_tiled", {"TSM": 8, "TSN": 16, "TSK": 3, "WPTM": 4, "WPTN": 4, "ARRANGE": arrange, "PAD": pad})
        for arrange, pad in (("strided", 0), ("contiguous", 1), ("quads", 1))
    ),
    *((variant.name, {}) for variant in EXTENSIONS),
]


def simulate(
    tmp_path: Path, kernel: str, params: dict[str, int | str], ops: str, folder: str = ""
) -> tuple[int, str, str]:
    """Exit status, Oclgrind's log, and what else was said."""
    log = tmp_path / "log"
    command = [
        "oclgrind", "--data-races", "--uninitialized", "--log", str(log),
        sys.executable, str(HERE / "under_oclgrind.py"), kernel, json.dumps(params), ops, folder,
    ]  # fmt: skip
    environment = {**os.environ, "GEMMPORT_CACHE_DIR": str(tmp_path / "cache"), "GEMMPORT_DEVICE": "oclgrind"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, log.read_text() if log.exists() else "", done.stdout + done.stderr


@pytest.mark.parametrize(
    ("kernel", "params"), CASES, ids=lambda v: "-".join(map(str, v.values())) if isinstance(v, dict) else v
)
def test_nothing_is_found_and_results_are_exact(tmp_path: Path, kernel: str, params: dict[str, int | str]) -> None:
    for ops in ("NT",) if kernel == "aligned" else ("NN", "TT"):
        status, log, said = simulate(tmp_path, kernel, params, ops)
        assert status == 0, said
        assert not COMPLAINT.search(log + said), log + said


def test_every_kernel_of_the_family_is_simulated() -> None:
    assert {variant.name for variant in (*kernels.variants(), *EXTENSIONS)} == {kernel for kernel, _ in CASES}


def planted(tmp_path: Path, old: str, new: str) -> str:
    """A folder with a copy of `tiled` in which some text is replaced."""
    source = (importlib.resources.files("gemmport.kernels") / "opencl" / "tiled.cl").read_text("utf-8")
    assert old in source
    (tmp_path / "opencl").mkdir()
    (tmp_path / "opencl" / "tiled.cl").write_text(source.replace(old, new), encoding="utf-8")
    return str(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        pytest.param("barrier(CLK_LOCAL_MEM_FENCE); // the tiles are complete", "", "race", id="first-barrier-missing"),
        pytest.param("barrier(CLK_LOCAL_MEM_FENCE); // nobody reads", "// nobody reads", "race", id="second-barrier-missing"),
        pytest.param("a_tile[a_row][a_term] = INSIDE", "if (a_row) a_tile[a_row][a_term] = INSIDE", "uninitialized",
                     id="part-of-the-tile-not-written"),
        pytest.param("D + i * ld_d + j", "D + i * ld_d + j + 100000", "invalid write", id="written-out-of-bounds"),
    ],
)  # fmt: skip
def test_planted_faults_are_found(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    _, log, said = simulate(tmp_path, "tiled", {"TS": 4, "PAD": 0}, "NN", planted(tmp_path, old, new))
    assert complaint in (log + said).lower()
    assert COMPLAINT.search(log + said)
