"""What the baselines cuBLAS and cuBLASLt share: types by their numbers in NVIDIA's headers, handles, and how they are found."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.baselines._packages import imported
from gemmport.baselines.base import Baseline
from gemmport.core.errors import BaselineUnavailableError
from gemmport.core.precision import FULL
from gemmport.core.problem import GemmProblem, Op, Operand

HOW_TO_GET = "pip install 'gemmport[cuda]' on a machine with NVIDIA's driver"

WORKSPACE_BYTES = 64 * 2**20
"""Twice the 32 MiB that NVIDIA's documentation recommends for Hopper: a baseline has all the workspace it likes."""

# cudaDataType of library_types.h: R for real, C for complex, BF for bfloat16, I for integers, 8F for FP8.
_R_32F, _R_64F, _R_16F, _R_8I, _C_32F, _C_64F, _R_32I, _R_16BF = 0, 1, 2, 3, 4, 5, 10, 14
_R_8F_E4M3 = 28

# cublasComputeType of cublas_api.h.
_IN_16F, _IN_32F, _IN_32F_FAST_TF32, _IN_64F, _IN_32I = 64, 68, 77, 70, 72

TYPES = MappingProxyType({
    "float16": (_R_16F, _R_16F, _IN_32F),
    "float16→float32": (_R_16F, _R_32F, _IN_32F),
    "float16 summed in float16": (_R_16F, _R_16F, _IN_16F),
    "bfloat16": (_R_16BF, _R_16BF, _IN_32F),
    "bfloat16→float32": (_R_16BF, _R_32F, _IN_32F),
    "float32": (_R_32F, _R_32F, _IN_32F),
    "float32 rounded to tf32": (_R_32F, _R_32F, _IN_32F_FAST_TF32),
    "float64": (_R_64F, _R_64F, _IN_64F),
    "complex64": (_C_32F, _C_32F, _IN_32F),
    "complex128": (_C_64F, _C_64F, _IN_64F),
    "int8→int32": (_R_8I, _R_32I, _IN_32I),
})  # fmt: skip
"""Inputs, output and arithmetic by the problem's types. Float32 is computed in TF32 where, and only where, it says so."""

FLOAT8_TYPES = MappingProxyType({
    "float8_e4m3fn→float32": (_R_8F_E4M3, _R_32F, _IN_32F),
    "float8_e4m3fn→float16": (_R_8F_E4M3, _R_16F, _IN_32F),
    "float8_e4m3fn→bfloat16": (_R_8F_E4M3, _R_16BF, _IN_32F),
})  # fmt: skip
"""What cuBLASLt computes beside these. Of its documentation's table of FP8, no line has E5M2 in A and in B."""

SCALARS = MappingProxyType({
    "float16": _R_16F, "float32": _R_32F, "float64": _R_64F, "complex64": _C_32F, "complex128": _C_64F, "int32": _R_32I,
})  # fmt: skip
"""The type of alpha and beta, by that of the sums."""

OPERATIONS: MappingProxyType[Op, int] = MappingProxyType({"N": 0, "T": 1, "C": 2, "R": 0})
"""cublasOperation_t of cublas_api.h."""

_INPUTS: tuple[Operand, ...] = ("a", "b")


def _version(library: Any, title: str) -> str:
    """A library's version, for which it is loaded.

    Raises:
        BaselineUnavailableError: it, or the driver, is not there.
    """
    try:
        return ".".join(str(library.get_property(part)) for part in range(3))
    except RuntimeError as error:  # what nvmath raises where the library or the driver is not found
        raise BaselineUnavailableError(f"{title} does not start: {error}; {HOW_TO_GET}") from error


def _why_not_computed(problem: GemmProblem, types: Iterable[str], title: str) -> str | None:
    """Why a library that computes some types does not compute a problem; None where it does."""
    if problem.types not in types:
        return f"{title} computes {', '.join(types)}, not {problem.types}"
    if problem.dtype.kind == "complex" and "R" in problem.ops:
        return f"{title} does not conjugate without transposing ({problem.ops})"
    if problem.dtype.name == "int8" and any(
        size % 4 for o in _INPUTS for size in (*problem.stored_shape(o), problem.alignment(o))
    ):
        rule = "takes int8 matrices only where their rows, columns and alignment are multiples of 4"
        return f"{title} {rule} (quirk cublas-int8-multiples)"
    return None


def address(problem: GemmProblem, operands: Mapping[Operand, Memory], operand: Operand) -> int:
    """Of an operand's first element."""
    offset = problem.layout(operand).offset * problem.element_type(operand).itemsize
    return int(operands[operand].handle) + offset


@dataclass(frozen=True)
class Handle:
    """A library's handle on a backend, and its workspace there, of `WORKSPACE_BYTES`."""

    value: int
    workspace: Memory


class Handles:
    """A library's handles, one for each backend, made at its first use. Thread-safe by its own lock."""

    def __init__(self, create: Callable[[Backend, Memory], int]) -> None:
        """`create` makes a handle in a backend's context, for a workspace."""
        self._create = create
        # A handle is destroyed with its context: by the time its backend is collected, the context may be gone.
        self._made: WeakKeyDictionary[Backend, Handle] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def on(self, backend: Backend) -> Handle:
        """The backend's."""
        with self._lock:
            if backend not in self._made:
                workspace = backend.allocate(WORKSPACE_BYTES)
                with backend.current():
                    self._made[backend] = Handle(self._create(backend, workspace), workspace)
            return self._made[backend]


class NVIDIALibrary(Baseline):
    """A library of NVIDIA's, through nvmath-python's bindings.

    Attributes:
        bindings: their module. title: the library's name for people. types: that it computes, as keys.
    """

    backends = frozenset({"cuda"})
    how_to_get = HOW_TO_GET
    bindings: ClassVar[str]
    title: ClassVar[str]
    types: ClassVar[Mapping[str, tuple[int, int, int]]]

    def __init__(self) -> None:
        self._library = imported(self.bindings, "nvmath-python", self.how_to_get)
        self._version = _version(self._library, self.title)
        self._handles = Handles(self._create)
        self._lock = threading.Lock()

    @property
    def version(self) -> str:
        return self._version

    def unsupported(self, problem: GemmProblem) -> str | None:
        """Why it can compute a problem on no device; `bind` may refuse what it cannot compute on one."""
        return _why_not_computed(problem, self.types, self.title)

    def rounds_by_itself(self, problem: GemmProblem) -> bool:
        return problem.precision != FULL

    @abstractmethod
    def _create(self, backend: Backend, workspace: Memory) -> int:
        """A handle in a backend's context, which is current.

        Raises:
            LaunchError: the library does not start.
        """
