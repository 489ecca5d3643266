"""Plan + backend + operands → work on the device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from gemmport.backends._workspace import Workspace, this_thread
from gemmport.backends.base import Backend, Launcher, Places
from gemmport.backends.objects import Call, Event, Memory, NoCopy, Program
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DType, as_dtype
from gemmport.core.errors import (
    ArrayError,
    DeviceMemoryError,
    GemmportError,
    InstructionsError,
    TensorMapError,
    WorkGroupError,
)
from gemmport.core.plan import Argument, Buffer, Integer, Launch, Plan, Scalar, TensorMap
from gemmport.core.problem import OPERANDS, GemmProblem
from gemmport.runtime.kept import keep, last
from gemmport.runtime.sources import assemble

log = logging.getLogger(__name__)

_Refusal = WorkGroupError | TensorMapError | InstructionsError | DeviceMemoryError
_REFUSALS = (WorkGroupError, TensorMapError, InstructionsError, DeviceMemoryError)
"""Behind which another plan may run."""


@dataclass
class BoundPlan(NoCopy):
    """A plan whose kernels are compiled and whose arguments are set, to be enqueued any number of times.

    It keeps its operands alive. Scratch memory is the queue's, which all products on it share; see `Backend.workspace`. One
    thread may enqueue it at a time.

    Attributes:
        launches: the plan's own, or those that it has meanwhile.
        sources: of the programs of the plan's own.
        memory: of the operands, and of scratch memory that is its own.
    """

    instead: ClassVar[str] = "bind its plan again, which may be copied"

    plan: Plan
    backend: Backend
    launches: Sequence[Launch]
    calls: Sequence[Call]
    sources: Sequence[str] = ()
    memory: Mapping[str, Memory] = field(default_factory=dict)
    _blocks: tuple[Memory, ...] = ()
    """Of the workspace that its arguments name."""

    def enqueue(self, *, queue: Any = None, wait_for: Sequence[Event] = ()) -> None:
        """Enqueues every launch in order, after what other queues did to the memory, and returns without waiting."""
        backend = self.backend
        read = [name for name in self.plan.operands if name != "d"]
        inputs = [block for name, block in self.memory.items() if name in read]
        others = [block for name, block in self.memory.items() if name not in read]
        where = backend.as_queue(queue)
        with backend.ordered(where, reads=inputs, writes=others):
            backend.wait(wait_for, queue=where)
            self.relaunch(tuple(backend.argument(self.memory[name]) for name in self.plan.operands), queue=where)

    def relaunch(self, operands: tuple[Any, ...], *, queue: Any = None, marked: bool = False) -> Event | None:
        """Enqueues every launch in order, with other operands that lie as the first did: of one layout, alignment and size.

        The caller keeps them until the work is done, and sees to it that the queue waits for what others do to them.

        Args:
            operands: what `Backend.argument` makes of the memory of `Plan.operands`.
            queue: of `Backend.as_queue`, or a handle that it takes.
            marked: whether the event of the last launch is wanted.

        Returns:
            The event; None where it is not wanted.

        Raises:
            DeviceMemoryError: there is no room for scratch memory; nothing was enqueued.
        """
        backend = self.backend
        if not self._shares:
            return self._launch(operands, queue, marked)
        workspace = backend.workspace(backend.as_queue(queue))
        if this_thread.workspace is not None:
            return self._launch_apart(workspace, operands, queue, marked)
        this_thread.workspace = workspace
        try:
            with workspace.lock:
                if workspace.blocks is not self._blocks or not self._blocks:
                    blocks = workspace.take(backend, self._sizes)
                    if blocks is not self._blocks:
                        self._name(blocks)
                return self._launch(operands, queue, marked)
        finally:
            this_thread.workspace = None

    def _launch_apart(self, workspace: Workspace, operands: tuple[Any, ...], queue: Any, marked: bool) -> Event | None:
        """Enqueues every launch in the middle of another product of this thread, with scratch memory of its own."""
        blocks = workspace.apart(self.backend, self._sizes)
        try:
            self._name(blocks)
            return self._launch(operands, queue, marked)
        finally:
            self._blocks = ()
            for block in blocks:
                block.release()

    def _name(self, blocks: tuple[Memory, ...]) -> None:
        """Has the arguments name blocks of a workspace."""
        names = [scratch.name for scratch in self.plan.scratch]
        arguments = [self.backend.argument(block) for block in blocks]
        for launch, call in zip(self.launches, self.calls, strict=True):
            self.backend.set_memory(call, _places(launch, names), arguments)
        self._blocks = blocks

    @cached_property
    def _shares(self) -> bool:
        """Whether its scratch memory is the queue's."""
        return bool(self.plan.scratch) and self.plan.scratch[0].name not in self.memory

    @cached_property
    def _sizes(self) -> list[int]:
        return [scratch.nbytes for scratch in self.plan.scratch]

    @cached_property
    def _launch(self) -> Launcher:
        launches = zip(self.launches, self.calls, strict=True)
        return self.backend.launcher([(call, _places(launch, self.plan.operands)) for launch, call in launches])

    def let_go(self) -> None:
        """Forgets the operands, which may then be freed; `relaunch` brings others."""
        self.memory = {name: block for name, block in self.memory.items() if name not in self.plan.operands}


def _places(launch: Launch, names: Sequence[str]) -> Places:
    """The numbers of the arguments that are memory of these names, or maps of it, and which each is."""
    return [
        (number, names.index(argument.name))
        for number, argument in enumerate(launch.arguments)
        if isinstance(argument, Buffer | TensorMap) and argument.name in names
    ]


def bind(
    plan: Plan,
    backend: Backend,
    operands: Mapping[Any, Memory],
    *,
    queue: Any = None,
    allocate: Callable[[int], Memory] | None = None,
    at_once: bool = False,
    meanwhile: bool = False,
) -> BoundPlan:
    """Compiles what the plan needs and binds it to operands.

    Args:
        operands: memory of "a", "b", "d", of "c" where beta is not 0, and of scales that there are. D may be the memory of C.
        queue: on which it is enqueued first; there is room for its scratch memory there then.
        allocate: gives scratch memory of so many bytes, for this bound plan alone; default: it is the queue's.
        at_once: whether its programs may be as the compiler made them, where better ones are on their way.
        meanwhile: whether the plan's launches for the time being may stand in for its own until these are compiled.

    Raises:
        ArrayError: an operand is missing or its memory too small, or the plan was made for another device.
        CompileError, LaunchError, WorkGroupError, DeviceMemoryError: as the backend.
    """
    if plan.device.identity != backend.device.identity:
        raise ArrayError(f"this plan is for {plan.device.label}, not for {backend.device.label}: plan again")
    memory: dict[str, Memory] = dict(operands)
    if plan.problem.beta == 0:
        memory.setdefault("c", operands["d"])  # not read, but a kernel's argument must name some memory
    check_operands(plan.problem, memory)
    _check_memory(plan, memory)
    blocks: tuple[Memory, ...] = ()
    if allocate is not None:
        memory.update({scratch.name: allocate(scratch.nbytes) for scratch in plan.scratch})
    elif plan.scratch:
        blocks = backend.workspace(backend.as_queue(queue)).for_now(backend, [each.nbytes for each in plan.scratch])
    named = memory | {scratch.name: block for scratch, block in zip(plan.scratch, blocks, strict=False)}
    launches, sources = plan.launches, sources_of(plan, backend)
    compiled = sources
    if meanwhile and plan.meanwhile:
        sooner = [_source(launch, backend) for launch in plan.meanwhile]
        if backend.make_later([source for source in sources if source not in sooner]):
            launches, compiled = plan.meanwhile, sooner
    programs = backend.programs(compiled, at_once=at_once)
    calls = [
        prepare_launch(launch, backend, named, program) for launch, program in zip(launches, programs, strict=True)
    ]
    return BoundPlan(plan, backend, launches, calls, sources, memory, blocks)


def bind_or_choose(
    plan: Plan,
    choose: Callable[[DeviceInfo, Collection[str]], Plan],
    backend: Backend,
    operands: Mapping[Any, Memory],
    *,
    queue: Any = None,
    allocate: Callable[[int], Memory] | None = None,
    at_once: bool = False,
    meanwhile: bool = False,
) -> BoundPlan:
    """Binds a plan, or another where this one does not run.

    A kernel that runs in smaller groups only, as compiled: the plan for a device of such groups. A kernel that runs in no
    group, or whose tensor maps or instructions the driver refuses: the plan without that kernel. No room for the scratch
    memory: the plan for a device that has less.

    Args:
        choose: the plan for a device without the kernels of these names; raises where the user's choice rules it out.
        queue, allocate, at_once, meanwhile: as `bind`.

    Raises:
        WorkGroupError, TensorMapError, InstructionsError, DeviceMemoryError: of the first plan, where no other can be chosen.
        Others as `bind`.
    """
    refused: _Refusal | None = None
    without: frozenset[str] = frozenset()
    while True:
        try:
            return bind(plan, backend, operands, queue=queue, allocate=allocate, at_once=at_once, meanwhile=meanwhile)
        except _REFUSALS as error:
            log.info("passed over %s: %s", plan.variant, error)
            # Without its frames, which keep scratch memory that the next plan may need.
            refused = refused or error.with_traceback(None)
            if _runs_nowhere(error):
                without |= {plan.variant}
            lesser = _lesser(plan, error)
        if lesser is None:
            raise refused
        try:
            plan = choose(lesser, without)
        except GemmportError as error:
            raise refused from error


def _runs_nowhere(refused: _Refusal) -> bool:
    """Whether the kernel runs here with no parameters at all."""
    return isinstance(refused, TensorMapError | InstructionsError) or (
        isinstance(refused, WorkGroupError) and not refused.most
    )


def _lesser(plan: Plan, refused: _Refusal) -> DeviceInfo | None:
    """The device for which the next plan is made, with the limit that was met; None where no other plan can do without."""
    if _runs_nowhere(refused):
        return plan.device
    if isinstance(refused, WorkGroupError):
        return replace(plan.device, max_work_group=refused.most)
    most = max((scratch.nbytes for scratch in plan.scratch), default=0)
    return replace(plan.device, max_allocation=most - 1) if most else None


def check_operands(problem: GemmProblem, memory: Mapping[Any, Memory]) -> None:
    """Raises ArrayError where an operand is missing, or its memory too small."""
    for operand in OPERANDS:
        if operand not in memory:
            raise ArrayError(f"operand {operand} is missing: this plan reads it")
        needed = problem.span(operand) * problem.element_type(operand).itemsize
        used = operand == "d" or problem.reads(operand)
        if used and not problem.empty and memory[operand].nbytes < needed:
            raise ArrayError(
                f"operand {operand} of {problem} takes {needed:,} bytes; its memory has {memory[operand].nbytes:,}"
            )


def _check_memory(plan: Plan, operands: Mapping[str, Memory]) -> None:
    """Raises DeviceMemoryError where operands and scratch memory are more than the device has: OpenCL would find that out only
    when a kernel runs.
    """
    held = sum({block.handle: block.nbytes for block in operands.values()}.values())
    if held + plan.scratch_bytes > plan.device.memory:
        raise DeviceMemoryError(
            f"{plan.device.label}: the operands of {plan.problem} hold {held:,} bytes and its scratch memory takes "
            f"{plan.scratch_bytes:,}; the device has {plan.device.memory:,} in all: use smaller or fewer arrays"
        )


def enqueue_launches(
    launches: Iterable[Launch],
    backend: Backend,
    memory: Mapping[str, Memory],
    *,
    writes: Collection[str],
    queue: Any = None,
    keeps: bool = False,
) -> None:
    """Enqueues launches that belong to no plan, in order, after what other queues did to the memory.

    Where the queue is captured, their programs stay loaded, for the graph.

    Args:
        memory: by the names in the launches; `writes`: which of them are written.
        keeps: whether each is bound once, for other memory the next time: of launches that come again, such as those of copies.
            What is kept may hold the memory that it was launched with last.

    Raises:
        As `prepare_launch`.
    """
    with backend.ordered(
        queue,
        reads=[block for name, block in memory.items() if name not in writes],
        writes=[block for name, block in memory.items() if name in writes],
    ):
        captured = backend.is_captured(queue)
        for launch in launches:
            idle = _idle(launch, backend) if keeps else []
            call = last(idle)
            if call is None:
                call = prepare_launch(launch, backend, memory)
            else:
                names = [*memory]
                backend.set_memory(call, _places(launch, names), [backend.argument(memory[name]) for name in names])
            backend.launch(call, queue=queue)
            if captured:
                backend.pin(call.program)
            idle.append(call)


def bound_launches(launches: Sequence[Launch], backend: Backend, memory: Mapping[str, Memory]) -> Launcher:
    """Launches that belong to no plan, bound once: what enqueues them in order with other memory, for one thread at a time.

    Args:
        memory: by the names in the launches, in the order in which the other memory is given.

    Raises:
        As `prepare_launch`.
    """
    names = [*memory]
    return backend.launcher([(prepare_launch(one, backend, memory), _places(one, names)) for one in launches])


_LAUNCHES, _MOST_LAUNCHES = "calls of launches that belong to no plan", 256


def _idle(launch: Launch, backend: Backend) -> list[Call]:
    """Calls of a launch that no thread is using."""
    known: dict[Launch, list[Call]] = backend.kept.setdefault(_LAUNCHES, {})
    idle = known.get(launch)
    if idle is None:
        keep(known, launch, idle := [], _MOST_LAUNCHES)
    return idle


def prepare_launch(
    launch: Launch, backend: Backend, memory: Mapping[str, Memory], program: Program | None = None
) -> Call:
    """A launch, compiled for a backend and bound to the memory that it names.

    Args:
        program: of the launch, where it is compiled already.

    Raises:
        ArrayError: it names other memory.
        CompileError, LaunchError: as the backend.
    """
    return backend.prepare(
        backend.program(_source(launch, backend)) if program is None else program,
        launch.kernel.function,
        launch.groups,
        launch.work_group,
        [_native(argument, memory, backend) for argument in launch.arguments],
        dynamic_local_bytes=launch.dynamic_local_bytes,
    )


def sources_of(plan: Plan, backend: Backend) -> list[str]:
    """Of the programs of a plan's own launches, as the backend compiles them."""
    return [_source(launch, backend) for launch in plan.launches]


def _source(launch: Launch, backend: Backend) -> str:
    return assemble(launch.kernel, backend.language, backend.overrides)


def _native(argument: Argument, memory: Mapping[str, Memory], backend: Backend) -> Memory | np.generic:
    match argument:
        case Buffer(name) | TensorMap(name=name) if name not in memory:
            raise ArrayError(f"the plan names a buffer {name!r} that is neither an operand nor its scratch memory")
        case Buffer(name):
            return memory[name]
        case TensorMap(name):
            return backend.tensor_map(argument, memory[name])
        case Integer(value, bits):
            return np.int32(value) if bits == 32 else np.int64(value)
        case Scalar(value, dtype):
            return _native_scalar(value, as_dtype(dtype))


def _native_scalar(value: complex | float | int, dtype: DType) -> np.generic:
    """A number as a kernel takes it: too large is infinite, as in NumPy; integers and bools are unsigned 32 or 64 bits."""
    if not dtype.precision:
        bits = max(dtype.itemsize * 8, 32)
        whole = int(value.real) % 2**bits
        return np.uint64(whole) if bits == 64 else np.uint32(whole)
    with np.errstate(over="ignore"):
        scalar: np.generic = dtype.numpy.type(value)
    return scalar
