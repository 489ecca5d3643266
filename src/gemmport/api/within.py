"""Products that another library computes by itself, in whose computation the product is ours: JAX's, of arrays on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from gemmport.api.precision import PrecisionContext, current
from gemmport.execution import repeated
from gemmport.execution.adapters import library_of


@dataclass(frozen=True)
class Again:
    """A product of other operands, as a caller asked for it once.

    Attributes:
        product: takes operands, `out`, and the options.
        within: the word of the context of a precision around the caller: another thread computes it.
    """

    product: Callable[..., Any]
    within: str | None
    options: tuple[tuple[str, Hashable], ...]

    @classmethod
    def of(cls, product: Callable[..., Any], within: str | None, /, **options: Any) -> Again:
        """With options by their names; their values must be hashable."""
        return cls(product, within, tuple(options.items()))

    def __call__(self, *operands: Any, out: Any) -> None:
        """Computes it, in `out`."""
        if current() is self.within:  # as is mostly so, in a microsecond less
            self._computed(*operands, out=out)
            return
        with PrecisionContext(self.within):
            self._computed(*operands, out=out)

    @cached_property
    def _computed(self) -> Callable[..., Any]:
        return partial(self.product, **dict(self.options))


def keep_within(wanted: Hashable, again: Again, result: Any) -> None:
    """Keeps that the library of a result computes others of its kind by itself, where it does so.

    Args:
        wanted: of `repeated.again`; None is not kept.
    """
    library = library_of(result)
    if wanted is not None and library is not None and library.computes(result):
        repeated.keep_within(wanted, again, result.shape, result.dtype)
