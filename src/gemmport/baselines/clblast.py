"""CLBlast, through its C interface."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_size_t, c_void_p
from functools import partial
from pathlib import Path

from gemmport.backends.base import Memory
from gemmport.baselines._ctypes import QUEUE, OpenCLLibrary
from gemmport.problem import GemmProblem, Operand


class CLBlast(OpenCLLibrary):
    """CLBlast{S,D,C,Z,H}gemm, and for a batch its gemmStridedBatched."""

    name = "clblast"
    how_to_get = "Debian/Ubuntu: apt install libclblast1; or name the library in GEMMPORT_CLBLAST"
    title = "CLBlast"
    soname = "libclblast.so.1"
    variable = "GEMMPORT_CLBLAST"
    row_major = 101
    types = (*OpenCLLibrary.types, "float16 summed in float16")
    transposes = {"N": 111, "T": 112, "C": 113, "R": 111}  # noqa: RUF012 - annotated as a class's in the base

    def __init__(self) -> None:
        super().__init__()
        self._single = self._functions("CLBlast{}gemm", QUEUE, c_void_p)
        self._batched = self._functions("CLBlast{}gemmStridedBatched", c_size_t, QUEUE, c_void_p, strided=True)

    @property
    def version(self) -> str:
        """From the name of the file that Linux loaded: the library has no function that tells."""
        maps = Path("/proc/self/maps")
        found = re.search(r"libclblast\.so\.(\S+)$", maps.read_text(), re.MULTILINE) if maps.exists() else None
        return found.group(1) if found else "unknown"

    def _calls(
        self, problem: GemmProblem, operands: Mapping[Operand, Memory], queue: object
    ) -> Sequence[Callable[[], int]]:
        types = problem.types
        if problem.batch == 1:
            return [partial(self._single[types], *self._product(problem, operands), queue, None)]
        product = self._product(problem, operands, strided=True)
        return [partial(self._batched[types], *product, problem.batch, queue, None)]
