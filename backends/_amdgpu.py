"""OpenCL C to the machine code of AMD's GPUs, without a GPU or a driver: LLVM's clang with AMD's device libraries, of which
AMD's own OpenCL is made; and llvm-mca's bound for a loop.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gemmport.backends.objects import Disassembly, Listing, LoopBound, Resources
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import CompileError, ToolUnavailableError

LANGUAGE = "AMDGCN"
"""Of the listing: LLVM's name of the instruction sets."""

HOW_TO_GET = "on Debian and Ubuntu, apt install clang-19 rocm-device-libs, or install ROCm"
HOW_TO_GET_MCA = "llvm-mca is not beside the compiler: on Debian and Ubuntu, apt install llvm-19"

_TARGET = "amdgcn-amd-amdhsa"
_OLDEST, _NEWEST = 15, 30
"""Versions of clang: the first that reads the device libraries of Debian 12, and one that is not there yet."""

# The device libraries, and what sets their switches as AMD's OpenCL does without options of the user. Which instructions there
# are is a switch too, `__oclc_ISA_version`: a file for each architecture that the libraries knew when they were built.
_LIBRARIES = (
    "opencl", "ocml", "ockl", "oclc_daz_opt_off", "oclc_unsafe_math_off", "oclc_finite_only_off",
    "oclc_correctly_rounded_sqrt_off", "oclc_abi_version_500",
)  # fmt: skip

_WRITTEN = "HWRC"
"""No unit, but what llvm-mca passes all results of RDNA's units through, one a cycle."""

_LINE_OF_CODE = re.compile(r"\s+[a-z]\w+(\s|$)|[.$\w]+:")


@dataclass(frozen=True)
class Compiler:
    """A clang that compiles for AMD's GPUs.

    Attributes:
        path: of clang. libraries: the folder of AMD's device libraries. mca: the path of llvm-mca, where it is.
        name: with the version.
    """

    path: str
    libraries: Path
    mca: str | None
    name: str


@cache
def found() -> Compiler | None:
    """ROCm's compiler, or else the newest clang on the PATH; None where it, or the device libraries, are missing."""
    libraries = next((folder for folder in _folders() if (folder / "opencl.bc").is_file()), None)
    if libraries is None:
        return None
    for path in _clangs():
        version = re.search(r"clang version ((\d+)[\d.]*)", _output(path, "--version"))
        if version and int(version[2]) >= _OLDEST:
            beside = Path(path).resolve().parent
            names = ("llvm-mca", f"llvm-mca-{version[2]}")
            mca = next((own for name in names for place in (str(beside), None) if (own := _which(name, place))), None)
            return Compiler(path, libraries, mca, f"clang {version[1]}")
    return None


def compiler() -> Compiler:
    """As `found`.

    Raises:
        ToolUnavailableError: it is not here.
    """
    own = found()
    if own is None:
        raise ToolUnavailableError(f"there is no clang {_OLDEST} or newer with AMD's device libraries: {HOW_TO_GET}")
    return own


@cache
def knows(architecture: str) -> bool:
    """Whether the compiler, which must be here, knows an architecture."""
    names = _output(compiler().path, f"--target={_TARGET}", "-nogpulib", "--print-supported-cpus")
    return architecture in names.split()


def disassemble(device: DeviceInfo, source: str, function: str, options: tuple[str, ...]) -> Disassembly:
    """What a function of a source becomes on an architecture of AMD's: its assembly, and what it takes of the device.

    Raises:
        ToolUnavailableError: there is no compiler, or it does not know the architecture.
        CompileError: the source has errors; it has the log.
    """
    text = assembly(device.architecture, source, options, wave=device.sub_group)
    listing = Listing(LANGUAGE, _function(text, function), f"made by {compiler().name}, not by AMD's driver")
    return Disassembly((listing,), _resources(text, function))


def assembly(architecture: str, source: str, options: tuple[str, ...], *, wave: int) -> str:
    """The assembly of a source with its metadata.

    Args:
        wave: work-items of a wavefront.

    Raises:
        ToolUnavailableError, CompileError: as `disassemble`.
    """
    own = compiler()
    if not knows(architecture):
        raise ToolUnavailableError(
            f"{own.name} does not compile for {architecture}: install a newer one (apt install clang-19)"
        )
    names = [*_LIBRARIES, f"oclc_wavefrontsize64_{'on' if wave == 64 else 'off'}"]
    isa = f"oclc_isa_version_{architecture.removeprefix('gfx')}"
    with tempfile.TemporaryDirectory() as folder:
        file, header = Path(folder, "kernel.cl"), Path(folder, "isa.h")
        file.write_text(source, encoding="utf-8")
        if (own.libraries / f"{isa}.bc").is_file():
            names.append(isa)
            header.write_text("", encoding="utf-8")
        else:
            header.write_text(f"const __constant int __oclc_ISA_version = {_number(architecture)};\n", encoding="utf-8")
        linked = [
            part
            for name in names
            for part in ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(own.libraries / f"{name}.bc"))
        ]
        command = [
            own.path, "-x", "cl", *options, "-O3", f"--target={_TARGET}", f"-mcpu={architecture}", "-nogpulib", *linked,
            "-include", str(header), "-S", "-o", "-", str(file),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(
            f"{own.name} refuses the source for {architecture}", log=done.stderr.replace(folder, ""), source=source
        )
    return done.stdout


def loop_bound(device: DeviceInfo, code: str) -> LoopBound | str:
    """llvm-mca's bound for a round of a loop; or why there is none.

    Args:
        code: the loop's instructions, one a line.
    """
    own = compiler()
    if own.mca is None:
        return HOW_TO_GET_MCA
    done = subprocess.run(
        [own.mca, "-mtriple=amdgcn", f"-mcpu={device.architecture}", "-iterations=1", "-json", "-"],
        input=code, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        return f"llvm-mca has no model of it: {(done.stderr.strip() or 'no message').splitlines()[0]}"
    told = json.loads(done.stdout)
    (region,) = told["CodeRegions"]
    names = told["TargetInfo"]["Resources"]
    last = len(region["Instructions"])  # of the pressures, that of the whole
    units = {
        names[own["ResourceIndex"]]: float(own["ResourceUsage"])
        for own in region["ResourcePressureView"]["ResourcePressureInfo"]
        if own["InstructionIndex"] == last and names[own["ResourceIndex"]] != _WRITTEN
    }
    summary = region["SummaryView"]
    # Not its "BlockRThroughput", which counts no instructions of which the model does not know what they do.
    return LoopBound(float(summary["TotaluOps"]), float(summary["TotalCycles"]), units)


def _number(architecture: str) -> int:
    """What the device libraries call an architecture: gfx90a is 9010, gfx1100 is 11000."""
    digits = architecture.removeprefix("gfx")
    return int(digits[:-2]) * 1000 + int(digits[-2]) * 100 + int(digits[-1], 16)


def _function(text: str, function: str) -> str:
    """The instructions and labels of a function."""
    _, _, rest = text.partition(f"\n{function}:")
    lines = (line.partition(";")[0].rstrip() for line in rest.partition("\n.Lfunc_end")[0].splitlines())
    return "\n".join([f"{function}:", *(line for line in lines if _LINE_OF_CODE.match(line))])


def _resources(text: str, function: str) -> Resources:
    notes = text.partition("\n\t.amdgpu_metadata\n")[2].partition("\n\t.end_amdgpu_metadata")[0]
    told: list[dict[str, Any]] = (yaml.safe_load(notes) or {}).get("amdhsa.kernels", [])
    own = next(kernel for kernel in told if kernel[".name"] == function)
    # Stores and loads of a spilled register are not told apart: each is one of 32 bits, as a rule.
    spilled = 4 * own[".vgpr_spill_count"]
    return Resources(
        registers=max(own[".vgpr_count"], own.get(".agpr_count", 0)),
        scalar_registers=own[".sgpr_count"],
        spill_stores=spilled,
        spill_loads=spilled,
        scalar_spills=own[".sgpr_spill_count"],
        private_bytes=own[".private_segment_fixed_size"],
        local_bytes=own[".group_segment_fixed_size"],
        max_work_items=own[".max_flat_workgroup_size"],
    )


def _folders() -> Iterator[Path]:
    """Where AMD's device libraries may be: ROCm's, then Debian's."""
    for root in filter(None, (os.environ.get("ROCM_PATH"), "/opt/rocm")):
        yield Path(root, "amdgcn", "bitcode")
    for pattern in ("usr/lib/*/amdgcn/bitcode", "usr/lib/llvm-*/lib/clang/*/amdgcn/bitcode"):
        yield from sorted(Path("/").glob(pattern), reverse=True)


def _clangs() -> Iterator[str]:
    for root in filter(None, (os.environ.get("ROCM_PATH"), "/opt/rocm")):
        if path := _which("clang", str(Path(root, "llvm", "bin"))):
            yield path
    for name in (*(f"clang-{number}" for number in range(_NEWEST, _OLDEST - 1, -1)), "clang"):
        if path := _which(name):
            yield path


def _which(name: str, folder: str | None = None) -> str | None:
    return shutil.which(name, path=folder)


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
