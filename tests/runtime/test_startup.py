"""The start of a process: what is imported, and what is not until it is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import gemmport as gp

NEVER_FOR_A_PRODUCT = {"click", "matplotlib", "pycuda", "pydantic", "rich", "yaml"}
"""Packages that no product of NumPy arrays needs, once what is shipped was read on this machine."""

PRODUCT = """
import json, sys
import numpy as np
import gemmport as gp
early = {name.partition(".")[0] for name in sys.modules}
a = np.ones((8, 8), np.float32)
assert np.array_equal(gp.matmul(a, a, backend=sys.argv[1], device=sys.argv[2]), a @ a)
print(json.dumps([sorted(early), sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def test_a_product_imports_only_what_it_needs(
    backend: gp.Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))
    command = [sys.executable, "-c", PRODUCT, backend.name, backend.device.selector]
    first, second = (subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(2))
    never = NEVER_FOR_A_PRODUCT - {"pycuda" if backend.name == "cuda" else ""}
    early, late = (set(names) for names in json.loads(second))
    assert not early & (never | {"pycuda", "pyopencl"})
    assert not late & never
    assert set(json.loads(first)[1]) & never <= {"yaml"}  # which is read once


def test_the_version_is_that_of_the_installed_package() -> None:
    from importlib.metadata import version  # noqa: PLC0415

    assert gp.__version__ == version("gemmport")
