"""In which order the kernels and tilings of an entry are tried for a problem: as the model predicts, corrected by the trials.

An entry without trials and with one tiling for each kernel is tried as it is written. Where a kernel has several, they are
sorted by their predictions; where there are trials, all kernels are, with all their tilings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gemmport import kernels
from gemmport.contracts.device_model import DeviceModel
from gemmport.contracts.kernel import Parameters, Rankings
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import GemmportError
from gemmport.core.problem import GemmProblem
from gemmport.planning import preparation
from gemmport.planning.correction import Correction, Place, Ratio, Way
from gemmport.planning.schema import Entry, Trial


@dataclass(frozen=True)
class Choice:
    """What an entry has for a problem.

    Attributes:
        kernel: its name. stated: the parameters that the entry states for it; none for what its model suggests.
        factor: by what the entry's trials multiply a prediction of it; 1 where there are none.
        doubt: by what else it is multiplied, because no trial of it is near.
    """

    kernel: str
    stated: Parameters
    factor: float = 1.0
    doubt: float = 1.0


def ordered(entry: Entry, problem: GemmProblem, rankings: Rankings) -> list[Choice]:
    """What an entry has for a problem, in the order in which it is to be tried on the device of these rankings."""
    device, model = rankings.device, rankings.model
    listed = [Choice(name, tiling) for name, tilings in entry.kernels.items() for tiling in tilings]
    if not entry.is_searched or problem.empty:
        return listed
    if entry.trials:
        correction, place = _correction(entry, device, model), Place.of(problem)
        listed = [_corrected(each, correction, place, problem, rankings) for each in listed]
    names = list(entry.kernels)

    def key(each: Choice) -> tuple[float, float]:
        predicted = predict(each.kernel, each.stated, problem, rankings)
        expected = math.inf if predicted is None else predicted * each.factor * each.doubt
        return (0.0 if entry.trials else names.index(each.kernel)), expected

    return sorted(listed, key=key)


def _corrected(
    each: Choice, correction: Correction, place: Place, problem: GemmProblem, rankings: Rankings
) -> Choice:  # fmt: skip
    """What trials of the tiling that the problem is computed with say of it: a model may suggest others for other problems."""
    tiling = resolved(each.kernel, each.stated, problem, rankings)
    if tiling is None:
        return each
    way = Way.of(each.kernel, tiling, problem)
    return Choice(each.kernel, each.stated, correction.factor(place, way), correction.doubt(place, way))


def predict(kernel: str, stated: Parameters, problem: GemmProblem, rankings: Rankings) -> float | None:
    """Seconds that a kernel is expected to take with the parameters that are stated; None where it cannot compute the problem
    on the device of these rankings with them.
    """
    values = resolved(kernel, stated, problem, rankings)
    if values is None:
        return None
    variant = kernels.variant(kernel)
    return preparation.predicted(variant, problem, rankings.device, rankings.model, values).seconds


def resolved(kernel: str, stated: Parameters, problem: GemmProblem, rankings: Rankings) -> Parameters | None:
    """All parameters of a kernel where some, or none, are stated; None where it cannot compute the problem with them."""
    variant, device = kernels.variant(kernel), rankings.device
    taken = preparation.as_taken(variant, problem)
    if variant.unsupported(taken, device):
        return None
    try:
        values = variant.complete(stated or rankings.suggested(variant, taken))
    except GemmportError:
        return None
    return None if variant.unfit(values, taken, device) else values


_corrections: dict[int, tuple[Entry, DeviceInfo, DeviceModel, Correction]] = {}
"""By the id of an entry, with that it was made of: to predict all of its trials takes longer than the rest of a plan."""

_MOST_CORRECTIONS = 64


def _correction(entry: Entry, device: DeviceInfo, model: DeviceModel) -> Correction:
    known = _corrections.get(id(entry))
    if known is not None and known[0] is entry and known[1] == device and known[2] is model:
        return known[3]
    correction = Correction(_ratios(entry, device, model))
    if len(_corrections) >= _MOST_CORRECTIONS:
        _corrections.clear()
    _corrections[id(entry)] = (entry, device, model, correction)
    return correction


def _ratios(entry: Entry, device: DeviceInfo, model: DeviceModel) -> Iterator[Ratio]:
    """What the trials of an entry took over what is predicted of them."""
    rankings = Rankings(device, model)
    for trial in entry.trials:
        problem, place = _problem(trial), _place(trial)
        for kernel, each in trial.seconds.items():
            for at, seconds in each.items():
                tiling = resolved(kernel, entry.kernels[kernel][at], problem, rankings)
                if tiling is not None and (predicted := predict(kernel, tiling, problem, rankings)):
                    yield Ratio(place, Way.of(kernel, tiling, problem), seconds / predicted)


def _problem(trial: Trial) -> GemmProblem:
    return GemmProblem.create(
        trial.m, trial.n, trial.k, batch=trial.batch, dtype=trial.dtype, trans_a=trial.ops[0], trans_b=trial.ops[1]
    )


def _place(trial: Trial) -> Place:
    return Place.at(trial.m, trial.n, trial.k, trial.batch, trial.ops.upper(), trial.dtype)
