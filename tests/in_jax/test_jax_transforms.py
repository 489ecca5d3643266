"""Derivatives of gemmport.jax.matmul, and what `jax.vmap` makes of it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import JAX_ON_CPUS, needs
from exact import integers
from test_jax_products import SHAPES, computed, place, wide  # noqa: F401 - a fixture

if JAX_ON_CPUS.is_here():
    import jax
    import jax.numpy as jnp

    import gemmport.jax as gj

pytestmark = needs(JAX_ON_CPUS)


def pair(a: tuple[int, ...], b: tuple[int, ...], dtype: Any = np.float32) -> tuple[Any, Any]:
    return jnp.asarray(integers(a, dtype)), jnp.asarray(integers(b, dtype))


def equal(found: Any, wanted: Any) -> None:
    """Of all arrays in two trees."""
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), found) == jax.tree.map(lambda x: (x.shape, x.dtype), wanted)


@pytest.mark.sample(a=[(2, 1, 5, 7)])
@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_gradients_are_jaxs(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """Of small whole numbers, of which all sums are exact; backward, forward and twice."""
    x, y = pair(a, b)

    def of(product: Any) -> Any:
        def loss(x: Any, y: Any) -> Any:
            return (product(x, y) ** 2).sum()

        gradient = jax.grad(loss, argnums=(0, 1))
        return (
            jax.jit(gradient)(x, y),
            jax.jit(lambda x, y: jax.jvp(product, (x, y), (y.sum() + 0 * x, y)))(x, y),
            jax.jit(lambda x, y: jax.jvp(lambda x: gradient(x, y), (x,), (jnp.ones_like(x),)))(x, y),
        )

    equal(of(gj.matmul), of(jnp.matmul))


def test_gradients_of_complex_numbers_are_jaxs() -> None:
    x, y = (each * (1 + 2j) for each in pair((3, 4), (4, 5), np.complex64))

    def of(product: Any) -> Any:
        return jax.vjp(product, x, y)[1](jnp.full((3, 5), 1 - 3j, jnp.complex64))

    equal(of(gj.matmul), of(jnp.matmul))


def test_a_hessian_is_jaxs() -> None:
    x, y = pair((3, 2), (2, 3))
    equal(*(jax.hessian(lambda x, own=own: (own(x, y) ** 2).sum())(x) for own in (gj.matmul, jnp.matmul)))


def test_derivatives_read_what_is_transposed_where_it_lies(computed: list[Any]) -> None:  # noqa: F811
    x, y = pair((6, 4), (4, 5))
    jax.jit(jax.grad(lambda x, y: gj.matmul(x, y).sum(), argnums=(0, 1)))(x, y)[0].block_until_ready()
    places = {x.unsafe_buffer_pointer(): x.T.shape, y.unsafe_buffer_pointer(): y.T.shape}
    given = [each for operands in computed for each in operands[:2]]
    steps = [each.strides[-1] // (each.itemsize if isinstance(each, np.ndarray) else 1) for each in given]
    found = {place(each): each.shape for each, step in zip(given, steps, strict=True) if step != 1}
    assert found == places


MAPPED: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int | None, int | None]]] = {
    "both": ((6, 3, 4), (6, 4, 5), (0, 0)),
    "a by one b": ((6, 3, 4), (4, 5), (0, None)),
    "one a by b": ((3, 4), (6, 4, 5), (None, 0)),
    "elsewhere": ((3, 6, 4), (4, 5, 6), (1, 2)),
    "stacks by one b": ((6, 2, 3, 4), (4, 5), (0, None)),
    "a by stacks": ((6, 3, 4), (6, 2, 4, 5), (0, 0)),
    "stacks by b": ((6, 2, 3, 4), (6, 4, 5), (0, 0)),
    "one a by stacks": ((3, 4), (2, 6, 4, 5), (None, 1)),
    "one stack by b": ((2, 3, 4), (6, 4, 5), (None, 0)),
    "vectors": ((6, 4), (6, 4), (0, 0)),
}


@pytest.mark.sample(name=["a by one b", "elsewhere", "a by stacks", "one stack by b"])
@pytest.mark.parametrize("name", MAPPED)
def test_what_is_mapped_over_is_one_product(name: str, computed: list[Any]) -> None:  # noqa: F811
    a, b, axes = MAPPED[name]
    x, y = pair(a, b)
    found = jax.jit(jax.vmap(gj.matmul, in_axes=axes))(x, y)
    equal(found, jax.vmap(jnp.matmul, in_axes=axes)(x, y))
    assert len(computed) == 1


def test_maps_of_maps_and_of_derivatives() -> None:
    x, y = pair((2, 3, 4, 5), (3, 5, 6))

    def of(product: Any) -> Any:
        each = jax.vmap(jax.vmap(product, in_axes=(0, None)), in_axes=(1, 0))
        gradient = jax.vmap(jax.grad(lambda x, y: (product(x, y) ** 2).sum(), argnums=(0, 1)), in_axes=(1, 0))
        # Of the sum, what comes back is the same for all that is mapped over: one matrix.
        of_sums = jax.vmap(jax.grad(lambda x, y: product(x, y).sum(), argnums=1), in_axes=(0, None))
        return jax.jit(each)(x, y), jax.jit(gradient)(x, y), jax.jit(of_sums)(x[0], y[0])

    equal(of(gj.matmul), of(jnp.matmul))


def test_derivatives_of_random_numbers() -> None:
    from jax.test_util import check_grads  # noqa: PLC0415 - where JAX is here

    rng = np.random.default_rng(3)
    with wide():
        x, y = (jnp.asarray(rng.standard_normal(shape)) for shape in ((2, 3, 4), (4, 5)))
        check_grads(gj.matmul, (x, y), order=2)


def told(x: Any) -> str:
    """To what a number that bfloat16 does not have was rounded before it was multiplied by 1."""
    return {1 + 2**-10: "full", 1: "bfloat16"}[float(x.ravel()[0])]


def test_a_call_says_its_precision_in_words_of_gemmport_or_of_jax() -> None:
    """1 + 2⁻¹⁰ is a number of TF32, and not of bfloat16; 1 + 2⁻¹² is of neither. Derivatives round as the product does."""
    a, one = jnp.asarray([[1 + 2.0**-10, 1 + 2.0**-12]]), jnp.ones((2, 1))
    most = (2 + 2.0**-10 + 2.0**-12, 2 + 2.0**-10, 2.0)
    words = ("full", "highest", "float32", jax.lax.Precision.HIGHEST), ("tf32", "tensorfloat32"), ("bfloat16",)
    for wanted, names in zip(most, words, strict=True):
        for name in names:
            with gp.precision("tf32"):
                assert gj.matmul(a, one, precision=name)[0, 0] == wanted, name
            assert jax.jit(partial(gj.matmul, precision=name))(a, one)[0, 0] == wanted, name
    slope = jax.grad(lambda y: gj.matmul(a[:, :1], y, precision="bfloat16").sum())(one[:1])
    assert told(slope) == "bfloat16"
    for refused in ("default", "high", "fastest", jax.lax.Precision.DEFAULT, "tf33", ("highest", "highest")):
        with pytest.raises(gp.UnknownNameError, match="precision must be one of full"):
            gj.matmul(a, one, precision=refused)
    with pytest.raises(gp.DtypeError, match="convert them first"):
        gj.matmul(a.astype(int), one.astype(int), precision="tf32")


def test_a_function_keeps_the_precision_in_which_it_was_traced() -> None:
    """Whichever thread XLA takes, and with whatever context."""
    x, one = jnp.full((1, 1), 1 + 2**-10, jnp.float32), jnp.ones((1, 1), jnp.float32)

    def product(x: Any, y: Any) -> Any:
        return gj.matmul(x, y)

    def inside(x: Any, y: Any) -> Any:
        with gp.precision("bfloat16"):
            return gj.matmul(x, y)

    def slope(of: Any) -> Any:  # in y: the product of x and 1
        return jax.jit(jax.grad(lambda x, y: of(x, y).sum(), argnums=1))

    compiled, rounds, slopes, rounded_slopes = jax.jit(product), jax.jit(inside), slope(product), slope(inside)
    with gp.precision("full"):
        assert told(compiled(x, one)) == told(slopes(x, one)) == "full"
        assert told(rounds(x, one)) == told(rounded_slopes(x, one)) == "bfloat16"
    with gp.precision("bfloat16"):
        assert told(compiled(x, one)) == told(slopes(x, one)) == "full"
        assert told(gj.matmul(x, one)) == "bfloat16"
    assert told(gj.matmul(x, one)) == "full"
    outside = jax.jit(gj.matmul)
    assert told(outside(x, one)) == "full"
    with gp.precision("bfloat16"):
        assert told(outside(x, one)) == "full"
