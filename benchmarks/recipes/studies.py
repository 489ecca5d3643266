"""Tables of studies: trials of what is not in the tree, or of parts of it."""

from __future__ import annotations

from math import ceil
from statistics import median

from gemmport.bench.regret import Choice, judge
from gemmport.bench.sweeps import read_sweep
from gemmport.planning.lookup import load_configuration
from recipes.cpu import spread
from recipes.table import CPUS, EMPTY, FOLDER, TYPES, Files, Recipe, Result, Table, hundredths, one, some, times, whole


def packing_turns(files: Files) -> Table:
    """docs/cpu.md: ways to pack, commit by commit."""
    runs = files.document("cpu/study/packing-turns.json")["runs"]
    commits = ("abf4746", "46814b6", "32bdd0a")
    rows = []
    for device, name in CPUS.items():
        for dtype in TYPES:
            own = some(runs, device=device, dtype=dtype)
            for size in sorted({run["m"] for run in own}):
                found = [[run["ratio"] for run in some(own, m=size, commit=commit)] for commit in commits]
                rows.append([str(size), dtype, name, *(spread(x, median(x)) if x else EMPTY for x in found)])
    return Table(["m = n = k>", "type", "runtime", *(f"{commit}>" for commit in commits)], rows)


def simt_steps(files: Files) -> Table:
    """docs/ladder.md: what the last steps brought."""
    found = files.document("h200/study/simt-steps-4096.json")["steps"]
    names = {
        "copies at once, whole tiles, as compiled": "asynchronous copies, warp tiles, fragments ahead, one barrier",
        "copies in pieces": "copies in pieces behind the reads of several terms",
        "the order for the register file's ports": "the order for the register file's ports",
        "the last tiles shared along k": "the last tiles shared along k",
    }
    rows = []
    for name, words in names.items():
        own = one(found, name=name)
        rows.append([words, *(hundredths(own[ops]) if ops in own else EMPTY for ops in ("NN", "NT"))])
    return Table(["step", "NN>", "NT>"], rows)


def three(number: float) -> str:
    """Three digits, of numbers below 1 two behind the point."""
    return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f}"


PER_UNIT, NUMBERS, EXTENT = 6 * 132, 768, 32
"""What `batched` takes: so many products at least, on an H200; numbers in A, B and D, and rows, columns and terms at most."""


def declines(m: int, n: int, k: int, batch: int) -> bool:
    """Whether `batched` leaves a batch to others."""
    return batch < PER_UNIT or m * k + k * n + m * n > NUMBERS or max(m, n, k) > EXTENT


def batched(files: Files) -> Table:
    """docs/simt.md: batches beside cuBLAS."""
    rows = []
    for trial in files.document("h200/study/batched.json")["trials"]:
        extents = (trial["m"], trial["n"], trial["k"])
        taken = trial["microseconds"]
        ratios = [
            three(taken["cublas"] / taken[kernel]) if kernel in taken else EMPTY
            for kernel in ("batched", "simt", "gemv")
        ]
        ratios[0] += ", declined" if declines(*extents, trial["batch"]) else ""
        words = times(*extents) + ("" if trial["ops"] == "NN" else f", {trial['ops']}")
        backend = {"cuda": "CUDA", "opencl": "OpenCL"}[trial["backend"]]
        rows.append([words, whole(trial["batch"]), backend, three(taken["batched"]), *ratios])
    head = ["m × n × k", "batch>", "", "`batched`, µs>", "× cuBLAS>", "`simt`, × cuBLAS>", "`gemv`, × cuBLAS>"]
    return Table(head, rows)


def batched_types(files: Files) -> Table:
    """docs/simt.md: batches in four types, of `batched` with groups as they are now where that was tried, and of `simt`."""
    trials = files.document("h200/study/batched-types.json")["trials"]
    first = [trial for trial in trials if "simt" in trial["microseconds"]]
    again = [trial for trial in trials if "simt" not in trial["microseconds"]]
    types = list(dict.fromkeys(trial["dtype"] for trial in first))
    rows = []
    for m, n, k, batch in dict.fromkeys((x["m"], x["n"], x["k"], x["batch"]) for x in first):
        row = [times(m, n, k), whole(batch)]
        for dtype in types:
            same = {"m": m, "n": n, "k": k, "batch": batch, "dtype": dtype}
            taken = one(first, **same)["microseconds"]
            others = some(again, **same)
            own = smaller_groups(others[0]) if others else taken["cublas"] / taken["batched"]
            row.append(f"{hundredths(own)} ({hundredths(taken['cublas'] / taken['simt'])})")
        rows.append(row)
    return Table(["m × n × k", "batch>", *(f"{dtype}>" for dtype in types)], rows)


GROUP_ITEMS, ITEM_EXTENT = 160, 4
"""Work-items of a group of `batched` at most, since the second of these trials, and the rows and columns of a work-item."""


def smaller_groups(trial: Result) -> float:
    """× cuBLAS of a trial, with as many products for each group as its work-items allow now, at most those suggested then."""
    items = ceil(trial["m"] / ITEM_EXTENT) * ceil(trial["n"] / ITEM_EXTENT)
    most = 1 << ((GROUP_ITEMS // items).bit_length() - 1)
    taken, word = trial["microseconds"], "batched, products "
    (suggested,) = (int(name.removeprefix(word)) for name in taken if name.startswith(word))
    return float(taken["cublas"] / taken[f"P{most}" if most < suggested else f"{word}{suggested}"])


def across(files: Files) -> Table:
    """docs/simt.md: squares with operands as they lie, in the tiling that the model takes for that, and in the same across."""
    products = files.document("h200/study/across.json")["products"]
    rows = []
    for dtype in TYPES:
        squares = [x for x in some(products, dtype=dtype) if x["m"] == x["n"] == x["k"] >= 2048]
        for product in sorted(squares, key=lambda x: x["m"]):
            taken, expected = product["microseconds"], product["estimate"]
            tiling = min((x for x in expected if x.startswith("plain ")), key=expected.__getitem__).removeprefix(
                "plain "
            )
            plain, turned = taken[f"plain {tiling}"], taken[f"across {tiling}"]
            figures = [
                x
                for us in (plain, turned)
                for x in (whole(2e-3 * product["m"] ** 3 / us), hundredths(taken["cublas"] / us))
            ]
            rows.append([dtype, str(product["m"]), product["ops"], *figures, f"{plain / turned:.3f}"])
    head = ["as they lie, GFLOPS>", "× cuBLAS>", "across, GFLOPS>", "× cuBLAS>", "gain>"]
    return Table(["type", "m = n = k>", "ops", *head], rows)


def counters(files: Files) -> Table:
    """docs/simt.md: ncu's counters of `simt` and cuBLAS."""
    rows = []
    for launch in files.document("h200/study/counters-4096-float32.json")["launches"]:
        figures = (
            f"{launch['instructions'] / 1e9:.2f}",
            f"{launch['issue_active_percent']:.1f} %",
            f"{launch['duration_ms']:.2f}",
        )
        rows.append([launch["name"].replace("simt", "`simt`"), *figures])
    return Table(["", "instructions, 10⁹>", "slots in which one is issued>", "milliseconds>"], rows)


SWEEPS = (
    ("published workloads", "simt-workloads-float32", ", float32"),
    ("`regret.csv`", "simt-regret-float32", ", float32"),
    ("squares and others", "simt-squares-float64", ", float64"),
)


def regrets(files: Files) -> Table:
    """docs/simt.md: the planner's choices beside the best of sweeps; what was tried again counts in place of the first."""
    configuration = load_configuration(())

    def judged(name: str) -> tuple[Choice, ...]:
        return judge(read_sweep(files.path(f"h200/sweep/{name}.jsonl")), configuration).choices

    again = {choice.workload.problem: choice for dtype in TYPES for choice in judged(f"across-{dtype}")}
    rows = []
    for words, name, ending in SWEEPS:
        choices = judged(name)
        known = [again.get(choice.workload.problem, choice) for choice in choices]
        ranked = sorted((choice.regret for choice in known if choice.regret is not None), reverse=True)
        figures = (median(ranked), ranked[len(ranked) // 10], ranked[0])
        repeated = sum(choice.workload.problem in again for choice in choices)
        link = f"[{words}](../{FOLDER.as_posix()}/h200/sweep/{name}.jsonl){ending}"
        rows.append([link, str(len(ranked)), str(repeated), *(f"{x:.3f}" for x in figures)])
    return Table(["trials", "products>", "of them again>", "median>", "nine in ten at most>", "worst>"], rows)


RECIPES: dict[str, Recipe] = {
    "packing turn by turn": packing_turns,
    "the last steps of simt": simt_steps,
    "batches": batched,
    "batches in four types": batched_types,
    "operands across": across,
    "counters of simt": counters,
    "regrets": regrets,
}
