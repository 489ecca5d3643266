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


def gpu_state(backend: Backend, keep_busy: Callable[[], None] | None = None) -> dict[str, str]:
    """Clocks, power and temperature of NVIDIA's GPU at this moment, by nvidia-smi; empty elsewhere.

    nvidia-smi numbers all GPUs of the machine, and a process those that CUDA_VISIBLE_DEVICES leaves it, in an order of its own:
    the GPU is asked for by its place on PCI.

    Args:
        keep_busy: gives the GPU work for a moment; is called until nvidia-smi has told, which takes it a tenth of a second.
    """
    tool, place = shutil.which("nvidia-smi"), backend.bus_id()
    if tool is None or not place:
        return {}
    for fields in ((*_ASKED, _AT_ONCE), _ASKED):
        command = [tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader", f"--id={place}"]
        values = [value.strip() for value in _told(command, keep_busy).split(",")]
        if len(values) == len(fields):
            return dict(zip(fields, values, strict=True))
    return {}


def _told(command: list[str], meanwhile: Callable[[], None] | None) -> str:
    """What a command writes; nothing where it fails, or takes longer than `_MOST_SECONDS`."""
    end = time.monotonic() + _MOST_SECONDS
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            try:
                while meanwhile is not None and process.poll() is None and time.monotonic() < end:
                    meanwhile()
                text, _ = process.communicate(timeout=max(end - time.monotonic(), 0.1))
            except BaseException:
                process.kill()
                raise
    except (OSError, subprocess.SubprocessError):
        return ""
    return text if process.returncode == 0 else ""


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
