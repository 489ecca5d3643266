"""An explanation as one page of text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gemmport.core.precision import FULL
from gemmport.core.units import quantity, span

if TYPE_CHECKING:
    from gemmport.core.problem import GemmProblem
    from gemmport.planning.explanation import Considered, Explanation

WIDTH = 100
"""Columns of the page, at most; what has no blank to break at may be longer."""

BAR = 30
"""Columns of the longest bar."""

MOST_CANDIDATES, MOST_TILINGS, MOST_REASONS = 12, 5, 6
"""Rows of candidates that would do, those of the plan's kernel among them, and of those that are passed over."""

_MARGIN = 14

_LEAST = 32
"""Columns that a line has beside its indentation."""

_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:[kMGT]?(?:B|B/s|FLOP|FLOPS)|[mµn]?s|%)(?:[\s,;]|$))")


def page(found: Explanation, width: int = WIDTH) -> str:
    """All that was found out, section by section, in so many columns, or `WIDTH` where that is less."""
    problem = found.problem
    lines = [f"{problem} ({problem.shape_class}) on {found.device.label}"]
    for name, section in (
        ("device", _device(found)),
        ("roofline", _roofline(found)),
        ("plan", _plan(found)),
        ("prediction", _prediction(found)),
        ("allocations", _allocations(found)),
        ("in tiles", _schedule(found)),
        ("measured", _measured(found)),
        ("candidates", _candidates(found)),
        ("entries", _entries(found)),
    ):
        told = [line for text in section for line in _wrapped(min(width, WIDTH), *_indented(text))]
        if told:
            lines += ["", f"{name:{_MARGIN}}{told[0]}", *(f"{'':{_MARGIN}}{line}" for line in told[1:])]
    return "\n".join(lines)


def _indented(text: str | tuple[str, int]) -> tuple[str, int]:
    """A text, and the blanks before its second and all further lines."""
    return (text, 2) if isinstance(text, str) else text


def _wrapped(width: int, text: str, indent: int) -> list[str]:
    """A text in lines that fit, of which the second and all further ones are indented; units stay with their numbers."""
    room = max(width - _MARGIN, _LEAST)
    if len(text) <= room:
        return [text]
    bound = _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(
        bound, room, subsequent_indent=" " * min(indent, room - _LEAST), break_long_words=False, break_on_hyphens=False
    )  # fmt: skip
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _device(found: Explanation) -> Iterator[str]:
    device, model = found.device, found.model
    clock = f" at {device.clock_mhz} MHz" if device.clock_mhz else ""
    kind = ", ".join(filter(None, (device.type, device.vendor, device.architecture)))
    yield f"{kind}, {device.compute_units} compute units{clock}; {device.most_local_memory // 1024} KiB of local memory a group"
    units = in_units(found.problem, by_unit=found.roofline.by_unit)
    yield (
        f"model from {model.origin}: {quantity(found.roofline.peak, 'FLOPS')} {units}, reads "
        f"{quantity(model.read_bandwidth, 'B/s')}, copies {quantity(model.copy_bandwidth, 'B/s')}, local memory "
        f"{quantity(model.local_bandwidth, 'B/s')}, latency {span(model.latency)}, a launch {span(model.launch)}, a group "
        f"{span(model.group)}, a barrier {span(model.barrier)}"
    )


def in_units(problem: GemmProblem, *, by_unit: bool) -> str:
    """What a peak is of: what the matrix unit multiplies, or the sums that the other units make."""
    if not by_unit:
        return f"in {problem.accumulator}"
    multiplied = problem.dtype if problem.precision == FULL else problem.precision
    return f"in {multiplied} by the matrix unit"


def _roofline(found: Explanation) -> Iterator[str]:
    roof = found.roofline
    if not roof.operations:
        yield f"nothing to multiply; {quantity(roof.nbytes, 'B')} to move at least"
        return
    yield (
        f"{quantity(roof.operations, 'FLOP')} over {quantity(roof.nbytes, 'B')} at least: {roof.intensity:.3g} FLOP/B; the "
        f"ridge is at {roof.ridge:.3g}: bound by {roof.bound}"
    )
    by_unit = " by the matrix unit" if roof.by_unit and roof.bound == "multiply-adds" else ""
    yield f"at best {span(roof.seconds)}, {quantity(roof.attainable(roof.intensity), 'FLOPS')}{by_unit}"


def _plan(found: Explanation) -> Iterator[str]:
    plan = found.plan
    yield f"{plan.variant}, from {plan.entry}"
    origins = dict.fromkeys(choice.origin for _, choice in plan.parameters)
    for origin in origins:
        told = " ".join(f"{name}={choice.value}" for name, choice in plan.parameters if choice.origin == origin)
        yield told if origin == plan.entry else f"{told}  ({origin})"
    for number, launch in enumerate(plan.launches, 1):
        local = launch.local_bytes + launch.dynamic_local_bytes
        groups, items = _product(launch.groups), _product(launch.work_group)
        yield (
            f"launch {number}: {launch.kernel.function}, {_counted(groups, 'group')} of {_counted(items, 'work-item')}, "
            f"{quantity(local, 'B')} of local memory"
        )
    for scratch in plan.scratch:
        yield f"scratch {scratch.name}: {quantity(scratch.nbytes, 'B')}"


def _counted(number: float, what: str) -> str:
    return f"{number:,.0f} {what}{'' if number == 1 else 's'}"


def _product(extent: Sequence[int]) -> int:
    return extent[0] * extent[1] * extent[2]


def _prediction(found: Explanation) -> Iterator[str]:
    prediction = found.prediction
    if prediction is None:
        yield "nothing: the result has no elements"
        return
    yield f"{span(prediction.seconds)}{_rate(found, prediction.seconds)}; its parts overlap:"
    yield from _bars({name: seconds for name, seconds in prediction.parts.items() if seconds > 0})
    if (corrected := _corrected(found)) is not None:
        yield corrected
    facts = dict(prediction.facts)
    groups, waves, tail = (facts.pop(name, None) for name in ("groups", "waves", "tail"))
    if groups is not None and waves is not None and tail is not None:
        yield f"{_counted(groups, 'tile')} in {_counted(waves, 'wave')}, {100 * tail:.0f} % of the last one idle"
    products, padded, nbytes = (facts.pop(name, None) for name in ("multiply-adds", "padded", "bytes"))
    told = [f"{name} {value:.4g}" for name, value in facts.items()]
    if nbytes is not None:
        told.insert(0, f"{quantity(nbytes, 'B')} to move at least")
    if products is not None and found.roofline.operations:
        beyond = (
            f", and {padded / products - 1:.0%} more in tiles beyond the edge" if padded and padded > products else ""
        )
        told.insert(0, f"{quantity(products, 'multiply-adds')}{beyond}")
    if told:
        yield "; ".join(told)


def _corrected(found: Explanation) -> str | None:
    """What trials make of the prediction, which is what was compared; None where that is the prediction."""
    own = found.chosen
    if own.compared is None or own.factor * own.doubt == 1:
        return None
    told = f"trials of {own.origin} multiply it by {own.factor:.3g}"
    if own.doubt != 1:
        told += f", and by {own.doubt:.3g} as none is near"
    return f"{told}: {span(own.compared)} was compared"


def _rate(found: Explanation, seconds: float) -> str:
    """How a time compares with the roof; empty where there is no work."""
    if not found.roofline.operations or not seconds:
        return ""
    rate = quantity(found.roofline.operations / seconds, "FLOPS")
    left_out = "caches" if found.roofline.by_unit else "matrix units and caches"
    beyond = f", in which {left_out} are not" if seconds < found.roofline.seconds else ""
    return f", {rate}, {100 * found.roofline.seconds / seconds:.0f} % of the roof{beyond}"


def _bars(parts: dict[str, float]) -> Iterator[str]:
    longest = max(parts.values(), default=0.0)
    width = max(map(len, parts), default=0)
    for name, seconds in sorted(parts.items(), key=lambda part: -part[1]):
        yield f"  {name:{width}}  {span(seconds):>8}  {'█' * round(BAR * seconds / longest)}".rstrip()


def _allocations(found: Explanation) -> Iterator[str]:
    if any(count > 1 for count in found.allocations.values()):
        told = ", ".join(f"{name.upper()} in {count}" for name, count in found.allocations.items())
        yield f"arrays on the device: {told}, since one has {quantity(found.device.max_allocation, 'B')} at most"


def _schedule(found: Explanation) -> Iterator[str]:
    schedule = found.schedule
    if schedule is None:
        return
    traffic, model = schedule.traffic, found.model
    yield (
        f"arrays on the host pass through {quantity(schedule.memory, 'B')} of the device: "
        f"{_counted(schedule.count, 'tile')} of {schedule.rows:,} × {schedule.columns:,} in {schedule.resident}, "
        f"{schedule.depth:,} terms at a time; {schedule.a_panels} panels of A and {schedule.b_panels} of B stay at a time"
    )
    yield (
        f"moved: {quantity(traffic.elements, 'elements')}, {quantity(schedule.moved_bytes, 'B')} "
        f"(A {quantity(traffic.a, 'elements')}, B {quantity(traffic.b, 'elements')}, "
        f"C and D {quantity(traffic.c + traffic.d, 'elements')})"
    )
    if schedule.bound:
        yield (
            f"bound: 2mnk/√M is {quantity(schedule.bound, 'elements')}, where M is "
            f"{quantity(schedule.fast_elements, 'elements')}: {traffic.elements / schedule.bound:.2f} of that is moved, "
            f"{schedule.ratio:.2f} of what no schedule does without"
        )
    yield (
        f"expected: {span(schedule.seconds)}{_rate(found, schedule.seconds)}; copies alone take "
        f"{span(schedule.moved_bytes / model.link_bandwidth)} at {quantity(model.link_bandwidth, 'B/s')}"
    )


def _measured(found: Explanation) -> Iterator[str]:
    measured = found.measured
    if measured is None:
        return
    verified = {True: "verified", False: "WRONG: its result failed verification", None: "not verified"}[
        measured.verified
    ]
    yield f"{span(measured.seconds)} ±{100 * measured.spread:.1f} %{_rate(found, measured.seconds)}; {verified}"
    if measured.plan.variant != found.plan.variant or measured.plan.values != found.plan.values:
        told = " ".join(f"{name}={value}" for name, value in measured.plan.values.items())
        yield f"what ran is another plan, {measured.plan.variant} {told}: as it was compiled, the first does not run here"
    elif found.prediction and found.prediction.seconds:
        yield f"predicted: {found.prediction.seconds / measured.seconds:.2f} of that"


def _candidates(found: Explanation) -> Iterator[str | tuple[str, int]]:
    if found.prediction is None:
        return
    own = found.chosen
    fitting = [each for each in found.considered if not each.passed_over]
    fitting.sort(key=lambda each: (not each.chosen, each.compared or 0.0))
    shown = [*_of_each_kernel(fitting)]
    width = max(len(each.kernel) for each in shown)
    ratios = [f"{each.compared / own.compared:.2f}×" if each.compared and own.compared else "" for each in shown]
    longest = max(6, *map(len, ratios))
    for each, ratio in zip(shown, ratios, strict=True):
        expected = "" if each.compared is None else span(each.compared)
        predicted = f"{span(each.seconds)} by the model" if each.seconds and each.compared != each.seconds else ""
        why = "the plan" if each.chosen else each.verdict
        told = "; ".join(filter(None, ["" if each.chosen else _apart(each, own), predicted, why]))
        yield f"{expected:>8} {ratio:>{longest}}  {each.kernel:{width}}  {told}", width + longest + 13
    if len(fitting) > len(shown):
        yield f"and {len(fitting) - len(shown)} more: --format json tells all"
    refused = [each for each in found.considered if each.passed_over]
    reasons = dict.fromkeys(f"passed over {each.kernel}: {_told(found, each)}" for each in refused)
    yield from [*reasons][:MOST_REASONS]
    if len(reasons) > MOST_REASONS:
        yield f"and {len(reasons) - MOST_REASONS} more are passed over"


def _of_each_kernel(considered: Sequence[Considered]) -> Iterator[Considered]:
    """The first of each kernel, and a few of that of the plan, which is the first; of all these the first few."""
    seen: dict[str, int] = {}
    told = 0
    for each in considered:
        seen[each.kernel] = seen.get(each.kernel, 0) + 1
        if seen[each.kernel] <= (MOST_TILINGS if each.kernel == considered[0].kernel else 1) and told < MOST_CANDIDATES:
            told += 1
            yield each


def _told(found: Explanation, each: Considered) -> str:
    """Why a candidate is passed over, without its name and the device's, which stand beside it."""
    return each.verdict.removeprefix(f"{each.kernel} on {found.device.label}: ")


def _apart(each: Considered, own: Considered) -> str:
    """The parameters in which a candidate differs from the plan, where it is of the same kernel."""
    if each.kernel != own.kernel:
        return ""
    return " ".join(f"{name}={value}" for name, value in each.parameters.items() if own.parameters.get(name) != value)


def _entries(found: Explanation) -> Iterable[str]:
    precedence = found.precedence
    if precedence.winner is not None:
        yield f"{precedence.winner.origin}: serves"
    for standing in precedence.passed_over:
        own = [each for each in found.considered if each.origin == standing.loaded.origin]
        if any(not each.passed_over for each in own):  # another kernel was asked for
            reasons = [f"it does not list {found.plan.variant}"]
        else:
            reasons = [*dict.fromkeys(f"{each.kernel}: {_told(found, each)}" for each in own)]
        yield f"{standing.loaded.origin}: passed over: {'; '.join(reasons) or 'none of its kernels serves'}"
    for standing in precedence.behind:
        yield f"{standing.loaded.origin}: {standing.lost}"
    if precedence.others:
        others = len(precedence.others)
        yield f"{others} more {'do' if others > 1 else 'does'} not match: gemmport configs --explain says by which key"
