"""What times of micro-benchmarks say of a device, and which of them no device can take."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gemmport.bench.timing import Timing
from gemmport.calibration.benchmarks import Benchmark
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES
from gemmport.core.errors import CalibrationError

RATES = ("read_bandwidth", "copy_bandwidth", "local_bandwidth")
"""Fields of a model that are so much per second."""

MOST_MULTIPLY_ADDS = 2e12
"""Per second of one compute unit, in float32: 512 lanes at 4 GHz, four times those of any known to us."""

MOST_MATRIX_MULTIPLY_ADDS = 3.2e13
"""Likewise by its matrix unit, in float32: 8,000 per clock at 4 GHz, eight times an H100's in TF32 (NVIDIA H100 data sheet)."""

MOST_BYTES = 4e12
"""Per second of one compute unit, from wherever: 1,024 at 4 GHz. NVIDIA's multiprocessors read 128 of local memory per clock
(CUDA C++ Programming Guide), cores of CPUs 128 of their first cache (two vectors of 64)."""

LEAST_SECONDS = 1e-10
"""Of a read, a launch, a group or a barrier: less than a clock of the fastest devices."""

COUNTED_RATIO = 0.8
"""Half of the work takes less than such a part of the time of all of it; where nothing is done, it takes as long."""


@dataclass(frozen=True)
class Figure:
    """A number of a model.

    Attributes:
        name: "multiply-adds TYPE", "matrix multiply-adds TYPE", or a field of the model.
        samples: the number by each round; per second, or seconds.
    """

    name: str
    samples: tuple[float, ...]

    @property
    def value(self) -> float:
        """The median."""
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a fraction of the median."""
        return Timing(self.samples, 1).spread


def figures(device: DeviceInfo, measured: Mapping[str, tuple[Benchmark, Sequence[float]]]) -> list[Figure]:
    """What came of benchmarks, by the names of `gemmport.calibration.suite.suite`.

    Args:
        measured: of each the seconds of a launch, by each round.

    Raises:
        CalibrationError: a number is beyond what any device can do; the message names it.
    """
    found = []
    for name, (benchmark, seconds) in measured.items():
        if name == "group":
            found += _of_group(device, benchmark, seconds, measured)
        elif is_rate(name):
            found.append(Figure(name, tuple(benchmark.amount / each for each in seconds)))
        else:
            found.append(Figure(name, tuple(each / benchmark.amount for each in seconds)))
    for figure in found:
        check_possible(figure, device)
    return found


def _of_group(
    device: DeviceInfo, benchmark: Benchmark, seconds: Sequence[float],
    measured: Mapping[str, tuple[Benchmark, Sequence[float]]],
) -> list[Figure]:  # fmt: skip
    """What each of many groups adds to a launch, which all units start at the same time."""
    if "launch" not in measured:
        return []
    units = max(device.compute_units, 1)
    rounds = zip(seconds, measured["launch"][1], strict=True)
    return [Figure("group", tuple(units * (many - one) / (benchmark.amount - 1) for many, one in rounds))]


def is_rate(name: str) -> bool:
    """Whether a figure is so much per second; others are seconds."""
    return name in RATES or is_multiply_adds(name)


def is_multiply_adds(name: str) -> bool:
    """Whether a figure counts multiply-adds, of a matrix unit or of others."""
    return "multiply-adds" in name


def check_possible(figure: Figure, device: DeviceInfo) -> None:
    """Raises CalibrationError where no device can be so fast."""
    units = max(device.compute_units, 1)
    if is_rate(figure.name):
        bytes_, dtype = figure.name in RATES, figure.name.split()[-1]
        of_unit = MOST_MATRIX_MULTIPLY_ADDS if figure.name.startswith("matrix") else MOST_MULTIPLY_ADDS
        most = units * (MOST_BYTES if bytes_ else of_unit * 4 / DTYPES[dtype].itemsize)
        if not figure.value <= most:
            unit = "bytes" if bytes_ else "multiply-adds"
            raise CalibrationError(
                f"{figure.name} must be at most {most:.3g} {unit} per second on {units} compute units; got {figure.value:.3g} "
                f"on {device.label}: its clock, or its compiler, leaves something out; nothing is kept of it"
            )
    elif not figure.value >= LEAST_SECONDS:
        raise CalibrationError(
            f"{figure.name} must take at least {LEAST_SECONDS:.3g} s; got {figure.value:.3g} on {device.label}: its clock, or "
            "its compiler, leaves something out; nothing is kept of it"
        )


def is_counted(half: Sequence[float], whole: Sequence[float]) -> bool:
    """Whether half of the work took clearly less than all of it, by the least and by the median of several times: what disturbs
    some of them on a busy machine decides neither.
    """
    return all(least(half) < COUNTED_RATIO * least(whole) for least in (min, statistics.median))
