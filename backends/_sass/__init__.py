"""Machine code of NVIDIA GPUs of compute capability 9.0, and what NVIDIA's compilers leave undone.

They do not count what a bank of the register file delivers per cycle (`ports`). `reschedule` puts the main loop of a matrix
product in an order that does, and `equivalence` proves that it does what it did. Neither a GPU nor a tool of NVIDIA's is
needed.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gemmport.backends._sass.cubin import is_cubin
from gemmport.backends._sass.reschedule import COMPUTE_CAPABILITY, asked_for, rescheduled
from gemmport.runtime import fingerprint

__all__ = ["COMPUTE_CAPABILITY", "asked_for", "is_cubin", "rescheduled", "version"]


@cache
def version() -> str:
    """A fingerprint of this package: what it makes of machine code changes with nothing else."""
    return fingerprint.of_code(Path(__file__).parent.glob("*.py"))
