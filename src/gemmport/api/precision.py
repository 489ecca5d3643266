"""`precision`: what the products of a thread or an asynchronous task are rounded to, where a call does not say."""

from __future__ import annotations

from contextlib import ContextDecorator
from contextvars import ContextVar

from gemmport.core.precision import as_precision

_CURRENT: ContextVar[str | None] = ContextVar("gemmport.precision", default=None)

_OUTER: ContextVar[tuple[str | None, ...]] = ContextVar("gemmport.precision.outer", default=())
"""The words of the contexts around the innermost one, the outermost first."""

current = _CURRENT.get
"""The word of the innermost context; None outside of any. Each product asks, in 30 ns."""


def precision(word: str) -> PrecisionContext:
    """A context in which products of float32 and complex64 round their operands to a precision, where no `precision=` is given.

        with gp.precision("tf32"):
            c = gp.matmul(a, b)

    It holds for the thread or the asynchronous task that enters it, and goes before a configuration. It may be entered
    again, and decorates functions. Products of other types are computed as their types say.

    Args:
        word: "tf32", "float16" or "bfloat16"; "full": operands are multiplied as they are.

    Raises:
        UnknownNameError: no such precision.
    """
    return PrecisionContext(as_precision(word))


class PrecisionContext(ContextDecorator):
    """The context of a precision, or, of None, what is outside of any: for products of which another thread decided.

    It may be entered again, within itself too, and by several threads at once; so nothing is kept in it.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name

    def __enter__(self) -> None:
        _OUTER.set((*_OUTER.get(), _CURRENT.get()))
        _CURRENT.set(self._name)

    def __exit__(self, *_: object) -> None:
        *outer, last = _OUTER.get()
        _OUTER.set(tuple(outer))
        _CURRENT.set(last)
