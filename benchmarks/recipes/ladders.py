"""Tables of the ladders: products, transpositions and reductions, step by step."""

from __future__ import annotations

from collections.abc import Sequence

from recipes.table import EMPTY, TYPES, Files, Recipe, Result, Table, hundredths, one, some, times, whole

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


def mma_beside_wgmma(files: Files) -> Table:
    """docs/ladder.md: the matrix unit asked by one warp and by four, in the same tiles."""
    names = ("mma", "wgmma-halves")
    tilings = [_fastest_tilings(files.results(f"h100/study/{name}.json")) for name in names]
    rows = []
    for tile, by_four in tilings[1].items():
        if by_one := tilings[0].get(tile):
            cells = [
                x for own in (by_one, by_four) for x in (whole(own["gflops"]), hundredths(own["baselines"]["cublas"]["ratio"]))
            ]  # fmt: skip
            rows.append([times(*tile), *cells, hundredths(by_four["gflops"] / by_one["gflops"])])
    head = ("`mma`, GFLOPS", "× cuBLAS", "`wgmma`, GFLOPS", "× cuBLAS", "times as fast")
    return Table(["TSM × TSN", *(f"{name}>" for name in head)], rows)


def _fastest_tilings(results: Sequence[Result]) -> dict[tuple[int, int], Result]:
    """Of each tile, the fastest trial of float16 at 4096, NN, under CUDA, without shared tiles."""
    found = some(results, backend="cuda", dtype="float16", m=4096, ops="NN")
    fastest: dict[tuple[int, int], Result] = {}
    for own in sorted((own for own in found if not own["tiling"]["SHARE"]), key=lambda own: float(own["gflops"])):
        fastest[own["tiling"]["TSM"], own["tiling"]["TSN"]] = own
    return fastest


def steps_of_wgmma(files: Files) -> Table:
    """docs/ladder.md: products in bfloat16 by `wgmma` without a step, and with it."""
    small, large = (files.results(f"h100/study/wgmma-{name}.json") for name in ("small", "clusters"))
    runs = [files.results(f"h200/run/{name}.json") for name in ("halves", "halves-packed")]
    bound, unaligned = (
        [files.results(f"{device}/calls/{name}-torch-bfloat16{suffix}.json") for name, suffix in names]
        for device, names in (
            ("h200", (("workloads", ""), ("stores", ""))),
            ("h100", (("workloads", ""), ("workloads", "-stores"))),
        )
    )
    rows: list[list[str]] = []

    def add(step: str, product: str, device: str, pair: Sequence[tuple[float, float]]) -> None:
        cells = [x for seconds, beside in pair for x in (f"{seconds * 1e6:.1f}", hundredths(beside))]
        rows.append([step, product, device, *cells, hundredths(pair[0][0] / pair[1][0])])

    for size, tile in ((512, (64, 64)), (1024, (64, 128))):
        pair = [_trial(small, size, tile, "none", early) for early in (0, 1)]
        add("early launches", f"{size}, tiles of {times(*tile)}", "H100", pair)
    for trials, size, tile in ((small, 1024, (64, 128)), (large, 4096, (128, 256)), (large, 8192, (128, 256))):
        pair = [_trial(trials, size, tile, cluster, 0) for cluster in ("none", "b")]
        add("clusters that share B", f"{size}, tiles of {times(*tile)}", "H100", pair)
    for size in (2048, 4096):
        same = {"m": size, "dtype": "bfloat16", "backend": "cuda", "trans_a": "N", "trans_b": "N"}
        add("epilogue", str(size), "H200", [_beside(one(results, **same)) for results in runs])
    for step, device, both, extents in (
        ("epilogue", "H200", bound, (11520, 8000, 24)),
        ("stores of unaligned rows", "H100", unaligned, (9124, 5124, 2048)),
        ("stores of unaligned rows", "H100", unaligned, (1024, 50257, 768)),
    ):
        product = dict(zip("mnk", extents, strict=True))
        add(step, times(*extents), device, [_called(one(results, **product)) for results in both])
    head = ("without, µs", "×", "with, µs", "×", "times as fast")
    return Table(["step", "m = n = k, or m × n × k", "GPU", *(f"{name}>" for name in head)], rows)


def _trial(
    results: Sequence[Result], size: int, tile: tuple[int, int], cluster: str, early: int
) -> tuple[float, float]:
    """Of a tiling, see `_beside`."""
    wanted = {"TSM": tile[0], "TSN": tile[1], "CLUSTER": cluster, "EARLY": early}
    found = [
        own for own in some(results, m=size)
        if all(own["parameters"][name]["value"] == value for name, value in wanted.items())
    ]  # fmt: skip
    return _beside(one(found))


def _beside(own: Result) -> tuple[float, float]:
    """Seconds, and how many times as fast as the faster library."""
    seconds = float(own["seconds"]["median"])
    libraries = [float(each["seconds"]["median"]) for each in own["baselines"].values() if each.get("seconds")]
    return seconds, min(libraries) / seconds


def _called(own: Result) -> tuple[float, float]:
    """Seconds of a call with `out` among others back to back, and how many times as fast as PyTorch's."""
    ours, theirs = (
        float(each["seconds"]["out"]["back_to_back"]["median"]) for each in (own, own["baselines"]["torch.matmul"])
    )
    return ours, theirs / ours


RECIPES: dict[str, Recipe] = {
    "mma beside wgmma": mma_beside_wgmma,
    "steps of wgmma": steps_of_wgmma,
    "the ladder on the H200": h200,
    "steps on the H200": h200_short,
    "the ladder on CPUs": cpus,
    "transpositions": lambda files: passes(files, "transpose-16384", "transpose-4096"),
    "reductions": lambda files: passes(files, "reduce", "reduce"),
    "counters of the ladder": counters,
}
