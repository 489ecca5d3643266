"""One product on one device: the plan of its arrays as they lie there, enqueued."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gemmport.api.arguments import HostArray, Types
from gemmport.api.overlap import is_same, overlap
from gemmport.api.parts import in_parts
from gemmport.api.placement import Placement, as_stored, is_read_in_place, layout_of, readable, readable_scales
from gemmport.api.plans import Config, check_kernel, default_precision, plan
from gemmport.api.scales import Scales
from gemmport.api.views import swapped
from gemmport.backends.array import DeviceArray
from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.backends.segments import is_segmented
from gemmport.contracts.kernel import Parameters
from gemmport.contracts.scales import ScaleLayout, ScaleLayouts
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import FLOAT32, DType, as_dtype
from gemmport.core.errors import ArrayError, DeviceMemoryError, ParameterError, UnsupportedError
from gemmport.core.layout import overlaps_itself, writable_in_place
from gemmport.core.plan import SCALES, Plan
from gemmport.core.precision import default_for, rounded_to
from gemmport.core.problem import OPERANDS, GemmProblem, Layout, Op, scalar_key, transposed
from gemmport.execution.copies import copy_strided, dense_copy
from gemmport.execution.executor import bind_or_choose, check_operands
from gemmport.execution.prepared import Prepared, find
from gemmport.planning.planner import AUTO
from gemmport.planning.rescaling import scaled
from gemmport.planning.schedule import resident_type
from gemmport.runtime.kept import keep

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Product:
    """What is computed of what; C is None where it is not read, and scales are where none are but those in alpha."""

    a: DeviceArray | HostArray
    b: DeviceArray | HostArray
    c: DeviceArray | HostArray | None
    alpha: complex
    beta: complex
    op_a: Op
    op_b: Op
    types: Types
    shape: tuple[int, ...]
    k: int
    scales: Scales | None = None

    @property
    def operands(self) -> dict[str, object]:
        """What is read, by the names of the arguments."""
        scales = {} if self.scales is None else self.scales.arrays
        return {"a": self.a, "b": self.b, "c": self.c, **scales}


@dataclass(frozen=True)
class Choice:
    """How it is computed, as the caller asked.

    Attributes:
        precision: the argument. within: the word of the context around the call, where there is no argument.
        hurries: whether a plan's launches for the time being may stand in for its own while these are compiled.

    Raises:
        UnknownNameError: `kernel` is not a text. ParameterError: `deterministic` is neither True nor False.
    """

    kernel: str = AUTO
    params: Parameters | None = None
    config: Config = None
    accumulator: npt.DTypeLike | None = None
    deterministic: bool = False
    precision: str | None = None
    within: str | None = None
    hurries: bool = True

    def __post_init__(self) -> None:
        check_kernel(self.kernel)
        if not isinstance(self.deterministic, bool | np.bool_):  # the text "no" would count as true
            raise ParameterError(f"deterministic must be True or False; got {self.deterministic!r}: give one of them")

    def precision_of(self, dtype: DType) -> str:
        """What operands of a type are rounded to: the argument must suit the type, and a default holds where it does.

        Raises:
            UnknownNameError, DtypeError: as `gemmport.core.precision.rounded_to`.
            ConfigError: the configuration cannot be read.
        """
        if self.precision is not None:
            return rounded_to(self.precision, dtype)
        return default_for(self.within or default_precision(self.config), dtype)


def enqueue(place: Placement, product: Product, out: Any, choice: Choice) -> DeviceArray:
    """The product on one device; enqueued, not awaited.

    Args:
        out: where to write; None for a new array.
    """
    backend, queue, types, shape = place.backend, place.queue, product.types, product.shape
    d = backend.empty(shape, types.output) if out is None else cast("DeviceArray", out)
    if out is not None:
        check_written(d, product.operands)
    found = written_in_place(d, types.output)
    written = d
    if found is None:
        log.info("out of shape %s, strides %s and type %s is not written in place", d.shape, d.strides, d.dtype)
        written = backend.empty(shape, types.output)
        found = Layout(max(shape[-1], 1), shape[-2] * shape[-1] if len(shape) == 3 else 0), False
    d_layout, turned = found
    a, b = (readable(place, x, types.inputs) for x in (product.a, product.b))
    if any(map(is_segmented, (a, b, product.c, written))) or not _has_room_for_sums(backend, product):
        _enqueue_parts(place, replace(product, a=a, b=b), written, choice)
        if written is not d:
            copy_strided(written, d, queue=queue)
        place.as_given = False
        return d
    op_a, op_b, c, scales = product.op_a, product.op_b, product.c, product.scales
    # What the host lends is another array each time: `Placement.uses` knows.
    place.as_given = written is d and all(
        used is given or isinstance(given, np.ndarray) for used, given in ((a, product.a), (b, product.b))
    )
    if turned:  # D is stored transposed: Dᵀ = op(B)ᵀ · op(A)ᵀ
        a, b, op_a, op_b = b, a, transposed(op_b), transposed(op_a)
        c = None if c is None else swapped(c)
        scales = None if scales is None else scales.swapped
    a_layout, op_a = as_stored(a, op_a)
    b_layout, op_b = as_stored(b, op_b)
    c_array, c_layout = written, d_layout
    if c is not None:
        c_array = read = readable(place, c, types.output)
        if layout_of(c_array)[1]:  # no op is applied to C
            c_array = dense_copy(c_array, types.output, queue=queue)
        c_layout = layout_of(c_array)[0]
        place.as_given = place.as_given and c_array is read and (read is c or isinstance(c, np.ndarray))
    m, n = (shape[-1], shape[-2]) if turned else (shape[-2], shape[-1])
    problem = GemmProblem.create(
        m, n, product.k, batch=shape[0] if len(shape) == 3 else 1, dtype=types.inputs, output=types.output,
        accumulator=choice.accumulator, trans_a=op_a, trans_b=op_b, alpha=product.alpha, beta=product.beta,
        a=a_layout, b=b_layout, c=c_layout, d=d_layout, precision=choice.precision_of(as_dtype(types.inputs)),
    )  # fmt: skip

    memory: dict[str, Memory] = {"a": a.memory, "b": b.memory, "c": c_array.memory, "d": written.memory}
    layouts: ScaleLayouts | None = None
    if scales is not None and not problem.empty:
        given = zip(SCALES, (scales.rows, scales.columns), strict=True)
        used = {name: readable_scales(place, x) for name, x in given if x is not None}
        memory |= {name: x.memory for name, x in used.items()}
        layouts = _scale_layout(used.get("row_scales")), _scale_layout(used.get("column_scales"))
        place.scales = [x.memory for x in (reversed(used.values()) if turned else used.values())]
    place.prepared, lasts = enqueue_memory(problem, choice, backend, memory, queue, layouts)
    place.turned, place.as_given = turned, place.as_given and lasts
    if written is not d:
        copy_strided(written, d, queue=queue)
    return d


def copied_bytes(
    a: DeviceArray, b: DeviceArray, c: DeviceArray | None, out: DeviceArray, types: Types
) -> list[int]:  # fmt: skip
    """Bytes of each copy that `enqueue` makes of arrays in one allocation: of operands that are not read in place, and of the
    result where it is not written so.
    """
    found = [x.size * types.inputs.itemsize for x in (a, b) if not is_read_in_place(x, types.inputs)]
    lying = written_in_place(out, types.output)
    if lying is None:
        found.append(out.size * types.output.itemsize)
    if c is not None:
        third = cast("DeviceArray", swapped(c)) if lying is not None and lying[1] else c
        if not is_read_in_place(third, types.output) or layout_of(third)[1]:
            found.append(c.size * types.output.itemsize)
    return found


def written_in_place(out: DeviceArray, dtype: np.dtype[Any]) -> tuple[Layout, bool] | None:
    """The layout in which a product of a type is written to an array as it lies, and whether it is stored transposed; None
    where it is written by a copy.
    """
    if out.dtype != dtype:
        return None
    return writable_in_place(out.shape, out.strides, out.offset, base_alignment=out.memory.alignment)


def _enqueue_parts(place: Placement, product: Product, out: DeviceArray, choice: Choice) -> None:
    """A product of which an array lies in several allocations, as products of parts that lie in one each.

    Sums over several parts of op(A)'s columns stay in the type of the sums, and are then converted to the result's.
    """
    backend, queue, types = place.backend, place.queue, product.types
    a, b = cast("DeviceArray", product.a), cast("DeviceArray", product.b)
    c = None if product.c is None else readable(place, product.c, types.output)
    resident = resident_type(problem_of_arrays(product, choice)).numpy
    count = 0
    scales = product.scales
    for part in in_parts(a, b, c, out, product.op_a, product.op_b, resident, scaled=scales is not None):
        target = part.of_result(out)
        begins = None if c is None else part.of_result(c)
        converts = len(part.terms) > 1 and resident != out.dtype
        sums = backend.empty(target.shape, resident) if converts else target
        if converts and begins is not None:
            copy_strided(begins, sums, queue=queue)
            begins = sums
        for number, terms in enumerate(part.terms if product.alpha != 0 else part.terms[:1]):
            one = replace(
                product, a=part.of_a(a, product.op_a, terms), b=part.of_b(b, product.op_b, terms),
                c=sums if number else begins, beta=1 if number else product.beta, types=Types(types.inputs, sums.dtype),
                shape=target.shape, k=terms[1] - terms[0],
                scales=None if scales is None else scales.part(part.matrices, part.rows, part.columns),
            )  # fmt: skip
            enqueue(place, one, sums, choice)
            count += 1
        if converts:
            copy_strided(sums, target, queue=queue)
    log.info(
        "%s products of parts: A lies in %d allocations, B in %d, the result in %d", count, a.allocations, b.allocations,
        out.allocations,
    )  # fmt: skip


def _has_room_for_sums(backend: Backend, product: Product) -> bool:
    """Whether one allocation has room for the sums that a pass multiplies by scales. Which kernel is chosen, and whether it
    needs the pass, is not known by then.
    """
    return product.scales is None or math.prod(product.shape) * FLOAT32.itemsize <= backend.device.max_allocation


def problem_of_arrays(product: Product, choice: Choice) -> GemmProblem:
    """The problem of a product, wherever its arrays lie."""
    shape, types = product.shape, product.types
    return GemmProblem.create(
        shape[-2], shape[-1], product.k, batch=shape[0] if len(shape) == 3 else 1, dtype=types.inputs, output=types.output,
        accumulator=choice.accumulator, trans_a=product.op_a, trans_b=product.op_b, alpha=product.alpha, beta=product.beta,
        precision=choice.precision_of(as_dtype(types.inputs)),
    )  # fmt: skip


def _scale_layout(x: DeviceArray | None) -> ScaleLayout | None:
    """Where scales lie, (m) or (batch, m)."""
    return None if x is None else ScaleLayout(x.offset, x.strides[-1], x.strides[0] if x.ndim > 1 else 0)


def enqueue_memory(
    problem: GemmProblem, choice: Choice, backend: Backend, memory: dict[str, Memory], queue: Any,
    layouts: ScaleLayouts | None = None,
) -> tuple[Prepared, bool]:  # fmt: skip
    """Enqueues a product by the call that is prepared for its kind, or prepares it.

    Args:
        memory: of A, B, C and D, and of the scales that there are. layouts: where these lie.

    Returns:
        The call, and whether it may be kept for the next of its kind.
    """
    reads = [block for name, block in memory.items() if name != "d" and (name != "c" or problem.reads("c"))]
    arguments = tuple(backend.argument(memory[name]) for name in (*OPERANDS, *SCALES) if name in memory)
    key = kind_of(problem, choice, layouts)
    captured = backend.is_captured(queue)
    with backend.ordered(queue, reads=reads, writes=[memory["d"]]):
        found = None if key is None else find(backend.prepared, key)
        if found is not None and not captured:
            check_operands(problem, memory)
            try:
                found.launch(arguments, queue)
            except DeviceMemoryError:  # of scratch memory: there are plans without
                if choice.deterministic:
                    raise
            else:
                return found, True

        def chosen(device: DeviceInfo, without: Collection[str] = ()) -> Plan:
            if choice.deterministic and device.max_allocation < backend.device.max_allocation:
                raise UnsupportedError("a plan with less scratch memory adds up in another order")

            def make(multiplied: GemmProblem) -> Plan:
                return plan(
                    multiplied,
                    device,
                    kernel=choice.kernel,
                    params=choice.params,
                    config=choice.config,
                    without=without,
                )

            return make(problem) if layouts is None else scaled(make, problem, layouts)

        device = backend.device
        bound = bind_or_choose(
            chosen(device), chosen, backend, memory, queue=queue, allocate=backend.allocate if captured else None,
            at_once=True, meanwhile=choice.hurries and not captured,
        )  # fmt: skip
        bound.relaunch(arguments, queue=queue)
    if captured:
        for call in bound.calls:
            backend.pin(call.program)
        bound.let_go()  # other libraries keep their own memory, by the rules of each
        ours = [block for block in memory.values() if block.access.home is None]
        backend.keep_for_graph(queue, (bound.memory, ours))
        return Prepared(bound.plan, backend), False
    prepared = Prepared.of(bound)
    if bound.plan.device.max_allocation < device.max_allocation:
        log.warning("%s takes %s for want of memory, whose results may differ in their last bits", problem, bound.plan)
        return prepared, False
    if key is None:
        return prepared, False
    keep(backend.prepared, key, prepared)
    return prepared, True


def kind_of(problem: GemmProblem, choice: Choice, layouts: ScaleLayouts | None = None) -> Hashable:
    """All that a plan depends on, but the device; None where parameters or configurations were passed."""
    if choice.params is not None or choice.config is not None:
        return None
    folders = os.environ.get("GEMMPORT_CONFIG_PATH")
    return problem, scalar_key(problem.alpha), scalar_key(problem.beta), choice.kernel, folders, layouts


def check_writable(out: DeviceArray) -> None:
    """Raises ArrayError where `out` cannot be written."""
    if out.memory.read_only:
        raise ArrayError(f"out of shape {out.shape} is read-only: use another array")
    if overlaps_itself(out.shape, out.strides):
        raise ArrayError(f"out of shape {out.shape} and strides {out.strides} overlaps itself: use another array")


def check_written(out: DeviceArray, operands: Mapping[str, object]) -> None:
    """Raises ArrayError where `out` cannot be written, or writing it would change an operand, by its name, while it is read."""
    check_writable(out)
    for name, other in operands.items():
        if not isinstance(other, DeviceArray) or not overlap(out, other):
            continue
        if name == "c" and is_same(out, other):
            continue  # the in-place update: each element of C is read by who writes it
        raise ArrayError(f"out overlaps {name}: the result would depend on the order of the work; use another array")
