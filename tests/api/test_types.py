"""What type checkers say of a user's script that uses gemmport as it is installed."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import gemmport
from absences import MYPY, PYRIGHT, skip_without
from gemmport import backends, configs, kernels

SCRIPT = """
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

import gemmport as gp


class Tensor:
    shape: tuple[int, ...]


class Table:
    __hash__ = None  # type: ignore[assignment]

    def to_numpy(self) -> npt.NDArray[np.float64]:
        return np.eye(2)


Array = npt.NDArray[Any]
Wide = npt.NDArray[np.float64]

host = np.ones((3, 3), np.float32)
wide: Wide = np.ones((3, 3))
array = np.array([[1, 2], [3, 4]])  # NumPy's types say Any of it
vector = np.arange(3.0)
backend = gp.get_backend("opencl", 0)
ours = backend.asarray(host)
tensor, table = Tensor(), Table()
unknown: Any = object()
maybe: Array | None = None if host.size else host

assert_type(gp.matmul(host, wide), Array)
assert_type(gp.matmul(array, array), Array)
assert_type(gp.matmul(array, [[1, 2], [4.0, 5]], order="F", device=backend.device), Array)
assert_type(gp.matmul(array, array, None), Array)
assert_type(gp.matmul(ours, ours), gp.DeviceArray)
assert_type(gp.matmul(ours, array), gp.DeviceArray)
assert_type(gp.matmul(array, ours.T[1:], dtype=np.float64), gp.DeviceArray)
assert_type(gp.matmul(array, array, wide), Wide)
assert_type(gp.matmul(array, array, out=(wide,)), Wide)
assert_type(gp.matmul(ours, array, out=ours), gp.DeviceArray)
assert_type(gp.matmul(tensor, tensor, out=tensor), Tensor)
assert_type(gp.matmul(tensor, array), Any)
assert_type(gp.matmul(array, tensor), Any)
assert_type(gp.matmul(unknown, unknown), Any)
assert_type(gp.matmul(table, array), Any)
assert_type(gp.matmul(vector, vector), Array)  # a scalar, which the types of most arrays do not tell

assert_type(gp.gemm(host, host, alpha=2j, trans_a="T", trans_b=True), Array)
assert_type(gp.gemm(array, array.T, beta=1, c=maybe, wait_for=backend.record()), Array)
assert_type(gp.gemm(array, array, beta=1, c=array), Array)
assert_type(gp.gemm([array, array], array, kernel="tiled", params={"TS": 8}), Array)
assert_type(gp.gemm(ours, array, beta=0.5, c=array), gp.DeviceArray)
assert_type(gp.gemm(array, ours, wait_for=[ours.ready]), gp.DeviceArray)
assert_type(gp.gemm(array, array, beta=0.5, c=ours), gp.DeviceArray)
assert_type(gp.gemm([ours, ours], array), gp.DeviceArray)
assert_type(gp.gemm(ours, tensor), gp.DeviceArray)
assert_type(gp.gemm(array, array, out=wide), Wide)
assert_type(gp.gemm(array, array, out=maybe), Array)
assert_type(gp.gemm(ours, ours, out=ours), gp.DeviceArray)
assert_type(gp.gemm(tensor, array, out=tensor), Tensor)
assert_type(gp.gemm(tensor, tensor), Any)
assert_type(gp.gemm([tensor, tensor], array), Any)
assert_type(gp.gemm(array, array, beta=1, c=tensor), Any)
assert_type(gp.gemm(unknown, array, out=unknown), Any)
assert_type(gp.gemm(array, table), Any)

with gp.open_backend(device="intel") as own, gp.gemm(own.asarray(host), own.zeros((3, 3), "float32")) as product:
    assert_type(own, gp.Backend)
    assert_type(product.get(), Array)
assert_type(gp.__version__, str)

gp.gemm(host, host, alpha="2")  # type: ignore[call-overload]
gp.gemm(host, host, no_such_option=2)  # type: ignore[call-overload]
gp.matmul(host, host, trans_a="T")  # type: ignore[call-overload]
gp.no_such_name  # type: ignore[attr-defined]
"""
"""Strictly checked. An ignored error that is none any more is an error, too."""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Python of an environment in which gemmport is installed: its modules, and what pyproject.toml ships with them."""
    folder = tmp_path / "environment"
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    told = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    (shipped,) = re.findall(r'^"gemmport" = (\[.*\])$', told, re.MULTILINE)

    def left_out(_: str, names: list[str]) -> list[str]:
        return [
            name for name in names if "." in name and not name.endswith(".py") and name not in ast.literal_eval(shipped)
        ]

    for package, name in ((gemmport, ""), (backends, "backends"), (kernels, "kernels"), (configs, "configs")):
        shutil.copytree(package.__path__[0], site / "gemmport" / name, ignore=left_out, dirs_exist_ok=True)
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


def checked(script: str, environment: Path, folder: Path) -> tuple[int, str]:
    """The status of mypy, and what it says."""
    path = folder / "script.py"
    path.write_text(script)
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", environment, "--cache-dir", folder / "mypy", path],
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip
    return ran.returncode, ran.stdout + ran.stderr


def seen_by_pyright(script: str, environment: Path, folder: Path) -> list[str]:
    """The errors that Pyright, of editors, sees."""
    (folder / "script.py").write_text(script)
    (folder / "pyrightconfig.json").write_text('{"reportUnnecessaryTypeIgnoreComment": "error"}')
    ran = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", environment, "--outputjson", "--project", folder],
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip
    return [told["message"] for told in json.loads(ran.stdout)["generalDiagnostics"]]


@pytest.mark.processes
def test_what_pyright_sees(environment: Path, tmp_path: Path) -> None:
    skip_without(PYRIGHT)
    folder = tmp_path / "user"
    folder.mkdir()
    assert seen_by_pyright(SCRIPT, environment, folder) == []
    (said,) = seen_by_pyright(SCRIPT + "assert_type(gp.matmul(host, host), gp.DeviceArray)\n", environment, folder)
    assert 'received "NDArray[' in said or 'received "ndarray[' in said


def test_what_comes_in_decides_what_comes_out(environment: Path, tmp_path: Path) -> None:
    skip_without(MYPY)
    assert checked(SCRIPT, environment, tmp_path) == (0, "Success: no issues found in 1 source file\n")
    wrong = "gp.matmul(host, host), gp.DeviceArray"
    status, said = checked(SCRIPT + f"assert_type({wrong})\n", environment, tmp_path)
    assert (status, said.count("error:")) == (1, 1)
    assert 'Expression is of type "ndarray[' in said
