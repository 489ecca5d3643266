"""What XLA calls for a product, of arrays in the host's memory and on CUDA: `matmul` of them where they lie."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy.typing as npt

from gemmport.api.matmul import matmul
from gemmport.api.precision import PrecisionContext
from gemmport.execution.xla import Call, GPUArray, handler

ON_CPU, ON_CUDA = "gemmport_matmul_cpu", "gemmport_matmul_cuda"
"""XLA's names of the two."""


@dataclass(frozen=True)
class Choices:
    """How a product is computed.

    Attributes:
        trans_a, trans_b: whether the last two dimensions of an operand are exchanged.
        backend, device: of `matmul`; empty where they are not given.
        precision: of the call, or of the context around it; empty where neither says one.
    """

    trans_a: bool = False
    trans_b: bool = False
    backend: str = ""
    device: str = ""
    precision: str = ""

    def written(self) -> str:
        """As one text, which `read` reads."""
        turned = ("T" if x else "N" for x in (self.trans_a, self.trans_b))
        return "\n".join((*turned, self.backend, self.device, self.precision))

    @classmethod
    @cache
    def read(cls, text: bytes) -> Choices:
        """Of the text that was `written`."""
        trans_a, trans_b, *rest = text.decode().split("\n")
        return cls(trans_a == "T", trans_b == "T", *rest)

    def multiply(self, a: Any, b: Any, out: Any) -> None:
        """The product, in the precision of these choices, whatever the context of the thread that XLA takes."""
        with PrecisionContext(self.precision or None):
            matmul(
                _turned(a) if self.trans_a else a,
                _turned(b) if self.trans_b else b,
                out=out,
                backend=self.backend or None,
                device=self.device or None,
            )


def _turned(x: npt.NDArray[Any] | GPUArray) -> Any:
    return x.mT if isinstance(x, GPUArray) else x.swapaxes(-1, -2)  # mT came to NumPy with 2.0


def _on_cpu(call: Call) -> None:
    Choices.read(call.attribute).multiply(*(each.on_host() for each in call.arrays))


def _on_cuda(call: Call) -> None:
    arrays, stream = call.arrays, call.stream
    if arrays[-1].nbytes:
        Choices.read(call.attribute).multiply(*(each.on_gpu(stream) for each in arrays))


def register() -> None:
    """Makes the handlers known to XLA."""
    for name, work, platform in ((ON_CPU, _on_cpu, "cpu"), (ON_CUDA, _on_cuda, "CUDA")):
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler(work)), platform=platform)
