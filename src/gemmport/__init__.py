"""One matrix product on every device that CUDA or OpenCL reaches.

    import gemmport as gp
    c = gp.matmul(a, b)

Importing this package imports neither PyCUDA nor PyOpenCL; the first product does, and only the one it needs.
"""

from gemmport.api import operations as _operations  # noqa: F401  # lends device arrays what they compute
from gemmport.api.gemm import gemm
from gemmport.api.matmul import matmul
from gemmport.api.plans import plan, run
from gemmport.backends import register as register_backend
from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import (
    AmbiguousDeviceError,
    ArrayError,
    BackendUnavailableError,
    CompileError,
    ConfigError,
    DeviceMemoryError,
    DeviceNotFoundError,
    DtypeError,
    ForkError,
    GemmportError,
    LaunchError,
    ParameterError,
    ShapeError,
    UnknownNameError,
    UnsupportedError,
    WorkGroupError,
)
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem, Layout
from gemmport.execution.selection import devices, get_backend
from gemmport.kernels import register

__all__ = [
    "AmbiguousDeviceError", "ArrayError", "Backend", "BackendUnavailableError", "CompileError", "ConfigError", "DeviceArray",
    "DeviceInfo", "DeviceMemoryError", "DeviceNotFoundError", "DtypeError", "ForkError", "GemmProblem", "GemmportError",
    "LaunchError", "Layout", "ParameterError", "Plan", "ShapeError", "UnknownNameError", "UnsupportedError", "WorkGroupError",
    "devices", "gemm", "get_backend", "matmul", "plan", "register", "register_backend", "run",
]  # fmt: skip


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  # read from a file at the first use

        globals()[name] = found = version("gemmport")
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
