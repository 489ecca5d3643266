"""This machine's processor, as the system tells it."""

from __future__ import annotations

import os
from pathlib import Path

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def data_caches(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> tuple[int, ...]:
    """Bytes of the caches that hold data of a core, from the nearest on; of one that cores share, a core's part.

    Args:
        folder: with the caches of one core as Linux shows them (Documentation/ABI/testing/sysfs-devices-system-cpu).

    Returns:
        Nothing where the system does not tell: other systems, and some virtual machines.
    """
    found = {}
    for cache in sorted(folder.glob("index[0-9]*")):
        try:
            level, kind, size, shared = (
                (cache / name).read_text(encoding="ascii").strip()
                for name in ("level", "type", "size", "shared_cpu_list")
            )
            if kind != "Instruction":
                found[int(level)] = int(size[:-1]) * _UNITS[size[-1]] // _count(shared)
        except (OSError, ValueError, KeyError, IndexError):
            return ()
    return tuple(found[level] for level in sorted(found))


def _count(cpus: str) -> int:
    """How many processors a list such as "0-3,8" names."""
    ranges = [part.split("-") for part in cpus.split(",")]
    return sum(int(ends[-1]) - int(ends[0]) + 1 for ends in ranges)
