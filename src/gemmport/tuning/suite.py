"""Products by which a device is tuned where nobody names any: each shape class, ops, sizes that cross edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gemmport import kernels
from gemmport.bench.standings import Workload
from gemmport.contracts.device_model import derived
from gemmport.core.device import DeviceInfo
from gemmport.core.problem import GemmProblem

SUITE_TYPES = ("float32", "float64")
"""Those of a suite that the device computes in."""

Size = tuple[int, int, int, int, str]

_SIZES: tuple[Size, ...] = (
    (64, 64, 64, 1, "NN"), (128, 128, 128, 1, "NN"), (250, 250, 250, 1, "NT"), (32, 32, 32, 64, "NN"),
    (512, 512, 512, 1, "NN"), (1000, 1000, 1000, 1, "NT"), (1024, 1024, 1024, 1, "NN"), (768, 3072, 768, 1, "NN"),
    (16, 1024, 1024, 1, "NT"), (128, 2048, 512, 1, "NN"), (2048, 64, 2048, 1, "TN"), (64, 64, 4096, 1, "NN"),
    (1, 2048, 2048, 1, "NT"), (4096, 1, 1024, 1, "NN"),
)  # fmt: skip
"""m, n, k, batch and ops for every device."""

_OF_CPUS: tuple[Size, ...] = ((1536, 1536, 1536, 1, "NN"), (2000, 2000, 1000, 1, "TN"))

_OF_GPUS: tuple[Size, ...] = (
    (2048, 2048, 2048, 1, "NN"), (4096, 4096, 4096, 1, "NN"), (4095, 4095, 4095, 1, "NT"), (8192, 8192, 1024, 1, "TN"),
    (4096, 16, 4096, 1, "NN"), (64, 64, 64, 2048, "NN"), (1, 16384, 4096, 1, "NT"),
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """What is to be tuned.

    Attributes:
        only: kernels that are tried; none for all.
    """

    workload: Workload
    only: tuple[str, ...] = ()


def usual(device: DeviceInfo, dtype: str) -> list[Workload]:
    """Products of each shape class in a type."""
    sizes: tuple[Size, ...] = (*_SIZES, *(_OF_CPUS if device.type == "cpu" else _OF_GPUS))
    return [Workload(_problem(*each, dtype)) for each in sizes]


def suite(device: DeviceInfo) -> Iterator[Task]:
    """All that a device needs: those of each type, by whichever kernel, and then a square by each kernel that is not for such
    products alone, for who names it.
    """
    types = [dtype for dtype in SUITE_TYPES if dtype in device.computes]
    for dtype in types:
        yield from map(Task, usual(device, dtype))
    model = derived(device)  # which kernels decline does not depend on measured numbers
    side = 512 if device.type == "cpu" else 1024
    for dtype in types:
        problem = _problem(side, side, side, 1, "NN", dtype)
        for variant in kernels.variants():
            if not (variant.unsupported(problem, device) or variant.declined(problem, device, model)):
                yield Task(Workload(problem), (variant.name,))


def _problem(m: int, n: int, k: int, batch: int, ops: str, dtype: str) -> GemmProblem:
    return GemmProblem.create(m, n, k, batch=batch, dtype=dtype, trans_a=ops[0], trans_b=ops[1])
