"""What a result was measured with: versions, host, and the GPU's clocks and power where they can be read."""

from __future__ import annotations

import datetime as dt
import os
import platform
import re
import shutil
import subprocess
import sys
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


def gpu_state(backend: Backend) -> dict[str, str]:
    """Clocks, power and temperature of NVIDIA's GPU at this moment, by nvidia-smi; empty elsewhere.

    nvidia-smi numbers all GPUs of the machine, and a process those that CUDA_VISIBLE_DEVICES leaves it, in an order of its own:
    the GPU is asked for by its place on PCI.
    """
    tool, place = shutil.which("nvidia-smi"), backend.bus_id()
    if tool is None or not place:
        return {}
    fields = ("driver_version", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")
    command = [tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader", f"--id={place}"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in text.split(",")]
    return dict(zip(fields, values, strict=True)) if len(values) == len(fields) else {}


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
