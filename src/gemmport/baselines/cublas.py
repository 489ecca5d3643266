"""cuBLAS, through nvmath-python's bindings."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from gemmport.backends.base import Backend, Memory
from gemmport.baselines.base import Baseline, BoundBaseline, HostArray
from gemmport.errors import BaselineUnavailableError, LaunchError
from gemmport.problem import GemmProblem, Operand

_HOW_TO_GET = "pip install 'gemmport[cuda]' on a machine with NVIDIA's driver"

try:
    from nvmath.bindings import cublas
except ImportError as error:
    raise BaselineUnavailableError(f"cuBLAS cannot be reached: {error}; {_HOW_TO_GET}") from error

WORKSPACE_BYTES = 64 * 2**20
"""Twice the 32 MiB that NVIDIA's documentation recommends for Hopper: a baseline has all the workspace it likes."""

_SCALARS = {"float32": ctypes.c_float, "float64": ctypes.c_double}
# With 32-bit and with 64-bit sizes.
_SINGLE = {"float32": (cublas.sgemm, cublas.sgemm_64), "float64": (cublas.dgemm, cublas.dgemm_64)}
_BATCHED = {
    "float32": (cublas.sgemm_strided_batched, cublas.sgemm_strided_batched_64),
    "float64": (cublas.dgemm_strided_batched, cublas.dgemm_strided_batched_64),
}
_OPERATIONS = {"N": cublas.Operation.N, "T": cublas.Operation.T, "C": cublas.Operation.C, "R": cublas.Operation.N}


@dataclass(frozen=True)
class _Handle:
    value: int
    workspace: Memory


class CuBLAS(Baseline):
    """cublas{S,D}gemm, and for a batch cublas{S,D}gemmStridedBatched, without TF32."""

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
        if problem.types not in _SCALARS:
            return f"cuBLAS computes {' and '.join(_SCALARS)} here, not {problem.types}"
        return None

    def bind(
        self,
        problem: GemmProblem,
        backend: Backend,
        operands: Mapping[Operand, Memory],
        host: Mapping[Operand, HostArray],
    ) -> BoundBaseline:
        """Prepares a product; `enqueue` raises LaunchError, with cuBLAS's own words, where it is refused."""
        dtype = problem.dtype.name
        batch = [problem.batch] if problem.batch != 1 else []
        # `GemmProblem` keeps every other size below 2³¹; strides have 64 bits in both.
        wide = any(problem.layout(operand).ld >= 2**31 for operand in operands)
        gemm = (_BATCHED if batch else _SINGLE)[dtype][wide]
        alpha, beta = _SCALARS[dtype](problem.alpha.real), _SCALARS[dtype](problem.beta.real)

        def place(operand: Operand) -> list[int]:
            layout = problem.layout(operand)
            address = operands[operand].handle + layout.offset * problem.element_type(operand).itemsize
            return [address, layout.ld, *([layout.batch_stride] if batch else [])]

        # cuBLAS is column-major: it sees every stored matrix transposed, and computes Dᵀ = op(B)ᵀ · op(A)ᵀ.
        operations = _OPERATIONS[problem.trans_b], _OPERATIONS[problem.trans_a]
        sizes = problem.n, problem.m, problem.k
        a, b, d = place("a"), place("b"), place("d")
        handle = self._handle(backend).value
        kept = dict(operands)  # cuBLAS knows the memory by its address alone

        def enqueue() -> None:
            try:
                with self._lock, backend.current():
                    gemm(
                        handle, *operations, *sizes,
                        ctypes.addressof(alpha), *b, *a, ctypes.addressof(beta), *d, *batch,
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
