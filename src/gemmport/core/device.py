"""What a device is and can do: plain data that a backend fills in, or a test by hand."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

DeviceType = Literal["gpu", "cpu", "accelerator"]


@dataclass(frozen=True)
class DeviceInfo:
    """One device of one platform.

    Attributes:
        backend: name of the backend that reaches it.
        index: its (platform, device) number in that backend.
        platform: alias of the runtime: "pocl", "intel", "rusticl", "nvidia", …; `platform_name` in the runtime's own words.
        platform_version: of the runtime; `driver`: of the driver behind it.
        vendor: "nvidia", "amd", "intel", … in lower case; of the hardware where it is known.
        architecture: "sm_90", "gfx90a", "znver4", …; empty where the runtime does not tell.
        compute_units, clock_mhz, memory: clock 0 where the runtime does not tell; memory in bytes.
        max_allocation: bytes in one allocation.
        max_work_group, max_work_item_sizes: work-items of one group, in all and per dimension.
        max_groups: work-groups along the first dimension of a grid.
        local_memory: bytes of statically declared local memory per group.
        dynamic_local_memory: bytes per group where some of them are given at launch; 0 where that allows no more.
        local_memory_is_dedicated: false where local memory is ordinary, cached memory.
        sub_group: width of a warp, wavefront or sub-group; 0 where it is not known.
        registers: 32-bit registers per compute unit; 0 where it is not known.
        max_terms: terms that a work-item adds up without fault; 0 where no limit is known.
        computes: floating-point types it computes in; complex numbers need that of their parts. Integers are computed, and
            every type is loaded and stored, on every device.
        vector_width: float32 lanes of its native vectors; 1 on scalar (SIMT) devices.
        caches: bytes of the caches of a CPU's core, or its part of those that it shares, from the nearest on; empty where they
            are not known.
        extensions: names of OpenCL extensions, or of the backend's own features.
        sources: folder in kernels/ whose sources its compiler takes; empty: that of the backend's name.
    """

    backend: str
    name: str
    platform: str
    index: tuple[int, int] = (0, 0)
    platform_name: str = ""
    platform_version: str = ""
    driver: str = ""
    vendor: str = ""
    architecture: str = ""
    type: DeviceType = "gpu"
    compute_units: int = 1
    clock_mhz: int = 0
    memory: int = 2**30
    max_allocation: int = 2**28
    max_work_group: int = 256
    max_work_item_sizes: tuple[int, int, int] = (256, 256, 64)
    max_groups: int = 2**31 - 1
    local_memory: int = 32768
    dynamic_local_memory: int = 0
    local_memory_is_dedicated: bool = True
    sub_group: int = 0
    registers: int = 0
    max_terms: int = 0
    computes: frozenset[str] = frozenset({"float32", "float64"})
    vector_width: int = 1
    caches: tuple[int, ...] = ()
    extensions: frozenset[str] = frozenset()
    sources: str = ""

    def __hash__(self) -> int:
        return hash((self.backend, self.index))  # soon done: products that are repeated are looked up by it, too

    @property
    def language(self) -> str:
        """Of the sources that are compiled for it: the name of a folder in kernels/."""
        return self.sources or self.backend

    @property
    def selector(self) -> str:
        """The shortest description that means this device among those of its backend: its platform's and its own number."""
        return f"{self.index[0]}:{self.index[1]}"

    @property
    def identity(self) -> tuple[str, ...]:
        """What tells this device, with this runtime and driver, from any other kind."""
        return (self.backend, self.platform_name, self.platform_version, self.name, self.driver)

    @property
    def most_local_memory(self) -> int:
        """Bytes of local memory per group, declared and given at launch together."""
        return max(self.local_memory, self.dynamic_local_memory)

    @property
    def label(self) -> str:
        """Device and runtime in one line."""
        runtime = " ".join(filter(None, (self.platform, self.platform_version)))
        return f"{self.name} ({self.backend}, {runtime})"

    def has_version(self, wanted: str) -> bool:
        """Whether the runtime's version is in a range (PEP 440: ">=3.1,<4"; empty for all); false where it cannot be read."""
        if not wanted:
            return True
        # Imported where it is asked for: that is rare, and every process would wait for it.
        from packaging.specifiers import SpecifierSet  # noqa: PLC0415
        from packaging.version import InvalidVersion, Version  # noqa: PLC0415

        try:
            return SpecifierSet(wanted).contains(Version(self.platform_version), prereleases=True)
        except InvalidVersion:
            return False

    def peak_gflops(self, dtype: str) -> float | None:
        """Estimated peak, 10⁹ flops per second outside matrix units; None where the runtime does not tell enough.

        Compute units × clock × fused multiply-adds per unit and clock × 2. For a GPU the lanes per unit are those of its
        architecture (`_LANES`); for a CPU, two vector pipes of its native width are assumed.
        """
        if dtype not in ("float32", "float64") or dtype not in self.computes or not self.clock_mhz:
            return None
        if self.type == "cpu":
            lanes = 2.0 * self.vector_width / (2 if dtype == "float64" else 1)
        elif (key := _lanes_key(self.architecture)) is not None:
            lanes = float(_LANES[key][0 if dtype == "float32" else 1])
        else:
            return None
        return self.compute_units * self.clock_mhz * 1e-3 * lanes * 2.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `from_dict` reads it back."""
        return {k: sorted(v) if isinstance(v, frozenset) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> DeviceInfo:
        """The device that `to_dict` described."""
        sets = {k: frozenset(data[k]) for k in ("computes", "extensions")}
        pairs = {k: tuple(data[k]) for k in ("index", "max_work_item_sizes", "caches")}
        return cls(**{**data, **sets, **pairs})


# FP32 and FP64 fused multiply-adds per compute unit and clock, by the start of the architecture's name.
# NVIDIA: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions". AMD: the CDNA and RDNA white papers,
# without packed or dual issue.
_LANES: dict[str, tuple[float, float]] = {
    "sm_60": (64, 32), "sm_61": (128, 4), "sm_70": (64, 32), "sm_75": (64, 2), "sm_80": (64, 32), "sm_86": (128, 2),
    "sm_87": (128, 2), "sm_89": (128, 2), "sm_90": (128, 64), "sm_100": (128, 64), "sm_103": (128, 2), "sm_120": (128, 2),
    "gfx9": (64, 32), "gfx10": (64, 4), "gfx11": (64, 2), "gfx12": (64, 2),
}  # fmt: skip


def _lanes_key(architecture: str) -> str | None:
    return max((key for key in _LANES if architecture.startswith(key)), key=len, default=None)
