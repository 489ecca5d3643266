"""A micro-benchmark on a device: its memory, what it reads in it, and whether it writes what it must."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.calibration.benchmarks import Benchmark, HostArray
from gemmport.contracts.kernel import check_limits
from gemmport.core.errors import CalibrationError
from gemmport.execution.executor import prepare_launch
from gemmport.kernels.microbenchmarks import PASS

AT_ONCE = 2**26
"""Bytes that go to the device, or come from it, at a time."""

POISON = 0xA5
"""Each byte of a target before it is written: no benchmark leaves a word of them."""


class Bound:
    """A benchmark, compiled, with the memory that it reads and writes.

    Raises:
        ParameterError, CompileError, LaunchError, DeviceMemoryError: the device does not take it.
    """

    def __init__(self, benchmark: Benchmark, backend: Backend, rng: np.random.Generator) -> None:
        self.benchmark, self.backend = benchmark, backend
        launch = benchmark.launch
        check_limits(PASS.name, launch, benchmark.form, backend.device)
        self._source = benchmark.source(rng)
        self._memory: dict[str, Memory] = {}
        try:
            for name, nbytes in (("source", benchmark.source_bytes), ("target", benchmark.target_bytes)):
                self._memory[name] = backend.allocate(nbytes)
            self._upload(self._source)
            target = benchmark.target(self._source)
            if target is None:
                backend.fill(self._memory["target"], POISON)
            else:
                backend.upload(self._memory["target"], target)
            prepare_launch(launch, backend, self._memory)
            backend.settle_programs()
            self._call = prepare_launch(launch, backend, self._memory)
            self._half = prepare_launch(benchmark.halved().launch, backend, self._memory)
        except BaseException:
            self.release()
            raise

    def __enter__(self) -> Bound:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.release()

    def release(self) -> None:
        """Gives the memory back."""
        for memory in self._memory.values():
            memory.release()

    def enqueue(self) -> None:
        """Enqueues the launch."""
        self.backend.launch(self._call)

    def seconds(self, *, half: bool = False) -> float:
        """Of one launch, or of one of half the work, by the device's clock."""
        first = self.backend.record()
        self.backend.launch(self._half if half else self._call)
        return self.backend.elapsed(first, self.backend.record())

    def check(self, name: str) -> None:
        """Launches it, the first time since it was made, and looks at all that it wrote.

        Raises:
            CalibrationError: it is not what must come of it.
        """
        self.enqueue()
        expected, target = self.benchmark.expected(self._source), self._memory["target"]
        for start in range(0, self.benchmark.target_bytes, AT_ONCE):
            got = np.empty(min(AT_ONCE, self.benchmark.target_bytes - start), np.uint8)
            self.backend.download(target, got, offset=start)
            wanted = _part(expected, start, got.nbytes)
            wrong = np.flatnonzero(got != wanted)
            if wrong.size:
                size = expected.itemsize
                at = int(wrong[0]) // size * size
                told, right = (part[at : at + size].view(expected.dtype)[0] for part in (got, wanted))
                raise CalibrationError(
                    f"{name} on {self.backend.device.label} must write {right}, and wrote {told} as element "
                    f"{(start + at) // size} ({PASS.name}.{self.benchmark.function}, {_told(self.benchmark)}): nothing it "
                    "measures counts; gemmport doctor looks at the device"
                )

    def _upload(self, source: HostArray) -> None:
        memory, total = self._memory["source"], self.benchmark.source_bytes
        for start in range(0, total, AT_ONCE):
            self.backend.upload(memory, _part(source, start, min(AT_ONCE, total - start)), offset=start)


def _part(pattern: HostArray, start: int, nbytes: int) -> npt.NDArray[Any]:
    """So many bytes, from a place on, of a pattern that is there again and again."""
    raw = pattern.view(np.uint8)
    first = start % raw.nbytes
    if first + nbytes <= raw.nbytes:
        return raw[first : first + nbytes]
    return np.resize(np.roll(raw, -first) if first else raw, nbytes)


def _told(benchmark: Benchmark) -> str:
    form = " ".join(f"{name}={value}" for name, value in benchmark.form.items())
    return f"{form}, {benchmark.groups} groups, {benchmark.steps} steps"
