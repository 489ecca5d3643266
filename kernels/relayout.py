"""`relayout`: operands of 1, 2 or 4 bytes an element, copied or transposed to aligned rows in runs of 16 bytes.

`transpose` moves one element of a work-item at a time: of small ones, a warp's rows fill lines of memory in part. Here a
work-item reads 16 bytes, wherever they begin, turns small elements in registers, and writes 16 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

from gemmport.contracts.device_model import DeviceModel, clock, per_clock
from gemmport.contracts.kernel import Constraint, Parameter, Parameters, ceil_div, parameter_defines, type_defines
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, DType
from gemmport.core.errors import ParameterError
from gemmport.core.plan import Integer, Launch, ParameterValue
from gemmport.core.precision import FULL
from gemmport.core.problem import GemmProblem, Operand
from gemmport.kernels import transpose
from gemmport.kernels.transpose import Matrices, Prepared, Transpose

RUN_BYTES = 16
"""That are moved at once: the widest load and store there is."""

LINE_BYTES = 128
"""Of a line of the caches: what a row of a tile has at least, as it is read and as it is written."""

WORD_BYTES = 4
"""Of a register: so much of one column a work-item turns at once."""

_RUNS = LINE_BYTES // RUN_BYTES

_MOST_ALONG = 4
"""Lines of a row that a warp copies at once."""


INSTRUCTIONS = 40.0
"""That a work-item issues for an element, where the device's model does not state `elements_per_clock`: a default, and of the
order of magnitude alone, for addresses, edges, two loads and two stores.
"""


class Relayout(Transpose):
    """A group moves a tile of ITEMS · EACH runs of 16 bytes, whose rows have ALONG lines of 128 bytes.

    Rows of the target are whole runs and aligned to them. Those of the source begin at any element: a run that is not aligned
    is put together from the two that it lies in, of which nothing before the first and behind the last element of a matrix is
    read. Gaps between its rows may be.
    """

    name = "relayout"
    summary = "operands of small elements, copied or transposed to aligned rows"
    constants: ClassVar = {
        "elements_per_clock": "that a compute unit lays out anew per clock, however small they are",
    }
    parameters = (
        Parameter("TRANSPOSE", 1, "whether rows become columns", minimum=0, maximum=1),
        Parameter("ALONG", 1, "lines of 128 bytes of a row of the tile", choices=(1, 2, 4, 8)),
        Parameter("ITEMS", 256, "work-items of a group", choices=(64, 128, 256, 512)),
        Parameter("EACH", 4, "runs of 16 bytes of a work-item, all on their way at once", choices=(1, 2, 4, 8)),
        Parameter(
            "EARLY",
            0,
            "whether groups begin, and wait, while the launch before still runs, as in wgmma",
            choices=(0, 1),
        ),
    )
    constraints = (Constraint("ITEMS ≥ 8 · ALONG, the runs of a row", lambda ITEMS, ALONG: ITEMS >= _RUNS * ALONG),)

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
        """As `Transpose.launch`.

        Raises:
            ParameterError: elements are not of 1, 2 or 4 bytes; rows of the target are not whole, aligned runs; a tile that is
                transposed has no whole lines of the target, or a work-item no whole words of a column.
        """
        size, turned = dtype.itemsize, bool(parameters["TRANSPOSE"])
        if size not in (1, 2, WORD_BYTES):
            raise ParameterError(f"{self.name}: elements must have 1, 2 or 4 bytes; {dtype} has {size}: use transpose")
        padded_rows, padded_columns = padded or (rows, columns)
        across = padded_rows if turned else padded_columns
        alignment = target.layout.alignment(size)
        if alignment % RUN_BYTES or across * size % RUN_BYTES:
            raise ParameterError(
                f"{self.name}: rows of the target must be whole runs of {RUN_BYTES} bytes, and aligned to them; they have "
                f"{across * size:,} bytes, aligned to {alignment}: use transpose"
            )
        p = {name: int(parameters[name]) for name in ("ALONG", "ITEMS", "EACH")}
        tile_rows, tile_columns = p["ITEMS"] * p["EACH"] // (_RUNS * p["ALONG"]), p["ALONG"] * LINE_BYTES // size
        if turned and (tile_rows * size % LINE_BYTES or p["EACH"] * size % WORD_BYTES):
            raise ParameterError(
                f"{self.name}: ALONG = {p['ALONG']}, ITEMS = {p['ITEMS']}, EACH = {p['EACH']}: transposed, the rule is "
                f"ITEMS · EACH · {size} % ({LINE_BYTES * _RUNS} · ALONG) = 0 and EACH · {size} % {WORD_BYTES} = 0 for {dtype}"
            )
        word = DTYPES[f"uint{8 * size}"]
        rounds: dict[str, ParameterValue] = {"ROUNDS": 0}
        if precision != FULL:
            rounds = {"ROUNDS": 1, f"ROUNDS_TO_{precision.upper()}": 1}
        defines = {
            **parameter_defines(parameters),
            **type_defines(word, DTYPES["int32"], word),
            **rounds,
            "ELEMENT_BYTES": size,
            "ALIGNMENT": math.gcd(source.layout.alignment(size), RUN_BYTES),
        }
        tiles = ceil_div(padded_rows, tile_rows) * ceil_div(padded_columns, tile_columns) * batch
        return Launch(
            self.source(defines),
            groups=(tiles, 1, 1),
            work_group=(p["ITEMS"], 1, 1),
            arguments=(
                *source.arguments,
                *target.arguments,
                *(Integer(extent, bits=32) for extent in (rows, columns, padded_rows, padded_columns)),
            ),
            local_bytes=tile_rows * tile_columns * size if turned else 0,
        )


def expected_seconds(
    prepared: Iterable[Prepared], problem: GemmProblem, device: DeviceInfo, model: DeviceModel
) -> float:
    """Seconds that it is expected to take a GPU to lay operands of a problem out anew, without their launches. Where tiles are
    not full, runs outside of a matrix take a work-item as long as those inside.
    """
    derived = {"elements_per_clock": per_clock(model.multiply_adds["float32"], device) / INSTRUCTIONS}
    own = {**derived, **model.constants(PASS.name)}
    elements_per_second = own["elements_per_clock"] * max(device.compute_units, 1) * clock(device)
    runs_per_second = elements_per_second * problem.dtype.itemsize / RUN_BYTES
    return sum(
        max(2 * each.scratch.nbytes / model.copy_bandwidth, _runs(each.launch) / runs_per_second) for each in prepared
    )


def _runs(launch: Launch) -> int:
    """Of 16 bytes, that the tiles of a launch have."""
    return math.prod(launch.groups) * launch.work_group[0] * int(PASS.complete({})["EACH"])


PASS = Relayout()


LINE_BYTES = 128
"""Of a line of the caches of NVIDIA's GPUs."""


def whole_columns(columns: int, size: int) -> int:
    """To how many columns rows of so many are padded, whose elements have so many bytes: to whole lines, which are read faster.
    Where rows are short, that would take much room: to whole runs.
    """
    piece = (LINE_BYTES if columns * size >= 4 * LINE_BYTES else RUN_BYTES) // size
    return ceil_div(columns, piece) * piece


def prepare(
    problem: GemmProblem,
    operand: Operand,
    buffer: str,
    *,
    turned: bool,
    padded: tuple[int, int],
    precision: str = FULL,
    early: bool = False,
) -> Prepared:
    """As `transpose.prepare`, of elements of 1, 2 or 4 bytes, in rows of whole runs.

    Args:
        turned: whether rows become columns.
        early: whether the launch begins while the one before still runs, as from compute capability 9.0 on it may in CUDA.
    """
    size = problem.element_type(operand).itemsize
    if turned:
        along = 1 if size == 1 else 2
    else:  # no more than a row has
        along = min(_MOST_ALONG, 2 ** (ceil_div(padded[1] * size, LINE_BYTES) - 1).bit_length())
    parameters: Parameters = {"TRANSPOSE": int(turned), "ALONG": along, "EARLY": int(early)}
    return transpose.prepare(problem, operand, buffer, parameters, padded, precision, PASS)
