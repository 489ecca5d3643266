"""What is to be computed: D = alpha · op(A) · op(B) + beta · C, for a batch of row-major matrices. No word of devices."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Hashable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, cast, get_args

import numpy as np

from gemmport.core.dtypes import FLOAT32, DType, as_dtype, check_types, default_accumulator, default_output
from gemmport.core.errors import DtypeError, ShapeError
from gemmport.core.precision import FULL, rounded_to

Op = Literal["N", "T", "C", "R"]
"""As it is stored, transposed, conjugate-transposed (BLAS), or conjugated alone (R, as in omatcopy of MKL and OpenBLAS): what
the conjugate transpose of a matrix that is stored transposed needs. Without imaginary parts C is T, and R is N."""

OPS: tuple[Op, ...] = get_args(Op)

MAX_EXTENT = 2**31 - 2**16
"""Largest m, n or k: kernels count rows and columns in 32 bits, and the last tile may reach beyond the edge by less than
2¹⁶. Element indices are 64 bits wide."""

ALLOCATION_ALIGNMENT = 128
"""Bytes to which every backend aligns its own allocations (OpenCL: CL_DEVICE_MEM_BASE_ADDR_ALIGN is at least the size of
long16; CUDA: 256)."""


def alignment_of(address: int) -> int:
    """Bytes to which an address is aligned: a power of two, at most that of an allocation, beyond which no plan differs."""
    return min(address & -address, ALLOCATION_ALIGNMENT) or ALLOCATION_ALIGNMENT


Scalar = complex | float | int
"""Alpha or beta: complex, real or whole as the product is."""


def transposes(op: Op) -> bool:
    """Whether an op exchanges rows and columns."""
    return op in ("T", "C")


def transposed(op: Op) -> Op:
    """The op that does to the transposed matrix what this one does to the matrix."""
    exchanged: dict[Op, Op] = {"N": "T", "T": "N", "C": "R", "R": "C"}
    return exchanged[op]


def as_op(value: object) -> Op:
    """The `Op` that "N", "T", "C" or "R" in either case, or a bool (True: transposed), stands for.

    Raises:
        ShapeError: it is something else.
    """
    if isinstance(value, bool):
        return "T" if value else "N"
    text = str(value).upper()
    if text not in OPS:
        raise ShapeError(f"transposition {value!r} is not known: it is one of {', '.join(OPS)}")
    return text


@dataclass(frozen=True)
class Layout:
    """How one batch of row-major matrices lies in memory, counted in elements.

    Attributes:
        ld: leading dimension, the distance from one stored row to the next.
        batch_stride: distance from one matrix of the batch to the next; 0 broadcasts one matrix.
        offset: of the first element from the start of the memory.
        base_alignment: bytes to which the memory itself is aligned.
    """

    ld: int
    batch_stride: int = 0
    offset: int = 0
    base_alignment: int = ALLOCATION_ALIGNMENT

    def alignment(self, itemsize: int) -> int:
        """The largest power of two, in bytes, to which every stored row of every matrix is aligned."""
        return math.gcd(self.base_alignment, *(itemsize * x for x in (self.ld, self.batch_stride, self.offset)))

    def span(self, rows: int, columns: int, batch: int) -> int:
        """Elements from the start of the memory to one past the last that is used."""
        if 0 in (rows, columns, batch):
            return self.offset
        return self.offset + (batch - 1) * self.batch_stride + (rows - 1) * self.ld + columns


@dataclass(frozen=True, eq=False)
class GemmProblem:
    """One matrix product. Build it with `GemmProblem.create`, which fills in dense layouts.

    Two are equal where every attribute is; of alpha and beta, 0.0 and -0.0 differ, and NaN is equal to itself (`scalar_key`).

    Attributes:
        m, n, k: op(A) is m × k, op(B) is k × n, C and D are m × n.
        batch: how many products of these sizes.
        dtype: of A and B; `accumulator`: of the sums, alpha and beta; `output`: of C and D. Elements are converted as they are
            loaded and stored, so that narrow inputs may have a wide output.
        trans_a, trans_b: op(A) and op(B).
        alpha, beta: with beta = 0, C is not read; with alpha = 0, A and B are not.
        a, b, c, d: where the operands lie. D may be C itself (the in-place update of BLAS).
        precision: to which A and B are rounded before they are multiplied, of `gemmport.core.precision`; "full": to none.
    """

    m: int
    n: int
    k: int
    batch: int
    dtype: DType
    accumulator: DType
    output: DType
    trans_a: Op
    trans_b: Op
    alpha: Scalar
    beta: Scalar
    a: Layout
    b: Layout
    c: Layout
    d: Layout
    precision: str = FULL

    @classmethod
    def create(
        cls,
        m: int,
        n: int,
        k: int,
        *,
        batch: int = 1,
        dtype: object = FLOAT32,
        output: object = None,
        accumulator: object = None,
        trans_a: object = "N",
        trans_b: object = "N",
        alpha: object = 1,
        beta: object = 0,
        a: Layout | None = None,
        b: Layout | None = None,
        c: Layout | None = None,
        d: Layout | None = None,
        precision: object = FULL,
    ) -> GemmProblem:
        """A checked problem; a layout that is not given is dense.

        Args:
            output: default `dtype`, so that integers wrap as NumPy's do; of a float8 float32.
            accumulator: default float32 for halves, 32 or 64 bits for integers, else the output's type.
            precision: "tf32", "float16" or "bfloat16" for operands of float32 or complex64; one that has all numbers of the
                operands' type is "full".

        Raises:
            ShapeError: a size is not a whole number, negative or beyond `MAX_EXTENT`, a leading dimension is shorter than a
                row, a stride or offset is negative, or matrices of the batch of D overlap.
            DtypeError: unsupported data types, types that do not go together (`gemmport.core.dtypes.check_types`), a precision
                that operands of the type are not rounded to, or an alpha or beta that is not a number of the product's kind.
            UnknownNameError: no such precision.
        """
        m, n, k, batch = (check_size(name, value) for name, value in (("m", m), ("n", n), ("k", k), ("batch", batch)))
        inputs = as_dtype(dtype)
        outputs = default_output(inputs) if output is None else as_dtype(output)
        sums = default_accumulator(inputs, outputs) if accumulator is None else as_dtype(accumulator)
        check_types(inputs, sums, outputs, asked=accumulator)
        op_a, op_b = as_op(trans_a), as_op(trans_b)
        shapes = {"a": _stored(m, k, op_a), "b": _stored(k, n, op_b), "c": (m, n), "d": (m, n)}
        layouts = {
            name: layout or Layout(ld=max(shapes[name][1], 1), batch_stride=shapes[name][0] * shapes[name][1])
            for name, layout in (("a", a), ("b", b), ("c", c), ("d", d))
        }
        for name, layout in layouts.items():
            _check_layout(name, layout, shapes[name], batch, written=name == "d")
        return cls(
            m=m, n=n, k=k, batch=batch, dtype=inputs, accumulator=sums, output=outputs, trans_a=op_a, trans_b=op_b,
            alpha=_as_scalar("alpha", alpha, sums), beta=_as_scalar("beta", beta, sums), **layouts,
            precision=rounded_to(precision, inputs),
        )  # fmt: skip

    @cached_property
    def _key(self) -> tuple[Hashable, ...]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return tuple({**values, "alpha": scalar_key(self.alpha), "beta": scalar_key(self.beta)}.values())

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, GemmProblem) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def empty(self) -> bool:
        """Whether D has no elements, so that there is nothing to do."""
        return 0 in (self.m, self.n, self.batch)

    @property
    def effective_k(self) -> int:
        """Terms per sum: none where alpha = 0, since A and B are then not read (BLAS)."""
        return self.k if self.alpha != 0 else 0

    @property
    def flops(self) -> int:
        """Operations: a multiplication and an addition per term, four of each where it is complex."""
        return (8 if self.accumulator.kind == "complex" else 2) * self.m * self.n * self.k * self.batch

    @property
    def bytes(self) -> int:
        """The least bytes to move: A and B read once, D written once, and C read where beta is not 0."""
        inputs = (self.m * self.k + self.k * self.n) * self.dtype.itemsize
        outputs = self.m * self.n * self.output.itemsize * (2 if self.beta != 0 else 1)
        return (inputs + outputs) * self.batch

    @property
    def intensity(self) -> float:
        """Arithmetic intensity, in flops per byte."""
        return self.flops / self.bytes if self.bytes else 0.0

    @property
    def ops(self) -> str:
        """op(A) and op(B) as in BLAS: "NN", "NT", "TC", …"""
        return self.trans_a + self.trans_b

    @property
    def shape_class(self) -> ShapeClass:
        """The class that a configuration entry can name; see `ShapeClass`."""
        if self.empty or self.effective_k == 0:
            return "empty"
        if min(self.m, self.n) == 1:
            return "vector"
        work = self.m * self.n * self.k
        if work <= 256**3:
            return "small"
        if min(self.m, self.n, self.k) * 16 <= max(self.m, self.n, self.k):
            return "skinny"
        return "medium" if work <= 1536**3 else "large"

    def stored_shape(self, operand: Literal["a", "b", "c", "d"]) -> tuple[int, int]:
        """Rows and columns of an operand as it is stored, before its op."""
        if operand == "a":
            return _stored(self.m, self.k, self.trans_a)
        if operand == "b":
            return _stored(self.k, self.n, self.trans_b)
        return self.m, self.n

    def layout(self, operand: Literal["a", "b", "c", "d"]) -> Layout:
        """The layout of an operand by its name."""
        return cast("Layout", getattr(self, operand))

    def element_type(self, operand: Literal["a", "b", "c", "d"]) -> DType:
        """The data type that an operand is stored in."""
        return self.dtype if operand in ("a", "b") else self.output

    def span(self, operand: Literal["a", "b", "c", "d"]) -> int:
        """Elements of memory that an operand needs, its offset included."""
        return self.layout(operand).span(*self.stored_shape(operand), self.batch)

    def reads(self, operand: Literal["a", "b", "c", "d"]) -> bool:
        """Whether an operand is read: A and B where there are terms to sum, C where beta is not 0."""
        return {"a": self.effective_k > 0, "b": self.effective_k > 0, "c": self.beta != 0, "d": False}[operand]

    def alignment(self, operand: Literal["a", "b", "c", "d"]) -> int:
        """Bytes to which every stored row of an operand is aligned; a power of two."""
        return self._alignments[operand]

    @cached_property
    def _alignments(self) -> dict[Operand, int]:
        """Predictions ask for them again with each tiling."""
        return {operand: self.layout(operand).alignment(self.element_type(operand).itemsize) for operand in OPERANDS}

    def with_scalars(self, alpha: object, beta: object) -> GemmProblem:
        """The same product with other scalars."""
        sums = self.accumulator
        return replace(self, alpha=_as_scalar("alpha", alpha, sums), beta=_as_scalar("beta", beta, sums))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `from_dict` reads it back."""
        out: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, DType):
                value = value.name
            elif isinstance(value, Layout):
                value = {f.name: getattr(value, f.name) for f in fields(value)}
            elif isinstance(value, complex):
                value = [value.real, value.imag]
            out[field.name] = value
        return out

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> GemmProblem:
        """The problem that `to_dict` wrote.

        Raises:
            ShapeError, DtypeError: it has been changed into one that `create` refuses.
        """
        layouts = {name: Layout(**data[name]) for name in ("a", "b", "c", "d")}
        scalars = {key: complex(*data[key]) if isinstance(data[key], list) else data[key] for key in ("alpha", "beta")}
        return cls.create(**{**data, **layouts, **scalars})

    @property
    def types(self) -> str:
        """The data types, for people: "float32", or "float16→float32" where the output differs, what A and B are rounded to,
        and unusual sums.
        """
        text = self.dtype.name if self.output == self.dtype else f"{self.dtype}→{self.output}"
        if self.precision != FULL:
            text = f"{text} rounded to {self.precision}"
        usual = self.accumulator == default_accumulator(self.dtype, self.output)
        return text if usual else f"{text} summed in {self.accumulator}"

    def __str__(self) -> str:
        text = f"{self.types} {self.ops} {self.m}×{self.n}×{self.k}"
        return text if self.batch == 1 else f"{text} ×{self.batch}"


Operand = Literal["a", "b", "c", "d"]
OPERANDS: tuple[Operand, ...] = get_args(Operand)

ShapeClass = Literal["empty", "vector", "small", "skinny", "medium", "large"]
"""empty: nothing to sum; vector: m or n is 1; small: m·n·k ≤ 256³; skinny: one size is 16 times another;
medium: m·n·k ≤ 1536³; large: the rest. The first that holds."""


def _stored(rows: int, columns: int, op: Op) -> tuple[int, int]:
    return (columns, rows) if transposes(op) else (rows, columns)


def as_number(name: str, value: object) -> Scalar:
    """Alpha or beta as a number of Python's own: int, float or complex.

    Raises:
        DtypeError: it is not a number, it is masked (`numpy.ma`), or a float is too small for it.
    """
    if type(value) is float:  # nearly all are, and each call of `gemm` asks
        return value
    if isinstance(value, np.ndarray) and np.ma.is_masked(value):
        raise DtypeError(f"{name} is masked: pass a number")
    number = value.item() if isinstance(value, np.generic | np.ndarray) and np.size(value) == 1 else value
    if isinstance(number, int | complex):
        return number
    if isinstance(number, str | bytes | bytearray):  # which float() would read
        raise DtypeError(f"{name} must be a number; got {value!r}")
    try:
        return float(number)  # type: ignore[arg-type]  # a Fraction, a Decimal, a half: what Python takes for a real number
    except (TypeError, ValueError):
        raise DtypeError(f"{name} must be a number; got {value!r}") from None
    except OverflowError:
        raise DtypeError(f"{name} must be a number that a float holds; got a larger one: pass float('inf')") from None


def scalar_key(number: Scalar) -> Hashable:
    """What tells a scalar from those with which a product has another result: 0.0 from -0.0, also as parts of a complex number.

    NaN is equal to itself: a product of it has one key.
    """
    if type(number) is float:  # nearly all are, and each call of `gemm` asks: repr would take longer
        if number:
            return number if number == number else "nan"  # noqa: PLR0124 - which NaN is not
        return "0" if math.copysign(1.0, number) > 0 else "-0"
    return repr(complex(number)) if isinstance(number, complex) else number


def _as_scalar(name: str, value: object, sums: DType) -> Scalar:
    """Alpha or beta as the type of the sums demands it: complex, float or int."""
    number = as_number(name, value)
    if sums.precision and isinstance(number, int) and abs(number) > sys.float_info.max:
        number = math.inf if number > 0 else -math.inf  # too large for the type is infinite in it, as in NumPy
    if sums.kind == "complex":
        return complex(number)
    if isinstance(number, complex):
        if number.imag != 0:
            raise DtypeError(f"{name} = {number} is complex, and the product is {sums}: make an operand complex")
        number = number.real
    if sums.kind == "real":
        return float(number)
    if isinstance(number, float) and not number.is_integer():  # infinities and NaN are not either
        raise DtypeError(
            f"{name} must be a whole number where the product is {sums}; got {number}: make an operand float"
        )
    if sums.kind == "bool" and number not in (0, 1):
        raise DtypeError(f"{name} = {number} scales a product of bool, which only 0 and 1 can")
    return int(number)


def check_size(name: str, value: object) -> int:
    """A size, or a number of matrices, as Python's own number.

    Raises:
        ShapeError: it is not a whole number, negative, or beyond `MAX_EXTENT`.
    """
    try:
        size = operator.index(value)  # type: ignore[arg-type]  # integers of NumPy too; others it refuses
    except TypeError:
        raise ShapeError(f"{name} must be a whole number, of rows, columns or matrices; got {value!r}") from None
    if size < 0:
        raise ShapeError(f"{name} = {size} is negative: sizes count rows, columns and matrices")
    if size > MAX_EXTENT:
        raise ShapeError(f"{name} = {size} is too large: the largest size is {MAX_EXTENT}")
    return size


def _check_layout(name: str, layout: Layout, shape: tuple[int, int], batch: int, *, written: bool) -> None:
    rows, columns = shape
    if layout.offset < 0 or layout.batch_stride < 0:
        raise ShapeError(f"{name}: offset {layout.offset} and batch stride {layout.batch_stride} must not be negative")
    if layout.ld < max(columns, 1):
        raise ShapeError(f"{name}: leading dimension {layout.ld} is shorter than a stored row of {columns} elements")
    if written and batch > 1 and rows and columns:
        whole = (rows - 1) * layout.ld + columns
        one_after_another = layout.batch_stride >= whole
        side_by_side = layout.batch_stride >= columns and (batch - 1) * layout.batch_stride + columns <= layout.ld
        if not (one_after_another or side_by_side):
            raise ShapeError(
                f"{name}: with batch stride {layout.batch_stride} the matrices overlap: it must be at least {whole}, what "
                f"one takes, or rows of {columns} of all {batch} matrices must fit into the leading dimension {layout.ld}"
            )
