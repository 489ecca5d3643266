"""The backends: `base` is the interface, every other public module here is one implementation, found by its file name.

Importing this package imports none of them; `load` imports one, and with it its runtime's Python package. `register` adds those
of other packages.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from abc import ABCMeta
from functools import cache
from types import ModuleType

from gemmport.backends.base import Backend
from gemmport.core.errors import BackendUnavailableError, UnknownNameError

_NOT_BACKENDS = {"array", "base", "objects", "offline", "parts", "segments"}

_registered: dict[str, type[Backend]] = {}


def register(backend: type[Backend]) -> None:
    """Adds a backend of your own, under its `name`; it goes before one of that name.

    Its devices are found from then on: register it before the first product.
    """
    _registered[backend.name] = backend


def names() -> tuple[str, ...]:
    """The names of all backends, installed or not."""
    return tuple(sorted(_shipped(*__path__) | _registered.keys()))


@cache  # each product that is found anew asks, and to list a folder takes a fifth of its time
def _shipped(*folders: str) -> frozenset[str]:
    modules = (module.name for module in pkgutil.iter_modules(folders))
    return frozenset(name for name in modules if not name.startswith("_") and name not in _NOT_BACKENDS)


def load(name: str) -> type[Backend]:
    """The class of a backend.

    Raises:
        UnknownNameError: there is no backend of that name.
        BackendUnavailableError: the Python package it needs is not installed, or does not start.
    """
    if name in _registered:
        return _registered[name]
    if name not in names():
        raise UnknownNameError(f"no backend {name!r}: there are {', '.join(names())}")
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("gemmport"):
            raise
        package = error.name.partition(".")[0]
        extras = importlib.metadata.metadata("gemmport").get_all("Provides-Extra") or []
        what = f"'gemmport[{name}]'" if name in extras else package
        raise BackendUnavailableError(
            f"backend {name} is not installed: it needs the Python package {package}; pip install {what}"
        ) from error
    except ImportError as error:  # it is installed; a library of the system is not, such as libcuda.so
        raise BackendUnavailableError(f"backend {name} does not start: {error}; install the driver") from error
    return _of(module)


@cache
def _of(module: ModuleType) -> type[Backend]:
    return next(
        value for value in vars(module).values()
        if isinstance(value, ABCMeta) and issubclass(value, Backend) and value is not Backend
    )  # fmt: skip
