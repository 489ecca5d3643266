"""CUDA sources as shared libraries of the host: what the system's C++ compiler makes of them."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from gemmport.core.errors import CompileError
from gemmport.runtime import cache as kept

HERE = Path(__file__).parent

RUNNER = (HERE / "runner.cpp", HERE / "hopper.cpp")

COMPILERS = ("g++", "clang++")

COMMON = (
    "-std=c++17",
    "-O1",
    "-fPIC",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fno-exceptions",
    "-fno-rtti",
    "-w",
)
"""Kernels round where they say so, and read memory as words of other types, as NVIDIA's compiler allows."""

SANITIZERS = (
    "-O0", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
    "-fsanitize-sections=host_shared",
)  # fmt: skip

WORDS = ("-D__global__=", "-D__cluster_dims__(...)=", '-D__shared__=static __attribute__((section("host_shared")))')
"""What a group shares lies in one section, which the runner fills with poison."""

_KERNEL = re.compile(r"\b__global__\b(?:\s*__cluster_dims__\(\s*(\d+)\s*,\s*1\s*,\s*1\s*\))?[^;{]*?\bvoid\s+(\w+)\s*\(")
"""The groups of a cluster, and the name."""

_DYNAMIC = re.compile(r"\bextern\s+__shared__\s+([^;\[]*?)(\w+)\s*\[\s*\]\s*;")


def found() -> str | None:
    """The system's C++ compiler."""
    return next((path for name in COMPILERS if (path := shutil.which(name))), None)


def sanitizers() -> list[str]:
    """The libraries that processes begin with in which GCC's sanitizers watch; empty where GCC or one of them is not here."""
    if not version().startswith("g++"):
        return []
    libraries = [Path(_told(f"-print-file-name=lib{name}.so")) for name in ("asan", "ubsan")]
    return [str(path) for path in libraries] if all(path.is_absolute() for path in libraries) else []


def sanitized(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that AddressSanitizer and UndefinedBehaviorSanitizer end at the first fault of a kernel."""
    return {
        **environment,
        "HOST_FLAGS": " ".join(SANITIZERS),
        "LD_PRELOAD": " ".join(sanitizers()),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python leaves some memory to the system
    }


def options() -> tuple[str, ...]:
    """For all that is compiled; those in HOST_FLAGS come last."""
    return (*COMMON, *os.environ.get("HOST_FLAGS", "").split())


@cache
def version() -> str:
    """Name and version of the compiler; empty where there is none."""
    compiler = found()
    if compiler is None:
        return ""
    number = re.search(r"\d+(\.\d+)+", _told("--version"))
    return f"{Path(compiler).name} {number.group() if number else _told('-dumpversion')}"


@cache
def key() -> str:
    """Of all that a source is compiled with."""
    own = (path.read_text(encoding="utf-8") for path in (*sorted(HERE.glob("*.h")), *RUNNER, Path(__file__)))
    return kept.program_key(_told("--version"), *options(), *own)


def library(source: str) -> bytes:
    """The shared library of a CUDA source: `launch_<kernel>` for each of its kernels.

    Raises:
        CompileError: with the compiler's log.
    """
    # What is a kernel is known behind the preprocessor, which leaves these words as they are.
    text = _run(source, "-std=c++17", "-I", str(HERE), "-include", "cuda_on_host.h", "-E")
    text = _DYNAMIC.sub(r"\1 *const \2 = (\1 *)host::dynamic_shared;", text)
    for cluster, kernel in _KERNEL.findall(text):
        call = f"host::launched<&{kernel}, {cluster or 1}>(launch)"
        launched = f"const char *launch_{kernel}(host::Launch *launch) {{ return {call}; }}"
        text += f'\nextern "C" __attribute__((visibility("default"))) {launched}'
    return _linked(text, *WORDS, "-fvisibility=hidden")


@cache
def runner() -> ctypes.CDLL:
    """The library that runs groups, in this process."""
    own = key()
    binary = kept.load_program(own)
    if binary is None:
        text = "".join(f'# 1 "{path}"\n{path.read_text(encoding="utf-8")}' for path in RUNNER)
        binary = _linked(text, "-I", str(HERE))
        kept.store_program(own, binary)
    return loaded(binary, ctypes.RTLD_GLOBAL)


def loaded(binary: bytes, mode: int = ctypes.RTLD_LOCAL) -> ctypes.CDLL:
    """A shared library of bytes, in this process. Where sanitizers watch, its file stays in TMPDIR: they find lines in it."""
    with tempfile.NamedTemporaryFile(suffix=".so", delete="HOST_FLAGS" not in os.environ) as file:
        file.write(binary)
        file.flush()
        return ctypes.CDLL(file.name, mode)


def _linked(text: str, *more: str) -> bytes:
    # Errors of the source are told where no file can be written, too.
    assembly = _run(text, *options(), *more, "-S", "-o", "-")
    try:
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            _run(assembly, *options(), "-shared", "-o", file.name, language="assembler")
            return Path(file.name).read_bytes()
    except OSError as error:
        raise CompileError("there is no place for the program", log=str(error), source=text) from error


def _run(text: str, *arguments: str, language: str = "c++") -> str:
    command = [found() or COMPILERS[0], "-x", language, *arguments, "-", "-lm", "-lrt", "-lstdc++"]
    # What watches this process would watch the compiler, too.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    made = subprocess.run(command, input=text, capture_output=True, text=True, check=False, env=environment)
    if made.returncode:
        raise CompileError(f"{Path(command[0]).name} does not compile the source", log=made.stderr, source=text)
    return made.stdout


@cache
def _told(question: str) -> str:
    return subprocess.run(
        [found() or COMPILERS[0], question], capture_output=True, text=True, check=True
    ).stdout.strip()
