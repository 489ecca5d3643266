"""Whether NVIDIA's OpenCL gives a group more local memory than it tells (48 KB), and by which way: CUDA gives up to 227 KB.

    python benchmarks/local_memory.py --device nvidia --output local-memory.json

A kernel writes all of its local memory, and reads what other work-items wrote. The memory is declared in the source; or an
argument of the kernel, alone, behind `clSetKernelAttributeNV` (cl_nv_kernel_attribute), or in the program that CUDA's linker
makes of the PTX. Each attempt is a process of its own, since one that fails may spoil what comes after it. Takes a minute.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import document
import numpy as np
import pyopencl as cl

from gemmport.core.device import DeviceInfo
from gemmport.core.errors import GemmportError
from gemmport.execution.selection import get_backend, select_device

ITEMS = 256

KIB = 1024

SIZES = (48 * KIB, 64 * KIB, 96 * KIB, 144 * KIB, 227 * KIB)

WAYS = ("declared", "argument", "attribute", "linked")

SECONDS = 60.0
"""That an attempt may take."""

PREFERRED_LOCAL_MEMORY_SIZE = 0
"""CL_KERNEL_PREFERRED_LOCAL_MEMORY_SIZE_NV of NVIDIA's CL/cl_ext.h."""

BODY = """
    const uint x = get_local_id(0);
    for (uint i = x; i < WORDS; i += ITEMS) words[i] = i * 2654435761u + get_group_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    uint wrong = 0;
    for (uint i = x; i < WORDS; i += ITEMS) {
        const uint j = WORDS - 1 - i;
        wrong += words[j] != j * 2654435761u + get_group_id(0);
    }
    out[get_global_id(0)] = wrong + 1;
}
"""

HEAD = "__attribute__((reqd_work_group_size(ITEMS, 1, 1))) kernel void fill(global uint *out"


def source(way: str, nbytes: int) -> str:
    """The kernel: every work-item leaves 1, and more for each word that is not what was written."""
    defines = f"#define ITEMS {ITEMS}u\n#define WORDS {nbytes // 4}u\n"
    own = ") {\n    local uint words[WORDS];" if way == "declared" else ", local uint *words) {"
    return defines + HEAD + own + BODY


def set_attribute(platform: Any, kernel: Any, device: Any, nbytes: int) -> None:
    """Asks the driver for so much local memory for a kernel.

    Raises:
        LookupError: the driver has no such function, or refuses.
    """
    library = ctypes.PyDLL(str(cl._cl.__file__))
    find = library.clGetExtensionFunctionAddressForPlatform
    find.restype = ctypes.c_void_p
    address = find(ctypes.c_void_p(platform.int_ptr), b"clSetKernelAttributeNV")
    if not address:
        raise LookupError("the driver has no clSetKernelAttributeNV")
    function: Callable[..., int] = ctypes.CFUNCTYPE(
        ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
    )(address)
    for number in (ctypes.c_uint32(nbytes), ctypes.c_size_t(nbytes)):  # the header does not say which
        status = function(
            kernel.int_ptr, device.int_ptr, PREFERRED_LOCAL_MEMORY_SIZE, ctypes.sizeof(number), ctypes.byref(number)
        )
        if status == 0:
            return
    raise LookupError(f"clSetKernelAttributeNV gives status {status}")


def attempted(device: DeviceInfo, way: str, nbytes: int) -> str:
    """What comes of an attempt: "right", or what went wrong."""
    platform = cl.get_platforms()[device.index[0]]
    native = platform.get_devices()[device.index[1]]
    context = cl.Context([native])
    queue = cl.CommandQueue(context)
    try:
        program = cl.Program(context, source(way, nbytes)).build()
        if way == "linked":
            from gemmport.backends import _cudadriver  # noqa: PLC0415 - for NVIDIA's devices alone

            capability = int(device.architecture.removeprefix("sm_"))
            cubin = _cudadriver.linked(program.get_info(cl.program_info.BINARIES)[0], capability)
            program = cl.Program(context, [native], [cubin]).build()
        kernel = cl.Kernel(program, "fill")
        if way == "attribute":
            set_attribute(platform, kernel, native, nbytes)
        groups = 2 * device.compute_units
        out = np.zeros(groups * ITEMS, np.uint32)
        memory = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, out.nbytes)
        kernel.set_arg(0, memory)
        if way != "declared":
            kernel.set_arg(1, cl.LocalMemory(nbytes))
        cl.enqueue_nd_range_kernel(queue, kernel, out.shape, (ITEMS,))
        cl.enqueue_copy(queue, out, memory)
    except (cl.Error, GemmportError, LookupError, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"[:500]
    return "right" if (out == 1).all() else f"wrong: {np.count_nonzero(out != 1)} of {out.size} work-items"


def in_a_process(device: DeviceInfo, way: str, nbytes: int) -> str:
    """As `attempted`, by a process of its own."""
    command = [sys.executable, __file__, "--device", device.selector, "--attempt", way, str(nbytes)]
    # Where PYTHONSAFEPATH is set, a program does not find its neighbours by itself.
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, env=environment
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"not done after {SECONDS:.0f} s"
    lines = done.stdout.strip().splitlines()
    return (
        json.loads(lines[-1]) if done.returncode == 0 and lines else f"status {done.returncode}: {done.stderr[-300:]}"
    )


@click.command()
@click.option("--device", default=None, metavar="PLATFORM[:DEVICE]", help="As in gemmport run, in OpenCL.")
@click.option("--sizes", default=",".join(map(str, SIZES)), show_default=True, help="BYTES[,BYTES]")
@click.option("--attempt", nargs=2, type=(click.Choice(WAYS), int), default=None, help="Makes this one alone.")
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, and not to standard output.")
def main(device: str | None, sizes: str, attempt: tuple[str, int] | None, output: Path | None) -> None:
    """Tries each way with each size."""
    target = select_device(device, "opencl")
    if attempt is not None:
        click.echo(json.dumps(attempted(target, *attempt)))
        return
    found = []
    for way in WAYS:
        for nbytes in map(int, sizes.split(",")):
            found.append({"way": way, "bytes": nbytes, "result": in_a_process(target, way, nbytes)})
            click.echo(f"{way}, {nbytes:,} bytes: {found[-1]['result']}", err=True)
    document.write(output, [get_backend(device=target)], told=target.local_memory, results=found)


if __name__ == "__main__":
    main()
