"""What type checkers are told of `gemm` and `matmul`: whose arrays come in and go out, and which options there are.

Arrays of other libraries give Any: only their libraries know their types. NumPy's arrays must not be among them: where several
overloads take an array whose type has Any in it, as that of most arrays has, checkers take the result for Any. No type can say
"all but". `Other` leaves NumPy's arrays out because they have no hash. Overloads that may both fit are of one type otherwise.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from os import PathLike
from typing import Any, Protocol, TypeAlias, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from gemmport.api.plans import Config, HostArray
from gemmport.backends.array import DeviceArray
from gemmport.contracts.kernel import Parameters
from gemmport.core.device import DeviceInfo
from gemmport.core.problem import Op
from gemmport.multidevice.selection import Devices
from gemmport.outofcore.progress import Tell

OnHost: TypeAlias = "HostArray | np.generic | complex | Sequence[OnHost]"
"""What NumPy makes an array of, of NumPy's and Python's own types."""

OnDevice: TypeAlias = DeviceArray | Sequence[DeviceArray]
"""Ours; a list is a batch."""


class _Table(Protocol):
    """Of pandas, xarray, polars: without a hash, too."""

    @property
    def to_numpy(self) -> Any: ...


Other: TypeAlias = Hashable | _Table | Sequence[Hashable]
"""Arrays of other libraries, and lists of them."""

Operand: TypeAlias = OnHost | OnDevice | Other


class _Shaped(Protocol):
    """An array: neither None nor a tuple."""

    @property
    def shape(self) -> Any: ...


Written = TypeVar("Written", bound=_Shaped)
"""What is given as `out` is returned."""


class _Place(TypedDict, total=False):
    backend: str | None
    device: str | int | DeviceInfo | None
    devices: Devices | None
    kernel: str
    params: Parameters | None
    config: Config
    deterministic: bool
    precision: str | None
    scale_a: Operand | None
    scale_b: Operand | None
    device_memory: int | str | None
    host_memory: int | str | None
    checkpoint: str | PathLike[str] | None
    progress: Tell | None


class GemmOptions(_Place, total=False):
    """What `gemm` takes beside arrays."""

    alpha: complex
    beta: complex
    trans_a: Op | bool
    trans_b: Op | bool
    dtype: npt.DTypeLike | None
    accumulator: npt.DTypeLike | None
    queue: Any
    wait_for: Any


class MatmulOptions(_Place, total=False):
    """What `matmul` takes beside arrays."""

    casting: str
    order: str
    dtype: npt.DTypeLike | None
    axes: list[Any] | None
    subok: bool
