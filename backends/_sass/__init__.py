"""Machine code of NVIDIA GPUs of compute capability 9.0, and what NVIDIA's compilers leave undone.

They do not count what a bank of the register file delivers per cycle (`ports`). `reschedule` puts the main loop of a matrix
product in an order that does, and `equivalence` proves that it does what it did. Neither a GPU nor a tool of NVIDIA's is
needed. As a program (`__main__`) it does this for another process.
"""

from __future__ import annotations

from gemmport.backends._sass.cubin import is_cubin
from gemmport.backends._sass.reschedule import COMPUTE_CAPABILITY, asked_for, rescheduled

__all__ = ["COMPUTE_CAPABILITY", "VERSION", "asked_for", "is_cubin", "rescheduled"]

VERSION = "f8a022631cd8ba60"
"""Of what this package makes of machine code: any other text, where it makes something else of any. Programs in the cache and
measured figures belong to it. tests/backends/test_sass.py notices most changes.
"""
