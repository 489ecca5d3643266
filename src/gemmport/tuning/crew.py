"""A process that tries candidates, replaced when it crashes or hangs: that costs the candidate, and nothing else."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gemmport.core.device import DeviceInfo
from gemmport.core.errors import LaunchError
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem
from gemmport.runtime.child_processes import Conversation

Candidate = tuple[str, Mapping[str, ParameterValue]]
"""A kernel, and its parameters."""

Fate = Literal["timed", "slow", "wrong", "compiler", "launch", "memory", "rule", "crash", "hang", "cut off", "hopeless"]
"""What became of a candidate: timed; slower than half of the others at first sight; wrong; refused by the compiler, at launch,
for want of memory, or by a rule; the process crashed or hung; compiled for longer than its share; expected to be too slow."""

START_SECONDS = 300.0
"""In which a process must have opened its device; in simulators that takes long."""

STARTS = 2
"""Tries to open a device."""

RUN_SECONDS = 20.0
"""In which a candidate is verified at least: the check's own programs may have to be compiled."""

SLOWEST = 50.0
"""Times the time of the best, that one call of a candidate may take before it hangs."""

SAMPLES_SECONDS = 10.0
"""In which samples are taken at least, beside what the calls themselves take."""


@dataclass(frozen=True)
class Outcome:
    """What came of a candidate.

    Attributes:
        seconds: per call: the median of the samples; of one that is slow, those of the first look; None where there is none.
        samples: seconds per call.
        reason: why it was not timed; empty where it was.
        took: seconds that the trial cost.
    """

    fate: Fate
    seconds: float | None = None
    samples: tuple[float, ...] = ()
    reason: str = ""
    took: float = 0.0

    @property
    def verified(self) -> bool | None:
        """Whether its result was right; None where that is not known."""
        return {"timed": True, "slow": True, "wrong": False}.get(self.fate)


class _EndedError(Exception):
    """The process is of no more use for this candidate."""

    def __init__(self, fate: Fate, reason: str) -> None:
        super().__init__(reason)
        self.fate: Fate = fate


class Crew:
    """One process at a time, in which candidates are tried on a device. Leaving the block ends it."""

    def __init__(self, device: DeviceInfo, imports: Sequence[str] = (), module: str = "gemmport.tuning.worker") -> None:
        """Starts none yet.

        Args:
            imports: modules to import first, which register kernels.
            module: that the process runs.
        """
        self._device, self._imports, self._module = device, tuple(imports), module
        self._conversation: Conversation | None = None
        self.replaced = 0

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def open(self) -> Mapping[str, str]:
        """Starts the process, where there is none; what the runtime says of itself.

        Raises:
            LaunchError: it does not open the device.
        """
        return self._open() if self._conversation is None else {}

    def try_candidate(
        self, problem: GemmProblem, candidate: Candidate, *, repeat: int, compile_seconds: float,
        expected: float, is_slow: Callable[[float], bool],
    ) -> Outcome:  # fmt: skip
        """Compiles, verifies and times a candidate.

        Args:
            repeat: samples.
            compile_seconds: after which the compiler is cut off.
            expected: seconds of a call of the best so far, by which hanging is told.
            is_slow: whether a candidate that took so long at first sight is not worth the samples.

        Raises:
            LaunchError: no new process opens the device.
        """
        self.open()
        start = time.monotonic()

        def outcome(
            fate: Fate, seconds: float | None = None, samples: Sequence[float] = (), reason: str = ""
        ) -> Outcome:
            return Outcome(fate, seconds, tuple(samples), reason, time.monotonic() - start)

        try:
            self._tell({"problem": problem.to_dict(), "candidate": list(candidate), "repeat": repeat})
            call = RUN_SECONDS + SLOWEST * expected
            cut_off = f"the compiler had {compile_seconds:.0f} s, its share of the budget"
            heard = self._hear(compile_seconds, "cut off", cut_off)
            if "built" in heard:  # some runtimes compile in the first call, which is that of the check
                left = compile_seconds - float(heard["built"])
                heard = self._hear(left + call, "cut off", f"{cut_off}, and there was no result {call:.0f} s later")
            if "right" in heard:
                heard = self._hear(call, "hang", f"no result after {call:.0f} s")
            if "refused" in heard:
                return outcome(heard["refused"], reason=heard["reason"])
            look = float(heard["look"])
            slow = is_slow(look)
            self._tell({"sample": not slow})
            if slow:
                return outcome("slow", look, [look])
            # Before a sample a CPU is warmed up and waited for; as long as that takes, a sample may.
            limit = SAMPLES_SECONDS + 20 * repeat * max(look, 0.1)
            heard = self._hear(limit, "hang", f"no samples after {limit:.0f} s")
            if "refused" in heard:
                return outcome(heard["refused"], reason=heard["reason"])
        except _EndedError as end:
            self._end()
            self.replaced += 1
            return outcome(end.fate, reason=str(end))
        samples = sorted(heard["samples"])
        return outcome("timed", samples[len(samples) // 2], heard["samples"])

    def in_turns(
        self, problem: GemmProblem, each: Sequence[Candidate], *, repeat: int, seconds: float
    ) -> list[list[float]]:
        """Samples of candidates that take turns, each verified once more.

        Args:
            seconds: in which that must be done.

        Raises:
            LaunchError: one is wrong or refused, or the process crashed or hung.
        """
        self.open()
        try:
            self._tell({"problem": problem.to_dict(), "turns": [list(one) for one in each], "repeat": repeat})
            heard = self._hear(seconds, "hang", f"no samples after {seconds:.0f} s")
        except _EndedError as end:
            self._end()
            self.replaced += 1
            raise LaunchError(f"{problem} in turns: {end}") from None
        if "refused" in heard:
            raise LaunchError(f"{problem} in turns: {heard['reason']}")
        return [list(samples) for samples in heard["samples"]]

    def _open(self) -> Mapping[str, str]:
        for left in reversed(range(STARTS)):
            # Nothing is imported from where the user stands.
            self._conversation = Conversation(
                [sys.executable, "-m", self._module], {**os.environ, "PYTHONSAFEPATH": "1"}
            )
            try:
                self._tell({"device": self._device.to_dict(), "imports": self._imports})
                heard = self._hear(
                    START_SECONDS, "hang", f"{self._device.label} is not open after {START_SECONDS:.0f} s"
                )
            except _EndedError as end:
                self._end()
                if not left:
                    raise LaunchError(f"{self._device.label} does not open in a process of its own: {end}") from None
            else:
                runtime: Mapping[str, str] = heard["runtime"]
                return runtime
        raise AssertionError("it is tried once at least")

    def _tell(self, message: Mapping[str, Any]) -> None:
        assert self._conversation is not None
        self._conversation.tell(message)

    def _hear(self, seconds: float, late: Fate, reason: str) -> dict[str, Any]:
        """The next message.

        Raises:
            _EndedError: the process has ended, or said nothing in time.
        """
        assert self._conversation is not None
        try:
            heard = self._conversation.hear(seconds)
        except TimeoutError:
            raise _EndedError(late, reason) from None
        if heard is None:
            raise _EndedError("crash", self._conversation.last_words())
        return heard

    def _end(self) -> None:
        if self._conversation is not None:
            self._conversation.close()
            self._conversation = None
