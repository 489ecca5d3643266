"""OpenCL sources compile for GPUs that are not here: every kernel and pass, as it is planned for AMD's and Intel's."""

from __future__ import annotations

import re

import pytest

import gemmport as gp
from absences import AMD_COMPILER, INTEL_COMPILER, Thing, beyond, skip_without
from gemmport import kernels
from gemmport.backends import _amdgpu, offline
from gemmport.backends.objects import Resources
from gemmport.contracts.kernel import Steps
from gemmport.contracts.matrix_instructions import instruction_of
from gemmport.contracts.named_devices import device_of
from gemmport.contracts.scales import ScaleLayout
from gemmport.core.dtypes import DTYPES
from gemmport.core.errors import CompileError
from gemmport.core.plan import KernelSource
from gemmport.core.precision import FORMATS
from gemmport.core.problem import Layout, as_op
from gemmport.inspection import amdgcn, gen
from gemmport.inspection.instructions import Kind
from gemmport.inspection.loops import hot_loop
from gemmport.kernels import convert, copy_strided, fill_random, reduce, rescale, simt, times_vector, transpose
from gemmport.kernels.fill_random import Whole
from gemmport.kernels.times_vector import Sums
from gemmport.planning import lookup
from gemmport.planning.planner import make_plan
from gemmport.runtime.sources import assemble

COMPILERS: dict[str, Thing] = {
    **dict.fromkeys(("gfx90a", "gfx1100", "gfx1030"), AMD_COMPILER),
    **dict.fromkeys(("tgllp", "dg2", "pvc"), INTEL_COMPILER),
}
ARCHITECTURES = list(COMPILERS)

KINDS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128", "int8", "int32", "bool"]
"""Of the types: others of integers differ in their width alone, and passes compile in all."""

# Of CPUs: no configuration of a GPU plans it; and what has a test of its own.
SHIPPED = [variant.name for variant in kernels.variants() if variant.name not in ("packed", "sub_group_mma")]


def compiled(kernel: KernelSource, device: gp.DeviceInfo) -> Resources:
    """What the compiler says of a kernel, which it must take."""
    found = offline.disassemble(device, assemble(kernel, device.language), kernel.function)
    (listing,) = found.listings
    assert listing.text
    return found.resources


@pytest.mark.every_pair("architecture", ARCHITECTURES)
@pytest.mark.every_pair("kernel", SHIPPED)
@pytest.mark.every_pair("dtype", KINDS)
@pytest.mark.every_pair("ops", ["NN", "TT"])
@pytest.mark.every_pair("size", [61, 1024])
def test_kernels_compile_as_they_are_planned(architecture: str, kernel: str, dtype: str, ops: str, size: int) -> None:
    """Each with the parameters of the configuration; on AMD's GPUs no register is spilled."""
    skip_without(COMPILERS[architecture])
    device = device_of(architecture)
    columns = 1 if kernel == "gemv" else size
    problem = gp.GemmProblem.create(size, columns, size, dtype=dtype, trans_a=ops[0], trans_b=ops[1], beta=1)
    try:
        plan = make_plan(problem, device, lookup.load_configuration(), kernel=kernel)
    except (gp.UnsupportedError, gp.DtypeError) as error:
        pytest.skip(beyond(device, str(error)))
    for own in {launch.kernel: launch for launch in plan.launches}.values():
        told = compiled(own.kernel, device)
        assert told.local_bytes is not None
        assert told.local_bytes >= own.local_bytes
        assert not told.spill_stores
        assert not told.scalar_spills


@pytest.mark.sample(architecture=["gfx1100"], dtype=["complex64"])
@pytest.mark.every_value("architecture", ARCHITECTURES)
@pytest.mark.every_value("dtype", list(DTYPES))
def test_passes_compile(architecture: str, dtype: str) -> None:
    skip_without(COMPILERS[architecture])
    device, own = device_of(architecture), DTYPES[dtype]
    if dtype in ("float64", "complex128") and "float64" not in device.computes:
        pytest.skip(beyond(device, "it does not compute in float64"))
    launches = []
    for rung in transpose.LADDER:
        launches += rung.own.steps(61, 64, own, rung.parameters, device).launches
    for rung in reduce.LADDER:
        parameters = rung.own.complete(rung.parameters)
        if not reduce.PASS.unsupported(own, parameters, device):
            launches += reduce.PASS.steps(10_000, own, parameters, device).launches
    sums = Sums.on(device, own.kind)
    for op, squares in (("N", False), ("C", True)):
        launches.append(times_vector.PASS.launch(sums, own, as_op(op), 61, 64, 2, Layout(64), squares=squares))
    launches.append(fill_random.PASS.launch(own, 61, 64, 2, Layout(64), 0, Whole(-3, 7)))
    side = copy_strided.Strided((7, 1), 3)
    launches += copy_strided.PASS.launches((2, 3), side, side, own, own, 1024)
    for precision in FORMATS if dtype in ("float32", "complex64") else ():
        problem = gp.GemmProblem.create(61, 61, 61, dtype=dtype, precision=precision)
        launches += convert.PASS.before(problem, Steps([]), 1024).launches
    if dtype in ("float32", "float16", "bfloat16"):
        lying = ScaleLayout(3, 1, 61)
        launches.append(rescale.PASS.launch(gp.GemmProblem.create(61, 64, 2, dtype=dtype), (lying, lying), 256))
    for kernel in dict.fromkeys(launch.kernel for launch in launches):
        compiled(kernel, device)


# Of `simt`, by type: what one wave computes is 64 × 64 of float32, and 32 × 64 of float64.
BY_MATRIX_CORES = {
    "float32": {"TSM": 128, "TSN": 128, "TSK": 16, "WM": 64, "WN": 64, "WPTM": 16, "WPTN": 4, "STAGES": 2, "MMA": 2},
    "float64": {"TSM": 64, "TSN": 128, "TSK": 8, "WM": 32, "WN": 64, "WPTM": 8, "WPTN": 4, "STAGES": 2, "MMA": 2},
}


@pytest.mark.sample(architecture=["gfx90a"], ops=["NT"])
@pytest.mark.parametrize("architecture", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("dtype", list(BY_MATRIX_CORES))
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_products_are_the_matrix_cores_where_they_are_asked_for(architecture: str, dtype: str, ops: str) -> None:
    skip_without(AMD_COMPILER)
    device, params = device_of(architecture), BY_MATRIX_CORES[dtype]
    if not _amdgpu.knows(architecture):
        pytest.skip(beyond(device, f"{_amdgpu.compiler().name} does not compile for it"))
    problem = gp.GemmProblem.create(61, 61, 256, dtype=dtype, trans_a=ops[0], trans_b=ops[1])
    (launch,) = gp.plan(problem, device, kernel="simt", params=params).launches
    found = offline.disassemble(device, assemble(launch.kernel, "opencl"), "simt")
    loop = hot_loop(amdgcn.parse(found.listings[0].text))
    names = [instruction.text.split()[0] for instruction in loop]
    products = params["TSK"] * params["WM"] * params["WN"] // (16 * 16 * 4)
    assert sum(bool(re.match(rf"v_mfma_f{dtype[5:]}_16x16x4", name)) for name in names) == products
    assert not [name for name in names if re.match(r"v_(pk_)?(fma|mul|add)\w*_f\d\d", name)]
    assert not found.resources.spill_stores


# Of `sub_group_mma`, by GPU: tiles of a size at which it is chosen.
BY_MATRIX_INSTRUCTIONS = {
    "gfx90a": {"TSM": 128, "TSN": 128, "WM": 64, "WN": 64, "LANES": 64},
    "gfx942": {"TSM": 128, "TSN": 128, "WM": 64, "WN": 64, "LANES": 64},
    "gfx1100": {"TSM": 128, "TSN": 128, "WM": 64, "WN": 32, "LANES": 32},
    "gfx1200": {"TSM": 128, "TSN": 128, "WM": 64, "WN": 32, "LANES": 32},
    "dg2": {"TSM": 64, "TSN": 64, "WM": 16, "WN": 16, "LANES": 8},
    "pvc": {"TSM": 64, "TSN": 64, "WM": 16, "WN": 16, "LANES": 16},
}


@pytest.mark.sample(architecture=["gfx1100", "pvc"], dtype=["float16"], ops=["TN"])
@pytest.mark.every_pair("architecture", list(BY_MATRIX_INSTRUCTIONS))
@pytest.mark.every_pair("dtype", ["float16", "bfloat16", "int8", "uint8"])
@pytest.mark.every_pair("ops", ["NN", "NT", "TN", "TT"])
def test_products_of_halves_and_bytes_are_matrix_instructions(architecture: str, dtype: str, ops: str) -> None:
    device = device_of(architecture)
    skip_without(INTEL_COMPILER if device.vendor == "intel" else AMD_COMPILER)
    own = instruction_of(DTYPES[dtype], device)
    if own is None:
        pytest.skip(beyond(device, f"it has no instruction for {dtype}"))
    if device.vendor == "amd" and not _amdgpu.knows(architecture):
        pytest.skip(beyond(device, f"{_amdgpu.compiler().name} does not compile for it"))
    params = {**BY_MATRIX_INSTRUCTIONS[architecture], "TSK": 64 // DTYPES[dtype].itemsize}
    problem = gp.GemmProblem.create(61, 61, 256, dtype=dtype, trans_a=ops[0], trans_b=ops[1])
    (launch,) = gp.plan(problem, device, kernel="sub_group_mma", params=params).launches
    found = offline.disassemble(device, assemble(launch.kernel, "opencl"), "sub_group_mma")
    assert found.resources.local_bytes == launch.local_bytes
    assert not found.resources.spill_stores
    text = found.listings[0].text
    loop = hot_loop((gen if device.vendor == "intel" else amdgcn).parse(text))
    products = params["TSK"] // own.terms * (params["WM"] // own.rows) * (params["WN"] // own.columns)
    assert sum(instruction.kind is Kind.MATRIX for instruction in loop) == products


@pytest.mark.sample(size=[1024])
@pytest.mark.parametrize("size", [300, 1024])
def test_what_simt_chooses_on_xe_hpc_spills_next_to_nothing(size: int) -> None:
    """A work-item has 64 registers there, half of what most GPUs have: 8 × 8 sums spill 1 KB."""
    skip_without(INTEL_COMPILER)
    device = device_of("pvc")
    (launch,) = gp.plan(gp.GemmProblem.create(size, size, size), device, kernel="simt").launches
    found = offline.disassemble(device, assemble(launch.kernel, "opencl"), "simt")
    assert found.resources.private_bytes <= 64


def test_nothing_chooses_matrix_cores_by_itself() -> None:
    """Nobody has run them yet, and no verdict of this device is noted."""
    device = device_of("gfx90a")
    model = lookup.load_configuration().model(device)
    for dtype in BY_MATRIX_CORES:
        problem = gp.GemmProblem.create(4096, 4096, 4096, dtype=dtype)
        assert all(each.get("MMA", 0) == 0 for each in simt.VARIANT.considered(problem, device, model))
        assert gp.plan(problem, device).values.get("MMA", 0) == 0


@pytest.mark.parametrize("architecture", ["gfx90a", "dg2"])
def test_an_error_is_told_with_its_log(architecture: str) -> None:
    skip_without(COMPILERS[architecture])
    source = "__kernel void f(void)\n{\n    not_declared_anywhere += 1;\n}\n"
    with pytest.raises(CompileError) as caught:
        offline.disassemble(device_of(architecture), source, "f")
    assert "not_declared_anywhere" in caught.value.log
    assert ":3:" in caught.value.log
    assert caught.value.source == source


@pytest.mark.parametrize("architecture", ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_the_libraries_know_which_architecture_they_are_for(architecture: str) -> None:
    """Those of Debian 12 have no file for gfx942, gfx11 and gfx12."""
    skip_without(AMD_COMPILER)
    if not _amdgpu.knows(architecture):
        pytest.skip(beyond(device_of(architecture), f"{_amdgpu.compiler().name} does not compile for it"))
    source = (
        "extern const __constant int __oclc_ISA_version;\n"
        "__kernel void f(__global int *x) { *x = __oclc_ISA_version + get_local_size(0); }\n"
    )
    text = _amdgpu.assembly(architecture, source, ("-cl-std=CL1.2",), wave=device_of(architecture).sub_group)
    number = {"gfx90a": 9010, "gfx942": 9402, "gfx1030": 10300, "gfx1100": 11000, "gfx1201": 12001}[architecture]
    assert str(number) in text or hex(number) in text
