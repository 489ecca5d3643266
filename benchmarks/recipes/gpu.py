"""Tables of kernels on an H200 beside the vendor's library and OpenCL's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recipes.calls import calls_of, workloads_called
from recipes.table import (
    BACKENDS,
    EMPTY,
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

SQUARES = {dtype: f"h200/run/squares-{dtype}.json" for dtype in ("float32", "float64")}
WORKLOADS = "h200/run/workloads-float32.json"


def beside_cublas(own: Result, results: Iterable[Result]) -> float:
    """A result's ratio to cuBLAS. OpenCL cannot call it: its ratio is to the time under CUDA in the same run."""
    if own["backend"] == "cuda":
        return ratio(own, "cublas")
    same = ("m", "n", "k", "batch", "dtype", "trans_a", "trans_b", "alpha", "beta", "label", "source")
    twin = one(results, backend="cuda", **{name: own[name] for name in same})
    return float(own["gflops"] / twin["baselines"]["cublas"]["gflops"])


def tile(own: Result) -> str:
    """What `simt` chose, in words."""
    told = {name: parameter["value"] for name, parameter in own["parameters"].items()}
    words = [times(told["TSM"], told["TSN"], told["TSK"])]
    if told["SLICES"] > 1:
        words.append(f"{told['SLICES']} slices")
    names = {"SHARE": "shared", "ACROSS": "across", "PORTS": "ports", "MMA": "matrix unit"}
    return ", ".join([*words, *(word for name, word in names.items() if told[name])])


def sizes(results: Iterable[Result]) -> list[int]:
    """Of the squares among results, ascending."""
    return sorted({result["m"] for result in results})


def both(own: Result, other: Result, results: Sequence[Result]) -> list[str]:
    """Four cells: GFLOPS and × cuBLAS under CUDA and in OpenCL."""
    return [x for r in (own, other) for x in (whole(r["gflops"]), hundredths(beside_cublas(r, results)))]


def first_page(files: Files) -> Table:
    """README.md."""
    shown = (1024, 2048, 4096)
    rows = []
    for dtype, backend, to in (
        ("float32", "cuda", "cuBLAS"),
        ("float32", "opencl", "cuBLAS under CUDA"),
        ("float64", "cuda", "cuBLAS"),
    ):
        results = files.results(SQUARES[dtype])
        ratios = (beside_cublas(one(results, backend=backend, m=size), results) for size in shown)
        rows.append([f"H200, {BACKENDS[backend]}", f"{dtype}, kernels", to, *map(hundredths, ratios)])
        arrays, whose = {"cuda": ("torch", "PyTorch's tensors"), "opencl": ("pyopencl", "PyOpenCL's arrays")}[backend]
        called = files.results(f"h200/calls/squares-{backend}.json")
        ratios = (
            one(called, arrays=arrays, dtype=dtype, m=size)["baselines"]["torch.matmul"]["ratios"]["out"][
                "back_to_back"
            ]
            for size in shown
        )
        beside = "`torch.matmul`" if backend == "cuda" else "`torch.matmul` under CUDA"
        rows.append([f"H200, {BACKENDS[backend]}", f"{dtype}, calls with {whose}", beside, *map(hundredths, ratios)])
    found = [ratio(result, "cublas") for result in some(files.results(WORKLOADS), backend="cuda")]
    rows.append(
        ["H200, CUDA", f"float32, {len(found)} products of published workloads", "cuBLAS",
         f"geometric mean {hundredths(mean(found))}", f"least {hundredths(min(found))}", EMPTY]
    )  # fmt: skip
    row = workloads_called(files).rows[0]
    rows.append(
        ["H200, CUDA", f"float32, calls of those {row[1]} with PyTorch's tensors", "`torch.matmul`",
         f"geometric mean {row[2]}", f"least {row[3]}", EMPTY]
    )  # fmt: skip
    calls = calls_of(files, "intel/calls/float32.json")
    ratios = (one(calls, m=size)["ratio"] for size in shown[:2])
    rows.append(
        ["two cores of an AMD EPYC, Intel's runtime", "float32, calls", "NumPy", *map(hundredths, ratios), EMPTY]
    )
    return Table(["device", "what", "ratio to", *(f"{size}>" for size in shown)], rows)


def squares_beside_all(files: Files) -> Table:
    """docs/figures.md."""
    rows = []
    for dtype, file in SQUARES.items():
        results = files.results(file)
        for place, size in enumerate(sizes(results)):
            own, other = (one(results, backend=backend, m=size) for backend in BACKENDS)
            rest = [
                hundredths(ratio(other, name)) if name in other["baselines"] else "–" for name in ("clblast", "clblas")
            ]
            rows.append([EMPTY if place else dtype, str(size), *both(own, other, results), *rest])
    head = [
        "type",
        "m = n = k>",
        "CUDA, GFLOPS>",
        "× cuBLAS>",
        "OpenCL, GFLOPS>",
        "× cuBLAS>",
        "× CLBlast tuned>",
        "× clBLAS>",
    ]
    return Table(head, rows)


def squares(files: Files, dtype: str) -> Table:
    """docs/simt.md: squares with what was chosen."""
    results = files.results(SQUARES[dtype])
    rows = []
    for size in sizes(results):
        own, other = (one(results, backend=backend, m=size) for backend in BACKENDS)
        rows.append([str(size), *both(own, other, results), tile(own)])
    return Table(["m = n = k>", "CUDA, GFLOPS>", "× cuBLAS>", "OpenCL, GFLOPS>", "× cuBLAS>", "tile, under CUDA"], rows)


def odd(files: Files) -> Table:
    """docs/simt.md: odd sizes with all ops."""
    results = files.results("h200/run/odd-float32.json")
    rows = []
    for own in some(results, backend="cuda"):
        same = {name: own[name] for name in ("m", "trans_a", "trans_b")}
        other = one(results, backend="opencl", **same)
        rows.append([str(own["m"]), own["trans_a"] + own["trans_b"], *both(own, other, results), tile(own)])
    means = [mean(beside_cublas(r, results) for r in some(results, backend=backend)) for backend in BACKENDS]
    rows.append(["geometric mean", EMPTY, EMPTY, f"{means[0]:.3f}", EMPTY, f"{means[1]:.3f}", EMPTY])
    head = ["m = n = k>", "ops", "CUDA, GFLOPS>", "× cuBLAS>", "OpenCL, GFLOPS>", "× cuBLAS>", "tile, under CUDA"]
    return Table(head, rows)


def workloads(files: Files) -> Table:
    """docs/simt.md: published workloads by their source."""
    results = files.results(WORKLOADS)
    found = {
        backend: [(r["source"], beside_cublas(r, results)) for r in some(results, backend=backend)]
        for backend in BACKENDS
    }
    rows = []
    for source in dict.fromkeys(source for source, _ in found["cuda"]):
        own = [[x for name, x in ratios if name == source] for ratios in found.values()]
        rows.append([source, str(len(own[0])), *(hundredths(x) for ratios in own for x in (mean(ratios), min(ratios)))])
    own = [[x for _, x in ratios] for ratios in found.values()]
    rows.append(
        ["all", str(len(own[0])), *(x for ratios in own for x in (f"{mean(ratios):.3f}", hundredths(min(ratios))))]
    )
    return Table(["source", "products>", "CUDA, × cuBLAS>", "least>", "OpenCL, × cuBLAS>", "least>"], rows)


def errors(files: Files) -> Table:
    """docs/simt.md: relative errors of squares in float32."""
    results = files.results(SQUARES["float32"])
    shown = sizes(results)
    own = {size: one(results, backend="cuda", m=size) for size in shown}
    other = {size: one(results, backend="opencl", m=size) for size in shown}

    def error(relative: float) -> str:
        return hundredths(relative * 1e7)

    rows = [
        ["`simt`", *(error(of_simt(own[size])) for size in shown)],
        ["cuBLAS", *(error(own[size]["baselines"]["cublas"]["relative_error"]) for size in shown)],
        ["CLBlast, clBLAS", *(error(other[size]["baselines"]["clblast"]["relative_error"]) for size in shown)],
    ]
    return Table(["m = n = k", *(f"{size}>" for size in shown)], rows)


def of_simt(own: Result) -> float:
    """The relative error of a result, by whichever check compared random numbers."""
    return max(check["relative"] or 0.0 for check in own["checks"].values())


def beside_clblast(files: Files) -> Table:
    """docs/simt.md: OpenCL beside CLBlast as it comes and tuned, and clBLAS."""
    results = some(files.results(SQUARES["float32"]), backend="opencl")
    names = ("clblast-own", "clblast-tuned-1024", "squares-clblas")
    own, tuned, again = (some(files.results(f"h200/run/{name}-float32.json"), backend="opencl") for name in names)
    rows = []
    for size in sizes(results):
        simt = one(results, m=size)
        alone = one(own if size in sizes(own) else again, m=size)["baselines"]["clblast"]["gflops"]
        at_1024 = [r["baselines"]["clblast"]["gflops"] for r in some(tuned, m=size)]
        at_2048 = simt["baselines"]["clblast"]["gflops"]
        faster = max([at_2048, *at_1024])
        rows.append(
            [str(size), whole(simt["gflops"]), whole(alone), hundredths(simt["gflops"] / alone),
             whole(at_1024[0]) if at_1024 else EMPTY, whole(at_2048), hundredths(simt["gflops"] / faster),
             whole(simt["baselines"]["clblas"]["gflops"]), hundredths(ratio(simt, "clblas"))]
        )  # fmt: skip
    head = [
        "m = n = k>",
        "`simt`>",
        "CLBlast>",
        "× CLBlast>",
        "tuned at 1024>",
        "at 2048>",
        "× tuned>",
        "clBLAS>",
        "× clBLAS>",
    ]
    return Table(head, rows)


RECIPES: dict[str, Recipe] = {
    "the first page": first_page,
    "squares beside all": squares_beside_all,
    "squares in float32": lambda files: squares(files, "float32"),
    "squares in float64": lambda files: squares(files, "float64"),
    "odd sizes": odd,
    "workloads": workloads,
    "errors": errors,
    "beside CLBlast": beside_clblast,
}
