"""The model of a device: what is derived, what is stated over it, and predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

import gemmport as gp
from gemmport import kernels
from gemmport.contracts.device_model import RATES, derived, usual_matrix_products
from gemmport.contracts.gpu_model import Constants, matrix_rate
from gemmport.contracts.named_devices import device_of
from gemmport.contracts.prediction import USUAL_ITEMS, facts_of, joined, waking
from gemmport.core.dtypes import DTYPES
from gemmport.core.errors import ParameterError, UnsupportedError
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan
from made_up_devices import DEVICES
from models import model_of

each_device = pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)


@each_device
def test_every_device_has_a_whole_model(device: gp.DeviceInfo) -> None:
    model = derived(device)
    assert all(getattr(model, name) > 0 for name in RATES)
    assert set(model.multiply_adds) == {"float16", "float32", "float64", "int32"}
    assert model.copy_bandwidth <= model.read_bandwidth < model.local_bandwidth
    assert model.barrier < model.latency < model.launch


def test_rates_grow_with_what_the_device_tells() -> None:
    gpu, cpu = DEVICES["NVIDIA sm_90 under CUDA"], DEVICES["CPU under PoCL"]
    assert derived(gpu).multiply_adds["float32"] == pytest.approx(114 * 128 * 1755e6)
    assert (
        derived(replace(gpu, compute_units=228)).multiply_adds["float64"] == 2 * derived(gpu).multiply_adds["float64"]
    )
    narrow, wide = (derived(replace(cpu, vector_width=width)) for width in (4, 16))
    assert wide.multiply_adds["float32"] == 4 * narrow.multiply_adds["float32"]
    assert derived(replace(gpu, clock_mhz=0)).multiply_adds["float32"] > 0


def test_a_multiply_add_counts_as_its_type_asks() -> None:
    model = derived(DEVICES["NVIDIA sm_90 under CUDA"])
    single, double = model.multiply_adds["float32"], model.multiply_adds["float64"]
    rates = {
        name: model.rate(DTYPES[name]) for name in ("float32", "complex64", "complex128", "int32", "int64", "bool")
    }
    assert rates == {
        "float32": single, "complex64": single / 4, "complex128": double / 4, "int32": single / 2, "int64": single / 4,
        "bool": single / 2,
    }  # fmt: skip


def test_what_was_measured_of_matrix_units_goes_before_what_is_usual() -> None:
    """And, of float64, before as many times the other units' rate as a file states."""
    device = replace(DEVICES["NVIDIA sm_90 under CUDA"], computes=frozenset({"float16", "float32", "float64"}))
    plain = derived(device)
    measured = plain.over({"matrix_multiply_adds": {"float64": 3e13, "float16": 4e14}}, "mine")
    stated = measured.over({"fitted": {"simt": {"matrix_rate": 5.0}}}, "mine")
    clocks = 114 * 1755e6
    square = {name: gp.GemmProblem.create(512, 512, 512, dtype=name) for name in ("float64", "complex128", "float16")}
    assert matrix_rate(square["float64"], plain) == plain.multiply_adds["float64"]
    for model in (measured, stated):
        assert matrix_rate(square["float64"], model) == 3e13
        assert matrix_rate(square["complex128"], model) == 3e13 / 4
        assert Constants.of(device, model).matrix_lanes["float64"] == pytest.approx(3e13 / clocks)
        assert usual_matrix_products(device, model) == pytest.approx(4e14 / clocks)
    assert usual_matrix_products(device, plain) == 8 * 128
    for name, dtype in (("mma", "float16"), ("simt", "float64")):
        kernel, problem = kernels.variant(name), square[dtype]
        unit = [each for each in kernel.considered(problem, device, plain) if name == "mma" or each.get("MMA")]
        values = kernel.complete(unit[0])
        expected = [kernel.predicted(problem, device, model, values).seconds for model in (plain, measured)]
        assert expected[1] < expected[0]


@each_device
def test_every_kernel_predicts_what_it_plans(device: gp.DeviceInfo) -> None:
    configuration, model = load_configuration(), model_of(device)
    for variant in kernels.variants():
        for problem in (gp.GemmProblem.create(67, 129, 33, batch=3), gp.GemmProblem.create(1, 700, 900)):
            try:
                plan = make_plan(problem, device, configuration, kernel=variant.name)
            except (UnsupportedError, ParameterError):
                continue
            found = variant.predicted(problem, device, model, plan.values)
            assert max(found.parts.values()) <= found.seconds <= 1.001 * sum(found.parts.values())
            assert all(seconds >= 0 for seconds in found.parts.values())
            assert found.facts["multiply-adds"] == problem.m * problem.n * problem.k * problem.batch
            assert found.facts["bytes"] == problem.bytes


@pytest.mark.parametrize("name", [variant.name for variant in kernels.variants()])
def test_more_work_takes_longer(name: str) -> None:
    variant = kernels.variant(name)
    places = {"packed": "CPU under PoCL", "sub_group_mma": "AMD gfx90a"}
    device = DEVICES[places.get(name, "NVIDIA sm_90 under CUDA")]
    halves = name in ("mma", "wgmma", "sub_group_mma")
    model = model_of(device)

    def seconds(size: int) -> float:
        problem = gp.GemmProblem.create(size, size, size, dtype="float16" if halves else "float32")
        plan = make_plan(problem, device, load_configuration(), kernel=name)
        return variant.predicted(problem, device, model, plan.values).seconds

    times = [seconds(size) for size in (256, 1024, 4096)]
    assert times[0] < times[1] < times[2] / 8


@pytest.mark.parametrize("name", ["mma", "wgmma"])
def test_a_matrix_unit_of_which_no_file_tells_has_defaults_near_those_that_files_tell(name: str) -> None:
    device, variant = DEVICES["NVIDIA sm_90 under CUDA"], kernels.variant(name)
    problem, values = gp.GemmProblem.create(4096, 4096, 4096, dtype="float16"), variant.complete({})
    told, default = (
        variant.predicted(problem, device, model, values).seconds for model in (model_of(device), derived(device))
    )
    assert told / 3 < default < 3 * told


@pytest.mark.parametrize("name", ["mma", "wgmma"])
def test_what_a_file_tells_of_a_pass_counts(name: str) -> None:
    device, variant = DEVICES["NVIDIA sm_90 under CUDA"], kernels.variant(name)
    problem, values = gp.GemmProblem.create(4096, 4096, 4096, dtype="int8"), variant.complete({})
    slow, slower = (
        variant.predicted(
            problem, device, derived(device).over({"fitted": {"relayout": {"elements_per_clock": rate}}}, ""), values
        ).parts["passes"]
        for rate in (0.5, 0.25)
    )
    assert slower == pytest.approx(2 * slow)


@pytest.mark.parametrize(
    ("architecture", "link"),
    [("sm_75", 12e9), ("sm_80", 25e9), ("sm_90", 50e9), ("sm_120", 50e9),
     ("gfx90a", 25e9), ("gfx942", 50e9), ("gfx1100", 25e9), ("gfx1201", 50e9), ("dg2", 12e9)],
)  # fmt: skip
def test_the_link_to_the_host_is_that_of_the_architecture(architecture: str, link: float) -> None:
    assert model_of(device_of(architecture)).link_bandwidth == link


def test_the_last_wave_may_leave_units_idle() -> None:
    problem = gp.GemmProblem.create(1024, 1024, 64)
    found = facts_of(problem, 128, 128, at_once=48)
    assert (found["groups"], found["waves"], found["tail"]) == (64, 2, 1 - 16 / 48)
    assert facts_of(problem, 128, 128, at_once=32)["tail"] == 0
    assert facts_of(gp.GemmProblem.create(1025, 1024, 64), 128, 128, at_once=32)["padded"] == 72 * 128 * 128 * 64


def test_parts_that_overlap_take_longer_than_the_longest_and_less_than_all() -> None:
    assert joined({"a": 3.0, "b": 4.0}, 2.0) == pytest.approx(5.0)
    assert joined({"a": 3.0, "b": 0.0}) == 3.0
    assert joined({}) == 0.0


CPU = DEVICES["CPU under PoCL"]


def on_a_cpu(name: str, problem: gp.GemmProblem, cores: int = 16, **params: int | str) -> float:
    device = replace(CPU, compute_units=cores)
    plan = make_plan(problem, device, load_configuration(), kernel=name, params=params)
    return kernels.variant(name).predicted(problem, device, model_of(device), plan.values).seconds


WIDE = {"THREADSX": 4, "THREADSY": 4, "RX": 16, "RY": 8, "RK": 8, "WIDTH": 8}
"""Tiles of `direct`, of 32 × 64."""


def test_on_cpus_edges_of_large_tiles_count() -> None:
    """A group of `direct` computes 32 × 64 of D, whatever is left of it."""
    whole, part = (on_a_cpu("direct", gp.GemmProblem.create(m, 64, 64, batch=500), **WIDE) for m in (32, 16))
    assert part > whole


def test_on_cpus_panels_pay_where_they_are_read_often() -> None:
    small, large = gp.GemmProblem.create(128, 128, 128), gp.GemmProblem.create(2048, 2048, 2048)
    assert on_a_cpu("direct", small, cores=2, **WIDE) < on_a_cpu("naive", small, cores=2)
    assert on_a_cpu("packed", large, cores=2) < 0.6 * on_a_cpu("direct", large, cores=2, **WIDE)


def test_on_cpus_a_matrix_that_is_read_once_is_bound_by_memory() -> None:
    large = gp.GemmProblem.create(1, 30_000, 4096)
    expected = large.bytes / model_of(CPU).read_bandwidth
    assert expected < on_a_cpu("gemv", large) < 1.5 * expected
    assert on_a_cpu("gemv", large) < on_a_cpu("packed", large)


def test_more_groups_than_cores_take_turns() -> None:
    device = replace(CPU, compute_units=4)
    naive, model = kernels.variant("naive"), derived(device)

    def seconds(tiles: int) -> float:
        return naive.predicted(gp.GemmProblem.create(16 * tiles, 16, 4096), device, model, {"TS": 16}).seconds

    assert seconds(1) == seconds(4) < seconds(5) == seconds(8)


def test_a_share_that_a_model_states_counts() -> None:
    problem, model = gp.GemmProblem.create(1024, 1024, 1024), derived(CPU)
    for variant in kernels.variants():
        if "share" not in variant.constants or variant.unsupported(problem, CPU):
            continue
        values = variant.complete({"ITEMS": 1, "SIDE": 1} if variant.name == "gemv" else {})
        if variant.name == "batched":
            continue
        half, tenth = (
            variant.predicted(
                problem, CPU, model.over({"fitted": {variant.name: {"share": share}}}, ""), values
            ).seconds
            for share in (0.01, 0.001)
        )
        assert tenth > 2 * half, variant.name


def test_on_cpus_the_first_core_works_alone_until_the_others_are_awake() -> None:
    """Of two groups of 10 µs on two cores: side by side 10; where the other takes 8 to wake, each works 4 longer."""
    assert waking(2, 1, 10e-6, 2, 0.0) == 0
    assert waking(2, 1, 10e-6, 2, 8e-6) == pytest.approx(4e-6)
    assert waking(2, 1, 3e-6, 2, 8e-6) == pytest.approx(3e-6)  # the first core has done both before
    assert waking(1, 1, 10e-6, 2, 8e-6) == 0  # nothing for another
    assert waking(64, 8, 10e-6, 8, 8e-6) == pytest.approx(7e-6)


@pytest.mark.parametrize("name", ["direct", "packed"])
def test_a_wake_that_a_model_states_counts_as_much_for_large_products_as_for_small(name: str) -> None:
    variant, device = kernels.variant(name), replace(CPU, compute_units=2)
    late = model_of(device).over({"fitted": {name: {"wake": 50e-6}}}, "")
    none = model_of(device).over({"fitted": {name: {"wake": 0.0}}}, "")

    def more(size: int) -> float:
        problem = gp.GemmProblem.create(size, size, size)
        values = variant.complete(WIDE if name == "direct" else {})
        with_, without = (variant.predicted(problem, device, model, values).seconds for model in (late, none))
        return with_ - without

    launches = 2 if name == "packed" else 1
    assert 0 < more(64) < more(512)
    assert more(2048) == pytest.approx(launches * 25e-6)


def test_on_cpus_rows_that_are_not_aligned_for_runs_cost_direct_more() -> None:
    aligned, odd = (on_a_cpu("direct", gp.GemmProblem.create(256, 256, k), cores=2, **WIDE) for k in (256, 255))
    assert odd > 2 * aligned


def test_on_cpus_caches_are_no_slower_than_memory_for_gemv() -> None:
    device, variant = replace(CPU, compute_units=2), kernels.variant("gemv")
    problem = gp.GemmProblem.create(1, 512, 512)
    assert problem.bytes < 2 * sum(device.caches)
    values = make_plan(problem, device, load_configuration(), kernel="gemv").values
    fast = model_of(device).over({"read_bandwidth": 1e12}, "")
    part = variant.predicted(problem, device, fast, values).parts["global memory"]
    assert part == pytest.approx(512 * 512 * 4 / 1e12)


def gemv_parts(device: gp.DeviceInfo, sizes: tuple[int, int, int], **fitted: float) -> Mapping[str, float]:
    """What a GPU takes for a product by `gemv`, with such constants."""
    problem, variant = gp.GemmProblem.create(*sizes, trans_b="T"), kernels.variant("gemv")
    model = derived(device).over(
        {"fitted": {"gemv": fitted}, "read_bandwidth": 2e12, "latency": 4e-7, "launch": 2e-6}, ""
    )
    values = variant.complete(dict(variant.considered(problem, device, derived(device))[0]))
    return variant.predicted(problem, device, model, values).parts


def test_on_gpus_a_matrix_that_a_cache_holds_comes_from_there_for_one_vector() -> None:
    device, cached = DEVICES["NVIDIA sm_90 under CUDA"], {"cached_bytes": 2e7, "cached_bandwidth": 4e12}
    small, large = (1, 2048, 2048), (1, 4096, 2048)  # 17 and 34 MB
    assert gemv_parts(device, small)["global memory"] == pytest.approx(4 * 2048**2 / 2e12)
    assert gemv_parts(device, small, **cached)["global memory"] == pytest.approx(4 * 2048**2 / 4e12)
    assert gemv_parts(device, large, **cached) == gemv_parts(device, large)
    several = (2, 2048, 2048)
    assert gemv_parts(device, several, **cached) == gemv_parts(device, several)


def test_gemv_may_take_less_to_launch_than_others() -> None:
    device = DEVICES["NVIDIA sm_90 under CUDA"]
    assert gemv_parts(device, (1, 512, 512))["launches"] == 2e-6
    assert gemv_parts(device, (1, 512, 512), launch_clocks=1755.0)["launches"] == pytest.approx(1e-6)


def test_few_groups_of_gemv_wait_for_memory_under_load() -> None:
    """What is on its way arrives after twice the latency."""
    device = replace(DEVICES["NVIDIA sm_90 under CUDA"], compute_units=4)
    problem, variant = gp.GemmProblem.create(1, 4096, 4096, trans_b="T"), kernels.variant("gemv")
    values = variant.complete({"ITEMS": 256, "SIDE": 32, "UNROLL": 4})
    model = derived(device).over({"read_bandwidth": 1e15, "latency": 4e-7}, "")
    on_its_way = 4 * USUAL_ITEMS * 2 * 16 * 4  # items of four units, and runs of each
    read = variant.predicted(problem, device, model, values).parts["global memory"]
    assert read == pytest.approx(4 * 4096**2 / on_its_way * 2 * 4e-7)


def test_gemv_reads_the_cores_own_caches_faster_than_the_last() -> None:
    device, variant = replace(CPU, compute_units=2), kernels.variant("gemv")
    near, last = 256, 1024
    assert 4 * near**2 < 2 * sum(device.caches[:-1]) < 4 * last**2 < 2 * sum(device.caches)
    rates = []
    for size in (near, last):
        problem = gp.GemmProblem.create(1, size, size)
        values = make_plan(problem, device, load_configuration(), kernel="gemv").values
        rates.append(4 * size**2 / variant.predicted(problem, device, model_of(device), values).parts["global memory"])
    assert rates == pytest.approx([2 * 55e9, 2 * 35e9])
