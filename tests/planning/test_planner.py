"""The planner, over devices that nobody here owns: every launch fits its device, and what does not fit is said."""

from __future__ import annotations

import itertools
import logging
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from gemmport import kernels
from gemmport.contracts.kernel import Parameters, Steps, ceil_div
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES
from gemmport.core.errors import DtypeError, ParameterError, UnknownNameError, UnsupportedError
from gemmport.core.plan import Buffer, KernelSource, Plan
from gemmport.core.problem import MAX_EXTENT, GemmProblem
from gemmport.kernels.register_tiled import RegisterTiled
from gemmport.planning import parser
from gemmport.planning.lookup import Configuration, load_configuration, load_file
from gemmport.planning.planner import _told, candidates, make_plan
from gemmport.planning.schema import LoadedEntry
from made_up_devices import DEVICES
from models import model_of

SHIPPED = load_configuration()
NOTHING = Configuration(())
NAMES = [variant.name for variant in kernels.variants()]

SHAPES = {
    "empty": (0, 5, 5, 1),
    "no terms": (5, 5, 0, 1),
    "one element": (1, 1, 1, 1),
    "row": (1, 4096, 4096, 1),
    "column": (4096, 1, 4096, 1),
    "odd": (67, 129, 33, 3),
    "skinny": (16, 100_000, 64, 1),
    "deep": (64, 64, 1_000_000, 1),
    "square": (4096, 4096, 4096, 1),
    "tall": (MAX_EXTENT, 1, 1, 1),
    "wide": (1, MAX_EXTENT, 1, 1),
    "many": (8, 8, 8, 1_000_000),
}

each_device = pytest.mark.every_pair("device", list(DEVICES.values()))
each_kernel = pytest.mark.every_pair("kernel", NAMES)


def problem(shape: str, dtype: str = "float32") -> GemmProblem:
    m, n, k, batch = SHAPES[shape]
    return GemmProblem.create(m, n, k, batch=batch, dtype=dtype)


def assert_fits(plan: Plan) -> None:
    """Every launch of the plan respects every limit of its device."""
    device = plan.device
    for launch in plan.launches:
        assert 1 <= math.prod(launch.work_group) <= device.max_work_group
        assert all(1 <= x <= most for x, most in zip(launch.work_group, device.max_work_item_sizes, strict=True))
        assert launch.local_bytes <= device.local_memory
        assert 1 <= launch.groups[0] <= device.max_groups
        assert launch.groups[1:] == (1, 1)
    assert all(part.nbytes <= device.max_allocation for part in plan.scratch)


def write(path: Path, kernel: str, params: dict[str, object]) -> Configuration:
    """A configuration of the user that asks for a kernel with parameters on every device."""
    entry = {"name": "mine", "kernels": {kernel: params}, "provenance": {"tuned": False}}
    path.write_text(yaml.safe_dump({"schema": 1, "description": "of a test", "entries": [entry]}), encoding="utf-8")
    return Configuration((*load_file(path).entries, *SHIPPED.entries), models=SHIPPED.models)


def shipped(kernel: str, params: dict[str, object], tmp_path: Path) -> Configuration:
    """The same entry, as if gemmport shipped it."""
    (mine, *rest) = write(tmp_path / "mine.yaml", kernel, params).entries
    return Configuration((LoadedEntry(mine.entry, "configs/shipped.yaml", "shipped"), *rest), models=SHIPPED.models)


# Limits


def grid_is_impossible(problem: GemmProblem, device: DeviceInfo) -> bool:
    """Whether even the largest tile that is tried, 64 × 64, makes more work-groups than the device takes, and so do groups of
    several products, where these are small.
    """
    batched = kernels.variant("batched")
    small = batched.declined(problem, device, model_of(device)) is None
    products = int(batched.complete(batched.suggested(problem, device, model_of(device)))["PRODUCTS"]) if small else 1
    return ceil_div(problem.m, 64) * ceil_div(problem.n, 64) * ceil_div(problem.batch, products) > device.max_groups


@each_device
@pytest.mark.every_pair("shape", SHAPES)
@pytest.mark.every_pair("dtype", DTYPES)
def test_every_launch_respects_every_limit(device: DeviceInfo, shape: str, dtype: str) -> None:
    wanted = problem(shape, dtype)
    arithmetic = wanted.accumulator.arithmetic
    if arithmetic and arithmetic not in device.computes:
        with pytest.raises(DtypeError, match=f"does not compute in {arithmetic}, which {dtype} needs"):
            make_plan(wanted, device, SHIPPED)
    elif grid_is_impossible(wanted, device):
        with pytest.raises(UnsupportedError, match="work-groups"):
            make_plan(wanted, device, SHIPPED)
    else:
        plan = make_plan(wanted, device, SHIPPED)
        assert_fits(plan)
        assert bool(plan.launches) == (shape != "empty")


@each_device
@each_kernel
def test_a_kernel_by_name_respects_every_limit_too(device: DeviceInfo, kernel: str) -> None:
    if reason := kernels.variant(kernel).unsupported(problem("odd"), device):
        with pytest.raises(UnsupportedError, match=re.escape(f"{kernel} on {device.label}: {reason}")):
            make_plan(problem("odd"), device, SHIPPED, kernel=kernel)
        return
    plan = make_plan(problem("odd"), device, SHIPPED, kernel=kernel)
    assert_fits(plan)
    assert plan.variant == kernel


@each_device
@each_kernel
def test_without_any_configuration_defaults_serve_where_they_fit(device: DeviceInfo, kernel: str) -> None:
    try:
        plan = make_plan(problem("odd"), device, NOTHING, kernel=kernel)
    except UnsupportedError:
        launch = kernels.variant(kernel).product(problem("odd"), kernels.variant(kernel).complete({}))
        too_large = any(x > most for x, most in zip(launch.work_group, device.max_work_item_sizes, strict=True))
        assert too_large or kernels.variant(kernel).unsupported(problem("odd"), device)
    else:
        assert_fits(plan)
        assert {choice.origin for _, choice in plan.parameters} <= {
            f"the defaults of {kernel}",
            f"the model of {kernel} (what the device tells)",
        }


# Each row asks for a little more than the device allows, and no more than is allowed elsewhere.
TOO_MUCH = [
    pytest.param(
        "work-groups of 256", "register_tiled", {"TSM": 64, "TSN": 64, "WPTM": 4, "WPTN": 2, "TSK": 4},
        "512 work-items per group", "allows 256", id="work-group",
    ),
    pytest.param(
        "narrow second dimension", "register_tiled", {"TSM": 64, "TSN": 32, "WPTM": 2, "WPTN": 4, "TSK": 4},
        "32 work-items per group along y", "allows 16", id="second dimension",
    ),
    pytest.param(
        "16 KB of local memory", "register_tiled", {"TSM": 64, "TSN": 64, "TSK": 32, "PAD": 1, "WPTM": 8, "WPTN": 8},
        "16,640 bytes of local memory per group", "allows 16,384", id="local memory",
    ),
    pytest.param(
        "few work-groups", "naive", {"TS": 2}, "1,048,576 work-groups", "allows 65,535", id="work-groups",
    ),
]  # fmt: skip
beyond_a_limit = pytest.mark.parametrize(("name", "kernel", "params", "wanted", "most"), TOO_MUCH)


@beyond_a_limit
def test_a_shipped_entry_beyond_a_limit_is_passed_over_with_a_log_line(
    name: str, kernel: str, params: dict[str, object], wanted: str, most: str,
    tmp_path: Path, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    device = DEVICES[name]
    with caplog.at_level(logging.INFO, "gemmport"):
        plan = make_plan(GemmProblem.create(2048, 2048, 64), device, shipped(kernel, params, tmp_path))
    assert plan.entry == "configs/default.yaml: any device"
    assert_fits(plan)
    (line,) = [record.getMessage() for record in caplog.records if "passed over" in record.getMessage()]
    told = ", ".join(f"{key} = {value}" for key, value in kernels.variant(kernel).complete(params).items())
    assert line.startswith(f"passed over configs/shipped.yaml: mine: {kernel} with {told} needs {wanted}; ")
    assert line.endswith(f"{device.label} {most}")


@beyond_a_limit
def test_the_same_by_params_is_an_error_with_the_numbers(
    name: str, kernel: str, params: dict[str, object], wanted: str, most: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        make_plan(GemmProblem.create(2048, 2048, 64), DEVICES[name], NOTHING, kernel=kernel, params=params)
    assert f"needs {wanted}; {DEVICES[name].label} {most}" in str(caught.value)
    assert all(f"{key} = {value}" in str(caught.value) for key, value in params.items())


@beyond_a_limit
@pytest.mark.parametrize("asked", ["auto", "by name"])
def test_the_same_by_a_file_of_the_user_is_an_error_with_the_numbers(
    name: str, kernel: str, params: dict[str, object], wanted: str, most: str, asked: str, tmp_path: Path
) -> None:
    mine = write(tmp_path / "mine.yaml", kernel, params)
    with pytest.raises(ParameterError, match=f"needs {wanted}; .* {most}"):
        make_plan(
            GemmProblem.create(2048, 2048, 64), DEVICES[name], mine, kernel=kernel if asked == "by name" else "auto"
        )


@beyond_a_limit
def test_the_same_fits_a_device_that_allows_it(
    name: str, kernel: str, params: dict[str, object], wanted: str, most: str
) -> None:
    device = DEVICES["CPU under PoCL"]
    plan = make_plan(GemmProblem.create(2048, 2048, 64), device, NOTHING, kernel=kernel, params=params)
    assert_fits(plan)
    assert plan.values.items() >= params.items()


@each_device
def test_a_limit_that_is_just_met_is_no_error(device: DeviceInfo) -> None:
    values = {"TSM": 32, "TSN": 32, "TSK": 8, "WPTM": 4, "WPTN": 4, "PAD": 1}
    exact = replace(
        device, max_work_group=64, max_work_item_sizes=(8, 8, 1), local_memory=8 * 66 * 4, max_groups=64 * 64
    )
    plan = make_plan(GemmProblem.create(2048, 2048, 64), exact, NOTHING, kernel="register_tiled", params=values)
    assert_fits(plan)


# Dtypes and names


@pytest.mark.parametrize("name", [name for name, device in DEVICES.items() if "float64" not in device.computes])
def test_a_dtype_that_the_device_lacks_is_named(name: str) -> None:
    with pytest.raises(DtypeError) as caught:
        make_plan(problem("odd", "float64"), DEVICES[name], SHIPPED)
    assert str(caught.value) == (
        f"{DEVICES[name].label} does not compute in float64, which float64 needs, only in integers and float32: "
        "convert the input, or use another device"
    )


@pytest.mark.parametrize("shape", ["empty", "odd"])
def test_an_unknown_kernel_is_named(shape: str) -> None:
    with pytest.raises(UnknownNameError, match="no kernel 'fastest': there are naive, tiled"):
        make_plan(problem(shape), DEVICES["Apple"], SHIPPED, kernel="fastest")


@each_kernel
def test_an_unknown_parameter_is_named(kernel: str) -> None:
    places = {"packed": "CPU under PoCL", "sub_group_mma": "AMD gfx90a"}
    device = DEVICES[places.get(kernel, "NVIDIA sm_90 under CUDA")]
    asked = problem("odd", "float16" if kernel in ("mma", "wgmma", "sub_group_mma") else "float32")
    with pytest.raises(UnknownNameError, match=f"{kernel} has no parameter SPEED"):
        make_plan(asked, device, SHIPPED, kernel=kernel, params={"SPEED": 11})


@pytest.mark.parametrize(("origin", "option"), [("params=", "kernel='tiled', "), ("--set", "--kernel tiled, ")])
def test_a_parameter_that_the_chosen_kernel_lacks_is_told_with_the_kernels_that_have_it(
    origin: str, option: str
) -> None:
    asked, device = problem("odd"), DEVICES["Apple"]
    chosen = make_plan(asked, device, SHIPPED).variant
    with pytest.raises(UnknownNameError) as caught:
        make_plan(asked, device, SHIPPED, params={"TS": 8}, params_origin=origin)
    told = str(caught.value)
    assert told.startswith(
        f"{origin} must name parameters of the kernel that computes; got TS, and {chosen}, which was chosen automatically, "
        "has none of that name; name one that has it: "
    )
    assert option in told
    having = {variant.name for variant in kernels.variants() if "TS" in {each.name for each in variant.parameters}}
    assert set(re.findall(r"(?:kernel='|--kernel )(\w+)", told)) == having
    assert chosen not in having


def test_a_parameter_that_is_wrong_is_told_behind_one_that_is_right() -> None:
    asked, device = problem("odd"), DEVICES["Apple"]
    name, value = next(iter(make_plan(asked, device, SHIPPED).values.items()))
    with pytest.raises(UnknownNameError, match="got SPEED, and"):
        make_plan(asked, device, SHIPPED, params={name: value, "SPEED": 11})


def test_a_parameter_that_no_kernel_has_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"got TSS, .*; no kernel has it; did you mean TS[A-Z]*\?$"):
        make_plan(problem("odd"), DEVICES["Apple"], SHIPPED, params={"TSS": 8})


def test_a_broken_rule_names_the_numbers_though_one_of_them_is_the_entrys() -> None:
    with pytest.raises(ParameterError, match=r"register_tiled: TSM = 32, WPTM = 3: the rule is TSM % WPTM = 0"):
        make_plan(problem("odd"), DEVICES["Apple"], SHIPPED, kernel="register_tiled", params={"WPTM": 3})


def test_where_no_kernel_fits_the_first_reason_of_each_is_told() -> None:
    device = replace(DEVICES["Apple"], max_work_group=1)
    with pytest.raises(UnsupportedError) as caught:
        make_plan(problem("odd"), device, SHIPPED)
    text = str(caught.value)
    assert text.startswith(f"no kernel fits float32 NN 67×129×33 ×3 on {device.label}: ")
    (default,) = SHIPPED.matching(device, problem("odd"))
    unsupported = {
        name: kernels.variant(name).unsupported(problem("odd"), device)
        or kernels.variant(name).declined(problem("odd"), device, model_of(device))
        for name in NAMES
    }
    for kernel in default.entry.kernels:
        if unsupported[kernel]:
            assert f"{kernel} on {device.label}: {unsupported[kernel]}" in text
            continue
        assert f"configs/default.yaml: any device: {kernel} with" in text
    for kernel in NAMES:
        is_told = f"; {kernel} on {device.label}: " in text or f"; {kernel}: " in text
        assert is_told if unsupported[kernel] else text.count(f": {kernel} with") == 1


def test_a_kernel_that_does_not_support_the_problem_is_passed_over_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    variant = kernels.variant("register_tiled")
    monkeypatch.setattr(type(variant), "unsupported", lambda self, problem, device: "it rests on Sundays")
    assert make_plan(problem("odd"), DEVICES["Apple"], SHIPPED).variant == "tiled"
    with pytest.raises(UnsupportedError, match=r"register_tiled on Apple M2 Pro .*: it rests on Sundays"):
        make_plan(problem("odd"), DEVICES["Apple"], SHIPPED, kernel="register_tiled")


# Choice and origin


def test_the_first_kernel_of_the_first_entry_is_chosen() -> None:
    plan = make_plan(problem("odd"), DEVICES["Apple"], SHIPPED)
    (default,) = SHIPPED.matching(DEVICES["Apple"], problem("odd"))[-1:]
    assert plan.variant == next(iter(default.entry.kernels))
    assert plan.values == kernels.variant(plan.variant).complete(default.tilings(plan.variant)[0])


@pytest.mark.parametrize(
    ("name", "sizes", "expected"),
    [
        ("NVIDIA sm_70", (1024, 1024, 1024), "simt"),
        ("AMD gfx90a", (1024, 1024, 1024), "simt"),
        ("Arm Mali", (1024, 1024, 1024), "simt"),
        ("Intel GPU", (1, 4096, 4096), "gemv"),
        ("AMD gfx90a", (4096, 2, 4096), "gemv"),
        ("CPU under PoCL", (1024, 1024, 1024), "packed"),
        ("CPU under PoCL", (16, 2048, 512), "packed"),
        ("CPU under PoCL", (128, 128, 128), "direct"),
        ("CPU under PoCL", (4096, 1, 4096), "gemv"),
    ],
)
def test_without_any_entry_the_model_chooses_among_all_kernels(
    name: str, sizes: tuple[int, int, int], expected: str
) -> None:
    plan = make_plan(GemmProblem.create(*sizes), DEVICES[name], NOTHING)
    assert (plan.variant, plan.entry) == (expected, "the device's model")


def test_without_any_entry_batches_of_small_products_share_groups() -> None:
    small = GemmProblem.create(8, 8, 8, batch=30_000)
    assert make_plan(small, DEVICES["AMD gfx90a"], NOTHING).variant == "batched"


def test_what_the_model_says_of_a_kernel_counts_where_no_entry_does() -> None:
    """A kernel that is stated to reach next to nothing is not chosen."""
    cpu, problem = DEVICES["CPU under PoCL"], GemmProblem.create(1024, 1024, 1024)
    entry = {"name": "mine", "kernels": {"packed": {"fitted": {"share": 0.001}}}, "provenance": {"tuned": False}}
    text = yaml.safe_dump({"schema": 1, "description": "of a test", "models": [entry]})
    mine = Configuration((), models=parser.parse(text, "mine.yaml", "call").models)
    assert make_plan(problem, cpu, NOTHING).variant == "packed"
    assert make_plan(problem, cpu, mine).variant != "packed"


def test_where_no_entry_fits_the_kernel_that_it_lists_is_tried_with_its_defaults_first(tmp_path: Path) -> None:
    alone = Configuration(shipped("tiled", {"TS": 32}, tmp_path).entries[:1])
    plan = make_plan(problem("odd"), DEVICES["work-groups of 256"], alone)
    assert (plan.variant, plan.entry) == ("tiled", "the defaults of tiled")


def test_params_go_before_an_entry_and_an_entry_before_defaults(tmp_path: Path) -> None:
    mine = write(tmp_path / "mine.yaml", "register_tiled", {"TSM": 32, "TSN": 32})
    plan = make_plan(
        problem("odd"), DEVICES["Apple"], mine, kernel="register_tiled", params={"TSN": 16}, params_origin="--set"
    )
    origins = {name: (choice.value, choice.origin) for name, choice in plan.parameters}
    assert origins["TSN"] == (16, "--set")
    assert origins["TSM"] == (32, f"{tmp_path / 'mine.yaml'}: mine")
    assert origins["TSK"] == (16, "the defaults of register_tiled")


def test_a_kernel_by_name_takes_the_parameters_of_the_first_entry_that_lists_it(tmp_path: Path) -> None:
    mine = write(tmp_path / "mine.yaml", "naive", {"TS": 4})
    plan = make_plan(problem("odd"), DEVICES["Apple"], mine, kernel="tiled")
    assert plan.entry == "configs/default.yaml: any device"


def test_what_was_chosen_and_from_where_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "gemmport"):
        plan = make_plan(problem("odd"), DEVICES["Apple"], SHIPPED, kernel="tiled", params={"PAD": 3})
    size = plan.values["TS"]
    assert caplog.messages == [
        f"{plan.problem} on {plan.device.label}: tiled from {plan.entry}: TS={size} PAD=3 (params=)"
    ]


def test_a_kernel_that_cannot_serve_is_passed_over_with_a_word(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RegisterTiled, "dtypes", frozenset({"int8"}))
    with caplog.at_level(logging.INFO, "gemmport"):
        plan = make_plan(problem("odd"), DEVICES["Apple"], SHIPPED)
    assert plan.variant == "tiled"
    assert "passed over register_tiled on Apple M2 Pro" in caplog.messages[0]
    assert "register_tiled computes int8, not float32" in caplog.messages[0]


# Coverage


def tiles_of(plan: Plan) -> Counter[tuple[int, int, int]]:
    """Which tile each work-group computes, by the arithmetic of the preludes' this_tile."""
    problem, (launch,) = plan.problem, plan.launches
    rows, columns, _ = kernels.variant(plan.variant).tile(plan.values)
    across, down = ceil_div(problem.n, columns), ceil_div(problem.m, rows)
    return Counter(
        (group // across // down, group // across % down * rows, group % across * columns)
        for group in range(launch.groups[0])
    )


@st.composite
def register_tiled_parameters(draw: st.DrawFn) -> dict[str, int | str]:
    """Any valid parameters of register_tiled."""
    wptm, wptn = draw(st.integers(1, 16)), draw(st.integers(1, 16))
    arrange = draw(st.sampled_from(["strided", "contiguous", "quads"]))
    assume(arrange != "quads" or wptm % 4 == wptn % 4 == 0)
    return {
        "TSM": wptm * draw(st.integers(1, 12)), "TSN": wptn * draw(st.integers(1, 12)), "TSK": draw(st.integers(1, 128)),
        "WPTM": wptm, "WPTN": wptn, "ARRANGE": arrange, "PAD": draw(st.integers(0, 8)),
    }  # fmt: skip


@given(register_tiled_parameters(), st.integers(1, 300), st.integers(1, 300), st.integers(0, 300), st.integers(1, 3))
def test_the_grid_covers_d_exactly(values: dict[str, int | str], m: int, n: int, k: int, batch: int) -> None:
    """Every tile once, none beyond the edge, and every matrix of the batch."""
    device = DEVICES["CPU under PoCL"]
    plan = make_plan(GemmProblem.create(m, n, k, batch=batch), device, SHIPPED, kernel="register_tiled", params=values)
    assert plan.values == values
    assert_fits(plan)
    expected = {
        (matrix, row, column)
        for matrix in range(batch)
        for row in range(0, m, int(values["TSM"]))
        for column in range(0, n, int(values["TSN"]))
    }
    assert tiles_of(plan) == Counter(expected)


@pytest.mark.parametrize(
    ("changed", "most", "told"),
    [
        ({"groups": (1, 65_535, 1)}, {"groups": (1, 65_536, 1)}, "65,536 work-groups along y"),
        ({"groups": (1, 1, 65_535)}, {"groups": (1, 1, 65_536)}, "65,536 work-groups along z"),
        ({"dynamic_local_bytes": 32_768}, {"dynamic_local_bytes": 32_769}, "32,769 bytes of local memory"),
        (
            {"local_bytes": 768, "dynamic_local_bytes": 32_000},
            {"local_bytes": 769, "dynamic_local_bytes": 32_000},
            "32,769 bytes of local memory",
        ),
    ],
)
def test_a_launch_of_any_shape_respects_every_limit(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, object], most: dict[str, object], told: str
) -> None:
    """Of variants from outside, which may use further dimensions and local memory that is given at launch."""

    class Other(type(kernels.variant("naive"))):  # type: ignore[misc]
        name = "other"
        change = changed

        def source(self, *arguments: Any, **named: Any) -> KernelSource:
            return super().source(*arguments, **{**named, "stem": "naive"})

        def steps(self, problem: GemmProblem, device: DeviceInfo, parameters: Parameters) -> Steps:
            return Steps([replace(self.product(problem, parameters), **self.change)])

    monkeypatch.setattr(kernels, "_FAMILY", {**kernels._FAMILY, "other": Other()})
    device = DEVICES["work-groups of 256"]
    assert make_plan(problem("odd"), device, NOTHING, kernel="other").launches
    Other.change = most
    with pytest.raises(UnsupportedError, match=told):
        make_plan(problem("odd"), device, NOTHING, kernel="other")
    if "local" in told:
        make_plan(problem("odd"), replace(device, dynamic_local_memory=40_000), NOTHING, kernel="other")


def test_packed_is_refused_where_loops_are_left_early() -> None:
    device = replace(DEVICES["CPU under PoCL"], platform="rusticl", name="llvmpipe", max_terms=2**15)
    with pytest.raises(UnsupportedError, match=r"one for each term of each micro-tile \(quirk rusticl-loop-rounds\)"):
        make_plan(GemmProblem.create(5, 5, 5), device, load_configuration(), kernel="packed")
    assert make_plan(GemmProblem.create(5, 5, 5), device, load_configuration()).variant != "packed"


@pytest.mark.parametrize(("m", "n"), [(1, 4096), (4096, 4), (5, 4096), (64, 64)])
def test_gemv_is_chosen_for_a_few_vectors_and_computes_anything_by_name(m: int, n: int, tmp_path: Path) -> None:
    """An entry may list it first for all products."""
    wanted, device = GemmProblem.create(m, n, 512), DEVICES["NVIDIA sm_90 under CUDA"]
    first = write(tmp_path / "mine.yaml", "gemv", {})
    assert (make_plan(wanted, device, first).variant == "gemv") == (min(m, n) <= 4)
    assert make_plan(wanted, device, first, kernel="gemv").variant == "gemv"


@pytest.mark.parametrize(
    ("m", "n", "k", "batch", "is_for_it"),
    [(4, 4, 4, 114, True), (4, 4, 4, 115, False), (16, 4, 16, 115, False), (4, 16, 17, 115, True)],
)
def test_gemv_leaves_batches_of_small_products_to_other_kernels(
    m: int, n: int, k: int, batch: int, is_for_it: bool
) -> None:
    """On GPUs, of which this has 114 compute units; a CPU has no large groups."""
    wanted, gemv = GemmProblem.create(m, n, k, batch=batch), kernels.variant("gemv")
    device = DEVICES["NVIDIA sm_90 under CUDA"]
    assert (make_plan(wanted, device, SHIPPED).variant == "gemv") == is_for_it
    assert gemv.declined(wanted, DEVICES["CPU under PoCL"], model_of(DEVICES["CPU under PoCL"])) is None


def test_batches_of_small_products_are_not_direct_on_cpus() -> None:
    """A group of `direct` computes a tile of 32 × 64 on those that nobody measured, whatever is left of it."""
    direct, cpu = kernels.variant("direct"), replace(DEVICES["CPU under PoCL"], vendor="arm", architecture="neoverse")
    many, few = (GemmProblem.create(32, 32, 32, batch=batch) for batch in (8, 7))
    larger = GemmProblem.create(32, 33, 32, batch=8)
    assert (direct.declined(many, cpu, model_of(cpu)) or "").startswith(
        "on CPUs it is for 7 products at most where D has no more than 1,024"
    )
    assert direct.declined(few, cpu, model_of(cpu)) is None
    assert direct.declined(larger, cpu, model_of(cpu)) is None
    assert (
        direct.declined(many, DEVICES["NVIDIA sm_90 under CUDA"], model_of(DEVICES["NVIDIA sm_90 under CUDA"])) is None
    )


@pytest.mark.parametrize(("platform", "version"), [("pocl", "3.1"), ("intel", "2026.22")])
def test_batches_on_amds_cpus_are_direct_where_its_small_tile_is_filled(platform: str, version: str) -> None:
    """By trials on Zen 4: `packed` took two to four times as long for 8 × 16 × 8, `direct` for 31 cubed."""
    cpu = replace(
        DEVICES["CPU under PoCL"], platform=platform, platform_version=version, compute_units=2, clock_mhz=2596,
        caches=(2**15, 2**20, 2**24),
    )  # fmt: skip

    def choice(m: int, n: int, k: int, batch: int) -> tuple[str, object]:
        plan = make_plan(GemmProblem.create(m, n, k, batch=batch), cpu, SHIPPED)
        return plan.variant, plan.values.get("THREADSX")

    for sizes in ((8, 8, 8, 30_000), (16, 16, 16, 8_000), (32, 32, 32, 2_000), (8, 16, 8, 10_000), (32, 16, 24, 100)):
        assert choice(*sizes) == ("direct", 1), sizes
    for sizes in ((23, 23, 23, 5_000), (31, 31, 31, 300)):
        assert choice(*sizes) == ("packed", None), sizes


@pytest.mark.parametrize("platform", ["pocl", "intel"])
def test_small_products_on_cpus_are_direct_where_its_vectors_fit(platform: str) -> None:
    """Edges cost it: 250 × 250 × 250 took three to five times as long by `direct` as by `packed`."""
    version = "3.1" if platform == "pocl" else "2026.22"
    cpu = replace(
        DEVICES["CPU under PoCL"], platform=platform, platform_version=version, compute_units=2, clock_mhz=2596,
        caches=(2**15, 2**20, 2**24),
    )  # fmt: skip
    for dtype in ("float32", "float64"):
        chosen = {
            size: make_plan(GemmProblem.create(size, size, size, dtype=dtype), cpu, SHIPPED).variant
            for size in (64, 100, 128, 250, 255, 256)
        }
        assert chosen == {64: "direct", 100: "packed", 128: "direct", 250: "packed", 255: "packed", 256: "direct"}


def test_gemv_shares_sums_where_rows_are_too_few_for_the_device() -> None:
    device = DEVICES["NVIDIA sm_90 under CUDA"]
    few, many = (make_plan(GemmProblem.create(m, 1, 1_000_000), device, NOTHING, kernel="gemv") for m in (3, 100_000))
    assert [launch.kernel.function for launch in few.launches] == ["gemv", "add_parts"]
    assert [launch.kernel.function for launch in many.launches] == ["gemv"]


@each_kernel
@pytest.mark.parametrize(
    "sizes", [(0, 1024, 1024), (1024, 0, 1024), (1024, 1024, 0), (0, 1, 4096), (1, 0, 4096), (0, 0, 0)], ids=str
)
def test_a_product_of_nothing_is_planned_on_every_device(kernel: str, sizes: tuple[int, int, int]) -> None:
    for device in DEVICES.values():
        for batch in (0, 1):
            product = GemmProblem.create(*sizes, batch=batch)
            try:
                plan = make_plan(product, device, NOTHING, kernel=kernel)
            except (UnsupportedError, ParameterError):
                continue
            assert not (plan.launches and product.empty)


# Limits that are just met, and what is left out

CPU = DEVICES["CPU under PoCL"]


def test_as_many_terms_as_a_device_adds_up_are_planned_and_one_more_is_refused() -> None:
    device = replace(CPU, platform="rusticl", name="llvmpipe", max_terms=2**15)
    make_plan(GemmProblem.create(3, 3, 2**15), device, NOTHING, kernel="naive")
    with pytest.raises(UnsupportedError, match=r"beyond 32,768 terms \(quirk rusticl-loop-rounds\): split the sum"):
        make_plan(GemmProblem.create(3, 3, 2**15 + 1), device, NOTHING, kernel="naive")


def test_an_entry_serves_the_problems_that_it_is_for(tmp_path: Path) -> None:
    entry = {"name": "mine", "match": {"dtype": "float64"}, "kernels": {"tiled": {}}, "provenance": {"tuned": False}}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"schema": 1, "description": "of a test", "entries": [entry]}), encoding="utf-8")
    mine = Configuration(load_file(path).entries)
    device = DEVICES["NVIDIA sm_70"]
    assert make_plan(problem("odd", "float64"), device, mine).variant == "tiled"
    assert (
        make_plan(problem("odd"), device, mine).variant == make_plan(problem("odd"), device, NOTHING).variant != "tiled"
    )


def test_kernels_that_are_left_out_are_passed_over_or_refused_where_they_were_asked_for(tmp_path: Path) -> None:
    device = DEVICES["NVIDIA sm_70"]
    first = make_plan(problem("odd"), device, NOTHING).variant
    assert make_plan(problem("odd"), device, NOTHING, without={first}).variant != first
    listed = Configuration(shipped("tiled", {"TS": 16}, tmp_path).entries[:1])
    assert make_plan(problem("odd"), device, listed).variant == "tiled"
    assert make_plan(problem("odd"), device, listed, without={"tiled"}).variant == first
    with pytest.raises(UnsupportedError, match=r"mine\.yaml: mine asks for tiled, which does not run here"):
        make_plan(
            problem("odd"), device, write(tmp_path / "mine.yaml", "tiled", {"TS": 16}), without={"tiled"}
        )  # fmt: skip
    with pytest.raises(UnsupportedError, match="naive: left out"):
        make_plan(problem("odd"), device, NOTHING, without=NAMES)


def test_the_model_of_a_kernel_is_asked_only_where_nothing_is_stated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(RegisterTiled, "considered", lambda self, problem, device, model: [{"PAD": 3}])
    device = DEVICES["NVIDIA sm_70"]

    def pad(configuration: Configuration, params: dict[str, int | str] | None = None) -> object:
        return make_plan(problem("odd"), device, configuration, kernel="register_tiled", params=params).values["PAD"]

    own = kernels.variant("register_tiled").complete({})["PAD"]
    assert own != 3
    assert pad(NOTHING) == 3
    assert pad(NOTHING, {"TSK": 8}) == own
    assert pad(write(tmp_path / "mine.yaml", "register_tiled", {"TSK": 8})) == own


def test_whether_parameters_are_fit_is_asked_of_problem_and_device(monkeypatch: pytest.MonkeyPatch) -> None:
    naive, asked = kernels.variant("naive"), []

    def unfit(self: object, *about: object) -> str:
        asked.append(about)
        return "not today"

    monkeypatch.setattr(type(naive), "unfit", unfit)
    with pytest.raises(ParameterError, match=f"^naive on {re.escape(CPU.label)}: not today$"):
        make_plan(problem("odd"), CPU, NOTHING, kernel="naive", params={"TS": 4})
    assert asked == [(naive.complete({"TS": 4}), problem("odd"), CPU)]


def test_registers_that_just_suffice_do() -> None:
    variant = kernels.variant("register_tiled")
    values = variant.complete({})
    needed = variant.registers(values, problem("odd")) * math.prod(variant.work_group(values))
    exact = replace(DEVICES["NVIDIA sm_70"], registers=needed)
    make_plan(problem("odd"), exact, NOTHING, kernel="register_tiled", params=values)
    less = replace(exact, registers=needed - 1)
    with pytest.raises(ParameterError, match=f"keeps {needed:,} registers .* has {needed - 1:,}$"):
        make_plan(problem("odd"), less, NOTHING, kernel="register_tiled", params=values)
    make_plan(problem("empty"), less, NOTHING, kernel="register_tiled", params=values)


def test_scratch_memory_that_just_fits_is_planned() -> None:
    plan = make_plan(problem("odd"), CPU, NOTHING, kernel="packed")
    most = max(part.nbytes for part in plan.scratch)
    assert (
        make_plan(problem("odd"), replace(CPU, max_allocation=most), NOTHING, kernel="packed").scratch == plan.scratch
    )
    with pytest.raises(UnsupportedError, match=f"takes {most:,} bytes; the device allows {most - 1:,} in one"):
        make_plan(problem("odd"), replace(CPU, max_allocation=most - 1), NOTHING, kernel="packed")


def test_of_a_plan_without_parameters_none_are_told() -> None:
    plan = make_plan(problem("odd"), CPU, NOTHING, kernel="naive")
    assert _told(plan).startswith(": TS=")
    assert _told(replace(plan, parameters=())) == ""


# Candidates


@pytest.mark.parametrize("name", ["NVIDIA sm_90 under CUDA", "CPU under PoCL", "AMD gfx90a"])
@pytest.mark.parametrize("shape", ["odd", "column", "square", "empty"])
def test_the_first_candidate_without_a_reason_is_what_is_chosen(name: str, shape: str) -> None:
    device = DEVICES[name]
    found = candidates(problem(shape), device, SHIPPED)
    plan = make_plan(problem(shape), device, SHIPPED)
    first = next(one for one in found if not one.reason)
    assert (first.kernel, first.parameters, first.origin) == (plan.variant, plan.values, plan.entry)
    assert all(one.prediction is None or one.prediction.seconds > 0 for one in found)
    if shape != "empty":
        assert first.prediction is not None
        assert {one.kernel for one in found} == set(NAMES)
        assert any("one work-item computes a whole macro-tile" in one.reason for one in found) == (device.type == "gpu")


def test_of_a_kernel_with_a_model_all_that_it_considers_are_candidates() -> None:
    device = DEVICES["NVIDIA sm_90 under CUDA"]
    found = [one for one in candidates(problem("square"), device, SHIPPED) if one.kernel == "simt" and not one.reason]
    simt = kernels.variant("simt")
    considered = [simt.complete(each) for each in simt.considered(problem("square"), device, model_of(device))]
    assert [one.parameters for one in found][: len(considered)] == considered


def test_what_no_entry_lists_is_tried_in_the_order_of_the_model_whatever_its_kernel() -> None:
    found = candidates(problem("square"), DEVICES["NVIDIA sm_90 under CUDA"], NOTHING)
    expected = [(one.prediction.seconds, one.kernel) for one in found if one.prediction]
    seconds, names = zip(*expected, strict=True)
    assert list(seconds) == sorted(seconds)
    assert len([*itertools.groupby(names)]) > len({*names}), "each kernel has its tilings side by side"


def test_what_compiles_sooner_leaves_c_out_where_it_is_not_read() -> None:
    """Of `simt`, whose tiles have 128 sums for each work-item: the launches of the plan with fewer, in the same order."""
    device, params = (
        DEVICES["NVIDIA sm_90 under CUDA"],
        {"TSM": 128, "TSN": 256, "WM": 32, "WN": 128, "WPTM": 8, "WPTN": 16},
    )
    for beta, left_out in ((0.0, 0), (0.5, None)):
        plan = make_plan(
            GemmProblem.create(1000, 4000, 500, beta=beta),
            device,
            SHIPPED,
            kernel="simt",
            params={**params, "SHARE": 1},
        )
        assert [launch.kernel.function for launch in plan.meanwhile] == [
            launch.kernel.function for launch in plan.launches
        ]
        for launch in plan.meanwhile:
            takes_c = Buffer("c") in launch.arguments
            assert dict(launch.kernel.defines).get("READS_C") == (left_out if takes_c else None)
            assert launch.kernel.stem == "simt"
        assert any(Buffer("c") in launch.arguments for launch in plan.meanwhile)
    across = make_plan(
        GemmProblem.create(1000, 4000, 500, trans_a="T"), device, SHIPPED, kernel="simt", params={**params, "ACROSS": 0}
    )
    assert {launch.kernel.stem for launch in across.meanwhile} == {launch.kernel.stem for launch in across.launches}
    assert not make_plan(GemmProblem.create(0, 4000, 500), device, SHIPPED, kernel="simt", params=params).meanwhile
    assert not make_plan(GemmProblem.create(8, 8, 8), device, SHIPPED, kernel="naive").meanwhile
