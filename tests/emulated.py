"""Matrix instructions of GPUs that are not here, done by the work-items of a group on a CPU.

The kernel's own source runs. Of the prelude, the part `matrix_instructions` ends in a function: each lane shows the others
what it has, in local memory, and adds up its products, element by element, as the table of
`gemmport.contracts.matrix_instructions` says where they are.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

import gemmport as gp
from gemmport.backends.opencl import OpenCL
from gemmport.contracts.matrix_instructions import FAMILIES, MatrixInstruction
from gemmport.execution.selection import select_device

_BUILTINS = "// Of 2-byte elements clang wants vectors"
"""What the part has from there on is the vendors'."""

_NUMBERS = {"float16": 1, "bfloat16": 2, "int8": 3, "uint8": 4}
"""By which the preprocessor knows the type of A and B."""

_EMULATED = """
#define IN_ONE_WORD (4 / ELEMENT_BYTES)
inline uint element(__local const uint *words, int number)
{
    return words[number / IN_ONE_WORD] >> 8 * ELEMENT_BYTES * (number % IN_ONE_WORD) & (ELEMENT_BYTES == 2 ? 0xffff : 0xff);
}
// Lanes see each other's words in local memory, which a kernel alone declares: where it asks for its lane.
#undef OF_LANES
#undef THIS_LANE
#undef THIS_SUB_GROUP
#define OF_LANES(lanes)
#define THIS_LANE() (int)get_local_id(0) % LANES; __local uint shown[THREADS][WORDS_OF_A + WORDS_OF_B]
#define THIS_SUB_GROUP() ((int)get_local_id(0) / LANES)
#define multiply_matrices(a, b, sums) multiply_shown(a, b, sums, shown)
inline unit_sums_t multiply_shown(unit_a_t a, unit_b_t b, unit_sums_t sums, __local uint (*shown)[WORDS_OF_A + WORDS_OF_B])
{
    union { unit_a_t all; uint words[WORDS_OF_A]; } own_a = {a};
    union { unit_b_t all; uint words[WORDS_OF_B]; } own_b = {b};
    const int item = (int)get_local_id(0), lane = item % LANES;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int w = 0; w < WORDS_OF_A; ++w)
        shown[item][w] = own_a.words[w];
    for (int w = 0; w < WORDS_OF_B; ++w)
        shown[item][WORDS_OF_A + w] = own_b.words[w];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int s = 0; s < UNIT_SUMS; ++s) {
        const int row = ROW_OF_SUM[lane * UNIT_SUMS + s], column = COLUMN_OF_SUM[lane * UNIT_SUMS + s];
        acc_t sum = ((acc_t *)&sums)[s];
        for (int t = 0; t < UNIT_TERMS; ++t) { // where several lanes have a number, one of them, and the next time another
            const int at_a = (row * UNIT_TERMS + t) * 2 + t % 2, at_b = (column * UNIT_TERMS + t) * 2 + (t + 1) % 2;
            const in_t x = (in_t)element(shown[item - lane + LANE_OF_A[at_a]], NUMBER_OF_A[at_a]);
            const in_t y = (in_t)element(shown[item - lane + LANE_OF_B[at_b]] + WORDS_OF_A, NUMBER_OF_B[at_b]);
            sum += (acc_t)PASTE(NUMBER_, IN)(x) * (acc_t)PASTE(NUMBER_, IN)(y);
        }
        ((acc_t *)&sums)[s] = sum;
    }
    return sums;
}
"""


def opened(family: str, folder: Path, *, wrong: bool = False) -> gp.Backend:
    """Intel's runtime for CPUs as a device that has a family's instructions.

    Args:
        folder: of the parts of the prelude; empty.
        wrong: the sums of two rows change places.
    """
    device = select_device("intel", "opencl")
    numbers = "".join(f"#define NUMBER_OF_{dtype} {number}\n" for dtype, number in _NUMBERS.items())
    table = numbers + "\n".join(_of_type(dtype, own, wrong=wrong) for dtype, own in FAMILIES[family].items())
    part = Path(str(gp.kernels.__file__)).parent / "opencl" / "prelude" / "matrix_instructions.cl"
    head, _, _ = part.read_text(encoding="utf-8").partition(_BUILTINS)
    (folder / part.name).write_text(f"{head}\n{table}\n{_EMULATED}", encoding="utf-8")

    class Emulated(OpenCL):
        overrides = str(folder)

        def options(self) -> tuple[str, ...]:
            return (*super().options(), "-cl-opt-disable")

    made: gp.Backend = Emulated(replace(device, extensions=device.extensions | {family}))
    return made


def _of_type(dtype: str, own: MatrixInstruction, *, wrong: bool) -> str:
    """Which lane has a number of A, and of B by column, and as which of its own: the first and the last that has it."""
    in_word = 4 // own.element_bytes
    a = np.full((own.rows, own.terms, 2, 2), 255)
    b = np.full((own.columns, own.terms, 2, 2), 255)
    for lane in range(own.lanes):
        for number in range(own.words_of_a * in_word):
            row, term = own.place_of_a(lane, number)
            _note(a[row, term], lane, number)
        for number in range(own.words_of_b * in_word):
            term, column = own.place_of_b(lane, number)
            _note(b[column, term], lane, number)
    sums = np.array([[own.place_of_sum(lane, s) for s in range(own.sums)] for lane in range(own.lanes)])
    assert (a != 255).all()
    assert (b != 255).all()
    assert len({tuple(place) for place in sums.reshape(-1, 2)}) == own.rows * own.columns
    if wrong:
        sums[..., 0] ^= 1
    tables = {
        "LANE_OF_A": a[..., 0], "NUMBER_OF_A": a[..., 1], "LANE_OF_B": b[..., 0], "NUMBER_OF_B": b[..., 1],
        "ROW_OF_SUM": sums[..., 0], "COLUMN_OF_SUM": sums[..., 1],
    }  # fmt: skip
    lines = [f"#if {_NUMBERS[dtype]} == PASTE(NUMBER_OF_, IN)", f"#define UNIT_TERMS {own.terms}"]
    lines += [
        f"__constant uchar {name}[] = {{{', '.join(map(str, values.ravel()))}}};" for name, values in tables.items()
    ]
    return "\n".join([*lines, "#endif"])


def _note(place: np.ndarray, lane: int, number: int) -> None:
    place[1] = lane, number
    if place[0, 0] == 255:
        place[0] = lane, number
