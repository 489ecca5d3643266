"""benchmarks/ratios.py draws README's picture: which ratio is to what."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def picture() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("benchmarks_ratios", BENCHMARKS / "ratios.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_of(
    backend: str, size: int, gflops: float | None, k: int | None = None, **baselines: float | None
) -> dict[str, Any]:
    told = {name: {"gflops": rate} for name, rate in baselines.items()}
    return {"m": size, "n": size, "k": k or size, "backend": backend, "gflops": gflops, "baselines": told}


def test_opencl_stands_beside_the_time_of_cublas_under_cuda(picture: ModuleType) -> None:
    ours = [
        run_of("cuda", 256, 30.0, cublas=20.0), run_of("opencl", 256, 10.0, cublas=None, clblast=1.0),
        run_of("cuda", 512, None, cublas=7.0), run_of("opencl", 1024, 10.0), run_of("cuda", 64, 8.0, 65, cublas=2.0),
    ]  # fmt: skip
    assert picture.ratios([ours]) == {"cuBLAS": {"cuda": {256: 1.5}, "opencl": {256: 0.5}}, "NumPy": {}}


def test_calls_stand_beside_numpy_under_the_runtime_s_name(picture: ModuleType) -> None:
    calls = [
        {"device": "AMD EPYC (opencl, pocl 3.1)", "m": 64, "n": 64, "k": 64, "numpy_seconds": {}, "ratio": 0.25},
        {"device": "AMD EPYC (opencl, intel 2026.2)", "m": 64, "n": 64, "k": 64, "numpy_seconds": {}, "ratio": 0.5},
    ]
    assert picture.ratios([calls[:1], calls[1:]])["NumPy"] == {"pocl 3.1": {64: 0.25}, "intel 2026.2": {64: 0.5}}
