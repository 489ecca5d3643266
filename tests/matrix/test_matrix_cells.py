"""Cells of the matrix: names, problems, and which are due."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gemmport as gp
from gemmport import kernels
from gemmport.api.plans import plan
from gemmport.core.problem import OPS
from gemmport.matrix.cells import (
    LARGE,
    SCALARS,
    SHAPES,
    SIMULATED_EXTENT,
    TYPES,
    Cell,
    Choice,
    cells,
    parse_types,
    precision_of,
)
from made_up_devices import DEVICES

GPU = DEVICES["NVIDIA sm_90 under CUDA"]
CPU = DEVICES["CPU under PoCL"]
SIMULATOR = replace(CPU, platform="oclgrind", name="Oclgrind Simulator", type="accelerator")

NAMES = [variant.name for variant in kernels.variants()]
parts = st.tuples(
    st.sampled_from(NAMES), st.sampled_from(TYPES), st.sampled_from("NTCR"), st.sampled_from("NTCR"),
    st.sampled_from(SHAPES), st.sampled_from(sorted(SCALARS)),
)  # fmt: skip


def named(parts: tuple[str, ...]) -> Cell | None:
    kernel, types, left, right, shape, scalars = parts
    try:
        return Cell.of(kernel, types, left + right, shape, scalars)
    except gp.UnknownNameError:
        return None


cell = parts.map(named).filter(lambda found: found is not None)


class TestNames:
    @given(cell)
    def test_are_read_as_they_are_written(self, cell: Cell) -> None:
        assert Cell.parse(cell.id) == cell

    @given(cell)
    def test_need_no_quotes_in_a_shell_or_a_url(self, cell: Cell) -> None:
        assert all(c.isascii() and (c.isalnum() or c in "/-_") for c in cell.id)

    def test_say_only_types_that_are_not_the_usual_ones(self) -> None:
        for text in TYPES:
            dtype, output, accumulator = (each.name for each in parse_types(text))
            assert Cell("naive", dtype, output, accumulator, "NN", "odd", "a1b0", precision_of(text)).types == text
        assert Cell.parse("naive/int8-int8/NN/odd/a1b0").id == "naive/int8/NN/odd/a1b0"

    @pytest.mark.parametrize(
        "text",
        [
            "naive/float32/NN/odd", "absent/float32/NN/odd/a1b0", "naive/float31/NN/odd/a1b0", "naive/float32/N/odd/a1b0",
            "naive/float32/XN/odd/a1b0", "naive/float32/NN/round/a1b0", "naive/float32/NN/odd/a9b9",
            "naive/bool/NN/odd/a2b-1", "naive/float32/NN/odd/complex", "naive/int8/NN/odd/random",
            "naive/float32-int8/NN/odd/a1b0", "naive/float32/NN/large/a2b-1", "naive/float32-/NN/odd/a1b0", "",
        ],
    )  # fmt: skip
    def test_that_are_none_are_refused(self, text: str) -> None:
        with pytest.raises(gp.UnknownNameError):
            Cell.parse(text)


class TestProblems:
    def problem(self, shape: str, device: gp.DeviceInfo = GPU, scalars: str = "a1b0") -> gp.GemmProblem:
        return Cell.of("register_tiled", "float32", "NT", shape, scalars).problem(device)

    def test_are_of_their_shape(self) -> None:
        rows, columns, depth = kernels.variant("register_tiled").tile(
            plan(gp.GemmProblem.create(64, 64, 64, trans_b="T"), GPU, kernel="register_tiled").values
        )
        power, past = self.problem("power"), self.problem("past")
        assert all(size & (size - 1) == 0 for size in (power.m, power.n, power.k))
        assert power.m % rows == power.n % columns == power.k % depth == 0
        assert (past.m, past.n, past.k) == (power.m + 1, power.n + 1, power.k + 1)
        odd, prime, tiny = self.problem("odd"), self.problem("prime"), self.problem("tiny")
        assert odd.m % 2 == odd.n % 2 == odd.k % 2 == 1
        assert all(odd_size > 1 for odd_size in (odd.m, odd.n, odd.k))
        assert (odd.m > rows, odd.n > columns, odd.k > depth) == (True, True, True)
        for size in (prime.m, prime.n, prime.k):
            assert all(size % divisor for divisor in range(2, size))
        assert (tiny.m, tiny.n, tiny.k) == (1, 1, 1)
        assert self.problem("skinny").n > 50 * self.problem("skinny").m
        batched = self.problem("batched")
        assert (batched.batch, batched.b.batch_stride) == (3, 0)
        assert min(batched.a.batch_stride, batched.d.batch_stride) > 0
        strided = self.problem("strided")
        for operand in ("a", "b", "c", "d"):
            layout = strided.layout(operand)
            rows, columns = strided.stored_shape(operand)
            assert layout.offset > 0
            assert layout.ld > columns
            assert layout.batch_stride > rows * layout.ld
        assert any(strided.alignment(operand) < 8 for operand in ("a", "b"))
        for name in "mnk":
            empty = self.problem(f"empty-{name}")
            assert [key for key in "mnk" if getattr(empty, key) == 0] == [name]

    def test_have_their_scalars_and_layouts(self) -> None:
        problem = self.problem("odd", scalars="a2b-1")
        assert (problem.alpha, problem.beta) == (2, -1)
        assert self.problem("strided", scalars="in-place").c == self.problem("strided", scalars="in-place").d
        assert self.problem("strided").c != self.problem("strided").d

    def test_are_small_where_every_instruction_is_interpreted(self) -> None:
        for found in cells(SIMULATOR, "full", Choice(kernels=["register_tiled"], types=["float32"])):
            problem = found.problem(SIMULATOR)
            assert max(problem.m, problem.n, problem.k) <= SIMULATED_EXTENT
            assert found.shape != "large"

    @pytest.mark.parametrize("device", [GPU, CPU])
    def test_that_are_timed_are_as_large_as_the_device_is_fast(self, device: gp.DeviceInfo) -> None:
        problem = self.problem("large", device)
        assert problem.m == problem.n == problem.k == LARGE[device.type]

    def test_in_halves_are_summed_exactly(self) -> None:
        long = Cell.of("register_tiled", "float16-float16-float16", "NN", "past", "a2b-1")
        assert long.problem(replace(GPU, computes=GPU.computes | {"float16"})).k <= 64


def computes(kernel: str, types: str, device: gp.DeviceInfo) -> bool:
    """Whether there is a plan."""
    try:
        Cell.of(kernel, types, "NN", "past", "a1b0").problem(device)
    except gp.GemmportError:
        return False
    return True


def able_on(device: gp.DeviceInfo) -> list[str]:
    """Kernels that compute something there: shuffle exchanges registers, packed is for CPUs, wgmma takes no plain float32."""
    return [name for name in NAMES if any(computes(name, types, device) for types in TYPES)]


class TestChoice:
    @pytest.mark.large
    def test_in_full_is_every_combination_once(self) -> None:
        every = [found.id for found in cells(GPU, "full")]
        assert len(set(every)) == len(every)
        parts = (name.split("/") for name in every)
        found = Counter((kernel, types, shape) for kernel, types, _, shape, _ in parts)
        for kernel, (types, shape) in itertools.product(NAMES, itertools.product(TYPES, SHAPES)):
            ops = 16 if parse_types(types)[0].kind == "complex" else 4
            scalars = {"bool": 3, "integer": 5, "real": 6, "complex": 7}[parse_types(types)[2].kind]
            wanted = ops * scalars
            if shape == "large":
                wanted = 4 if types == "float32" else 1
            assert found[kernel, types, shape] == wanted, (kernel, types, shape)

    @pytest.mark.large
    def test_is_quick_and_covers_every_pair_on_a_gpu(self) -> None:
        device = replace(GPU, computes=GPU.computes | {"float16", "float64"})
        quick, full = cells(device, "quick"), cells(device, "full")
        assert len(quick) < len(full) / 10
        assert {found.id for found in quick} <= {found.id for found in full}
        able = {(name, types) for name in NAMES for types in TYPES if computes(name, types, device)}
        for one, other in (
            ("kernel", "shape"), ("kernel", "types"), ("kernel", "ops"), ("types", "ops"), ("kernel", "scalars"),
        ):  # fmt: skip
            wanted, covered = (
                {(getattr(cell, one), getattr(cell, other)) for cell in some if (cell.kernel, cell.types) in able}
                for some in (full, quick)
            )
            assert covered == wanted, (one, other)
        refused = Counter((cell.kernel, cell.types) for cell in quick if (cell.kernel, cell.types) not in able)
        wanted = set(itertools.product(able_on(device), TYPES)) - able
        assert set(refused) - wanted == {(name, TYPES[0]) for name in set(NAMES) - set(able_on(device))}
        assert wanted <= set(refused)
        assert set(refused.values()) == {1}

    @pytest.mark.parametrize(
        ("kernel", "types", "device"),
        [
            ("wgmma", "float16 bfloat16 int8-int32 float8_e4m3fn float8_e5m2 float32-as-tf32", "NVIDIA sm_90 under CUDA"),
            ("mma", "float16 bfloat16 int8-int32 float8_e4m3fn float8_e5m2 float32-as-tf32", "NVIDIA sm_90 under OpenCL"),
            ("sub_group_mma", "float16 bfloat16 int8-int32", "AMD gfx90a"),
        ],
    )  # fmt: skip
    def test_has_every_shape_types_and_ops_of_kernels_without_float32(
        self, kernel: str, types: str, device: str
    ) -> None:
        found = [one for one in cells(DEVICES[device], "quick", Choice(kernels=[kernel])) if one.scalars != "a1b0"]
        assert {one.types for one in found} >= {*types.split()}
        assert {one.ops for one in found} == {"NN", "NT", "TN", "TT"}
        assert {one.scalars for one in found} == {"a1b1", "a2b-1", "a0b2", "in-place", "random"}
        judged = cells(DEVICES[device], "quick", Choice(kernels=[kernel]))
        assert {one.shape for one in judged if computes(kernel, one.types, DEVICES[device])} == set(SHAPES)

    def test_plans_what_is_rounded_as_such(self) -> None:
        """`wgmma` takes float32 as TF32 alone; it is asked for its tile of that."""
        assert Cell.of("wgmma", "float32-as-tf32", "NT", "odd", "a1b0").problem(GPU).precision == "tf32"

    @pytest.mark.parametrize("device", [CPU, SIMULATOR], ids=["compiles slowly", "simulated"])
    def test_is_quicker_where_programs_are_slow(self, device: gp.DeviceInfo) -> None:
        quick = cells(device, "quick")
        assert len({found.program for found in quick if computes(found.kernel, found.types, device)}) < 60
        shapes = {shape for shape in SHAPES if shape != "large"}
        able = able_on(device)
        assert {(found.kernel, found.shape) for found in quick} >= set(itertools.product(able, shapes))
        for axis, values in (
            ("scalars", set(SCALARS)),
            ("types", set(TYPES)),
            ("ops", set(map("".join, itertools.product(OPS, OPS)))),
        ):
            assert {getattr(found, axis) for found in quick} == values
        for kernel in set(NAMES) - set(able):
            assert len([found for found in quick if found.kernel == kernel]) == 1

    def test_asks_once_for_types_that_the_device_lacks(self) -> None:
        poor = DEVICES["wavefronts of 64 without float64"]
        asked = [found for found in cells(poor, "quick") if "float64" in (found.dtype, found.accumulator)]
        able = able_on(poor)  # others are asked for in a type that there is
        assert len(asked) == len({(found.kernel, found.types) for found in asked}) == 2 * len(able)

    @pytest.mark.parametrize("scope", ["quick", "full"])
    def test_keeps_cells_of_a_program_together(self, scope: str) -> None:
        programs = [found.program for found in cells(CPU, scope) if found.shape != "large"]
        assert len(list(itertools.groupby(programs))) == len(set(programs))

    @pytest.mark.parametrize("scope", ["quick", "full"])
    def test_is_narrowed_down_as_asked_for(self, scope: str) -> None:
        choice = Choice(["naive", "tiled"], ["float32", "complex64"], ["NT", "CN"], ["odd", "power"])
        found = cells(GPU, scope, choice)
        assert {one.kernel for one in found} == {"naive", "tiled"}
        assert {(one.types, one.ops) for one in found} == {("float32", "NT"), ("complex64", "NT"), ("complex64", "CN")}
        assert {one.shape for one in found} == {"odd", "power"}

    @pytest.mark.large
    @pytest.mark.parametrize("scope", ["quick", "full"])
    def test_in_shards_is_the_same_in_all(self, scope: str) -> None:
        whole = [found.id for found in cells(CPU, scope)]
        shards = [cells(CPU, scope, shard=(number, 3)) for number in (1, 2, 3)]
        assert sorted(found.id for shard in shards for found in shard) == sorted(whole)
        assert all(len(shard) > len(whole) / 10 for shard in shards)
        programs = [{found.program for found in shard} for shard in shards]
        assert not any(one & other for one, other in itertools.combinations(programs, 2))


def test_the_pages_tell_how_many_there_are() -> None:
    due, quick = cells(GPU, "full"), cells(replace(GPU, computes=GPU.computes | {"float16"}), "quick")
    docs = Path(__file__).parents[2] / "docs"
    by = Counter(cell.kernel for cell in quick)
    told = (
        f"{len(quick):,} cells in {len({cell.program for cell in quick}):,} programs, {by['mma']} cells of `mma` and "
        f"{by['wgmma']} of `wgmma`"
    )
    assert told in " ".join((docs / "matrix.md").read_text("utf-8").split())
    told = f"{len(due):,} cells in {len({cell.program for cell in due}):,} programs"
    assert told in (docs / "matrix.md").read_text("utf-8")
    assert f"all {len(due):,} cells of a device" in (docs / "command.md").read_text("utf-8")
