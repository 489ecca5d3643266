"""What products of Dask arrays refuse, by name, before anything is computed."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import DASK, TORCH, needs, skip_without
from gemmport.core.errors import ArrayError, DtypeError, ParameterError, ShapeError, UnsupportedError

if DASK.is_here():
    import dask
    import dask.array as da

    import gemmport.dask as gd

pytestmark = needs(DASK)


def some(*shape: int, dtype: Any = np.float32) -> Any:
    return da.ones(shape, chunks=2, dtype=dtype)


def test_shapes_and_types_in_numpys_words() -> None:
    with pytest.raises(ShapeError, match="mismatch"):
        gp.matmul(some(3, 4), some(5, 6))
    with pytest.raises(ShapeError):
        gp.matmul(da.ones(()), some(3))
    with pytest.raises(DtypeError, match="object is not supported"):
        gp.matmul(some(3, 4).astype(object), some(4, 3))
    with pytest.raises(DtypeError, match="object is not supported"):
        gp.matmul(some(3, 4), np.full((4, 2), None))
    with pytest.raises(DtypeError, match=r"longdouble|float128"):
        gd.matmul(some(3, 4), some(4, 3, dtype=np.longdouble))
    with pytest.raises(ShapeError, match="dimension 1 of a and 0 of b must be of one size; got 4 and 5"):
        gd.tensordot(some(3, 4), some(5, 6), 1)
    with pytest.raises(ShapeError, match="axes must be"):
        gd.tensordot(some(3, 4), some(4, 6), 3)


def test_a_size_beyond_what_kernels_count_is_cut_into_chunks_that_are_not() -> None:
    x = da.ones((2**33, 8), chunks=(2**27, 8), dtype=np.int8)
    assert gp.matmul(x, some(8, 4, dtype=np.int8)).shape == (2**33, 4)


def test_unknown_chunks_are_named_with_what_makes_them_known() -> None:
    x = some(6, 4)
    with pytest.raises(ShapeError, match=r"a must have chunks of known sizes.*call a\.compute_chunk_sizes\(\)"):
        gp.matmul(x[x[:, 0] > 0], some(4, 3))


def test_chunks_of_other_kinds_are_refused() -> None:
    masked = da.ma.masked_equal(some(4, 4), 2)
    with pytest.raises(
        ArrayError, match=r"b must have chunks of NumPy's or CuPy's arrays; got numpy\.ma\.\S*MaskedArray"
    ):
        gp.matmul(some(4, 4), masked)


def test_arrays_on_devices_and_of_other_libraries_are_refused(best_backend: gp.Backend) -> None:
    with pytest.raises(ArrayError, match="b must be a Dask array, or NumPy's"):
        gp.matmul(some(4, 4), best_backend.asarray(np.ones((4, 4))))
    skip_without(TORCH)
    import torch  # noqa: PLC0415

    with pytest.raises(ArrayError, match="a must be a Dask array, or NumPy's"):
        gp.matmul(torch.ones(4, 4), some(4, 4))


@pytest.mark.parametrize(
    ("name", "value"), [("out", np.empty((4, 4), np.float32)), ("order", "F"), ("casting", "safe")]
)
def test_what_makes_no_sense_of_a_graph_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match=f"Dask arrays must be without {name}"):
        gp.matmul(some(4, 4), some(4, 4), **{name: value})


def test_gemm_does_not_load_a_whole_array_unasked() -> None:
    with pytest.raises(ArrayError, match=r"operands must be in memory; got Dask arrays: use gemmport\.dask\.matmul"):
        gp.gemm(some(4, 4), some(4, 4))


@pytest.mark.parametrize("how", [{"chunks": 100}, {"chains": 0}, {"chains": True}, {"resources": {"gpu": 0}},
                                 {"resources": {"gpu": "1"}}, {"resources": "gpu"}])  # fmt: skip
def test_arguments_of_its_own_are_checked(how: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=f"{next(iter(how))} must"):
        gd.matmul(some(4, 4), some(4, 4), **how)


def test_resources_that_dask_would_lose_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ParameterError, match=r"dask\.config\.set\(\{'optimization\.fuse\.active': False\}\)"):
        gd.matmul(some(4, 4), some(4, 4), resources={"gemmport": 1})
    with dask.config.set({"optimization.fuse.active": False}), caplog.at_level(logging.WARNING, "gemmport"):
        product = gd.matmul(some(4, 4), some(4, 4), resources={"gemmport": 1})
    assert product.dask.layers[product.name].annotations == {"resources": {"gemmport": 1}}
    assert not caplog.records  # there is no cluster whose workers could lack them


def test_query_planning_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(da, "array_expr_enabled", lambda: True)
    with pytest.raises(UnsupportedError, match=r"array\.query-planning must be off"):
        gd.matmul(some(4, 4), some(4, 4))
