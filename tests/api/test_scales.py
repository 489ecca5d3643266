"""Scales of products of float8: per tensor, row and column; of every library's arrays; refused by name where there are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gemmport as gp
from absences import TORCH, skip_without
from gemmport.checking.scales import check_scaled, random_scales
from gemmport.checking.verification import cut_on, random_operands
from gemmport.core.dtypes import FLOAT8S
from gemmport.core.problem import GemmProblem
from gemmport.execution import executor
from gemmport.outofcore.operands import Sliced

Array = np.ndarray
E4M3FN, E5M2 = (dtype.numpy for dtype in FLOAT8S)
OUTPUTS = ("float32", "float16", "bfloat16")


def numbers(shape: tuple[int, ...], seed: int = 0, dtype: Any = E4M3FN) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def factors(shape: tuple[int, ...], seed: int = 9) -> Array:
    return np.exp2(np.random.default_rng(seed).uniform(-4, 4, shape)).astype(np.float32)


def product(a: Array, b: Array) -> Array:
    return np.matmul(a.astype(np.float64), b.astype(np.float64))


def agrees(got: Any, wanted: Array, error: float = 2**-20) -> None:
    got = got.get() if isinstance(got, gp.DeviceArray) else np.asarray(got)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=error, atol=error * np.abs(wanted).max(initial=0))


@pytest.mark.every_runtime
@pytest.mark.parametrize("on_device", [False, True])
def test_rows_and_columns_are_scaled_on_every_runtime(backend: gp.Backend, on_device: bool) -> None:
    problem = GemmProblem.create(
        61, 83, 96, batch=2, dtype="float8_e5m2", output="bfloat16", alpha=1.5, beta=-3, trans_b="T"
    )
    operands, scales = random_operands(problem, 1), random_scales(problem, 2)
    place: Callable[[Array], Any] = backend.asarray if on_device else lambda x: x
    a, b, c, rows, columns = map(place, (operands["a"], operands["b"], operands["c"], scales.rows, scales.columns))
    options = {} if on_device else {"device": backend.device}
    d = gp.gemm(a, b, alpha=1.5, beta=-3, c=c, trans_b="T", scale_a=rows, scale_b=columns, **options)
    check = check_scaled(problem, operands, scales, d.get() if on_device else d, cut_on(problem, backend.device))
    assert check.passed, check.detail


SHAPES = [(1, 1, 1), (1, 70, 5), (67, 1, 9), (31, 37, 0), (0, 5, 7), (5, 0, 7), (129, 65, 200)]


@pytest.mark.every_pair("shape", SHAPES)
@pytest.mark.every_pair("ops", ["NN", "TN", "NT", "TT"])
@pytest.mark.every_pair("output", OUTPUTS)
@pytest.mark.every_pair("beta", [0.0, 2.0])
def test_odd_shapes_are_right(
    best_backend: gp.Backend, shape: tuple[int, int, int], ops: str, output: str, beta: float
) -> None:
    m, n, k = shape
    problem = GemmProblem.create(
        m, n, k, dtype="float8_e4m3fn", output=output, trans_a=ops[0], trans_b=ops[1], alpha=-0.5, beta=beta
    )  # fmt: skip
    operands, scales = random_operands(problem, 3), random_scales(problem, 4)
    for place in (best_backend.asarray, None):
        given = {name: x[0] if place is None else place(x[0]) for name, x in operands.items()}
        options = {"device": best_backend.device} if place is None else {}
        d = gp.gemm(
            given["a"], given["b"], alpha=-0.5, beta=beta, c=given.get("c"), trans_a=ops[0], trans_b=ops[1],
            dtype=problem.output.numpy, scale_a=scales.rows[0], scale_b=scales.columns[0], **options,
        )  # fmt: skip
        d = d.get() if place else d
        assert d.dtype == problem.output.numpy
        check = check_scaled(problem, operands, scales, d[np.newaxis], cut_on(problem, best_backend.device))
        assert check.passed, check.detail


def test_a_number_on_the_host_is_part_of_alpha(best_backend: gp.Backend) -> None:
    """The same bits as alpha's, no other program and no pass, and what is kept is not taken for other numbers."""
    a, b = numbers((33, 40)), numbers((40, 9), 1)
    where = {"device": best_backend.device}
    wanted = gp.gemm(a, b, alpha=0.375, **where)
    assert wanted.any()
    for number in (
        0.375,
        np.float64(0.375),
        np.float32(0.375),
        np.array(0.375),
        np.full((1, 1), 0.375),
        np.float16(0.375),
    ):
        np.testing.assert_array_equal(gp.gemm(a, b, scale_a=number, **where), wanted)
        np.testing.assert_array_equal(gp.gemm(a, b, scale_b=number, **where), wanted)
        np.testing.assert_array_equal(gp.matmul(a, b, scale_a=number, **where), wanted)
    for _ in range(3):
        np.testing.assert_array_equal(gp.gemm(a, b, alpha=3, scale_a=0.25, scale_b=0.5, **where), wanted)
        np.testing.assert_array_equal(gp.matmul(a, b, scale_a=0.5, scale_b=0.75, **where), wanted)
        np.testing.assert_array_equal(gp.matmul(a, b, **where), gp.gemm(a, b, **where))
        np.testing.assert_array_equal(gp.matmul(a, b, scale_a=2, **where), 2 * gp.gemm(a, b, **where))


def test_only_arrays_take_the_pass(best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    stems = []
    launched = executor.prepare_launch
    monkeypatch.setattr(
        executor, "prepare_launch", lambda launch, *rest: stems.append(launch.kernel.stem) or launched(launch, *rest)
    )
    a, b = (best_backend.asarray(x) for x in (numbers((7, 8)), numbers((8, 5))))
    monkeypatch.setattr(best_backend, "prepared", {})
    monkeypatch.setattr(best_backend, "kept", {})
    gp.gemm(a, b, scale_a=2.5, scale_b=1.5)
    gp.matmul(a, b, scale_a=2.5)
    assert "rescale" not in stems
    gp.gemm(a, b, scale_a=factors((7,)))
    assert stems.count("rescale") == 1


@pytest.mark.parametrize("where", ["host", "device"])
def test_shapes_of_scales(best_backend: gp.Backend, where: str) -> None:
    """Vectors, as they would be multiplied with the matrices, for each matrix of a batch or for all."""
    place: Callable[[Array], Any] = best_backend.asarray if where == "device" else lambda x: x
    options = {} if where == "device" else {"device": best_backend.device}
    a, b = numbers((3, 7, 16)), numbers((3, 16, 5), 1)
    sums = product(a, b)
    for shape in ((), (1,), (7,), (7, 1), (3, 7), (3, 7, 1), (3, 1, 1), (1, 7, 1), (1, 7)):
        x = factors(shape)
        whole = x if shape in ((), (1,)) or shape[-1:] == (1,) else x[..., np.newaxis]
        for multiply in (gp.gemm, gp.matmul):
            agrees(multiply(place(a), place(b), scale_a=place(x), **options), sums * whole)
    for shape in ((), (1,), (5,), (1, 5), (3, 5), (3, 1, 5), (3, 1, 1), (1, 1, 5)):
        x = factors(shape)
        whole = x if len(shape) != 2 or shape[0] == 1 else x[:, np.newaxis]
        for multiply in (gp.gemm, gp.matmul):
            agrees(multiply(place(a), place(b), scale_b=place(x), **options), sums * whole)
    agrees(
        gp.gemm(place(a), place(b[0]), scale_b=place(factors((3, 5))), **options), product(a, b[0]) * factors((3, 1, 5))
    )


@pytest.mark.parametrize("where", ["host", "device"])
def test_matmul_broadcasts_scales(best_backend: gp.Backend, where: str) -> None:
    """With stacks of which one is a matrix, that are uneven, and vectors; scales as views."""
    place: Callable[[Array], Any] = best_backend.asarray if where == "device" else lambda x: x
    options = {} if where == "device" else {"device": best_backend.device}
    a, b = numbers((2, 3, 6, 16)), numbers((16, 5), 1)
    rows, columns = factors((2, 3, 6, 1)), factors((1, 5), 2)
    scaled = [place(rows), place(columns)]
    agrees(
        gp.matmul(place(a), place(b), scale_a=scaled[0], scale_b=scaled[1], **options), product(a, b) * rows * columns
    )
    agrees(gp.matmul(place(a), place(b), scale_a=scaled[0][1, ::-1], **options), product(a, b) * rows[1, ::-1])
    of_each = factors((2, 1, 1, 5), 3)
    agrees(gp.matmul(place(a), place(b), scale_b=place(of_each), **options), product(a, b) * of_each)
    stacked = numbers((3, 16, 5), 4)
    agrees(
        gp.matmul(place(a), place(stacked), scale_a=scaled[0][:, :1], scale_b=scaled[1], **options),
        product(a, stacked) * rows[:, :1] * columns,
    )
    swapped = np.swapaxes(a, 0, 1)
    agrees(
        gp.matmul(place(swapped), place(b), scale_a=place(np.swapaxes(rows, 0, 1)), **options),
        product(swapped, b) * np.swapaxes(rows, 0, 1),
    )
    vector = numbers((16,), 5)
    agrees(gp.matmul(place(a), place(vector), scale_a=scaled[0], **options), product(a, vector) * rows[..., 0])
    agrees(gp.matmul(place(vector), place(b), scale_b=scaled[1], **options), product(vector, b) * columns[0])


def test_out_is_written_where_it_lies(best_backend: gp.Backend) -> None:
    """Transposed, with gaps, of another type, and over C; scales are copied from the host before the call returns."""
    a, b, rows, columns = numbers((9, 16)), numbers((16, 70), 1), factors((9,)), factors((70,), 2)
    wanted = product(a, b) * rows[:, np.newaxis] * columns
    da, db = best_backend.asarray(a), best_backend.asarray(b)
    for out in (
        best_backend.empty((70, 9), "float32").T,
        best_backend.empty((9, 100), "float32")[:, 5:75],
        best_backend.empty((9, 140), "float32")[:, ::2],
        best_backend.empty((9, 70), "float64"),
    ):
        passed = [rows.copy(), best_backend.asarray(columns)]
        assert gp.gemm(da, db, out=out, scale_a=passed[0], scale_b=passed[1]) is out
        passed[0][:] = np.nan
        agrees(out, wanted)
    c = numbers((9, 70), 3, np.float32)
    on_device = best_backend.asarray(c)
    gp.gemm(da, db, c=on_device, beta=2, out=on_device, scale_a=rows, scale_b=columns)
    agrees(on_device, wanted + 2 * c)
    kept = c.copy()
    gp.gemm(a, b, c=c, beta=2, out=c, scale_a=rows, scale_b=columns, device=best_backend.device)
    agrees(c, wanted + 2 * kept)
    fortran = np.empty((9, 70), np.float32, order="F")
    assert gp.matmul(a, b, out=fortran, scale_a=rows, scale_b=columns, device=best_backend.device) is fortran
    agrees(fortran, wanted)


def test_out_must_not_be_a_scale(best_backend: gp.Backend) -> None:
    a, b, x = (best_backend.asarray(x) for x in (numbers((4, 8)), numbers((8, 4)), factors((4, 4))))
    with pytest.raises(gp.ArrayError, match="out overlaps scale_a"):
        gp.gemm(a, b, out=x, scale_a=x[0])
    host = factors((4, 4))
    wanted = product(numbers((4, 8)), numbers((8, 4))) * host[0].copy()
    agrees(gp.gemm(numbers((4, 8)), numbers((8, 4)), out=host, scale_b=host[0], device=best_backend.device), wanted)


def test_special_scales(best_backend: gp.Backend) -> None:
    """Zero does not hide a NaN, NaN and infinity go where they scale; with alpha = 0 nothing is read."""
    a, b = numbers((4, 8)), numbers((8, 3), 1)
    a[2, 3] = np.nan
    where = {"device": best_backend.device}
    for zero in (0.0, np.zeros(4, np.float32), np.zeros((), np.float32)):
        got = gp.gemm(a, b, scale_a=zero, **where)
        assert np.isnan(got[2]).all()
        assert not got[[0, 1, 3]].any()
    got = gp.gemm(a, b, scale_b=np.array([1, np.inf, np.nan], np.float32), **where)
    sums = product(a, b)
    np.testing.assert_array_equal(got[:, 1], sums[:, 1] * np.inf)
    assert np.isnan(got[:, 2]).all()
    assert not gp.gemm(a, b, alpha=0, scale_a=np.nan, scale_b=np.full(3, np.nan, np.float32), **where).any()
    big = gp.gemm(a[:2], b, scale_a=1e30, scale_b=1e-30, **where)
    agrees(big, sums[:2])
    zeros = np.zeros_like(a)
    assert not gp.gemm(zeros, b, scale_a=1e25, scale_b=1e25, **where).any()


def test_other_types(best_backend: gp.Backend) -> None:
    """Both types of 8 bits, halves and float32; scales of types whose numbers float32 has."""
    where = {"device": best_backend.device}
    rows = np.arange(1, 6, dtype=np.float32)
    for left, right in ((E4M3FN, E5M2), (np.float16, np.float16), (ml_dtypes.bfloat16,) * 2, (np.float32, np.float32)):
        a, b = numbers((5, 12), 0, left), numbers((12, 3), 1, right)
        for kind in (np.float32, np.float16, ml_dtypes.bfloat16, np.uint8, E5M2):
            got = gp.gemm(a, b, scale_a=rows.astype(kind), dtype=np.float32, **where)
            agrees(got, product(a, b) * rows.astype(kind).astype(np.float64)[:, np.newaxis])
            on_device = [best_backend.asarray(x) for x in (a, b, rows.astype(kind))]
            np.testing.assert_array_equal(gp.gemm(*on_device[:2], scale_a=on_device[2], dtype=np.float32).get(), got)


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "one too many": ({"scale_a": factors((7,))}, gp.ShapeError, r"scale_a must be one number, .* m = 6; got \(7,\)"),
    "of rows for columns": ({"scale_b": factors((6,))}, gp.ShapeError, r"\(…, 1, n\) with n = 5; got \(6,\)"),
    "of a batch that is not there": ({"scale_a": factors((2, 6))}, gp.ShapeError, r"before it that is not 1; got \(2, 6\)"),
    "across": ({"scale_a": factors((1, 6, 1, 1))}, gp.ShapeError, r"got \(1, 6, 1, 1\)"),
    "none": ({"scale_a": factors((0,))}, gp.ShapeError, r"got \(0,\)"),
    "float64": ({"scale_a": np.ones(6)}, gp.DtypeError, "scale_a must be of float32, .* got float64"),
    "complex numbers": ({"scale_b": 1j}, gp.DtypeError, "scale_b must be real; got 1j"),
    "complex arrays": ({"scale_a": np.ones(6, np.complex64)}, gp.DtypeError, "got complex64"),
    "text": ({"scale_a": "2"}, gp.DtypeError, "scale_a must be a number"),
    "masked": ({"scale_a": np.ma.masked_equal(factors((6,)), factors((6,))[0])}, gp.ArrayError, "scale_a must have no masked"),
    "in slices": ({"scale_a": Sliced(factors((6,)))}, gp.ArrayError, "must be in memory; got a Sliced"),
}  # fmt: skip


@pytest.mark.parametrize("multiply", [gp.gemm, gp.matmul])
@pytest.mark.parametrize("what", REFUSED)
def test_refusals_name_what_is_wrong(best_backend: gp.Backend, multiply: Any, what: str) -> None:
    given, error, message = REFUSED[what]
    with pytest.raises(error, match=message):
        multiply(numbers((6, 8)), numbers((8, 5)), **given, device=best_backend.device)


@pytest.mark.parametrize("multiply", [gp.gemm, gp.matmul])
@pytest.mark.parametrize("scale", [2, factors((6,))], ids=["number", "array"])
def test_other_products_have_no_scales(best_backend: gp.Backend, multiply: Any, scale: Any) -> None:
    """Not even after the same product without them."""
    for dtype in (np.float64, np.complex64, np.int8, np.bool_):
        a, b = np.ones((6, 8), dtype), np.ones((8, 5), dtype)
        for x, y in ((a, b), (best_backend.asarray(a), best_backend.asarray(b))):
            where = {} if isinstance(x, gp.DeviceArray) else {"device": best_backend.device}
            if multiply is gp.gemm and dtype is not np.bool_:
                multiply(x, y, alpha=2, **where)
            with pytest.raises(gp.DtypeError, match="scale_a and scale_b are for products of real numbers"):
                multiply(x, y, scale_a=scale, **where)
    with pytest.raises(gp.DtypeError, match="dtype object is not supported"):
        gp.matmul(np.ones((6, 8), object), np.ones((8, 5), object), scale_a=scale)


def test_torch_hands_its_scales_over(best_backend: gp.Backend) -> None:
    """As `torch._scaled_mm` takes them: per tensor, and per row and column."""
    skip_without(TORCH)
    import torch  # noqa: PLC0415

    a, b = torch.randn(9, 16).to(torch.float8_e4m3fn), torch.randn(16, 32).to(torch.float8_e4m3fn)
    where = {"device": best_backend.device}
    rows, columns = torch.from_numpy(factors((9, 1))), torch.from_numpy(factors((1, 32)))
    for scale_a, scale_b in ((rows, columns), (torch.tensor(0.5), torch.tensor([[3.0]]))):
        for multiply in (gp.matmul, gp.gemm):
            got = multiply(a, b, scale_a=scale_a, scale_b=scale_b, dtype="bfloat16", **where)
            assert isinstance(got, torch.Tensor)
            assert got.dtype == torch.bfloat16
            torch.testing.assert_close(
                got.float(), (a.float() * scale_a) @ (b.float() * scale_b), rtol=2**-8, atol=2**-6
            )
