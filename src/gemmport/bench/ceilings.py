"""What a device cannot exceed, for a roofline: its estimated peaks, and the bandwidth that its runtime's own copy reaches."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gemmport.backends.base import Backend
from gemmport.bench.timing import Contestant, measure

COPY_BYTES = 2**27
"""Of one copy: past the second-level cache of NVIDIA's H200 (60 MB), and soon done on a CPU."""

PAIRS = 2
"""That take turns, so that one copy's target is not the next one's source in a cache."""

SAMPLES = 5

TYPES = ("float32", "float64")
"""Whose peaks are estimated."""


@dataclass(frozen=True)
class Ceilings:
    """A device's ceilings.

    Attributes:
        gflops: by arithmetic type, of those whose peak the runtime tells enough to estimate (`DeviceInfo.peak_gflops`).
        gb_per_second: read and written by the runtime's copy; None where its memory is too small to measure it.
    """

    gflops: Mapping[str, float]
    gb_per_second: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as docs/results.md describes it."""
        return {"gflops": dict(self.gflops), "gb_per_second": self.gb_per_second}


def ceilings_of(backend: Backend) -> Ceilings:
    """Estimates the peaks, and measures the copy: some 2 GB are moved."""
    device = backend.device
    peaks = {dtype: peak for dtype in TYPES if (peak := device.peak_gflops(dtype)) is not None}
    fits = device.memory // 2 >= 2 * PAIRS * COPY_BYTES and device.max_allocation >= COPY_BYTES
    return Ceilings(peaks, _copy_bandwidth(backend) if fits else None)


def _copy_bandwidth(backend: Backend) -> float:
    """10⁹ bytes per second, read and written."""
    memory = [backend.allocate(COPY_BYTES) for _ in range(2 * PAIRS)]
    try:
        for number, block in enumerate(memory):  # a page that was never written may be one of zeros that all share
            backend.fill(block, number + 1)
        turns = itertools.cycle(zip(memory[::2], memory[1::2], strict=True))
        timings = measure(backend, [Contestant("copy", lambda: backend.copy(*next(turns), COPY_BYTES))], repeat=SAMPLES)
        return 2 * COPY_BYTES / timings["copy"].median * 1e-9
    finally:
        backend.synchronize()
        for block in memory:
            block.release()
