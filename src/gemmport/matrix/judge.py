"""Whether a cell is computed rightly on an open device."""

from __future__ import annotations

import traceback
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gemmport.api.plans import plan
from gemmport.backends.base import Backend
from gemmport.bench.products import Options, Result, run_benchmark
from gemmport.bench.results import BaselineResult
from gemmport.checking.guarded_run import DEFAULT_GUARD, try_plan
from gemmport.checking.verification import cut_of
from gemmport.core.errors import DtypeError, GemmportError, UnsupportedError
from gemmport.core.problem import GemmProblem
from gemmport.fuzz.case import Data, fault_of, operands_of
from gemmport.matrix.cells import SIMULATED, Cell
from gemmport.matrix.record import Status
from gemmport.planning.lookup import load_configuration

REPEAT = 5
"""Samples of what is timed."""

_STATUS: Mapping[str, Status] = {"ok": "verified", "failed": "wrong", "error": "error"}
"""Of a result of the benchmark."""


@dataclass(frozen=True)
class Judgement:
    """What came of a cell; as in `gemmport.matrix.record.Verdict`."""

    status: Status
    reason: str = ""
    m: int = 0
    n: int = 0
    k: int = 0
    batch: int = 0
    gflops: float | None = None
    baselines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def judge(cell: Cell, backend: Backend) -> Judgement:
    """Computes a cell in poisoned memory and compares the result with the reference; what is large, it times, too.

    Whatever is raised is part of the answer. Only the end of the process is not.
    """
    try:
        problem = cell.problem(backend.device)
    except (UnsupportedError, DtypeError) as error:
        return Judgement("unsupported", str(error))
    except GemmportError as error:
        return Judgement("error", f"{type(error).__name__}: {error}")
    judged = _answer(cell, problem, backend)
    return replace(judged, m=problem.m, n=problem.n, k=problem.k, batch=problem.batch)


def _answer(cell: Cell, problem: GemmProblem, backend: Backend) -> Judgement:
    try:
        return _timed(cell, problem, backend) if cell.shape == "large" else _tried(cell, problem, backend)
    except (UnsupportedError, DtypeError) as error:
        return Judgement("unsupported", str(error))
    except GemmportError as error:
        return Judgement("error", f"{type(error).__name__}: {error}")
    except Exception:  # noqa: BLE001 - whatever is raised that is not ours is what the matrix looks for
        return Judgement("error", traceback.format_exc())


def _tried(cell: Cell, problem: GemmProblem, backend: Backend) -> Judgement:
    data: Data = "random numbers" if cell.statistical else "whole numbers"
    made = plan(problem, backend.device, kernel=cell.kernel)
    operands = operands_of(problem, data, zlib.crc32(cell.id.encode()))
    for name, values in operands.items():
        if problem.layout(name).batch_stride == 0:
            operands[name] = np.broadcast_to(values[:1], values.shape)
    # A simulator itself sees what is beyond the end of an operand, if nothing lies there.
    guard = 0 if backend.device.platform in SIMULATED else DEFAULT_GUARD
    trial = try_plan(backend, made, operands, in_place=cell.in_place, guard=guard)
    fault = trial.stray or fault_of(problem, operands, data, trial.d, cut_of(made))
    return Judgement("wrong" if fault else "verified", fault)


def _timed(cell: Cell, problem: GemmProblem, backend: Backend) -> Judgement:
    options = Options(load_configuration(), kernels=(cell.kernel,), repeat=REPEAT)
    (result,) = run_benchmark([problem], [backend.device], options)
    return Judgement(
        _STATUS[result.status], result.reason, gflops=result.rate(result.timing),
        baselines={baseline.name: _beside(result, baseline) for baseline in result.baselines},
    )  # fmt: skip


def _beside(result: Result, baseline: BaselineResult) -> dict[str, Any]:
    if baseline.timing is None:
        return {"gflops": None, "ratio": None, "status": f"unavailable: {baseline.reason}"}
    verified = "verified" if baseline.verified else "wrong"
    return {"gflops": result.rate(baseline.timing), "ratio": result.ratio(baseline), "status": verified}
