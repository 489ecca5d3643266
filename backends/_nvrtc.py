"""CUDA C++ to machine code, without PyCUDA, without a GPU and without a driver: NVRTC, or else nvcc."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gemmport.backends import _machinecode, _sass
from gemmport.backends._compilation import CUDA_OPTIONS, SPECIFIC
from gemmport.backends.objects import Disassembly, Listing
from gemmport.core.errors import CompileError

HOW_TO_GET = "pip install 'gemmport[nvrtc]', or put the CUDA toolkit's nvcc on the PATH"


@cache
def nvrtc() -> Any | None:
    """The NVRTC bindings, where both they and the library are installed."""
    try:
        from cuda.bindings import nvrtc as bindings  # noqa: PLC0415 - optional

        bindings.nvrtcVersion()  # loads the library
    except (ImportError, RuntimeError):
        return None
    return bindings


@cache
def nvcc() -> str | None:
    """The path of nvcc, where there is one."""
    return shutil.which("nvcc")


@cache
def compiler() -> str:
    """Name and version of the compiler that `compile_cuda` uses.

    Raises:
        CompileError: there is none.
    """
    if (bindings := nvrtc()) is not None:
        _, major, minor = bindings.nvrtcVersion()
        return f"NVRTC {major}.{minor}"
    if (path := nvcc()) is not None:
        found = re.search(r"V(\d[\d.]*)", _run([path, "--version"]))
        return f"nvcc {found.group(1) if found else ''}"
    raise CompileError(f"there is no CUDA compiler: {HOW_TO_GET}")


@cache
def architectures() -> tuple[int, ...]:
    """Compute capabilities that the compiler knows, as 10 · major + minor, in order."""
    if (bindings := nvrtc()) is not None:
        return tuple(sorted(bindings.nvrtcGetSupportedArchs()[1]))
    if (path := nvcc()) is not None:
        return tuple(sorted(int(x) for x in re.findall(r"sm_(\d+)\b", _run([path, "--list-gpu-code"]))))
    raise CompileError(f"there is no CUDA compiler: {HOW_TO_GET}")


@dataclass(frozen=True)
class Compiled:
    """What came of a source.

    Attributes:
        binary: a cubin; or PTX, where the chip is newer than the compiler.
        ptx: what the binary was made from, or is.
        log: what the compiler said.
    """

    binary: bytes
    ptx: str
    log: str


def compile_cuda(source: str, architecture: str) -> bytes:
    """A cubin for an architecture ("sm_90", or "sm_90a" with its own instructions), as the compiler makes it.

    Where the chip is newer than the compiler, it is PTX, which the driver compiles.

    Raises:
        CompileError: the source has errors (with the log), or the compiler no longer knows the architecture.
    """
    return _compile(source, architecture, CUDA_OPTIONS).binary


def disassemble(source: str, architecture: str, function: str) -> Disassembly:
    """What a function of a source becomes on an architecture: PTX, SASS, rescheduled where the source asks for it, and
    resources. It needs no GPU.

    Raises:
        CompileError: as `compile_cuda`.
    """
    compiled = _compile(source, architecture, (*CUDA_OPTIONS, *_verbose()))
    groups = _sass.asked_for(source)
    binary = _sass.rescheduled(compiled.binary, groups) if groups else compiled.binary
    listings = (Listing("PTX", compiled.ptx, f"made by {compiler()}"), _machinecode.sass(binary, function))
    return Disassembly(listings, _machinecode.ptxas_resources(compiled.log, function))


def _verbose() -> tuple[str, ...]:
    """Options that make ptxas say what a kernel takes. From 12.9 on NVRTC keeps what it compiled, without the log."""
    bindings = nvrtc()
    caches = bindings is not None and tuple(bindings.nvrtcVersion()[1:]) >= (12, 9)
    return ("--ptxas-options=-v", *(["--no-cache"] if caches else []))


def _compile(source: str, architecture: str, options: Sequence[str]) -> Compiled:
    number, suffix = _parse(architecture)
    suffix = "a" if SPECIFIC in source else suffix
    known = architectures()
    if number in known:
        target = f"sm_{number}{suffix}"
    elif number > known[-1]:
        target = f"compute_{known[-1]}"  # PTX: the driver compiles it for the newer chip
    else:
        raise CompileError(
            f"{compiler()} does not compile for {architecture}, only for {', '.join(f'sm_{n}' for n in known)}: "
            "for an older GPU install an older one, e.g. pip install nvidia-cuda-nvrtc-cu12"
        )
    bindings = nvrtc()
    if bindings is None:
        return _with_nvcc(source, target, options)
    return _with_nvrtc(bindings, source, target, options)


def _parse(architecture: str) -> tuple[int, str]:
    found = re.fullmatch(r"sm_(\d+)([af]?)", architecture)
    if not found:
        raise CompileError(f"architecture must be named like sm_90 or sm_90a; got {architecture!r}")
    return int(found.group(1)), found.group(2)


def _with_nvrtc(bindings: Any, source: str, target: str, options: Sequence[str]) -> Compiled:
    def check(result: Any, *values: Any) -> Any:
        if result != bindings.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"NVRTC: {result.name}")
        return values[0] if values else None

    program = check(*bindings.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))

    def read(what: str) -> bytes:
        # Not b" " * size, as NVIDIA's examples have it: an empty log is one byte, and Python has one b" " for everybody.
        found = bytearray(check(*getattr(bindings, f"nvrtcGet{what}Size")(program)))
        check(*getattr(bindings, f"nvrtcGet{what}")(program, found))
        return bytes(found)

    def text(what: str) -> str:
        return read(what).decode(errors="replace").rstrip("\0")

    try:
        told = [option.encode() for option in (f"--gpu-architecture={target}", *options)]
        (result,) = bindings.nvrtcCompileProgram(program, len(told), told)
        if result != bindings.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"{compiler()} refuses the source", log=text("ProgramLog"), source=source)
        binary = read("CUBIN" if target.startswith("sm_") else "PTX")
        return Compiled(binary, text("PTX"), text("ProgramLog"))
    finally:
        bindings.nvrtcDestroyProgram(program)


def _with_nvcc(source: str, target: str, options: Sequence[str]) -> Compiled:
    path = nvcc()
    if path is None:
        raise CompileError(f"there is no CUDA compiler: {HOW_TO_GET}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.cu")
        file.write_text(source, encoding="utf-8")
        # What --keep leaves is what the cubin was made from.
        form = ["--cubin", "--keep", "--keep-dir", folder] if target.startswith("sm_") else ["--ptx"]
        out = Path(folder, "out")
        command = [path, *form, f"--gpu-architecture={target}", *options, "-o", str(out), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        log = done.stderr.replace(folder, "")
        if done.returncode != 0:
            raise CompileError(f"{compiler()} refuses the source", log=log, source=source)
        ptx = next(Path(folder).glob("*.ptx"), out)
        return Compiled(out.read_bytes(), ptx.read_text(encoding="utf-8"), log)


def _run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
