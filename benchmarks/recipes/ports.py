"""Tables of the order for the register file's ports."""

from __future__ import annotations

from register_ports import LOOPS

from gemmport.backends._sass.ports import cost
from recipes.table import Files, Recipe, Result, Table, hundredths, one, times, whole

WAYS = ("as compiled", "one row", "two rows", "as taken")
"""What benchmarks/machine_code.py does to loops, in the order of the tables."""


def as_compiled(files: Files) -> Table:
    """docs/ports.md: what the order is worth."""
    rows = []
    for own in files.results("h200/study/machine-code-compiled.json"):
        ratios = (
            _times(own, "cublas", "as compiled"),
            _times(own, "cublas", "one row"),
            _times(own, "as compiled", "one row"),
        )
        rows.append([str(own["m"]), *map(hundredths, ratios)])
    return Table(["m = n = k>", "as compiled, × cuBLAS>", "in order, × cuBLAS>", "gain>"], rows)


def long_turns(files: Files) -> Table:
    """docs/ports.md: one row and two rows at a time, near the limit of power."""
    found = files.results("h200/study/machine-code-long.json")
    ways = [way for way in WAYS if all(way in own["seconds"] for own in found)]
    rows = []
    for own in sorted(found, key=_place):
        rates = {name: 2e-9 * own["m"] ** 3 / own["seconds"][name]["median"] for name in ("cublas", *ways)}
        rows.append([*_product(own), hundredths(own["turn_seconds"]), *map(whole, rates.values()), _gain(own)])
    return Table(["m = n = k>", "ops", "turn, s>", "cuBLAS>", *(f"{way}>" for way in ways), "gain>"], rows)


def short_turns(files: Files) -> Table:
    """docs/ports.md: the same at the full clock; of a product that was measured several times, each time."""
    found: dict[tuple[str, ...], list[Result]] = {}
    for own in sorted(files.results("h200/study/machine-code.json"), key=_place):
        found.setdefault(_product(own), []).append(own)
    ways = [way for way in WAYS if all(way in own["seconds"] for each in found.values() for own in each)]
    rows = []
    for product, each in found.items():
        ratios = (", ".join(hundredths(_times(own, "cublas", way)) for own in each) for way in ways)
        rows.append([*product, *ratios, ", ".join(map(_gain, each))])
    return Table(["m = n = k>", "ops", *(f"{way}, × cuBLAS>" for way in ways), "gain>"], rows)


def _place(own: Result) -> tuple[int, str, int]:
    return own["m"], own["trans_a"] + own["trans_b"], own["across"]


def _product(own: Result) -> tuple[str, ...]:
    """Its size, and its ops."""
    return str(own["m"]), own["trans_a"] + own["trans_b"] + (", across" if own["across"] else "")


def _times(own: Result, slower: str, faster: str) -> float:
    """How many times as fast one way is as another."""
    return float(own["seconds"][slower]["median"] / own["seconds"][faster]["median"])


def _gain(own: Result) -> str:
    """What two rows bring over one."""
    return f"{_times(own, 'one row', 'two rows'):.3f}"


READS = {
    "three of one bank": ("three of one bank",),
    "two of one bank, one of the other": ("factors of one bank",),
    "two of one bank, always the same": ("two of one bank, a factor kept",),
    "one of each bank": ("one of each bank, a factor kept",),
    "two of one bank, in turns: 1, 2, 4, 8, 16 of each": tuple(
        f"two of one bank, {n} in a row, a factor kept" for n in (1, 2, 4, 8, 16)
    ),
    "rows and columns back and forth, in the right banks": ("rows of the other bank than the column where they begin",),
    "the same with rows in the wrong banks": ("rows of the bank of that column",),
}
"""What the table calls loops → their names."""


def reads(files: Files) -> Table:
    """docs/ports.md: FFMAs for each cycle of a quarter, two warps in it, and what the model makes of the same instructions."""
    loops = files.document("h200/study/ports.json")["loops"]
    rows = []
    for words, names in READS.items():
        measured = [own["ffma"] / own["cycles"]["2"] for own in (one(loops, name=name) for name in names)]
        told = [cost(LOOPS[name] * 8) for name in names]
        rates = ", ".join(f"{rate:.3f}" for rate in measured), ", ".join(f"{x.ffma / x.cycles:.3f}" for x in told)
        rows.append([words, *rates])
    return Table(["reads of each FFMA", "measured", "model"], rows)


KINDS = {
    "whole tiles": "",
    "rows that are not aligned": ", not aligned",
    "shared tiles": ", shared tiles",
}
"""Kind of products → what the table calls it, behind their ops."""


def loop_costs(files: Files) -> Table:
    """docs/ports.md: what the model makes of the main loop, in brackets the registers read for each FFMA."""
    rows = []
    for loop in files.document("sm_90/study/loop-costs.json")["loops"]:
        orders = [loop[name] for name in ("as compiled", "one row", "two rows")]
        cells = (f"{own['cycles']} ({hundredths(own['reads'] / loop['ffma'])})" for own in orders)
        rows.append([loop["ops"] + KINDS[loop["products"]], str(loop["instructions"]), *cells, loop["taken"]])
    return Table(["operands", "instructions>", "as compiled>", "one row>", "two rows>", "taken"], rows)


def loop_contents(files: Files) -> Table:
    """docs/simt.md: the instructions of the main loop."""
    (own,) = files.document("sm_90/inspect/simt.json")["inspections"]
    loop = own["code"][-1]["loop"]
    kinds, moved = loop["kinds"], {(x["verb"], x["space"], x["bits"]): x["count"] for x in loop["accesses"]}
    single, four = moved["copy", "global", 32], moved["copy", "global", 128]
    p = own["parameters"]
    counted = {
        "multiply-adds": kinds["fma"],
        "reads of 16 bytes from local memory": moved["load", "local", 128],
        "addresses, counters and predicates": kinds["integer"],
        f"asynchronous copies: {single} of one element of A, {four} of four of B; what the compiler puts before them": (
            single + four + moved["load", "local", 32]
        ),
        "moves between registers": kinds["move"],
        "waits for copies, the barrier, the branch": kinds["barrier"] + kinds["branch"],
    }
    if sum(counted.values()) != loop["instructions"]:
        raise ValueError(
            f"the loop must consist of what is counted: {counted}; it has {loop['instructions']} instructions"
        )
    tile = f"tile {times(p['TSM'], p['TSN'], p['TSK'])}, {times(p['WPTM'], p['WPTN'])} sums"
    rows = [[words, whole(count)] for words, count in {**counted, "in all": loop["instructions"]}.items()]
    return Table([f"`simt`'s loop in float32, {tile}, operands as stored (sm_90)", "instructions>"], rows)


def rescheduling(files: Files) -> Table:
    """docs/ports.md: processor time of the pass, by earlier codes and today's; a dash where a code leaves a loop as it is."""
    document = files.document("sm_90/study/rescheduling.json")
    *before, today = document["codes"]
    rows = []
    for own in document["results"]:
        codes = own["codes"]
        seconds = {name: codes[name]["seconds"]["cpu"]["median"] for name in (*before, today)}
        ratios = [
            f"{seconds[name] / seconds[today]:.1f}" if codes[name]["sha256"] == codes[today]["sha256"] else "–"
            for name in before
        ]
        tiles = "shared" if own["shared"] else "whole"
        cells = (f"{seconds[name]:.3f}" for name in (*before, today))
        rows.append([own["dtype"], str(own["m"]), own["ops"], tiles, *cells, *ratios])
    head = [*(f"{name}, s>" for name in (*before, today)), *(f"× {name}>" for name in before)]
    return Table(["type", "m = n = k>", "ops", "tiles", *head], rows)


RECIPES: dict[str, Recipe] = {
    "reads of FFMAs": reads,
    "cycles of a pass": loop_costs,
    "time of the order": rescheduling,
    "the loop of simt": loop_contents,
    "as compiled and in order": as_compiled,
    "rows in long turns": long_turns,
    "rows in short turns": short_turns,
}
