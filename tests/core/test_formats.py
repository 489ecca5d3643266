"""The formats that operands are rounded to, and which of them goes with which type."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

from gemmport.core.dtypes import DTYPES
from gemmport.core.errors import DtypeError, UnknownNameError
from gemmport.core.precision import FORMATS, FULL, PRECISIONS, as_precision, default_for, rounded_to
from gemmport.core.problem import GemmProblem

IN_THE_TYPE = {
    "tf32": {"float16", "bfloat16"}, "float16": {"float16"}, "bfloat16": {"bfloat16"}, "full": set(DTYPES),
}  # fmt: skip
"""Types whose numbers the precision has all."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PRECISIONS)
def test_a_precision_rounds_float32_and_refuses_what_it_would_not_hold(name: str, dtype: str) -> None:
    if dtype in IN_THE_TYPE[name]:
        assert rounded_to(name, DTYPES[dtype]) == FULL
    elif dtype in ("float32", "complex64"):
        assert rounded_to(name, DTYPES[dtype]) == name
    else:
        with pytest.raises(
            DtypeError, match=f"precision '{name}' must have operands of float32 or complex64; got {dtype}"
        ):
            rounded_to(name, DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PRECISIONS)
def test_a_default_is_for_what_is_rounded_alone(name: str, dtype: str) -> None:
    assert default_for(name, DTYPES[dtype]) == (name if dtype in ("float32", "complex64") else FULL)


@pytest.mark.parametrize(("dtype", "reason"), [("int8", "exact"), ("bool", "exact"), ("float64", "kept in float64")])
def test_a_refusal_says_why(dtype: str, reason: str) -> None:
    with pytest.raises(DtypeError, match=reason):
        rounded_to("tf32", DTYPES[dtype])


def test_names_are_taken_in_either_case_and_others_refused_with_those_that_there_are() -> None:
    assert as_precision("TF32") == "tf32"
    with pytest.raises(UnknownNameError, match="one of full, tf32, float16, bfloat16; got 'float8'"):
        as_precision("float8")
    with pytest.raises(UnknownNameError, match="did you mean bfloat16"):
        as_precision("bfloat61")
    for word in (None, 32, np.float16, ["tf32"]):
        with pytest.raises(UnknownNameError):
            as_precision(word)


@pytest.mark.parametrize(("name", "dtype"), [("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
def test_a_format_is_that_of_its_type(name: str, dtype: type) -> None:
    form, known = FORMATS[name], ml_dtypes.finfo(dtype)
    assert form.unit_roundoff == float(known.eps) / 2
    assert form.smallest_subnormal == float(known.smallest_subnormal)
    assert 2.0**form.least_exponent == float(known.smallest_normal)
    assert form.smallest_subnormal == DTYPES[name].smallest_subnormal


def test_tf32_has_the_exponents_of_float32_and_the_digits_of_float16() -> None:
    form = FORMATS["tf32"]
    assert (form.unit_roundoff, form.least_exponent) == (2.0**-11, -126)


def test_a_problem_says_its_precision_and_is_another_without() -> None:
    plain, problem = (GemmProblem.create(2, 3, 4, precision=name) for name in ("full", "TF32"))
    assert (plain.precision, problem.precision) == ("full", "tf32")
    assert str(plain) == "float32 NN 2×3×4"
    assert str(problem) == "float32 rounded to tf32 NN 2×3×4"
    assert problem != plain
    assert GemmProblem.from_dict(json.loads(json.dumps(problem.to_dict()))) == problem
    old = {name: value for name, value in plain.to_dict().items() if name != "precision"}
    assert GemmProblem.from_dict(old) == plain, "documents of before have no precision"


def test_a_problem_of_what_is_not_rounded_is_refused() -> None:
    with pytest.raises(DtypeError, match="float64"):
        GemmProblem.create(2, 3, 4, dtype="float64", precision="tf32")
    assert GemmProblem.create(2, 3, 4, dtype="bfloat16", precision="tf32").precision == FULL
