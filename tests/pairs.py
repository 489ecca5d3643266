"""Two runtimes of one CPU as two devices, between which every product is dealt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

import gemmport as gp
from absences import INTEL, POCL_WHEEL, skip_without
from gemmport.multidevice import deal, outlook
from runtimes import RUNTIMES


@contextmanager
def opened_pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[gp.Backend]]:
    """Intel's runtime and a PoCL, Debian's where it is here: opened for the test alone; products are dealt in many tiles."""
    found = gp.devices("opencl")
    wheel, debian, intel, *_ = RUNTIMES
    has_debians = any(debian.is_of(device) for device in found)
    skip_without(INTEL, *([] if has_debians else [POCL_WHEEL]))
    first = next(device for device in found if intel.is_of(device))
    second = next(device for device in found if (debian if has_debians else wheel).is_of(device))
    with opened([first, second], monkeypatch) as own:
        yield own


@contextmanager
def opened(devices: Sequence[gp.DeviceInfo], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[gp.Backend]]:
    """Devices opened for the test alone, between which every product is dealt in many tiles."""
    monkeypatch.setattr(outlook.Outlook, "pays", True)
    monkeypatch.setattr(deal, "SHORTEST", 0.0)
    with ExitStack() as stack:
        yield [stack.enter_context(gp.open_backend(device=device)) for device in devices]


def without_sharing(backend: gp.Backend) -> gp.Backend:
    """As a device with a memory of its own: operands are sent to it."""
    backend._borrow = lambda data: None
    return backend


@dataclass(frozen=True)
class Allocations:
    """By device, bytes that it has given and not got back: `held` now, `most` at once."""

    held: dict[gp.Backend, int]
    most: dict[gp.Backend, int]


def counting_allocations(backends: Sequence[gp.Backend]) -> Allocations:
    """What devices give from now on."""
    taken: dict[gp.Backend, int] = dict.fromkeys(backends, 0)
    most = dict(taken)

    def counted(one: gp.Backend) -> None:
        allocate = one._allocate

        def counts(nbytes: int) -> Any:
            memory = allocate(nbytes)
            taken[one] += nbytes
            most[one] = max(most[one], taken[one])
            free = memory.free

            def gives_back() -> None:
                taken[one] -= nbytes
                free()

            memory.free = gives_back
            return memory

        one._allocate = counts

    for each in backends:
        counted(each)
    return Allocations(taken, most)
