"""A plugin of pytest, `--gpus NUMBER`: the workers of pytest-xdist take turns at so many GPUs, of which each sees one.

So a suite takes a part of the time on a machine of several, and no test runs on more than one of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""By which NVIDIA's drivers, for CUDA and for OpenCL, know the GPUs that a process sees; read when it first asks for them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """--gpus."""
    group = parser.getgroup("gemmport")
    group.addoption(
        "--gpus", metavar="NUMBER", type=int, help="let each worker of -n see one of so many GPUs, in turns"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Leaves a worker its own, before anything looks for devices."""
    gpus = config.getoption("--gpus")
    if gpus is not None and gpus < 1:
        raise pytest.UsageError(f"--gpus must be 1 or more; got {gpus}")
    worker = getattr(config, "workerinput", {}).get("workerid")
    if gpus and worker:
        os.environ[VISIBLE] = seen_by(worker, gpus, os.environ)


def seen_by(worker: str, gpus: int, environment: Mapping[str, str]) -> str:
    """The GPU of a worker, `gw0` and so on: one of those that are visible, else of the first of the machine."""
    visible = environment[VISIBLE].split(",") if VISIBLE in environment else [str(number) for number in range(gpus)]
    return visible[int(worker.removeprefix("gw")) % min(gpus, len(visible))]
