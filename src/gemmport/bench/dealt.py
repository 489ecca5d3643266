"""The work behind `gemmport run --devices`: products that several devices compute together, verified, and timed beside one
device of each kind alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np

from gemmport.api.dealt import Dealt
from gemmport.api.gemm import computed
from gemmport.api.product import Choice
from gemmport.api.sharded import line_axis
from gemmport.api.streamed import Bounds
from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend
from gemmport.bench.products import GUARD_ELEMENTS
from gemmport.bench.results import Status, checks_to_dict, plain, seconds_to_dict
from gemmport.bench.timing import Contestant, Timing, measure
from gemmport.checking import verification as verify
from gemmport.checking.reference import Matrices, reference
from gemmport.checking.verification import Check, HostArray
from gemmport.contracts.kernel import Cut
from gemmport.core.errors import CompileError, DevicesFailedError, LaunchError
from gemmport.core.layout import matrices
from gemmport.core.problem import GemmProblem, Op
from gemmport.execution.sharded import ShardedArray
from gemmport.multidevice.outlook import Placement
from gemmport.runtime.side_by_side import in_blocks


@dataclass(frozen=True)
class Part:
    """What a device did.

    Attributes:
        name: the device's label, with a number where several have one.
        share: of the result's elements, in the last product that was timed, or verified. tiles: in how many.
        alone: what it takes for the whole product; None where it was not asked: of devices of one kind the first is.
        wrong: what is wrong with what it computed; empty where nothing is, or nothing was looked at.
    """

    name: str
    share: float
    tiles: int
    alone: Timing | None = None
    wrong: str = ""


@dataclass(frozen=True)
class DealtResult:
    """A product that several devices computed together.

    Attributes:
        together: seconds of a call, with arrays in the host's memory.
        parts: of each device that took part.
        not_dealt: why one device computed it alone; empty where it did not.
        reason: why the status is not "ok".
    """

    problem: GemmProblem
    status: Status
    reason: str = ""
    not_dealt: str = ""
    together: Timing | None = None
    parts: tuple[Part, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def verified(self) -> bool | None:
        """Whether every check passed; None where none was made."""
        return all(check.passed for check in self.checks) if self.checks else None

    @property
    def gflops(self) -> float | None:
        """10⁹ operations per second."""
        return self.problem.flops / self.together.median * 1e-9 if self.together else None

    @property
    def speedup(self) -> float | None:
        """Over the fastest of the devices alone, measured in turns."""
        alone = [part.alone.median for part in self.parts if part.alone]
        return min(alone) / self.together.median if alone and self.together else None

    def to_dict(self) -> dict[str, Any]:
        """The result as docs/results.md describes it."""
        problem = self.problem
        return {
            "m": problem.m, "n": problem.n, "k": problem.k, "batch": problem.batch, "dtype": problem.dtype.name,
            "output": problem.output.name, "accumulator": problem.accumulator.name, "trans_a": problem.trans_a,
            "trans_b": problem.trans_b, "alpha": plain(problem.alpha), "beta": plain(problem.beta),
            "status": self.status, "reason": self.reason, "not_dealt": self.not_dealt,
            "verified": self.verified, "checks": checks_to_dict(self.checks),
            "seconds": seconds_to_dict(self.together), "gflops": self.gflops, "speedup": self.speedup,
            "parts": [
                {"device": part.name, "share": part.share, "tiles": part.tiles, "alone": seconds_to_dict(part.alone),
                 "wrong": part.wrong}
                for part in self.parts
            ],
        }  # fmt: skip


@dataclass(frozen=True)
class DealtOptions:
    """How to run: as those of `gemmport.bench.products.Options` of these names.

    Attributes:
        repeat: samples per measurement; with 0, nothing is timed.
        patience: as of `measure`.
        device_memory: bytes that the product may take of each device; None for what it has.
        placement: where the arrays are.
    """

    choice: Choice = field(default_factory=Choice)
    verify: bool = True
    repeat: int = 10
    seed: int = 0
    device_memory: int | None = None
    placement: Placement = "host"
    patience: float = math.inf


def run_dealt(
    problem: GemmProblem, backends: Sequence[Backend], options: DealtOptions, *,
    progress: Callable[[str], None] = lambda _: None,
) -> DealtResult:  # fmt: skip
    """Computes a product by several devices, checks it, and times it beside one device of each kind alone.

    Args:
        backends: the devices; where dealing is not expected to pay, one of them computes.
        progress: told what is being done.

    Raises:
        GemmportError: what was asked for is wrong.
    """
    problem = replace(problem, d=verify.guarded(problem, GUARD_ELEMENTS))
    work = _Work(problem, options, verify.cut_on(problem, *(backend.device for backend in backends)), progress)
    progress(f"{problem}: drawing random operands")
    random = verify.random_operands(problem, options.seed)
    try:
        checks, wrong = work.checks(backends, random) if options.verify else ((), {})
        dealt, timings = work.timings(backends, random)
    except (DevicesFailedError, LaunchError, CompileError, MemoryError) as error:
        return DealtResult(problem, "error", str(error))
    elements = max(problem.m * problem.n * problem.batch, 1)
    names = [member.name for member in dealt.members]
    parts = tuple(
        Part(
            member.name,
            member.elements / elements,
            len(member.tiles),
            timings.get(member.name),
            wrong.get(member.name, ""),
        )
        for member in dealt.members
    ) + tuple(Part(name, 0.0, 0, timings.get(name), reason) for name, reason in wrong.items() if name not in names)
    failed = [check for check in checks if not check.passed]
    told = [f"{check.name}: {check.detail}" for check in failed] + [
        f"{part.name} computed wrongly" for part in parts if part.wrong
    ]
    return DealtResult(
        problem,
        "failed" if failed else "ok",
        "; ".join(told),
        dealt.outlook.reason if dealt.outlook and len(dealt.members) == 1 else "",
        timings.get(_TOGETHER),
        parts,
        tuple(checks),
    )


_TOGETHER = "together"


class _Out:
    """A result on devices, in shards where these are several, each in poisoned memory of its own.

    Attributes:
        array: it, or all shards.
    """

    def __init__(
        self, problem: GemmProblem, backends: Sequence[Backend], sizes: Sequence[int], axis: int, before: HostArray
    ) -> None:
        self._problem, self._axis = problem, axis
        self._parts: list[tuple[DeviceArray, GemmProblem, slice]] = []
        shards, start = [], 0
        for backend, size in zip(backends, sizes, strict=True):
            own = _of_lines(problem, size, axis)
            flat = before[: own.span("d") + GUARD_ELEMENTS]
            whole, view = backend.asarray(flat), _d_of(own, flat)
            strides = tuple(step // flat.itemsize for step in view.strides)
            shards.append(DeviceArray(backend, whole.memory, view.shape, view.dtype, strides, own.d.offset))
            self._parts.append((whole, own, slice(start, start + size)))
            start += size
        self.array = shards[0] if len(shards) == 1 else ShardedArray(shards, axis)

    def bring(self, flat: HostArray, before: HostArray) -> None:
        """Brings all shards to the host, and whatever was written beside one to before the result, where nothing may be."""
        d = _d_of(self._problem, flat)
        for whole, own, lines in self._parts:
            got, poison = whole.get(), before[: own.span("d") + GUARD_ELEMENTS]
            view = _d_of(own, got)
            _copy(view, d[(..., lines) if self._axis == -1 else (..., lines, slice(None))])
            _copy(_d_of(own, poison), view)
            stray = verify.differing(poison, got)[:GUARD_ELEMENTS]
            flat[: stray.size] = got[stray]


def _of_lines(problem: GemmProblem, size: int, axis: int) -> GemmProblem:
    """A problem with so many rows, or columns, of the result, which lies by itself where the other begins."""
    m, n = (problem.m, size) if axis == -1 else (size, problem.n)
    ld = max(n, 1) if axis == -1 else problem.d.ld
    return replace(problem, m=m, n=n, d=replace(problem.d, ld=ld, batch_stride=m * ld))


def _d_of(problem: GemmProblem, flat: HostArray) -> HostArray:
    d = matrices(flat, problem.d, problem.m, problem.n, problem.batch)
    return d[0] if problem.batch == 1 else d


def _copy(source: HostArray, target: HostArray) -> None:
    """Copies matrices, by all cores."""

    def rows(place: slice) -> None:
        target[..., place, :] = source[..., place, :]

    in_blocks(rows, target.shape[-2], max(_BLOCK // max(target.shape[-1], 1), 1))


_BLOCK = 2**22
"""Elements that a thread copies at a time."""


class _Work:
    """What is done with one product.

    Attributes:
        last: operands where they are to be, the result, and how it was dealt, of the random operands that were verified.
    """

    def __init__(
        self, problem: GemmProblem, options: DealtOptions, cut: Cut | None, progress: Callable[[str], None]
    ) -> None:
        self.problem = problem
        self.options = options
        self.last: tuple[Mapping[str, Any], HostArray | _Out, Dealt] | None = None
        self._cut = cut
        self._progress = progress

    def _tell(self, what: str) -> None:
        self._progress(f"{self.problem}: {what}")

    def checks(self, backends: Sequence[Backend], random: Matrices) -> tuple[list[Check], dict[str, str]]:
        """The checks of exact and of random operands; and of devices that computed wrongly, what is wrong."""
        checks: list[Check] = []
        wrong: dict[str, str] = {}
        for exact in (True, False) if verify.rounds(self.problem) else (False,):
            problem, operands = self.problem, random
            huge = problem.flops > verify.FULL_REFERENCE_FLOPS
            # Each element is rounded once, which Freivalds' check does not do.
            if exact and huge and verify.narrows(problem):
                continue
            numbers = "exact" if exact else "random"
            self._tell(f"drawing {numbers} operands")
            if exact:
                problem = problem.with_scalars(*verify.exact_scalars(problem))
                try:
                    operands = verify.exact_operands(problem, self.options.seed)
                except ValueError:  # sums too long to be exact
                    continue
            before = verify.poisoned(problem, GUARD_ELEMENTS)
            flat = verify.copied(before)
            d = matrices(flat, problem.d, problem.m, problem.n, problem.batch)
            self._tell(f"bringing {numbers} operands to where they are to be")
            out = self._out(problem, backends, before) if self._on_devices else d
            given = self._put(problem, operands, backends)
            self._tell(f"the first product, of {numbers} operands")
            dealt = self._product(problem, given, backends, out)
            self._tell(f"comparing the product of {numbers} operands")
            if isinstance(out, _Out):
                out.bring(flat, before)
            self.last = None if exact else (given, out, dealt)
            expected = None if huge else reference(problem, operands)
            checks.append(verify.check_untouched(problem, before, flat))
            checks.append(self._check(problem, operands, d, expected, exact=exact))
            if expected is not None and not checks[-1].passed:
                wrong |= self._blamed(problem, operands, d, expected, dealt, exact=exact)
        return checks, wrong

    def _check(
        self, problem: GemmProblem, operands: Matrices, d: HostArray, expected: HostArray | None, *, exact: bool
    ) -> Check:
        if exact and expected is not None:
            return verify.check_exact(expected, d)
        if exact:
            return verify.check_freivalds(problem, operands, d, self.options.seed, exact=True)
        return verify.check_random(problem, operands, d, expected, self._cut)

    def _blamed(
        self, problem: GemmProblem, operands: Matrices, d: HostArray, expected: HostArray, dealt: Dealt, *, exact: bool
    ) -> dict[str, str]:
        """What is wrong with what each device computed: in all other places stands what should be there."""
        wrong: dict[str, str] = {}
        for member in dealt.members:
            with np.errstate(over="ignore"):
                own = expected.astype(d.dtype)
            for tile in member.tiles:
                place = tile.matrices.slice, tile.rows.slice, tile.columns.slice
                own[place] = d[place]
            check = self._check(problem, operands, own, expected, exact=exact)
            if not check.passed:
                wrong[member.name] = check.detail
        return wrong

    def timings(self, backends: Sequence[Backend], random: Matrices) -> tuple[Dealt, dict[str, Timing]]:
        """The product as it was dealt last; and what all together take, and one of each kind alone, in turns."""
        problem = self.problem
        if self.last is None:
            out: HostArray | _Out = np.empty((problem.batch, problem.m, problem.n), problem.output.numpy)
            if self._on_devices:
                out = self._out(problem, backends, verify.poisoned(problem, GUARD_ELEMENTS))
            operands = self._put(problem, random, backends)
            self._tell("the first product")
            self.last = operands, out, self._product(problem, operands, backends, out)
        operands, out, first = self.last
        dealt = [first]

        def together() -> None:
            self._tell("measuring all together")
            dealt[0] = self._product(problem, operands, backends, out)

        def alone(name: str, backend: Backend) -> None:
            self._tell(f"measuring {name} alone")
            self._product(problem, operands, [backend], out)

        if not problem.flops or not self.options.repeat:
            return dealt[0], {}
        contestants = [Contestant(_TOGETHER, together, "host")]
        kinds: set[Hashable] = set()
        for name, backend in zip(dealt[0].names, dealt[0].backends, strict=True):
            kind = backend.device.identity
            if kind is None or kind not in kinds:  # others would take as long
                kinds.add(kind)
                contestants.append(Contestant(name, partial(alone, name, backend), "host"))
        timings = measure(backends[0], contestants, repeat=self.options.repeat, patience=self.options.patience)
        return dealt[0], timings

    @property
    def _on_devices(self) -> bool:
        return self.options.placement != "host"

    def _put(self, problem: GemmProblem, operands: Matrices, backends: Sequence[Backend]) -> Mapping[str, Any]:
        """The operands where they are to be."""
        given: dict[str, Any] = {name: x[0] if problem.batch == 1 else x for name, x in operands.items()}
        if not self._on_devices:
            return given
        if self.options.placement == "first":
            return {name: backends[0].asarray(x) for name, x in given.items()}
        ops = {"a": problem.trans_a, "b": problem.trans_b}
        return {name: ShardedArray.distribute(x, backends, self._axis(ops.get(name, "N"))) for name, x in given.items()}

    def _out(self, problem: GemmProblem, backends: Sequence[Backend], before: HostArray) -> _Out:
        """Where the result is to be."""
        lines = problem.n if self.options.placement == "columns" else problem.m
        owners = backends[:1] if self.options.placement == "first" else backends
        sizes = [len(part) for part in np.array_split(np.empty(lines, np.int8), len(owners))]
        return _Out(problem, owners, sizes, self._axis("N"), before)

    def _axis(self, op: Op) -> int:
        """The stored dimension that is a matrix's rows, or columns, under an op."""
        return line_axis("b" if self.options.placement == "columns" else "a", op)

    def _product(
        self, problem: GemmProblem, given: Mapping[str, Any], backends: Sequence[Backend], out: HostArray | _Out
    ) -> Dealt:  # fmt: skip
        target = out.array if isinstance(out, _Out) else out[0] if problem.batch == 1 else out
        choice = replace(self.options.choice, accumulator=problem.accumulator.numpy, precision=problem.precision)
        found = computed(
            given["a"], given["b"], given.get("c"), target, alpha=problem.alpha, beta=problem.beta, trans_a=problem.trans_a,
            trans_b=problem.trans_b, dtype=problem.output.numpy, devices=list(backends), choice=choice,
            bounds=Bounds(self.options.device_memory),
        )  # fmt: skip
        return cast("Dealt", found.dealt)
