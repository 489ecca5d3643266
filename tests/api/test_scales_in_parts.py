"""Scales of products that are computed in parts: each part has the scales of its own rows, columns and matrices.

Numbers are small integers and scales are powers of two, so that every step but the last is exact, and results are compared bit
for bit: a scale of another row, a scale left out, and one that multiplies twice each give other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from gemmport.core.dtypes import FLOAT8S, as_dtype
from gemmport.core.errors import CheckpointError
from gemmport.kernels import rescale
from gemmport.outofcore.streaming import Streamed
from gemmport.planning import schedule
from pairs import opened_pair, without_sharing

Array = np.ndarray
E4M3FN = FLOAT8S[0].numpy


@dataclass
class Case:
    """A product with scales, and what it gives."""

    a: Array
    b: Array
    c: Array | None
    rows: Array
    columns: Array
    output: str
    beta: float

    @classmethod
    def of(cls, m: int, n: int, k: int, batch: tuple[int, ...] = (), output: str = "float32", beta: float = 0) -> Case:
        rng = np.random.default_rng([m, n, k])
        a, b, c = (rng.integers(-3, 4, (*batch, *size)) for size in ((m, k), (k, n), (m, n)))
        rows, columns = (np.exp2(rng.integers(-2, 3, (*batch, size))).astype(np.float32) for size in (m, n))
        added = c.astype(as_dtype(output).numpy) if beta else None
        return cls(a.astype(E4M3FN), b.astype(E4M3FN), added, rows, columns, output, beta)

    @property
    def wanted(self) -> Array:
        sums = self.a.astype(np.float64) @ self.b.astype(np.float64)
        scaled = 2 * sums * self.rows[..., :, np.newaxis] * self.columns[..., np.newaxis, :]
        added = scaled if self.c is None else scaled + self.beta * self.c.astype(np.float64)
        return added.astype(as_dtype(self.output).numpy)

    def gemm(self, place: Callable[[Array], Any] = lambda x: x, **how: Any) -> Any:
        given = {"scale_a": self.rows, "scale_b": self.columns, "kernel": "naive", **how}
        c = {} if self.c is None else {"c": place(self.c), "beta": self.beta}
        dtype = as_dtype(self.output).numpy
        return gp.gemm(place(self.a), place(self.b), alpha=2, dtype=dtype, **c, **given)

    def is_right(self, d: Any) -> None:
        found = d.get() if hasattr(d, "get") else d
        assert found.dtype == as_dtype(self.output).numpy
        np.testing.assert_array_equal(found, self.wanted)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[gp.Backend]]:
    """Two devices, between which every product is dealt in many tiles; even small operands pass by in several panels."""
    monkeypatch.setattr(schedule, "LEAST_DEPTH", 8)
    with opened_pair(monkeypatch) as found:
        yield found


@contextmanager
def allowing(backend: gp.Backend, most: int) -> Iterator[None]:
    """The device, as if it allowed so many bytes in one allocation."""
    device = backend.device
    backend.device = replace(device, max_allocation=most)
    try:
        yield
    finally:
        backend.device = device


STREAMED = {"one": (131, 97, 120, (), 60_000), "batch": (65, 70, 33, (3,), 20_000), "skinny": (1, 301, 40, (), 9_000)}
"""m, n, k, dimensions before the matrices, and bytes of the device."""


@pytest.mark.sample(case=["one"], output=["bfloat16"], beta=[2.0])
@pytest.mark.parametrize("case", STREAMED)
@pytest.mark.parametrize("output", ["float32", "bfloat16"])
@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_a_product_in_tiles_has_the_scales_of_each(backend: gp.Backend, case: str, output: str, beta: float) -> None:
    *sizes, batch, memory = STREAMED[case]
    product = Case.of(*sizes, batch, output, beta)
    product.is_right(product.gemm(device=backend.device, device_memory=memory))
    if batch:  # one for each row of all matrices, and one of each matrix
        product.rows = product.rows[:1]
        product.columns = np.repeat(product.columns[:, :1], product.b.shape[-1], axis=1)
        told = {"scale_a": product.rows[0], "scale_b": product.columns[:, np.newaxis, :1]}
        product.is_right(product.gemm(device=backend.device, device_memory=memory, host_memory=4_000, **told))


def test_scales_count_as_memory_of_the_device(best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a schedule says that it takes is what is allocated, and within the bound."""
    taken, kind, allocate = [], type(best_backend), type(best_backend).allocate
    monkeypatch.setattr(kind, "borrow", lambda *_: None)
    monkeypatch.setattr(kind, "allocate", lambda self, nbytes: taken.append(nbytes) or allocate(self, nbytes))
    schedules: list[schedule.Schedule] = []
    run = Streamed.run
    monkeypatch.setattr(Streamed, "run", lambda self: (schedules.append(self.schedule), run(self)))
    product = Case.of(400, 1, 8)
    product.is_right(product.gemm(device=best_backend.device, device_memory=5_000))
    (found,) = schedules
    assert found.scaled
    assert found.count > 1
    of_scales = 4 * (found.rows + found.columns)
    assert taken.count(4 * found.rows) >= 1
    assert found.device_bytes <= 5_000
    assert found.device_bytes - found.scratch >= 2 * of_scales + found.tile_bytes


@pytest.mark.sample(output=["float16"], sent=[True])
@pytest.mark.parametrize("output", ["float32", "float16"])
@pytest.mark.parametrize("sent", [False, True], ids=["in place", "sent"])
def test_each_of_several_devices_has_its_tiles_scales(pair: list[gp.Backend], output: str, *, sent: bool) -> None:
    """On the host, on devices, of batches, and where the result is written over them."""
    if sent:
        without_sharing(pair[1])
    for product in (Case.of(331, 257, 40, (), output, 3), Case.of(70, 65, 17, (4,), output)):
        product.is_right(product.gemm(devices=pair))
        there = {"scale_a": pair[1].asarray(product.rows), "scale_b": pair[0].asarray(product.columns)}
        product.is_right(product.gemm(devices=pair, **there))
        x = gp.matmul(
            product.a,
            product.b,
            dtype=output,
            kernel="naive",
            scale_a=there["scale_a"],
            scale_b=product.columns,
            devices=pair,
        )
        y = gp.matmul(
            product.a,
            product.b,
            dtype=output,
            kernel="naive",
            scale_a=product.rows,
            scale_b=product.columns,
            device=pair[0].device,
        )
        np.testing.assert_array_equal(x, y)
    product = Case.of(200, 200, 40)
    out = np.zeros((200, 200), np.float32)
    out[0], out[7] = product.rows, product.columns
    wanted = product.wanted
    product.rows, product.columns = out[0], out[7]
    assert product.gemm(devices=pair, out=out) is out
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.sample(axis=[0])
@pytest.mark.parametrize("axis", [0, 1])
def test_arrays_in_shards_have_scales(pair: list[gp.Backend], axis: int) -> None:
    """Whole ones, and ones that are in shards as the rows are."""
    product = Case.of(211, 190, 77, (), "float16", 3)

    def placed(x: Array) -> gp.ShardedArray:
        return gp.ShardedArray.distribute(x, pair, axis)

    product.is_right(product.gemm(placed))
    in_shards = {
        "scale_a": gp.ShardedArray.distribute(product.rows[:, np.newaxis], pair),
        "scale_b": gp.ShardedArray.distribute(product.columns[np.newaxis], pair, 1),
    }
    product.is_right(product.gemm(placed, **in_shards))
    product.is_right(product.gemm(**in_shards))
    of_matmul = gp.matmul(placed(product.a), placed(product.b), dtype="float16", kernel="naive", **in_shards)
    of_host = gp.matmul(product.a, product.b, dtype="float16", kernel="naive", **in_shards)
    np.testing.assert_array_equal(of_matmul.get(), of_host)


@pytest.mark.sample(output=["float16"])
@pytest.mark.parametrize("output", ["float32", "float16"])
def test_arrays_in_several_allocations_have_scales(backend: gp.Backend, output: str) -> None:
    """Cut along rows, columns, terms and matrices; and sums that are larger than the result."""
    for product in (Case.of(97, 61, 200, (), output, 3), Case.of(21, 43, 60, (5,), output)):
        with allowing(backend, 3_000):
            for given, trans_a in ((product, "N"), (replace(product, a=np.swapaxes(product.a, -1, -2).copy()), "T")):
                d = given.gemm(backend.asarray, trans_a=trans_a)
                assert d.allocations > 1
                product.is_right(d)
    product = Case.of(40, 50, 30, (), output)
    with allowing(backend, 40 * 50 * as_dtype(output).itemsize):
        d = product.gemm(backend.asarray, scale_a=backend.asarray(product.rows))
        assert d.allocations == 1
        product.is_right(d)


def test_a_checkpoint_belongs_to_its_scales(best_backend: gp.Backend, tmp_path: Path) -> None:
    product = Case.of(131, 97, 120, (), "float32", 2.0)
    how = {"device": best_backend.device, "device_memory": 60_000, "checkpoint": tmp_path / "state"}
    product.is_right(product.gemm(**how))
    product.is_right(product.gemm(**how))
    with pytest.raises(CheckpointError, match="belongs to another scale_b"):
        product.gemm(**how, scale_b=product.columns * 2)
    with pytest.raises(CheckpointError, match="belongs to another scale_a"):
        product.gemm(**how, scale_a=None)


FAULTS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "those of the first rows": lambda rows, columns: (replace(rows, offset=0), columns),
    "left out": lambda rows, _: (rows, None),
    "those of the columns for rows": lambda _, columns: (columns, columns),
}


@pytest.mark.planted_fault
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_scale_of_a_tile_is_noticed(
    best_backend: gp.Backend, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = rescale.PASS.launch
    monkeypatch.setattr(schedule, "LEAST_STRIP", 8)
    monkeypatch.setattr(
        type(rescale.PASS), "launch",
        lambda _, problem, layouts, *rest: launch(problem, FAULTS[fault](*layouts), *rest),
    )  # fmt: skip
    product = Case.of(131, 131, 120)
    with pytest.raises(AssertionError):
        product.is_right(product.gemm(device=best_backend.device, device_memory=60_000))
