"""CuPy's chunks on clusters: Dask-CUDA's workers with a GPU each, and a plain worker with threads.

`check` says what is right. Its own tests, in the end, need no GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import CUPY, DASK, DASK_CUDA, DISTRIBUTED, GPU, LINUX, needs, skip_without
from exact import integers

if DASK.is_here() and DISTRIBUTED.is_here():
    import dask.array as da
    from distributed import futures_of, wait

    import gemmport.dask as gd

pytestmark = [needs(DASK, DISTRIBUTED, LINUX), pytest.mark.processes]

on_gpu = needs(GPU, CUPY)


def cuda_cluster(script: Any) -> Any:
    """A cluster of Dask-CUDA's, of two workers where two GPUs are."""
    skip_without(GPU, CUPY, DASK_CUDA)
    return script.cluster(min(2, len(gp.devices("cuda"))), 1, import_module("dask_cuda").LocalCUDACluster)


@pytest.fixture(scope="module")
def gpus(script: Any) -> Iterator[Any]:
    """The client of a cluster for all tests that leave it as it was."""
    with cuda_cluster(script) as client:
        client.register_plugin(gd.WorkerDevice("nvidia:0", "cuda"))
        yield client


def pair(dtype: str, a: tuple[int, ...] = (300, 260), b: tuple[int, ...] = (260, 200)) -> tuple[np.ndarray, np.ndarray]:
    return integers(a, dtype, np.random.default_rng(1)), integers(b, dtype, np.random.default_rng(2))


def in_float64(a: np.ndarray, b: np.ndarray, axes: Any = 1) -> np.ndarray:
    """Their product, rounded once; whole numbers, which have no other sums in float32."""
    wide = "complex128" if a.dtype.kind == "c" else "float64"
    return np.tensordot(a.astype(wide), b.astype(wide), axes).astype(a.dtype)


def told(chunk: Any) -> tuple[str, str]:
    """Of a chunk on its worker: its type, and the GPU on which it lies."""
    kind = type(chunk)
    where = chunk.device.pci_bus_id if kind.__module__.startswith("cupy") else "host"
    return f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}", where


def on_host(x: Any) -> np.ndarray:
    return x.get() if hasattr(x, "get") else np.asarray(x)


def check(client: Any, product: Any, wanted: np.ndarray, kind: str = "cupy.ndarray") -> set[str]:
    """Each chunk of a result is an array of a kind, and all have the numbers that are wanted.

    Returns:
        The GPUs on which its chunks lie.
    """
    assert (product.shape, product.dtype) == (wanted.shape, wanted.dtype)
    held = client.persist(product)
    wait(held)
    chunks = client.gather([client.submit(told, future) for future in futures_of(held)])
    assert len(chunks) == product.npartitions
    assert {name for name, _ in chunks} == {kind}
    np.testing.assert_array_equal(on_host(held.compute()), wanted)
    return {where for _, where in chunks}


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
def test_products_of_cupys_chunks_are_right_and_cupys(dtype: str, script: Any, gpus: Any) -> None:
    a, b = pair(dtype)
    x, y = (script.on_gpus(da.from_array(whole, 100)) for whole in (a, b))
    check(gpus, gp.matmul(x, y), in_float64(a, b))
    check(gpus, gd.matmul(x, y, chains=2), in_float64(a, b))


def test_tensordot_of_cupys_chunks(script: Any, gpus: Any) -> None:
    a, b = pair("float32", (40, 30, 50), (30, 40, 20))
    x, y = (script.on_gpus(da.from_array(whole, 16)) for whole in (a, b))
    check(gpus, gd.tensordot(x, y, ([0, 1], [1, 0])), in_float64(a, b, ([0, 1], [1, 0])))


def test_cupys_chunks_beside_numpys(script: Any, gpus: Any) -> None:
    a, b = pair("float32")
    x, y = da.from_array(a, 100), da.from_array(b, 100)
    check(gpus, gp.matmul(x, script.on_gpus(y)), in_float64(a, b))
    check(gpus, gp.matmul(script.on_gpus(x), y), in_float64(a, b))
    check(gpus, gp.matmul(x, y), in_float64(a, b), "numpy.ndarray")


def own_gpu() -> tuple[str, set[Any]]:
    """On a worker: its GPU, and which of those that it sees gemmport has opened."""
    opened = import_module("gemmport.execution.selection")._open
    return import_module("cupy").cuda.Device().pci_bus_id, {place[:2] for place in opened}


def test_each_worker_multiplies_on_a_gpu_of_its_own(script: Any, gpus: Any) -> None:
    a, b = pair("float32", (800, 300), (300, 800))
    x, y = (gpus.persist(script.on_gpus(da.from_array(whole, 100))) for whole in (a, b))
    wait([x, y])
    where = check(gpus, gp.matmul(x, y), in_float64(a, b))
    workers = gpus.run(own_gpu).values()
    assert where == {gpu for gpu, _ in workers}
    assert len(where) == len(workers)
    assert all(opened == {("cuda", (0, 0))} for _, opened in workers)


def test_chunks_that_are_spilled_to_the_host_come_back(script: Any) -> None:
    skip_without(GPU, CUPY, DASK_CUDA)
    limit, kind = 2**20, import_module("dask_cuda").LocalCUDACluster
    with script.cluster(1, 1, kind, device_memory_limit=limit) as client:
        client.register_plugin(gd.WorkerDevice("nvidia:0", "cuda"))
        a, b = pair("float32", (600, 500), (500, 600))
        x, y = held = [client.persist(script.on_gpus(da.from_array(whole, 100))) for whole in (a, b)]
        wait(held)

        def spilled(dask_worker: Any) -> tuple[int, float]:
            return len(dask_worker.data.host), dask_worker.data.device_buffer.fast.total_weight

        ((count, on_device),) = client.run(spilled).values()
        assert count
        assert on_device <= limit
        check(client, gp.matmul(x, y), in_float64(a, b))


def test_a_worker_that_is_killed_costs_the_tiles_that_it_held(script: Any) -> None:
    with cuda_cluster(script) as client:
        client.register_plugin(gd.WorkerDevice("nvidia:0", "cuda"))
        drawn = [script.whole_numbers(seed, (600, 600), 100) for seed in range(2)]
        wanted = in_float64(*(x.compute(scheduler="threads") for x in drawn))
        product = gp.matmul(*(script.on_gpus(x) for x in drawn))
        result, counted, _ = script.killed_run(client, product, np.random.default_rng(3))
        np.testing.assert_array_equal(on_host(result), wanted)
        assert counted.killed
        assert {*map(script.tile, counted.again)} <= counted.lost


@on_gpu
def test_a_plain_worker_with_threads_multiplies_cupys_chunks(script: Any) -> None:
    with script.cluster(1, 2) as client:
        client.register_plugin(gd.WorkerDevice())
        a, b = pair("float32")
        x, y = (script.on_gpus(da.from_array(whole, 50)) for whole in (a, b))
        check(client, gp.matmul(x, y), in_float64(a, b))


# What `check` must see, on any machine


def test_check_takes_what_is_right_and_refuses_another_kind_and_other_numbers(script: Any) -> None:
    with script.cluster(1, 1) as client:
        a, b = pair("float16")
        wanted = in_float64(a, b)
        product = gp.matmul(da.from_array(a, 100), da.from_array(b, 100))
        assert check(client, product, wanted, "numpy.ndarray") == {"host"}
        with pytest.raises(AssertionError, match=re.escape("numpy.ndarray")):
            check(client, product, wanted)
        wanted[-1, -1] += 1
        with pytest.raises(AssertionError, match=re.escape("Arrays are not equal")):
            check(client, product, wanted, "numpy.ndarray")
