"""`gemmport::scaled_mm`, the operator of products of float8 with scales. Like torch's own, it has no derivative."""

from __future__ import annotations

from typing import Any

import torch

from gemmport.api.gemm import gemm as product_of_arrays
from gemmport.core.errors import ArrayError, DtypeError, ShapeError
from gemmport.torch.operators import LIBRARY

LIBRARY.define(
    "scaled_mm(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias, ScalarType out_dtype) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout),
)

multiply_scaled = torch.ops.gemmport.scaled_mm.default
"""(scale_a · A) · (B · scale_b) + bias.

Args:
    a, b: matrices (m, k) and (k, n) of float8_e4m3fn or float8_e5m2, on one device, of any strides.
    scale_a: float32: one number, or (m, 1). scale_b: one number, or (1, n).
    bias: (n,), of a floating-point type; it is added before the sum is rounded.
    out_dtype: of the result: torch.bfloat16, float16 or float32.

Returns:
    A new row-major tensor (m, n).
"""

_INPUTS, _OUTPUTS = (torch.float8_e4m3fn, torch.float8_e5m2), (torch.bfloat16, torch.float16, torch.float32)


def _computed(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, bias: torch.Tensor | None,
    out_dtype: torch.dtype,
) -> torch.Tensor:  # fmt: skip
    """The kernel for the CPU and for CUDA."""
    _check(a, b, scale_a, scale_b, bias, out_dtype)
    a, b, scale_a, scale_b = (x.detach() for x in (a, b, scale_a, scale_b))
    added: dict[str, Any] = {}
    if bias is not None:
        added = {"c": bias.detach().to(out_dtype).expand(a.shape[0], b.shape[1]).contiguous(), "beta": 1}
    name = str(out_dtype).removeprefix("torch.")
    result: torch.Tensor = product_of_arrays(a, b, scale_a=scale_a, scale_b=scale_b, dtype=name, **added)
    return result


def _check(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, bias: torch.Tensor | None,
    out_dtype: torch.dtype,
) -> None:  # fmt: skip
    """Raises ShapeError, DtypeError or ArrayError where operands do not go together, as torch's own product refuses them."""
    for name, x in (("a", a), ("b", b)):
        if x.ndim != 2 or x.dtype not in _INPUTS:
            raise DtypeError(
                f"{name} must be a matrix of float8_e4m3fn or float8_e5m2; got {x.dtype} of shape {tuple(x.shape)}; "
                "gemmport.torch.matmul multiplies other types"
            )
    if a.shape[1] != b.shape[0]:
        raise ShapeError(f"a and b must be (m, k) and (k, n); got {tuple(a.shape)} and {tuple(b.shape)}; transpose one")
    if out_dtype not in _OUTPUTS:
        raise DtypeError(
            f"out_dtype must be one of {', '.join(map(str, _OUTPUTS))}; got {out_dtype}: convert the result"
        )
    for name, x, whole in (("scale_a", scale_a, (a.shape[0], 1)), ("scale_b", scale_b, (1, b.shape[1]))):
        if x.dtype != torch.float32:
            raise DtypeError(f"{name} must be of float32; got {x.dtype}; convert it with .float()")
        if x.numel() != 1 and tuple(x.shape) != whole:
            raise ShapeError(f"{name} must be one number or have shape {whole}; got {tuple(x.shape)}; use reshape")
    if bias is not None and (tuple(bias.shape) != (b.shape[1],) or not bias.is_floating_point()):
        raise ShapeError(f"bias must be {b.shape[1]} real numbers; got {bias.dtype} of shape {tuple(bias.shape)}")
    for name, y in (("b", b), ("scale_a", scale_a), ("scale_b", scale_b), ("bias", bias)):
        if y is not None and y.device != a.device:
            raise ArrayError(
                f"operands must be on one device; got a on {a.device} and {name} on {y.device}; move one with .to()"
            )


def _described(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, bias: torch.Tensor | None,
    out_dtype: torch.dtype,
) -> torch.Tensor:  # fmt: skip
    """The result without its elements."""
    _check(a, b, scale_a, scale_b, bias, out_dtype)
    return a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype)


LIBRARY.impl("scaled_mm", _computed, "CPU")
LIBRARY.impl("scaled_mm", _computed, "CUDA")
torch.library.register_fake("gemmport::scaled_mm", _described, lib=LIBRARY)
