"""Machine code as text: the tools that disassemble it, and what compilers' logs say of its resources."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gemmport.backends.objects import Listing, Resources

HOW_TO_GET_NVDISASM = "nvdisasm is not here: pip install nvidia-cuda-nvdisasm, or put the CUDA toolkit's on the PATH"
HOW_TO_GET_OBJDUMP = "neither objdump nor llvm-objdump is on the PATH: on Debian and Ubuntu, apt install binutils"

# Machines of the ELF format, e_machine.
_MACHINES = {3: "x86", 62: "x86-64", 183: "AArch64", 243: "RISC-V"}


@cache
def nvdisasm() -> str | None:
    """The path of nvdisasm: on the PATH, in a CUDA toolkit, in NVIDIA's wheels or in Triton's, which is not imported."""
    return shutil.which("nvdisasm") or next(
        (found for folder in _cuda_folders() if (found := shutil.which("nvdisasm", path=str(folder)))), None
    )


def _cuda_folders() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_ROOT", "CUDA_PATH"):
        if root := os.environ.get(variable):
            yield Path(root, "bin")
    yield Path("/usr/local/cuda/bin")
    for package, inside in (("nvidia", "*/bin"), ("triton", "backends/nvidia/bin")):
        spec = importlib.util.find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            yield from sorted(Path(place).glob(inside))


def sass(binary: bytes, function: str) -> Listing:
    """The SASS of a function of a cubin. A binary that is PTX has none."""
    if not binary.startswith(b"\x7fELF"):
        return Listing(
            "SASS", note="the chip is newer than the compiler: the driver compiles the PTX, and does not tell to what"
        )
    tool = nvdisasm()
    if tool is None:
        return Listing("SASS", note=HOW_TO_GET_NVDISASM)
    text, fault = run(tool, "--print-code", binary=binary)
    sections = re.split(r"^//-{5,} \.text\.(\S+)\s+-+\n", text, flags=re.MULTILINE)
    code = dict(zip(sections[1::2], sections[2::2], strict=True)).get(function, "")
    return Listing("SASS", code.strip("\n"), "" if code else f"{tool}: {fault or f'no code of {function}'}")


def section(elf: bytes, name: str) -> bytes:
    """The contents of a section of a little-endian ELF file of 64 bits; empty where there is none of that name."""
    if elf[:6] != b"\x7fELF\x02\x01":
        return b""
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, start + size * number) for number in range(count)]
    strings = headers[names][4]
    for own, _, _, _, offset, length in headers:
        text = elf[strings + own : elf.index(b"\0", strings + own)]
        if text == name.encode():
            return elf[offset : offset + length]
    return b""


def host_code(elf: bytes, *symbols: str) -> Listing:
    """The code of a CPU's function in an ELF file: that of the first of the symbols (regular expressions) that is there."""
    machine = int.from_bytes(elf[18:20], "little")
    language = _MACHINES.get(machine, f"ELF machine {machine}")
    tool = shutil.which("objdump") or shutil.which("llvm-objdump")
    if tool is None:
        return Listing(language, note=HOW_TO_GET_OBJDUMP)
    syntax = ["-M", "intel"] if machine in (3, 62) else []
    text, fault = run(tool, "-d", "--no-show-raw-insn", *syntax, binary=elf)
    parts = re.split(r"^[0-9a-f]+ <(\S+)>:\n", text, flags=re.MULTILINE)
    functions = dict(zip(parts[1::2], parts[2::2], strict=True))
    for symbol in symbols:
        for name, code in functions.items():
            if re.fullmatch(symbol, name):
                return Listing(language, f"{name}:\n{code.rstrip()}")
    return Listing(language, note=f"{tool}: {fault or f'no {symbols[0]} among {sorted(functions)}'}")


def run(tool: str, *options: str, binary: bytes) -> tuple[str, str]:
    """What a tool says of a binary, and what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "code")
        file.write_bytes(binary)
        try:
            done = subprocess.run([tool, *options, str(file)], capture_output=True, check=False)
        except OSError as error:
            return "", str(error)
    fault = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
    return done.stdout.decode(errors="replace"), fault if done.returncode else ""


def ptxas_resources(log: str, function: str) -> Resources:
    """What ptxas, told to be verbose, says of a function; nothing is known where the log does not speak of it."""
    sections = re.split(r"Compiling entry function '(\w+)' for '\w+'", log)
    told = dict(zip(sections[1::2], sections[2::2], strict=True)).get(function, "")

    def number(pattern: str) -> int | None:
        found = re.search(pattern, told)
        return int(found.group(1)) if found else None

    registers = number(r"Used (\d+) registers")
    return Resources(
        registers=registers,
        spill_stores=number(r"(\d+) bytes spill stores"),
        spill_loads=number(r"(\d+) bytes spill loads"),
        private_bytes=number(r"(\d+) bytes stack frame"),
        local_bytes=None if registers is None else number(r"(\d+) bytes smem") or 0,
        barriers=number(r"used (\d+) barriers"),
    )
