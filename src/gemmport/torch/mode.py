"""`use`: torch's own products, wherever they are called, computed by gemmport."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gemmport.core.errors import DtypeError, ShapeError
from gemmport.torch.functions import addmm, baddbmm, bmm, matmul, mm

_ATEN = torch.ops.aten

_ROUTES: Mapping[Any, Callable[..., torch.Tensor]] = {
    _ATEN.mm.default: mm,
    _ATEN.mm.out: mm,
    _ATEN.bmm.default: bmm,
    _ATEN.bmm.out: bmm,
    _ATEN.addmm.default: addmm,
    _ATEN.addmm.out: addmm,
    _ATEN.baddbmm.default: baddbmm,
    _ATEN.baddbmm.out: baddbmm,
    _ATEN.mv.default: matmul,
    _ATEN.dot.default: matmul,
}
"""What torch's products are made of, in its dispatcher. Compiled code calls those that write to `out`."""

_TYPES = {
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
}  # fmt: skip
"""That both compute in: torch has no products of bool, nor of its other unsigned types."""


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
        named = dict(kwargs or {})
        if _is_made_of_others(func):  # in inference mode they arrive here whole
            with self:
                return func.decompose(*args, **named)
        if (route := _ROUTES.get(func)) and all(
            _is_ours(x) for x in (*args, *named.values()) if isinstance(x, torch.Tensor)
        ):
            out = named.pop("out", None)
            try:
                result = route(*args, **named)
            except (ShapeError, DtypeError):  # raised before any work: torch has its own words for what does not fit
                return func(*args, **(kwargs or {}))
            self.products += 1
            return result if out is None else out.resize_(result.shape).copy_(result)
        return func(*args, **named)


@cache
def _is_made_of_others(func: Any) -> bool:
    return isinstance(func, torch._ops.OpOverload) and func not in _ROUTES and func._can_decompose()


def _is_ours(x: torch.Tensor) -> bool:
    """Whether gemmport may read a tensor: what subclasses make of a product is theirs."""
    return (
        type(x) in (torch.Tensor, torch.nn.Parameter)
        and x.layout is torch.strided
        and x.device.type in ("cpu", "cuda")
        and x.dtype in _TYPES
    )


def use() -> Routing:
    """A context in which gemmport computes torch's products: `@`, torch.matmul, mm, bmm, addmm, baddbmm, mv, dot, nn.Linear,
    and what is made of these, also backward. docs/pytorch.md says which products it does not see.

        with gemmport.torch.use() as routing:
            loss = model(x)
        print(routing.products)

    It holds for the thread that enters it, and for its backward passes.
    """
    return Routing()
