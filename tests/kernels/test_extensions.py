"""A variant from outside says everything by its contract: several launches, scratch memory, passes, sources, specializations.

None of the four in extensions/ needs a change to Plan or to Backend, and each is exact on every device.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gemmport as gp
from exact import Sizes, check, check_plan, problem_of
from extensions import EXTENSIONS
from gemmport import kernels
from gemmport.core.plan import Plan

SIZES = (Sizes(17, 31, 13), Sizes(16, 24, 8), Sizes(1, 1, 1), Sizes(9, 5, 2), Sizes(17, 31, 0), Sizes(0, 3, 4))


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_FAMILY", dict(kernels._FAMILY))
    for variant in EXTENSIONS:
        gp.register(variant)


def functions(plan: Plan) -> list[str]:
    return [launch.kernel.function for launch in plan.launches]


@pytest.mark.every_pair("ops", ["NN", "NT", "TN", "TT"])
@pytest.mark.every_pair("kernel", [variant.name for variant in EXTENSIONS if variant.name != "aligned"])
def test_extensions_are_exact(backend: gp.Backend, dtype: str, kernel: str, ops: str) -> None:
    for sizes in SIZES:
        for alpha, beta in ((1.0, 0.0), (2.0, 0.5), (0.0, -1.0)):
            check(backend, problem_of(sizes, ops, dtype, alpha=alpha, beta=beta, batch=2), kernel)
        in_place = problem_of(sizes, ops, dtype, alpha=-1.0, beta=2.0, batch=3, in_place=True, share_a=True)
        check(backend, in_place, kernel, in_place=True)


def test_a_registered_variant_is_known_by_name(best_backend: gp.Backend) -> None:
    a, b = np.ones((5, 7), np.float32), np.ones((7, 3), np.float32)
    device = best_backend.device
    product = gp.gemm(a, b, kernel="split_k", params={"SPLITS": 3}, backend=device.backend, device=device.selector)
    np.testing.assert_array_equal(product, a @ b)


@pytest.mark.parametrize("kernel", [variant.name for variant in EXTENSIONS])
def test_plans_of_extensions_can_be_saved_and_run(backend: gp.Backend, kernel: str) -> None:
    plan = gp.plan(problem_of(Sizes(17, 31, 13), "NT", "float32", beta=1.0), backend.device, kernel=kernel)
    again = Plan.from_json(plan.to_json())
    assert again == plan
    check_plan(backend, again)


class TestSplitK:
    @pytest.mark.parametrize("splits", [1, 2, 5, 16])
    def test_launches_each_part_and_then_the_reduction(self, backend: gp.Backend, splits: int) -> None:
        """Also where there are more parts than terms."""
        problem = problem_of(Sizes(17, 31, 13), "NN", "float32", beta=0.5, batch=2)
        plan = gp.plan(problem, backend.device, kernel="split_k", params={"SPLITS": splits})
        assert functions(plan) == ["split_k"] * splits + ["sum_parts"]
        assert plan.scratch_bytes == splits * 2 * 17 * 31 * 4
        check_plan(backend, plan)

    def test_gives_equal_bits_for_equal_inputs(self, backend: gp.Backend) -> None:
        rng = np.random.default_rng(3)
        a, b = (backend.asarray(rng.standard_normal(shape).astype(np.float32)) for shape in ((33, 500), (500, 29)))
        results = [gp.gemm(a, b, kernel="split_k", params={"SPLITS": 7}).get() for _ in range(5)]
        assert all(np.array_equal(result, results[0]) for result in results)

    def test_needs_scratch_within_one_allocation(self, backend: gp.Backend) -> None:
        poor = replace(backend.device, max_allocation=1000)
        with pytest.raises(gp.UnsupportedError, match="parts takes"):
            gp.plan(gp.GemmProblem.create(20, 20, 20), poor, kernel="split_k")

    def test_finds_a_missing_part(self, backend: gp.Backend) -> None:
        """The check above is worth something: without its second launch, the plan is wrong."""
        plan = gp.plan(problem_of(Sizes(17, 31, 13), "NN", "float32"), backend.device, kernel="split_k")
        broken = replace(plan, launches=(plan.launches[0], *plan.launches[2:]))
        with pytest.raises(AssertionError, match="are wrong"):
            check_plan(backend, broken)


class TestPretransposed:
    @pytest.mark.parametrize(("ops", "prepared"), [("NN", True), ("TN", True), ("NT", False), ("TT", False)])
    def test_prepares_b_only_where_it_must(self, backend: gp.Backend, ops: str, prepared: bool) -> None:
        plan = gp.plan(problem_of(Sizes(17, 31, 13), ops, "float32"), backend.device, kernel="pretransposed")
        assert functions(plan) == [*(["transpose"] if prepared else []), "pretransposed"]
        assert plan.scratch_bytes == (31 * 13 * 4 if prepared else 0)
        assert dict(plan.launches[-1].kernel.defines)["TRANSPOSE_B"] == 1

    def test_does_not_read_b_where_alpha_is_zero(self, backend: gp.Backend) -> None:
        problem = problem_of(Sizes(17, 31, 13), "NN", "float32", alpha=0.0, beta=2.0)
        assert functions(gp.plan(problem, backend.device, kernel="pretransposed")) == ["pretransposed"]

    def test_finds_a_missing_preparation(self, backend: gp.Backend) -> None:
        plan = gp.plan(problem_of(Sizes(17, 31, 13), "NN", "float32"), backend.device, kernel="pretransposed")
        with pytest.raises(AssertionError, match="are wrong"):
            check_plan(backend, replace(plan, launches=plan.launches[1:]))


class TestPerArchitecture:
    @pytest.mark.parametrize(
        ("architecture", "stem"),
        [
            ("sm_90", "per_architecture_sm_90"),
            ("sm_80", "per_architecture"),
            ("znver4", "per_architecture"),
            ("", "per_architecture"),
        ],
    )
    def test_chooses_its_source_by_the_device(self, backend: gp.Backend, architecture: str, stem: str) -> None:
        """Planned for a device that is not here: its architecture is made up, everything else is this device's own."""
        made_up = replace(backend.device, architecture=architecture)
        for sizes in SIZES:
            plan = gp.plan(problem_of(sizes, "TN", "float32", beta=0.5), made_up, kernel="per_architecture")
            assert {launch.kernel.stem for launch in plan.launches} <= {stem}
            check_plan(backend, plan)


class TestAligned:
    @pytest.mark.parametrize(
        ("layouts", "k", "wide"),
        [
            pytest.param({}, 16, True, id="dense"),
            pytest.param(
                {"a": gp.Layout(20, 20 * 17, 4), "b": gp.Layout(32, 32 * 31, 8)}, 16, True, id="gaps-of-16-bytes"
            ),
            pytest.param({}, 13, False, id="odd-k"),
            pytest.param({"a": gp.Layout(17, 17 * 17)}, 16, False, id="odd-rows-of-a"),
            pytest.param({"b": gp.Layout(16, 16 * 31, 1)}, 16, False, id="odd-offset-of-b"),
            pytest.param({"b": gp.Layout(16, 16 * 31 + 3)}, 16, False, id="odd-batches-of-b"),
            pytest.param({"a": gp.Layout(16, 16 * 17, 0, base_alignment=4)}, 16, False, id="memory-of-a-anywhere"),
        ],
    )
    def test_loads_wide_where_rows_are_aligned(
        self, backend: gp.Backend, dtype: str, layouts: dict[str, gp.Layout], k: int, wide: bool
    ) -> None:
        problem = gp.GemmProblem.create(17, 31, k, batch=2, dtype=dtype, trans_b="T", alpha=2.0, beta=-1.0, **layouts)
        plan = gp.plan(problem, backend.device, kernel="aligned")
        assert dict(plan.launches[0].kernel.defines)["WIDTH"] == (16 // problem.dtype.itemsize if wide else 1)
        check_plan(backend, plan)

    @pytest.mark.parametrize("ops", ["NN", "TN", "TT"])
    def test_names_the_ops_it_cannot_do(self, backend: gp.Backend, ops: str) -> None:
        with pytest.raises(gp.UnsupportedError, match=f"aligned.*not {ops}"):
            gp.plan(problem_of(Sizes(4, 4, 4), ops, "float32"), backend.device, kernel="aligned")
