"""PyTorch's own samples of what its products take, as the installed PyTorch brings them, computed by gemmport."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

import gemmport as gp
from absences import EXPECTTEST, TORCH, needs

if TORCH.is_here():
    import torch

    import gemmport.torch as gt
    import tensors

pytestmark = needs(TORCH, EXPECTTEST)

FUNCTIONS = {
    "mm": "mm", "bmm": "bmm", "addmm": "addmm", "baddbmm": "baddbmm", "matmul": "matmul", "linear": "nn.functional.linear",
}  # fmt: skip
"""Ours, and what torch calls its own."""

ROUTED = (
    *FUNCTIONS.values(), "addbmm", "addmv", "mv", "dot", "vdot", "inner", "__rmatmul__", "einsum", "tensordot",
    "linalg.multi_dot", "linalg.matrix_power",
)  # fmt: skip
"""What is made of products that `use` sees."""

TYPES = (
    "float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int8", "int16", "int32", "int64", "uint8",
)  # fmt: skip


@cache
def described(name: str) -> Any:
    """What torch's tests know of one of its functions."""
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415 - takes seconds

    (found,) = [op for op in op_db if op.name == name and not op.variant_test_name]
    return found


def samples(name: str, dtype: str, *, requires_grad: bool = False) -> Iterator[Any]:
    """Each sample as it is, and with its tensors in memory with gaps."""
    kind, op = getattr(torch, dtype), described(name)
    if kind not in op.supported_dtypes(tensors.place):
        pytest.skip(f"beyond torch: no {name} of {dtype} on {tensors.place}")
    torch.manual_seed(0)
    for sample in op.sample_inputs(tensors.place, kind, requires_grad=requires_grad):
        yield sample
        yield sample.noncontiguous()


def called(function: Any, sample: Any) -> Any:
    return function(sample.input, *sample.args, **sample.kwargs)


def wide(x: Any) -> Any:
    """In float64."""
    if isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()):
        return x.detach().to(torch.complex128 if x.is_complex() else torch.float64)
    return x


def size(x: Any) -> Any:
    """The absolute values."""
    if isinstance(x, torch.Tensor):
        return wide(x).abs().to(wide(x).dtype)
    return abs(x) if isinstance(x, float | complex | int) and not isinstance(x, bool) else x


def check(found: Any, function: Any, sample: Any) -> None:
    """Whole numbers are torch's. Others may be off by γ_n of the same expression of absolute values, for expressions that are
    linear in each operand (Higham, Accuracy and Stability, section 3.5), with the u of their type for each of n steps.
    """
    wanted = called(function, sample)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if not found.is_floating_point() and not found.is_complex():
        assert torch.equal(found, wanted)
        return
    exact = called(function, sample.transform(wide))
    largest = max((n for x in tensors_of(sample) for n in x.shape), default=1)
    steps = 2 * (largest + 4) * max(1, len(tensors_of(sample)) - 1)
    unit = steps * torch.finfo(found.dtype).eps
    bound = unit / (1 - unit) * called(function, sample.transform(size)).abs()
    assert bool(((wide(found) - exact).abs() <= bound).all())


def tensors_of(sample: Any) -> list[Any]:
    found = [sample.input, *sample.args]
    return [x for y in found for x in (y if isinstance(y, list | tuple) else [y]) if isinstance(x, torch.Tensor)]


@pytest.mark.sample(name=["linear", "matmul"], dtype=["float32"])
@pytest.mark.every_value("dtype", TYPES)
@pytest.mark.every_value("name", FUNCTIONS)
def test_of_its_functions(name: str, dtype: str) -> None:
    for sample in samples(FUNCTIONS[name], dtype):
        if "int" in dtype and any(isinstance(x, float | complex) and x != int(x.real) for x in sample.kwargs.values()):
            with pytest.raises(gp.DtypeError, match="must be a whole number"):  # torch drops what is behind the point
                called(getattr(gt, name), sample)
        else:
            check(called(getattr(gt, name), sample), described(FUNCTIONS[name]), sample)


@pytest.mark.sample(name=["addbmm", "addmv", "einsum", "vdot"], dtype=["complex64"])
@pytest.mark.every_value("dtype", TYPES)
@pytest.mark.every_value("name", ROUTED)
def test_of_what_is_routed(name: str, dtype: str) -> None:
    routing = gt.use()
    for sample in samples(name, dtype):
        with routing:
            found = called(described(name), sample)
        check(found, described(name), sample)
    assert routing.products > 0


@pytest.mark.sample(name=["addmm"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_torchs(name: str) -> None:
    for sample in samples(FUNCTIONS[name], "float64", requires_grad=True):
        operands = [x for x in tensors_of(sample) if x.requires_grad]
        found, wanted = (
            torch.autograd.grad(result.sin().sum(), operands, create_graph=True)
            for result in (called(getattr(gt, name), sample), called(described(FUNCTIONS[name]), sample))
        )
        torch.testing.assert_close(found, wanted)
        if found[0].requires_grad:
            first, second = (
                torch.autograd.grad([x.sum() for x in of if x.requires_grad], operands, allow_unused=True)
                for of in (found, wanted)
            )
            torch.testing.assert_close(first, second)


@pytest.mark.parametrize("name", ROUTED)
def test_what_torch_refuses_is_refused(name: str) -> None:
    op = described(name)
    if op.error_inputs_func is None:
        return
    for wrong in op.error_inputs(tensors.place):
        with gt.use(), pytest.raises(wrong.error_type, match=wrong.error_regex):
            called(op, wrong.sample_input)
        if name in FUNCTIONS.values():
            ours = next(own for own, theirs in FUNCTIONS.items() if theirs == name)
            with pytest.raises((ValueError, TypeError, RuntimeError)):
                called(getattr(gt, ours), wrong.sample_input)
