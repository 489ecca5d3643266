"""`gemmport::gemm` as torch's dispatcher sees it: types, layouts, descriptions without elements, autocast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import TORCH, needs

if TORCH.is_here():
    import torch

    import gemmport.torch as gt
    import tensors
    from gemmport.torch import operators
    from tensors import assert_within_bound, equal, placed, random, small

pytestmark = needs(TORCH)

FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_products_of_whole_numbers_are_torchs(dtype: str) -> None:
    a, b, c = small(17, 33, dtype=dtype), small(33, 9, dtype=dtype, seed=1), small(17, 9, dtype=dtype, seed=2)
    x, y, z = a.cpu(), b.cpu(), c.cpu()  # torch has no products of integers on CUDA
    equal(gt.mm(a, b), torch.mm(x, y))
    equal(operators.gemm(a, b, c, 2, 3), torch.addmm(z, x, y, alpha=2, beta=3))


@pytest.mark.parametrize("dtype", FLOATS)
def test_products_of_random_numbers_are_within_the_bound(dtype: str) -> None:
    a, b = random(65, 127, dtype=dtype), random(127, 33, dtype=dtype, seed=1)
    assert_within_bound(gt.mm(a, b), a, b)


def test_integers_wrap_around() -> None:
    a = torch.full((3, 5), 100, dtype=torch.int8)
    equal(gt.mm(placed(a), placed(a).mT), torch.mm(a, a.mT))


@pytest.mark.parametrize("dtype", ["float32", "complex64", "bfloat16"])
def test_operands_have_any_strides(dtype: str) -> None:
    whole = small(40, 60, dtype=dtype)
    for a, b in (
        (whole.T, whole),
        (whole[::2, 1:31], whole[10:, ::2]),
        (whole[3:4].expand(8, 60), whole.T),
        (whole[:0], whole.T),
        (whole[:, :0], whole[:0]),
    ):
        equal(gt.mm(a, b), torch.mm(a, b))


def test_scalars_are_complex_where_the_product_is() -> None:
    a, c = small(5, 5, dtype="complex64"), small(5, 5, dtype="complex64", seed=1)
    equal(gt.addmm(c, a, a, alpha=2 - 1j, beta=1j), torch.addmm(c, a, a, alpha=2 - 1j, beta=1j))
    with pytest.raises(gp.DtypeError, match="complex"):
        gt.addmm(c.real, a.real, a.real, alpha=1j)


def test_what_is_conjugated_is_read_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []

    def spy(a: Any, b: Any, **how: Any) -> Any:
        read.append((a.ctypes.data if isinstance(a, np.ndarray) else a.data_ptr(), how["trans_a"], how["trans_b"]))
        return gp.gemm(a, b, **how)

    monkeypatch.setattr(operators, "product_of_arrays", spy)
    a, b = small(8, 4, dtype="complex64"), small(4, 6, dtype="complex64", seed=1)
    equal(gt.mm(a.conj(), b), torch.mm(a.conj(), b))
    equal(gt.mm(b.mH, a.mH), torch.mm(b.mH, a.mH))
    equal(gt.mm(a.conj().imag, b.real), torch.mm(a.conj().imag, b.real))  # which torch says to be negated
    assert read[0] == (a.data_ptr(), "R", "N")
    assert read[1] == (b.data_ptr(), "R", "R")


def test_c_is_not_read_where_beta_is_0_and_never_changed() -> None:
    a, c = small(4, 4), placed(torch.full((4, 4), torch.nan))
    equal(gt.addmm(c, a, a, beta=0), torch.mm(a, a))
    c = small(4, 4, seed=1)
    kept = c.clone()
    gt.addmm(c, a, a)
    equal(c, kept)


@pytest.mark.parametrize(("names", "error"), [("ab", gp.DtypeError), ("ac", gp.DtypeError)])
def test_types_are_not_promoted(names: str, error: type[Exception]) -> None:
    operands = {name: small(4, 4) for name in "abc"}
    operands[names[1]] = operands[names[1]].double()
    with pytest.raises(error, match=rf"got a of torch.float32 and {names[1]} of torch.float64; convert"):
        operators.gemm(*operands.values(), 1, 1)
    with pytest.raises(error, match="must have one dtype"):
        operators.gemm(*(x.to("meta") for x in operands.values()), 1, 1)


def test_devices_are_not_mixed() -> None:
    with pytest.raises((gp.ArrayError, RuntimeError), match="device"):
        gt.mm(small(4, 4), small(4, 4).to("meta"))


def test_shapes_that_do_not_fit_are_refused_with_and_without_elements() -> None:
    a, b = small(3, 4), small(5, 6)
    with pytest.raises(gp.ShapeError, match="the inner sizes 4 and 5"):
        gt.mm(a, b)
    with pytest.raises(RuntimeError, match="same reduction dim"):
        gt.mm(a.to("meta"), b.to("meta"))
    for place in (tensors.place, "meta"):
        with pytest.raises(gp.ShapeError, match=r"\(1, 4\)"):
            operators.gemm(a.to(place), small(4, 4).to(place), small(1, 4).to(place), 1, 1)


def test_a_description_is_row_major_like_the_product() -> None:
    a, b = small(6, 4, 5).mT, small(4, 7)
    found, told = operators.gemm(a, b, None, 1, 0), operators.gemm(a.to("meta"), b.to("meta"), None, 1, 0)
    assert found.stride() == told.stride() == (35, 7, 1)
    assert found.shape == told.shape
    assert found.dtype == told.dtype


def samples() -> list[tuple[Any, ...]]:
    a, b, c = random(5, 4), random(4, 3), random(5, 3)
    z = random(5, 4, dtype="complex64")
    return [
        (a, b, None, 1, 0),
        (a, b, c, 2.5, -1),
        (b.T, a.T, c.T, 1, 1),
        (random(2, 5, 4), random(2, 4, 3), random(3).expand(2, 5, 3), 1, 1),
        (a, random(2, 4, 3), None, 1, 0),
        (random(2, 5, 4), b, None, 1, 0),
        (z, z.mH, None, 2 - 1j, 0),
        (small(5, 4, dtype="int32"), small(4, 3, dtype="int32"), None, 3, 0),
        (random(0, 4), b, None, 1, 0),
        (random(5, 0), random(0, 3), c, 1, 1),
    ]


@pytest.mark.parametrize("number", range(10))
def test_opcheck(number: int) -> None:
    sample = samples()[number]
    torch.library.opcheck(operators.gemm, sample)
    if sample[0].is_floating_point() or sample[0].is_complex():
        grads = [x.detach().clone().requires_grad_() if isinstance(x, torch.Tensor) else x for x in sample]
        torch.library.opcheck(operators.gemm, grads)


class TestAutocast:
    @pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
    def test_casts_as_torch_does(self, dtype: str) -> None:
        a, b, c = small(8, 6), small(6, 4, seed=1), small(4, seed=2)
        with torch.autocast(tensors.place, getattr(torch, dtype)):
            equal(gt.mm(a, b), torch.mm(a, b))
            equal(gt.mm(a, b.half()), torch.mm(a, b.half()))
            equal(gt.linear(a, b.T, c), torch.nn.functional.linear(a, b.T, c))
            with pytest.raises(gp.DtypeError):
                gt.mm(a, b.double())  # which is not cast: torch refuses it too
            with pytest.raises(RuntimeError):
                torch.mm(a, b.double())
            equal(gt.mm(a.double(), b.double()), torch.mm(a.double(), b.double()))
            with torch.autocast(tensors.place, enabled=False):
                assert gt.mm(a, b).dtype == torch.float32

    def test_gradients_come_in_the_types_of_the_operands(self) -> None:
        a, b = small(8, 6).requires_grad_(), small(6, 4, seed=1).requires_grad_()
        with torch.autocast(tensors.place, torch.bfloat16):
            found = gt.mm(a, b).sum()
            wanted = torch.mm(a, b).sum()
        for one, other in zip(torch.autograd.grad(found, (a, b)), torch.autograd.grad(wanted, (a, b)), strict=True):
            equal(one, other)


def test_no_operand_is_changed_and_the_result_is_new() -> None:
    a = small(4, 4)
    kept, product = a.clone(), gt.mm(a, a)
    product.add_(1)
    equal(a, kept)
    equal(gt.mm(a, a), torch.mm(a, a))
