"""`matmul` of JAX's arrays, by the rules of `gemmport.matmul`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from gemmport.api.matmul import described
from gemmport.api.precision import current
from gemmport.core.errors import ArrayError
from gemmport.execution.prepared import MOST
from gemmport.jax.handlers import Choices
from gemmport.jax.primitive import product


def matmul(
    a: jax.typing.ArrayLike, b: jax.typing.ArrayLike, *, backend: str | None = None, device: str | None = None
) -> jax.Array:
    """The matrix product with the rules of `gemmport.matmul`, inside and outside of `jax.jit`, `grad`, `jvp` and `vmap`.

    Inside of `jax.jit`, the context of `gemmport.precision` is that in which a function is traced.

    Args:
        a, b: of one dimension (k), or of two or more (…, m, k) and (…, k, n), whose first dimensions broadcast. Types are
            promoted as by NumPy, to what JAX has of that (64 bits where `jax_enable_x64` is set).
        backend, device: which device computes arrays in the host's memory, as text; see `gemmport.get_backend`. Asked when the
            product is computed.

    Returns:
        An array of shape (…, m, n), without m or n where a or b is a vector.

    Raises:
        ShapeError, DtypeError: as `gemmport.matmul`, while a function is traced.
        ArrayError: `backend` or `device` is no text.
        jax.errors.JaxRuntimeError: what `gemmport.matmul` raises when a compiled product is computed, with its message.
    """
    for name, value in (("backend", backend), ("device", device)):
        if not isinstance(value, str | None) or (value and "\n" in value):
            raise ArrayError(f"{name} must be one line of text inside of JAX; got {value!r}: name it as text")
    x, y = (each if isinstance(each, jax.Array) else jnp.asarray(each) for each in (a, b))
    shape, kind = _described(x.shape, x.dtype, y.shape, y.dtype)
    kind = jax.dtypes.canonicalize_dtype(kind)
    # Outside of jit each of these is an operation of its own, also where it changes nothing.
    x, y = (each if each.dtype == kind else each.astype(kind) for each in (x, y))
    x = x[None, :] if x.ndim == 1 else x
    y = y[:, None] if y.ndim == 1 else y
    if y.ndim == 2 and x.ndim > 2:  # the rows of all matrices by one matrix: a tall product
        x = x.reshape(-1, x.shape[-1])
    found = product(x, y, Choices(backend=backend or "", device=device or "", precision=current() or ""))
    return found if found.shape == shape else found.reshape(shape)


@lru_cache(maxsize=MOST)
def _described(a: tuple[int, ...], a_type: Any, b: tuple[int, ...], b_type: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and type of a product, in which NumPy has a part that takes as long as a launch."""
    return described(jax.ShapeDtypeStruct(a, a_type), jax.ShapeDtypeStruct(b, b_type))
