"""CuPy: its matmul on CUDA's memory, which calls cuBLAS as CuPy's users do."""

from __future__ import annotations

from collections.abc import Mapping

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.baselines._packages import conjugates, imported, on_device
from gemmport.baselines.base import Baseline, BoundBaseline, HostArray
from gemmport.core.problem import GemmProblem, Operand

_TYPES = ("float16", "float32", "float64", "complex64", "complex128")


class CuPy(Baseline):
    """cupy.matmul on the operands' own memory and the backend's stream."""

    name = "cupy"
    backends = frozenset({"cuda"})
    how_to_get = "pip install cupy-cuda13x, or cupy-cuda12x for CUDA 12"

    def __init__(self) -> None:
        self._cupy = imported("cupy", "CuPy", self.how_to_get)

    @property
    def version(self) -> str:
        """CuPy's."""
        return str(self._cupy.__version__)

    def unsupported(self, problem: GemmProblem) -> str | None:
        """Why it cannot compute a problem; None where it can."""
        if problem.types not in _TYPES:
            return f"cupy.matmul computes {', '.join(_TYPES)}, not {problem.types}"
        if (problem.alpha, problem.beta) != (1, 0):
            return "cupy.matmul has no alpha and beta"
        if conjugates(problem):
            return f"cupy.matmul does not conjugate ({problem.ops})"
        if problem.d.ld != problem.n or (problem.batch > 1 and problem.d.batch_stride != problem.m * problem.n):
            return "cupy.matmul writes results without gaps alone"
        return None

    def bind(
        self,
        problem: GemmProblem,
        backend: Backend,
        operands: Mapping[Operand, Memory],
        host: Mapping[Operand, HostArray],
    ) -> BoundBaseline:
        """Prepares a product."""
        cupy = self._cupy
        arrays = on_device(problem, backend, operands)
        a, b, d = (cupy.from_dlpack(arrays[operand]) for operand in ("a", "b", "d"))
        stream = cupy.cuda.ExternalStream(backend.queue_handle, device_id=d.device.id)

        def enqueue() -> None:
            with d.device, stream:
                cupy.matmul(a, b, out=d)

        return BoundBaseline(self.name, enqueue, "device")
