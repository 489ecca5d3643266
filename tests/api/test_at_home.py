"""Products of arrays in shards on devices of one kind, each of which computes its own part: two GPUs, where these are tested,
or a runtime of a CPU, open twice.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import gemmport as gp
import tested
from absences import INTEL, TWO_GPUS, skip_without
from exact import integers
from gemmport.api import at_home, dealt, routine
from gemmport.backends.objects import Event
from gemmport.core.errors import DeviceLostError
from gemmport.multidevice.tiles import Room
from pairs import counting_allocations
from runtimes import RUNTIMES


@pytest.fixture
def twins(request: pytest.FixtureRequest) -> Iterator[list[gp.Backend]]:
    """Two devices of one kind, opened for the test alone."""
    found = tested.devices(request.config)
    gpus = [device for device in found if device.backend == "cuda"]
    if len(gpus) > 1:
        with gp.open_backend(device=gpus[0]) as one, gp.open_backend(device=gpus[1]) as other:
            yield [one, other]
        return
    if len(gpus) == len(found):
        skip_without(TWO_GPUS)
    yield request.getfixturevalue("cpus")


@pytest.fixture
def cpus() -> Iterator[list[gp.Backend]]:
    """A runtime of a CPU, open twice: for stand-ins, and what fails."""
    skip_without(INTEL)
    intel = next(device for device in gp.devices("opencl") if RUNTIMES[2].is_of(device))
    with gp.open_backend(device=intel) as one, gp.open_backend(device=intel) as other:
        yield [one, other]


@pytest.fixture
def undealt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to be dealt."""
    monkeypatch.setattr(dealt, "compute", lambda *_: pytest.fail("a part was dealt"))


def in_shards(x: np.ndarray, backends: list[gp.Backend], axis: int, parts: int = 2) -> gp.ShardedArray:
    """Shards of like sizes, dealt to devices in turns."""
    split = np.array_split(x, parts, axis)
    return gp.ShardedArray([backends[n % 2].asarray(part) for n, part in enumerate(split)], axis)


CUTS = {"rows": (0, 0, 0), "columns": (1, 1, 1), "crossed": (0, 1, 0), "sums": (1, 0, 0), "sums in columns": (1, 0, 1)}
"""The axis along which A and B are cut, and C with out."""


@pytest.mark.usefixtures("undealt")
@pytest.mark.sample(dtype=["float16"], ops=["NN"], cuts=["rows", "sums in columns"], parts=[2])
@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("ops", ["NN", "TC"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "int32"])
def test_every_cut_op_and_scalar(twins: list[gp.Backend], cuts: str, ops: str, dtype: str, parts: int) -> None:
    rng = np.random.default_rng(0)
    a, b, c = (integers(shape, dtype, rng) for shape in ((212, 76), (76, 188), (212, 188)))
    stored = [a.T.copy() if ops[0] == "T" else a, b.conj().T.copy() if ops[1] == "C" else b, c]
    x, y, z = (in_shards(each, twins, axis, parts) for each, axis in zip(stored, CUTS[cuts], strict=True))
    out = in_shards(np.full_like(c, 7), twins, CUTS[cuts][2], parts)
    assert gp.gemm(x, y, c=z, alpha=2, beta=3, trans_a=ops[0], trans_b=ops[1], out=out) is out
    np.testing.assert_array_equal(out.get(), gp.gemm(a, b, c=c, alpha=2, beta=3, device=twins[0].device))
    for given, before in zip((x, y, z), stored, strict=True):
        np.testing.assert_array_equal(given.get(), before)


@pytest.mark.usefixtures("undealt")
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_batches_types_and_views(twins: list[gp.Backend], axis: int) -> None:
    a, b = integers((4, 60, 52), "float32"), integers((4, 52, 44), "float32")
    x, y = in_shards(a, twins, axis), in_shards(b, twins, axis)
    np.testing.assert_array_equal(gp.matmul(x, y).get(), a @ b)
    np.testing.assert_array_equal(gp.matmul(x[:, ::2, ::2], y[:, ::2, 3:]).get(), a[:, ::2, ::2] @ b[:, ::2, 3:])
    np.testing.assert_array_equal(gp.matmul(x, y[1:2, :, :][0] if axis == 0 else y[1]).get(), a @ b[1])


@pytest.mark.usefixtures("undealt")
def test_halves_are_rounded_once(twins: list[gp.Backend]) -> None:
    """Their shards are put together, so that no sum is rounded in between."""
    a, b = np.full((64, 128), 1, "float16"), np.full((128, 64), 1, "float16")
    a[:, 0], b[0] = 64, 32  # 2048 and 127 more, of which each alone is lost in float16
    found = gp.matmul(in_shards(a, twins, 0), in_shards(b, twins, 0)).get()
    np.testing.assert_array_equal(found, np.full((64, 64), 2048 + 127, "float16"))


@pytest.mark.usefixtures("undealt")
@pytest.mark.sample(types=[("float32", "float16")], cuts=["sums"])
@pytest.mark.parametrize("cuts", ["rows", "sums"])
@pytest.mark.parametrize("types", [("float32", "float16"), ("int32", "float32")])
def test_a_result_of_a_narrower_type_is_rounded_once(
    twins: list[gp.Backend], types: tuple[str, str], cuts: str
) -> None:
    """Sums over shards are added up beside it: between them 1 is lost where it is stored with 2048, or 2^24."""
    dtype, narrower = types
    large = 2048 if narrower == "float16" else 2**24
    a, b = np.zeros((64, 4), dtype), np.ones((4, 64), dtype)
    a[:, 0], a[:, 2:] = large, 1  # two of four terms each, so that either half is rounded alone
    x, y = in_shards(a, twins, CUTS[cuts][0]), in_shards(b, twins, CUTS[cuts][1])
    c = in_shards(np.full((64, 64), 1, narrower), twins, 0)
    out = in_shards(np.zeros((64, 64), narrower), twins, 0)
    gp.gemm(x, y, c=c, beta=3, out=out)
    np.testing.assert_array_equal(out.get(), np.full((64, 64), large + 5).astype(narrower))
    gp.gemm(x, y, c=c, out=out)
    np.testing.assert_array_equal(out.get(), np.full((64, 64), large + 2).astype(narrower))


@pytest.mark.usefixtures("undealt")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_others_have_comes_once_and_products_of_what_is_there_go_first(
    cpus: list[gp.Backend], monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """With a stand-in for copies between devices, which CUDA has."""
    told: list[str] = []

    def copies(one: gp.Backend) -> None:
        upload = one._upload

        def copy_from(
            other: gp.Backend, source: Any, target: Any, nbytes: int, *, source_offset: int, offset: int, sender: Any,
            queue: Any,
        ) -> bool:  # fmt: skip
            passed = np.empty(nbytes, np.uint8)
            other.download(source, passed, offset=source_offset, queue=sender)
            upload(target, passed, offset, queue)
            told.append(f"{nbytes} come")
            return True

        one.copy_from = copy_from
        one._upload = lambda *_: pytest.fail("it went through the host")

    a, b = integers((128, 64), dtype), integers((64, 96), dtype)
    x, y = in_shards(a, cpus, 0), in_shards(b, cpus, 0)
    out = gp.ShardedArray([one.empty((64, 96), dtype) for one in cpus])
    for one in cpus:
        copies(one)
    enqueue = routine.enqueue
    monkeypatch.setattr(routine, "enqueue", lambda *given: (told.append("product"), enqueue(*given))[1])
    gp.matmul(x, y, out)
    np.testing.assert_array_equal(out.get(), a @ b)
    products = 2 if dtype == "float16" else 4
    assert told == [f"{b.nbytes // 2} come"] * 2 + ["product"] * products


@pytest.mark.usefixtures("undealt")
@pytest.mark.sample(cuts=["rows", "columns"], ops=["NN"], dtype=["float16"])
@pytest.mark.parametrize("cuts", ["rows", "columns", "whole"])
@pytest.mark.parametrize("ops", ["NN", "TC"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_panels_of_what_comes_are_multiplied_one_after_another(
    twins: list[gp.Backend], monkeypatch: pytest.MonkeyPatch, dtype: str, ops: str, cuts: str
) -> None:
    """Of halves, and of an operand that one device has: the other begins with a panel."""
    sizes = []
    monkeypatch.setattr(at_home, "panels", lambda lines, *_: sizes.append(lines) or [32, lines - 32])
    rng = np.random.default_rng(0)
    a, b = integers((212, 76), dtype, rng), integers((76, 188), dtype, rng)
    x, y = a.T.copy() if ops[0] == "T" else a, b.T.copy() if ops[1] == "C" else b
    axis = 1 if cuts == "columns" else 0
    left = in_shards(x, twins, axis)
    right: Any = in_shards(y, twins, axis)
    if cuts == "whole":
        left, right = in_shards(x, twins, ops[0] == "T"), twins[0].asarray(y)
    out = in_shards(np.full((212, 188), 7, dtype), twins, axis)
    for _ in range(2):
        gp.gemm(left, right, trans_a=ops[0], trans_b=ops[1], alpha=2, out=out)
        np.testing.assert_array_equal(out.get(), 2 * (a @ b))
    whole = 212 if cuts == "columns" else 188
    away = {"whole": [188]}.get(cuts, [whole] * 2 if dtype == "float16" and ops == "NN" else [])
    assert sizes == away or ops == "TC"


@pytest.mark.usefixtures("undealt")
@pytest.mark.sample(dtype=["float16"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_shards_of_one_device_are_put_together_there(twins: list[gp.Backend], dtype: str) -> None:
    """Of B one device has all, in two shards."""
    a, b = integers((64, 48), dtype), integers((48, 80), dtype, np.random.default_rng(1))
    y = gp.ShardedArray([twins[0].asarray(part) for part in np.array_split(b, 2)])
    for _ in range(2):
        np.testing.assert_array_equal(gp.matmul(in_shards(a, twins, 0), y).get(), a @ b)


@pytest.mark.usefixtures("undealt")
@pytest.mark.sample(dtype=["float16"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_lies_alike_is_not_worked_out_again(
    twins: list[gp.Backend], monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    rng = np.random.default_rng(0)
    a, b, c = (integers(shape, dtype, rng) for shape in ((4, 128, 64), (4, 64, 96), (4, 128, 96)))
    x, y, z = ([in_shards(each, twins, 0) for each in given] for given in (a, b, c))
    outs = [in_shards(np.zeros((128, 96), dtype), twins, 0) for _ in range(4)]

    def multiplied(n: int) -> None:
        np.testing.assert_array_equal((x[n] @ y[n]).get(), a[n] @ b[n])
        assert gp.matmul(x[n], y[n], outs[n]) is outs[n]
        np.testing.assert_array_equal(outs[n].get(), a[n] @ b[n])
        assert gp.gemm(x[n], y[n], c=z[n], beta=2, out=outs[n]) is outs[n]
        np.testing.assert_array_equal(outs[n].get(), a[n] @ b[n] + 2 * c[n])

    multiplied(0)
    with monkeypatch.context() as patch:
        for module in ("gemm", "matmul"):
            patch.setattr(import_module(f"gemmport.api.{module}"), "computed", lambda *_, **__: pytest.fail("anew"))
        patch.setattr(routine, "enqueue", lambda *_: pytest.fail("planned anew"))
        held = counting_allocations(twins).held
        multiplied(1)
        gp.matmul(x[2], y[3], outs[2])
        np.testing.assert_array_equal(outs[2].get(), a[2] @ b[3])
        gc.collect()
        assert [*held.values()] == [0, 0]
    other = outs[3].shards[1][:, ::-1][:, ::-1]  # lies alike, in the same memory
    with pytest.raises(gp.ArrayError, match="shards that do not overlap"):
        gp.matmul(x[3], y[3], gp.ShardedArray([other, outs[3].shards[1]]))
    gp.gemm(x[3], y[3], c=outs[2], beta=1, out=outs[2])
    np.testing.assert_array_equal(outs[2].get(), a[2] @ b[3] + a[3] @ b[3])
    x[1].shards[0].release()
    with pytest.raises(gp.ArrayError, match="released"):
        gp.matmul(x[1], y[1], outs[1])


@pytest.mark.usefixtures("undealt")
@pytest.mark.sample(dtype=["float16"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_products_come_after_those_that_were_enqueued(twins: list[gp.Backend], dtype: str) -> None:
    """Nothing waits for what writes the other's shard of B; on GPUs it takes as long as the product."""
    size = 2048 if twins[0].name == "cuda" else 256
    rng, half = np.random.default_rng(0), size // 2
    a, left, right = (integers(shape, dtype, rng) for shape in ((size, size), (half, size), (size, size)))
    left[:, 6:] = a[:, half + 6 :] = 0  # sums of six terms of six are exact in halves, too
    x, y = in_shards(a, twins, 0), in_shards(np.zeros_like(a), twins, 0)
    first, second = twins[1].asarray(left), twins[1].asarray(right)
    expected = (a[:, half:].astype("float64") @ (left.astype("float64") @ right)).astype(dtype)
    for _ in range(3):
        y.shards[1].set(np.zeros((half, size), dtype))
        gp.matmul(first, second, y.shards[1])
        np.testing.assert_array_equal(gp.matmul(x, y).get(), expected)


@pytest.mark.usefixtures("undealt")
def test_another_thread_works_it_out_for_itself(twins: list[gp.Backend], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = integers((64, 64), "float32"), integers((64, 64), "float32", np.random.default_rng(1))
    x, y = in_shards(a, twins, 0), in_shards(b, twins, 0)
    run, found = routine.Routine._run, []

    def at_once(one: routine.Routine, table: Any) -> Any:
        if not found:
            found.append(None)
            thread = threading.Thread(target=lambda: found.append(gp.matmul(x, y)))
            thread.start()
            thread.join(60)
        return run(one, table)

    gp.matmul(x, y)
    monkeypatch.setattr(routine.Routine, "_run", at_once)
    np.testing.assert_array_equal(gp.matmul(x, y).get(), a @ b)
    np.testing.assert_array_equal(found[1].get(), a @ b)


def late(one: gp.Backend, queue: Any = None) -> None:
    """Has what is enqueued from now on wait for a while."""
    event = cl.UserEvent(one.context)
    one.wait([Event(event)], queue=queue)
    threading.Timer(0.1, lambda: event.set_status(cl.command_execution_status.COMPLETE)).start()


@pytest.mark.usefixtures("undealt")
@pytest.mark.sample(dtype=["float16"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_products_come_after_what_was_enqueued_on_operands_and_after_what_arrives(
    cpus: list[gp.Backend], dtype: str
) -> None:
    """Each in turn is late: what writes B on one device, and what copies its other shard there, on a queue beside its own."""
    a, b, other = (
        integers(shape, dtype, np.random.default_rng(n)) for n, shape in enumerate([(64, 48)] + [(48, 80)] * 2)
    )
    x, y, z = (in_shards(each, cpus, 0) for each in (a, b, other))
    gp.matmul(x, y)
    late(cpus[1])
    cpus[1].copy(z.shards[1].memory, y.shards[1].memory, z.shards[1].nbytes)
    b[24:] = other[24:]
    np.testing.assert_array_equal(gp.matmul(x, y).get(), a @ b)

    def copy_from(
        device: gp.Backend, source: Any, target: Any, nbytes: int, *, source_offset: int, offset: int, queue: Any, **_: Any
    ) -> bool:  # fmt: skip
        passed = np.empty(nbytes, np.uint8)
        device.download(source, passed, offset=source_offset)
        staged = cpus[0].asarray(passed)
        late(cpus[0], queue)
        cl.enqueue_copy(queue, target.native, staged.memory.native, byte_count=nbytes, dst_offset=offset)
        queue.flush()
        return True

    cpus[0].copy_from = copy_from
    for _ in range(2):
        np.testing.assert_array_equal(gp.matmul(x, y).get(), a @ b)
        y.shards[1].set(other[:24])
        b[24:] = other[:24]


def test_a_device_that_fails_at_what_lies_alike_costs_time(
    twins: list[gp.Backend], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = integers((128, 64), "float32"), integers((64, 96), "float32")
    x, y = in_shards(a, twins, 0), in_shards(b, twins, 0)
    gp.matmul(x, y)
    synchronize = twins[1].synchronize

    def fails() -> None:
        monkeypatch.setattr(twins[1], "synchronize", synchronize)
        synchronize()
        raise gp.LaunchError("out of order")

    monkeypatch.setattr(twins[1], "synchronize", fails)
    np.testing.assert_array_equal(gp.matmul(x, y).get(), a @ b)
    assert "failed, and what needs it is computed again: out of order" in caplog.text


def test_what_a_device_fails_at_is_dealt_again(
    twins: list[gp.Backend], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """C is the result, and read again as it was."""
    enqueue = routine.enqueue

    def fails(place: Any, *given: Any) -> Any:
        found = enqueue(place, *given)
        if place.backend is twins[1]:
            raise gp.DeviceMemoryError("full")
        return found

    apart, calls = dealt._apart, []
    monkeypatch.setattr(dealt, "_apart", lambda *given: (calls.append(given), apart(*given))[1])
    monkeypatch.setattr(routine, "enqueue", fails)
    a, b, c = integers((300, 64), "float32"), integers((64, 96), "float32"), integers((300, 96), "float32")
    x, y, z = (in_shards(each, twins, 0) for each in (a, b, c))
    gp.gemm(x, y, c=z, beta=2, out=z)
    np.testing.assert_array_equal(z.get(), a @ b + 2 * c)
    assert "failed, and what needs it is computed again: full" in caplog.text
    assert len(calls) == 1, "C is copied once"


def test_a_device_that_is_lost_takes_its_arrays_with_it(
    cpus: list[gp.Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B is on the device that stays, whose rows are right; those of the other are named."""
    enqueue = routine.enqueue

    def loses(place: Any, *given: Any) -> Any:
        if place.backend is cpus[1]:
            cpus[1].lose(DeviceLostError("a bus fell off"))
        return enqueue(place, *given)

    monkeypatch.setattr(routine, "enqueue", loses)
    a, b = integers((300, 64), "float32"), integers((64, 96), "float32")
    x, out = in_shards(a, cpus, 0), in_shards(np.zeros((300, 96), "float32"), cpus, 0)
    told = (
        "must give and take what lies there.*a bus fell off.*not computed: rows 150–300, columns 0–96; all others are"
    )
    with pytest.raises(gp.ArrayLostError, match=told):
        gp.gemm(x, cpus[0].asarray(b), out=out)
    np.testing.assert_array_equal(out.shards[0].get(), (a @ b)[:150])


def test_what_came_of_a_device_that_is_lost_is_not_trusted(
    cpus: list[gp.Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of B a shard came from there."""

    def loses() -> None:
        cpus[1].lose(DeviceLostError("a bus fell off"))

    monkeypatch.setattr(cpus[1], "synchronize", loses)
    x, y = (in_shards(integers((64, 64), "float32"), cpus, 0) for _ in range(2))
    with pytest.raises(gp.ArrayLostError, match=r"not computed: rows 0–32, .*; rows 32–64, "):
        gp.matmul(x, y)


def test_a_mistake_of_the_callers_is_no_devices_failure(
    twins: list[gp.Backend], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dealt, "_plans", lambda *_, **__: pytest.fail("it was to be dealt"))
    x, y = (in_shards(integers((64, 64), "float32"), twins, 0) for _ in range(2))
    out = in_shards(np.zeros((64, 64), "float32"), twins, 0)
    held = counting_allocations(twins).held
    with pytest.raises(gp.ParameterError, match="TS"):
        gp.gemm(x, y, out=out, kernel="tiled", params={"TS": -7})
    assert "failed" not in caplog.text
    assert [*held.values()] == [0, 0]


NEEDS = {
    "what comes": ("float32", "float32", "float32", 1), "all in one": ("float16", "float16", "float16", 1),
    "packed": ("float32", "float32", "float32", 2), "sums": ("float32", "float32", "float16", 1),
    "converted": ("float16", "float32", "float32", 1),
}  # fmt: skip
"""Types of A, B and the result, and the step by which columns of B are taken."""


@pytest.mark.usefixtures("undealt")
@pytest.mark.parametrize("needs", NEEDS)
def test_a_product_at_home_takes_what_it_was_to_take_and_gives_it_back(
    twins: list[gp.Backend], monkeypatch: pytest.MonkeyPatch, needs: str
) -> None:
    """With room for a byte less than it takes it is dealt."""
    room = 2**28
    monkeypatch.setattr(dealt, "_rooms", lambda found, *_: [Room(room, 2**28) for _ in found])
    *types, step = NEEDS[needs]
    a, b = integers((64, 64), types[0]), integers((64, 96 * step), types[1])
    x, y = in_shards(a, twins, 0), in_shards(b, twins, 0)[:, ::step]
    out = in_shards(np.zeros((64, 96), types[2]), twins, 0)
    gp.gemm(x, y, out=out, kernel="tiled", devices=twins)
    allocations = counting_allocations(twins)
    gp.gemm(x, y, out=out, kernel="tiled", devices=twins)
    np.testing.assert_array_equal(out.get(), a @ b[:, ::step])
    assert [*allocations.held.values()] == [0, 0]
    room = max(allocations.most.values())
    gp.gemm(x, y, out=out, kernel="tiled", devices=twins)
    room -= 1
    with pytest.raises(pytest.fail.Exception, match="a part was dealt"):
        gp.gemm(x, y, out=out, kernel="tiled", devices=twins)


def test_what_has_no_room_or_lies_elsewhere_is_dealt(
    twins: list[gp.Backend], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(routine.Routine, "_run", lambda *_: pytest.fail("not all of it is at home"))
    a, b = integers((300, 64), "float32"), integers((64, 96), "float32")
    x, y = in_shards(a, twins, 0), in_shards(b, twins, 0)
    np.testing.assert_array_equal(gp.gemm(x, y, device_memory=200_000).get(), a @ b)
    np.testing.assert_array_equal(gp.matmul(x, b).get(), a @ b)
    np.testing.assert_array_equal(gp.matmul(x, y, twins[0].empty((300, 96), "float32")).get(), a @ b)
    uneven = gp.ShardedArray([twins[0].asarray(a[:290]), twins[1].asarray(a[290:])])
    np.testing.assert_array_equal(gp.matmul(uneven, y).get(), a @ b)
