"""From stacks of matrices of any number of dimensions to the matrices, or the one batch of them, that the operator takes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gemmport.torch.operators import gemm


def product(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None = None, *, alpha: complex = 1, beta: complex = 0
) -> torch.Tensor:
    """alpha · A · B + beta · C of stacks (…, m, k) and (…, k, n), whose first dimensions broadcast.

    Args:
        c: broadcast to the result, (…, m, n).
    """
    (m, k), n = a.shape[-2:], b.shape[-1]
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2], () if c is None else c.shape[:-2])
    shape = (*batch, m, n)
    full = None if c is None else c.expand(shape)
    if not batch:
        return gemm(a, b, full, alpha, beta)
    if _is_one(b) and not _is_one(a):  # the rows of all matrices of A against one B: one tall product
        rows = None if full is None else full.flatten(0, -2)
        return gemm(a.expand(*batch, m, k).flatten(0, -2), _matrix(b), rows, alpha, beta).view(shape)
    left = _matrix(a) if _is_one(a) else a.expand(*batch, m, k).flatten(0, -3)
    right = b.expand(*batch, *b.shape[-2:]).flatten(0, -3)
    return gemm(left, right, None if full is None else full.flatten(0, -3), alpha, beta).view(shape)


def _is_one(x: torch.Tensor) -> bool:
    """Whether a stack has one matrix, which serves a whole batch."""
    return all(size == 1 for size in x.shape[:-2])


def _matrix(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.shape[-2:])


def mapped(
    in_dims: Sequence[int | None],
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None,
    alpha: complex,
    beta: complex,
) -> tuple[torch.Tensor, int]:
    """The operator under `torch.vmap`: what it maps over becomes the first dimension of the batch.

    Args:
        in_dims: of each operand, the dimension that is mapped over; None for one that is the same for all.

    Returns:
        The result, and which of its dimensions is the mapped one.
    """
    operands = [
        x if x is None or dim is None else x.movedim(dim, 0) for x, dim in zip((a, b, c), in_dims, strict=False)
    ]
    own = [x.ndim - (dim is not None) for x, dim in zip(operands[:2], in_dims, strict=False)]
    # A single matrix among batches: mapped over, it is the same for each matrix of a batch.
    left, right = (
        x.unsqueeze(1) if dim is not None and ndim < max(own) else x
        for x, dim, ndim in zip(operands[:2], in_dims, own, strict=False)
    )
    return product(left, right, operands[2], alpha=alpha, beta=beta), 0
