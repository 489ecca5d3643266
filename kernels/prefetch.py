"""`prefetch`: the next tiles and the next term are on their way while these are computed."""

from __future__ import annotations

from gemmport.plan import KernelSource, ParameterValue
from gemmport.problem import GemmProblem
from gemmport.variant import Constraint, KernelVariant, Parameter, Parameters, Tile, ceil_div, run_defines


class Prefetch(KernelVariant):
    """A group computes TSM × TSN of D, a work-item WPTM × WPTN of them, stepping along k by TSK; everything moves in runs of
    WIDTH neighbours, as in `register_tiled_vectorized`, and by the same rules.

    While a tile is computed, each work-item holds its share of the next one in registers. With two stages of local memory that
    is put down where nobody reads, and a step has one barrier; with one stage, which takes half the memory, it has two.
    """

    name = "prefetch"
    summary = "the next tiles, and the next term of this one, loaded while the last are computed"
    parameters = (
        Parameter("TSM", 64, "rows of the tile", maximum=512),
        Parameter("TSN", 64, "columns of the tile", maximum=512),
        Parameter("TSK", 8, "depth of the tile: terms of the sum per step", maximum=128),
        Parameter("WPTM", 8, "rows per work-item", maximum=32),
        Parameter("WPTN", 4, "columns per work-item", maximum=32),
        Parameter("WIDTH", 4, "elements moved and computed at once", choices=(1, 2, 4, 8)),
        Parameter("STAGES", 2, "tiles of A and of B in local memory at once", maximum=2),
        Parameter("REG_PREFETCH", 1, "terms that are read from local memory ahead", minimum=0, maximum=1),
        Parameter("PAD", 4, "elements added to each row in local memory, against bank conflicts", minimum=0, maximum=8),
    )
    constraints = (
        Constraint("TSM % WPTM = 0", lambda TSM, WPTM: TSM % WPTM == 0),
        Constraint("TSN % WPTN = 0", lambda TSN, WPTN: TSN % WPTN == 0),
        Constraint("WPTM % WIDTH = 0, whole runs of rows", lambda WPTM, WIDTH: WPTM % WIDTH == 0),
        Constraint("WPTN % WIDTH = 0, whole runs of columns", lambda WPTN, WIDTH: WPTN % WIDTH == 0),
        Constraint("TSK % WIDTH = 0, whole runs of terms", lambda TSK, WIDTH: TSK % WIDTH == 0),
        Constraint("PAD % WIDTH = 0, so that rows stay aligned", lambda PAD, WIDTH: PAD % WIDTH == 0),
        Constraint("WPTM · WPTN ≤ 256, the sums of one work-item", lambda WPTM, WPTN: WPTM * WPTN <= 256),
        Constraint(
            "TSK · WPTM · WPTN ≤ 2048, the multiply-adds that a step is written out to",
            lambda TSK, WPTM, WPTN: TSK * WPTM * WPTN <= 2048,
        ),
        Constraint(
            "TSK · (TSM + TSN) ≤ 128 · TSM / WPTM · TSN / WPTN, the elements of the next tiles that one work-item holds",
            lambda TSM, TSN, TSK, WPTM, WPTN: TSK * (TSM + TSN) * WPTM * WPTN <= 128 * TSM * TSN,
        ),
    )

    def source(self, defines: Parameters, *, function: str = "prefetched", stem: str = "") -> KernelSource:
        """Its function is named otherwise: OpenCL C has a `prefetch` of its own."""
        return super().source(defines, function=function, stem=stem)

    def tile(self, parameters: Parameters) -> Tile:
        return Tile(int(parameters["TSM"]), int(parameters["TSN"]), int(parameters["TSK"]))

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        p = {name: int(parameters[name]) for name in ("TSM", "TSN", "WPTM", "WPTN")}
        return p["TSN"] // p["WPTN"], p["TSM"] // p["WPTM"], 1

    def local_bytes(self, parameters: Parameters, problem: GemmProblem) -> int:
        p = {name: int(parameters[name]) for name in ("TSM", "TSN", "TSK", "STAGES", "PAD")}
        elements = p["STAGES"] * p["TSK"] * (p["TSM"] + p["TSN"] + 2 * p["PAD"])
        return elements * problem.accumulator.itemsize

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        """Of sums, fragments, and the runs of the next tiles."""
        p = {name: int(parameters[name]) for name in ("TSM", "TSN", "TSK", "WPTM", "WPTN", "WIDTH", "REG_PREFETCH")}
        x, y, _ = self.work_group(parameters)
        next_runs = sum(ceil_div(p[lines] * p["TSK"] // p["WIDTH"], x * y) for lines in ("TSM", "TSN"))
        fragments = (1 + p["REG_PREFETCH"]) * (p["WPTM"] + p["WPTN"])
        elements = p["WPTM"] * p["WPTN"] + fragments + next_runs * p["WIDTH"]
        return ceil_div(elements * problem.accumulator.itemsize, 4)

    def defines(self, parameters: Parameters, problem: GemmProblem) -> dict[str, ParameterValue]:
        return {**super().defines(parameters, problem), **run_defines(problem, int(parameters["WIDTH"]))}


VARIANT = Prefetch()
