"""`use`: torch's own products, wherever they are called, computed by gemmport."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gemmport.api.precision import current, precision
from gemmport.core.errors import ArrayError, DtypeError, ShapeError
from gemmport.torch.functions import addmm, baddbmm, bmm, matmul, mm, scaled_mm

_ATEN = torch.ops.aten

TF32 = "tf32"
"""As gemmport and torch call it."""


def _vdot(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return matmul(input.conj(), other)


def _addmv(
    input: torch.Tensor, mat: torch.Tensor, vec: torch.Tensor, *, beta: complex = 1, alpha: complex = 1
) -> torch.Tensor:
    column = input.unsqueeze(-1) if input.ndim else input
    return addmm(column, mat, vec.unsqueeze(-1), beta=beta, alpha=alpha).squeeze(-1)


def _addbmm(
    input: torch.Tensor, batch1: torch.Tensor, batch2: torch.Tensor, *, beta: complex = 1, alpha: complex = 1
) -> torch.Tensor:
    """The sum of a batch of products is one product, of matrices side by side and one above the other."""
    if batch1.shape[0] != batch2.shape[0] or batch1.shape[2] != batch2.shape[1]:
        raise ShapeError("batches must be of one size")
    left, right = batch1.transpose(0, 1).flatten(1), batch2.flatten(0, 1)
    return addmm(input, left, right, beta=beta, alpha=alpha)


def _scaled_mm(
    self: torch.Tensor, mat2: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None, out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> torch.Tensor:  # fmt: skip
    """A result of 8 bits, which is what torch takes None for, and its scale are torch's; so are block scales."""
    if out_dtype is None or scale_result is not None:
        raise DtypeError("results of 8 bits are torch's")
    return scaled_mm(self, mat2, scale_a, scale_b, bias, out_dtype)


def _scaled_mm_v2(
    self: torch.Tensor, mat2: torch.Tensor, scale_a: Sequence[torch.Tensor], recipe_a: Sequence[int], swizzle_a: Sequence[int],
    scale_b: Sequence[torch.Tensor], recipe_b: Sequence[int], swizzle_b: Sequence[int], bias: torch.Tensor | None,
    out_dtype: torch.dtype | None, contraction_dim: Sequence[int] = (), use_fast_accum: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Recipes of scales for tensors, 0, and for rows, 1, are the shapes of those that `scaled_mm` takes."""
    if (
        contraction_dim
        or any((*swizzle_a, *swizzle_b))
        or any(len(x) != 1 or x[0] not in (0, 1) for x in (recipe_a, recipe_b))
    ):
        raise DtypeError("scales of blocks are torch's")
    return _scaled_mm(self, mat2, scale_a[0], scale_b[0], bias, None, out_dtype)


_BY_NAME: Mapping[str, Callable[..., torch.Tensor]] = {
    "mm": mm, "bmm": bmm, "addmm": addmm, "baddbmm": baddbmm, "addbmm": _addbmm,
    "mv": matmul, "addmv": _addmv, "dot": matmul, "vdot": _vdot,
}  # fmt: skip

_OF_FLOAT8: Mapping[str, Callable[..., torch.Tensor]] = {
    name: route
    for name, route in (("_scaled_mm", _scaled_mm), ("_scaled_mm_v2", _scaled_mm_v2))
    if hasattr(_ATEN, name)
}
"""The second came with PyTorch 2.10, as `torch.nn.functional.scaled_mm`."""

_ROUTES: Mapping[Any, Callable[..., torch.Tensor]] = {
    getattr(getattr(_ATEN, name), overload): route
    for name, route in {**_BY_NAME, **_OF_FLOAT8}.items()
    for overload in ("default", "out")
}
"""What torch's products are made of, in its dispatcher. Compiled code calls those that write to `out`."""

_IN_PLACE: Mapping[Any, Callable[..., torch.Tensor]] = {
    getattr(_ATEN, f"{name}_").default: _BY_NAME[name] for name in ("addmm", "baddbmm", "addbmm", "addmv")
}
"""Those that write to what they add to."""

_TYPES = {
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
}  # fmt: skip
"""That both compute in: torch has no products of bool, nor of its other unsigned types."""

_TYPES_OF_SCALED = {torch.float8_e4m3fn, torch.float8_e5m2, torch.float32, torch.bfloat16, torch.float16}
"""Of the operands of `_OF_FLOAT8`: matrices, scales and bias."""


class Routing(TorchDispatchMode):  # type: ignore[misc]  # torch is Any to a type checker
    """The context that `use` gives.

    Attributes:
        products: how many of torch's products gemmport has computed in it.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.products = 0

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiles as without this context, which then sees the products that compiled code calls. Else nothing is compiled."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Computes a product, or lets torch do what it was asked."""
        named = kwargs or {}
        if _is_made_of_others(func):  # in inference mode they arrive here whole
            with self:
                return func.decompose(*args, **named)
        route = _ROUTES.get(func)
        if route is None:
            route = _IN_PLACE.get(func)
        types_of = _TYPES_OF_SCALED if route in _OF_FLOAT8.values() else _TYPES
        if route is None or not all(
            _is_ours(x, types_of) for x in (*args, *named.values()) if isinstance(x, torch.Tensor)
        ):
            return _by_torch(func, args, named)
        out = args[0] if func in _IN_PLACE else named.get("out")
        if out is not None and out.device != args[0].device:
            return _by_torch(func, args, named)
        try:
            with _as_torch_allows(args[0]):
                result = route(*args, **{name: value for name, value in named.items() if name != "out"})
        except (ShapeError, DtypeError, ArrayError):  # raised before any work: torch has words for what does not fit
            return _by_torch(func, args, named)
        if out is None:
            self.products += 1
            return result
        if out.dtype != result.dtype or (func in _IN_PLACE and out.shape != result.shape):
            return _by_torch(func, args, named)
        self.products += 1
        return (out if out.shape == result.shape else out.resize_(result.shape)).copy_(result)


def _by_torch(func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """What torch makes of it. Inside of a mode's handler, torch 2.13 forgets what is conjugated or negated lazily:
    `torch.linalg.pinv` of complex numbers is wrong under any mode that hands it on.
    """
    for x in args:
        if isinstance(x, torch.Tensor) and x.is_complex():
            keys, seen = torch._C.DispatchKey, torch._C._SetExcludeDispatchKeyGuard
            with seen(keys.Conjugate, False), seen(keys.Negative, False):
                return func(*args, **named)
    return func(*args, **named)


def _as_torch_allows(operand: torch.Tensor) -> AbstractContextManager[None]:
    """The precision that torch's own flag allows its products on CUDA, of which this is one; gemmport's context goes before.

    `torch.backends.cuda.matmul.allow_tf32`, its `fp32_precision` and `torch.set_float32_matmul_precision` are one flag.
    """
    return precision(TF32) if current() is None and _is_on_cuda(operand) and _allows_tf32() else nullcontext()


def _is_on_cuda(x: torch.Tensor) -> bool:
    return bool(x.is_cuda)


def _allows_tf32() -> bool:
    getter = getattr(torch._C, "_get_fp32_precision_getter", None)  # the legacy one raises where the newer flag was set
    return bool(torch.backends.cuda.matmul.allow_tf32 if getter is None else getter("cuda", "matmul") == TF32)


@cache
def _is_made_of_others(func: Any) -> bool:
    return isinstance(func, torch._ops.OpOverload) and func not in _ROUTES and func._can_decompose()


def _is_ours(x: torch.Tensor, types: Collection[torch.dtype]) -> bool:
    """Whether gemmport may read a tensor: what subclasses make of a product is theirs."""
    return (
        type(x) in (torch.Tensor, torch.nn.Parameter)
        and x.layout is torch.strided
        and x.device.type in ("cpu", "cuda")
        and x.dtype in types
    )


def use() -> Routing:
    """A context in which gemmport computes torch's products: `@`, torch.matmul, mm, bmm, addmm, baddbmm, addbmm, mv, addmv,
    dot, vdot, nn.Linear, `torch._scaled_mm`, and what is made of these, also backward. docs/pytorch.md says which products it
    does not see.

        with gemmport.torch.use() as routing:
            loss = model(x)
        print(routing.products)

    It holds for the thread that enters it, and for its backward passes. Where torch's own products may be in TF32, which is of
    tensors on CUDA alone, so are these.
    """
    return Routing()
