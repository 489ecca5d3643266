"""gemmport.torch's functions beside torch's of the same names: shapes, broadcasts, arguments, refusals."""

from __future__ import annotations

from typing import Any

import pytest

import gemmport as gp
from absences import TORCH, needs

if TORCH.is_here():
    import torch
    import torch.nn.functional as F  # noqa: N812 - its users' name for it

    import gemmport.torch as gt
    from tensors import equal, placed, small

pytestmark = needs(TORCH)

SHAPES = [
    ((5,), (5,)),
    ((5,), (5, 3)),
    ((4, 5), (5,)),
    ((4, 5), (5, 3)),
    ((5,), (2, 5, 3)),
    ((2, 4, 5), (5,)),
    ((2, 4, 5), (5, 3)),
    ((4, 5), (2, 5, 3)),
    ((2, 4, 5), (2, 5, 3)),
    ((2, 4, 5), (1, 5, 3)),
    ((1, 4, 5), (2, 5, 3)),
    ((2, 3, 4, 5), (5, 3)),
    ((2, 3, 4, 5), (3, 5, 3)),
    ((2, 1, 4, 5), (3, 5, 3)),
    ((3, 4, 5), (2, 3, 5, 6)),
    ((1, 1, 4, 5), (1, 5, 3)),
    ((0, 4, 5), (5, 3)),
    ((2, 0, 5), (2, 5, 3)),
    ((2, 4, 0), (2, 0, 3)),
    ((0, 4, 5), (0, 5, 3)),
    ((2, 4, 5), (1, 1, 5, 3)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_matmul_takes_the_shapes_that_torch_takes(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = small(*left), small(*right, seed=1)
    equal(gt.matmul(a, b), torch.matmul(a, b))


def test_matmul_of_what_lies_across() -> None:
    heads = small(2, 6, 3, 4).transpose(1, 2)  # as attention splits them off
    equal(gt.matmul(heads, heads.mT), torch.matmul(heads, heads.mT))
    equal(gt.matmul(heads, small(4, 5)), torch.matmul(heads, small(4, 5)))


@pytest.mark.parametrize(("name", "left", "right"), [("mm", (4, 5), (5, 3)), ("bmm", (2, 4, 5), (2, 5, 3))])
def test_products_of_matrices_and_batches(name: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = small(*left), small(*right, seed=1)
    equal(getattr(gt, name)(a, b), getattr(torch, name)(a, b))
    equal(getattr(gt, name)(input=a, mat2=b), getattr(torch, name)(input=a, mat2=b))


@pytest.mark.parametrize("scalars", [{}, {"alpha": 2}, {"beta": 3}, {"alpha": 0.5, "beta": -2}, {"beta": 0}], ids=str)
@pytest.mark.parametrize("added", [(4, 3), (3,), (4, 1), (1, 3), ()], ids=str)
def test_addmm_and_baddbmm_broadcast_what_they_add(added: tuple[int, ...], scalars: dict[str, Any]) -> None:
    c = small(*added, seed=2)
    a, b = small(4, 5), small(5, 3, seed=1)
    equal(gt.addmm(c, a, b, **scalars), torch.addmm(c, a, b, **scalars))
    a, b = small(2, 4, 5), small(2, 5, 3, seed=1)
    equal(gt.baddbmm(c, a, b, **scalars), torch.baddbmm(c, a, b, **scalars))


@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 4, 5), (2, 3, 4, 5), (0, 5)], ids=str)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
def test_linear(shape: tuple[int, ...], bias: bool) -> None:
    x, weight, added = small(*shape), small(3, 5, seed=1), small(3, seed=2) if bias else None
    equal(gt.linear(x, weight, added), F.linear(x, weight, added))
    if not bias:  # torch takes a vector of weights, but adds nothing to its product with matrices
        equal(gt.linear(x, weight[0]), F.linear(x, weight[0]))


def test_a_bias_is_added_before_the_sum_is_rounded() -> None:
    x, weight, bias = (placed(torch.tensor(x).bfloat16()) for x in ([[256.0, 1.0]], [[1.0, 1.0]], [1.0]))
    assert gt.linear(x, weight, bias).item() == 258  # 256 + 1 rounds to 256 in bfloat16


@pytest.mark.parametrize(
    ("name", "shapes", "told"),
    [
        ("mm", [(2, 4, 5), (5, 3)], r"input must have 2 dimensions; got shape \(2, 4, 5\)"),
        ("mm", [(4, 5), (5,)], "mat2 must have 2 dimensions"),
        ("bmm", [(4, 5), (2, 5, 3)], "input must have 3 dimensions"),
        ("bmm", [(2, 4, 5), (3, 5, 3)], "one batch size; got 2 and 3"),
        ("addmm", [(3,), (4, 5), (2, 5, 3)], "mat2 must have 2 dimensions"),
        ("baddbmm", [(3,), (2, 4, 5), (3, 5, 3)], "one batch size; got 2 and 3"),
        ("matmul", [(), (4, 5)], "input must have at least one dimension"),
        ("matmul", [(4, 5), (6, 3)], "inner sizes 5 and 6"),
        ("linear", [(4, 5), (2, 3, 5)], "weight must have 2 dimensions"),
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_fit_is_named(name: str, shapes: list[tuple[int, ...]], told: str) -> None:
    operands = [small(*shape) for shape in shapes]
    with pytest.raises(gp.ShapeError, match=told):
        getattr(gt, name)(*operands)
    with pytest.raises(RuntimeError):  # torch refuses it too
        getattr(F if name == "linear" else torch, name)(*operands)


@pytest.mark.parametrize("name", ["addmm", "matmul"])
def test_what_does_not_broadcast_is_refused_by_torch(name: str) -> None:
    operands = [small(2), small(4, 5), small(5, 3)] if name == "addmm" else [small(2, 4, 5), small(3, 5, 3)]
    with pytest.raises(RuntimeError):
        getattr(gt, name)(*operands)
