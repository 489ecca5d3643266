"""Layouts of array views: read in place wherever rows or columns are contiguous, and through the layout the same elements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gemmport.core.layout import element_strides, matrices, readable_in_place
from gemmport.core.problem import ALLOCATION_ALIGNMENT, Layout


@st.composite
def slices(draw: st.DrawFn, extent: int) -> slice:
    step = draw(st.sampled_from([1, 1, 1, 2, 3, -1, -2]))
    ends = st.none() | st.integers(0, extent)
    return slice(draw(ends), draw(ends), step)


@st.composite
def views(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """A flat array whose elements are their own indices, and a view of two or three dimensions of it."""
    shape = draw(st.lists(st.integers(0, 6), min_size=2, max_size=3))
    offset = draw(st.integers(0, 3))
    flat = np.arange(offset + int(np.prod(shape)), dtype=draw(st.sampled_from([np.float32, np.float64])))
    view = flat[offset:].reshape(shape)
    for _ in range(draw(st.integers(0, 2))):
        view = view[tuple(draw(slices(extent)) for extent in view.shape)]
        view = view.transpose(draw(st.permutations(range(view.ndim))))
    if draw(st.booleans()):
        axis = draw(st.integers(0, view.ndim - 1))
        if view.shape[axis] == 1:
            view = np.broadcast_to(view, [4 if i == axis else n for i, n in enumerate(view.shape)])
    return flat, view


def offset_of(view: np.ndarray, flat: np.ndarray) -> int:
    """Of the view's first element, in elements."""
    return (
        (view.__array_interface__["data"][0] - flat.__array_interface__["data"][0]) // flat.itemsize if view.size else 0
    )


@given(views())
def test_a_layout_reads_exactly_the_elements_of_the_view(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    flat, view = arrays
    found = readable_in_place(view.shape, element_strides(view), offset_of(view, flat))
    assume(found is not None)
    layout, transposed = found
    stored = view.swapaxes(-1, -2) if transposed else view
    rows, columns = stored.shape[-2:]
    batch = view.shape[0] if view.ndim == 3 else 1
    read = matrices(flat, layout, rows, columns, batch)
    np.testing.assert_array_equal(read.reshape(stored.shape), stored)
    assert layout.ld >= max(columns, 1)
    assert layout.batch_stride >= 0


def has_layout(indices: np.ndarray) -> bool:
    """Whether a leading dimension of at least a row, and a batch stride of at least zero, lead to these indices in memory."""
    if indices.size == 0:
        return True
    matrices = indices.astype(int).reshape(-1, *indices.shape[-2:])
    batch, rows, columns = matrices.shape
    first = matrices[0, 0, 0]
    ld = matrices[0, 1, 0] - first if rows > 1 else columns
    stride = matrices[1, 0, 0] - first if batch > 1 else 0
    b, r, c = np.indices(matrices.shape)
    return ld >= columns and stride >= 0 and np.array_equal(matrices, first + b * stride + r * ld + c)


@given(views())
def test_a_view_is_refused_exactly_where_it_has_no_layout_and_its_transpose_has_none(
    arrays: tuple[np.ndarray, np.ndarray],
) -> None:
    flat, view = arrays
    found = readable_in_place(view.shape, element_strides(view), offset_of(view, flat))
    assert (found is not None) == (has_layout(view) or has_layout(view.swapaxes(-1, -2)))


@pytest.mark.parametrize(
    ("view", "layout", "transposed"),
    [
        (np.empty((5, 7)), Layout(7), False),
        (np.empty((5, 7)).T, Layout(7), True),
        (np.empty((5, 7), order="F"), Layout(5), True),
        (np.empty((5, 7))[:, :3], Layout(7), False),
        (np.empty((5, 7))[::2], Layout(14), False),
        (np.empty((5, 7))[::2].T, Layout(14), True),
        (np.empty((5, 7))[:, 2:3], Layout(7), False),
        (np.empty((5, 7))[2:3, ::2], Layout(2), True),
        (np.empty((5, 7))[2:3, 2:3], Layout(1), False),
        (np.empty((3, 5, 7)), Layout(7, 35), False),
        (np.empty((3, 5, 7)).transpose(1, 0, 2), Layout(35, 7), False),
        (np.empty((3, 5, 7)).swapaxes(1, 2), Layout(7, 35), True),
        (np.broadcast_to(np.empty((5, 7)), (3, 5, 7)), Layout(7, 0), False),
        (np.empty((3, 5, 7))[::-1][2:], Layout(7, 0), False),
        (np.empty((0, 7)), Layout(7), False),
        (np.empty((5, 0)), Layout(1), False),
    ],
)
def test_rows_or_columns_that_are_contiguous_are_read_in_place(
    view: np.ndarray, layout: Layout, transposed: bool
) -> None:
    assert readable_in_place(view.shape, element_strides(view)) == (layout, transposed)


@pytest.mark.parametrize(
    "view",
    [
        np.empty((5, 7))[:, ::2],
        np.empty((5, 7))[::2, ::2],
        np.empty((5, 7)).T[::2],
        np.empty((5, 7))[::-1],
        np.empty((5, 7))[:, ::-1],
        np.empty((3, 5, 7))[::-1],
        np.empty((3, 5, 7)).transpose(2, 1, 0)[:, ::2, ::2],
        np.broadcast_to(np.empty(7), (5, 7)),
        np.broadcast_to(np.empty((5, 1)), (5, 7)),
        np.lib.stride_tricks.sliding_window_view(np.empty(9), 4),
    ],
    ids=["columns", "both", "columns of the transpose", "reversed rows", "reversed columns", "reversed batch",
         "inner batch", "repeated row", "repeated column", "windows"],
)  # fmt: skip
def test_what_no_leading_dimension_describes_is_refused(view: np.ndarray) -> None:
    assert readable_in_place(view.shape, element_strides(view)) is None


def test_offset_and_alignment_are_handed_on() -> None:
    assert readable_in_place((2, 3), (3, 1), 5, base_alignment=4) == (Layout(3, 0, 5, 4), False)
    assert readable_in_place((3, 2), (1, 3), 5) == (Layout(3, 0, 5, ALLOCATION_ALIGNMENT), True)


@given(views())
def test_strides_are_counted_in_elements(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    _, view = arrays
    assert [step * view.itemsize for step in element_strides(view)] == list(view.strides)


def test_strides_that_are_no_whole_number_of_elements_are_none() -> None:
    records = np.zeros(4, dtype=[("value", "f8"), ("flag", "i1")])
    assert element_strides(records["value"].reshape(2, 2)) is None


def test_a_buffer_that_is_too_short_is_refused() -> None:
    layout = Layout(ld=4, batch_stride=20, offset=2)
    assert matrices(np.zeros(layout.span(3, 4, 2)), layout, 3, 4, 2).shape == (2, 3, 4)
    with pytest.raises(ValueError, match="needs more than 33 elements"):
        matrices(np.zeros(layout.span(3, 4, 2) - 1), layout, 3, 4, 2)


def test_matrices_are_a_view_that_may_be_written() -> None:
    flat = np.zeros(20)
    matrices(flat, Layout(ld=5, offset=1), 3, 2, 1)[...] = 1
    assert np.flatnonzero(flat).tolist() == [1, 2, 6, 7, 11, 12]
