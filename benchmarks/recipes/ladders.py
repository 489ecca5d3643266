"""Tables of the ladders: products, transpositions and reductions, step by step."""

from __future__ import annotations

from collections.abc import Sequence

from recipes.table import EMPTY, TYPES, Files, Recipe, Result, Table, hundredths, one, some, whole

UNSUPPORTED = "unsupported"


def steps(results: Sequence[Result]) -> list[str]:
    """The names of steps, in order."""
    return list(dict.fromkeys(result["step"] for result in results))


def cells(results: Sequence[Result], step: str, backend: str, baselines: Sequence[str], digits: int = 0) -> list[str]:
    """GFLOPS of a step, and its ratio to each baseline."""
    own = one(results, step=step, backend=backend)
    if own["status"] == UNSUPPORTED:
        return [UNSUPPORTED, *(EMPTY for _ in baselines)]
    ratios = (own["baselines"][baseline]["ratio"] for baseline in baselines)
    return [f"{own['gflops']:,.{digits}f}", *map(hundredths, ratios)]


def h200(files: Files) -> Table:
    """docs/ladder.md: all steps on an H200."""
    single, double = (files.results(f"h200/ladder/gemm-4096-{dtype}.json") for dtype in TYPES)
    rows = [
        [f"`{step}`",
         *cells(single, step, "cuda", ["cublas"]), *cells(single, step, "opencl", ["clblast", "clblas"]),
         *cells(double, step, "cuda", ["cublas"]), *cells(double, step, "opencl", ["clblast"])]
        for step in steps(single)
    ]  # fmt: skip
    head = ["CUDA, GFLOPS", "× cuBLAS", "OpenCL, GFLOPS", "× CLBlast", "× clBLAS",
            "float64: CUDA", "× cuBLAS", "OpenCL", "× CLBlast"]  # fmt: skip
    return Table(["step", *(f"{name}>" for name in head)], rows)


SHORT = {
    "float32": ("naive", "tiled", "register_tiled", "register_tiled_vectorized", "prefetch"),
    "float64": ("register_tiled", "register_tiled_vectorized", "prefetch"),
}


def h200_short(files: Files) -> Table:
    """docs/figures.md: some steps on an H200."""
    rows = []
    for dtype, names in SHORT.items():
        results = files.results(f"h200/ladder/gemm-4096-{dtype}.json")
        for place, step in enumerate(names):
            figures = [
                *cells(results, step, "cuda", ["cublas"]),
                *cells(results, step, "opencl", ["clblast", "clblas"]),
            ]
            rows.append([EMPTY if place else dtype, f"`{step}`", *figures])
    head = ["CUDA, GFLOPS", "× cuBLAS", "OpenCL, GFLOPS", "× CLBlast", "× clBLAS"]
    return Table(["type", "kernel", *(f"{name}>" for name in head)], rows)


def cpus(files: Files) -> Table:
    """docs/ladder.md: all steps on CPU runtimes."""
    found = [
        [files.results(f"{folder}/ladder/gemm-512-{dtype}.json") for dtype in TYPES] for folder in ("intel", "pocl31")
    ]
    rows = [
        [f"`{step}`", *(x for single, double in found for x in (
            *cells(single, step, "opencl", ["numpy", "clblast"], 1), *cells(double, step, "opencl", ["numpy"], 1)))]
        for step in steps(found[0][0])
    ]  # fmt: skip
    head = [
        x for name in ("Intel", "PoCL 3.1") for x in (f"{name}, GFLOPS", "× NumPy", "× CLBlast", "float64", "× NumPy")
    ]
    return Table(["step", *(f"{name}>" for name in head)], rows)


def passes(files: Files, on_gpu: str, on_cpu: str) -> Table:
    """docs/ladder.md: transpositions or reductions on all devices."""
    gpu = files.results(f"h200/ladder/{on_gpu}.json")
    found = [some(gpu, backend="cuda"), some(gpu, backend="opencl")]
    found += [list(files.results(f"{folder}/ladder/{on_cpu}.json")) for folder in ("intel", "pocl31")]
    rows = []
    for step in steps(gpu):
        row = [f"`{step}`"]
        for place, results in enumerate(found):
            own = one(results, step=step)
            if own["status"] == UNSUPPORTED:
                row += [UNSUPPORTED, EMPTY]
            else:
                row += [f"{own['gb_per_second']:,.{0 if place < 2 else 1}f}", whole(own["copy_percent"])]
        rows.append(row)
    head = [x for name in ("CUDA", "OpenCL", "Intel", "PoCL 3.1") for x in (f"{name}, GB/s", "% of copy")]
    return Table(["step", *(f"{name}>" for name in head)], rows)


def counters(files: Files) -> Table:
    """docs/ladder.md: what the counters say under CUDA, and the machine code."""
    launches = files.document("h200/profile/4096.json")["launches"]
    codes = {own["kernel"]: own["code"][-1] for own in files.document("sm_90/inspect/4096.json")["inspections"]}
    rows = []
    for kernel in codes:
        own = some(launches, kernel=kernel)[-1]["figures"]  # the product is the last launch of its kernel
        fma = 100 * own["fma"] / 32 / own["instructions"]
        per_load = codes[kernel]["loop"]["multiply_adds_per_load"]
        percents = (own["occupancy"], own["issue_active"], fma, own["shared"])
        rows.append(
            [f"`{kernel}`", whole(own["registers"]), *map(whole, percents), f"{per_load:.1f}", largest_stall(own)]
        )
    head = ["registers", "occupancy, %", "issue slots used, %", "of them FMA, %", "shared memory, %",
            "multiply-adds per load in the loop"]  # fmt: skip
    return Table(["step", *(f"{name}>" for name in head), "stalls per instruction, the largest"], rows)


def largest_stall(figures: Result) -> str:
    """The reason that a warp waits for most often, by instruction."""
    prefix = "stall_"
    stalls = {
        name.removeprefix(prefix).replace("_", " "): figure
        for name, figure in figures.items()
        if name.startswith(prefix) and name != "stall_not_selected" and figure
    }
    largest = max(stalls, key=stalls.__getitem__)
    return f"{stalls[largest]:.1f} {largest}"


RECIPES: dict[str, Recipe] = {
    "the ladder on the H200": h200,
    "steps on the H200": h200_short,
    "the ladder on CPUs": cpus,
    "transpositions": lambda files: passes(files, "transpose-16384", "transpose-4096"),
    "reductions": lambda files: passes(files, "reduce", "reduce"),
    "counters of the ladder": counters,
}
