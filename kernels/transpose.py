"""`transpose`: matrices copied or transposed between layouts, padded with zeros where they shall grow; and its ladder.

The steps are those of G. Ruetsch & P. Micikevicius, "Optimizing Matrix Transpose in CUDA" (NVIDIA, 2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gemmport.contracts.kernel import (
    Constraint,
    Parameter,
    Parameters,
    Pass,
    Rung,
    Steps,
    ceil_div,
    check_limits,
    parameter_defines,
    type_defines,
)
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, FLOAT32, DType, default_accumulator
from gemmport.core.plan import Argument, Buffer, Integer, Launch, ParameterValue, Scratch
from gemmport.core.precision import FULL
from gemmport.core.problem import MAX_EXTENT, GemmProblem, Layout, Operand


@dataclass(frozen=True)
class Matrices:
    """One side of the pass: the name of the buffer that holds a batch of row-major matrices, and how they lie in it."""

    buffer: str
    layout: Layout

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The buffer, and its layout in elements, as the kernel takes them."""
        layout = self.layout
        return Buffer(self.buffer), Integer(layout.offset), Integer(layout.ld), Integer(layout.batch_stride)


class Transpose(Pass):
    """A group of TS × ROWS work-items moves a tile of TS × TS elements, as words of their size: every data type, bit for bit.
    Only float32 may be rounded to a precision on the way.

    The target must not overlap the source.
    """

    name = "transpose"
    summary = "matrices copied or transposed, and padded with zeros"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("TS", 32, "rows and columns of the tile, and work-items of a group along x", maximum=64),
        Parameter("ROWS", 8, "work-items of a group along y", maximum=64),
        Parameter("TRANSPOSE", 1, "whether rows become columns", minimum=0, maximum=1),
        Parameter("STAGED", 1, "whether the tile goes by way of local memory", minimum=0, maximum=1),
        Parameter("PAD", 1, "elements added to each row in local memory, against bank conflicts", minimum=0, maximum=8),
        Parameter("ORDER", "rows", "in which order groups take tiles", choices=("rows", "diagonal")),
    )
    constraints: ClassVar[tuple[Constraint, ...]] = (Constraint("TS % ROWS = 0", lambda TS, ROWS: TS % ROWS == 0),)

    def steps(
        self, rows: int, columns: int, dtype: DType, parameters: Parameters, device: DeviceInfo, *, batch: int = 1
    ) -> Steps:
        """The launch that moves the dense (batch, rows, columns) of "source" to the dense (batch, columns, rows), or as they
        were where TRANSPOSE is 0, of "target"; none where there are no elements.

        Raises:
            UnknownNameError, ParameterError: no such parameter; a value that breaks a rule, or a limit of the device.
        """
        values = self.complete(parameters)
        if 0 in (rows, columns, batch):
            return Steps([])
        source = Matrices("source", Layout(columns, rows * columns))
        target = Matrices("target", Layout(rows if values["TRANSPOSE"] else columns, rows * columns))
        launch = self.launch(source, target, rows, columns, dtype, values, batch=batch)
        check_limits(self.name, launch, values, device)
        return Steps([launch])

    def launch(
        self,
        source: Matrices,
        target: Matrices,
        rows: int,
        columns: int,
        dtype: DType,
        parameters: Parameters,
        *,
        batch: int = 1,
        padded: tuple[int, int] | None = None,
        precision: str = FULL,
    ) -> Launch:
        """The launch over matrices that may lie anywhere, for a variant's own steps; there is something to write.

        Args:
            rows, columns: of the matrices of the source.
            parameters: all of them.
            padded: rows and columns, at least as many, of the matrices that are written, before they are transposed; what
                the source does not reach is zero.
            precision: to which numbers of float32 are rounded on the way.
        """
        padded_rows, padded_columns = padded or (rows, columns)
        tile = int(parameters["TS"])
        tiles = ceil_div(padded_rows, tile) * ceil_div(padded_columns, tile) * batch
        return Launch(
            self.source({**parameter_defines(parameters), **_word_defines(dtype, precision)}),
            groups=(tiles, 1, 1),
            work_group=(tile, int(parameters["ROWS"]), 1),
            arguments=(
                *source.arguments,
                *target.arguments,
                *(Integer(size, bits=32) for size in (rows, columns, padded_rows, padded_columns)),
            ),
            local_bytes=int(parameters["STAGED"]) * tile * (tile + int(parameters["PAD"])) * dtype.itemsize,
        )


@dataclass(frozen=True)
class Prepared:
    """An operand of a product, laid out anew by one launch.

    Attributes:
        scratch: holds it afterwards, dense; a matrix that the batch shares, once.
        layout: of what it holds.
    """

    launch: Launch
    scratch: Scratch
    layout: Layout


def prepare(
    problem: GemmProblem,
    operand: Operand,
    buffer: str,
    parameters: Parameters,
    padded: tuple[int, int] | None = None,
    precision: str = FULL,
    own: Transpose | None = None,
) -> Prepared:
    """An operand's matrices in scratch memory of this name; there are some, and they have elements. Matrices that lie one below
    the other, there and here, are copied as one: no tile ends where the next of them begins.

    Args:
        parameters: of the pass; what is left out is its default.
        padded: rows and columns of each matrix in scratch memory; none where nothing is added to them.
        precision: as `Transpose.launch`.
        own: the pass; None: this module's.
    """
    own = own or PASS
    values = own.complete(parameters)
    rows, columns = problem.stored_shape(operand)
    turned = bool(values["TRANSPOSE"])
    down, across = padded or ((columns, rows) if turned else (rows, columns))
    shared = problem.layout(operand).batch_stride == 0
    batch = 1 if shared else problem.batch
    dtype = problem.element_type(operand)
    source, layout = problem.layout(operand), Layout(across, 0 if shared else down * across)
    scratch = Scratch(buffer, batch * down * across * dtype.itemsize)
    one_below_the_other = not turned and down == rows and source.batch_stride == rows * source.ld
    if one_below_the_other and batch * rows <= MAX_EXTENT:
        rows, down, batch = batch * rows, batch * down, 1
    launch = own.launch(
        Matrices(operand, source), Matrices(buffer, layout), rows, columns, dtype, values,
        batch=batch, padded=(across, down) if turned else (down, across), precision=precision,
    )  # fmt: skip
    return Prepared(launch, scratch, layout)


def _word_defines(dtype: DType, precision: str) -> dict[str, ParameterValue]:
    """Macros that choose the word of an element: an unsigned integer of its size, or two of eight bytes; float32 where it is
    rounded.
    """
    if precision != FULL:
        rounds: dict[str, ParameterValue] = {"ROUNDS": 1, f"ROUNDS_TO_{precision.upper()}": 1, "SIXTEEN_BYTES": 0}
        return {**type_defines(FLOAT32, FLOAT32, FLOAT32), **rounds}
    word = DTYPES[f"uint{8 * min(dtype.itemsize, 8)}"]
    return {**type_defines(word, default_accumulator(word, word), word), "SIXTEEN_BYTES": int(dtype.itemsize == 16)}


PASS = Transpose()

LADDER = (
    Rung("copy", "the yardstick: straight from memory to memory", PASS, {"TRANSPOSE": 0, "STAGED": 0}),
    Rung("copy_tiled", "the yardstick by way of local memory", PASS, {"TRANSPOSE": 0, "STAGED": 1, "PAD": 0}),
    Rung("transpose_naive", "rows become columns: written across memory", PASS, {"TRANSPOSE": 1, "STAGED": 0}),
    Rung("transpose_tiled", "read and written along memory", PASS, {"TRANSPOSE": 1, "STAGED": 1, "PAD": 0}),
    Rung("transpose_padded", "no bank conflicts", PASS, {"TRANSPOSE": 1, "STAGED": 1, "PAD": 1}),
    Rung(
        "transpose_diagonal", "no partition camping", PASS, {"TRANSPOSE": 1, "STAGED": 1, "PAD": 1, "ORDER": "diagonal"}
    ),
)
"""From the copy that a transpose can at best be as fast as, to a transpose that is: each step adds one idea."""
