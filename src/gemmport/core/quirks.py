"""What runtimes and baseline libraries get wrong: the table that workarounds, refusals and the cross-vendor matrix refer to.

tests/core/test_quirks.py shows each symptom again, without the workaround, on the runtimes that are there, and says so where
one is gone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gemmport.core.device import DeviceInfo

Effect = Literal["workaround", "refusal"]
"""workaround: gemmport does it in another way, and results are right. refusal: gemmport says that it cannot be done there."""


@dataclass(frozen=True)
class Quirk:
    """One thing that a runtime or a library gets wrong.

    Attributes:
        id: its name, by which code, refusals and reports refer to it.
        backend: through which it is met.
        platform: alias of the runtime, or name of the baseline library.
        symptom: what happens where nothing is done about it.
        effect: what gemmport does about it.
        where: the files of the repository that do it, each with a word that stands there: "backends/opencl.py: _fill".
        evidence: on what it was seen, and how.
        versions: those that have it (PEP 440: ">=3.1,<4"); empty for all. What gives wrong numbers without a word is assumed of
            versions that nobody has tried.
        device: part of the names of the devices that have it; empty for all. architecture: what theirs is; likewise.
        limits: attributes of `DeviceInfo` that it bounds, with the most that is right; 0 for unbounded.
    """

    id: str
    backend: str
    platform: str
    symptom: str
    effect: Effect
    where: tuple[str, ...]
    evidence: str
    versions: str = ""
    device: str = ""
    architecture: str = ""
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def mark(self) -> str:
        """How a message refers to it; `named_in` reads it."""
        return f"quirk {self.id}"

    def of_runtime(self, device: DeviceInfo) -> bool:
        """Whether it is, in some version, of the device's runtime."""
        return (
            self.backend == device.backend
            and self.platform == device.platform
            and self.device.lower() in device.name.lower()
        )

    def applies_to(self, device: DeviceInfo) -> bool:
        """Whether the device has it."""
        return (
            self.of_runtime(device)
            and device.has_version(self.versions)
            and self.architecture in ("", device.architecture)
        )


_BARRIER_LOOPS = tuple(
    f"kernels/opencl/{stem}.cl: pocl-skipped-loop"
    for stem in (
        "tiled", "wpt", "vectorized", "transposed_b", "register_tiled", "register_tiled_vectorized", "shuffle", "prefetch"
    )
)  # fmt: skip

QUIRKS: tuple[Quirk, ...] = (
    Quirk(
        id="pocl-skipped-loop",
        backend="opencl",
        platform="pocl",
        versions=">=3.0rc1,<7",
        symptom="in groups one work-item wide, the first goes twice through what follows a loop with barriers of which "
        "no round is run",
        effect="workaround",
        where=_BARRIER_LOOPS,
        evidence="PoCL 3.0-rc2 (PyPI) and 3.1 (Debian 12): `gemmport fuzz` found C scaled by beta² in place, without terms; "
        "5.0 and 6.0 show it too; 7.1 does it right",
    ),
    Quirk(
        id="pocl-vector-stores",
        backend="opencl",
        platform="pocl",
        versions=">=3.0rc1,<3.1",
        symptom="in loops, stores of vectors to local memory by neighbouring work-items are mixed up (LLVM 14)",
        effect="workaround",
        where=("kernels/opencl/prelude/vectors.cl: pocl-vector-stores",),
        evidence="PoCL 3.0-rc2 (PyPI): products of `vectorized` with WIDTH = 2 were wrong; right on 3.1, with LLVM 15",
    ),
    Quirk(
        id="pocl-vector-loads",
        backend="opencl",
        platform="pocl",
        versions=">=3.0rc1,<3.1",
        symptom="compiling vload16 and vstore16 in a loop may end the process (LLVM 14)",
        effect="workaround",
        where=(
            "kernels/opencl/prelude/unaligned.cl: pocl-vector-loads",
            "kernels/opencl/prelude/vectors.cl: pocl-vector-loads",
        ),
        evidence="PoCL 3.0-rc2 (PyPI): `packed` with MOVES = vload, MR = 14 and VECTOR = 64 ended with LLVM ERROR: Do not know "
        "how to scalarize this operator's operand!, or with a segmentation fault; through a packed struct it is compiled; "
        "rounding vectors of 16 floats to halves ends likewise, or is wrong, and vectors of 8 are right",
    ),
    Quirk(
        id="pocl-first-use",
        backend="opencl",
        platform="pocl",
        versions="<3.1",
        symptom="two threads that use new memory at once, each on a queue of its own, end in a segmentation fault",
        effect="workaround",
        where=("backends/opencl.py: pocl-first-use",),
        evidence="PoCL 3.0-rc2 (PyPI): two threads that write halves of a new buffer ended within 200 buffers, as a rule, in "
        "pocl_create_command_struct, without a queue; 20,000 were right where the buffer had been migrated before, and on 3.1, "
        "which by its source has a lock there; 1.8 has none either",
    ),
    Quirk(
        id="pocl-local-memory",
        backend="opencl",
        platform="pocl",
        symptom="the size of a cache is told as that of local memory, of which half may end the process",
        effect="refusal",
        where=("backends/_opencldiscovery.py: within_limits",),
        evidence="PoCL 3.1 (Debian 12) told 1 MiB and ended with a segmentation fault in a kernel with 512 KiB, once, in a run "
        "of the tests under Python 3.10",
        limits={"local_memory": 2**18},
    ),
    Quirk(
        id="pocl-unknown-cpu",
        backend="opencl",
        platform="pocl",
        versions=">=3.0rc1,<3.1",
        architecture="generic",
        symptom="for a processor that its LLVM does not know it compiles nothing: error: unknown target CPU 'generic'",
        effect="refusal",
        where=("backends/_opencldiscovery.py: pocl-unknown-cpu",),
        evidence="PoCL 3.0-rc2 (PyPI, LLVM 14) on an AMD EPYC of family 26 (Zen 5); 3.1 of Debian 12 takes another name",
    ),
    Quirk(
        id="pocl-shuffle-down",
        backend="opencl",
        platform="pocl",
        versions=">=5,<7",
        symptom="intel_sub_group_shuffle_down(x, x, n) gives the first lane's number to all",
        effect="workaround",
        where=("kernels/opencl/prelude/sub_groups.cl: pocl-shuffle-down",),
        evidence="PoCL 5.0 and 6.0: numbers of the next sub-group are taken for those of this one; 7.1 does it right",
    ),
    Quirk(
        id="pocl-left-rounds",
        backend="opencl",
        platform="pocl",
        versions=">=5,<7",
        symptom="a loop behind a barrier, unrolled in part so that rounds are left over, ends the process: the compiler meets "
        "a PHI node where a region begins",
        effect="workaround",
        where=("kernels/opencl/batched.cl: pocl-left-rounds",),
        evidence="PoCL 5.0 (Ubuntu 24.04, and built with assertions) and 6.0 (likewise): `gemmport matrix` saw `batched` abort "
        "with TSK / WIDTH = 5, 6, 7 or 13, not with 4, 8, 12 or 16; 7.1 does it right",
    ),
    Quirk(
        id="rusticl-loop-rounds",
        backend="opencl",
        platform="rusticl",
        device="llvmpipe",
        symptom="a kernel's loops are left after 65,535 rounds in all, without a word",
        effect="refusal",
        where=("backends/_opencldiscovery.py: within_limits", "tests/contract/opencl/probe.cl: rusticl-loop-rounds"),
        evidence="Rusticl of Mesa 22.3.6 (Debian 12): longer sums were too small. A product takes up to two rounds per term",
        limits={"max_terms": 2**15},
    ),
    Quirk(
        id="rusticl-event-clock",
        backend="opencl",
        platform="rusticl",
        symptom="profiled events tell a few nanoseconds for anything",
        effect="workaround",
        where=("backends/opencl.py: rusticl-event-clock",),
        evidence="Rusticl of Mesa 22.3.6 (Debian 12): the host's clock is read instead",
    ),
    Quirk(
        id="rusticl-group-limit",
        backend="opencl",
        platform="rusticl",
        symptom="the width of a sub-group is told as the largest group of a kernel, which runs in all groups of the device",
        effect="workaround",
        where=("backends/opencl.py: rusticl-group-limit",),
        evidence="Rusticl of Mesa 22.3.6 (Debian 12) told 32, and ran 1,024",
    ),
    Quirk(
        id="rusticl-unknown-binary",
        backend="opencl",
        platform="rusticl",
        symptom="a program binary that it does not know ends the process",
        effect="workaround",
        where=("src/gemmport/runtime/cache.py: rusticl-unknown-binary",),
        evidence="Rusticl of Mesa 22.3.6 (Debian 12) panics; cached programs have a checksum, and the version in their key",
    ),
    Quirk(
        id="rusticl-lost-maps",
        backend="opencl",
        platform="rusticl",
        symptom="beside other threads, memory of the host that was just mapped is said not to be",
        effect="workaround",
        where=("backends/opencl.py: rusticl-lost-maps",),
        evidence="Rusticl of Mesa 22.3.6 (Debian 12), in one of six soaks of seven seconds: clEnqueueUnmapMemObject gave "
        "INVALID_VALUE, and PyOpenCL, which tries it again, ended the process; arrays are copied there",
    ),
    Quirk(
        id="oclgrind-optimized-code",
        backend="opencl",
        platform="oclgrind",
        symptom="with --uninitialized, optimized code stops at instructions such as freeze: memory stays what it was, and "
        "the process exits with 0",
        effect="workaround",
        where=("backends/_compilation.py: oclgrind-optimized-code",),
        evidence="Oclgrind 21.10 (Debian 12); programs are built with -cl-opt-disable",
    ),
    Quirk(
        id="oclgrind-filled-memory",
        backend="opencl",
        platform="oclgrind",
        symptom="memory that was filled (clEnqueueFillBuffer) counts as uninitialized",
        effect="workaround",
        where=("src/gemmport/checking/guarded_run.py: oclgrind-filled-memory",),
        evidence="Oclgrind 21.10 (Debian 12); what is judged there is uploaded",
    ),
    Quirk(
        id="intel-icd-path",
        backend="opencl",
        platform="intel",
        symptom="the ICD file of the wheel names a library at a path of the machine that it was built on: no loader finds it",
        effect="workaround",
        where=("backends/_runtimes.py: intel-icd-path",),
        evidence="intel-opencl-rt 2026.2 (PyPI); the loader is given an ICD file of gemmport's",
    ),
    Quirk(
        id="intel-queue-context",
        backend="opencl",
        platform="intel",
        symptom="a queue does not keep its context, which is gone with the caller's last reference",
        effect="workaround",
        where=("backends/opencl.py: intel-queue-context", "tests/execution/test_interchange.py: intel-queue-context"),
        evidence="Intel's CPU runtime 2026.22.10 (PyPI): clRetainContext failed on what a queue gave as its context",
    ),
    Quirk(
        id="nvidia-byte-fills",
        backend="opencl",
        platform="nvidia",
        symptom="filling more than 2³¹ bytes with a pattern of one byte, or one byte beyond them, loses the queue",
        effect="workaround",
        where=("backends/opencl.py: nvidia-byte-fills",),
        evidence="H200, driver 580.159.04: 2.5 GB took a minute, and then every command failed",
    ),
    Quirk(
        id="nvidia-groups-of-256",
        backend="opencl",
        platform="nvidia",
        symptom="256 work-items are told as the largest group of kernels that reqd_work_group_size has compiled for more, and "
        "that run in such groups",
        effect="workaround",
        where=("backends/opencl.py: nvidia-groups-of-256",),
        evidence="H200, driver 580.159.04: seven kernels of the family, in groups of 512 and 1,024, ran with right results, "
        "whether built from source, from PTX or from a cubin",
    ),
    Quirk(
        id="nvidia-immediate-allocator",
        backend="opencl",
        platform="nvidia",
        symptom="eight threads that allocate through PyOpenCL's ImmediateAllocator end in a segmentation fault",
        effect="workaround",
        where=("backends/opencl.py: nvidia-immediate-allocator",),
        evidence="H200, driver 580.159.04, PyOpenCL 2026.1; the pool has the deferred allocator",
    ),
    Quirk(
        id="clblas-no-terms",
        backend="opencl",
        platform="clblas",
        symptom="a product with k = 0 never ends",
        effect="refusal",
        where=("src/gemmport/baselines/_ctypes.py: clblas-no-terms",),
        evidence="clBLAS 2.12",
    ),
    Quirk(
        id="clblas-threads",
        backend="opencl",
        platform="clblas",
        symptom="arguments of kernels are kept in variables of the process: threads get each other's",
        effect="workaround",
        where=("src/gemmport/baselines/_ctypes.py: clblas-threads",),
        evidence="clBLAS 2.12, by its source; calls are made one at a time",
    ),
    Quirk(
        id="clblast-cache-race",
        backend="opencl",
        platform="clblast",
        versions="<=1.5.3",
        symptom="threads race for the library's cache of programs",
        effect="workaround",
        where=("src/gemmport/baselines/_ctypes.py: clblast-cache-race",),
        evidence="CLBlast 1.5.3 (Debian 12), by its list of changes; calls are made one at a time",
    ),
    Quirk(
        id="clblast-gemmk-1",
        backend="opencl",
        platform="clblast",
        versions="<1.6.3",
        symptom="products are wrong with parameters that its tuner takes for right: GEMMK = 1 and MWG ≠ NWG",
        effect="workaround",
        where=("src/gemmport/baselines/_clblast_tuning.py: clblast-gemmk-1",),
        evidence="CLBlast 1.5.3 (Debian 12), with its tuner's best for PoCL 3.1; its list of changes has it mended in 1.6.3",
    ),
    Quirk(
        id="cublas-int8-multiples",
        backend="cuda",
        platform="cublas",
        symptom="int8 matrices are refused unless their rows, columns and alignment are multiples of 4",
        effect="refusal",
        where=("src/gemmport/baselines/_nvidia.py: cublas-int8-multiples",),
        evidence="cuBLAS 13 on H200; so says its documentation of cublasGemmEx",
    ),
)


def quirk(name: str) -> Quirk:
    """The quirk of an id.

    Raises:
        KeyError: there is none; gemmport alone names them.
    """
    return _BY_ID[name]


def quirks_of(device: DeviceInfo) -> tuple[Quirk, ...]:
    """What the device's runtime is known to get wrong."""
    return tuple(known for known in QUIRKS if known.applies_to(device))


def within_limits(device: DeviceInfo) -> DeviceInfo:
    """The device, as its runtime tells it, with what its quirks leave of it."""
    for known in quirks_of(device):
        bounded: dict[str, Any] = {
            name: min(getattr(device, name) or most, most) for name, most in known.limits.items()
        }
        device = replace(device, **bounded)
    return device


def reason_of_limit(device: DeviceInfo, attribute: str) -> str:
    """The mark, in brackets after a space, of the quirk that bounds an attribute of the device; empty where none does."""
    for known in quirks_of(device):
        if known.limits.get(attribute) == getattr(device, attribute):
            return f" ({known.mark})"
    return ""


def named_in(text: str) -> str:
    """The id of the quirk that a message refers to; empty where it refers to none."""
    found = re.search(r"\bquirk ([a-z0-9-]+)", text)
    return found.group(1) if found and found.group(1) in _BY_ID else ""


_BY_ID = {known.id: known for known in QUIRKS}
