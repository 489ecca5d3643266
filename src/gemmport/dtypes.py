"""The data types of a product, and what each layer needs to know of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmport.errors import DtypeError


@dataclass(frozen=True)
class DType:
    """A floating-point type.

    Attributes:
        name: NumPy's name for it, which is also the name in YAML, on the command line and (in capitals) in the preludes.
        itemsize: bytes per element.
        precision: bits of the significand, the implicit one included (IEEE 754-2019, table 3.5).
    """

    name: str
    itemsize: int
    precision: int

    @property
    def unit_roundoff(self) -> float:
        """u = 2⁻ᵖ: the largest relative error of one rounding to nearest."""
        return 2.0**-self.precision

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive number of this type: the error of one underflow."""
        return float(np.finfo(self.numpy).smallest_subnormal)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype."""
        return np.dtype(self.name)

    def __str__(self) -> str:
        return self.name


FLOAT32 = DType("float32", itemsize=4, precision=24)
FLOAT64 = DType("float64", itemsize=8, precision=53)

DTYPES: dict[str, DType] = {dtype.name: dtype for dtype in (FLOAT32, FLOAT64)}


def as_dtype(spec: object) -> DType:
    """The `DType` that a name, a NumPy dtype or a scalar type stands for.

    Raises:
        DtypeError: it is none that gemmport computes in.
    """
    if isinstance(spec, DType):
        return spec
    try:
        name = np.dtype(spec).name  # type: ignore[call-overload]  # any object: what NumPy refuses, we refuse
    except TypeError:
        name = str(spec)
    if name not in DTYPES:
        raise DtypeError(
            f"dtype {name} is not supported: gemmport computes in {' and '.join(DTYPES)}; convert the input"
        )
    return DTYPES[name]
