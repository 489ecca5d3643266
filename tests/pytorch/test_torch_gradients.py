"""Derivatives of gemmport.torch's products: against differences, and against torch's own."""

# ruff: noqa: PLW0108 - where PyTorch is missing, its functions must not be named until a test is called

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gemmport as gp
from absences import TORCH, needs

if TORCH.is_here():
    import torch

    import gemmport.torch as gt
    from gemmport.torch import operators
    from tensors import assert_within_bound, equal, random, small

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


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_are_torchs_in_single_precision(dtype: str) -> None:
    """Of small whole numbers, whose sums are exact."""
    *operands, grad = (small(*shape, dtype=dtype, seed=i) for i, shape in enumerate([(6, 5), (4, 5), (4,), (6, 4)]))
    x, w, b = (one.requires_grad_() for one in operands)
    found = torch.autograd.grad(gt.linear(x, w, b), (x, w, b), grad)
    wanted = torch.autograd.grad(torch.nn.functional.linear(x, w, b), (x, w, b), grad)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == getattr(torch, dtype)
        equal(one, other)


@pytest.mark.parametrize("sizes", [(33, 65, 17), (128, 256, 64)], ids=str)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_of_halves_are_rounded_once_and_beside_torchs_own(dtype: str, sizes: tuple[int, int, int]) -> None:
    """Torch may round parts of sums to halves, too: each of its own elements is allowed four such roundings."""
    m, k, n = sizes
    a, b = (random(*shape, dtype=dtype, seed=i).requires_grad_() for i, shape in enumerate(((m, k), (k, n))))
    grad = random(m, n, dtype=dtype, seed=2)
    found = torch.autograd.grad(gt.mm(a, b), (a, b), grad)
    own = torch.autograd.grad(torch.mm(a, b), (a, b), grad)
    factors = ((grad, b.detach().mT), (a.detach().mT, grad))
    for one, other, (left, right) in zip(found, own, factors, strict=True):
        assert_within_bound(one, left, right)
        size = left.abs().double() @ right.abs().double()
        assert bool(((one.double() - other.double()).abs() <= 4 * torch.finfo(a.dtype).eps / 2 * size).all())


@pytest.mark.parametrize("name", ["bfloat16", "float16", "tf32"])
def test_of_a_precision_are_those_of_operands_that_are_rounded_to_it(name: str) -> None:
    """Beside those of float32 the first would be off by 2⁻⁸, the others by 2⁻¹¹: that is beyond the bound."""
    a, b = random(33, 65).requires_grad_(), random(65, 17, seed=1).requires_grad_()
    grad = random(33, 17, seed=2)
    with gp.precision(name):
        result = gt.mm(a, b)
    found = torch.autograd.grad(result, (a, b), grad)

    def rounded(x: torch.Tensor) -> torch.Tensor:
        if name != "tf32":
            return x.detach().to(getattr(torch, name)).float()
        mantissa, exponent = torch.frexp(x.detach())
        return torch.ldexp((mantissa * 2**11).round() / 2**11, exponent)  # to nearest, ties to even

    assert_within_bound(found[0], rounded(grad), rounded(b).mT)
    assert_within_bound(found[1], rounded(a).mT, rounded(grad))
    with pytest.raises(AssertionError):
        assert_within_bound(found[0], grad, b.detach().mT)


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
