"""Operands of `matmul` of all sorts, as Hypothesis draws them, and the comparison of what comes of them with NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

sizes = st.integers(0, 4)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of two operands that mostly fit together: vectors, matrices, stacks with dimensions left out, of size 1, or of size 0."""
    batch = draw(st.lists(sizes, max_size=3))
    m, k, n = draw(st.tuples(sizes, sizes, sizes))

    def operand(core: tuple[int, ...]) -> tuple[int, ...]:
        own = [size if draw(st.integers(0, 3)) else 1 for size in batch[draw(st.integers(0, len(batch))) :]]
        return (*own, *core)

    a = operand((m, k)) if draw(st.integers(0, 4)) else (k,)
    b = operand((k, n)) if draw(st.integers(0, 4)) else (k,)
    if not draw(st.integers(0, 5)):  # mostly no longer fitting
        a = draw(st.lists(sizes, max_size=5).map(tuple))
    return a, b


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Small whole numbers, as a view with strides of all sorts: sliced, reversed, transposed, repeated, unaligned, swapped."""
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from([1, 1, 1, 2, -1, -2, 0])) for _ in shape]
    held = [max(1, size * abs(step)) if step else 1 for size, step in zip(shape, steps, strict=True)]
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    kind = np.dtype(dtype).kind
    numbers = rng.integers(0 if kind in "bu" else -3, 2 if kind == "b" else 4, [held[axis] for axis in order])
    base = numbers.astype(dtype)
    if kind == "c":
        base = (base + 1j * rng.integers(-3, 4, base.shape)).astype(dtype)
    if kind != "O" and draw(st.integers(0, 5)) == 0:
        base = base.astype(base.dtype.newbyteorder())
    if kind != "O" and draw(st.integers(0, 5)) == 0:
        raw = np.zeros(base.nbytes + 1, np.uint8)[1:].view(base.dtype).reshape(base.shape)
        raw[...] = base
        base = raw
    view = base.transpose(np.argsort(order))
    for axis, (size, step) in enumerate(zip(shape, steps, strict=True)):
        if step:
            view = view[(slice(None),) * axis + (slice(None, None, step),)]
            view = view[(slice(None),) * axis + (slice(0, size),)]
        else:
            view = np.broadcast_to(view, [size if a == axis else n for a, n in enumerate(view.shape)])
    assert view.shape == shape
    return view


def outcome(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return function(*arguments, **options)
    except (TypeError, ValueError, OverflowError) as error:
        return error


def check(ours: Any, numpys: Any) -> None:
    """The same value of the same type, or errors of the same kind that begin alike."""
    if isinstance(numpys, Exception):
        kinds = [kind for kind in (TypeError, ValueError, OverflowError) if isinstance(numpys, kind)]
        assert isinstance(ours, tuple(kinds)), f"{ours!r} where NumPy says {numpys!r}"
        # Of several numbers that do not fit, NumPy names any.
        assert re.sub(r"-?\d+", "#", str(ours))[:25] == re.sub(r"-?\d+", "#", str(numpys))[:25]
        return
    assert not isinstance(ours, Exception), repr(ours)
    assert type(ours) is type(numpys)
    assert (np.shape(ours), np.asarray(ours).dtype) == (np.shape(numpys), np.asarray(numpys).dtype)
    np.testing.assert_array_equal(ours, numpys)
