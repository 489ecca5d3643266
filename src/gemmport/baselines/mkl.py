"""oneMKL, of the package from PyPI."""

from __future__ import annotations

import re
from ctypes import c_int, create_string_buffer
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from gemmport.baselines._cblas import HostBLAS
from gemmport.core.errors import BaselineUnavailableError

_LIBRARY = re.compile(r"(lib)?mkl_rt(\.\d)?\.(so|dll|dylib)(\.\d)?")
"""The library that chooses oneMKL's others for the processor and for threads."""


class MKL(HostBLAS):
    """oneMKL on the host's operands, with as many threads as there are physical cores."""

    name = "mkl"
    title = "oneMKL"
    how_to_get = "pip install mkl"

    @property
    def version(self) -> str:
        """The library's own."""
        text = create_string_buffer(256)
        told = self._library["mkl_get_version_string"]
        told.argtypes, told.restype = (type(text), c_int), None
        told(text, len(text))
        found = re.search(r"Version (\d[\d.]*)", text.value.decode(errors="replace"))
        return found[1] if found else "unknown"

    def _file(self) -> Path:
        try:
            listed = files("mkl") or []
        except PackageNotFoundError as error:
            raise BaselineUnavailableError(f"oneMKL is not installed: {error}; {self.how_to_get}") from error
        found = [file for file in listed if _LIBRARY.fullmatch(file.name)]
        if not found:
            raise BaselineUnavailableError(f"oneMKL is not installed: the package mkl has no mkl_rt; {self.how_to_get}")
        return Path(str(found[0].locate()))
