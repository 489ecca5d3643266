"""Chunks: what the operands' must have in common, how sums are cut into tasks, and sizes that suit a device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, TypeAlias

import dask.array as da
import numpy as np
import numpy.typing as npt

from gemmport.api.matmul import described_in_pieces
from gemmport.api.plans import Config, configuration_of
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import as_dtype, default_accumulator
from gemmport.core.errors import ParameterError, ShapeError
from gemmport.core.units import as_bytes
from gemmport.execution.selection import select_device

Label: TypeAlias = Any
Sizes: TypeAlias = tuple[int, ...]


def check_known(name: str, x: da.Array) -> None:
    """Raises ShapeError where Dask does not know how large chunks are, as after a selection by truth values."""
    if any(math.isnan(size) for sizes in x.chunks for size in sizes):
        raise ShapeError(
            f"{name} must have chunks of known sizes; got shape {x.shape}: call {name}.compute_chunk_sizes() first"
        )


def aligned(
    a: da.Array, labels_a: Sequence[Label], b: da.Array, labels_b: Sequence[Label]
) -> tuple[da.Array, da.Array]:
    """The operands, with the same chunks along what they share: those of who has more of them, of the larger if as many.

    So no chunk grows. What has to be cut is cut within its chunk, except where the cuts of one lie between the other's.
    """
    changed: dict[str, dict[int, Sizes]] = {"a": {}, "b": {}}
    for i, label in enumerate(labels_a):
        if label not in labels_b:
            continue
        j = labels_b.index(label)
        of_a, of_b = a.chunks[i], b.chunks[j]
        if of_a == of_b or a.shape[i] != b.shape[j]:  # one of size 1 repeats
            continue
        if (len(of_a), a.nbytes) >= (len(of_b), b.nbytes):
            changed["b"][j] = of_a
        else:
            changed["a"][i] = of_b
    return (
        a.rechunk(changed["a"]) if changed["a"] else a,
        b.rechunk(changed["b"]) if changed["b"] else b,
    )


# Chains

SIDE_BY_SIDE = 64
"""Tasks that need not wait for each other, where tiles alone are fewer. With more chains than workers, parts of tiles wait."""

SHARE = 8
"""The parts that a sum is cut into hold together at most one in so many bytes of what they are made of."""

TASK_BYTES = 256 * 2**20
"""Of chunks, two of Dask's usual 128 MiB: a worker holds all that a task takes, and each task costs a scheduler 1 ms (Dask's
documentation, "Best Practices")."""


def chain_count(tiles: int, panels: int, panel_bytes: int, tile_bytes: int) -> int:
    """In how many chains of tasks a tile's sum is computed.

    More than one where tiles are few, and small beside the panels that make them: as in Xᵀ · X of a tall X. It depends on the
    chunks alone, so that a product has the same bits on every cluster.
    """
    wanted = -(-SIDE_BY_SIDE // max(tiles, 1))
    cheap = panels * panel_bytes // (SHARE * max(tile_bytes, 1))
    return max(1, min(wanted, cheap, panels))


def parts(count: int, number: int) -> Iterator[range]:
    """0 … count - 1 in ranges that differ by one at most."""
    for part in range(number):
        yield range(part * count // number, (part + 1) * count // number)


def panels_per_task(panel_bytes: int) -> int:
    """How many chunks of A, with as many of B, one task takes."""
    return max(1, TASK_BYTES // max(panel_bytes, 1))


# Sizes

TASK_SECONDS = 0.1
"""That a task's product is to take: a hundred times what it costs the scheduler (see `TASK_BYTES`)."""

MEMORY_SHARE = 4
"""A task takes one in so many bytes of the memory: others run beside it, and chunks wait."""

ARRAYS_PER_TASK = 4
"""Chunks of A and B, and a tile before and after."""

STEP = 64
"""Chunks are multiples of this, which tiles of kernels divide, where the matrices are large enough."""


def chunks(
    shape_a: Sequence[int],
    shape_b: Sequence[int],
    dtype: npt.DTypeLike = "float32",
    *,
    device: str | int | DeviceInfo | None = None,
    backend: str | None = None,
    config: Config = None,
    memory: int | str | None = None,
    workers: int = 1,
) -> tuple[Sizes, Sizes]:
    """Sizes of chunks for `matmul` that suit a device, to be passed to `dask.array.from_array` or `rechunk`.

    A task multiplies square chunks for about 0.1 s at the rate that the device's model states, so that neither the scheduler
    nor what travels between workers counts; but four of them take at most a quarter of the memory.

    Args:
        shape_a, shape_b: of the operands, of which each has at least one dimension.
        dtype: of their elements.
        device, backend: of the workers, as of `gemmport.get_backend`; a `DeviceInfo` need not be here. Default: the best here.
        config: see `gemmport.plan`.
        memory: bytes that a worker may use for this, or a text such as "8GiB"; default: the device's, of a CPU its part.
        workers: chunks are smaller where they make fewer than two tasks per worker that need not wait for each other. Where k
            is much longer than the others, that is done for 32 workers; `chains` of `matmul` serves more.

    Returns:
        The size of chunks along each dimension of A and of B, the same along k.

    Raises:
        ShapeError, DtypeError: operands that cannot be multiplied. ParameterError: no memory, or no worker.
        DeviceNotFoundError, AmbiguousDeviceError, BackendUnavailableError: see `gemmport.get_backend`.
        ConfigError: see `gemmport.plan`.
    """
    if isinstance(workers, bool) or not isinstance(workers, Integral) or workers < 1:
        raise ParameterError(f"workers must be a whole number, 1 or more; got {workers!r}")
    kind = as_dtype(dtype)
    a, b = (Described(tuple(shape), kind.numpy) for shape in (shape_a, shape_b))
    described_in_pieces(a, b)
    target = select_device(device, backend)
    rate = configuration_of(config).model(target).rate(default_accumulator(kind, kind))
    usual = target.memory // (workers if target.type == "cpu" else 1)
    room = usual if memory is None else as_bytes("memory", memory)
    item = default_accumulator(kind, kind).itemsize
    most = max(1, min(room // (MEMORY_SHARE * ARRAYS_PER_TASK), target.max_allocation) // item)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    sizes = {"m": math.prod(a.shape[-2:-1]), "n": b.shape[-1] if b.ndim > 1 else 1, "k": a.shape[-1]}
    sides = {label: _even(sizes[label], side) for label, side in _box(sizes, rate * TASK_SECONDS, most).items()}
    while _tasks(sizes, sides) * math.prod(batch) < 2 * workers:
        halved = [
            {**sides, label: _even(sizes[label], -(-sides[label] // 2))} for label in "mnk" if sides[label] > STEP
        ]
        best = max(halved, key=lambda each: (_tasks(sizes, each), sum(each.values())), default=sides)
        if _tasks(sizes, best) <= _tasks(sizes, sides) and (best is sides or _tasks(sizes, sides) >= SIDE_BY_SIDE):
            break
        sides = best
    rows, columns, depth = sides["m"], sides["n"], sides["k"]
    in_stack = min(
        rate * TASK_SECONDS / (rows * columns * depth), most / max(rows * columns, rows * depth, depth * columns)
    )
    stack = max(1, int(in_stack))
    of_batch = _of_stack(batch, stack)
    lead_a, lead_b = (
        tuple(min(size, own) for size, own in zip(x.shape[:-2], of_batch[len(of_batch) - len(x.shape[:-2]) :], strict=True))
        for x in (a, b)
    )  # fmt: skip
    return (
        (*lead_a, *([rows] if a.ndim > 1 else []), depth),
        (*lead_b, depth, *([columns] if b.ndim > 1 else [])),
    )


class Described:
    """What is known of an operand that is not here."""

    def __init__(self, shape: Sizes, dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype, self.ndim = shape, dtype, len(shape)


def suited(a: da.Array, b: da.Array, options: Mapping[str, Any]) -> tuple[da.Array, da.Array]:
    """The operands in the chunks that `chunks` proposes; `options` are its arguments."""
    of_a, of_b = chunks(a.shape, b.shape, np.result_type(a.dtype, b.dtype), **options)
    return a.rechunk(of_a), b.rechunk(of_b)


def _even(size: int, most: int) -> int:
    """The chunk that cuts a size evenly, in multiples of `STEP`, and is about as large as may be."""
    most = max(1, most)
    if size <= most:
        return max(size, 1)
    even = -(-size // -(-size // most))
    stepped = -(-even // STEP) * STEP
    return stepped if stepped <= most else max(most // STEP * STEP, 1) if most >= STEP else most


def _box(sizes: Mapping[str, int], volume: float, most: int) -> dict[str, int]:
    """Sides of a box of a volume, a cube where sizes allow it, none of whose faces has more than so many elements."""
    sides: dict[str, int] = {}
    left = volume
    for number, (label, size) in enumerate(sorted(sizes.items(), key=lambda item: item[1])):
        sides[label] = max(1, min(size, round(left ** (1 / (3 - number)))))
        left /= sides[label]
    for first, second in ("mk", "kn", "mn"):
        if sides[first] * sides[second] > most:
            longer, shorter = sorted((first, second), key=sides.__getitem__, reverse=True)
            sides[longer] = max(1, most // sides[shorter], math.isqrt(most))
            sides[shorter] = max(1, min(sides[shorter], most // sides[longer]))
    return sides


def _tasks(sizes: Mapping[str, int], sides: Mapping[str, int]) -> int:
    """That need not wait for each other."""
    counts = {label: -(-size // sides[label]) for label, size in sizes.items()}
    tiles, tile = counts["m"] * counts["n"], sides["m"] * sides["n"]
    return tiles * chain_count(tiles, counts["k"], sides["k"] * (sides["m"] + sides["n"]), tile)


def _of_stack(batch: Sizes, most: int) -> Sizes:
    """Chunks of the dimensions of a batch that hold at most so many matrices, from the last dimension on."""
    found: list[int] = []
    for size in reversed(batch):
        own = max(1, min(size, most))
        found.insert(0, own)
        most = most // own if own == size else 1
    return tuple(found)
