"""What the OpenCL libraries with a C interface share: finding the library, argument lists, errors."""

from __future__ import annotations

import ctypes
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_double, c_float, c_int, c_size_t, c_ushort, c_void_p
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.baselines.base import Baseline, BoundBaseline, HostArray
from gemmport.core.errors import BaselineUnavailableError, LaunchError
from gemmport.core.problem import OPERANDS, GemmProblem, Op, Operand

Function = Callable[..., int]
"""A function of a library; it returns 0, or the code of an error."""

QUEUE = ctypes.POINTER(c_void_p)
"""A cl_command_queue*: these libraries take pointers to queues."""

_MATRIX = (c_void_p, c_size_t, c_size_t)  # cl_mem, offset, leading dimension; both count elements


class _Float2(ctypes.Structure):
    """A cl_float2, by value."""

    _fields_ = (("real", c_float), ("imag", c_float))


class _Double2(ctypes.Structure):
    """A cl_double2, by value."""

    _fields_ = (("real", c_double), ("imag", c_double))


@dataclass(frozen=True)
class Precision:
    """BLAS's letter of a type, and how its functions take a scalar."""

    letter: str
    scalar: Any
    convert: Callable[[Any], object]


# By the problem's types. H computes in halves, which it takes as their bits.
PRECISIONS = {
    "float16 summed in float16": Precision("H", c_ushort, lambda x: int(np.float16(x).view(np.uint16))),
    "float32": Precision("S", c_float, float),
    "float64": Precision("D", c_double, float),
    "complex64": Precision("C", _Float2, lambda x: _Float2(x.real, x.imag)),
    "complex128": Precision("Z", _Double2, lambda x: _Double2(x.real, x.imag)),
}

# One call at a time: clblas-threads, clblast-cache-race.
_lock = threading.Lock()


class OpenCLLibrary(Baseline):
    """A BLAS on OpenCL memory, reached through its C interface."""

    backends = frozenset({"opencl"})
    title: ClassVar[str]
    """As the library spells its own name."""
    soname: ClassVar[str]
    variable: ClassVar[str]
    """The environment variable that may name the library's file."""
    row_major: ClassVar[int]
    transposes: ClassVar[Mapping[Op, int]]
    types: ClassVar[tuple[str, ...]] = ("float32", "float64", "complex64", "complex128")
    """What it computes, of `PRECISIONS`."""

    def __init__(self) -> None:
        file = os.environ.get(self.variable) or self.soname
        try:
            self._library = ctypes.CDLL(file)
        except OSError as error:
            named = f"{self.variable} = " if file != self.soname else ""
            raise BaselineUnavailableError(
                f"{self.title} is not installed: {named}{file} cannot be loaded ({error}); {self.how_to_get}"
            ) from error

    @abstractmethod
    def _calls(
        self, problem: GemmProblem, operands: Mapping[Operand, Memory], queue: object
    ) -> Sequence[Callable[[], int]]:
        """The calls that compute a problem, in order; `queue` is a cl_command_queue*."""

    def _tune(self, problem: GemmProblem, backend: Backend) -> Mapping[str, Mapping[str, int]]:
        """Gives the library parameters for a device and type, and tells which, by kernel; none where it keeps its own."""
        return {}

    def unsupported(self, problem: GemmProblem) -> str | None:
        """Why it cannot compute a problem; None where it can."""
        if problem.types not in self.types:
            return f"{self.title} computes {', '.join(self.types)}, not {problem.types}"
        if problem.dtype.kind == "complex" and "R" in problem.ops:
            return f"{self.title} does not conjugate without transposing ({problem.ops})"
        if problem.empty or problem.k == 0:
            # CLBlast answers with an error, clBLAS with a loop that does not end (clblas-no-terms).
            return f"{self.title} computes no product without elements or without terms: {problem}"
        for operand in OPERANDS:
            if (span := problem.span(operand)) >= 2**31:
                return f"{self.title} counts elements in 32 bits: operand {operand} spans {span:,}"
        return None

    def bind(
        self,
        problem: GemmProblem,
        backend: Backend,
        operands: Mapping[Operand, Memory],
        host: Mapping[Operand, HostArray],
    ) -> BoundBaseline:
        """Prepares a product; `enqueue` raises LaunchError, with the library's own code, where it is refused."""
        with _lock:
            tuning = self._tune(problem, backend)
        queue = ctypes.byref(c_void_p(backend.queue_handle))
        calls = self._calls(problem, operands, queue)
        kept = dict(operands)  # the calls know the memory by its handle alone

        def enqueue() -> None:
            with _lock:
                for call in calls:
                    if code := call():
                        raise LaunchError(
                            f"{backend.device.label}: {self.title} refuses {problem} with error {code}; "
                            "its C header tells what the code means"
                        )

        return BoundBaseline(self.name, enqueue, "device", close=kept.clear, tuning=tuning)

    def _functions(self, symbol: str, *tail: Any, strided: bool = False) -> dict[str, Function]:
        """The function per data type; in the symbol's name, {} stands for BLAS's letter of the type.

        Args:
            tail: types of the arguments after the last matrix. strided: each matrix is followed by its batch stride.
        """
        matrix = (*_MATRIX, c_size_t) if strided else _MATRIX
        functions: dict[str, Function] = {}
        for types in self.types:
            precision = PRECISIONS[types]
            function = self._symbol(symbol.format(precision.letter))
            function.argtypes = (
                c_int, c_int, c_int, c_size_t, c_size_t, c_size_t,
                precision.scalar, *matrix, *matrix, precision.scalar, *matrix, *tail,
            )  # fmt: skip
            functions[types] = function
        return functions

    def _symbol(self, name: str) -> Any:
        """A function of the library that returns an int."""
        try:
            function = self._library[name]
        except AttributeError as error:
            raise BaselineUnavailableError(
                f"{self._library._name} is not {self.title}, or too old: it has no function {name}; {self.how_to_get}"
            ) from error
        function.restype = c_int
        return function

    def _product(
        self, problem: GemmProblem, operands: Mapping[Operand, Memory], *, matrix: int = 0, strided: bool = False
    ) -> list[Any]:
        """The arguments up to the last matrix, for one matrix of the batch or, with strides, for all from it on."""

        def place(operand: Operand) -> list[int]:
            layout = problem.layout(operand)
            offset = layout.offset + matrix * layout.batch_stride
            stride = [layout.batch_stride] if strided else []
            return [operands[operand].handle, offset, layout.ld, *stride]

        scalar = PRECISIONS[problem.types].convert
        return [
            self.row_major, self.transposes[problem.trans_a], self.transposes[problem.trans_b],
            problem.m, problem.n, problem.k,
            scalar(problem.alpha), *place("a"), *place("b"), scalar(problem.beta), *place("d"),
        ]  # fmt: skip
