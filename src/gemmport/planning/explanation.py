"""Why a product is computed the way it is, and how long that is expected to take: the facts behind `gemmport explain`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from gemmport import kernels
from gemmport.contracts.device_model import DeviceModel, Prediction
from gemmport.contracts.kernel import Parameters, Rankings
from gemmport.core.device import DeviceInfo
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.core.segments import segment_sizes
from gemmport.planning import preparation
from gemmport.planning.lookup import Configuration
from gemmport.planning.planner import AUTO, Candidate, candidates, make_plan
from gemmport.planning.precedence import Precedence, Standing, precedence
from gemmport.planning.schedule import Schedule, fits, operand_bytes, operand_shapes, schedule, usual_memory

SCHEMA = 1
"""Of `Explanation.to_dict`; docs/explain.md describes it."""


@dataclass(frozen=True)
class Roofline:
    """Where a product stands under the roof of a device (S. Williams et al., "Roofline", CACM 52(4), 2009).

    Attributes:
        operations: of the product. nbytes: the least that it moves: operands once, results once.
        peak: operations per second, in the type of the sums: of the matrix unit, where the plan's kernel multiplies by it.
        bandwidth: bytes per second that the device reads from its memory.
        by_unit: whether the peak is the matrix unit's.
    """

    operations: int
    nbytes: int
    peak: float
    bandwidth: float
    by_unit: bool = False

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.operations / self.nbytes if self.nbytes else 0.0

    @property
    def ridge(self) -> float:
        """Operations per byte from which on the peak bounds a product, and not the bandwidth."""
        return self.peak / self.bandwidth

    @property
    def bound(self) -> Literal["multiply-adds", "memory"]:
        """What bounds the product."""
        return "multiply-adds" if self.intensity >= self.ridge else "memory"

    def attainable(self, intensity: float) -> float:
        """Operations per second at most, of a product with so many per byte."""
        return min(self.peak, intensity * self.bandwidth)

    @property
    def seconds(self) -> float:
        """The product takes so long at least."""
        return max(self.operations / self.peak, self.nbytes / self.bandwidth)


@dataclass(frozen=True)
class Considered:
    """A kernel with parameters that might have been taken.

    Attributes:
        seconds: that its model predicts; None where it cannot compute the product here, or there is nothing to compute.
        factor: by what the trials of its entry multiply that; 1 where there are none.
        doubt: by what else it is multiplied, because no trial of it is near.
        chosen: whether it is the plan's. passed_over: whether it would not do, or would be a bad choice.
        verdict: why it was not chosen; empty where it was.
    """

    kernel: str
    parameters: Parameters
    origin: str
    seconds: float | None
    chosen: bool = False
    passed_over: bool = False
    verdict: str = ""
    factor: float = 1.0
    doubt: float = 1.0

    @property
    def compared(self) -> float | None:
        """Seconds that the planner compared: those of the model, corrected by trials, and doubted."""
        return None if self.seconds is None else self.seconds * self.factor * self.doubt


@dataclass(frozen=True)
class Measured:
    """What a product took.

    Attributes:
        seconds: of the plan, by events on the device: the median; `spread`: half the distance between the quartiles, relative.
        verified: whether the result was right; None where it was not looked at.
        plan: what ran: another than was explained where the device refused that as it was compiled.
    """

    seconds: float
    spread: float
    verified: bool | None
    plan: Plan


@dataclass(frozen=True)
class Explanation:
    """A plan, why it was made, and what is expected of it.

    Attributes:
        model: what the device is taken for.
        prediction: None where there is nothing to compute.
        considered: in the order in which the planner tried them, the plan's own among them.
        precedence: how the entries of the configuration stand for it.
        measured: None where it was not run.
        schedule: of arrays on the host, where the device has no room for them, or is to give less; else None. The rest is
            then said of the product as a whole.
    """

    plan: Plan
    model: DeviceModel
    roofline: Roofline
    prediction: Prediction | None
    considered: tuple[Considered, ...]
    precedence: Precedence
    measured: Measured | None = None
    schedule: Schedule | None = None

    @property
    def problem(self) -> GemmProblem:
        """What is computed."""
        return self.plan.problem

    @property
    def device(self) -> DeviceInfo:
        """Where."""
        return self.plan.device

    @property
    def allocations(self) -> dict[str, int]:
        """In how many allocations each operand lies as an array on the device; empty where the device has no room for all."""
        problem, most = self.problem, self.device.max_allocation
        if sum(operand_bytes(problem).values()) > self.device.memory:
            return {}
        return {
            name: len(segment_sizes(shape, max(most // problem.element_type(name).itemsize, 1)))
            for name, shape in operand_shapes(problem).items()
        }

    @property
    def chosen(self) -> Considered:
        """The plan's own among the candidates."""
        return next(each for each in self.considered if each.chosen)

    def __str__(self) -> str:
        from gemmport.planning.explanation_page import page  # noqa: PLC0415 - it is told in the words of that module

        return page(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; docs/explain.md describes it."""
        plan, roofline, measured = self.plan, self.roofline, self.measured
        return {
            "schema": SCHEMA,
            "problem": self.problem.to_dict(),
            "device": self.device.to_dict(),
            "model": {**asdict(self.model), "tilings": {k: [*map(dict, v)] for k, v in self.model.tilings.items()}},
            "roofline": {
                "operations": roofline.operations,
                "bytes": roofline.nbytes,
                "intensity": roofline.intensity,
                "peak": roofline.peak,
                "by_unit": roofline.by_unit,
                "bandwidth": roofline.bandwidth,
                "ridge": roofline.ridge,
                "bound": roofline.bound,
                "seconds": roofline.seconds,
            },
            "plan": {
                "kernel": plan.variant,
                "entry": plan.entry,
                "parameters": {name: {"value": c.value, "origin": c.origin} for name, c in plan.parameters},
                "launches": [
                    {
                        "kernel": f"{launch.kernel.stem}.{launch.kernel.function}",
                        "groups": launch.groups,
                        "work_group": launch.work_group,
                        "local_bytes": launch.local_bytes + launch.dynamic_local_bytes,
                    }
                    for launch in plan.launches
                ],
                "scratch": {scratch.name: scratch.nbytes for scratch in plan.scratch},
            },
            "prediction": self.prediction
            and {
                "seconds": self.prediction.seconds,
                "compared": self.chosen.compared,
                "parts": dict(self.prediction.parts),
                "facts": dict(self.prediction.facts),
            },
            "candidates": [
                {**asdict(each), "parameters": dict(each.parameters), "compared": each.compared}
                for each in self.considered
            ],
            "schedule": None if self.schedule is None else self.schedule.to_dict(),
            "allocations": self.allocations,
            "entries": _entries_to_dict(self.precedence),
            "measured": measured
            and {
                "seconds": measured.seconds,
                "spread": measured.spread,
                "verified": measured.verified,
                "kernel": measured.plan.variant,
                "parameters": measured.plan.values,
            },
        }


def explain(
    problem: GemmProblem,
    device: DeviceInfo,
    configuration: Configuration,
    *,
    kernel: str = AUTO,
    params: Parameters | None = None,
    params_origin: str = "params=",
    device_memory: int | None = None,
) -> Explanation:
    """Why a product is computed on a device as it is; the device need not be here.

    Args:
        kernel, params, params_origin: as `gemmport.planning.planner.make_plan`.
        device_memory: bytes that a product of arrays on the host may take on the device; default: all but what others need.

    Raises:
        GemmportError: as `make_plan`.
    """
    model = configuration.model(device)
    rankings = Rankings(device, model)
    plan = make_plan(
        problem, device, configuration, kernel=kernel, params=params, params_origin=params_origin, rankings=rankings
    )
    variant = kernels.variant(plan.variant)
    prediction = None if problem.empty else preparation.predicted(variant, problem, device, model, plan.values)
    told = [*([] if kernel == AUTO else [kernel]), *([params_origin] if params else [])]
    asked = f"{' with '.join(told)} was asked for" if told else ""
    standings = precedence(plan, configuration)
    return Explanation(
        plan,
        model,
        roofline(plan, model),
        prediction,
        tuple(_considered(plan, prediction, candidates(problem, device, configuration, rankings), standings, asked)),
        standings,
        schedule=_schedule(problem, device, configuration, kernel, params, device_memory),
    )


def _schedule(
    problem: GemmProblem, device: DeviceInfo, configuration: Configuration, kernel: str, params: Parameters | None,
    device_memory: int | None,
) -> Schedule | None:  # fmt: skip
    """How a product passes through the device; None where that has room for all operands."""
    if fits(problem, min(device_memory or device.memory, device.memory), device.max_allocation):
        return None
    model = configuration.model(device)

    def cost(product: GemmProblem) -> tuple[float, int]:
        made = make_plan(product, device, configuration, kernel=kernel, params=params)
        if product.empty:
            return 0.0, 0
        variant = kernels.variant(made.variant)
        return preparation.predicted(variant, product, device, model, made.values).seconds, made.scratch_bytes

    return schedule(problem, device, model, memory=device_memory or usual_memory(device), cost=cost)


def roofline(plan: Plan, model: DeviceModel) -> Roofline:
    """What bounds a plan, by the device's model."""
    problem, by_unit = plan.problem, peak_by_unit(plan, model)
    peak = by_unit or operations_per_multiply_add(problem) * model.rate(problem.accumulator)
    return Roofline(problem.flops, problem.bytes, peak, model.read_bandwidth, by_unit=by_unit > 0)


def peak_by_unit(plan: Plan, model: DeviceModel) -> float:
    """Operations per second of the matrix unit, by the device's model, where a plan's kernel multiplies by it; else 0."""
    variant = kernels.variant(plan.variant)
    taken = preparation.as_taken(variant, plan.problem)
    return operations_per_multiply_add(taken) * variant.unit_rate(taken, plan.device, model, plan.values)


def operations_per_multiply_add(problem: GemmProblem) -> int:
    """Of a problem's numbers."""
    return 8 if problem.accumulator.kind == "complex" else 2


def _considered(
    plan: Plan, prediction: Prediction | None, found: list[Candidate], standings: Precedence, asked: str
) -> list[Considered]:  # fmt: skip
    """The candidates, each once, with what was said against it; the plan's own in front where it is not among them."""
    seconds = prediction.seconds if prediction else None
    chosen = (plan.variant, plan.entry, plan.values)
    factor, doubt = next(
        ((each.factor, each.doubt) for each in found if (each.kernel, each.origin, each.parameters) == chosen),
        (1.0, 1.0),
    )
    own = Considered(plan.variant, plan.values, plan.entry, seconds, chosen=True, factor=factor, doubt=doubt)
    considered: dict[tuple[object, ...], Considered] = {}
    for each in found:
        other = Considered(
            each.kernel, each.parameters, each.origin, each.prediction.seconds if each.prediction else None,
            passed_over=bool(each.reason), factor=each.factor, doubt=each.doubt,
        )  # fmt: skip
        other = replace(other, verdict=each.reason or asked or _verdict(other, own, standings))
        key = (each.kernel, *sorted(each.parameters.items()))
        considered.setdefault(key, own if key == (own.kernel, *sorted(own.parameters.items())) else other)
    return [*considered.values()] if own in considered.values() else [own, *considered.values()]


def _verdict(candidate: Considered, own: Considered, standings: Precedence) -> str:
    """Why a candidate that would do is not the plan."""
    winner = standings.winner
    of_one_entry = candidate.origin == own.origin
    if winner is None or (of_one_entry and (winner.entry.trials or candidate.kernel == own.kernel)):
        slower = (candidate.compared or 0.0) >= (own.compared or 0.0)
        return "the plan is expected to be faster" if slower else "so small a gain is not counted on"
    if of_one_entry:
        return f"its entry prefers {own.kernel}"
    if any(candidate.origin == standing.loaded.origin for standing in standings.behind):
        return f"of {candidate.origin}, which lost"
    return "in no entry, tried last"


def _entries_to_dict(found: Precedence) -> dict[str, Any]:
    def told(standing: Standing) -> dict[str, Any]:
        unmet = [{"key": each.key, "wanted": each.wanted, "got": each.got} for each in standing.unmet]
        return {"entry": standing.loaded.origin, "lost": standing.lost, "unmet": unmet}

    return {
        "winner": found.winner.origin if found.winner else None,
        "passed_over": [told(standing) for standing in found.passed_over],
        "behind": [told(standing) for standing in found.behind],
        "others": [told(standing) for standing in found.others],
    }
