"""The fuzz campaign: what it finds, what it survives, and that every problem is the same wherever it is drawn."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from gemmport import kernels
from gemmport.core.dtypes import DTYPES, INPUTS
from gemmport.core.problem import OPERANDS
from gemmport.fuzz import arrays, campaign
from gemmport.fuzz.arrays import MatmulCase, as_type, draw_matmul_case
from gemmport.fuzz.campaign import Options, reproducer, run_campaign
from gemmport.fuzz.case import fault_of, operands_of, refusal, shortened
from gemmport.fuzz.draw import draw, first_count
from gemmport.fuzz.first import first_rows
from gemmport.fuzz.plans import tile_of
from gemmport.fuzz.specialization import BLOCK, POOL, Specialization, Types, all_kernels, pool
from gemmport.fuzz.views import KINDS, WRITABLE, constant_along_rows, view_of
from gemmport.fuzz.worker import Job, examined
from import_path import import_path
from made_up_devices import DEVICES
from mutations import OF_FEW_PROBLEMS, mutation, planted

PROBLEMS = 25
"""Of a campaign: each of the first ones is compiled for itself."""


def command(device: gp.DeviceInfo, *arguments: object, planted: str = "") -> subprocess.CompletedProcess[str]:
    """`gemmport fuzz` in a process of its own; with a planted fault, on the kernels of faulty_kernels."""
    environment = {**os.environ, "GEMMPORT_PLANTED": planted, "PYTHONPATH": import_path(Path(__file__).parents[1])}
    words = ["fuzz", "--backend", device.backend, "--device", device.selector, *map(str, arguments)]
    if planted:
        words += ["--import", "faulty_kernels", "--kernel", "broken", "--seed", "3"]
    return run_command(words, environment)


def run_command(words: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    started = [sys.executable, "-c", "from gemmport.cli import main; main()", *words]
    return subprocess.run(started, capture_output=True, text=True, check=False, timeout=600, env=environment)


def report_of(done: subprocess.CompletedProcess[str], status: int) -> dict[str, Any]:
    assert done.returncode == status, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


class TestProblems:
    def test_are_a_pure_function_of_seed_and_index(self) -> None:
        names = all_kernels()
        once = [str(draw(5, index, names)) for index in range(0, 3 * BLOCK, 7)]
        pool.cache_clear()
        again = [str(draw(5, index, names)) for index in reversed(range(0, 3 * BLOCK, 7))]
        assert once == again[::-1]
        assert len(set(once)) > 0.99 * len(once)
        assert [str(draw(6, index, names)) for index in range(0, 3 * BLOCK, 7)] != once

    def test_of_a_block_share_a_few_specializations(self) -> None:
        names = all_kernels()
        kinds = {
            (case.facts.kernel, case.facts.types)
            for case in (draw(5, index, names) for index in range(BLOCK, 2 * BLOCK))
            if case.facts.kind == "plan"
        }
        assert 1 < len(kinds) <= POOL

    def test_of_every_type_and_kernel_come_early(self) -> None:
        names = all_kernels()
        for seed in range(3):
            cases = [draw(seed, index, names) for index in range(48)]
            assert {case.problem.dtype.name for case in cases} == set(INPUTS)
            assert {case.specialization.kernel for case in cases} == set(names)

    def test_of_some_types_have_no_others(self) -> None:
        """In both their kinds: the first ones, and those of a pool."""
        types = ("bfloat16", "complex64", "float8_e5m2")
        names = ("naive", "simt", "auto")
        for first in (0, 2 * BLOCK):
            cases = [draw(5, first + index, names, types) for index in range(200)]
            assert {case.specialization.types.dtype for case in cases} <= {*types}
        assert {draw(5, index, names, types).specialization.types.dtype for index in range(200)} == {*types}
        job = Job("opencl", "0:0", 5, 0, 200, names, dtypes=types)
        assert str(job.case(7)) == str(draw(5, 7, names, types))
        assert len(list(job.indices())) == 200

    @pytest.mark.many_draws
    def test_that_come_first_meet_every_pair_of_kernel_type_op_size_batch_layout_scalars_and_data(self) -> None:
        names = all_kernels()
        rows = first_rows(0, names)
        cases = [draw(0, index, names) for index in range(first_count(0, names))]
        plans = [case for case in cases if case.facts.kind == "plan"]
        assert len(plans) == len(rows)
        kernels_of = {name for name in names if name != "auto"}
        assert {(case.specialization.kernel, case.problem.dtype.name) for case in plans} >= {
            *product(kernels_of, INPUTS)
        }
        for feature in ("long", "batch beyond 2¹⁶", "gaps", "in place", "shared operand", "offsets"):
            assert {case.facts.kernel for case in plans if feature in case.facts.features} >= kernels_of, feature
        conjugated = {(case.facts.kernel, case.problem.dtype.name, case.problem.trans_b) for case in plans}
        assert conjugated >= {*product(kernels_of, ("complex64", "complex128"), ("C", "R"))}
        factors = {"kernel": kernels_of, "op of b": {"N", "T"}, "m": {"any", "before", "whole", "after", "one", "long"}}
        for (one, its), (other, others) in combinations(factors.items(), 2):
            assert {(row.facets.get(one), row.facets.get(other)) for row in rows} >= {*product(its, others)}

    @pytest.mark.many_draws
    def test_that_come_first_are_one_less_than_whole_tiles_and_beyond_what_15_and_16_bits_count(self) -> None:
        names = all_kernels()
        problems = [case.problem for case in (draw(0, index, names) for index in range(300))]
        assert sum(problem.k > 2**16 for problem in problems) > 3
        assert sum(problem.k > 2**15 for problem in problems) > 10
        assert sum(problem.batch > 2**16 for problem in problems) > 10
        short = [
            case
            for case in (draw(0, index, names) for index in range(300))
            if case.facts.kind == "plan" and case.problem.m % (side := tile_of(case.specialization)[0]) == side - 1 > 0
        ]
        assert len(short) > 40
        assert all(max(problem.span(operand) for operand in "abcd") < 2**24 for problem in problems)  # type: ignore[arg-type]

    def test_stay_small_in_memory_whatever_tiles_are(self) -> None:
        """Of whole blocks: macro-tiles of thousands of columns, many matrices without a row; and of two problems without
        terms whose rows and columns, and rows and matrices, were drawn to be beyond 2¹⁶.
        """
        names = all_kernels()
        for seed, index in (*((0, index) for index in range(5000, 8000)), (2611, 112702), (2611, 143206)):
            case = draw(seed, index, names)
            stored = [case.problem.stored_shape(operand) for operand in OPERANDS]
            assert max(rows * columns for rows, columns in stored) * case.problem.batch < 5e6, index

    def test_are_divided_among_processes(self) -> None:
        job = Job("opencl", "0:0", 0, 90, 4000, ("naive",))
        shares = [list(replace(job, share=share, shares=3).indices()) for share in range(3)]
        assert sorted(itertools.chain(*shares)) == list(range(90, 4000))
        assert sum(bool(set(own) & set(range(1000, 2000))) for own in shares) == 1  # which shares programs
        assert all(set(own) & set(range(90, 99)) for own in shares)

    @pytest.mark.many_draws
    def test_cover_everything(self) -> None:
        """Every kernel, input, output, op, feature and way that an array can lie."""
        names = all_kernels()
        found: dict[str, Counter[str]] = {"kernel": Counter(), "op": Counter(), "feature": Counter(), "in": Counter()}
        outputs = set()
        for index in range(0, 128 * BLOCK, 16):
            case = draw(0, index, names)
            found["kernel"][case.facts.kernel] += 1
            found["op"].update([case.problem.trans_a, case.problem.trans_b])
            found["feature"].update([case.facts.kind, *case.facts.features])
            found["in"][case.problem.dtype.name] += 1
            outputs.add((case.problem.dtype.name, case.problem.accumulator.name, case.problem.output.name))
        assert set(found["kernel"]) == set(names)
        assert set(found["op"]) == {"N", "T", "C", "R"}
        assert set(found["in"]) == set(INPUTS)
        assert len(outputs) > 100
        wanted = {
            "plan", "gemm", "matmul", "device arrays", "no elements", "no terms", "vectors", "whole tiles", "batch",
            "shared operand", "gaps", "offsets", "in place", "alpha = 0", "beta ≠ 0", "out given",
            "mixed inputs", "broadcasting", "whole numbers", "random numbers", "special values", *KINDS[1:],
        }  # fmt: skip
        assert wanted <= set(found["feature"])
        assert min(found["feature"][name] for name in wanted) >= 20
        assert {"long", "batch beyond 2¹⁶"} <= set(found["feature"])


SHAPES = [(3, 5), (2, 3, 5), (0, 4), (2, 4, 0)]
"""Of views."""


class TestJudgement:
    """What must be noticed is: each of these plants one fault into a right result."""

    def case(self, data: str) -> tuple[gp.GemmProblem, dict, np.ndarray]:  # type: ignore[type-arg]
        problem = gp.GemmProblem.create(7, 5, 9, batch=2, alpha=2, beta=-1)
        operands = operands_of(problem, data, 1)  # type: ignore[arg-type]
        with np.errstate(invalid="ignore"):
            d = 2 * (operands["a"].astype(float) @ operands["b"].astype(float)) - operands["c"]
        return problem, operands, d.astype(np.float32)

    @pytest.mark.parametrize("data", ["whole numbers", "random numbers", "special values"])
    def test_a_right_result_passes_and_one_wrong_element_does_not(self, data: str) -> None:
        problem, operands, d = self.case(data)
        assert fault_of(problem, operands, data, d) == ""  # type: ignore[arg-type]
        at = tuple(np.argwhere(np.isfinite(d))[-1])
        d[at] += 1 if data != "random numbers" else 1e-3
        assert "1 of 70" in fault_of(problem, operands, data, d)  # type: ignore[arg-type]

    @pytest.mark.parametrize(("was", "becomes"), [(np.isnan, 0.0), (np.isposinf, -np.inf), (np.isfinite, np.nan)])
    def test_special_values_are_where_they_must_be(self, was: np.ufunc, becomes: float) -> None:
        for seed in range(100):
            problem = gp.GemmProblem.create(7, 5, 9, beta=1)
            operands = operands_of(problem, "special values", seed)
            with np.errstate(invalid="ignore"):
                d = (operands["a"].astype(float) @ operands["b"] + operands["c"]).astype(np.float32)
            assert fault_of(problem, operands, "special values", d) == ""
            if was(d).any():
                d[tuple(np.argwhere(was(d))[0])] = becomes
                assert fault_of(problem, operands, "special values", d)
                return
        pytest.fail("no such value was drawn")

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("shape", SHAPES)
    def test_views_hold_their_values(self, kind: str, shape: tuple[int, ...]) -> None:
        self.check_view(kind, shape, None)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("shape", SHAPES)
    def test_views_on_a_device_hold_their_values(
        self, best_backend: gp.Backend, kind: str, shape: tuple[int, ...]
    ) -> None:
        self.check_view(kind, shape, best_backend)

    def check_view(self, kind: str, shape: tuple[int, ...], backend: gp.Backend | None) -> None:
        values = constant_along_rows(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), kind)
        view = view_of(values, kind, backend)
        assert view.array.shape == shape
        assert np.array_equal(view.array.get() if backend else view.array, values)
        assert not view.stray(written=False)

    @pytest.mark.parametrize("kind", WRITABLE)
    def test_views_notice_what_is_written_beside_them(self, kind: str) -> None:
        view = view_of(np.zeros((3, 5), np.float32), kind)
        view.array[...] = 1
        assert not view.stray(written=True)
        assert view.stray(written=False)
        if kind in ("gaps", "steps"):
            view.base[0, 0] = 1
            assert view.stray(written=True)

    @pytest.mark.many_draws
    def test_refusals_are_expected_where_the_rules_say(self) -> None:
        for case in (draw(1, index, all_kernels()) for index in (*range(0, 300, 2), *range(0, 50 * BLOCK, 70))):
            for device in DEVICES.values():  # as the planner does, which words its rules on its own
                if device.max_groups < 2**31 - 1 and {"long", "batch beyond 2¹⁶"} & {*case.facts.features}:
                    continue  # each kernel decides how many groups that takes
                chosen = case.specialization
                problem = case.planned if isinstance(case, MatmulCase) else case.problem
                try:
                    gp.plan(problem, device, kernel=chosen.kernel, params=dict(chosen.params))
                    found = None
                except gp.GemmportError as error:
                    if f"work-groups; {device.label} allows" in str(error):
                        continue  # few terms cut into many parts take as many
                    found = type(error)
                assert found in case.outcomes(device), (case, device.label)

    def test_a_kernel_that_does_not_read_the_arrays_type_refuses_the_call(self) -> None:
        """As `matmul` does: it leaves it to the kernel to widen what it reads."""
        values = tuple(kernels.variant("simt").complete({}).items())
        chosen = Specialization("simt", values, Types("float16", "float32", "float32"), ("N", "N"), whole=False)
        cases = (draw_matmul_case(np.random.default_rng(seed), chosen) for seed in range(20))
        case = next(case for case in cases if not case.problem.empty and case.problem.k)
        assert case.outcomes(DEVICES["NVIDIA sm_90 under CUDA"]) == {gp.UnsupportedError}

    def test_narrower_inputs_are_still_the_whole_numbers_of_the_wider_type(self) -> None:
        values = np.array([[-3 + 2j, 2, 0]], np.complex64)
        assert as_type(values, DTYPES["uint8"]).tolist() == [[3, 2, 0]]
        assert as_type(values, DTYPES["float16"]).tolist() == [[-3, 2, 0]]
        assert as_type(values, DTYPES["bool"]).tolist() == [[True, True, False]]
        wide = np.array([2.0**26 - 1, -(2.0**25), -8, np.inf])
        assert as_type(wide[:3], DTYPES["int8"]).tolist() == [3, -2, -8]
        assert as_type(wide, DTYPES["float16"]).tolist() == [3, -2, -8, np.inf]


def test_workers_share_the_host_s_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Mapping[str, str]] = []

    def conversation(_: Sequence[str], environment: Mapping[str, str]) -> None:
        seen.append(environment)
        raise gp.LaunchError("it is enough")

    monkeypatch.setattr(campaign, "Conversation", conversation)
    monkeypatch.setattr(campaign, "usable_cores", lambda: 32)
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with pytest.raises(gp.LaunchError, match="enough"):
        run_campaign(DEVICES["NVIDIA sm_90 under CUDA"], Options(seed=0, problems=1, workers=12))
    assert {(each["OPENBLAS_NUM_THREADS"], each["OMP_NUM_THREADS"]) for each in seen} == {("2", "7")}


@pytest.mark.processes
def test_a_campaign_is_right_on_every_device(backend: gp.Backend) -> None:
    report = run_campaign(backend.device, Options(seed=11, problems=PROBLEMS, workers=2))
    assert not report.faults, report.faults[0]
    assert report.problems == PROBLEMS
    assert report.programs > 0
    assert sum(report.counts["kind"].values()) == report.problems


@pytest.mark.best_of_each_backend
@pytest.mark.planted_fault
@pytest.mark.parametrize("fault", [fault.name for fault in OF_FEW_PROBLEMS])
def test_a_fault_that_few_problems_show_is_found_by_the_first_problems(backend: gp.Backend, fault: str) -> None:
    """Of three seeds: any two levels meet, but some faults show where three do. Only what the faulty kernel computes can
    find it, and is run.
    """
    (broken,) = mutation(fault).kernels
    with planted(fault, broken):
        assert any(finds(backend, broken, seed) for seed in range(3))


def finds(backend: gp.Backend, broken: str, seed: int) -> bool:
    """Whether one of the first problems of a kernel is computed wrongly."""
    names = all_kernels()
    job = Job(backend.device.backend, backend.device.selector, seed, 0, first_count(seed, names), ())
    own = [index for index in job.indices() if job.case(index).specialization.kernel == broken]
    assert len(own) < 3 * job.end / len(names)
    return any(examined(index, job, backend)["status"] == "wrong" for index in own)


@pytest.mark.planted_fault
@pytest.mark.processes
class TestFaults:
    @pytest.mark.parametrize(
        "fault",
        [
            "drops the last term", "ignores beta", "skips the last row", "writes beyond the edge",
            "reads the wrong column", "does not compile",
        ],
    )  # fmt: skip
    @pytest.mark.sample(fault=["drops the last term"])
    def test_of_kernels_are_found_within_some_problems(self, best_backend: gp.Backend, fault: str) -> None:
        done = command(best_backend.device, "--problems", 25, "--format", "json", planted=fault)
        faults = report_of(done, 1)["faults"]
        kinds = {found["kind"] for found in faults}
        if fault == "writes beyond the edge":
            kinds.discard("crash")  # what it writes over may be the runtime's own
        assert kinds == ({"error"} if fault == "does not compile" else {"wrong"})
        assert all(found["reason"] and found["case"].startswith("broken") for found in faults)

    @pytest.mark.parametrize(
        ("fault", "kind", "status"), [("aborts", "crash", "-6"), ("exits", "crash", "0"), ("hangs", "hang", "2 s")]
    )
    def test_of_runtimes_lose_no_problem(self, best_backend: gp.Backend, fault: str, kind: str, status: str) -> None:
        limit = 2 if fault == "hangs" else 60
        arguments = ("--problems", 10, "--from", 100, "--time-limit", limit, "--format", "json")
        report = report_of(command(best_backend.device, *arguments, planted=fault), 1)
        faults = report["faults"]
        assert report["problems"] == 10
        assert report["right"] == 10 - len(faults) > 0
        assert {found["kind"] for found in faults} == {kind}
        assert all(status in found["reason"] for found in faults)
        assert len({found["index"] for found in faults}) == len(faults)
        assert all(100 <= found["index"] < 110 for found in faults)

    def test_come_with_a_command_that_shows_them_again(
        self, best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fault = "drops the last term"
        report = report_of(command(best_backend.device, "--problems", 20, "--format", "json", planted=fault), 1)
        found = report["faults"][-1]
        monkeypatch.setenv("GEMMPORT_PLANTED", fault)
        monkeypatch.setenv("PYTHONPATH", import_path(Path(__file__).parents[1]))
        words = shlex.split(found["reproducer"])[1:]
        assert report_of(run_command([*words, "--format", "json"]), 1)["faults"] == [found]
        told = run_command(words)
        assert told.returncode == 1
        for text in (found["reproducer"], found["reason"], found["case"]):
            assert text in told.stdout


@pytest.mark.processes
def test_a_campaign_stops_in_time(best_backend: gp.Backend) -> None:
    for seconds in (8, 60):  # on a busy machine, the time may end before a process is there
        report = run_campaign(best_backend.device, Options(seed=0, seconds=seconds))
        assert report.seconds < seconds + 52
        if report.problems:
            break
    assert report.problems > 0


@pytest.mark.processes
def test_the_command_counts_what_it_judged_and_exits_with_0(best_backend: gp.Backend, tmp_path: Path) -> None:
    arguments = ("--problems", 30, "--seed", 4, "--kernel", "naive", "--dtype", "int8")
    target = tmp_path / "report.json"
    done = command(best_backend.device, *arguments, "--format", "json", "--output", target)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    report = json.loads(target.read_text("utf-8"))
    assert report["problems"] == report["right"] + sum(report["refused"].values()) == 30
    assert report["counts"]["kernel"] == {"naive": 30}
    assert all(name.startswith("int8") for name in report["counts"]["types"])
    told = command(best_backend.device, *arguments).stdout
    for word in ("30 problems", "seed 4", "faults: 0", "naive 30"):
        assert word in told


def test_a_reproducer_says_all_that_decides_a_problem(best_backend: gp.Backend) -> None:
    options = Options(seed=7, kernels=("naive", "auto"), imports=("mine",), dtypes=("int8", "bool"))
    words = shlex.split(reproducer(best_backend.device, options, 12345))
    told = " ".join(words)
    for pair in ("--seed 7", "--from 12345", "--problems 1", "--kernel naive", "--kernel auto", "--import mine"):
        assert pair in told
    assert "--dtype int8 --dtype bool" in told


class OnDevice(np.ndarray):
    """A host array that plays a device's."""

    def get(self) -> np.ndarray:
        return np.array(self)


class TestViews:
    """Arrays lie as their kinds say, and every write beside them is told."""

    VALUES = np.arange(30, dtype=np.float16).reshape(2, 3, 5)

    def test_on_the_host(self) -> None:
        bases = {kind: view_of(self.VALUES, kind).base for kind in KINDS}
        assert {kind: base.shape for kind, base in bases.items()} == {
            "dense": (2, 3, 5), "Fortran": (2, 5, 3), "gaps": (2, 3, 10), "steps": (5, 7, 11),
            "negative strides": (2, 3, 5), "zero strides": (2, 1, 5),
        }  # fmt: skip
        assert {base.dtype for base in bases.values()} == {self.VALUES.dtype}
        assert view_of(self.VALUES, "steps").index == (slice(1, None, 2),) * 3
        assert view_of(self.VALUES, "negative strides").array.strides == (-30, -10, -2)
        assert view_of(self.VALUES, "zero strides").array.strides[-2] == 0
        assert view_of(self.VALUES[0], "zero strides").array.strides[-2] == 0
        assert view_of(self.VALUES, "Fortran").exchanged is True
        assert view_of(self.VALUES, "dense").exchanged is False

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (0, 5), (1, 1)])
    def test_on_a_device(self, kind: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
        backend: Any = SimpleNamespace(asarray=lambda values: np.array(values).view(OnDevice))
        monkeypatch.setattr("gemmport.fuzz.views.DeviceArray", OnDevice)
        values = constant_along_rows(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), kind)
        view = view_of(values, kind, backend)
        assert np.array_equal(view.array.get(), values)
        assert type(view.now()) is np.ndarray
        assert len(view.index) == len(shape)
        assert view.exchanged is (kind == "Fortran" and len(shape) == 2)
        assert (view.base.shape == shape) == (
            kind in ("dense", "negative strides", "zero strides")
            or (kind == "Fortran" and (len(shape) != 2 or shape == (1, 1)))
        )
        assert view.stray(written=True) == view.stray(written=False) == ""
        if values.size:
            view.array[...] = -1
            assert view.stray(written=True) == ""
            assert view.stray(written=False) == "memory was changed that is not the result's"

    def test_rows_repeat_only_where_they_are_to(self) -> None:
        for kind in KINDS:
            told = constant_along_rows(self.VALUES, kind)
            assert (told is self.VALUES) == (kind != "zero strides")
        assert np.array_equal(constant_along_rows(self.VALUES, "zero strides")[:, 2], self.VALUES[:, 0])
        line, nothing = self.VALUES[0, 0], self.VALUES[:, :0]
        assert constant_along_rows(line, "zero strides") is line
        assert constant_along_rows(nothing, "zero strides") is nothing


class TestData:
    """What is drawn for a problem, and how it is judged."""

    @pytest.mark.parametrize(
        ("data", "dtype", "by"),
        [
            ("whole numbers", "float32", "exact"), ("special values", "float32", "exact"),
            ("random numbers", "float32", "random"), ("whole numbers", "int8", "random"),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize(("beta", "drawn"), [(0, 1), (1, 1), (3, 3)])
    def test_c_is_drawn_too_from_the_seed(
        self, data: Any, dtype: str, by: str, beta: int, drawn: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = []
        for name in ("exact", "random"):

            def draw(problem: Any, seed: int, name: str = name) -> Any:
                asked.append((name, problem.beta, seed))
                return {operand: np.zeros((1, 2, 2), np.float32) for operand in OPERANDS[:3]}

            monkeypatch.setattr(f"gemmport.checking.verification.{name}_operands", draw)
        problem = gp.GemmProblem.create(2, 2, 2, dtype=dtype, beta=beta)
        first, second = (operands_of(problem, data, 11) for _ in range(2))
        assert asked == [(by, drawn, 11)] * 2
        for name, values in first.items():
            assert np.array_equal(values, second[name], equal_nan=True)
            assert np.isfinite(values).all() == (data != "special values")

    def test_random_numbers_are_judged_by_their_bound(self) -> None:
        problem = gp.GemmProblem.create(20, 20, 300)
        operands = operands_of(problem, "random numbers", 1)
        d = operands["a"] @ operands["b"]
        assert fault_of(problem, operands, "whole numbers", d)  # it is rounded
        assert fault_of(problem, operands, "random numbers", d) == ""

    def test_sums_in_few_digits_are_short(self) -> None:
        assert [shortened(k, "float16") for k in (3, 64, 65, 1000)] == [3, 64, 64, 64]
        assert shortened(1000, "float32") == 1000

    def test_registers_that_just_suffice_are_no_reason_to_refuse(self, monkeypatch: pytest.MonkeyPatch) -> None:
        problem, variant = gp.GemmProblem.create(3, 3, 3), kernels.variant("register_tiled")
        values = variant.complete({})
        needed = variant.registers(values, problem) * int(np.prod(variant.work_group(values)))
        device = replace(DEVICES["NVIDIA sm_70"], registers=needed)
        assert refusal(problem, device, "register_tiled", values) is None
        assert refusal(problem, replace(device, registers=needed - 1), "register_tiled", values) is gp.ParameterError
        asked = []
        monkeypatch.setattr(type(variant), "unfit", lambda self, *about: asked.append(about) or "not today")
        assert refusal(problem, device, "register_tiled", values) is gp.ParameterError
        assert asked == [(values, problem, device)]


@pytest.mark.parametrize("scaled", [False, True])
def test_results_of_calls_are_judged_by_what_the_device_may_keep_of_sums(
    scaled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which kernel computed nobody tells."""
    problem, asked = gp.GemmProblem.create(2, 3, 4, dtype="float8_e4m3fn", output="float32"), []
    monkeypatch.setattr(arrays, "cut_on", lambda *of: of)
    judge = lambda *given: asked.append(given) or SimpleNamespace(detail="told")  # noqa: E731
    monkeypatch.setattr(arrays, "check_scaled", judge)
    monkeypatch.setattr(arrays, "fault_of", lambda *given: judge(*given).detail)
    case = SimpleNamespace(problem=problem, data="random numbers")
    device, operands, scales = DEVICES["Apple"], object(), object() if scaled else None
    assert arrays._judged(case, device, operands, np.zeros((2, 3), np.float32), scales) == "told"
    ((*given, result, cut),) = asked
    assert given == [problem, operands, scales if scaled else "random numbers"]
    assert result.shape == (1, 2, 3)
    assert cut == (problem, device)


def test_a_call_with_scales_is_judged_with_them(best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = (draw(5, index, all_kernels()) for index in itertools.count())
    case = next(one for one in cases if getattr(one, "scaled", False) and None in one.outcomes(best_backend.device))
    judged = []
    monkeypatch.setattr(arrays, "_judged", lambda *given: judged.append(given) or "")
    case.judge(best_backend)
    ((_, device, _, _, scales),) = judged
    assert device is best_backend.device
    assert scales is not None
