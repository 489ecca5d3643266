"""cuBLASLt is asked for the product that is meant: a double does in NumPy what NVIDIA's documentation says of each argument."""

from __future__ import annotations

import ctypes
import enum
import itertools
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import exact
import gemmport as gp
from gemmport import baselines
from gemmport.backends.objects import Memory
from gemmport.baselines.base import Baseline, HostArray
from gemmport.checking import verification as verify
from gemmport.checking.reference import reference
from gemmport.checking.scales import Scales, scaled_reference
from gemmport.checking.verification import poison
from gemmport.core.errors import LaunchError
from gemmport.core.layout import matrices
from gemmport.core.problem import Layout, Operand
from made_up_devices import DEVICES

CUDA_TYPES = {
    0: np.float32, 1: np.float64, 2: np.float16, 3: np.int8, 4: np.complex64, 5: np.complex128, 10: np.int32,
    14: ml_dtypes.bfloat16, 28: ml_dtypes.float8_e4m3fn,
}  # fmt: skip
"""cudaDataType of library_types.h."""

SIZES = {"matmul_desc": dict.fromkeys((3, 4, 31, 32), "i4"), "matrix_layout": {5: "i4", 6: "i8"}}
SIZES["matmul_desc"] |= dict.fromkeys((17, 18), "u8")
SIZES["matmul_preference"] = {1: "u8"} | dict.fromkeys((5, 6, 7, 8), "u4")
"""The types of attributes by their numbers, as cublasLt.h has them."""


class RefusedError(Exception):
    """cuBLASLtError."""


class MatmulDescAttribute(enum.IntEnum):
    TRANSA, TRANSB = 3, 4
    A_SCALE_POINTER, B_SCALE_POINTER, A_SCALE_MODE, B_SCALE_MODE = 17, 18, 31, 32


class MatrixLayoutAttribute(enum.IntEnum):
    BATCH_COUNT, STRIDED_BATCH_OFFSET = 5, 6


class MatmulPreferenceAttribute(enum.IntEnum):
    MAX_WORKSPACE_BYTES = 1
    MIN_ALIGNMENT_A_BYTES, MIN_ALIGNMENT_B_BYTES, MIN_ALIGNMENT_C_BYTES, MIN_ALIGNMENT_D_BYTES = 5, 6, 7, 8


@dataclass
class Double:
    """cuBLASLt's bindings on the host: matrices by columns, D = alpha · op(A) · op(B) + beta · C.

    Attributes:
        alive: descriptors by their handles. state: what the heuristic answers. queues: those on which it computed.
    """

    matmul_heuristic_result_dtype = np.dtype([("algo", "u8", 8), ("workspace_size", "u8"), ("state", "i4")])
    cuBLASLtError = RefusedError  # noqa: N815 - its name
    MatmulDescAttribute, MatrixLayoutAttribute = MatmulDescAttribute, MatrixLayoutAttribute
    MatmulPreferenceAttribute = MatmulPreferenceAttribute

    alive: dict[int, Any] = field(default_factory=dict)
    state: int = 0
    queues: list[int] = field(default_factory=list)
    preferred: dict[int, int] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1000))

    def __getattr__(self, name: str) -> Any:
        """The functions that make, change and free descriptors."""
        for ending, function in (("_create", self._made), ("_set_attribute", self._set)):
            if name.endswith(ending):
                return partial(function, name.removesuffix(ending))
        if name.endswith("_destroy"):
            return self.alive.pop
        raise AttributeError(name)

    def _made(self, kind: str, *values: int) -> int:
        handle = next(self.numbers)
        self.alive[handle] = SimpleNamespace(kind=kind, values=values, attributes={})
        return handle

    def _set(self, kind: str, handle: int, attribute: int, address: int, nbytes: int) -> None:
        own = self.alive[handle]
        dtype = np.dtype(SIZES[kind][attribute])
        assert (own.kind, nbytes) == (kind, dtype.itemsize)
        own.attributes[attribute] = int(at(address, dtype, 1)[0])

    def get_property(self, part: int) -> int:
        return (13, 2, 1)[part]

    def create(self) -> int:
        return 77

    def matmul_algo_get_heuristic(
        self,
        handle: int,
        product: int,
        a: int,
        b: int,
        c: int,
        d: int,
        preference: int,
        count: int,
        results: int,
        found: int,
    ) -> None:
        assert (handle, count) == (77, 1)
        assert [self.alive[x].kind for x in (product, a, b, c, d)] == ["matmul_desc", *["matrix_layout"] * 4]
        self.preferred = self.alive[preference].attributes
        at(results, self.matmul_heuristic_result_dtype, 1)["algo"] = 4711
        at(results, self.matmul_heuristic_result_dtype, 1)["state"] = self.state
        at(found, np.dtype("i4"), 1)[0] = self.state == 0

    def matmul(
        self, handle: int, product: int, alpha: int, a: int, of_a: int, b: int, of_b: int, beta: int, c: int, of_c: int,
        d: int, of_d: int, algo: int, workspace: int, nbytes: int, queue: int,
    ) -> None:  # fmt: skip
        assert (handle, at(algo, np.dtype("u8"), 1)[0], nbytes) == (77, 4711, 64 * 2**20)
        assert at(workspace, np.dtype("u1"), nbytes).size == nbytes
        assert (c, of_c) == (d, of_d)
        told = self.alive[product]
        scalar = np.dtype(CUDA_TYPES[told.values[1]])
        factor, kept = at(alpha, scalar, 1)[0], at(beta, scalar, 1)[0]
        ops = [told.attributes.get(number, 0) for number in (3, 4)]
        left, right = (
            (x.swapaxes(1, 2) if op else x).astype(scalar)
            for x, op in zip((self.seen(a, of_a), self.seen(b, of_b)), ops, strict=True)
        )
        left, right = (x.conj() if op == 2 else x for x, op in zip((left, right), ops, strict=True))
        out = self.seen(d, of_d)
        own = factor * (left @ right) * self.scales(told.attributes, *out.shape[1:])
        out[...] = own + (kept * out.astype(scalar) if kept else 0)
        self.queues.append(queue)

    def scales(self, told: dict[int, int], rows: int, columns: int) -> HostArray | float:
        """Of its rows by A's vector, and of its columns by B's."""
        if not told.keys() & {17, 18, 31, 32}:
            return 1.0
        assert (told[31], told[32]) == (3, 3)
        single = np.dtype("f4")
        return np.outer(at(told[17], single, rows), at(told[18], single, columns))

    def seen(self, address: int, descriptor: int) -> HostArray:
        """A batch of matrices as the library sees it, (batch, rows, columns), over their memory."""
        layout = self.alive[descriptor]
        kind, rows, columns, ld = layout.values
        batch, step = layout.attributes.get(5, 1), layout.attributes.get(6, 0)
        dtype = np.dtype(CUDA_TYPES[kind])
        flat = at(address, dtype, (batch - 1) * step + (columns - 1) * ld + rows)
        strides = tuple(dtype.itemsize * x for x in (step, 1, ld))
        return np.lib.stride_tricks.as_strided(flat, (batch, rows, columns), strides)


def at(address: int, dtype: np.dtype[Any], count: int) -> HostArray:
    """What lies at an address of the host."""
    block = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(block, np.uint8).view(dtype)


class Host:
    """What a baseline takes of a backend, on the host's memory."""

    name = "cuda"
    device = DEVICES["NVIDIA sm_90 under CUDA"]
    queue_handle = 31

    def allocate(self, nbytes: int) -> Memory:
        block = np.zeros(nbytes + 256, np.uint8)
        return Memory(block, (block.ctypes.data + 255) & -256, nbytes)

    def current(self) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Double:
    """In the place of nvmath-python's bindings, in a registry that has loaded no library yet."""
    own = Double()
    monkeypatch.setattr(baselines, "_loaded", {})
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cublasLt", own)  # type: ignore[arg-type]
    return own


def computed(
    library: Baseline, problem: gp.GemmProblem, scales: Scales | None = None
) -> tuple[HostArray, HostArray, HostArray]:
    """All of D's memory, D, and what it should be."""
    rng, backend = np.random.default_rng(1), Host()
    host: dict[Operand, HostArray] = {}
    memory: dict[Operand, Memory] = {}
    flat: dict[Operand, HostArray] = {}
    for operand in ("a", "b", "d"):
        dtype, shape = problem.element_type(operand).numpy, problem.stored_shape(operand)
        host[operand] = exact.integers((problem.batch, *shape), dtype, rng)
        memory[operand] = backend.allocate((problem.span(operand) + 8) * dtype.itemsize)
        flat[operand] = at(memory[operand].handle, dtype, problem.span(operand) + 8)
        flat[operand][...] = poison(flat[operand].size, dtype)
        matrices(flat[operand], problem.layout(operand), *shape, problem.batch)[...] = host[operand]
    given = {**host, "c": host["d"]}
    if scales is None:
        wanted = reference(problem, given).astype(problem.output.numpy)
        bound = library.bind(problem, backend, memory, {})  # type: ignore[arg-type]  # all that it needs of a backend
    else:
        wanted = scaled_reference(problem, given, scales).astype(problem.output.numpy)
        rows, columns = (Memory(x, x.ctypes.data, x.nbytes) for x in (scales.rows[0], scales.columns[0]))
        bound = library.bind_scaled(problem, backend, memory, rows, columns)  # type: ignore[arg-type]  # likewise
    bound.enqueue()
    bound.close()
    all_of_d = flat["d"].copy()  # memory ends with this function
    return all_of_d, matrices(all_of_d, problem.d, problem.m, problem.n, problem.batch), wanted


TYPES = [
    ("float8_e4m3fn", "bfloat16", None), ("float8_e4m3fn", "float32", None), ("float8_e4m3fn", "float16", None),
    ("float16", None, None), ("float16", None, "float16"), ("bfloat16", "float32", None), ("float32", None, None),
    ("float64", None, None), ("complex64", None, None), ("complex128", None, None), ("int8", "int32", None),
]  # fmt: skip


@pytest.mark.parametrize("types", TYPES, ids=lambda types: "-".join(filter(None, types)))
def test_the_product_that_is_meant_is_asked_for(double: Double, types: tuple[str, str | None, str | None]) -> None:
    library = baselines.load("cublaslt")
    dtype, output, accumulator = types
    m, n, k = 20, 16, 32
    for ops, batch, beta in itertools.product(("NN", "NT", "TN", "CT"), (1, 3), (0, 2)):
        (a, lda), (b, ldb) = (
            (rows * columns + 128, columns + 16) if op == "N" else (rows * columns + 160, rows + 16)
            for op, rows, columns in ((ops[0], m, k), (ops[1], k, n))
        )
        c = Layout(n + 4, (n + 4) * m + 20, offset=8)
        problem = gp.GemmProblem.create(
            m, n, k, batch=batch, dtype=dtype, output=output, accumulator=accumulator, alpha=-3, beta=beta, trans_a=ops[0],
            trans_b=ops[1], a=Layout(lda, a + 16 * 40, offset=4), b=Layout(ldb, b + 16 * 40, offset=16), c=c, d=c,
        )  # fmt: skip
        assert library.unsupported(problem) is None
        flat, d, wanted = computed(library, problem)
        np.testing.assert_array_equal(d, wanted, err_msg=str(problem))
        outside = poison(flat.size, flat.dtype)
        matrices(outside, problem.d, m, n, batch)[...] = d
        assert outside.tobytes() == flat.tobytes(), "elements outside D were written"
    assert not double.alive
    assert set(double.queues) == {31}
    itemsize = problem.dtype.itemsize
    assert double.preferred == {
        1: 64 * 2**20, 5: min(16 * itemsize, 256), 6: 4 * itemsize, **dict.fromkeys((7, 8), 8 * problem.output.itemsize)
    }  # fmt: skip


def test_rows_and_columns_of_fp8_have_the_scales_that_are_meant(double: Double) -> None:
    library = baselines.load("cublaslt")
    problem = gp.GemmProblem.create(20, 16, 32, dtype="float8_e4m3fn", output="bfloat16", trans_b="T", alpha=2, beta=-1)
    rows, columns = (np.exp2(np.arange(size) % 5, dtype=np.float32)[np.newaxis] for size in (problem.m, problem.n))
    _, d, wanted = computed(library, problem, Scales(rows, columns))
    np.testing.assert_array_equal(d, wanted)
    assert library.unsupported_scales(problem) is None
    for other in (replace(problem, batch=2), gp.GemmProblem.create(20, 16, 32, dtype="float16")):
        assert "single products of FP8" in str(library.unsupported_scales(other))


def test_what_it_has_no_algorithm_for_is_told_with_its_rule(double: Double) -> None:
    library, double.state = baselines.load("cublaslt"), 15
    problem = gp.GemmProblem.create(16, 16, 16, dtype="float8_e4m3fn")
    with pytest.raises(LaunchError, match="cuBLASLt refuses float8_e4m3fn→float32 NN 16×16×16: 15; it multiplies FP8"):
        computed(library, problem)
    assert not double.alive
    told = library.unsupported(gp.GemmProblem.create(16, 16, 16, dtype="float8_e5m2"))
    assert told is not None
    assert told.endswith("not float8_e5m2→float32")
    assert library.version == "13.2.1"


def test_sums_of_fp8_are_judged_by_what_the_unit_keeps(double: Double) -> None:
    library = baselines.load("cublaslt")
    fp8, halves = (gp.GemmProblem.create(16, 16, 16, dtype=name) for name in ("float8_e4m3fn", "float16"))
    for architecture, cuts in (("sm_89", True), ("sm_90", True), ("sm_100", False), ("sm_120", False)):
        device = replace(Host.device, architecture=architecture)
        cut = library.cut(fp8, device)
        assert (cut is not None) is cuts
        assert cut is None or (cut.digits, cut.terms) == (14, 512)
        assert library.cut(halves, device) == verify.cut_on(halves, device)
