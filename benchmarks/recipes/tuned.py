"""Tables of docs/tuning-studies.md that say how near predictions come, and where the tuner's choices are the worst."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, product
from statistics import geometric_mean, median

import predictions

from gemmport.core.device import DeviceInfo
from gemmport.core.problem import GemmProblem
from gemmport.planning.correction import Place
from gemmport.planning.lookup import Configuration, load_configuration
from gemmport.planning.planner import make_plan
from gemmport.planning.schema import Trial
from gemmport.tuning.measuring import LOOK_SECONDS
from recipes.table import CPUS, ROOT, Files, Recipe, Result, Table, hundredths, times

WITHIN = 1.25
"""The factor of the aim."""

MODELS = ROOT / "benchmarks" / "models"

_SQUARES = tuple(f"{size}squares-{dtype}" for size in ("", "large-") for dtype in ("float32", "float64"))
_ODD = tuple(f"odd-and-skinny-{dtype}" for dtype in ("float32", "float64"))


def _runs(device: str, *names: str) -> list[str]:
    return [f"{device}/run/{name}.json" for name in names]


def predicted(files: Files) -> Table:
    """How many times of choices the models of today predict within the factor."""
    h200 = _timed(files, _runs("h200", "workloads-float32"), unverified=True)
    intel, pocl31 = (_timed(files, _runs(name, *_SQUARES, *_ODD)) for name in ("intel", "pocl31"))
    shipped, zen4 = load_configuration(()), load_configuration((MODELS / "zen4.yaml",))
    squares = "squares, odd and skinny"
    cells = [
        ("H200, CUDA", "92 workloads", shipped, [one for one in h200 if one.device.backend == "cuda"]),
        ("H200, OpenCL", "92 workloads", shipped, [one for one in h200 if one.device.backend == "opencl"]),
        ("H100, CUDA", "choices", shipped, _timed(files, ["h100/tuning/unseen-cuda.json"])),
        ("H100, OpenCL", "choices", shipped, _timed(files, ["h100/tuning/unseen-opencl.json"])),
        ("Zen 4, Intel", squares, zen4, intel),
        ("Zen 4, Intel", "choices", zen4, _timed(files, ["intel/tuning/unseen.json"])),
        ("Zen 4, PoCL 3.1", squares, zen4, pocl31),
        ("Zen 4, PoCL 3.1", "of these, the half held out", zen4, [one for one in pocl31 if one.half == "held"]),
        ("Zen 4, PoCL 3.1", "choices", zen4, _timed(files, ["pocl31/tuning/unseen.json"])),
        ("Zen 4, PoCL 3.0", "squares, without a model", zen4, _timed(files, _runs("pocl30", *_SQUARES))),
    ]
    for own, name in CPUS.items():
        found = _timed(files, [f"zen3/tuning/unseen-{own}.json"])
        cells.append((f"Zen 3, {name}", "choices", load_configuration((MODELS / f"zen3-{own}.yaml",)), found))
    return Table(
        ["device", "times of", "times>", "within 1.25>", "least>", "median>", "most>"],
        [[device, what, *_shares(found, models)] for device, what, models, found in cells],
    )


def _timed(files: Files, names: Iterable[str], *, unverified: bool = False) -> list[predictions.Timed]:
    """Of documents, the times of what the planner chose."""
    return [
        one
        for name in names
        for one in predictions.timed_in(files.document(name), unverified=unverified)
        if one.chosen
    ]  # fmt: skip


def _shares(found: Sequence[predictions.Timed], models: Configuration) -> list[str]:
    ratios = [one.predicted(models).seconds / one.seconds for one in found]
    quantiles = (min(ratios), median(ratios), max(ratios))
    return [str(len(ratios)), f"{predictions.share(ratios, WITHIN):.0%}", *map(hundredths, quantiles)]


def worst_regrets(files: Files) -> Table:
    """Of each CPU runtime the product with the worst regret: trials of a neighbour, and what was measured in turns."""
    # a neighbour among the products that were tuned, and two candidates: kernels, and their places in the entry
    cases = {
        "Intel": ("intel", (1, 2048, 1024), ("gemv", "0"), ("gemv", "1")),
        "PoCL 3.1": ("pocl31", (64, 2048, 256), ("packed", "0"), ("packed", "1")),
        "PoCL 3.0": ("pocl30", (128, 128, 128), ("direct", "0"), ("packed", "0")),
    }
    rows = []
    for name, (own, neighbour, kept, lost) in cases.items():
        document = files.document(f"zen3/tuning/unseen-{own}.json")
        unseen = [one for one in document["results"] if one["source"] == "unseen"]
        worst = max(unseen, key=lambda one: one["tuned"]["regret"])
        entry = next(x for x in document["entries"] if x["name"].endswith(worst["problem"]["dtype"]))
        seconds = next(x["seconds"] for x in entry["trials"] if (x["m"], x["n"], x["k"]) == neighbour)
        looks = [_micro(seconds[kernel][place]) for kernel, place in (kept, lost)]
        problem = worst["problem"]
        tilings = entry["kernels"][lost[0]]
        in_turns = [_micro(x) for x in (worst["tuned"]["seconds"], _seconds_of(worst, lost[0], tilings[int(lost[1])]))]
        product = times(problem["m"], problem["n"], problem["k"])
        kernels = [f"`{kernel}`" for kernel in (kept[0], lost[0])]
        rows.append([name, product, f"{worst['tuned']['regret']:.3f}", times(*neighbour), *kernels, *looks, *in_turns])
    head = ["runtime", "product", "regret>", "its neighbour", "chosen", "rejected"]
    at = (f"{what}, {where}>" for where in ("neighbour", "product") for what in ("chosen", "rejected"))
    return Table([*head, *at], rows)


def _micro(seconds: float) -> str:
    return f"{1e6 * seconds:.0f}"


def _seconds_of(result: Result, kernel: str, tiling: Mapping[str, object]) -> float:
    """What a candidate took in turns with the choices."""
    names = ("shipped", "tuned", "calibrated", "model", "best")
    return next(
        float(own["seconds"])
        for own in (result[name] for name in names)
        if own["kernel"] == kernel and own["parameters"] == tiling
    )


LOOKS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "the first call": lambda calls: calls[0],
    "the least of two": lambda calls: min(calls[:2]),
    "the least of five": lambda calls: min(calls[:5]),
    "the least in 20 ms": lambda calls: min(
        one for one, before in zip(calls, accumulate(calls, initial=0.0), strict=False) if before < LOOK_SECONDS
    ),
}
"""Ways to look at a candidate, by their names; each is given the calls that follow its check, in order."""


def first_looks(files: Files) -> Table:
    """What looks at candidates tell, over the medians of their samples."""
    rows = []
    for own, runtime in CPUS.items():
        results = files.results(f"xeon/study/looks-{own}.json")
        for name, look in LOOKS.items():
            ratios = [look(one["calls"]) / median(one["samples"]) for one in results]
            beyond = (f"{sum(ratio > most for ratio in ratios) / len(ratios):.0%}" for most in (1.25, 2.0))
            rows.append([runtime, str(len(ratios)), name, hundredths(median(ratios)), *beyond, hundredths(max(ratios))])
    return Table(["runtime", "candidates>", "look", "median>", "beyond 1.25>", "beyond 2>", "most>"], rows)


Measured = dict[GemmProblem, dict[tuple[str, object], float]]
"""Of each product the seconds of each kernel, `direct` with either THREADSX."""


def _measured(files: Files, machine: str, runtime: str, *studies: str) -> tuple[DeviceInfo, Measured]:
    """What `packed` and `direct`'s two tiles took in studies of a runtime, for the products that both were measured for."""
    found: Measured = {}
    for kernel, study in product(("direct", "packed"), studies):
        name = f"{machine}/study/{kernel}{study and '-'}{study}-{runtime}.json"
        if not files.names(name):
            continue
        document = files.document(name)
        (told,) = document["environment"]["devices"].values()
        for one in document["results"]:
            problem = GemmProblem.create(
                one["m"], one["n"], one["k"],
                batch=one["batch"], dtype=one["dtype"], trans_a=one["trans_a"], trans_b=one["trans_b"],
            )  # fmt: skip
            found.setdefault(problem, {}).update(
                ((trial["kernel"], trial["parameters"].get("THREADSX")), trial["seconds"]["median"])
                for trial in one["trials"] if trial["set"]
            )  # fmt: skip
    device = DeviceInfo.from_dict({name: value for name, value in told.items() if name != "runtime"})
    return device, {each: own for each, own in found.items() if {"direct", "packed"} <= {kernel for kernel, _ in own}}


def _regret(
    problem: GemmProblem, device: DeviceInfo, seconds: Mapping[tuple[str, object], float], own: Configuration
) -> float:
    """What the planner's choice takes over the best time."""
    plan = make_plan(problem, device, own)
    return seconds[plan.variant, plan.values.get("THREADSX")] / min(seconds.values())


def held_out_choices(files: Files, machine: str) -> Table:
    """What today's choices for small cubes that are in no trial take, over the best of `packed` and of `direct`'s two tiles."""
    shipped, rows = load_configuration(()), []
    for own, runtime in CPUS.items():
        device, measured = _measured(files, machine, own, "held")
        regrets = [
            (_regret(problem, device, seconds, shipped), f"{problem.m} in {problem.dtype}")
            for problem, seconds in measured.items()
        ]  # fmt: skip
        worst = [f"{regret:.2f} ({name})" for regret, name in sorted(regrets, reverse=True)[:2]]
        near = sum(regret <= NEAR for regret, _ in regrets)
        rows.append([runtime, str(len(regrets)), str(near), *worst])
    return Table(["runtime", "products>", f"at most {NEAR}>", "the worst>", "the next>"], rows)


STUDIES = "held", "", "small", "tiny", "batches", "batches-of-types"
"""What `direct` and `packed` were measured for beside each other; "" and "small" are the same products."""


def choices_without_their_trials(files: Files) -> Table:
    """What choices take over the best, where the planner does not know the product's own trial."""
    shipped, rows = load_configuration(()), []
    for machine, (own, runtime) in product(("xeon", "zen4"), CPUS.items()):
        device, measured = _measured(files, machine, own, *STUDIES)
        regrets = [
            _regret(problem, device, seconds, _without_trials_of(problem, shipped))
            for problem, seconds in measured.items()
        ]
        near = sum(regret <= NEAR for regret in regrets)
        told = [str(len(regrets)), str(near), f"{geometric_mean(regrets):.3f}", hundredths(max(regrets))]
        rows.append([{"xeon": "Xeon", "zen4": "Zen 4"}[machine], runtime, *told])
    return Table(["machine", "runtime", "products>", f"at most {NEAR}>", "geometric mean>", "the worst>"], rows)


def _without_trials_of(problem: GemmProblem, configuration: Configuration) -> Configuration:
    place = Place.of(problem)

    def is_another(trial: Trial) -> bool:
        return Place.at(trial.m, trial.n, trial.k, trial.batch, trial.ops.upper(), trial.dtype) != place

    entries = (
        replace(each, entry=replace(each.entry, trials=tuple(filter(is_another, each.entry.trials))))
        for each in configuration.entries
    )
    return replace(configuration, entries=tuple(entries))


NEAR = 1.05
"""Times the best time: what is no slower counts as the best."""

DESIGNS = {
    "looks of one call": "-call",
    "looks of 20 ms": "-looks",
    "and what is kept, tried for all": "-kept",
    "and trials of suggested tiles": "",
}
"""What the tuner did → what the names of its files end in."""


def designs_on_a_xeon(files: Files) -> Table:
    """What the tuner chose for products that it never saw, by its designs, each on top of those above it."""
    rows = []
    for own, runtime in CPUS.items():
        for design, suffix in DESIGNS.items():
            name = f"xeon/tuning/unseen-{own}{suffix}.json"
            if not files.names(name):  # not all were measured
                continue
            document = files.document(name)
            tuned = document["summary"]["unseen"]["tuned"]
            speed = f"{tuned['geometric mean']:.3f}, {tuned['worst']:.3f}"
            regret = f"{tuned['median regret']:.3f}, {tuned['worst regret']:.3f}"
            rows.append([runtime, design, str(document["candidates"]), speed, regret, f"{tuned['predicted']:.0%}"])
    head = ["runtime", "design", "candidates>", "speed, mean and least>", "regret, median and worst>", "within 1.25>"]
    return Table(head, rows)


RECIPES: dict[str, Recipe] = {
    "how near predictions come": predicted,
    "the worst regrets on CPUs": worst_regrets,
    "first looks at candidates": first_looks,
    "choices for small products that are in no trial": partial(held_out_choices, machine="xeon"),
    "choices for small products on Zen 4": partial(held_out_choices, machine="zen4"),
    "choices without a product's own trial": choices_without_their_trials,
    "designs of the tuner on a Xeon": designs_on_a_xeon,
}
