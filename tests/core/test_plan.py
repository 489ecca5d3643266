"""`Plan`: plain data that is printed, saved and read back as it was."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmport import kernels
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import as_dtype
from gemmport.core.plan import Buffer, Choice, Integer, KernelSource, Launch, Plan, Scalar, Scratch
from gemmport.core.problem import GemmProblem, Layout
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan
from made_up_devices import DEVICES

DEVICE = DEVICES["AMD gfx90a"]

ABLE = {
    **dict.fromkeys(("shuffle", "mma", "wgmma"), "NVIDIA sm_90 under CUDA"),
    "packed": "CPU under PoCL",
}
"""Of kernels that not every device can run, one that can."""

PROBLEMS = {
    "plain": GemmProblem.create(100, 90, 80),
    "batch": GemmProblem.create(7, 6, 5, batch=3, dtype="float64", trans_a="T", trans_b="C", alpha=0.1, beta=-2.5),
    "views": GemmProblem.create(7, 6, 5, a=Layout(99, 0, 11, 4), d=Layout(50, 0, 3), alpha=float("inf")),
    "empty": GemmProblem.create(0, 6, 5),
}


def plan(problem: GemmProblem, kernel: str = "auto", device: DeviceInfo = DEVICE, **options: object) -> Plan:
    if kernel in ABLE:
        device = DEVICES[ABLE[kernel]]
    if kernel in ("mma", "wgmma", "sub_group_mma"):  # they multiply halves
        halves = as_dtype("float16")
        problem = replace(problem, dtype=halves, accumulator=as_dtype("float32"), output=halves)
    return make_plan(problem, device, load_configuration(), kernel=kernel, **options)


@pytest.mark.parametrize("kernel", [variant.name for variant in kernels.variants()])
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_a_plan_of_any_kernel_survives_json(kernel: str, problem: GemmProblem) -> None:
    made = plan(problem, kernel)
    assert Plan.from_json(made.to_json()) == made


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_a_plan_for_any_device_survives_json(device: DeviceInfo) -> None:
    made = plan(PROBLEMS["plain"], device=device)
    assert Plan.from_json(made.to_json()) == made


values = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=8)
arguments = st.one_of(
    st.builds(Buffer, names),
    st.builds(Integer, values, st.sampled_from([32, 64])),
    st.builds(Scalar, st.floats(allow_nan=False), st.sampled_from(["float32", "float64"])),
)
extents = st.tuples(st.integers(1, 2**31), st.integers(1, 99), st.integers(1, 99))
sources = st.builds(
    KernelSource,
    names,
    names,
    st.dictionaries(names, values | names, max_size=3).map(lambda defines: tuple(defines.items())),
    names,
)
launches = st.builds(Launch, sources, extents, extents, st.lists(arguments, max_size=6).map(tuple), values, values)
scratches = st.dictionaries(names, values, max_size=3).map(
    lambda sizes: tuple(Scratch(name, nbytes) for name, nbytes in sizes.items())
)


@given(st.lists(launches, max_size=3).map(tuple), scratches, st.builds(Choice, values | names, names))
def test_what_no_shipped_kernel_needs_yet_survives_json_too(
    launches: tuple[Launch, ...], scratch: tuple[Scratch, ...], choice: Choice
) -> None:
    """Several launches of different sources, with scratch memory between them."""
    made = Plan(PROBLEMS["plain"], DEVICE, "any", (("X", choice),), "an entry", launches, scratch)
    assert Plan.from_json(made.to_json()) == made
    assert made.scratch_bytes == sum(part.nbytes for part in scratch)


def test_equal_plans_have_equal_hashes() -> None:
    made = plan(PROBLEMS["plain"])
    assert hash(Plan.from_json(made.to_json())) == hash(made)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"schema": 2}',
        '{"schema": 1}',
        '{"schema": 1, "problem": []}',
        '{"schema": 1, "problem": null}',
    ],
)
def test_text_that_is_no_plan_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"schema 1|Expecting"):
        Plan.from_json(text)


@pytest.mark.parametrize("key", ["problem", "device", "variant", "parameters", "entry", "launches", "scratch"])
def test_a_plan_that_lacks_a_part_is_a_value_error(key: str) -> None:
    data = json.loads(plan(PROBLEMS["plain"]).to_json())
    del data[key]
    with pytest.raises(ValueError, match="schema 1"):
        Plan.from_json(json.dumps(data))


def test_printing_shows_every_parameter_with_its_value_and_origin() -> None:
    made = plan(PROBLEMS["plain"], "register_tiled", params={"TSK": 8}, params_origin="--set")
    text = str(made).splitlines()
    assert text[0] == f"float32 NN 100×90×80 on {DEVICE.label}"
    assert text[1] == "  kernel register_tiled, from configs/amd.yaml: CDNA 2 and 3, float32"
    assert "    TSK = 8  (--set)" in text
    for name, choice in made.parameters:
        assert f"    {name} = {choice.value}  ({choice.origin})" in text


def test_printing_shows_launches_and_scratch() -> None:
    launch = Launch(
        KernelSource("stem", "function", (("TS", 8),)),
        (5, 1, 1),
        (16, 8, 1),
        (),
        local_bytes=100,
        dynamic_local_bytes=28,
    )
    made = replace(plan(PROBLEMS["plain"]), launches=(launch, launch), scratch=(Scratch("sums", 4096),))
    text = str(made)
    assert "scratch sums: 4096 bytes" in text
    assert "launch 2: stem.function, 5 groups of 16×8, 128 bytes of local memory\n    TS=8" in text


@pytest.mark.parametrize("kernel", [variant.name for variant in kernels.variants()])
@pytest.mark.parametrize("sizes", [(0, 5, 5, 1), (5, 0, 5, 1), (5, 5, 5, 0)], ids=["m", "n", "batch"])
def test_an_empty_problem_has_no_launches(kernel: str, sizes: tuple[int, int, int, int]) -> None:
    *mnk, batch = sizes
    made = plan(GemmProblem.create(*mnk, batch=batch), kernel)
    assert (made.launches, made.scratch) == ((), ())


@pytest.mark.parametrize("kernel", [variant.name for variant in kernels.variants()])
def test_without_terms_d_is_still_written(kernel: str) -> None:
    """With k = 0, D = beta · C."""
    (launch,) = plan(GemmProblem.create(5, 5, 0), kernel).launches
    assert launch.groups[0] >= 1


def test_values_are_parameters_by_name() -> None:
    made = plan(PROBLEMS["plain"], "tiled", params={"TS": 4, "PAD": 0})
    assert made.values == {"TS": 4, "PAD": 0}


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_a_device_survives_json(device: DeviceInfo) -> None:
    assert DeviceInfo.from_dict(json.loads(json.dumps(device.to_dict()))) == device


def test_the_peak_of_a_gpu_is_units_times_clock_times_lanes_times_two() -> None:
    v100 = DEVICES["NVIDIA sm_70"]
    assert v100.peak_gflops("float32") == pytest.approx(15_667, rel=1e-3)  # NVIDIA states 15.7 TFLOPS
    assert v100.peak_gflops("float64") == pytest.approx(7_834, rel=1e-3)  # and 7.8


def test_the_peak_of_a_cpu_is_two_vector_pipes_per_core() -> None:
    cpu = DEVICES["CPU under PoCL"]
    assert cpu.peak_gflops("float32") == pytest.approx(16 * 3.7 * 32 * 2)
    assert cpu.peak_gflops("float64") == pytest.approx(16 * 3.7 * 16 * 2)


@pytest.mark.parametrize(
    ("device", "dtype"),
    [(DEVICES["NVIDIA sm_70"], "int8"), (DEVICES["Arm Mali"], "float64"), (DEVICES["Arm Mali"], "float32")],
    ids=["no such dtype", "dtype it lacks", "no clock"],
)
def test_where_a_runtime_tells_too_little_there_is_no_peak(device: DeviceInfo, dtype: str) -> None:
    assert device.peak_gflops(dtype) is None


def test_an_architecture_is_known_by_the_start_of_its_name() -> None:
    """sm_90a is sm_90, and sm_10 is not sm_100."""
    device = replace(DEVICES["NVIDIA sm_70"], compute_units=1, clock_mhz=1000)
    assert replace(device, architecture="sm_90a").peak_gflops("float64") == 128.0
    assert replace(device, architecture="sm_103").peak_gflops("float64") == 4.0
    assert replace(device, architecture="sm_10").peak_gflops("float64") is None
