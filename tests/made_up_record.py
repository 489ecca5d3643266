"""A record that nobody made: devices of many kinds, cells of every status, and text that would break a careless page."""

from __future__ import annotations

import itertools
import random

from gemmport.core.device import DeviceInfo
from gemmport.matrix.record import Header, Record, Status, Tested, Verdict

HOSTILE = "Größe & “Co” </script><img src=x onerror=alert(1)> \u2028 <!-- ]]>"
"""Ends a script, a comment and a CDATA section, and has letters beyond ASCII."""

CONTROL = "bad bytes \x00\x1b[31m\ufffe\ud800 end"
"""Characters that XML 1.0 does not allow."""

EPYC = "AMD EPYC"
DEVICES = {
    "opencl/intel-2026.22/AMD-EPYC": DeviceInfo(
        "opencl", EPYC, "intel", platform_name="Intel(R) OpenCL", platform_version="2026.22.10.0.01", vendor="amd",
        driver="2026.22.10.0.01_160000", type="cpu", compute_units=2, clock_mhz=2596, memory=25_276_502_016,
    ),
    "opencl/pocl-3.1/AMD-EPYC": DeviceInfo(
        "opencl", "pthread-skylake-avx512-AMD EPYC", "pocl", (1, 0), "Portable Computing Language", "3.1", "3.1+debian",
        "amd", "skylake-avx512", "cpu", compute_units=2,
    ),
    "opencl/pocl-3.0/AMD-EPYC": DeviceInfo(
        "opencl", "pthread-AMD EPYC", "pocl", (3, 0), "Portable Computing Language", "3.0-rc2", "3.0-rc2", "amd", "znver3",
        "cpu", compute_units=2,
    ),
    "opencl/rusticl-22.3.6/llvmpipe": DeviceInfo(
        "opencl", "llvmpipe (LLVM 15.0.6, 256 bits)", "rusticl", (2, 0), "rusticl", "22.3.6", "22.3.6", type="cpu",
        compute_units=8, clock_mhz=300, computes=frozenset({"float32"}), max_terms=32768,
    ),
    "opencl/oclgrind-21.10/simulator": DeviceInfo(
        "opencl", "Oclgrind Simulator", "oclgrind", (4, 0), "Oclgrind", "21.10", "21.10", type="cpu",
    ),
    "cuda/nvidia-13.0/H200": DeviceInfo(
        "cuda", "NVIDIA H200", "nvidia", platform_name="NVIDIA CUDA", platform_version="13.0", driver="580.82.07",
        vendor="nvidia", architecture="sm_90", compute_units=132, clock_mhz=1980, memory=150_000_000_000, sub_group=32,
    ),
    "opencl/nvidia-3.0/hostile": DeviceInfo(
        "opencl", HOSTILE, "nvidia", (5, 0), "NVIDIA CUDA", "3.0 CUDA 13.0.84", "580.82.07", "nvidia", "sm_90",
        compute_units=132,
    ),
}  # fmt: skip

KERNELS = ("naive", "tiled", "wpt", "vectorized", "transposed_b", "padded", "prefetch", "register_tiled",
           "register_tiled_vectorized", "direct", "reduce", "shuffle")  # fmt: skip
TYPES = ("float32", "float64", "float16", "float16-float16-float16", "float16-float32", "bfloat16", "complex64", "complex128",
         "int8-int32", "uint8", "int64", "bool")  # fmt: skip
OPS = ("NN", "NT", "TN", "TT")
SHAPES = {"tiny": (2, 3, 1), "odd": (37, 41, 43), "prime": (127, 131, 113), "skinny": (1, 257, 64), "power": (128, 128, 128),
          "past": (129, 129, 129), "batched": (33, 17, 29), "strided": (61, 53, 47), "empty-m": (0, 17, 9),
          "large": (2048, 2048, 2048)}  # fmt: skip
SCALARS = ("a1b0", "a1b1", "a2b-1", "a0b1")


def record(cells: int, *, failing: bool = True, left: int = 0, lost: str = "", seed: int = 1) -> Record:
    """A record with so many cells over all devices.

    Args:
        failing: some cells are wrong, crash, hang or end in an error. Otherwise all are verified or unsupported.
        left: cells of the first device that are due and were not judged.
        lost: why the last device was lost.
    """
    draw = random.Random(seed)
    host = {"gemmport": "0.1.0", "date": "2026-11-21", "python": "3.12.4", "numpy": "2.4.6", "blas": "scipy-openblas 0.3.30",
            "system": "Linux x86_64", "cpu": "AMD EPYC 7R13 Processor", "cores": "2"}  # fmt: skip
    made = Record(Header("0.1.0", "quick", (1, 1), "2026-11-21T12:04:32+00:00", host))
    product = list(itertools.product(KERNELS, TYPES, OPS, SHAPES, SCALARS))
    *_, last = DEVICES
    for number, (name, info) in enumerate(DEVICES.items()):
        own = cells // len(DEVICES) + (number < cells % len(DEVICES))
        due = own + (left if number == 0 else 0)
        command = f"gemmport matrix --backend {info.backend} --device '{info.platform} {info.platform_version}'"
        loss = lost if name == last else ""
        made.add(Tested(name, info, info.label, {"pyopencl": "2026.1.4"}, (host,), due, command, lost=loss))
        for axes in sorted(draw.sample(product, own)):
            made.add(_verdict(draw, made.devices[name], axes, failing))
    return made


def _verdict(draw: random.Random, tested: Tested, axes: tuple[str, ...], failing: bool) -> Verdict:
    info = tested.device
    kernel, types, ops, shape, scalars = axes
    cell = "/".join(axes)
    status, reason = _judged(draw, info, kernel, types, failing)
    m, n, k = SHAPES[shape] if status != "unsupported" else (0, 0, 0)
    batch = 0 if status == "unsupported" else 3 if shape == "batched" else 1
    rate, baselines = None, {}
    if shape == "large" and status == "verified":
        rate = round(draw.uniform(20, 180) * (300 if info.type == "gpu" else 1), 2)
        ratio = round(draw.uniform(0.2, 1.3), 3)
        baselines["numpy"] = {"gflops": round(rate / ratio, 2), "ratio": ratio, "status": "verified"}
        baselines["clblast"] = {"gflops": None, "ratio": None, "status": "unavailable: CLBlast is not installed"}
        if info.backend == "cuda":
            baselines["cublas"] = {"gflops": rate * 1.25, "ratio": 0.8, "status": "verified"}
    return Verdict(
        tested.id, cell, kernel, types, ops, shape, scalars, m, n, k, batch,
        check="exact" if draw.random() < 0.8 else "statistical", status=status, reason=reason,
        seconds=round(draw.expovariate(4), 4), command=f"{tested.command} --cell {cell}",
        quirk="rusticl-loop-rounds" if info.platform == "rusticl" and kernel == "prefetch" else "",
        gflops=rate, baselines=baselines,
    )  # fmt: skip


def _judged(draw: random.Random, info: DeviceInfo, kernel: str, types: str, failing: bool) -> tuple[Status, str]:
    accumulator = types.rpartition("-")[2]
    if info.platform != "nvidia" and kernel == "shuffle":
        return "unsupported", f"shuffle on {info.label}: its work-items cannot exchange registers"
    if accumulator == "float16" and "float16" not in info.computes:
        return "unsupported", f"{info.label} does not compute in float16, which float16 summed in float16 needs"
    if accumulator in ("float64", "complex128") and "float64" not in info.computes:
        return "unsupported", f"{info.label} does not compute in float64, which {accumulator} needs"
    if draw.random() < 0.003:
        return (
            "verified",
            "right in a process of its own; the process that had judged others before it ended by SIGSEGV",
        )
    if not failing:
        return "verified", ""
    if info.platform == "pocl" and info.platform_version == "3.1" and kernel == "prefetch":
        wrong, row, column = draw.randrange(1, 900), draw.randrange(99), draw.randrange(99)
        return "wrong", (
            f"exact: {wrong} of 5921 elements differ; the first, batch 0 row {row} column {column}, "
            f"is {draw.randrange(99)}.0 and should be {draw.randrange(99)}.0"
        )
    if info.platform == "rusticl" and kernel == "register_tiled" and types == "complex64":
        return "crash", "the process ended by SIGSEGV (signal 11): LLVM ERROR: Cannot select: t35: v4f64 = fma"
    chance = draw.random()
    if chance < 0.001:
        return "hang", "no result within 120 s"
    if chance < 0.002:
        return "error", f"CompileError: {HOSTILE} {CONTROL}\n  35 | foo(x);"
    return "verified", ""
