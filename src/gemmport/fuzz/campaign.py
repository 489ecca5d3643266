"""Many problems, judged in a process that may crash or hang, and what came of them."""

from __future__ import annotations

import math
import os
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gemmport.device import DeviceInfo
from gemmport.errors import LaunchError
from gemmport.fuzz.worker import Job
from gemmport.processes import Conversation

TIME_LIMIT = 300.0
"""Seconds after which a problem hangs. Products take milliseconds, and the slowest compilers a minute on a busy machine."""

MOST_FAULTS = 20
"""Faults after which a campaign stops."""

_START_LIMIT = 300.0
"""Seconds in which a worker must have begun its first problem."""


@dataclass(frozen=True)
class Fault:
    """A problem that was not computed as it must be.

    Attributes:
        kind: "wrong" (another result), "error" (an exception that no rule explains), "crash" (the process died), "hang".
        reason: what is wrong. case: the problem.
        reproducer: the command line that judges this problem alone.
    """

    index: int
    kind: str
    reason: str
    case: str
    reproducer: str


@dataclass
class Report:
    """What came of a campaign.

    Attributes:
        right, refused: problems that were computed rightly, and that were refused as the rules say, by exception.
        counts: problems by what they are: kind, kernel, types, ops, features.
        programs: that were compiled.
        seconds: in all.
    """

    device: DeviceInfo
    seed: int
    right: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    programs: int = 0
    seconds: float = 0.0

    @property
    def problems(self) -> int:
        """How many were judged."""
        return self.right + sum(self.refused.values()) + len(self.faults)

    def count(self, facts: dict[str, Any]) -> None:
        """Counts a problem under everything it is."""
        for name, value in facts.items():
            self.counts.setdefault(name, Counter()).update(value if isinstance(value, list) else [value])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "device": self.device.to_dict(),
            "seed": self.seed,
            "problems": self.problems,
            "right": self.right,
            "refused": dict(self.refused),
            "faults": [asdict(fault) for fault in self.faults],
            "counts": {name: dict(counter.most_common()) for name, counter in self.counts.items()},
            "programs": self.programs,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Options:
    """What to judge.

    Attributes:
        first, problems: indices from `first` on; without a number, as many as `seconds` allow.
        seconds: after which the problem in hand is left and not counted; None for no limit.
        time_limit: seconds after which a problem hangs.
        kernels, imports: see `gemmport.fuzz.worker.Job`.
    """

    seed: int
    first: int = 0
    problems: int | None = None
    seconds: float | None = None
    time_limit: float = TIME_LIMIT
    kernels: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()


def run_campaign(device: DeviceInfo, options: Options, progress: Callable[[Report], None] = lambda _: None) -> Report:
    """Judges problems on a device until there are enough, the time is up, or `MOST_FAULTS` were found.

    Args:
        progress: told the report after every problem.

    Raises:
        LaunchError: the process of the problems does not start.
    """
    report = Report(device, options.seed)
    end = sys.maxsize if options.problems is None else options.first + options.problems
    job = Job(device.backend, device.selector, options.seed, options.first, end, options.kernels, options.imports)
    started = time.monotonic()
    deadline = math.inf if options.seconds is None else started + options.seconds
    # Programs of random parameters are of no use to anybody later: they do not belong in the user's cache.
    with tempfile.TemporaryDirectory(prefix="gemmport-fuzz-") as cache:
        while job.first < end and len(report.faults) < MOST_FAULTS:
            job = replace(job, first=_run_worker(job, report, options, cache, deadline, progress))
        report.seconds = time.monotonic() - started
    return report


def reproducer(device: DeviceInfo, options: Options, index: int) -> str:
    """The command line that judges one problem."""
    words = ["gemmport", "fuzz", "--backend", device.backend, "--device", device.selector, "--seed", options.seed,
             "--from", index, "--problems", 1]  # fmt: skip
    for kernel in options.kernels:
        words += ["--kernel", kernel]
    for module in options.imports:
        words += ["--import", module]
    return shlex.join(map(str, words))


def _run_worker(
    job: Job, report: Report, options: Options, cache: str, deadline: float, progress: Callable[[Report], None]
) -> int:
    """Judges problems in one process until it ends; the index to go on with, which is that of the end once the time is up."""
    before, following = report.programs, job.first
    environment = {**os.environ, "GEMMPORT_CACHE_DIR": cache}
    with Conversation([sys.executable, "-m", "gemmport.fuzz.worker"], environment) as worker:
        worker.tell(asdict(job))
        current: int | None = None

        def fault(kind: str, index: int, reason: str) -> None:
            told = str(job.case(index))
            report.faults.append(Fault(index, kind, reason, told, reproducer(report.device, options, index)))
            progress(report)

        while True:
            limit, left = _START_LIMIT if current is None else options.time_limit, deadline - time.monotonic()
            if left <= 0:  # what is not done by then is not counted
                return job.end
            try:
                message = worker.hear(min(limit, left))
            except TimeoutError:
                if left <= limit:
                    continue
                if current is None:
                    raise LaunchError(f"the worker did not start within {_START_LIMIT:g} s") from None
                fault("hang", current, f"no result after {options.time_limit:g} s")
                return current + 1
            if message is None:
                break
            if "start" in message:
                current = message["start"]
                continue
            current, following = None, int(message["done"]) + 1
            report.programs = before + message["programs"]
            report.count(message["facts"])
            match message["status"]:
                case "right":
                    report.right += 1
                case "refused":
                    report.refused[message["reason"]] += 1
                case kind:
                    fault(kind, message["done"], message["reason"])
            progress(report)
            if len(report.faults) >= MOST_FAULTS:
                return following
        if current is not None:
            fault("crash", current, worker.last_words())
            return current + 1
        if following < job.end:
            raise LaunchError(f"the worker had more to do, and {worker.last_words()}")
    return following
