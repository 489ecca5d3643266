"""`prefetch`: the next tiles and the next term are on their way while these are computed."""

from __future__ import annotations

from gemmport.contracts.kernel import Constraint, Parameter, Parameters, ceil_div
from gemmport.contracts.register_tiles import (
    FEW_SUMS,
    WHOLE_BLOCKS,
    WHOLE_RUNS,
    WIDTH,
    RegisterTilesOfRuns,
    padding,
    tile_parameters,
)
from gemmport.core.problem import GemmProblem


class Prefetch(RegisterTilesOfRuns):
    """A group computes TSM × TSN of D, a work-item WPTM × WPTN of them, stepping along k by TSK; everything moves in runs of
    WIDTH neighbours, as in `register_tiled_vectorized`, and by the same rules.

    While a tile is computed, each work-item holds its share of the next one in registers. With two stages of local memory that
    is put down where nobody reads, and a step has one barrier; with one stage, which takes half the memory, it has two.
    """

    name = "prefetch"
    function = "prefetched"
    summary = "the next tiles, and the next term of this one, loaded while the last are computed"
    parameters = (
        *tile_parameters(depth=8, rows=8),
        WIDTH,
        Parameter("STAGES", 2, "tiles of A and of B in local memory at once", maximum=2),
        Parameter("REG_PREFETCH", 1, "terms that are read from local memory ahead", minimum=0, maximum=1),
        padding(4),
    )
    constraints = (
        *WHOLE_BLOCKS,
        *WHOLE_RUNS,
        FEW_SUMS,
        Constraint(
            "TSK · WPTM · WPTN ≤ 2048, the multiply-adds that a step is written out to",
            lambda TSK, WPTM, WPTN: TSK * WPTM * WPTN <= 2048,
        ),
        Constraint(
            "TSK · (TSM + TSN) ≤ 128 · TSM / WPTM · TSN / WPTN, the elements of the next tiles that one work-item holds",
            lambda TSM, TSN, TSK, WPTM, WPTN: TSK * (TSM + TSN) * WPTM * WPTN <= 128 * TSM * TSN,
        ),
    )

    def local_bytes(self, parameters: Parameters, problem: GemmProblem) -> int:
        return int(parameters["STAGES"]) * super().local_bytes(parameters, problem)

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        """Of sums, fragments, and the runs of the next tiles."""
        p = {name: int(parameters[name]) for name in ("TSM", "TSN", "TSK", "WPTM", "WPTN", "WIDTH", "REG_PREFETCH")}
        x, y, _ = self.work_group(parameters)
        next_runs = sum(ceil_div(p[lines] * p["TSK"] // p["WIDTH"], x * y) for lines in ("TSM", "TSN"))
        fragments = (1 + p["REG_PREFETCH"]) * (p["WPTM"] + p["WPTN"])
        elements = p["WPTM"] * p["WPTN"] + fragments + next_runs * p["WIDTH"]
        return ceil_div(elements * problem.accumulator.sum_bytes, 4)


VARIANT = Prefetch()
