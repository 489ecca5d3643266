"""`reduce`: sums of every type and count, by every step of its ladder; exact where nothing is rounded, else within a bound."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gemmport as gp
from absences import beyond
from gemmport import kernels
from gemmport.checking.verification import LAMBDA
from gemmport.contracts.kernel import Parameters, Rung
from gemmport.core.dtypes import DTYPES, as_dtype
from gemmport.core.plan import Buffer
from gemmport.execution.executor import prepare_launch
from gemmport.kernels.reduce import LADDER, PASS, result_type
from gemmport.runtime.sources import assemble, languages
from made_up_devices import DEVICES
from mutations import OF_REDUCE, TF32_LOAD, Mutation, planted
from on_device import summed

HostArray = npt.NDArray[Any]

GPU = DEVICES["NVIDIA sm_90 under CUDA"]

each_rung = pytest.mark.every_pair("rung", LADDER)

COUNTS = (0, 1, 2, 31, 63, 64, 65, 127, 128, 129, 1009, 64 * 64 * 2 + 1, 300_007)
"""Around the share of a group of 64 work-items; primes; more than 64 groups of two elements each; a large one."""


def of_64(rung: Rung) -> Parameters:
    """A step of the ladder by groups of 64 work-items: several launches already for small counts."""
    return {**rung.parameters, "ITEMS": 64}


def skip_unless_supported(backend: gp.Backend, dtype: str, parameters: Parameters) -> None:
    if reason := PASS.unsupported(as_dtype(dtype), PASS.complete(parameters), backend.device):
        pytest.skip(beyond(backend.device, reason))


def whole_numbers(count: int, dtype: str) -> HostArray:
    """Numbers whose sums are exact: integers of the whole range, else small ones; all truth values, or of odd many the last."""
    kind = as_dtype(dtype)
    rng = np.random.default_rng(count)
    if kind.kind == "bool":
        return np.arange(1, count + 1) >= (count if count % 2 else 0)
    if kind.kind == "integer":
        limits = np.iinfo(kind.numpy)
        return rng.integers(limits.min, limits.max, count, kind.numpy, endpoint=True)
    values = rng.integers(-7, 8, count).astype(kind.numpy)
    return (values + 1j * rng.integers(-7, 8, count)).astype(kind.numpy) if kind.kind == "complex" else values


def exact_sum(values: HostArray) -> HostArray:
    """The sum of numbers whose sums are exact, as it lies on the device; integers wrap around."""
    result = result_type(as_dtype(values.dtype)).numpy
    if values.dtype == bool:
        return values.any(keepdims=True).astype(result)
    total: HostArray = values.astype(result).sum(dtype=result, keepdims=True)
    return total


def check_sum(backend: gp.Backend, values: HostArray, parameters: Parameters) -> None:
    got, wanted = summed(backend, values, parameters), exact_sum(values)
    assert got == wanted, f"the sum of {values.size} {values.dtype} is wrong: {got[0]}, not {wanted[0]}"


@pytest.mark.every_pair("dtype", DTYPES)
@each_rung
def test_sums_of_whole_numbers_are_exact(backend: gp.Backend, rung: Rung, dtype: str) -> None:
    parameters = of_64(rung)
    skip_unless_supported(backend, dtype, parameters)
    for count in COUNTS:
        check_sum(backend, whole_numbers(count, dtype), parameters)


@pytest.mark.parametrize("fault", OF_REDUCE, ids=lambda fault: fault.name.replace(" ", "-"))
def test_faults_are_planted_in_both_languages(fault: Mutation) -> None:
    kernel = PASS.steps(5, DTYPES["float32"], PASS.complete({}), GPU).launches[0].kernel
    shipped = {language: assemble(kernel, language) for language in languages()}
    with planted(fault, PASS.name):
        assert all(assemble(kernel, language) != text for language, text in shipped.items())


@pytest.mark.best_of_each_backend
@pytest.mark.planted_fault
@pytest.mark.sample(name=["reduce_divergent"])
@pytest.mark.every_value(("fault", "name"), list(OF_REDUCE.items()))
def test_a_broken_step_is_noticed(backend: gp.Backend, fault: Mutation, name: str) -> None:
    (rung,) = [rung for rung in LADDER if rung.name == name]
    with planted(fault, PASS.name), pytest.raises(AssertionError, match=r"the sum of .* is wrong"):
        test_sums_of_whole_numbers_are_exact(backend, rung, "float32")


@pytest.mark.every_pair("items", [32, 256, 1024])
@each_rung
def test_groups_of_every_size_add_up(backend: gp.Backend, rung: Rung, items: int) -> None:
    parameters = {**rung.parameters, "ITEMS": items}
    skip_unless_supported(backend, "int32", parameters)
    for count in (1, items - 1, 2 * items + 1, 40_009):
        try:
            check_sum(backend, whole_numbers(count, "int32"), parameters)
        except gp.LaunchError as error:
            if "compiled to run with at most" not in str(error):
                raise
            pytest.skip(beyond(backend.device, str(error)))  # NVIDIA's OpenCL compiles for groups of 256


@pytest.mark.every_pair("tree", PASS.parameters[0].choices)
@pytest.mark.every_pair("each", [3, 64])
def test_every_tree_goes_with_any_number_of_elements_each(backend: gp.Backend, tree: str, each: int) -> None:
    parameters: Parameters = {"TREE": tree, "EACH": each, "ITEMS": 32}
    skip_unless_supported(backend, "int32", parameters)
    for count in (1, 32 * each, 32 * each + 1, 40_009):
        check_sum(backend, whole_numbers(count, "int32"), parameters)


def check_random_sum(backend: gp.Backend, dtype: str, parameters: Parameters) -> HostArray:
    """Asserts that a sum of normal numbers errs no more than chance explains: a number goes through so many additions, and at
    each a number of their size is rounded (the step from worst case to probable error is that of Higham & Mary 2019).
    """
    element, full = as_dtype(dtype), PASS.complete(parameters)
    rng = np.random.default_rng(5)
    values = rng.standard_normal(100_003)
    if element.kind == "complex":
        values = values + 1j * rng.standard_normal(values.size)
    values = values.astype(element.numpy)
    total = summed(backend, values, parameters)
    launches = PASS.steps(values.size, element, full, backend.device).launches
    additions = len(launches) * (int(full["EACH"]) + math.log2(int(full["ITEMS"])))
    for part in ("real", "imag"):
        terms = getattr(values, part).astype(np.float64)
        bound = LAMBDA * math.sqrt(additions) * result_type(element).unit_roundoff * np.linalg.norm(terms)
        assert abs(float(getattr(total[0], part)) - math.fsum(terms)) <= bound, f"the {part} part is wrong"
    return total


@pytest.mark.every_pair("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
@each_rung
def test_sums_of_random_numbers_are_within_their_bound_and_repeat_bit_by_bit(
    backend: gp.Backend, rung: Rung, dtype: str
) -> None:
    skip_unless_supported(backend, dtype, of_64(rung))
    first, second = (check_random_sum(backend, dtype, of_64(rung)) for _ in range(2))
    assert first.tobytes() == second.tobytes()


@pytest.mark.best_of_each_backend
@pytest.mark.planted_fault
@each_rung
def test_a_sum_of_rounded_numbers_is_none_of_float32(backend: gp.Backend, rung: Rung) -> None:
    skip_unless_supported(backend, "float32", of_64(rung))
    with planted(replace(TF32_LOAD, kernels=(PASS.name,)), PASS.name), pytest.raises(AssertionError, match="is wrong"):
        check_random_sum(backend, "float32", of_64(rung))


@pytest.mark.best_of_each_backend
@pytest.mark.large
def test_elements_beyond_32_bits_are_added_up(fresh_backend: gp.Backend) -> None:
    """Zeros with a few numbers at both ends; by indices that wrapped around, others would be added instead."""
    device, count = fresh_backend.device, 2**31 + 2**12 + 1
    if device.max_allocation < count:
        pytest.skip(beyond(device, f"it allows {device.max_allocation:,} bytes in one allocation"))
    steps = PASS.steps(count, DTYPES["int8"], PASS.complete(LADDER[-1].parameters), device)
    memory = {each.name: fresh_backend.allocate(each.nbytes) for each in steps.scratch}
    memory["source"], memory["target"] = fresh_backend.allocate(count), fresh_backend.allocate(4)
    fresh_backend.fill(memory["source"], 0)
    for value, first in ((1, 0), (100, count - 2**12)):
        fresh_backend.upload(memory["source"], np.full(2**12, value, np.int8), offset=first)
    for launch in steps.launches:
        fresh_backend.launch(prepare_launch(launch, fresh_backend, memory))
    total = np.empty(1, np.int32)
    fresh_backend.download(memory["target"], total)
    assert total[0] == 101 * 2**12, f"the sum is wrong: {total[0]}, not {101 * 2**12}"


# Contract


def test_sums_of_groups_are_reduced_until_one_is_left() -> None:
    steps = PASS.steps(1_000_000, DTYPES["float16"], PASS.complete({"ITEMS": 128, "EACH": 2}), GPU)
    assert [launch.groups[0] for launch in steps.launches] == [3907, 16, 1]
    assert [(each.name, each.nbytes) for each in steps.scratch] == [("sums_1", 3907 * 4), ("sums_2", 16 * 4)]
    buffers = [[a.name for a in launch.arguments if isinstance(a, Buffer)] for launch in steps.launches]
    assert buffers == [["source", "sums_1"], ["sums_1", "sums_2"], ["sums_2", "target"]]
    assert [dict(launch.kernel.defines)["IN"] for launch in steps.launches] == ["float16", "float32", "float32"]


def test_no_elements_take_one_launch_that_writes_zero() -> None:
    steps = PASS.steps(0, DTYPES["float32"], PASS.complete({}), GPU)
    assert [launch.groups for launch in steps.launches] == [(1, 1, 1)]
    assert not steps.scratch


def test_a_tree_of_shuffles_keeps_one_number_of_each_sub_group_in_local_memory() -> None:
    for tree, numbers in (("shuffle", 8), ("unrolled", 256)):
        full = PASS.complete({"TREE": tree, "ITEMS": 256})
        for dtype, itemsize in (("bool", 4), ("complex128", 16)):
            (launch,) = PASS.steps(5, DTYPES[dtype], full, GPU).launches
            assert launch.local_bytes == numbers * itemsize


def test_what_a_device_lacks_is_told() -> None:
    def reason(device: gp.DeviceInfo, dtype: str = "float32", **parameters: int | str) -> str | None:
        return PASS.unsupported(DTYPES[dtype], PASS.complete(parameters), device)

    plain = DEVICES["work-groups of 256"]
    assert reason(plain) is None
    assert reason(GPU, "complex128", TREE="shuffle", ITEMS=1024) is None
    assert "not of ITEMS = 512" in (reason(plain, ITEMS=512) or "")
    assert "not of ITEMS = 512" in (
        reason(replace(plain, max_work_group=1024, max_work_item_sizes=(256, 256, 64)), ITEMS=512) or ""
    )
    assert "does not compute in float64" in (reason(DEVICES["Intel GPU"], "complex128") or "")
    for tree in ("unrolled_warp", "unrolled", "shuffle"):
        assert "cl_intel_subgroups" in (reason(plain, TREE=tree) or "")


def test_the_ladder_is_told_in_order_and_every_step_is_another() -> None:
    assert kernels.ladders()["reduce"] is LADDER
    names = ["divergent", "interleaved", "sequential", "first_add", "unrolled_warp", "unrolled", "shuffle", "many"]
    assert [rung.name for rung in LADDER] == [f"reduce_{name}" for name in names]
    completed = [tuple(rung.own.complete(rung.parameters).items()) for rung in LADDER]
    assert len(set(completed)) == len(LADDER)
