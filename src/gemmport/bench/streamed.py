"""Products of arrays on the host that pass through a device in tiles: verified, and timed as a whole."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport.api.gemm import gemm
from gemmport.api.product import Choice
from gemmport.api.streamed import scheduled
from gemmport.bench.timing import LEAST_SAMPLES
from gemmport.checking.verification import drawn, inputs
from gemmport.contracts.kernel import Parameters
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DType
from gemmport.core.precision import FULL
from gemmport.core.problem import GemmProblem, transposes
from gemmport.outofcore.progress import Tell
from gemmport.planning.schedule import Schedule
from gemmport.runtime.side_by_side import in_blocks

HostArray = npt.NDArray[Any]


@dataclass(frozen=True)
class StreamedResult:
    """What a product took that passed through a device.

    Attributes:
        seconds: of the call, of arrays in the host's memory, to the result there; the shortest of the repetitions.
        verified: whether at least a row of each tile was exact; None where it was not looked at.
        mapped: whether the operands were memory maps of files.
    """

    device: DeviceInfo
    problem: GemmProblem
    schedule: Schedule
    seconds: float
    verified: bool | None
    mapped: bool

    @property
    def gflops(self) -> float:
        """10⁹ operations per second."""
        return self.problem.flops / self.seconds * 1e-9 if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "device": self.device.to_dict(),
            "problem": self.problem.to_dict(),
            "schedule": self.schedule.to_dict(),
            "seconds": self.seconds,
            "gflops": self.gflops,
            "verified": self.verified,
            "mapped": self.mapped,
        }


_COLUMNS = 256
"""Of the result that a thread compares at a time."""

_MORE = np.float32(1 + 2.0**-13)
"""By which numbers of few bits are multiplied so that rounding them to any precision, of at most 11 bits, gives them back."""


def run_streamed(
    problem: GemmProblem, device: DeviceInfo, memory: int, *, kernel: str, params: Parameters, config: Sequence[Path],
    verify: bool, repeat: int, seed: int, mapped: Path | None = None, patience: float = math.inf, progress: Tell | None = None,
) -> StreamedResult:  # fmt: skip
    """Computes a product of small whole numbers, once to compile and to verify, and then so many times into the same memory.
    Where A and B are rounded before they are multiplied, they are such numbers when they were.

    Args:
        patience: seconds after which it is computed no more, once there are `LEAST_SAMPLES`.
        memory: bytes of the device that it may take.
        mapped: a folder in which the operands are files, which are mapped and read again and again. Others as `gemmport.gemm`.

    Raises:
        DeviceMemoryError: no tile has room. Others as `gemmport.gemm`.
    """
    rng = np.random.default_rng(seed)
    batch = (problem.batch,) if problem.batch > 1 else ()
    operands = {
        operand: _whole((*batch, *problem.stored_shape(operand)), problem.element_type(operand), rng)
        for operand in inputs(problem)
    }
    choice = Choice(
        kernel, params or None, tuple(config) or None, problem.accumulator.numpy, precision=problem.precision
    )  # fmt: skip
    found = scheduled(problem, device, choice, memory)
    given = {name: x * _MORE if name != "c" and problem.precision != FULL else x for name, x in operands.items()}
    taken: list[float] = []

    def timed(out: Any) -> HostArray:
        begin = time.perf_counter()
        d: HostArray = gemm(
            given["a"], given["b"], alpha=problem.alpha, beta=problem.beta, c=given.get("c"), trans_a=problem.trans_a,
            trans_b=problem.trans_b, dtype=problem.output.numpy, accumulator=problem.accumulator.numpy, device=device,
            kernel=kernel, params=params or None, config=tuple(config) or None, device_memory=memory, progress=progress,
            precision=problem.precision, out=out,
        )  # fmt: skip
        taken.append(time.perf_counter() - begin)
        return d

    with ExitStack() as stack:
        if mapped is not None:
            folder = Path(stack.enter_context(TemporaryDirectory(dir=mapped, ignore_cleanup_errors=True)))
            given = {name: _mapped(x, folder / name) for name, x in given.items()}
        d = timed(None)
        a, b, c = operands["a"], operands["b"], operands.get("c")
        verified = _is_exact(found, a, b, c, d, rng) if verify else None
        taken.clear()
        while len(taken) < repeat and (len(taken) < LEAST_SAMPLES or sum(taken) < patience):
            timed(d)
    return StreamedResult(device, problem, found, min(taken), verified, mapped is not None)


def _mapped(x: HostArray, file: Path) -> HostArray:
    """An array as a map of a file, whose pages are in the system's cache by then."""
    x.tofile(file)
    return np.memmap(file, x.dtype, "r", shape=x.shape)


def _whole(shape: tuple[int, ...], dtype: DType, rng: np.random.Generator) -> HostArray:
    """Whole numbers so small that no sum is rounded."""
    least, beyond = (0, 2) if dtype.kind == "bool" else (-2, 3)
    return drawn(rng, shape, dtype, lambda rng, place: rng.integers(least, beyond, place.stop - place.start, np.int8))


def _is_exact(
    found: Schedule, a: HostArray, b: HostArray, c: HostArray | None, d: HostArray, rng: np.random.Generator
) -> bool:  # fmt: skip
    """Whether a row of each tile, and the first and last of all, are what NumPy makes of them in a wider type."""
    problem = found.problem
    starts = range(0, problem.m, found.rows)
    rows = sorted({0, max(problem.m - 1, 0), *(min(int(s + rng.integers(found.rows)), problem.m - 1) for s in starts)})
    if problem.empty:
        return True
    wide = {"complex": np.complex128, "real": np.float64}.get(problem.output.kind, np.int64)

    def op(x: HostArray, name: str) -> HostArray:
        turned = x.swapaxes(-1, -2) if transposes(name) else x  # type: ignore[arg-type]
        return turned.conj() if name in "CR" else turned

    left: HostArray = op(a, problem.trans_a)[..., rows, :].astype(wide)
    right: HostArray = op(b, problem.trans_b)

    def right_in(place: slice) -> bool:
        product = problem.alpha * (left @ right[..., place].astype(wide))
        if c is not None:
            product = product + problem.beta * c[..., rows, place].astype(wide)
        wanted = (product != 0) if problem.output.kind == "bool" else product
        with np.errstate(all="ignore"):
            return bool(np.array_equal(d[..., rows, place], wanted.astype(problem.output.numpy)))

    return all(in_blocks(right_in, problem.n, _COLUMNS))
