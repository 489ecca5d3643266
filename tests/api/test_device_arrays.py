"""Device arrays as arrays: what NumPy and Python may ask of them, what they compute, and what they refuse by name."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from exact import integers


def numbers(*shape: int, dtype: Any = "float32") -> np.ndarray:
    return integers(shape, dtype, np.random.default_rng([*shape, 9]))


def same(found: Any, wanted: Any) -> None:
    """A device array of these numbers, of their type and shape."""
    assert isinstance(found, gp.DeviceArray)
    assert (found.shape, found.dtype) == (np.shape(wanted), np.asarray(wanted).dtype)
    np.testing.assert_array_equal(found.get(), wanted)


def moved(value: Any, backend: gp.Backend) -> Any:
    """The same argument on a device, where it is an array."""
    return backend.asarray(value) if isinstance(value, np.ndarray) else value


A, B, V, T, U = ((3, 4), (4, 5), (4,), (2, 3, 4), (4, 3, 2))

CONTRACTIONS: list[tuple[str, tuple[Any, ...]]] = [
    ("dot", (A, B)), ("dot", (V, V)), ("dot", (T, V)), ("dot", (T, B)),
    ("inner", (T, A)), ("outer", (A, V)), ("vdot", (V, V)), ("vdot", (A, A)),
    ("tensordot", (T, U, ([1, 2], [1, 0]))), ("tensordot", (T, U, ([0], [2]))),
    ("tensordot", (A, B, 1)), ("tensordot", (V, V, 0)),
    ("vecdot", (T, T)), ("vecdot", (T, V)), ("matvec", (T, V)), ("vecmat", (V, B)), ("matmul", (T, B)),
    ("einsum", ("ij,jk->ik", A, B)), ("einsum", ("ij,jk", A, B)), ("einsum", ("ij,ij->", A, A)), ("einsum", ("ij->ji", A)),
    ("einsum", ("ii->i", (3, 3))), ("einsum", ("ii", (3, 3))), ("einsum", ("iji,j->i", (3, 2, 3), (2,))),
    ("einsum", ("bij,jk->bik", T, B)), ("einsum", ("...ij,jk->...ik", T, B)),
    ("einsum", ("i...,i...->...", (2, 3, 1), (2, 1, 4))), ("einsum", ("ij,kl->ijkl", A, B)),
    ("einsum", ("bij,bkj->bik", T, T)), ("einsum", ("ij,j->", A, V)), ("einsum", ("ij->j", A)),
    ("einsum", ("ij,jk,kl->il", A, B, (5, 2))), ("einsum", ("i,j,ij", (3,), V, A)), ("einsum", ("ib,jb,kb->ijk", A, A, A)),
    ("einsum", (A, [0, 1], B, [1, 2], [0, 2])),
    ("einsum", ("ij,jk->ik", (0, 4), B)), ("einsum", ("ij,jk->ik", (3, 0), (0, 2))),
]  # fmt: skip
"""Of NumPy's functions, with shapes for arrays."""


@pytest.mark.parametrize(
    ("name", "given", "dtype"),
    [(*case, "float32") for case in CONTRACTIONS]
    + [(*case, "complex64") for case in CONTRACTIONS if case[0].startswith("v")]  # which conjugate
    + [(*case, "int32") for case in CONTRACTIONS[::8]],
    ids=lambda value: str(value).replace(" ", ""),
)
def test_what_sums_products_is_computed_on_the_device(
    best_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch, name: str, given: tuple[Any, ...], dtype: str
) -> None:
    if not hasattr(np, name):
        pytest.skip(beyond("this NumPy", f"it has no {name}"))
    arguments = [numbers(*x, dtype=dtype) if isinstance(x, tuple) and x and isinstance(x[0], int) else x for x in given]
    wanted = getattr(np, name)(*arguments)
    on_device = [moved(x, best_backend) for x in arguments]
    get = gp.DeviceArray.get
    monkeypatch.setattr(gp.DeviceArray, "get", None)  # nothing comes back to the host meanwhile
    found = getattr(np, name)(*on_device)
    monkeypatch.setattr(gp.DeviceArray, "get", get)
    same(found, wanted)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x: np.einsum("ij,jk->ik", x, x), "one size"),
        (lambda x: np.einsum("ijk->i", x), "3 labels|2 labels"),
        (lambda x: np.einsum("ij->iz", x), "labels of the operands"),
        (lambda x: np.einsum("ij,jk", x), "as many operands"),
        (lambda x: np.tensordot(x, x, ([0], [0, 1])), "as many dimensions"),
        (lambda x: np.tensordot(x, x, ([5], [0])), "axes must be"),
        (
            lambda x: np.vecdot(x, x, axis=3) if hasattr(np, "vecdot") else np.tensordot(x, x, ([5], [0])),
            "ax[ie]s must be",
        ),
        (lambda x: np.dot(x, x), "one size"),
    ],
)
def test_what_does_not_fit_is_refused(best_backend: gp.Backend, function: Callable[[Any], Any], told: str) -> None:
    with pytest.raises(gp.ShapeError, match=told):
        function(best_backend.asarray(numbers(3, 4)))


@pytest.mark.parametrize("on_the_left", [True, False])
@pytest.mark.parametrize("other", [lambda b: b, lambda b: b.tolist()], ids=["array", "list"])
def test_the_operator_takes_what_is_on_the_host(best_backend: gp.Backend, other: Any, on_the_left: bool) -> None:
    a, b = numbers(3, 4), numbers(4, 3)
    x = best_backend.asarray(a)
    same(x @ best_backend.asarray(b), a @ b)
    found = x @ other(b) if on_the_left else other(b) @ x
    np.testing.assert_array_equal(found.get(), a @ b if on_the_left else b @ a)
    with pytest.raises(TypeError, match="unsupported operand"):
        x @ 3


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "ufunc": (lambda x: np.add(x, x), gp.UnsupportedError, "numpy.add must"),
    "ufunc beside NumPy's": (lambda x: np.ones((3, 4)) * x, gp.UnsupportedError, "numpy.multiply must"),
    "method of a ufunc": (np.add.reduce, gp.UnsupportedError, "numpy.add.reduce must"),
    "function": (np.sum, gp.UnsupportedError, "numpy.sum must"),
    "function of linalg": (np.linalg.norm, gp.UnsupportedError, "numpy.linalg.norm must"),
    "sum": (lambda x: x + x, gp.UnsupportedError, r"^numpy.add must have .* copy it with get\(\)"),
    "number times": (lambda x: 2 * x, gp.UnsupportedError, r"^numpy.multiply must have .* copy it with get\(\)"),
    "negation": (operator.neg, gp.UnsupportedError, r"^numpy.negative must have .* copy it with get\(\)"),
    "in place": (lambda x: operator.iadd(x, 1), gp.UnsupportedError, r"^numpy.add must have .* copy it with get\(\)"),
    "equality": (lambda x: x == x, gp.UnsupportedError, "not compared"),  # noqa: PLR0124
    "order": (lambda x: x < 1, gp.UnsupportedError, "not compared"),
    "truth": (bool, gp.ShapeError, "must have one element"),
    "number": (float, gp.ShapeError, "must have one element"),
    "pickle": (pickle.dumps, gp.ArrayError, "not pickled"),
    "no copy": (lambda x: x.__array__(copy=False), ValueError, "only as a copy"),
    "text": (lambda x: x.backend.asarray(["a"]), gp.DtypeError, "elements must be numbers"),
    "objects": (lambda x: x.backend.asarray([object()]), gp.ArrayError, "must be an array of numbers"),
    "type of text": (lambda x: x.astype("U3"), gp.DtypeError, "must be numbers"),
    "fraction as a whole number": (lambda x: x.astype("int32").fill(1.5), gp.DtypeError, "convert it first"),
    "number beyond the type": (lambda x: x.astype("uint8").fill(300), gp.DtypeError, "must be from 0 to 255; got 300"),
    "number below the type": (lambda x: x.astype("uint8").__setitem__(0, -1), gp.DtypeError, "got -1"),
    "list of indices": (lambda x: x[[0, 1]], IndexError, "indexed by"),
    "mask": (lambda x: x[np.ones((3, 4), bool)], IndexError, "indexed by"),
    "beyond the end": (lambda x: x[3], IndexError, "out of bounds"),
    "set to another shape": (lambda x: x.set(np.ones(5)), gp.ShapeError, "is not set from"),
    "set to another shape of a device": (lambda x: x.set(x.backend.zeros(5, "float32")), gp.ShapeError, "is not set from"),
    "axes": (lambda x: x.transpose(0, 0), gp.ShapeError, "do not fit"),
    "mT of a vector": (lambda x: x[0].mT, gp.ShapeError, "two dimensions"),
    "another device": (lambda x: x.to_device("moon"), gp.ArrayError, "open backend"),
    "a stream": (lambda x: x.to_device("cpu", stream=1), gp.UnsupportedError, "must be None"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_computed_here_is_refused_by_name(best_backend: gp.Backend, case: str) -> None:
    function, error, told = REFUSED[case]
    with pytest.raises(error, match=told):
        function(best_backend.asarray(numbers(3, 4)))


def test_a_product_in_place_is_another_array(best_backend: gp.Backend) -> None:
    a = numbers(3, 4)
    x = y = best_backend.asarray(a)
    y @= a.T
    same(y, a @ a.T)
    same(x, a)


def test_numpy_reads_a_copy(best_backend: gp.Backend) -> None:
    """What compares, shows or saves numbers, and what takes anything for an array, sees all of them."""
    a = numbers(3, 4)
    x = best_backend.asarray(a)[::-1]
    copied = np.asarray(x)
    assert (copied.shape, copied.dtype) == (a.shape, a.dtype)
    np.testing.assert_array_equal(copied, a[::-1])
    copied[...] = 0
    np.testing.assert_array_equal(x, a[::-1])
    assert np.asarray(x, np.float64).dtype == np.float64
    assert np.array_equal(x, a[::-1])
    assert not np.allclose(x, 12345.0)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(x, 5.0)


def test_elements_are_arrays_without_dimensions(best_backend: gp.Backend) -> None:
    a = numbers(3, 4)
    x = best_backend.asarray(a)
    same(x[1, 2], a[1, 2])
    same(x[-1][0], a[-1, 0])
    assert [float(each) for each in x[1]] == a[1].tolist()
    assert (int(x[1, 2]), complex(x[1, 2]), bool(x[1, 2])) == (int(a[1, 2]), complex(a[1, 2]), bool(a[1, 2]))
    assert (x.tolist(), x[0, 0].item(), x[:1, :1].item()) == (a.tolist(), a[0, 0], a[0, 0])
    same(x[:, None, 1], a[:, None, 1])
    with pytest.raises(TypeError):
        iter(x[0, 0])


@pytest.mark.parametrize(
    "change",
    [
        lambda x, on: operator.setitem(x, 0, 7),
        lambda x, on: operator.setitem(x, (slice(1, None), 1), on(np.array([1, 2], np.int8))),
        lambda x, on: operator.setitem(x, (Ellipsis, slice(None, None, -2)), on(np.arange(2.0))),
        lambda x, on: operator.setitem(x, slice(1, None), x[:-1].copy()),
        lambda x, on: x.fill(2.5),
        lambda x, on: x[1:, 1:].fill(-1),
        lambda x, on: np.copyto(x, on(np.arange(4.0))),
    ],
)
@pytest.mark.parametrize("on_device", [True, False])
def test_parts_are_set(best_backend: gp.Backend, change: Callable[..., Any], on_device: bool) -> None:
    a = numbers(3, 4)
    x = best_backend.asarray(a)
    change(a, lambda values: values)
    change(x, best_backend.asarray if on_device else lambda values: values)
    same(x, a)


def test_a_part_is_set_to_another_that_it_overlaps(best_backend: gp.Backend) -> None:
    a = np.arange(5000, dtype=np.float32)
    x = best_backend.asarray(a)
    x[1:] = x[:-1]
    same(x, np.concatenate([a[:1], a[:-1]]))


@pytest.mark.parametrize("dtype", ["float64", "int8", "bool", "complex64", "float16"])
def test_types_are_converted_as_by_numpy(best_backend: gp.Backend, dtype: str) -> None:
    """To kinds that lose something too: fractions, imaginary parts."""
    a = np.array([[0, 1.75, -2.5], [3, -0.25, 100]], np.float32)
    same(best_backend.asarray(a).T.astype(dtype), a.T.astype(dtype))
    same(best_backend.asarray(a, dtype=dtype), a.astype(dtype))


def test_a_copy_is_another_array(best_backend: gp.Backend) -> None:
    a = numbers(3, 4)
    x = best_backend.asarray(a)
    for made in (x.copy(), copy.copy(x), copy.deepcopy(x), np.copy(x), x.astype("float32")):
        made.fill(0)
        same(x, a)
    assert x.astype("float32", copy=False) is x


def test_new_arrays_are_like_others(best_backend: gp.Backend) -> None:
    x = best_backend.asarray(numbers(3, 4))
    same(best_backend.ones((2, 3), "int8"), np.ones((2, 3), np.int8))
    same(best_backend.full(4, 2.5, "float32"), np.full(4, 2.5, np.float32))
    same(np.zeros_like(x), np.zeros((3, 4), np.float32))
    same(np.ones_like(x, dtype="int32"), np.ones((3, 4), np.int32))
    same(np.full_like(x, 3), np.full((3, 4), 3, np.float32))
    assert np.empty_like(x).shape == (3, 4)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "transpose": np.transpose,
    "transpose with axes": lambda x: np.transpose(x, (1, 2, 0)),
    "transpose method": lambda x: x.transpose(2, 0, 1),
    "swapaxes": lambda x: np.swapaxes(x, 0, -1),
    "moveaxis": lambda x: np.moveaxis(x, 0, -1),
    "reshape": lambda x: np.reshape(x, (6, -1)),
    "reshape that copies": lambda x: np.reshape(x.T, (6, -1)),
    "ravel": np.ravel,
    "expand_dims": lambda x: np.expand_dims(x, -1),
    "T": lambda x: x.T,
    "mT": lambda x: x.mT if hasattr(x, "mT") else np.swapaxes(x, -1, -2),
}


@pytest.mark.parametrize("view", VIEWS)
def test_views_are_as_numpys(best_backend: gp.Backend, view: str) -> None:
    a = numbers(2, 3, 4)
    same(VIEWS[view](best_backend.asarray(a)), VIEWS[view](a))


def test_an_array_tells_what_it_is(best_backend: gp.Backend) -> None:
    x = best_backend.asarray(numbers(3, 4))
    assert (x.nbytes, x.itemsize, x.device, np.shape(x), np.ndim(x), np.size(x)) == (
        48,
        4,
        best_backend.device,
        (3, 4),
        2,
        12,
    )
    assert repr(x) == f"<DeviceArray (3, 4) float32 on {x.device.backend} {x.device.platform}>"
    assert "strides=(1, 4)" in repr(x.T)
    assert "48 bytes" in x._repr_html_()
    assert np.result_type(x, np.float64) == np.float64
    assert np.shares_memory(x, x[1:])
    assert not np.shares_memory(x[:1], x[1:])
    assert x.to_device(best_backend) is x
    np.testing.assert_array_equal(x.to_device("cpu"), x.get())


def test_the_array_api_standards_names_are_there(best_backend: gp.Backend) -> None:
    a, b = numbers(2, 3, 4), numbers(2, 4, 5)
    x, y = best_backend.asarray(a), best_backend.asarray(b)
    xp = x.__array_namespace__()
    same(xp.matmul(x, y), a @ b)
    same(xp.tensordot(x, y, axes=([0, 2], [0, 1])), np.tensordot(a, b, ([0, 2], [0, 1])))
    same(xp.vecdot(x, x, axis=1), (a * a).sum(1))
    same(xp.permute_dims(x, (2, 0, 1)), a.transpose(2, 0, 1))
    same(xp.matrix_transpose(x), a.swapaxes(1, 2))
    same(xp.moveaxis(x, 0, 2), np.moveaxis(a, 0, 2))
    same(xp.expand_dims(x, axis=-1), a[..., None])
    same(xp.reshape(x.T, (6, 4)), a.T.reshape(6, 4))
    with pytest.raises(gp.ArrayError, match="only a copy"):
        xp.reshape(x.T, (6, 4), copy=False)
    same(xp.astype(x, xp.int32), a.astype(np.int32))
    assert xp.result_type(x, xp.float64) == np.float64
    assert xp.asarray(x) is x
    assert xp.asarray(x, copy=True).memory is not x.memory
    with pytest.raises(gp.ArrayError, match="must not be False"):
        xp.asarray(a, device=x.device, copy=False)
    same(xp.asarray(a, device=x.device), a)
    for name, wanted in (("zeros", 0), ("ones", 1)):
        same(getattr(xp, name)((2, 3), device=x.device), np.full((2, 3), wanted, np.float32))
        same(getattr(xp, f"{name}_like")(x, dtype=xp.int8), np.full(a.shape, wanted, np.int8))
    same(xp.full((2,), 7, dtype=xp.int32, device=x.device), np.full(2, 7, np.int32))
    same(xp.full_like(x, 7), np.full_like(a, 7))
    assert xp.empty(3, device=x.device).shape == (3,)
    assert xp.empty_like(x).shape == a.shape
