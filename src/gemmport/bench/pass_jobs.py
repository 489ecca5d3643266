"""What the steps of a ladder of passes do, all the same, and whether they did it right."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast

import numpy as np
import numpy.typing as npt

from gemmport.checking.verification import LAMBDA, Check, random_numbers
from gemmport.contracts.kernel import Parameters, Rung, Steps, ceil_div
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DType, default_accumulator
from gemmport.core.errors import UnsupportedError

HostArray = npt.NDArray[Any]


class PassTrial(ABC):
    """A source, flat, to verify steps with."""

    source: HostArray

    @abstractmethod
    def check(self, target: HostArray, rung: Rung, steps: Steps) -> Check:
        """Whether the target is what the step should make of the source by these launches."""


class PassJob(ABC):
    """What each step of a ladder does: it reads the buffer "source" and writes the buffer "target"."""

    dtype: DType
    yardstick_turns: ClassVar[int] = 1
    """Turns that the copy needs at least."""

    @property
    @abstractmethod
    def source_bytes(self) -> int:
        """Of the elements read."""

    @property
    @abstractmethod
    def target_bytes(self) -> int:
        """Of the elements written."""

    @property
    @abstractmethod
    def extents(self) -> dict[str, int]:
        """Sizes by name."""

    @property
    @abstractmethod
    def work(self) -> int:
        """Bytes that must be read and written."""

    @property
    @abstractmethod
    def target_type(self) -> np.dtype[Any]:
        """Of the elements written."""

    @abstractmethod
    def random_source(self, seed: int) -> HostArray:
        """Random elements, flat."""

    @abstractmethod
    def steps(self, rung: Rung, device: DeviceInfo) -> Steps:
        """The launches of a step.

        Raises:
            ParameterError: the step is beyond a limit of the device.
            UnsupportedError: the device lacks something that the step needs.
        """

    @abstractmethod
    def trials(self, source: HostArray, seed: int) -> Iterator[PassTrial]:
        """What to verify steps with.

        Args:
            source: random, as `random_source` makes it.
        """

    @abstractmethod
    def on_host(self, source: HostArray) -> Callable[[], HostArray]:
        """The same work in NumPy, ready to be done: its result is what the last step of the ladder writes."""

    @abstractmethod
    def __str__(self) -> str: ...


class _MovesMatrix(Protocol):
    """What the passes of the transposition ladder offer. Whether rows become columns is their parameter TRANSPOSE."""

    def steps(self, rows: int, columns: int, dtype: DType, parameters: Parameters, device: DeviceInfo) -> Steps: ...


@dataclass(frozen=True)
class Transposition(PassJob):
    """A dense matrix, rows × columns, copied or transposed into a dense one, as the step says. Compared bit for bit, of bits
    drawn at random: those of NaNs too must come through.
    """

    rows: int
    columns: int
    dtype: DType

    @property
    def source_bytes(self) -> int:
        return self.rows * self.columns * self.dtype.itemsize

    target_bytes = source_bytes

    def __str__(self) -> str:
        return f"{self.dtype} {self.rows}×{self.columns}"

    @property
    def extents(self) -> dict[str, int]:
        return {"rows": self.rows, "columns": self.columns}

    @property
    def work(self) -> int:
        return 2 * self.source_bytes

    @property
    def target_type(self) -> np.dtype[Any]:
        """Words of the elements' size: bits are moved, not numbers."""
        return np.dtype(f"u{self.dtype.itemsize}") if self.dtype.itemsize <= 8 else np.dtype(np.complex128)

    def random_source(self, seed: int) -> HostArray:
        values = 2 if self.dtype.kind == "bool" else 256
        return np.random.default_rng(seed).integers(0, values, self.source_bytes, np.uint8).view(self.target_type)

    def steps(self, rung: Rung, device: DeviceInfo) -> Steps:
        own, parameters = cast("_MovesMatrix", rung.own), rung.own.complete(rung.parameters)
        return own.steps(self.rows, self.columns, self.dtype, parameters, device)

    def trials(self, source: HostArray, seed: int) -> Iterator[PassTrial]:
        yield _Moved(source, self.on_host(source)())

    def on_host(self, source: HostArray) -> Callable[[], HostArray]:
        result = np.empty((self.columns, self.rows), self.target_type)

        def work() -> HostArray:
            np.copyto(result, source.reshape(self.rows, self.columns).T)
            return result.reshape(-1)

        return work


class _Reduces(Protocol):
    """What the passes of the reduction ladder offer."""

    def steps(self, count: int, dtype: DType, parameters: Parameters, device: DeviceInfo) -> Steps: ...

    def unsupported(self, dtype: DType, parameters: Parameters, device: DeviceInfo) -> str | None: ...


@dataclass(frozen=True)
class Reduction(PassJob):
    """The sum of so many elements, in the type of a product's sums ("or" of truth values, integers modulo 2³² or 2⁶⁴).

    Exact sums, of integers or of few enough small whole numbers, are compared bit for bit, sums of N(0, 1) with more precise
    ones. The bound of those is that of `gemmport.checking.verification` for a tree: on each of its levels n/2ʲ additions round
    sums of the size √2ʲ, and the work-items add up `share` elements each before it, so that the error has a standard deviation
    of at most u / √3 · √(share / 2 + levels) · ‖x‖₂.
    """

    count: int
    dtype: DType
    yardstick_turns = 2  # where the target is one number, it copies a source to the next

    def __str__(self) -> str:
        return f"{self.count:,} {self.dtype}"

    @property
    def sums(self) -> DType:
        """What is summed in."""
        return default_accumulator(self.dtype, self.dtype)

    @property
    def source_bytes(self) -> int:
        return self.count * self.dtype.itemsize

    @property
    def target_bytes(self) -> int:
        return self.target_type.itemsize

    @property
    def extents(self) -> dict[str, int]:
        return {"count": self.count}

    @property
    def work(self) -> int:
        return self.source_bytes

    @property
    def target_type(self) -> np.dtype[Any]:
        """Integers and truth values are summed in unsigned numbers of 32 or 64 bits."""
        return self.sums.numpy if self.sums.precision else np.dtype("u8" if self.sums.itemsize == 8 else "u4")

    def random_source(self, seed: int) -> HostArray:
        return random_numbers(np.random.default_rng(seed), (self.count,), self.dtype)

    def steps(self, rung: Rung, device: DeviceInfo) -> Steps:
        own, parameters = cast("_Reduces", rung.own), rung.own.complete(rung.parameters)
        if reason := own.unsupported(self.dtype, parameters, device):
            raise UnsupportedError(reason)
        return own.steps(self.count, self.dtype, parameters, device)

    def trials(self, source: HostArray, seed: int) -> Iterator[PassTrial]:
        rng = np.random.default_rng(seed)
        if self.dtype.kind == "bool":
            for places in ([], [0], [self.count - 1], [int(rng.integers(self.count))]):
                truths = np.zeros(self.count, bool)
                truths[places] = True
                yield self._exactly(truths)
        elif not self.sums.precision:
            yield self._exactly(source)
        else:
            yield self._exactly(self._whole_numbers(rng))
            yield self._within_bound(source)

    def on_host(self, source: HostArray) -> Callable[[], HostArray]:
        if self.dtype.kind == "bool":
            return lambda: np.array([source.any()], self.target_type)
        return lambda: np.array([source.sum(dtype=self.target_type)])

    def _exactly(self, source: HostArray) -> PassTrial:
        return _Summed(source, self._precise(source) if self.sums.precision else self.on_host(source)()[0].item())

    def _within_bound(self, source: HostArray) -> PassTrial:
        norm = math.sqrt(sum(float(np.square(part, dtype=np.float64).sum()) for part in self._parts(source)))
        return _Summed(source, self._precise(source), LAMBDA * self.sums.unit_roundoff * norm)

    def _whole_numbers(self, rng: np.random.Generator) -> HostArray:
        """Small whole numbers of both signs of which no sum of some rounds; where there are too many, most are zero, but
        those at the ends, where faults are.
        """
        room = 2 ** (self.sums.precision - 1)
        largest = max(1, min(8, room // self.count))
        parts = []
        for _ in range(2 if self.dtype.kind == "complex" else 1):
            part = rng.integers(-largest, largest, self.count, np.int8, endpoint=True)
            if self.count > room:
                part[rng.random(self.count, np.float32) >= room / self.count] = 0
            part[[0, -1]] = largest
            parts.append(part)
        if len(parts) == 2:
            real = np.stack(parts, axis=1).astype(f"float{self.dtype.part_bits}")
            return real.view(self.dtype.numpy)[:, 0]
        return parts[0].astype(self.dtype.numpy)

    def _parts(self, x: HostArray) -> Sequence[HostArray]:
        return (x.real, x.imag) if self.dtype.kind == "complex" else (x,)

    def _precise(self, source: HostArray) -> complex | float:
        """The sum in float64; rounded once where the sums themselves are in it."""
        exactly = self.sums.precision > 24
        parts = [math.fsum(part) if exactly else float(part.sum(dtype=np.float64)) for part in self._parts(source)]
        return complex(*parts) if len(parts) == 2 else parts[0]


@dataclass(frozen=True)
class _Moved(PassTrial):
    source: HostArray
    transposed: HostArray

    def check(self, target: HostArray, rung: Rung, steps: Steps) -> Check:
        expected = self.transposed if rung.own.complete(rung.parameters)["TRANSPOSE"] else self.source
        size = expected.itemsize
        differ = (expected.view(np.uint8).reshape(-1, size) != target.view(np.uint8).reshape(-1, size)).any(axis=1)
        wrong = np.flatnonzero(differ)
        if not wrong.size:
            return Check("exact", True, 0.0, 0.0)
        at = int(wrong[0])
        detail = f"{wrong.size} of {target.size} elements differ; the first, number {at}, has the bytes "
        detail += f"{target[at : at + 1].tobytes().hex()} and should have {expected[at : at + 1].tobytes().hex()}"
        return Check("exact", False, float(wrong.size), 0.0, detail)


@dataclass(frozen=True)
class _Summed(PassTrial):
    source: HostArray
    expected: complex | float
    tolerance: float = 0.0
    """What a chain of one addition may be wrong by; 0: the sum is exact."""

    def check(self, target: HostArray, rung: Rung, steps: Steps) -> Check:
        name = "statistical" if self.tolerance else "exact"
        bound = self.tolerance * math.sqrt(_longest_chain(steps, self.source.size))
        found = target[0].item()
        error = abs(found - self.expected)
        if error <= bound:  # which NaN never is
            return Check(name, True, error, bound)
        detail = f"the sum is {found} and should be {self.expected}" + (f" ± {bound:.2g}" if bound else "")
        return Check(name, False, error if math.isfinite(error) else math.inf, bound, detail)


def _longest_chain(steps: Steps, count: int) -> int:
    """Additions behind one another: the share of a work-item, and the tree of its group, launch by launch."""
    longest = 0
    for launch in steps.launches:
        group, groups = math.prod(launch.work_group), math.prod(launch.groups)
        longest += ceil_div(count, group * groups) + group.bit_length()
        count = groups
    return longest
