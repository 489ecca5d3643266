"""The cells of the matrix: what they are, what they are called, which are due, and the problem that each stands for."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from gemmport import kernels as family
from gemmport.api.plans import plan
from gemmport.contracts.kernel import Tile
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, INPUTS, DType, as_dtype, check_types, default_accumulator, default_output
from gemmport.core.errors import DtypeError, GemmportError, UnknownNameError
from gemmport.core.precision import FULL, rounded_to
from gemmport.core.problem import OPS, GemmProblem, Layout, Operand, Scalar, as_op, transposes

Shape = Literal[
    "tiny", "odd", "prime", "skinny", "power", "past", "batched", "strided", "empty-m", "empty-n", "empty-k", "large"
]
"""What sizes and layouts a cell has.

tiny: one of everything. odd, prime: such numbers, beyond one tile each way. skinny: few rows, many columns. power: powers of
two, whole tiles. past: one more. batched: three products, of which B is the same. strided: parts of larger, unaligned
matrices, with gaps and offsets. empty-m, -n, -k: no rows, no columns, no terms. large: so large that it is timed, beside the
baselines."""

SHAPES: tuple[Shape, ...] = get_args(Shape)

SCALARS: Mapping[str, tuple[Scalar, Scalar]] = {
    "a1b0": (1, 0),
    "a1b1": (1, 1),
    "a2b-1": (2, -1),
    "a0b2": (0, 2),
    "in-place": (2, -1),
    "complex": (2 + 4j, -1 - 2j),
    "random": (0.7, -1.3),
}
"""Alpha and beta by name. in-place: D is the memory of C. random: operands are N(0, 1) numbers, and the check is statistical;
everywhere else they are whole numbers, and it is exact."""

TYPES: tuple[str, ...] = (
    *INPUTS,
    "float16-float32", "bfloat16-float32", "float32-float64", "float16-float16-float16", "float32-complex64",
    "int8-int32", "uint8-int32", "int8-float32", "bool-int32", "float32-as-tf32",
    "float32-float16-as-float16", "complex64-as-bfloat16", "float8_e4m3fn-bfloat16",
)  # fmt: skip
"""Types of products: inputs, output where it is another, accumulator where it is not the usual one, and behind "as" the
precision that inputs are rounded to."""

_AS = "-as-"

LARGE = {"gpu": 2048, "cpu": 512, "accelerator": 2048}
"""m, n and k of what is timed, by type of device: a GPU of 10¹³ flops per second takes milliseconds for it, as does a CPU of
10¹¹."""

LARGE_ON = {"rusticl": 256}
"""The same by platform, before that: llvmpipe computes 10⁹ flops per second."""

SIMULATED = ("oclgrind",)
"""Platforms that interpret every instruction: nothing is timed there, and m, n, k ≤ `SIMULATED_EXTENT`."""

SIMULATED_EXTENT = 40

_ROUNDS = {"pocl": 1, "intel": 3, "rusticl": 2, "oclgrind": 1}
"""Rounds of a quick run, by platform; see `_quick`. On a core of an AMD EPYC, PoCL takes 0.8 s for a program, Intel's runtime
0.3, Oclgrind 0.2, and 0.2 for each cell."""

_ROUNDS_OF_CPUS = 1
"""On runtimes that nobody here has seen."""

_ALL_ROUNDS = 1000
"""More than there are pairs of types and ops."""

_TIMED = ("float32", "float16")
"""Of a quick run: each kernel in the first that it computes."""


@dataclass(frozen=True)
class Cell:
    """A kernel, types, ops, a class of shapes, and scalars: what is judged at once.

    Attributes:
        dtype, output, accumulator: names, all three always said. ops: "NN", "TC", …
        precision: of the problem.
    """

    kernel: str
    dtype: str
    output: str
    accumulator: str
    ops: str
    shape: str
    scalars: str
    precision: str = FULL

    @property
    def types(self) -> str:
        """The types by name: "int8", "int8-int32", "float16-float16-float16", "float32-as-tf32"."""
        dtype, output = as_dtype(self.dtype), as_dtype(self.output)
        usual = default_accumulator(dtype, output).name
        text = self.dtype
        if self.accumulator != usual:
            text = f"{self.dtype}-{self.output}-{self.accumulator}"
        elif output != default_output(dtype):
            text = f"{self.dtype}-{self.output}"
        return text if self.precision == FULL else f"{text}{_AS}{self.precision}"

    @property
    def id(self) -> str:
        """Its name, which `parse` reads: "tiled/float32/NT/prime/a2b-1"."""
        return "/".join((self.kernel, self.types, self.ops, self.shape, self.scalars))

    @property
    def program(self) -> str:
        """What cells that share most of what is compiled have in common."""
        return "/".join((self.kernel, self.types, self.ops))

    @property
    def in_place(self) -> bool:
        """Whether D is the memory of C."""
        return self.scalars == "in-place"

    @property
    def statistical(self) -> bool:
        """Whether operands are random numbers, rather than whole ones whose product is exact."""
        return self.scalars == "random" or (self.shape == "large" and DTYPES[self.accumulator].precision > 0)

    @classmethod
    def of(cls, kernel: str, types: str, ops: str, shape: str, scalars: str) -> Cell:
        """A checked cell.

        Raises:
            UnknownNameError: a part of it is unknown, or they do not go together.
        """
        family.variant(kernel)
        dtype, output, accumulator = parse_types(types)
        if len(ops) != 2 or not set(ops) <= set(OPS):
            raise UnknownNameError(f"ops must be two of {', '.join(OPS)}, e.g. NT; got {ops!r}")
        cell = cls(kernel, dtype.name, output.name, accumulator.name, ops, shape, scalars, precision_of(types))
        for what, name, known in (("shape", shape, SHAPES), ("scalars", scalars, _scalars(accumulator, shape))):
            if name not in known:
                raise UnknownNameError(f"{what} {name!r} of cell {cell.id}: there are {', '.join(known)}")
        return cell

    @classmethod
    def parse(cls, text: str) -> Cell:
        """The cell of an id.

        Raises:
            UnknownNameError: it is not a cell's id.
        """
        parts = text.split("/")
        if len(parts) != 5:
            raise UnknownNameError(
                f"cell {text!r} is not KERNEL/TYPES/OPS/SHAPE/SCALARS, e.g. tiled/float32/NT/prime/a1b0"
            )
        return cls.of(*parts)

    def problem(self, device: DeviceInfo) -> GemmProblem:
        """What it computes on a device, whose tiles decide the sizes.

        Raises:
            GemmportError: the planner refuses every product of the kernel and types on this device.
        """
        if self.shape == "large":
            m = n = k = LARGE_ON.get(device.platform, LARGE[device.type])
            batch = 1
        else:
            m, n, k, batch = _sizes(self.shape, self._tile(device), device)
        if self.accumulator == "float16":
            k = min(k, 64)  # small whole numbers are summed exactly so far
        alpha, beta = self._factors()
        shapes: dict[Operand, tuple[int, int]] = {
            "a": (k, m) if transposes(as_op(self.ops[0])) else (m, k),
            "b": (n, k) if transposes(as_op(self.ops[1])) else (k, n),
            "c": (m, n),
            "d": (m, n),
        }
        layouts = _LAYOUTS.get(self.shape, _dense)(shapes)
        if self.in_place:
            layouts["c"] = layouts["d"]
        return GemmProblem.create(
            m, n, k, batch=batch, dtype=self.dtype, output=self.output, accumulator=self.accumulator,
            trans_a=self.ops[0], trans_b=self.ops[1], alpha=alpha, beta=beta, precision=self.precision,
            **{str(name): layout for name, layout in layouts.items()},
        )  # fmt: skip

    def _factors(self) -> tuple[Scalar, Scalar]:
        if self.accumulator == "bool" and self.in_place:
            return 1, 1  # truth values have no others
        return SCALARS[self.scalars]

    def _tile(self, device: DeviceInfo) -> Tile:
        nominal = GemmProblem.create(
            64, 64, 64, dtype=self.dtype, output=self.output, accumulator=self.accumulator,
            trans_a=self.ops[0], trans_b=self.ops[1], precision=self.precision,
        )  # fmt: skip
        return family.variant(self.kernel).tile(plan(nominal, device, kernel=self.kernel).values)


def parse_types(text: str) -> tuple[DType, DType, DType]:
    """Inputs, output and accumulator of a name like "int8", "int8-int32" or "float16-float16-float16".

    Raises:
        UnknownNameError: it is not such a name, or the types do not go together.
    """
    names = text.partition(_AS)[0].split("-")
    try:
        dtype, *others = map(as_dtype, names)
        output, *rest = others or (default_output(dtype),)
        (accumulator,) = rest or (default_accumulator(dtype, output),)
        check_types(dtype, accumulator, output)
        precision = text.partition(_AS)[2]
        if _AS in text and rounded_to(precision, dtype) != precision:
            raise DtypeError(f"{dtype} is not rounded to {precision}: leave it out")
    except (GemmportError, ValueError) as error:
        raise UnknownNameError(
            f"types must be DTYPE[-OUTPUT[-ACCUMULATOR]][-as-PRECISION]; got {text!r}: {error}"
        ) from error
    return dtype, output, accumulator


def precision_of(types: str) -> str:
    """The precision in the name of types that `parse_types` takes."""
    return types.partition(_AS)[2] or FULL


@dataclass(frozen=True)
class Choice:
    """What a matrix is narrowed down to; None for everything.

    Attributes:
        kernels: names; every registered one. types: `TYPES`. shapes: `SHAPES`. ops: the four of N and T, and with C and R all
            sixteen where inputs are complex.
    """

    kernels: Sequence[str] | None = None
    types: Sequence[str] | None = None
    ops: Sequence[str] | None = None
    shapes: Sequence[str] | None = None

    def all_kernels(self) -> tuple[str, ...]:
        """Names of the kernels."""
        return tuple(self.kernels or (variant.name for variant in family.variants()))

    def all_types(self) -> tuple[str, ...]:
        """Names of the types."""
        return tuple(self.types or TYPES)

    def all_ops(self, types: str) -> tuple[str, ...]:
        """The ops that say something different of each other for types."""
        inputs = parse_types(types)[0]
        different = OPS if inputs.kind == "complex" else ("N", "T")
        pairs = ["".join(pair) for pair in itertools.product(different, repeat=2)]
        return tuple(ops for ops in self.ops or pairs if ops in pairs)

    def all_shapes(self, device: DeviceInfo) -> tuple[str, ...]:
        """The classes of shapes that are of use on a device."""
        untimed = device.platform in SIMULATED
        return tuple(shape for shape in self.shapes or SHAPES if not (untimed and shape == "large"))


EVERYTHING = Choice()


def cells(
    device: DeviceInfo, scope: str, choice: Choice = EVERYTHING, shard: tuple[int, int] = (1, 1)
) -> list[Cell]:  # fmt: skip
    """The cells that are due on a device, those of one program beside each other; the same for the same arguments.

    Args:
        scope: "full", every combination; "quick", so few that two cores judge five CPU runtimes in two minutes (see `_quick`).
        shard: number, from 1, and count. Every cell is in one shard, in the same as those that share its programs.
    """
    due = _full(device, choice) if scope == "full" else _quick(device, choice)
    number, count = shard
    return [cell for cell in due if zlib.crc32(cell.program.encode()) % count == number - 1]


def rounds(device: DeviceInfo) -> int:
    """Of a quick run at most; the slower the device, the fewer."""
    return _ROUNDS.get(device.platform, _ROUNDS_OF_CPUS if device.type == "cpu" else _ALL_ROUNDS)


def _full(device: DeviceInfo, choice: Choice) -> Iterator[Cell]:
    for kernel, types in itertools.product(choice.all_kernels(), choice.all_types()):
        for ops in choice.all_ops(types):
            yield from _of_a_program(kernel, types, ops, choice.all_shapes(device))


def _of_a_program(kernel: str, types: str, ops: str, shapes: Sequence[str]) -> Iterator[Cell]:
    """Every cell of a kernel, types and ops. Each types are timed with NN, float32 with all ops."""
    accumulator = parse_types(types)[2]
    for shape in shapes:
        if shape == "large" and ops != "NN" and types != "float32":
            continue
        for scalars in _scalars(accumulator, shape):
            yield Cell.of(kernel, types, ops, shape, scalars)


def _scalars(accumulator: DType, shape: str) -> tuple[str, ...]:
    """Those that say something of sums of a type."""
    if shape == "large":
        return ("a1b0",)
    return {
        "bool": ("a1b0", "a1b1", "in-place"),
        "integer": ("a1b0", "a1b1", "a2b-1", "a0b2", "in-place"),
        "real": ("a1b0", "a1b1", "a2b-1", "a0b2", "in-place", "random"),
        "complex": ("a1b0", "a1b1", "a2b-1", "a0b2", "in-place", "complex", "random"),
    }[accumulator.kind]


def _quick(device: DeviceInfo, choice: Choice) -> Iterator[Cell]:
    """A covering choice, in rounds. In each, every kernel gets one more pair of types and ops that it computes: that which
    brings most that is new, to the device and to the kernel. The first pair of a kernel is judged in every shape, with every
    kind of scalars in turn; a later one in one shape that has edges, with every kind. Rounds end when every kernel had every
    type and every op that it computes, and every type every op; slow compilers allow fewer, and what no kernel had by then,
    the first one has that computes it. Of each kernel, types that it does not compute on the device are asked for once.
    """
    shapes = [shape for shape in choice.all_shapes(device) if shape != "large"]
    edged = [shape for shape in shapes if shape not in ("power", "empty-m", "empty-n")] or shapes
    every = [(types, ops) for types in choice.all_types() for ops in choice.all_ops(types)]
    computed = {kernel: _computed(device, kernel, every) for kernel in choice.all_kernels()}
    able = {kernel: pairs for kernel, pairs in computed.items() if pairs}
    if "large" in choice.all_shapes(device):
        for kernel in _worth_timing(device, [*able]):
            types = next((types for types in _TIMED if _computes(device, kernel, types)), "")
            if (types, "NN") in able[kernel]:
                yield Cell.of(kernel, types, "NN", "large", "a1b0")
    if not shapes or not every:
        return
    turn, used = itertools.count(), _Used()
    for number in range(rounds(device)):
        for kernel, pairs in able.items():
            if (pair := used.newest(kernel, pairs)) is not None:
                scalars, start = _scalars(parse_types(pair[0])[2], shapes[0]), next(turn)
                together = [(edged[start % len(edged)], each) for each in scalars]
                if number == 0:
                    together = [(shape, scalars[(start + i) % len(scalars)]) for i, shape in enumerate(shapes)]
                yield from (Cell.of(kernel, *pair, *each) for each in together)
    for kernel, pairs in able.items():
        while (pair := used.newest(kernel, pairs, together=False)) is not None:
            scalars, start = _scalars(parse_types(pair[0])[2], shapes[0]), next(turn)
            yield Cell.of(kernel, *pair, edged[start % len(edged)], scalars[start % len(scalars)])
    for kernel in choice.all_kernels():
        had = {types for types, _ in able.get(kernel, ())}
        lacking = [types for types in dict(every) if types not in had]
        for types in lacking if kernel in able else [every[0][0]]:
            yield Cell.of(kernel, types, choice.all_ops(types)[0], shapes[0], "a1b0")


def _computed(device: DeviceInfo, kernel: str, pairs: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """Of pairs of types and ops those that a kernel computes on the device."""
    able = {types for types in dict(pairs) if _computes(device, kernel, types)}
    return [pair for pair in pairs if pair[0] in able]


def _computes(device: DeviceInfo, kernel: str, types: str) -> bool:
    """Whether a kernel multiplies such types on the device."""
    dtype, output, accumulator = parse_types(types)
    problem = GemmProblem.create(
        64, 64, 64, dtype=dtype, output=output, accumulator=accumulator, precision=precision_of(types)
    )
    return _has(device, types) and not family.variant(kernel).unsupported(problem, device)


def _worth_timing(device: DeviceInfo, kernels: Sequence[str]) -> Sequence[str]:
    """Every kernel on what is fast; on CPUs that of the configuration."""
    if device.type != "cpu" or len(kernels) == 1:
        return kernels
    side = LARGE_ON.get(device.platform, LARGE["cpu"])
    best = plan(GemmProblem.create(side, side, side), device).variant
    return [kernel for kernel in kernels if kernel == best]


class _Used:
    """What kernels, types and ops went together so far."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, ...]] = set()

    def newest(
        self, kernel: str, pairs: Sequence[tuple[str, str]], *, together: bool = True
    ) -> tuple[str, str] | None:  # fmt: skip
        """The types and ops that are most new, which count as used from then on; None where none are.

        Args:
            together: those that were not used with this kernel, or with each other, are new as well.
        """

        def facts(pair: tuple[str, str]) -> dict[tuple[str, ...], int]:
            types, ops = pair
            pairwise = {(kernel, types): 4, (kernel, ops): 4, ("both", types, ops): 1}
            return {("types", types): 16, ("ops", ops): 8, **(pairwise if together else {})}

        def news(pair: tuple[str, str]) -> int:
            return sum(weight for fact, weight in facts(pair).items() if fact not in self._seen)

        best = max(pairs, key=news, default=None)
        if best is None or not news(best):
            return None
        self._seen |= facts(best).keys()
        return best


def _has(device: DeviceInfo, types: str) -> bool:
    """Whether the device computes in the accumulator of types."""
    arithmetic = parse_types(types)[2].arithmetic
    return not arithmetic or arithmetic in device.computes


def _sizes(shape: str, tile: Tile, device: DeviceInfo) -> tuple[int, int, int, int]:
    """m, n, k and how many products."""
    rows, columns, depth = tile
    power = (_power_of_two(rows), _power_of_two(columns), 2 * _power_of_two(depth))
    sizes: dict[str, tuple[int, int, int]] = {
        "tiny": (1, 1, 1),
        "odd": (rows + 3 - rows % 2, 2 * columns + 1, 2 * depth + 3),
        "prime": (_prime(rows), _prime(columns), _prime(3 * depth)),
        "skinny": (3, 4 * columns + 2, depth + 2),
        "power": power,
        "past": (power[0] + 1, power[1] + 1, power[2] + 1),
        "batched": (rows // 2 + 1, columns + 2, depth + 1),
        "strided": (rows + 2, columns // 2 + 3, depth + 3),
        "empty-m": (0, columns + 1, depth + 1),
        "empty-n": (rows + 1, 0, depth + 1),
        "empty-k": (rows + 1, columns + 1, 0),
    }
    m, n, k = sizes[shape]
    if device.platform in SIMULATED:
        m, n, k = (min(size, SIMULATED_EXTENT) for size in _SIMULATED.get(shape, (m, n, k)))
    return m, n, k, {"batched": 3, "strided": 2}.get(shape, 1)


_SIMULATED = {"odd": (11, 37, 19), "prime": (37, 7, 23), "batched": (5, 7, 9), "past": (33, 33, 17)}
"""m, n and k where a tile of 32 × 32 × 16 takes a tenth of a second: few tiles, but two along k and one way at least."""


def _power_of_two(least: int) -> int:
    return 1 << max(least - 1, 1).bit_length()


def _prime(above: int) -> int:
    """The smallest prime that is larger."""
    return next(x for x in itertools.count(above + 1) if all(x % d for d in range(2, math.isqrt(x) + 1)))


Layouts = dict[Operand, Layout]


def _dense(shapes: Mapping[Operand, tuple[int, int]]) -> Layouts:
    return {name: Layout(max(columns, 1), rows * columns) for name, (rows, columns) in shapes.items()}


def _shared(shapes: Mapping[Operand, tuple[int, int]]) -> Layouts:
    """Every product of the batch reads the same B."""
    return {**_dense(shapes), "b": Layout(max(shapes["b"][1], 1))}


def _parts(shapes: Mapping[Operand, tuple[int, int]]) -> Layouts:
    """Parts of larger matrices: rows have gaps, and begin where no vector load may; so do matrices."""
    places = {"a": (1, 3), "b": (13, 5), "c": (2, 1), "d": (7, 9)}
    return {
        name: Layout(columns + gap, rows * (columns + gap) + gap, offset)
        for (name, (rows, columns)), (offset, gap) in zip(shapes.items(), places.values(), strict=True)
    }


_LAYOUTS: Mapping[str, Callable[[Mapping[Operand, tuple[int, int]]], Layouts]] = {"batched": _shared, "strided": _parts}
