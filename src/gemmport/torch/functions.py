"""torch's products, with their names, arguments and rules, computed by gemmport."""

from __future__ import annotations

import torch

from gemmport.core.errors import ShapeError
from gemmport.torch.batches import product
from gemmport.torch.gradients import multiply
from gemmport.torch.scaled import multiply_scaled


def mm(input: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    """`torch.mm`: (m, k) times (k, n).

    Raises:
        ShapeError, DtypeError, ArrayError: operands that do not fit together, differ in type, or are on two devices.
        Others as `gemmport.gemm`.
    """
    _check_dimensions(2, input=input, mat2=mat2)
    return multiply(input, mat2, None, 1, 0)


def bmm(input: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    """`torch.bmm`: (batch, m, k) times (batch, k, n).

    Raises:
        As `mm`.
    """
    _check_batches(input=input, mat2=mat2)
    return multiply(input, mat2, None, 1, 0)


def addmm(
    input: torch.Tensor, mat1: torch.Tensor, mat2: torch.Tensor, *, beta: complex = 1, alpha: complex = 1
) -> torch.Tensor:
    """`torch.addmm`: beta · input + alpha · mat1 · mat2, with `input` broadcast to (m, n). It is not read where beta is 0.

    Raises:
        As `mm`.
    """
    _check_dimensions(2, mat1=mat1, mat2=mat2)
    return multiply(mat1, mat2, input.expand(mat1.shape[0], mat2.shape[1]), alpha, beta)


def baddbmm(
    input: torch.Tensor, batch1: torch.Tensor, batch2: torch.Tensor, *, beta: complex = 1, alpha: complex = 1
) -> torch.Tensor:
    """`torch.baddbmm`: beta · input + alpha · batch1 · batch2, `input` broadcast to (batch, m, n), read as in `addmm`.

    Raises:
        As `mm`.
    """
    _check_batches(batch1=batch1, batch2=batch2)
    return multiply(batch1, batch2, input.expand(*batch1.shape[:2], batch2.shape[2]), alpha, beta)


def matmul(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """`torch.matmul`: of vectors, matrices, and stacks of matrices whose first dimensions broadcast.

    Raises:
        As `mm`. RuntimeError, of torch: dimensions that do not broadcast.
    """
    for name, x in (("input", input), ("other", other)):
        if x.ndim == 0:
            raise ShapeError(f"{name} must have at least one dimension; got a scalar; use torch.mul")
    if input.ndim == other.ndim == 2:
        return multiply(input, other, None, 1, 0)
    left = input.unsqueeze(0) if input.ndim == 1 else input
    right = other.unsqueeze(1) if other.ndim == 1 else other
    result = product(left, right, by=multiply)
    result = result.squeeze(-1) if other.ndim == 1 else result
    return result.squeeze(-1 if other.ndim == 1 else -2) if input.ndim == 1 else result


def linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`torch.nn.functional.linear`: input · weightᵀ + bias, of (…, in), (out, in) or (in), and (out) or a scalar.

    The bias is C of the same product, with beta = 1: it is added to the sums before they are rounded.

    Raises:
        As `matmul`.
    """
    if weight.ndim == 1:
        return linear(input, weight.unsqueeze(0), bias).squeeze(-1)
    _check_dimensions(2, weight=weight)
    if input.ndim == 2:
        added = None if bias is None else bias.expand(input.shape[0], weight.shape[0])
        return multiply(input, weight.mT, added, 1, 0 if bias is None else 1)
    rows = input.unsqueeze(0) if input.ndim == 1 else input
    result = product(rows, weight.mT, bias, beta=0 if bias is None else 1, by=multiply)
    return result.squeeze(0) if input.ndim == 1 else result


def scaled_mm(
    mat_a: torch.Tensor, mat_b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor,
    bias: torch.Tensor | None = None, out_dtype: torch.dtype = torch.bfloat16,
) -> torch.Tensor:  # fmt: skip
    """(scale_a · mat_a) · (mat_b · scale_b) + bias, of float8: `torch._scaled_mm`, with results that do not have 8 bits.

    Args:
        mat_a, mat_b: (m, k) and (k, n) of torch.float8_e4m3fn or float8_e5m2, of any strides and sizes.
        scale_a, scale_b: float32, on the device of the matrices: one number each, or (m, 1) and (1, n).
        bias: (n,), of real numbers. It is added before the sum is rounded.
        out_dtype: torch.bfloat16, float16 or float32.

    Raises:
        ShapeError, DtypeError, ArrayError: operands that do not fit together, or are on two devices. Others as `gemmport.gemm`.
    """
    return multiply_scaled(mat_a, mat_b, scale_a, scale_b, bias, out_dtype)


def _check_dimensions(wanted: int, **operands: torch.Tensor) -> None:
    for name, x in operands.items():
        if x.ndim != wanted:
            raise ShapeError(
                f"{name} must have {wanted} dimensions; got shape {tuple(x.shape)}; gemmport.torch.matmul takes any"
            )


def _check_batches(**operands: torch.Tensor) -> None:
    _check_dimensions(3, **operands)
    (first, x), (second, y) = operands.items()
    if x.shape[0] != y.shape[0]:
        raise ShapeError(
            f"{first} and {second} must have one batch size; got {x.shape[0]} and {y.shape[0]}; "
            "gemmport.torch.matmul broadcasts"
        )
