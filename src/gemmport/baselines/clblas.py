"""clBLAS, through its C interface."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_uint, c_void_p
from functools import partial

from gemmport.backends.objects import Memory
from gemmport.baselines._ctypes import QUEUE, OpenCLLibrary
from gemmport.core.errors import BaselineUnavailableError
from gemmport.core.problem import GemmProblem, Operand


class ClBLAS(OpenCLLibrary):
    """clblas{S,D,C,Z}gemm, once per matrix of a batch."""

    name = "clblas"
    how_to_get = (
        "Ubuntu 22.04: apt install libclblas2; elsewhere build github.com/clMathLibraries/clBLAS (about two minutes) "
        "and name the library in GEMMPORT_CLBLAS"
    )
    title = "clBLAS"
    soname = "libclBLAS.so.2"
    variable = "GEMMPORT_CLBLAS"
    row_major = 0
    transposes = {"N": 0, "T": 1, "C": 2, "R": 0}  # noqa: RUF012 - annotated as a class's in the base

    def __init__(self) -> None:
        super().__init__()
        self._gemm = self._functions("clblas{}gemm", c_uint, QUEUE, c_uint, c_void_p, c_void_p)
        if code := self._symbol("clblasSetup")():
            raise BaselineUnavailableError(f"clBLAS does not start: clblasSetup returns error {code}")

    @property
    def version(self) -> str:
        numbers = [c_uint(), c_uint(), c_uint()]
        self._symbol("clblasGetVersion")(*map(ctypes.byref, numbers))
        return ".".join(str(number.value) for number in numbers)

    def _calls(
        self, problem: GemmProblem, operands: Mapping[Operand, Memory], queue: object
    ) -> Sequence[Callable[[], int]]:
        gemm = self._gemm[problem.types]
        products = (self._product(problem, operands, matrix=i) for i in range(problem.batch))
        return [partial(gemm, *product, 1, queue, 0, None, None) for product in products]
