"""`gemmport cache warm`: what it prepares, the first call of another process does not compile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gemmport as gp
from gemmport import cli

SHAPES = """
- {m: 33, n: 17, k: 9}
- {m: 32, n: 48, k: 16, batch: 3, trans_a: T, alpha: 2, beta: 0.5, label: sum}
"""

FIRST_CALLS = """
import json, sys
import numpy as np
import gemmport as gp
backend = gp.get_backend(*sys.argv[1:])

def ones(*shape):
    return np.ones(shape, np.float32)

products = [
    (ones(33, 9), ones(9, 17), {}),
    (ones(3, 16, 32), ones(3, 16, 48), {"trans_a": "T", "alpha": 2, "beta": 0.5, "c": ones(3, 32, 48)}),
]
for a, b, more in products:
    on_host = gp.gemm(a, b, device=backend.device, **more)
    c = {"c": backend.asarray(more["c"])} if "c" in more else {}
    on_device = gp.gemm(backend.asarray(a), backend.asarray(b), **{**more, **c})
    assert np.array_equal(on_host, on_device.get())
counts = backend.program_counts
print(json.dumps([counts.compiled, counts.from_disk + counts.from_memory]))
"""


def run_in_a_process(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python with a cache in a folder, where PoCL does not keep programs beside ours."""
    environment = {**os.environ, "GEMMPORT_CACHE_DIR": str(folder), "POCL_KERNEL_CACHE": "0"}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env=environment)


def test_the_first_calls_of_another_process_compile_nothing(backend: gp.Backend, tmp_path: Path) -> None:
    (tmp_path / "shapes.yaml").write_text(SHAPES)
    place = backend.name, backend.device.selector
    command = ["cache", "warm", "--shapes", str(tmp_path / "shapes.yaml"), "--backend", place[0], "--device", place[1]]
    done = run_in_a_process(tmp_path, "-m", "gemmport", *command)
    assert (done.returncode, done.stdout.count("prepared")) == (0, 2), done.stdout + done.stderr
    assert " 0 compiled, " not in done.stdout
    later = run_in_a_process(tmp_path, "-c", FIRST_CALLS, *place)
    assert later.returncode == 0, later.stderr
    compiled, found = json.loads(later.stdout)
    assert (compiled, found >= 2) == (0, True)


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], best_backend: gp.Backend) -> Any:
    """Runs the command on the best device; gives (exit status, standard output, standard error)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        device = best_backend.device
        words = ["cache", "warm", "--backend", device.backend, "--device", device.selector, *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", ["gemmport", *words])
        status = cli._run_command()
        captured = capfd.readouterr()
        return status, captured.out, captured.err

    return run


def row_of(out: str, name: str) -> list[str]:
    """The cells of a shape after its name."""
    return next(line.partition(name)[2] for line in out.splitlines() if f" {name} " in line).split()


def test_the_table_tells_what_was_compiled_now_and_what_was_there(warm: Any, tmp_path: Path) -> None:
    shapes = tmp_path / "shapes.csv"
    shapes.write_text("label,m,n,k,dtype\nfirst,37,29,19,\nagain,37,29,19,\nwide,37,29,19,float64\n")
    status, out, err = warm("--shapes", shapes, "--dtype", "int32")
    assert (status, err) == (0, "")
    first, again, wide = (row_of(out, name) for name in ("first", "again", "wide"))
    assert {cells[-1] for cells in (first, again, wide)} == {"prepared"}
    assert int(first[1]) + int(first[2]) > 0
    assert again[1:3] == ["0", "0"]  # the call that was prepared for the first is its, too
    assert gp.plan(gp.GemmProblem.create(37, 29, 19, dtype="float64"), gp.devices()[0]).variant == wide[0]


def test_what_is_refused_is_told_by_its_name_and_the_others_are_prepared(warm: Any, tmp_path: Path) -> None:
    shapes = tmp_path / "shapes.yaml"
    shapes.write_text("- {m: 2000000, n: 2000000, k: 1, batch: 9, label: too large}\n- {m: 8, n: 8, k: 8}\n")
    status, out, _ = warm("--shapes", shapes)
    assert status == 1
    assert row_of(out, "too large")[-1] == "refused"
    assert row_of(out, "float32 NN 8×8×8")[-1] == "prepared"
    assert "is not prepared: " in next(line for line in out.splitlines() if line.startswith("too large on "))


def test_a_cache_that_cannot_be_written_is_told_before_the_work(
    warm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shapes.csv").write_text("m,n,k\n8,8,8\n")
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path / "file"))
    status, out, err = warm("--shapes", tmp_path / "shapes.csv")
    assert (status, out) == (2, "")
    assert "the cache cannot be written" in err
