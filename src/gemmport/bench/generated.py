"""Products that stand in no file, as programs have them: drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemmport.bench.standings import Workload
from gemmport.core.problem import GemmProblem

Shape = dict[str, int | str]

_WIDTHS = (768, 1024, 1536, 2048, 2560, 3072, 4096, 5120)
"""Of hidden layers."""

_PRIMES = (61, 127, 251, 509, 769, 1021, 1531, 2039, 3067)


def _decoding(rng: np.random.Generator) -> Shape:
    width, wide = (int(x) for x in rng.choice(_WIDTHS, 2))
    return {"m": int(rng.integers(1, 65)), "n": wide, "k": width, "trans_b": "T"}


def _layer(rng: np.random.Generator) -> Shape:
    width = int(rng.choice(_WIDTHS))
    return {"m": int(rng.integers(128, 2049)), "n": 4 * width, "k": width, "trans_b": str(rng.choice(["N", "T"]))}


def _attention(rng: np.random.Generator) -> Shape:
    long, head = int(rng.integers(64, 1025)), int(rng.choice([64, 80, 128]))
    return {"m": long, "n": long, "k": head, "batch": int(rng.integers(8, 65)), "trans_b": "T"}


def _gram(rng: np.random.Generator) -> Shape:
    features = int(rng.integers(32, 1025))
    return {"m": features, "n": features, "k": int(rng.integers(4096, 65537)), "trans_a": "T"}


def _primes(rng: np.random.Generator) -> Shape:
    m, n, k = (int(x) for x in rng.choice(_PRIMES, 3))
    return {"m": m, "n": n, "k": k}


def _batch(rng: np.random.Generator) -> Shape:
    m, n, k = (int(x) for x in rng.integers(16, 257, 3))
    return {"m": m, "n": n, "k": k, "batch": int(rng.integers(2, 257))}


def _update(rng: np.random.Generator) -> Shape:
    size = int(rng.integers(512, 4097))
    return {"m": size, "n": size, "k": int(rng.integers(1, 65)), "trans_b": "T"}


def _square(rng: np.random.Generator) -> Shape:
    size = int(2 ** rng.uniform(5, 12))
    return {"m": size, "n": size, "k": size, "trans_a": str(rng.choice(["N", "T"]))}


KINDS: dict[str, Callable[[np.random.Generator], Shape]] = {
    "decoding": _decoding, "layer": _layer, "attention": _attention, "Gram matrix": _gram, "primes": _primes,
    "small batch": _batch, "rank update": _update, "square": _square,
}  # fmt: skip
"""By name what draws a shape."""


def generated(count: int, seed: int, problem: Callable[..., GemmProblem]) -> list[Workload]:
    """As many products, of the kinds in turn; the same for the same seed.

    Args:
        problem: makes one of m, n, k, and of batch, trans_a and trans_b where they are not 1, "N" and "N".
    """
    kinds = list(KINDS.items())
    drawn = []
    for number in range(count):
        name, draw = kinds[number % len(kinds)]
        shape = draw(np.random.default_rng([seed, number]))
        drawn.append(Workload(problem(**shape), f"{name} {number // len(kinds) + 1}", f"drawn from seed {seed}"))
    return drawn
