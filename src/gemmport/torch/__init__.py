"""gemmport as an operator of PyTorch: products of tensors that autograd, autocast, torch.func and torch.compile know.

    import gemmport.torch

    d = gemmport.torch.matmul(a, b)  # as torch.matmul
    with gemmport.torch.use():  # torch's own products, computed by gemmport
        loss = model(x)

docs/pytorch.md says what is computed where.
"""

from gemmport.core.errors import LibraryUnavailableError

try:
    import torch as _torch  # noqa: F401  # whether it is there, before any module below imports it
except ImportError as error:
    raise LibraryUnavailableError(f"gemmport.torch needs PyTorch ({error}): pip install torch") from error

from gemmport.torch.functions import addmm, baddbmm, bmm, linear, matmul, mm, scaled_mm
from gemmport.torch.mode import Routing, use

__all__ = ["Routing", "addmm", "baddbmm", "bmm", "linear", "matmul", "mm", "scaled_mm", "use"]
