"""Tables of the order for the register file's ports."""

from __future__ import annotations

from math import ceil
from statistics import median

from gemmport.contracts.gpu_model import sharing_of
from recipes.table import Files, Recipe, Result, Table, mean, one, some, whole

SUSTAINED = "sustained, 0.6 to 2.5 s a turn"


def rows_of_a_loop(files: Files) -> Table:
    """docs/ports.md: one row and two rows at a time, in long turns."""
    found = [x for x in files.document("h200/study/rows.json")[SUSTAINED] if "one row plan" in x["rounds"]]
    rows = []
    for size, words, way in ((8192, "NN", "plain"), (8192, "NN, across", "plan"), (16384, "NN, across", "plan")):
        rounds = one(found, **{"m = n = k": size, "ops": "NN"})["rounds"]
        rates = [
            2e-3 * size**3 / median(turn["us"] for turn in rounds[name])
            for name in ("cublas", f"one row {way}", f"two rows {way}")
        ]
        rows.append([str(size), words, *map(whole, rates), f"{rates[2] / rates[1]:.3f}"])
    return Table(["m = n = k", "ops", "cuBLAS", "one row", "two rows", "gain"], rows)


def order(own: Result, units: int) -> str:
    """What decides how the loops of a product go along the rows of a tile, on a device with so many multiprocessors."""
    told = {name: parameter["value"] for name, parameter in own["parameters"].items()}
    if not told.get("PORTS"):
        return "in no such order: the noise between the runs"
    if told["SLICES"] > 1:
        return f"{told['TSM']} × {told['TSN']}, two slices"
    tiles = ceil(own["m"] / told["TSM"]) * ceil(own["n"] / told["TSN"]) * own["batch"]
    shared, _ = sharing_of(tiles, ceil(own["k"] / told["TSK"]), told["SHARE"] * units)
    return "no shared tiles" if not shared else "some shared tiles" if shared < tiles else "all tiles shared"


ORDERS = ("in no such order: the noise between the runs", "no shared tiles", "some shared tiles", "all tiles shared",
          "64 × 128, two slices")  # fmt: skip


def orders(files: Files) -> Table:
    """docs/ports.md: published workloads with each order in all loops, and as it is chosen."""
    names = ("one-row", "two-rows", "as-chosen")
    devices = files.document(f"h200/run/workloads-float32-{names[0]}.json")["environment"]["devices"]
    units = next(iter(devices.values()))["compute_units"]
    one_row, *others = (
        some(files.results(f"h200/run/workloads-float32-{name}.json"), backend="cuda") for name in names
    )
    gains: dict[str, list[tuple[float, ...]]] = {}
    for own, *rest in zip(one_row, *others, strict=True):
        gains.setdefault(order(own, units), []).append(tuple(other["gflops"] / own["gflops"] for other in rest))
    rows = []
    for words in sorted(gains, key=ORDERS.index):
        found = gains[words]
        figures = (f"{x:.3f}" for ratios in zip(*found, strict=True) for x in (mean(ratios), min(ratios), max(ratios)))
        rows.append([words, str(len(found)), *figures])
    return Table(["products", ">", "two rows, mean>", "from>", "to>", "as chosen, mean>", "from>", "to>"], rows)


RECIPES: dict[str, Recipe] = {"rows at a time": rows_of_a_loop, "orders of workloads": orders}
