"""`plan` and `run`: how a problem is computed, and a plan carried out on NumPy arrays."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gemmport import kernels
from gemmport.backends.array import check_plain
from gemmport.backends.objects import Memory
from gemmport.contracts.kernel import KernelVariant, Parameters
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import (
    ArrayError,
    ConfigError,
    DeviceNotFoundError,
    DtypeError,
    ParameterError,
    ShapeError,
    UnknownNameError,
)
from gemmport.core.layout import matrices
from gemmport.core.plan import ParameterValue, Plan
from gemmport.core.problem import GemmProblem, Operand
from gemmport.execution.executor import bind
from gemmport.execution.selection import get_backend
from gemmport.planning.lookup import Configuration, load_configuration
from gemmport.planning.planner import AUTO, make_plan

HostArray: TypeAlias = npt.NDArray[Any]
Config: TypeAlias = "str | Path | Sequence[str | Path] | None"


def plan(
    problem: GemmProblem,
    device: DeviceInfo,
    *,
    kernel: str = AUTO,
    params: Parameters | None = None,
    config: Config = None,
    without: Collection[str] = (),
) -> Plan:
    """How a problem is computed on a device: the kernel, its parameters and where they came from, every launch.

    Args:
        problem: from `GemmProblem.create`.
        device: from `devices()`, or built by hand.
        kernel: a name from `gemmport kernels`, or "auto".
        params: parameters of the kernel; they go before any configuration.
        config: files that go before the user's and the shipped ones; each is read once per process.
        without: names of kernels that are left out.

    Raises:
        ConfigError, UnknownNameError, ParameterError, UnsupportedError, DtypeError: see `gemmport.planning.planner.make_plan`.
        ShapeError, DeviceNotFoundError: problem or device is of another type.
    """
    check_kernel(kernel)
    check_problem(problem)
    check_device(device)
    asked = _asked(params)
    folders = os.environ.get("GEMMPORT_CONFIG_PATH")
    left_out, files = frozenset(without), _config_files(config)
    first = device if device.index == _FIRST else replace(device, index=_FIRST)
    with _planning[-1]:
        made = _cached_plan(problem, first, kernel, asked, left_out, files, folders, kernels.variants())
    return made if first is device else replace(made, device=device)


_FIRST = (0, 0)
"""Devices that differ in nothing but their number have one plan."""

_planning = [threading.RLock()]
"""The last of these is held by who plans. So two devices of one kind, each in a thread, plan a product once; two threads of
Python's would be no sooner done."""

if hasattr(os, "register_at_fork"):  # another thread may have planned, which the child has not
    os.register_at_fork(after_in_child=lambda: _planning.append(threading.RLock()))


@lru_cache(maxsize=1024)
def _cached_plan(
    problem: GemmProblem,
    device: DeviceInfo,
    kernel: str,
    params: tuple[tuple[str, ParameterValue], ...],
    without: frozenset[str],
    files: tuple[str, ...],
    _folders: str | None,
    _family: tuple[KernelVariant, ...],  # part of the key: a variant may be registered over another
) -> Plan:
    configuration = _configuration(files, _folders)
    return make_plan(problem, device, configuration, kernel=kernel, params=dict(params), without=without)


@lru_cache(maxsize=16)
def _configuration(files: tuple[str, ...], _folders: str | None) -> Configuration:
    """The configuration of these files; `_folders`, which it reads from the environment, is here to tell it apart."""
    return load_configuration(files)


def check_kernel(kernel: object) -> None:
    """Raises UnknownNameError where the name of a kernel is not a text."""
    if not isinstance(kernel, str):
        raise UnknownNameError(
            f"kernel must be the name of one, or {AUTO!r}; got a {type(kernel).__name__}: name one of `gemmport kernels`"
        )


def check_problem(problem: object) -> None:
    """Raises ShapeError where a problem is something else, such as its sizes."""
    if not isinstance(problem, GemmProblem):
        raise ShapeError(f"problem must be a GemmProblem; got {problem!r}: make it by GemmProblem.create(m, n, k)")


def check_device(device: object) -> None:
    """Raises DeviceNotFoundError where a device is something else, such as its description."""
    if not isinstance(device, DeviceInfo):
        raise DeviceNotFoundError(
            f"device must be a DeviceInfo; got {device!r}: take one of gemmport.devices(), or get_backend(device=…).device"
        )


def default_precision(config: Config) -> str:
    """What the files of a call, or those of the user's folders, round products to where nothing else is said.

    Raises:
        ConfigError: as `gemmport.planning.lookup.load_configuration`.
    """
    return _default_precision(_config_files(config), os.environ.get("GEMMPORT_CONFIG_PATH"))


@lru_cache(maxsize=16)
def _default_precision(files: tuple[str, ...], folders: str | None) -> str:
    return _configuration(files, folders).precision


def configuration_of(config: Config) -> Configuration:
    """The configuration with these files before the user's and the shipped ones; each is read once per process.

    Raises:
        ConfigError: as `gemmport.planning.lookup.load_configuration`.
    """
    return _configuration(_config_files(config), os.environ.get("GEMMPORT_CONFIG_PATH"))


def _asked(params: Parameters | None) -> tuple[tuple[str, ParameterValue], ...]:
    """Parameters in a fixed order, as Python's own numbers and words."""
    if not isinstance(params, Mapping | None):
        raise ParameterError(f"params must be a mapping of names to values, such as {{'TSM': 64}}; got {params!r}")
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in (params or {}).items()}
    for name, value in plain.items():
        if not isinstance(name, str) or not isinstance(value, int | str) or isinstance(value, bool):
            raise ParameterError(f"params has {name!r}: {value!r}; names are text, and values whole numbers or words")
    return tuple(sorted(plain.items()))


def _config_files(config: Config) -> tuple[str, ...]:
    files = () if config is None else (config,) if isinstance(config, str | Path) else config
    if not isinstance(files, Sequence) or not all(isinstance(file, str | Path) for file in files):
        raise ConfigError(f"config must be the path of a file or a list of them; got {config!r}")
    return tuple(str(path) for path in files)


def run(plan: Plan, a: Any, b: Any, c: Any = None) -> HostArray:
    """Runs a plan on NumPy arrays, laid out in memory as the plan's problem says.

    Args:
        a, b, c: of the shapes that the problem stores, with the batch as first dimension where it is not 1.

    Returns:
        D, of shape (m, n) or (batch, m, n).

    Raises:
        ShapeError: an operand of another shape. ArrayError: C is missing where beta is not 0, or `plan` is not a Plan.
        DtypeError: an operand of another kind, which would lose a part: of complex numbers, or behind the point.
        Others as `gemm`.
    """
    if not isinstance(plan, Plan):
        raise ArrayError(f"plan must be what gemmport.plan gives; got a {type(plan).__name__}: arrays go behind it")
    problem = plan.problem
    backend = get_backend(device=plan.device)
    given: dict[Operand, Any] = {"a": a, "b": b} if problem.beta == 0 else {"a": a, "b": b, "c": c}
    if problem.beta != 0 and c is None:
        raise ArrayError(f"beta = {problem.beta} needs c, the matrix it scales")
    memory: dict[Operand, Memory] = {}
    for operand, value in given.items():
        rows, columns = problem.stored_shape(operand)
        flat = np.zeros(max(problem.span(operand), 1), problem.element_type(operand).numpy)
        view = matrices(flat, problem.layout(operand), rows, columns, problem.batch)
        check_plain(operand, value)
        array = np.asarray(value)
        if array.shape not in {view.shape, *([view.shape[1:]] if problem.batch == 1 else [])}:
            raise ShapeError(f"{operand} has shape {array.shape}; the plan is for {view.shape}")
        if not np.can_cast(array.dtype, view.dtype, "same_kind"):
            raise DtypeError(f"{operand} must be of the plan's kind, {view.dtype}; got {array.dtype}: convert it first")
        if view.size:
            with np.errstate(all="ignore"):
                view[...] = array
        memory[operand] = backend.allocate(flat.nbytes)
        backend.upload(memory[operand], flat)
    result = np.zeros(max(problem.span("d"), 1), problem.output.numpy)
    memory["d"] = backend.allocate(result.nbytes)
    bind(plan, backend, memory).enqueue()
    backend.download(memory["d"], result)
    d = matrices(result, problem.d, problem.m, problem.n, problem.batch).copy()
    return d[0] if problem.batch == 1 else d
