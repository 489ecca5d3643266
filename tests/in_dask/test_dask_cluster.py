"""Clusters of processes on this machine: real ones, of Dask's LocalCluster, whose processes end whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import DASK, DISTRIBUTED, LINUX, needs
from gemmport.core.errors import DeviceNotFoundError, ParameterError

if DASK.is_here() and DISTRIBUTED.is_here():
    import dask
    import dask.array as da
    from distributed import SchedulerPlugin, wait

    import gemmport.dask as gd
    from gemmport.dask import chunking, tasks

pytestmark = [needs(DASK, DISTRIBUTED, LINUX), pytest.mark.processes]


@pytest.fixture
def client(script: Any) -> Iterator[Any]:
    with script.cluster(2, 1, resources={"gemmport": 1}) as client:
        yield client


def operands(script: Any, size: int = 400, chunk: int = 100) -> tuple[Any, Any, np.ndarray]:
    a, b = (script.whole_numbers(seed, (size, size), chunk) for seed in range(2))
    return a, b, np.matmul(*dask.compute(a, b, scheduler="threads"))


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_cluster_computes_and_shares_what_is_asked_for_twice(script: Any, client: Any) -> None:
    a, b, wanted = operands(script)
    held = client.persist(gp.matmul(a, b))
    wait(held)
    np.testing.assert_array_equal(held.compute(), wanted)
    before = {key for key in client.cluster.scheduler.tasks if isinstance(key, tuple) and key[0].startswith("gemmport")}
    again = client.persist(gp.matmul(a, b))
    wait(again)
    assert {
        key for key in client.cluster.scheduler.tasks if isinstance(key, tuple) and key[0].startswith("gemmport")
    } == before


def test_a_worker_receives_a_chunk_once_for_all_its_tiles(script: Any, client: Any) -> None:
    """Of 8 × 8 tiles on two workers: where each tile's chunks came anew, they would be four times the operands."""
    a, b, wanted = operands(script, 800)
    held = [client.persist(x) for x in (a, b)]
    wait(held)
    client.run(lambda dask_worker: dask_worker.transfer_incoming_log.clear())
    product = client.persist(gp.matmul(*held))
    wait(product)
    received = sum(client.run(lambda dask_worker: sum(x["total"] for x in dask_worker.transfer_incoming_log)).values())
    assert 0 < received <= 1.5 * (a.nbytes + b.nbytes)
    np.testing.assert_array_equal(product.compute(), wanted)


def test_each_worker_opens_the_device_that_the_plugin_says(script: Any, client: Any) -> None:
    found = gp.devices(gp.devices()[0].backend)
    client.register_plugin(gd.WorkerDevice([found[0].selector, found[-1].selector], found[0].backend))
    chosen = client.run(lambda dask_worker: (dask_worker.name, tasks.CHOSEN[dask_worker.address]["device"]))
    assert dict(chosen.values()) == {0: found[0].selector, 1: found[-1].selector}
    where = da.map_blocks(lambda x: np.array([opened()]), da.zeros(40, chunks=1), dtype=object).compute()
    assert {device for devices in where for device in devices.split()} <= {found[0].selector, found[-1].selector}
    a, b, wanted = operands(script)
    np.testing.assert_array_equal(gp.matmul(a, b).compute(), wanted)
    with pytest.raises(DeviceNotFoundError, match="no device 'no such'"):
        client.register_plugin(gd.WorkerDevice("no such"))


def opened() -> str:
    """Which device a task of this worker is given."""
    return tasks._place({"backend": None, "device": None})["device"]


@pytest.mark.parametrize("task_bytes", [1, 2**28])
def test_a_killed_worker_costs_the_tiles_that_it_held(
    task_bytes: int, script: Any, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunking, "TASK_BYTES", task_bytes)
    a, b, wanted = operands(script, 600)
    result, counted, _ = script.killed_run(client, gp.matmul(a, b), np.random.default_rng(task_bytes))
    np.testing.assert_array_equal(result, wanted)
    assert counted.killed
    assert {*map(script.tile, counted.again)} <= counted.lost
    assert len(counted.lost) < 36


def test_tasks_with_resources_run_where_they_are(script: Any, client: Any, caplog: pytest.LogCaptureFixture) -> None:
    a, b, wanted = operands(script)
    with dask.config.set({"optimization.fuse.active": False}):
        product = client.persist(gd.matmul(a, b, resources={"gemmport": 1}))
        wait(product)
        task = client.cluster.scheduler.tasks[product.__dask_keys__()[0][0]]
        assert task.resource_restrictions == {"gemmport": 1}
        np.testing.assert_array_equal(product.compute(), wanted)
        assert not caplog.records
        gd.matmul(a, b, resources={"nothing": 1})
    assert "no worker of" in caplog.text


def test_a_worker_that_has_no_number_is_dealt_no_device(client: Any) -> None:
    plugin = gd.WorkerDevice(["0:0", "0:0"])

    class Named:
        name, address = "tcp://somewhere", "here"

    with pytest.raises(ParameterError, match="a worker must be named by a number"):
        plugin.setup(Named())


def test_chunks_that_are_spilled_to_disk_come_back(script: Any) -> None:
    with (
        dask.config.set({"distributed.worker.memory.target": 0.002}),
        script.cluster(1, 1, memory_limit="1GiB") as client,
    ):
        a, b, wanted = operands(script, 1000, 250)
        held = [client.persist(x) for x in (a, b)]
        wait(held)
        assert all(client.run(lambda dask_worker: len(dask_worker.data.slow)).values())
        np.testing.assert_array_equal(gp.matmul(*held).compute(), wanted)


def slowly(block: np.ndarray) -> np.ndarray:
    """A chunk that takes its time: so long that Dask starts workers, and that they are there before the end."""
    time.sleep(0.15)
    return block


def test_workers_that_come_and_go_by_themselves(script: Any) -> None:
    came, gone = set[str](), set[str]()

    class Count(SchedulerPlugin):
        name = "count"

        def add_worker(self, scheduler: Any, worker: str) -> None:
            came.add(worker)

        def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
            gone.add(worker)

    with script.cluster(1, 1) as client:
        client.register_plugin(gd.WorkerDevice())
        client.cluster.scheduler.add_plugin(Count())
        client.cluster.adapt(minimum=1, maximum=3, interval="100ms", wait_count=2)
        a, b, wanted = operands(script, 800)
        held = client.persist(gp.matmul(*(x.map_blocks(slowly, dtype=x.dtype) for x in (a, b))))
        wait(held)
        assert came, "no worker was added beside the first"
        eventually(lambda: bool(gone))
        np.testing.assert_array_equal(held.compute(), wanted)  # with the tiles of workers that are gone


def test_no_process_is_left_behind(script: Any) -> None:
    pids: list[int] = []

    def fail() -> None:
        with script.cluster(2, 1) as client:
            pids.extend(client.run(os.getpid).values())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(pids) == 2
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_the_example_computes_on_a_cluster() -> None:
    example = Path(__file__).parents[2] / "examples" / "cluster.py"
    told = subprocess.run(
        [sys.executable, str(example), "--size", "700", "--chunk", "200"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout
    assert "2 workers" in told
    assert "right" in told
