"""The baselines compute what they are compared by, and say what is missing where they do not."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import exact
import gemmport as gp
import tested
from absences import BASELINES, CLBLAST, beyond, none_of, skip_without
from gemmport import backends, baselines
from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.baselines.base import Baseline, HostArray
from gemmport.checking import guarded_run
from gemmport.checking.reference import reference
from gemmport.checking.verification import poison
from gemmport.contracts.nvidia import multiplies_float8_matrices
from gemmport.core.errors import BaselineUnavailableError
from gemmport.core.layout import matrices
from gemmport.core.problem import OPERANDS, Operand
from tiers import NATIVE

M, N, K = 37, 53, 29

Types = tuple[str, str | None, str | None]
"""Of the inputs, the output and the sums."""

LIBRARIES = {"clblast": "GEMMPORT_CLBLAST", "clblas": "GEMMPORT_CLBLAS"}

DECLINED = {"cupy": ("has no alpha and beta", "does not conjugate"), "nvmath": ("that are not conjugated",)}
"""What a baseline says of some products of a type that it computes."""


@pytest.fixture(params=baselines.names())
def baseline(request: pytest.FixtureRequest) -> Baseline:
    """Each baseline that is installed."""
    skip_without(*BASELINES[request.param])
    return baselines.load(request.param)


@pytest.fixture
def its_backend(baseline: Baseline, request: pytest.FixtureRequest) -> Backend:
    """The best device, or that of --device, whose memory the baseline computes on; where it computes on the host, the best."""
    wanted = baseline.backends or set(backends.names())
    found = [device for device in tested.devices(request.config) if device.backend in wanted]
    if not found:
        pytest.skip(none_of(" or ".join(sorted(wanted))))
    if baseline.name == "torch":
        found = [device for device in found if device.backend == "cuda" or device.type == "cpu"]
    if not found:
        pytest.skip(beyond("PyTorch", "it computes on CUDA's memory and on the host"))
    return gp.get_backend(device=found[0])


@pytest.fixture
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that has loaded no library yet."""
    monkeypatch.setattr(baselines, "_loaded", {})


def padded(rows: int, columns: int, offset: int, *, multiple: int = 1) -> gp.Layout:
    """A layout with a gap after every row, to a multiple of elements, and after every matrix."""
    ld = -(-(columns + 3) // multiple) * multiple
    return gp.Layout(ld, batch_stride=rows * ld + 5, offset=offset)


def stored(size: tuple[int, int], op: str) -> tuple[int, int]:
    return size if op in "NR" else size[::-1]


def problem_of(
    types: Types, ops: str, *, batch: int = 1, alpha: complex = 1, beta: complex = 0, multiple: int = 1
) -> gp.GemmProblem:
    """A problem of odd sizes in which every operand has its own offset and gaps."""
    a, b = stored((M, K), ops[0]), stored((K, N), ops[1])
    c = padded(M, N, 13, multiple=multiple)
    dtype, output, accumulator = types
    return gp.GemmProblem.create(
        M, N, K, batch=batch, dtype=dtype, output=output, accumulator=accumulator, trans_a=ops[0], trans_b=ops[1],
        alpha=alpha, beta=beta, a=padded(*a, 7, multiple=multiple), b=padded(*b, 11, multiple=multiple), c=c, d=c,
    )  # fmt: skip


def integers(problem: gp.GemmProblem) -> dict[Operand, HostArray]:
    """Operands as stored, (batch, rows, columns), whose products and sums are exact in every type."""
    rng = np.random.default_rng(1)
    return {
        operand: exact.integers(
            (problem.batch, *problem.stored_shape(operand)), problem.element_type(operand).numpy, rng
        )
        for operand in OPERANDS
        if operand != "d"
    }


def served(baseline: Baseline, problem: gp.GemmProblem) -> gp.GemmProblem | None:
    """The problem as the baseline takes it, which may be with a D without gaps; None where it is known to decline it.

    Asserts that it declines nothing else.
    """
    if "without gaps" in (baseline.unsupported(problem) or ""):
        d = gp.Layout(N, batch_stride=M * N, offset=13)
        problem = replace(problem, c=d, d=d)
    reason = baseline.unsupported(problem)
    assert reason is None or any(words in reason for words in DECLINED.get(baseline.name, ())), reason
    return None if reason else problem


def compute(baseline: Baseline, backend: Backend, problem: gp.GemmProblem) -> tuple[HostArray, HostArray]:
    """D of a baseline in memory that is poison wherever nothing may be read, and what it should be.

    Asserts that nothing outside D was written.
    """
    host = integers(problem)
    flat = {operand: poison(problem.span(operand) + 8, problem.element_type(operand).numpy) for operand in OPERANDS}

    def inside(operand: Operand) -> HostArray:
        return matrices(flat[operand], problem.layout(operand), *problem.stored_shape(operand), problem.batch)

    inside("a")[...], inside("b")[...] = host["a"], host["b"]
    if problem.beta:
        inside("d")[...] = host["c"]
    memory: dict[Operand, Memory] = {operand: backend.allocate(flat[operand].nbytes) for operand in ("a", "b", "d")}
    for operand, block in memory.items():
        backend.upload(block, flat[operand])
    before = flat["d"].copy()
    bound = baseline.bind(problem, backend, memory, host)
    bound.enqueue()
    expected = reference(problem, host).astype(problem.output.numpy)
    if bound.result is not None:
        return bound.result, expected
    backend.download(memory["d"], flat["d"])
    bound.close()
    d = inside("d").copy()
    inside("d")[...] = matrices(before, problem.d, problem.m, problem.n, problem.batch)
    assert not guarded_run.changed(before, flat["d"]), "elements outside D were written"
    return d, expected


# A library compiles what it needs of a type in each process: all products of a type are one test.


@pytest.mark.parametrize("dtype", NATIVE)
def test_computes_what_the_reference_does(baseline: Baseline, its_backend: Backend, dtype: str) -> None:
    if dtype not in its_backend.device.computes:
        pytest.skip(beyond(its_backend.device, f"it does not compute in {dtype}"))
    scalars = ((1, 1, 0), (1, 1.5, -0.5), (3, 2, 0), (3, -1, 1))
    for ops, (batch, alpha, beta) in itertools.product(("NN", "NT", "TN", "TT"), scalars):
        problem = served(baseline, problem_of((dtype, None, None), ops, batch=batch, alpha=alpha, beta=beta))
        if problem is None:
            continue
        d, expected = compute(baseline, its_backend, problem)
        assert d.dtype == problem.output.numpy
        np.testing.assert_array_equal(d, expected, err_msg=f"{problem}, alpha = {alpha}, beta = {beta}")


@pytest.mark.parametrize(
    "types",
    [
        ("complex64", None, None),
        ("complex128", None, None),
        ("float16", None, None),
        ("float16", "float32", None),
        ("float16", None, "float16"),
        ("bfloat16", None, None),
        ("int8", "int32", None),
    ],
    ids=lambda types: "-".join(filter(None, types)),
)
def test_computes_what_the_reference_does_in_other_types(
    baseline: Baseline, its_backend: Backend, types: Types
) -> None:
    scalars = (1 - 2j, 1j) if types[0].startswith("complex") else (2, -1)
    problems = [
        problem_of(types, ops, batch=batch, alpha=alpha, beta=beta, multiple=4)
        for (alpha, beta), ops, batch in itertools.product(((1, 0), scalars), ("NN", "CN", "TC"), (1, 3))
    ]
    arithmetic = problems[0].accumulator.arithmetic
    if arithmetic and arithmetic not in its_backend.device.computes:
        pytest.skip(beyond(its_backend.device, f"it does not compute in {arithmetic}"))
    if reason := baseline.unsupported(
        gp.GemmProblem.create(M, N, K, dtype=types[0], output=types[1], accumulator=types[2])
    ):
        pytest.skip(beyond(its_backend.device, reason))
    for problem in filter(None, (served(baseline, each) for each in problems)):
        np.testing.assert_array_equal(*compute(baseline, its_backend, problem), err_msg=str(problem))


@pytest.mark.parametrize("output", ["float32", "float16", "bfloat16"])
def test_multiplies_float8_where_it_does(baseline: Baseline, its_backend: Backend, output: str) -> None:
    """In the layout, and the multiples of sizes, that NVIDIA's libraries ask for."""
    if baseline.backends and not multiplies_float8_matrices(its_backend.device):
        pytest.skip(beyond(its_backend.device, "it does not multiply FP8"))
    for m, batch, beta in itertools.product((48, 5), (1, 3), (0, 2)):
        problem = gp.GemmProblem.create(
            m, 64, 32, batch=batch, dtype="float8_e4m3fn", output=output, trans_b="T", alpha=-3, beta=beta,
            a=gp.Layout(48, m * 48 + 16, offset=16), b=gp.Layout(32, 64 * 32, offset=32),
        )  # fmt: skip
        if reason := baseline.unsupported(problem):
            pytest.skip(beyond(its_backend.device, reason))
        np.testing.assert_array_equal(*compute(baseline, its_backend, problem), err_msg=str(problem))


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_type_that_a_library_does_not_know_is_told_with_those_it_knows(name: str) -> None:
    skip_without(*BASELINES[name])
    library = baselines.load(name)
    told = library.unsupported(problem_of(("float16", "float64", None), "NN"))
    assert told is not None
    assert "computes float32, float64" in told
    assert told.endswith("not float16→float64")
    assert "does not conjugate" in (library.unsupported(problem_of(("complex64", None, None), "NR")) or "")


def test_conjugate_transposes_are_transposes(baseline: Baseline, its_backend: Backend) -> None:
    problem = served(baseline, problem_of(("float32", None, None), "CC"))
    assert problem is not None
    np.testing.assert_array_equal(*compute(baseline, its_backend, problem))


def test_repeats(baseline: Baseline, its_backend: Backend) -> None:
    """A product that was bound once gives the same result each time."""
    problem = gp.GemmProblem.create(M, N, K)
    host = integers(problem)
    memory: dict[Operand, Memory] = {operand: its_backend.asarray(host[operand]).memory for operand in ("a", "b")}
    memory["d"] = its_backend.allocate(4 * M * N)
    bound = baseline.bind(problem, its_backend, memory, host)
    for _ in range(3):
        bound.enqueue()
    d = bound.result
    if d is None:
        d = np.empty((1, M, N), np.float32)
        its_backend.download(memory["d"], d)
    np.testing.assert_array_equal(d, reference(problem, host))


def test_tells_its_version(baseline: Baseline) -> None:
    assert baseline.version
    assert baseline.version == "unknown" or baseline.version[0].isdigit()


def test_numpy_reads_neither_operand_where_alpha_is_0_nor_c_where_beta_is_0() -> None:
    problem = gp.GemmProblem.create(M, N, K, alpha=0.0, beta=2.0)
    host = integers(problem)
    host["a"][...] = np.nan
    bound = baselines.load("numpy").bind(problem, None, {}, host)  # type: ignore[arg-type]  # it needs no device
    bound.enqueue()
    np.testing.assert_array_equal(bound.result, 2.0 * host["c"])
    del host["c"]
    bound = baselines.load("numpy").bind(problem.with_scalars(0.0, 0.0), None, {}, host)  # type: ignore[arg-type]
    bound.enqueue()
    np.testing.assert_array_equal(bound.result, np.zeros((1, M, N)))


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize(
    ("sizes", "words"),
    [((M, N, 0), "without terms"), ((M, 0, K), "without elements"), ((2**17, 2**17, K), "32 bits")],
)
def test_products_that_a_library_gets_wrong_are_refused_before_the_call(
    name: str, sizes: tuple[int, int, int], words: str
) -> None:
    skip_without(*BASELINES[name])
    library = baselines.load(name)
    reason = library.unsupported(gp.GemmProblem.create(*sizes))
    assert reason is not None
    assert words in reason


def test_a_refusal_has_the_library_and_its_code() -> None:
    skip_without(CLBLAST)
    library, backend = baselines.load("clblast"), gp.get_backend("opencl")
    problem = gp.GemmProblem.create(1024, 1024, 8)
    memory: dict[Operand, Memory] = {operand: backend.allocate(1) for operand in ("a", "b", "d")}
    with pytest.raises(gp.LaunchError, match=r"CLBlast refuses float32 NN 1024×1024×8 with error -10\d\d"):
        library.bind(problem, backend, memory, {}).enqueue()


def test_names() -> None:
    assert set(baselines.names()) == {
        "clblas",
        "clblast",
        "cublas",
        "cublaslt",
        "cupy",
        "mkl",
        "numpy",
        "nvmath",
        "openblas",
        "torch",
    }


@pytest.mark.parametrize(
    ("backend_name", "kind", "expected"),
    [
        ("cuda", "gpu", ("cublas", "cublaslt")),
        ("opencl", "cpu", ("numpy", "clblast", "clblas")),
        ("opencl", "gpu", ("clblast", "clblas")),
        ("opencl", "accelerator", ("clblast", "clblas")),
        ("another", "gpu", ()),
    ],
)
def test_auto_means_what_belongs_to_the_device(backend_name: str, kind: str, expected: tuple[str, ...]) -> None:
    device = gp.DeviceInfo(backend_name, name="made up", platform="made up", type=kind)  # type: ignore[arg-type]
    assert baselines.for_device(device) == expected
    assert set(expected) <= set(baselines.names())


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(
        gp.UnknownNameError,
        match=r"'cubals': there are clblas, clblast, cublas, cublaslt, cupy, mkl, numpy, nvmath, openblas, torch",
    ):
        baselines.load("cubals")


def test_a_baseline_is_loaded_once() -> None:
    assert baselines.load("numpy") is baselines.load("numpy")


@pytest.mark.usefixtures("nothing_loaded")
@pytest.mark.parametrize(("name", "variable"), LIBRARIES.items())
def test_an_absent_library_is_named_with_advice(name: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "/there/is/no/lib.so")
    with pytest.raises(BaselineUnavailableError) as caught:
        baselines.load(name)
    message = str(caught.value)
    assert name in message.lower()
    assert f"{variable} = /there/is/no/lib.so cannot be loaded" in message
    assert "apt install" in message


@pytest.mark.usefixtures("nothing_loaded")
@pytest.mark.parametrize(("name", "variable"), LIBRARIES.items())
def test_another_library_is_not_taken_for_it(name: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "libc.so.6")
    with pytest.raises(BaselineUnavailableError, match=rf"(?i)libc\.so\.6 is not {name}"):
        baselines.load(name)


def test_importing_the_registry_loads_no_library() -> None:
    code = (
        "import sys; from gemmport import baselines; baselines.names();"
        "print(*(m for m in sys.modules if m.startswith(('gemmport.baselines.', 'pyopencl', 'pycuda', 'nvmath'))))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["gemmport.baselines.base"]
