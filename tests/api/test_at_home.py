"""Products of arrays in shards on devices of one kind, each of which computes its own part: a runtime of a CPU, open twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import INTEL, skip_without
from exact import integers
from gemmport.api import at_home, dealt
from runtimes import RUNTIMES


@pytest.fixture
def twins() -> Iterator[list[gp.Backend]]:
    """Two devices of one kind, opened for the test alone."""
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
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_others_have_comes_once_and_products_of_what_is_there_go_first(
    twins: list[gp.Backend], monkeypatch: pytest.MonkeyPatch, dtype: str
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
    x, y = in_shards(a, twins, 0), in_shards(b, twins, 0)
    out = gp.ShardedArray([one.empty((64, 96), dtype) for one in twins])
    for one in twins:
        copies(one)
    enqueue = at_home.enqueue
    monkeypatch.setattr(at_home, "enqueue", lambda *given: (told.append("product"), enqueue(*given))[1])
    gp.matmul(x, y, out)
    np.testing.assert_array_equal(out.get(), a @ b)
    products = 2 if dtype == "float16" else 4
    assert told == [f"{b.nbytes // 2} come"] * 2 + ["product"] * products


def test_what_a_device_fails_at_is_dealt_again(
    twins: list[gp.Backend], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """C is the result, and read again as it was."""
    enqueue = at_home.enqueue

    def fails(place: Any, *given: Any) -> Any:
        found = enqueue(place, *given)
        if place.backend is twins[1]:
            raise gp.DeviceMemoryError("full")
        return found

    monkeypatch.setattr(at_home, "enqueue", fails)
    a, b, c = integers((300, 64), "float32"), integers((64, 96), "float32"), integers((300, 96), "float32")
    x, y, z = (in_shards(each, twins, 0) for each in (a, b, c))
    gp.gemm(x, y, c=z, beta=2, out=z)
    np.testing.assert_array_equal(z.get(), a @ b + 2 * c)
    assert "failed, and its part is dealt again: full" in caplog.text


def test_what_has_no_room_or_lies_elsewhere_is_dealt(
    twins: list[gp.Backend], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(at_home, "_run", lambda *_: pytest.fail("not all of it is at home"))
    a, b = integers((300, 64), "float32"), integers((64, 96), "float32")
    x, y = in_shards(a, twins, 0), in_shards(b, twins, 0)
    np.testing.assert_array_equal(gp.gemm(x, y, device_memory=200_000).get(), a @ b)
    np.testing.assert_array_equal(gp.matmul(x, b).get(), a @ b)
    np.testing.assert_array_equal(gp.matmul(x, y, twins[0].empty((300, 96), "float32")).get(), a @ b)
    uneven = gp.ShardedArray([twins[0].asarray(a[:290]), twins[1].asarray(a[290:])])
    np.testing.assert_array_equal(gp.matmul(uneven, y).get(), a @ b)
