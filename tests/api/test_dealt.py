"""Products that several devices compute: `devices=`, with two runtimes of one CPU as two devices."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import INTEL, POCL_WHEEL, skip_without
from exact import integers
from gemmport.api import dealt, plans, streamed
from gemmport.core.errors import DeviceLostError
from gemmport.multidevice import outlook
from gemmport.outofcore.elsewhere import OnDevice
from gemmport.planning import schedule
from pairs import counting_allocations, opened_pair, without_sharing


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[gp.Backend]]:
    """Two runtimes, opened for the test alone, between which every product is dealt in many tiles."""
    with opened_pair(monkeypatch) as found:
        yield found


def numpys(a: Any, b: Any, op_a: str = "N", op_b: str = "N") -> Any:
    ops: dict[str, Callable[[Any], Any]] = {
        "N": lambda x: x, "T": lambda x: x.swapaxes(-1, -2), "C": lambda x: x.swapaxes(-1, -2).conj(), "R": np.conj,
    }  # fmt: skip
    return ops[op_a](a) @ ops[op_b](b)


@pytest.mark.sample(ops=["TC"], dtype=["complex64"])
@pytest.mark.parametrize("ops", ["NN", "TC", "RN"])
@pytest.mark.parametrize("dtype", ["float32", "complex64", "int32"])
@pytest.mark.parametrize("sent", [False, True], ids=["in place", "sent"])
def test_every_op_and_scalar(pair: list[gp.Backend], ops: str, dtype: str, *, sent: bool) -> None:
    if sent:
        without_sharing(pair[1])
    m, n, k = 331, 257, 40
    a = integers((k, m) if ops[0] in "TC" else (m, k), dtype)
    b = integers((n, k) if ops[1] in "TC" else (k, n), dtype)
    c = integers((m, n), dtype)
    d = gp.gemm(a, b, c=c, alpha=2, beta=3, trans_a=ops[0], trans_b=ops[1], devices=pair)
    np.testing.assert_array_equal(d, 2 * numpys(a, b, *ops) + 3 * c)
    assert d.dtype == dtype


@pytest.mark.sample(a=[(64, 0), (0, 5), (131, 129), (2, 3, 8, 9)], sent=[True])
@pytest.mark.parametrize(
    ("a", "b"),
    [((1, 1), (1, 1)), ((1, 7), (7, 503)), ((503, 7), (7, 1)), ((64, 0), (0, 64)), ((0, 5), (5, 3)), ((131, 129), (129, 127)),
     ((3, 65, 5), (5, 70)), ((4, 65, 5), (4, 5, 70)), ((2, 3, 8, 9), (3, 9, 4)), ((5,), (5,)), ((5,), (5, 200)),
     ((0, 3, 3), (0, 3, 3))],
)  # fmt: skip
@pytest.mark.parametrize("sent", [False, True], ids=["in place", "sent"])
def test_shapes_of_matmul(pair: list[gp.Backend], a: tuple[int, ...], b: tuple[int, ...], *, sent: bool) -> None:
    if sent:
        without_sharing(pair[0])
    x, y = integers(a, "float32"), integers(b, "float32")
    np.testing.assert_array_equal(gp.matmul(x, y, devices=pair), x @ y)


@pytest.mark.sample(dtype=["float16"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex128", "uint8", "bool", "int64"])
def test_types(pair: list[gp.Backend], dtype: str) -> None:
    x, y = integers((130, 33), dtype), integers((33, 140), dtype)
    np.testing.assert_array_equal(gp.matmul(x, y, devices=pair), gp.matmul(x, y, device=pair[0].device))


def test_out_may_be_c_or_an_operand_or_any_view(pair: list[gp.Backend]) -> None:
    a, b, c = (integers((200, 200), "float32", np.random.default_rng(n)) for n in range(3))
    expected = 2 * (a @ b) + 3 * c
    for out in (
        np.empty((200, 200), "f"),
        np.empty((200, 200), "f").T,
        np.empty((200, 400), "f")[:, ::2],
        np.empty((200, 200)),
    ):
        assert gp.gemm(a, b, c=c, alpha=2, beta=3, out=out, devices=pair) is out
        np.testing.assert_array_equal(out, expected)
    update = c.copy()
    gp.gemm(a, b, c=update, alpha=2, beta=3, out=update, devices=pair)
    np.testing.assert_array_equal(update, expected)
    operand = a.copy()
    gp.matmul(operand, b, operand, devices=pair)
    np.testing.assert_array_equal(operand, a @ b)


def test_both_devices_compute(pair: list[gp.Backend], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gemmport.api.dealt")
    a = integers((1024, 512), "float32")
    gp.matmul(a, a.T, devices=pair)
    told = [record.getMessage() for record in caplog.records]
    assert all(any(one.device.label in line and "computed 0.0 %" not in line for line in told) for one in pair)


def fails(
    backend: gp.Backend, error: Callable[[], Exception], after: int = 0, beside: gp.Backend | None = None
) -> None:
    """Plants a fault: from a tile on, the device fails when it has given a result back.

    Args:
        beside: another device, which gives nothing back before: so this one gets as many tiles.
    """
    count, failed = 0, threading.Event()

    def failing(method: Callable[..., None]) -> Callable[..., None]:
        def fail(*arguments: Any, **options: Any) -> None:
            nonlocal count
            method(*arguments, **options)
            count += 1
            if count > after:
                failed.set()
                raise error()

        return fail

    def patient(method: Callable[..., None]) -> Callable[..., None]:
        def wait(*arguments: Any, **options: Any) -> None:
            assert failed.wait(60)
            method(*arguments, **options)

        return wait

    if beside is not None:
        beside.give_back, beside.download = patient(beside.give_back), patient(beside.download)
    backend.give_back, backend.download = failing(backend.give_back), failing(backend.download)


def test_a_device_that_fails_in_the_middle_costs_no_result(
    pair: list[gp.Backend], caplog: pytest.LogCaptureFixture
) -> None:
    fails(pair[0], lambda: gp.LaunchError("out of order"), after=2, beside=pair[1])
    a, b, c = (integers((900, 900), "float32", np.random.default_rng(n)) for n in range(3))
    expected = a @ b + c
    np.testing.assert_array_equal(gp.gemm(a, b, c=c, beta=1, out=c, devices=pair), expected)
    assert "out of order" in caplog.text


def test_a_device_that_is_lost_costs_no_result(pair: list[gp.Backend]) -> None:
    def lost() -> Exception:
        with pytest.raises(DeviceLostError):
            pair[1].lose(DeviceLostError("a bus fell off"))
        return DeviceLostError("a bus fell off")

    fails(pair[1], lost, after=1, beside=pair[0])
    a = integers((900, 300), "float32")
    np.testing.assert_array_equal(gp.matmul(a, a.T, devices=pair), a @ a.T)
    assert pair[1].closed


def test_a_device_without_memory_for_its_tile_gets_a_smaller_one(
    pair: list[gp.Backend], caplog: pytest.LogCaptureFixture
) -> None:
    first = without_sharing(pair[0])
    allocate, most = first._allocate, 2**15
    largest = []

    def short(nbytes: int) -> Any:
        if nbytes > most:
            raise gp.DeviceMemoryError("full")
        largest.append(nbytes)
        return allocate(nbytes)

    first._allocate = short
    caplog.set_level(logging.INFO, "gemmport.api.dealt")
    a = integers((256, 64), "float32")
    np.testing.assert_array_equal(gp.matmul(a, a.T, devices=[first]), a @ a.T)
    assert "gets smaller tiles" in caplog.text
    assert max(largest) <= most


def test_where_all_fail_the_error_says_why_each_did(pair: list[gp.Backend]) -> None:
    fails(pair[0], lambda: gp.LaunchError("out of order"))
    fails(pair[1], lambda: gp.LaunchError("on fire"))
    a = integers((300, 300), "float32")
    with pytest.raises(gp.DevicesFailedError, match="out of order") as caught:
        gp.matmul(a, a, devices=pair)
    assert [str(reason) for reason in caught.value.reasons.values()] == ["out of order", "on fire"]
    assert list(caught.value.reasons) == [one.device.label for one in pair]


def test_what_is_no_fault_of_a_device_ends_all(pair: list[gp.Backend]) -> None:
    fails(pair[0], lambda: RuntimeError("a bug"), beside=pair[1])
    a = integers((300, 300), "float32")
    with pytest.raises(RuntimeError, match="a bug"):
        gp.matmul(a, a, devices=pair)


def test_panels_are_sent_once(pair: list[gp.Backend]) -> None:
    """Of a square product each row of A, and all of B, goes once to a device with a memory of its own."""
    one = without_sharing(pair[0])
    sent = []
    upload = one._upload
    one._upload = lambda memory, data, *rest: (sent.append(data.nbytes), upload(memory, data, *rest))
    a = integers((1024, 64), "float32")
    gp.matmul(a, a.T.copy(), devices=[one], device_memory="1MB")  # which has no room for one tile
    assert len(sent) > 3
    assert sum(sent) == 2 * a.nbytes


@pytest.fixture
def in_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has even small operands pass by in several panels."""
    monkeypatch.setattr(schedule, "LEAST_DEPTH", 8)


@pytest.mark.usefixtures("in_panels")
@pytest.mark.sample(dtype=["float16"], ops=["TC"])
@pytest.mark.parametrize("ops", ["NN", "TC", "NT"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "int8"])
def test_operands_pass_by_in_panels(
    pair: list[gp.Backend], monkeypatch: pytest.MonkeyPatch, dtype: str, ops: str
) -> None:
    monkeypatch.setattr(schedule, "_LARGE", 1)  # tiles pass in two, of which one leaves while the other is computed
    for one in pair:
        without_sharing(one)
    m, n, k = 211, 300, 77
    a = integers((k, m) if ops[0] in "TC" else (m, k), dtype)
    b = integers((n, k) if ops[1] in "TC" else (k, n), dtype)
    c = integers((m, n), dtype)
    how = {"c": c, "alpha": 2, "beta": 3, "trans_a": ops[0], "trans_b": ops[1]}
    np.testing.assert_array_equal(gp.gemm(a, b, devices=pair, **how), gp.gemm(a, b, device=pair[0].device, **how))
    x, y = integers((3, 65, 50), dtype), integers((3, 50, 70), dtype)
    for right in (y, y[0]):
        np.testing.assert_array_equal(gp.matmul(x, right, devices=pair), gp.matmul(x, right, device=pair[0].device))


@pytest.mark.usefixtures("in_panels")
def test_the_next_panel_travels_while_one_is_multiplied(
    pair: list[gp.Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A product waits for the panel after its own: where that were sent later, it would wait for ever."""
    one = without_sharing(pair[0])
    sent, changed, begun = [], threading.Condition(), 0
    upload, multiply = one._upload, streamed.enqueue_memory

    def uploads(memory: Any, data: np.ndarray, *rest: Any) -> None:
        upload(memory, data, *rest)
        with changed:
            sent.append(data.nbytes)
            changed.notify_all()

    def enqueues(*arguments: Any) -> Any:
        nonlocal begun
        begun += 1
        if begun == 1:  # B's panels all stay; of A's, one is read now, and the other by the next product
            with changed:
                assert changed.wait_for(lambda: sum(nbytes != 96 * 8 * 4 for nbytes in sent) == 2, 60)
        return multiply(*arguments)

    one._upload = uploads
    monkeypatch.setattr(streamed, "enqueue_memory", enqueues)
    a, b = integers((128, 64), "float32"), integers((64, 96), "float32")
    np.testing.assert_array_equal(gp.matmul(a, b, devices=[one]), a @ b)
    assert begun % 8 == 0


@pytest.mark.parametrize("where", ["host", "shards"])
def test_tiles_of_one_kind_are_planned_and_bound_once(
    pair: list[gp.Backend], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Products of tiles, of their panels and strips, differ in nothing but addresses where they are of one size."""
    counts: Counter[str] = Counter()
    kinds: dict[str, set[Any]] = {"bind": set(), "make_plan": set()}
    enqueue = streamed.enqueue_memory

    def counting(module: str, name: str) -> None:
        function = getattr(import_module(module), name)
        monkeypatch.setattr(f"{module}.{name}", lambda *x, **o: (counts.update([name]), function(*x, **o))[1])

    def enqueues(problem: Any, choice: Any, backend: gp.Backend, *rest: Any) -> Any:
        counts["products"] += 1
        kinds["bind"].add((backend.device, problem))
        kinds["make_plan"].add((backend.device.identity, problem))
        return enqueue(problem, choice, backend, *rest)

    counting("gemmport.execution.executor", "bind")
    counting("gemmport.api.plans", "make_plan")
    monkeypatch.setattr(streamed, "enqueue_memory", enqueues)
    for one in pair:
        without_sharing(one)
    monkeypatch.setattr(schedule, "LEAST_DEPTH", 32)  # panels begin where OpenCL lets a memory begin
    monkeypatch.setattr(schedule, "LEAST_STRIP", 16)
    a, b = integers((4096, 128), "float32"), integers((128, 64), "float32")
    x = gp.ShardedArray.distribute(a, pair) if where == "shards" else a
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(gp.matmul(x, b, devices=pair)), a @ b)
    whole = len(pair)  # each device is asked for a plan of it all, by which it is told how fast it is
    assert counts["bind"] == len(kinds["bind"])
    assert counts["make_plan"] <= len(kinds["make_plan"]) + whole
    assert counts["products"] > 4 * counts["bind"], counts


def test_devices_that_differ_in_their_number_alone_have_one_plan(
    best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[gp.DeviceInfo] = []
    make_plan = plans.make_plan
    monkeypatch.setattr(plans, "make_plan", lambda *x, **how: (made.append(x[1]), make_plan(*x, **how))[1])
    problem = gp.GemmProblem.create(131, 137, 139)
    for index in ((0, 0), (3, 1)):
        device = replace(best_backend.device, index=index)
        assert gp.plan(problem, device).device == device
    assert len(made) == 1
    other = replace(best_backend.device, index=(3, 1), compute_units=77)
    assert gp.plan(problem, other).device == other
    assert len(made) == 2


class Slices:
    """An array that is read and written in slices alone, by one thread at a time."""

    def __init__(self, inner: np.ndarray) -> None:
        self.inner, self.writers, self.most_writers = inner, 0, 0

    shape, dtype = (property(lambda self, name=name: getattr(self.inner, name)) for name in ("shape", "dtype"))

    def __getitem__(self, key: tuple[slice, ...]) -> np.ndarray:
        return self.inner[key].copy()

    def __setitem__(self, key: tuple[slice, slice], values: np.ndarray) -> None:
        self.writers += 1
        self.most_writers = max(self.most_writers, self.writers)
        threading.Event().wait(0.02)  # for others who would write meanwhile
        self.inner[key] = values
        self.writers -= 1


@pytest.mark.usefixtures("in_panels")
@pytest.mark.parametrize("sent", [True, False])
def test_arrays_in_slices_are_dealt(pair: list[gp.Backend], *, sent: bool) -> None:
    if sent:
        without_sharing(pair[0])
    a, b, c = (integers(shape, "float32") for shape in ((430, 90), (90, 310), (430, 310)))
    out = Slices(np.zeros((430, 310), "float32"))
    assert gp.gemm(Slices(a), b, c=Slices(c), beta=2, out=out, devices=pair) is out
    np.testing.assert_array_equal(out.inner, a @ b + 2 * c)
    assert out.most_writers == 1  # two that write parts of one chunk would each undo what the other wrote
    np.testing.assert_array_equal(gp.matmul(a, Slices(b), devices=pair, host_memory="1MiB"), a @ b)
    with pytest.raises(gp.ArrayError, match="out must not be c"):
        gp.gemm(a, b, c=out, beta=2, out=out, devices=pair)


@pytest.mark.usefixtures("in_panels")
def test_each_device_takes_no_more_memory_than_is_allowed(pair: list[gp.Backend]) -> None:
    most = counting_allocations(pair).most
    a, b = integers((600, 200), "float32"), integers((200, 500), "float32")
    np.testing.assert_array_equal(gp.matmul(a, b, devices=pair, device_memory=300_000), a @ b)
    assert all(0 < most[one] <= 300_000 for one in pair)


def test_a_small_product_goes_to_the_fastest(caplog: pytest.LogCaptureFixture) -> None:
    skip_without(INTEL, POCL_WHEEL)
    caplog.set_level(logging.INFO, "gemmport.api.dealt")
    a = integers((20, 20), "float32")
    np.testing.assert_array_equal(gp.matmul(a, a, devices=["intel", "pocl 3.0"]), a @ a)
    assert "is not dealt" in caplog.text


def test_a_gpu_that_is_named_alone_computes_while_numbers_travel(
    best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one tile, past which panels pass; what travels in no time is sent at once."""
    monkeypatch.setattr(schedule, "LEAST_DEPTH", 8)
    monkeypatch.setattr(type(best_backend), "_borrow", lambda *_: None)
    monkeypatch.setattr(best_backend, "device", replace(best_backend.device, type="gpu"))
    run, tiles = dealt.run_streamed, []
    monkeypatch.setattr(dealt, "run_streamed", lambda *x, **how: (tiles.append(x[1]), run(*x, **how))[1])
    a = integers((300, 64), "float32")
    for least, count in ((1.0, 0), (-1.0, 1)):
        monkeypatch.setattr(outlook, "SHORTEST", least)
        np.testing.assert_array_equal(gp.matmul(a, a.T, devices=[best_backend]), a @ a.T)
        assert len(tiles) == count
    assert (tiles[0].rows, tiles[0].columns, tiles[0].panels) == (300, 300, 8)


def test_what_cannot_be_dealt_is_refused(best_backend: gp.Backend) -> None:
    a = integers((20, 20), "float32")
    device = best_backend.device
    for multiply in (gp.matmul, gp.gemm):
        with pytest.raises(gp.UnsupportedError, match="deterministic"):
            multiply(a, a, devices="all", deterministic=True)
        with pytest.raises(gp.UnsupportedError, match="checkpoint must be left out"):
            multiply(a, a, devices="all", checkpoint="nowhere")
        with pytest.raises(gp.UnsupportedError, match="progress must be left out"):
            multiply(a, a, devices="all", progress=print)
        with pytest.raises(gp.UnsupportedError, match="add it to devices"):
            multiply(a, a, devices="all", device=device)
        with pytest.raises(gp.DeviceNotFoundError, match="write \\['intel'\\]"):
            multiply(a, a, devices="intel")
        with pytest.raises(gp.DeviceNotFoundError, match="one device or more"):
            multiply(a, a, devices=[])
        with pytest.raises(gp.ShapeError):
            multiply(a, a[:3], devices=[device])
    with pytest.raises(gp.UnsupportedError, match="queue"):
        gp.gemm(a, a, devices="all", queue=best_backend.queue)


def test_torch_compile_passes_every_argument_on(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("gemmport.api.gemm")
    monkeypatch.setattr(module, "is_traced", lambda: True)
    passed: dict[str, Any] = {}
    monkeypatch.setattr(module, "untraced", lambda _: lambda *_, **how: passed.update(how))
    gp.gemm(np.ones((2, 2)), np.ones((2, 2)), devices="all")
    assert passed["devices"] == "all"
    assert {"a", "b", *passed} == set(signature(gp.gemm).parameters)


# Arrays that lie on devices


def on(one: gp.Backend | None, x: np.ndarray) -> Any:
    return x if one is None else one.asarray(x)


@pytest.mark.usefixtures("in_panels")
@pytest.mark.sample(dtype=["float16"], where=["0-1-", "110h"], ops=["TC"])
@pytest.mark.parametrize("where", ["00-0", "01-0", "110h", "0-1-"])
@pytest.mark.parametrize("ops", ["NN", "TC"])
@pytest.mark.parametrize("dtype", ["float16", "complex64", "int32"])
def test_arrays_on_devices_are_multiplied_where_they_lie(
    pair: list[gp.Backend], where: str, ops: str, dtype: str
) -> None:
    """Of A, B, C and out each is on a device, in the host's memory ("h" and "-"), or, of out, left to gemm ("-")."""
    places = [pair[int(each)] if each.isdigit() else None for each in where]
    m, n, k = 211, 190, 77
    a = integers((k, m) if ops[0] in "TC" else (m, k), dtype)
    b = integers((n, k) if ops[1] in "TC" else (k, n), dtype)
    c = integers((m, n), dtype)
    out = None if where[3] == "-" else on(places[3], np.empty((m, n), dtype))
    x, y, z = (on(place, each) for place, each in zip(places[:3], (a, b, c), strict=True))
    d = gp.gemm(x, y, c=z, alpha=2, beta=3, trans_a=ops[0], trans_b=ops[1], out=out, devices=pair)
    assert out is None or d is out
    first = next((place for place in (places[3], *places) if place is not None), None)
    assert where[3] == "h" or d.backend is first
    np.testing.assert_array_equal(
        d if where[3] == "h" else d.get(), gp.gemm(a, b, c=c, alpha=2, beta=3, trans_a=ops[0], trans_b=ops[1])
    )


@pytest.mark.usefixtures("in_panels")
def test_arrays_in_several_allocations_travel_too(pair: list[gp.Backend], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = integers((211, 77), "float16"), integers((77, 190), "float32")
    with monkeypatch.context() as allowing:
        for one in pair:
            allowing.setattr(one, "device", replace(one.device, max_allocation=20_000))
        x, y, out = pair[0].asarray(a), pair[1].asarray(b), pair[1].empty((190, 211), "float32").T
    assert (x.allocations, y.allocations, out.allocations) == (2, 3, 9)
    assert gp.gemm(x, y, out=out, devices=pair) is out
    np.testing.assert_array_equal(out.get(), gp.gemm(a, b))
    np.testing.assert_array_equal(gp.matmul(x, y, devices=pair[1:]).get(), gp.gemm(a, b))


VIEWS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "parts": lambda x, y: (x[::2], y[:, 5:133]), "gaps": lambda x, y: (x[:, ::3], y[::3]), "turned": lambda x, y: (y.T, x.T),
    "vector": lambda x, y: (x[0], y), "batch": lambda x, y: (x.reshape(4, 50, 120), y),
    "wider": lambda x, y: (x.astype("float64"), y),
}  # fmt: skip


@pytest.mark.usefixtures("in_panels")
@pytest.mark.sample(view=["gaps"])
@pytest.mark.parametrize("view", VIEWS)
def test_views_vectors_and_batches_on_devices(pair: list[gp.Backend], view: str) -> None:
    a, b = integers((200, 120), "float32"), integers((120, 300), "float32")
    expected = np.matmul(*VIEWS[view](a, b))
    left, right = VIEWS[view](pair[0].asarray(a), pair[1].asarray(b))
    found = gp.matmul(left, right, devices=pair)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.get(), expected)


def test_what_lies_on_the_only_device_is_multiplied_at_once(
    best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dealt, "OnDevice", None)  # through which all else passes
    a = integers((60, 50), "float32")
    x = best_backend.asarray(a)
    np.testing.assert_array_equal(gp.matmul(x, x.T, devices=[best_backend]).get(), a @ a.T)
    monkeypatch.undo()
    out = np.empty((60, 60), "float32")  # which does not lie there
    np.testing.assert_array_equal(gp.gemm(x, x, trans_b="T", out=out, devices=[best_backend]), a @ a.T)


@pytest.mark.parametrize(("a", "b"), [((90, 40), (40, 70)), ((40,), (40, 70)), ((3, 90, 40), (40,)), ((0, 5), (5, 3))])
def test_the_result_is_of_the_first_operands_library(
    pair: list[gp.Backend], a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    arrays = import_module("pyopencl.array")
    left, right = integers(a, "float32"), integers(b, "float32")
    x = arrays.to_device(pair[0].queue, left)
    found = gp.matmul(x, pair[1].asarray(right), devices=pair)
    assert isinstance(found, arrays.Array)
    assert found.queue == x.queue
    np.testing.assert_array_equal(found.get(), left @ right)
    assert isinstance(
        gp.matmul(pair[1].asarray(left), arrays.to_device(pair[0].queue, right), devices=pair), gp.DeviceArray
    )


def test_a_product_without_elements_on_devices(pair: list[gp.Backend]) -> None:
    x, y = pair[1].empty((0, 5), "float32"), pair[0].ones((5, 3), "float32")
    found = gp.matmul(x, y, devices=pair)
    assert found.shape == (0, 3)
    assert found.backend is pair[1]
    assert gp.gemm(x, y, out=np.empty((0, 3), "float32"), devices=pair).shape == (0, 3)


def test_what_lies_between_the_elements_of_out_stays(pair: list[gp.Backend]) -> None:
    a = integers((200, 120), "float32")
    x, out = pair[0].asarray(a), pair[1].zeros((200, 400), "float32")
    gp.matmul(x, x.T, out[:, ::2], devices=pair)
    np.testing.assert_array_equal(out.get()[:, ::2], a @ a.T)
    assert not out.get()[:, 1::2].any()


def test_c_on_a_device_is_updated_and_operands_are_not(pair: list[gp.Backend]) -> None:
    a, c = integers((300, 300), "float32"), integers((300, 300), "float32", np.random.default_rng(1))
    x, z = pair[0].asarray(a), pair[1].asarray(c)
    assert gp.gemm(x, x, c=z, beta=2, out=z, devices=pair) is z
    np.testing.assert_array_equal(z.get(), a @ a + 2 * c)
    with pytest.raises(gp.ArrayError, match="out overlaps a"):
        gp.matmul(x, z, x, devices=pair)


def test_both_devices_compute_what_lies_on_one(pair: list[gp.Backend], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gemmport.api.dealt")
    a = integers((1024, 512), "float32")
    x = pair[0].asarray(a)
    np.testing.assert_array_equal(gp.matmul(x, x.T, devices=pair).get(), a @ a.T)
    told = [record.getMessage() for record in caplog.records]
    assert all(any(one.device.label in line and "computed 0.0 %" not in line for line in told) for one in pair)
    readers = len(x.memory.access.readers)
    gp.matmul(x, x.T, devices=pair)
    assert len(x.memory.access.readers) == readers  # each is a queue, which would stay as long as the array


def test_a_device_that_fails_beside_that_of_the_arrays_costs_no_result(
    pair: list[gp.Backend], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It fails when a tile was written to D, which is C: what is computed again reads C as it was."""
    write, failed = OnDevice.write, threading.Event()

    def fails_later(array: OnDevice, key: Any, source: Any, *rest: Any) -> Iterator[int]:
        if source.backend is not pair[1]:
            assert failed.wait(60)
        yield from write(array, key, source, *rest)
        if source.backend is pair[1]:
            failed.set()
            raise gp.LaunchError("a bus fell off")

    monkeypatch.setattr(OnDevice, "write", fails_later)
    a, c = integers((900, 300), "float32"), integers((900, 900), "float32", np.random.default_rng(1))
    x, z = (pair[0].asarray(each) for each in (a, c))
    gp.gemm(x, x, trans_b="T", c=z, beta=2, out=z, devices=pair)
    np.testing.assert_array_equal(z.get(), a @ a.T + 2 * c)
    assert "a bus fell off" in caplog.text


@pytest.mark.usefixtures("in_panels")
def test_devices_that_copy_between_each_other_leave_the_host_out(pair: list[gp.Backend]) -> None:
    """With a stand-in for such a copy, which CUDA has."""
    one, other = pair
    upload, copied = one._upload, 0

    def copy_from(
        source_of: gp.Backend,
        source: Any,
        target: Any,
        nbytes: int,
        *,
        source_offset: int,
        offset: int,
        sender: Any,
        queue: Any,
    ) -> bool:
        nonlocal copied
        passed = np.empty(nbytes, np.uint8)
        source_of.download(source, passed, offset=source_offset, queue=sender)
        upload(target, passed, offset, queue)
        copied += nbytes
        return True

    a, b = integers((300, 70), "float32"), integers((70, 260), "float32")
    x, y = other.asarray(a), other.asarray(b)
    one.copy_from = copy_from
    one._upload = lambda *_: pytest.fail("it went through the host")
    np.testing.assert_array_equal(gp.matmul(x, y, devices=[one]).get(), a @ b)
    assert copied == a.nbytes + b.nbytes
