"""Tensors for tests of gemmport.torch, and what a product of them may be off by. Import it where PyTorch is installed."""

from __future__ import annotations

from typing import Any

import torch

place = "cpu"
"""Where tensors are; conftest.py sets it to "cuda" where both gemmport and torch compute there."""


def placed(x: torch.Tensor) -> torch.Tensor:
    """A tensor where the tests have theirs."""
    return x.to(place)


def small(*shape: int, dtype: str = "float32", seed: int = 0) -> torch.Tensor:
    """Whole numbers from -3 to 3 (from 0 without a sign; both parts of complex ones), whose sums of products are exact."""
    kind = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(seed)
    lowest = 0 if dtype.startswith("uint") else -3
    values = torch.randint(lowest, 4, shape, generator=generator)
    if kind.is_complex:
        values = torch.complex(values.double(), torch.randint(-3, 4, shape, generator=generator).double())
    return placed(values.to(kind))


def random(*shape: int, dtype: str = "float32", seed: int = 0) -> torch.Tensor:
    """Normally distributed numbers."""
    generator = torch.Generator().manual_seed(seed)
    wide = torch.randn(shape, generator=generator, dtype=torch.complex128 if "complex" in dtype else torch.float64)
    return placed(wide.to(getattr(torch, dtype)))


def assert_within_bound(found: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """A product against float64's: each of k products and sums may be off by one rounding, and the result by one of its type.

    |error| ≤ γ_{k+1}·|A|·|B| with γ_n = n·u / (1 - n·u) and the u of the sums (Higham, Accuracy and Stability, section 3.5),
    twice that for complex numbers (section 3.6), and one rounding to the result's type.
    """
    wide = torch.complex128 if a.is_complex() else torch.float64
    exact = torch.matmul(a.to(wide), b.to(wide))
    size = torch.matmul(a.abs().double(), b.abs().double())
    sums = max(torch.finfo(a.dtype).eps / 2, 0.0) if a.element_size() >= 4 else torch.finfo(torch.float32).eps / 2
    steps = (a.shape[-1] + 1) * (2 if a.is_complex() else 1)
    bound = steps * sums / (1 - steps * sums) * size + torch.finfo(a.dtype).eps / 2 * exact.abs()
    assert found.dtype == a.dtype
    assert found.shape == exact.shape
    assert bool(((found.to(wide) - exact).abs() <= bound).all())


def equal(found: Any, wanted: Any) -> None:
    """Of the same type, shape and values; where the tests have their tensors, wherever the wanted one was computed."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert found.device.type == place
    assert torch.equal(found.cpu(), wanted.resolve_conj().cpu())
