"""What a device takes for the parts of a product, as data: rates, latencies, and what kernels know of it beyond them.

Files of configs/ and of the user's state it per device (`gemmport.planning.lookup.Configuration.model`); what none states is
derived from what the device tells. Kernels choose among their tilings by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DType
from gemmport.core.plan import ParameterValue

Tilings = tuple[Mapping[str, ParameterValue], ...]

RATES = (
    "read_bandwidth", "copy_bandwidth", "local_bandwidth", "link_bandwidth", "latency", "launch", "group", "barrier",
    "half_length",
)  # fmt: skip
"""The fields of a model that are one number each."""

TOLD = "what the device tells"
"""The origin of a model that no file states anything of."""


@dataclass(frozen=True)
class DeviceModel:
    """What a device takes for the parts of a product. Seconds, bytes, multiply-adds; of the whole device unless said.

    Attributes:
        origin: "configs/nvidia.yaml: Hopper", a file of the user's, or "what the device tells".
        multiply_adds: per second outside matrix units, by type of arithmetic: "float16", "float32", "float64", "int32". A
            complex multiply-add counts four.
        matrix_multiply_adds: likewise of matrix units, by type of what is multiplied: "float64"; "float16", which stands for
            all of 2 bytes, and for as many bytes of others. A type of which it is not known is not there.
        read_bandwidth: bytes per second from global memory.
        copy_bandwidth: bytes per second, read plus written.
        local_bandwidth: bytes per second that work-items read from local memory, all compute units together.
        latency: seconds of a read from global memory.
        launch: seconds of one more launch on a queue, back to back.
        group: seconds that one compute unit takes to start one more work-group.
        barrier: seconds of a work-group's barrier.
        link_bandwidth: bytes per second from the host's memory to the device's, or back.
        half_length: rows, columns or terms with which a product of a panel reaches half its speed (R. W. Hockney's n½,
            "Parallel Computers", 1981): what it takes to begin, of which predictions of whole products tell too little.
        fitted: by kernel, constants of its own prediction (clocks of a unit, ratios), where they were fitted to times.
        tilings: by kernel, parameters among which it chooses, where they were found by trial.
        verdicts: by kernel, and by the name of a form of it, whether `gemmport doctor` has found it right on this very device
            (`gemmport.contracts.kernel.Form`); forms that nobody tried are not there.
    """

    origin: str
    multiply_adds: Mapping[str, float]
    read_bandwidth: float
    copy_bandwidth: float
    local_bandwidth: float
    latency: float
    launch: float
    group: float
    barrier: float
    link_bandwidth: float
    half_length: float
    matrix_multiply_adds: Mapping[str, float] = field(default_factory=dict)
    fitted: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    tilings: Mapping[str, Tilings] = field(default_factory=dict)
    verdicts: Mapping[str, Mapping[str, bool]] = field(default_factory=dict)

    def rate(self, sums: DType) -> float:
        """Multiply-adds per second of elements that are summed in a type."""
        if sums.kind == "complex":
            return self.multiply_adds[sums.arithmetic] / 4
        if sums.arithmetic:
            return self.multiply_adds[sums.arithmetic]
        return self.multiply_adds["int32"] / (sums.sum_bytes // 4)

    def has_verified(self, kernel: str, form: str) -> bool:
        """Whether a form of a kernel was found right on the device."""
        return self.verdicts.get(kernel, {}).get(form) is True

    def has_refuted(self, kernel: str, form: str) -> bool:
        """Whether a form of a kernel was found wrong on the device, or did not run there."""
        return self.verdicts.get(kernel, {}).get(form) is False

    def constants(self, kernel: str) -> Mapping[str, float]:
        """What was fitted of a kernel; empty where nothing was."""
        return self.fitted.get(kernel, {})

    def over(self, stated: Mapping[str, Any], origin: str) -> DeviceModel:
        """This model, but for what is stated: fields; of mappings, their members, and of `fitted` each constant.

        Args:
            stated: values by the names of fields.
        """
        merged: dict[str, Any] = {name: stated[name] for name in RATES if name in stated}
        for name in ("multiply_adds", "matrix_multiply_adds", "tilings"):
            merged[name] = {**getattr(self, name), **stated.get(name, {})}
        own = stated.get("fitted", {})
        merged["fitted"] = {
            kernel: {**self.constants(kernel), **own.get(kernel, {})} for kernel in (*self.fitted, *own)
        }
        return DeviceModel(**{**vars(self), **merged, "origin": origin})


@dataclass(frozen=True)
class Prediction:
    """How long a product is expected to take on a device, and why.

    Attributes:
        parts: seconds by part: "launches", "multiply-adds", "local memory", "global memory", "latency", "passes", "tail", …
        seconds: of the whole: parts overlap, it is not their sum.
        facts: bytes, multiply-adds, groups, waves, tail (the share of the last wave that is idle), …
    """

    parts: Mapping[str, float]
    seconds: float
    facts: Mapping[str, float]


def clock(device: DeviceInfo) -> float:
    """Clocks per second of a device; of one that does not tell, as is usual for its type."""
    return (device.clock_mhz or (2500 if device.type == "cpu" else 1000)) * 1e6


def per_clock(per_second: float, device: DeviceInfo) -> float:
    """Of one compute unit and clock, what a device does per second."""
    return per_second / (max(device.compute_units, 1) * clock(device))


USUAL_MATRIX_RATE = 8.0
"""Multiply-adds of 2-byte numbers of a matrix unit for one of float32 of the others, where its rate is not known: a default
between the 4 and 16 that data sheets tell of GPUs that have one.
"""


def usual_matrix_products(device: DeviceInfo, model: DeviceModel) -> float:
    """Multiply-adds of 2-byte numbers of a compute unit's matrix unit per clock, where no model states them of the kernel:
    those that were measured, or a default.
    """
    usual = USUAL_MATRIX_RATE * model.multiply_adds["float32"]
    return per_clock(model.matrix_multiply_adds.get("float16", usual), device)


def derived(device: DeviceInfo) -> DeviceModel:
    """The model of a device of which no file has one: from what it tells, and what is usual where it does not tell."""
    return _of_cpu(device) if device.type == "cpu" else _of_gpu(device)


_UNIT_LANES = {"intel": 8, "arm": 32, "apple": 128}
"""Multiply-adds of float32 of a compute unit per clock, by vendor, where `DeviceInfo.peak_gflops` does not know the
architecture. What Intel's OpenCL calls a compute unit is one vector engine of 8 lanes (oneAPI GPU Optimization Guide, "Intel Xe
GPU Architecture"); a core of Arm's Valhall has 32 or more (Arm, "Valhall architecture"); Apple's cores have 128 (as measured by
P. Turner, github.com/philipturner/metal-benchmarks).
"""

_USUAL_LANES = 64

_LOCAL_BYTES_PER_LANE = 1.0
"""Bytes of local memory that a lane reads per clock: 128 for the 128 lanes of NVIDIA's multiprocessors (CUDA C++ Programming
Guide, "Shared Memory"), 128 for the 64 lanes of AMD's compute units (RDNA whitepaper).
"""

_FLOPS_PER_BYTE = 20.0
"""Of a GPU's peak in float32 over its memory's: 13 to 17 of data-centre chips, 20 to 80 of others, by their data sheets."""

_USUAL_LINK = 12e9
"""Bytes per second of a GPU's link to the host: a default, four fifths of what 16 lanes of PCIe 3.0 carry (PCI-SIG)."""

_READ_LATENCY, _LAUNCH, _BARRIER_CLOCKS, _GROUP_CLOCKS = 600e-9, 4e-6, 60.0, 200.0
"""Of GPUs: the order of magnitude that micro-benchmarks find (Z. Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via
Microbenchmarking", 2018; chipsandcheese.com for AMD's and Intel's). A barrier is as `gemmport calibrate` measures it, with a
word's way through local memory: 64 clocks on an H100 (benchmarks/models/h100-cuda.yaml).
"""

_USUAL_HALF_LENGTH = 32.0
"""A default, of the order of magnitude of kernels' tiles."""


def _of_gpu(device: DeviceInfo) -> DeviceModel:
    hertz = clock(device)
    clocks = max(device.compute_units, 1) * hertz
    lanes = _UNIT_LANES.get(device.vendor, _USUAL_LANES)
    single = _peak(device, "float32") or clocks * lanes
    local = clocks * max(single / clocks, 64.0 if device.vendor == "amd" else 0.0) * _LOCAL_BYTES_PER_LANE
    read = 2 * single / _FLOPS_PER_BYTE
    return DeviceModel(
        origin=TOLD,
        multiply_adds={
            "float16": single,
            "float32": single,
            "float64": _peak(device, "float64") or single / 16,
            "int32": single / 2,
        },
        read_bandwidth=read,
        copy_bandwidth=0.9 * read,
        local_bandwidth=local if device.local_memory_is_dedicated else local / 4,
        latency=_READ_LATENCY,
        launch=_LAUNCH,
        group=_GROUP_CLOCKS / hertz,
        barrier=_BARRIER_CLOCKS / hertz,
        link_bandwidth=_USUAL_LINK,
        half_length=_USUAL_HALF_LENGTH,
    )


_CORE_BANDWIDTH, _MEMORY_BANDWIDTH = 13e9, 100e9
"""Bytes per second that one core of a CPU reads, and all of them together at most: defaults, and of the order of magnitude of
a server's alone.
"""

_CPU_LATENCY, _CPU_LAUNCH, _CPU_GROUP_CLOCKS, _CPU_BARRIER_CLOCKS = 100e-9, 4e-6, 150.0, 120.0
"""Of OpenCL's runtimes for CPUs, in which a launch wakes threads, and a group is a call of a function: defaults, and of the
order of magnitude alone.
"""


def _of_cpu(device: DeviceInfo) -> DeviceModel:
    cores, hertz = max(device.compute_units, 1), clock(device)
    single = _peak(device, "float32") or cores * hertz * 2 * device.vector_width
    read = min(cores * _CORE_BANDWIDTH, _MEMORY_BANDWIDTH)
    return DeviceModel(
        origin=TOLD,
        multiply_adds={"float16": single / 4, "float32": single, "float64": single / 2, "int32": single / 2},
        read_bandwidth=read,
        copy_bandwidth=read,
        local_bandwidth=cores * hertz * 2 * 4 * device.vector_width,
        latency=_CPU_LATENCY,
        launch=_CPU_LAUNCH,
        group=_CPU_GROUP_CLOCKS / hertz,
        barrier=_CPU_BARRIER_CLOCKS / hertz,
        link_bandwidth=min(_CORE_BANDWIDTH, read) / 2,  # one core copies within the memory
        half_length=_USUAL_HALF_LENGTH,
    )


def _peak(device: DeviceInfo, dtype: str) -> float:
    """Multiply-adds per second; 0 where they are not known."""
    return (device.peak_gflops(dtype) or 0.0) * 1e9 / 2
