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

from gemmport.backends.base import Backend
from gemmport.core.errors import BackendUnavailableError, UnknownNameError

_NOT_BACKENDS = {"array", "base", "objects", "offline", "parts"}

_registered: dict[str, type[Backend]] = {}

_loaded: dict[str, type[Backend]] = {}
"""Those that gemmport ships, once they were imported: they are asked for by every product that is planned."""


def register(backend: type[Backend]) -> None:
    """Adds a backend of your own, under its `name`; it goes before one of that name.

    Its devices are found from then on: register it before the first product.
    """
    _registered[backend.name] = backend


def names() -> tuple[str, ...]:
    """The names of all backends, installed or not."""
    return tuple(sorted(_shipped() | _registered.keys()))


@cache
def _shipped() -> frozenset[str]:
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return frozenset(name for name in modules if not name.startswith("_") and name not in _NOT_BACKENDS)


def load(name: str) -> type[Backend]:
    """The class of a backend.

    Raises:
        UnknownNameError: there is no backend of that name.
        BackendUnavailableError: the Python package it needs is not installed, or does not start.
    """
    if (known := _registered.get(name) or _loaded.get(name)) is not None:
        return known
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
    _loaded[name] = next(
        value for value in vars(module).values()
        if isinstance(value, ABCMeta) and issubclass(value, Backend) and value is not Backend
    )  # fmt: skip
    return _loaded[name]
