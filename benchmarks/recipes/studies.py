"""Tables of studies: kernels with several parameters (benchmarks/parameters.py), and what sweeps say of the planner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median

from gemmport.bench.regret import Choice, judge
from gemmport.bench.sweeps import read_sweep
from gemmport.planning.lookup import load_configuration
from recipes.table import (
    BACKENDS,
    CPUS,
    EMPTY,
    FOLDER,
    TYPES,
    Files,
    Recipe,
    Result,
    Table,
    hundredths,
    mean,
    one,
    ratio,
    some,
    times,
    whole,
)


def beside_cublas(results: Sequence[Result], kernel: str) -> float | None:
    """× cuBLAS of a kernel as it is chosen, where that was measured last; None where it was not."""
    found = [
        own["baselines"]["cublas"]["seconds"]["median"] / trial["seconds"]["median"]
        for own in results
        for trial in some(own["trials"], kernel=kernel, set={})
    ]
    return found[-1] if found else None


def batched_types(files: Files) -> Table:
    """docs/simt.md: batches in four types, by `batched` and by `simt`."""
    results = files.results("h200/study/batched-types.json")
    types = list(dict.fromkeys(own["dtype"] for own in results))
    rows = []
    for m, n, k, batch in dict.fromkeys((x["m"], x["n"], x["k"], x["batch"]) for x in results):
        same = {"m": m, "n": n, "k": k, "batch": batch}
        each = [[beside_cublas(some(results, dtype=x, **same), name) for name in ("batched", "simt")] for x in types]
        if all(own and simt for own, simt in each):
            cells = (f"{hundredths(own)} ({hundredths(simt)})" for own, simt in each)
            rows.append([times(m, n, k), whole(batch), *cells])
    return Table(["m × n × k", "batch>", *(f"{dtype}>" for dtype in types)], rows)


def rows_of_fp8(files: Files) -> Table:
    """docs/mma.md: a row or two of FP8 by `gemv` and by `mma`, in turns."""
    results = some(files.results("h200/study/mma-turns.json"), question="rows")
    rows = []
    for m, n, k in dict.fromkeys((x["m"], x["n"], x["k"]) for x in results):
        each = [one(results, m=m, n=n, k=k, backend=backend) for backend in BACKENDS]
        cells = [f"{own[time]:.1f}" for own in each for time in ("before_us", "after_us")]
        rows.append([times(m, n, k), "N" + each[0]["trans_b"], *cells])
    return Table(
        ["m × n × k", "ops", *(f"{name}, `{x}`, µs>" for name in BACKENDS.values() for x in ("gemv", "mma"))], rows
    )


def stages_of_few_steps(files: Files) -> Table:
    """docs/mma.md: `mma` with as many stages as its tiling says, and with no more than steps and one, in turns."""
    results = [x for x in files.results("h200/study/mma-turns.json") if x["question"] == "stages" and x["parameters"]]
    rows = []
    for backend, name in BACKENDS.items():
        ratios = [x["ratio"] for x in some(results, backend=backend)]
        rows.append([name, whole(len(ratios)), *map(hundredths, (mean(ratios), min(ratios), max(ratios)))])
    return Table(["", "products>", "speed: geometric mean>", "least>", "most>"], rows)


def across(files: Files) -> Table:
    """docs/simt.md: squares with operands as they lie, in the tiling that the model takes for that, and in the same across."""
    rows = []
    for own in sorted(files.results("h200/study/across.json"), key=lambda x: (x["dtype"], x["m"])):
        if own["dtype"] not in TYPES or not own["m"] == own["n"] == own["k"] >= 2048:
            continue
        plain, turned = (one(own["trials"], set={"ACROSS": x})["seconds"]["median"] for x in (0, 1))
        cublas = own["baselines"]["cublas"]["seconds"]["median"]
        figures = [
            x for s in (plain, turned) for x in (whole(2e-9 * own["m"] ** 3 / s), hundredths(cublas / s))
        ]  # fmt: skip
        ops = own["trans_a"] + own["trans_b"]
        rows.append([own["dtype"], str(own["m"]), ops, *figures, f"{plain / turned:.3f}"])
    head = ["as they lie, GFLOPS>", "× cuBLAS>", "across, GFLOPS>", "× cuBLAS>", "gain>"]
    return Table(["type", "m = n = k>", "ops", *head], rows)


def many_parts(files: Files) -> Table:
    """docs/simt.md: products with shared tiles before many parts were read at once, and with that for all tiles."""
    before, after = (
        {_shape(own): own for own in files.results(f"h200/run/gram-{when}.json")} for when in ("before", "after")
    )
    beside = {_shape(own): own for own in files.results("h200/run/gram-cublas.json")}
    rows = []
    for shape, own in after.items():
        backend, dtype, m, n, k, ops = shape
        if own["launches"][-1]["function"] != "combine" or backend != "cuda":
            continue
        figures = []
        for each in (shape, ("opencl", *shape[1:])):
            earlier, later = (found[each]["seconds"]["median"] for found in (before, after))
            figures += [f"{earlier * 1e6:.1f}", f"{later * 1e6:.1f}", hundredths(earlier / later)]
        speed = hundredths(ratio(beside[shape], "cublas")) if shape in beside else EMPTY
        rows.append([dtype, times(m, n, k), ops, *figures, speed])
    head = [f"{name}, {what}" for name in ("CUDA", "OpenCL") for what in ("before, µs>", "after, µs>", "gain>")]
    return Table(["type", "m × n × k", "ops", *head, "CUDA, × cuBLAS>"], rows)


def _shape(own: Result) -> tuple[str, str, int, int, int, str]:
    return own["backend"], own["dtype"], own["m"], own["n"], own["k"], own["trans_a"] + own["trans_b"]


IN_STEP = (
    {"TSK": 8, "GROUPS": 2, "PORTS": 0},
    {"TSK": 8, "GROUPS": 3, "PORTS": 0},
    {"TSK": 16, "GROUPS": 3, "PORTS": 1},
)
"""Tilings of 128 × 96 that a table has side by side, none shared."""


def in_step(files: Files) -> Table:
    """docs/simt.md: two groups of 128 × 96 to a multiprocessor, and three, and what was chosen beside cuBLAS."""
    chosen = {_shape(own): own for own in files.results("h200/run/in-step.json")}
    rows = []
    for swept in read_sweep(files.path("h200/sweep/in-step-float32.jsonl")).swept:
        problem = swept.workload.problem
        shape = (problem.dtype.name, problem.m, problem.n, problem.k, problem.trans_a + problem.trans_b)
        own = chosen[("cuda", *shape)]
        if own["parameters"]["SHARE"]["value"]:
            continue
        cells = []
        for stated in IN_STEP:
            wanted = {"TSM": 128, "TSN": 96, "SHARE": 0, "ACROSS": 0, **stated}
            seconds = [each.seconds for each in swept.timed if wanted.items() <= each.parameters.items()]
            cells.append(f"{seconds[0] * 1e6:.1f}")
        microseconds = [f"{chosen[(name, *shape)]['seconds']['median'] * 1e6:.1f}" for name in ("cuda", "opencl")]
        rows.append(
            [times(*shape[1:4]), shape[4], *cells, microseconds[0], hundredths(ratio(own, "cublas")), microseconds[1]]
        )
    head = [
        "two groups, µs>",
        "three, µs>",
        "three, 16 terms, in order, µs>",
        "chosen, µs>",
        "× cuBLAS>",
        "OpenCL, µs>",
    ]
    return Table(["m × n × k", "ops", *head], rows)


LAYOUTS = ("NN", "NT", "TN", "TT")

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

    newer = ("across-float32", "across-float64", "in-step-float32")
    again = {choice.workload.problem: choice for name in newer for choice in judged(name)}
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


def tilings_of_mma(files: Files) -> Table:
    """docs/mma.md: float16 at 4096, NN, without shared tiles; OpenCL beside cuBLAS's time under CUDA in the same run."""
    found = [own for own in files.results("h200/study/mma.json") if own["ops"] == "NN" and not own["tiling"]["SHARE"]]
    cublas = median(own["baselines"]["cublas"]["gflops"] for own in found if own["backend"] == "cuda")
    timed: dict[tuple[str, ...], dict[str, Result]] = {}
    for own in found:
        p = own["tiling"]
        key = times(p["TSM"], p["TSN"], p["TSK"]), times(p["WM"], p["WN"])
        timed.setdefault(key, {})[own["backend"]] = own
    rows = []
    for key, by_backend in timed.items():
        cells: list[str] = []
        for backend in ("cuda", "opencl"):
            own = by_backend.get(backend)
            if own is None:
                cells += [EMPTY] * 3
            else:
                own_ratio = own["baselines"]["cublas"]["ratio"] if backend == "cuda" else own["gflops"] / cublas
                cells += [str(own["tiling"]["STAGES"]), whole(own["gflops"]), hundredths(own_ratio)]
        rows.append([*key, *cells])
    own_head = [
        f"{language}{words}>" for language in ("CUDA", "OpenCL") for words in (": STAGES", ", GFLOPS", ", × cuBLAS")
    ]
    return Table(["TSM × TSN × TSK", "WM × WN", *own_head], rows)


def tilings_of_complex128(files: Files) -> Table:
    """docs/simt.md: complex128 by the matrix unit at 1024, NN, without shared tiles; OpenCL beside cuBLAS's time under CUDA in
    the same run.
    """
    found = [
        own for own in files.results("h100/study/simt-mma.json") if own["ops"] == "NN" and not own["tiling"]["SHARE"]
    ]
    cublas = median(own["baselines"]["cublas"]["gflops"] for own in found if own["backend"] == "cuda")
    rows = []
    for own in sorted(some(found, backend="cuda"), key=lambda own: -own["gflops"]):
        p, other = own["tiling"], one(found, backend="opencl", tiling=own["tiling"])
        tiling = [times(p["TSM"], p["TSN"], p["TSK"]), times(p["WPTM"], p["WPTN"])]
        counts = [str(p[name]) for name in ("SLICES", "STAGES", "GROUPS")]
        under_cuda = [whole(own["gflops"]), hundredths(own["baselines"]["cublas"]["ratio"])]
        rows.append([*tiling, *counts, *under_cuda, whole(other["gflops"]), hundredths(other["gflops"] / cublas)])
    own_head = ["CUDA, GFLOPS>", "× cuBLAS>", "OpenCL, GFLOPS>", "× cuBLAS>"]
    return Table(["TSM × TSN × TSK", "WPTM × WPTN", "SLICES>", "STAGES>", "GROUPS>", *own_head], rows)


WGMMA_FILES = ("h100/study/wgmma-halves.json", "h100/study/wgmma-others.json")


def types_of_wgmma(files: Files) -> Table:
    """docs/wgmma.md: the fastest tiling of each type, size and layout, beside cuBLAS where that was timed."""
    best: dict[tuple[str, int], dict[str, Result]] = {}
    for own in files.results(*WGMMA_FILES):
        types = f"{own['dtype']} → {own['output']}" if own["output"] != own["dtype"] else own["dtype"]
        by_layout = best.setdefault((types if own["precision"] == "full" else "float32 as TF32", own["m"]), {})
        if own["ops"] not in by_layout or own["gflops"] > by_layout[own["ops"]]["gflops"]:
            by_layout[own["ops"]] = own
    rows = []
    for (types, size), by_layout in sorted(best.items(), key=lambda pair: list(best).index((pair[0][0], 4096))):
        cells: list[str] = []
        for layout in LAYOUTS:
            own = by_layout.get(layout, {})
            cublas = own.get("baselines", {}).get("cublas", {}).get("ratio")
            cells += [whole(own["gflops"]) if own else EMPTY, hundredths(cublas) if cublas else EMPTY]
        rows.append([types, str(size), *cells])
    head = [f"{layout}{words}>" for layout in LAYOUTS for words in (", GFLOPS", ", × cuBLAS")]
    return Table(["type", "m = n = k>", *head], rows)


def tilings_of_wgmma(files: Files) -> Table:
    """docs/wgmma.md: each tiling without shared tiles at 4096."""
    shown = {"float16": "NN", "int8": "NN", "float32": "NN", "float8_e4m3fn": "NT"}
    timed: dict[str, dict[str, Result]] = {}
    for own in files.results(*WGMMA_FILES):
        if own["m"] == 4096 and own["ops"] == shown.get(own["dtype"]) and not own["tiling"]["SHARE"]:
            timed.setdefault(times(own["tiling"]["TSM"], own["tiling"]["TSN"]), {})[own["dtype"]] = own
    rows = [
        [key, *(whole(by_type[dtype]["gflops"]) if dtype in by_type else EMPTY for dtype in shown)]
        for key, by_type in timed.items()
    ]
    return Table(["TSM × TSN", *(f"{dtype} {layout}, GFLOPS>" for dtype, layout in shown.items())], rows)


def halves_by_the_unit(files: Files) -> Table:
    """docs/wgmma.md: products of halves on an H100."""
    return _chosen(files.results("h100/run/halves.json"))


def by_the_unit(files: Files) -> Table:
    """docs/wgmma.md: products of other types on an H100."""
    return _chosen(files.results("h100/run/units.json"))


def layouts_by_the_unit(files: Files) -> Table:
    """docs/wgmma.md: halves and TF32 in all layouts on an H100."""
    return _by_layout(files.results("h100/run/halves-layouts.json", "h100/run/tf32-layouts.json"))


def layouts_of_simt(files: Files) -> Table:
    """docs/simt.md: complex numbers and float64 in all layouts on an H100."""
    return _by_layout(files.results("h100/run/complex-and-double.json"))


def mma_on_hopper(files: Files) -> Table:
    """docs/mma.md: halves and TF32 by `mma` where `wgmma` would be chosen."""
    return _chosen(files.results("h100/run/mma-halves.json", "h100/run/mma-tf32.json"))


LAYOUTS = ("NN", "NT", "TN", "TT")


def _by_layout(results: list[Result]) -> Table:
    """The speed over the faster library in each layout, under CUDA and in OpenCL."""
    rows = []
    kinds = dict.fromkeys((own["dtype"], own["precision"], own["m"]) for own in results)
    for dtype, precision, size in kinds:
        cells = []
        for ops in LAYOUTS:
            same = {"dtype": dtype, "precision": precision, "m": size, "trans_a": ops[0], "trans_b": ops[1]}
            theirs = _fastest(one(results, backend="cuda", **same))
            cells += [hundredths(theirs / one(results, backend=x, **same)["seconds"]["median"]) for x in BACKENDS]
        rows.append([dtype if precision == "full" else "float32 as TF32", str(size), *cells])
    heads = (f"{ops}, {name}>" for ops in LAYOUTS for name in BACKENDS.values())
    return Table(["type", "m = n = k>", *heads], rows)


def errors_beside_the_library(files: Files) -> Table:
    """docs/verification.md: the Frobenius norm of the errors over that of the product, of ours and of cuBLAS's."""
    rows = []
    names = ("halves-layouts", "units", "complex-and-double")
    for own in some(files.results(*(f"h100/run/{name}.json" for name in names)), backend="cuda"):
        ours = own["checks"].get("statistical", {}).get("relative")
        theirs = {name: each["relative_error"] for name, each in own["baselines"].items() if each["relative_error"]}
        if ours and theirs and own["trans_a"] == "N" and (own["trans_b"] == "N") == ("float8" not in own["dtype"]):
            errors = (ours, *(theirs.get(name) for name in ("cublas", "cublaslt")))
            rows.append([_types(own), str(own["m"]), *(f"{x:.2e}" if x else EMPTY for x in errors)])
    return Table(
        ["type", "m = n = k>", "gemmport>", "cuBLAS>", "cuBLASLt>"], list(map(list, dict.fromkeys(map(tuple, rows))))
    )


def units_of_an_h200(files: Files) -> Table:
    """docs/wgmma.md: products of other types on an H200."""
    return _chosen(files.results("h200/run/tf32.json", "h200/run/complex-and-double.json"))


_FEW_TILES = {"192 × 128": {"TSM": 192, "TSN": 128}, "128 × 128": {"TSM": 128, "TSN": 128}}


def few_tiles_of_many_terms(files: Files) -> Table:
    """docs/wgmma.md: tiles that are shared along k: before, with steps in turns, with more warps that add up, in clusters."""
    runs = [files.results(f"h100/study/few-tiles{suffix}.json") for suffix in ("-before", "-turns", "")]
    rows = []
    for own in runs[2]:
        same = {name: own[name] for name in ("m", "n", "k", "trans_a", "trans_b")}
        for name, tile in _FEW_TILES.items():
            stated = {name: [_tried(one(results, **same), tile, cluster="none") for results in runs]}
            if not all(stated[name]):
                continue
            times = [*stated[name], _tried(own, tile, cluster="b")]
            size = f"{own['m']} × {own['n']} × {own['k']}"
            cells = [f"{x * 1e6:.1f}" if x else EMPTY for x in (*times, _theirs(own))]
            best = min(x for x in times if x)
            rows.append([size, own["trans_a"] + own["trans_b"], name, *cells, hundredths(_theirs(own) / best)])
    heads = ("before", "in turns", "more warps", "clusters", "cuBLAS")
    return Table(["m × n × k", "ops", "tiles", *(f"{head}, µs>" for head in heads), "×>"], rows)


def _tried(own: Result, tile: Mapping[str, int], *, cluster: str) -> float:
    """The median of a trial with a tile, in seconds; 0 where there is none."""
    for trial in own["trials"]:
        p = trial["parameters"]
        if trial["set"] and all(p[name] == value for name, value in tile.items()) and p["CLUSTER"] == cluster:
            return float(trial["seconds"]["median"])
    return 0.0


def _theirs(own: Result) -> float:
    """Seconds of the faster library beside trials."""
    return min(float(each["seconds"]["median"]) for each in own["baselines"].values())


def halves_rounded_first(files: Files) -> Table:
    """docs/wgmma.md: products of halves before their sums were rounded on the way to shared memory, and since."""
    found = [files.results(f"h200/run/{name}.json") for name in ("halves", "halves-packed")]
    rows = []
    for own in some(found[1], backend="cuda"):
        same = {name: own[name] for name in ("m", "dtype", "trans_a", "trans_b")}
        cells = []
        for backend in ("cuda", "opencl"):
            for results in found:
                seconds = one(results, backend=backend, **same)["seconds"]["median"]
                cells += [f"{seconds * 1e6:.1f}", hundredths(_fastest(one(results, backend="cuda", **same)) / seconds)]
        rows.append([own["dtype"], str(own["m"]), own["trans_a"] + own["trans_b"], *cells])
    heads = (
        f"{name} {when}{what}>"
        for name in ("CUDA", "OpenCL")
        for when in ("before", "since")
        for what in (", µs", ", ×")
    )
    return Table(["type", "m = n = k>", "ops", *heads], rows)


def _fastest(own: Result) -> float:
    """Seconds of the faster library beside a result."""
    return min(float(each["seconds"]["median"]) for each in own["baselines"].values() if each.get("seconds"))


def _chosen(results: list[Result]) -> Table:
    """Products as the planner chooses, beside the faster of cuBLAS and cuBLASLt, whose times under CUDA in the same run stand
    beside OpenCL's, too.
    """
    rows = []
    for own in some(results, backend="cuda"):
        same = {name: own[name] for name in ("m", "dtype", "output", "precision", "trans_a", "trans_b")}
        if not (others := some(results, backend="opencl", **same)):  # the run was ended between both
            continue
        (other,) = others
        fastest = max(each["gflops"] for each in own["baselines"].values() if each.get("gflops"))
        cells = [
            x
            for each in (own, other)
            for x in (each["kernel"], whole(each["gflops"]), hundredths(each["gflops"] / fastest))
        ]
        ops = own["trans_a"] + own["trans_b"]
        rows.append([_types(own), str(own["m"]), ops, *cells])
    head = [x for words in ("CUDA", "OpenCL") for x in (f"{words}: kernel", f"{words}, GFLOPS>", "× the faster>")]
    return Table(["type", "m = n = k>", "ops", *head], rows)


def _types(own: Result) -> str:
    """Of operands and result, in words."""
    if own["precision"] != "full":
        return "float32 as TF32"
    return own["dtype"] if own["output"] == own["dtype"] else f"{own['dtype']} → {own['output']}"


def clusters_of_wgmma(files: Files) -> Table:
    """docs/wgmma.md: tilings with clusters and early launches, beside the faster of cuBLAS and cuBLASLt."""
    rows = []
    for own in files.results("h100/study/wgmma-small.json", "h100/study/wgmma-clusters.json"):
        p = {name: choice["value"] for name, choice in own["parameters"].items()}
        fastest = max(each["gflops"] for each in own["baselines"].values() if each.get("gflops"))
        tiling = [
            str(own["m"]),
            times(p["TSM"], p["TSN"]),
            *(str(p[x]) for x in ("STAGES", "RASTER", "CLUSTER", "EARLY")),
        ]
        rows.append([*tiling, whole(own["gflops"]), hundredths(own["gflops"] / fastest)])
    rows.sort(key=lambda row: int(row[0]))
    return Table(
        ["m = n = k>", "TSM × TSN", "STAGES>", "RASTER>", "CLUSTER", "EARLY>", "GFLOPS>", "× the faster>"], rows
    )


def decoding(files: Files) -> Table:
    """docs/mma.md: products of a few rows, and which part of the speed of a kernel that only reads B they have."""
    results = files.results("h100/study/decoding.json")
    rows = []
    for own in some(results, backend="cuda"):
        product = {name: own[name] for name in ("dtype", "m", "n", "k")}
        cells = [
            x
            for each in (own, one(results, backend="opencl", **product))
            for x in (
                each["kernel"],
                whole(each["bytes"] / each["seconds"]["median"] * 1e-9),
                hundredths(each["ratio"]),
            )
        ]
        rows.append([own["dtype"], times(own["n"], own["k"]), str(own["m"]), *cells])
    head = [x for words in ("CUDA", "OpenCL") for x in (f"{words}: kernel", f"{words}, GB/s>", "× reading>")]
    return Table(["type", "n × k", "rows>", *head], rows)


def float64_by_line(files: Files) -> Table:
    """docs/simt.md: float64 with A by line; OpenCL beside cuBLAS's time under CUDA in the same run."""
    results = files.results("h100/study/float64-lines.json")
    rows = []
    for own in some(results, backend="cuda"):
        cublas = own["baselines"]["cublas"]["seconds"]["median"]
        cells: list[str] = []
        for each in (own, one(results, backend="opencl", m=own["m"])):
            (trial,) = each["trials"]
            p, seconds = trial["parameters"], trial["seconds"]["median"]
            tile = f"{times(p['TSM'], p['TSN'], p['TSK'])}, {p['SLICES']}, {p['LINES']}"
            cells += [tile, whole(2e-9 * own["m"] ** 3 / seconds), hundredths(cublas / seconds)]
        rows.append([str(own["m"]), *cells])
    head = [
        x for words in ("CUDA", "OpenCL") for x in (f"{words}: tile, SLICES, LINES", f"{words}, GFLOPS>", "× cuBLAS>")
    ]
    return Table(["m = n = k>", *head], rows)


def workers_beside_predictions(files: Files) -> Table:
    """docs/explain.md: products of Dask's workers beside what a cluster is predicted to take."""
    rows = [
        [
            str(own["workers"]),
            f"{own['predicted']:.2f}",
            f"{own['seconds']:.2f}",
            f"{min(own['rounds']):.2f} to {max(own['rounds']):.2f}",
            hundredths(own["seconds"] / own["predicted"]),
        ]
        for own in files.results("xeon/cluster/scaling.json")
    ]
    return Table(["workers>", "predicted, s>", "took, s>", "rounds>", "×>"], rows)


RESULTS = "../benchmarks/results"
"""As pages of docs/ find it."""

SEVERAL = (
    ("h100/run/devices-rows", "rows on each", "1.9"),
    ("h100/run/devices-rows-4", "rows on each", "3.6"),
    ("h100/run/devices-host", "on the host", "1.8"),
    ("h100/run/devices-host-4", "on the host", "3.2"),
    ("h200/run/devices-host-49152", "on the host", "1.8"),
    ("h100/run/devices-host-4-49152", "on the host", "3.2"),
)
"""Files of products that several GPUs compute, where the arrays are, and what was aimed at."""


def several_gpus(files: Files) -> Table:
    """docs/scale.md: products of several GPUs beside one of them."""
    rows = []
    for name, arrays, aim in SEVERAL:
        file = f"{name}.json"
        (own,) = files.document(file)["dealt"]
        alone, together = own["parts"][0]["alone"]["median"], own["seconds"]["median"]
        linked = f"[{together:.3f}]({RESULTS}/{file})"
        rows.append(
            [str(own["m"]), arrays, str(len(own["parts"])), linked, f"{alone:.3f}", hundredths(own["speedup"]), aim]
        )
    return Table(["m = n = k>", "arrays", "GPUs>", "seconds>", "one GPU>", "×>", "aim>"], rows)


def beside_dtensor(files: Files) -> Table:
    """docs/scale.md: products of two GPUs, of arrays in shards on both, beside PyTorch's DTensor."""
    rows = [
        [
            str(own["size"]),
            own["dtype"],
            *(f"{own[f'{side}_seconds'] * 1e3:.1f}" for side in ("gemmport", "dtensor")),
            hundredths(own["ratio"]),
        ]
        for own in files.results("h100/study/dtensor.json")
        if own["status"] == "ok"
    ]
    return Table(["m = n = k>", "type", "gemmport, ms>", "DTensor, ms>", "×>"], rows)


def beside_tuned_clblast(files: Files) -> Table:
    """docs/tuning-studies.md: both with what their own tuners found, and NumPy."""
    found = {name: files.results(f"zen5/run/clblast-tuned-{name}.json") for name in ("intel", "pocl31")}
    rows = [
        [
            str(both[0]["m"]),
            *(
                x
                for own in both
                for x in (
                    f"{own['gflops']:.0f}",
                    *(f"{own['baselines'][name]['ratio']:.1f}" for name in ("clblast", "numpy")),
                )
            ),
        ]
        for both in zip(*found.values(), strict=True)
    ]
    means = [
        x
        for results in found.values()
        for x in (EMPTY, *(hundredths(mean(ratio(own, name) for own in results)) for name in ("clblast", "numpy")))
    ]
    rows.append(["geometric mean", *means])
    head = [x for name in ("Intel", "PoCL 3.1") for x in (f"{name}, GFLOPS>", "× CLBlast>", "× NumPy>")]
    return Table(["m = n = k>", *head], rows)


def without_avx512(files: Files) -> Table:
    """docs/tuning-studies.md: tiles of `packed` on a CPU without AVX-512 under PoCL 3.1; all CPUs had the first."""
    results, tiles = files.results("zen3/study/packed-pocl31.json"), ((14, 2, 64), (6, 2, 32), (12, 1, 32))
    rows = []
    for own in results:
        found = {
            tuple(p[name] for name in ("MR", "NR", "VECTOR")): 2e-9 * own["m"] ** 3 / trial["seconds"]["median"]
            for trial in reversed(own["trials"])
            if (p := trial["parameters"])["MC"] != 768
        }
        rows.append([str(own["m"]), own["dtype"], *(f"{found[tile]:.0f}" for tile in tiles)])
    return Table(["m = n = k>", "type", *(f"{', '.join(map(str, tile))}>" for tile in tiles)], rows)


def packed_with_avx512(files: Files) -> Table:
    """docs/cpu.md: GFLOPS of packed under PoCL 3.0, by tiles of 32 and of 64 bytes, on a CPU with AVX-512."""
    tiles = {6: "6 × 2 of 32 bytes", 14: "14 × 2 of 64 bytes"}
    rows = []
    for own in files.results("xeon/study/packed-pocl30.json"):
        flops = 2e-9 * own["m"] * own["n"] * own["k"]
        found = {x["parameters"]["MR"]: flops / x["seconds"]["median"] for x in own["trials"] if x["set"]}
        speeds = [found[tile] for tile in tiles]
        rows.append([str(own["m"]), own["dtype"], *(f"{x:.0f}" for x in speeds), hundredths(speeds[1] / speeds[0])])
    return Table(["m = n = k>", "type", *(f"{name}>" for name in tiles.values()), "ratio>"], rows)


def direct_for_small_products(files: Files, machine: str) -> Table:
    """docs/cpu.md: small cubes by packed, and by direct with groups of sixteen work-items and of one, in µs."""
    found = {}
    for own in CPUS:
        for kernel, kind in (("packed", "packed-small"), ("direct", "direct")):
            for cube in files.results(f"{machine}/study/{kind}-{own}.json"):
                for trial in cube["trials"]:
                    if trial["set"]:
                        way = kernel, trial["parameters"].get("THREADSX")
                        found[own, cube["dtype"], cube["m"], way] = 1e6 * trial["seconds"]["median"]
    ways = {("packed", None): "packed", ("direct", 4): "4 × 4", ("direct", 1): "1 × 1"}
    sizes = dict.fromkeys((dtype, size) for _, dtype, size, _ in found)
    rows = [
        [str(size), dtype, *(f"{found[own, dtype, size, way]:.0f}" for own in CPUS for way in ways)]
        for dtype, size in sizes
    ]
    return Table(["m = n = k>", "type", *(f"{name}, {way}>" for name in CPUS.values() for way in ways.values())], rows)


def calls_of_small_products(files: Files, machine: str) -> Table:
    """docs/cpu.md: what calls of small products take before direct's small tile and with it, in µs."""
    rows = []
    for arrays in ("device", "numpy"):
        for own, name in CPUS.items():
            names = [f"{machine}/calls/small-{arrays}-{when}-{own}.json" for when in ("before", "after")]
            if not files.names(names[0]):  # not all were measured
                continue
            for pair in zip(*map(files.results, names), strict=True):
                ways = [[call["seconds"]["out"][way]["median"] for call in pair] for way in ("back_to_back", "awaited")]
                told = (f"{1e6 * seconds:.0f}" for way in ways for seconds in way)
                rows.append([arrays, name, str(pair[0]["m"]), *told])
    heads = (f"{way}, {when}>" for way in ("back to back", "awaited") for when in ("before", "after"))
    return Table(["arrays", "runtime", "m = n = k>", *heads], rows)


def vectors_under_pocl30(files: Files) -> Table:
    """docs/cpu.md: a matrix times a vector under PoCL 3.0, by packed and by gemv, in µs."""
    each = [files.results(f"xeon/study/vectors-{kernel}-pocl30.json") for kernel in ("packed", "gemv")]
    rows = []
    for packed, gemv in zip(*each, strict=True):
        seconds = [one["seconds"]["median"] for one in (packed, gemv)]
        product = times(packed["m"], packed["n"], packed["k"])
        told = (f"{1e6 * x:,.0f}" for x in seconds)
        rows.append([product, packed["dtype"], *told, hundredths(seconds[1] / seconds[0])])
    return Table(["product", "type", "packed, µs>", "gemv, µs>", "ratio>"], rows)


def untuned_choices(files: Files) -> Table:
    """docs/tuning-studies.md: choices where nothing is shipped beside the shipped ones, of products that no tuner saw."""
    names = {"CUDA": "h100/tuning/unseen-cuda.json", "OpenCL": "h100/tuning/unseen-opencl.json"}
    return _untuned(files, names, least="0.90")


def untuned_choices_on_cpus(files: Files) -> Table:
    """docs/tuning-studies.md: the same of CPUs."""
    names = {"Intel": "intel", "PoCL 3.1": "pocl31", "PoCL 3.0": "pocl30"}
    return _untuned(files, {name: f"zen3/tuning/unseen-{own}.json" for name, own in names.items()}, least="0.80")


def _untuned(files: Files, names: Mapping[str, str], least: str) -> Table:
    """Of files by the names of their columns, with the aim of a calibrated model alone."""
    found = [files.document(name)["summary"]["unseen"] for name in names.values()]

    def row(name: str, choice: str, *figures: str, form: str = ".3f", aim: str = "") -> list[str]:
        cells = (", ".join(format(each[choice][figure], form) for figure in figures) for each in found)
        return [name, *cells, aim]

    rows = [
        row("tuned, geometric mean and least", "tuned", "geometric mean", "worst", aim="≥ 0.97"),
        row("calibrated model alone", "calibrated", "geometric mean", "worst", aim=f"≥ {least}"),
        row("shipped models alone", "model", "geometric mean", "worst"),
        row(
            "regret of the tuned choice, median and worst", "tuned", "median regret", "worst regret", aim="≤ 1.02, 1.15"
        ),
        row("regret of the shipped choice", "shipped", "median regret", "worst regret"),
        row("predicted within 1.25, of the tuned choice", "tuned", "predicted", form=".0%", aim="≥ 90%"),
        row("of the shipped choice", "shipped", "predicted", form=".0%"),
    ]
    return Table(["20 unseen products", *(f"{name}>" for name in names), "aim>"], rows)


RECIPES: dict[str, Recipe] = {
    "batches in four types": batched_types,
    "by the unit": by_the_unit,
    "halves by the unit": halves_by_the_unit,
    "layouts by the unit": layouts_by_the_unit,
    "layouts of simt": layouts_of_simt,
    "mma on Hopper": mma_on_hopper,
    "rows of FP8": rows_of_fp8,
    "stages of few steps": stages_of_few_steps,
    "errors beside the library": errors_beside_the_library,
    "units of an H200": units_of_an_h200,
    "few tiles of many terms": few_tiles_of_many_terms,
    "halves that are rounded first": halves_rounded_first,
    "choices where nothing is shipped": untuned_choices,
    "choices where nothing is shipped, on CPUs": untuned_choices_on_cpus,
    "clusters of wgmma": clusters_of_wgmma,
    "decoding": decoding,
    "calls of small products": partial(calls_of_small_products, machine="xeon"),
    "calls of small products on Zen 4": partial(calls_of_small_products, machine="zen4"),
    "direct for small products": partial(direct_for_small_products, machine="xeon"),
    "direct for small products on Zen 4": partial(direct_for_small_products, machine="zen4"),
    "packed with AVX-512 under PoCL 3.0": packed_with_avx512,
    "vectors under PoCL 3.0": vectors_under_pocl30,
    "float64 by line": float64_by_line,
    "shards beside DTensor": beside_dtensor,
    "several GPUs": several_gpus,
    "workers beside predictions": workers_beside_predictions,
    "beside tuned CLBlast": beside_tuned_clblast,
    "operands across": across,
    "groups in step": in_step,
    "many parts": many_parts,
    "packed without AVX-512": without_avx512,
    "regrets": regrets,
    "tilings of complex128": tilings_of_complex128,
    "tilings of mma": tilings_of_mma,
    "tilings of wgmma": tilings_of_wgmma,
    "types of wgmma": types_of_wgmma,
}
