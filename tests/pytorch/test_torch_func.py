"""torch.func over gemmport.torch's products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from absences import TORCH, needs

if TORCH.is_here():
    import torch
    from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

    import gemmport.torch as gt
    from tensors import equal, random, small

pytestmark = needs(TORCH)


@pytest.mark.parametrize(
    ("left", "right", "dims"),
    [
        ((7, 4, 5), (7, 5, 3), (0, 0)),
        ((7, 4, 5), (5, 3), (0, None)),
        ((4, 5), (5, 7, 3), (None, 1)),
        ((4, 5, 7), (5, 3, 7), (-1, 2)),
        ((7, 5), (7, 5), (0, 0)),
        ((7, 2, 4, 5), (5, 3), (0, None)),
        ((2, 4, 5), (7, 5, 3), (None, 0)),
        ((7, 4, 5), (2, 5, 3), (0, None)),
    ],
    ids=str,
)
def test_vmap_maps_over_any_dimension(left: Any, right: Any, dims: Any) -> None:
    a, b = small(*left), small(*right, seed=1)
    equal(vmap(gt.matmul, in_dims=dims)(a, b), vmap(torch.matmul, in_dims=dims)(a, b))


@pytest.mark.parametrize("dims", [(0, None, None), (None, 0, None), (None, None, 0), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("function", ["addmm", "baddbmm"])
def test_vmap_of_what_is_added(function: str, dims: tuple[int | None, ...]) -> None:
    shapes = [(3,), (4, 5), (5, 3)] if function == "addmm" else [(4, 3), (2, 4, 5), (2, 5, 3)]
    operands = [
        small(*(() if dim is None else (7,)), *shape, seed=i)
        for i, (shape, dim) in enumerate(zip(shapes, dims, strict=True))
    ]
    ours, torchs = (vmap(getattr(module, function), in_dims=dims) for module in (gt, torch))
    equal(ours(*operands), torchs(*operands))


def test_vmap_in_vmap_and_one_product_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmport.torch import operators  # noqa: PLC0415 - absent where torch is

    products = []
    own = operators.product_of_arrays
    monkeypatch.setattr(operators, "product_of_arrays", lambda *x, **how: products.append(1) or own(*x, **how))
    a, b = small(6, 4, 5), small(7, 5, 3, seed=1)
    every: Callable[[Any], Any] = lambda product: vmap(  # noqa: E731
        vmap(product, in_dims=(None, 0)), in_dims=(0, None)
    )(a, b)
    equal(every(gt.mm), every(torch.mm))
    assert len(products) == 1


def loss(product: Any) -> Callable[..., Any]:
    return lambda w, x: product(x, w).tanh().sum()


def test_gradients_of_each_sample() -> None:
    w, x = random(5, 3, dtype="float64"), random(7, 4, 5, dtype="float64", seed=1)
    found, wanted = (vmap(grad(loss(module.matmul)), in_dims=(None, 0))(w, x) for module in (gt, torch))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("transform", ["jacrev", "jacfwd", "hessian", "hessian of reverse", "grad of vmap"])
def test_derivatives(transform: str) -> None:
    w, x = random(3, 2, dtype="float64"), random(4, 3, dtype="float64", seed=1)
    made: dict[str, Any] = {
        "jacrev": lambda p: jacrev(lambda w: p(x, w))(w),
        "jacfwd": lambda p: jacfwd(lambda w: p(x, w))(w),
        "hessian": lambda p: hessian(loss(p))(w, x),
        "hessian of reverse": lambda p: jacrev(jacrev(loss(p)))(w, x),
        "grad of vmap": lambda p: grad(lambda w: vmap(p, in_dims=(0, None))(x, w).cos().sum())(w),
    }
    product = "matmul" if transform == "grad of vmap" else "mm"
    torch.testing.assert_close(made[transform](getattr(gt, product)), made[transform](getattr(torch, product)))


def test_forward_derivatives() -> None:
    operands = tuple(random(*shape, dtype="float64", seed=i) for i, shape in enumerate([(3, 2), (3, 4), (4, 2)]))
    tangents = tuple(random(*x.shape, dtype="float64", seed=9) for x in operands)
    found, wanted = (
        jvp(lambda c, a, b, own=module: own.addmm(c, a, b, alpha=2, beta=-1), operands, tangents)
        for module in (gt, torch)
    )
    torch.testing.assert_close(found, wanted)
