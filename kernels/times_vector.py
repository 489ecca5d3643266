"""`times_vector`: op(X) · x, or the squared norms of op(X)'s rows, in wider sums than those of a product. For checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport.contracts.kernel import Pass, ceil_div, type_defines
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, DType, Kind
from gemmport.core.plan import Buffer, Integer, Launch
from gemmport.core.problem import Layout, Op, transposes

HostVector = npt.NDArray[Any]

ITEMS, SIDE = 256, 32
"""Work-items of a group, and how many of them stand side by side along memory: a cache line of float32."""


@dataclass(frozen=True)
class Sums:
    """What the pass adds up in, and how such numbers lie on the device.

    Attributes:
        part: of what type a number is, or each part of a complex one.
        complex: whether numbers have two parts.
        pairs: whether a part is the unevaluated sum of two numbers of that type (double-float).
    """

    part: DType
    complex: bool = False
    pairs: bool = False

    @classmethod
    def on(cls, device: DeviceInfo, kind: Kind) -> Sums:
        """The widest that a device has for elements of a kind: float64, else pairs of float32; integers (and bool, as 0 and 1)
        are summed modulo 2⁶⁴.
        """
        if kind in ("integer", "bool"):
            return cls(DTYPES["int64"])
        pairs = "float64" not in device.computes
        return cls(DTYPES["float32" if pairs else "float64"], complex=kind == "complex", pairs=pairs)

    @property
    def element(self) -> DType:
        """The type that an element becomes when it is loaded."""
        return DTYPES[f"complex{2 * self.part.part_bits}"] if self.complex else self.part

    @property
    def itemsize(self) -> int:
        """Bytes of a number on the device."""
        return self.element.itemsize * (2 if self.pairs else 1)

    @property
    def unit_roundoff(self) -> float:
        """The largest relative error of one addition or product; 0 where nothing is rounded.

        Of pairs, 3u² with u = 2⁻²⁴ (Joldes, Muller & Popescu, ACM Trans. Math. Softw. 44, 2017).
        """
        return 3 * self.part.unit_roundoff**2 if self.pairs else self.part.unit_roundoff

    @property
    def host(self) -> np.dtype[Any]:
        """The type of such numbers on the host: float64, complex128 or uint64."""
        if not self.part.precision:
            return np.dtype(np.uint64)
        return np.dtype(np.complex128 if self.complex else np.float64)

    def to_device(self, numbers: HostVector) -> HostVector:
        """Numbers of the host as they lie on the device: a flat array."""
        flat = np.ascontiguousarray(numbers, self.host).reshape(-1)
        if not self.pairs:
            return flat
        parts = flat.view(np.float64)
        high = parts.astype(np.float32)
        return np.stack([high, (parts - high).astype(np.float32)], axis=1).reshape(-1)

    def from_device(self, raw: npt.NDArray[np.uint8]) -> HostVector:
        """The bytes of the device as numbers of the host."""
        if not self.pairs:
            return raw.view(self.host)
        pairs = raw.view(np.float32).reshape(-1, 2).astype(np.float64)
        numbers: HostVector = pairs.sum(axis=1).view(self.host)
        return numbers


class TimesVector(Pass):
    """A group of work-items reads along memory whichever way the matrix is stored: with op N or R, SIDE of them add up parts of
    one row's sum; with T or C, SIDE of them stand on neighbouring columns, and the others on other rows. The order of a
    sum is always the same, so that equal inputs give equal bits.
    """

    name = "times_vector"
    summary = "a matrix times a vector, or squared norms of rows, in wide sums"

    def launch(
        self, sums: Sums, dtype: DType, op: Op, rows: int, columns: int, batch: int, layout: Layout,
        *, shared: bool = True, squares: bool = False,
    ) -> Launch:  # fmt: skip
        """The launch that reads the buffers "matrix" and "vector", and fills "result" with a dense (batch, rows) of numbers.

        Args:
            sums: what to add up in; vector and result consist of such numbers.
            dtype, layout: of the elements of the matrices, as they are stored.
            rows, columns: of op(X).
            shared: one vector of `columns` numbers for all matrices; else a dense (batch, columns), one for each.
            squares: sums of |x|² instead; the vector is not read.
        """
        outputs = SIDE if transposes(op) else ITEMS // SIDE  # of one group
        defines = {
            "ITEMS": ITEMS,
            "SIDE": SIDE,
            **type_defines(dtype, sums.element, sums.element),
            "REAL": sums.part.name,
            "PARTS": 2 if sums.complex else 1,
            "PAIRS": int(sums.pairs),
            "TRANSPOSE": int(transposes(op)),
            "CONJUGATE": int(dtype.kind == "complex" and op in ("C", "R")),
            "SQUARES": int(squares),
        }
        return Launch(
            self.source(defines),
            groups=(ceil_div(rows, outputs) * batch, 1, 1),
            work_group=(ITEMS, 1, 1),
            arguments=(
                Buffer("matrix"), Integer(layout.offset), Integer(layout.ld), Integer(layout.batch_stride),
                Buffer("vector"), Integer(0 if shared else columns),
                Buffer("result"), Integer(rows, bits=32), Integer(columns, bits=32),
            ),
            local_bytes=ITEMS * sums.itemsize,
        )  # fmt: skip


PASS = TimesVector()
