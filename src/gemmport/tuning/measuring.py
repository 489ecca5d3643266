"""Candidates on random operands that lie on the device: verified first, then timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType

from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.bench.timing import GPU_PACE, MAX_CALLS_PER_SAMPLE, Contestant, Timing, measure
from gemmport.checking import verification
from gemmport.checking.device_check import check_freivalds_on, check_rows_on, fill_random_on
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem, Operand
from gemmport.execution.executor import BoundPlan, bind
from gemmport.kernels.fill_random import Whole

LOOK_SECONDS = 20e-3
"""So long a CPU is looked at, of whose calls the least counts: its threads, when they wake, may share one core while another
idles, and the first call of a short product takes two to three times as long as others (docs/tuning-studies.md).
"""

POISON = 0xFF
"""Every byte of D before a check: NaN, or a number that no product leaves by chance."""


def random_operands(problem: GemmProblem, backend: Backend, stack: ExitStack) -> dict[Operand, Memory]:
    """Memory of a product's operands on the device, full of random numbers, D too; the stack frees it.

    Numbers are N(0, 1), and of integers and truth values all that there are, about equally often.

    Raises:
        DeviceMemoryError: the device does not hold them. Others as `fill_random_on`.
    """
    memory: dict[Operand, Memory] = {}
    for seed, operand in enumerate((*verification.inputs(problem), "d")):
        element, layout = problem.element_type(operand), problem.layout(operand)
        memory[operand] = stack.enter_context(backend.allocate(problem.span(operand) * element.itemsize))
        rows, columns = problem.stored_shape(operand)
        whole = None if element.kind in ("real", "complex") else Whole.all_of(element)
        fill_random_on(
            backend, memory[operand], element, layout, rows, columns, problem.batch, seed=seed, whole=whole
        )  # fmt: skip
    return memory


def fault_of(bound: BoundPlan, memory: Mapping[Operand, Memory]) -> str:
    """Why a plan does not compute D, which is poisoned before; empty where it does.

    By Freivalds' check; of truth values, which it does not judge, by rows of D.
    """
    bound.backend.fill(memory["d"], POISON)
    bound.enqueue()
    problem = bound.plan.problem
    check = check_rows_on if problem.output.kind == "bool" else check_freivalds_on
    judged = check(bound.backend, problem, memory, 0, cut=verification.cut_of(bound.plan))
    return "" if judged.passed else f"{judged.name}: {judged.detail}"


class Bench:
    """Operands of one product on a device, on which candidates take turns. Leaving the block frees them."""

    def __init__(self, problem: GemmProblem, backend: Backend) -> None:
        self.problem, self.backend = problem, backend
        self._stack = ExitStack()
        try:
            self._memory = random_operands(problem, backend, self._stack)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Frees the operands."""
        self._stack.close()

    def bind(self, plan: Plan) -> BoundPlan:
        """Compiles a plan of this product.

        Raises:
            CompileError, LaunchError, DeviceMemoryError: as `gemmport.execution.executor.bind`.
        """
        return bind(plan, self.backend, self._memory)

    def fault(self, bound: BoundPlan) -> str:
        """As `fault_of`, on these operands."""
        return fault_of(bound, self._memory)

    def look(self, bound: BoundPlan) -> float:
        """Seconds of a call, the next after the check's: about what a candidate takes.

        On a CPU the least of several calls. A GPU waits for the host while it enqueues a single call, for longer than a short
        one takes: of such, the seconds are those of one sample, which holds no waiting.
        """
        calls = [self.call_seconds(bound)]
        if self.backend.device.type == "cpu":
            while sum(calls) < LOOK_SECONDS and len(calls) < MAX_CALLS_PER_SAMPLE:
                calls.append(self.call_seconds(bound))
            return min(calls)
        (first,) = calls
        if GPU_PACE.calls(first)[1] == 1:
            return first
        (timing,) = self.times([bound], 1)
        return timing.median

    def call_seconds(self, bound: BoundPlan) -> float:
        """Of one call, by the device's clock."""
        first = self.backend.record()
        bound.enqueue()
        return self.backend.elapsed(first, self.backend.record())

    def times(self, each: Sequence[BoundPlan], repeat: int) -> list[Timing]:
        """Times plans in turns, `repeat` samples of each."""
        contestants = [Contestant(str(at), bound.enqueue) for at, bound in enumerate(each)]
        return list(measure(self.backend, contestants, repeat=repeat).values())
