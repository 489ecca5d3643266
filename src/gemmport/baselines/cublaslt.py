"""cuBLASLt, through nvmath-python's bindings: the first algorithm of its heuristic, and FP8, which cuBLAS does not compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.baselines._nvidia import (
    FLOAT8_TYPES,
    OPERATIONS,
    SCALARS,
    TYPES,
    WORKSPACE_BYTES,
    NVIDIALibrary,
    address,
)
from gemmport.baselines.base import BoundBaseline, HostArray
from gemmport.contracts.kernel import Cut
from gemmport.contracts.nvidia import cuts_sums_of_float8, is_hopper
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import FLOAT8S
from gemmport.core.errors import BaselineUnavailableError, LaunchError
from gemmport.core.problem import GemmProblem, Operand

_TYPES = {**TYPES, **FLOAT8_TYPES}

_ALIGNMENT = 256
"""Bytes, beyond which no algorithm differs (cublasLt.h, `cublasLtMatmulPreferenceAttributes_t`)."""

_FLOAT8_CUT = Cut(digits=14, terms=512)
"""What is kept of sums of FP8 where the unit cuts them. cuBLASLt promotes them "periodically" unless it is asked for fast
accumulation (cublasLt.h), and does not say after how many terms: four times as many as other kernels are allowed.
"""

_OF_BYTES = (
    "it multiplies FP8 and int8 of NT alone, with n and k that are multiples of 16 for FP8, of 4 for int8; from compute "
    "capability 10.0 on FP8 of other layouts, too"
)


class CuBLASLt(NVIDIALibrary):
    """cublasLtMatmul by the first algorithm that its heuristic names, with a workspace of `WORKSPACE_BYTES`.

    FP8 has no fast accumulation, like `torch._scaled_mm` with `use_fast_accum=False`, and scales of rows and columns where they
    are given, by the pointers of its descriptors: its "outer vectors", from cuBLASLt 12.9 on.
    """

    name = "cublaslt"
    bindings = "nvmath.bindings.cublasLt"
    title = "cuBLASLt"
    types = _TYPES

    def cut(self, problem: GemmProblem, device: DeviceInfo) -> Cut | None:
        """14 digits of sums of FP8 on compute capability 8.9 and 9.0 (docs/verification.md)."""
        cuts = cuts_sums_of_float8(device) or is_hopper(device)
        return _FLOAT8_CUT if problem.dtype in FLOAT8S and cuts else super().cut(problem, device)

    def unsupported_scales(self, problem: GemmProblem) -> str | None:
        if problem.dtype in FLOAT8S and problem.batch == 1:
            return None
        return f"{self.title} multiplies rows and columns of single products of FP8 by scales, not those of {problem}"

    def bind(
        self,
        problem: GemmProblem,
        backend: Backend,
        operands: Mapping[Operand, Memory],
        host: Mapping[Operand, HostArray],
    ) -> BoundBaseline:
        """Prepares a product; `close` frees its descriptors, `enqueue` raises LaunchError where it is refused.

        Raises:
            LaunchError: cuBLASLt has no algorithm for it on this device.
        """
        return self._bind(problem, backend, operands)

    def bind_scaled(
        self, problem: GemmProblem, backend: Backend, operands: Mapping[Operand, Memory], rows: Memory, columns: Memory
    ) -> BoundBaseline:
        """Likewise.

        Raises:
            LaunchError: as `bind`. BaselineUnavailableError: it has no such scales.
        """
        if self.unsupported_scales(problem):
            return super().bind_scaled(problem, backend, operands, rows, columns)
        if not hasattr(self._library.MatmulDescAttribute, "A_SCALE_MODE"):
            raise BaselineUnavailableError(
                f"{self.title} has scales of rows and columns from 12.9 on; this is {self.version}"
            )
        return self._bind(problem, backend, operands, (rows, columns))

    def _bind(
        self,
        problem: GemmProblem,
        backend: Backend,
        operands: Mapping[Operand, Memory],
        scales: tuple[Memory, Memory] | None = None,
    ) -> BoundBaseline:
        lt, handle = self._library, self._handles.on(backend)
        # cuBLASLt is column-major: it sees every stored matrix transposed, and computes Dᵀ = op(B)ᵀ · op(A)ᵀ.
        a, b, d = (address(problem, operands, operand) for operand in ("a", "b", "d"))
        alpha, beta = (np.array(value, problem.accumulator.numpy) for value in (problem.alpha, problem.beta))
        kept = [*operands.values(), *(scales or ())]  # it knows the memory by its address alone
        with ExitStack() as made:
            made.callback(kept.clear)
            try:
                product, of_a, of_b, of_d = self._described(problem, made)
                if scales is not None:
                    self._put_scales(product, *scales)
                with backend.current():
                    algorithm = self._first(handle.value, (product, of_b, of_a, of_d, of_d), (b, a, d, d))
            except lt.cuBLASLtError as error:
                rule = f"; {_OF_BYTES}" if problem.dtype.itemsize == 1 else ""
                raise LaunchError(f"{backend.device.label}: cuBLASLt refuses {problem}: {error}{rule}") from error
            close = made.pop_all().close

        def enqueue() -> None:
            try:
                with self._lock, backend.current():
                    lt.matmul(
                        handle.value, product, alpha.ctypes.data, b, of_b, a, of_a, beta.ctypes.data, d, of_d, d, of_d,
                        algorithm.ctypes.data, handle.workspace.handle, WORKSPACE_BYTES, backend.queue_handle,
                    )  # fmt: skip
            except lt.cuBLASLtError as error:
                raise LaunchError(f"{backend.device.label}: cuBLASLt refuses {problem}: {error}") from error

        return BoundBaseline(self.name, enqueue, "device", close=close)

    def _create(self, backend: Backend, workspace: Memory) -> int:
        """A handle; it has no stream and no workspace of its own."""
        try:
            value: int = self._library.create()
        except self._library.cuBLASLtError as error:
            raise LaunchError(f"{backend.device.label}: cuBLASLt does not start: {error}") from error
        return value

    def _described(self, problem: GemmProblem, made: ExitStack) -> tuple[int, int, int, int]:
        """Descriptors of the product and of A, B and D, seen transposed. `made` frees them."""
        lt = self._library
        inputs, output, arithmetic = _TYPES[problem.types]
        product: int = lt.matmul_desc_create(arithmetic, SCALARS[problem.accumulator.name])
        made.callback(lt.matmul_desc_destroy, product)
        put, names = lt.matmul_desc_set_attribute, lt.MatmulDescAttribute
        _set(put, product, names.TRANSA, np.int32(OPERATIONS[problem.trans_b]))
        _set(put, product, names.TRANSB, np.int32(OPERATIONS[problem.trans_a]))

        def layout(operand: Operand, kind: int) -> int:
            own, (rows, columns) = problem.layout(operand), problem.stored_shape(operand)
            value: int = lt.matrix_layout_create(kind, columns, rows, own.ld)
            made.callback(lt.matrix_layout_destroy, value)
            if problem.batch != 1:
                put, names = lt.matrix_layout_set_attribute, lt.MatrixLayoutAttribute
                _set(put, value, names.BATCH_COUNT, np.int32(problem.batch))
                _set(put, value, names.STRIDED_BATCH_OFFSET, np.int64(own.batch_stride))
            return value

        return product, layout("a", inputs), layout("b", inputs), layout("d", output)

    def _put_scales(self, product: int, rows: Memory, columns: Memory) -> None:
        """A number for each row of op(A) and each column of op(B); seen transposed, B comes first."""
        put, names = self._library.matmul_desc_set_attribute, self._library.MatmulDescAttribute
        for operand, memory in (("A", columns), ("B", rows)):
            _set(put, product, names[f"{operand}_SCALE_MODE"], np.int32(_OUTER_VECTORS))
            _set(put, product, names[f"{operand}_SCALE_POINTER"], np.uint64(int(memory.handle)))

    def _first(self, handle: int, descriptors: Sequence[int], addresses: Sequence[int]) -> np.ndarray[Any, Any]:
        """The algorithm that the heuristic names first for matrices at these addresses, a cublasLtMatmulAlgo_t."""
        lt = self._library
        found, count = np.zeros(1, lt.matmul_heuristic_result_dtype), np.zeros(1, np.int32)
        put, names = lt.matmul_preference_set_attribute, lt.MatmulPreferenceAttribute
        preference: int = lt.matmul_preference_create()
        try:
            _set(put, preference, names.MAX_WORKSPACE_BYTES, np.uint64(WORKSPACE_BYTES))
            for operand, place in zip("ABCD", addresses, strict=True):
                alignment = np.uint32(min(place & -place, _ALIGNMENT))
                _set(put, preference, names[f"MIN_ALIGNMENT_{operand}_BYTES"], alignment)
            lt.matmul_algo_get_heuristic(
                handle, *descriptors, preference, 1, found.ctypes.data, count.ctypes.data
            )  # fmt: skip
        finally:
            lt.matmul_preference_destroy(preference)
        if not count[0] or found["state"][0]:
            raise lt.cuBLASLtError(int(found["state"][0]) or _NOT_SUPPORTED)
        return found["algo"]


_OUTER_VECTORS = 3
"""CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F of cublasLt.h."""

_NOT_SUPPORTED = 15
"""CUBLAS_STATUS_NOT_SUPPORTED of cublas_api.h: what the heuristic says where it names none."""


def _set(put: Callable[[int, int, int, int], None], descriptor: int, attribute: int, value: np.generic) -> None:
    held = np.array(value)
    put(descriptor, attribute, held.ctypes.data, held.nbytes)
