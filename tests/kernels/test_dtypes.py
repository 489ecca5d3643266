"""Every kernel, data type, pair of ops and edge, exact on every device: small integers in poisoned memory (see exact.py).

Compiling a program takes a hundred times as long as running it here: what is written into a program are values that meet in
pairs (see tiers.py), and sizes, scalars and batches are tried in each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache

import pytest

import gemmport as gp
from exact import WIDEST_RUN, Sizes, check, problem_of
from gemmport import kernels
from gemmport.core.dtypes import ACCUMULATORS, DTYPES, INPUTS, check_types, default_accumulator
from gemmport.core.problem import OPS
from test_kernels import WIDE, parameters, tile

Types = tuple[str, str, str | None]
"""Of the inputs, the output and the sums (None: the default)."""

VARIANTS = tuple(variant.name for variant in kernels.variants())

# Beside those whose output is the type of the inputs: (inputs, output, accumulator).
MIXED = (
    ("int8", "int32", None),
    ("uint8", "int64", None),
    ("uint16", "complex64", None),
    ("int64", "int8", None),
    ("bool", "int32", None),
    ("bool", "float32", None),
    ("int32", "float64", None),
    ("float16", "float32", None),
    ("bfloat16", "float32", None),
    ("bfloat16", "float16", None),
    ("float16", "float16", "float16"),
    ("int16", "float64", "float16"),
    ("bfloat16", "bfloat16", "float16"),
    ("float32", "float64", None),
    ("float32", "float16", None),
    ("float64", "float16", None),
    ("float64", "bfloat16", None),
    ("float32", "float32", "float64"),
    ("float32", "complex64", None),
    ("int16", "complex128", None),
    ("complex64", "complex128", None),
    ("complex128", "complex64", None),
    ("float8_e4m3fn", "float32", None),
    ("float8_e5m2", "float16", None),
)
PAIRS_OF_OPS = ["".join(pair) for pair in itertools.product(OPS, repeat=2)]
TYPES = (*((name, name, None) for name in DTYPES), *MIXED)


@cache
def pairs_of_ops(dtype: str) -> list[str]:
    """All pairs; of those of complex numbers, all for complex64, and for other types so many that either operand meets all."""
    if INPUTS[dtype].kind == "complex" and dtype != "complex64":
        return ["NC", "CT", "TR", "RN"]
    ops = OPS if dtype == "complex64" else ("N", "T")
    return [pair for pair in PAIRS_OF_OPS if set(pair) <= set(ops)]


def scalars(output: str) -> tuple[complex, complex]:
    kind = DTYPES[output].kind
    return {"bool": (1, 1), "complex": (2 - 1j, 1j)}.get(kind, (2, -1))


TILES = ("with edges", "whole")
"""Whether tiles cross edges: a program for each."""


def problems(
    kernel: str, types: Types, ops: str, *, tiles: Sequence[str] = TILES, multiples: Sequence[int] | None = None
) -> Iterator[gp.GemmProblem]:
    """Batches with edges along all dimensions, one element, no terms, four whole tiles; with scalars and without; with gaps.

    Args:
        multiples: runs are moved element by element for 1, whole for `WIDEST_RUN`; by default, both where a kernel moves runs.
    """
    dtype, output, accumulator = types
    alpha, beta = scalars(output)
    t = tile(kernel, parameters(kernel))
    sizes = {
        "with edges": (Sizes(17, 31, 13), Sizes(1, 1, 67), Sizes(t.m + 1, t.n - 1, t.k + 1), Sizes(9, 20, 0)),
        "whole": (Sizes(2 * t.m, 2 * t.n, t.k),),
    }
    for each, multiple in itertools.product(tiles, multiples or multiples_of(kernel)):
        for extents in sizes[each]:
            problem = problem_of(
                extents,
                ops,
                dtype,
                output=output,
                accumulator=accumulator,
                alpha=alpha,
                beta=beta,
                batch=2,
                multiple=multiple,
            )
            yield problem
            yield problem.with_scalars(1, 0)


def multiples_of(kernel: str) -> Sequence[int]:
    return (1, WIDEST_RUN) if kernel in WIDE else (1,)


@pytest.mark.every_pair("multiple", (1, WIDEST_RUN), where=lambda row: row["multiple"] in multiples_of(row["kernel"]))
@pytest.mark.every_pair("tiles", TILES)
# Kernels read A, read B, sum and write the output each by a function of the type's or the op's own.
@pytest.mark.every_pair(
    ("op_a", "op_b"),
    PAIRS_OF_OPS,
    apart=True,
    where=lambda row: row["op_a"] + row["op_b"] in pairs_of_ops(row["dtype"]),
)
@pytest.mark.every_pair(("dtype", "output", "accumulator"), TYPES, apart=True)
@pytest.mark.every_pair("kernel", VARIANTS)
def test_products_of_every_type_are_exact(
    backend: gp.Backend,
    kernel: str,
    dtype: str,
    output: str,
    accumulator: str | None,
    op_a: str,
    op_b: str,
    tiles: str,
    multiple: int,
) -> None:
    types = dtype, output, accumulator
    for problem in problems(kernel, types, op_a + op_b, tiles=[tiles], multiples=[multiple]):
        check(backend, problem, kernel, parameters(kernel))


def test_types_that_the_device_does_not_compute_in_are_refused(backend: gp.Backend) -> None:
    for types, kernel in itertools.product(TYPES, VARIANTS):
        problem = next(problems(kernel, types, pairs_of_ops(types[0])[0]))
        arithmetic = problem.accumulator.arithmetic
        if arithmetic and arithmetic not in backend.device.computes:
            with pytest.raises(gp.DtypeError, match=f"does not compute in {arithmetic}"):
                gp.plan(problem, backend.device, kernel=kernel, params=parameters(kernel))


@pytest.mark.sample(kernel=["tiled"])
@pytest.mark.every_value("kernel", VARIANTS)
@pytest.mark.every_value(("alpha", "beta"), [*itertools.product((0, 1, 2, 1j, -1 + 2j), (0, 1, -1, 1j))])
def test_complex_products_scale_with_complex_numbers(
    backend: gp.Backend, kernel: str, alpha: complex, beta: complex
) -> None:
    problem = problem_of(Sizes(17, 31, 13), "NC", "complex64", alpha=alpha, beta=beta)
    check(backend, problem, kernel, parameters(kernel))


def fits(dtype: str, accumulator: str, output: str) -> bool:
    try:
        check_types(DTYPES[dtype], DTYPES[accumulator], DTYPES[output])
    except gp.DtypeError:
        return False
    return True


def test_the_default_accumulator_always_fits() -> None:
    for dtype, output in itertools.product(DTYPES.values(), repeat=2):
        if any(fits(dtype.name, accumulator, output.name) for accumulator in ACCUMULATORS):
            assert fits(dtype.name, default_accumulator(dtype, output).name, output.name)


@pytest.mark.parametrize(
    ("dtype", "output", "accumulator", "told"),
    [
        ("float32", "int32", None, "product of float32 must be real or complex; got int32"),
        ("complex64", "float32", None, "product of complex64 must be complex; got float32"),
        ("float32", "float32", "float16", "would round the inputs: choose float32 or float64$"),
        ("float32", "float32", "int", "cannot be kept in 'int', which is int64: choose float32 or float64$"),
        ("float32", "float32", "INT64", "cannot be kept in int64: choose float32 or float64$"),
        ("complex128", "complex128", "double", "kept in 'double', which is float64: choose complex128$"),
        ("int8", "int64", "float64", "cannot be kept in float64: choose int64$"),
        ("bfloat16", "bfloat16", "bfloat16", "cannot be kept in bfloat16: choose float16 or float32 or float64"),
        ("int8", "int64", "int32", "must be kept in int64"),
        ("int8", "int8", "float32", "cannot be kept in float32: choose int32 or int64"),
        ("int8", "bool", None, "product of int8 must be integer or real or complex; got bool"),
        ("float32", "float8_e5m2", None, "float8_e5m2 is a type of A and B alone"),
        ("float16", "float32", "float8_e4m3fn", "float8_e4m3fn is a type of A and B alone"),
        ("float8_e4m3fn", "float64", None, "must be one of float32, float16, bfloat16; got float64"),
        ("float8_e5m2", "float16", "float16", "sums of float8_e5m2 must be kept in float32; got float16"),
    ],
)
def test_types_that_do_not_go_together_are_refused(dtype: str, output: str, accumulator: str | None, told: str) -> None:
    with pytest.raises(gp.DtypeError, match=told):
        gp.GemmProblem.create(1, 1, 1, dtype=dtype, output=output, accumulator=accumulator)


def test_the_sums_that_an_error_names_are_those_that_fit() -> None:
    for dtype, output in itertools.product(DTYPES, repeat=2):
        fitting = [name for name in ACCUMULATORS if fits(dtype, name, output)]
        for accumulator in ACCUMULATORS:
            if fitting and accumulator not in fitting:
                with pytest.raises(gp.DtypeError) as caught:
                    check_types(DTYPES[dtype], DTYPES[accumulator], DTYPES[output])
                told = str(caught.value)
                named = told.partition(": choose ")[2].split(" or ") if "choose" in told else ["int64"]
                assert named == fitting


@pytest.mark.parametrize(
    ("dtype", "scalar", "told"),
    [
        ("float32", 1j, "is complex, and the product is float32"),
        ("int32", 0.5, "must be a whole number"),
        ("int32", float("nan"), "must be a whole number"),
        ("bool", 2, "only 0 and 1"),
        ("float32", "2", "must be a number; got"),
        ("float32", bytearray(b"7"), "must be a number; got"),
        ("float32", None, "must be a number; got"),
        ("float32", Fraction(10**400, 3), "a number that a float holds"),
    ],
)
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_scalars_that_the_product_cannot_take_are_refused(dtype: str, scalar: object, told: str, name: str) -> None:
    with pytest.raises(gp.DtypeError, match=f"{name} .*{told}"):
        gp.GemmProblem.create(1, 1, 1, dtype=dtype, **{name: scalar})
