"""How many cycles loops on chosen registers take on a GPU of compute capability 9.0: where docs/ports.md has its model from.

    python benchmarks/register_ports.py --output benchmarks/results/h200/study/ports.json

No compiler lets its registers be chosen. So a kernel is compiled whose loop has 256 FFMAs, and these are overwritten with
the instructions of each loop. One warp, and two, of each quarter of a multiprocessor run it, and read the multiprocessor's
clock before and behind. Takes seconds. A test disassembles the loops, and compares the model with what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import click
import document
import numpy as np

from gemmport.backends import _nvrtc
from gemmport.backends._sass import COMPUTE_CAPABILITY
from gemmport.backends._sass import encoding as sass
from gemmport.backends._sass.cubin import Code
from gemmport.backends.base import Backend
from gemmport.execution.selection import get_backend, select_device

ARCHITECTURE = f"sm_{COMPUTE_CAPABILITY}"

LENGTH = 256
"""Instructions of a loop, beside the three that close it: a counter, a comparison, the branch."""

PASSES = 1000

QUARTERS, WARP = 4, 32
"""Of a multiprocessor; work-items of a warp."""

REPEAT = 5

EVEN, ODD = 104, 105
"""Registers that other instructions than FFMAs read, an even and an odd one. They hold an address of local memory."""

ADDRESS = 0x400
"""In local memory, which begins here: what lies below is the system's."""

_TARGET = 88
"""The first register that they write, which nothing reads."""

_UNIFORM = 60
"""A uniform register that the kernel does not have."""

_FIRST_FREE = 16
"""The kernel itself has the registers below."""

KERNEL = """
extern "C" __global__ void loop(long long *clocks, int passes) {{
    __shared__ float memory[512];  // where ADDRESS is, whether the system has memory below or not
    float x = threadIdx.x, y = threadIdx.y;
    long long start, end;
    memory[threadIdx.x] = x;
    __syncthreads();
{before}
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(start) :: "memory");
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass) {{
{body}
    }}
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(end) :: "memory");
    if (threadIdx.x % 32 == 0) {{
        long long *own = clocks + 2 * (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
        own[0] = start;
        own[1] = end;
        if (x == 0x1.2345p-67f) own[0] = memory[threadIdx.y];  // never, but compilers keep x and memory for it
    }}
}}
"""
_FFMA = '        asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x) : "f"(y));'

A, B = sass.REUSE_A, sass.REUSE_B


# Instructions


def ffma(d: int, a: int, b: int, reuse: int = 0) -> int:
    """d += a · b, of these registers."""
    word = _issued(sass.FORM.put(sass.GUARD.put(sass.FFMA, sass.ALWAYS), 1))
    for field, value in ((sass.D, d), (sass.A, a), (sass.B, b), (sass.C, d), (sass.REUSE, reuse)):
        word = field.put(word, value)
    return word


def load(width: int, register: int) -> int:
    """LDS of so many bits from where the register says."""
    word = _issued(sass.FORM.put(sass.GUARD.put(sass.LDS, sass.ALWAYS), 4))
    word = sass.SIZE.put(word, {32: 4, 64: 5, 128: 6}[width])
    return sass.A.put(sass.D.put(word, _TARGET), register)


def move(register: int) -> int:
    """MOV from a register."""
    word = _issued(sass.FORM.put(sass.GUARD.put(sass.MOV, sass.ALWAYS), 1)) | _ALL_BYTES
    return sass.B.put(sass.D.put(word, _TARGET), register)


def move_address(target: int) -> int:
    """MOV of local memory's address to a register; it takes so long that whatever follows finds it there."""
    word = _issued(sass.FORM.put(sass.GUARD.put(sass.MOV, sass.ALWAYS), 4)) | _ALL_BYTES
    return sass.STALL.put(sass.D.put(word, target), _SETTLED) | ADDRESS << sass.B.at


_ALL_BYTES = 0xF << 72


def add(first: int, second: int = sass.ZERO) -> int:
    """IADD3 of a register, or two."""
    word = _issued(sass.FORM.put(sass.GUARD.put(sass.IADD3, sass.ALWAYS), 1))
    for field, value in ((sass.D, _TARGET), (sass.A, first), (sass.B, second), (sass.C, sass.ZERO)):
        word = field.put(word, value)
    return _without_carries(word)


def add_uniform() -> int:
    """UIADD3 of 1, which reads no register of the register file."""
    word = _issued(sass.FORM.put(sass.GUARD.put(sass.UIADD3, sass.ALWAYS), 4))
    for field, value in ((sass.D, _UNIFORM), (sass.A, _UNIFORM), (sass.B, 1), (sass.C, _UNIFORM_ZERO)):
        word = field.put(word, value)
    return _without_carries(word) | 1 << 91  # those of the uniform predicates


def nothing() -> int:
    """NOP."""
    return _issued(sass.FORM.put(sass.GUARD.put(sass.NOP, sass.ALWAYS), 4))


_UNIFORM_ZERO = 63

_SETTLED = 8
"""Cycles after which the result of a MOV is there."""


def _issued(word: int) -> int:
    """An instruction that takes one cycle of its warp, and neither sets barriers nor waits for them."""
    return sass.CONTROL.put(word, 1 | 1 << 4 | sass.NO_BARRIER << 5 | sass.NO_BARRIER << 8)


def _without_carries(word: int) -> int:
    """An addition with no carry in and none out."""
    for field in (sass.FIRST_PREDICATE, sass.SECOND_PREDICATE, sass.FIRST_CONDITION, sass.SECOND_CONDITION):
        word = field.put(word, sass.ALWAYS)
    return word | 1 << 80 | 1 << 90  # the carries in are the negation of what is always true


# Loops


def sums(i: int, bank: int) -> int:
    """The i-th sum of a bank, of 32."""
    return 16 + 2 * (i % 32) + bank


def factors(i: int, bank: int) -> int:
    """The i-th factor of a bank, of 14."""
    return 120 + 2 * (i % 14) + bank


def alternating(length: int) -> list[int]:
    """So many FFMAs with two reads of one bank, then as many of the other."""
    banks = [i // length % 2 for i in range(LENGTH)]
    return [ffma(sums(i, bank), factors(i, bank), factors(0, 1), B) for i, bank in enumerate(banks)]


def back_and_forth(even: int, odd: int) -> list[int]:
    """8 rows of 16 columns, twice, with the banks of the even and of the odd rows; sums and columns of one bank."""
    words = []
    for i in range(LENGTH):
        row, step = divmod(i % 128, 16)
        column = step if row % 2 == 0 else 15 - step
        a, b = factors(row // 2, (even, odd)[row % 2]), factors(column // 2, column % 2)
        words.append(ffma(sums(i, column % 2), a, b, A if step < 15 else B))
    return words


RUNS = (1, 2, 3, 4, 6, 8, 16)

OF_FFMAS: Mapping[str, Sequence[int]] = {
    "three of one bank": [ffma(sums(i, 0), factors(i, 0), factors(i + 3, 0)) for i in range(LENGTH)],
    "factors of one bank": [ffma(sums(i, 0), factors(i, 1), factors(i + 3, 1)) for i in range(LENGTH)],
    "a factor and the sum of one bank": [ffma(sums(i, 0), factors(i, 0), factors(i + 3, 1)) for i in range(LENGTH)],
    "two of one bank, a factor kept": [ffma(sums(i, 0), factors(i, 0), factors(0, 1), B) for i in range(LENGTH)],
    "one of each bank, a factor kept": [ffma(sums(i, 0), factors(i, 1), factors(0, 1), B) for i in range(LENGTH)],
    **{f"two of one bank, {n} in a row, a factor kept": alternating(n) for n in RUNS},
    "rows of the other bank than the column where they begin": back_and_forth(1, 0),
    "rows of the bank of that column": back_and_forth(0, 1),
    "rows of the even bank": back_and_forth(0, 0),
}
"""Name → instructions, FFMAs all."""


def rows(bank: int, *between: int) -> list[int]:
    """Rows of 16 FFMAs with a factor of a bank in common, and other instructions in the middle of each: 256 in all."""
    words: list[int] = []
    for i in range(LENGTH):
        row, step = divmod(i, 16)
        words += between if step == 8 else ()
        column = 130 + 2 * (step % 8 if row % 2 == 0 else (15 - step) % 8) + i % 2
        words.append(ffma(sums(i, 1 - i % 2), 120 + 2 * (row % 4) + bank, column, A if step < 15 else B))
    return words[:LENGTH]


BETWEEN: Mapping[str, Sequence[int]] = {
    "nothing": [],
    "LDS.128, even": [load(128, EVEN)], "LDS.128, odd": [load(128, ODD)],
    "LDS.128, even, and NOP": [load(128, EVEN), nothing()],
    "LDS.64, even": [load(64, EVEN)], "LDS.64, odd": [load(64, ODD)],
    "LDS, even": [load(32, EVEN)], "LDS, odd": [load(32, ODD)],
    "MOV, even": [move(EVEN)], "MOV, odd": [move(ODD)], "MOV of no register": [move(sass.ZERO)],
    "IADD3, even": [add(EVEN)], "IADD3, odd": [add(ODD)], "IADD3, even and odd": [add(EVEN, ODD)],
    "NOP": [nothing()], "UIADD3": [add_uniform()],
}  # fmt: skip
"""What stands between FFMAs, and the bank of the register that it reads → instructions."""

BANKS = ("even", "odd")

WITH_OTHERS: Mapping[str, Sequence[int]] = {
    f"{bank} rows, {name}": rows(number, *between)
    for number, bank in enumerate(BANKS)
    for name, between in BETWEEN.items()
}
"""Name → instructions: rows of factors of a bank, and what stands in the middle of each."""

LOOPS = {**OF_FFMAS, **WITH_OTHERS}


# Programs


class Kernel:
    """The kernel, compiled once, and the program of each loop."""

    def __init__(self) -> None:
        before = [move_address(EVEN), move_address(ODD)]
        source = KERNEL.format(before="\n".join([_FFMA] * len(before)), body="\n".join([_FFMA] * LENGTH))
        self.source = source
        self._code = Code(_nvrtc.compile_cuda(source, ARCHITECTURE), "loop")
        places = [at for at, word in enumerate(self._code.words) if sass.is_plain_ffma(word)]
        others = [word for at, word in enumerate(self._code.words) if at not in places and sass.understood(word)]
        used = {
            r
            for word in others
            for operand in (*sass.reads(word), sass.writes(word))
            for r in (operand.registers if operand else ())
        }
        if len(places) != len(before) + LENGTH or max(used) >= _FIRST_FREE:
            raise click.ClickException(
                f"the compiler must leave {len(before) + LENGTH} FFMAs, and registers below R{_FIRST_FREE} to others; got "
                f"{len(places)}, and R{max(used)}; take another version of NVRTC"
            )
        self._before = dict(zip(places, before, strict=False))
        self._places = places[len(before) :]

    def with_loop(self, loop: Sequence[int]) -> bytes:
        """The cubin whose loop has these instructions."""
        changed = self._before | dict(zip(self._places, loop, strict=True))
        return self._code.replaced([changed.get(at, word) for at, word in enumerate(self._code.words)])


def cycles(backend: Backend, kernel: Kernel, loop: Sequence[int], warps: int) -> float:
    """What a pass of the loop takes a quarter of a multiprocessor for each of so many warps: the median of all multiprocessors
    and launches.
    """
    program = backend.load(kernel.with_loop(loop), kernel.source)
    groups, each = backend.device.compute_units, warps * QUARTERS
    clocks = np.empty((groups, each, 2), np.int64)
    found: list[float] = []
    with backend.allocate(clocks.nbytes) as memory:
        items = each * WARP
        call = backend.prepare(program, "loop", (groups, 1, 1), (items, 1, 1), [memory, np.int32(PASSES)])
        for _ in range(REPEAT):
            backend.launch(call)
            backend.download(memory, clocks)
            found += (clocks[:, :, 1].max(axis=1) - clocks[:, :, 0].min(axis=1)).tolist()
    return median(found) / PASSES / warps


@click.command()
@click.option("--device", default=None, metavar="PLATFORM[:DEVICE]", help="As in gemmport run, under CUDA.")
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, and not to standard output.")
def main(device: str | None, output: Path | None) -> None:
    """Measures the loops."""
    target = select_device(device, "cuda")
    if target.architecture != ARCHITECTURE:
        raise click.UsageError(f"the device must be of {ARCHITECTURE}; got {target.label}, {target.architecture}")
    backend, kernel = get_backend(device=target), Kernel()
    found = []
    for name, loop in LOOPS.items():
        taken = {str(warps): round(cycles(backend, kernel, loop, warps), 1) for warps in (1, 2)}
        found.append({"name": name, "ffma": sum(map(sass.is_plain_ffma, loop)), "cycles": taken})
        click.echo(f"{name}: {taken['1']}, {taken['2']} cycles", err=True)
    document.write(output, [backend], compiler=_nvrtc.compiler(), loops=found)


if __name__ == "__main__":
    main()
