"""`matmul` of JAX's arrays, by the rules of `gemmport.matmul`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from gemmport.api.matmul import described
from gemmport.api.precision import current
from gemmport.core.dtypes import as_dtype
from gemmport.core.errors import ArrayError, UnknownNameError
from gemmport.core.precision import FULL, PRECISIONS, as_precision, rounded_to
from gemmport.jax.handlers import Choices
from gemmport.jax.primitive import product
from gemmport.runtime.kept import MOST


def matmul(
    a: jax.typing.ArrayLike,
    b: jax.typing.ArrayLike,
    *,
    precision: str | jax.lax.Precision | None = None,
    backend: str | None = None,
    device: str | None = None,
) -> jax.Array:
    """The matrix product with the rules of `gemmport.matmul`, inside and outside of `jax.jit`, `grad`, `jvp` and `vmap`.

    Inside of `jax.jit`, the context of `gemmport.precision` is that in which a function is traced. Derivatives have the
    precision of the product.

    Args:
        a, b: of one dimension (k), or of two or more (…, m, k) and (…, k, n), whose first dimensions broadcast. Types are
            promoted as by NumPy, to what JAX has of that (64 bits where `jax_enable_x64` is set).
        precision: as `gemmport.matmul`; or JAX's words that mean the same: "highest", "float32" and `jax.lax.Precision.HIGHEST`
            are "full", and "tensorfloat32" is "tf32". Default: what `gemmport.precision` says, then "full".
        backend, device: which device computes arrays in the host's memory, as text; see `gemmport.get_backend`. Asked when the
            product is computed.

    Returns:
        An array of shape (…, m, n), without m or n where a or b is a vector.

    Raises:
        ShapeError, DtypeError, UnknownNameError: as `gemmport.matmul`, while a function is traced. JAX's "default" and "high"
            are unknown, too: what they round to is each device's choice.
        ArrayError: `backend` or `device` is not a text.
        jax.errors.JaxRuntimeError: what `gemmport.matmul` raises when a compiled product is computed, with its message.
    """
    for name, value in (("backend", backend), ("device", device)):
        if not isinstance(value, str | None) or (value and "\n" in value):
            raise ArrayError(f"{name} must be one line of text inside of JAX; got {value!r}: name it as text")
    word = None if precision is None else _as_precision(precision)
    x, y = (each if isinstance(each, jax.Array) else jnp.asarray(each) for each in (a, b))
    shape, kind = _described(x.shape, x.dtype, y.shape, y.dtype)
    kind = jax.dtypes.canonicalize_dtype(kind)
    if word is not None:
        word = rounded_to(word, as_dtype(kind))
    # Outside of jit each of these is an operation of its own, also where it changes nothing.
    x, y = (each if each.dtype == kind else each.astype(kind) for each in (x, y))
    x = x[None, :] if x.ndim == 1 else x
    y = y[:, None] if y.ndim == 1 else y
    if y.ndim == 2 and x.ndim > 2:  # the rows of all matrices by one matrix: a tall product
        x = x.reshape(-1, x.shape[-1])
    found = product(x, y, Choices(backend=backend or "", device=device or "", precision=word or current() or ""))
    return found if found.shape == shape else found.reshape(shape)


_OF_JAX = {"highest": FULL, "float32": FULL, "tensorfloat32": "tf32"}
"""JAX's words for precisions that gemmport has, too (the documentation of `jax.lax.Precision`)."""

_ITS_DEVICES_CHOICE = ("default", "high", "fastest", "bfloat16_3x", "bfloat16_6x")
"""JAX's other words."""


def _as_precision(precision: object) -> str:
    """The precision that a word of gemmport's or of JAX's stands for.

    Raises:
        UnknownNameError: there is none.
    """
    word = precision.name if isinstance(precision, jax.lax.Precision) else precision
    name = word.lower() if isinstance(word, str) else ""
    if name in _ITS_DEVICES_CHOICE:
        raise UnknownNameError(
            f"precision must be one of {', '.join(PRECISIONS)}, or JAX's {', '.join(_OF_JAX)}; got {precision!r}, with which "
            "JAX rounds as each device likes: leave it out, or name one"
        )
    return as_precision(_OF_JAX.get(name, word))


@lru_cache(maxsize=MOST)
def _described(a: tuple[int, ...], a_type: Any, b: tuple[int, ...], b_type: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and type of a product, in which NumPy has a part that takes as long as a launch."""
    return described(jax.ShapeDtypeStruct(a, a_type), jax.ShapeDtypeStruct(b, b_type))
