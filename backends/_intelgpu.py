"""OpenCL C to the machine code of Intel's GPUs, without a GPU: `ocloc`, the compiler of Intel's OpenCL as a command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gemmport.backends import _machinecode
from gemmport.backends.objects import Disassembly, Listing, Resources
from gemmport.contracts import intel
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import CompileError, ToolUnavailableError

LANGUAGE = "Gen"
"""Of the listing: Intel's name of the instruction sets."""

HOW_TO_GET = "on Debian and Ubuntu, apt install intel-opencl-icd"
HOW_TO_GET_IGA = "iga64 is not on the PATH: on Debian and Ubuntu, apt install libigc-tools"

# Binaries that are ELF files with their metadata in YAML, which older versions make only where they are asked to.
_AS_ELF = "-cl-intel-allow-zebin"

_LANES_BY_DEFAULT = 8
"""Of a hardware thread, where the metadata are silent."""


@dataclass(frozen=True)
class Compiler:
    """ocloc.

    Attributes:
        path: of it. iga: of the disassembler, where it is.
    """

    path: str
    iga: str | None


@cache
def found() -> Compiler | None:
    """Intel's compiler, where it is on the PATH."""
    path = shutil.which("ocloc")
    return Compiler(path, shutil.which("iga64")) if path else None


def disassemble(device: DeviceInfo, source: str, function: str, options: tuple[str, ...]) -> Disassembly:
    """What a function of a source becomes on one of Intel's GPUs: its assembly, and what it takes of the device.

    Raises:
        ToolUnavailableError: there is no compiler, or it does not know the GPU.
        CompileError: the source has errors; it has the log.
    """
    own = found()
    if own is None:
        raise ToolUnavailableError(f"there is no ocloc, which compiles for Intel's GPUs: {HOW_TO_GET}")
    binary = _compiled(own, device.architecture, source, options)
    limits = intel.ARCHITECTURES[device.architecture]
    listing = _listing(own, _machinecode.section(binary, f".text.{function}"), limits.assembler, function)
    return Disassembly((listing,), _resources(_machinecode.section(binary, ".ze_info"), function, limits))


def _compiled(own: Compiler, name: str, source: str, options: tuple[str, ...]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.cl")
        file.write_text(source, encoding="utf-8")
        command = [
            own.path, "compile", "-file", str(file), "-device", name, "-options", " ".join(options),
            "-internal_options", _AS_ELF, "-out_dir", folder, "-output", "kernel",
        ]  # fmt: skip
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env={**os.environ, "NEO_CACHE_PERSISTENT": "0"},
        )
        log = (done.stdout + done.stderr).replace(folder, "")
        if re.search(r"Unknown acronym|Could not determine device", log):
            raise ToolUnavailableError(f"ocloc does not compile for {name}: install a newer intel-opencl-icd")
        if done.returncode != 0:
            raise CompileError(f"ocloc refuses the source for {name}", log=log, source=source)
        return next(Path(folder).glob("kernel*.bin")).read_bytes()


def _listing(own: Compiler, code: bytes, platform: str, function: str) -> Listing:
    if own.iga is None:
        return Listing(LANGUAGE, note=HOW_TO_GET_IGA)
    text, fault = _machinecode.run(own.iga, "-d", f"-p={platform}", binary=code)
    if not text:
        return Listing(LANGUAGE, note=f"{own.iga}: {fault}")
    return Listing(
        LANGUAGE, f"{function}:\n{text}", "made by ocloc; instructions are of a hardware thread of several lanes"
    )


def _resources(notes: bytes, function: str, limits: intel.Architecture) -> Resources:
    told: list[dict[str, Any]] = yaml.safe_load(notes)["kernels"]
    own = next(kernel for kernel in told if kernel["name"] == function)
    environment = own["execution_env"]
    lanes = environment.get("simd_size", _LANES_BY_DEFAULT)
    memory = sum(each["size"] for each in own.get("per_thread_memory_buffers", []))
    return Resources(
        registers=environment["grf_count"] * limits.register_bytes // (4 * lanes),
        private_bytes=memory // lanes,
        local_bytes=environment.get("slm_size", 0),
        barriers=environment.get("barrier_count", 0),
    )
