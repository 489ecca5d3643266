"""What XLA calls for a product, of arrays in the host's memory and on CUDA: `matmul` of them where they lie."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from gemmport.api.matmul import matmul
from gemmport.api.precision import PrecisionContext
from gemmport.backends.array import DeviceArray
from gemmport.execution.selection import backend_of
from gemmport.jax.frames import Buffer, Call, handler

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


def _turned(x: npt.NDArray[Any] | DeviceArray) -> Any:
    return x.mT if isinstance(x, DeviceArray) else x.swapaxes(-1, -2)  # mT came to NumPy with 2.0


def _on_cpu(call: Call) -> None:
    Choices.read(call.attribute).multiply(*map(_on_host, (*call.operands, call.result)))


def _on_host(buffer: Buffer) -> npt.NDArray[Any]:
    nbytes = buffer.nbytes
    if not nbytes:  # there may be no memory
        return np.empty(buffer.shape, buffer.dtype)
    memory: Any = (ctypes.c_char * nbytes).from_address(buffer.pointer)
    return np.ndarray(buffer.shape, buffer.dtype, memory)


def _on_cuda(call: Call) -> None:
    stream = call.stream
    if not call.result.nbytes:
        return
    Choices.read(call.attribute).multiply(*(_on_gpu(buffer, stream) for buffer in (*call.operands, call.result)))


@dataclass(frozen=True)
class _Pointer:
    """XLA's memory on a GPU, as CUDA's libraries hand it to each other."""

    buffer: Buffer

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # Of types that have no name there, bytes stand for elements.
        typestr = f"|V{self.buffer.dtype.itemsize}" if self.buffer.dtype.isbuiltin != 1 else self.buffer.dtype.str
        return {"version": 3, "shape": self.buffer.shape, "typestr": typestr, "data": (self.buffer.pointer, False)}


def _on_gpu(buffer: Buffer, stream: int) -> DeviceArray:
    foreign = _Pointer(buffer)
    array = backend_of("cuda", foreign).adopt(foreign, stream)
    assert array is not None, "CUDA's backend reads the array interface"
    return replace(array, dtype=buffer.dtype)


def register() -> None:
    """Makes the handlers known to XLA."""
    for name, work, platform in ((ON_CPU, _on_cpu, "cpu"), (ON_CUDA, _on_cuda, "CUDA")):
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler(work)), platform=platform)
