"""Many problems, judged in a process that may crash or hang, and what came of them."""

from __future__ import annotations

import math
import os
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gemmport.core.device import DeviceInfo
from gemmport.core.errors import LaunchError
from gemmport.fuzz.worker import Job
from gemmport.runtime.child_processes import Conversation, scratch_folder, signals_held
from gemmport.runtime.host_cpu import usable_cores

TIME_LIMIT = 300.0
"""Seconds after which a problem hangs. Products take milliseconds, and the slowest compilers a minute on a busy machine."""

MOST_FAULTS = 20
"""Faults after which a campaign stops."""

_PATIENCE = 1.0
"""Seconds after which a thread that waits for a process looks whether all shall stop."""

_CACHES = ("GEMMPORT_CACHE_DIR", "POCL_CACHE_DIR", "MESA_SHADER_CACHE_DIR")
"""Variables that name where compiled programs are kept: ours, and runtimes' own."""

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that say how many threads compute a reference. Each worker would take one for every core."""

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

    @property
    def passed(self) -> bool:
        """Whether problems were judged, and none is a fault."""
        return self.problems > 0 and not self.faults

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
        workers: processes side by side.
        kernels, dtypes, imports: see `gemmport.fuzz.worker.Job`.
    """

    seed: int
    first: int = 0
    problems: int | None = None
    seconds: float | None = None
    time_limit: float = TIME_LIMIT
    workers: int = 1
    kernels: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()


def run_campaign(device: DeviceInfo, options: Options, progress: Callable[[Report], None] = lambda _: None) -> Report:
    """Judges problems on a device until there are enough, the time is up, or `MOST_FAULTS` were found.

    Args:
        progress: told the report after every problem.

    Raises:
        LaunchError: the process of the problems does not start.
    """
    report = Report(device, options.seed)
    end = sys.maxsize if options.problems is None else options.first + options.problems
    started = time.monotonic()
    deadline = math.inf if options.seconds is None else started + options.seconds
    # Programs of random parameters are of no use to anybody later: they do not belong in the user's caches.
    with scratch_folder("gemmport-fuzz-") as folder, ThreadPoolExecutor(options.workers) as threads:
        campaign = _Campaign(report, options, folder, deadline, progress)
        try:
            with signals_held():
                shares = [
                    threads.submit(campaign.judge, Job(
                        device.backend, device.selector, options.seed, options.first, end, options.kernels, options.imports,
                        share, options.workers, options.dtypes,
                    ))
                    for share in range(options.workers)
                ]  # fmt: skip
            left = set(shares)
            while left:  # a signal that comes right before a wait without a limit is seen after it
                done, left = wait(left, _PATIENCE, FIRST_EXCEPTION)
                for share in done:
                    share.result()
        finally:
            campaign.stopped = True
    report.faults.sort(key=lambda fault: fault.index)
    report.seconds = time.monotonic() - started
    return report


def reproducer(device: DeviceInfo, options: Options, index: int) -> str:
    """The command line that judges one problem."""
    words = ["gemmport", "fuzz", "--backend", device.backend, "--device", device.selector, "--seed", options.seed,
             "--from", index, "--problems", 1]  # fmt: skip
    for kernel in options.kernels:
        words += ["--kernel", kernel]
    for dtype in options.dtypes:
        words += ["--dtype", dtype]
    for module in options.imports:
        words += ["--import", module]
    return shlex.join(map(str, words))


class _Campaign:
    """Processes that judge a share of the problems each, and the report of what came of them.

    Attributes:
        stopped: whether the problems in hand are left, and no more are judged.
    """

    def __init__(
        self, report: Report, options: Options, folder: str, deadline: float, progress: Callable[[Report], None]
    ) -> None:
        self.report, self.options, self.deadline, self.progress = report, options, deadline, progress
        self.stopped = False
        own = {name: os.path.join(folder, name.lower()) for name in _CACHES}
        for path in own.values():
            os.mkdir(path)
        threads = str(max(usable_cores() // options.workers, 1))
        self._environment = {**dict.fromkeys(_THREADS, threads), **os.environ, **own}
        self._lock = threading.Lock()

    def judge(self, job: Job) -> None:
        """Judges a share, in one process after another where they die."""
        left: Job | None = job
        while left is not None and not self._over:
            left = self._run_worker(left)

    @property
    def _over(self) -> bool:
        return self.stopped or len(self.report.faults) >= MOST_FAULTS or time.monotonic() >= self.deadline

    def _run_worker(self, job: Job) -> Job | None:
        """Judges problems in one process until it ends; what is left to do then."""
        following, programs = job.first, 0
        with Conversation([sys.executable, "-m", "gemmport.fuzz.worker"], self._environment) as worker:
            worker.tell(asdict(job))
            current: int | None = None
            since = time.monotonic()
            while not self._over:  # what is not done by then is not counted
                limit = _START_LIMIT if current is None else self.options.time_limit
                left = since + limit - time.monotonic()
                try:
                    message = worker.hear(max(0.0, min(left, _PATIENCE, self.deadline - time.monotonic())))
                except TimeoutError:
                    if left > _PATIENCE or self._over:
                        continue
                    if current is None:
                        raise LaunchError(f"the worker did not start within {_START_LIMIT:g} s") from None
                    self._fault("hang", current, f"no result after {self.options.time_limit:g} s", job)
                    return replace(job, first=current + 1)
                if message is None:
                    break
                since = time.monotonic()
                if "start" in message:
                    current = message["start"]
                    continue
                current, following = None, int(message["done"]) + 1
                self._done(message, message["programs"] - programs, job)
                programs = message["programs"]
            else:
                return None
            if current is not None:
                self._fault("crash", current, worker.last_words(), job)
                return replace(job, first=current + 1)
            if any(True for _ in replace(job, first=following).indices()):
                raise LaunchError(f"the worker had more to do, and {worker.last_words()}")
        return None

    def _done(self, message: dict[str, Any], programs: int, job: Job) -> None:
        report = self.report
        with self._lock:
            report.programs += programs
            report.count(message["facts"])
            if message["status"] == "right":
                report.right += 1
            elif message["status"] == "refused":
                report.refused[message["reason"]] += 1
            else:
                self._note(message["status"], message["done"], message["reason"], job)
            self.progress(report)

    def _fault(self, kind: str, index: int, reason: str, job: Job) -> None:
        with self._lock:
            self._note(kind, index, reason, job)
            self.progress(self.report)

    def _note(self, kind: str, index: int, reason: str, job: Job) -> None:
        again = reproducer(self.report.device, self.options, index)
        self.report.faults.append(Fault(index, kind, reason, str(job.case(index)), again))
