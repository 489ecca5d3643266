"""Products of Dask arrays, exact on integers against NumPy's, by the schedulers of one process."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import gemmport as gp
import tiers
from absences import CUPY, DASK, GPU, needs, skip_without
from exact import integers, whole_range

if DASK.is_here():
    import dask
    import dask.array as da

    import gemmport.dask as gd
    from gemmport.dask import chunking, tasks

pytestmark = needs(DASK)

WRAPPING = ("int8", "uint16", "int32", "int64", "uint64")
TYPES = ("float16", "float32", "float64", "complex64", "complex128", "bool", *WRAPPING)


def pair(a: Sequence[int], b: Sequence[int], dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    made = whole_range if np.dtype(dtype).name in WRAPPING else integers
    return made(tuple(a), dtype, rng), made(tuple(b), dtype, rng)


def check(product: Any, wanted: Any) -> None:
    assert (product.shape, product.dtype) == (np.shape(wanted), wanted.dtype)
    found = product.compute()
    assert (np.shape(found), found.dtype) == (np.shape(wanted), wanted.dtype)
    np.testing.assert_array_equal(found, wanted)


def gemm_of_numpy(a: Any, b: Any, *, dtype: Any, c: Any = None, beta: float = 0, out: Any = None, **how: Any) -> Any:
    """What a task asks of `gemm`, by NumPy: which compiles nothing for each shape."""
    product = np.matmul(a, b, dtype=dtype)
    result = product if c is None else product + c
    if out is None:
        return result
    out[...] = result
    return out


@pytest.fixture
def by_numpy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of graphs need no device, except where there is time to compile kernels for all shapes."""
    if tiers.tier_of(request.config) is tiers.Tier.TEST:
        monkeypatch.setattr(tasks, "gemm", gemm_of_numpy)


of_graphs = pytest.mark.usefixtures("by_numpy")


def test_the_product_of_dask_arrays_is_exact_and_lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair((50, 51), (51, 33))
    computed = []
    monkeypatch.setattr(tasks, "gemm", lambda *args, **how: computed.append(how) or gp.gemm(*args, **how))
    product = gp.matmul(da.from_array(a, (13, 17)), da.from_array(b, (17, 11)))
    assert isinstance(product, da.Array)
    assert product.chunks == ((13, 13, 13, 11), (11, 11, 11))
    assert not computed
    check(product, a @ b)
    assert len(computed) == 4 * 3 * 3
    assert sum(how.get("beta") == 1 for how in computed) == 4 * 3 * 2


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.sample(dtype=("float16", "complex64", "int8", "bool"))
def test_each_type_as_numpy_has_it(dtype: str) -> None:
    a, b = pair((20, 30), (30, 18), dtype)
    check(gp.matmul(da.from_array(a, (10, 10)), da.from_array(b, (10, 9))), a @ b)


@of_graphs
@pytest.mark.every_value(
    "shapes",
    [
        ((7,), (7,)), ((5, 7), (7,)), ((7,), (7, 4)), ((3, 5, 7), (7,)), ((7,), (3, 7, 4)),
        ((3, 5, 7), (7, 4)), ((5, 7), (3, 7, 4)), ((3, 5, 7), (3, 7, 4)), ((2, 1, 5, 7), (3, 7, 4)), ((1, 5, 7), (3, 7, 4)),
        ((0, 7), (7, 4)), ((5, 0), (0, 4)), ((5, 7), (7, 0)), ((0, 5, 7), (7, 4)), ((0,), (0,)), ((1, 1), (1, 1)),
    ],
)  # fmt: skip
@pytest.mark.every_value("size", [1, 2, 3, 100])
def test_vectors_stacks_that_broadcast_and_empty_arrays(shapes: tuple[Any, Any], size: int) -> None:
    a, b = pair(*shapes)
    check(gp.matmul(da.from_array(a, size), da.from_array(b, size)), np.matmul(a, b))


@of_graphs
def test_chunks_that_differ_along_k_become_those_of_who_has_more() -> None:
    a, b = pair((9, 24), (24, 5))
    x, y = da.from_array(a, (4, (10, 14))), da.from_array(b, ((3, 8, 13), 5))
    check(gd.matmul(x, y), a @ b)
    of_x, of_y = chunking.aligned(x, ("m", "k"), y, ("k", "n"))
    assert of_x.chunks[1] == of_y.chunks[0] == (3, 8, 13)
    of_y, of_x = chunking.aligned(y.T, ("m", "k"), x.T, ("k", "n"))
    assert of_x.chunks[0] == (3, 8, 13)


@of_graphs
def test_operands_of_numpy_and_transposed_ones() -> None:
    a, b = pair((30, 20), (30, 25))
    check(gp.matmul(da.from_array(a, 8).T, b), a.T @ b)
    check(gp.matmul(a.T, da.from_array(b, 7)), a.T @ b)
    check(gd.matmul(a.T, b), a.T @ b)


@of_graphs
def test_mixed_types_and_a_wider_result() -> None:
    a, b = pair((20, 30), (30, 10), np.int8)
    check(gp.matmul(da.from_array(a, 9), da.from_array(b.astype(np.float32), 9)), a @ b.astype(np.float32))
    check(gp.matmul(da.from_array(a, 9), da.from_array(b, 9), dtype=np.int32), np.matmul(a, b, dtype=np.int32))
    check(gd.matmul(da.from_array(a, 9), da.from_array(b, 9), dtype="float32"), np.matmul(a, b, dtype=np.float32))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_rounded_once(dtype: str) -> None:
    """A sum of 2¹² + 1 + 1 + … is lost in halves, panel by panel, and kept in float32 until the end."""
    ones = np.ones((2, 64), np.float32)
    ones[:, 0] = 4096
    a = ones.astype(gp.GemmProblem.create(1, 1, 1, dtype=dtype).dtype.numpy)
    b = np.ones((64, 2), a.dtype)
    found = gp.matmul(da.from_array(a, (2, 1)), da.from_array(b, (1, 2))).compute()
    assert found.dtype == a.dtype
    np.testing.assert_array_equal(found, np.float32(4096 + 63).astype(a.dtype))


@of_graphs
@pytest.mark.every_value("chains", [1, 2, 3, 7, 100])
@pytest.mark.every_value("task_bytes", [1, 300, 10**9])
def test_however_a_sum_is_cut_into_tasks(chains: int, task_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunking, "TASK_BYTES", task_bytes)
    a, b = pair((6, 70), (70, 5), np.int8)
    check(gd.matmul(da.from_array(a, (4, 10)), da.from_array(b, (10, 3)), chains=chains), a @ b)


@of_graphs
def test_a_tall_product_is_summed_in_several_chains_and_a_wide_one_in_one() -> None:
    x = da.ones((3200, 10), chunks=(50, 10))
    assert any("gemmport-add" in str(key) for key in gd.matmul(x.T, x).dask)
    assert not any("gemmport-add" in str(key) for key in gd.matmul(x, x.T).dask)
    check(gd.matmul(x.T, x), np.full((10, 10), 3200.0))


@of_graphs
@pytest.mark.every_value("axes", [2, 1, 0, ([0, 2], [1, 0]), (-1, 0), ([], [])])
def test_tensordot_as_numpys(axes: Any) -> None:
    shapes = {2: ((5, 6, 7), (6, 7, 3)), 1: ((5, 6, 7), (7, 6, 3))}
    a, b = pair(*shapes.get(axes if isinstance(axes, int) else 1, ((5, 6, 7), (7, 5, 3))))
    if axes == ([0, 2], [1, 0]):
        b = integers((7, 5, 3), np.float32)
    check(gd.tensordot(da.from_array(a, (2, 4, 3)), da.from_array(b, (2, 3, 2)), axes), np.tensordot(a, b, axes))


def test_names_say_the_work_so_that_calls_share_it() -> None:
    a, b = (da.from_array(x, 10) for x in pair((20, 20), (20, 20)))
    product = gd.matmul(a, b)
    assert gd.matmul(a, b).name == product.name
    others = [
        gd.matmul(b, a),
        gd.matmul(a, b, dtype="float64"),
        gd.matmul(a, b, deterministic=True),
        gd.matmul(a, b, chains=2),
    ]
    assert len({product.name, *(other.name for other in others)}) == 1 + len(others)


@pytest.mark.parametrize(
    "scheduler", ["synchronous", "threads", pytest.param("processes", marks=pytest.mark.processes)]
)
def test_schedulers_of_one_machine(scheduler: str) -> None:
    a, b = pair((26, 34), (34, 22))
    product = gd.matmul(da.from_array(a, (13, 17)), da.from_array(b, (17, 11)))
    np.testing.assert_array_equal(product.compute(scheduler=scheduler), a @ b)


def test_options_reach_each_product(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Mapping[str, Any]] = []
    monkeypatch.setattr(tasks, "gemm", lambda *args, **how: seen.append(how) or gp.gemm(*args, **how))
    a, b = pair((8, 8), (8, 8))
    product = gp.matmul(da.from_array(a, 4), b, kernel="tiled", params={"TS": 4}, device="0", deterministic=True)
    check(product, a @ b)
    for how in seen:
        assert (how["kernel"], how["params"], how["device"], how["deterministic"]) == ("tiled", {"TS": 4}, "0", True)


def test_a_tile_stays_on_a_device_that_has_a_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []

    def noting(*args: Any, **how: Any) -> Any:
        result = gp.gemm(*args, **how)
        kept.append((type(how.get("c")).__name__, type(result).__name__))
        return result

    monkeypatch.setattr(tasks, "gemm", noting)
    monkeypatch.setattr(tasks, "_keeps_on_device", lambda how: True)
    a, b = pair((13, 68), (68, 11))
    check(gd.matmul(da.from_array(a, (13, 17)), da.from_array(b, (17, 11))), a @ b)
    assert kept == [("NoneType", "DeviceArray"), *[("DeviceArray", "DeviceArray")] * 3]


# Chunks of other libraries


class Card:
    """A stand-in for CuPy's arrays: it has what theirs have of NumPy's, and refuses to be taken for NumPy's."""

    def __init__(self, inner: Any) -> None:
        self.inner = np.asarray(inner)

    shape, dtype, ndim, size, nbytes = (
        property(lambda self, name=name: getattr(self.inner, name))
        for name in ("shape", "dtype", "ndim", "size", "nbytes")
    )

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return Card(function(*[inner(arg) for arg in args], **{name: inner(value) for name, value in kwargs.items()}))

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        return Card(getattr(ufunc, method)(*[inner(arg) for arg in args], **kwargs))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("implicit conversion to a NumPy array is not allowed")

    def __getattr__(self, name: str) -> Any:
        if name not in ("transpose", "reshape", "astype"):
            raise AttributeError(name)
        return lambda *args, **kwargs: Card(getattr(self.inner, name)(*args, **kwargs))

    def __getitem__(self, index: Any) -> Card:
        return Card(self.inner[index])

    def __add__(self, other: Card) -> Card:
        return Card(self.inner + other.inner)

    @property
    def __cuda_array_interface__(self) -> Any:
        return {}


def inner(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(inner, value))
    return value.inner if isinstance(value, Card) else value


def on_cards(x: np.ndarray, size: Any) -> Any:
    return da.from_array(x, size).map_blocks(Card, dtype=x.dtype, meta=Card(np.empty((0,) * x.ndim, x.dtype)))


@pytest.mark.parametrize("chains", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_chunks_of_another_library_stay_its_own(chains: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What CuPy's chunks go through, with stand-ins for them and for `gemm`."""

    def gemm(a: Any, b: Any, *, c: Any = None, out: Any = None, **how: Any) -> Any:
        assert all(isinstance(x, Card) for x in (a, b, *([] if c is None else [c])))
        return Card(gemm_of_numpy(*map(inner, (a, b)), c=inner(c), out=inner(out), **how))

    monkeypatch.setattr(tasks, "gemm", gemm)
    a, b = pair((2, 9, 40), (40, 7), dtype)
    x, y = on_cards(a, (1, 4, 10)), on_cards(b, (10, 4))
    product = gd.matmul(x, y, chains=chains)
    assert isinstance(product._meta, Card)
    assert isinstance(gd.matmul(da.from_array(a, (1, 4, 10)), y)._meta, Card)
    (tile,) = dask.get(product.dask, [(product.name, 1, 2, 1)])
    assert isinstance(tile, Card)
    np.testing.assert_array_equal(tile.inner, (a @ b)[1:, 8:, 4:])


@pytest.mark.parametrize("first", ["a", "b"])
def test_beside_chunks_on_a_device_the_hosts_make_tiles_there(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a worker's best device has a memory of its own, in which tiles of the host's chunks stay."""

    def gemm(a: Any, b: Any, *, c: Any = None, out: Any = None, **how: Any) -> Any:
        assert {type(a), type(b)} == {np.ndarray, Card}
        assert type(c) is (Card if how.get("beta") else type(None))
        return Card(gemm_of_numpy(*map(inner, (a, b)), c=inner(c), out=inner(out), **how))

    monkeypatch.setattr(tasks, "gemm", gemm)
    monkeypatch.setattr(tasks, "_keeps_on_device", lambda how: True)
    a, b = pair((9, 40), (40, 7))
    on_host = da.from_array(a if first == "a" else b, 10)
    operands = (on_host, on_cards(b, 10)) if first == "a" else (on_cards(a, 10), on_host)
    product = gd.matmul(*operands)
    (tile,) = dask.get(product.dask, [(product.name, 0, 0)])
    assert isinstance(tile, Card)
    np.testing.assert_array_equal(tile.inner, a @ b)


def test_chunks_on_a_device_are_multiplied_there(best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever device the worker has chosen for chunks in the host's memory."""
    monkeypatch.setattr(tasks, "_place", lambda how: {"backend": "cuda", "device": "another"})
    a, b = pair((13, 34), (34, 11))
    side = tasks.Side((0, 1), (), 1)
    step = tasks.Step(side, side, None, np.dtype("float32"), np.dtype("float32"))
    x, y = ([best_backend.asarray(part) for part in np.split(whole, 2, axis)] for whole, axis in ((a, 1), (b, 0)))
    found = tasks.accumulate(x, y, None, step)
    assert found.backend is best_backend
    np.testing.assert_array_equal(found.get(), a @ b)


def test_chunks_of_cupy_stay_on_the_gpu() -> None:
    skip_without(GPU, CUPY)
    cupy = import_module("cupy")
    a, b = pair((300, 200), (200, 150), "float32")
    x, y = (da.from_array(cupy.asarray(whole), 100, asarray=False) for whole in (a, b))
    product = gd.matmul(x, y)
    assert type(product._meta) is cupy.ndarray
    computed = product.compute(scheduler="synchronous")
    assert type(computed) is cupy.ndarray
    np.testing.assert_array_equal(cupy.asnumpy(computed), a @ b)


# Faults that these tests must see


def skip_the_second(a: Any, b: Any, *, c: Any = None, **how: Any) -> Any:
    return gp.gemm(a, b, c=c, **how) if c is None else c


def forget_the_first(a: Any, b: Any, *, c: Any = None, beta: float = 0, **how: Any) -> Any:
    return gp.gemm(a, b, **how)


@pytest.mark.planted_fault
@pytest.mark.parametrize("fault", [skip_the_second, forget_the_first])
def test_a_panel_that_is_skipped_or_overwritten_is_seen(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "gemm", fault)
    a, b = pair((20, 20), (20, 20))
    with pytest.raises(AssertionError, match=re.escape("Arrays are not equal")):
        check(gd.matmul(da.from_array(a, 10), da.from_array(b, 10)), a @ b)


def test_tasks_round_to_the_precision_of_the_call_or_of_its_context() -> None:
    a, b = (np.random.default_rng(seed).standard_normal((24, 24)).astype(np.float32) for seed in (1, 2))
    x, y = da.from_array(a, chunks=8), da.from_array(b, chunks=8)
    whole = da.from_array(np.arange(576, dtype=np.int32).reshape(24, 24), chunks=8)

    def error(product: Any) -> float:
        halves = [(n.view(np.uint32) + np.uint32(0x8000) & np.uint32(0xFFFF0000)).view(np.float32) for n in (a, b)]
        return float(np.abs(product.compute() - halves[0].astype(float) @ halves[1]).max())

    assert error(gp.matmul(x, y, precision="bfloat16")) < 1e-4
    with gp.precision("bfloat16"):  # of the call, though it is computed later
        lazy, integers = gp.matmul(x, y), gp.matmul(whole, whole)
    assert error(lazy) < 1e-4
    assert error(gp.matmul(x, y)) > 1e-2
    assert np.array_equal(integers.compute(), whole.compute() @ whole.compute())
    with pytest.raises(gp.DtypeError, match="precision"):
        gp.matmul(whole, whole, precision="tf32")


def test_the_context_in_which_tasks_run_does_not_round() -> None:
    """The synchronous scheduler runs them in the thread of who asks for them."""
    x = np.float32([[1 + 2**-10]])
    product = gd.matmul(da.from_array(x), da.from_array(np.float32([[1]])))
    with gp.precision("bfloat16"), dask.config.set(scheduler="synchronous"):
        np.testing.assert_array_equal(product.compute(), x)
