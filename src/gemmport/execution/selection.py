"""Which backend, and which device: discovery, names, defaults, and the backends that are open."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from numbers import Integral
from typing import Any, get_args

from gemmport import backends
from gemmport.backends import _ending, _fork
from gemmport.backends.base import Backend
from gemmport.core.device import DeviceInfo, DeviceType
from gemmport.core.errors import (
    AmbiguousDeviceError,
    ArrayError,
    BackendUnavailableError,
    DeviceNotFoundError,
    GemmportError,
    UnknownNameError,
)
from gemmport.runtime.last_words import if_it_ends

log = logging.getLogger(__name__)

AUTO, ALL = "auto", "all"

BACKEND_VARIABLE, DEVICE_VARIABLE = "GEMMPORT_BACKEND", "GEMMPORT_DEVICE"
"""Of the environment: what is meant where a call names no backend, or no device."""

_TYPES: tuple[str, ...] = get_args(DeviceType)

# CPU runtimes from fast to slow, as benchmarks/results/ shows, on AMD's CPUs too; simulators come last, and unknown runtimes
# behind them. Of one runtime the newest version goes first: its compiler decides, and PoCL 3.1 (LLVM 15) is faster than 3.0
# (LLVM 14).
_CPU_RUNTIMES = ("intel", "pocl", "rusticl", "clover", "oclgrind")


@dataclass(frozen=True)
class BackendStatus:
    """What a backend reaches on this machine.

    Attributes:
        devices: in the order of discovery.
        notes: what is missing or does not start, and how to mend it.
        error: why the backend is not usable at all; empty where it is.
    """

    name: str
    devices: tuple[DeviceInfo, ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""


@cache
def backend_status(name: str) -> BackendStatus:
    """Discovers a backend's devices, once per process. Where that fails, the status says why, and the other backends serve.

    Raises:
        UnknownNameError: there is no such backend.
        ForkError: this process was forked off one that used the backend's runtime, which does not go on here.
    """
    try:
        backend = backends.load(name)
        with if_it_ends():
            found = backend.discover()
    except BackendUnavailableError as error:
        return BackendStatus(name, error=str(error))
    except GemmportError:  # which says itself what to do
        raise
    except Exception as error:  # a backend of somebody else's: its fault must not take the others away
        log.warning("backend %s is passed over: its discovery failed", name, exc_info=True)
        return BackendStatus(name, error=f"backend {name} does not discover devices: {error!r}")
    return BackendStatus(name, found.devices, found.notes)


def backend_name(text: str) -> str:
    """The name of a backend, or "auto", that is written in either case; another text as it is.

    Raises:
        UnknownNameError: it must be a text, and is something else.
    """
    names = backends.names()
    if not isinstance(text, str):
        raise UnknownNameError(
            f"backend must be the name of one, or {AUTO!r}; got a {type(text).__name__}: there are {', '.join(names)}"
        )
    return text if text in names else {name.lower(): name for name in (*names, AUTO)}.get(text.lower(), text)


def asked_backend(backend: str | None) -> str:
    """The name of the backend that an argument asks for; without one, GEMMPORT_BACKEND, or "auto".

    Raises:
        UnknownNameError: as `backend_name`; GEMMPORT_BACKEND names no backend, which the message says.
    """
    if given := _named(backend):
        return given
    name = backend_name(os.environ.get(BACKEND_VARIABLE) or AUTO)
    if name not in (known := backends.names()) and name != AUTO:
        with of_environment(BACKEND_VARIABLE):
            raise UnknownNameError(f"no backend {name!r}: there are {', '.join((*known, AUTO))}")
    return name


@contextmanager
def of_environment(*variables: str) -> Iterator[None]:
    """Makes an error about a backend or device say which variables of the environment asked for it, and how to be rid of them.

    Args:
        variables: their names; of none, errors are left as they are.

    Raises:
        UnknownNameError, BackendUnavailableError, DeviceNotFoundError, AmbiguousDeviceError: what is raised within.
    """
    try:
        yield
    except (UnknownNameError, BackendUnavailableError, DeviceNotFoundError, AmbiguousDeviceError) as error:
        if not variables:
            raise
        told = " and ".join(_blamed(name) for name in variables)
        them = "it" if len(variables) == 1 else "them"
        raise type(error)(f"{told}: {error}; unset {' '.join(variables)}, or set {them} to what is here") from error


def _blamed(variable: str) -> str:
    """A variable with its value, as errors begin that are due to it."""
    return f"{variable}={os.environ[variable]!r}"


def _named(backend: str | None) -> str:
    """The name of a backend; empty for none, whose name is None or empty."""
    return "" if backend is None else backend_name(backend)


def devices(backend: str = AUTO) -> list[DeviceInfo]:
    """All devices of a backend, or of every backend that is usable here; the best first.

    Args:
        backend: its name in either case, or "auto".

    Raises:
        UnknownNameError: there is no such backend.
    """
    backend = backend_name(backend)
    names = backends.names() if backend == AUTO else (backend,)
    return sorted((device for name in names for device in backend_status(name).devices), key=_rank)


def select_device(device: str | int | DeviceInfo | None = None, backend: str | None = None) -> DeviceInfo:
    """The device of a description, `PLATFORM[:DEVICE]`, of a type, or of a number.

    Either part of a description is an index, or words that all begin words of the name (or alias, or version), in either case:
    "nvidia", "pocl 3.1", "0:1", "nvidia:h200". Words end at whatever is no letter and no digit. Without a colon, words that no
    platform has are looked for in the names of the devices. "gpu", "cpu" and "accelerator" alone are the best device of that
    type. An `int` counts `devices(backend)`: 0 is the best, 1 the next. Without either, the best device: a
    GPU before a CPU, then by estimated peak; of several runtimes for one CPU the fastest, which the log says.

    Args:
        device: a description, a number, or a `DeviceInfo`, which is taken as it is; default GEMMPORT_DEVICE.
        backend: its name in either case; default GEMMPORT_BACKEND, or every backend that is usable.

    Raises:
        UnknownNameError: no such backend.
        BackendUnavailableError: the backend is not usable here.
        DeviceNotFoundError, AmbiguousDeviceError: no device, or several, of that description; `device` is of another type, or
            of another backend than `backend`. All say which variable of the environment they are due to, if they are.
    """
    if isinstance(device, DeviceInfo):
        if backend is not None and backend_name(backend) not in (AUTO, device.backend):
            raise DeviceNotFoundError(
                f"backend {backend!r} has no device {device.label}: that is one of {device.backend}"
            )
        return device
    if not isinstance(device, str | Integral | None) or isinstance(device, bool):
        raise DeviceNotFoundError(
            f"device must be text such as '0:1' or 'nvidia', a number or a DeviceInfo; got {device!r}"
        )
    name = asked_backend(backend)
    of_backend = () if _named(backend) or name == AUTO else (BACKEND_VARIABLE,)
    with of_environment(*of_backend):
        candidates = _candidates(name)
    if device is None or device == "":
        description = os.environ.get(DEVICE_VARIABLE)
        if not description:
            _tell_choice(*candidates)
            return candidates[0]
        with of_environment(*of_backend, DEVICE_VARIABLE):
            return _described(description, name, candidates)
    try:
        return _numbered(device, candidates) if isinstance(device, Integral) else _described(device, name, candidates)
    except DeviceNotFoundError as error:
        if not of_backend:
            raise
        told = f"{error}; {_blamed(BACKEND_VARIABLE)} leaves out all other backends"
        raise DeviceNotFoundError(told) from error


def _candidates(backend: str) -> list[DeviceInfo]:
    """The devices of a backend, or of "auto", the best first; errors as `select_device` where there are none."""
    if backend != AUTO and (error := backend_status(backend).error):
        raise BackendUnavailableError(error)
    candidates = devices(backend)
    if not candidates:
        raise (BackendUnavailableError if backend == AUTO else DeviceNotFoundError)(_nothing_found(backend))
    return candidates


def _described(description: str, backend: str, candidates: Sequence[DeviceInfo]) -> DeviceInfo:
    """The one device of a description; errors as `select_device`."""
    if description.strip().lower() == ALL:
        raise DeviceNotFoundError(
            f"device must be one; got {description!r}: write devices={ALL!r} (gemmport run: --devices {ALL}) for products that "
            f"all compute together, or name one; there are {_listed(candidates)}"
        )
    found = match_devices(description, candidates)
    if found and _type_of(description):
        _tell_choice(*found)
        return found[0]
    if backend == AUTO and found:  # the same chip under two backends is not ambiguous
        found = [device for device in found if device.backend == found[0].backend]
    if not found:
        names = backends.names() if backend == AUTO else (backend,)
        notes = [note for name in names for note in backend_status(name).notes]
        raise DeviceNotFoundError("; ".join([f"no device {description!r}; there are {_listed(candidates)}", *notes]))
    if len(found) > 1:
        raise AmbiguousDeviceError(f"device {description!r} is ambiguous; it may be {_listed(found)}")
    return found[0]


def _numbered(number: int | Integral, candidates: Sequence[DeviceInfo]) -> DeviceInfo:
    if not 0 <= int(number) < len(candidates):
        told = "; ".join(f"{place} = {device.label}" for place, device in enumerate(candidates))
        raise DeviceNotFoundError(f"no device number {number}; there are {told}")
    return candidates[int(number)]


@cache  # said once, and not for each product
def _tell_choice(chosen: DeviceInfo, *others: DeviceInfo) -> None:
    if others:
        log.info("%s is taken before %s; device= or GEMMPORT_DEVICE takes another", chosen.label, _listed(others))


def is_meant(found: DeviceInfo, backend: str | None, device: str | int | DeviceInfo | None) -> bool:
    """Whether a device is one of those that a backend and a description, or what else `select_device` takes, may mean.

    Raises:
        UnknownNameError: no such backend.
        DeviceNotFoundError: as `select_device`, where the text describes no device that is here.
    """
    if isinstance(device, str):
        meant = match_devices(device, devices(_named(backend) or AUTO))
    elif device is None:
        meant = devices(_named(backend) or AUTO)
    else:
        meant = [select_device(device, backend)]
    return any((found.backend, found.index) == (one.backend, one.index) for one in meant)


def match_devices(description: str, candidates: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """The candidates that answer to a description, in their order: of a type all; see `select_device`."""
    if kind := _type_of(description):
        return [c for c in candidates if c.type == kind]
    platform, colon, device = description.partition(":")
    found = [c for c in candidates if _platform_answers(c, platform)]
    if colon:
        return [c for c in found if _device_answers(c, device)]
    return found or [c for c in candidates if _device_answers(c, platform)]


def _type_of(description: str) -> str:
    """The type of devices that a description means; empty for another one. A type goes before names, some of which say it."""
    word = description.strip().lower()
    return word if word in _TYPES else ""


def _platform_answers(device: DeviceInfo, text: str) -> bool:
    if text.strip().isdigit():
        return int(text) == device.index[0]
    return words_begin(text, f"{device.platform} {device.platform_name} {device.platform_version}")


def _device_answers(device: DeviceInfo, text: str) -> bool:
    if text.strip().isdigit():
        return int(text) == device.index[1]
    return words_begin(text, device.name)


def words_begin(text: str, name: str) -> bool:
    """Whether each word of a text begins a word of a name, in either case.

    A word of the text that is itself made of several, such as "3.1" or "skylake-avx512", stands so in the name, and its last
    part begins one there.
    """
    known = _parts(name)
    return all(_begins(_parts(word), known) for word in text.split())


def _parts(text: str) -> list[str]:
    """What stands between all that is no letter and no digit."""
    return re.findall(r"[^\W_]+", text.lower())


def _begins(asked: Sequence[str], known: Sequence[str]) -> bool:
    if not asked:  # signs alone, which no name is known by
        return False
    *whole, last = asked
    return any(
        known[at : at + len(whole)] == whole and known[at + len(whole)].startswith(last)
        for at in range(len(known) - len(whole))
    )


def _rank(device: DeviceInfo) -> tuple[int, int, tuple[int, ...], float, int]:
    kind = ("gpu", "accelerator", "cpu").index(device.type)
    runtime = 0
    age: tuple[int, ...] = ()
    if device.type == "cpu":
        known = device.platform in _CPU_RUNTIMES
        runtime = _CPU_RUNTIMES.index(device.platform) if known else len(_CPU_RUNTIMES)
        age = _age(device.platform_version)
    own = 0 if device.platform_name.lower().split()[-1:] == [device.backend] else 1  # CUDA before NVIDIA's OpenCL
    return kind, runtime, age, -(device.peak_gflops("float32") or 0.0), own


def _age(version: str) -> tuple[int, ...]:
    """Sorts newer versions before older ones; a release candidate counts as its release."""
    found = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", version)
    return tuple(-int(number or 0) for number in found.groups()) if found else (1,)


def _listed(found: Sequence[DeviceInfo]) -> str:
    return "; ".join(f"{device.selector} = {device.label}" for device in found)


def _nothing_found(backend: str) -> str:
    names = backends.names() if backend == AUTO else (backend,)
    statuses = [backend_status(name) for name in names]
    reasons = [reason for status in statuses for reason in (status.error, *status.notes) if reason]
    return "no device: " + "; ".join(reasons)


# By backend, device and, where it is another library's, context; see `backend_of`.
_open: dict[tuple[str, tuple[int, int], Hashable], Backend] = {}
_lock = threading.RLock()  # a handler of signals, or of the log, may come to a product while a device is opened

_MOST_ADOPTED = 8
"""Contexts of other libraries that are remembered with their compiled programs; the oldest is forgotten first."""


def get_backend(backend: str | None = None, device: str | int | DeviceInfo | None = None) -> Backend:
    """The open backend of a device, opened at its first use and shared from then on by all of the process. Thread-safe.

    A `with` waits in the end for what is on its queue, and leaves it open for the others. To have one that the end of a `with`
    closes, see `open_backend`.

    Args:
        backend, device: as `select_device`.

    Raises:
        ForkError: this process was forked off one that used the runtime, which does not go on here.
        Others as `select_device`.
    """
    info = select_device(device, backend)
    _check_process(info)
    with _lock:
        return _opened(info, None)


def open_backend(backend: str | None = None, device: str | int | DeviceInfo | None = None) -> Backend:
    """Opens a device once more, for the caller alone: with a queue, a pool of memory and programs of its own.

    The end of a `with` closes it, and its arrays with it. `get_backend` never gives it: products are computed by it where their
    arrays are its own.

    Args:
        backend, device: as `get_backend`.

    Raises:
        DeviceMemoryError, LaunchError: the runtime opens it no more.
        Others as `get_backend`.
    """
    info = select_device(device, backend)
    _check_process(info)
    return backends.load(info.backend)(info)


def _check_process(info: DeviceInfo) -> None:
    """Raises ForkError where the runtime does not go on; stops threads that come in at the end of the process."""
    _ending.hold()
    _fork.check(info.backend, info.label, survives=True)  # where not, a thread that is not here may have held the lock


def share_backend(backend: Backend) -> None:
    """Makes `get_backend` give this one for its device, in the place of what was opened before."""
    with _lock:
        backend.shared = True
        _open[(backend.name, backend.device.index, None)] = backend


def backend_of(name: str, array: Any) -> Backend:
    """The open backend over the device and context that another library's array is in. Thread-safe.

    It is that of `get_backend` where the array is in its context (always, with CUDA); else one opened over the array's
    context, and shared from then on.

    Args:
        name: of the backend that reaches the library's arrays.

    Raises:
        ArrayError: the array is where only its own library reaches it.
        BackendUnavailableError: the backend is not installed, or does not start.
    """
    place = backends.load(name).locate(array)
    if place is None:
        raise ArrayError(f"this {type(array).__name__} is nowhere that backend {name} reaches: copy it to the host")
    _check_process(place.device)
    with _lock:
        own = _open.get((name, place.device.index, None))
        if own is not None and not own.closed and place.context in (None, own.context):
            return own
        found = _opened(place.device, place.context)
        adopted = [key for key in _open if key[2] is not None]
        for key in adopted[: max(len(adopted) - _MOST_ADOPTED, 0)]:
            del _open[key]
        return found


def _opened(info: DeviceInfo, context: Hashable) -> Backend:
    key = (info.backend, info.index, context)
    found = _open.get(key)
    if found is None or found.closed:
        opened = backends.load(info.backend)(info, context)
        found = _open.get(key)
        if found is None or found.closed:  # else it was opened within, by a handler of signals or of the log
            _open[key] = found = opened
            found.shared = True
            log.info("%s is opened, for all of this process", info.label)
    return found


def parse_backends(text: str) -> tuple[str, ...]:
    """The backends that "auto", "all" or a name, in either case, stands for: with "auto" that of the best device.

    Raises:
        UnknownNameError: none of these.
    """
    if text.lower() == ALL:
        return backends.names()
    name = backend_name(text)
    if name == AUTO:
        return (select_device().backend,)
    if name not in backends.names():
        raise UnknownNameError(f"no backend {text!r}: there are {', '.join((*backends.names(), AUTO, ALL))}")
    return (name,)
