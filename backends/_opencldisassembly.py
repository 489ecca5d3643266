"""The code that OpenCL's runtimes made of a kernel, out of the binaries of their programs, and what it takes of the device."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any, cast

import pyopencl as cl

from gemmport.backends import _compilation, _machinecode
from gemmport.backends.objects import Call, Disassembly, Listing, Resources
from gemmport.core.device import DeviceInfo

Build = Callable[..., Any]
"""Builds a source for one device: takes it, and options behind those that are usual."""

# Why a runtime gives no machine code.
_NO_CODE = {
    "oclgrind": "it interprets LLVM's intermediate code, and has none",
    "rusticl": "its program binary is SPIR-V, which Mesa compiles at each launch",
}

_POCL_SMALL_GRID = 2**16 - 1
"""Work-items along a dimension from which on PoCL's CPU devices compute indices in 64 bits."""


def disassembled(
    call: Call, resources: Resources, device: DeviceInfo, native: cl.Device, build: Build
) -> Disassembly:  # fmt: skip
    """A call's kernel taken apart, as far as the device's runtime tells.

    Args:
        call: under PoCL one that was launched: it compiles a kernel for the size of its groups then.
        resources: what the runtime tells about the kernel.
        native: the runtime's own device.
    """
    binary = call.program.binary
    if device.platform == "nvidia":
        from gemmport.backends import _sass  # noqa: PLC0415 - for NVIDIA's devices alone

        if _compilation.SPECIFIC not in call.program.source:  # of which OpenCL's compiler makes a part alone
            told = asdict(_ptxas_resources(call, native, build))
            resources = replace(resources, **{name: value for name, value in told.items() if value is not None})
        listing = (
            _machinecode.sass(binary, call.function)
            if _sass.is_cubin(binary)
            else Listing("PTX", binary.decode(errors="replace").rstrip("\0"), "the driver does not tell its SASS")
        )
    elif device.platform == "pocl":
        listing = _pocl_code(call, build)
    elif code := _machinecode.section(binary, ".ocl.obj"):  # Intel's runtime for CPUs
        # Beside the kernel for one work-item stands, where it was vectorized, the one for several, named as in vector ABIs.
        listing = _machinecode.host_code(code, rf"_ZGV\w+_{call.function}", call.function)
    else:
        why = _NO_CODE.get(device.platform, "its program binary is not documented")
        listing = Listing("machine code", note=f"{device.platform_name} does not tell it: {why}")
    return Disassembly((listing,), resources)


def binary_of(program: cl.Program) -> bytes:
    """The binary of a program that was built for one device."""
    (binary,) = cast("list[bytes]", program.get_info(cl.program_info.BINARIES))
    return bytes(binary)


def _ptxas_resources(call: Call, native: cl.Device, build: Build) -> Resources:
    # The driver keeps what it compiled, without the log: a source that it never saw is compiled anew.
    program = build(f"{call.program.source}\n__constant int never_seen_{uuid.uuid4().hex} = 0;\n", "-cl-nv-verbose")
    log = str(program.get_build_info(native, cl.program_build_info.LOG))
    return _machinecode.ptxas_resources(log, call.function)


def _pocl_code(call: Call, build: Build) -> Listing:
    # The binary of a program that is built after the launch holds what that made: shared objects, in folders named by the
    # size of groups and, of small grids, so.
    binary = binary_of(build(call.program.source))
    folder = "-".join(map(str, call.work_group))
    objects = dict(_pocl_objects(binary, call.function, folder))
    small = max(call.extent) < _POCL_SMALL_GRID
    wanted = next((name for name in objects if name.endswith("-smallgrid") == small), None)
    if wanted is None:
        return Listing("machine code", note=f"PoCL's binary holds no code for groups of {folder}")
    return _machinecode.host_code(objects[wanted], f"_pocl_kernel_{call.function}_workgroup")


def _pocl_objects(binary: bytes, function: str, work_group: str) -> Iterator[tuple[str, bytes]]:
    """Folder and contents of a kernel's shared objects for a size of groups, in PoCL's binary.

    Its files are written as two strings, path and contents, each after its length of 32 bits.
    """
    for found in re.finditer(rf"/{function}/({work_group}(?:-[a-z0-9-]*)?)/{function}\.so".encode(), binary):
        size = int.from_bytes(binary[found.end() : found.end() + 4], "little")
        yield found.group(1).decode(), binary[found.end() + 4 : found.end() + 4 + size]
