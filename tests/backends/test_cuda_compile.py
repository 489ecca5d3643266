"""CUDA sources compile without a GPU, a driver or PyCUDA: every kernel, for every architecture that the compiler knows."""

from __future__ import annotations

import importlib.resources
import itertools
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

import gemmport as gp
from absences import CUDA_COMPILER, NVCC, needs, skip_without
from extensions import EXTENSIONS
from gemmport import kernels
from gemmport.backends import _nvrtc
from gemmport.calibration.suite import ARITHMETIC
from gemmport.contracts.kernel import KernelVariant, Steps
from gemmport.core.dtypes import DTYPES, FLOAT8S, INPUTS
from gemmport.core.precision import FORMATS
from gemmport.core.problem import Layout, as_op
from gemmport.kernels import convert, copy_strided, fill_random, microbenchmarks, reduce, times_vector, transpose
from gemmport.kernels.fill_random import Whole
from gemmport.kernels.times_vector import Sums
from gemmport.planning import lookup
from gemmport.planning.planner import make_plan
from gemmport.runtime.sources import assemble, languages
from passes import LADDERS

pytestmark = needs(CUDA_COMPILER)

# A GPU that is not here: only plans are made for it.
H200 = gp.DeviceInfo(
    backend="cuda", name="NVIDIA H200", platform="nvidia", vendor="nvidia", architecture="sm_90", compute_units=132,
    max_work_group=1024, max_work_item_sizes=(1024, 1024, 64), local_memory=49152, sub_group=32,
)  # fmt: skip


def device_for(kernel: str, architecture: str = "sm_90") -> gp.DeviceInfo:
    """One that plans the kernel: the H200, or a CPU where it is for these alone."""
    device = replace(H200, architecture=architecture)
    return replace(device, type="cpu", vector_width=16) if kernel == "packed" else device


ELSEWHERE = ["mma", "wgmma", "sub_group_mma"]
"""What test_mma.py and test_wgmma.py compile: other types, for some architectures alone; and what CUDA has not."""

SHIPPED = [variant.name for variant in kernels.variants() if variant.name not in ELSEWHERE]

ADDED = [variant.name for variant in EXTENSIONS]


@pytest.fixture(autouse=True)
def _with_extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_FAMILY", dict(kernels._FAMILY))
    for variant in EXTENSIONS:
        gp.register(variant)


def sources(
    kernel: str, ops: str = "NN", dtype: str = "float32", architecture: str = "sm_90", size: int = 61
) -> list[str]:
    """The specialized sources of all launches of a kernel."""
    problem = gp.GemmProblem.create(size, size, size, dtype=dtype, trans_a=ops[0], trans_b=ops[1], alpha=2.0, beta=0.5)
    plan = make_plan(problem, device_for(kernel, architecture), lookup.load_configuration(), kernel=kernel)
    return [assemble(launch.kernel, "cuda") for launch in plan.launches]


def architectures() -> list[str]:
    return [f"sm_{number}" for number in _nvrtc.architectures()] if _nvrtc.nvrtc() or _nvrtc.nvcc() else []


# sm_70 where the compiler still knows it.
OLDEST_AND_SM_90 = [*architectures()[:1], "sm_90"]

# Asynchronous copies from sm_80 on, the matrix unit and another order of instructions from sm_90 on.
DIFFERENT = list(dict.fromkeys([*architectures()[:1], "sm_80", "sm_90", *architectures()[-1:]]))

# Passes: every type for one architecture, one of each kind for the other.
PASSES_FOR = [
    (each, name)
    for each in OLDEST_AND_SM_90
    for name in (DTYPES if each == "sm_90" else ("float16", "complex64", "int8"))
]


def is_cubin(binary: bytes) -> bool:
    return binary.startswith(b"\x7fELF")


def compiles(source: str) -> bool:
    """Whether the compiler takes a source. It makes PTX, as for a chip that it does not know, with little optimization: that
    takes a third of the time of machine code.
    """
    bindings = _nvrtc.nvrtc()
    fast = ["--Ofast-compile=max"] if bindings is not None and bindings.nvrtcVersion()[1] >= 13 else []
    with mock.patch.object(_nvrtc, "CUDA_OPTIONS", (*_nvrtc.CUDA_OPTIONS, *fast)):
        return b".entry" in _nvrtc.compile_cuda(source, "sm_999")


@pytest.mark.every_pair("architecture", DIFFERENT)
@pytest.mark.every_pair("kernel", SHIPPED)
def test_kernels_compile_where_their_code_differs(kernel: str, architecture: str) -> None:
    for source in sources(kernel, architecture=architecture):
        assert is_cubin(_nvrtc.compile_cuda(source, architecture))


@pytest.mark.machine_code
@pytest.mark.every_value("architecture", architectures())
@pytest.mark.every_value("kernel", SHIPPED)
def test_kernels_compile_for_every_architecture(kernel: str, architecture: str) -> None:
    for source in sources(kernel, architecture=architecture):
        assert is_cubin(_nvrtc.compile_cuda(source, architecture))


@pytest.mark.machine_code
@pytest.mark.every_pair("dtype", ["float32", "float64"])
@pytest.mark.every_pair("ops", ["NN", "TT"])
@pytest.mark.every_pair("kernel", SHIPPED)
@pytest.mark.every_pair("size", [61, 64])
def test_kernels_compile_for_all_ops_and_types(kernel: str, ops: str, dtype: str, size: int) -> None:
    for source in sources(kernel, ops, dtype, size=size):
        assert is_cubin(_nvrtc.compile_cuda(source, "sm_90"))


@pytest.mark.every_pair("dtype", ["float32", "float64"])
@pytest.mark.every_pair("kernel", ADDED)
@pytest.mark.every_pair("size", [61, 64])
@pytest.mark.every_pair("architecture", OLDEST_AND_SM_90)
def test_kernels_of_extensions_compile(kernel: str, dtype: str, size: int, architecture: str) -> None:
    for source in sources(kernel, "NT", dtype, size=size, architecture=architecture):
        assert is_cubin(_nvrtc.compile_cuda(source, architecture))


@pytest.mark.parametrize("name", ["float16", "complex128", "int8", "bool"])
def test_the_passes_of_the_tests_of_ladders_compile(name: str) -> None:
    for sizes, ladder in (((61, 64), "transpose"), ((4096,), "reduce")):
        for rung in LADDERS[ladder][:1]:
            parameters = rung.own.complete(rung.parameters)
            for launch in rung.own.steps(*sizes, DTYPES[name], parameters, H200).launches:
                assert is_cubin(_nvrtc.compile_cuda(assemble(launch.kernel, "cuda"), "sm_90"))


@pytest.mark.sample(name=["complex64"])
@pytest.mark.every_pair("pairs", [False, True])
@pytest.mark.every_pair(("architecture", "name"), PASSES_FOR)
def test_times_vector_compiles(architecture: str, name: str, pairs: bool) -> None:
    dtype = DTYPES[name]
    sums = Sums.on(replace(H200, computes=frozenset({"float32"}) if pairs else H200.computes), dtype.kind)
    for op, squares in (("N", False), ("C", True)):
        launch = times_vector.PASS.launch(sums, dtype, as_op(op), 61, 64, 2, Layout(64), squares=squares)
        assert is_cubin(_nvrtc.compile_cuda(assemble(launch.kernel, "cuda"), architecture))


@pytest.mark.sample(name=["complex64", "float8_e4m3fn"])
@pytest.mark.parametrize(
    ("architecture", "name"), [*PASSES_FOR, *((each, own.name) for each in OLDEST_AND_SM_90 for own in FLOAT8S)]
)
def test_fill_random_compiles(architecture: str, name: str) -> None:
    dtype = INPUTS[name]
    for whole in (Whole(-3, 7), *([None] if dtype.precision else [])):
        launch = fill_random.PASS.launch(dtype, 61, 64, 2, Layout(64), 0, whole)
        assert is_cubin(_nvrtc.compile_cuda(assemble(launch.kernel, "cuda"), architecture))


@pytest.mark.sample(name=["bool"])
@pytest.mark.parametrize(
    ("architecture", "name", "tree"),
    [
        *((architecture, name, "shuffle") for architecture, name in PASSES_FOR),
        *(
            (each, name, tree)
            for each in OLDEST_AND_SM_90
            for name in ("float32", "bool")
            for tree in reduce.TREES[:-1]
        ),
    ],
)
def test_reduce_compiles(architecture: str, name: str, tree: str) -> None:
    steps = reduce.PASS.steps(10_000, DTYPES[name], reduce.PASS.complete({"TREE": tree}), H200)
    for kernel in {launch.kernel for launch in steps.launches}:
        assert is_cubin(_nvrtc.compile_cuda(assemble(kernel, "cuda"), architecture))


@pytest.mark.sample(name=["complex64"])
@pytest.mark.parametrize(("architecture", "name"), PASSES_FOR)
def test_every_step_of_the_transpose_compiles(architecture: str, name: str) -> None:
    for rung in transpose.LADDER:
        (launch,) = rung.own.steps(61, 64, DTYPES[name], rung.parameters, H200).launches
        assert is_cubin(_nvrtc.compile_cuda(assemble(launch.kernel, "cuda"), architecture))


@pytest.mark.parametrize(("architecture", "name"), [each for each in PASSES_FOR if each[1] in ARITHMETIC])
def test_microbenchmarks_compile(architecture: str, name: str) -> None:
    for form in ({"WIDTH": 1, "CHAINS": 8}, {"WIDTH": 4, "CHAINS": 4}):
        launch = microbenchmarks.PASS.launch("multiply_adds", DTYPES[name], form, 1, 8)
        assert is_cubin(_nvrtc.compile_cuda(assemble(launch.kernel, "cuda"), architecture))


@pytest.mark.parametrize(
    ("architecture", "unit", "told"),
    [("sm_80", microbenchmarks.F64_8, "DMMA.884"), ("sm_80", microbenchmarks.F16, "HMMA.16816"),
     ("sm_90", microbenchmarks.F64_16, "DMMA.16x8x4"), ("sm_90", microbenchmarks.F16, "HMMA.16816")],
)  # fmt: skip
def test_microbenchmarks_of_matrix_units_are_its_instructions(
    architecture: str, unit: microbenchmarks.MatrixUnit, told: str
) -> None:
    """In the loop, nothing else but the counter; and nothing is spilled."""
    if architecture not in architectures():
        pytest.skip(f"{_nvrtc.compiler()} does not compile for {architecture}")
    form = {"ITEMS": 256, "WIDTH": 1, "CHAINS": 4}
    launch = microbenchmarks.PASS.launch("multiply_matrices", unit.sums, form, 1, 8, unit)
    found = _nvrtc.disassemble(assemble(launch.kernel, "cuda"), architecture, "multiply_matrices")
    assert found.resources.spill_stores == found.resources.spill_loads == 0
    assert found.listings[-1].text.count(told) == 4 * microbenchmarks.UNROLL


def test_every_source_of_the_family_is_compiled_here() -> None:
    folder = importlib.resources.files("gemmport.kernels") / "cuda"
    files = {file.name for file in folder.iterdir() if file.name.endswith(".cu")}
    assert files == {f"{name}.cu" for name in (*SHIPPED, *ELSEWHERE[:2], *(own.name for own in kernels.passes()))}


COPIES = [("float32", "float32"), ("complex128", "complex128"), ("int8", "float16"), ("bool", "int16"), ("bfloat16", "float32"),
          ("float64", "bfloat16"), ("float32", "complex64"), ("uint64", "float64")]  # fmt: skip


@pytest.mark.parametrize("architecture", ["sm_90", architectures()[0]] if architectures() else [])
@pytest.mark.parametrize(("source", "target"), COPIES)
def test_strided_copies_compile(source: str, target: str, architecture: str) -> None:
    side = copy_strided.Strided((7, 1), 3)
    (launch,) = copy_strided.PASS.launches((2, 3), side, side, DTYPES[source], DTYPES[target], 1024)
    assert is_cubin(_nvrtc.compile_cuda(assemble(launch.kernel, "cuda"), architecture))


@pytest.mark.parametrize("arrange", ["strided", "contiguous", "quads"])
def test_register_tiled_compiles_in_every_arrangement(arrange: str) -> None:
    problem = gp.GemmProblem.create(61, 61, 61)
    plan = gp.plan(problem, H200, kernel="register_tiled", params={"ARRANGE": arrange, "WPTM": 8, "PAD": 1})
    assert is_cubin(_nvrtc.compile_cuda(assemble(plan.launches[0].kernel, "cuda"), "sm_90"))


@pytest.mark.every_pair("dtype", ["float16", "bfloat16", "float64", "complex64", "complex128", "int8", "bool"])
@pytest.mark.every_pair(
    ("kernel", "params"),
    [
        ("prefetch", {"WPTN": 8, "WIDTH": 8, "STAGES": 1, "REG_PREFETCH": 0, "PAD": 0}),
        ("prefetch", {"WIDTH": 1, "PAD": 1}),
        ("direct", {"RX": 8, "RY": 8, "RK": 8, "WIDTH": 8}),
        ("direct", {"RX": 3, "RY": 5, "RK": 1, "WIDTH": 1}),
        ("packed", {"MR": 4, "NR": 2, "VECTOR": 64, "MC": 224}),
        ("packed", {"MR": 2, "NR": 1, "VECTOR": 16, "MC": 224}),
    ],
)
def test_runs_of_every_type_compile(kernel: str, params: dict[str, int], dtype: str) -> None:
    problem = gp.GemmProblem.create(61, 61, 61, dtype=dtype, trans_b="C")
    for launch in gp.plan(
        problem, device_for(kernel), kernel=kernel, params={**kernels.variant(kernel).complete({}), **params}
    ).launches:
        assert compiles(assemble(launch.kernel, "cuda"))


def ptx(kernel: str, params: dict[str, int], gap: int = 0) -> str:
    """PTX of a product of whole tiles, whose rows are so many elements apart."""
    problem = gp.GemmProblem.create(64, 64, 64, **dict.fromkeys("abcd", Layout(64 + gap)))
    (launch,) = gp.plan(
        problem, H200, kernel=kernel, params={**kernels.variant(kernel).complete({}), **params}
    ).launches
    return _nvrtc.compile_cuda(assemble(launch.kernel, "cuda"), "sm_999").decode()


def widths(text: str, access: str) -> set[str]:
    """How wide the accesses of a kind are: "" for one element, ".v4" for four."""
    return set(re.findall(rf"\b{re.escape(access)}(?:\.nc)?((?:\.v\d)?)\.\w+", text))


@pytest.mark.parametrize(("width", "vector"), [(1, ""), (2, ".v2"), (4, ".v4")])
def test_runs_are_moved_in_one_access_where_they_are_aligned(width: int, vector: str) -> None:
    aligned, odd = (ptx("direct", {"WIDTH": width}, gap) for gap in (0, 1))
    assert widths(aligned, "ld.global") == widths(aligned, "st.global") == {vector}
    assert widths(odd, "ld.global") == widths(odd, "st.global") == {""}
    aligned = ptx("prefetch", {"WIDTH": width})
    assert widths(aligned, "ld.global") == widths(aligned, "st.global") == widths(aligned, "ld.shared") == {vector}
    assert widths(aligned, "st.shared") == {"", vector}  # A lies along k and is turned


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("ahead", [0, 1])
def test_what_is_needed_next_is_loaded_before_what_is_there_is_multiplied(stages: int, ahead: int) -> None:
    text = ptx("prefetch", {"STAGES": stages, "REG_PREFETCH": ahead})
    loop = text[: text.rindex("bar.sync") + 8]
    accesses = re.findall(r"\b(ld\.global|ld\.shared|fma|st\.shared|bar\.sync)", loop)
    steps = [(access, len(list(each))) for access, each in itertools.groupby(accesses)]
    # A run of A and one of B per thread; per term two runs of rows and one of columns; 8 × 4 products, of 8 terms.
    assert steps[:3] == [("ld.global", 2), ("ld.shared", 3 * (1 + ahead)), ("fma", 32)]
    assert Counter(accesses) == {"ld.global": 2, "ld.shared": 24, "fma": 256, "st.shared": 5, "bar.sync": 3 - stages}
    assert [access for access, _ in steps[-3:]] == (
        ["bar.sync", "st.shared", "bar.sync"] if stages == 1 else ["fma", "st.shared", "bar.sync"]
    )


@pytest.mark.parametrize("kernel", ["vectorized", "register_tiled_vectorized"])
def test_runs_are_single_instructions(kernel: str) -> None:
    """Of global memory, and of local memory but for what is transposed on its way there. (A chip unknown yet gets PTX.)"""
    problem = gp.GemmProblem.create(128, 128, 128, beta=1)
    plan = gp.plan(problem, H200, kernel=kernel, params={"WIDTH": 4})
    ptx = _nvrtc.compile_cuda(assemble(plan.launches[0].kernel, "cuda"), "sm_999").decode()
    found = re.findall(r"\b((?:ld|st)\.(?:global|shared))(?:\.v(\d))?\.[a-z](\d+)", ptx)
    bits = {(access, int(lanes or 1) * int(each)) for access, lanes, each in found}
    wide = {(access, 128) for access in ("ld.global", "st.global", "ld.shared", "st.shared")}
    assert bits - {("st.shared", 32)} == wide


def test_an_error_is_told_with_its_line() -> None:
    (source,) = sources("naive")
    lines = source.splitlines()
    number = next(n for n, line in enumerate(lines) if "acc_t sum = ACC_ZERO" in line)
    lines[number] += " not_declared_anywhere += 1;"
    with pytest.raises(gp.CompileError) as caught:
        _nvrtc.compile_cuda("\n".join(lines), "sm_90")
    assert f"({number + 1})" in caught.value.log
    assert "not_declared_anywhere" in caught.value.log
    assert caught.value.source == "\n".join(lines)


def test_compiling_leaves_python_its_bytes() -> None:
    """A log of nothing is one byte, and Python has one object for all bytes of a value: nobody must write into that."""
    _nvrtc.compile_cuda("__global__ void nothing() {}", "sm_90")
    assert [byte for byte in range(256) if bytes([byte])[0] != byte] == []


def test_an_architecture_too_old_names_those_that_are_known() -> None:
    with pytest.raises(gp.CompileError, match="sm_50") as caught:
        _nvrtc.compile_cuda("", "sm_50")
    assert all(architecture in str(caught.value) for architecture in architectures())
    assert "pip install" in str(caught.value)


@pytest.mark.parametrize("name", ["gfx90a", "90", "sm_", "sm_90x", ""])
def test_an_unknown_architecture_is_refused(name: str) -> None:
    with pytest.raises(gp.CompileError, match="must be named like sm_90") as caught:
        _nvrtc.compile_cuda("", name)
    assert repr(name) in str(caught.value)


def test_a_chip_newer_than_the_compiler_gets_ptx() -> None:
    (source,) = sources("naive")
    binary = _nvrtc.compile_cuda(source, "sm_999")
    assert b".version" in binary
    assert b".entry naive" in binary
    ptx, sass = _nvrtc.disassemble(source, "sm_999", "naive").listings
    assert ptx.text == binary.decode().rstrip("\0")
    assert sass.text == ""
    assert "newer than the compiler" in sass.note


def test_instructions_of_one_architecture_can_be_asked_for() -> None:
    (source,) = sources("naive")
    assert is_cubin(_nvrtc.compile_cuda(source, "sm_90a"))


def test_compiling_needs_neither_pycuda_nor_pyopencl() -> None:
    code = (
        "import sys\n"
        "from gemmport.backends import _nvrtc\n"
        "_nvrtc.compile_cuda('extern \"C\" __global__ void f() {}', 'sm_90')\n"
        "sys.exit(any(name in sys.modules for name in ('pycuda', 'pyopencl')))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def without_nvrtc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def forget() -> None:
        _nvrtc.compiler.cache_clear()
        _nvrtc.architectures.cache_clear()

    monkeypatch.setattr(_nvrtc, "nvrtc", lambda: None)
    forget()
    yield
    forget()


@pytest.fixture
def nvcc_only(without_nvrtc: None) -> None:
    skip_without(NVCC)


def test_nvcc_serves_where_nvrtc_is_missing(nvcc_only: None) -> None:
    (source,) = sources("naive")
    assert _nvrtc.compiler().startswith("nvcc ")
    binary = _nvrtc.compile_cuda(source, f"sm_{_nvrtc.architectures()[0]}")
    assert is_cubin(binary)
    assert b"naive" in binary


def test_nvcc_tells_errors_with_their_line(nvcc_only: None, tmp_path: Path) -> None:
    with pytest.raises(gp.CompileError) as caught:
        _nvrtc.compile_cuda("// first\nint f() { return not_declared_anywhere; }\n", f"sm_{_nvrtc.architectures()[0]}")
    assert "(2)" in caught.value.log
    assert "not_declared_anywhere" in caught.value.log


def test_without_any_compiler_the_message_says_how_to_get_one(
    without_nvrtc: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_nvrtc, "nvcc", lambda: None)
    with pytest.raises(gp.CompileError, match="pip install"):
        _nvrtc.compile_cuda("", "sm_90")
    with pytest.raises(gp.CompileError, match="pip install"):
        _nvrtc.compiler()


def test_every_variant_has_a_source_in_cuda_and_one_contract() -> None:
    """An extension's folder holds the same sources for both languages."""
    for variant in EXTENSIONS:
        assert isinstance(variant, KernelVariant)
        stems = [{file.stem for file in Path(variant.folder, language).iterdir()} for language in languages()]
        assert stems[0] == stems[1]


@pytest.mark.every_pair("precision", list(FORMATS))
@pytest.mark.every_pair("architecture", OLDEST_AND_SM_90)
def test_the_pass_that_rounds_compiles(precision: str, architecture: str) -> None:
    problem = gp.GemmProblem.create(61, 61, 61, precision=precision)
    (launch,) = convert.PASS.before(problem, Steps([]), 1024).launches
    assert is_cubin(_nvrtc.compile_cuda(assemble(launch.kernel, "cuda"), architecture))
