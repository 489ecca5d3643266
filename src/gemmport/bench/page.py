"""One HTML file that shows a document of `gemmport bench` to a person: a summary, plots, and a table that sorts and filters.

The page is page.html, page.css and page.js beside this module, and what all pages share (`gemmport.pages`). The document is
plain data, as docs/results.md describes it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gemmport.bench.charts import Axis, Line, Point, Series, around, can_join, drawn, figure
from gemmport.core.problem import GemmProblem
from gemmport.pages.assembly import assembled, escape

LONGEST_REASON = 600
"""Characters of a reason that the page keeps. A compiler may write thousands, and the document has them."""

_TYPES = ("m", "n", "k", "batch", "dtype", "output", "accumulator", "trans_a", "trans_b", "alpha", "beta", "precision")

_HOST = ("cpu", "cores", "system", "numpy", "blas", "python", "calls")


@dataclass(frozen=True)
class _Row:
    """What was measured of a product: by a kernel, or in one way to call it with one library's arrays.

    Attributes:
        by: the kernel, or the library and the way.
        chosen: the kernel that was asked for; ratios of one choice are summed up together.
        ratios: our speed over each baseline's.
    """

    suite: str
    device: str
    name: str
    problem: GemmProblem
    by: str
    chosen: str
    status: str
    reason: str
    seconds: float | None
    ratios: Mapping[str, float]
    details: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def size(self) -> float:
        """The edge of the cube of as many multiply-adds."""
        problem = self.problem
        return float((problem.m * problem.n * problem.k * problem.batch) ** (1 / 3))

    @property
    def gflops(self) -> float | None:
        return self.problem.flops / self.seconds * 1e-9 if self.seconds and self.problem.flops else None


@dataclass(frozen=True)
class _Group:
    """The ratios of one choice of kernel on one device over one suite, in one type, to one baseline."""

    suite: str
    device: str
    dtype: str
    chosen: str
    baseline: str
    rows: Sequence[_Row]

    @property
    def ratios(self) -> list[float]:
        return [row.ratios[self.baseline] for row in self.rows]

    @property
    def mean(self) -> float:
        return statistics.geometric_mean(self.ratios)

    @property
    def worst(self) -> _Row:
        return min(self.rows, key=lambda row: row.ratios[self.baseline])

    @property
    def below(self) -> int:
        return sum(ratio < 1 for ratio in self.ratios)


def render(document: Mapping[str, Any]) -> str:
    """The page of a document: some 40 KB, and half of one for each product and baseline. It reaches nothing outside itself."""
    called = "libraries" in document
    rows = list(_called_rows(document) if called else _rows(document))
    groups = _groups(rows)
    mood, symbol, verdict = _verdict(rows)
    # Calls have no rooflines: their times are the host's, too.
    rooflines = [] if called else list(_rooflines(rows, document))
    texts = {
        "title": escape(f"{symbol} {verdict} · gemmport bench"),
        "mood": mood,
        "symbol": symbol,
        "verdict": escape(verdict),
        "counts": escape(_counts(document)),
        "made": escape(_made(document)),
        "summary": _summary(groups),
        "ratios": "".join(_ratio_charts(groups)) or _nothing("No baseline was timed."),
        "rooflines": _ROOFLINES.format("".join(rooflines)) if rooflines else "",
        "comparison": _comparison(document),
        "missing": _missing(document),
        "environment": _environment(document),
    }
    return assembled("gemmport.bench", texts, _packed(rows, called))


# What is read of the document


def _problem(result: Mapping[str, Any]) -> GemmProblem:
    given = {key: result[key] for key in _TYPES if key in result}
    for key in ("alpha", "beta"):
        if isinstance(given.get(key), list):
            given[key] = complex(*given[key])
    return GemmProblem.create(given.pop("m"), given.pop("n"), given.pop("k"), **given)


def _rows(document: Mapping[str, Any]) -> Iterator[_Row]:
    elsewhere = [one for one in document.get("standings", ()) if one["timed_on"] != one["device"]]
    for result in document["results"]:
        problem = _problem(result)
        device = f"{result['device']} ({result['backend']}, {result['platform']})"
        name = result.get("label") or str(problem)
        asked = result["asked"]["kernel"]
        ratios = {
            other: beside["ratio"]
            for other, beside in result["baselines"].items()
            if result["status"] == "ok" and beside["ratio"] is not None and beside["verified"] is not False
        }
        for one in elsewhere:  # timed on the same chip under another backend
            key = one["device"], one.get("suite"), one.get("dtype", problem.dtype.name)
            if key == (device, result.get("suite"), problem.dtype.name) and one["kernel"] in (asked, result["kernel"]):
                ratios |= {one["baseline"]: one["ratios"][name]} if name in one["ratios"] else {}
        values = " ".join(f"{key}={told['value']}" for key, told in result["parameters"].items())
        errors = [
            check["error"] / check["bound"] for check in result["checks"].values() if check["error"] and check["bound"]
        ]
        details = {
            "problem": str(problem),
            "parameters": values,
            "chosen by": result["entry"] or "",
            "of the peak": "" if result["peak_percent"] is None else f"{result['peak_percent']:.1f} %",
            "error over its bound": f"{max(errors):.2g}" if errors else "",
            "source": result.get("source", ""),
            **{
                f"beside {other}": beside["reason"] or f"{beside['gflops']:,.1f} GFLOPS, version {beside['version']}"
                for other, beside in result["baselines"].items()
                if beside["reason"] or beside["gflops"]
            },
        }
        yield _Row(
            result.get("suite", ""), device, name, problem, result["kernel"], asked, result["status"],
            _shortened(result["reason"]), (result["seconds"] or {}).get("median"), ratios, details,
        )  # fmt: skip


def _called_rows(document: Mapping[str, Any]) -> Iterator[_Row]:
    for result in document["results"]:
        problem = _problem(result)
        told = {"problem": str(problem), "source": result["source"]}
        common = (result.get("suite", ""), result["device"], result["label"] or str(problem), problem)
        if not result["seconds"]:
            reason = _shortened(result["reason"])
            yield _Row(*common, result["arrays"], result["arrays"], result["status"], reason, None, {}, told)
        for kind, ways in result["seconds"].items():
            for way, seconds in ways.items():
                by = f"{result['arrays']}, {kind}, {way.replace('_', ' ')}"
                ratios = {
                    other: beside["ratios"][kind][way]
                    for other, beside in result["baselines"].items()
                    if beside["ratios"].get(kind, {}).get(way) is not None
                }
                yield _Row(
                    *common, by, by, result["status"], _shortened(result["reason"]), seconds["median"], ratios, told
                )


def _shortened(reason: str) -> str:
    over = f"… ({len(reason):,} characters; the document has them all)"
    return reason if len(reason) <= LONGEST_REASON else reason[: LONGEST_REASON - len(over)] + over


def _groups(rows: Sequence[_Row]) -> list[_Group]:
    several = {(row.device, row.suite, row.chosen) for row in rows}
    found: dict[tuple[str, str, str, str, str], list[_Row]] = {}
    for row in rows:
        # One choice of many kernels, such as auto, is one group; of several kernels each is one of its own.
        chosen = row.chosen if (row.device, row.suite, row.chosen) in several else row.by
        for baseline in row.ratios:
            found.setdefault((row.suite, row.device, row.problem.dtype.name, chosen, baseline), []).append(row)
    return [_Group(*key, group) for key, group in found.items()]


# What is told in words


def _verdict(rows: Sequence[_Row]) -> tuple[str, str, str]:
    """Mood (a class of base.css), symbol and sentence."""
    failed = sum(row.status == "failed" for row in rows)
    well = sum(row.status == "ok" for row in rows)
    if failed:
        return "bad", "✗", f"{failed:,} of {_number(failed + well, 'result')} failed verification"
    if not well:
        return "idle", "–", "Nothing was measured"
    ratios = [ratio for row in rows for ratio in row.ratios.values()]
    if not ratios:
        return "good", "✓", f"{_number(well, 'result')}, none wrong"
    ahead = sum(ratio >= 1 for ratio in ratios)
    mood = "good" if 2 * ahead >= len(ratios) else "idle"
    return mood, "✓", f"As fast or faster in {ahead:,} of {_number(len(ratios), 'comparison')}, none wrong"


def _number(count: int, name: str) -> str:
    return f"{count:,} {name}" if count == 1 else f"{count:,} {name}s"


def _counts(document: Mapping[str, Any]) -> str:
    told = [f"{one['name']}: {one['about']}" for one in document.get("suites", ())]
    left = len(document.get("left", ()))
    return " · ".join([*told, *([f"{left:,} left out"] if left else [])])


def _made(document: Mapping[str, Any]) -> str:
    host = document["environment"]
    told = [f"gemmport {host['gemmport']}", host["date"], _number(len(host["devices"]), "device"), host.get("cpu", "")]
    return " · ".join(filter(None, told))


def _summary(groups: Sequence[_Group]) -> str:
    """A table of what the ratios come to: a line for each device and suite, a column for each baseline."""
    if not groups:
        return _nothing("No baseline was timed: there are no ratios.")
    told = {"suite": "Suite", "dtype": "Type", "chosen": "By"}
    shown = [key for key in told if len({getattr(group, key) for group in groups}) > 1]
    baselines = list(dict.fromkeys(group.baseline for group in groups))
    lines: dict[tuple[str, ...], dict[str, _Group]] = {}
    for group in [*groups, *_totals(groups)]:
        key = group.device, group.suite, group.dtype, group.chosen
        lines.setdefault(key, {})[group.baseline] = group
    top = '<th scope="col">Device</th>'
    top += "".join(f'<th scope="col" class="wide">{told[key]}</th>' for key in shown)
    top += "".join(f'<th scope="col" class="number">× {escape(name)}</th>' for name in baselines)
    body = []
    for (label, *_), own in lines.items():
        any_group = next(iter(own.values()))
        name, _, runtime = label.partition(" (")
        where = [escape(getattr(any_group, key)) for key in shown]
        head = escape(name) + (f'<span class="below">{escape(runtime.removesuffix(")"))}</span>' if runtime else "")
        head += f'<span class="below narrow">{" · ".join(where)}</span>' if where else ""
        cells = "".join(f'<td class="wide">{cell}</td>' for cell in where)
        cells += "".join(f'<td class="number">{_told(own[name]) if name in own else "–"}</td>' for name in baselines)
        total = ' class="total"' if any_group.suite == _ALL else ""
        body.append(f'<tr{total}><th scope="row">{head}</th>{cells}</tr>')
    caption = '<caption class="offscreen">Ratios to each baseline by device and suite</caption>'
    return (
        f'<div class="scroll card" tabindex="0" role="region" aria-label="Summary"><table class="data">{caption}'
        f"<thead><tr>{top}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _told(group: _Group) -> str:
    """The mean of a group's ratios, the worst, and how many are below 1."""
    mood, worst = "faster" if group.mean >= 1 else "slower", f"{min(group.ratios):.3f}"
    return (
        f'<strong class="{mood}">{group.mean:.3f}×</strong>'
        f'<span class="below" title="{escape(group.worst.name)}">worst {worst}×</span>'
        f'<span class="below">{group.below} of {len(group.rows)} below 1</span>'
    )


_ALL = "all suites"

_ROOFLINES = """<section id="rooflines" aria-labelledby="rooflines-title">
  <h2 id="rooflines-title" tabindex="-1">Rooflines</h2>
  <p class="note">The slope is the bandwidth of the runtime's own copy, the level line the estimated peak. What a cache
  holds may lie above the slope.</p>
  <div class="charts">{}</div>
</section>"""


def _totals(groups: Sequence[_Group]) -> Iterator[_Group]:
    found: dict[tuple[str, ...], list[_Group]] = {}
    for group in groups:
        found.setdefault((group.device, group.dtype, group.chosen, group.baseline), []).append(group)
    for (device, dtype, chosen, baseline), several in found.items():
        if len(several) > 1:
            yield _Group(_ALL, device, dtype, chosen, baseline, [row for group in several for row in group.rows])


def _nothing(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


# Plots


def _ratio_charts(groups: Sequence[_Group]) -> Iterator[str]:
    """A picture for each suite, device, type and choice of kernel, with a series for each baseline."""
    together: dict[tuple[str, str, str, str], list[_Group]] = {}
    for group in groups:
        together.setdefault((group.suite, group.device, group.dtype, group.chosen), []).append(group)
    for number, ((suite, device, dtype, chosen), several) in enumerate(together.items()):
        series = [_ratios_of(group) for group in several]
        points = [point for one in series for point in one.points]
        x = around("edge of the cube of as many multiply-adds", [point.x for point in points], 2)
        y = around("speed over the baseline's", [*(point.y for point in points), 1.0], least=1.5)
        by = "" if chosen == "auto" else f", {chosen}"
        title = f"{suite}, {dtype}{by} on {device}".removeprefix(", ")
        about = "Ratio of speeds over size; above 1 gemmport is faster. " + " ".join(
            f"{group.baseline}: geometric mean {group.mean:.3f} over {_number(len(group.rows), 'product')}, lowest "
            f"{min(group.ratios):.3f} ({group.worst.name})."
            for group in several
        )
        level = Line("", (x.low, 1.0), (x.high, 1.0))
        yield drawn(number, title, about, series, [level], x, y)


def _ratios_of(group: _Group) -> Series:
    rows = sorted((row for row in group.rows if row.size), key=lambda row: row.size)
    points = [
        Point(row.size, ratio, f"{row.name}, {row.by}: {ratio:.3f}× {group.baseline}")
        for row in rows
        if (ratio := row.ratios[group.baseline]) > 0
    ]
    return Series(f"× {group.baseline}", points, f"mean {group.mean:.3f}", joined=can_join(points))


def _rooflines(rows: Sequence[_Row], document: Mapping[str, Any]) -> Iterator[str]:
    """A picture for each device and arithmetic type: what was reached over flops per byte, under the device's ceilings."""
    together: dict[tuple[str, str], list[_Row]] = {}
    for row in rows:
        if row.gflops and row.problem.intensity:
            together.setdefault((row.device, row.problem.accumulator.arithmetic), []).append(row)
    ceilings = document.get("ceilings", {})
    for number, ((device, arithmetic), several) in enumerate(together.items(), 1000):
        own = ceilings.get(device, {})
        peak, bandwidth = own.get("gflops", {}).get(arithmetic), own.get("gb_per_second")
        yield _roofline(number, device, arithmetic, several, peak, bandwidth)


def _roofline(
    number: int, device: str, arithmetic: str, rows: Sequence[_Row], peak: float | None, bandwidth: float | None
) -> str:
    series = [
        Series(
            suite or "products",
            [
                Point(
                    row.problem.intensity,
                    row.gflops or 0.0,
                    f"{row.name}, {row.by}: {figure(row.gflops or 0.0)} GFLOPS",
                )
                for row in rows
                if row.suite == suite
            ],
        )
        for suite in dict.fromkeys(row.suite for row in rows)
    ]
    points = [point for one in series for point in one.points]
    ridge = [peak / bandwidth] if peak and bandwidth else []
    x = around("flops per byte that must be moved", [*(point.x for point in points), *ridge], least=2)
    top = [peak] if peak else []
    y = around("GFLOPS", [*(point.y for point in points), *top], least=2)
    title = f"{arithmetic or 'integers'} on {device}"
    told = [f"peak {figure(peak)} GFLOPS, estimated"] if peak else []
    told += [f"copy {figure(bandwidth)} GB/s, measured"] if bandwidth else []
    best = max(rows, key=lambda row: row.gflops or 0.0)
    about = (
        f"Achieved GFLOPS over arithmetic intensity of {_number(len(rows), 'product')}; the fastest has "
        f"{figure(best.gflops or 0.0)} ({best.name}). Ceilings: {', '.join(told) or 'not known'}."
    )
    return drawn(number, title, about, series, [*_ceilings(x, y, peak, bandwidth)], x, y)


def _ceilings(x: Axis, y: Axis, peak: float | None, bandwidth: float | None) -> Iterator[Line]:
    """The lines of the ceilings, cut where they leave the picture or meet."""
    ridge = peak / bandwidth if peak and bandwidth else x.high
    if bandwidth:
        start, end = max(x.low, y.low / bandwidth), min(x.high, ridge, y.high / bandwidth)
        if start < end:
            yield Line(f"{figure(bandwidth)} GB/s", (start, start * bandwidth), (end, end * bandwidth))
    if peak:
        start = max(x.low, ridge) if bandwidth else x.low
        if start < x.high:
            yield Line(f"{figure(peak)} GFLOPS", (start, peak), (x.high, peak))


# What else the document tells


def _comparison(document: Mapping[str, Any]) -> str:
    """A table of the ratios then and now, the worse first; empty where nothing was compared."""
    told = document.get("comparison")
    if not told:
        return ""
    order = ("worse", "better", "missing", "new", "same")
    rows = sorted(told["rows"], key=lambda row: order.index(row["verdict"]))
    counts = ", ".join(
        f"{sum(row['verdict'] == verdict for row in rows)} {verdict}"
        for verdict in order
        if any(row["verdict"] == verdict for row in rows)
    )
    lines = []
    for row in rows:
        sides = [f"{side['value']:.3f}×" if side else "" for side in (row["then"], row["now"])]
        ratios = "".join(f'<td class="number">{side}</td>' for side in sides)
        change = "" if row["change_percent"] is None else f"{row['change_percent']:+.1f} %"
        mood = {"worse": "failed", "better": "verified"}.get(row["verdict"], "unsupported")
        lines.append(
            f'<tr><th scope="row">{escape(row["task"])}<span class="below">{escape(row["device"])}</span></th>'
            f"<td>{escape(row['baseline'])}</td>{ratios}"
            f'<td class="number">{change}</td><td><span class="pill {mood}">{row["verdict"]}</span></td></tr>'
        )
    head = "".join(
        f'<th scope="col"{" class=number" if numbers else ""}>{name}</th>'
        for name, numbers in (("Product", 0), ("Beside", 0), ("Then", 1), ("Now", 1), ("Change", 1), ("Verdict", 0))
    )
    return (
        '<section id="comparison" aria-labelledby="comparison-title"><h2 id="comparison-title" tabindex="-1">Then and now</h2>'
        f'<p class="note">Beside {escape(told["with"])} of {escape(told["date"])}: {counts}. Worse and better are beyond the '
        f'spreads of both.</p><details><summary>{_number(len(rows), "ratio")}</summary><div class="scroll card" tabindex="0" '
        f'role="region" aria-label="Then and now"><table class="data"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div></details></section>"
    )


def _missing(document: Mapping[str, Any]) -> str:
    """What was left out, and which baselines are not there, each reason once."""
    told: dict[str, int] = {}
    for one in document.get("left", ()):
        key = f"{one['suite']} on {one['device']}: {one['reason']}"
        told[key] = told.get(key, 0) + 1
    for result in document["results"]:
        for name, beside in result["baselines"].items():
            if beside["reason"]:
                key = f"beside {name}: {_shortened(beside['reason'])}"
                told[key] = told.get(key, 0) + 1
    told |= {f"backend {name}: {reason}": 1 for name, reason in document["unavailable"].items()}
    if not told:
        return ""
    items = "".join(
        f"<li>{escape(text)}{f' <span class=muted>({count}×)</span>' if count > 1 else ''}</li>"
        for text, count in told.items()
    )
    return (
        '<section id="missing" aria-labelledby="missing-title"><h2 id="missing-title" tabindex="-1">Left out</h2>'
        f'<ul class="card missing">{items}</ul></section>'
    )


def _environment(document: Mapping[str, Any]) -> str:
    """The host and each device, as lists of facts, and the command."""
    host = document["environment"]
    told: list[tuple[str, Mapping[str, Any]]] = [("Host", {name: host[name] for name in _HOST if host.get(name)})]
    for label, device in host["devices"].items():
        facts = {
            "architecture": device["architecture"],
            "compute units": device["compute_units"],
            "clock": device["clock_mhz"] and f"{device['clock_mhz']:,} MHz",
            "memory": f"{device['memory'] / 2**30:,.1f} GiB",
            "driver": device["driver"],
            **device.get("runtime", {}),
        }
        told.append((label, {name: fact for name, fact in facts.items() if fact}))
    versions = {name: version for name, version in document.get("libraries", {}).items() if version}
    for result in document["results"]:
        versions |= {name: beside["version"] for name, beside in result["baselines"].items() if beside["version"]}
    if versions:
        told.append(("Beside", versions))
    lists = "".join(
        f"<div><h3>{escape(title)}</h3><dl>"
        + "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(str(fact))}</dd></div>" for name, fact in facts.items())
        + "</dl></div>"
        for title, facts in told
    )
    command = escape(document["command"])
    return f'<div class="card about"><div class="facts">{lists}</div><code class="command">{command}</code></div>'


def _packed(rows: Sequence[_Row], called: bool) -> dict[str, Any]:
    """What page.js reads."""
    return {
        "called": called,
        "baselines": list(dict.fromkeys(name for row in rows for name in row.ratios)),
        "rows": [
            {
                "suite": row.suite,
                "device": row.device,
                "name": row.name,
                "dtype": row.problem.dtype.name,
                "by": row.by,
                "status": row.status if row.status != "ok" else "verified",
                "reason": row.reason,
                "size": round(row.size, 1),
                "seconds": row.seconds,
                "gflops": None if called else row.gflops,
                "ratios": row.ratios,
                "details": {name: text for name, text in row.details.items() if text},
            }
            for row in rows
        ],
    }
