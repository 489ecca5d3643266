"""`gemv`: a matrix times a vector, or a few: what memory bounds. The matrix is read once, by all of the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gemmport.device import DeviceInfo
from gemmport.plan import Argument, Buffer, Integer, Launch, ParameterValue, Scratch
from gemmport.problem import GemmProblem, Operand, transposed, transposes
from gemmport.variant import (
    Constraint,
    KernelVariant,
    Parameter,
    Parameters,
    Steps,
    Tile,
    ceil_div,
    gemm_arguments,
    parameter_defines,
    problem_defines,
    run_defines,
)

MOST_LANES = 16
"""Numbers in the longest vector of OpenCL C, of which a complex element takes two."""

PART_RESULTS, PART_ADDERS = 8, 16
"""Of a group of the second launch: results side by side, of float32 a sector of 32 bytes, and work-items that add up each."""

GROUPS_PER_UNIT = 4
"""Groups per compute unit that keep its memory busy: as many loads are on their way as its latency lets by."""

LEAST_PART = 2**17
"""Bytes of the matrix that a group reads at least where sums are split: the second launch takes longer than less would."""

WARP = 32

MOST_REGISTERS = 96
"""Of a work-item, for sums and what is read: half of those that it may have where each unit has 1024 work-items."""

_POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Gemv(KernelVariant):
    """A group computes some rows of D for at most VECTORS of its columns; where m < n, rows and columns exchange their roles.

    A work-item reads RUNS runs at once for each of UNROLL of its steps. SIDE work-items stand side by side along memory:
    where A lies along k, they share the sums of the same rows; where it lies across, they have neighbouring rows, and the
    others of the group have other terms. With SPLIT > 1, as many groups share each sum: every one leaves its part, and a
    second launch adds up the parts in one order, so that the bits are the same in every run.

    Runs are as long as they may be: as RUN says, as rows are aligned, and where they lie across, as they divide the rows. Those
    of a group of one work-item, for CPUs, need neither.
    """

    name = "gemv"
    summary = "matrix times vector: the matrix is read once, sums are shared by work-items and groups"
    parameters = (
        Parameter("ITEMS", 256, "work-items of a group", choices=_POWERS),
        Parameter("SIDE", 32, "work-items side by side along memory", choices=_POWERS),
        Parameter("RUN", 16, "bytes of a run, at most", choices=(4, 8, 16, 32, 64)),
        Parameter("RUNS", 1, "runs of neighbouring rows that a work-item reads in a step", maximum=16),
        Parameter("UNROLL", 4, "steps of a work-item whose runs are read at once", maximum=16),
        Parameter("VECTORS", 4, "columns of a group, at most", maximum=8),
        Parameter("SPLIT", 1, "groups that share a sum, at most", maximum=4096),
    )
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
        runs = int(parameters["RUNS"]) * (work.vectors + int(parameters["UNROLL"]))
        return ceil_div(runs * work.width * problem.accumulator.sum_bytes, 4)

    def suggested(self, problem: GemmProblem, device: DeviceInfo) -> Parameters:
        """What gives each compute unit enough groups: few rows for each of them, and where that is not enough, a part of the terms.
        For a CPU, a work-item of the longest vectors by itself.
        """
        # Whole vectors where memory holds them as they are; where each element is converted, that would be much code.
        run, runs = (64, 8) if problem.dtype == problem.accumulator and problem.dtype.kind == "real" else (16, 4)
        runs = max(runs // max(min(problem.m, problem.n), 1), 2)
        values: dict[str, ParameterValue] = {"ITEMS": 1, "SIDE": 1, "RUN": run, "RUNS": runs, "UNROLL": 2}
        wanted = GROUPS_PER_UNIT * device.compute_units
        work = _Work.of(problem, self.complete(values))
        if device.type != "cpu":
            # A run of the vectors is read as often as one of the matrix, where registers allow it.
            runs = [runs for runs in (4, 2, 1) if runs <= work.vectors] if work.along else [1]
            fits = (n for n in runs if self.registers(self.complete({"RUNS": n}), problem) <= MOST_REGISTERS)
            values = {"RUNS": next(fits, 1)}
            for side in self._sides(problem, values):
                values["SIDE"] = side
                work = _Work.of(problem, self.complete(values))
                if work.groups >= wanted:
                    break
        bytes_of_group = work.group_rows * work.terms * problem.dtype.itemsize
        if 2 * work.groups <= wanted and bytes_of_group >= 2 * LEAST_PART:
            values["SPLIT"] = min(wanted // work.groups, bytes_of_group // LEAST_PART, 4096)
        return values

    def _sides(self, problem: GemmProblem, values: Parameters) -> list[int]:
        """Sides of a GPU's groups, the better one first: a warp's, then those with fewer rows."""
        full = self.complete(values)
        work, items, unroll = _Work.of(problem, full), int(full["ITEMS"]), int(full["UNROLL"])
        runs = ceil_div(max(work.terms if work.along else work.problem.m, 1), work.width)
        first = next(side for side in _POWERS if side >= min(runs, WARP))
        if work.along:
            return [first, *(side for side in (64, 128, 256) if side * unroll <= runs)]
        return [first, *(side for side in (16, 8) if side < first and items // side * unroll <= work.terms)]

    def defines(self, parameters: Parameters, problem: GemmProblem) -> dict[str, ParameterValue]:
        work = _Work.of(problem, parameters)
        own = {name: parameters[name] for name in ("ITEMS", "SIDE", "RUNS", "UNROLL")}
        return {
            **parameter_defines(own),
            **problem_defines(work.problem),
            **run_defines(work.problem, work.width),
            **({"ALIGNED_A": 0, "ALIGNED_B": 0} if work.anywhere else {}),
            "VECTORS": work.vectors,
            "WIDTH": work.width,
            "TRANSPOSED": int(work.exchanged),
            "EDGES": int(work.problem.m % work.width != 0),
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


@dataclass(frozen=True)
class _Work:
    """What the kernel has to do, with the roles of rows and columns as it sees them.

    Attributes:
        problem: whose A is the matrix, and whose B are the vectors.
        exchanged: whether these are B and A of the product, transposed.
        along: whether A's runs lie along k.
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
            anywhere=anywhere,
            width=width,
            vectors=max(min(turned.n, p["VECTORS"]), 1),
            rows=rows,
            adders=adders,
            group_rows=p["ITEMS"] // adders * rows,
        )

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
    """The product, or where it has fewer rows than columns, its transpose: Dᵀ = op(B)ᵀ · op(A)ᵀ, with D as it lies in memory."""
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
