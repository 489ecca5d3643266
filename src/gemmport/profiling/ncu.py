"""Nsight Compute's command line, `ncu`: where it is, how it is called, and what came of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gemmport.core.errors import ProfileError, ToolUnavailableError
from gemmport.core.plan import Plan
from gemmport.profiling.metrics import Metric
from gemmport.profiling.report import messages
from gemmport.profiling.target import WARM_UPS
from gemmport.runtime.child_processes import scratch_folder, session

TOOLKITS = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
"""Environment variables that name the folder of a CUDA toolkit."""

PLACES = ("/usr/local/cuda*/bin", "/opt/nvidia/nsight-compute/*")
"""Folders in which NVIDIA's installers put it."""

_NO_PERMISSION = "ERR_NVGPUCTRPERM"
_TOLD = 500
"""Characters of what a process said that an error repeats: the last ones."""


def find_ncu(environment: Mapping[str, str] = os.environ, places: Iterable[str] = PLACES) -> Path:
    """Nsight Compute's executable: that of the PATH, of a toolkit that the environment names, or the newest installed.

    Raises:
        ToolUnavailableError: there is none.
    """
    folders = [Path(environment[name], "bin") for name in TOOLKITS if environment.get(name)]
    for pattern in places:
        folders += sorted(Path("/").glob(pattern.lstrip("/")), key=_version, reverse=True)
    for path in (environment.get("PATH", ""), *map(str, folders)):
        if found := shutil.which("ncu", path=path or os.devnull):
            return Path(found)
    raise ToolUnavailableError(
        f"Nsight Compute's ncu is not on the PATH, nor in the bin folder of {', '.join(TOOLKITS)}, nor in {', '.join(places)}: "
        "install it, alone (developer.nvidia.com/nsight-compute) or with the CUDA toolkit (developer.nvidia.com/cuda-downloads)"
    )


def _version(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(folder))]


def version(ncu: Path) -> str:
    """The version of an executable, as it tells it; empty where it does not."""
    try:
        told = subprocess.run([ncu, "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r"Version (\S+)", told)
    return found.group(1) if found else ""


def command(ncu: Path, report: Path, plans: Mapping[Path, Plan], metrics: Sequence[Metric]) -> list[str]:
    """The command line that profiles plans and writes a report.

    Of the launches of these plans, it passes over those that warm up. It leaves the clocks as they are, so that the device
    runs as it does in use; the caches are emptied before every launch, which is Nsight Compute's own setting.

    Args:
        plans: by the file that holds each.
    """
    launches = [launch for plan in plans.values() for launch in plan.launches]
    functions = dict.fromkeys(launch.kernel.function for launch in launches)
    return [
        str(ncu),
        "--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "function", "--log-file", str(report),
        "--metrics", ",".join(metric.counter for metric in metrics),
        "--clock-control", "none",
        "--target-processes", "all",
        "--kernel-name-base", "function", "--kernel-name", f"regex:^({'|'.join(functions)})$",
        "--launch-skip", str(WARM_UPS * len(launches)), "--launch-count", str(len(launches)),
        sys.executable, "-m", "gemmport.profiling.target", *map(str, plans),
    ]  # fmt: skip


def run_ncu(ncu: Path, plans: Sequence[Plan], metrics: Sequence[Metric], *, timeout: float) -> str:
    """The report of profiled plans.

    Args:
        timeout: seconds that all of it may take.

    Raises:
        ToolUnavailableError: the user may not read the device's counters.
        ProfileError: it failed, or did not end in time.
    """
    with scratch_folder("gemmport-profile-") as name:
        folder = Path(name)
        files = {folder / f"plan{number}.json": plan for number, plan in enumerate(plans)}
        for file, plan in files.items():
            file.write_text(plan.to_json(), encoding="utf-8")
        report, said = folder / "report.csv", folder / "said"
        with (
            said.open("wb") as output,
            session(
                command(ncu, report, files, metrics),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "LC_ALL": "C.UTF-8"},  # numbers in the report are written as the locale says
            ) as process,
        ):
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired:
                raise ProfileError(
                    f"{ncu} did not end within {timeout:g} seconds: profile fewer kernels or a smaller product, or allow more"
                ) from None
        text = report.read_text(encoding="utf-8", errors="replace") if report.exists() else ""
        told = said.read_text(encoding="utf-8", errors="replace").strip()[-_TOLD:]
    if _NO_PERMISSION in text + told:
        raise ToolUnavailableError(
            f"this user may not read the GPU's performance counters ({_NO_PERMISSION}): run as root, give a container "
            "--cap-add=SYS_ADMIN, or have the administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0; "
            "see developer.nvidia.com/ERR_NVGPUCTRPERM"
        )
    if status != 0:
        reasons = "; ".join(filter(None, (messages(text), told))) or "it said nothing"
        raise ProfileError(f"{ncu} ended with exit status {status}: {reasons}")
    return text
