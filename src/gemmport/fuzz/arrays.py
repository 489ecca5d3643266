"""Products through the public functions: arrays of every stride, of the host and of a device, `out=`, NumPy's broadcasting."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

import gemmport as gp
from gemmport.backends.base import Backend
from gemmport.checking.scales import Scales, check_scaled, random_scales
from gemmport.checking.verification import LARGEST, HostArray, cut_on
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, FLOAT8S, FLOAT32, INPUTS, DType
from gemmport.core.problem import OPS, GemmProblem, Op, Operand
from gemmport.fuzz.case import (
    Data,
    Facts,
    Outcomes,
    draw_data,
    draw_factor,
    fault_of,
    judgeable,
    operands_of,
    outcomes_of_call,
    scalar_of,
    shortened,
)
from gemmport.fuzz.sizes import draw_extent, draw_sizes
from gemmport.fuzz.specialization import Specialization, Types
from gemmport.fuzz.views import KINDS, WRITABLE, View, constant_along_rows, view_of

Kinds = dict[Operand, str]
Out = Literal["new", "given", "c"]


@dataclass(frozen=True)
class GemmCase:
    """A call of `gemm`.

    Attributes:
        single: operands of which one matrix serves the whole batch.
        lies: how each operand lies, of `gemmport.fuzz.views.KINDS`; "d" is the given `out`.
        dtype_of_b: of B, which may be narrower than that of A.
        out: a new array, one that is given, or C.
        scaled: whether rows of op(A) and columns of op(B) have scales.
    """

    problem: GemmProblem
    specialization: Specialization
    single: tuple[Operand, ...]
    lies: Kinds
    dtype_of_b: DType
    out: Out
    on_device: bool
    data: Data
    seed: int
    scaled: bool = False

    @property
    def facts(self) -> Facts:
        problem = self.problem
        told = {
            "no elements": problem.empty,
            "no terms": problem.k == 0,
            "vectors": 1 in (problem.m, problem.n),
            "batch": problem.batch > 1,
            "shared operand": bool(self.single),
            "alpha = 0": problem.alpha == 0,
            "beta ≠ 0": problem.beta != 0,
            "out given": self.out == "given",
            "in place": self.out == "c",
            "scales": self.scaled,
            "mixed inputs": self.dtype_of_b != problem.dtype,
            self.data: True,
            **{kind: True for kind in self.lies.values() if kind != "dense"},
        }
        kind = "device arrays" if self.on_device else "gemm"
        return Facts(
            kind,
            self.specialization.kernel,
            _types(problem),
            problem.ops,
            tuple(name for name, is_so in told.items() if is_so),
        )

    def outcomes(self, device: DeviceInfo) -> Outcomes:
        found = outcomes_of_call(self.problem, device, self.specialization)
        # Without elements there is nothing to scale, and no kernel is asked.
        return found | {None} if self.scaled and self.problem.empty else found

    def judge(self, backend: Backend) -> str:
        problem = self.problem
        operands = operands_of(problem, self.data, self.seed)
        operands["b"] = as_type(operands["b"], self.dtype_of_b)
        place = backend if self.on_device else None
        views: dict[Operand, View] = {}
        for name in self._given():
            values = operands[name]
            if name in self.single:
                operands[name] = np.broadcast_to(values[:1], values.shape)
            operands[name] = constant_along_rows(operands[name], self.lies[name])
            flat = problem.batch == 1 or name in self.single
            views[name] = view_of(operands[name][0] if flat else operands[name], self.lies[name], place)
        if self.out == "given":
            shape = (problem.m, problem.n) if problem.batch == 1 else (problem.batch, problem.m, problem.n)
            views["d"] = view_of(np.zeros(shape, problem.output.numpy), self.lies["d"], place)
        options = _options(self.specialization)
        if not self.on_device:
            options["device"] = backend.device
        if problem.output != problem.dtype:
            options["dtype"] = problem.output.numpy
        if problem.accumulator != GemmProblem.create(0, 0, 0, dtype=problem.dtype, output=problem.output).accumulator:
            options["accumulator"] = problem.accumulator.numpy
        scales = random_scales(problem, self.seed) if self.scaled else None
        if scales is not None:
            for argument, x in (("scale_a", scales.rows), ("scale_b", scales.columns)):
                of_each = x[0] if problem.batch == 1 else x
                options[argument] = backend.asarray(of_each) if self.on_device else of_each
        target = {"new": None, "given": "d", "c": "c"}[self.out]
        out = views[target].array if target else None  # type: ignore[index]  # a name of an operand
        result = gp.gemm(
            views["a"].array, views["b"].array, alpha=problem.alpha, beta=problem.beta,
            c=views["c"].array if "c" in views else None, trans_a=problem.trans_a, trans_b=problem.trans_b, out=out, **options,
        )  # fmt: skip
        if out is not None and result is not out and self.out == "given":
            return "out was given, and something else was returned"
        for name, view in views.items():
            if stray := view.stray(written=name == target):
                return f"{name}: {stray}"
        return _judged(self, backend.device, operands, result.get() if self.on_device else result, scales)

    def _given(self) -> tuple[Operand, ...]:
        return ("a", "b", "c") if self.problem.beta != 0 or self.out == "c" else ("a", "b")

    def __str__(self) -> str:
        problem = self.problem
        lies = ", ".join(f"{name} {kind}" for name, kind in self.lies.items())
        return (
            f"{self.specialization}, gemm of {'device' if self.on_device else 'NumPy'} arrays: {problem}, b {self.dtype_of_b}, "
            f"alpha = {problem.alpha}, beta = {problem.beta}, {self.data}; {lies}; "
            f"single: {', '.join(self.single) or 'none'}; out: {self.out}{'; scales' if self.scaled else ''}"
        )


def draw_gemm_case(rng: np.random.Generator, specialization: Specialization, *, on_device: bool) -> GemmCase:
    """A call of `gemm` with the kernel and the types."""
    types = specialization.types
    batch = int(rng.choice((1, 2, 4), p=(0.7, 0.2, 0.1)))
    m, n, k = _draw_sizes(rng, batch=batch)
    dtype, output = INPUTS[types.dtype], DTYPES[types.output]
    kind = DTYPES[types.accumulator].kind
    ops: tuple[Op, ...] = OPS if dtype.kind == "complex" else ("N", "T")
    out: Out = ("new", "given", "c")[int(rng.choice(3, p=(0.5, 0.3, 0.2)))]
    problem = GemmProblem.create(
        m, n, shortened(k, types.accumulator), batch=batch, dtype=dtype, output=output, accumulator=types.accumulator,
        trans_a=ops[rng.integers(len(ops))], trans_b=ops[rng.integers(len(ops))],
        alpha=scalar_of(rng, draw_factor(rng, none=0.08), kind), beta=scalar_of(rng, draw_factor(rng, none=0.35), kind),
    )  # fmt: skip
    lies = _draw_lies(rng, out)
    return GemmCase(
        problem=problem,
        specialization=specialization,
        # One of the operands must say how large the batch is, and C, which is also the result, is never shared.
        single=((), ("a",), ("b",))[int(rng.integers(3))] if batch > 1 else (),
        lies=lies,
        dtype_of_b=_draw_narrower(rng, dtype) if not on_device and rng.random() < 0.15 else dtype,
        out=out,
        on_device=on_device,
        data=(data := _judgeable(rng, problem, lies)),
        seed=(seed := int(rng.integers(2**31))),
        scaled=dtype in FLOAT8S and data != "special values" and seed % 2 == 0,
    )


@dataclass(frozen=True)
class MatmulCase:
    """A call of `matmul`.

    Attributes:
        problem: the product of all matrices; its batch counts those of the result.
        shape_of_a, shape_of_b: as they are passed; a vector has one dimension.
        stack: the dimensions of the result before its last two.
        lies: as of `GemmCase`.
        out: whether an array for the result is given.
    """

    problem: GemmProblem
    specialization: Specialization
    shape_of_a: tuple[int, ...]
    shape_of_b: tuple[int, ...]
    stack: tuple[int, ...]
    dtype: DType
    lies: Kinds
    out: bool
    data: Data
    seed: int

    @property
    def facts(self) -> Facts:
        told = {
            "no elements": self.problem.empty,
            "no terms": self.problem.k == 0,
            "vectors": 1 in (len(self.shape_of_a), len(self.shape_of_b)),
            "batch": self.problem.batch > 1,
            "broadcasting": self.shape_of_a[:-2] != self.shape_of_b[:-2],
            "out given": self.out,
            self.data: True,
            **{kind: True for kind in self.lies.values() if kind != "dense"},
        }
        features = tuple(name for name, is_so in told.items() if is_so)
        return Facts("matmul", self.specialization.kernel, _types(self.problem), self.problem.ops, features)

    @property
    def planned(self) -> GemmProblem:
        """What is planned: kernels read the arrays as they are, and widen what they read."""
        return replace(self.problem, dtype=self.dtype)

    def outcomes(self, device: DeviceInfo) -> Outcomes:
        return outcomes_of_call(self.planned, device, self.specialization)

    def judge(self, backend: Backend) -> str:
        problem = self.problem
        passed_in: tuple[tuple[Operand, tuple[int, ...], tuple[int, int]], ...] = (
            ("a", self.shape_of_a, (problem.m, problem.k)),
            ("b", self.shape_of_b, (problem.k, problem.n)),
        )
        # Beside an empty stack, an operand may still have matrices.
        most = max(problem.batch, *(math.prod(shape[:-2]) for _, shape, _ in passed_in))
        drawn = operands_of(replace(problem, batch=most), self.data, self.seed)
        operands: dict[Operand, HostArray] = {}
        views: dict[Operand, View] = {}
        for operand, shape, core in passed_in:
            own = shape[:-2]
            values = as_type(drawn[operand][: math.prod(own)].reshape(*own, *core), self.dtype)
            passed = constant_along_rows(values.reshape(shape), self.lies[operand])
            views[operand] = view_of(passed, self.lies[operand])
            spread = np.broadcast_to(passed.reshape(*own, *core), (*self.stack, *core))
            operands[operand] = spread.reshape(problem.batch, *core).astype(problem.dtype.numpy)
        vectors = [len(self.shape_of_a) == 1, len(self.shape_of_b) == 1]
        shape = (*self.stack, *(() if vectors[0] else (problem.m,)), *(() if vectors[1] else (problem.n,)))
        out = None
        if self.out and shape:
            views["d"] = view_of(np.zeros(shape, problem.output.numpy), self.lies["d"])
            out = views["d"].array
        options = {**_options(self.specialization), "device": backend.device}
        if problem.output != self.dtype:
            options["dtype"] = problem.output.numpy
        result = gp.matmul(views["a"].array, views["b"].array, out=out, **options)
        if out is not None and result is not out:
            return "out was given, and something else was returned"
        for operand, view in views.items():
            if stray := view.stray(written=operand == "d"):
                return f"{operand}: {stray}"
        if np.shape(result) != shape:
            return f"the result has shape {np.shape(result)}, not {shape}"
        computed = np.asarray(result)
        return _judged(self, backend.device, operands, computed.reshape(problem.batch, problem.m, problem.n))

    def __str__(self) -> str:
        lies = ", ".join(f"{name} {kind}" for name, kind in self.lies.items())
        return (
            f"{self.specialization}, matmul of NumPy arrays {self.dtype} {self.shape_of_a} and {self.shape_of_b}: "
            f"{self.problem}, {self.data}; {lies}; out: {'given' if self.out else 'new'}"
        )


def draw_matmul_case(rng: np.random.Generator, specialization: Specialization) -> MatmulCase:
    """A call of `matmul` that multiplies in the output's type, to which inputs are cast, as NumPy's `dtype=` does."""
    dtype, output = INPUTS[specialization.types.dtype], DTYPES[specialization.types.output]
    if "bfloat16" in (dtype.name, output.name):  # NumPy has no product of its own for it
        dtype = output = FLOAT32
    if not np.can_cast(dtype.numpy, output.numpy, "safe"):
        dtype = output
    stack = tuple(int(x) for x in rng.integers(1, 4, int(rng.choice(3, p=(0.5, 0.3, 0.2)))))
    if stack and rng.random() < 0.05:
        stack = (0, *stack[1:])
    shapes = []
    for _ in range(2):
        own = tuple(1 if rng.random() < 0.3 else extent for extent in stack)
        shapes.append(own[int(rng.integers(len(stack) + 1)) if rng.random() < 0.3 else 0 :])
    spread = np.broadcast_shapes(*shapes)
    m, n, k = _draw_sizes(rng, batch=math.prod(spread))
    vectors = rng.random(2) < 0.12
    m, n = 1 if vectors[0] else m, 1 if vectors[1] else n
    if vectors[0]:
        shapes[0] = ()
    if vectors[1]:
        shapes[1] = ()
    spread = np.broadcast_shapes(*shapes)
    problem = GemmProblem.create(m, n, k, batch=math.prod(spread), dtype=output)
    out: Out = "given" if rng.random() < 0.3 else "new"
    lies = _draw_lies(rng, out)
    return MatmulCase(
        problem=problem,
        specialization=specialization,
        shape_of_a=(k,) if vectors[0] else (*shapes[0], m, k),
        shape_of_b=(k,) if vectors[1] else (*shapes[1], k, n),
        stack=spread,
        dtype=dtype,
        lies=lies,
        out=out == "given",
        data="whole numbers" if dtype != output else _judgeable(rng, problem, lies),
        seed=int(rng.integers(2**31)),
    )


def as_type(values: HostArray, dtype: DType) -> HostArray:
    """Whole numbers in a type that holds them but for their sign, or for their imaginary part."""
    if values.dtype == dtype.numpy:
        return values
    if dtype.kind != "complex":
        values = values.real
        if values.dtype.kind == "f":  # wide sums have room for numbers that a narrower type does not hold
            with np.errstate(invalid="ignore"):
                values = np.where(np.abs(values) < np.inf, np.fmod(values, LARGEST + 1), values)
    with np.errstate(invalid="ignore"):  # whatever integer the host makes of infinity is what both sides are given
        return (np.abs(values) if dtype.name.startswith("uint") else values).astype(dtype.numpy)


def _draw_sizes(rng: np.random.Generator, *, batch: int) -> tuple[int, int, int]:
    """m, n and k; tiles are those of no kernel, and what is long is left to plans."""
    extents = [draw_extent(rng) for _ in range(3)]
    m, n, k = ("any" if extent == "long" else extent for extent in extents)
    return draw_sizes(rng, (m, n, k), (16, 16, 16), batch=batch)


def _judgeable(rng: np.random.Generator, problem: GemmProblem, lies: Kinds) -> Data:
    """Data whose result can be judged: numbers that are repeated are not independent, and their roundings add up one way."""
    data = judgeable(draw_data(rng, problem.dtype), problem)
    repeated = "zero strides" in (lies["a"], lies["b"])
    return "whole numbers" if data == "random numbers" and repeated else data


def _draw_lies(rng: np.random.Generator, out: Out) -> Kinds:
    """How operands lie; half of them as they come from NumPy."""

    def one(kinds: tuple[str, ...]) -> str:
        return "dense" if rng.random() < 0.5 else kinds[int(rng.integers(len(kinds)))]

    lies: Kinds = {"a": one(KINDS), "b": one(KINDS), "c": one(WRITABLE if out == "c" else KINDS)}
    return {**lies, "d": one(WRITABLE)} if out == "given" else lies


def _draw_narrower(rng: np.random.Generator, dtype: DType) -> DType:
    """A type that NumPy converts to this one where both meet; bfloat16 and types of 8 bits meet none."""
    if dtype.name == "bfloat16" or dtype in FLOAT8S:
        return dtype
    fitting = [
        other
        for other in DTYPES.values()
        if other.name != "bfloat16" and np.result_type(dtype.numpy, other.numpy) == dtype.numpy
    ]
    return fitting[int(rng.integers(len(fitting)))]


def _judged(
    case: GemmCase | MatmulCase,
    device: DeviceInfo,
    operands: dict[Operand, HostArray],
    result: HostArray,
    scales: Scales | None = None,
) -> str:
    problem = case.problem
    if result.dtype != problem.output.numpy:
        return f"the result is {result.dtype}, not {problem.output}"
    shape = (problem.batch, problem.m, problem.n)
    if result.shape not in (shape, *((shape[1:],) if problem.batch == 1 else ())):
        return f"the result has shape {result.shape}, not {shape}"
    cut = cut_on(problem, device)
    if scales is not None:
        return check_scaled(problem, operands, scales, result.reshape(shape), cut).detail
    return fault_of(problem, operands, case.data, result.reshape(shape), cut)


def _options(specialization: Specialization) -> dict[str, Any]:
    return {"kernel": specialization.kernel, "params": dict(specialization.params)}


def _types(problem: GemmProblem) -> str:
    return str(Types(problem.dtype.name, problem.output.name, problem.accumulator.name))
