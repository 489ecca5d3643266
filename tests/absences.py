"""What tests need that may not be here, and a pytest plugin that ends a run with a line for each: what it is, how to get it.

A test that needs one of these skips with `skip_without(THING)`. A test of what some devices or libraries do not have skips with
`pytest.skip(beyond(device, …))`, and one for devices that the command line left out with `pytest.skip(none_of(platform))`. Any
other reason is shown in full, so that no test is silently lost.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

import browser
import gemmport as gp
from gemmport import baselines
from gemmport.backends import _amdgpu, _intelgpu, _machinecode, _nvrtc
from gemmport.baselines.clblas import ClBLAS
from gemmport.baselines.clblast import CLBlast
from gemmport.bench.environment import calls_are_compiled
from gemmport.core.errors import BaselineUnavailableError
from gemmport.matrix import simulator
from runtimes import RUNTIMES, Runtime, unlike


@dataclass(frozen=True)
class Thing:
    """Something that tests need and that a machine may lack.

    Attributes:
        serves: what is not tested without it.
        how: a command that brings it, or what to do.
        is_here: whether it is.
        is_of_use: whether it is missed where it is not here.
    """

    name: str
    serves: str
    how: str
    is_here: Callable[[], bool]
    is_of_use: Callable[[], bool] = lambda: True

    @property
    def missing(self) -> str:
        """The reason of a skip."""
        return f"{self.name} is not here ({self.serves}): {self.how}"


def runtime(own: Runtime) -> Thing:
    """A runtime of OpenCL for CPUs; Oclgrind's device is there under Oclgrind alone."""

    def is_here() -> bool:
        return (own.platform == "oclgrind" and simulator.installed()) or any(map(own.is_of, gp.devices("opencl")))

    return Thing(own.name, "kernels on this runtime", own.how, is_here)


def library(name: str, how: str) -> Thing:
    """A library that products are measured beside."""

    def is_here() -> bool:
        try:
            baselines.load(name)
        except BaselineUnavailableError:
            return False
        return True

    return Thing(name, "products beside this library", how, is_here)


def package(name: str, serves: str, how: str = "") -> Thing:
    """A package of Python."""
    return Thing(name, serves, how or f"pip install {name}", lambda: find_spec(name) is not None)


def program(name: str, serves: str, how: str) -> Thing:
    """A command on the PATH."""
    return Thing(name, serves, how, lambda: shutil.which(name) is not None)


def _of_host(question: str) -> object:
    """What tests/host/host_compiler.py answers, which conftest.py need not have put on the path."""
    if (folder := str(Path(__file__).parent / "host")) not in sys.path:
        sys.path.append(folder)
    return getattr(importlib.import_module("host_compiler"), question)()


def on_a_gpu(thing: Thing) -> Thing:
    """What is only missed where there is a GPU."""
    return replace(thing, is_of_use=lambda: _is_here(GPU))


GPU = Thing(
    "A CUDA device",
    "CUDA's backend and all that runs on GPUs",
    "on a machine with an NVIDIA GPU and the CUDA toolkit, pip install 'gemmport[cuda]'",
    lambda: bool(gp.devices("cuda")),
)
TWO_GPUS = on_a_gpu(
    Thing(
        "A second CUDA device", "copies between two", "run on a machine with two", lambda: len(gp.devices("cuda")) > 1
    )
)
OPENCL_RUNTIMES = tuple(runtime(own) for own in RUNTIMES)
POCL_WHEEL, _, INTEL, _, OCLGRIND = OPENCL_RUNTIMES
UNLIKE_DEVICES = Thing(
    "A runtime of OpenCL for the CPU, beside a GPU's or another for the CPU",
    "products that unlike devices share",
    POCL_WHEEL.how,
    lambda: len(unlike()) > 1,
)
CLBLAST, CLBLAS = library("clblast", CLBlast.how_to_get), library("clblas", ClBLAS.how_to_get)
CUBLAS = on_a_gpu(library("cublas", "pip install 'gemmport[cuda]'"))
OPENBLAS, MKL = (
    library(name, f"pip install {how}") for name, how in (("openblas", "scipy-openblas32"), ("mkl", "mkl"))
)
CUDA_COMPILER = Thing(
    "A CUDA compiler", "that CUDA sources compile", _nvrtc.HOW_TO_GET, lambda: bool(_nvrtc.nvrtc() or _nvrtc.nvcc())
)
NVCC = on_a_gpu(Thing("nvcc", "compiling by the toolkit", "install the CUDA toolkit", lambda: bool(_nvrtc.nvcc())))
NVDISASM = Thing(
    "nvdisasm", "reading machine code", "pip install nvidia-cuda-nvdisasm", lambda: bool(_machinecode.nvdisasm())
)
AMD_COMPILER = Thing(
    "A compiler for AMD's GPUs",
    "that OpenCL sources compile for them",
    "apt-get install clang-19 rocm-device-libs",
    lambda: _amdgpu.found() is not None,
)
INTEL_COMPILER = Thing(
    "A compiler for Intel's GPUs",
    "that OpenCL sources compile for them",
    "apt-get install intel-opencl-icd libigc-tools",
    lambda: (own := _intelgpu.found()) is not None and own.iga is not None,
)
LLVM_MCA = Thing(
    "llvm-mca", "bounds of loops on AMD's GPUs", "apt-get install llvm-19",
    lambda: (own := _amdgpu.found()) is not None and own.mca is not None,
)  # fmt: skip
OBJDUMP = program("objdump", "reading the machine code of CPUs", "apt-get install binutils")
CLANG = program("clang", "what a compiler warns of in OpenCL sources", "apt-get install clang")
CLANG_FOR_NVIDIA = program(
    "clang-19", "that OpenCL sources with NVIDIA's instructions compile", "apt-get install clang-19"
)
PTXAS = program("ptxas", "that assembly of OpenCL sources is NVIDIA's", "install the CUDA toolkit, or nvidia-cuda-nvcc")
CPP = program("cpp", "preprocessing OpenCL sources", "apt-get install cpp")
ZSH, FISH = (program(name, f"what {name} completes", f"apt-get install {name}") for name in ("zsh", "fish"))
CXX = Thing("A C++ compiler", "CUDA sources on the host", "apt-get install g++", lambda: _of_host("found") is not None)
SANITIZERS = Thing(
    "GCC's sanitizers",
    "CUDA sources for accesses out of bounds",
    "apt-get install g++",
    lambda: bool(_of_host("sanitizers")),
)
CHROMIUM = Thing(
    "Chromium", "the matrix's page in a browser", "apt-get install chromium", lambda: browser.found() is not None
)
COMPILED_CALLS = Thing(
    "C in calls",
    "how arrays are found, and kernels launched, in C",
    "apt-get install gcc python3-dev, and install gemmport anew with Python 3.11 or newer",
    calls_are_compiled,
)
MATPLOTLIB = package("matplotlib", "pictures", "pip install 'gemmport[plot]'")
MYPY = package("mypy", "what type checkers are told", "pip install 'gemmport[dev]'")
ZARR = package("zarr", "products of Zarr arrays", "with Python 3.11 or newer, pip install 'gemmport[zarr]'")
PYRIGHT = Thing(
    "pyright",
    "what Pyright is told",
    "pip install pyright, and install node",
    lambda: bool(find_spec("pyright") and shutil.which("node")),
)
TORCH = package("torch", "tensors of PyTorch, and its own products")
EXPECTTEST = replace(
    package("expecttest", "PyTorch's own samples of products, whose module imports it"),
    is_of_use=lambda: _is_here(TORCH),
)
CUPY, JAX = (on_a_gpu(package(name, f"arrays of {title}")) for name, title in (("cupy", "CuPy"), ("jax", "JAX")))

NVMATH = on_a_gpu(library("nvmath", "pip install 'nvmath-python[cu13]' torch"))
BASELINES = {
    "numpy": (), "clblast": (CLBLAST,), "clblas": (CLBLAS,), "cublas": (GPU, CUBLAS), "cublaslt": (GPU, CUBLAS),
    "openblas": (OPENBLAS,), "mkl": (MKL,), "torch": (TORCH,), "cupy": (GPU, CUPY), "nvmath": (GPU, NVMATH),
}  # fmt: skip
"""What the tests of each baseline need."""

JAX_ON_CPUS = package("jax", "arrays of JAX in the host's memory")
DASK, DISTRIBUTED = (
    package(name, serves, "pip install 'gemmport[dask]'")
    for name, serves in (("dask", "products of Dask arrays"), ("distributed", "clusters, by Dask's scheduler"))
)
DASK_CUDA = on_a_gpu(package("dask_cuda", "workers that have a GPU each", "pip install dask-cuda"))

LINUX = Thing("Linux", "processes and ICD files", "run on Linux", lambda: sys.platform == "linux")

THINGS = (
    GPU, TWO_GPUS, *OPENCL_RUNTIMES, UNLIKE_DEVICES, CLBLAST, CLBLAS, CUBLAS, OPENBLAS, MKL,
    CUDA_COMPILER, NVCC, NVDISASM, AMD_COMPILER, INTEL_COMPILER, LLVM_MCA, OBJDUMP, CLANG, CLANG_FOR_NVIDIA, PTXAS, CPP, CXX,
    SANITIZERS, CHROMIUM, ZSH, FISH, COMPILED_CALLS, MATPLOTLIB, MYPY, ZARR, PYRIGHT, TORCH, EXPECTTEST, CUPY, NVMATH, JAX,
    JAX_ON_CPUS, DASK, DISTRIBUTED, DASK_CUDA, LINUX,
)  # fmt: skip


def skip_without(*things: Thing) -> None:
    """Skips a test where one of these is not here."""
    for thing in things:
        if not _is_here(thing):
            pytest.skip(thing.missing)


def needs(*things: Thing) -> pytest.MarkDecorator:
    """`skip_without` for a test, or as `pytestmark`."""
    missing = [thing for thing in things if not _is_here(thing)]
    return pytest.mark.skipif(bool(missing), reason=missing[0].missing if missing else "")


@cache
def _is_here(thing: Thing) -> bool:
    return thing.is_here()


def beyond(what: gp.DeviceInfo | str, why: str) -> str:
    """The reason to skip a test on a device, or with a library, that cannot show what it is about."""
    return f"{_BEYOND}{what if isinstance(what, str) else what.label}: {why}"


def none_of(name: str) -> str:
    """The reason of a skip where --backend and --device leave no device of a backend or platform."""
    return beyond(_OPTIONS, f"they leave no device of {name}")


_BEYOND, _OPTIONS = "beyond ", "--backend and --device"
_NO_VALUES = "got empty parameter set"
"""How pytest begins the reason of a test whose values are all for other devices."""


def summary(skips: Mapping[str, int], things: Iterable[Thing]) -> Iterator[str]:
    """A line for each thing that is not here, then what was skipped for reasons that are none of these.

    Args:
        skips: how many tests were skipped for each reason.
    """
    rest = Counter(skips)
    for thing in things:
        skipped = rest.pop(thing.missing, 0)
        if skipped or (thing.is_of_use() and not _is_here(thing)):
            yield f"not tested: {thing.missing}{_tests(skipped)}"
    devices = Counter[str]()
    for reason in [reason for reason in rest if reason.startswith((_BEYOND, _NO_VALUES))]:
        skipped = rest.pop(reason)
        devices[_OPTIONS if reason.startswith(_NO_VALUES) else reason.removeprefix(_BEYOND).partition(": ")[0]] += (
            skipped
        )
    for label, skipped in devices.items():
        yield f"not tested: what is beyond {label}; pytest -rs has the reasons{_tests(skipped)}"
    for reason, skipped in rest.items():
        yield f"SKIPPED for a reason that tests/absences.py does not know: {reason}{_tests(skipped)}"


def _tests(number: int) -> str:
    return f" [{number} test{'s' * (number > 1)} skipped]" if number else ""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = terminalreporter.getreports("skipped")
    reasons = [report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr) for report in reports]
    skips = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    terminalreporter.section("what was not there")
    for line in summary(skips, THINGS):
        terminalreporter.line(line)
