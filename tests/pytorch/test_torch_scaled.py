"""`gemmport.torch.scaled_mm`, and torch's own products of float8 with scales under `use()`."""

from __future__ import annotations

from typing import Any

import pytest

import gemmport as gp
from absences import TORCH, needs

if TORCH.is_here():
    import torch

    import gemmport.torch as gt
    from tensors import equal, placed, random

pytestmark = needs(TORCH)

M, K, N = 16, 48, 32
"""Multiples of 16, in which torch has such products."""


def operands(kind: str = "float8_e4m3fn", seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """B lies as torch wants it, column by column."""
    a, b = random(M, K, dtype=kind, seed=seed), random(N, K, dtype=kind, seed=seed + 1).t()
    return a, b


def scales(*shape: int, seed: int = 5) -> torch.Tensor:
    return random(*shape, seed=seed).exp2()


def exactly(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None) -> torch.Tensor:
    wide = (a.double() * scale_a.double()) @ (b.double() * scale_b.double())
    return wide if bias is None else wide + bias.double()


def agrees(found: torch.Tensor, wanted: torch.Tensor, out_dtype: torch.dtype) -> None:
    """Within one rounding of the result's type, and float32's of the sums."""
    assert found.dtype == out_dtype
    torch.testing.assert_close(
        found.double(), wanted, rtol=torch.finfo(out_dtype).eps / 2 + 1e-6, atol=1e-5 * float(wanted.abs().max())
    )


@pytest.mark.parametrize("out", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("rowwise", [False, True])
def test_scales_of_tensors_and_of_rows_and_columns(out: str, rowwise: bool) -> None:
    a, b = operands()
    scale_a, scale_b = (scales(M, 1), scales(1, N, seed=6)) if rowwise else (scales(), scales(1, seed=6))
    bias, kind = random(N, dtype="bfloat16", seed=7), getattr(torch, out)
    agrees(gt.scaled_mm(a, b, scale_a, scale_b, out_dtype=kind), exactly(a, b, scale_a, scale_b), kind)
    found = gt.scaled_mm(a, b, scale_a, scale_b, bias, kind)
    agrees(found, exactly(a, b, scale_a, scale_b, bias), kind)
    if found.is_cpu:
        # Its other checks multiply operands by numbers, which torch does not do in 8 bits.
        given = (a, b, scale_a, scale_b, bias, kind)
        torch.library.opcheck(torch.ops.gemmport.scaled_mm.default, given, test_utils="test_faketensor")


def test_use_computes_torchs_scaled_products() -> None:
    """A result in `out`, too; one of 8 bits stays torch's."""
    a, b = operands()
    for scale_a, scale_b in ((scales(), scales(seed=6)), (scales(M, 1), scales(1, N, seed=6))):
        given = (a, b, scale_a, scale_b)
        with gt.use() as routing:
            found = torch._scaled_mm(*given, out_dtype=torch.bfloat16)
            assert routing.products == 1
        agrees(found, exactly(*given), torch.bfloat16)
        with gt.use() as routing:
            out = placed(torch.empty(M, N, dtype=torch.bfloat16))
            torch._scaled_mm(*given, out_dtype=torch.bfloat16, out=out)
            assert routing.products == 1
        equal(out, found)
    with gt.use() as routing:
        assert torch._scaled_mm(a, b, scales(), scales()).dtype == torch.float8_e4m3fn
        assert routing.products == 0


def test_use_computes_scaled_products_by_recipe() -> None:
    F = pytest.importorskip("torch.nn.functional")
    if not hasattr(F, "scaled_mm"):
        pytest.skip("PyTorch has torch.nn.functional.scaled_mm from 2.10 on")
    a, b = operands()
    own = F.ScalingType
    for recipe, scale_a, scale_b in (
        (own.TensorWise, scales(), scales(seed=6)), (own.RowWise, scales(M, 1), scales(1, N, seed=6))
    ):  # fmt: skip
        with gt.use() as routing:
            found = F.scaled_mm(a, b, scale_a, recipe, scale_b, recipe)
        assert routing.products == 1
        agrees(found, exactly(a, b, scale_a, scale_b), torch.bfloat16)


REFUSED = {
    "another type": ({"mat_a": (M, K, "float32")}, gp.DtypeError, "a must be a matrix of float8_e4m3fn or float8_e5m2"),
    "sizes": ({"mat_a": (M, K - 1, "float8_e4m3fn")}, gp.ShapeError, "must be .m, k. and .k, n."),
    "blocks": ({"scale_a": (M, 3, "float32")}, gp.ShapeError, r"scale_a must be one number or have shape \(16, 1\)"),
    "halves": ({"scale_b": (1, N, "float16")}, gp.DtypeError, "scale_b must be of float32"),
    "result": ({"out_dtype": "float8_e4m3fn"}, gp.DtypeError, "out_dtype must be one of"),
    "bias": ({"bias": (N + 1, 1, "float32")}, gp.ShapeError, "bias must be 32 real numbers"),
}


def test_is_one_node_of_a_compiled_graph() -> None:
    a, b = operands()
    given = (a, b, scales(M, 1), scales(1, N, seed=6))
    compiled = torch.compile(gt.scaled_mm, fullgraph=True, backend="aot_eager")
    equal(compiled(*given), gt.scaled_mm(*given))


@pytest.mark.parametrize("what", REFUSED)
def test_refusals_name_what_is_wrong(what: str) -> None:
    given, error, message = REFUSED[what]
    a, b = operands()
    made: dict[str, Any] = {"mat_a": a, "mat_b": b, "scale_a": scales(), "scale_b": scales()}
    for name, value in given.items():
        made[name] = getattr(torch, value) if isinstance(value, str) else random(*value[:2], dtype=value[2])
    with pytest.raises(error, match=message):
        gt.scaled_mm(**made)
