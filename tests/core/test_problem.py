"""`GemmProblem` and `Layout`: what may be asked, and what follows from it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gemmport.core.dtypes import FLOAT64, INPUTS, DType, as_dtype
from gemmport.core.errors import DtypeError, ShapeError
from gemmport.core.problem import MAX_EXTENT, OPERANDS, OPS, GemmProblem, Layout, as_op

SIZES = st.integers(0, 40)


@st.composite
def problems(draw: st.DrawFn) -> GemmProblem:
    """Any product of small matrices, its operands lying anywhere."""
    m, n, k, batch = (draw(SIZES) for _ in range(4))
    trans_a, trans_b = draw(st.sampled_from(OPS)), draw(st.sampled_from(OPS))
    dense = GemmProblem.create(m, n, k, trans_a=trans_a, trans_b=trans_b)
    layouts = {}
    for operand in OPERANDS:
        rows, columns = dense.stored_shape(operand)
        ld = max(columns, 1) + draw(st.integers(0, 5))
        stride = rows * ld + draw(st.integers(0, 5)) if operand == "d" else draw(st.integers(0, rows * ld + 5))
        layouts[operand] = Layout(ld, stride, draw(st.integers(0, 9)), 2 ** draw(st.integers(2, 8)))
    return GemmProblem.create(
        m, n, k, batch=batch, dtype=draw(st.sampled_from(["float32", "float64"])), trans_a=trans_a, trans_b=trans_b,
        alpha=draw(st.floats(allow_nan=False)), beta=draw(st.floats(allow_nan=False)), **layouts,
    )  # fmt: skip


def touched(layout: Layout, rows: int, columns: int, batch: int) -> np.ndarray:
    """The index, from the start of the memory, of every element that NumPy's view of the layout touches."""
    extent = layout.offset + batch * layout.batch_stride + rows * layout.ld + columns + 1
    flat = np.arange(extent)
    strides = [flat.itemsize * step for step in (layout.batch_stride, layout.ld, 1)]
    return np.lib.stride_tricks.as_strided(flat[layout.offset :], (batch, rows, columns), strides)


def test_problems_are_equal_where_no_result_tells_them_apart() -> None:
    def of(alpha: complex, beta: complex = 0.0, dtype: str = "complex64") -> GemmProblem:
        return GemmProblem.create(3, 4, 5, alpha=alpha, beta=beta, dtype=dtype)

    nan = float("nan")
    assert of(nan, nan) == of(float("nan"), complex("nan"))
    assert len({of(1), of(1.0), of(1 + 0j), of(complex(nan, 1)), of(complex(nan, 1))}) == 2
    assert len({of(0.0), of(-0.0), of(complex(1, -0.0)), of(1.0), of(1.0, -0.0)}) == 5
    assert of(0.0, dtype="float32") != of(-0.0, dtype="float32")
    assert of(2, dtype="float32") != "of something else"


@given(problems(), st.sampled_from(OPERANDS))
def test_span_is_one_past_the_last_element_touched(problem: GemmProblem, operand: str) -> None:
    rows, columns = problem.stored_shape(operand)
    indices = touched(problem.layout(operand), rows, columns, problem.batch)
    assert problem.span(operand) == (indices.max() + 1 if indices.size else problem.layout(operand).offset)


@given(problems(), st.sampled_from(OPERANDS))
def test_alignment_is_the_largest_power_of_two_that_divides_the_address_of_every_row(
    problem: GemmProblem, operand: str
) -> None:
    layout = problem.layout(operand)
    itemsize = problem.element_type(operand).itemsize
    # Eight rows of eight matrices show every combination, whatever the sizes are.
    rows = touched(layout, 8, 1, 8).ravel() * itemsize
    addresses = [layout.base_alignment, *map(int, rows)]
    assert problem.alignment(operand) == max(2**p for p in range(20) if all(a % 2**p == 0 for a in addresses))


@given(problems())
def test_a_problem_survives_json(problem: GemmProblem) -> None:
    assert GemmProblem.from_dict(json.loads(json.dumps(problem.to_dict()))) == problem


@given(problems())
def test_equal_problems_have_equal_hashes(problem: GemmProblem) -> None:
    assert hash(replace(problem)) == hash(problem)


@given(problems())
def test_flops_and_bytes_count_the_elements_of_the_stored_operands(problem: GemmProblem) -> None:
    elements = {operand: math.prod(problem.stored_shape(operand)) * problem.batch for operand in OPERANDS}
    read = [elements["a"], elements["b"], *([elements["c"]] if problem.beta != 0 else [])]
    assert problem.bytes == (sum(read) + elements["d"]) * problem.dtype.itemsize
    assert problem.flops == 2 * elements["d"] * problem.k
    assert problem.intensity * problem.bytes == pytest.approx(problem.flops)


@given(problems())
def test_empty_means_that_d_has_no_elements(problem: GemmProblem) -> None:
    assert problem.empty == (problem.batch * problem.m * problem.n == 0)
    assert (problem.shape_class == "empty") == (problem.empty or problem.k == 0 or problem.alpha == 0)


@pytest.mark.parametrize("operand", OPERANDS)
def test_a_layout_that_is_not_given_is_dense(operand: str) -> None:
    problem = GemmProblem.create(3, 5, 7, batch=2, trans_a="T")
    rows, columns = problem.stored_shape(operand)
    assert problem.layout(operand) == Layout(ld=columns, batch_stride=rows * columns)


@pytest.mark.parametrize(
    ("trans_a", "trans_b", "stored_a", "stored_b"),
    [
        ("N", "N", (3, 7), (7, 5)),
        ("N", "T", (3, 7), (5, 7)),
        ("T", "N", (7, 3), (7, 5)),
        ("C", "C", (7, 3), (5, 7)),
    ],
)
def test_a_transposed_operand_is_stored_with_its_sizes_exchanged(
    trans_a: str, trans_b: str, stored_a: tuple[int, int], stored_b: tuple[int, int]
) -> None:
    problem = GemmProblem.create(3, 5, 7, trans_a=trans_a, trans_b=trans_b)
    assert (problem.stored_shape("a"), problem.stored_shape("b")) == (stored_a, stored_b)
    assert (problem.stored_shape("c"), problem.stored_shape("d")) == ((3, 5), (3, 5))
    assert problem.ops == trans_a + trans_b


@pytest.mark.parametrize(("value", "op"), [("N", "N"), ("n", "N"), ("t", "T"), ("C", "C"), (False, "N"), (True, "T")])
def test_ops_are_letters_of_either_case_or_bools(value: object, op: str) -> None:
    assert as_op(value) == op


@pytest.mark.parametrize("value", ["X", "", "NN", None, 1])
def test_an_unknown_op_is_named_with_the_known_ones(value: object) -> None:
    with pytest.raises(ShapeError, match=r"transposition .* one of N, T, C") as caught:
        as_op(value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("name", ["m", "n", "k", "batch"])
@pytest.mark.parametrize(("value", "rule"), [(-1, "negative"), (MAX_EXTENT + 1, f"largest size is {MAX_EXTENT}")])
def test_a_size_out_of_range_is_named_with_its_value(name: str, value: int, rule: str) -> None:
    sizes = {"m": 1, "n": 1, "k": 1, "batch": 1, name: value}
    with pytest.raises(ShapeError, match=f"{name} = {value} .*{rule}"):
        GemmProblem.create(**sizes)


def test_the_largest_size_is_allowed_and_its_spans_are_exact() -> None:
    problem = GemmProblem.create(MAX_EXTENT, MAX_EXTENT, 1)
    assert problem.span("d") == MAX_EXTENT**2  # beyond 2⁶¹, which a float would round


@pytest.mark.parametrize("value", [2.0, 2.5, "2"])
def test_a_size_that_is_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(ShapeError, match=f"k must be a whole number.*; got {value!r}"):
        GemmProblem.create(1, 1, value)  # type: ignore[arg-type]


def test_sizes_of_numpy_are_taken_as_pythons_own() -> None:
    problem = GemmProblem.create(*map(np.int64, (2, 3, 4)))
    assert json.loads(json.dumps(problem.to_dict())) == GemmProblem.create(2, 3, 4).to_dict()


@pytest.mark.parametrize("operand", OPERANDS)
def test_a_leading_dimension_shorter_than_a_row_is_refused(operand: str) -> None:
    columns = GemmProblem.create(4, 4, 4).stored_shape(operand)[1]
    with pytest.raises(ShapeError, match=f"{operand}: leading dimension 3 is shorter than a stored row of {columns}"):
        GemmProblem.create(4, 4, 4, **{operand: Layout(ld=3)})


@pytest.mark.parametrize("operand", OPERANDS)
def test_a_leading_dimension_of_zero_is_refused_even_for_empty_rows(operand: str) -> None:
    with pytest.raises(ShapeError, match=f"{operand}: leading dimension 0"):
        GemmProblem.create(0, 0, 0, **{operand: Layout(ld=0)})


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("field", ["offset", "batch_stride"])
def test_a_negative_offset_or_batch_stride_is_refused(operand: str, field: str) -> None:
    with pytest.raises(ShapeError, match=f"{operand}: .*-2.* must not be negative"):
        GemmProblem.create(4, 4, 4, batch=2, **{operand: Layout(ld=4, **{field: -2})})


@pytest.mark.parametrize("operand", ["a", "b", "c"])
def test_one_matrix_that_is_only_read_serves_a_whole_batch(operand: str) -> None:
    problem = GemmProblem.create(4, 4, 4, batch=3, **{operand: Layout(ld=4, batch_stride=0)})
    assert problem.span(operand) == 16


@given(st.integers(1, 5), st.integers(1, 5), st.integers(2, 4), st.integers(0, 12), st.integers(0, 30))
def test_a_layout_of_d_in_which_elements_share_memory_is_refused(
    m: int, n: int, batch: int, gap: int, stride: int
) -> None:
    layout = Layout(ld=n + gap, batch_stride=stride)
    indices = touched(layout, m, n, batch)
    assume(np.unique(indices).size < indices.size)
    with pytest.raises(ShapeError, match=f"d: with batch stride {stride} the matrices overlap"):
        GemmProblem.create(m, n, 1, batch=batch, d=layout)


@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 0, 2)], ids=["one after another", "side by side"])
def test_the_matrices_of_any_view_of_one_array_may_be_written(axes: tuple[int, int, int]) -> None:
    view = np.empty((7, 9, 11), np.float32).transpose(axes)[1:5:2, ::3, :10]
    stride, ld, _ = (step // view.itemsize for step in view.strides)
    batch, m, n = view.shape
    assert GemmProblem.create(m, n, 1, batch=batch, d=Layout(ld, stride)).d.batch_stride == stride


@pytest.mark.parametrize(
    ("sizes", "shape_class"),
    [
        ((0, 5, 5), "empty"),
        ((5, 0, 5), "empty"),
        ((5, 5, 0), "empty"),
        ((1, 4096, 4096), "vector"),
        ((4096, 1, 4096), "vector"),
        ((1, 1, 1), "vector"),
        ((256, 256, 256), "small"),
        ((2, 4096, 2048), "small"),
        ((64, 1024, 4096), "skinny"),
        ((4096, 4096, 256), "skinny"),
        ((256, 256, 257), "medium"),
        ((65, 1024, 1024), "medium"),
        ((1536, 1536, 1536), "medium"),
        ((1536, 1536, 1537), "large"),
        ((MAX_EXTENT, MAX_EXTENT, MAX_EXTENT), "large"),
    ],
)
def test_shape_classes(sizes: tuple[int, int, int], shape_class: str) -> None:
    assert GemmProblem.create(*sizes).shape_class == shape_class


def test_without_products_there_are_no_terms_to_sum() -> None:
    problem = GemmProblem.create(4, 4, 4, alpha=0.0, beta=1.0)
    assert (problem.effective_k, problem.shape_class, problem.empty) == (0, "empty", False)


def test_other_scalars_leave_the_rest_of_the_problem_as_it_is() -> None:
    problem = GemmProblem.create(4, 5, 6, dtype="float64", trans_b="T")
    changed = problem.with_scalars(2, -1)
    assert (changed.alpha, changed.beta) == (2.0, -1.0)
    assert changed.with_scalars(problem.alpha, problem.beta) == problem


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (GemmProblem.create(2, 3, 4), "float32 NN 2×3×4"),
        (GemmProblem.create(2, 3, 4, batch=5, dtype="float64", trans_a="T"), "float64 TN 2×3×4 ×5"),
    ],
)
def test_a_problem_is_told_in_one_line(problem: GemmProblem, text: str) -> None:
    assert str(problem) == text


@pytest.mark.parametrize("spec", ["float64", np.float64, np.dtype("float64"), float, FLOAT64])
def test_a_dtype_may_be_named_in_any_of_numpys_ways(spec: object) -> None:
    assert as_dtype(spec) is FLOAT64


@pytest.mark.parametrize("spec", ["longdouble", object, "S4", "no such thing", object()])
def test_an_unsupported_dtype_is_named_with_the_supported_ones(spec: object) -> None:
    with pytest.raises(DtypeError, match=r"dtype .* is not supported: .* float32, float64, "):
        GemmProblem.create(1, 1, 1, dtype=spec)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("float32,float64", "dtype float32,float64 is"),
        ("flaot32", "; did you mean float32?"),
        ("", "dtype '' is"),
        ("U8", "dtype U8 is"),
        (np.dtype("U8"), "dtype <U8 is"),
        (np.dtype([("x", "f4")]), "dtype [('x', '<f4')] is"),
    ],
    ids=str,
)
def test_an_unsupported_dtype_is_told_as_it_was_given(spec: object, told: str) -> None:
    with pytest.raises(DtypeError) as caught:
        as_dtype(spec)
    assert told in str(caught.value)


@pytest.mark.parametrize("dtype", [dtype for dtype in INPUTS.values() if dtype.precision], ids=str)
def test_dtypes_agree_with_numpy(dtype: DType) -> None:
    info = ml_dtypes.finfo(dtype.numpy)
    assert dtype.itemsize == dtype.numpy.itemsize
    assert dtype.unit_roundoff == info.eps / 2
    assert dtype.smallest_subnormal == info.smallest_subnormal > 0


@pytest.mark.parametrize("value", [Fraction(1, 2), Decimal("0.5"), np.float16(0.5), np.array(0.5), 0.5])
def test_what_python_takes_for_a_real_number_is_a_scalar(value: object) -> None:
    assert GemmProblem.create(1, 1, 1, alpha=value).alpha == 0.5


@pytest.mark.parametrize(("value", "wanted"), [(10**400, math.inf), (-(10**400), -math.inf)], ids=["above", "below"])
def test_a_whole_number_beyond_all_floats_is_infinite_and_wraps_in_integers(value: int, wanted: float) -> None:
    assert GemmProblem.create(1, 1, 1, beta=value).beta == wanted
    assert GemmProblem.create(1, 1, 1, dtype="complex64", beta=value).beta == wanted
    assert GemmProblem.create(1, 1, 1, dtype="int32", beta=value).beta == value


@pytest.mark.parametrize(
    ("k", "alpha", "beta", "wanted"),
    [(3, 1, 0, "ab"), (3, 0, 1, "c"), (0, 1, 1, "c"), (3, 2, -1, "abc"), (0, 0, 0, "")],
)
def test_operands_are_read_where_they_count(k: int, alpha: float, beta: float, wanted: str) -> None:
    problem = GemmProblem.create(2, 2, k, alpha=alpha, beta=beta)
    assert "".join(operand for operand in OPERANDS if problem.reads(operand)) == wanted
