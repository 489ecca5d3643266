"""OpenBLAS, of the package from PyPI: a newer one than NumPy may have been built with."""

from __future__ import annotations

import importlib
import re
from ctypes import c_char_p
from pathlib import Path

from gemmport.baselines._cblas import HostBLAS
from gemmport.core.errors import BaselineUnavailableError


class OpenBLAS(HostBLAS):
    """OpenBLAS on the host's operands. Its functions have a prefix, so that no other BLAS of the process is taken for it."""

    name = "openblas"
    title = "OpenBLAS"
    how_to_get = "pip install scipy-openblas32"
    prefix = "scipy_"
    # 0.3.34 counts the strides of a batch in real numbers where they are complex, and so multiplies halves of matrices.
    batched = ("float32", "float64")

    @property
    def version(self) -> str:
        """The library's own."""
        config = self._library["scipy_openblas_get_config"]
        config.restype = c_char_p
        found = re.search(r"OpenBLAS\s+(\S+)", config().decode())
        return found[1] if found else "unknown"

    def _file(self) -> Path:
        try:
            folder = Path(importlib.import_module("scipy_openblas32").get_lib_dir())
        except ImportError as error:
            raise BaselineUnavailableError(f"OpenBLAS is not installed: {error}; {self.how_to_get}") from error
        found = sorted(folder.glob("*scipy_openblas.*"))
        if not found:
            raise BaselineUnavailableError(f"OpenBLAS is not installed: {folder} has no library; {self.how_to_get}")
        return found[0]
