"""Clang finds nothing to warn of in the OpenCL sources: NVIDIA's compiler, which is made of it, tells its warnings on standard
error, of whoever runs a program.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from absences import CLANG, skip_without
from gemmport import kernels
from gemmport.backends import _compilation
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES
from gemmport.core.errors import GemmportError
from gemmport.core.problem import GemmProblem
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan
from gemmport.runtime.sources import assemble
from made_up_devices import DEVICES

TARGETS = {
    "NVIDIA sm_90 under OpenCL": "nvptx64",
    "CPU under PoCL": "spir64",
    "Intel GPU": "spir64",
    "AMD gfx90a": "spir64",
    "work-groups of 256": "spir64",
}

# Functions have the parameters of all their specializations. No compiler warns of these where nobody asks.
OPTIONS = ("-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unused-but-set-parameter")


def plans(device: DeviceInfo, dtype: str, ops: str) -> Iterator[str]:
    """The sources of all kernels, with edges and without."""
    for size in (128, 131):
        problem = GemmProblem.create(size, size, size, dtype=dtype, trans_a=ops[0], trans_b=ops[1], beta=2)
        for variant in kernels.variants():
            try:
                plan = make_plan(problem, device, load_configuration(), kernel=variant.name)
            except GemmportError:  # it cannot be computed there
                continue
            yield from (assemble(launch.kernel, "opencl") for launch in plan.launches)


@cache
def told(source: str, target: str, macros: tuple[tuple[str, str], ...]) -> str:
    """What clang says of a source, as a text that begins with it."""
    options = ["-x", "cl", "-cl-std=CL1.2", "-fsyntax-only", "-target", target, "-Xclang", "-cl-ext=+all"]
    options += ["-Xclang", "-finclude-default-header"]
    if "cl_intel_subgroups" in dict(macros):  # whose functions its header alone declares, which it reads more slowly
        options += ["-cl-no-stdinc", "-Dcl_intel_subgroups"]
    else:
        options += ["-Xclang", "-fdeclare-opencl-builtins"]
    known = ("__OPENCL", "__clang", "cl_")
    options += [f"-D{name}={value}" for name, value in macros if not name.startswith(known)]
    done = subprocess.run(["clang", *options, *OPTIONS, "-"], input=source, capture_output=True, text=True, check=False)
    return done.stderr


def warnings(device: str, dtype: str, ops: str) -> set[str]:
    skip_without(CLANG)
    info = DEVICES[device]
    macros = tuple(sorted(_compilation.predefined(info).items()))
    sources = dict.fromkeys(plans(info, dtype, ops))
    needs_float64 = DTYPES[dtype].arithmetic == "float64"
    assert bool(sources) == (not needs_float64 or "float64" in info.computes)
    with ThreadPoolExecutor(2) as threads:
        said = threads.map(lambda source: told(source, TARGETS[device], macros), sources)
        return {line for text in said for line in text.splitlines() if "warning:" in line or "error:" in line}


@pytest.mark.parametrize("device", TARGETS)
def test_no_source_warns(device: str) -> None:
    assert warnings(device, "float32", "NN") == set()


@pytest.mark.every_pair("device", TARGETS)
@pytest.mark.every_pair("dtype", ["float64", "complex64", "complex128", "float16", "bfloat16", "int8", "int64"])
@pytest.mark.every_pair("ops", ["NT", "TN", "CT"])
@pytest.mark.sample(device=["NVIDIA sm_90 under OpenCL"], ops=["TN"])
def test_no_source_of_other_types_warns(device: str, dtype: str, ops: str) -> None:
    assert warnings(device, dtype, ops) == set()
