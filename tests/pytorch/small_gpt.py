"""A language model as small as it gets, of the parts of GPT-2, with random weights. Import it where PyTorch is installed."""

from __future__ import annotations

import torch
from torch import nn

WIDTH, HEADS, LAYERS, WORDS = 24, 2, 2, 31
PRODUCTS = LAYERS * 6 + 1
"""Of one pass forward: six in each layer, and the last one to words."""


class Layer(nn.Module):
    """Attention, spelled out, and two linear maps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.split, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        parts = self.split(self.first(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = query @ key.mT * (WIDTH // HEADS) ** -0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        seen = scores.masked_fill(future, float("-inf")).softmax(-1) @ value
        x = x + self.joined(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))


class SmallGPT(nn.Module):
    """Numbers of words (batch, length) to logits (batch, length, WORDS)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(64, WIDTH)
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        return self.head(self.last(self.layers(x)))


def text(length: int = 10) -> torch.Tensor:
    """Three texts."""
    return torch.randint(0, WORDS, (3, length), generator=torch.Generator().manual_seed(1))
