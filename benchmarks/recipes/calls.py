"""Tables of what calls and starts cost."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import geometric_mean, median
from typing import Any

from recipes.table import CPUS, EMPTY, TYPES, Files, Recipe, Result, Table, hundredths, one, some, whole

SIZES = (64, 128, 256, 512, 1024, 2048)


def microseconds(seconds: float, digits: int = 0) -> str:
    """A time in microseconds."""
    return f"{seconds * 1e6:,.{digits}f}"


def rate(result: Result, seconds: float) -> float:
    """GFLOPS of a product that took so long."""
    return float(2e-9 * result["m"] * result["n"] * result["k"] / seconds)


def calls_of(files: Files, name: str, arrays: str = "numpy") -> list[Result]:
    """The results of a file of calls with arrays of one library.

    Those of `gemmport calls` (schema 3) are read as benchmarks/calls.py, which it replaces, wrote them (2): `seconds`,
    `numpy_seconds` and `ratio` are of calls with `out` that are awaited, `host_seconds` of calls that are not.
    """
    document = files.document(name)
    own = some(document["results"], arrays=arrays)
    return own if document["schema"] == 2 else [_as_before(result, document["floors"]) for result in own]


def _as_before(result: Result, floors: Mapping[str, Any]) -> Result:
    times = result["seconds"]
    found = {
        **result,
        "host_seconds": {kind: ways["host"] for kind, ways in times.items()},
        "floor_seconds": floors[result["device"]],
    }
    if numpy := result["baselines"].get("numpy.matmul"):
        found["seconds"], found["numpy_seconds"] = (x["out"]["awaited"] for x in (times, numpy["seconds"]))
        found["ratio"] = numpy["ratios"]["out"]["awaited"]
    return found


def numpy_calls(files: Files) -> Table:
    """docs/calls.md: small products beside NumPy, and the launch alone."""
    rows = []
    for folder, name in CPUS.items():
        results = calls_of(files, f"{folder}/calls/float32.json")
        small, larger = (one(results, m=size) for size in (64, 128))
        cells = [
            small["seconds"],
            small["numpy_seconds"],
            larger["seconds"],
            larger["numpy_seconds"],
            small["floor_seconds"],
        ]
        rows.append([name, *(microseconds(cell["median"], 1) for cell in cells)])
    return Table(["", "64>", "NumPy>", "128>", "NumPy>", "floor>"], rows)


def startup_calls(files: Files) -> Table:
    """docs/startup.md: calls of NumPy arrays in microseconds."""
    shown = SIZES[:4]
    found = {name: calls_of(files, f"{folder}/calls/float32.json") for folder, name in CPUS.items()}
    rows = [
        [name, *(microseconds(one(own, m=size)["seconds"]["median"]) for size in shown)] for name, own in found.items()
    ]
    numpy = [microseconds(one(found["Intel"], m=size)["numpy_seconds"]["median"]) for size in shown]
    return Table(["", *(f"{size}>" for size in shown)], [*rows, ["NumPy, beside Intel", *numpy]])


def short_calls(files: Files) -> Table:
    """docs/figures.md: calls in float32, GFLOPS and ratio."""
    found = [calls_of(files, f"{folder}/calls/float32.json") for folder in CPUS]
    rows = []
    for size in SIZES:
        row = [str(size)]
        for own in (one(results, m=size) for results in found):
            row += [whole(rate(own, own["seconds"]["median"])), hundredths(own["ratio"])]
        rows.append(row)
    return Table(["m = n = k>", *(f"{x}>" for name in CPUS.values() for x in (f"{name}, GFLOPS", "× NumPy"))], rows)


def all_calls(files: Files) -> Table:
    """docs/cpu.md: calls in both types."""
    rows = []
    for dtype in TYPES:
        found = [calls_of(files, f"{folder}/calls/{dtype}.json") for folder in CPUS]
        for size in SIZES:
            row = [str(size), dtype]
            for own in (one(results, m=size) for results in found):
                seconds = own["seconds"]["median"]
                row += [microseconds(seconds), whole(rate(own, seconds)), hundredths(own["ratio"])]
            rows.append(row)
    columns = [f"{x}>" for name in CPUS.values() for x in (f"{name}, µs", "GFLOPS", "× NumPy")]
    return Table(["m = n = k>", "type", *columns], rows)


def device_calls_cpu(files: Files) -> Table:
    """docs/calls.md: the host's part of calls of device arrays, on CPUs."""
    results = calls_of(files, "cpu/calls/device.json", "device")
    rows = []
    for name in ("Intel", "PoCL 3.1"):
        own = one([result for result in results if name.lower() in result["device"]], m=64)
        rows.append([name, *(microseconds(own["host_seconds"][way]["median"], 1) for way in ("out", "new"))])
    return Table(["", "`gemm(a, b, out=c)`>", "`gemm(a, b)`>"], rows)


GPU_CALLS = "h200/calls/sizes-cuda.json"

BESIDE = {"device": "torch.matmul", "torch": "torch.matmul", "cupy": "cupy.matmul"}
"""Arrays on a GPU, and whose product stands beside gemmport's."""


def ratio_of(result: Result, way: str, kind: str = "out") -> float:
    """Our speed over that of the library's product, of calls."""
    (found,) = result["baselines"].values()
    return float(found["ratios"][kind][way])


def gpu_calls(files: Files) -> Table:
    """docs/calls.md: the host's part of calls on an H200's host, in microseconds, and calls back to back."""
    return _called_under_cuda(files.results("h200/calls/sizes-cuda.json"))


def gpu_calls_today(files: Files) -> Table:
    """docs/calls.md: likewise on an H100's host."""
    return _called_under_cuda(files.results("h100/calls/sizes-cuda.json"))


def _called_under_cuda(results: list[Result]) -> Table:
    rows = []
    for size in SIZES:
        row = [str(size)]
        for arrays, product in BESIDE.items():
            own = one(results, arrays=arrays, m=size)
            for kind in ("out", "new"):
                times = own["seconds"], own["baselines"][product]["seconds"]
                row.append(" / ".join(microseconds(each[kind]["host"]["median"], 1) for each in times))
            row.append(hundredths(ratio_of(own, "back_to_back")))
        rows.append(row)
    names = {"device": "own arrays", "torch": "PyTorch's", "cupy": "CuPy's"}
    columns = [f"{x}>" for name in names.values() for x in (f"{name}, `out`", "new", "back to back, ×")]
    return Table(["m = n = k>", *columns], rows)


def gpu_calls_opencl(files: Files) -> Table:
    """docs/calls.md: the host's part of calls in OpenCL."""
    return _called_in_opencl(files, "h200/calls/sizes-opencl.json")


def gpu_calls_opencl_today(files: Files) -> Table:
    """docs/calls.md: likewise, with the event of the last launch."""
    return _called_in_opencl(files, "h100/calls/sizes-opencl.json")


def _called_in_opencl(files: Files, name: str) -> Table:
    results, rows = files.results(name), []
    for size in (64, 128, 256, 2048):
        row = [str(size)]
        for arrays in ("device", "pyopencl"):
            own = one(results, arrays=arrays, m=size, k=size)
            times = own["seconds"], own["baselines"]["torch.matmul"]["seconds"]
            row.append(" / ".join(microseconds(each["out"]["host"]["median"], 1) for each in times))
        rows.append(row)
    return Table(["m = n = k>", "own arrays, `out`>", "PyOpenCL's, with events>"], rows)


def hosts_by_launches(files: Files) -> Table:
    """docs/calls.md: the host's time until a call returns, by the launches of its plan, in µs."""
    found = {name: _hosts(files.results(file)) for name, file in LAUNCHES.items()}
    rows = []
    for launches in sorted({number for times in found.values() for number in times}):
        times = [own.get(launches, []) for own in found.values()]
        rows.append(
            [str(launches), *(x for own in times for x in (str(len(own)), f"{median(own):.1f}" if own else EMPTY))]
        )
    return Table(["launches>", *(x for name in found for x in (f"{name}: calls>", "host, µs>"))], rows)


LAUNCHES = {
    "float32, H200": "h200/calls/workloads-torch.json",
    "bfloat16, H100": "h100/calls/workloads-torch-bfloat16-clusters.json",
}


def _hosts(results: list[Result]) -> dict[int, list[float]]:
    """Medians of calls with `out`, in µs, by the number of launches."""
    found: dict[int, list[float]] = {}
    for own in results:
        if own["seconds"]:
            found.setdefault(len(own["launches"]), []).append(own["seconds"]["out"]["host"]["median"] * 1e6)
    return found


def alone_as_called(files: Files) -> Table:
    """docs/mma.md: calls of types that PyTorch's product does not have, in µs back to back."""
    names = {"int8 → int32": "int8", "float8_e4m3fn → float32": "float8_e4m3fn"}
    found = {name: files.results(f"h100/calls/types-torch-{dtype}.json") for name, dtype in names.items()}
    rows = []
    for own in found["int8 → int32"]:
        product = {name: own[name] for name in ("m", "n", "k", "trans_b")}
        times = (one(results, **product)["seconds"]["out"]["back_to_back"]["median"] for results in found.values())
        rows.append([_sizes(own), own["trans_a"] + own["trans_b"], *(f"{seconds * 1e6:.1f}" for seconds in times)])
    return Table(["m × n × k", "ops", *(f"{name}, µs>" for name in names)], rows)


def rounded_as_called(files: Files) -> Table:
    """docs/mma.md: calls of float32 rounded to TF32, in µs back to back, beside PyTorch's own."""
    rows = []
    for own in files.results("h100/calls/types-torch-tf32.json"):
        ours, theirs = (x["seconds"]["out"]["back_to_back"]["median"] for x in (own, own["baselines"]["torch.matmul"]))
        launches = ", then ".join(launch["function"] for launch in own["launches"])
        ops = own["trans_a"] + own["trans_b"]
        rows.append([_sizes(own), ops, launches, f"{ours * 1e6:.1f}", f"{theirs * 1e6:.1f}", hundredths(theirs / ours)])
    return Table(["m × n × k", "ops", "launches", "µs>", "`torch.matmul`, µs>", "×>"], rows)


def squares_called(files: Files) -> Table:
    """docs/calls.md: squares as called, of each library's arrays, beside its own product, back to back."""
    rows = []
    for backend, name in {"CUDA": "cuda", "OpenCL": "opencl"}.items():
        results = [own for own in files.results(f"h200/calls/squares-{name}.json") if own["seconds"]]
        # JAX's calls are others since: see `squares_called_since`.
        for arrays in dict.fromkeys(own["arrays"] for own in results if own["arrays"] != "jax"):
            for dtype in ("float32", "float64"):
                row, beside = [backend, arrays, dtype], ""
                for kind in ("out", "new"):
                    for size in (1024, 2048, 4096):
                        found = some(results, arrays=arrays, dtype=dtype, m=size)
                        ratios = {}
                        for own in found:
                            ((beside, baseline),) = own["baselines"].items()
                            ratios = baseline["ratios"]
                        row.append(hundredths(ratios[kind]["back_to_back"]) if kind in ratios else EMPTY)
                rows.append([*row[:3], f"`{beside.removesuffix(' with copies')}`", *row[3:]])
    heads = (f"{kind}{size}>" for kind in ("`out`, ", "new, ") for size in (1024, 2048, 4096))
    return Table(["", "arrays", "type", "beside", *heads], rows)


def squares_called_since(files: Files) -> Table:
    """docs/calls.md: squares as called, of JAX's arrays and of NumPy's under CUDA, over JAX's product and PyTorch's."""
    results = files.results("h200/calls/squares-jax.json")
    rows = []
    for arrays, kind in (("jax", "new"), ("numpy", "out"), ("numpy", "new")):
        row = [arrays, "a new result" if kind == "new" else "`out`"]
        for way in ("host", "back_to_back", "awaited"):
            for size in (1024, 2048, 4096):
                own = one(results, arrays=arrays, m=size)
                ((_, baseline),) = own["baselines"].items()
                row.append(hundredths(baseline["ratios"][kind][way]))
        rows.append(row)
    ways = ("until it returns", "back to back", "awaited")
    return Table(["arrays", "", *(f"{way}, {size}>" for way in ways for size in (1024, 2048, 4096))], rows)


def launches_cost(files: Files) -> Table:
    """docs/calls.md: what launches take in the drivers, in µs, by their number in a call."""
    results = files.results("h200/study/launch-costs.json")
    rows = []
    for number in (1, 2, 3, 5):
        row = [str(number)]
        for case in ("launch", "updated graph"):
            own = one(results, case=case, cycles=20000, number=number)
            row += [f"{own[way]:.1f}" for way in ("host_us", "call_us", "awaited_us")]
        for case in ("set and enqueue", "enqueue", "set, enqueue and event"):
            row.append(f"{one(results, case=case, cycles=0, number=number)['host_us']:.1f}")
        rows.append(row)
    ways = ("host", "call", "awaited")
    heads = (f"{name}: {way}>" for name in ("CUDA", "one graph") for way in ways)
    return Table(["launches>", *heads, "OpenCL: host>", "arguments kept>", "with an event>"], rows)


def workloads_called(files: Files) -> Table:
    """docs/calls.md: products of published workloads, of PyTorch's tensors."""
    return _summarized(files, "h200/calls/workloads-torch.json")


def generated_called(files: Files) -> Table:
    """docs/calls.md: products that stand in no file, of PyTorch's tensors, by the seeds that they are drawn from."""
    names = [
        f"h200/calls/{file}-torch.json"
        for file in ("generated", "generated-other", "generated-drawn", "generated-fresh")
    ]
    return _side_by_side(files, "seed>", {str(files.document(name)["seed"]): name for name in names})


def called_today(files: Files) -> Table:
    """docs/calls.md: published workloads, and products that stand in no file, of PyTorch's tensors on an H100."""
    each = {"published workloads": "workloads", "that stand in no file": "generated"}
    return _side_by_side(files, "products", {name: f"h100/calls/{file}-torch.json" for name, file in each.items()})


def _side_by_side(files: Files, what: str, names: Mapping[str, str]) -> Table:
    rows = [[own, *row] for own, name in names.items() for row in _summarized(files, name).rows]
    return Table([what, "calls with `out`", "so many>", "geometric mean>", "least>"], rows)


def workloads_called_in_halves(files: Files) -> Table:
    """docs/calls.md: published workloads in bfloat16, of PyTorch's tensors."""
    return _summarized(files, "h200/calls/workloads-torch-bfloat16.json")


def workloads_called_in_halves_since(files: Files) -> Table:
    """docs/calls.md: published workloads in bfloat16, of PyTorch's tensors on an H100."""
    return _summarized(files, "h100/calls/workloads-torch-bfloat16-clusters.json")


def called_types(files: Files) -> Table:
    """docs/mma.md: products of other types, of PyTorch's tensors on an H100."""
    rows = []
    for dtype in ("float16", "bfloat16", "float64", "complex64", "complex128"):
        table = _summarized(files, f"h100/calls/types-torch-{dtype}.json")
        rows += [[dtype, *row] for row in table.rows]
    return Table(["type", "calls with `out`", "products>", "geometric mean>", "least>"], rows)


def bound_by_stores(files: Files) -> Table:
    """docs/calls.md: products in bfloat16 before their sums were rounded on the way to shared memory, and since."""
    extents = ("m", "n", "k", "batch")
    results = files.results("h200/calls/workloads-torch-bfloat16.json")
    before = {tuple(own[each] for each in extents): own for own in results}
    rows = []
    for own in files.results("h200/calls/stores-torch-bfloat16.json"):
        cells = []
        for each in (before[tuple(own[each] for each in extents)], own):
            ours = each["seconds"]["out"]["back_to_back"]["median"]
            theirs = each["baselines"]["torch.matmul"]["seconds"]["out"]["back_to_back"]["median"]
            cells += [f"{ours * 1e6:.1f}", hundredths(theirs / ours)]
        rows.append([_sizes(own), ", then ".join(launch["function"] for launch in own["launches"]), *cells])
    return Table(["m × n × k", "launches", "before, µs>", "×>", "since, µs>", "×>"], rows)


def _sizes(own: Result) -> str:
    batch = f" × {own['batch']}" if own["batch"] > 1 else ""
    return f"{own['m']} × {own['n']} × {own['k']}{batch}"


def unaligned_results(files: Files) -> Table:
    """docs/calls.md: products in bfloat16 whose results have unaligned rows, before their stores were changed, and since."""
    names = (f"h100/calls/workloads-torch-bfloat16{suffix}.json" for suffix in ("", "-stores"))
    before, since = ({own["label"]: own for own in files.results(name)} for name in names)
    rows = []
    for label, own in since.items():
        if own["n"] % 8 == 0 or own["beta"]:
            continue
        times = [each["seconds"]["out"]["back_to_back"]["median"] * 1e6 for each in (before[label], own)]
        torch = own["baselines"]["torch.matmul"]
        theirs = torch["seconds"]["out"]["back_to_back"]["median"] * 1e6
        ratio = hundredths(theirs / times[1]) if torch["verified"] else "–"
        rows.append([_sizes(own), *(f"{each:.1f}" for each in (*times, theirs)), ratio])
    return Table(["m × n × k", "before, µs>", "since, µs>", "`torch.matmul`, µs>", "×>"], rows)


def workloads_called_in_opencl(files: Files) -> Table:
    """docs/calls.md: published workloads of PyOpenCL's arrays beside torch.matmul, and those for which that takes long."""
    found = [own for own in files.results("h200/calls/workloads-pyopencl.json") if own["baselines"]]
    rows = []
    for told, least in (("all", 0.0), ("`torch.matmul` takes 50 µs or more", 50e-6)):
        for way, words in {
            "back_to_back": "back to back",
            "awaited": "awaited",
            "host": "until a call returns",
        }.items():
            ratios = []
            for own in found:
                theirs = own["baselines"]["torch.matmul"]["seconds"]["out"]
                if theirs["back_to_back"]["median"] >= least:
                    ratios.append(theirs[way]["median"] / own["seconds"]["out"][way]["median"])
            rows.append([told, words, str(len(ratios)), hundredths(geometric_mean(ratios)), hundredths(min(ratios))])
    return Table(["products", "calls with `out`", "so many>", "geometric mean>", "least>"], rows)


def _summarized(files: Files, name: str) -> Table:
    document = files.document(name)
    rows = []
    for way, told in {"back_to_back": "back to back", "awaited": "awaited", "host": "until a call returns"}.items():
        own = one(document["summaries"], way=way, result="out")
        rows.append([told, str(own["count"]), hundredths(own["geometric_mean"]), hundredths(own["worst"]["ratio"])])
    return Table(["calls with `out`", "products>", "geometric mean>", "least>"], rows)


def model(files: Files) -> Table:
    """docs/pytorch.md: a model of GPT-2's size under `use()`."""
    names = {"eager": "eager", "compiled": "compiled", "graph": "CUDA graph", "step": "eager, forward and backward"}
    results, rows = files.results("h200/model/gpt2.json"), []
    for way, name in names.items():
        own = one(results, way=way)
        ours, theirs = (own["seconds"][side]["median"] * 1e3 for side in ("gemmport", "torch"))
        errors = (f"{own['error'][side]:.1e}" for side in ("gemmport", "torch"))
        rows.append([name, f"{ours:.1f}", f"{theirs:.1f}", hundredths(own["ratio"]), *errors])
    return Table(["", "gemmport, ms>", "PyTorch, ms>", "×>", "error>", "PyTorch's>"], rows)


def host_operands(files: Files) -> Table:
    """docs/calls.md: NumPy's arrays that lie in other ways, in µs."""
    runtimes = {"Intel": "intel", "PoCL 3.1": "pocl31"}
    found = {
        (name, when): files.results(f"zen4/calls/host-operands-{when}-{own}.json")
        for name, own in runtimes.items() for when in ("before", "after")
    }  # fmt: skip
    rows = []
    for case in (own["case"] for own in found["Intel", "after"]):
        cells = [microseconds(one(results, case=case)["seconds"]) for results in found.values()]
        numpys = one(found["Intel", "after"], case=case)["numpy"]
        rows.append([case, *cells, microseconds(numpys)])
    heads = (f"{name}, {when}>" for name, when in found)
    return Table(["A and B, or the result", *heads, "NumPy>"], rows)


def first_use(files: Files) -> Table:
    """docs/calls.md: what the host does for a call before new memory is used at once, and since, in µs."""
    rows = []
    for own, name in (CPUS | {"rusticl": "Rusticl 22.3"}).items():
        pair = [files.results(f"xeon/calls/first-use-{when}-{own}.json") for when in ("before", "after")]
        for arrays in ("device", "pyopencl"):
            seconds = [one(results, arrays=arrays)["seconds"] for results in pair]
            cells = (microseconds(each[result]["host"]["median"], 1) for result in ("out", "new") for each in seconds)
            rows.append([name, arrays, *cells])
    heads = (f"{result}, {when}>" for result in ("`out`", "new result") for when in ("before", "after"))
    return Table(["runtime", "arrays", *heads], rows)


def first_calls(files: Files) -> Table:
    """docs/startup.md: first calls of new kinds of products on a GPU, in seconds."""
    names = {"CUDA, H100": "h100/startup/first-cuda", "CUDA, H200": "h200/startup/first-cuda"}
    names |= {"OpenCL, H200": "h200/startup/first-opencl", "OpenCL, H100": "h100/startup/first-opencl"}
    found = {name: files.results(f"{file}.json") for name, file in names.items()}
    rows = []
    for row in some(found["OpenCL, H100"], place="first"):
        kind = {name: row[name] for name in ("n", "ops", "dtype")}
        cells = [str(row["n"]), row["ops"], row["dtype"]]
        for results in found.values():
            cells += [f"{one(results, **kind, place=place)['first']:.2f}" for place in ("first", "later")]
            cells.append(f"{one(results, **kind, place='later')['settled']:.2f}")
        rows.append(cells)
    heads = (f"{name}: {what}>" for name in names for what in ("first product", "a later kind", "settled"))
    return Table(["m = n = k>", "ops", "type", *heads], rows)


def first_calls_by_design(files: Files) -> Table:
    """docs/startup.md: the first product of a process under CUDA, by what it compiled, in seconds."""
    names = {
        "H100, 6d619f1": "h100/startup/first-cuda-own-halves", "H100, 24830d9": "h100/startup/first-cuda",
        "H200, 988daf7": "h200/startup/first-cuda-no-loops", "H200, a89e4b8": "h200/startup/first-cuda",
    }  # fmt: skip
    found = {name: some(files.results(f"{file}.json"), place="first") for name, file in names.items()}
    rows = []
    for row in found["H100, 6d619f1"]:
        kind = {name: row[name] for name in ("n", "ops", "dtype")}
        cells = (f"{one(results, **kind)['first']:.2f}" for results in found.values())
        rows.append([str(row["n"]), row["ops"], row["dtype"], *cells])
    return Table(["m = n = k>", "ops", "type", *(f"{name}>" for name in names)], rows)


def starts(files: Files) -> Table:
    """docs/startup.md: the first product of a process, and the floors."""
    rows = []
    for folder, name in {"intel": "Intel 2026.22", "pocl31": "PoCL 3.1 (Debian)", "pocl30": "PoCL 3.0 (wheel)"}.items():
        found = files.document(f"{folder}/startup/512-float32.json")["figures"]
        products = [
            one(found, process="product", gemmport_cache=state, runtime_cache=state)["seconds"]
            for state in ("empty", "warm")
        ]
        floors = [one(found, process=f"floor: {x}")["seconds"] for x in ("device opened", "one-line kernel built")]
        rows.append([name, *(f"{hundredths(seconds)} s" for seconds in (*products, *floors))])
    return Table(
        ["", "all caches empty>", "all warm>", "floor: device opened>", "floor: one-line kernel built>"], rows
    )  # fmt: skip


RECIPES: dict[str, Recipe] = {
    "calls of NumPy arrays": numpy_calls,
    "calls in microseconds": startup_calls,
    "calls in float32": short_calls,
    "calls in both types": all_calls,
    "calls of device arrays on CPUs": device_calls_cpu,
    "calls on the H200": gpu_calls,
    "calls of squares on the H200": squares_called,
    "calls of squares since": squares_called_since,
    "launches in the drivers": launches_cost,
    "calls on the H200 in OpenCL": gpu_calls_opencl,
    "calls on an H100 in OpenCL": gpu_calls_opencl_today,
    "calls of workloads in halves": workloads_called_in_halves,
    "calls of workloads in halves since": workloads_called_in_halves_since,
    "calls of types": called_types,
    "calls of types alone": alone_as_called,
    "calls in TF32": rounded_as_called,
    "hosts by launches": hosts_by_launches,
    "calls on an H100": gpu_calls_today,
    "calls of workloads in OpenCL": workloads_called_in_opencl,
    "results in rows that are not aligned": unaligned_results,
    "results that bound products": bound_by_stores,
    "calls of workloads on the H200": workloads_called,
    "calls of products on an H100": called_today,
    "calls of generated products on the H200": generated_called,
    "a model on the H200": model,
    "calls of other host arrays": host_operands,
    "calls where new memory is used at once": first_use,
    "first calls on a GPU": first_calls,
    "first calls by design": first_calls_by_design,
    "starts": starts,
}
