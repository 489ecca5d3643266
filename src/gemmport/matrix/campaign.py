"""All cells of all devices: a process per device, devices side by side, and what came of each cell into the record.

A process that dies or hangs costs the cell in hand. That cell is tried once more, alone in a fresh process, so that none is
blamed for what its neighbours did.
"""

from __future__ import annotations

import logging
import math
import os
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gemmport.bench.environment import host_environment, was_given
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import LaunchError
from gemmport.core.quirks import named_in
from gemmport.execution.selection import match_devices
from gemmport.matrix import simulator
from gemmport.matrix.cells import SIMULATED, Cell, rounds
from gemmport.matrix.judge import Judgement
from gemmport.matrix.record import FAILED, Journal, Status, Tested, Verdict
from gemmport.matrix.turns import Turns
from gemmport.runtime.child_processes import Conversation, scratch_folder, signals_held

log = logging.getLogger(__name__)

CELL_LIMIT = 120.0
"""Seconds after which a cell hangs. Most take milliseconds; the slowest compilers need a minute on a busy machine."""

_START_LIMIT = 300.0
"""Seconds in which a process must have opened its device."""

_STARTS = 2
"""Tries to open a device before it is lost."""

DECISIVE = ("RUSTICL_ENABLE", "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "POCL_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Environment variables that decide which devices there are: a command that is to show the same says those that are set."""


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """The campaign was asked to stop."""


@dataclass(frozen=True)
class Options:
    """How cells are judged.

    Attributes:
        jobs: devices side by side. cell_limit, time_limit: seconds for a cell, and for all; no limit where it is None.
        imports: modules that register kernels.
    """

    jobs: int = 1
    cell_limit: float = CELL_LIMIT
    time_limit: float | None = None
    imports: tuple[str, ...] = ()


@dataclass
class Lane:
    """A device, its cells, and how far they are. Others may look at it while it runs.

    Attributes:
        id, command: as in `gemmport.matrix.record.Tested`.
        todo: cells that are not judged yet. counts: those that are, earlier runs included.
        cell: in hand, since `since` (seconds of `time.monotonic`); empty where none is.
        state: "waiting", "running", "done", "lost" or "left".
    """

    device: DeviceInfo
    id: str
    command: str
    due: int
    todo: list[Cell]
    counts: Counter[Status] = field(default_factory=Counter)
    cell: str = ""
    since: float = 0.0
    judged: int = 0
    started: float | None = None
    state: str = "waiting"

    @property
    def failed(self) -> int:
        """Cells that are at fault."""
        return sum(self.counts[status] for status in FAILED)

    @property
    def done(self) -> int:
        """Cells that are judged, earlier runs included."""
        return self.due - len(self.todo)

    @property
    def rate(self) -> float | None:
        """Cells per second of this run; None before the first."""
        return self.judged / (time.monotonic() - self.started) if self.started is not None and self.judged else None


Told = Callable[[Lane, Verdict], None]


def lanes(
    devices: Sequence[DeviceInfo],
    due: Callable[[DeviceInfo], Sequence[Cell]],
    journal: Journal,
    imports: Sequence[str] = (),
) -> list[Lane]:
    """What is to be done on each device, less what the record already has."""
    found: list[Lane] = []
    for device, name in zip(devices, identities(devices), strict=True):
        cells = due(device)
        known = {cell: verdict for (on, cell), verdict in journal.record.verdicts.items() if on == name}
        counts = Counter(known[cell.id].status for cell in cells if cell.id in known)
        todo = [cell for cell in cells if cell.id not in known]
        found.append(Lane(device, name, command_for(device, devices, imports), len(cells), todo, counts))
    return found


def identities(devices: Sequence[DeviceInfo]) -> list[str]:
    """A name for each device, the same on every machine: backend, runtime with its version, device; a number for equal ones."""
    names, seen = [], Counter[str]()
    for device in devices:
        runtime = "-".join(filter(None, (device.platform, device.platform_version)))
        name = "/".join(map(_slug, (device.backend, runtime, device.name)))
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}/{seen[name]}")
    return names


def _slug(text: str) -> str:
    return "-".join("".join(c if c.isalnum() or c in "._" else " " for c in text).split())


def command_for(device: DeviceInfo, others: Sequence[DeviceInfo], imports: Sequence[str] = (), cell: str = "") -> str:
    """The command line that runs the matrix on a device alone, or one cell of it.

    Args:
        others: devices that the description must not mean as well.
    """
    rivals = [other for other in others if other.backend == device.backend]
    descriptions = (device.platform, f"{device.platform} {device.platform_version}", device.selector)
    alone = next(text for text in descriptions if text == device.selector or match_devices(text, rivals) == [device])
    words = ["gemmport", "matrix", "--backend", device.backend, "--device", alone]
    for module in imports:
        words += ["--import", module]
    if cell:
        words += ["--cell", cell]
    settings = [f"{name}={shlex.quote(os.environ[name])}" for name in DECISIVE if was_given(name)]
    return " ".join([*settings, shlex.join(words)])


def run(work: Sequence[Lane], journal: Journal, options: Options, told: Told = lambda *_: None) -> None:
    """Judges what is to do, until it is done or the time is up.

    Args:
        told: of every verdict, one after another, from threads of this function's own.

    Raises:
        KeyboardInterrupt: as it came, after all processes were ended. What was judged by then is in the record.
    """
    campaign = _Campaign(work, journal, options, told)
    workers = [threading.Thread(target=campaign.work, daemon=True) for _ in range(min(options.jobs, len(work)))]
    try:
        with signals_held():
            for worker in workers:
                worker.start()
        # Not by `join`: a thread passes for ended where that is interrupted (Python 3.12 and before).
        for _ in workers:
            while not campaign.ended.acquire(timeout=0.2):
                pass
    finally:
        campaign.stop()
        for worker in workers:
            worker.join()
    if campaign.fault is not None:
        raise campaign.fault


class _Campaign:
    """What the threads of a run share."""

    def __init__(self, work: Sequence[Lane], journal: Journal, options: Options, told: Told) -> None:
        self.journal = journal
        self.options = options
        self.deadline = math.inf if options.time_limit is None else time.monotonic() + options.time_limit
        self.environment = host_environment()
        self.turns = Turns()
        self.fault: BaseException | None = None
        self.ended = threading.Semaphore(0)  # released by each thread at its end
        # The slowest go first, so that none of them is the last, alone.
        self._waiting = sorted(work, key=lambda lane: (rounds(lane.device), lane.device.platform not in SIMULATED))
        self._everyone = [lane.device for lane in work]
        self._told = told
        self._lock = threading.Lock()
        self._open: set[Conversation] = set()
        self._stopped = False

    def work(self) -> None:
        """What a thread does: one device after another."""
        try:
            while (lane := self._next()) is not None:
                _Judge(self, lane).judge_all()
        except Interrupted:
            pass
        except BaseException as fault:  # noqa: BLE001 - raised again by `run`, in the thread of its caller
            self.fault = fault
            self.stop()
        finally:
            self.ended.release()

    def _next(self) -> Lane | None:
        """A device that no thread has begun."""
        with self._lock:
            return self._waiting.pop(0) if self._waiting and not self._stopped else None

    def stop(self) -> None:
        """Ends all processes; what is in hand is left."""
        with self._lock:
            self._stopped = True
            for conversation in self._open:
                conversation.kill()

    @contextmanager
    def conversation(self, command: Sequence[str]) -> Iterator[Conversation]:
        """A process that `stop` ends."""
        # Nothing is imported from where the user stands.
        with Conversation(command, {**os.environ, "PYTHONSAFEPATH": "1"}) as conversation:
            with self._lock:
                self._open.add(conversation)
                if self._stopped:
                    conversation.kill()
            try:
                yield conversation
            finally:
                with self._lock:
                    self._open.discard(conversation)

    def check_stopped(self) -> None:
        """Raises Interrupted where the campaign is to stop."""
        if self._stopped:
            raise Interrupted

    def add(self, lane: Lane, verdict: Verdict) -> None:
        """Writes a verdict down, and tells it."""
        with self._lock:
            if self._stopped:  # a cell that was ended with all others has no verdict
                raise Interrupted
            self.journal.add(verdict)
            lane.counts[verdict.status] += 1
            lane.judged += 1
            self._told(lane, verdict)

    def meet(self, lane: Lane, runtime: dict[str, str]) -> None:
        """Writes a device down."""
        known = self.journal.record.devices.get(lane.id)
        environments = (self.environment,) if known is None else known.environments
        with self._lock:
            self.journal.add(
                Tested(lane.id, lane.device, lane.device.label, runtime, environments, lane.due, lane.command)
            )  # fmt: skip

    def lose(self, lane: Lane, reason: str) -> None:
        """Writes down that a device is lost."""
        if lane.id not in self.journal.record.devices:
            self.meet(lane, {})
        with self._lock:
            self.journal.lose(lane.id, reason)
            lane.state = "lost"

    def reproducer(self, lane: Lane, cell: Cell) -> str:
        """The command that judges a cell alone."""
        return command_for(lane.device, self._everyone, self.options.imports, cell.id)


class _TimeUp(Exception):  # noqa: N818 - likewise
    """There is no time left for any cell."""


@dataclass(frozen=True)
class _Death:
    """How a process ended over a cell."""

    status: Status
    reason: str


class _Judge:
    """Has all cells of a device judged."""

    def __init__(self, campaign: _Campaign, lane: Lane) -> None:
        self._campaign = campaign
        self._lane = lane
        self._suspect: tuple[Cell, _Death] | None = None

    def judge_all(self) -> None:
        """Judges them in as many processes as it takes."""
        campaign, lane = self._campaign, self._lane
        if not lane.todo:
            lane.state = "done"
            return
        lane.state, lane.started, starts = "running", time.monotonic(), 0
        try:
            while lane.todo and starts < _STARTS:
                try:
                    self._judge_some()
                    starts = 0
                except LaunchError as error:
                    campaign.check_stopped()
                    starts += 1
                    log.info("%s: %s", lane.id, error)
                    if starts == _STARTS:
                        campaign.lose(lane, str(error))
        except _TimeUp:
            lane.state = "left"
        finally:
            lane.cell = ""
        if not lane.todo:
            lane.state = "done"

    def _judge_some(self) -> None:
        """Judges cells in one process until it ends; one that a process ended over after others, in a process of its own.

        Raises:
            LaunchError: the device cannot be opened. _TimeUp, Interrupted: as they say.
        """
        before = self._suspect
        with self._process() as process:
            for number, cell in enumerate([before[0]] if before else list(self._lane.todo)):
                came, seconds = process.ask(cell)
                if isinstance(came, _Death) and number:
                    log.info("%s: %s: %s; once more, alone", self._lane.id, cell.id, came.reason)
                    self._suspect = (cell, came)
                    return
                if before and isinstance(came, Judgement) and came.status == "verified":
                    told = (
                        f"right in a process of its own; before, in one that had judged other cells: {before[1].reason}"
                    )
                    came = replace(came, reason=told)
                self._add(cell, came, seconds)
                if isinstance(came, _Death):
                    break
        self._suspect = None

    @contextmanager
    def _process(self) -> Iterator[_Process]:
        """A process that has opened the device."""
        campaign, lane = self._campaign, self._lane
        with scratch_folder("gemmport-matrix-") as folder:
            simulated = Path(folder) / "log" if lane.device.platform in SIMULATED else None
            under = simulator.command(simulated) if simulated else ()
            with campaign.conversation([*under, sys.executable, "-m", "gemmport.matrix.worker"]) as conversation:
                process = _Process(campaign, lane, conversation, simulated)
                campaign.meet(lane, process.open())
                yield process

    def _add(self, cell: Cell, came: Judgement | _Death, seconds: float) -> None:
        lane = self._lane
        judged = Judgement(came.status, came.reason) if isinstance(came, _Death) else came
        verdict = Verdict(
            on=lane.id, cell=cell.id, kernel=cell.kernel, types=cell.types, ops=cell.ops, shape=cell.shape,
            scalars=cell.scalars, m=judged.m, n=judged.n, k=judged.k, batch=judged.batch,
            check="statistical" if cell.statistical else "exact", status=judged.status, reason=judged.reason,
            seconds=round(seconds, 4), command=self._campaign.reproducer(lane, cell), quirk=named_in(judged.reason),
            gflops=judged.gflops, baselines=judged.baselines,
        )  # fmt: skip
        self._campaign.add(lane, verdict)
        lane.todo.remove(cell)


class _Process:
    """A process that judges cells of a device."""

    def __init__(self, campaign: _Campaign, lane: Lane, conversation: Conversation, simulated: Path | None) -> None:
        self._campaign = campaign
        self._lane = lane
        self._conversation = conversation
        self._log = simulated
        self._read = 0

    def open(self) -> dict[str, str]:
        """Waits until the device is open; what the runtime says of itself.

        Raises:
            LaunchError: it is not. _TimeUp, Interrupted: as they say.
        """
        lane = self._lane
        self._conversation.tell({"device": lane.device.to_dict(), "imports": self._campaign.options.imports})
        message = self._hear(_START_LIMIT)
        if isinstance(message, _Death):
            raise LaunchError(f"{lane.device.label} cannot be opened: {message.reason}")
        runtime: dict[str, str] = message["runtime"]
        return runtime

    def ask(self, cell: Cell) -> tuple[Judgement | _Death, float]:
        """What comes of a cell, and after how many seconds.

        Raises:
            _TimeUp, Interrupted: as they say.
        """
        lane, turns = self._lane, self._campaign.turns
        # What is timed is disturbed by what others compute on the same CPU, or reach on the same GPU by another backend.
        with turns.alone() if cell.shape == "large" else turns.shared():
            lane.cell, lane.since = cell.id, time.monotonic()
            self._conversation.tell({"cell": cell.id})
            message = self._hear(self._campaign.options.cell_limit)
            seconds = time.monotonic() - lane.since
        if isinstance(message, _Death):
            return message, seconds
        judged = Judgement(**message)
        if self._log is not None:
            faults, self._read = simulator.faults(self._log, self._read)
            if faults:
                told = "\n".join(filter(None, (judged.reason, *faults)))
                judged = replace(judged, status="wrong", reason=told)
        return judged, seconds

    def _hear(self, limit: float) -> dict[str, Any] | _Death:
        left = self._campaign.deadline - time.monotonic()
        if left <= 0:
            raise _TimeUp
        try:
            message = self._conversation.hear(min(limit, left))
        except TimeoutError:
            if left < limit:
                raise _TimeUp from None
            return _Death("hang", f"no result after {limit:g} s")
        self._campaign.check_stopped()
        return _Death("crash", self._conversation.last_words()) if message is None else message
