"""What BLAS libraries of the host share: C functions of one signature, on NumPy arrays."""

from __future__ import annotations

import ctypes
from abc import abstractmethod
from collections.abc import Callable, Mapping
from ctypes import c_double, c_float, c_int, c_void_p
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.baselines.base import Baseline, BoundBaseline, HostArray
from gemmport.core.errors import BaselineUnavailableError
from gemmport.core.problem import GemmProblem, Op, Operand

_ROW_MAJOR = 101
_TRANSPOSES: Mapping[Op, int] = {"N": 111, "T": 112, "C": 113, "R": 111}
"""CBLAS_LAYOUT and CBLAS_TRANSPOSE of cblas.h; conjugated numbers (R) are refused where numbers are complex."""

_PRECISIONS: Mapping[str, tuple[str, Any]] = {
    "float32": ("s", c_float),
    "float64": ("d", c_double),
    "complex64": ("c", c_void_p),
    "complex128": ("z", c_void_p),
}
"""By the problem's types, the letter of the function and how it takes a scalar: complex ones by their address."""

_MOST_ELEMENTS = 2**31 - 1
"""Between two matrices of a batch: these functions count in C's int."""


class HostBLAS(Baseline):
    """cblas_{s,d,c,z}gemm, and for a batch its gemm_batch_strided. It uses as many threads as it takes by itself."""

    backends = frozenset()
    title: ClassVar[str]
    """As the library spells its own name."""
    prefix: ClassVar[str] = ""
    """Of its functions' names."""
    batched: ClassVar[tuple[str, ...]] = tuple(_PRECISIONS)
    """The types in which a batch is one call; in others it is a call for each matrix."""

    def __init__(self) -> None:
        file = self._file()
        try:
            self._library = ctypes.CDLL(str(file))
        except OSError as error:
            raise BaselineUnavailableError(
                f"{self.title} does not start: {file} cannot be loaded ({error}); {self.how_to_get}"
            ) from error
        self._single = self._functions("cblas_{}gemm", tuple(_PRECISIONS), ())
        self._batched = self._functions("cblas_{}gemm_batch_strided", self.batched, (c_int,))

    @abstractmethod
    def _file(self) -> Path:
        """The library.

        Raises:
            BaselineUnavailableError: it is not installed.
        """

    def unsupported(self, problem: GemmProblem) -> str | None:
        """Why it cannot compute a problem; None where it can."""
        if problem.types not in _PRECISIONS:
            return f"{self.title} computes {', '.join(_PRECISIONS)}, not {problem.types}"
        if problem.dtype.kind == "complex" and "R" in problem.ops:
            return f"{self.title} does not conjugate without transposing ({problem.ops})"
        if (
            problem.batch > 1
            and max(problem.m * problem.n, problem.m * problem.k, problem.k * problem.n) > _MOST_ELEMENTS
        ):
            return f"{self.title} counts the elements between matrices of a batch in 32 bits"
        return None

    def bind(
        self,
        problem: GemmProblem,
        backend: Backend,
        operands: Mapping[Operand, Memory],
        host: Mapping[Operand, HostArray],
    ) -> BoundBaseline:
        """Prepares a product on the host.

        Its result is an array of its own, (batch, m, n), into which C is copied each time where beta is not 0: the library
        updates in place.
        """
        a, b = np.ascontiguousarray(host["a"]), np.ascontiguousarray(host["b"])
        result = np.empty((problem.batch, problem.m, problem.n), problem.output.numpy)
        scalars = [np.array(value, problem.accumulator.numpy) for value in (problem.alpha, problem.beta)]
        alpha, beta = (
            value.ctypes.data if problem.dtype.kind == "complex" else value.item() for value in scalars
        )  # fmt: skip
        head = (
            _ROW_MAJOR, _TRANSPOSES[problem.trans_a], _TRANSPOSES[problem.trans_b], problem.m, problem.n, problem.k, alpha,
        )  # fmt: skip
        if problem.batch > 1 and problem.types in self.batched:
            places = [_place(array, 0, strided=True) for array in (a, b, result)]
            calls = [
                partial(self._batched[problem.types], *head, *places[0], *places[1], beta, *places[2], problem.batch)
            ]
        else:
            function = self._single[problem.types]
            each = ([_place(array, matrix) for array in (a, b, result)] for matrix in range(problem.batch))
            calls = [partial(function, *head, *places[0], *places[1], beta, *places[2]) for places in each]
        kept = a, b, scalars  # the calls know them by their addresses alone
        c = host["c"] if problem.beta != 0 else None

        def enqueue(_kept: object = kept) -> None:
            if c is not None:
                np.copyto(result, c)
            for call in calls:
                call()

        return BoundBaseline(self.name, enqueue, "host", result)

    def _functions(
        self, symbol: str, types: tuple[str, ...], tail: tuple[Any, ...]
    ) -> dict[str, Callable[..., None]]:  # fmt: skip
        """The function of each of some data types; in the symbol's name, {} stands for BLAS's letter of the type.

        Raises:
            BaselineUnavailableError: the library lacks one.
        """
        found: dict[str, Callable[..., None]] = {}
        matrix = (c_void_p, c_int, *((c_int,) if tail else ()))
        for each in types:
            letter, scalar = _PRECISIONS[each]
            name = self.prefix + symbol.format(letter)
            try:
                function = self._library[name]
            except AttributeError as error:
                raise BaselineUnavailableError(
                    f"{self._library._name} is not {self.title}, or too old: it has no function {name}; {self.how_to_get}"
                ) from error
            function.restype = None
            function.argtypes = (*(c_int,) * 6, scalar, *matrix, *matrix, scalar, *matrix, *tail)
            found[each] = function
        return found


def _place(array: HostArray, matrix: int, *, strided: bool = False) -> tuple[int, ...]:
    """Address and leading dimension of a matrix and, strided, the elements from it to the next."""
    rows, columns = array.shape[1:]
    return array.ctypes.data + matrix * array.strides[0], columns, *((rows * columns,) if strided else ())
