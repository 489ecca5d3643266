"""A device that is none: memory on the host, and the reference for a kernel, until a test plants a fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmport.backends.objects import Memory
from gemmport.checking.reference import reference
from gemmport.checking.verification import inputs
from gemmport.core.device import DeviceInfo
from gemmport.core.layout import matrices
from gemmport.core.plan import Plan
from gemmport.core.problem import OPERANDS

Fault = Callable[[Mapping[str, np.ndarray], np.ndarray], object]
"""Is given all memory, as flat arrays by name, and D, (batch, m, n), which lies in one of them."""


class OnDevice(np.ndarray):
    """An array that tells its elements as device arrays do."""

    def get(self) -> np.ndarray:
        return np.asarray(self)


@dataclass
class HostBackend:
    """What `try_plan` and the judges take of a backend.

    Attributes:
        before, after: faults that are planted before and after the product is computed.
    """

    device: DeviceInfo
    before: Fault = lambda memory, d: None
    after: Fault = lambda memory, d: None

    def allocate(self, nbytes: int) -> Memory:
        return Memory(np.zeros(nbytes, np.uint8), 0, nbytes)

    def upload(self, memory: Memory, data: np.ndarray) -> None:
        memory.native[...] = data.view(np.uint8)

    def download(self, memory: Memory, out: np.ndarray, *, offset: int = 0) -> None:
        out.view(np.uint8)[...] = memory.native[offset : offset + out.nbytes]

    def asarray(self, host: np.ndarray) -> np.ndarray:
        return host.copy().view(OnDevice)


@dataclass
class BoundOnHost:
    """What `gemmport.execution.executor.bind` makes, where the backend is a `HostBackend`."""

    plan: Plan
    backend: HostBackend
    memory: dict[str, Memory]

    def enqueue(self) -> None:
        problem = self.plan.problem
        flat: dict[Any, np.ndarray] = {name: block.native for name, block in self.memory.items()}
        for name in OPERANDS:
            flat[name] = flat[name].view(problem.element_type(name).numpy)
        lie = {
            name: matrices(flat[name], problem.layout(name), *problem.stored_shape(name), problem.batch)
            for name in OPERANDS
        }
        self.backend.before(flat, lie["d"])
        with np.errstate(invalid="ignore", over="ignore"):
            product = reference(problem, {name: lie[name] for name in inputs(problem)}).astype(problem.output.numpy)
        lie["d"][...] = product
        self.backend.after(flat, lie["d"])


def bind_on_host(
    plan: Plan, backend: HostBackend, operands: Mapping[Any, Memory], *, allocate: Callable[[int], Memory]
) -> BoundOnHost:
    """In the place of `gemmport.execution.executor.bind`."""
    scratch = {each.name: allocate(each.nbytes) for each in plan.scratch}
    return BoundOnHost(plan, backend, {**operands, **scratch})
