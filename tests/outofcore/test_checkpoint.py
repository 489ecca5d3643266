"""Products that go on after their process was killed: nothing is computed twice, and nothing of another product is taken."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import TORCH, ZARR, skip_without
from gemmport.backends.base import Backend
from gemmport.outofcore import checkpoint
from gemmport.outofcore.streaming import Streamed
from test_streaming import HostArray, operands, wanted, whole

M, N, K = 301, 203, 409
PROGRAM = Path(__file__).parents[2] / "benchmarks" / "killed.py"


class StoppedError(Exception):
    """The process would have ended here."""


@pytest.fixture
def how(best_backend: Backend, tmp_path: Path) -> dict[str, Any]:
    return {"device": best_backend.device, "device_memory": 60_000, "checkpoint": tmp_path / "state"}


def stop_after(tiles: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """Has a product end after some tiles; gives the tiles that are computed from now on."""
    computed: list[tuple[int, int, int]] = []
    leave = Streamed._leave

    def leaving(self: Streamed, tile: Any, *rest: Any, is_last: bool) -> None:
        leave(self, tile, *rest, is_last=is_last)
        if is_last:
            computed.append(tile.place)
            if len(computed) == tiles:
                self.state.wait(lambda: self.state.tiles >= tiles)
                raise StoppedError

    monkeypatch.setattr(Streamed, "_leave", leaving)
    return computed


def begun(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch, **others: Any) -> tuple[HostArray, HostArray]:
    """A product of which three tiles are finished."""
    a, b = operands(M, N, K, "float32")
    with monkeypatch.context() as patched:
        stop_after(3, patched)
        with pytest.raises(StoppedError):
            gp.matmul(a, b, **how, **others)
    return a, b


def finished(folder: Path) -> list[tuple[int, ...]]:
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    return [tuple(line["tile"]) for line in lines if "tile" in line]


def test_the_same_call_goes_on_and_computes_nothing_twice(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = begun(how, monkeypatch)
    before = finished(how["checkpoint"])
    assert len(before) == 3
    computed = stop_after(10**6, monkeypatch)
    got = gp.matmul(a, b, **how)
    np.testing.assert_array_equal(got, wanted(a, b, "NN"))
    assert not set(before) & set(computed)
    assert sorted([*before, *computed]) == sorted(set(finished(how["checkpoint"])))
    computed.clear()
    np.testing.assert_array_equal(gp.matmul(a, b, **how), got)  # all is finished
    assert not computed


def test_a_line_that_was_cut_short_is_not_there(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = begun(how, monkeypatch)
    journal = how["checkpoint"] / "journal.jsonl"
    whole_lines = journal.read_bytes()
    for end in (1, 20, 60):
        journal.write_bytes(whole_lines[:-end])
        np.testing.assert_array_equal(gp.matmul(a, b, **how), wanted(a, b, "NN"))


@pytest.mark.parametrize("changed", ["a", "b", "alpha", "device_memory", "kernel", "c", "result"])
def test_what_was_changed_is_refused_by_name(
    changed: str, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = operands(M, N, K, "float32")
    c = whole((M, N), "float32", 3)
    with monkeypatch.context() as patched:
        stop_after(3, patched)
        with pytest.raises(StoppedError):
            gp.gemm(a, b, beta=2, c=c, **how)
    given: dict[str, Any] = {"alpha": 1, **how}
    told = f"^{changed} was changed since"
    if changed in ("a", "b", "c"):
        {"a": a, "b": b, "c": c}[changed][0, 0] += 1
    elif changed == "result":
        np.load(how["checkpoint"] / "result.npy", mmap_mode="r+")[0, 0] += 1
        told = r"^out was changed since"
    else:
        given[changed] = {"alpha": 2, "device_memory": 90_000, "kernel": "naive"}[changed]
        told = f"belongs to another {'problem' if changed == 'alpha' else 'plan'}"
    with pytest.raises(gp.CheckpointError, match=told):
        gp.gemm(a, b, beta=2, c=c, **given)


def test_c_is_on_record_before_a_tile_that_one_panel_makes(
    how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = operands(M, N, 8, "float32")
    c = whole((M, N), "float32", 3)
    with monkeypatch.context() as patched:
        stop_after(1, patched)
        with pytest.raises(StoppedError):
            gp.gemm(a, b, beta=2, c=c, **how)
    assert len(finished(how["checkpoint"])) == 1
    c[...] += 1
    with pytest.raises(gp.CheckpointError, match=r"^c was changed since"):
        gp.gemm(a, b, beta=2, c=c, **how)


def test_a_result_that_is_none_of_ours_is_not_overwritten(how: dict[str, Any]) -> None:
    how["checkpoint"].mkdir()
    np.save(how["checkpoint"] / "result.npy", np.arange(3))
    a, b = operands(M, N, K, "float32")
    for _ in range(2):
        with pytest.raises(gp.CheckpointError, match=r"^checkpoint must be a new folder, .* result.npy has no journal"):
            gp.matmul(a, b, **how)
    np.testing.assert_array_equal(np.load(how["checkpoint"] / "result.npy"), np.arange(3))


def test_what_numpy_multiplies_is_not_kept_and_refused(how: dict[str, Any]) -> None:
    a = np.ones((3, 3), np.longdouble)
    with pytest.raises(gp.DtypeError):
        gp.matmul(a, a, **how)


def test_tensors_on_the_host_are_kept_although_such_a_product_was_made_before(how: dict[str, Any]) -> None:
    skip_without(TORCH)
    import torch  # noqa: PLC0415

    a, b = (torch.from_numpy(x) for x in operands(M, N, K, "float32"))
    for _ in range(3):  # such a call is kept
        gp.matmul(a, b, device=how["device"], precision="full")
    gp.matmul(a, b, precision="full", **how)
    assert (how["checkpoint"] / "journal.jsonl").exists()
    assert finished(how["checkpoint"])


def test_results_are_kept_in_maps_and_nothing_is_kept_unasked(
    how: dict[str, Any], tmp_path: Path, monkeypatch: Any
) -> None:
    out = np.lib.format.open_memmap(tmp_path / "d.npy", "w+", np.float32, (M, N))
    a, b = begun(how, monkeypatch, out=out)
    assert gp.matmul(a, b, out=out, **how) is out
    np.testing.assert_array_equal(np.load(tmp_path / "d.npy"), wanted(a, b, "NN"))
    assert not (how["checkpoint"] / "result.npy").exists()
    del how["checkpoint"]
    found = sorted(tmp_path.rglob("*"))
    gp.matmul(a, b, **how)
    assert sorted(tmp_path.rglob("*")) == found


def test_results_are_kept_in_arrays_of_zarr(
    how: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without(ZARR)
    import zarr  # noqa: PLC0415

    out = zarr.create_array(tmp_path / "d", shape=(M, N), dtype="float32", chunks=(16, 16))
    synced: set[Path] = set()
    sync = checkpoint._synchronize
    monkeypatch.setattr(checkpoint, "_synchronize", lambda *paths: (synced.update(paths), sync(*paths)))
    a, b = begun(how, monkeypatch, out=out)
    gp.matmul(a, b, out=out, **how)
    np.testing.assert_array_equal(out[...], wanted(a, b, "NN"))
    chunks = {path for path in (tmp_path / "d" / "c").rglob("*") if path.is_file()}
    assert synced >= chunks | {
        folder for path in chunks for folder in path.parents if folder.is_relative_to(tmp_path / "d")
    }
    coarse = zarr.create_array(tmp_path / "e", shape=(M, N), dtype="float32", chunks=(200, 200))
    with pytest.raises(gp.CheckpointError, match=r"^out must have chunks that tiles of"):
        gp.matmul(a, b, out=coarse, **{**how, "checkpoint": tmp_path / "other"})


@pytest.mark.parametrize("kind", ["map", "zarr"])
def test_a_tile_is_on_disk_before_the_journal_names_it(
    kind: str, how: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "map":
        out: Any = np.lib.format.open_memmap(tmp_path / "d.npy", "w+", np.float32, (M, N))
    else:
        skip_without(ZARR)
        import zarr  # noqa: PLC0415

        out = zarr.create_array(tmp_path / "d", shape=(M, N), dtype="float32", chunks=(16, 16))
    a, b = operands(M, N, K, "float32")
    expected, tiles, now = wanted(a, b, "NN"), list[Any](), threading.local()

    def noting(where: Any, name: str, word: str) -> None:
        function = getattr(where, name)

        def noted(*given: Any) -> Any:
            if hasattr(now, "words") and (word == "synchronized" or given[0] == now.handle):
                if not now.words:  # before any of the tile's chunks is synchronized, all of it is written
                    now.values = out[now.block]
                now.words.append(word)
            return function(*given)

        monkeypatch.setattr(where, name, noted)

    noting(np.memmap, "flush", "synchronized")
    noting(checkpoint, "_synchronize", "synchronized")
    noting(checkpoint.os, "write", "named")
    noting(checkpoint.os, "fsync", "kept")
    finish = checkpoint.Checkpoint.finish

    def finishing(self: checkpoint.Checkpoint, tile: Any, digest: str) -> None:
        now.words, now.handle = [], self._handle
        now.block = slice(*tile.rows), slice(*tile.columns)
        finish(self, tile, digest)
        tiles.append((now.words, np.array_equal(now.values, expected[now.block])))
        del now.words

    monkeypatch.setattr(checkpoint.Checkpoint, "finish", finishing)
    gp.matmul(a, b, out=out, **how)
    assert len(tiles) == len(finished(how["checkpoint"])) > 3
    for words, was_right in tiles:
        assert words[-2:] == ["named", "kept"]
        assert {*words[:-2]} == {"synchronized"}
        assert was_right, "what was synchronized was not the tile"


class Dataset:
    """As h5py's."""

    __module__ = "h5py._hl.dataset"

    def __init__(self, data: HostArray) -> None:
        self.data, self.shape_, self.chunks = data, data.shape, None

    shape = property(lambda self: self.data.shape)
    dtype = property(lambda self: self.data.dtype)

    def __getitem__(self, key: Any) -> HostArray:
        return self.data[key]


def test_what_cannot_be_kept_is_refused_by_name(how: dict[str, Any], tmp_path: Path) -> None:
    a, b = operands(M, N, K, "float32")
    square = np.lib.format.open_memmap(tmp_path / "s.npy", "w+", np.float32, (M, N))
    refused: list[tuple[str, dict[str, Any]]] = [
        ("^a is a dataset of HDF5, .* may leave the file unreadable", {"a": Dataset(a)}),
        ("^out must be on disk .* got an array in memory", {"out": np.empty((M, N), np.float32)}),
        ("^out must not be c with", {"out": square, "c": np.load(tmp_path / "s.npy", mmap_mode="r"), "beta": 1}),
        ("^out must have the product's type float32", {"out": np.lib.format.open_memmap(tmp_path / "w", "w+", float, (M, N))}),
    ]  # fmt: skip
    for number, (told, given) in enumerate(refused):
        with pytest.raises(gp.CheckpointError, match=told):
            gp.gemm(given.pop("a", a), b, **given, **{**how, "checkpoint": tmp_path / str(number)})
    (tmp_path / "file").touch()
    with pytest.raises(gp.CheckpointError, match="checkpoint must be a folder"):
        gp.gemm(a, b, **{**how, "checkpoint": tmp_path / "file"})


def test_a_path_of_no_folder_is_refused_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty one too, as a variable that is not set has it."""
    monkeypatch.chdir(tmp_path)
    square = np.ones((8, 8), np.float32)
    for path in ("", 3.5):
        with pytest.raises(gp.ParameterError, match="checkpoint must be the path of a folder; got"):
            gp.matmul(square, square, checkpoint=path)  # type: ignore[arg-type]
    assert not [*tmp_path.iterdir()]


@pytest.mark.processes
def test_killed_at_any_moment_the_same_call_goes_on() -> None:
    command = [sys.executable, str(PROGRAM), "--kills", "4", "--size", "700", "--seed", "3"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(ended.stdout)
    assert told["right"] == told["runs"] >= 1
    assert told["killed"] >= 4
    assert told["computed_twice"] == 0
