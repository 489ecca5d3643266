"""The baselines: `base` is the interface, every other public module here is one library, found by its file name.

Importing this package loads none of them; `load` loads one.
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
from abc import ABCMeta

from gemmport.baselines.base import Baseline
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import UnknownNameError

_loaded: dict[str, Baseline] = {}
_lock = threading.Lock()


_OF_BACKENDS = {"cuda": ("cublas", "cublaslt"), "opencl": ("clblast", "clblas")}
"""What "auto" means on all devices of a backend."""


def names() -> tuple[str, ...]:
    """The names of all baselines, installed or not."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in found if not name.startswith("_") and name != "base"))


def for_device(device: DeviceInfo) -> tuple[str, ...]:
    """The baselines that "auto" means on a device, installed or not."""
    of_host = ("numpy",) if device.type == "cpu" else ()
    return of_host + _OF_BACKENDS.get(device.backend, ())


def load(name: str) -> Baseline:
    """The library, loaded at its first use and shared from then on. Thread-safe.

    Raises:
        UnknownNameError: there is no baseline of that name.
        BaselineUnavailableError: its library is not installed, or does not start; the message says how to get it.
    """
    kind = _kind(name)
    with _lock:
        if name not in _loaded:
            _loaded[name] = kind()
        return _loaded[name]


def backends_of(name: str) -> frozenset[str]:
    """The backends whose memory a library computes on, installed or not; none where it computes on the host.

    Raises:
        UnknownNameError: no baseline has that name.
    """
    return _kind(name).backends


def _kind(name: str) -> type[Baseline]:
    if name not in names():
        raise UnknownNameError(f"no baseline {name!r}: there are {', '.join(names())}")
    module = importlib.import_module(f"{__name__}.{name}")
    return next(
        value for value in vars(module).values()
        if isinstance(value, ABCMeta) and issubclass(value, Baseline) and value.__module__ == module.__name__
    )  # fmt: skip
