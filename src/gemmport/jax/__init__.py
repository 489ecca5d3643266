"""gemmport as a primitive of JAX: products that `jax.jit`, `grad`, `jvp` and `vmap` know.

    import gemmport.jax

    d = gemmport.jax.matmul(a, b)  # inside of jax.jit, too

docs/jax.md says what is computed where.
"""

from gemmport.core.errors import LibraryUnavailableError

try:
    import jax.ffi as _ffi  # noqa: F401  # whether it is there, before any module below imports it
except ImportError as error:
    raise LibraryUnavailableError(f"gemmport.jax needs JAX 0.5 or newer ({error}): pip install jax") from error

from gemmport.jax.functions import matmul

__all__ = ["matmul"]
