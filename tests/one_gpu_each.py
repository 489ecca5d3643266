"""A plugin of pytest, `--gpus NUMBER`: the workers of pytest-xdist take turns at so many GPUs, of which each sees one.

So a suite takes a part of the time on a machine of several, and no test runs on more than one of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""By which NVIDIA's drivers, for CUDA and for OpenCL, know the GPUs that a process sees; read when it first asks for them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """--gpus."""
    group = parser.getgroup("gemmport")
    group.addoption(
        "--gpus", metavar="NUMBER", type=int, help="let each worker of -n see one of so many GPUs, in turns"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Raises UsageError where --gpus is below 1."""
    gpus = config.getoption("--gpus")
    if gpus is not None and gpus < 1:
        raise pytest.UsageError(f"--gpus must be 1 or more; got {gpus}")


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    """Leaves each worker one GPU before it starts. Later is too late: while pytest loads plugins, that of Zarr imports CuPy,
    which asks CUDA for devices.
    """
    if gpus := config.getoption("--gpus"):
        for number, spec in enumerate(specs):
            spec.env[VISIBLE] = seen_by(number, gpus, os.environ)


def seen_by(worker: int, gpus: int, environment: Mapping[str, str]) -> str:
    """The GPU of a worker, counted from 0: one of those that are visible, else of the first of the machine."""
    visible = environment[VISIBLE].split(",") if VISIBLE in environment else [str(number) for number in range(gpus)]
    return visible[worker % min(gpus, len(visible))]
