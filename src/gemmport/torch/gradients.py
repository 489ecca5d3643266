"""Derivatives of `gemmport::gemm`, and what `torch.vmap` makes of it: products by the same operator, again.

What `torch.library.register_autograd` registers serves neither `torch.func.grad`, which refuses it, nor `torch.func.jvp`, which
takes its derivatives for zeros. Here one `torch.autograd.Function` serves all. The dispatcher calls it where autograd records,
and where transforms of `torch.func` are active, before they see the operator.
"""

from __future__ import annotations

from typing import Any

import torch

from gemmport.api.precision import PrecisionContext, current
from gemmport.torch.batches import mapped
from gemmport.torch.operators import LIBRARY, computed, gemm, is_plain, is_recorded


class Product(torch.autograd.Function):  # type: ignore[misc]  # torch is Any to a type checker
    """alpha · A · B + beta · C, recorded."""

    @staticmethod
    def forward(
        a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, alpha: complex, beta: complex
    ) -> torch.Tensor:
        """The operator as it is without autograd."""
        with torch._C._AutoDispatchBelowAutograd():
            return (computed if is_plain(a, b, c) else gemm)(a, b, c, alpha, beta)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        """Keeps what derivatives are made of."""
        a, b, _, ctx.alpha, ctx.beta = inputs
        needs_a, needs_b = ctx.needs_input_grad[:2]
        ctx.save_for_backward(a if needs_b else None, b if needs_a else None)
        ctx.save_for_forward(a, b)
        ctx.shapes = a.shape, b.shape
        ctx.precision = current()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """alpha* · G · Bᴴ, alpha* · Aᴴ · G and beta* · G, where G is the gradient of the result, with * for conjugation.

        That of a matrix which served a batch is summed over the batch. Operands are rounded as those of the product were.
        """
        a, b = ctx.saved_tensors
        needs_a, needs_b, needs_c = ctx.needs_input_grad[:3]
        alpha, beta = (x.conjugate() if isinstance(x, complex) else x for x in (ctx.alpha, ctx.beta))
        # Torch may have threads of its own for this, to which no context reaches.
        with PrecisionContext(ctx.precision):
            return (
                multiply(grad, b.mH, None, alpha, 0).sum_to_size(ctx.shapes[0]) if needs_a else None,
                multiply(a.mH, grad, None, alpha, 0).sum_to_size(ctx.shapes[1]) if needs_b else None,
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
            dc, beta = multiply(da, b, dc, ctx.alpha, beta), 1
        if db is not None:
            dc, beta = multiply(a, db, dc, ctx.alpha, beta), 1
        return dc if beta == 1 else dc * beta

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[torch.Tensor, int]:
        """One product for all that is mapped over."""
        return mapped(in_dims, *inputs)


_record = super(torch.autograd.Function, Product).apply
"""`Product.apply` where no transform of `torch.func` is active, for which it looks up what all arguments are called: two thirds
of its time.
"""


def _recorded(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, alpha: complex, beta: complex) -> torch.Tensor:
    """The kernel for autograd."""
    if not is_recorded(a, b, c):
        return Product.forward(a, b, c, alpha, beta)
    return (Product.apply if torch._C._are_functorch_transforms_active() else _record)(a, b, c, alpha, beta)


def multiply(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, alpha: complex, beta: complex) -> torch.Tensor:
    """The operator; past torch's dispatcher where that has nothing to do, and takes as long as all that gemmport does."""
    if torch.compiler.is_compiling() or not is_plain(a, b, c):  # compilers take the operator as it is
        return gemm(a, b, c, alpha, beta)
    return (_record if is_recorded(a, b, c) else computed)(a, b, c, alpha, beta)


LIBRARY.impl("gemm", _recorded, "Autograd")
LIBRARY.impl("gemm", Product.apply, "FuncTorchDynamicLayerFrontMode")
