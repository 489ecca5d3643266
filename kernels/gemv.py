"""`gemv`: a matrix times a vector, or a few: what memory bounds. The matrix is read once, by all of the device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from gemmport.contracts.device_model import DeviceModel, Prediction, clock
from gemmport.contracts.kernel import (
    Constraint,
    KernelVariant,
    Parameter,
    Parameters,
    Rankings,
    Steps,
    Tile,
    ceil_div,
    gemm_arguments,
    half_defines,
    parameter_defines,
    problem_defines,
    run_defines,
)
from gemmport.contracts.nvidia import (
    begins_launches_early,
    multiplies_bytes,
    multiplies_float8_matrices,
    multiplies_matrices_by_warps,
)
from gemmport.contracts.prediction import SHARE, USUAL_ITEMS, facts_of, joined
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, FLOAT8S, FLOAT32, HALVES
from gemmport.core.plan import Argument, Buffer, Integer, Launch, ParameterValue, Scratch
from gemmport.core.precision import FULL
from gemmport.core.problem import GemmProblem, Operand, transposed, transposes

MOST_LANES = 16
"""Numbers in the longest vector of OpenCL C, of which a complex element takes two."""

PART_RESULTS, PART_ADDERS = 8, 16
"""Of a group of the second launch: results side by side, of float32 a sector of 32 bytes, and work-items that add up each."""

WARP = 32

ITEMS = 256
"""Work-items of a GPU's group, where nothing asks for more."""

SIDE_BYTES = (512, 256, 128)
"""Of memory that the work-items side by side read at once where A lies across: those of a warp, down to a cache line."""

MOST_VECTORS = 4
"""For which the matrix is read once; with more, a tile of a product in two dimensions reads less."""

MOST_PARTS = 1024

USUAL_RUN = 16
"""Bytes: the longest that a GPU's work-item reads at once."""

NARROW, RUN_OF_NARROW = 8, 32
"""Lanes of float32 that a CPU's vectors have where AVX-512 is not there, and bytes of the runs that it has along k then."""

FITTED = {
    "groups_per_unit": "groups per compute unit that keep its memory busy: loads are on their way as long as its latency",
    "least_part": "bytes of the matrix that a group reads at least where sums are split: the second launch takes longer than "
    "less would",
    "most_registers": "of a work-item, as `Gemv.registers` counts them",
    "few_registers": "of a work-item in larger groups, where it has few, most of them for addresses",
    "share": SHARE,
    "read_share": "of the bandwidth of memory, that it reaches",
    "cache_bandwidth": "bytes per second that a CPU's core reads of a matrix in its caches",
    "near_bandwidth": "likewise in all but the last of them",
    "cached_bytes": "of a GPU's last cache, from which a matrix of no more comes where it was used just before, for one vector",
    "cached_bandwidth": "bytes per second from there",
    "launch_clocks": "of each launch, beside the latency of what is read",
    "small_matrix": "elements of a matrix; batches of products whose matrices have no more are for other kernels",
}

USUAL = {
    "groups_per_unit": 4, "least_part": 2**17, "most_registers": 128, "few_registers": 20, "small_matrix": 256,
    "share": 0.8, "read_share": 1.0, "cached_bytes": 0, "cached_bandwidth": 0,
}  # fmt: skip
"""Where the device's model states nothing: defaults. Those of Hopper, which were measured, are in its model."""

CACHE_SHARE, NEAR_SHARE = 1 / 6, 1 / 4
"""Of a vector, that a CPU's core reads per clock from the last of its caches and from the others, where the model states no
`cache_bandwidth` and `near_bandwidth`: defaults, of the order of magnitude alone.
"""

WORD_BYTES = 4
"""That one instruction multiplies and adds up (DOTS)."""

EARLY_BYTES = 2
"""Of elements, up to which launches begin early where the device has it: of longer ones, nobody measured what that brings."""

_AT_ONCE = range(4, 9)
"""Steps whose words a work-item reads at once (DOTS): those that leave the fewest for single steps."""

_DOTS = {"int8": "S8", "uint8": "U8"}
"""By type of the operands, the end of the instruction's macro DOT_…."""

LOADED = 2.0
"""Times as late as without other reads a GPU's memory answers under load: a default, of the order of magnitude of
`read_clocks` of `gemmport.contracts.gpu_model`. With it 4 × 3072 × 1024, of 96 groups, is expected to take 8.2 and 8.7 µs under
CUDA and OpenCL on an H200; it took 9.4 and 8.5 (benchmarks/results/h200/run/workloads-float32.json).
"""

_POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Gemv(KernelVariant):
    """A group computes some rows of D for at most VECTORS of its columns; where m < n, rows and columns exchange their roles.

    A work-item reads RUNS runs at once for each of UNROLL of its steps. SIDE work-items stand side by side along memory:
    where A lies along k, they share the sums of the same rows; where it lies across, they have neighbouring rows, and the
    others of the group have other terms. With SPLIT > 1, as many groups share each sum: every one leaves its part, and a
    second launch adds up the parts in one order, so that the bits are the same in every run.

    Runs are as long as they may be: as RUN says, as rows are aligned, and where they lie across, as they divide the rows. Those
    of a group of one work-item, for CPUs, need neither: the last group begins with rows of the one before, so that its runs are
    whole.

    A pass that rounds float32 would read and write what is read here once: so numbers are rounded as they are read.

    With DOTS, for bytes where both operands lie along k, runs stay words of four bytes, which one instruction multiplies and
    adds up: compilers take bytes apart, and convert each. With EARLY, under CUDA, groups begin while the launch before still
    runs, and wait.
    """

    name = "gemv"
    summary = "matrix times vector: the matrix is read once, sums are shared by work-items and groups"
    precisions = frozenset({"tf32", "float16", "bfloat16"})
    parameters = (
        Parameter("ITEMS", ITEMS, "work-items of a group", choices=_POWERS),
        Parameter("SIDE", 32, "work-items side by side along memory", choices=_POWERS),
        Parameter("RUN", USUAL_RUN, "bytes of a run, at most", choices=(4, 8, 16, 32, 64)),
        Parameter("RUNS", 1, "runs of neighbouring rows that a work-item reads in a step", maximum=16),
        Parameter("UNROLL", 4, "steps of a work-item whose runs are read at once", maximum=16),
        Parameter("VECTORS", MOST_VECTORS, "columns of a group, at most", maximum=8),
        Parameter("SPLIT", 1, "groups that share a sum, at most", maximum=MOST_PARTS),
        Parameter("DOTS", 0, "1: bytes are multiplied four at once", choices=(0, 1)),
        Parameter("EARLY", 0, "whether groups begin, and wait, while the launch before still runs", choices=(0, 1)),
    )
    constants: ClassVar = FITTED
    constraints = (
        Constraint("SIDE ≤ ITEMS, for there is at least one side", lambda SIDE, ITEMS: SIDE <= ITEMS),
        Constraint(
            "RUNS · UNROLL · VECTORS ≤ 64, the runs' products that a step is written out to",
            lambda RUNS, UNROLL, VECTORS: RUNS * UNROLL * VECTORS <= 64,
        ),
    )

    def tile(self, parameters: Parameters) -> Tile:
        """Where A lies along k, in runs of one element."""
        items, side, runs = (int(parameters[name]) for name in ("ITEMS", "SIDE", "RUNS"))
        return Tile(items // side * runs, int(parameters["VECTORS"]), side)

    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        return int(parameters["ITEMS"]), 1, 1

    def local_bytes(self, parameters: Parameters, problem: GemmProblem) -> int:
        return _Work.of(problem, parameters).rows * int(parameters["ITEMS"]) * problem.accumulator.sum_bytes

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        """Of sums, and of what is read at once."""
        work = _Work.of(problem, parameters)
        if parameters["DOTS"] and problem.dtype.name in _DOTS:
            words = work.width // WORD_BYTES
            return int(parameters["RUNS"]) * (work.vectors + int(parameters["UNROLL"]) * words) + work.vectors * words
        runs = int(parameters["RUNS"]) * (work.vectors + int(parameters["UNROLL"]))
        return ceil_div(runs * work.width * problem.accumulator.sum_bytes, 4)

    def declined(
        self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, rankings: Rankings | None = None
    ) -> str | None:
        if min(problem.m, problem.n) > MOST_VECTORS:
            return f"it reads the matrix once for {MOST_VECTORS} vectors at most, and D is {problem.m} × {problem.n}"
        if device.type == "cpu" and problem.dtype in HALVES and problem.accumulator != FLOAT32:
            return f"on CPUs it converts vectors of halves to float32, and the sums are in {problem.accumulator}"
        several = min(problem.m, problem.n) > 1
        if several and problem.dtype in HALVES and multiplies_matrices_by_warps(device):
            return (
                f"it converts {problem.dtype} for each vector, and the matrix unit takes several at once: so does mma"
            )
        if problem.dtype in FLOAT8S and multiplies_float8_matrices(device) and _lies_in_words(_turned(problem)):
            return (
                f"it converts {problem.dtype} one by one, and the matrix unit takes it as memory gives it: so does mma"
            )
        elements = max(problem.m, problem.n) * problem.effective_k
        small = int(_constants(device, model)["small_matrix"])
        if device.type == "gpu" and problem.batch > device.compute_units and elements <= small:
            return (
                f"it gives each product a group of {ITEMS} work-items, too many for more than {device.compute_units} products "
                f"with matrices of at most {small} elements, and these are {problem.batch} of {elements}"
            )
        return None

    def unfit(self, parameters: Parameters, problem: GemmProblem, device: DeviceInfo) -> str | None:
        if parameters["EARLY"] and not begins_launches_early(device):
            return "launches begin early under CUDA alone, from sm_90 on: EARLY must be 0"
        return _no_dots(problem, device, int(parameters["RUN"])) if parameters["DOTS"] else None

    def considered(self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel) -> Sequence[Parameters]:
        """What gives each compute unit enough to read: few rows for each group, then larger groups, then groups that share
        sums. For a CPU, groups of one work-item.
        """
        own = _constants(device, model)
        wanted, least_part = int(own["groups_per_unit"] * device.compute_units), int(own["least_part"])
        values = _for_cpu(problem, device) if device.type == "cpu" else self._for_gpu(problem, device, wanted, own)
        work = _Work.of(problem, self.complete(values))
        groups = work.groups * max(work.items // ITEMS, 1) * int(values.get("RUNS", 1))  # of the usual size
        bytes_of_group = work.group_rows * work.terms * problem.dtype.itemsize
        if 2 * groups <= wanted and bytes_of_group >= 2 * least_part:
            values["SPLIT"] = min(wanted // groups, bytes_of_group // least_part, MOST_PARTS)
        return [values]

    def predicted(
        self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, parameters: Parameters
    ) -> Prediction:
        own, units = _constants(device, model), max(device.compute_units, 1)
        work = _Work.of(problem, parameters)
        parts = work.parts(int(parameters["SPLIT"]))
        groups, size = work.groups * parts, problem.dtype.itemsize
        times_read = ceil_div(work.problem.n, work.vectors)  # the matrix, once for each few vectors
        matrix = problem.batch * work.problem.m * work.terms * size * times_read
        facts = facts_of(problem, problem.m, problem.n, 1) | {"groups": groups}
        steps = ceil_div(ceil_div(max(work.terms, 1), parts), work.step)
        if device.type == "cpu":
            bandwidth = own["read_share"] * model.read_bandwidth
            if matrix <= units * sum(device.caches):  # no slower than the memory behind them
                near = matrix <= units * sum(device.caches[:-1])
                bandwidth = max(own["near_bandwidth" if near else "cache_bandwidth"] * units, bandwidth)
            read = matrix / bandwidth
            padded = math.ceil(groups / units) * work.group_rows * work.vectors * work.step * steps
            multiplied = padded * units / (own["share"] * model.rate(problem.accumulator))
            latency = 0.0
        else:
            unroll = min(int(parameters["UNROLL"]), steps)
            in_flight = min(groups, units * USUAL_ITEMS * 2 // work.items or units) * work.items
            in_flight *= work.width * size * int(parameters["RUNS"]) * unroll
            bandwidth = own["read_share"] * model.read_bandwidth
            if matrix <= own["cached_bytes"] and work.vectors == 1:  # several come from there as often as the matrix
                bandwidth = max(own["cached_bandwidth"], bandwidth)
            bandwidth = min(bandwidth, in_flight / (LOADED * model.latency))
            read = matrix / bandwidth
            multiplied = facts["padded"] / model.rate(problem.accumulator)
            latency = 2 * model.latency + model.barrier * math.log2(2 * work.adders)
        found = {
            "launches": own["launch_clocks"] / clock(device) * (2 if parts > 1 else 1),
            "groups": math.ceil(groups / units) * model.group if device.type == "cpu" else 0.0,
            "multiply-adds": multiplied,
            "global memory": read,
            "latency": latency,
            "results": problem.m * problem.n * problem.batch * problem.output.itemsize / model.copy_bandwidth,
        }
        overlapping = {name: found[name] for name in ("multiply-adds", "global memory")}
        rest = sum(found.values()) - sum(overlapping.values())
        return Prediction(found, rest + joined(overlapping), facts)

    def _for_gpu(
        self, problem: GemmProblem, device: DeviceInfo, wanted: int, own: Mapping[str, float]
    ) -> dict[str, ParameterValue]:
        most_items = min(device.max_work_group, device.max_work_item_sizes[0])
        items = max(size for size in _POWERS if size <= min(ITEMS, most_items))
        work = _Work.of(problem, self.complete({"ITEMS": items, "SIDE": 1}))
        runs = ceil_div(max(work.terms if work.along else work.problem.m, 1), work.width)
        run_bytes = work.width * problem.dtype.itemsize
        early = problem.dtype.itemsize <= EARLY_BYTES and begins_launches_early(device)
        values: dict[str, ParameterValue] = {"ITEMS": items, "SIDE": 1, "EARLY": int(early)}
        if work.along:
            few = [side for side in (8, 16) if 4 * side >= runs]  # a short k: several runs for each, a line for all
            many = [side for side in (64, 128, 256) if 4 * side <= runs]
            sides = [side for side in (*few, WARP, *many) if side <= items]
            if _no_dots(problem, device, USUAL_RUN) is None:
                values["DOTS"] = 1
            if work.vectors > 1:  # a run of the vectors is read as often as one of the matrix, where registers allow it
                several: dict[str, ParameterValue] = {**values, "RUNS": 4, "UNROLL": 4 if few else 2}
                if self.registers(self.complete({**several, "SIDE": 1}), problem) <= own["most_registers"]:
                    values, wanted = several, device.compute_units * 3 // 4
        else:
            sides = [nbytes // run_bytes for nbytes in SIDE_BYTES if nbytes // run_bytes <= items]
            values["UNROLL"] = min(64 // run_bytes, 8)
        whole = next(side for side in _POWERS if side >= min(runs, items))
        for side in sides:
            values["SIDE"] = min(side, whole)
            work = _Work.of(problem, self.complete(values))
            if work.groups >= wanted:
                break
        if values.get("DOTS") and work.vectors == 1:  # a step that is read alone takes as long as several at once
            steps = ceil_div(runs, int(values["SIDE"]))
            values["UNROLL"] = min(_AT_ONCE, key=lambda unroll: (steps % unroll, unroll)) if steps >= _AT_ONCE[0] else 4
        registers = self.registers(self.complete(values), problem)
        light = work.vectors == 1 and registers <= own["few_registers"] and not work.along
        while light and 2 * work.groups * (work.items // ITEMS) <= wanted and 2 * work.items <= most_items:
            values["ITEMS"] = 2 * work.items
            work = _Work.of(problem, self.complete(values))
        return values

    def defines(self, parameters: Parameters, problem: GemmProblem) -> dict[str, ParameterValue]:
        work = _Work.of(problem, parameters)
        own = {name: parameters[name] for name in ("ITEMS", "SIDE", "RUNS", "UNROLL")}
        return {
            **parameter_defines(own),
            **problem_defines(work.problem),
            **run_defines(work.problem, work.width),
            **({"ALIGNED_A": 0, "ALIGNED_B": 0, **half_defines(work.problem, work.width)} if work.anywhere else {}),
            "VECTORS": work.vectors,
            "WIDTH": work.width,
            **({"DOTS": 1, "DOT_TYPE": _DOTS.get(problem.dtype.name, "NONE")} if parameters["DOTS"] else {}),
            **({"EARLY": 1} if parameters["EARLY"] else {}),
            **({} if problem.precision == FULL else {f"ROUNDS_TO_{problem.precision.upper()}": 1}),
            "TRANSPOSED": int(work.exchanged),
            "EDGES": int(work.has_edge and not work.is_shifted),
            **({"SHIFTED": 1} if work.is_shifted else {}),
        }

    def product(
        self, problem: GemmProblem, parameters: Parameters, prepared: Mapping[Operand, str] | None = None
    ) -> Launch:
        work = _Work.of(problem, parameters)
        parts = work.parts(int(parameters["SPLIT"]))
        return Launch(
            self.source(self.defines(parameters, problem)),
            groups=(work.groups * parts, 1, 1),
            work_group=self.work_group(parameters),
            arguments=_arguments(problem, work, int(parameters["SPLIT"])),
            local_bytes=self.local_bytes(parameters, problem),
        )

    def steps(self, problem: GemmProblem, device: DeviceInfo, parameters: Parameters) -> Steps:
        work, product = _Work.of(problem, parameters), self.product(problem, parameters)
        parts, results = work.parts(int(parameters["SPLIT"])), problem.m * problem.n * problem.batch
        if parts == 1:
            return Steps([product])
        add_parts = Launch(
            self.source(self.defines(parameters, problem), function="add_parts"),
            groups=(ceil_div(results, PART_RESULTS), 1, 1),
            work_group=(PART_RESULTS * PART_ADDERS, 1, 1),
            arguments=product.arguments,
            local_bytes=PART_RESULTS * PART_ADDERS * problem.accumulator.sum_bytes,
        )
        return Steps([product, add_parts], [Scratch("parts", parts * results * problem.accumulator.sum_bytes)])


def _constants(device: DeviceInfo, model: DeviceModel) -> Mapping[str, float]:
    vectors = 4 * device.vector_width * clock(device)  # bytes per second, one each clock
    told = {
        "cache_bandwidth": CACHE_SHARE * vectors,
        "near_bandwidth": NEAR_SHARE * vectors,
        "launch_clocks": model.launch * clock(device),
    }
    return {**USUAL, **told, **model.constants("gemv")}


def _lies_in_words(turned: GemmProblem) -> bool:
    """Whether the matrix lies along k, in rows that are aligned to words: `mma` reads it without a pass."""
    return not transposes(turned.trans_a) and turned.alignment("a") % WORD_BYTES == 0


def _no_dots(problem: GemmProblem, device: DeviceInfo, run: int) -> str | None:
    """Why the device does not multiply four bytes of the problem at once (DOTS), in runs of so many bytes; None where it
    does.
    """
    if problem.dtype.name not in _DOTS or problem.accumulator != DTYPES["int32"]:
        return f"bytes alone are multiplied four at once, in int32: DOTS must be 0 for {problem.dtype} in {problem.accumulator}"
    if not multiplies_bytes(device):
        found = device.architecture or device.name
        return f"NVIDIA's GPUs multiply four bytes at once from sm_61 on, this is {found}: DOTS must be 0"
    turned = _turned(problem)
    if transposes(turned.trans_a) or not transposes(turned.trans_b):
        return "four bytes side by side are multiplied at once: DOTS must be 0 where an operand lies across k"
    if _width(turned, run, anywhere=False) % WORD_BYTES:
        return f"the matrix's rows must be aligned to {WORD_BYTES} bytes, or DOTS be 0"
    return None


def _for_cpu(problem: GemmProblem, device: DeviceInfo) -> dict[str, ParameterValue]:
    """Whole vectors where memory holds them as they are, or they are converted at once; where each element is converted, that
    would be much code. Eight sums along k are in registers: those of CPUs without AVX-512, 16 of 32 bytes, have no room for
    eight of 64 (docs/cpu.md).
    """
    sums = problem.accumulator
    whole = (problem.dtype == sums and sums.kind == "real") or (problem.dtype in HALVES and sums == FLOAT32)
    run, runs = (64, 8) if whole else (16, 4)
    vectors = max(min(problem.m, problem.n), 1)
    values: dict[str, ParameterValue] = {
        "ITEMS": 1, "SIDE": 1, "RUN": run, "RUNS": max(runs // vectors, 2), "UNROLL": 2,
    }  # fmt: skip
    work = _Work.of(problem, VARIANT.complete(values))
    if work.along and problem.dtype == sums and device.vector_width <= NARROW:
        values["RUN"] = min(run, RUN_OF_NARROW)
    if not work.along and work.has_edge and not work.is_shifted:  # fewer rows than those of a group
        values["RUNS"] = max(work.problem.m // work.width, 1)
    return values


@dataclass(frozen=True)
class _Work:
    """What the kernel has to do, with the roles of rows and columns as it sees them.

    Attributes:
        problem: whose A is the matrix, and whose B are the vectors.
        exchanged: whether these are B and A of the product, transposed.
        along: whether A's runs lie along k.
        items: work-items of a group.
        anywhere: whether runs need not be aligned.
        width: elements of a run.
        vectors: columns of a group.
        rows: of D, whose sums a work-item has.
        adders: work-items that add up one sum.
        group_rows: rows of a group.
    """

    problem: GemmProblem
    exchanged: bool
    along: bool
    items: int
    anywhere: bool
    width: int
    vectors: int
    rows: int
    adders: int
    group_rows: int

    @classmethod
    def of(cls, problem: GemmProblem, parameters: Parameters) -> _Work:
        p = {name: int(value) for name, value in parameters.items()}
        turned, anywhere = _turned(problem), p["ITEMS"] == 1
        along = not transposes(turned.trans_a)
        width = _width(turned, p["RUN"], anywhere)
        rows = p["RUNS"] * (1 if along else width)
        adders = p["SIDE"] if along else p["ITEMS"] // p["SIDE"]
        return cls(
            problem=turned,
            exchanged=problem.m < problem.n,
            along=along,
            items=p["ITEMS"],
            anywhere=anywhere,
            width=width,
            vectors=max(min(turned.n, p["VECTORS"]), 1),
            rows=rows,
            adders=adders,
            group_rows=p["ITEMS"] // adders * rows,
        )

    @property
    def has_edge(self) -> bool:
        """Whether the last run has rows beyond the edge."""
        return self.problem.m % self.width != 0

    @property
    def is_shifted(self) -> bool:
        """Whether the last group begins with rows of the one before, so that its runs are whole: parts of runs, element by
        element, take Intel's compiler seconds.
        """
        return self.has_edge and not self.along and self.anywhere and self.problem.m >= self.group_rows

    @property
    def terms(self) -> int:
        """Of a sum."""
        return self.problem.effective_k

    @property
    def step(self) -> int:
        """Terms from a run of a work-item to its next."""
        return self.adders * (self.width if self.along else 1)

    @property
    def groups(self) -> int:
        """That have all terms of their sums."""
        rows, columns = ceil_div(self.problem.m, self.group_rows), ceil_div(self.problem.n, self.vectors)
        return rows * columns * self.problem.batch

    def depth(self, split: int) -> int:
        """Terms of a part of a sum: whole steps."""
        return max(ceil_div(ceil_div(self.terms, split), self.step), 1) * self.step

    def parts(self, split: int) -> int:
        """Parts of each sum."""
        return max(ceil_div(self.terms, self.depth(split)), 1)


def _turned(problem: GemmProblem) -> GemmProblem:
    """The product, or where it has fewer rows than columns, its transpose: Dᵀ = op(B)ᵀ · op(A)ᵀ, D lying as it lies."""
    if problem.m < problem.n:
        problem = replace(
            problem, m=problem.n, n=problem.m, a=problem.b, b=problem.a,
            trans_a=transposed(problem.trans_b), trans_b=transposed(problem.trans_a),
        )  # fmt: skip
    if problem.n == 1 and not transposes(problem.trans_b) and problem.b.ld == 1:  # dense, and so a row as well
        row = replace(problem.b, ld=max(problem.k, 1))
        problem = replace(problem, b=row, trans_b=transposed(problem.trans_b))
    return problem


def _width(problem: GemmProblem, most_bytes: int, anywhere: bool) -> int:
    """Elements of a run of A."""
    numbers, across = 2 if problem.accumulator.kind == "complex" else 1, transposes(problem.trans_a)
    if anywhere:
        width = max(1, min(most_bytes // problem.accumulator.sum_bytes, MOST_LANES // numbers))
        return width // 2 if across and width > 1 and problem.m % width and not problem.m % (width // 2) else width
    width = max(1, min(most_bytes, problem.alignment("a")) // problem.dtype.itemsize)
    while width * numbers > MOST_LANES or (across and problem.m % width):
        width //= 2
    return width


def _arguments(problem: GemmProblem, work: _Work, split: int) -> tuple[Argument, ...]:
    operands: dict[Operand, str] = {"a": "b", "b": "a"} if work.exchanged else {}
    parts = work.parts(split)
    return (
        *gemm_arguments(work.problem, operands),
        Buffer("parts" if parts > 1 else "d"),  # an argument must name some memory
        Integer(parts, bits=32),
        Integer(work.depth(split), bits=32),
        Integer(problem.m * problem.n * problem.batch),
    )


VARIANT = Gemv()
