"""cuBLAS, through nvmath-python's bindings."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.baselines.base import Baseline, BoundBaseline, HostArray
from gemmport.core.errors import BaselineUnavailableError, LaunchError
from gemmport.core.precision import FULL
from gemmport.core.problem import GemmProblem, Operand

_HOW_TO_GET = "pip install 'gemmport[cuda]' on a machine with NVIDIA's driver"

try:
    from nvmath.bindings import cublas
except ImportError as error:
    raise BaselineUnavailableError(f"cuBLAS cannot be reached: {error}; {_HOW_TO_GET}") from error

WORKSPACE_BYTES = 64 * 2**20
"""Twice the 32 MiB that NVIDIA's documentation recommends for Hopper: a baseline has all the workspace it likes."""

# cudaDataType of library_types.h: R for real, C for complex, BF for bfloat16, I for integers.
_R_32F, _R_64F, _R_16F, _R_8I, _C_32F, _C_64F, _R_32I, _R_16BF = 0, 1, 2, 3, 4, 5, 10, 14

# Inputs, output and arithmetic by the problem's types. Float32 is computed in TF32 where, and only where, the problem says so.
_TYPES = {
    "float16": (_R_16F, _R_16F, cublas.ComputeType.COMPUTE_32F),
    "float16→float32": (_R_16F, _R_32F, cublas.ComputeType.COMPUTE_32F),
    "float16 summed in float16": (_R_16F, _R_16F, cublas.ComputeType.COMPUTE_16F),
    "bfloat16": (_R_16BF, _R_16BF, cublas.ComputeType.COMPUTE_32F),
    "bfloat16→float32": (_R_16BF, _R_32F, cublas.ComputeType.COMPUTE_32F),
    "float32": (_R_32F, _R_32F, cublas.ComputeType.COMPUTE_32F),
    "float32 rounded to tf32": (_R_32F, _R_32F, cublas.ComputeType.COMPUTE_32F_FAST_TF32),
    "float64": (_R_64F, _R_64F, cublas.ComputeType.COMPUTE_64F),
    "complex64": (_C_32F, _C_32F, cublas.ComputeType.COMPUTE_32F),
    "complex128": (_C_64F, _C_64F, cublas.ComputeType.COMPUTE_64F),
    "int8→int32": (_R_8I, _R_32I, cublas.ComputeType.COMPUTE_32I),
}
_INPUTS: tuple[Operand, ...] = ("a", "b")
_OPERATIONS = {"N": cublas.Operation.N, "T": cublas.Operation.T, "C": cublas.Operation.C, "R": cublas.Operation.N}


@dataclass(frozen=True)
class _Handle:
    value: int
    workspace: Memory


class CuBLAS(Baseline):
    """cublasGemmEx, and for a batch cublasGemmStridedBatchedEx; TF32 where the problem's precision says so alone."""

    name = "cublas"
    backends = frozenset({"cuda"})
    how_to_get = _HOW_TO_GET

    def __init__(self) -> None:
        try:
            self._version = ".".join(str(cublas.get_property(part)) for part in range(3))
        except RuntimeError as error:  # what nvmath raises where the library or the driver is not found
            raise BaselineUnavailableError(f"cuBLAS does not start: {error}; {self.how_to_get}") from error
        # A handle is destroyed with its context: by the time its backend is collected, the context may be gone.
        self._handles: WeakKeyDictionary[Backend, _Handle] = WeakKeyDictionary()
        self._lock = threading.Lock()

    @property
    def version(self) -> str:
        return self._version

    def unsupported(self, problem: GemmProblem) -> str | None:
        """Why it cannot compute a problem; None where it can."""
        if problem.types not in _TYPES:
            return f"cuBLAS computes {', '.join(_TYPES)}, not {problem.types}"
        if problem.dtype.kind == "complex" and "R" in problem.ops:
            return f"cuBLAS does not conjugate without transposing ({problem.ops})"
        if problem.dtype.name == "int8" and any(
            size % 4 for o in _INPUTS for size in (*problem.stored_shape(o), problem.alignment(o))
        ):
            rule = "takes int8 matrices only where their rows, columns and alignment are multiples of 4"
            return f"cuBLAS {rule} (quirk cublas-int8-multiples)"
        return None

    def rounds_by_itself(self, problem: GemmProblem) -> bool:
        return problem.precision != FULL

    def bind(
        self,
        problem: GemmProblem,
        backend: Backend,
        operands: Mapping[Operand, Memory],
        host: Mapping[Operand, HostArray],
    ) -> BoundBaseline:
        """Prepares a product; `enqueue` raises LaunchError, with cuBLAS's own words, where it is refused."""
        inputs, output, arithmetic = _TYPES[problem.types]
        batch = [problem.batch] if problem.batch != 1 else []
        # `GemmProblem` keeps every other size below 2³¹; strides have 64 bits in both.
        wide = any(problem.layout(operand).ld >= 2**31 for operand in operands)
        single = (cublas.gemm_ex, cublas.gemm_ex_64)
        gemm = ((cublas.gemm_strided_batched_ex, cublas.gemm_strided_batched_ex_64) if batch else single)[wide]
        alpha, beta = (np.array(value, problem.accumulator.numpy) for value in (problem.alpha, problem.beta))

        def place(operand: Operand, kind: int) -> list[int]:
            layout = problem.layout(operand)
            address = operands[operand].handle + layout.offset * problem.element_type(operand).itemsize
            return [address, kind, layout.ld, *([layout.batch_stride] if batch else [])]

        # cuBLAS is column-major: it sees every stored matrix transposed, and computes Dᵀ = op(B)ᵀ · op(A)ᵀ.
        operations = _OPERATIONS[problem.trans_b], _OPERATIONS[problem.trans_a]
        sizes = problem.n, problem.m, problem.k
        a, b, d = place("a", inputs), place("b", inputs), place("d", output)
        handle = self._handle(backend).value
        kept = dict(operands)  # cuBLAS knows the memory by its address alone

        def enqueue() -> None:
            try:
                with self._lock, backend.current():
                    gemm(
                        handle, *operations, *sizes,
                        alpha.ctypes.data, *b, *a, beta.ctypes.data, *d, *batch, arithmetic, cublas.GemmAlgo.DEFAULT,
                    )  # fmt: skip
            except cublas.cuBLASError as error:
                raise LaunchError(f"{backend.device.label}: cuBLAS refuses {problem}: {error}") from error

        return BoundBaseline(self.name, enqueue, "device", close=kept.clear)

    def _handle(self, backend: Backend) -> _Handle:
        """The backend's handle, on its stream, with a workspace; made at its first use."""
        with self._lock:
            if backend not in self._handles:
                workspace = backend.allocate(WORKSPACE_BYTES)
                try:
                    with backend.current():
                        value = cublas.create()
                        cublas.set_stream(value, backend.queue_handle)
                        cublas.set_workspace(value, workspace.handle, WORKSPACE_BYTES)  # set_stream takes it away
                        cublas.set_pointer_mode(value, cublas.PointerMode.HOST)
                        cublas.set_math_mode(value, cublas.Math.DEFAULT_MATH)
                except cublas.cuBLASError as error:
                    raise LaunchError(f"{backend.device.label}: cuBLAS does not start: {error}") from error
                self._handles[backend] = _Handle(value, workspace)
            return self._handles[backend]
