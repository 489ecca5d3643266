"""Derivatives of `gemmport::gemm`, and what `torch.vmap` makes of it: products by the same operator, again.

What `torch.library.register_autograd` registers serves neither `torch.func.grad`, which refuses it, nor `torch.func.jvp`, which
takes its derivatives for zeros. Here one `torch.autograd.Function` serves all. The dispatcher calls it where autograd records,
and where transforms of `torch.func` are active, before they see the operator.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.forward_ad import unpack_dual

from gemmport.torch.batches import mapped
from gemmport.torch.operators import LIBRARY, gemm


class Product(torch.autograd.Function):  # type: ignore[misc]  # torch is Any to a type checker
    """alpha · A · B + beta · C, recorded."""

    @staticmethod
    def forward(
        a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, alpha: complex, beta: complex
    ) -> torch.Tensor:
        """The operator as it is without autograd."""
        with torch._C._AutoDispatchBelowAutograd():
            return gemm(a, b, c, alpha, beta)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        """Keeps what derivatives are made of."""
        a, b, _, ctx.alpha, ctx.beta = inputs
        needs_a, needs_b = ctx.needs_input_grad[:2]
        ctx.save_for_backward(a if needs_b else None, b if needs_a else None)
        ctx.save_for_forward(a, b)
        ctx.shapes = a.shape, b.shape

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """alpha* · G · Bᴴ, alpha* · Aᴴ · G and beta* · G, where G is the gradient of the result, with * for conjugation.

        That of a matrix which served a batch is summed over the batch.
        """
        a, b = ctx.saved_tensors
        needs_a, needs_b, needs_c = ctx.needs_input_grad[:3]
        alpha, beta = (x.conjugate() if isinstance(x, complex) else x for x in (ctx.alpha, ctx.beta))
        return (
            gemm(grad, b.mH, None, alpha, 0).sum_to_size(ctx.shapes[0]) if needs_a else None,
            gemm(a.mH, grad, None, alpha, 0).sum_to_size(ctx.shapes[1]) if needs_b else None,
            grad * beta if needs_c else None,
            None,
            None,
        )

    @staticmethod
    def jvp(ctx: Any, da: Any, db: Any, dc: Any, *_: None) -> torch.Tensor:
        """alpha · (dA · B + A · dB) + beta · dC, of the tangents that are there."""
        a, b = ctx.saved_tensors
        beta = 0 if dc is None else ctx.beta
        if da is not None:
            dc, beta = gemm(da, b, dc, ctx.alpha, beta), 1
        if db is not None:
            dc, beta = gemm(a, db, dc, ctx.alpha, beta), 1
        return dc if beta == 1 else dc * beta

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[torch.Tensor, int]:
        """One product for all that is mapped over."""
        return mapped(in_dims, *inputs)


def _recorded(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, alpha: complex, beta: complex) -> torch.Tensor:
    """The kernel for autograd."""
    operands = [x for x in (a, b, c) if x is not None]
    if (torch.is_grad_enabled() and any(x.requires_grad for x in operands)) or any(
        unpack_dual(x).tangent is not None for x in operands
    ):
        return Product.apply(a, b, c, alpha, beta)
    return Product.forward(a, b, c, alpha, beta)


LIBRARY.impl("gemm", _recorded, "Autograd")
LIBRARY.impl("gemm", Product.apply, "FuncTorchDynamicLayerFrontMode")
