"""`gemmport::gemm`, the one operator that PyTorch's dispatcher knows: alpha · A · B + beta · C, computed by `gemmport.gemm`.

It is defined by `define` and `impl` of `torch.library.Library`. What `torch.library.custom_op` makes of the same function looks
for memory that a result shares with an operand, which a product never does: that takes several microseconds of every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from gemmport.api.gemm import gemm as product_of_arrays
from gemmport.core.errors import ArrayError, DtypeError, ShapeError
from gemmport.core.problem import Op
from gemmport.execution.adapters import library_of

LIBRARY = torch.library.Library("gemmport", "DEF")
"""Registrations last as long as this object."""

LIBRARY.define(
    "gemm(Tensor a, Tensor b, Tensor? c, Scalar alpha, Scalar beta) -> Tensor",
    # Operands may have any strides, so that a compiler need not copy them into those that it traced.
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout),
)

gemm = torch.ops.gemmport.gemm.default
"""alpha · A · B + beta · C.

Args:
    a, b: matrices (m, k) and (k, n), or batches of them, (batch, m, k) and (batch, k, n); a matrix serves a whole batch. Of one
        type and on one device, and of any strides.
    c: (m, n), or (batch, m, n), of the same type, also repeated by strides of 0; None where beta is 0.

Returns:
    A new row-major tensor of the same type.
"""


def is_recorded(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None) -> bool:
    """Whether autograd records a product, to derive it backward or forward."""
    if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad or (c is not None and c.requires_grad)):
        return True
    # Outside of a level of forward mode, where nearly all products are, no tensor has a tangent.
    return forward_ad._current_level >= 0 and any(
        forward_ad.unpack_dual(x).tangent is not None for x in (a, b, c) if x is not None
    )


_TYPES = {torch.Tensor, torch.nn.Parameter}
"""Subclasses of tensors see the products that they are operands of."""


def _bits(*keys: str) -> int:
    found = 0
    for key in keys:
        found |= int(torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key)).raw_repr())
    return found


_UNUSUAL = ~_bits(
    "CPU", "CUDA", "AutogradCPU", "AutogradCUDA", "AutocastCPU", "AutocastCUDA", "ADInplaceOrView", "BackendSelect", "Conjugate"
)  # fmt: skip
"""Every dispatch key but those which a dense tensor on the CPU or on CUDA has, and a thread in which nothing is switched on."""


def is_plain(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None) -> bool:
    """Whether a product concerns autograd and the kernel alone: operands are dense tensors on the CPU or on CUDA, and there is
    no mode, no transform of `torch.func`, no autocast, no trace and no profiler.
    """
    keys = torch._C._dispatch_keys
    if type(a) not in _TYPES or type(b) not in _TYPES:
        return False
    found = keys(a).raw_repr() | keys(b).raw_repr() | torch._C._dispatch_tls_local_include_set().raw_repr()
    if c is not None:
        if type(c) not in _TYPES:
            return False
        found |= keys(c).raw_repr()
    return not (
        found & _UNUSUAL
        or torch._C._is_any_autocast_enabled()
        or torch._C._is_torch_function_mode_enabled()
        or torch.autograd._profiler_enabled()
    )


def computed(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, alpha: complex, beta: complex) -> torch.Tensor:
    """The kernel for the CPU and for CUDA."""
    _check_alike(a, b, c)
    (x, op_a), (y, op_b) = _unconjugated(a), _unconjugated(b)
    z = c.detach() if c is not None and c.requires_grad else c
    # Torch writes out what is repeated, as a bias is: no kernel reads it in place, and only such products are kept.
    z = z.contiguous() if z is not None and 0 in z.stride() else z
    if not a.is_cpu:
        return product_of_arrays(x, y, c=z, alpha=alpha, beta=beta, trans_a=op_a, trans_b=op_b)
    torchs: Any = library_of(a)
    x, y, z = torchs.to_host(x), torchs.to_host(y), None if z is None else torchs.to_host(z)
    return torchs.from_host(product_of_arrays(x, y, c=z, alpha=alpha, beta=beta, trans_a=op_a, trans_b=op_b))


def _check_alike(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None) -> None:
    """Raises DtypeError or ArrayError where operands differ in type or device, which torch does not convert for a product."""
    for name, x in (("b", b), ("c", c)):
        if x is None:
            continue
        if x.dtype is not a.dtype:
            raise DtypeError(
                f"operands must have one dtype, as torch.matmul wants it; got a of {a.dtype} and {name} of {x.dtype}; "
                "convert one with .to(), or use torch.autocast"
            )
        if x.device != a.device:
            raise ArrayError(
                f"operands must be on one device; got a on {a.device} and {name} on {x.device}; move one with .to()"
            )


def _unconjugated(x: torch.Tensor) -> tuple[torch.Tensor, Op]:
    """A tensor without autograd and without the bit by which torch says "conjugated", and the op that stands for the bit."""
    if x.is_conj():
        return x.conj().detach(), "R"
    return (x.detach() if x.requires_grad else x), "N"


def _described(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, alpha: complex, beta: complex) -> torch.Tensor:
    """The result without its elements, for operands that have none either: torch says whether A and B fit together."""
    _check_alike(a, b, c)
    shape = torch.matmul(a, b).shape
    if c is not None and c.shape != shape:
        raise ShapeError(f"c must have the product's shape {tuple(shape)}; got {tuple(c.shape)}; use c.expand()")
    return a.new_empty(shape)


def _cast(device: str) -> Callable[..., torch.Tensor]:
    """The kernel for a device's autocast: casts what torch's own products cast, which is all real numbers but float64."""
    key = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{device.upper()}"))

    def cast(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, alpha: complex, beta: complex) -> torch.Tensor:
        dtype = torch.get_autocast_dtype(device)
        operands = [
            x.to(dtype)
            if x is not None and x.is_floating_point() and x.dtype is not torch.float64 and x.device.type == device
            else x
            for x in (a, b, c)
        ]
        with torch._C._ExcludeDispatchKeyGuard(key):  # as torch.library.register_autocast, which knows one type only
            return gemm(*operands, alpha, beta)

    return cast


LIBRARY.impl("gemm", computed, "CPU")
LIBRARY.impl("gemm", computed, "CUDA")
LIBRARY.impl("gemm", torch.library.fallthrough_kernel, "Conjugate")  # else torch would copy what is conjugated
LIBRARY.impl("gemm", _cast("cpu"), "AutocastCPU")
LIBRARY.impl("gemm", _cast("cuda"), "AutocastCUDA")
torch.library.register_fake("gemmport::gemm", _described, lib=LIBRARY)
