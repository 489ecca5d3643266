"""Every micro-benchmark does its work on the device, and is found out where it does not."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import gemmport as gp
import opencl_for_nvidia
from absences import beyond
from gemmport.calibration import measuring
from gemmport.calibration.benchmarks import Benchmark, MultiplyAdds, MultiplyMatrices
from gemmport.core.dtypes import DTYPES
from gemmport.core.errors import CalibrationError
from gemmport.kernels.microbenchmarks import F16, F64_8, F64_16, UNROLL, MatrixUnit
from mutations import Edit, Mutation, planted
from on_device import check_microbenchmarks, microbenchmarks


def test_every_microbenchmark_writes_what_it_must(backend: gp.Backend) -> None:
    check_microbenchmarks(backend)


FAULTS = {
    "leaves out the last steps of a sum": (r"(?s)(multiply_adds.*?)s < steps;", r"\1s + UNROLL < steps;"),
    "adds what it should multiply": (r"lanes_mul_add\(sum\[c\], a, b\)", "lanes_mul_add(sum[c], b, a)"),
    "counts one sum only": (r"lanes_mul_add\(sum\[c\], a, b\)", "c ? sum[c] : lanes_mul_add(sum[c], a, b)"),
    "reads the first run again": (r"source\[c \* ITEMS\], sum\[c\]\)", "source[0], sum[c])"),
    "copies half": (r"target\[c \* ITEMS\] = source\[c", "target[c * ITEMS / 2] = source[c"),
    "reads one place of local memory": (r"at = \(at \+ stride\) % ROOM", "at = (at + 0 * stride) % ROOM"),
    "stands still": (r"at = source\[at\];", "at = source[0];"),
    "starts groups that do nothing": (r"\* 2 \+ \(unsigned\)steps", "* 0"),
    "passes on its own word": (r"\(x \+ 1\) % ITEMS", "x % ITEMS"),
}


@pytest.mark.planted_fault
@pytest.mark.sample(name=["leaves out the last steps of a sum", "stands still"])
@pytest.mark.parametrize("name", FAULTS)
def test_work_that_is_not_done_is_found(best_backend: gp.Backend, name: str) -> None:
    pattern, replacement = FAULTS[name]
    fault = Mutation(name, (Edit(pattern, replacement),), ("microbenchmarks",))
    with planted(fault, "microbenchmarks"), pytest.raises(AssertionError, match="is wrong"):
        check_microbenchmarks(best_backend)


def cheating() -> Mutation:
    """The loop of `multiply_adds` is gone: sums are what they come to after so many steps, in numbers that have no fraction."""
    loop = r"for \(int s = 0; s < steps; s \+= UNROLL\)(?s:.*?)sum\[c\] = lanes_mul_add\(sum\[c\], a, b\);"
    closed = "for (int c = 0; c < CHAINS; ++c) sum[c] = a > 0 ? sum[c] + (acc_t)steps * b : sum[c];"
    return Mutation("knows the end", (Edit(loop, closed),), ("microbenchmarks",))


@pytest.mark.planted_fault
def test_a_loop_that_a_compiler_removed_is_found(best_backend: gp.Backend) -> None:
    """Though all that is written is right."""
    if best_backend.language != "opencl":
        pytest.skip(beyond(best_backend.device, "the fault is written in OpenCL C"))
    form = MultiplyAdds(8, 4096, {"ITEMS": 32, "WIDTH": 1, "CHAINS": 8}, DTYPES["float32"])
    told = pytest.raises(CalibrationError, match=r"multiply-adds float32 .* must take longer with more to do")
    with planted(cheating(), "microbenchmarks"), told:
        measuring._fastest("multiply-adds float32", [form], best_backend, 0)


FORMS = [
    *microbenchmarks(gp.DeviceInfo("opencl", "a", "b")),
    *(MultiplyMatrices(2, 16, {"ITEMS": 64, "WIDTH": 1, "CHAINS": 2}, unit=unit) for unit in (F64_16, F64_8, F16)),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda b: b.function)
def test_what_must_come_of_it_depends_on_every_step_and_what_is_read(form: Benchmark) -> None:
    source = form.source(np.random.default_rng(0))
    expected = form.expected(source)
    assert expected.nbytes <= form.target_bytes
    assert form.target_bytes % expected.nbytes == 0 or form.function in ("read_global", "copy_global")
    if form.halves == "steps" and form.function not in ("read_global", "copy_global"):
        assert not np.array_equal(expected, form.halved().expected(source))
    if form.function != "start":
        other = form.source(np.random.default_rng(1))
        assert not np.array_equal(source, other)
        assert not np.array_equal(expected, form.expected(other))


@pytest.mark.parametrize("unit", [F64_16, F64_8, F16], ids=lambda unit: unit.name)
def test_sums_of_matrices_are_products_added_again_and_again_and_exact(unit: MatrixUnit) -> None:
    """By the fragments of the PTX ISA, number by number."""
    benchmark = MultiplyMatrices(1, 1024, {"ITEMS": 64, "WIDTH": 1, "CHAINS": 2}, unit=unit)
    source = benchmark.source(np.random.default_rng(5))
    assert source.nbytes == benchmark.source_bytes
    registers = unit.registers_of_a + unit.registers_of_b
    words = source[: registers * 64].reshape(registers, 64)
    before = source[registers * 64 :].view(unit.sums.numpy).reshape(2, -1, 64)
    found = benchmark.expected(source).reshape(2, -1, 64)
    a: dict[tuple[int, int], int] = {}
    b: dict[tuple[int, int], int] = {}
    blocks = unit.rows // 8
    for lane in range(32):  # of the second warp
        g, t = lane // 4, lane % 4
        for r in range(registers):
            numbers = words[r, 32 + lane : 33 + lane].copy().view(unit.numbers.numpy)
            for i, number in enumerate(numbers):
                if r < unit.registers_of_a:
                    a[g + 8 * (r % blocks), len(numbers) * (t + 4 * (r // blocks)) + i] = int(number)
                else:
                    b[len(numbers) * (t + 4 * (r - unit.registers_of_a)) + i, g] = int(number)
    assert (len(a), len(b)) == (unit.rows * unit.terms, unit.terms * unit.columns)
    for chain, lane, s in itertools.product(range(2), range(32), range(unit.sums_of_lane)):
        row, column = lane // 4 + 8 * (s // 2), lane % 4 * 2 + s % 2
        added = sum(a[row, term] * b[term, column] for term in range(unit.terms))
        exactly = int(before[chain, s, 32 + lane]) + 1024 * added
        assert added != 0
        assert abs(exactly) <= 2**unit.sums.precision
        assert int(found[chain, s, 32 + lane]) == exactly


@pytest.mark.machine_code
@pytest.mark.parametrize(
    ("architecture", "unit", "told"),
    [("sm_80", F64_8, "m8n8k4"), ("sm_90", F64_16, "m16n8k4"), ("sm_90", F16, "m16n8k16")],
)
def test_opencl_s_source_has_the_matrix_unit_s_products(
    architecture: str, unit: MatrixUnit, told: str, tmp_path: Path
) -> None:
    form = MultiplyMatrices(1, 16, {"ITEMS": 256, "WIDTH": 1, "CHAINS": 4}, unit=unit)
    ptx = opencl_for_nvidia.compiled(form.launch, architecture, tmp_path)
    assert ptx.count(f"mma.sync.aligned.{told}") == 4 * UNROLL


def test_floats_that_count_stay_exact() -> None:
    for name in ("float16", "float32", "float64"):
        dtype = DTYPES[name]
        benchmark = MultiplyAdds(1, 1024, {"ITEMS": 8, "WIDTH": 4, "CHAINS": 4}, dtype)
        source = benchmark.source(np.random.default_rng(3))
        a, b, *sums = source.astype(object).reshape(6, -1)
        exactly = np.stack(sums)
        for _ in range(1024):
            exactly = exactly * a + b
        assert np.array_equal(benchmark.expected(source).astype(object), exactly.reshape(-1))
        assert abs(exactly).max() <= 2**dtype.precision
