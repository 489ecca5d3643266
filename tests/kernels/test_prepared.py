"""Variants that lay operands out anew beforehand: `transposed_b` and `padded` do so where they must, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

import gemmport as gp
from exact import Sizes, check_plan, problem_of, run_plan
from gemmport import kernels
from gemmport.core.plan import Plan
from test_kernels import BASE

each_kernel = pytest.mark.parametrize("kernel", ["transposed_b", "padded"])


def plan(backend: gp.Backend, kernel: str, problem: gp.GemmProblem) -> Plan:
    return gp.plan(problem, backend.device, kernel=kernel, params=BASE[kernel])


def functions(made: Plan) -> list[str]:
    return [launch.kernel.function for launch in made.launches]


def sizes_of_scratch(made: Plan) -> dict[str, int]:
    return {scratch.name: scratch.nbytes for scratch in made.scratch}


def told_of_passes(made: Plan, macro: str) -> list[object]:
    return [dict(launch.kernel.defines)[macro] for launch in made.launches[:-1]]


class TestTransposedB:
    @pytest.mark.parametrize(("ops", "prepared"), [("NN", True), ("TR", True), ("NT", False), ("RC", False)])
    def test_transposes_b_only_where_it_does_not_run_along_k(
        self, backend: gp.Backend, ops: str, prepared: bool
    ) -> None:
        made = plan(backend, "transposed_b", problem_of(Sizes(17, 31, 13), ops, "complex64", batch=2))
        assert functions(made) == [*(["transpose"] if prepared else []), "transposed_b"]
        assert sizes_of_scratch(made) == ({"b_transposed": 2 * 31 * 13 * 8} if prepared else {})
        told = dict(made.launches[-1].kernel.defines)
        assert (told["TRANSPOSE_B"], told["CONJUGATE_B"]) == (1, int(ops[1] in "CR"))
        check_plan(backend, made)

    def test_works_in_groups_of_the_product_s_shape(self, backend: gp.Backend) -> None:
        preparation, product = plan(backend, "transposed_b", problem_of(Sizes(17, 31, 13), "NN", "int8")).launches
        assert preparation.work_group == product.work_group == (8, 4, 1)


class TestPadded:
    @pytest.mark.parametrize(
        ("ops", "sizes", "passes"),
        [
            ("NN", Sizes(17, 31, 13), {"a_padded": 1, "b_padded": 0}),
            ("TT", Sizes(17, 31, 13), {"a_padded": 0, "b_padded": 1}),
            ("CN", Sizes(17, 31, 13), {"a_padded": 0, "b_padded": 0}),
            ("RC", Sizes(16, 32, 12), {"a_padded": 1, "b_padded": 1}),
            ("NR", Sizes(16, 32, 12), {"a_padded": 1}),
            ("CT", Sizes(16, 32, 12), {"b_padded": 1}),
            ("TN", Sizes(16, 32, 12), {}),
            ("TN", Sizes(17, 32, 12), {"a_padded": 0}),
            ("TN", Sizes(16, 31, 12), {"b_padded": 0}),
            ("TN", Sizes(16, 32, 13), {"a_padded": 0, "b_padded": 0}),
        ],
    )
    def test_prepares_what_is_not_whole_or_runs_along_k(
        self, backend: gp.Backend, ops: str, sizes: Sizes, passes: dict[str, int]
    ) -> None:
        """With each pass, whether it transposes, which it does by way of local memory."""
        made = plan(backend, "padded", problem_of(sizes, ops, "complex64", batch=2, alpha=1j, beta=2))
        assert functions(made) == [*(["transpose"] * len(passes)), "padded"]
        assert told_of_passes(made, "TRANSPOSE") == told_of_passes(made, "STAGED") == list(passes.values())
        m, n, k = (size + -size % extent for size, extent in ((sizes.m, 8), (sizes.n, 16), (sizes.k, 4)))
        whole = {"a_padded": 2 * m * k * 8, "b_padded": 2 * n * k * 8}
        assert sizes_of_scratch(made) == {name: whole[name] for name in passes}
        told = dict(made.launches[-1].kernel.defines)
        assert (told["TRANSPOSE_A"], told["TRANSPOSE_B"]) == (1, 0)
        assert (told["CONJUGATE_A"], told["CONJUGATE_B"]) == (int(ops[0] in "CR"), int(ops[1] in "CR"))
        check_plan(backend, made)

    def test_the_shape_of_a_group_reaches_the_passes(self, backend: gp.Backend) -> None:
        made = plan(backend, "padded", problem_of(Sizes(17, 31, 13), "NN", "float32"))
        assert [launch.work_group for launch in made.launches] == [(8, 4, 1), (8, 4, 1), (4, 4, 1)]
        assert not {"PADDINGX", "PADDINGY"} & dict(made.launches[-1].kernel.defines).keys()

    @pytest.mark.parametrize(
        ("values", "told"),
        [
            ({"TSM": 30, "WPTM": 4}, "TSM = 30, WPTM = 4: the rule is TSM % WPTM = 0"),
            ({"TSN": 30, "WPTN": 4}, "TSN = 30, WPTN = 4: the rule is TSN % WPTN = 0"),
            ({"WPTM": 32, "WPTN": 16}, "WPTM = 32, WPTN = 16: the rule is WPTM · WPTN ≤ 256"),
            ({"TSN": 96}, "TSN = 96, TSK = 16, WPTM = 4, WPTN = 4: the rule is TSK · WPTM · WPTN % TSN = 0"),
            ({"TSM": 96}, "TSM = 96, TSK = 16, WPTM = 4, WPTN = 4: the rule is TSK · WPTM · WPTN % TSM = 0"),
            ({"PADDINGX": 20}, "PADDINGX = 20, PADDINGY = 8: the rule is PADDINGX % PADDINGY = 0"),
            ({"PADDINGY": 16}, "PADDINGX = 32, PADDINGY = 16: the rule is PADDINGX · PADDINGY ≤ 256"),
        ],
    )
    def test_a_broken_rule_is_told_with_the_numbers(self, values: dict[str, int], told: str) -> None:
        with pytest.raises(gp.ParameterError, match=f"padded: {told}".replace("·", ".")):
            kernels.variant("padded").complete(values)


@each_kernel
def test_an_operand_that_the_batch_shares_is_prepared_once(backend: gp.Backend, kernel: str) -> None:
    own = problem_of(Sizes(17, 31, 13), "NN", "float32", batch=3, beta=1.0)
    shared = replace(own, a=replace(own.a, batch_stride=0), b=replace(own.b, batch_stride=0))
    made = plan(backend, kernel, shared)
    assert made.scratch_bytes == plan(backend, kernel, own).scratch_bytes // 3
    check_plan(backend, made)


@each_kernel
@pytest.mark.parametrize("scalars", [{"alpha": 0.0, "beta": 2.0}, {"beta": 2.0}], ids=["alpha", "k"])
def test_nothing_is_prepared_where_a_and_b_are_not_read(
    backend: gp.Backend, kernel: str, scalars: dict[str, float]
) -> None:
    made = plan(backend, kernel, problem_of(Sizes(17, 31, 13 if "alpha" in scalars else 0), "NN", "float32", **scalars))
    assert (functions(made), made.scratch) == ([kernel], ())
    check_plan(backend, made)


@each_kernel
def test_a_missing_preparation_is_found(backend: gp.Backend, kernel: str) -> None:
    made = plan(backend, kernel, problem_of(Sizes(17, 31, 13), "NN", "float32"))
    for number in range(len(made.launches) - 1):
        broken = replace(made, launches=(*made.launches[:number], *made.launches[number + 1 :]))
        with pytest.raises(AssertionError, match="are wrong"):
            check_plan(backend, broken)


@each_kernel
def test_scratch_memory_that_the_device_does_not_allow_is_refused(backend: gp.Backend, kernel: str) -> None:
    poor = replace(backend.device, max_allocation=1000)
    with pytest.raises(gp.UnsupportedError, match=r"scratch memory \w+ takes [\d,]+ bytes; .* allows 1,000"):
        gp.plan(gp.GemmProblem.create(20, 20, 20), poor, kernel=kernel)


@each_kernel
def test_a_plan_with_preparations_can_be_saved_and_run(backend: gp.Backend, kernel: str) -> None:
    made = plan(backend, kernel, problem_of(Sizes(17, 31, 13), "NN", "float32", beta=1.0))
    again = Plan.from_json(made.to_json())
    assert again == made
    check_plan(backend, again)


@pytest.mark.every_value("kernel", ["padded", "packed"])
def test_what_is_written_beyond_scratch_memory_is_told(backend: gp.Backend, kernel: str) -> None:
    made = gp.plan(problem_of(Sizes(17, 31, 13), "NN", "float32"), backend.device, kernel=kernel)
    run_plan(backend, made, {})
    first, *others = made.scratch
    less = replace(made, scratch=(replace(first, nbytes=first.nbytes - 64), *others))
    with pytest.raises(AssertionError, match=f"written beyond the .* bytes of {first.name}"):
        run_plan(backend, less, {})
