"""Which of the runtimes that anybody can install are here, or were tested; `make matrix` says so before and after it runs.

    python tests/runtimes.py [RECORD] [--at-least N]

RECORD is what `gemmport matrix` wrote. Ends with status 1 where fewer than N are here, or have verified cells in RECORD.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gemmport as gp
from gemmport.core.device import DeviceInfo
from gemmport.matrix import simulator
from gemmport.matrix.record import read

DEBIAN = "apt-get install"
PYPI = "pip install"


@dataclass(frozen=True)
class Runtime:
    """A runtime for CPUs that costs nothing but an installation.

    Attributes:
        versions: PEP 440; where there are two of one platform.
        how: installs it, on Debian 12 or from PyPI.
    """

    name: str
    platform: str
    versions: str
    how: str

    def is_of(self, device: DeviceInfo) -> bool:
        """Whether a device is this runtime's."""
        return device.platform == self.platform and device.has_version(self.versions)


RUNTIMES = (
    Runtime("PoCL, from PyPI", "pocl", "<3.1", f"{PYPI} pocl-binary-distribution"),
    Runtime("PoCL, from Debian", "pocl", ">=3.1", f"{DEBIAN} pocl-opencl-icd"),
    Runtime("Intel's for CPUs", "intel", "", f"{PYPI} intel-opencl-rt intel-cmplr-lib-rt"),
    Runtime("Rusticl on llvmpipe", "rusticl", "", f"{DEBIAN} mesa-opencl-icd; export RUSTICL_ENABLE=llvmpipe"),
    Runtime("Oclgrind", "oclgrind", "", f"{DEBIAN} oclgrind"),
)


def here() -> list[DeviceInfo]:
    """All devices of this machine, and the simulator's."""
    return [*gp.devices(), *simulator.devices()]


def unlike() -> list[DeviceInfo]:
    """Two of OpenCL: the best GPU and the best of CPUs' runtimes; where there is no GPU, two runtimes of one CPU."""
    found = gp.devices("opencl")
    gpus, cpus = ([device for device in found if device.type == kind] for kind in ("gpu", "cpu"))
    return [*gpus[:1], *cpus][:2] if cpus else []


def lines(devices: list[DeviceInfo], verified: dict[DeviceInfo, int] | None) -> Iterator[tuple[bool, str]]:
    """For each runtime, then for each device of any other, whether it counts and what to say of it.

    Args:
        verified: cells per device, where a record was read.
    """

    def told(device: DeviceInfo) -> tuple[bool, str]:
        if verified is None:
            return True, device.label
        return verified[device] > 0, f"{device.label}: {verified[device]:,} cells verified"

    for runtime in RUNTIMES:
        own = [device for device in devices if runtime.is_of(device)]
        if own:
            counts, text = told(own[0])
            yield counts, f"{runtime.name}: {text}"
        else:
            yield False, f"{runtime.name}: NOT {'here' if verified is None else 'tested'}; {runtime.how}"
    for device in devices:
        if not any(runtime.is_of(device) for runtime in RUNTIMES):
            yield told(device)


def main() -> int:
    """Tells; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path, nargs="?")
    parser.add_argument("--at-least", type=int, default=0, metavar="N")
    arguments = parser.parse_args()
    os.environ.setdefault("RUSTICL_ENABLE", "llvmpipe")
    verified: dict[DeviceInfo, int] | None = None
    if arguments.record:
        record = read(arguments.record)
        counts = Counter(verdict.on for verdict in record.verdicts.values() if verdict.status == "verified")
        verified = {tested.device: counts[name] for name, tested in record.devices.items()}
    said = list(lines(here() if verified is None else list(verified), verified))
    sys.stdout.writelines(f"{text}\n" for _, text in said)
    found = sum(counts for counts, _ in said)
    if found < arguments.at_least:
        sys.stdout.write(f"{found} runtimes, and at least {arguments.at_least} are asked for\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
