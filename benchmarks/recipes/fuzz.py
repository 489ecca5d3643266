"""The table of problems that campaigns judged."""

from __future__ import annotations

from recipes.table import Files, Recipe, Table, whole

CAMPAIGNS = (
    ("H200 under CUDA, driver 580.159.04", ("h200/fuzz/cuda-26",), "9a8af11, and a draft of aafe0ca"),
    ("H200 under OpenCL", ("h200/fuzz/opencl-26",), "the same"),
    ("H200 under CUDA", tuple(f"h200/fuzz/cuda-{seed}." for seed in (3, 7, 11)), "906c53b, 5e90466, 6875fa6"),
    ("H200 under OpenCL", tuple(f"h200/fuzz/opencl-{seed}." for seed in (4, 8, 12)), "the same"),
    ("H200 under CUDA, with Hopper's unit", ("h200/fuzz/cuda-2711",), "8f66064"),
    ("H200 under OpenCL, with Hopper's unit", ("h200/fuzz/opencl-2711",), "8f66064"),
    ("H100 under CUDA, with Hopper's unit", ("h100/fuzz/cuda-2711",), "d7f0ea1"),
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


RECIPES: dict[str, Recipe] = {"campaigns": campaigns}
