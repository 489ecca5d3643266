"""Tables of kernels on CPU runtimes beside NumPy and OpenCL's libraries."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from recipes.calls import calls_of
from recipes.table import (
    CPUS,
    EMPTY,
    TYPES,
    Files,
    Recipe,
    Result,
    Table,
    hundredths,
    mean,
    one,
    ratio,
    significant,
    some,
    times,
    whole,
)


def square_results(files: Files, folder: str, dtype: str) -> list[Result]:
    """Squares of a runtime and type, small and large."""
    found = files.results(*(f"{folder}/run/{kind}-{dtype}.json" for kind in ("squares", "large-squares")))
    return sorted(found, key=lambda result: result["m"])


def squares(files: Files) -> Table:
    """docs/cpu.md: the kernels alone."""
    rows = []
    for dtype in TYPES:
        found = [square_results(files, folder, dtype) for folder in CPUS]
        for own in zip(*found, strict=True):
            rows.append(
                [
                    str(own[0]["m"]),
                    dtype,
                    *(x for r in own for x in (whole(r["gflops"]), hundredths(ratio(r, "numpy")))),
                ]
            )
    columns = [f"{x}>" for name in CPUS.values() for x in (f"{name}, GFLOPS", "× NumPy")]
    return Table(["m = n = k>", "type", *columns], rows)


def libraries(files: Files) -> Table:
    """docs/cpu.md: times CLBlast / times clBLAS."""
    rows = []
    for dtype in TYPES:
        found = [files.results(f"{folder}/run/squares-{dtype}.json") for folder in CPUS]
        for own in zip(*found, strict=True):
            cells = (f"{ratio(r, 'clblast'):.1f} / {whole(ratio(r, 'clblas'))}" for r in own)
            rows.append([str(own[0]["m"]), dtype, *cells])
    return Table(["m = n = k>", "type", *(f"{name}>" for name in CPUS.values())], rows)


def spread(ratios: Sequence[float], middle: float) -> str:
    """A middle, the least and the most."""
    return f"{middle:.2f} ({min(ratios):.2f} – {max(ratios):.2f})"


def odd_and_skinny(files: Files) -> Table:
    """docs/cpu.md: over the four ops."""
    columns = {
        f"{CPUS[folder]} {dtype}": files.results(f"{folder}/run/odd-and-skinny-{dtype}.json")
        for folder in ("intel", "pocl31")
        for dtype in TYPES
    }
    first = next(iter(columns.values()))
    rows = []
    for m, n, k in dict.fromkeys((r["m"], r["n"], r["k"]) for r in first):
        found = ([ratio(r, "numpy") for r in some(results, m=m, n=n, k=k)] for results in columns.values())
        rows.append([times(m, n, k), *(spread(ratios, mean(ratios)) for ratios in found)])
    means = (mean(ratio(r, "numpy") for r in results) for results in columns.values())
    rows.append(["geometric mean", *map(hundredths, means)])
    return Table(["m × n × k", *(f"{name}>" for name in columns)], rows)


KERNELS = ("naive", "direct", "packed", "batched")


def batches(files: Files) -> Table:
    """docs/cpu.md: milliseconds of batches; NumPy's is the median of those beside each kernel."""
    found = [files.results(f"{folder}/run/batches-float32.json") for folder in ("intel", "pocl31")]
    rows = []
    for label in dict.fromkeys(r["label"] for r in found[0]):
        own = some(found[0], label=label)[0]
        row = [times(own["m"], own["n"], own["k"]), whole(own["batch"])]
        for results in found:
            beside = some(results, label=label)
            seconds = [one(beside, kernel=kernel)["seconds"]["median"] for kernel in KERNELS]
            numpy = median(r["baselines"]["numpy"]["seconds"]["median"] for r in beside)
            row += [significant(1e3 * x) for x in (*seconds, numpy)]
        rows.append(row)
    names = [f"`{kernel}`>" for kernel in KERNELS]
    return Table(
        [
            "m × n × k",
            "batch>",
            f"Intel, {names[0]}",
            *names[1:],
            "NumPy>",
            f"PoCL 3.1, {names[0]}",
            *names[1:],
            "NumPy>",
        ],
        rows,
    )


# What was aimed at


def aimed(values: Sequence[float], goal: str = "", *, digits: int = 2) -> str:
    """Two figures, and behind them at least what they should be, with ✗ where one, as it is printed, is not."""
    reached = [not goal or float(f"{value:.{digits}f}") >= float(goal) for value in values]
    return judged(values, reached, f" (≥ {goal})" if goal else "", digits)


def judged(values: Sequence[float], reached: Sequence[bool], ending: str, digits: int = 2) -> str:
    """Figures with ✗ where they missed what was aimed at."""
    marked = (f"{value:.{digits}f}{'' if fine else ' ✗'}" for value, fine in zip(values, reached, strict=True))
    return " / ".join(marked) + ending


LARGE = {"intel": "1.00", "pocl31": "0.95", "pocl30": "0.40"}
MIDDLE = {"intel": "0.90", "pocl31": "0.80", "pocl30": "0.35"}
CALLS = {"intel": "0.60", "pocl31": "0.40", "pocl30": ""}
SKINNY = {"intel": "0.95", "pocl31": "0.85"}
TIMES_CLBLAST = {"pocl30": "10"}
STARTS = {"intel": ("1.0", "0.35"), "pocl31": ("1.6", "0.35"), "pocl30": ("1.2", "0.35")}
"""Folder → what was aimed at: ratios, and seconds with empty and with warm caches. Without it, a runtime was not measured."""

NOT_MEASURED = "–"


def goals(files: Files) -> Table:
    """docs/cpu.md: what was aimed at, and what came of it, in float32 and float64."""

    def least(folder: str, *shown: int) -> list[float]:
        return [
            min(ratio(r, "numpy") for r in square_results(files, folder, dtype) if r["m"] in shown) for dtype in TYPES
        ]

    def call(folder: str, size: int) -> list[float]:
        return [one(calls_of(files, f"{folder}/calls/{dtype}.json"), m=size)["ratio"] for dtype in TYPES]

    def skinny(folder: str) -> list[float]:
        names = (f"{folder}/run/odd-and-skinny-{dtype}.json" for dtype in TYPES)
        return [mean(ratio(r, "numpy") for r in files.results(name)) for name in names]

    def beside_clblast(folder: str) -> list[float]:
        return [
            min(ratio(one(files.results(f"{folder}/run/{name}-{dtype}.json"), m=size), "clblast")
                for name, size in (("squares", 1024), ("clblast-2048", 2048)))
            for dtype in TYPES
        ]  # fmt: skip

    def start(folder: str) -> str:
        found = some(files.document(f"{folder}/startup/512-float32.json")["figures"], process="product")
        seconds = [one(found, gemmport_cache=state, runtime_cache=state)["seconds"] for state in ("empty", "warm")]
        most = STARTS[folder]
        reached = [own <= float(goal) for own, goal in zip(seconds, most, strict=True)]
        return judged(seconds, reached, f" s (≤ {' / '.join(most)})")

    rows = [
        ["1024, 2048, 4096 square, the least", *(aimed(least(x, 1024, 2048, 4096), LARGE[x]) for x in CPUS)],
        ["256 and 512 square, the lesser", *(aimed(least(x, 256, 512), MIDDLE[x]) for x in CPUS)],
        ["64 square, the call included", *(aimed(call(x, 64), CALLS[x]) for x in CPUS)],
        ["128 square, the call included", *(aimed(call(x, 128), CALLS[x]) for x in CPUS)],
        ["odd and skinny, geometric mean",
         *(aimed(skinny(x), SKINNY[x]) if x in SKINNY else NOT_MEASURED for x in CPUS)],
        ["× CLBlast, 1024 and 2048, the lesser",
         *(aimed(beside_clblast(x), TIMES_CLBLAST[x], digits=1) if x in TIMES_CLBLAST else NOT_MEASURED for x in CPUS)],
        ["first product, caches empty / warm", *(start(x) for x in CPUS)],
    ]  # fmt: skip
    return Table(["float32 / float64", *(f"{name}>" for name in CPUS.values())], rows)


HALVES = ("float16", "bfloat16")


def _times_of(results: Sequence[Result]) -> dict[tuple[int, str], dict[str, list[float]]]:
    """Size and op of a square → type → its medians, in the order in which they were measured."""
    found: dict[tuple[int, str], dict[str, list[float]]] = {}
    for own in results:
        of_types = found.setdefault((own["m"], own["trans_a"] + own["trans_b"]), {})
        of_types.setdefault(own["dtype"], []).append(own["trials"][0]["seconds"]["median"])
    return found


def halves(files: Files) -> Table:
    """docs/cpu.md: time of float32 over that of halves; two figures where two runs have the product."""
    found: dict[tuple[int, str], list[list[float]]] = {}
    for folder in CPUS:
        own = _times_of(files.results(*(f"xeon/study/halves-{kind}-{folder}.json" for kind in ("squares", "small"))))
        for key, seconds in own.items():
            found.setdefault(key, []).extend(
                [x / y for x, y in zip(seconds["float32"], seconds[dtype], strict=True)] for dtype in HALVES
            )
    rows = [
        [str(size), ops, *(", ".join(map(hundredths, each)) for each in columns)]
        for (size, ops), columns in sorted(found.items())
    ]
    ratios = [[x for each in column for x in each] for column in zip(*found.values(), strict=True)]
    rows.append(["geometric mean", EMPTY, *(hundredths(mean(column)) for column in ratios)])
    rows.append(["least", EMPTY, *(hundredths(min(column)) for column in ratios)])
    heads = [f"{name}, {dtype}>" for name in CPUS.values() for dtype in HALVES]
    return Table(["m = n = k>", "op", *heads], rows)


def halves_in_turns(files: Files) -> Table:
    """docs/cpu.md: 256 square on Intel's runtime, all types and ops in turns."""
    rows = []
    for (_, ops), seconds in _times_of(files.results("xeon/study/halves-turns-intel.json")).items():
        ratios = (seconds["float32"][0] / seconds[dtype][0] for dtype in HALVES)
        rows.append([ops, *(whole(1e6 * each[0]) for each in seconds.values()), *map(hundredths, ratios)])
    heads = ["float32, µs>", *(f"{dtype}, µs>" for dtype in HALVES), *(f"{dtype}, ratio>" for dtype in HALVES)]
    return Table(["op", *heads], rows)


def rounded_vectors(files: Files) -> Table:
    """docs/cpu.md: products with vectors of float32 that is rounded: by a pass before, and as it is read, in µs."""
    found = [
        files.results(f"{folder}/run/rounded-vectors{suffix}.json") for folder in CPUS for suffix in ("-before", "")
    ]
    rows = []
    for each in zip(*found, strict=True):
        own = each[0]
        ops = own["trans_a"] + own["trans_b"]
        taken = (whole(1e6 * result["seconds"]["median"]) for result in each)
        rows.append([times(own["m"], own["n"], own["k"]), ops, own["precision"], *taken])
    heads = (f"{name}: {what}>" for name in CPUS.values() for what in ("before, µs", "since, µs"))
    return Table(["m × n × k", "ops", "precision", *heads], rows)


RECIPES: dict[str, Recipe] = {
    "rounded vectors": rounded_vectors,
    "goals on CPUs": goals,
    "squares on CPUs": squares,
    "beside OpenCL's libraries": libraries,
    "odd and skinny": odd_and_skinny,
    "batches on CPUs": batches,
    "halves on CPUs": halves,
    "halves in turns": halves_in_turns,
}
