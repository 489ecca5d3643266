"""Two small ladders of passes that are not gemmport's own, and faults that a parameter plants in them."""

from __future__ import annotations

from pathlib import Path

from gemmport.contracts.kernel import Parameter, Parameters, Pass, Rung, Steps, ceil_div, type_defines
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, DType, default_accumulator
from gemmport.core.plan import Buffer, Integer, Launch, Scratch

ITEMS = 64
"""Work-items of a group."""

GROUPS = 4
"""That add up numbers, each into one number per work-item."""

HERE = str(Path(__file__).parent)


class Move(Pass):
    """One work-item per element of the source."""

    name = "move"
    summary = "a matrix copied or transposed"
    folder = HERE
    parameters = (
        Parameter("TRANSPOSE", 1, "whether rows become columns", minimum=0),
        Parameter("SKIPS", 0, "whether the last element is left out", minimum=0),
        Parameter("STRAYS", 0, "whether an element behind the target is written", minimum=0),
        Parameter("SPOILS", 0, "whether the source is written", minimum=0),
        Parameter("BREAKS", 0, "whether it does not compile", minimum=0),
    )

    def steps(self, rows: int, columns: int, dtype: DType, parameters: Parameters, device: DeviceInfo) -> Steps:
        sizes = (Integer(rows, bits=32), Integer(columns, bits=32))
        launch = Launch(
            self.source({**parameters, **type_defines(dtype, default_accumulator(dtype, dtype), dtype)}),
            groups=(ceil_div(rows * columns, ITEMS), 1, 1),
            work_group=(ITEMS, 1, 1),
            arguments=(Buffer("source"), Buffer("target"), *sizes),
        )
        return Steps([launch])


class Sum(Pass):
    """Work-items add up numbers far from each other into scratch memory; then one adds up those sums."""

    name = "sum"
    summary = "the sum of all numbers"
    folder = HERE
    parameters = (
        Parameter("SKIPS", 0, "whether the last number is left out", minimum=0),
        Parameter("STRAYS", 0, "whether a number behind the target is written", minimum=0),
        Parameter("IMPOSSIBLE", 0, "whether no device has what it needs", minimum=0),
    )

    def unsupported(self, dtype: DType, parameters: Parameters, device: DeviceInfo) -> str | None:
        return f"{device.name} cannot do the impossible" if parameters["IMPOSSIBLE"] else None

    def steps(self, count: int, dtype: DType, parameters: Parameters, device: DeviceInfo) -> Steps:
        sums = default_accumulator(dtype, dtype)
        defines = {**parameters, **type_defines(dtype, sums, sums)}
        parts = ITEMS * GROUPS
        return Steps(
            [
                Launch(
                    self.source(defines), (GROUPS, 1, 1), (ITEMS, 1, 1),
                    (Buffer("source"), Buffer("parts"), Integer(count)),
                ),
                Launch(
                    self.source(defines, function="sum_parts"), (1, 1, 1), (1, 1, 1),
                    (Buffer("parts"), Buffer("target"), Integer(parts)),
                ),
            ],
            [Scratch("parts", parts * (DTYPES["uint32"] if sums.kind == "bool" else sums).itemsize)],
        )  # fmt: skip


COPY = Rung("copy", "the yardstick", Move(), {"TRANSPOSE": 0})
TURN = Rung("turn", "rows become columns", Move(), {})
PLAIN = Rung("plain", "far apart", Sum(), {})
SECOND = Rung("second", "nothing", Sum(), {})
UNSUPPORTED = Rung("impossible", "the impossible", Sum(), {"IMPOSSIBLE": 1})

LADDERS = {"transpose": (COPY, TURN), "reduce": (PLAIN, UNSUPPORTED, SECOND)}
