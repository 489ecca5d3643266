"""CUDA C++ to machine code, without PyCUDA, without a GPU and without a driver: NVRTC, or else nvcc."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from gemmport.errors import CompileError

HOW_TO_GET = "pip install 'gemmport[nvrtc]', or put the CUDA toolkit's nvcc on the PATH"

OPTIONS = ("--std=c++17", "--generate-line-info")


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


def compile_cuda(source: str, architecture: str) -> bytes:
    """A cubin for an architecture ("sm_90", or "sm_90a" with its own instructions).

    Where the chip is newer than the compiler, it is PTX, which the driver compiles.

    Raises:
        CompileError: the source has errors (with the log), or the compiler no longer knows the architecture.
    """
    number, suffix = _parse(architecture)
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
    if (bindings := nvrtc()) is not None:
        return _with_nvrtc(bindings, source, target)
    return _with_nvcc(source, target)


def _parse(architecture: str) -> tuple[int, str]:
    found = re.fullmatch(r"sm_(\d+)([af]?)", architecture)
    if not found:
        raise CompileError(f"{architecture!r} is no CUDA architecture: they are named like sm_90 or sm_90a")
    return int(found.group(1)), found.group(2)


def _with_nvrtc(bindings: Any, source: str, target: str) -> bytes:
    def check(result: Any, *values: Any) -> Any:
        if result != bindings.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"NVRTC: {result.name}")
        return values[0] if values else None

    program = check(*bindings.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
    try:
        options = [option.encode() for option in (f"--gpu-architecture={target}", *OPTIONS)]
        (result,) = bindings.nvrtcCompileProgram(program, len(options), options)
        if result != bindings.nvrtcResult.NVRTC_SUCCESS:
            log = b" " * check(*bindings.nvrtcGetProgramLogSize(program))
            check(*bindings.nvrtcGetProgramLog(program, log))
            raise CompileError(
                f"{compiler()} refuses the source", log=log.decode(errors="replace").rstrip("\0"), source=source
            )
        size, read = (
            (bindings.nvrtcGetCUBINSize, bindings.nvrtcGetCUBIN)
            if target.startswith("sm_")
            else (bindings.nvrtcGetPTXSize, bindings.nvrtcGetPTX)
        )
        binary: bytes = b" " * check(*size(program))
        check(*read(program, binary))
        return binary
    finally:
        bindings.nvrtcDestroyProgram(program)


def _with_nvcc(source: str, target: str) -> bytes:
    path = nvcc()
    if path is None:
        raise CompileError(f"there is no CUDA compiler: {HOW_TO_GET}")
    form = "--cubin" if target.startswith("sm_") else "--ptx"
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder, "kernel.cu"), Path(folder, "out")
        file.write_text(source, encoding="utf-8")
        command = [path, form, f"--gpu-architecture={target}", *OPTIONS, "-o", str(out), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompileError(f"{compiler()} refuses the source", log=done.stderr.replace(folder, ""), source=source)
        return out.read_bytes()


def _run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def disassemble_cubin(binary: bytes) -> str:
    """SASS of a cubin, by the CUDA toolkit's nvdisasm; PTX is text already.

    Raises:
        FileNotFoundError: nvdisasm is not on the PATH.
    """
    if not binary.startswith(b"\x7fELF"):
        return binary.decode(errors="replace").rstrip("\0")
    tool = shutil.which("nvdisasm")
    if tool is None:
        raise FileNotFoundError("nvdisasm, of the CUDA toolkit, is not on the PATH")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        return _run([tool, file.name])
