"""Products of host arrays that were computed before, of other numbers: what was decided, compiled and bound for the first is
kept for the next, which then takes some microseconds beside its kernels.

Only products that use their operands in place are kept: nothing but the addresses of A, B and D differs from one to the next.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport import kernels
from gemmport.backends.base import Backend, Memory
from gemmport.executor import BoundPlan, bind
from gemmport.plan import Plan
from gemmport.problem import Operand

HostArray = npt.NDArray[Any]

_MOST = 256
"""Products that are remembered; the oldest is forgotten first."""

_MOST_SCRATCH = 2**24
"""Bytes of scratch memory that one may keep. Products that need more take so long that binding them is nothing beside."""


@dataclass
class Repeated:
    """A product that may be computed again.

    Attributes:
        turned: whether the plan computes Dᵀ = Bᵀ · Aᵀ.
        idle: bound plans that no thread is using.
    """

    plan: Plan
    backend: Backend
    turned: bool
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    idle: list[BoundPlan] = field(default_factory=list)

    def product(self, a: HostArray, b: HostArray, out: HostArray | None) -> HostArray | None:
        """The product of operands that lie as those before did; None where one of them, or `out`, cannot be used in place."""
        backend = self.backend
        if out is None:
            out = np.empty(self.shape, self.dtype)
        elif not out.flags.writeable or np.may_share_memory(out, a) or np.may_share_memory(out, b):
            return None
        left, right, d = backend.borrow(a), backend.borrow(b), backend.borrow(out)
        if left is None or right is None or d is None:
            return None
        operands: dict[Operand, Memory] = {"a": left, "b": right, "c": d, "d": d}
        if self.turned:
            operands["a"], operands["b"] = right, left
        try:
            bound = self.idle.pop()
        except IndexError:  # all are at work in other threads
            bound = bind(self.plan, backend, operands)
            bound.let_go()
        try:
            bound.relaunch(operands)
        finally:
            backend.give_back(d)
        self.idle.append(bound)
        return out


def are_plain(a: object, b: object, out: object) -> bool:
    """Whether these are arrays of NumPy's own type, and `out` is one or None."""
    return type(a) is np.ndarray and type(b) is np.ndarray and (out is None or type(out) is np.ndarray)


_known: dict[Hashable, Repeated] = {}


def key(a: Any, b: Any, out: Any, *choices: Any) -> Hashable:
    """What a product of host arrays depends on, beside its numbers: two of one key have one plan. None for other operands, and
    where a choice is of a kind that is no key, such as an array for alpha.
    """
    if not are_plain(a, b, out):
        return None
    environ = os.environ.get
    found = (
        a.dtype, a.shape, a.strides, b.dtype, b.shape, b.strides, None if out is None else (out.dtype, out.shape, out.strides),
        choices, environ("GEMMPORT_BACKEND"), environ("GEMMPORT_DEVICE"), environ("GEMMPORT_CONFIG_PATH"), kernels.variants(),
    )  # fmt: skip
    try:
        hash(found)
    except TypeError:
        return None
    return found


def product(wanted: Hashable, a: HostArray, b: HostArray, out: HostArray | None) -> HostArray | None:
    """The product of a key; None where there was none before whose device is still open, or it cannot be repeated."""
    found = _known.get(wanted)
    if found is None:
        return None
    if found.backend.closed:
        _known.pop(wanted, None)
        return None
    return found.product(a, b, out)


def keep(wanted: Hashable, bound: BoundPlan, *, turned: bool, result: HostArray) -> None:
    """Keeps a product that was computed, for others of its key."""
    if bound.plan.scratch_bytes > _MOST_SCRATCH:
        return
    while len(_known) >= _MOST:
        _known.pop(next(iter(_known), None), None)
    bound.let_go()
    _known[wanted] = Repeated(bound.plan, bound.backend, turned, result.shape, result.dtype, [bound])
