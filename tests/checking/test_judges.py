"""What judges a device's work notices every fault, and none where there is none: tried without a device (host_backend.py)."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from gemmport import kernels
from gemmport.api.plans import plan
from gemmport.bench.products import Result
from gemmport.bench.results import BaselineResult
from gemmport.checking import guarded_run
from gemmport.checking.guarded_run import DEFAULT_GUARD, GuardedRun, try_plan
from gemmport.checking.reference import reference
from gemmport.checking.scales import random_scales, scaled_reference
from gemmport.contracts.kernel import Cut
from gemmport.core.dtypes import default_accumulator
from gemmport.core.plan import Plan, Scratch
from gemmport.core.problem import GemmProblem, Layout
from gemmport.fuzz import arrays
from gemmport.fuzz.arrays import GemmCase, MatmulCase
from gemmport.fuzz.case import operands_of
from gemmport.fuzz.draw import draw
from gemmport.fuzz.plans import PlanCase
from gemmport.fuzz.specialization import BLOCK, Specialization, Types, all_kernels
from gemmport.matrix import judge as matrix_judge
from gemmport.matrix.cells import Cell
from gemmport.matrix.judge import judge
from gemmport.planning.lookup import load_configuration
from host_backend import Fault, HostBackend, bind_on_host
from made_up_devices import DEVICES

DEVICE = DEVICES["NVIDIA sm_90 under OpenCL"]
NO_DOUBLE = DEVICES["wavefronts of 64 without float64"]

PROBLEM = GemmProblem.create(
    5, 7, 3, batch=2, alpha=2, beta=-1,
    a=Layout(4, 23, 3), b=Layout(9, 0, 1), c=Layout(8, 45, 2), d=Layout(11, 60, 4),
)  # fmt: skip
"""Gaps between rows and between matrices, offsets, and a B that serves both products."""

COARSE = Cut(digits=1, terms=1)
"""With which an element may be off by one."""

SPAN = 4 + 60 + 4 * 11 + 7
"""Of D: elements up to the last."""


@pytest.fixture(autouse=True)
def on_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_run, "bind", bind_on_host)


def operands_for(problem: GemmProblem) -> dict[Any, np.ndarray]:
    operands = operands_of(problem, "whole numbers", 1)
    for name, values in operands.items():
        if problem.layout(name).batch_stride == 0:
            operands[name] = np.broadcast_to(values[:1], values.shape)
    return operands


def tried(
    problem: GemmProblem = PROBLEM, *, scratch: tuple[Scratch, ...] = (), before: Fault | None = None,
    after: Fault | None = None, **options: Any,
) -> GuardedRun:  # fmt: skip
    nothing: Fault = lambda memory, d: None  # noqa: E731
    backend: Any = HostBackend(DEVICE, before or nothing, after or nothing)
    made: Plan = replace(plan(problem, DEVICE, kernel="naive"), scratch=scratch)
    return try_plan(backend, made, operands_for(problem), **options)


def wrong(memory: Mapping[str, np.ndarray], d: np.ndarray) -> None:
    """One element that is off by one."""
    d[-1, -1, -1] += 1


def writes(name: str, *places: int) -> Fault:
    """A fault that changes elements of a memory."""

    def fault(memory: Mapping[str, np.ndarray], d: np.ndarray) -> None:
        memory[name][list(places)] = 1

    return fault


class TestTrial:
    @pytest.mark.parametrize("guard", [None, 0, 5])
    def test_a_right_product_is_told_and_nothing_is_stray(self, guard: int | None) -> None:
        found = tried(guard=guard)
        assert found.stray == ""
        assert np.array_equal(found.d, reference(PROBLEM, operands_for(PROBLEM)))
        assert found.d.dtype == np.float32

    def test_what_is_computed_wrongly_is_told_and_is_not_stray(self) -> None:
        found = tried(after=wrong)
        assert found.stray == ""
        assert np.argwhere(found.d != reference(PROBLEM, operands_for(PROBLEM))).tolist() == [[1, 4, 6]]

    @pytest.mark.parametrize(
        ("name", "place"),
        [
            *(("d", place) for place in (0, 3, 4 + 7, 4 + 4 * 11 + 7, 63, SPAN, SPAN + DEFAULT_GUARD - 1)),
            ("a", 0), ("a", 3), ("a", 6), ("b", 1), ("c", 2), ("c", 10),
        ],
    )  # fmt: skip
    def test_every_write_outside_d_is_told_with_its_place(self, name: str, place: int) -> None:
        expected = "written outside of D" if name == "d" else f"{name} was changed"
        found = tried(after=writes(name, place)).stray
        assert found == f"{expected}, at elements [{place}]{' of its memory' if name == 'd' else ''}"

    def test_of_many_writes_the_first_eight_are_told(self) -> None:
        assert tried(after=writes("a", *range(20))).stray == "a was changed, at elements [0, 1, 2, 3, 4, 5, 6, 7]"

    def test_another_nan_than_that_of_the_poison_is_a_write(self) -> None:
        def fault(memory: Mapping[str, np.ndarray], d: np.ndarray) -> None:
            memory["d"].view(np.uint32)[1] ^= 1 << 31

        assert tried(after=fault).stray == "written outside of D, at elements [1] of its memory"

    @pytest.mark.parametrize("guard", [0, 5, None])
    def test_what_is_not_to_be_read_is_poison(self, guard: int | None) -> None:
        seen: dict[str, np.ndarray] = {}

        def look(memory: Mapping[str, np.ndarray], d: np.ndarray) -> None:
            seen.update({name: flat.copy() for name, flat in memory.items()})

        tried(before=look, guard=guard)
        beyond = DEFAULT_GUARD if guard is None else guard
        assert {name: flat.size for name, flat in seen.items()} == {
            name: PROBLEM.span(name) + beyond for name in ("a", "b", "c", "d")  # type: ignore[arg-type]
        }  # fmt: skip
        read = {name: int(np.isfinite(flat).sum()) for name, flat in seen.items()}
        assert read == {"a": 2 * 5 * 3, "b": 3 * 7, "c": 2 * 5 * 7, "d": 0}
        tried(PROBLEM.with_scalars(2, 0), before=look)
        assert np.isnan(seen["c"]).all()

    def test_in_place_d_is_the_memory_of_c(self) -> None:
        problem = GemmProblem.create(5, 7, 3, beta=3, c=Layout(9, 45, 2), d=Layout(9, 45, 2))
        same: list[bool] = []
        look: Fault = lambda memory, d: same.append(np.shares_memory(memory["c"], memory["d"]))  # noqa: E731
        for in_place in (True, False):
            found = tried(problem, in_place=in_place, before=look)
            assert found.stray == ""
            assert np.array_equal(found.d, reference(problem, operands_for(problem)))
            stray = tried(problem, in_place=in_place, after=writes("d", 1)).stray
            assert stray == "written outside of D, at elements [1] of its memory"
        assert same == [True, False]

    @pytest.mark.parametrize("guard", [1, None])
    def test_scratch_memory_is_poison_and_has_a_guard(self, guard: int | None) -> None:
        scratch = (Scratch("panels", 1200), Scratch("sums", 8))
        beyond = (DEFAULT_GUARD if guard is None else guard) * 4
        seen: dict[str, bytes] = {}

        def look(memory: Mapping[str, np.ndarray], d: np.ndarray) -> None:
            seen.update({each.name: memory[each.name].tobytes() for each in scratch})

        assert tried(scratch=scratch, before=look, guard=guard).stray == ""
        assert seen == {"panels": b"\xff" * (1200 + beyond), "sums": b"\xff" * (8 + beyond)}
        assert tried(scratch=scratch, after=writes("panels", *range(1200)), guard=guard).stray == ""
        for at in (0, beyond - 1):
            stray = tried(scratch=scratch, after=writes("panels", 1200 + at), guard=guard).stray
            assert stray == f"written beyond the 1,200 bytes of panels, at byte {at} behind them"
        stray = tried(scratch=scratch, after=writes("sums", *range(8, 8 + beyond)), guard=guard).stray
        assert stray == "written beyond the 8 bytes of sums, at byte 0 behind them"


NAMED = tuple(name for name in all_kernels() if name != "auto")

NAIVE = Specialization("naive", (("TS", 16),), Types("float32", "float32", "float32"), ("N", "N"), whole=False)


class TestPlanCase:
    CASE = PlanCase(PROBLEM, NAIVE, in_place=False, data="whole numbers", seed=3)

    @pytest.mark.parametrize("data", ["whole numbers", "random numbers", "special values"])
    def test_a_right_result_passes_and_a_wrong_one_does_not(self, data: Any) -> None:
        case = replace(self.CASE, data=data, seed=7)
        backend: Any = HostBackend(DEVICE)
        assert case.judge(backend) == ""

        def fault(memory: Mapping[str, np.ndarray], d: np.ndarray) -> None:
            d[tuple(np.argwhere(np.isfinite(d))[-1])] += 1

        backend.after = fault
        assert "1 of 70 elements" in case.judge(backend)
        backend.after = writes("d", 0)
        assert case.judge(backend) == "written outside of D, at elements [0] of its memory"

    def test_it_is_judged_by_what_a_unit_cuts_of_the_kernel_s_sums(self, monkeypatch: pytest.MonkeyPatch) -> None:
        case, backend = replace(self.CASE, data="random numbers"), HostBackend(DEVICE, after=wrong)
        assert case.judge(backend)  # type: ignore[arg-type]
        monkeypatch.setattr(type(kernels.variant("naive")), "cut", lambda *_: COARSE)
        assert case.judge(backend) == ""  # type: ignore[arg-type]

    def test_it_is_run_as_it_says(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = []
        monkeypatch.setattr("gemmport.fuzz.plans.try_plan", lambda *a, **b: seen.append((a, b)) or try_plan(*a, **b))
        problem = GemmProblem.create(5, 7, 3, beta=3)
        case = replace(self.CASE, problem=problem, in_place=True, specialization=replace(NAIVE, params=(("TS", 8),)))
        backend: Any = HostBackend(DEVICE)
        assert case.judge(backend) == ""
        ((on, made, operands), options) = seen[0]
        assert (on, made.variant, made.values, made.problem) == (backend, "naive", {"TS": 8}, problem)
        assert options == {"in_place": True}
        wanted = operands_of(problem, "whole numbers", 3)
        assert all(np.array_equal(operands[name], wanted[name]) for name in ("a", "b", "c"))

    def test_what_the_device_cannot_compute_is_to_be_refused(self) -> None:
        assert self.CASE.outcomes(DEVICE) == {None}
        double = replace(self.CASE, problem=GemmProblem.create(1, 1, 1, dtype="float64"))
        assert double.outcomes(NO_DOUBLE) == {gp.DtypeError}
        wide = replace(self.CASE, specialization=replace(NAIVE, params=(("TS", 17),)))
        assert wide.outcomes(NO_DOUBLE) == {gp.ParameterError}


def cases(kind: type, count: int) -> Iterator[Any]:
    """Some problems as the campaign draws them: small ones, a few of each block, which has types of its own."""
    for block in itertools.count():
        drawn = (draw(2, block * BLOCK + index, NAMED) for index in range(60))
        small = (case for case in drawn if isinstance(case, kind) and case.problem.flops < 2e5)
        for case in itertools.islice(small, 3):
            yield case
            count -= 1
            if not count:
                return


class Fake:
    """`gemm` and `matmul` on the host, with a fault. What they are told must be what the case says."""

    def __init__(self, case: Any) -> None:
        self.case = case
        self.calls = 0

    def result(self, product: np.ndarray) -> np.ndarray:
        return product

    def returned(self, out: Any, product: Any) -> Any:
        return product if out is None else out

    def operand(self, values: np.ndarray, *, op: str, extents: tuple[int, int]) -> np.ndarray:
        problem = self.case.problem
        rows, columns = extents if op in ("N", "R") else extents[::-1]
        stack = (problem.batch, rows, columns)
        return np.broadcast_to(np.asarray(values).astype(problem.dtype.numpy), stack)

    def gemm(self, a: Any, b: Any, *, c: Any = None, out: Any = None, **told: Any) -> Any:
        case, problem = self.case, self.case.problem
        self.calls += 1
        wanted: dict[str, Any] = {
            "alpha": problem.alpha, "beta": problem.beta, "trans_a": problem.trans_a, "trans_b": problem.trans_b,
            "kernel": case.specialization.kernel, "params": dict(case.specialization.params),
        }  # fmt: skip
        if not case.on_device:
            wanted["device"] = DEVICE
        if problem.output != problem.dtype:
            wanted["dtype"] = problem.output.numpy
        if problem.accumulator != default_accumulator(problem.dtype, problem.output):
            wanted["accumulator"] = problem.accumulator.numpy
        scales = random_scales(problem, case.seed) if case.scaled else None
        if scales is not None:
            for argument, x in (("scale_a", scales.rows), ("scale_b", scales.columns)):
                assert np.array_equal(told.pop(argument), x[0] if problem.batch == 1 else x)
        assert told == wanted
        assert b.dtype == case.dtype_of_b.numpy
        assert (c is None) == (problem.beta == 0 and case.out != "c")
        assert (out is None) == (case.out == "new")
        assert out is not None or case.out != "c" or out is c
        m, n, k = problem.m, problem.n, problem.k
        operands: dict[Any, np.ndarray] = {
            "a": self.operand(a, op=problem.trans_a, extents=(m, k)),
            "b": self.operand(b, op=problem.trans_b, extents=(k, n)),
        }
        if c is not None:
            operands["c"] = np.broadcast_to(np.asarray(c), (problem.batch, m, n))
        with np.errstate(invalid="ignore", over="ignore"):
            d = scaled_reference(problem, operands, scales) if scales else reference(problem, operands)
            d = d.astype(problem.output.numpy)
        d = self.result(d[0] if problem.batch == 1 else d)
        if out is not None:
            out[...] = d
        return self.returned(out, np.array(d).view(type(a)) if case.on_device else d)

    def matmul(self, a: Any, b: Any, *, out: Any = None, **told: Any) -> Any:
        case, problem = self.case, self.case.problem
        self.calls += 1
        wanted = {
            "kernel": case.specialization.kernel, "params": dict(case.specialization.params), "device": DEVICE,
        }  # fmt: skip
        if problem.output != case.dtype:
            wanted["dtype"] = problem.output.numpy
        assert told == wanted
        assert (a.shape, b.shape, a.dtype) == (case.shape_of_a, case.shape_of_b, case.dtype.numpy)
        output = problem.output.numpy
        wide = output if output.kind in "iub" else (np.complex128 if output.kind == "c" else np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            d = self.result(np.matmul(a.astype(output).astype(wide), b.astype(output).astype(wide)).astype(output))
        if out is not None:
            out[...] = d
        return self.returned(out, d)


def judged(case: Any, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> str:
    told = SimpleNamespace(gemm=fake.gemm, matmul=fake.matmul)
    monkeypatch.setattr(arrays, "gp", told)
    found: str = case.judge(HostBackend(DEVICE))
    assert fake.calls == 1
    return found


class Wrong(Fake):
    """The last element that is a number is another one; where none is, the last element is one."""

    def result(self, product: np.ndarray) -> np.ndarray:
        if not product.size:
            return product
        places = np.argwhere(np.isfinite(product.astype(complex)))
        product = np.array(product)
        at = tuple(places[-1]) if len(places) else (-1,) * product.ndim
        value, one = product[at], product.dtype.type(1)
        if product.dtype == bool:
            product[at] = not value
        elif not len(places):
            product[at] = one
        elif product.dtype.kind in "iu":
            product[at] = value + product.dtype.type(8)
        else:  # 8 alone would be lost beside a large number of a narrow type
            product[at] = value + product.dtype.type(8) * (abs(value) + one)
        return product


class OtherType(Fake):
    def returned(self, out: Any, product: Any) -> Any:
        return product.astype(np.float32 if product.dtype != np.float32 else np.float64)


class OtherShape(Fake):
    def returned(self, out: Any, product: Any) -> Any:
        return product[None, None]


class Another(Fake):
    """Returns a copy of what it wrote."""

    def returned(self, out: Any, product: Any) -> Any:
        return product.copy()


def has_out(case: Any) -> bool:
    """Whether an array for the result is passed."""
    return case.out == "given" if isinstance(case, GemmCase) else case.out


GEMMS = list(cases(GemmCase, 60))
MATMULS = list(cases(MatmulCase, 60))


class TestArrayCases:
    def test_those_that_are_tried_are_of_all_kinds(self) -> None:
        """What follows says something of each."""
        features = {feature for case in (*GEMMS, *MATMULS) for feature in case.facts.features}
        assert {
            "batch", "shared operand", "in place", "out given", "mixed inputs", "broadcasting", "vectors", "gaps", "steps",
            "negative strides", "zero strides", "Fortran", "no elements", "no terms", "random numbers", "special values",
        } <= features  # fmt: skip
        assert {case.on_device for case in GEMMS} == {True, False}
        assert {case.scaled for case in GEMMS} == {True, False}
        assert {case.problem.output.kind for case in GEMMS} == {"real", "complex", "integer", "bool"}

    @pytest.mark.parametrize("case", [*GEMMS, *MATMULS], ids=lambda case: type(case).__name__)
    def test_a_right_result_passes(self, case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        assert judged(case, Fake(case), monkeypatch) == ""

    @pytest.mark.parametrize("case", [*GEMMS[:20], *MATMULS[:20]], ids=lambda case: type(case).__name__)
    def test_data_and_views_are_those_of_the_case(self, case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        drawn, seen = [], []
        draws, views = arrays.operands_of, arrays.view_of
        monkeypatch.setattr(arrays, "operands_of", lambda *words: drawn.append(words) or draws(*words))
        monkeypatch.setattr(arrays, "view_of", lambda *words: seen.append(words[1:]) or views(*words))
        assert judged(case, Fake(case), monkeypatch) == ""
        assert [words[1:] for words in drawn] == [(case.data, case.seed)]
        kinds = [words[0] for words in seen]
        passed = [case.lies[name] for name in ("a", "b", "c", "d") if name in case.lies]
        assert len(kinds) >= 2
        assert set(kinds) <= set(passed)
        on_device = getattr(case, "on_device", False)
        assert all((len(words) > 1 and words[1] is not None) == on_device for words in seen)

    @pytest.mark.parametrize("case", [*GEMMS, *MATMULS], ids=lambda case: type(case).__name__)
    def test_a_wrong_element_does_not(self, case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        if not case.problem.empty:
            assert "1 of " in judged(case, Wrong(case), monkeypatch)

    @pytest.mark.parametrize("case", [*GEMMS[:20], *MATMULS[:20]], ids=lambda case: type(case).__name__)
    def test_nor_does_another_type_or_shape(self, case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        given = "out was given, and something else was returned"
        other = "float64" if case.problem.output.name == "float32" else "float32"
        told = judged(case, OtherType(case), monkeypatch)
        assert told == (given if has_out(case) else f"the result is {other}, not {case.problem.output}")
        told = judged(case, OtherShape(case), monkeypatch)
        assert told == given if has_out(case) else told.startswith("the result has shape (1, 1")

    @pytest.mark.parametrize("case", [*GEMMS[:30], *MATMULS[:30]], ids=lambda case: type(case).__name__)
    def test_nor_another_array_than_the_one_that_was_given(self, case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        found = judged(case, Another(case), monkeypatch)
        assert found == ("out was given, and something else was returned" if has_out(case) else "")

    @pytest.mark.parametrize("drawn", ["whole numbers", "random numbers", "special values"])
    @pytest.mark.parametrize("repeated", ["", "a", "b", "c"])
    def test_random_numbers_that_repeat_are_not_judged(
        self, drawn: str, repeated: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(arrays, "draw_data", lambda rng, dtype: drawn if dtype == PROBLEM.dtype else None)
        lies: Any = dict.fromkeys(("a", "b", "c"), "dense") | ({repeated: "zero strides"} if repeated else {})
        found = arrays._judgeable(np.random.default_rng(1), PROBLEM, lies)
        assert found == ("whole numbers" if drawn == "random numbers" and repeated in ("a", "b") else drawn)


class TestMatrix:
    CELL = Cell.of("naive", "float32", "NT", "odd", "a2b-1")

    @pytest.mark.parametrize("shape", ["tiny", "odd", "batched", "strided", "empty-k"])
    @pytest.mark.parametrize("scalars", ["a1b0", "in-place", "random"])
    def test_a_right_cell_is_verified_and_a_wrong_one_is_not(self, shape: str, scalars: str) -> None:
        cell = Cell.of("naive", "float32", "NT", shape, scalars)
        backend: Any = HostBackend(DEVICE)
        problem = cell.problem(DEVICE)
        found = judge(cell, backend)
        sizes = (problem.m, problem.n, problem.k, problem.batch)
        assert (found.status, found.reason, found.m, found.n, found.k, found.batch) == ("verified", "", *sizes)
        assert (found.gflops, found.baselines) == (None, {})
        backend.after = wrong
        found = judge(cell, backend)
        assert found.status == "wrong"
        assert found.reason.startswith("1 of ")
        assert (found.m, found.n, found.k, found.batch) == sizes

    @pytest.mark.parametrize("scalars", ["a1b0", "in-place", "random"])
    def test_a_cell_is_tried_as_it_says(self, scalars: str, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: dict[str, tuple[Any, Any]] = {}

        def watch(name: str) -> None:
            real = getattr(matrix_judge, name)

            def told(*words: Any, **options: Any) -> Any:
                asked[name] = (words, options)
                return real(*words, **options)

            monkeypatch.setattr(matrix_judge, name, told)

        for name in ("plan", "operands_of", "try_plan", "fault_of"):
            watch(name)
        cell = Cell.of("naive", "float32", "NT", "odd", scalars)
        assert judge(cell, HostBackend(DEVICE)).status == "verified"  # type: ignore[arg-type]
        data = "random numbers" if scalars == "random" else "whole numbers"
        problem = cell.problem(DEVICE)
        assert asked["plan"] == ((problem, DEVICE), {"kernel": "naive"})
        assert asked["operands_of"] == ((problem, data, zlib.crc32(cell.id.encode())), {})
        assert asked["try_plan"][1] == {"in_place": scalars == "in-place", "guard": DEFAULT_GUARD}
        assert asked["fault_of"][0][2] == data

    def test_it_is_judged_by_what_a_unit_cuts_of_the_kernel_s_sums(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cell, backend = Cell.of("naive", "float32", "NT", "odd", "random"), HostBackend(DEVICE, after=wrong)
        assert judge(cell, backend).status == "wrong"  # type: ignore[arg-type]
        monkeypatch.setattr(type(kernels.variant("naive")), "cut", lambda *_: COARSE)
        assert judge(cell, backend).status == "verified"  # type: ignore[arg-type]

    def test_what_is_written_elsewhere_is_wrong(self) -> None:
        found = judge(self.CELL, HostBackend(DEVICE, after=writes("a", 0)))  # type: ignore[arg-type]
        assert (found.status, found.reason) == ("wrong", "a was changed, at elements [0]")

    @pytest.mark.parametrize(("platform", "guard"), [("nvidia", DEFAULT_GUARD), ("oclgrind", 0)])
    def test_a_simulator_sees_itself_what_lies_beyond_the_end(self, platform: str, guard: int) -> None:
        device, sizes = replace(DEVICE, platform=platform), []
        look: Fault = lambda memory, d: sizes.append(memory["a"].size)  # noqa: E731
        judge(self.CELL, HostBackend(device, before=look))  # type: ignore[arg-type]
        assert sizes == [self.CELL.problem(device).span("a") + guard]

    @pytest.mark.parametrize(
        ("raised", "status", "reason"),
        [
            (gp.UnsupportedError("a rule"), "unsupported", "a rule"),
            (gp.DtypeError("a type"), "unsupported", "a type"),
            (gp.CompileError("no such word"), "error", "CompileError: no such word"),
        ],
    )
    def test_what_is_raised_is_part_of_the_answer(self, raised: Exception, status: str, reason: str) -> None:
        def fault(memory: Mapping[str, np.ndarray], d: np.ndarray) -> None:
            raise raised

        found = judge(self.CELL, HostBackend(DEVICE, fault))  # type: ignore[arg-type]
        assert (found.status, found.reason) == (status, reason)
        assert found.m == self.CELL.problem(DEVICE).m

    def test_what_is_no_error_of_ours_comes_with_its_traceback(self) -> None:
        def fault(memory: Mapping[str, np.ndarray], d: np.ndarray) -> None:
            raise ZeroDivisionError("of the driver")

        found = judge(self.CELL, HostBackend(DEVICE, fault))  # type: ignore[arg-type]
        assert found.status == "error"
        assert found.reason.startswith("Traceback")
        assert found.reason.endswith("ZeroDivisionError: of the driver\n")

    def test_what_cannot_be_planned_has_the_reason_and_no_sizes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        double = Cell.of("naive", "float64", "NN", "odd", "a1b0")
        found = judge(double, HostBackend(NO_DOUBLE))  # type: ignore[arg-type]
        assert (found.status, found.m) == ("unsupported", 0)
        assert "float64" in found.reason

        def broken(cell: Cell, device: gp.DeviceInfo) -> GemmProblem:
            raise gp.ParameterError("no such parameter")

        monkeypatch.setattr(Cell, "problem", broken)
        found = judge(double, HostBackend(NO_DOUBLE))  # type: ignore[arg-type]
        assert (found.status, found.reason, found.m) == ("error", "ParameterError: no such parameter", 0)

    @pytest.mark.parametrize(("status", "told"), [("ok", "verified"), ("failed", "wrong"), ("error", "error")])
    def test_what_is_large_is_timed_beside_the_baselines(
        self, monkeypatch: pytest.MonkeyPatch, status: str, told: str
    ) -> None:
        cell, asked = Cell.of("naive", "float32", "NN", "large", "a1b0"), []
        timing: Any = SimpleNamespace(median=2.0)
        slower: Any = SimpleNamespace(median=3.0)
        baselines = (
            BaselineResult("right", timing=slower, verified=True),
            BaselineResult("wrong", timing=slower, verified=False),
            BaselineResult("gone", reason="it is not here"),
        )

        def run(problems: Any, devices: Any, options: Any) -> Any:
            asked.append((problems, devices, options.kernels, options.repeat))
            assert options.configuration == load_configuration()
            return [
                Result(problems[0], devices[0], "naive", status, "why", timing=timing, baselines=baselines)  # type: ignore[arg-type]
            ]

        monkeypatch.setattr(matrix_judge, "run_benchmark", run)
        found = judge(cell, HostBackend(DEVICE))  # type: ignore[arg-type]
        problem = cell.problem(DEVICE)
        assert asked == [([problem], [DEVICE], ("naive",), matrix_judge.REPEAT)]
        assert (found.status, found.reason, found.m) == (told, "why", problem.m)
        assert found.gflops == pytest.approx(problem.flops / 2.0 * 1e-9)
        slow = pytest.approx(problem.flops / 3.0 * 1e-9)
        assert found.baselines == {
            "right": {"gflops": slow, "ratio": 1.5, "status": "verified"},
            "wrong": {"gflops": slow, "ratio": 1.5, "status": "wrong"},
            "gone": {"gflops": None, "ratio": None, "status": "unavailable: it is not here"},
        }
