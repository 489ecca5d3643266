"""Scales of products of Dask arrays: each tile has those of its rows, columns and matrices, whatever the chunks are.

As in tests/api/test_scales_in_parts.py, every step is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import DASK, needs
from gemmport.core.dtypes import FLOAT8S

if DASK.is_here():
    import dask.array as da

    import gemmport.dask as gd
    from gemmport.dask import tasks

pytestmark = needs(DASK)
E4M3FN = FLOAT8S[0].numpy


def operands(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """With their product in float64."""
    rng = np.random.default_rng([*a, *b])
    x, y = (rng.integers(-3, 4, shape) for shape in (a, b))
    return x.astype(E4M3FN), y.astype(E4M3FN), x.astype(np.float64) @ y


def powers(*shape: int) -> np.ndarray:
    return np.exp2(np.random.default_rng(shape).integers(-2, 3, shape)).astype(np.float32)


def is_right(product: Any, wanted: np.ndarray) -> None:
    found = product.compute()
    assert found.dtype == product.dtype
    np.testing.assert_array_equal(found, wanted.astype(product.dtype))


@pytest.mark.sample(lazy=[True])
@pytest.mark.parametrize("lazy", [True, False])
def test_tiles_have_scales_of_their_own(*, lazy: bool) -> None:
    """Of Dask's arrays in other chunks, of NumPy's, and numbers; sums in one chain and in several."""
    a, b, sums = operands((50, 51), (51, 33))
    x, y, rows, columns = da.from_array(a, (25, 17)), da.from_array(b, (17, 11)), powers(50), powers(1, 33)
    scale_a, scale_b = (da.from_array(rows, 9), da.from_array(columns, (1, 8))) if lazy else (rows, columns)
    for chains in (1, 2):
        product = gd.matmul(x, y, scale_a=scale_a, scale_b=scale_b, dtype="float16", chains=chains, kernel="naive")
        assert product.chunks == ((25, 25), (11, 11, 11))
        is_right(product, sums * rows[:, np.newaxis] * columns)
    is_right(gp.matmul(x, y, scale_a=scale_a, scale_b=0.5, kernel="naive"), sums * rows[:, np.newaxis] / 2)
    is_right(gp.matmul(x, y, scale_a=0.25, scale_b=np.float32(8), kernel="naive"), sums * 2)
    is_right(
        gp.matmul(a, b, scale_a=da.from_array(rows[:, np.newaxis], (20, 1)), kernel="naive"), sums * rows[:, np.newaxis]
    )


@pytest.mark.sample(chunks=[])
@pytest.mark.parametrize("chunks", [(1, 8, 5), (2, 21, 16)])
def test_scales_broadcast_as_matrices_do(chunks: tuple[int, ...]) -> None:
    a, b, sums = operands((3, 21, 16), (16, 15))
    x, y = da.from_array(a, chunks), da.from_array(b, (5, 7))
    for rows in (powers(21), powers(3, 21), powers(3, 1, 1), powers(1)):
        whole = rows if rows.ndim == 3 or rows.size == 1 else rows[..., np.newaxis]
        is_right(gd.matmul(x, y, scale_a=rows, kernel="naive"), sums * whole)
    for columns in (powers(15), powers(3, 1, 15), powers(1, 15)):
        is_right(gd.matmul(x, y, scale_b=da.from_array(columns), kernel="naive"), sums * columns)
    left, matrix, product = operands((16,), (16, 15))
    is_right(
        gd.matmul(da.from_array(left, 5), matrix, scale_a=powers(1), scale_b=powers(15)),
        product * powers(1) * powers(15),
    )
    matrix, right, product = operands((15, 16), (16,))
    is_right(gd.matmul(matrix, da.from_array(right, 5), scale_a=powers(15), kernel="naive"), product * powers(15))


def test_scales_are_part_of_the_name() -> None:
    a, b, _ = operands((50, 51), (51, 33))
    x, y = da.from_array(a, 17), da.from_array(b, 17)
    products = [gd.matmul(x, y, **{name: scale})
                for name in ("scale_a", "scale_b") for scale in (None, 2, 4, powers(1), 2 * powers(1))]  # fmt: skip
    assert len({product.name for product in products}) == len(products) - 1


def test_wrong_scales_are_refused_when_the_graph_is_made() -> None:
    a, b, _ = operands((6, 8), (8, 5))
    x, y = da.from_array(a, 3), da.from_array(b, 3)
    with pytest.raises(gp.ShapeError, match=r"scale_a must be one number, .* m = 6; got \(7,\)"):
        gd.matmul(x, y, scale_a=powers(7))
    with pytest.raises(gp.DtypeError, match=r"scale_b must be of float32, .* got float64"):
        gp.matmul(x, y, scale_b=da.ones(5))
    with pytest.raises(gp.DtypeError, match="scale_a must be real; got 1j"):
        gp.matmul(x, y, scale_a=1j)
    with pytest.raises(gp.ShapeError, match="scale_a must have chunks of known sizes"):
        gp.matmul(x, y, scale_a=da.from_array(powers(6))[da.from_array(powers(6)) > 0])
    with pytest.raises(gp.DtypeError, match="scale_a and scale_b are for products of real numbers"):
        gp.matmul(x.astype("float64"), y.astype("float64"), scale_a=2)
    with pytest.raises(gp.ArrayError, match="scale_a must be in memory; got Dask arrays: call compute"):
        gp.gemm(a, b, scale_a=da.from_array(powers(6)))


@pytest.mark.planted_fault
@pytest.mark.parametrize("fault", ["of another tile", "left out", "twice"])
def test_wrong_scales_of_a_tile_are_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(a: Any, b: Any, scale_a: Any = None, **how: Any) -> Any:
        wrong = {"of another tile": scale_a[::-1].copy(), "left out": None, "twice": scale_a * scale_a}[fault]
        return gp.gemm(a, b, scale_a=wrong, **how)

    monkeypatch.setattr(tasks, "gemm", faulty)
    a, b, sums = operands((50, 51), (51, 33))
    product = gd.matmul(da.from_array(a, (25, 17)), da.from_array(b, (17, 11)), scale_a=powers(50))
    with pytest.raises(AssertionError):
        is_right(product, sums * powers(50)[:, np.newaxis])
