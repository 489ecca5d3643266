"""`precision`: what the products of a thread or an asynchronous task are rounded to, where a call does not say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

from gemmport.core.precision import as_precision

_CURRENT: ContextVar[str | None] = ContextVar("gemmport.precision", default=None)

current = _CURRENT.get
"""The word of the innermost context; None outside of any. Each product asks, in 30 ns."""


def precision(word: str) -> AbstractContextManager[None]:
    """A context in which products of float32 and complex64 round their operands to a precision, where no `precision=` is given.

        with gp.precision("tf32"):
            c = gp.matmul(a, b)

    It holds for the thread or the asynchronous task that enters it, and goes before a configuration. Products of other types
    are computed as their types say.

    Args:
        word: "tf32", "float16" or "bfloat16"; "full": operands are multiplied as they are.

    Raises:
        UnknownNameError: no such precision.
    """
    return within(as_precision(word))


@contextmanager
def within(name: str | None) -> Iterator[None]:
    """The context of a precision, or, of None, what is outside of any: for products of which another thread decided."""
    token = _CURRENT.set(name)
    try:
        yield
    finally:
        _CURRENT.reset(token)
