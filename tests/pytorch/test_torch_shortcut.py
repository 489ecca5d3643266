"""Where gemmport.torch's functions go past torch's dispatcher, and who must not be passed by: whoever asked torch to be
told of operators.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from absences import TORCH, needs

if TORCH.is_here():
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    import gemmport.torch as gt
    import tensors
    from gemmport.torch import gradients, operators
    from tensors import equal, random, small

pytestmark = needs(TORCH)

NAME = "gemmport.gemm.default"


@pytest.fixture
def through_the_dispatcher(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the functions hand to torch's dispatcher."""
    found: list[Any] = []
    own = gradients.gemm

    def noted(*operands: Any) -> Any:
        found.append(operands)
        return own(*operands)

    monkeypatch.setattr(gradients, "gemm", noted)
    return found


def plain() -> dict[str, Callable[[], Any]]:
    a, b = small(4, 5), small(5, 3, seed=1)
    z = small(4, 5, dtype="complex64")
    return {
        "matrices": lambda: gt.mm(a, b),
        "stacks": lambda: gt.matmul(a.expand(2, 3, 4, 5), b),
        "a bias": lambda: gt.linear(a, b.mT, b[0]),
        "a parameter": lambda: gt.mm(a, torch.nn.Parameter(b)),
        "conjugated": lambda: gt.mm(z, z.mH),
        "without gradients": lambda: torch.no_grad()(gt.mm)(a, torch.nn.Parameter(b)),
        "in inference mode": torch.inference_mode()(lambda: gt.mm(a.clone(), b)),
    }


@pytest.mark.parametrize(
    "name",
    ["matrices", "stacks", "a bias", "a parameter", "conjugated", "without gradients", "in inference mode"],
)
def test_ordinary_products_go_past_it(name: str, through_the_dispatcher: list[Any]) -> None:
    product = plain()[name]
    found = product()
    assert not through_the_dispatcher
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradients, "is_plain", lambda *_: False)
        equal(found, product())
    assert through_the_dispatcher


def test_what_is_recorded_is_the_same_on_both_ways(through_the_dispatcher: list[Any]) -> None:
    a, b = small(4, 5).requires_grad_(), small(5, 3, seed=1).requires_grad_()
    found = gt.mm(a, b)
    assert not through_the_dispatcher
    operator = operators.gemm(a, b, None, 1, 0)
    assert type(found.grad_fn) is type(operator.grad_fn)
    for one, other in zip(
        torch.autograd.grad(found.sum(), (a, b)), torch.autograd.grad(operator.sum(), (a, b)), strict=True
    ):
        equal(one, other)


class TestIsTold:
    """Each of these sees the operator, or stands in its place."""

    def test_a_dispatch_mode(self) -> None:
        seen: list[str] = []

        class Mode(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        a = small(4, 4)
        with Mode():
            gt.mm(a, a)
            gt.mm(a.requires_grad_(), a)
        assert seen.count(NAME) == 2

    def test_a_function_mode(self) -> None:
        seen: list[str] = []

        class Mode(TorchFunctionMode):  # type: ignore[misc]
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        a = small(4, 4)
        with Mode():
            gt.mm(a, a)
        assert NAME in seen

    def test_tensors_without_elements(self) -> None:
        mode = FakeTensorMode()
        with mode:
            fake = gt.mm(torch.empty(4, 5), torch.empty(5, 3))
        assert type(fake).__name__ == "FakeTensor"
        assert gt.mm(fake, mode.from_tensor(torch.empty(3, 2))).shape == (4, 2)  # also outside of the mode
        assert gt.mm(small(4, 5).to("meta"), small(5, 3).to("meta")).is_meta

    def test_a_subclass(self) -> None:
        class Sub(torch.Tensor):  # type: ignore[misc]
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return "told" if str(func) == NAME else super().__torch_function__(func, types, args, kwargs)

        a = small(4, 4)
        sub = a.as_subclass(Sub)
        assert gt.mm(sub, a) == gt.mm(a, sub) == gt.addmm(sub, a, a) == "told"

    def test_autocast(self) -> None:
        with torch.autocast(tensors.place, torch.bfloat16):
            assert gt.mm(small(4, 4), small(4, 4)).dtype == torch.bfloat16

    def test_a_profiler(self) -> None:
        a = small(4, 4)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            gt.mm(a, a)
        assert any("gemmport::gemm" in event.key for event in profile.key_averages())

    def test_a_trace(self) -> None:
        a, b = small(4, 5), small(5, 3, seed=1)
        traced = torch.jit.trace(gt.mm, (a, b))
        assert "gemmport::gemm" in str(traced.graph)
        equal(traced(b.mT, a.mT), gt.mm(b.mT, a.mT))

    @pytest.mark.parametrize("before_autograd", [False, True], ids=["", "before-autograd"])
    def test_a_graph_of_what_is_called(self, before_autograd: bool) -> None:
        make_fx = torch.fx.experimental.proxy_tensor.make_fx
        graph = make_fx(gt.mm, pre_dispatch=before_autograd)(small(4, 5), small(5, 3))
        assert NAME in str(graph.code)

    def test_forward_mode(self) -> None:
        a, b = random(3, 4, dtype="float64"), random(4, 2, dtype="float64", seed=1)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(a, a)
            tangent = torch.autograd.forward_ad.unpack_dual(gt.mm(dual, b)).tangent
        torch.testing.assert_close(tangent, a @ b)

    def test_an_escaped_tensor_of_a_transform(self) -> None:
        """It is a wrapper still, when its transform is over."""
        kept: list[Any] = []
        torch.func.grad(lambda x: kept.append(x * 2) or x.sum())(small(4, 4))
        with contextlib.suppress(RuntimeError):  # as torch does
            equal(gt.mm(kept[0], small(4, 4)), torch.mm(kept[0], small(4, 4)))

    def test_zeros_that_take_no_memory(self) -> None:
        a = small(4, 4)
        zeros = torch._efficientzerotensor((4, 4), device=a.device)
        equal(gt.mm(zeros, a), torch.zeros(4, 4))
        equal(gt.mm(a, zeros), torch.zeros(4, 4))
        equal(gt.addmm(zeros, a, a), torch.mm(a, a))

    def test_what_is_negated_lazily(self) -> None:
        z = small(4, 4, dtype="complex64")
        equal(gt.mm(z.conj().imag, z.real), torch.mm(z.conj().imag, z.real))

    def test_sparse_tensors_are_refused(self) -> None:
        with pytest.raises((RuntimeError, ValueError), match="parse"):
            gt.mm(small(4, 4).to_sparse(), small(4, 4))
