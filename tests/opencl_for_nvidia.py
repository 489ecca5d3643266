"""OpenCL sources compiled for NVIDIA's GPUs without their driver: by clang, which takes the same inline assembly as NVIDIA's
compiler, and by ptxas, which knows the instructions.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from absences import CLANG_FOR_NVIDIA, PTXAS, skip_without
from gemmport.backends import _compilation, _completion
from gemmport.core.plan import Launch
from gemmport.runtime.sources import assemble

BUILT_IN = """
#define BUILT_IN __attribute__((overloadable, always_inline))
size_t BUILT_IN get_local_id(uint d) { return __nvvm_read_ptx_sreg_tid_x(); }
size_t BUILT_IN get_group_id(uint d) { return __nvvm_read_ptx_sreg_ctaid_x(); }
size_t BUILT_IN get_num_groups(uint d) { return __nvvm_read_ptx_sreg_nctaid_x(); }
void BUILT_IN barrier(cl_mem_fence_flags flags) { __asm__ volatile("bar.sync 0;" ::: "memory"); }
int BUILT_IN min(int a, int b) { return b < a ? b : a; }
int BUILT_IN max(int a, int b) { return a < b ? b : a; }
double2 BUILT_IN convert_double2(double2 x) { return x; }
float2 BUILT_IN convert_float2(float2 x) { return x; }
void BUILT_IN vstore_half_rte(float x, size_t i, half *p)
{
    ushort bits;
    __asm__("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    ((ushort *)p)[i] = bits;
}
float BUILT_IN vload_half(size_t i, const half *p)
{
    float x;
    __asm__("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(((const ushort *)p)[i]));
    return x;
}
"""
"""What OpenCL C for NVIDIA's GPUs has built in, so far as kernels with its instructions call it."""


def compiled(launch: Launch, architecture: str, folder: Path) -> str:
    """The PTX of a launch's kernel, of which machine code was made that spills nothing. What is left for later is completed
    there. Skips where a compiler is not installed.

    Raises:
        CalledProcessError: a compiler refuses it.
    """
    kernel = launch.kernel
    skip_without(CLANG_FOR_NVIDIA)
    skip_without(PTXAS)
    ptx = folder / "kernel.ptx"
    clang = [
        "clang-19", "-target", "nvptx64-nvidia-nvcl", "-x", "cl", "-cl-std=CL1.2", "-Xclang",
        "-finclude-default-header", "-O2", "-Xclang", "-target-cpu", "-Xclang", architecture, "-Xclang", "-target-feature",
        "-Xclang", "+ptx84", "-S", "-o", str(ptx), "-",
    ]  # fmt: skip
    source = BUILT_IN + assemble(kernel, "opencl")
    subprocess.run(clang, input=source, text=True, check=True, capture_output=True)
    if _compilation.SPECIFIC in source:
        made = _completion.completed(ptx.read_bytes(), source)
        group = b"\n.reqntid %d, %d, %d\n.minnctapersm %s\n" % (
            *launch.work_group,
            _compilation.residency(source).encode(),
        )
        # NVIDIA's compiler says so where a source requires a size of groups, and the backend how many there are at a time.
        ptx.write_bytes(
            re.sub(rb"^\.entry %s\([^)]*\)" % kernel.function.encode(), rb"\g<0>" + group, made, flags=re.MULTILINE)
        )
        architecture = f"{architecture}a"
    ptxas = ["ptxas", f"-arch={architecture}", "-v", "-o", str(folder / "kernel.cubin"), str(ptx)]
    told = subprocess.run(ptxas, text=True, check=True, capture_output=True).stderr
    assert re.search(rf"Compiling entry function '{kernel.function}'", told)
    assert not re.search(r"[1-9]\d* bytes spill|\(C\d+\)", told), told
    return ptx.read_text("utf-8")
