"""The one primitive that JAX knows: op(A) · op(B) of stacks of matrices of one type. How it is derived, mapped and compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from gemmport.api.matmul import described
from gemmport.jax import handlers
from gemmport.jax.handlers import Choices

PRIMITIVE = Primitive("gemmport_matmul")


def product(a: Any, b: Any, choices: Choices) -> Any:
    """op(A) · op(B) of stacks (…, m, k) and (…, k, n), whose first dimensions broadcast; of one type."""
    return PRIMITIVE.bind(a, b, choices=choices)


def _shape(x: Any, transposed: bool) -> tuple[int, ...]:
    return (*x.shape[:-2], x.shape[-1], x.shape[-2]) if transposed else tuple(x.shape)


def _described(a: Any, b: Any, *, choices: Choices) -> Any:
    shape, dtype = described(
        *(
            jax.ShapeDtypeStruct(_shape(x, turned), x.dtype)
            for x, turned in ((a, choices.trans_a), (b, choices.trans_b))
        )
    )
    return jax.core.ShapedArray(shape, dtype)


def _computed(a: Any, b: Any, *, choices: Choices) -> Any:
    return _compiled(choices)(a, b)


@cache
def _compiled(choices: Choices) -> Any:
    return jax.jit(partial(product, choices=choices))


PRIMITIVE.def_abstract_eval(_described)
PRIMITIVE.def_impl(_computed)


# Derivatives. The product is linear in each operand.


def _to_a(cotangent: Any, a: Any, b: Any, *, choices: Choices) -> Any:
    if choices.trans_a:
        found = product(b, cotangent, _of(choices, choices.trans_b, True))
    else:
        found = product(cotangent, b, _of(choices, False, not choices.trans_b))
    return _summed(found, a.aval.shape)


def _to_b(cotangent: Any, a: Any, b: Any, *, choices: Choices) -> Any:
    if choices.trans_b:
        found = product(cotangent, a, _of(choices, True, choices.trans_a))
    else:
        found = product(a, cotangent, _of(choices, not choices.trans_a, False))
    return _summed(found, b.aval.shape)


def _of(choices: Choices, trans_a: bool, trans_b: bool) -> Choices:
    return replace(choices, trans_a=trans_a, trans_b=trans_b)


def _summed(x: Any, shape: Sequence[int]) -> Any:
    """The sum over what was repeated to broadcast an array of a shape."""
    added = x.ndim - len(shape)
    repeated = [axis + added for axis, size in enumerate(shape) if size == 1 and x.shape[axis + added] != 1]
    if not added and not repeated:
        return x
    return jnp.sum(x, axis=(*range(added), *repeated)).reshape(shape)


ad.defbilinear(PRIMITIVE, _to_a, _to_b)


# vmap


def _mapped(operands: Sequence[Any], dims: Sequence[int | None], *, choices: Choices) -> tuple[Any, int]:
    """One product for all: what is mapped over is the first dimension of the stacks."""
    a, b = (x if dim is None else jnp.moveaxis(x, dim, 0) for x, dim in zip(operands, dims, strict=True))
    if b.ndim == 2 and not choices.trans_a:  # the rows of all by one matrix: a tall product
        found = product(a.reshape(-1, a.shape[-1]), b, choices)
        return found.reshape(*a.shape[:-1], found.shape[-1]), 0
    count = max(x.ndim - (dim is not None) for x, dim in ((a, dims[0]), (b, dims[1])))
    a, b = (
        x if dim is None else jnp.expand_dims(x, tuple(range(1, 1 + count - (x.ndim - 1))))
        for x, dim in ((a, dims[0]), (b, dims[1]))
    )
    return product(a, b, choices), 0


batching.primitive_batchers[PRIMITIVE] = _mapped


# Compilation


def _lowered(name: str, context: Any, a: Any, b: Any, *, choices: Choices) -> Any:
    return jax.ffi.ffi_lowering(name)(context, a, b, how=choices.written())


handlers.register()
mlir.register_lowering(PRIMITIVE, partial(_lowered, handlers.ON_CPU), platform="cpu")
mlir.register_lowering(PRIMITIVE, partial(_lowered, handlers.ON_CUDA), platform="cuda")
