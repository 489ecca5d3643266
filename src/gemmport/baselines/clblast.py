"""CLBlast, through its C interface."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_void_p
from functools import partial
from pathlib import Path

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.baselines import _clblast_tuning
from gemmport.baselines._ctypes import PRECISIONS, QUEUE, OpenCLLibrary
from gemmport.core.errors import LaunchError
from gemmport.core.problem import GemmProblem, Operand

_PRECISION = {"H": 16, "S": 32, "D": 64, "C": 3232, "Z": 6464}
"""CLBlastPrecision of clblast_c.h, by BLAS's letter of the type."""


class CLBlast(OpenCLLibrary):
    """CLBlast{S,D,C,Z,H}gemm, and for a batch its gemmStridedBatched.

    Where GEMMPORT_CLBLAST_TUNING names a folder of what its tuners found, a product is computed with that, or not at all.
    """

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
        folder = os.environ.get(_clblast_tuning.VARIABLE)
        self._found = _clblast_tuning.read(Path(folder)) if folder else ()
        self._in_force: dict[tuple[int, int], Mapping[str, Mapping[str, int]]] = {}

    @property
    def version(self) -> str:
        """From the name of the file that Linux loaded: the library has no function that tells."""
        maps = Path("/proc/self/maps")
        found = re.search(r"libclblast\.so\.(\S+)$", maps.read_text(), re.MULTILINE) if maps.exists() else None
        return found.group(1) if found else "unknown"

    def _tune(self, problem: GemmProblem, backend: Backend) -> Mapping[str, Mapping[str, int]]:
        """Overrides what CLBlast has of its own, once for a device and type.

        Raises:
            BaselineUnavailableError: its tuners' results are not of this device and type.
            LaunchError: it refuses them.
        """
        if not self._found:
            return {}
        device, precision = int(backend.queue.device.int_ptr), _PRECISION[PRECISIONS[problem.types].letter]
        if (device, precision) not in self._in_force:
            tuned = _clblast_tuning.fastest(self._found, backend.device.name, precision)
            for one in tuned.values():
                self._override(device, one)
            self._in_force[device, precision] = {kernel: one.parameters for kernel, one in sorted(tuned.items())}
        return self._in_force[device, precision]

    def _override(self, device: int, tuned: _clblast_tuning.Tuned) -> None:
        override = self._symbol("CLBlastOverrideParameters")
        override.argtypes = (c_void_p, c_char_p, c_int, c_size_t, POINTER(c_char_p), POINTER(c_size_t))
        count = len(tuned.parameters)
        names = (c_char_p * count)(*(name.encode() for name in tuned.parameters))
        values = (c_size_t * count)(*tuned.parameters.values())
        if code := override(device, tuned.kernel.encode(), tuned.precision, count, names, values):
            raise LaunchError(
                f"CLBlast {self.version} refuses the parameters of {tuned.kernel} in {tuned.file} with error {code}: "
                f"{', '.join(tuned.parameters)} must have all that the kernel has; tune it with this version's tuner"
            )

    def _calls(
        self, problem: GemmProblem, operands: Mapping[Operand, Memory], queue: object
    ) -> Sequence[Callable[[], int]]:
        types = problem.types
        if problem.batch == 1:
            return [partial(self._single[types], *self._product(problem, operands), queue, None)]
        product = self._product(problem, operands, strided=True)
        return [partial(self._batched[types], *product, problem.batch, queue, None)]
