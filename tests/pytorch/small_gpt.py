"""GPT-2 as small as it gets, with random weights, as benchmarks/gpt2.py builds it. Import it where PyTorch is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from gpt2 import GPT

LAYERS, WORDS = 2, 31
PRODUCTS = LAYERS * 6 + 1
"""Of one pass forward: six in each layer, and the last one to words."""


def small_gpt() -> GPT:
    """Numbers of words (batch, length) to logits (batch, length, WORDS)."""
    torch.manual_seed(0)
    return GPT(WORDS, width=24, heads=2, layers=LAYERS, places=64)


def text(length: int = 10) -> torch.Tensor:
    """Three texts."""
    return torch.randint(0, WORDS, (3, length), generator=torch.Generator().manual_seed(1))
