"""Problem + device + configuration → plan."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from gemmport import kernels
from gemmport.contracts.device_model import Prediction
from gemmport.contracts.kernel import KernelVariant, Parameters, Predictor, Rankings, Steps, check_limits
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import DtypeError, ParameterError, UnknownNameError, UnsupportedError
from gemmport.core.names import did_you_mean
from gemmport.core.plan import Buffer, Choice, Launch, Plan
from gemmport.core.problem import GemmProblem
from gemmport.core.quirks import reason_of_limit
from gemmport.planning import expectation, preparation
from gemmport.planning.lookup import Configuration
from gemmport.planning.schema import LoadedEntry
from gemmport.runtime.sources import has_source

log = logging.getLogger(__name__)

AUTO = "auto"


@dataclass(frozen=True)
class _Candidate:
    """A kernel that may serve, with the parameters of the entry that lists it."""

    variant: KernelVariant
    entry: LoadedEntry | None
    stated: Parameters = field(default_factory=dict)
    alone: bool = True
    """Whether the entry has nothing else for the problem that may be taken in its place."""
    parameters: Parameters | None = None
    """Those that the model chose; None where it was not asked yet."""
    factor: float = 1.0
    """By what the entry's trials multiply a prediction."""
    doubt: float = 1.0
    """By what else it is multiplied, because no trial is near."""

    @property
    def origin(self) -> str:
        if self.entry:
            return self.entry.origin
        return "the device's model" if self.parameters is not None else f"the defaults of {self.variant.name}"


def make_plan(
    problem: GemmProblem,
    device: DeviceInfo,
    configuration: Configuration,
    *,
    kernel: str = AUTO,
    params: Parameters | None = None,
    params_origin: str = "params=",
    without: Collection[str] = (),
    rankings: Rankings | None = None,
) -> Plan:
    """How the problem is computed on the device.

    With kernel "auto", the first kernel of the first matching entry that fits; with a name, that kernel with the
    parameters of the first matching entry that lists it. `params` go before any entry.

    Args:
        without: names of kernels that are left out: as compiled, they do not run on this device.
        rankings: of the device, by the configuration's model, where more is asked of them; None: there are none yet.

    Raises:
        DtypeError: the device does not compute in the problem's type.
        UnknownNameError: no such kernel or parameter.
        ParameterError: parameters that the user asked for break a rule or a limit of this device.
        UnsupportedError: the named kernel cannot compute this problem here, or none can; or the device is known to
            compute it wrongly.
    """
    arithmetic = problem.accumulator.arithmetic
    if arithmetic and arithmetic not in device.computes:
        raise DtypeError(
            f"{device.label} does not compute in {arithmetic}, which {problem.types} needs, only in integers and "
            f"{', '.join(sorted(device.computes))}: convert the input, or use another device"
        )
    if device.max_terms and problem.effective_k > device.max_terms:
        raise UnsupportedError(
            f"k = {problem.effective_k:,} is too large for {device.label}, which is known to add up wrongly beyond "
            f"{device.max_terms:,} terms{reason_of_limit(device, 'max_terms')}: split the sum into several products, or use "
            "another device"
        )
    model = configuration.model(device)
    rankings = rankings or Rankings(device, model)
    reasons: dict[str, str] = {}  # of each kernel the first: many have dozens of tilings

    def pass_over(name: str, reason: str) -> None:
        reasons.setdefault(name, reason)
        log.info("passed over %s", reason)

    for candidate in _candidates(problem, rankings, configuration, kernel):
        if candidate.variant.name in without:
            if candidate.alone and candidate.entry is not None and candidate.entry.asked_for:
                raise UnsupportedError(f"{candidate.origin} asks for {candidate.variant.name}, which does not run here")
            pass_over(candidate.variant.name, f"{candidate.variant.name}: left out")
            continue
        taken = preparation.as_taken(candidate.variant, problem)
        if kernel == AUTO and (reason := candidate.variant.declined(taken, device, model, rankings)):
            pass_over(candidate.variant.name, f"{candidate.variant.name}: {reason}")
            continue
        if kernel == AUTO and params:
            _check_names(candidate.variant, params, params_origin)
        user_chose = bool(params) or (candidate.alone and candidate.entry is not None and candidate.entry.asked_for)
        try:
            plan = _plan_with(candidate, problem, rankings, params or {}, params_origin)
        except UnsupportedError as error:
            if kernel != AUTO:
                raise
            pass_over(candidate.variant.name, str(error))
        except ParameterError as error:
            if user_chose:
                raise
            pass_over(candidate.variant.name, f"{candidate.origin}: {error}")
        else:
            log.info("%s on %s: %s from %s%s", problem, device.label, plan.variant, plan.entry, _told(plan))
            return plan
    raise UnsupportedError(f"no kernel fits {problem} on {device.label}: " + "; ".join(reasons.values()))


def _check_names(chosen: KernelVariant, params: Parameters, origin: str) -> None:
    """Raises UnknownNameError where a kernel that nobody named lacks a parameter: it says which kernels have it."""
    having = {each.name: {parameter.name for parameter in each.parameters} for each in kernels.variants()}
    for name in params:
        if name in having[chosen.name]:
            continue
        able = [kernel for kernel, names in having.items() if name in names]
        told = ", ".join(f"--kernel {each}" if origin == "--set" else f"kernel={each!r}" for each in able)
        near = did_you_mean(name, set().union(*having.values()))
        remedy = f"name one that has it: {told}" if able else f"no kernel has it{near}"
        raise UnknownNameError(
            f"{origin} must name parameters of the kernel that computes; got {str(name)[:100]}, and {chosen.name}, which was "
            f"chosen automatically, has none of that name; {remedy}"
        )


@dataclass(frozen=True)
class Candidate:
    """A kernel with parameters that may compute a product.

    Attributes:
        parameters: all of them. origin: where they come from.
        prediction: None where the kernel cannot compute the product on the device, and where D has no elements.
        reason: why it is passed over; empty where it may serve.
        factor: by what the trials of its entry multiply the prediction; 1 where there are none.
        doubt: by what else it is multiplied, because no trial of it is near.
    """

    kernel: str
    parameters: Parameters
    origin: str
    prediction: Prediction | None
    reason: str = ""
    factor: float = 1.0
    doubt: float = 1.0


def candidates(
    problem: GemmProblem, device: DeviceInfo, configuration: Configuration, rankings: Rankings | None = None
) -> list[Candidate]:
    """All that `make_plan` would try with kernel "auto", in its order, each with what the model expects of it: the first
    without a reason is what it chooses. A kernel whose parameters the model chooses is there with all that it considers.

    Args:
        rankings: as `make_plan`.
    """
    model = configuration.model(device)
    rankings = rankings or Rankings(device, model)
    found: list[Candidate] = []
    for candidate in _candidates(problem, rankings, configuration, AUTO):
        variant = candidate.variant
        stated = candidate.stated if candidate.entry else candidate.parameters
        taken = preparation.as_taken(variant, problem)
        useless = problem.empty or variant.unsupported(taken, device) is not None
        considered = [] if stated or useless else rankings.considered(variant, taken)
        declined = variant.declined(taken, device, model, rankings)
        predict: Predictor | None = None
        for parameters in [stated] if stated else considered or [{}]:
            values = variant.complete(parameters)
            if any((one.kernel, one.parameters) == (variant.name, values) for one in found):
                continue
            reason, prediction = declined or "", None
            try:
                _plan_with(replace(candidate, parameters=values), problem, rankings, {}, "")
            except (UnsupportedError, ParameterError) as error:
                reason = reason or str(error)
            else:
                if not problem.empty:
                    predict = predict or preparation.predictor(variant, problem, device, model)
                    prediction = predict(values)
            found.append(
                Candidate(variant.name, values, candidate.origin, prediction, reason, candidate.factor, candidate.doubt)
            )
    return found


def _told(plan: Plan) -> str:
    """The parameters of a plan, and where those come from that are not its entry's."""
    told = []
    for name, choice in plan.parameters:
        elsewhere = f" ({choice.origin})" if choice.origin != plan.entry else ""
        told.append(f"{name}={choice.value}{elsewhere}")
    return f": {' '.join(told)}" if told else ""


def _candidates(
    problem: GemmProblem, rankings: Rankings, configuration: Configuration, kernel: str
) -> Iterator[_Candidate]:
    """Kernels in the order in which they are tried: those that entries list, with the entries' parameters; the same ones with
    those that the model or they themselves suggest; and all kernels, with all that they consider, by the time that the model
    expects.
    """
    named = None if kernel == AUTO else kernels.variant(kernel)
    listed: list[KernelVariant] = []
    for entry in configuration.matching(rankings.device, problem):
        found = expectation.ordered(entry.entry, problem, rankings)
        alone = not entry.entry.is_searched
        for choice in found:
            if named is None or choice.kernel == named.name:
                listed.append(kernels.variant(choice.kernel))
                yield _Candidate(listed[-1], entry, choice.stated, alone, factor=choice.factor, doubt=choice.doubt)
    for variant in dict.fromkeys((*listed, named) if named else listed):
        yield _Candidate(variant, None)
    if named is None:
        yield from _by_model(problem, rankings)


def _by_model(problem: GemmProblem, rankings: Rankings) -> list[_Candidate]:
    """All kernels with all that they consider, the fastest by the model first. Behind them those that cannot compute the
    product, and in the order of the family all where there is nothing to compute.
    """
    device, model = rankings.device, rankings.model
    found: list[tuple[float, _Candidate]] = []
    for variant in kernels.variants():
        taken = preparation.as_taken(variant, problem)
        if problem.empty or variant.unsupported(taken, device) is not None:
            found.append((math.inf, _Candidate(variant, None, parameters={})))
            continue
        predict = preparation.predictor(variant, problem, device, model)
        for parameters in rankings.considered(variant, taken) or [{}]:
            expected = predict(variant.complete(parameters)).seconds
            found.append((expected, _Candidate(variant, None, parameters=parameters)))
    found.sort(key=lambda pair: pair[0])
    return [candidate for _, candidate in found]


def _plan_with(
    candidate: _Candidate,
    problem: GemmProblem,
    rankings: Rankings,
    params: Parameters,
    params_origin: str,
) -> Plan:
    variant, device = candidate.variant, rankings.device
    taken = preparation.as_taken(variant, problem)
    if reason := variant.unsupported(taken, device):
        raise UnsupportedError(f"{variant.name} on {device.label}: {reason}")
    stated = candidate.stated
    suggested: Parameters = {}
    if not (stated or params or problem.empty):
        chosen = candidate.parameters
        suggested = rankings.suggested(variant, taken) if chosen is None else chosen
    values = variant.complete({**suggested, **stated, **params})
    if reason := variant.unfit(values, taken, device):
        raise ParameterError(f"{variant.name} on {device.label}: {reason}")
    steps = Steps([]) if problem.empty else preparation.steps(variant, problem, device, values)
    for launch in steps.launches:
        if not has_source(launch.kernel, device.language):
            raise UnsupportedError(
                f"{variant.name} on {device.label}: {launch.kernel.stem} must have a source in {device.language}, and has none"
            )
        check_limits(variant.name, launch, values, device)
    needed = variant.registers(values, taken) * math.prod(variant.work_group(values))
    if device.registers and not problem.empty and needed > device.registers:
        raise ParameterError(
            f"{variant.name} keeps {needed:,} registers of sums and fragments per group; "
            f"{device.label} has {device.registers:,}"
        )
    for scratch in steps.scratch:
        if scratch.nbytes > device.max_allocation:
            raise UnsupportedError(
                f"{variant.name} on {device.label}: its scratch memory {scratch.name} takes {scratch.nbytes:,} bytes; "
                f"the device allows {device.max_allocation:,} in one allocation"
            )

    def origin(name: str) -> str:
        if name in params:
            return params_origin
        if name in suggested:
            return f"the model of {variant.name} ({rankings.model.origin})"
        return candidate.origin if name in stated else f"the defaults of {variant.name}"

    return Plan(
        problem=problem,
        device=device,
        variant=variant.name,
        parameters=tuple((name, Choice(value, origin(name))) for name, value in values.items()),
        entry=candidate.origin,
        launches=tuple(steps.launches),
        scratch=tuple(steps.scratch),
        meanwhile=() if problem.empty else _meanwhile(variant, problem, device, values),
    )


def _meanwhile(
    variant: KernelVariant, problem: GemmProblem, device: DeviceInfo, values: Parameters
) -> tuple[Launch, ...]:
    """Launches of programs that compile sooner than a plan's own, without C where it is not read; none where there are none."""
    sooner = variant.sooner(values, device)
    if not sooner:
        return ()
    launches = preparation.steps(variant, problem, device, sooner).launches
    if problem.reads("c"):
        return tuple(launches)
    without_c = ("READS_C", 0)
    return tuple(
        replace(launch, kernel=replace(launch.kernel, defines=(*launch.kernel.defines, without_c)))
        if Buffer("c") in launch.arguments
        else launch
        for launch in launches
    )
