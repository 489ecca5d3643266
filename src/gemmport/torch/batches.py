"""From stacks of matrices of any number of dimensions to the matrices, or the one batch of them, that the operator takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from gemmport.torch.operators import gemm


def product(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None = None,
    *,
    alpha: complex = 1,
    beta: complex = 0,
    by: Callable[..., torch.Tensor] = gemm,
) -> torch.Tensor:
    """alpha · A · B + beta · C of stacks (…, m, k) and (…, k, n), whose first dimensions broadcast.

    Args:
        c: broadcast to the result, (…, m, n).
        by: the operator, or what does the same.
    """
    m, n = a.shape[-2], b.shape[-1]
    batch = a.shape[:-2]
    # Torch takes as long to say how shapes broadcast as to launch a kernel.
    if any(shape and shape != batch for shape in (b.shape[:-2], () if c is None else c.shape[:-2])):
        batch = torch.broadcast_shapes(batch, b.shape[:-2], () if c is None else c.shape[:-2])
    shape = (*batch, m, n)
    if not batch:
        return by(a, b, None if c is None else c.expand(shape), alpha, beta)
    if _is_one(b) and not _is_one(a):  # the rows of all matrices of A against one B: one tall product
        rows = _whole(a, batch).flatten(0, -2)
        if c is not None:  # a bias is that of all rows
            c = c.expand(rows.shape[0], n) if c.ndim < 2 else c.expand(shape).flatten(0, -2)
        return by(rows, _matrix(b), c, alpha, beta).view(shape)
    left = _matrix(a) if _is_one(a) else _whole(a, batch).flatten(0, -3)
    right = _whole(b, batch).flatten(0, -3)
    return by(left, right, None if c is None else c.expand(shape).flatten(0, -3), alpha, beta).view(shape)


def _whole(x: torch.Tensor, batch: Sequence[int]) -> torch.Tensor:
    """A stack with all its matrices: as many as the result has."""
    return x if x.shape[:-2] == batch else x.expand(*batch, *x.shape[-2:])


def _is_one(x: torch.Tensor) -> bool:
    """Whether a stack has one matrix, which serves a whole batch."""
    return x.ndim == 2 or all(size == 1 for size in x.shape[:-2])


def _matrix(x: torch.Tensor) -> torch.Tensor:
    return x if x.ndim == 2 else x.reshape(x.shape[-2:])


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
