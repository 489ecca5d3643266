"""The pieces that each backend stands on: Python package, driver, compiler, runtimes. Looked at without starting it."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gemmport.backends import _nvrtc
from gemmport.core.errors import CompileError


@dataclass(frozen=True)
class Part:
    """One piece.

    Attributes:
        present: whether it is there and can be used.
        detail: its version or place; or what is wrong with it.
        remedy: how to get or mend it; empty where it is present.
    """

    name: str
    present: bool
    detail: str
    remedy: str = ""


def parts(backend: str) -> tuple[Part, ...]:
    """The pieces of a backend on this machine; none for a backend that nothing is known of here."""
    return tuple(_PARTS.get(backend, lambda: iter(()))())


def _cuda() -> Iterator[Part]:
    if package := _package("pycuda"):
        yield package
    else:
        yield _toolkit()
    yield _driver()
    try:
        yield Part("compiler", present=True, detail=_nvrtc.compiler())
    except CompileError:
        detail = "neither NVRTC with its Python bindings nor nvcc is there"
        yield Part("compiler", present=False, detail=detail, remedy=_nvrtc.HOW_TO_GET)


def _toolkit() -> Part:
    """What PyCUDA is built with; of no interest once it is."""
    root = os.environ.get("CUDA_ROOT", "")
    nvcc = shutil.which("nvcc") or next((str(p) for p in [Path(root, "bin", "nvcc")] if root and p.exists()), "")
    if nvcc:
        return Part("CUDA toolkit", present=True, detail=f"{nvcc}: PyCUDA can be built with it")
    named = f"CUDA_ROOT = {root} holds no bin/nvcc" if root else "nvcc is not on the PATH, CUDA_ROOT is not set"
    return Part(
        "CUDA toolkit",
        present=False,
        detail=f"{named}: PyCUDA has no wheels, pip builds it with the toolkit",
        remedy="install the toolkit (developer.nvidia.com/cuda-downloads); export CUDA_ROOT=/usr/local/cuda",
    )


def _driver() -> Part:
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        remedy = "on a machine with an NVIDIA GPU, install its driver (Ubuntu: sudo ubuntu-drivers install)"
        return Part("NVIDIA's driver", present=False, detail=str(error), remedy=remedy)
    version = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    return Part(
        "NVIDIA's driver", present=True, detail=f"for CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    )


_RUNTIME_WHEELS = ("pocl-binary-distribution", "intel-opencl-rt")


def _opencl() -> Iterator[Part]:
    for name in ("pyopencl", *_RUNTIME_WHEELS):
        if package := _package(name):
            yield package
    if sys.platform != "linux":
        return
    chosen = os.environ.get("OCL_ICD_VENDORS", "")
    folder = Path(chosen or "/etc/OpenCL/vendors")
    if chosen and not folder.exists():
        detail = f"OCL_ICD_VENDORS = {chosen} does not exist, so that the loader finds no runtime there"
        yield Part("OCL_ICD_VENDORS", present=False, detail=detail, remedy="unset OCL_ICD_VENDORS")
    for file in sorted(folder.glob("*.icd")) if folder.is_dir() else [folder] if chosen and folder.exists() else []:
        yield _icd(file)


def _icd(file: Path) -> Part:
    """An ICD file, the loader's note of a runtime: it names the runtime's library."""
    try:
        library = file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        return Part(str(file), present=False, detail=f"cannot be read: {error.strerror}", remedy=f"chmod a+r {file}")
    if Path(library).is_absolute() and not Path(library).exists():
        fault = f"names {library}, which does not exist: its runtime was removed, or moved"
    elif not library:
        fault = "is empty; it must name the library of a runtime"
    elif told := _why_not_loaded(library):
        fault = f"names {library!r}, which cannot be loaded: {told}"
    else:
        return Part(str(file), present=True, detail=library)
    return Part(str(file), present=False, detail=fault, remedy=f"install its runtime again, or rm {file}")


def _why_not_loaded(library: str) -> str:
    """Why the system's loader does not load a library; empty where it does.

    A process of its own tries. Where the library ends that process, this is empty, too: the search for devices tells of that.
    """
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, library], capture_output=True, text=True, check=False
    )
    return done.stderr.strip().rpartition("OSError: ")[2] if done.returncode > 0 else ""


def _package(name: str) -> Part | None:
    """A Python package, where it is installed."""
    try:
        return Part(name, present=True, detail=importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return None


_PARTS: dict[str, Callable[[], Iterator[Part]]] = {"cuda": _cuda, "opencl": _opencl}
