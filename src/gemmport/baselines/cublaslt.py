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
from gemmport.core.errors import LaunchError
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

    FP8 has neither scales nor fast accumulation, like `torch._scaled_mm` with scales of 1 and `use_fast_accum=False`.
    """

    name = "cublaslt"
    bindings = "nvmath.bindings.cublasLt"
    title = "cuBLASLt"
    types = _TYPES

    def cut(self, problem: GemmProblem, device: DeviceInfo) -> Cut | None:
        """14 digits of sums of FP8 on compute capability 8.9 and 9.0 (docs/verification.md)."""
        cuts = cuts_sums_of_float8(device) or is_hopper(device)
        return _FLOAT8_CUT if problem.dtype in FLOAT8S and cuts else super().cut(problem, device)

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
        lt, handle = self._library, self._handles.on(backend)
        # cuBLASLt is column-major: it sees every stored matrix transposed, and computes Dᵀ = op(B)ᵀ · op(A)ᵀ.
        a, b, d = (address(problem, operands, operand) for operand in ("a", "b", "d"))
        alpha, beta = (np.array(value, problem.accumulator.numpy) for value in (problem.alpha, problem.beta))
        kept = dict(operands)  # it knows the memory by its address alone
        with ExitStack() as made:
            made.callback(kept.clear)
            try:
                product, of_a, of_b, of_d = self._described(problem, made)
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


_NOT_SUPPORTED = 15
"""CUBLAS_STATUS_NOT_SUPPORTED of cublas_api.h: what the heuristic says where it names none."""


def _set(put: Callable[[int, int, int, int], None], descriptor: int, attribute: int, value: np.generic) -> None:
    held = np.array(value)
    put(descriptor, attribute, held.ctypes.data, held.nbytes)
