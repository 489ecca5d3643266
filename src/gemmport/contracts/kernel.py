"""The contract of a kernel, told once for both languages: parameters, rules, limits, launch geometry, support.

A `KernelVariant` computes a product; a `Pass` prepares its operands or finishes its result. Each instance stands in its own
file in kernels/, beside its two sources.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple, TypeAlias

from gemmport.contracts.device_model import DeviceModel, Prediction
from gemmport.contracts.occupancy import local_memory_of
from gemmport.contracts.prediction import ON_A_CPU, SHARE, of_tiles
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import FLOAT8S, FLOAT32, FLOAT64, HALVES, INPUTS, DType
from gemmport.core.errors import ParameterError, UnknownNameError
from gemmport.core.names import did_you_mean
from gemmport.core.plan import Argument, Buffer, Integer, KernelSource, Launch, ParameterValue, Scalar, Scratch
from gemmport.core.problem import OPERANDS, GemmProblem, Operand, transposes
from gemmport.core.quirks import reason_of_limit

Parameters = Mapping[str, ParameterValue]

Predictor: TypeAlias = Callable[[Parameters], Prediction]
"""What parameters are expected to take for one problem on one device."""

MAX_SIDE_GROUPS = 65_535
"""Work-groups along the second and third dimension of a grid: CUDA's limit, kept on every device."""


@dataclass(frozen=True)
class Parameter:
    """A tile size or another choice of a kernel.

    An integer between `minimum` and `maximum`; or, where `choices` are given, one of them.
    """

    name: str
    default: ParameterValue
    meaning: str
    minimum: int = 1
    maximum: int = 1024
    choices: tuple[ParameterValue, ...] = ()

    @property
    def range(self) -> str:
        """The allowed values, for people."""
        if self.choices:
            return "one of " + ", ".join(map(str, self.choices))
        return f"a whole number from {self.minimum} to {self.maximum}"

    def check(self, value: object) -> ParameterValue:
        """The value, if it is allowed.

        Raises:
            ParameterError: it is not.
        """
        if isinstance(value, int | str) and not isinstance(value, bool):
            if value in self.choices:
                return value
            if not self.choices and isinstance(value, int) and self.minimum <= value <= self.maximum:
                return value
        raise ParameterError(f"{self.name} = {value!r} is not allowed: it is {self.range} ({self.meaning})")


class Constraint:
    """A rule among parameters that no device can lift.

    The predicate's own argument names say which parameters it reads, so that its message can print them.
    """

    def __init__(self, rule: str, holds: Callable[..., bool]) -> None:
        self.rule = rule
        self._holds = holds
        self.reads = tuple(inspect.signature(holds).parameters)

    def check(self, parameters: Parameters) -> None:
        """Raises ParameterError, with the numbers, where the rule is broken."""
        values = [parameters[name] for name in self.reads]
        if not self._holds(*values):
            numbers = ", ".join(f"{name} = {value}" for name, value in zip(self.reads, values, strict=True))
            raise ParameterError(f"{numbers}: the rule is {self.rule}")


class Contract(ABC):
    """What kernels and passes have in common: a name, parameters and the rules among them."""

    name: ClassVar[str]
    summary: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    constraints: ClassVar[tuple[Constraint, ...]] = ()
    constants: ClassVar[Mapping[str, str]] = {}
    """Constants of its own prediction that a device's model may state (`DeviceModel.fitted`), with their meanings."""
    folder: ClassVar[str] = ""
    """Where the language folders with its sources lie; empty for the family that gemmport ships."""
    function: ClassVar[str] = ""
    """What its function is called, if not like itself, which the name of a function of OpenCL C must not be."""

    def complete(self, values: Parameters) -> dict[str, ParameterValue]:
        """All parameters: the given values, checked, and the defaults for the rest.

        Raises:
            UnknownNameError: a name that this kernel has not among its parameters.
            ParameterError: a value out of range, or a broken rule.
        """
        for fault in self.faults(values):
            raise fault
        return {parameter.name: values.get(parameter.name, parameter.default) for parameter in self.parameters}

    def faults(self, values: Parameters) -> Iterator[UnknownNameError | ParameterError]:
        """What `complete` would raise, one after the other: names, values, and then rules among sound values."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in values:
            if name not in known:
                has = f"it has {', '.join(known)}" if known else "it has none"
                hint = did_you_mean(name, known)
                yield UnknownNameError(f"{self.name} has no parameter {str(name)[:100]}: {has}{hint}")
        sound: dict[str, ParameterValue] = {}
        for name, parameter in known.items():
            try:
                sound[name] = parameter.check(values.get(name, parameter.default))
            except ParameterError as error:
                yield ParameterError(f"{self.name}: {error}")
        for constraint in self.constraints:
            if len(sound) == len(known) or sound.keys() >= set(constraint.reads):
                try:
                    constraint.check(sound)
                except ParameterError as error:
                    yield ParameterError(f"{self.name}: {error}")

    def source(self, defines: Parameters, *, function: str = "", stem: str = "") -> KernelSource:
        """A function of this contract's source; both are named like the contract where nothing else is said."""
        return KernelSource(
            stem or self.name, function or self.function or self.name, tuple(sorted(defines.items())), self.folder
        )


class Pass(Contract):
    """A step before or after a product: transpose, copy, pack, split, reduce. A variant composes it into its own steps."""


@dataclass(frozen=True)
class Steps:
    """What a variant or a pass does for one problem: launches in order, and the scratch memory between them."""

    launches: Sequence[Launch]
    scratch: Sequence[Scratch] = ()


@dataclass(frozen=True)
class Rung:
    """One step of a ladder of passes, each of which does the same job as the one before, faster.

    Attributes:
        name: what tables call it.
        adds: its idea: what it adds to the step before, in a few words.
        own: the pass that does it.
        parameters: of the pass, that make it this step.
    """

    name: str
    adds: str
    own: Pass
    parameters: Parameters


class Tile(NamedTuple):
    """What one work-group computes: rows and columns of D, and how many terms of the sum at a time."""

    rows: int
    columns: int
    depth: int


class Cut(NamedTuple):
    """What a matrix unit keeps of a sum, where it cuts off what it does not keep.

    Attributes:
        digits: of its significand, below which it cuts off.
        terms: that the unit adds up before it cuts.
        promoted: whether the kernel then adds what came of them in the type of sums, which rounds. Otherwise the unit goes on
            from what it kept.
    """

    digits: int
    terms: int
    promoted: bool = True


class Form(NamedTuple):
    """A way of a kernel that `gemmport doctor` tries on the device at hand. One that only simulations have shown to be right is
    chosen where it was found right, and nowhere else; one that a driver may or may not offer, where it was not found wrong.

    Attributes:
        kernel, name: of the form: "simt", "float32 with MMA = 2".
        dtype, output: of A and B, and of D, in which it is tried.
        parameters: that make it, with the tiles that it is tried with.
        told: what it rests on: an instruction.
    """

    kernel: str
    name: str
    dtype: str
    output: str
    parameters: Parameters
    told: str

    @property
    def label(self) -> str:
        """Kernel and form in one word, for a command line."""
        return f"{self.kernel}: {self.name}"


class KernelVariant(Contract):
    """One member of the family.

    A variant that is one launch of one tile per work-group states `tile`, `work_group` and `local_bytes`; any other
    overrides `steps`, which may return several launches with scratch between them, sources chosen by the device's
    architecture, and any specialization of the problem.
    """

    dtypes: ClassVar[frozenset[str]] = frozenset(INPUTS)
    """Input types that it computes."""
    precisions: ClassVar[frozenset[str]] = frozenset()
    """Precisions to which it rounds float32 itself, as it loads A and B; for the others a pass rounds them before."""
    narrow_precisions: ClassVar[frozenset[str]] = frozenset()
    """Of those others, by the names of their types: that pass stores A and B in them, and the kernel is given such operands."""
    takes_scales: ClassVar[bool] = False
    """Whether all functions of its source take SCALE_ARGUMENTS behind their own arguments, and those that store D multiply its
    sums by these scales before alpha (`gemmport.contracts.scales`); where they do not, a pass does.
    """
    constants: ClassVar[Mapping[str, str]] = {"share": SHARE}

    @abstractmethod
    def tile(self, parameters: Parameters) -> Tile:
        """The tile of one work-group."""

    @abstractmethod
    def work_group(self, parameters: Parameters) -> tuple[int, int, int]:
        """Work-items of one group; the first dimension runs along the columns of D."""

    def local_bytes(self, parameters: Parameters, problem: GemmProblem) -> int:
        """Bytes of local memory of one work-group."""
        return 0

    def most_local_bytes(self, device: DeviceInfo) -> int:
        """The most that `local_bytes` may be on a device; a kernel that is given its local memory at launch may have more than
        one that declares it.
        """
        return device.local_memory

    def registers(self, parameters: Parameters, problem: GemmProblem) -> int:
        """32-bit registers of one work-item for sums and fragments; what the compiler adds for addresses is not counted."""
        return ceil_div(problem.accumulator.sum_bytes, 4)

    def unsupported(self, problem: GemmProblem, device: DeviceInfo) -> str | None:
        """Why this variant cannot compute the problem on the device; None where it can."""
        if problem.dtype.name not in self.dtypes:
            return f"{self.name} computes {', '.join(sorted(self.dtypes))}, not {problem.dtype}"
        return None

    def cut(self, problem: GemmProblem, device: DeviceInfo) -> Cut | None:
        """What the device's matrix unit keeps of this kernel's sums; None where none makes them, or it rounds. Results are
        judged by it (docs/verification.md).
        """
        return None

    def unit_rate(self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, parameters: Parameters) -> float:
        """Multiply-adds per second of the device's matrix unit, by its model, where this kernel multiplies the problem's
        numbers by it; 0 where it does not. The problem is as the kernel takes it: rounded operands may have another type.
        """
        return 0.0

    def declined(
        self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, rankings: Rankings | None = None
    ) -> str | None:
        """Why another kernel is the better choice on the device where the user names none; None where this one may be.

        Args:
            rankings: of the same device and model, where more is asked of them; None: there are none yet.
        """
        return None

    def unfit(self, parameters: Parameters, problem: GemmProblem, device: DeviceInfo) -> str | None:
        """Why the device cannot take these parameters for the problem, beside the limits that every launch is held to; None
        where it can. Asked only where problem and device are supported.
        """
        return None

    def forms(self, device: DeviceInfo) -> Sequence[Form]:
        """Of what it can do on the device, that which waits for a verdict there: see `Form`."""
        return ()

    def considered(self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel) -> Sequence[Parameters]:
        """Parameters to choose among where neither the user nor a configuration states any, in the order of what is expected
        of them; what is missing in them has its default. Empty where there is nothing to choose. Those that the device's model
        has for it, if the kernel knows no others.
        """
        return self.ranked(model.tilings.get(self.name, ()), problem, device, model)

    def ranked(
        self, tilings: Iterable[Parameters], problem: GemmProblem, device: DeviceInfo, model: DeviceModel
    ) -> list[Parameters]:
        """Tilings, which obey the rules, in the order of their predictions."""
        predict = self.predictor(problem, device, model)
        defaults = {parameter.name: parameter.default for parameter in self.parameters}
        return sorted(tilings, key=lambda each: predict({**defaults, **each}).seconds)

    def suggested(self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel) -> Parameters:
        """The first of `considered`; empty where there is none."""
        return next(iter(self.considered(problem, device, model)), {})

    def predicted(
        self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, parameters: Parameters
    ) -> Prediction:
        """How long the product is expected to take, of which D has elements.

        Args:
            parameters: all of them, which fit the problem and the device.
        """
        return of_tiles(
            problem, device, model,
            tile=self.tile(parameters), work_group=self.work_group(parameters),
            local=self.local_bytes(parameters, problem) > 0,
            share=model.constants(self.name).get("share", ON_A_CPU if device.type == "cpu" else 1.0),
        )  # fmt: skip

    def predictor(self, problem: GemmProblem, device: DeviceInfo, model: DeviceModel) -> Predictor:
        """`predicted` for many parameters. A kernel with a model of its own overrides it, to find once what of a prediction
        depends on the problem alone.
        """
        return partial(self.predicted, problem, device, model)

    def defines(self, parameters: Parameters, problem: GemmProblem) -> dict[str, ParameterValue]:
        """The specialization: parameters, types and ops, and whether any tile crosses an edge."""
        tile = self.tile(parameters)
        sizes = (problem.m, problem.n, problem.effective_k)
        # Without terms, tiles along k are brought too, and all of theirs is beyond the edge.
        whole = problem.effective_k > 0 and all(size % extent == 0 for size, extent in zip(sizes, tile, strict=True))
        return {**parameter_defines(parameters), **problem_defines(problem), "EDGES": int(not whole)}

    def sooner(self, parameters: Parameters, device: DeviceInfo) -> Parameters:
        """Parameters whose programs compile much sooner, for the first call; empty where there are none. What they compute must
        have the same bits, and their scratch memory the same sizes.
        """
        return {}

    def steps(self, problem: GemmProblem, device: DeviceInfo, parameters: Parameters) -> Steps:
        """The launches that compute the problem. Called only where D has elements."""
        return Steps([self.product(problem, parameters)])

    def product(
        self, problem: GemmProblem, parameters: Parameters, prepared: Mapping[Operand, str] | None = None
    ) -> Launch:
        """The launch of this variant's own kernel over all tiles of all matrices of the batch.

        Args:
            prepared: operands that it reads from scratch memory, with the name of that; the problem's layouts are theirs.
        """
        tile = self.tile(parameters)
        tiles = ceil_div(problem.m, tile.rows) * ceil_div(problem.n, tile.columns) * problem.batch
        return Launch(
            self.source(self.defines(parameters, problem)),
            groups=(tiles, 1, 1),
            work_group=self.work_group(parameters),
            arguments=gemm_arguments(problem, prepared),
            local_bytes=self.local_bytes(parameters, problem),
        )


class Rankings:
    """What kernels consider for the products of one planning on a device: each product is ranked once, whoever asks."""

    def __init__(self, device: DeviceInfo, model: DeviceModel) -> None:
        self.device = device
        self.model = model
        self._considered: dict[tuple[str, GemmProblem], Sequence[Parameters]] = {}

    def considered(self, variant: KernelVariant, problem: GemmProblem) -> Sequence[Parameters]:
        """`KernelVariant.considered`."""
        key = variant.name, problem
        if key not in self._considered:
            self._considered[key] = variant.considered(problem, self.device, self.model)
        return self._considered[key]

    def suggested(self, variant: KernelVariant, problem: GemmProblem) -> Parameters:
        """The first of these; empty where there is none."""
        return next(iter(self.considered(variant, problem)), {})

    def seconds(self, variant: KernelVariant, problem: GemmProblem) -> float:
        """That the product is expected to take by the best of these; infinite where there is none."""
        best = self.suggested(variant, problem)
        if not best:
            return math.inf
        return variant.predicted(problem, self.device, self.model, variant.complete(best)).seconds


def ceil_div(value: int, by: int) -> int:
    """The least whole number of pieces of size `by` that cover `value`."""
    return -(-value // by)


def check_limits(name: str, launch: Launch, parameters: Parameters, device: DeviceInfo) -> None:
    """Raises ParameterError, with the numbers, where a launch of a kernel or pass is beyond a limit of the device."""
    told = ", ".join(f"{key} = {value}" for key, value in parameters.items())
    declared = local_memory_of(device, specific=("ARCHITECTURE_SPECIFIC", 1) in launch.kernel.defines)
    most_local = max(declared, device.most_local_memory)
    limits = (
        ("work-items per group", math.prod(launch.work_group), device.max_work_group),
        *(
            (f"work-items per group along {axis}", items, most)
            for axis, items, most in zip("xyz", launch.work_group, device.max_work_item_sizes, strict=True)
        ),
        ("bytes of local memory per group", launch.local_bytes, declared),
        ("bytes of local memory per group", launch.local_bytes + launch.dynamic_local_bytes, most_local),
        ("work-groups", launch.groups[0], device.max_groups),
        *(
            (f"work-groups along {axis}", groups, MAX_SIDE_GROUPS)
            for axis, groups in zip("yz", launch.groups[1:], strict=True)
        ),
    )
    for what, wanted, most in limits:
        if wanted > most:
            quirk = reason_of_limit(device, "local_memory") if "local memory" in what else ""
            raise ParameterError(f"{name} with {told} needs {wanted:,} {what}; {device.label} allows {most:,}{quirk}")


def parameter_defines(parameters: Parameters) -> dict[str, ParameterValue]:
    """Macros for parameters: NAME=value for a number, NAME_VALUE=1 for a word."""
    return {
        (f"{name}_{value.upper()}" if isinstance(value, str) else name): (1 if isinstance(value, str) else value)
        for name, value in parameters.items()
    }


def problem_defines(problem: GemmProblem) -> dict[str, ParameterValue]:
    """Macros by which the preludes choose types and ops: a type for inputs, sums and output; per operand whether it is
    transposed, and whether it is conjugated, which says nothing without imaginary parts.
    """
    defines = type_defines(problem.dtype, problem.accumulator, problem.output)
    for operand, op in (("A", problem.trans_a), ("B", problem.trans_b)):
        defines[f"TRANSPOSE_{operand}"] = int(transposes(op))
        defines[f"CONJUGATE_{operand}"] = int(problem.dtype.kind == "complex" and op in ("C", "R"))
    return defines


def type_defines(dtype: DType, accumulator: DType, output: DType) -> dict[str, ParameterValue]:
    """Macros by which the preludes choose the types of what is loaded, computed and stored, and the arithmetic."""
    return {
        **({"READS_FLOAT8": 1} if dtype in FLOAT8S else {}),
        **({"STORES_FLOAT8": output.precision - 1} if output in FLOAT8S else {}),
        "IN": dtype.name,
        "ACC": accumulator.name,
        "OUT": output.name,
        f"{accumulator.kind.upper()}_ARITHMETIC": 1,
        "COMPLEX_INPUT": int(dtype.kind == "complex"),
    }


def run_defines(problem: GemmProblem, width: int) -> dict[str, ParameterValue]:
    """Macros by which the preludes move and compute `width` elements at once (their runs): the bytes of a run, the lanes of as
    many sums, per operand whether all of its runs that begin at a multiple of `width` are aligned to their size, and whether
    what is loaded, and what is stored, lies in memory as sums of that type do, so that vectors may hold it.
    """

    def aligned(*operands: Operand) -> int:
        return int(all(problem.alignment(x) % (width * problem.element_type(x).itemsize) == 0 for x in operands))

    return {
        "IN_RUN_BYTES": width * problem.dtype.itemsize,
        "OUT_RUN_BYTES": width * problem.output.itemsize,
        "SUM_LANES": width * (2 if problem.accumulator.kind == "complex" else 1),
        "LOADS_SUMS": int(problem.dtype == problem.accumulator and problem.dtype in (FLOAT32, FLOAT64)),
        "STORES_SUMS": int(problem.output == problem.accumulator and problem.output in (FLOAT32, FLOAT64)),
        "ALIGNED_A": aligned("a"),
        "ALIGNED_B": aligned("b"),
        "ALIGNED_D": aligned("c", "d"),
    }


PAIR = 2
"""Elements of a run whose elements lie apart."""


def stored_runs_defines(problem: GemmProblem, width: int, columns: int, *, apart: bool) -> dict[str, ParameterValue]:
    """Macros of runs by which warps store rows of so many columns of D: `width` elements at once. Where rows of D or C are not
    aligned to these, two that lie half of the columns apart, so that neighbouring work-items store neighbouring elements: of
    each sector of memory one store writes all. Floats are rounded to halves two at a time (PTX ISA, cvt.rn.f16x2.f32 and
    cvt.rn.bf16x2.f32, from compute capability 8.0 on).

    Args:
        apart: whether there are registers for the places of so many runs; else each work-item stores neighbours one by one.
    """
    found = {**run_defines(problem, width), "WIDTH": width}
    if not found["ALIGNED_D"] and apart:
        found = {**run_defines(problem, PAIR), "ALIGNED_D": 0, "WIDTH": PAIR, "APART": columns // PAIR}
    in_pairs = problem.accumulator == FLOAT32 and problem.output in HALVES and int(found["WIDTH"]) % PAIR == 0
    return {**found, **({"STORES_PAIRS": 1} if in_pairs else {})}


def half_defines(problem: GemmProblem, width: int) -> dict[str, ParameterValue]:
    """Macros by which OpenCL C converts runs of halves to float32 and back as vectors, where it loads or stores such runs. For
    kernels of CPUs, whose compilers do not make vectors of single elements that are converted; GPUs have no such vectors.
    """
    asked = problem.accumulator == FLOAT32 and width > 1
    return {
        **({"LOADS_HALVES": 1} if asked and problem.dtype in HALVES else {}),
        **({"STORES_HALVES": 1} if asked and problem.output in HALVES else {}),
    }


def gemm_arguments(problem: GemmProblem, prepared: Mapping[Operand, str] | None = None) -> tuple[Argument, ...]:
    """The argument list that the preludes call GEMM_ARGUMENTS: four operands with their layouts, scalars, sizes.

    Args:
        prepared: names of scratch memory that holds an operand instead.
    """
    buffers = {**{operand: operand for operand in OPERANDS}, **(prepared or {})}
    arguments: list[Argument] = []
    for operand in OPERANDS:
        layout = problem.layout(operand)
        arguments += [
            Buffer(buffers[operand]),
            Integer(layout.offset),
            Integer(layout.ld),
            Integer(layout.batch_stride),
        ]
    arguments += [Scalar(value, problem.accumulator.name) for value in (problem.alpha, problem.beta)]
    arguments += [Integer(size, bits=32) for size in (problem.m, problem.n, problem.effective_k)]
    return tuple(arguments)
