"""Derivatives of gemmport.torch's products: against differences, and against torch's own."""

# ruff: noqa: PLW0108 - where PyTorch is missing, its functions must not be named until a test is called

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from absences import TORCH, needs

if TORCH.is_here():
    import torch

    import gemmport.torch as gt
    from gemmport.torch import operators
    from tensors import equal, random, small

pytestmark = needs(TORCH)

CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "mm": (lambda a, b: gt.mm(a, b), [(3, 4), (4, 2)]),
    "bmm": (lambda a, b: gt.bmm(a, b), [(2, 3, 4), (2, 4, 2)]),
    "addmm": (lambda c, a, b: gt.addmm(c, a, b, alpha=0.5, beta=-2), [(2,), (3, 4), (4, 2)]),
    "baddbmm": (lambda c, a, b: gt.baddbmm(c, a, b, alpha=0.5, beta=-2), [(3, 1), (2, 3, 4), (2, 4, 2)]),
    "matmul-vectors": (lambda a, b: gt.matmul(a, b), [(4,), (4,)]),
    "matmul-tall": (lambda a, b: gt.matmul(a, b), [(2, 3, 4), (4, 2)]),
    "matmul-wide": (lambda a, b: gt.matmul(a, b), [(3, 4), (2, 4, 2)]),
    "matmul-broadcast": (lambda a, b: gt.matmul(a, b), [(2, 1, 3, 4), (3, 4, 2)]),
    "a-matrix-for-a-batch": (lambda a, b: operators.gemm(a, b, None, 1, 0), [(2, 3, 4), (4, 2)]),
    "linear": (lambda x, w, b: gt.linear(x, w, b), [(2, 3, 4), (5, 4), (5,)]),
}


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", CASES)
def test_first_and_second_derivatives_are_those_of_differences(name: str, dtype: str) -> None:
    function, shapes = CASES[name]
    operands = [random(*shape, dtype=dtype, seed=i).requires_grad_() for i, shape in enumerate(shapes)]
    assert torch.autograd.gradcheck(function, operands)
    assert torch.autograd.gradgradcheck(function, operands)


def test_of_complex_scalars() -> None:
    a, b, c = (random(3, 3, dtype="complex128", seed=i).requires_grad_() for i in range(3))
    assert torch.autograd.gradcheck(lambda *x: operators.gemm(*x, 2 - 1j, 1 + 3j), (a, b, c))


def test_are_torchs_in_float32() -> None:
    x, w, b = small(6, 5).requires_grad_(), small(4, 5, seed=1).requires_grad_(), small(4, seed=2).requires_grad_()
    found = torch.autograd.grad(gt.linear(x, w, b).sum(), (x, w, b))
    wanted = torch.autograd.grad(torch.nn.functional.linear(x, w, b).sum(), (x, w, b))
    for one, other in zip(found, wanted, strict=True):
        equal(one, other)


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)], ids=str)
def test_only_those_that_are_asked_for_are_computed(wanted: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    operands = [small(4, 4, seed=i).requires_grad_(needed) for i, needed in enumerate(wanted)]
    result = operators.gemm(*operands, 1, 1)
    products = []
    own = operators.product_of_arrays
    monkeypatch.setattr(operators, "product_of_arrays", lambda *x, **how: products.append(1) or own(*x, **how))
    result.sum().backward()
    assert [x.grad is not None for x in operands] == list(wanted)
    assert len(products) == (0 if wanted[2] else 1)


def test_none_are_recorded_without_a_need() -> None:
    a = small(4, 4).requires_grad_()
    with torch.no_grad():
        assert not gt.mm(a, a).requires_grad
    assert not gt.mm(a.detach(), a.detach()).requires_grad
    assert gt.mm(a, a).requires_grad
