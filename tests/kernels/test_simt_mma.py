"""`simt` through the matrix unit: who has it, what is compiled, and that sums are exact."""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import gemmport as gp
import opencl_for_nvidia
from absences import CUDA_COMPILER, needs
from compiled_for import FROM_SM_80, any_of
from exact import Sizes, check, problem_of
from gemmport import kernels
from gemmport.backends import _nvrtc
from gemmport.contracts.device_model import derived
from gemmport.contracts.kernel import Parameters
from gemmport.contracts.named_devices import device_of
from gemmport.contracts.nvidia import float64_matrix_rows
from gemmport.kernels._simt_tilings import generated_by_line, generated_for_matrix_unit, of_columns
from gemmport.planning import verdicts
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan
from gemmport.runtime.sources import assemble
from made_up_devices import DEVICES

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import mma as benchmark

SIMT = kernels.variant("simt")
CUDA = DEVICES["NVIDIA sm_90 under CUDA"]
NVIDIA = DEVICES["NVIDIA sm_90 under OpenCL"]

WIDE = {"TSM": 128, "TSN": 128, "WM": 64, "WN": 32, "WPTM": 8, "WPTN": 8, "STAGES": 3, "MMA": 1, "PAD": 0}
SLICED = {"TSM": 64, "TSN": 64, "TSK": 16, "WM": 32, "WN": 32, "WPTM": 4, "WPTN": 8, "SLICES": 2, "MMA": 1, "PAD": 0}
MORE_LINES_THAN_THREADS = {
    "TSM": 32,
    "TSN": 256,
    "WM": 32,
    "WN": 64,
    "WPTM": 4,
    "WPTN": 16,
    "STAGES": 2,
    "MMA": 1,
    "PAD": 0,
}
DEEP = {"TSM": 64, "TSN": 64, "TSK": 16, "WM": 32, "WN": 32, "WPTM": 4, "WPTN": 8, "MMA": 1, "PAD": 0}
TILES = {"wide": WIDE, "deep": DEEP, "sliced": SLICED, "lines": MORE_LINES_THAN_THREADS}

SQUARE = {"TSM": 64, "TSN": 64, "WM": 32, "WN": 32, "WPTM": 4, "WPTN": 8, "STAGES": 3, "GROUPS": 2, "MMA": 1, "PAD": 0}
COMPLEX_TILES: Mapping[str, Mapping[str, int]] = {
    "square": SQUARE,
    "sliced": {**SQUARE, "TSM": 32, "TSK": 16, "SLICES": 2, "STAGES": 2},
    "broad": {**SQUARE, "TSN": 128, "STAGES": 2, "GROUPS": 1},
    "tall": {**SQUARE, "WM": 64, "WN": 16, "WPTM": 8, "WPTN": 4, "GROUPS": 1},
    "small": {**SQUARE, "WN": 16, "WPTN": 4, "GROUPS": 1},
}
"""Whose numbers take 16 bytes: local memory that a kernel declares has room for so many. docs/simt.md names them as trials."""

EVERY_TILE = [*(("float64", tile) for tile in TILES), *(("complex128", tile) for tile in COMPLEX_TILES)]

UNITS = {8: "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", 16: "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64"}
"""Instructions by their rows, `float64_matrix_rows` of a device."""

OF_8_ROWS = replace(CUDA, architecture="sm_80")


@pytest.mark.parametrize(
    ("device", "dtype", "reason"),
    [
        (CUDA, "float32", "float64 and complex128, not float32"),
        (CUDA, "complex64", "float64 and complex128, not complex64"),
        (replace(CUDA, architecture="sm_75"), "float64", "from sm_80 on, this is sm_75"),
        (replace(NVIDIA, platform="pocl"), "float64", "NVIDIA's GPUs"),
        (DEVICES["Intel GPU"], "float64", "NVIDIA's GPUs"),
    ],
    ids=["float32", "complex64", "sm_75", "not-nvidia-s", "intel"],
)
def test_who_has_no_matrix_unit_says_so(device: gp.DeviceInfo, dtype: str, reason: str) -> None:
    device = replace(device, computes=device.computes | {"float64"})
    problem = gp.GemmProblem.create(128, 128, 128, dtype=dtype)
    with pytest.raises(gp.ParameterError, match=rf"simt on .*: MMA = 1: .*{reason}.*; MMA must be 0"):
        gp.plan(problem, device, kernel="simt", params=WIDE)


CORES = {"TSM": 64, "TSN": 64, "WM": 64, "WN": 64, "WPTM": 16, "WPTN": 4, "STAGES": 2, "MMA": 2}


@pytest.mark.parametrize(
    ("device", "dtype", "params", "reason"),
    [
        (device_of("gfx90a"), "complex64", {}, "float32 and float64, not complex64"),
        (device_of("gfx906"), "float32", {}, "from CDNA 2 on .gfx90a., this is gfx906"),
        (device_of("gfx1100"), "float64", {}, "this is gfx1100"),
        (CUDA, "float32", {}, "this is sm_90"),
        (device_of("gfx90a"), "float32", {"WPTM": 8, "WM": 32}, "WPTM must be a multiple of 16, .* got 8"),
    ],
    ids=["complex64", "gfx906", "gfx1100", "nvidia", "rows"],
)
def test_who_has_no_matrix_cores_says_so(
    device: gp.DeviceInfo, dtype: str, params: dict[str, int], reason: str
) -> None:
    problem = gp.GemmProblem.create(128, 128, 128, dtype=dtype)
    with pytest.raises(gp.ParameterError, match=rf"simt on .*: MMA = 2: .*{reason}"):
        gp.plan(problem, device, kernel="simt", params={**CORES, **params})


@pytest.mark.parametrize(
    ("params", "rule"),
    [
        ({"MMA": 2, "WM": 32, "WPTM": 8, "WN": 64, "WPTN": 8}, "with MMA = 2, 64 of a wave"),
        ({"MMA": 2, "WM": 64, "WPTM": 8, "WN": 32, "WPTN": 4}, "WM = 4 · WPTM and WN = 16 · WPTN"),
        ({"WM": 32, "WPTM": 8, "WN": 32, "WPTN": 4}, "WM = 8 · WPTM and WN = 4 · WPTN"),
        ({"SLICES": 2, "TSM": 64, "TSN": 64, "STAGES": 8}, "TSK / SLICES % 8 = 0"),
        ({"PAD": 4}, "PAD = 0"),
    ],
)
def test_a_rule_that_is_broken_is_told(params: dict[str, int], rule: str) -> None:
    with pytest.raises(gp.ParameterError, match=re.escape(rule)):
        kernels.variant("simt").complete({**WIDE, **params})


@needs(CUDA_COMPILER)
@pytest.mark.every_pair("ops", ["NN", "TT"])
@pytest.mark.every_pair("size", [61, 256])
@pytest.mark.every_pair(("dtype", "tile"), EVERY_TILE[:-3])
@pytest.mark.every_pair("device", [OF_8_ROWS, CUDA])
def test_products_are_the_matrix_unit_s(dtype: str, tile: str, size: int, ops: str, device: gp.DeviceInfo) -> None:
    """For a chip newer than the compiler, it leaves PTX. Groups that share tiles have a launch of their own."""
    problem = gp.GemmProblem.create(size, size, 256, dtype=dtype, trans_a=ops[0], trans_b=ops[1])
    own, rows = tiles(dtype)[tile], float64_matrix_rows(device)
    params = {**kernels.variant("simt").complete({}), **own}
    plan = gp.plan(problem, device, kernel="simt", params={**params, "SHARE": 1})
    assert [launch.kernel.function for launch in plan.launches] == ["simt", "combine"]
    for shares in (0, 1):
        product, *_ = gp.plan(problem, device, kernel="simt", params={**params, "SHARE": shares}).launches
        ptx = _nvrtc.compile_cuda(assemble(product.kernel, "cuda"), "sm_999").decode()
        products = params["TSK"] // params["SLICES"] * params["WM"] * params["WN"] // (rows * 8 * 4)
        products *= 4 if dtype == "complex128" else 1
        found = ptx.count(UNITS[rows])
        assert found in (products, 3 * products)  # the compiler may write three steps out, one for each stage
        assert found == ptx.count("mma.sync")
        assert "fma.rn.f64" not in ptx[ptx.index("mma.sync") : ptx.rindex("mma.sync")]
        assert not re.search(r"ld\.local|st\.local", ptx)


def tiles(dtype: str) -> Mapping[str, Mapping[str, int]]:
    return COMPLEX_TILES if dtype == "complex128" else TILES


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_a_benchmark_tries_what_a_declared_tile_has_room_for(architecture: str, dtype: str) -> None:
    found = tried(any_of(architecture), dtype)
    assert len(found) == {"float64": 68, "complex128": 30}[dtype]
    assert (64, 64) in {(each["TSM"], each["TSN"]) for each in found}
    assert all(each["MMA"] == 1 for each in found)


def tried(device: gp.DeviceInfo, dtype: str) -> list[Parameters]:
    """The tilings that benchmarks/mma.py verifies and times."""
    trial = benchmark.Search(SIMT, device, load_configuration(()), 0.0)
    return trial.tilings(gp.GemmProblem.create(1, 1, 1, dtype=dtype))


@needs(CUDA_COMPILER)
@pytest.mark.machine_code
@pytest.mark.every_pair("architecture", FROM_SM_80)
@pytest.mark.every_pair("number", range(15))
@pytest.mark.every_pair("share", [0, 1])
@pytest.mark.every_pair(("ops", "size"), [("NN", 1024), ("TR", 1000), ("CN", 61), ("NC", 1001)])
def test_complex_products_of_the_matrix_unit_have_room_in_registers(
    architecture: str, number: int, share: int, ops: str, size: int
) -> None:
    device = replace(any_of(architecture), compute_units=100)
    problem = problem_of(Sizes(size, size, size), ops, "complex128", beta=1.0)
    params = {**tried(any_of(architecture), "complex128")[number], "SHARE": share}
    launch, *_ = gp.plan(problem, device, kernel="simt", params=params).launches
    found = _nvrtc.disassemble(assemble(launch.kernel, "cuda"), architecture, "simt").resources
    assert found.spill_stores == found.spill_loads == 0, params


BY_LINE = [("NN", 1024), ("NN", 122), ("TT", 1000), ("NT", 1024), ("NT", 1000)]
"""Ops and sizes, of which A, B or both are held by line: whole tiles, and edges."""

MOST_BY_LINE = max(len(generated_by_line(operand)) for operand in ("a", "b"))

MOST_SPILLED = 160
"""Bytes, of what has 64 sums a work-item and LINES = 2: eight terms of both operands beside them. NVRTC 13.5 stores up to 112
and loads up to 136 at edges of shared tiles on sm_90 (docs/simt.md). All others spill nothing.
"""


@needs(CUDA_COMPILER)
@pytest.mark.every_value("architecture", FROM_SM_80)
@pytest.mark.every_value(("ops", "size"), BY_LINE)
def test_a_product_by_line_has_room_in_registers(architecture: str, ops: str, size: int) -> None:
    check_room_by_line(architecture, ops, size, 0, 0)


@needs(CUDA_COMPILER)
@pytest.mark.machine_code
@pytest.mark.every_pair("architecture", FROM_SM_80)
@pytest.mark.every_pair(("ops", "size"), BY_LINE)
@pytest.mark.every_pair("number", range(MOST_BY_LINE))
@pytest.mark.every_pair("share", [0, 1])
def test_products_by_line_have_room_in_registers(
    architecture: str, ops: str, size: int, number: int, share: int
) -> None:
    check_room_by_line(architecture, ops, size, number, share)


def check_room_by_line(architecture: str, ops: str, size: int, number: int, share: int) -> None:
    """That a tiling with LINES, by its number among those that are considered, the best first, spills no more than is known.
    Before sm_90 none is considered.
    """
    device = replace(any_of(architecture), compute_units=100)
    problem = problem_of(Sizes(size, size, size), ops, "float64", gap=0, multiple=2, beta=1.0)
    considered = SIMT.considered(problem, device, load_configuration().model(device))
    tilings = [each for each in considered if each.get("LINES") and not each["SHARE"]]
    assert bool(tilings) == (float64_matrix_rows(device) == 16)
    if tilings:
        params = {**tilings[number % len(tilings)], "SHARE": share}
        launch, *_ = gp.plan(problem, device, kernel="simt", params=params).launches
        found = _nvrtc.disassemble(assemble(launch.kernel, "cuda"), architecture, "simt").resources
        large = int(params["WPTM"]) * int(params["WPTN"]) == 64 and params["LINES"] == 2
        assert found.spill_stores is not None
        assert found.spill_loads is not None
        assert max(found.spill_stores, found.spill_loads) <= MOST_SPILLED * large, params


@pytest.mark.machine_code
@pytest.mark.every_pair("architecture", ["sm_80", "sm_90"])
@pytest.mark.every_pair("dtype", ["float64", "complex128"])
@pytest.mark.every_pair("share", [0, 1])
@pytest.mark.every_pair(("ops", "size"), [("NN", 1024), ("CR", 61)])
def test_opencl_s_source_has_the_matrix_unit_s_products(
    architecture: str, dtype: str, share: int, ops: str, size: int, tmp_path: Path
) -> None:
    device = replace(NVIDIA, architecture=architecture, computes=NVIDIA.computes | {"float64"})
    problem = problem_of(Sizes(size, size, size), ops, dtype, beta=1.0)
    launch, *_ = gp.plan(problem, device, kernel="simt", params={**SQUARE, "SHARE": share}).launches
    ptx = opencl_for_nvidia.compiled(launch, architecture, tmp_path)
    assert UNITS[float64_matrix_rows(device)] in ptx


@pytest.mark.every_pair("ops", ["NN", "NT", "TN", "TT", "CR"])
@pytest.mark.every_pair(("dtype", "tile"), EVERY_TILE)
@pytest.mark.every_pair("share", [0, 1])
def test_sums_of_the_matrix_unit_are_exact(backend: gp.Backend, dtype: str, tile: str, ops: str, share: int) -> None:
    params = {**tiles(dtype)[tile], "SHARE": share}
    for sizes in (Sizes(61, 53, 47), Sizes(256, 256, 64), Sizes(150, 270, 515)):
        problem = problem_of(sizes, ops, dtype, gap=0, multiple=2, alpha=2.0, beta=-1.0, batch=2)
        if float64_matrix_rows(backend.device):
            check(backend, problem, "simt", params)
        else:
            with pytest.raises(gp.GemmportError, match=r"MMA = 1|float64"):
                gp.plan(problem, backend.device, kernel="simt", params=params)


LISTED = [each for each in load_configuration().model(CUDA).tilings["simt.mma"] if each.get("LINES", 0)]


@pytest.mark.every_pair("ops", ["NN", "NT", "TT"])
@pytest.mark.every_pair("tiling", LISTED)
@pytest.mark.every_pair("share", [0, 1])
def test_sums_of_what_is_held_by_line_are_exact(
    backend: gp.Backend, tiling: Mapping[str, int], ops: str, share: int
) -> None:
    """Edges, first steps that are short, tiles that overlap, and whole ones."""
    own = (
        {"STAGES": 2, "SHARE": share} if tiling["TSK"] > 8 and backend.device.language == "opencl" else {"SHARE": share}
    )
    params, fits = {**tiling, **own}, (ops[1] == "T" if of_columns(tiling) == "b" else ops[0] == "N")
    for sizes in (Sizes(61, 53, 46), Sizes(256, 256, 64), Sizes(150, 270, 516)):
        problem = problem_of(sizes, ops, "float64", gap=0, multiple=2, alpha=2.0, beta=-1.0, batch=2)
        if (
            fits
            and float64_matrix_rows(backend.device)
            and SIMT.local_bytes(SIMT.complete(params), problem) <= (SIMT.most_local_bytes(backend.device))
        ):
            check(backend, problem, "simt", params)
        else:
            with pytest.raises(gp.GemmportError, match=r"LINES = .|MMA = 1|float64|local memory"):
                gp.plan(problem, backend.device, kernel="simt", params=params)


@pytest.mark.parametrize(
    ("sizes", "ops", "params"),
    [
        ((64, 64, 64), "TN", {}),
        ((64, 64, 63), "NN", {}),
        ((64, 64, 64), "NN", {"a": gp.Layout(65, 65 * 64)}),
    ],
    ids=["across", "odd", "unaligned"],
)
def test_what_cannot_be_held_by_line_is_told(
    sizes: tuple[int, int, int], ops: str, params: dict[str, gp.Layout]
) -> None:
    problem = gp.GemmProblem.create(*sizes, dtype="float64", trans_a=ops[0], trans_b=ops[1], **params)
    with pytest.raises(gp.ParameterError, match=r"LINES = 2: A must lie along k, with an even .*; LINES must be 0"):
        gp.plan(problem, CUDA, kernel="simt", params=LISTED[0])


# Where no file has tilings for it


@pytest.mark.parametrize("device", [CUDA, NVIDIA], ids=["CUDA", "OpenCL"])
@pytest.mark.parametrize("size", [256, 1024, 4096])
def test_a_derived_model_offers_tilings_of_the_matrix_unit(device: gp.DeviceInfo, size: int) -> None:
    """As of a Hopper of which a file says no more than that its matrix unit makes twice the products of the other units."""
    model = derived(device).over({"fitted": {"simt": {"matrix_rate": 2.0}}}, "")
    device = replace(device, computes=device.computes | {"float64"})
    problem = gp.GemmProblem.create(size, size, size, dtype="float64")
    best = SIMT.suggested(problem, device, model)
    assert best["MMA"] == 1
    found = SIMT.considered(problem, device, model)
    assert {each.get("MMA", 0) for each in found} == {0, 1}
    for each in found:
        assert SIMT.unfit(SIMT.complete(each), problem, device) is None
    plain = min(
        SIMT.predicted(problem, device, model, SIMT.complete(each)).seconds for each in found if not each.get("MMA", 0)
    )
    assert SIMT.predicted(problem, device, model, SIMT.complete(best)).seconds < plain


@pytest.mark.parametrize(
    ("device", "dtype"),
    [(CUDA, "float32"), (CUDA, "complex64"), (OF_8_ROWS, "float64"), (OF_8_ROWS, "complex128"),
     (replace(CUDA, architecture="sm_100"), "complex128"), (DEVICES["AMD gfx90a"], "float64")],
    ids=["float32", "complex64", "sm_80", "sm_80-complex128", "sm_100-complex128", "AMD"],
)  # fmt: skip
def test_what_has_no_verified_matrix_unit_gets_none_of_its_tilings(device: gp.DeviceInfo, dtype: str) -> None:
    problem = gp.GemmProblem.create(1024, 1024, 1024, dtype=dtype)
    for model in (derived(device), load_configuration().model(device)):
        assert all(not each.get("MMA", 0) for each in SIMT.considered(problem, device, model))


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_a_unit_of_8_rows_is_taken_where_doctor_found_it_right(
    dtype: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))
    device = replace(device_of("sm_80"), computes=OF_8_ROWS.computes | {"float64"})
    problem = gp.GemmProblem.create(1024, 1024, 1024, dtype=dtype)
    (own,) = (each for each in verdicts.forms(device) if each.kernel == "simt" and each.dtype == dtype)
    gp.plan(problem, device, kernel=own.kernel, params=own.parameters)  # it has room
    for right in (False, True):
        verdicts.note(own, device, right=right)
        plan = make_plan(problem, device, load_configuration())
        assert (plan.variant, plan.values["MMA"]) == ("simt", int(right))


@pytest.mark.parametrize(("dtype", "key"), [("float64", "simt.mma"), ("complex128", "simt.mma.complex128")])
def test_tilings_that_a_file_states_are_the_only_ones(dtype: str, key: str) -> None:
    problem, model = gp.GemmProblem.create(1024, 1024, 1024, dtype=dtype), load_configuration().model(CUDA)
    stated = {(each["TSM"], each["TSN"], each["TSK"], each["SLICES"]) for each in model.tilings[key]}
    found = [each for each in SIMT.considered(problem, CUDA, model) if each.get("MMA", 0)]
    assert found
    assert {(each["TSM"], each["TSN"], each["TSK"], each["SLICES"]) for each in found} <= stated


SXM = {"compute_units": 132, "clock_mhz": 1980, "computes": CUDA.computes | {"float64"}}
"""Of the H100 on which complex128 was timed."""


@pytest.mark.parametrize("device", [replace(CUDA, **SXM), replace(NVIDIA, **SXM)], ids=["CUDA", "OpenCL"])
@pytest.mark.parametrize("ops", ["NN", "TR", "CN"])
@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        ((1024, 1024, 1024), (64, 64, 4, 8)),  # the fastest that was timed
        ((4096, 4096, 4096), (64, 64, 4, 8)),
        ((256, 256, 256), (32, 32, 4, 4)),
        ((4096, 24, 4096), (64, 32, 4, 4)),
        ((24, 4096, 4096), (32, 64, 4, 4)),
    ],
    ids=str,
)
def test_complex128_is_the_matrix_unit_s_on_hopper(
    device: gp.DeviceInfo, ops: str, sizes: tuple[int, int, int], tile: tuple[int, ...]
) -> None:
    plan = gp.plan(gp.GemmProblem.create(*sizes, dtype="complex128", trans_a=ops[0], trans_b=ops[1]), device)
    assert (plan.variant, plan.values["MMA"], plan.values["STAGES"]) == ("simt", 1, 3)
    assert tuple(plan.values[name] for name in ("TSM", "TSN", "WPTM", "WPTN")) == tile


RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "h100" / "study" / "simt-mma.json"


def test_predictions_of_complex128_are_near_what_was_timed() -> None:
    """Of the tilings that are listed; the fastest that was timed is expected to be."""
    results = [each for each in json.loads(RECORD.read_text())["results"] if each["tiling"]["STAGES"] == 3]
    ratios: list[float] = []
    times: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for own in results:
        device = replace({"cuda": CUDA, "opencl": NVIDIA}[own["backend"]], **SXM)
        problem = gp.GemmProblem.create(
            own["m"], own["n"], own["k"], dtype=own["dtype"], trans_a=own["trans_a"], trans_b=own["trans_b"]
        )
        model = load_configuration().model(device)
        expected = SIMT.predicted(problem, device, model, SIMT.complete(own["tiling"])).seconds
        ratios.append(expected / own["seconds"]["median"])
        times.setdefault((own["backend"], own["ops"]), []).append((expected, own["seconds"]["median"]))
    assert len(ratios) == 34
    assert 0.9 < min(ratios) < max(ratios) < 1.16
    assert 0.95 < statistics.median(ratios) < 1.02
    for found in times.values():
        assert min(found)[1] == min(seconds for _, seconds in found)


def test_generated_tilings_have_a_warp_for_each_scheduler() -> None:
    found = generated_for_matrix_unit()
    assert len({tuple(sorted(each.items())) for each in found}) == len(found)
    assert all(128 <= SIMT.work_group(SIMT.complete(each))[0] <= 256 for each in found)
    assert {(each["TSM"], each["TSN"]) for each in found} >= {(128, 128), (64, 64), (32, 32), (128, 32)}


@pytest.mark.parametrize("operand", ["a", "b"])
def test_generated_tilings_by_line_are_of_either_operand(operand: str) -> None:
    found = generated_by_line(operand)
    assert len({tuple(sorted(each.items())) for each in found}) == len(found)
    assert all(128 <= SIMT.work_group(SIMT.complete(each))[0] <= 256 for each in found)
    assert {of_columns(each) for each in found} == {operand}
    assert {(each["TSM"], each["TSN"]) for each in found} >= {(128, 128), (64, 64), (32, 64), (64, 32)}


@pytest.mark.parametrize(
    ("ops", "sizes", "lines"),
    [
        ("NN", (1024, 1024, 1024), {"a"}), ("TT", (1024, 1024, 1024), {"b"}), ("NT", (1024, 1024, 1024), {"a", "b"}),
        ("TN", (1024, 1024, 1024), set()), ("NN", (1024, 1024, 1023), set()),
    ],
)  # fmt: skip
@pytest.mark.parametrize("device", [CUDA, NVIDIA], ids=["CUDA", "OpenCL"])
def test_a_derived_model_has_tilings_by_line_of_what_lies_so(
    device: gp.DeviceInfo, ops: str, sizes: tuple[int, int, int], lines: set[str]
) -> None:
    """With three stages at least, and no more groups than local memory has room for."""
    device = replace(device, computes=device.computes | {"float64"})
    problem = gp.GemmProblem.create(*sizes, dtype="float64", trans_a=ops[0], trans_b=ops[1])
    found = [each for each in SIMT.considered(problem, device, derived(device)) if each.get("LINES")]
    assert {of_columns(each) for each in found} == lines
    for each in found:
        assert each["STAGES"] >= 3
        nbytes = SIMT.local_bytes(SIMT.complete(each), problem)
        assert each["GROUPS"] * nbytes <= (232_448 if device is CUDA else 4 * 49_152)


@needs(CUDA_COMPILER)
def test_tilings_of_a_derived_model_compile_to_the_matrix_unit_s_products() -> None:
    problem = gp.GemmProblem.create(256, 256, 256, dtype="float64")
    found = [each for each in SIMT.considered(problem, CUDA, derived(CUDA)) if each.get("MMA", 0) and not each["SHARE"]]
    assert len(found) > 10
    for tiling in (found[0], found[len(found) // 2], found[-1]):
        (launch,) = gp.plan(problem, CUDA, kernel="simt", params=tiling).launches
        assert "mma.sync.aligned.m16n8k4" in _nvrtc.compile_cuda(assemble(launch.kernel, "cuda"), "sm_999").decode()
