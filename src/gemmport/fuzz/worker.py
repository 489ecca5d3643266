"""The process in which problems are judged: whatever a runtime does to it, the campaign goes on. It is told a `Job`, and
tells {"start": index} before a problem and {"done": index, …} after it.
"""

from __future__ import annotations

import importlib
import logging
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from gemmport.backends.base import Backend
from gemmport.core.errors import GemmportError, WorkGroupError
from gemmport.execution.selection import get_backend
from gemmport.fuzz.case import Case, Outcomes
from gemmport.fuzz.draw import draw, first_count
from gemmport.fuzz.specialization import BLOCK, all_kernels
from gemmport.runtime.child_processes import Channel


@dataclass(frozen=True)
class Job:
    """What a worker does: the problems from `first` to before `end` of a seed.

    Attributes:
        backend, device: as `get_backend` takes them.
        kernels, dtypes: as `draw` takes them; none for all. imports: modules to import first, which register kernels.
        share, shares: which part of them, of how many.
    """

    backend: str
    device: str
    seed: int
    first: int
    end: int
    kernels: tuple[str, ...]
    imports: tuple[str, ...] = ()
    share: int = 0
    shares: int = 1
    dtypes: tuple[str, ...] = ()

    def case(self, index: int) -> Case:
        """The problem of an index."""
        return draw(self.seed, index, self.kernels or all_kernels(), self.dtypes)

    def indices(self) -> Iterator[int]:
        """The numbers of its problems: the first ones in turn with other shares, the others by blocks, which share programs."""
        alone = first_count(self.seed, self.kernels or all_kernels(), self.dtypes)
        for index in range(self.first, self.end):
            if (index if index < alone else index // BLOCK) % self.shares == self.share:
                yield index


def work(job: Job, channel: Channel) -> None:
    """Judges the problems one after another and tells what came of each."""
    backend = get_backend(job.backend, job.device)
    for index in job.indices():
        channel.tell({"start": index})
        result = examined(index, job, backend)
        channel.tell({"done": index, "programs": backend.program_counts.compiled, **result})


def examined(index: int, job: Job, backend: Backend) -> dict[str, Any]:
    """What came of a problem: status "right", "refused", "wrong" or "error", a reason, and the facts it is counted under."""
    case = job.case(index)
    outcomes = case.outcomes(backend.device)
    status, reason = "right", ""
    try:
        fault = case.judge(backend)
        if fault:
            status, reason = "wrong", fault
        elif None not in outcomes:
            status, reason = "wrong", f"computed, where {_names(outcomes)} was to be raised"
    except GemmportError as error:
        by_rule = type(error) in outcomes or _too_many_registers(case, error)
        status, reason = ("refused", type(error).__name__) if by_rule else ("error", f"{type(error).__name__}: {error}")
    except Exception:  # noqa: BLE001 - whatever is raised that is not ours is what the campaign looks for
        status, reason = "error", traceback.format_exc()
    return {"status": status, "reason": reason, "facts": asdict(case.facts)}


def _names(outcomes: Outcomes) -> str:
    return " or ".join(sorted(error.__name__ for error in outcomes if error))


def _too_many_registers(case: Case, error: GemmportError) -> bool:
    """Whether a kernel as compiled cannot run with as many work-items as its parameters say, which only the compiler knows."""
    return bool(case.specialization.params) and isinstance(error, WorkGroupError)


def main() -> None:
    """Runs the job that it is told."""
    logging.basicConfig(level=logging.ERROR)
    channel = Channel()
    data = channel.hear()
    if data is None:
        return
    job = Job(**data | {name: tuple(data[name]) for name in ("kernels", "dtypes", "imports")})
    for module in job.imports:
        importlib.import_module(module)
    work(job, channel)


if __name__ == "__main__":
    main()
