"""Every micro-benchmark does its work on the device, and is found out where it does not."""

from __future__ import annotations

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from gemmport.calibration import measuring
from gemmport.calibration.benchmarks import Benchmark, MultiplyAdds
from gemmport.core.dtypes import DTYPES
from gemmport.core.errors import CalibrationError
from mutations import Edit, Mutation, planted
from on_device import check_microbenchmarks, microbenchmarks


def test_every_microbenchmark_writes_what_it_must(backend: gp.Backend) -> None:
    check_microbenchmarks(backend)


FAULTS = {
    "leaves out the last steps of a sum": (r"s < steps; s \+= UNROLL", "s + UNROLL < steps; s += UNROLL"),
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


@pytest.mark.parametrize("form", microbenchmarks(gp.DeviceInfo("opencl", "a", "b")), ids=lambda b: b.function)
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
