"""What a result was measured with: versions, host, and the GPU's clocks and power where they can be read."""

from __future__ import annotations

import datetime as dt
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import numpy as np

from gemmport.backends import _scripts
from gemmport.backends.base import Backend
from gemmport.execution import adapters
from gemmport.runtime.cache import OWN_ICD
from gemmport.runtime.host_cpu import usable_cores


def host_environment() -> dict[str, str]:
    """Versions and hardware of the host, and today's date (UTC)."""
    return {
        "gemmport": version("gemmport"),
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "blas": _blas(),
        "calls": "C" if calls_are_compiled() else "Python",
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": str(usable_cores()),
    }


def calls_are_compiled() -> bool:
    """Whether prepared calls are found and launched in C, as where gemmport was installed with a compiler."""
    return adapters.in_c is not None and _scripts.launching is not None


def was_given(name: str) -> bool:
    """Whether an environment variable is set, and not by gemmport itself."""
    value = os.environ.get(name, "")
    return bool(value) and not (name == "OCL_ICD_VENDORS" and Path(value, OWN_ICD).exists())


_ASKED = ("driver_version", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")
_AT_ONCE = "power.draw.instant"
"""Which older drivers do not tell; `power.draw` is the mean of a second."""

_MOST_SECONDS = 10.0
"""That nvidia-smi is waited for."""

_KILL_SECONDS = 1.0
"""That its end is waited for once it is killed: while it waits for the driver, no signal ends it."""


def gpu_state(backend: Backend, keep_busy: Callable[[], None] | None = None) -> dict[str, str]:
    """Clocks, power and temperature of NVIDIA's GPU at this moment, by nvidia-smi; empty elsewhere.

    nvidia-smi numbers all GPUs of the machine, and a process those that CUDA_VISIBLE_DEVICES leaves it, in an order of its own:
    the GPU is asked for by its place on PCI.

    Args:
        keep_busy: gives the GPU work for a moment; is called until nvidia-smi has told, which takes it a tenth of a second.
            Where nvidia-smi hangs, that takes eleven seconds and the rest of a moment, once: it is asked no more.
    """
    place = backend.bus_id()
    return _nvidia_smi.state(place, keep_busy) if place else {}


class _NvidiaSmi:
    """nvidia-smi, and what this process has learnt of it, so that it learns nothing twice."""

    def __init__(self) -> None:
        self._answers = True
        """Not where it is missing or hangs."""
        self._lists: dict[str, tuple[tuple[str, ...], ...]] = {}
        """By the place of a GPU, the lists of fields that are asked for: the one that it tells, or none."""

    def state(self, place: str, meanwhile: Callable[[], None] | None) -> dict[str, str]:
        """The readings of the GPU at a place, by their fields; empty where it tells none."""
        tool = shutil.which("nvidia-smi") if self._answers else None
        if tool is None:
            self._answers = False
            return {}
        for fields in self._lists.get(place, ((*_ASKED, _AT_ONCE), _ASKED)):
            command = [tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader", f"--id={place}"]
            answer = _answer(command, meanwhile)
            if answer is None:
                self._answers = False
                return {}
            status, text = answer
            values = [value.strip() for value in text.split(",")]
            if status == 0 and len(values) == len(fields):
                self._lists[place] = (fields,)
                return dict(zip(fields, values, strict=True))
            if status == 0:  # it knows the fields, and not the GPU
                break
        self._lists.setdefault(place, ())  # where it has told before, it may again
        return {}


_nvidia_smi = _NvidiaSmi()


def _answer(command: list[str], meanwhile: Callable[[], None] | None) -> tuple[int, str] | None:
    """The exit status of a command and what it writes; None where it cannot be started, or takes longer than `_MOST_SECONDS`.
    Other things are done until it ends.
    """
    end = time.monotonic() + _MOST_SECONDS
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
        )
    except OSError:
        return None
    try:
        while meanwhile is not None and process.poll() is None and time.monotonic() < end:
            meanwhile()
        try:
            text, _ = process.communicate(timeout=max(end - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            return None
    finally:
        _end(process)
    return process.returncode, text


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a process that has not ended; leaves one that cannot be ended. `Popen` as a context would wait for it forever."""
    if process.poll() is None:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_SECONDS)
    if process.stdout is not None:
        process.stdout.close()


def _blas() -> str:
    config = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {}) if isinstance(config, dict) else {}
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()


def _cpu() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        found = None
    return found.group(1) if found else platform.processor() or "unknown"
