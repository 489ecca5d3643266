"""What device arrays compute and convert by, which the packages above lend them: a backend knows no GEMM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from gemmport.core.errors import UnsupportedError

if TYPE_CHECKING:
    from gemmport.backends.array import DeviceArray


class Operations(Protocol):
    """Of device arrays, and of what NumPy was asked to do with them."""

    def matmul(self, a: Any, b: Any, /) -> Any:
        """The product with the rules of `numpy.matmul`."""

    def assign(self, source: DeviceArray, target: DeviceArray) -> None:
        """Copies between arrays of one shape, which may lie on two devices and overlap, converting as `numpy.astype`."""

    def ufunc(self, ufunc: Any, method: str, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """NumPy's `__array_ufunc__`."""

    def function(self, function: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """NumPy's `__array_function__`."""

    def namespace(self) -> Any:
        """The array API standard's functions."""


_lent: list[Operations] = []


def lend(operations: Operations) -> None:
    """Gives all device arrays their operations."""
    _lent[:] = [operations]


def operations() -> Operations:
    """Those that were lent.

    Raises:
        UnsupportedError: none were: gemmport.backends was imported without gemmport.
    """
    if not _lent:
        raise UnsupportedError("device arrays must have their operations, which `import gemmport` brings")
    return _lent[0]
