"""`microbenchmarks`: what a device takes for the parts of a product, each by itself; `gemmport.calibration` measures them."""

from __future__ import annotations

from typing import Literal

from gemmport.contracts.kernel import Parameter, Parameters, Pass, parameter_defines, type_defines
from gemmport.core.dtypes import DType
from gemmport.core.plan import Argument, Buffer, Integer, Launch

Function = Literal["multiply_adds", "read_global", "copy_global", "read_local", "chase", "start", "pass_round"]

UNROLL = 8
"""Multiply-adds of each sum between two looks at the counter: `steps` of `multiply_adds` is a multiple of it."""

STRIDE = 8
"""Runs of local memory that a work-item goes on by in a step; told at the launch, so that no compiler foresees what is read."""

ROOM = 256
"""Runs of local memory among which a work-item's first one goes round: as many as a group has work-items at most, and a power
of two, so that nothing is divided."""

WORD_BYTES = 4
"""Of what `chase`, `start` and `pass_round` read and write."""


class Microbenchmarks(Pass):
    """Seven functions of one source, each of which does `steps` of one thing.

    Elements are read and written as runs of WIDTH: an item of a GPU has the usual 16 bytes, one of a CPU a whole vector.
    """

    name = "microbenchmarks"
    summary = "rates, bandwidths and delays of a device, each by itself"
    parameters = (
        Parameter("ITEMS", 256, "work-items of a group", maximum=256),
        Parameter("WIDTH", 1, "elements of a run", choices=(1, 2, 4, 8, 16)),
        Parameter("CHAINS", 8, "sums of a work-item that do not wait for each other", maximum=16),
    )

    def launch(self, function: Function, dtype: DType, parameters: Parameters, groups: int, steps: int) -> Launch:
        """The launch of a function. With I, W and C for ITEMS, WIDTH and CHAINS:

        - `multiply_adds`: s = s·a + b, `steps` times, for the runs s = source[2 + c, item], a = source[0, item] and
          b = source[1, item], of all c < C; they come to target[group, c, item];
        - `read_global`: the sum of the runs source[group, :, item] of (groups, steps · C, I) comes to target[group, item];
        - `copy_global`: the same runs are copied to the same places;
        - `read_local`: a group copies ROOM + (C − 1) · I runs to local memory, and of each work-item the sum of the runs
          (item + step · STRIDE) mod ROOM + c · I, of all steps and c, comes to target[group, item];
        - `chase`: the word target[0] becomes source[target[0]], `steps` times, by one work-item;
        - `start`: target[group] = 2 · group + steps;
        - `pass_round`: the words source[item] go `steps` places down a group, a barrier for each, to target[group, item].

        Args:
            dtype: of what is computed; of no account to the last three, which move unsigned words of 32 bits.
            parameters: what is left out is its default.
            steps: of `multiply_adds`, a multiple of UNROLL.
        """
        values = self.complete(parameters)
        items, width = int(values["ITEMS"]), int(values["WIDTH"])
        run = width * dtype.itemsize
        local = {
            "read_local": local_runs(values) * run,
            "pass_round": 2 * items * WORD_BYTES,
        }
        source: tuple[Argument, ...] = () if function == "start" else (Buffer("source"),)
        stride: tuple[Argument, ...] = (Integer(STRIDE, bits=32),) if function == "read_local" else ()
        return Launch(
            self.source(
                {
                    **parameter_defines(values), **type_defines(dtype, dtype, dtype), "UNROLL": UNROLL,
                    "ROOM": ROOM, "IN_RUN_BYTES": run, "OUT_RUN_BYTES": run, "SUM_LANES": width,
                    "LOADS_SUMS": int(bool(dtype.precision)),
                },
                function=function,
            ),
            groups=(groups, 1, 1),
            work_group=(items, 1, 1),
            arguments=(*source, Buffer("target"), Integer(steps, bits=32), *stride),
            local_bytes=local.get(function, 0),
        )  # fmt: skip


def local_runs(parameters: Parameters) -> int:
    """Runs of local memory of `read_local`."""
    return ROOM + (int(parameters["CHAINS"]) - 1) * int(parameters["ITEMS"])


PASS = Microbenchmarks()
