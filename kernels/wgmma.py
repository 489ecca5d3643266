"""`wgmma`: products by the matrix unit of Hopper, which four warps use together, and its copy engine (TMA)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from gemmport.contracts.device_model import DeviceModel, Prediction, clock, per_clock, usual_matrix_products
from gemmport.contracts.gpu_model import sharing_of
from gemmport.contracts.kernel import (
    Constraint,
    Cut,
    Form,
    KernelVariant,
    Parameter,
    Parameters,
    Predictor,
    Rankings,
    Steps,
    Tile,
    ceil_div,
    gemm_arguments,
    stored_runs_defines,
)
from gemmport.contracts.nvidia import (
    cut_of_float32_sums,
    multiplies_matrices_by_warp_groups,
    why_not_multiplied,
)
from gemmport.contracts.occupancy import REGISTERS, WARP, local_memory_of
from gemmport.contracts.prediction import SHARPNESS, crossing, facts_of, joined
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, FLOAT32, DType
from gemmport.core.plan import Argument, Buffer, Integer, Launch, ParameterValue, Scratch, TensorMap
from gemmport.core.precision import FULL
from gemmport.core.problem import MAX_EXTENT, GemmProblem, Operand, transposed, transposes
from gemmport.kernels import mma, relayout, transpose

GROUP = 4 * WARP
"""Work-items that ask the unit together."""

ROW_BYTES = 128
"""Of a line, or of a term, that the copy engine brings at once, swizzled."""

LINES = 64
"""Rows of A of one product of the unit (PTX ISA, `wgmma.mma_async`)."""

STORED_ROWS, COLUMNS = 16, 64
"""That a warp stores at once."""

_MOST_SUMMERS = 8
"""Warps that add up parts of one tile at one time."""

FLOAT8_CUT = Cut(digits=14, terms=ROW_BYTES)
"""What the unit keeps of sums of FP8 (DeepSeek-V3 Technical Report, 2024, section 3.3.2), which are promoted after a step."""

ALIGNMENT = 16
"""Bytes to which the copy engine wants memory, rows and matrices aligned (CUDA Driver API, `cuTensorMapEncodeTiled`), and where
in a row a copy begins: an H100 ends a launch whose copies begin elsewhere with CUDA_ERROR_ILLEGAL_INSTRUCTION (docs/wgmma.md).
"""

_STRIDE_LIMIT = 2**40
"""Bytes below which its strides are."""

_MOST_TILES = 2**31 - 2**16
"""That are numbered in 32 bits, with as many groups behind them as a device may have."""

_FEW_REGISTERS, _FEW_IN_CLUSTERS, _MOST_REGISTERS = 40, 56, 240
"""Of a work-item that has copies made, alone and in a cluster, and of one that multiplies, where they differ."""

_MOST_SUMS = {(1, 1): 16384, (1, 2): 16384, (1, 3): 8192, (2, 1): 8192, (2, 2): 4096}
"""Of four warps, by the groups of a compute unit and how many times four warps of each multiply: they stay in registers."""

_MOST_PROMOTED = {(1, 1): 24576, (1, 2): 24576, (1, 3): 16384, (2, 1): 8192, (2, 2): 8192}
"""Likewise, with those of LINES rows of a step, which registers hold, too."""

_MOST_ROUNDED = {(1, 1): 20480, (1, 2): 20480, (1, 3): 8192, (2, 1): 8192}
"""Likewise, with 64 columns more, for as many terms of A, which is rounded in registers."""

_MOST_EXCHANGED = {(1, 1): 8192, (1, 2): 8192, (2, 1): 4096}
"""Likewise, where sums of the other group of a cluster are added."""

_COPIED = 4
"""Bytes to which `mma` wants rows aligned, to copy them (PTX ISA, `cp.async`)."""

_TURNED = 2
"""Bytes of elements that the unit reads where they lie across k."""

TF32 = "tf32"

MAP_BYTES = 128
"""Of a tensor map."""

NONE, SAME_A, SAME_B, SAME_D = "none", "a", "b", "d"
"""What two groups of a cluster share: nothing, for there is none; tiles of A or of B; a tile of D."""

_A: tuple[Operand, ...] = ("a",)
_B: tuple[Operand, ...] = ("b",)

SHARED_LINES = 2 * LINES
"""Of an operand, of which each group of a cluster has one half brought."""

_FEW_RESULTS = 2**15
"""Elements of D for each compute unit, beyond which no tiling has so few tiles that clusters share them all."""

_SHARES = (0, 1)
_TRIED: Parameters = {"TSM": 128, "TSN": 256, "WM": 64, "STAGES": 4}
_TRIED_TYPES = {"float16": "float16", "bfloat16": "bfloat16", "int8": "int32"}
"""What `gemmport doctor` tries under OpenCL: almost all local memory and all registers; types of operands, with those of D."""


class _Unit(NamedTuple):
    """What the matrix unit does with operands of a type.

    Attributes:
        name: of the instruction's type: in that of a macro GROUP_MUL_ADD_….
        sums: the type of the sums.
        precision: to which the product must ask that operands are rounded.
        promotes: whether the unit adds up in fewer digits than `sums` has, so that each step is added to sums outside of it.
    """

    name: str
    sums: DType
    precision: str = FULL
    promotes: bool = False


_UNITS = {
    "float16": _Unit("F16", FLOAT32),
    "bfloat16": _Unit("BF16", FLOAT32),
    "float32": _Unit("TF32", FLOAT32, TF32),
    "float8_e4m3fn": _Unit("E4M3", FLOAT32, promotes=True),
    "float8_e5m2": _Unit("E5M2", FLOAT32, promotes=True),
    "int8": _Unit("S8", DTYPES["int32"]),
    "uint8": _Unit("U8", DTYPES["int32"]),
}
"""By type of the operands (PTX ISA, `wgmma.mma_async`)."""


class Wgmma(KernelVariant):
    """A group of work-items computes one tile of TSM × TSN of D after the other, stepping along k by 128 bytes.

    One of its work-items has tiles of A and B copied to local memory by the copy engine (TMA), STAGES ahead; of the others each
    four warps multiply WM rows of the tile. The unit turns two-byte elements that lie across k. Others are transposed
    beforehand, in scratch memory, and what the copy engine cannot address is laid out anew there.

    Float32 is multiplied as TF32 where, and only where, precision="tf32" asks for it. A is rounded in registers, from which
    the unit takes it, whichever way it lies. The pass that lays operands out anew rounds B beforehand.

    The unit adds up floats of 8 bits in about 14 bits. So the sums of each step, 128 terms, are added to float32 outside of it.

    With SHARE > 0, as many groups per compute unit share the tiles that do not fill a round of all groups, as in `simt`.

    With a CLUSTER, two groups run on neighbouring compute units and reach each other's local memory: each has one half of the
    tiles of A or of B copied to both, or both compute one tile, each with half of its terms (CUDA C++ Programming Guide,
    "Thread Block Clusters"). Others than the user choose these where all tiles are shared along k. With EARLY = 1 groups begin
    while the launch before still runs ("Programmatic Dependent Launch").

    Where `mma` is expected to be faster, only the user chooses it. Under OpenCL it is chosen where `gemmport doctor` has found
    it right on the device.
    """

    name = "wgmma"
    summary = "by Hopper's matrix unit (wgmma): halves, bytes, FP8 and TF32, copied by the copy engine (TMA)"
    dtypes = frozenset(_UNITS)
    precisions = frozenset({TF32})
    narrow_precisions = frozenset({"float16", "bfloat16"})
    takes_scales = True
    parameters = (
        Parameter("TSM", 128, "rows of the tile", choices=(64, 128, 192, 256)),
        Parameter("TSN", 128, "columns of the tile", choices=(64, 128, 192, 256)),
        Parameter("WM", 64, "rows of the tile that four warps multiply", choices=(64, 128)),
        Parameter("STAGES", 4, "tiles of A and of B in local memory at once", minimum=2, maximum=12),
        Parameter("RASTER", 16, "rows of tiles that are computed side by side", maximum=64),
        Parameter("GROUPS", 1, "groups per compute unit that registers shall suffice for", choices=(1, 2)),
        Parameter(
            "SHARE",
            0,
            "groups per compute unit that share the last tiles; 0: each is one group's",
            minimum=0,
            maximum=2,
        ),
        Parameter(
            "CLUSTER",
            NONE,
            "what two groups at a time share: none; tiles of A or B, copied to both; or of D, half of the terms each",
            choices=(NONE, SAME_A, SAME_B, SAME_D),
        ),
        Parameter("EARLY", 0, "whether groups begin, and wait, while the launch before still runs", choices=(0, 1)),
    )
    constants: ClassVar = {
        **KernelVariant.constants,
        "doubt": "`mma` must be expected to be so many times as fast to be taken in its place",
        "worth_laying_out": "elements of an operand that `mma` reads one by one, from which on few rows or columns are its own",
        "early_clocks": "of a launch that begins early, which the launch before it hides",
        "map_clocks": "of a launch in OpenCL, whose groups look at the addresses in tensor maps before they copy",
        "products": "multiply-adds of 2-byte numbers that a unit's matrix unit does per clock, by wgmma",
        "read_bytes": "that it reads from local memory per clock",
        "copy_bytes": "that the copy engine brings to a unit per clock",
        "line_bytes": "of a line of the caches, which they give whole units that ask for it at one time",
        "crossing_bandwidth": "bytes per second that caches give all units, of rows that begin within a line",
        "reread_bandwidth": "bytes per second that caches give once more where groups that share all tiles go along k in step",
        "promoted": "sums of FP8 that work-items of a unit add per clock, while the unit waits",
        "step_clocks": "of a step beside its products",
        "far_clocks": "a copy takes so long to arrive; the steps whose tiles are in local memory already hide it",
        "tile_clocks": "of a tile beside its steps and its results",
        "part_clocks": "of adding up one more part of a shared tile, of those that a warp adds up",
        "wait_clocks": "of sharers for the whole tiles before them, the last of which not all units finish at one time",
        "sharpness": "of limits none hides another wholly: the powers of their times are added up, of this exponent",
    }
    constraints = (
        Constraint("TSM % WM = 0", lambda TSM, WM: TSM % WM == 0),
        Constraint(
            "registers hold the sums: WM · TSN ≤ 16384 where TSM / WM ≤ 2, and 8192 where it is 3; with GROUPS = 2, 8192 where "
            "TSM = WM, and 4096 where TSM / WM = 2",
            lambda TSM, TSN, WM, GROUPS: _MOST_SUMS.get((GROUPS, TSM // WM), 0) >= WM * TSN,
        ),
        Constraint(
            f"TSM % {SHARED_LINES} = 0 with CLUSTER = a, and TSN % {SHARED_LINES} = 0 with CLUSTER = b",
            lambda TSM, TSN, CLUSTER: {SAME_A: TSM, SAME_B: TSN}.get(CLUSTER, 0) % SHARED_LINES == 0,
        ),
        Constraint(
            "registers hold the other group's sums, too: with CLUSTER = d, WM · TSN ≤ 8192 where TSM / WM ≤ 2; with "
            "GROUPS = 2, 4096 where TSM = WM",
            lambda TSM, TSN, WM, GROUPS, CLUSTER: (
                CLUSTER != SAME_D or _MOST_EXCHANGED.get((GROUPS, TSM // WM), 0) >= WM * TSN
            ),
        ),
        Constraint("SHARE = 0 with CLUSTER = d", lambda SHARE, CLUSTER: SHARE == 0 or CLUSTER != SAME_D),
        Constraint("SHARE = 0 with EARLY = 1", lambda SHARE, EARLY: SHARE == 0 or EARLY == 0),
    )

    def tile(self, parameters: Parameters) -> Tile:
        """Of two-byte elements."""
        return Tile(int(parameters["TSM"]), int(parameters["TSN"]), ROW_BYTES // 2)

    def _tile(self, parameters: Parameters, problem: GemmProblem) -> Tile:
        return self.tile(parameters)._replace(depth=ROW_BYTES // problem.dtype.itemsize)

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        return _multipliers(parameters) + GROUP, 1, 1

    def local_bytes(self, parameters: Parameters, problem: GemmProblem) -> int:
        """Of the stages, sums on their way to D, two barriers of 8 bytes for each stage, and what clusters exchange."""
        stages, rows, columns = (int(parameters[name]) for name in ("STAGES", "TSM", "TSN"))
        # Of each two warps the sums of one, in 4 bytes, and two barriers more.
        exchanged = rows * columns * 4 // 2 + 16 if parameters["CLUSTER"] == SAME_D else 0
        return stages * ((rows + columns) * ROW_BYTES + 16) + _staged_bytes(parameters) + exchanged

    def most_local_bytes(self, device: DeviceInfo) -> int:
        return max(device.most_local_memory, local_memory_of(device, specific=True))

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        rows, columns = int(parameters["WM"]), int(parameters["TSN"])
        multipliers = _multipliers(parameters)
        lines = 2 * rows * ROW_BYTES // 4 // GROUP if _rounds_a(problem) else 0  # of A, of two steps
        held = (rows + (LINES if _promotes(problem) else 0)) * columns // GROUP + lines
        # Those that multiply have more than those that have tiles brought: this is the mean.
        return ceil_div(held * multipliers, multipliers + GROUP)

    def unsupported(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if reason := super().unsupported(problem, device):
            return reason
        if not multiplies_matrices_by_warp_groups(device):
            found = device.architecture or device.name
            return f"only GPUs of compute capability 9.0 have it; this is {found} under {device.backend}"
        unit = _UNITS[problem.dtype.name]
        return why_not_multiplied(problem, precision=unit.precision, sums=unit.sums)

    def cut(self, problem: GemmProblem, device: DeviceInfo) -> Cut | None:
        return FLOAT8_CUT if _promotes(problem) else cut_of_float32_sums(problem, device)

    def unit_rate(self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, parameters: Parameters) -> float:
        multiplied = DTYPES.get(problem.precision, problem.dtype)  # TF32 takes 4 bytes
        per_clock = _constants(device, model)["products"] * 2 / multiplied.itemsize
        return per_clock * max(device.compute_units, 1) * clock(device)

    def declined(
        self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, rankings: Rankings | None = None
    ) -> str | None:
        """Where `gemmport doctor` has found it wrong; and where `mma`, which takes the same products and has the same done to
        operands before, has tiles that are as narrow as the product, and copies what it reads, or is expected to be faster.
        """
        if problem.empty or self.unsupported(problem, device):
            return None
        for form in (_form(problem.dtype.name, share) for share in _SHARES):
            if model.has_refuted(self.name, form):
                return f"gemmport doctor has found it wrong on this device: {form}"
        if min(problem.m, problem.n) < LINES:
            if _is_slow_in_mma(problem, _constants(device, model)["worth_laying_out"]):
                return None
            return f"D must have at least {LINES} rows and columns; it is {problem.m} × {problem.n}: mma has tiles as narrow"
        rankings = rankings or Rankings(device, model)
        own, other = (rankings.seconds(each, problem) for each in (self, mma.VARIANT))
        if own <= _constants(device, model)["doubt"] * other:
            return None
        return f"mma is expected to take {1e6 * other:,.1f} µs, wgmma {1e6 * own:,.1f} µs"

    def forms(self, device: DeviceInfo) -> Sequence[Form]:
        """Under OpenCL, whose driver may or may not take a program's completed PTX, and so much local memory."""
        if device.language != "opencl" or not multiplies_matrices_by_warp_groups(device):
            return ()
        return [
            Form(self.name, _form(dtype, share), dtype, output, {**_TRIED, "SHARE": share}, "wgmma.mma_async")
            for dtype, output in _TRIED_TYPES.items()
            for share in _SHARES
        ]

    def unfit(self, parameters: Parameters, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if device.language == "opencl" and (parameters["CLUSTER"] != NONE or parameters["EARLY"]):
            return "OpenCL launches no clusters of groups, and none early: CLUSTER must be none, and EARLY 0"
        p = {name: int(parameters[name]) for name in ("TSM", "TSN", "WM", "GROUPS")}
        most = _MOST_PROMOTED.get((p["GROUPS"], p["TSM"] // p["WM"]), 0)
        sums = (p["WM"] + LINES) * p["TSN"]
        if _promotes(problem) and sums > most:
            return (
                f"registers hold sums of {problem.dtype}, and those of a step for {LINES} rows: (WM + {LINES}) · TSN must be "
                f"at most {most:,} with GROUPS = {p['GROUPS']} and TSM / WM = {p['TSM'] // p['WM']}; it is {sums:,}"
            )
        most, sums = _MOST_ROUNDED.get((p["GROUPS"], p["TSM"] // p["WM"]), 0), p["WM"] * (p["TSN"] + COLUMNS)
        if _rounds_a(problem) and sums > most:
            return (
                f"registers hold sums, and A of two steps, which is rounded there: WM · (TSN + {COLUMNS}) must be at most "
                f"{most:,} with GROUPS = {p['GROUPS']} and TSM / WM = {p['TSM'] // p['WM']}; it is {sums:,}"
            )
        tiles = self._tiles(parameters, problem)
        return (
            None
            if tiles <= _MOST_TILES
            else f"D must have at most {_MOST_TILES:,} tiles; it has {tiles:,}: use larger ones"
        )

    def considered(self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel) -> Sequence[Parameters]:
        """The tilings of the device's model that fit, each with as many stages as there is room for, shared or not. Where the
        language has it, those that are not begin early, and those that are all shared go to clusters, if these have two each.
        """
        choices: list[Parameters] = []
        clusters = (
            device.language == "cuda" and problem.m * problem.n * problem.batch <= _FEW_RESULTS * device.compute_units
        )
        for tiling in model.tilings.get(self.name, ()):
            full = self.complete(tiling)
            room = self.most_local_bytes(device)
            stages = int(full["STAGES"])
            while stages > 2 and self.local_bytes({**full, "STAGES": stages}, problem) > room:
                stages -= 1
            fits = self.local_bytes({**full, "STAGES": stages}, problem) <= room
            if fits and self.unfit(full, problem, device) is None:
                alone = {**tiling, "STAGES": stages, "SHARE": 0}
                choices.append({**alone, "EARLY": 1} if device.language == "cuda" else alone)
                shared = {**alone, "SHARE": int(full["GROUPS"])}
                choices.append(shared)
                if clusters:
                    choices += [{**shared, "CLUSTER": each} for each in self._sharing_clusters(full, problem, device)]
        return self.ranked(choices, problem, device, model)

    def predicted(
        self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, parameters: Parameters
    ) -> Prediction:
        """Waves of tiles, each as many steps as there are terms."""
        return self.predictor(problem, device, model)(parameters)

    def predictor(self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel) -> Predictor:
        own, hertz, units = _constants(device, model), clock(device), max(device.compute_units, 1)
        addressable, made = _as_read(problem)
        pitches = {x: addressable.layout(x).ld * addressable.dtype.itemsize for x in ("a", "b")}
        crosses = {x: crossing(pitch, own["line_bytes"]) for x, pitch in pitches.items()}
        pass_seconds = relayout.expected_seconds(made.values(), problem, device, model)

        def predicted(parameters: Parameters) -> Prediction:
            p = {name: int(value) for name, value in parameters.items() if name != "CLUSTER"}
            cluster, tile = parameters["CLUSTER"], self._tile(parameters, problem)
            together = _together(parameters)
            tiles, steps = self._tiles(parameters, problem), _steps_of(problem, tile)
            steps = ceil_div(steps, 1 + (cluster == SAME_D))
            shared, sharers = _sharing(tiles, steps, p["SHARE"] * units // together)
            tiles, shared, sharers = together * tiles, together * shared, together * sharers
            step = {
                "multiply-adds": tile.rows * tile.columns * ROW_BYTES / 2 / own["products"],
                "local memory": tile.rows // LINES * (LINES + tile.columns) * ROW_BYTES / own["read_bytes"],
                "copies": (tile.rows / (1 + (cluster == SAME_A)) + tile.columns / (1 + (cluster == SAME_B)))
                * ROW_BYTES
                / own["copy_bytes"],
            }
            of_fullest = ceil_div(tiles - shared, units)
            shares = ceil_div(shared * steps, sharers) * ceil_div(sharers, units) if shared else 0
            parts = {name: (of_fullest * steps + shares) * value / hertz for name, value in step.items()}
            waits = max(own["step_clocks"], own["far_clocks"] / (p["STAGES"] - 1))
            promoted = tile.rows * tile.columns / own["promoted"] if _promotes(problem) else 0.0
            parts["latency"] = (ceil_div(of_fullest, p["GROUPS"]) * steps + shares) * waits / hertz
            parts["global memory"] = problem.bytes / model.read_bandwidth
            # Rows of A are read for each tile beside them, and columns of B for each below.
            lines = crosses["a"] * problem.m * ceil_div(problem.n, tile.columns) / (1 + (cluster == SAME_A))
            lines += crosses["b"] * problem.n * ceil_div(problem.m, tile.rows) / (1 + (cluster == SAME_B))
            line_bytes = problem.effective_k * problem.dtype.itemsize * problem.batch
            parts["caches"] = lines * line_bytes / own["crossing_bandwidth"]
            again = 0.0
            if shared == tiles:
                lines = problem.m * ceil_div(problem.n, tile.columns) / (1 + (cluster == SAME_A))
                lines += problem.n * ceil_div(problem.m, tile.rows) / (1 + (cluster == SAME_B))
                again = max(lines - problem.m - problem.n, 0) * line_bytes
            results = (
                min(tile.rows, problem.m) * min(tile.columns, problem.n) * problem.output.itemsize / own["copy_bytes"]
            )
            # Most sharers have parts of two tiles, but where each tile has as many sharers. All are written and read again.
            moved = 2 * (sharers + (shared if shared and sharers % shared else 0)) * tile.rows * tile.columns
            hidden = p["EARLY"] * min(own["early_clocks"] / hertz, model.launch)
            others = {
                "launches": model.launch * (1 + len(made) + (2 if shared else 0)) - hidden,
                "tensor maps": own["map_clocks"] / hertz if device.language == "opencl" else 0.0,
                "passes": pass_seconds,
                "promotion": (of_fullest * steps + shares) * promoted / hertz,
                "results": (ceil_div(of_fullest, p["GROUPS"]) + (2 if shared else 0))
                * (results + own["tile_clocks"])
                / hertz,
                "waits": own["wait_clocks"] / hertz if shared and tiles > shared else 0.0,
                "rereads": again / own["reread_bandwidth"],
                "parts": (-(-sharers // (shared * _MOST_SUMMERS)) - 1) * own["part_clocks"] / hertz
                + moved * problem.accumulator.sum_bytes / model.copy_bandwidth
                if shared
                else 0.0,
            }
            facts = facts_of(problem, tile.rows, tile.columns, units * p["GROUPS"])
            return Prediction({**parts, **others}, joined(parts, own["sharpness"]) + math.fsum(others.values()), facts)

        return predicted

    def sooner(self, parameters: Parameters, device: DeviceInfo) -> Parameters:
        """The same, with loops that are not written out: SOON, which nobody may set."""
        return {**parameters, "SOON": 1}

    def defines(self, parameters: Parameters, problem: GemmProblem) -> dict[str, ParameterValue]:
        own = {name: value for name, value in parameters.items() if name != "SHARE"}
        few, many = _registers(parameters)
        rows, columns = self._numbered(parameters)
        # A group may have a tile all of which is beyond an edge.
        beyond = problem.m % rows > 0 or problem.n % columns > 0
        common = super().defines(own, problem)
        return {
            **common,
            "EDGES": int(common["EDGES"] or beyond),
            **stored_runs_defines(problem, _width(problem), COLUMNS, apart=_stores_neighbours(parameters)),
            "ARCHITECTURE_SPECIFIC": 1,
            "ELEMENT_BYTES": problem.dtype.itemsize,
            "UNIT_TYPE": _UNITS[problem.dtype.name].name if problem.dtype.name in _UNITS else "NONE",
            "WHOLE_SUMS": int(problem.accumulator.kind == "integer"),
            "PROMOTES": int(_promotes(problem)),
            "ROUNDS_A": int(_rounds_a(problem)),
            "FEW_REGISTERS": few,
            "MANY_REGISTERS": many,
            "BATCHED_A": int(_is_batched(problem, "a")),
            "BATCHED_B": int(_is_batched(problem, "b")),
        }

    def steps(self, problem: GemmProblem, device: DeviceInfo, parameters: Parameters) -> Steps:
        addressable, made = _as_read(problem, early=bool(parameters["EARLY"]))
        names = {operand: each.scratch.name for operand, each in made.items()}
        product = self._product(addressable, device, parameters, names)
        return Steps(
            [*(each.launch for each in made.values()), *product.launches],
            [*(each.scratch for each in made.values()), *product.scratch],
        )

    def _product(
        self, problem: GemmProblem, device: DeviceInfo, parameters: Parameters, prepared: Mapping[Operand, str]
    ) -> Steps:
        """The launches of the product itself.

        Args:
            prepared: as `product`.
        """
        tile = self._tile(parameters, problem)
        tiles, steps = self._tiles(parameters, problem), _steps_of(problem, tile)
        together = _together(parameters)
        shared, sharers = _sharing(tiles, steps, int(parameters["SHARE"]) * device.compute_units // together)
        whole = tiles - shared
        summers = _summers(shared, sharers) if shared else 1
        defines = {**self.defines(parameters, problem), "IN_TURNS": int(shared == tiles), "SUMMERS": summers}
        nbytes = self.local_bytes(parameters, problem)
        sharing = tuple(Integer(x, bits=32) for x in (whole, shared, sharers))
        halves: Sequence[Operand] = {SAME_A: _A, SAME_B: _B}.get(str(parameters["CLUSTER"]), ())
        product, maps = gemm_arguments(problem, prepared), _maps(problem, tile, prepared, halves)
        declares = device.language == "opencl"  # its local memory, and completes maps, two for each group
        own_maps = (Buffer("maps"),) if declares else ()

        def launch(groups: int, *, shares: int) -> Launch:
            parts = Buffer("parts" if shares else "d")  # an argument must name some memory
            return Launch(
                self.source({**defines, "SHARES": shares}),
                groups=(groups, 1, 1),
                work_group=self.work_group(parameters),
                arguments=(*maps.maps, *product, *maps.begins, parts, *sharing, *own_maps),
                local_bytes=nbytes if declares else 0,
                dynamic_local_bytes=0 if declares else nbytes,
            )

        staying = min(whole, max(device.compute_units * int(parameters["GROUPS"]) // together, 1)) * together
        launches = [launch(staying, shares=0)] if whole else []
        scratch = (
            [Scratch("maps", max(staying, sharers * together if shared else 0) * 2 * MAP_BYTES)] if declares else []
        )
        if not shared:
            return Steps(launches, scratch)
        staged = summers * STORED_ROWS * COLUMNS * 4
        combine = Launch(
            self.source({**defines, "SHARES": 1}, function="combine"),
            groups=(shared * together * (tile.rows // STORED_ROWS) * (tile.columns // COLUMNS), 1, 1),
            work_group=(summers * WARP, 1, 1),
            arguments=(*product, Buffer("parts"), *sharing),
            local_bytes=staged if declares else 0,
            dynamic_local_bytes=0 if declares else staged,
        )
        parts = Scratch("parts", 2 * sharers * together * tile.rows * tile.columns * problem.accumulator.sum_bytes)
        return Steps([*launches, launch(sharers * together, shares=1), combine], [parts, *scratch])

    def _sharing_clusters(self, parameters: Parameters, problem: GemmProblem, device: DeviceInfo) -> Sequence[str]:
        """What the groups of clusters may share where clusters share all tiles along k, and no tile is beyond D."""
        rows, columns = int(parameters["TSM"]), int(parameters["TSN"])
        down, across = -(-problem.m // rows), -(-problem.n // columns)
        pairs, clusters = down * across * problem.batch // 2, device.compute_units * int(parameters["GROUPS"]) // 2
        if (
            2 * pairs > clusters
            or not _sharing(pairs, _steps_of(problem, self._tile(parameters, problem)), clusters)[0]
        ):
            return ()
        halved = ((SAME_A, across, rows), (SAME_B, down, columns))
        return [each for each, tiles, lines in halved if tiles % 2 == 0 and lines % SHARED_LINES == 0]

    def _tiles(self, parameters: Parameters, problem: GemmProblem) -> int:
        """That have numbers: each is computed by one group, or by a cluster of two."""
        rows, columns = self._numbered(parameters)
        return ceil_div(problem.m, rows) * ceil_div(problem.n, columns) * problem.batch

    def _numbered(self, parameters: Parameters) -> tuple[int, int]:
        """Rows and columns of what has a number: a tile, or the two of a cluster."""
        tile, cluster = self.tile(parameters), parameters["CLUSTER"]
        return tile.rows * (1 + (cluster == SAME_B)), tile.columns * (1 + (cluster == SAME_A))


def _constants(device: DeviceInfo, model: DeviceModel) -> Mapping[str, float]:
    """Those that a model states, and the others from its rates, as in `gemmport.contracts.gpu_model`: what is fitted to one
    device's times costs nothing elsewhere.
    """
    hertz = clock(device)
    read, barrier, latency = per_clock(model.local_bandwidth, device), model.barrier * hertz, model.latency * hertz
    rates = {
        "doubt": 1.0,
        "worth_laying_out": math.inf,
        "early_clocks": 0.0,
        "map_clocks": 0.0,
        "products": usual_matrix_products(device, model),
        "read_bytes": read,
        "copy_bytes": read / 2,
        "line_bytes": ALIGNMENT,
        "crossing_bandwidth": math.inf,
        "reread_bandwidth": math.inf,
        "promoted": per_clock(model.multiply_adds["float32"], device),
        "step_clocks": barrier,
        "far_clocks": latency,
        "tile_clocks": 2 * latency,
        "part_clocks": 3 * barrier,
        "wait_clocks": 3 * latency,
        "sharpness": SHARPNESS,
    }
    return {**rates, **model.constants("wgmma")}


def _sharing(tiles: int, steps: int, groups: int) -> tuple[int, int]:
    """As `sharing_of`, but where all tiles are shared, each has as many sharers. They go along k in step then: what one reads
    of A and B others need at the same time, and memory gives it once. The sharers of a tile take its steps in turns: what they
    read at one time lies side by side.
    """
    shared, sharers = sharing_of(tiles, steps, groups)
    if shared == tiles:
        sharers -= sharers % max(shared, 1)
    return (shared, sharers) if sharers > shared else (0, 0)


def _summers(shared: int, sharers: int) -> int:
    """Warps that add up the parts of a shared tile: one for each at best. A tile has a sharer more than the others at times."""
    return min(1 << (ceil_div(sharers, shared) - 1).bit_length(), _MOST_SUMMERS)


def _form(dtype: str, share: int) -> str:
    """The name of what is tried."""
    return f"{dtype} with SHARE = {share}"


def _promotes(problem: GemmProblem) -> bool:
    """Whether sums of a step are added to others outside of the unit."""
    return problem.dtype.name in _UNITS and _UNITS[problem.dtype.name].promotes


def _rounds_a(problem: GemmProblem) -> bool:
    """Whether A is rounded on its way to the unit."""
    return problem.dtype.name in _UNITS and _UNITS[problem.dtype.name].precision != FULL


def _stores_neighbours(parameters: Parameters) -> bool:
    """Whether neighbouring work-items store neighbouring elements where rows of D are not aligned: where a unit has two groups,
    registers spill.
    """
    return int(parameters["GROUPS"]) == 1


def _width(problem: GemmProblem) -> int:
    """Elements of D that a work-item stores at once where they are aligned."""
    return max(min(16 // problem.output.itemsize, 8), 1)


def _steps_of(problem: GemmProblem, tile: Tile) -> int:
    """Of a tile."""
    return max(ceil_div(problem.effective_k, tile.depth), 1)


def _multipliers(parameters: Parameters) -> int:
    """Work-items of a group that multiply."""
    return int(parameters["TSM"]) // int(parameters["WM"]) * GROUP


def _together(parameters: Parameters) -> int:
    """Groups of a cluster."""
    return 1 if parameters["CLUSTER"] == NONE else 2


def _staged_bytes(parameters: Parameters) -> int:
    """Of sums on their way to D: 16 rows and 64 columns of each warp that multiplies, in float32."""
    return _multipliers(parameters) // WARP * STORED_ROWS * COLUMNS * 4


def _registers(parameters: Parameters) -> tuple[int, int]:
    """Of a work-item that has copies made, and of one that multiplies; 0 and 0 where all have as many: where that is the most
    that there are, and where two groups are resident, whose sums are few.
    """
    multipliers = _multipliers(parameters)
    items = multipliers + GROUP
    evenly = REGISTERS // items // 8 * 8
    if evenly >= _MOST_REGISTERS or int(parameters["GROUPS"]) > 1:
        return 0, 0
    few = _FEW_REGISTERS if parameters["CLUSTER"] == NONE else _FEW_IN_CLUSTERS
    return few, min((evenly * items - few * GROUP) // multipliers // 8 * 8, _MOST_REGISTERS)


@dataclass(frozen=True)
class _Maps:
    """The arguments for A and B: two tensor maps, and the element x and row y of its map at which each operand begins."""

    maps: tuple[Argument, ...]
    begins: tuple[Argument, ...]


def _maps(problem: GemmProblem, tile: Tile, prepared: Mapping[Operand, str], halves: Sequence[Operand]) -> _Maps:
    """Of operands that the copy engine can address. A map begins where the memory does, so that its address alone differs from
    one call to the next.

    Args:
        halves: operands of whose tiles one half is copied at once.
    """
    maps: list[Argument] = []
    begins: list[Argument] = []
    sides: tuple[tuple[Operand, bool, int], ...] = (
        ("a", not transposes(problem.trans_a), tile.rows),
        ("b", transposes(problem.trans_b), tile.columns),
    )
    for operand, along_k, lines in sides:
        layout, size = problem.layout(operand), problem.dtype.itemsize
        box = (tile.depth, lines // (1 + (operand in halves))) if along_k else (ROW_BYTES // size, tile.depth)
        if not problem.effective_k:  # nothing is read
            maps.append(TensorMap("d", problem.dtype.name, (tile.depth, 1, 1), (ROW_BYTES, ROW_BYTES), box))
            begins += [Integer(0, bits=32)] * 2
            continue
        rows, columns = problem.stored_shape(operand)
        y, x = divmod(layout.offset, layout.ld)
        batched = _is_batched(problem, operand)
        # Of one matrix the distance to the next says nothing.
        strides = (layout.ld * size, (layout.batch_stride if batched else layout.ld * rows) * size)
        sizes = (x + columns, y + rows, problem.batch if batched else 1)
        maps.append(TensorMap(prepared.get(operand, operand), problem.dtype.name, sizes, strides, box))
        begins += [Integer(x, bits=32), Integer(y, bits=32)]
    return _Maps(tuple(maps), tuple(begins))


def _is_slow_in_mma(problem: GemmProblem, worth_laying_out: float) -> bool:
    """Whether the larger operand is of halves that `mma` has to read one by one, and so large that to have it laid out anew
    pays, although tiles of so few rows or columns are mostly empty.

    Args:
        worth_laying_out: its elements from which on that is so.
    """
    larger: Operand = "a" if problem.m > problem.n else "b"
    elements = max(problem.m, problem.n) * problem.effective_k
    brief = problem.dtype.itemsize == _TURNED
    return brief and problem.batch == 1 and elements >= worth_laying_out and problem.alignment(larger) % _COPIED != 0


def _is_batched(problem: GemmProblem, operand: Operand) -> bool:
    """Whether each product has a matrix of its own."""
    return problem.batch > 1 and problem.layout(operand).batch_stride != 0


def _is_addressable(problem: GemmProblem, operand: Operand) -> bool:
    """Whether the copy engine can address an operand as it lies: memory, rows, matrices and where in its row the first element
    is are aligned, each stride is below its limit and a multiple of the one before (CUDA Driver API, `cuTensorMapEncodeTiled`),
    and nothing overlaps.
    """
    layout, size = problem.layout(operand), problem.dtype.itemsize
    rows, columns = problem.stored_shape(operand)
    y, x = divmod(layout.offset, layout.ld)
    strides = (layout.ld, *([layout.batch_stride] if _is_batched(problem, operand) else []))
    return (
        layout.base_alignment % ALIGNMENT == 0
        and x * size % ALIGNMENT == 0
        and all(stride * size % ALIGNMENT == 0 and stride * size < _STRIDE_LIMIT for stride in strides)
        and strides[-1] % layout.ld == 0
        and (len(strides) == 1 or layout.batch_stride >= rows * layout.ld)
        and x + columns <= layout.ld
        and y + rows <= MAX_EXTENT
    )


def _as_read(problem: GemmProblem, *, early: bool = False) -> tuple[GemmProblem, dict[Operand, transpose.Prepared]]:
    """The product of operands that copy engine and unit read as they lie, and those that are laid out anew for that: B, too,
    where it is to be rounded, on the way.

    Args:
        early: whether the passes that do so begin while the launch before still runs.
    """
    precisions: dict[Operand, str] = {"a": FULL, "b": problem.precision}
    made: dict[Operand, transpose.Prepared] = {}
    across: dict[Operand, bool] = {"a": transposes(problem.trans_a), "b": not transposes(problem.trans_b)}
    for operand, lies_across in across.items():
        read_across = problem.dtype.itemsize == _TURNED or (operand == "a" and _rounds_a(problem))
        turned = lies_across and not read_across
        as_it_lies = precisions[operand] == FULL and not turned and _is_addressable(problem, operand)
        if problem.empty or not problem.effective_k or as_it_lies:
            continue
        stored = problem.stored_shape(operand)
        rows, columns = reversed(stored) if turned else stored
        padded = (rows, relayout.whole_columns(columns, problem.dtype.itemsize))
        made[operand] = relayout.prepare(
            problem,
            operand,
            f"{operand}_anew",
            turned=turned,
            padded=padded,
            precision=precisions[operand],
            early=early,
        )
        layout = made[operand].layout
        if operand == "a":
            op = transposed(problem.trans_a) if turned else problem.trans_a
            problem = replace(problem, a=layout, trans_a=op)
        else:
            op = transposed(problem.trans_b) if turned else problem.trans_b
            problem = replace(problem, b=layout, trans_b=op)
    return replace(problem, precision=FULL), made


VARIANT = Wgmma()
