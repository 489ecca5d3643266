"""Sums of products over named dimensions, each as one call of `matmul`: einsum, tensordot and their kin.

A dimension of two operands is, by where its label stands,

| in A | in B | in the result | it is |
|---|---|---|---|
| × | × | × | of the batch |
| × | × |   | summed: along k |
| × |   | × | of the rows |
|   | × | × | of the columns |
| × |   |   | summed before, by a product with ones |

Views put dimensions in order and join them where strides can say it; otherwise an operand is copied on its device.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_letters
from typing import Any

import numpy as np

from gemmport.api.matmul import product_by_rules
from gemmport.api.precision import current
from gemmport.api.product import Choice
from gemmport.api.views import Array, moved, permuted, view, with_axis
from gemmport.backends.array import DeviceArray, as_numpy, check_plain, element_type
from gemmport.core.errors import ArrayError, ShapeError
from gemmport.core.precision import FULL
from gemmport.execution.copies import dense_copy

Label = Hashable


@dataclass(frozen=True)
class Labelled:
    """An array and a label for each of its dimensions, none twice."""

    array: Array
    labels: tuple[Label, ...]

    @classmethod
    def of(cls, array: Array, labels: Sequence[Label]) -> Labelled:
        """An array with its labels; along dimensions of one label, its diagonal.

        Raises:
            ShapeError: there are not as many labels as dimensions, or dimensions of one label are of several sizes.
        """
        if len(labels) != array.ndim:
            raise ShapeError(f"an operand of shape {array.shape} must have {array.ndim} labels; got {len(labels)}")
        steps: dict[Label, int] = {}
        for label, step in zip(labels, array.strides, strict=True):
            steps[label] = steps.get(label, 0) + step
        sizes = common_sizes([(labels, array.shape)])
        return cls(view(array, [sizes[label] for label in steps], list(steps.values())), tuple(steps))

    @property
    def sizes(self) -> dict[Label, int]:
        """Of each label."""
        return dict(zip(self.labels, self.array.shape, strict=True))

    def ordered(self, labels: Sequence[Label]) -> Labelled:
        """With its dimensions in the order of these labels, which are its own."""
        return Labelled(permuted(self.array, [self.labels.index(label) for label in labels]), tuple(labels))

    def summed(self, labels: Sequence[Label]) -> Labelled:
        """The sums over some labels: a product with ones."""
        if not labels:
            return self
        kept = [label for label in self.labels if label not in labels]
        sizes = self.sizes
        count = math.prod(sizes[label] for label in labels)
        extents = tuple(sizes[label] for label in kept)
        table = reshaped(self.ordered([*kept, *labels]).array, (math.prod(extents), count))
        if isinstance(table, DeviceArray):
            ones: Array = table.backend.ones(count, table.dtype)
        else:
            ones = np.ones(count, table.dtype)
        return Labelled(reshaped(_product(table, ones, Choice(precision=FULL)), extents), tuple(kept))


def common_sizes(named: Sequence[tuple[Sequence[Label], Sequence[int]]]) -> dict[Label, int]:
    """The size of each label.

    Raises:
        ShapeError: one has two.
    """
    sizes: dict[Label, int] = {}
    for labels, shape in named:
        for label, size in zip(labels, shape, strict=True):
            if sizes.setdefault(label, size) != size:
                raise ShapeError(
                    f"dimensions of one label must be of one size; got {sizes[label]} and {size} for {label!r}"
                )
    return sizes


def contract(a: Labelled, b: Labelled, result: Sequence[Label], *, conjugated: bool = False) -> Array:
    """The products of the elements of A and B, summed over all labels that are not the result's.

    Args:
        result: labels of A or B, each once. conjugated: whether A's conjugates are taken.

    Raises:
        ShapeError: sizes of one label differ.
    """
    sizes = common_sizes([(a.labels, a.array.shape), (b.labels, b.array.shape)])
    a = a.summed([label for label in a.labels if label not in b.labels and label not in result])
    b = b.summed([label for label in b.labels if label not in a.labels and label not in result])
    batch = [label for label in result if label in a.labels and label in b.labels]
    rows = [label for label in result if label not in b.labels]
    columns = [label for label in result if label not in a.labels]
    along = [label for label in a.labels if label in b.labels and label not in result]
    extents = {kind: tuple(sizes[label] for label in labels) for kind, labels in
               (("batch", batch), ("rows", rows), ("along", along), ("columns", columns))}  # fmt: skip
    m, k, n = (math.prod(extents[kind]) for kind in ("rows", "along", "columns"))
    left = reshaped(a.ordered([*batch, *rows, *along]).array, (*extents["batch"], m, k))
    right = reshaped(b.ordered([*batch, *along, *columns]).array, (*extents["batch"], k, n))
    product = reshaped(
        _product(left, right, conjugated=conjugated), (*extents["batch"], *extents["rows"], *extents["columns"])
    )
    return Labelled(product, (*batch, *rows, *columns)).ordered(result).array


def _product(a: Array, b: Array, choice: Choice | None = None, *, conjugated: bool = False) -> Any:
    """The product, by default of the precision of the context around it."""
    choice = choice or Choice(within=current())
    if conjugated and a.dtype.kind == "c":
        if isinstance(a, DeviceArray):
            return product_by_rules(a, b, None, {}, {"trans_a": "R", "choice": choice})
        a = a.conj()
    return product_by_rules(a, b, None, {}, {"choice": choice})


def reshaped(x: Any, shape: tuple[int, ...]) -> Array:
    """The elements in another shape: a view where one has it, else a copy."""
    if not isinstance(x, DeviceArray):
        return np.asarray(x).reshape(shape)
    try:
        return x.reshape(shape)
    except ArrayError:
        return dense_copy(x, x.dtype, queue=x.queue).reshape(shape)


# NumPy's functions


def summed_pairs(a: Any, b: Any, axes: Any) -> list[tuple[int, int]]:
    """Which dimensions of A and of B `numpy.tensordot` sums over, of arrays of which `shape` and `ndim` are known.

    Raises:
        ShapeError: axes that the operands do not have.
    """
    if isinstance(axes, int | np.integer):
        pairs = [*zip(range(a.ndim - int(axes), a.ndim), range(int(axes)), strict=True)]
    else:
        of_a, of_b = ([x] if isinstance(x, int | np.integer) else list(x) for x in axes)
        if len(of_a) != len(of_b):
            raise ShapeError(f"axes must name as many dimensions of A as of B; got {axes}")
        pairs = [*zip(of_a, of_b, strict=True)]
    if any(not -a.ndim <= i < a.ndim or not -b.ndim <= j < b.ndim for i, j in pairs):
        raise ShapeError(f"axes must be dimensions of the operands, of shapes {a.shape} and {b.shape}; got {axes}")
    return pairs


def tensordot(a: Array, b: Array, axes: Any = 2) -> Array:
    """As `numpy.tensordot`.

    Raises:
        ShapeError: axes that the operands do not have, or of unlike sizes.
    """
    pairs = summed_pairs(a, b, axes)
    labels_a: list[Label] = [("a", i) for i in range(a.ndim)]
    labels_b: list[Label] = [("b", j) for j in range(b.ndim)]
    for number, (i, j) in enumerate(pairs):
        labels_a[i] = labels_b[j] = number
    summed = range(len(pairs))
    result = [label for label in (*labels_a, *labels_b) if label not in summed]
    return contract(Labelled.of(a, labels_a), Labelled.of(b, labels_b), result)


def dot(a: Array, b: Array) -> Array:
    """As `numpy.dot` of arrays of one dimension or more.

    Raises:
        ShapeError: an operand without dimensions, or sizes that do not fit.
    """
    _check_dimensions("dot", a, b)
    return tensordot(a, b, (-1, -2 if b.ndim > 1 else -1))


def inner(a: Array, b: Array) -> Array:
    """As `numpy.inner` of arrays of one dimension or more; errors as `dot`."""
    _check_dimensions("inner", a, b)
    return tensordot(a, b, (-1, -1))


def outer(a: Array, b: Array) -> Array:
    """As `numpy.outer`."""
    return tensordot(reshaped(a, (a.size,)), reshaped(b, (b.size,)), 0)


def vdot(a: Array, b: Array) -> Array:
    """As `numpy.vdot`: of all elements, those of A conjugated; errors as `vecdot`."""
    return vecdot(reshaped(a, (a.size,)), reshaped(b, (b.size,)))


def vecdot(a: Array, b: Array, *, axis: int = -1) -> Array:
    """As `numpy.vecdot`: along one dimension, the elements of A conjugated; the others broadcast.

    Raises:
        ShapeError: an operand without dimensions, or sizes that do not fit.
    """
    _check_dimensions("vecdot", a, b)
    for x in (a, b):
        if not -x.ndim <= axis < x.ndim:
            raise ShapeError(f"axis must be a dimension of each operand; got {axis} for shape {x.shape}")
    a, b = (moved(x, [axis], [-1]) for x in (a, b))
    product = _product(with_axis(a, a.ndim - 1), with_axis(b, b.ndim), conjugated=True)
    return reshaped(product, product.shape[:-2])


def matvec(a: Array, b: Array) -> Array:
    """As `numpy.matvec`: matrices by vectors, whose other dimensions broadcast; errors as `vecdot`."""
    _check_dimensions("matvec", b)
    product = _product(a, with_axis(b, b.ndim))
    return reshaped(product, product.shape[:-1])


def vecmat(a: Array, b: Array) -> Array:
    """As `numpy.vecmat`: conjugated vectors by matrices, whose other dimensions broadcast; errors as `vecdot`."""
    _check_dimensions("vecmat", a)
    product = _product(with_axis(a, a.ndim - 1), b, conjugated=True)
    return reshaped(product, (*product.shape[:-2], product.shape[-1]))


def as_operand(x: Any) -> Array:
    """An operand of a function of NumPy's beside an array on a device, as one that is read.

    Raises:
        ShapeError, ArrayError: it is not an array. DtypeError: its elements are not numbers.
    """
    if isinstance(x, DeviceArray | np.ndarray):
        return x
    check_plain("operand", x)
    host = as_numpy("operand", x)
    element_type(host.dtype)
    return host


def _check_dimensions(name: str, *arrays: Array) -> None:
    for x in arrays:
        if not x.ndim:
            raise ShapeError(f"{name} on a device must have operands of one dimension or more; got a number")


def einsum(*arguments: Any, optimize: Any = True) -> Array:
    """As `numpy.einsum` of arrays, of which pairs are contracted in the order of `numpy.einsum_path`.

    Args:
        arguments: subscripts such as "ij,jk->ik" and operands; or operands, each before a list of its labels, and a list of the
            result's labels. Dimensions of an ellipsis broadcast.
        optimize: as `numpy.einsum_path`.

    Raises:
        ShapeError: subscripts that do not fit the operands, or each other.
    """
    subscripts, result, arrays = _parsed(arguments)
    operands = _named(subscripts, arrays)
    common_sizes([(x.labels, x.array.shape) for x in operands])
    ellipsis = sorted({label for x in operands for label in x.labels if isinstance(label, tuple)})
    if result is None:  # what stands once, in alphabetical order
        letters = "".join(map(_letters, subscripts))
        wanted: list[Label] = [*ellipsis, *(letter for letter in sorted({*letters}) if letters.count(letter) == 1)]
    else:
        before, dots, after = result.partition("...")
        wanted = [*before, *(ellipsis if dots else ()), *after]
    known = {label for x in operands for label in x.labels}
    if len(set(wanted)) != len(wanted) or not known.issuperset(wanted):
        raise ShapeError(f"the result of einsum must have labels of the operands, each once; got {result!r}")
    for first, second in _pairs(operands, wanted, optimize):
        a, b = operands[first], operands[second]
        operands = [x for number, x in enumerate(operands) if number not in (first, second)]
        needed = {*wanted, *(label for x in operands for label in x.labels)}
        kept = [label for label in dict.fromkeys((*a.labels, *b.labels)) if label in needed]
        operands.append(Labelled(contract(a, b, kept if operands else wanted), tuple(kept if operands else wanted)))
    (last,) = operands
    return last.summed([label for label in last.labels if label not in wanted]).ordered(wanted).array


def _letters(subscripts: str) -> str:
    return subscripts.replace("...", "")


def _parsed(arguments: Sequence[Any]) -> tuple[list[str], str | None, list[Array]]:
    """The labels of each operand, those of the result where they are told, and the operands."""
    if isinstance(arguments[0], str):
        text = arguments[0].replace(" ", "")
        left, arrow, right = text.partition("->")
        subscripts, arrays = left.split(","), list(arguments[1:])
        if not all(letter.isalpha() for letter in _letters(left + right).replace(",", "")):
            raise ShapeError(f"subscripts must be letters, commas, an ellipsis and ->; got {arguments[0]!r}")
        result = right if arrow else None
    else:
        lists = [_in_letters(labels) for labels in arguments[1::2]]
        arrays = list(arguments[: 2 * (len(arguments) // 2) : 2])
        subscripts, result = lists, _in_letters(arguments[-1]) if len(arguments) % 2 else None
    if len(subscripts) != len(arrays):
        raise ShapeError(f"einsum must have as many operands as subscripts; got {len(arrays)} and {len(subscripts)}")
    return subscripts, result, [as_operand(x) for x in arrays]


def _in_letters(labels: Sequence[Any]) -> str:
    return "".join("..." if label is Ellipsis else ascii_letters[label] for label in labels)


def _named(subscripts: Sequence[str], arrays: Sequence[Array]) -> list[Labelled]:
    """Operands with their labels. A dimension of an ellipsis is a number from the last; one of size 1 is left out where it
    repeats.
    """
    names: list[list[Label]] = []
    most: dict[Label, int] = {}
    for text, x in zip(subscripts, arrays, strict=True):
        before, dots, after = text.partition("...")
        inside = x.ndim - len(before) - len(after) if dots else 0
        labels: list[Label] = [*before, *((-i,) for i in range(inside, 0, -1)), *after]
        names.append(labels)
        for label, size in zip(labels, x.shape, strict=False):
            if isinstance(label, tuple):
                most[label] = max(most.get(label, 1), size) if size else 0
    return [Labelled.of(*_unrepeated(x, labels, most)) for labels, x in zip(names, arrays, strict=True)]


def _unrepeated(x: Array, labels: Sequence[Label], most: Mapping[Label, int]) -> tuple[Array, Sequence[Label]]:
    if len(labels) != x.ndim:  # which is refused
        return x, labels
    kept = [i for i, label in enumerate(labels) if x.shape[i] == most.get(label, x.shape[i])]
    return view(x, [x.shape[i] for i in kept], [x.strides[i] for i in kept]), [labels[i] for i in kept]


def _pairs(operands: Sequence[Labelled], result: Sequence[Label], optimize: Any) -> Iterator[tuple[int, int]]:
    """The numbers of two operands, which then stand as one behind the others, until one is left."""
    letters = dict(zip(dict.fromkeys(label for x in operands for label in x.labels), ascii_letters, strict=False))
    text = ",".join("".join(letters[label] for label in x.labels) for x in operands)
    text += "->" + "".join(letters[label] for label in result)
    stand_ins = [np.broadcast_to(np.int8(0), x.array.shape) for x in operands]
    for step in np.einsum_path(text, *stand_ins, optimize=optimize)[0][1:]:
        together = sorted(step)
        for _ in together[1:]:
            yield together[0], together[1]
            # What was made of them is the last; those between have moved up.
            together = [number - 2 for number in together[2:]]
            together.append(len(operands) - 2)
            operands = operands[:-1]
