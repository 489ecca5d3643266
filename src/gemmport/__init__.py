"""Matrix products on every device that CUDA or OpenCL reaches.

    import gemmport as gp
    c = gp.matmul(a, b)  # NumPy's rules; the best device
    c = gp.gemm(a, b, alpha=2.0, beta=0.5, c=c)  # BLAS's rules

products            matmul, gemm; precision: what float32 is rounded to in a context
devices             devices; get_backend, which all of a process share; open_backend, for the caller alone
arrays on them      Backend.asarray, .zeros, .empty and .wrap make a DeviceArray; its get() copies it to the host; ShardedArray:
                    one whose rows, columns or matrices are spread over several devices
plans               plan: how a GemmProblem is computed on a DeviceInfo, as a Plan; run carries it out; prepare compiles ahead;
                    explain: why, and how long that is expected to take; explain_cluster: on many devices; Layout: how
                    matrices lie
extensions          register: a kernel; register_backend: a subclass of Backend
errors              GemmportError, of which every other is one; each is one of Python's own, too, such as ValueError

`import gemmport` imports neither PyCUDA nor PyOpenCL; the first product does, and only the one it needs. It tells the log, at
level INFO, which device it takes.
"""

import os as _os
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING or "_GEMMPORT_COMPLETE" not in _os.environ:  # a shell that waits for a completion needs none of these
    from gemmport.api import operations as _operations  # noqa: F401  # lends device arrays what they compute
    from gemmport.api.explain import explain, explain_cluster
    from gemmport.api.gemm import gemm
    from gemmport.api.matmul import matmul
    from gemmport.api.plans import plan, run
    from gemmport.api.precision import precision
    from gemmport.api.prepare import prepare
    from gemmport.backends import register as register_backend
    from gemmport.backends.array import DeviceArray
    from gemmport.backends.base import Backend
    from gemmport.core.device import DeviceInfo
    from gemmport.core.errors import (
        AmbiguousDeviceError,
        ArrayError,
        ArrayLostError,
        BackendUnavailableError,
        CheckpointError,
        CompileError,
        ConfigError,
        CopyError,
        DeviceLostError,
        DeviceMemoryError,
        DeviceNotFoundError,
        DevicesFailedError,
        DtypeError,
        ForkError,
        GemmportError,
        InstructionsError,
        LaunchError,
        ParameterError,
        ShapeError,
        TensorMapError,
        UnknownNameError,
        UnsupportedError,
        WorkGroupError,
    )
    from gemmport.core.plan import Plan
    from gemmport.core.problem import GemmProblem, Layout
    from gemmport.execution.selection import devices, get_backend, open_backend
    from gemmport.execution.sharded import ShardedArray
    from gemmport.kernels import register

__all__ = [
    "AmbiguousDeviceError", "ArrayError", "ArrayLostError", "Backend", "BackendUnavailableError", "CheckpointError",
    "CompileError", "ConfigError", "CopyError", "DeviceArray", "DeviceInfo", "DeviceLostError", "DeviceMemoryError",
    "DeviceNotFoundError", "DevicesFailedError", "DtypeError", "ForkError", "GemmProblem", "GemmportError", "InstructionsError",
    "LaunchError", "Layout", "ParameterError", "Plan", "ShapeError", "ShardedArray", "TensorMapError", "UnknownNameError",
    "UnsupportedError", "WorkGroupError", "devices", "explain", "explain_cluster", "gemm", "get_backend", "matmul",
    "open_backend", "plan", "precision", "prepare", "register", "register_backend", "run",
]  # fmt: skip

__version__ = "0.1.0"
