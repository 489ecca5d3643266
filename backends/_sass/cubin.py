"""A function's machine code inside a cubin, an ELF file of 64 bits."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gemmport.backends._sass import encoding as sass

_SECTION_HEADERS = 40  # offset in the file's header of the offset of the sections' headers
_SIZES = 58  # of the size of a section's header, their number, and the index of the one that keeps their names
_HEADER = "<IIQQQQIIQQ"  # name, type, flags, address, offset, size, link, info, alignment, entry size
_FLAGS = 48  # offset of the chip's description
_INFO = struct.calcsize("<IIQQQQI")  # offset of the info
_REGISTERS = 24  # bits of it below the registers per thread, which CUDA 12 writes there too

# Entries of the sections .nv.info: a format, an attribute, and a size where the format is this one.
_SIZED = 4
_THREADS = 0x05, 0x10  # of a block: at most, and required
_REGISTER_COUNT = 0x2F

_CODE = ".text."  # before the name of a function: the section with its instructions

_MOST_THREADS = 1024  # of a block without launch bounds
_REGISTERS_PER_MULTIPROCESSOR = 65536
_REGISTERS_AT_A_TIME = 8
_RESERVED = 2  # registers of a thread that the hardware keeps: a kernel that names R207 is given 210


def is_cubin(binary: bytes) -> bool:
    """Whether a binary is one, rather than PTX."""
    return binary.startswith(b"\x7fELF\x02")


def functions(cubin: bytes) -> list[str]:
    """The names of its functions."""
    return [name.removeprefix(_CODE) for name in _sections(cubin) if name.startswith(_CODE)]


@dataclass(frozen=True)
class _Section:
    """A part of the file: where its contents and the field of its info are."""

    at: int
    size: int
    info_at: int


def _sections(cubin: bytes) -> dict[str, _Section]:
    (table,) = struct.unpack_from("<Q", cubin, _SECTION_HEADERS)
    step, number, names = struct.unpack_from("<HHH", cubin, _SIZES)
    headers = [struct.unpack_from(_HEADER, cubin, table + i * step) for i in range(number)]
    found = {}
    for i, header in enumerate(headers):
        start = headers[names][4] + header[0]
        name = cubin[start : cubin.index(b"\0", start)].decode()
        found[name] = _Section(header[4], header[5], table + i * step + _INFO)
    return found


class Code:
    """The machine code of one function.

    Attributes:
        words: its instructions.
        registers: per thread.
        compute_capability: times ten.
    """

    def __init__(self, cubin: bytes, function: str) -> None:
        """Raises KeyError where the cubin has no such function."""
        self._cubin = cubin
        self._sections = _sections(cubin)
        self._code = self._sections[_CODE + function]
        parts = struct.unpack_from(f"<{self._code.size // 8}Q", cubin, self._code.at)
        self.words = [low | high << 64 for low, high in zip(parts[::2], parts[1::2], strict=True)]
        (flags,) = struct.unpack_from("<I", cubin, _FLAGS)
        # CUDA 13 writes the capability into the second byte; CUDA 12 into the first, and the second is a small number.
        self.compute_capability = max(flags >> 8 & 0xFF, flags & 0xFF)
        (self._info,) = struct.unpack_from("<I", cubin, self._code.info_at)
        symbol = self._info & (1 << _REGISTERS) - 1
        (self._registers_at,) = (
            at + 4
            for attribute, at in self._attributes(".nv.info")
            if attribute == _REGISTER_COUNT and struct.unpack_from("<I", cubin, at)[0] == symbol
        )
        self.registers: int = struct.unpack_from("<I", cubin, self._registers_at)[0]
        self._threads: int = _MOST_THREADS
        for attribute, at in self._attributes(f".nv.info.{function}"):
            if attribute in _THREADS:
                self._threads = math.prod(struct.unpack_from("<III", cubin, at))

    def _attributes(self, section: str) -> Iterator[tuple[int, int]]:
        """The attributes of a section that have a size, and where their values are."""
        at = self._sections[section].at
        end = at + self._sections[section].size
        while at < end:
            form, attribute, length = struct.unpack_from("<BBH", self._cubin, at)
            at += 4
            if form == _SIZED:
                yield attribute, at
                at += length

    def most_registers(self, groups: int) -> int:
        """As many as an instruction may name, from R0 on, where so many work-groups shall be on a multiprocessor at once."""
        each = _REGISTERS_PER_MULTIPROCESSOR // (groups * self._threads) // _REGISTERS_AT_A_TIME * _REGISTERS_AT_A_TIME
        return max(min(each, sass.ZERO), self.registers) - _RESERVED

    def replaced(self, words: Sequence[int]) -> bytes:
        """The cubin with other instructions, as many, and as many registers as these name."""
        named = 0
        for word in filter(sass.understood, words):
            named |= sass.read_mask(word) | sass.written_mask(word)
        registers = max(self.registers, named.bit_length() + _RESERVED)
        cubin = bytearray(self._cubin)
        cubin[self._code.at : self._code.at + self._code.size] = b"".join(
            word.to_bytes(sass.BYTES, "little") for word in words
        )
        struct.pack_into("<I", cubin, self._registers_at, registers)
        if self._info >> _REGISTERS:
            struct.pack_into(
                "<I", cubin, self._code.info_at, self._info & (1 << _REGISTERS) - 1 | registers << _REGISTERS
            )
        return bytes(cubin)
