"""The micro-benchmarks: what each launches and reads, what must come of it, and how much of a thing one launch does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from gemmport.contracts.kernel import Parameters
from gemmport.core.dtypes import FLOAT32, DType
from gemmport.core.plan import Launch
from gemmport.kernels.microbenchmarks import (
    F64_16,
    PASS,
    ROOM,
    STRIDE,
    WARP,
    WORD_BYTES,
    Function,
    MatrixUnit,
    local_runs,
)

HostArray = npt.NDArray[Any]

WORD = np.dtype(np.uint32)

LINE_BYTES = 256
"""From place to place of a chase: no cache known to us has longer lines, nor brings two neighbours of this length at once."""

SHARES = 7
"""Of groups, after which what is read begins anew: odd, so that a group that reads another's share is found out."""


@dataclass(frozen=True)
class Benchmark(ABC):
    """One launch of a function of `gemmport.kernels.microbenchmarks`.

    What it reads is an array again and again over all of its memory, and so is what it must write.

    Attributes:
        dtype: of what it computes; of those that move words, of no account.
        form: parameters of the pass.
        groups, steps: of the launch.
    """

    groups: int
    steps: int
    form: Parameters
    dtype: DType = FLOAT32

    function: ClassVar[Function]
    grows: ClassVar[Literal["groups", "steps", ""]] = "groups"
    """By which it is made to take longer; empty where its memory decides."""
    halves: ClassVar[Literal["groups", "steps"]] = "steps"
    """Of which half takes half as long, if nothing is left out."""

    @property
    def launch(self) -> Launch:
        """What is measured."""
        return PASS.launch(self.function, self.dtype, self.form, self.groups, self.steps)

    @property
    def items(self) -> int:
        """Work-items of a group."""
        return int(self.form["ITEMS"])

    @property
    def width(self) -> int:
        """Elements of a run."""
        return int(self.form["WIDTH"])

    @property
    def chains(self) -> int:
        """Sums of a work-item."""
        return int(self.form["CHAINS"])

    @property
    def run_bytes(self) -> int:
        """Of what an item reads at once."""
        return self.width * self.dtype.itemsize

    def grown(self, times: int) -> Benchmark:
        """The same, so many times as much of it."""
        return replace(self, **{self.grows: getattr(self, self.grows) * times}) if self.grows else self

    def halved(self) -> Benchmark:
        """Half of it."""
        return replace(self, **{self.halves: getattr(self, self.halves) // 2})

    @property
    @abstractmethod
    def source_bytes(self) -> int:
        """Of the memory that is read."""

    @property
    @abstractmethod
    def target_bytes(self) -> int:
        """Of the memory that is written."""

    @abstractmethod
    def source(self, rng: np.random.Generator) -> HostArray:
        """What is read, flat."""

    def target(self, source: HostArray) -> HostArray | None:
        """What the target holds beforehand; None: nothing that is read."""
        return None

    @abstractmethod
    def expected(self, source: HostArray) -> HostArray:
        """What must be written, flat."""

    @property
    @abstractmethod
    def amount(self) -> float:
        """Multiply-adds, bytes, reads, groups or barriers of the launch: of barriers, those of one group."""


class MultiplyAdds(Benchmark):
    """Half of the work-items count: s + b; the other half goes back and forth: b - s. Both are exact in every type, so that no
    step of a sum can be missing; integers are multiplied by any number, and wrap.
    """

    function = "multiply_adds"

    @property
    def source_bytes(self) -> int:
        return (2 + self.chains) * self.items * self.run_bytes

    @property
    def target_bytes(self) -> int:
        return self.groups * self.chains * self.items * self.run_bytes

    def source(self, rng: np.random.Generator) -> HostArray:
        shape = (2 + self.chains, self.items, self.width)
        if not self.dtype.precision:
            words = rng.integers(0, 2**32, shape, np.uint32)
            words[0] |= 1  # odd: what is multiplied by an even number again and again becomes zero
            return words.view(self.dtype.numpy).reshape(-1)
        largest = 2 ** (self.dtype.precision - 2)
        values = rng.integers(-largest, largest, shape, endpoint=True)
        turn = np.arange(shape[1] * shape[2]).reshape(shape[1:]) % 2
        values[0] = 1 - 2 * turn
        values[1] = np.where(turn, values[1], np.sign(values[1]) | 1)
        # What counts must not come to more than the type holds exactly.
        values[2:, turn == 0] %= 2**self.dtype.precision - self.steps
        values[2:, turn == 0] -= (2**self.dtype.precision - self.steps) // 2
        return values.astype(self.dtype.numpy).reshape(-1)

    def expected(self, source: HostArray) -> HostArray:
        numbers = source if self.dtype.precision else source.view(np.uint32)
        a, b, *sums = numbers.reshape(2 + self.chains, -1)
        s = np.stack(sums)
        for _ in range(self.steps):
            s = s * a + b
        return s.reshape(-1).view(self.dtype.numpy)

    @property
    def amount(self) -> float:
        return float(self.groups) * self.items * self.width * self.chains * self.steps


@dataclass(frozen=True)
class MultiplyMatrices(Benchmark):
    """Warps that add a product of matrices to their sums again and again. Every number of it is positive, or every one of a row
    negative, so that each step counts; all sums are whole numbers, and exact.

    Attributes:
        unit: the instruction; it says the types.
    """

    unit: MatrixUnit = F64_16

    function = "multiply_matrices"

    @property
    def launch(self) -> Launch:
        return PASS.launch(self.function, self.dtype, self.form, self.groups, self.steps, self.unit)

    @property
    def _operand_words(self) -> int:
        return (self.unit.registers_of_a + self.unit.registers_of_b) * self.items

    @property
    def _sum_words(self) -> int:
        return self.chains * self.unit.sums_of_lane * self.items

    @property
    def source_bytes(self) -> int:
        return (self._operand_words + self._sum_words) * self.unit.words.itemsize

    @property
    def target_bytes(self) -> int:
        return self.groups * self._sum_words * self.unit.sums.itemsize

    def source(self, rng: np.random.Generator) -> HostArray:
        unit, warps = self.unit, self.items // WARP
        # Products of all steps, and sums before them, have half of what the type of sums holds exactly.
        digits = unit.sums.precision - 1 - (self.steps - 1).bit_length() - (unit.terms - 1).bit_length()
        largest = 2 ** min(max(digits // 2, 0), unit.numbers.precision)
        a = rng.integers(1, largest, (warps, unit.rows, unit.terms), endpoint=True)
        a *= rng.choice((-1, 1), (warps, unit.rows, 1))
        b = rng.integers(1, largest, (warps, unit.terms, unit.columns), endpoint=True)
        room = 2 ** (unit.sums.precision - 1)
        sums = rng.integers(-room, room, self._sum_words).astype(unit.sums.numpy)
        of_a, of_b, _ = self._places
        words = [each.astype(unit.numbers.numpy).reshape(-1).view(unit.words.numpy) for each in (a[of_a], b[of_b])]
        return np.concatenate([*words, sums.view(unit.words.numpy)])

    def expected(self, source: HostArray) -> HostArray:
        unit, warps = self.unit, self.items // WARP
        of_a, of_b, of_sums = self._places
        numbers = source[: self._operand_words].view(unit.numbers.numpy).astype(np.float64)
        numbers_of_a = unit.registers_of_a * self.items * unit.packed
        a, b = np.empty((warps, unit.rows, unit.terms)), np.empty((warps, unit.terms, unit.columns))
        a[of_a] = numbers[:numbers_of_a].reshape(-1, self.items, unit.packed)
        b[of_b] = numbers[numbers_of_a:].reshape(-1, self.items, unit.packed)
        sums = source[self._operand_words :].view(unit.sums.numpy).reshape(self.chains, -1, self.items)
        added: HostArray = (self.steps * (a @ b))[of_sums]
        return (sums + added).astype(unit.sums.numpy).reshape(-1)

    @property
    def _places(self) -> tuple[tuple[HostArray, ...], tuple[HostArray, ...], tuple[HostArray, ...]]:
        """The warp, and the row and the column of its matrix, of what the items have: of A and B by register, item and number
        in the register, of the sums by sum and item.
        """
        unit, blocks = self.unit, self.unit.rows // 8
        warp, lane = np.divmod(np.arange(self.items), WARP)
        g, t = np.divmod(lane, 4)
        r = np.arange(unit.registers_of_a)[:, np.newaxis]
        terms = (unit.packed * (t + 4 * (r // blocks)))[..., np.newaxis] + np.arange(unit.packed)
        of_a = warp[:, np.newaxis], (g + 8 * (r % blocks))[..., np.newaxis], terms
        of_b = warp[:, np.newaxis], terms[::blocks], g[:, np.newaxis]
        s = np.arange(unit.sums_of_lane)[:, np.newaxis]
        return of_a, of_b, (warp, g + 8 * (s // 2), 2 * t + s % 2)

    @property
    def amount(self) -> float:
        of_product = self.unit.rows * self.unit.columns * self.unit.terms
        return float(self.groups) * self.items / WARP * self.chains * self.steps * of_product


class _OfRuns(Benchmark):
    """Sums of runs of small whole numbers, which are exact."""

    def source(self, rng: np.random.Generator) -> HostArray:
        return rng.integers(0, 4, self._pattern_bytes // self.dtype.itemsize).astype(self.dtype.numpy)

    @property
    @abstractmethod
    def _pattern_bytes(self) -> int: ...


class ReadGlobal(_OfRuns):
    """All of a memory, read once; half of it, with half of the steps."""

    function: ClassVar[Function] = "read_global"
    grows = ""

    @property
    def _share_bytes(self) -> int:
        return self.steps * self.chains * self.items * self.run_bytes

    @property
    def _pattern_bytes(self) -> int:
        return SHARES * self._share_bytes

    @property
    def source_bytes(self) -> int:
        return self.groups * self._share_bytes

    @property
    def target_bytes(self) -> int:
        return self.groups * self.items * self.run_bytes

    def expected(self, source: HostArray) -> HostArray:
        shares = source.reshape(SHARES, -1, self.items * self.width)
        sums: HostArray = shares.sum(axis=1, dtype=np.float64).astype(self.dtype.numpy)
        return sums.reshape(-1)

    @property
    def amount(self) -> float:
        return float(self.source_bytes)


class CopyGlobal(ReadGlobal):
    """All of a memory, read and written once."""

    function = "copy_global"

    @property
    def target_bytes(self) -> int:
        return self.source_bytes

    def expected(self, source: HostArray) -> HostArray:
        return source

    @property
    def amount(self) -> float:
        return 2.0 * self.source_bytes


class ReadLocal(_OfRuns):
    """Runs of local memory; each group reads the same."""

    function = "read_local"

    @property
    def _pattern_bytes(self) -> int:
        return self.source_bytes

    @property
    def source_bytes(self) -> int:
        return local_runs(self.form) * self.run_bytes

    @property
    def target_bytes(self) -> int:
        return self.groups * self.items * self.run_bytes

    def expected(self, source: HostArray) -> HostArray:
        tile = source.reshape(-1, self.width)
        first = (np.arange(self.items) + STRIDE * np.arange(self.steps)[:, np.newaxis]) % ROOM
        times = np.zeros((self.items, len(tile)))  # how often each item reads each run
        for c in range(self.chains):
            for item in range(self.items):
                times[item] += np.bincount(first[:, item] + c * self.items, minlength=len(tile))
        return (times @ tile).astype(self.dtype.numpy).reshape(-1)

    @property
    def amount(self) -> float:
        return float(self.groups) * self.items * self.steps * self.chains * self.run_bytes


@dataclass(frozen=True)
class Chase(Benchmark):
    """A way through all places of a memory, in random order, which ends nowhere: each launch goes on where the last one ended.

    Attributes:
        memory: bytes that the places lie in.
    """

    memory: int = LINE_BYTES

    function = "chase"
    grows = "steps"

    @property
    def _places(self) -> int:
        return max(self.memory // LINE_BYTES, 1)

    @property
    def source_bytes(self) -> int:
        return self._places * LINE_BYTES

    @property
    def target_bytes(self) -> int:
        return WORD_BYTES

    def source(self, rng: np.random.Generator) -> HostArray:
        order = rng.permutation(self._places).astype(WORD) * np.uint32(LINE_BYTES // WORD_BYTES)
        words = np.zeros(self.source_bytes // WORD_BYTES, WORD)
        words[order] = np.roll(order, -1)
        return words

    def target(self, source: HostArray) -> HostArray:
        return np.zeros(1, WORD)

    def expected(self, source: HostArray) -> HostArray:
        at = 0
        for _ in range(self.steps):
            at = int(source[at])
        return np.array([at], WORD)

    @property
    def amount(self) -> float:
        return float(self.steps)


class Start(Benchmark):
    """Groups of which each leaves a word."""

    function = "start"
    halves = "groups"

    @property
    def source_bytes(self) -> int:
        return WORD_BYTES

    @property
    def target_bytes(self) -> int:
        return self.groups * WORD_BYTES

    def source(self, rng: np.random.Generator) -> HostArray:
        return np.zeros(1, WORD)

    def expected(self, source: HostArray) -> HostArray:
        return 2 * np.arange(self.groups, dtype=WORD) + WORD.type(self.steps)

    @property
    def amount(self) -> float:
        return float(self.groups)


class PassRound(Benchmark):
    """Words that go round a group, a barrier for each step."""

    function = "pass_round"
    grows = "steps"

    @property
    def source_bytes(self) -> int:
        return self.items * WORD_BYTES

    @property
    def target_bytes(self) -> int:
        return self.groups * self.items * WORD_BYTES

    def source(self, rng: np.random.Generator) -> HostArray:
        return rng.integers(0, 2**32, self.items, np.uint32)

    def expected(self, source: HostArray) -> HostArray:
        return np.roll(source, -self.steps)

    @property
    def amount(self) -> float:
        return float(self.steps)
