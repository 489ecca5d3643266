"""cuBLAS, through nvmath-python's bindings."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.baselines._nvidia import (
    OPERATIONS,
    TYPES,
    WORKSPACE_BYTES,
    NVIDIALibrary,
    address,
)
from gemmport.baselines.base import BoundBaseline, HostArray
from gemmport.core.errors import LaunchError
from gemmport.core.problem import GemmProblem, Operand


class CuBLAS(NVIDIALibrary):
    """cublasGemmEx, and for a batch cublasGemmStridedBatchedEx; TF32 where the problem's precision says so alone."""

    name = "cublas"
    bindings = "nvmath.bindings.cublas"
    title = "cuBLAS"
    types = TYPES

    def bind(
        self,
        problem: GemmProblem,
        backend: Backend,
        operands: Mapping[Operand, Memory],
        host: Mapping[Operand, HostArray],
    ) -> BoundBaseline:
        """Prepares a product; `enqueue` raises LaunchError, with cuBLAS's own words, where it is refused."""
        cublas = self._library
        inputs, output, arithmetic = TYPES[problem.types]
        batch = [problem.batch] if problem.batch != 1 else []
        # `GemmProblem` keeps every other size below 2³¹; strides have 64 bits in both.
        wide = any(problem.layout(operand).ld >= 2**31 for operand in operands)
        single = (cublas.gemm_ex, cublas.gemm_ex_64)
        gemm = ((cublas.gemm_strided_batched_ex, cublas.gemm_strided_batched_ex_64) if batch else single)[wide]
        alpha, beta = (np.array(value, problem.accumulator.numpy) for value in (problem.alpha, problem.beta))

        def place(operand: Operand, kind: int) -> list[int]:
            layout = problem.layout(operand)
            return [address(problem, operands, operand), kind, layout.ld, *([layout.batch_stride] if batch else [])]

        # cuBLAS is column-major: it sees every stored matrix transposed, and computes Dᵀ = op(B)ᵀ · op(A)ᵀ.
        operations = OPERATIONS[problem.trans_b], OPERATIONS[problem.trans_a]
        sizes = problem.n, problem.m, problem.k
        a, b, d = place("a", inputs), place("b", inputs), place("d", output)
        handle = self._handles.on(backend).value
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

    def _create(self, backend: Backend, workspace: Memory) -> int:
        """A handle on the backend's stream, with a workspace."""
        cublas = self._library
        try:
            value: int = cublas.create()
            cublas.set_stream(value, backend.queue_handle)
            cublas.set_workspace(value, workspace.handle, WORKSPACE_BYTES)  # set_stream takes it away
            cublas.set_pointer_mode(value, cublas.PointerMode.HOST)
            cublas.set_math_mode(value, cublas.Math.DEFAULT_MATH)
        except cublas.cuBLASError as error:
            raise LaunchError(f"{backend.device.label}: cuBLAS does not start: {error}") from error
        return value
