"""`packed`: for CPUs. Operands in panels, and a micro-kernel of vectors in registers, as in BLIS."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from gemmport.contracts.device_model import DeviceModel, Prediction, clock
from gemmport.contracts.kernel import (
    Constraint,
    KernelVariant,
    Parameter,
    Parameters,
    Steps,
    Tile,
    ceil_div,
    half_defines,
    run_defines,
)
from gemmport.contracts.prediction import SHARE, WAKE, facts_of, waking
from gemmport.core.device import DeviceInfo
from gemmport.core.plan import Buffer, ParameterValue, Scratch
from gemmport.core.problem import MAX_EXTENT, GemmProblem, Operand
from gemmport.core.quirks import reason_of_limit
from gemmport.kernels import pack

MOST_LANES = 16
"""Numbers in the longest vector of OpenCL C."""

TILES_PER_UNIT = 64
"""Macro-tiles that every core shall have at least: so many that it matters little if it is late with one of them, although PoCL
hands many groups at once to the first core that asks."""

_USUAL_CACHES = (2**15, 2**18, 2**20)
"""Bytes of a core's share of each level where the operating system does not tell: small ones, for tiles that are too small cost
less than tiles that do not fit."""


FITTED = {
    "share": SHARE,
    "tile_seconds": "to begin and end a micro-tile: its sums are set, scaled and stored",
    "group_seconds": "to begin a macro-tile, beside what any group takes",
    "pack_bandwidth": "bytes per second of a core that lays out an operand, read plus written, from its caches",
    "own_bandwidth": "likewise, of the operand that macro-tiles lay out themselves",
    "wake": WAKE,
}
"""What a device's model may state, with its meaning."""

USUAL = {"share": 0.95, "wake": 0.0}
"""Where it states nothing."""

TILE_CLOCKS, GROUP_CLOCKS, PACK_BYTES, OWN_BYTES = 180.0, 300.0, 7.0, 14.0
"""Clocks of `tile_seconds` and `group_seconds`, bytes per clock of `pack_bandwidth` and `own_bandwidth`, where it states none:
defaults, of the order of magnitude alone.
"""

LATENCY = 8
"""Sums that a core adds to in turns so that none waits for itself: four clocks, two pipes."""


class Packed(KernelVariant):
    """A group of one work-item computes MC × NC of D, stepping along k by KC, in micro-tiles of MR lines of NR vectors.

    A line is a row of numbers, of which a complex element has two: a micro-tile has half as many rows of those. A first pass
    lays A and B out in panels (`pack`), which takes in ops, strides, types and edges. Where D is so narrow or so low that one
    macro-tile spans it, the group lays out the long operand itself, KC terms at a time, in local memory: no other group reads
    that part of it. Sums of more than KC terms are kept in D meanwhile; where its type is narrower than that of the sums, in
    scratch memory, so that nothing is rounded in between.

    The extents are the most that tiles have: `fitted` makes micro-tiles as small as the registers are, and macro-tiles so small
    that caches hold their panels and that there are enough of them for all cores.
    """

    name = "packed"
    summary = "for CPUs: packed panels, and a micro-kernel of vectors in registers"
    parameters = (
        Parameter("MR", 14, "lines of a micro-tile, at most", choices=(2, 4, 6, 8, 10, 12, 14)),
        Parameter("NR", 2, "vectors of a line", choices=(1, 2, 3, 4)),
        Parameter("VECTOR", 64, "bytes of a vector, at most", choices=(16, 32, 64)),
        Parameter("MC", 224, "rows of a macro-tile, at most", maximum=8192),
        Parameter("NC", 256, "columns of a macro-tile, at most", maximum=8192),
        Parameter("KC", 4096, "terms of the sum per step, at most", maximum=65536),
        pack.MOVES,
    )
    constants: ClassVar = FITTED
    constraints = (
        Constraint("MC % MR = 0, whole micro-tiles of rows", lambda MC, MR: MC % MR == 0),
        Constraint(
            "NC % (16 · NR) = 0, whole micro-tiles of columns of any type", lambda NC, NR: NC % (MOST_LANES * NR) == 0
        ),
    )

    def tile(self, parameters: Parameters) -> Tile:
        return Tile(int(parameters["MC"]), int(parameters["NC"]), int(parameters["KC"]))

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        return 1, 1, 1

    def local_bytes(self, parameters: Parameters, problem: GemmProblem) -> int:
        own = parameters.get("OWN")
        if own is None:
            return 0
        tile = self.tile(parameters)
        lines = pack.lines_of(panels_of(parameters, problem), tile.rows) if own == "a" else tile.columns
        return lines * tile.depth * problem.accumulator.sum_bytes

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        lines, vectors, vector = (int(parameters[name]) for name in ("MR", "NR", "VECTOR"))
        return (lines * vectors + vectors + 1) * vector // 4

    def unsupported(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if device.type != "cpu":
            return "one work-item computes a whole macro-tile, which is for CPUs"
        if device.max_terms:
            known = reason_of_limit(device, "max_terms")
            return f"its loops are left after too many rounds, and a work-item runs one for each term of each micro-tile{known}"
        return super().unsupported(problem, device)

    def defines(self, parameters: Parameters, problem: GemmProblem) -> dict[str, ParameterValue]:
        """Those of the product. Where it reads panels alone, there is one program, of whatever type and op they were made."""
        stated = {name: value for name, value in parameters.items() if name not in ("VECTOR", "OWN")}
        panels, own = panels_of(parameters, problem), parameters.get("OWN")
        read = replace(
            problem,
            dtype=problem.dtype if own else problem.accumulator,
            trans_a=problem.trans_a if own == "a" else "N",
            trans_b=problem.trans_b if own == "b" else "N",
        )
        return {
            **super().defines(stated, read),
            **run_defines(read, panels["WIDTH"]),
            **half_defines(read, panels["WIDTH"]),
            "EDGES": int(problem.m % panels["ROWS"] != 0 or problem.n % panels["COLUMNS"] != 0),
            "OWN_A": int(own == "a"),
            "OWN_B": int(own == "b"),
            "KEEPS_SUMS": int(_keeps_sums(parameters, problem)),
            **panels,
        }

    def steps(self, problem: GemmProblem, device: DeviceInfo, parameters: Parameters) -> Steps:
        fitted = self.fitted(parameters, problem, device)
        if problem.effective_k == 0:  # A and B are not read
            return Steps([self.product(problem, fitted)])
        packing = panels_of(fitted, problem)
        prepared = {operand: name for operand, name in pack.PANELS.items() if operand != fitted.get("OWN")}
        packed = pack.PASS.steps(problem, {**packing, "MOVES": fitted["MOVES"]}, prepared)
        a, b = (pack.layout(problem, x, packing) if x in prepared else problem.layout(x) for x in pack.PANELS)
        laid_out = replace(problem, a=a, b=b)
        product, scratch = self.product(laid_out, fitted, prepared), [*packed.scratch]
        if _keeps_sums(fitted, problem):
            product = replace(product, arguments=(*product.arguments, Buffer("sums")))
            scratch.append(Scratch("sums", _kept_bytes(problem, packing)))
        return Steps([*packed.launches, product], scratch)

    def predicted(
        self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, parameters: Parameters
    ) -> Prediction:
        own = {**USUAL, **_of_core(device), **model.constants(self.name)}
        values = self.fitted(parameters, problem, device)
        panels, units = panels_of(values, problem), max(device.compute_units, 1)
        mc, nc, mr, nr = (int(values[name]) for name in ("MC", "NC", "MR", "NR"))
        rows, columns = panels["ROWS"], panels["COLUMNS"]
        groups, terms = _tiles(problem, mc, nc), max(problem.effective_k, 1)
        at_once = math.ceil(groups / units) * units / groups  # the last cores are waited for
        tiles = ceil_div(problem.m, rows) * ceil_div(problem.n, columns) * problem.batch
        share = own["share"] * min(1.0, mr * nr / LATENCY)
        sizes = problem.m * problem.k, problem.k * problem.n
        itself = values.get("OWN")  # the operand that groups lay out
        size, sums = problem.dtype.itemsize, problem.accumulator.sum_bytes
        alone = problem.batch * sum(count for x, count in zip("ab", sizes, strict=True) if x == itself)
        before = problem.batch * sum(sizes) - alone
        results = problem.m * problem.n * problem.batch * problem.output.itemsize
        in_caches = (before + alone) * size + before * sums + results <= units * sum(device.caches)
        packing = before * (size + sums) / (own["pack_bandwidth"] * units)
        laid_out = alone * (size + sums) / (own["own_bandwidth"] * units)
        if not in_caches:
            packing += before * (size / model.read_bandwidth + sums / model.copy_bandwidth)
            laid_out += alone * size / model.read_bandwidth
        parts = {
            "launches": 2 * model.launch,
            "groups": ceil_div(groups, units) * (2 * model.group + own["group_seconds"]),
            "multiply-adds": at_once * tiles * rows * columns * terms / (share * model.rate(problem.accumulator)),
            "tiles": at_once * tiles * ceil_div(terms, int(values["KC"])) * own["tile_seconds"] / units,
            "passes": packing,
            "panels": laid_out,
            "results": 0.0
            if in_caches
            else 2 * results / model.copy_bandwidth,  # lines are read before they are written
        }
        of_fullest = ceil_div(groups, units)
        of_group = (parts["groups"] + parts["multiply-adds"] + parts["tiles"] + laid_out) / of_fullest
        parts["waking"] = waking(groups, of_fullest, of_group, units, own["wake"]) + waking(
            units, 1, packing, units, own["wake"]
        )
        return Prediction(parts, sum(parts.values()), facts_of(problem, mc, nc, units))

    def fitted(self, parameters: Parameters, problem: GemmProblem, device: DeviceInfo) -> dict[str, ParameterValue]:
        """The parameters with the tiles of this problem on this device; and OWN, the operand that macro-tiles lay out
        themselves, where there is one.

        Macro-tiles are modelled as by T. M. Low et al., "Analytical Modeling Is Enough for High-Performance BLIS" (ACM TOMS 43,
        2016), one cache further out: half of the second level holds KC terms of a panel of A and of one of B, a fifth of the
        third the panels of the whole tile; D, what passes by and other programs are there, too. Prefetching brings panels to
        the first level in time, and the more terms there are, the less often sums are stored and loaded again. What a
        macro-tile lays out itself is in the second level as a whole, beside as many terms of the short operand.
        """
        values = {name: value if isinstance(value, str) else int(value) for name, value in parameters.items()}
        mr, nr, mc, nc, kc = (int(values[name]) for name in ("MR", "NR", "MC", "NC", "KC"))
        vector = min(int(values["VECTOR"]), max(4 * device.vector_width, 16))
        most = max((x for x in range(2, mr + 1, 2) if (x + 1) * nr + 1 <= _registers(vector)), default=2)
        lines = _lines(problem.m * _numbers(problem), most)
        mc = mc // mr * lines
        values.update(MR=lines, VECTOR=vector)

        panels, itemsize = panels_of(values, problem), problem.accumulator.sum_bytes
        _, second, third = (*device.caches, *_USUAL_CACHES[len(device.caches) :])[:3]
        wanted = TILES_PER_UNIT * device.compute_units
        own = _own(problem, mc, nc)
        if own is not None:
            while own == "a" and mc % (2 * lines) == 0 and _tiles(problem, mc, nc) < wanted // 2:
                mc //= 2
            while own == "b" and nc % (2 * MOST_LANES * nr) == 0 and _tiles(problem, mc, nc) < wanted // 2:
                nc //= 2
            held, beside = (pack.lines_of(panels, mc), problem.n) if own == "a" else (nc, problem.m)
            kc = min(kc, second // 2 // ((held + beside) * itemsize), device.local_memory // (held * itemsize))
            # A power of two: products of many shapes have one program.
            values.update(OWN=own, MC=mc, NC=nc, KC=2 ** (max(kc, 1).bit_length() - 1))
            return values

        kc = min(kc, second // 2 // ((panels["ROWS"] + panels["COLUMNS"]) * itemsize))
        depth = min(kc, max(problem.k, 1))
        while (mc + nc) * depth * itemsize > third // 5 or _tiles(problem, mc, nc) < wanted:
            rows_halve, columns_halve = mc % (2 * lines) == 0, nc % (2 * MOST_LANES * nr) == 0
            if rows_halve and (min(mc, problem.m) > min(nc, problem.n) or not columns_halve):
                mc //= 2
            elif columns_halve:
                nc //= 2
            else:
                break
        keeps = _holds_sums(problem) or _kept_bytes(problem, panels) <= device.max_allocation
        values.update(MC=mc, NC=nc, KC=kc if keeps else MAX_EXTENT)
        return values


def _of_core(device: DeviceInfo) -> dict[str, float]:
    """What a core of the device takes, by its clock."""
    hertz = clock(device)
    return {
        "tile_seconds": TILE_CLOCKS / hertz,
        "group_seconds": GROUP_CLOCKS / hertz,
        "pack_bandwidth": PACK_BYTES * hertz,
        "own_bandwidth": OWN_BYTES * hertz,
    }


def _lines(rows: int, most: int) -> int:
    """Lines of the micro-tiles that cover so many rows of numbers: the most that registers hold; or fewer, where so much less
    of the last micro-tile is empty that a twentieth of the time is saved. To begin and end takes a micro-tile half a line's
    time.
    """

    def time(lines: int) -> float:
        return ceil_div(rows, lines) * (lines + 0.5)

    best = min(range(2, most + 1, 2), key=time)
    return best if time(best) < 0.95 * time(most) else most


def _own(problem: GemmProblem, rows: int, columns: int) -> Operand | None:
    """The operand of whose elements each is read by one macro-tile of so many rows and columns alone: the longer one, where
    both are. None where there is none.
    """
    alone: dict[Operand, bool] = {"a": problem.n <= columns, "b": problem.m <= rows}
    longer_first: tuple[Operand, Operand] = ("a", "b") if problem.m > problem.n else ("b", "a")
    if problem.effective_k == 0:
        return None
    shared = problem.batch > 1
    return next((x for x in longer_first if alone[x] and not (shared and problem.layout(x).batch_stride == 0)), None)


def _tiles(problem: GemmProblem, rows: int, columns: int) -> int:
    return ceil_div(problem.m, rows) * ceil_div(problem.n, columns) * problem.batch


def _registers(vector: int) -> int:
    """Vector registers of a core whose vectors have so many bytes: AVX-512 has 32, what came before it 16."""
    return 32 if vector == 64 else 16


def panels_of(parameters: Parameters, problem: GemmProblem) -> dict[str, int]:
    """Rows of A and columns of B in the panels of a micro-tile, by the names of the parameters of `pack`."""
    numbers = _numbers(problem)
    width = max(1, min(int(parameters["VECTOR"]) // problem.accumulator.sum_bytes, MOST_LANES // numbers))
    return {"ROWS": int(parameters["MR"]) // numbers, "COLUMNS": int(parameters["NR"]) * width, "WIDTH": width}


def _numbers(problem: GemmProblem) -> int:
    """Numbers of an element."""
    return 2 if problem.accumulator.kind == "complex" else 1


def _holds_sums(problem: GemmProblem) -> bool:
    """Whether D can keep sums that are not complete without losing anything; integers lose what they would lose in the end."""
    sums, output = problem.accumulator, problem.output
    return sums.kind == output.kind and sums.precision <= output.precision


def _keeps_sums(parameters: Parameters, problem: GemmProblem) -> bool:
    """Whether sums of some of the terms are kept beside D."""
    return not _holds_sums(problem) and problem.effective_k > int(parameters["KC"])


def _kept_bytes(problem: GemmProblem, panels: Mapping[str, int]) -> int:
    """Bytes of the sums of whole micro-tiles."""
    rows, columns = (
        ceil_div(size, panels[name]) * panels[name] for size, name in ((problem.m, "ROWS"), (problem.n, "COLUMNS"))
    )
    return rows * columns * problem.batch * problem.accumulator.sum_bytes


VARIANT = Packed()
