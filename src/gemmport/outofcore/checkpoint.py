"""The state of a streamed product on disk, by which the same call goes on after its process was killed.

A folder holds a journal: a line for the product and its plan, one for each panel that was read, with its digest, and one for
each tile of the result that is on disk, with its digest. A tile's line is written after the tile is synchronized; a line that
was cut short is as if it were not there. Before a product goes on, all that is on record is read again and compared.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from itertools import product as every
from pathlib import Path
from typing import Any, cast

import numpy as np

from gemmport.core.errors import CheckpointError
from gemmport.outofcore.operands import Matrix, Sliced, is_hdf5, map_of, may_share
from gemmport.outofcore.streaming import Operands, digest_of, stored_block
from gemmport.planning.schedule import Schedule, Tile

SCHEMA = 1

JOURNAL, RESULT = "journal.jsonl", "result.npy"


class Checkpoint:
    """A folder in which the state of one product is kept; a `Record`. One process at a time uses it."""

    def __init__(self, folder: Path) -> None:
        """Opens a checkpoint, which need not be there.

        Raises:
            CheckpointError: another process uses it, or it is none.
        """
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            is_foreign = (folder / RESULT).exists() and not (folder / JOURNAL).exists()
            self._handle = os.open(folder / JOURNAL, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint must be a folder that can be written to; got {folder}: {error}"
            ) from None
        try:
            self._keep_out_others()
            self._lines = self._whole_lines()
        except BaseException:
            self.close()
            raise
        self._is_foreign = is_foreign
        self._lock = threading.Lock()
        self._known: dict[tuple[str, tuple[int, ...]], str] = {}
        self._finished: dict[tuple[int, ...], str] = {}
        self._schedule: Schedule | None = None
        self._out: Matrix | None = None

    def close(self) -> None:
        """Lets others use it."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep_out_others(self) -> None:
        if sys.platform == "win32":
            return
        import fcntl  # noqa: PLC0415 - not on Windows

        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CheckpointError(
                f"checkpoint {self.folder} must be used by one process at a time: another one is at work on it"
            ) from None

    def _whole_lines(self) -> list[dict[str, Any]]:
        """What was written, but for a last line that was cut short, which is removed."""
        content = b""
        while read := os.read(self._handle, 2**24):
            content += read
        whole = content[: content.rfind(b"\n") + 1]
        try:
            lines = [json.loads(line) for line in whole.splitlines()]
        except ValueError as error:
            raise CheckpointError(
                f"{self.folder / JOURNAL} is damaged: {error}; remove the folder to begin anew"
            ) from None
        os.ftruncate(self._handle, len(whole))
        os.lseek(self._handle, len(whole), os.SEEK_SET)
        return lines

    def result(self, shape: Sequence[int], dtype: np.dtype[Any]) -> np.memmap[Any, Any]:
        """The result in the folder, as a memory map: that which was begun, or a new one.

        Raises:
            CheckpointError: that which was begun is of another shape or type, or gone.
        """
        path = self.folder / RESULT
        if self._is_foreign:
            (self.folder / JOURNAL).unlink()  # so that the next call does not take it for begun
            raise CheckpointError(
                f"checkpoint must be a new folder, or one that was begun; got {self.folder}, whose {RESULT} has no journal: "
                "pass another folder, or move that file away"
            )
        if not self._lines:
            made = np.lib.format.open_memmap(path, "w+", dtype, tuple(shape))
            made.flush()
            _synchronize(path, self.folder)
            return cast("np.memmap[Any, Any]", made)
        try:
            found = np.lib.format.open_memmap(path, "r+")
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} must be the result that was begun; got none: {error}") from None
        if found.shape != tuple(shape) or found.dtype != dtype:
            raise CheckpointError(
                f"{path} must have the product's shape {tuple(shape)} and type {dtype}; got {found.shape} and {found.dtype}"
            )
        return cast("np.memmap[Any, Any]", found)

    def begin(self, schedule: Schedule, operands: Operands, told: Mapping[str, Any]) -> None:
        """Begins a product, or goes on with it.

        Args:
            told: what must not change, by name.

        Raises:
            CheckpointError: the result cannot be kept, or the checkpoint is of another product, or an operand, the result or
                the plan was changed.
        """
        self._schedule, self._out = schedule, operands.out
        _check_kept(schedule, operands)
        header = json.loads(json.dumps({"schema": SCHEMA, **told}))
        if not self._lines:
            self._write({"product": header}, synchronize=True)
            return
        stored = self._lines[0].get("product", {})
        for name in {**stored, **header}:
            if json.dumps(stored.get(name), sort_keys=True) != json.dumps(header.get(name), sort_keys=True):
                raise CheckpointError(
                    f"checkpoint {self.folder} belongs to another {name}: it must be {_brief(stored.get(name))}; got "
                    f"{_brief(header.get(name))}: pass what it was begun with, or another folder"
                )
        for line in self._lines[1:]:
            if "tile" in line:
                self._finished[tuple(line["tile"])] = line["digest"]
            else:
                self._known[line["operand"], tuple(line["panel"])] = line["digest"]
        self._compare(operands)

    def _compare(self, operands: Operands) -> None:
        """Compares all that is on record with what is there."""
        schedule = cast("Schedule", self._schedule)
        problem, compared = schedule.problem, set()
        for tile in schedule.tiles():
            place, numbers = tile.place, range(schedule.panels)
            for name, panel in every(("a", "b"), numbers):
                key = schedule.key(name, tile, panel)
                digest = self._known.get((name, key))
                if digest is None or (name, key) in compared:
                    continue
                compared.add((name, key))
                rows, columns = stored_block(operands.of(name), name, tile, schedule.panel(panel))
                if digest_of(operands.of(name), rows, columns, key[0], problem.dtype.numpy) != digest:
                    raise CheckpointError(self._changed(name, f"its stored rows {rows[0]} to {rows[1]} and columns "
                                                              f"{columns[0]} to {columns[1]}"))  # fmt: skip
            for name, matrix, digest in (
                ("c", operands.c, self._known.get(("c", place))), ("out", operands.out, self._finished.get(place)),
            ):  # fmt: skip
                if digest is None or matrix is None:
                    continue
                if digest_of(matrix, tile.rows, tile.columns, tile.batch, problem.output.numpy) != digest:
                    raise CheckpointError(self._changed(name, f"its tile of rows {tile.rows[0]} to {tile.rows[1]} and columns "
                                                              f"{tile.columns[0]} to {tile.columns[1]}"))  # fmt: skip

    def _changed(self, name: str, where: str) -> str:
        return (
            f"{name} was changed since checkpoint {self.folder} was begun ({where}): pass what it was begun with, or another "
            "folder"
        )

    def is_finished(self, tile: Tile) -> bool:
        """Whether a tile is on disk."""
        return tile.place in self._finished

    def knows(self, operand: str, panel: tuple[int, int, int]) -> bool:
        """Whether the digest of a panel is on record."""
        return (operand, panel) in self._known

    def read(self, operand: str, panel: tuple[int, int, int], digest: str) -> None:
        """Takes note of a panel of A or B, or a tile of C."""
        with self._lock:
            self._known[operand, panel] = digest
            self._write({"operand": operand, "panel": panel, "digest": digest})

    def finish(self, tile: Tile, digest: str) -> None:
        """Takes note of a tile, when it is on disk."""
        synchronize(cast("Matrix", self._out), tile)
        with self._lock:
            self._finished[tile.place] = digest
            self._write({"tile": tile.place, "digest": digest}, synchronize=True)

    def _write(self, line: Mapping[str, Any], *, synchronize: bool = False) -> None:
        content = (json.dumps(line) + "\n").encode()
        while content:
            content = content[os.write(self._handle, content) :]
        if synchronize:
            os.fsync(self._handle)


def synchronize(out: Matrix, tile: Tile) -> None:
    """Waits until a tile is on disk."""
    array = out.array
    if not isinstance(array, Sliced):
        cast("np.memmap[Any, Any]", map_of(array)).flush()
        return
    folder, sizes = cast("Path", _folder_of(array)), cast("tuple[int, ...]", array.chunks)
    spans = [tile.rows, tile.columns] if array.ndim == 2 else [(tile.batch, tile.batch + 1), tile.rows, tile.columns]
    numbers = [range(first // size, -(-last // size)) for (first, last), size in zip(spans, sizes, strict=True)]
    folders: set[Path] = set()  # in which chunks have got their names
    for place in every(*numbers):
        path = folder / cast("Any", array.value).metadata.encode_chunk_key(place)
        if path.exists():  # chunks of nothing but the fill value are not stored
            _synchronize(path)
            folders.update(parent for parent in path.parents if parent.is_relative_to(folder))
    _synchronize(*folders)


def _synchronize(*paths: Path) -> None:
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _folder_of(array: Sliced) -> Path | None:
    """The folder in which Zarr keeps an array; None where it is elsewhere."""
    root, path = getattr(getattr(array.value, "store", None), "root", None), getattr(array.value, "path", "")
    return Path(root) / path if root is not None and hasattr(array.value, "metadata") else None


def _check_kept(schedule: Schedule, operands: Operands) -> None:
    """Raises CheckpointError where a result cannot be kept as it is written, or an operand not be compared."""
    matrices = {"a": operands.a, "b": operands.b, "c": operands.c, "out": operands.out}
    for name, matrix in matrices.items():
        if matrix is not None and isinstance(matrix.array, Sliced) and is_hdf5(matrix.array.value):
            raise CheckpointError(
                f"{name} is a dataset of HDF5, which checkpoint= does not take: a process that is killed while it writes may "
                "leave the file unreadable, with all that was finished; use a memory map or a Zarr array"
            )
    out, problem = operands.out.array, schedule.problem
    for name in ("a", "b", "c"):
        matrix = matrices[name]
        if matrix is not None and may_share(matrix.array, out):
            raise CheckpointError(
                f"out must not be {name} with checkpoint=, whose values are needed to go on: use another"
            )
    if out.dtype != problem.output.numpy:
        raise CheckpointError(f"out must have the product's type {problem.output} with checkpoint=; got {out.dtype}")
    if not isinstance(out, Sliced):
        found = map_of(out)
        if found is None or found.mode not in ("r+", "w+"):
            raise CheckpointError(
                "out must be on disk with checkpoint=: a numpy.memmap of mode r+ or w+, a Zarr array in a folder, or None for "
                "a result.npy in the checkpoint; got an array in memory"
            )
        return
    if out.chunks is None or _folder_of(out) is None:
        raise CheckpointError("out must be a Zarr array in a local folder with checkpoint=: its chunks must be files")
    rows, columns = out.chunks[-2:]
    if (schedule.rows % rows and schedule.row_tiles > 1) or (schedule.columns % columns and schedule.column_tiles > 1):
        raise CheckpointError(
            f"out must have chunks that tiles of {schedule.rows} × {schedule.columns} are made of with checkpoint=; got chunks "
            f"of {rows} × {columns}: use smaller ones"
        )
    if out.ndim == 3 and out.chunks[0] != 1:
        raise CheckpointError(
            f"out must have chunks of one matrix each with checkpoint=; got chunks of {out.chunks[0]}"
        )


def _brief(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 300 else text[:300] + " …"
