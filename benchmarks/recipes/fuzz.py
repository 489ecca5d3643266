"""The table of problems that campaigns judged."""

from __future__ import annotations

from collections import Counter

from recipes.table import Files, Recipe, Table, whole

CAMPAIGNS = (
    ("H200 under CUDA, driver 580.159.04", ("h200/fuzz/cuda-26",), "9a8af11, and a draft of aafe0ca"),
    ("H200 under OpenCL", ("h200/fuzz/opencl-26",), "the same"),
    ("H200 under CUDA", tuple(f"h200/fuzz/cuda-{seed}." for seed in (3, 7, 11)), "906c53b, 5e90466, 6875fa6"),
    ("H200 under OpenCL", tuple(f"h200/fuzz/opencl-{seed}." for seed in (4, 8, 12)), "the same"),
    ("H200 under CUDA, with Hopper's unit", ("h200/fuzz/cuda-2711",), "8f66064"),
    ("H200 under OpenCL, with Hopper's unit", ("h200/fuzz/opencl-2711",), "8f66064"),
    ("H100 under CUDA, with Hopper's unit", ("h100/fuzz/cuda-271126.",), "d7f0ea1"),
    ("H100 under CUDA, of types of matrix units, float32 and complex", ("h100/fuzz/cuda-271125",), "54b5202"),
    ("H100 under CUDA, of types of matrix units and complex", ("h100/fuzz/cuda-2811",), "a5aa0fc"),
    ("H100 under OpenCL, of the same types", ("h100/fuzz/opencl-2811",), "a5aa0fc"),
    ("Intel's runtime", ("intel/fuzz/",), "906c53b"),
    ("PoCL 5.0, 6.0", ("pocl50/fuzz/", "pocl60/fuzz/"), "46814b6"),
)
"""What the row is called, how the names of its files begin, and the commits."""


def campaigns(files: Files) -> Table:
    """docs/reliability.md."""
    names = files.names("*/fuzz/*.json")
    rows = []
    total = 0
    for device, beginnings, commits in CAMPAIGNS:
        problems = sum(files.document(name)["problems"] for name in names if name.startswith(beginnings))
        total += problems
        rows.append([device, whole(problems), commits])
    return Table(["device", "problems>", "at"], [*rows, ["all", whole(total), ""]])


TYPES = {
    "float16": ("float16",),
    "bfloat16": ("bfloat16",),
    "int8, uint8": ("int8", "uint8"),
    "float8": ("float8_e4m3fn", "float8_e5m2"),
    "complex64": ("complex64",),
    "complex128": ("complex128",),
}
"""What the row is called, and the types of the operands."""

HOPPERS = (
    "h200/fuzz/cuda-2711", "h200/fuzz/opencl-2711", "h100/fuzz/cuda-2711", "h100/fuzz/cuda-2811", "h100/fuzz/opencl-2811",
)  # fmt: skip
"""How the names of files begin whose campaigns drew Hopper's unit."""


def campaigns_by_type(files: Files) -> Table:
    """docs/reliability.md: problems on GPUs by the type of the operands, of all campaigns and of those with Hopper's unit.

    A text for types begins with that of the operands; "float16→float32 in float64" has those of output and sums, too.
    """
    gpus = tuple(beginning for device, all_, _ in CAMPAIGNS if device.startswith("H") for beginning in all_)
    counted = []
    for beginnings in (gpus, HOPPERS):
        drawn: Counter[str] = Counter()
        for name in files.names("*/fuzz/*.json"):
            if name.startswith(beginnings):
                counts = files.document(name)["counts"]
                for types, problems in counts["types"].items():
                    drawn[types.partition(" ")[0].partition("→")[0]] += problems
                drawn["rounded"] += sum(n for feature, n in counts["features"].items() if feature.startswith("rounded"))
        counted.append(drawn)

    def row(name: str, kinds: tuple[str, ...]) -> list[str]:
        return [name, *(whole(sum(drawn[kind] for kind in kinds)) for drawn in counted)]

    rows = [row(name, kinds) for name, kinds in TYPES.items()]
    rows.append(row("all of these", tuple(kind for kinds in TYPES.values() for kind in kinds)))
    rows.append(row("float32 or complex64, rounded first", ("rounded",)))
    return Table(["operands", "problems on GPUs>", "of these with Hopper's unit>"], rows)


RECIPES: dict[str, Recipe] = {"campaigns": campaigns, "campaigns by type": campaigns_by_type}
