"""This machine's processor, as the system tells it."""

from __future__ import annotations

import functools
import math
import os
from pathlib import Path, PurePosixPath

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def usable_cores() -> int:
    """Cores that this process may run on, or, where a container's share of their time is less, as many as that makes, rounded
    up.
    """
    count = getattr(
        os, "process_cpu_count", os.cpu_count
    )  # Python 3.13 has it: with the affinity, and PYTHON_CPU_COUNT
    cores = len(os.sched_getaffinity(0)) if count is os.cpu_count and hasattr(os, "sched_getaffinity") else count() or 1
    return max(math.ceil(min(cores, _own_quota())), 1)


@functools.cache  # it is asked for with each large copy
def _own_quota() -> float:
    return cpu_quota()


def cpu_quota(told: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> float:
    """The time of processors that the control groups of this process may take, in processors; infinite where nothing bounds it.

    Each group around is asked, too: cpu.max of version 2, cpu.cfs_quota_us and cpu.cfs_period_us of version 1 (Linux,
    Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst). A container may be told the host's names of its
    groups, which it does not see: its own then lies where groups are mounted.

    Args:
        told: the groups of the process, as Linux shows them. mounted: where groups are.
    """
    quotas = [math.inf]
    try:
        lines = told.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return math.inf
    for line in lines:
        match line.split(":", 2):
            case [_, "", path]:
                places = [mounted]
            case [_, controllers, path] if "cpu" in controllers.split(","):
                places = [mounted / controllers, mounted / "cpu"]
            case _:
                continue
        group = PurePosixPath("/", path)
        quotas += [_quota(place / str(each)[1:]) for place in places for each in (group, *group.parents)]
    return min(quotas)


def _quota(group: Path) -> float:
    """Processors whose time one control group may take."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
        else:
            quota, period = ((group / f"cpu.cfs_{each}_us").read_text(encoding="ascii") for each in ("quota", "period"))
        found = math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf
    return found if found > 0 else math.inf  # -1: no bound


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
