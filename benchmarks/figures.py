"""Which figures of the documentation are out of date, and the command that measures them anew.

python benchmarks/figures.py                    # README.md and docs/: exit 1 where something is wrong
python benchmarks/figures.py benchmarks/results/intel/run/squares-float32.json    # these results alone

Every table of figures stands behind a comment that names its results, in the same section (from one heading to the next):

    <!-- figures: A.json B.json -->                                              what is launched today was measured
    <!-- figures at 1234567: A.json -->                                          what was launched at that commit; or no file,
                                                                                 where figures were computed
    <!-- no figures: exit statuses -->                                           and why not

It governs what follows, until the next comment or heading. A commit must also stand in the text of the section, for the reader.
A table of figures has three or more cells that begin with a number.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from gemmport import kernels
from gemmport.bench.digest import call_path_digest, launches_digests
from gemmport.bench.pass_jobs import PassJob, Reduction, Transposition
from gemmport.bench.products import GUARD_ELEMENTS
from gemmport.checking import verification as verify
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import as_dtype
from gemmport.core.errors import GemmportError
from gemmport.core.plan import Launch
from gemmport.core.precision import FULL
from gemmport.core.problem import GemmProblem
from gemmport.planning.lookup import Configuration, load_configuration
from gemmport.planning.planner import make_plan

ROOT = Path(__file__).resolve().parent.parent

LEAST = 3
"""Cells that begin with a number, which make a table one of figures."""

_MARKER = re.compile(r"<!-- (?P<kind>no figures|figures)(?: at (?P<commits>[^:]*))?:(?P<rest>.*?)-->", re.DOTALL)
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_FIGURE = re.compile(r"\W{0,3}\d")


@dataclass(frozen=True)
class Marker:
    """What a comment states about the figures below it.

    Attributes:
        commits: that the figures belong to; empty where they are today's.
        files: of the results, as the comment names them; with `*` several.
        none: whether there are no figures.
    """

    line: int
    commits: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    none: bool = False


@dataclass(frozen=True)
class Section:
    """A part of a page, from one heading to the next.

    Attributes:
        markers: in order.
        tables: the lines at which tables of figures begin.
        text: what a reader sees.
    """

    markers: tuple[Marker, ...]
    tables: tuple[int, ...]
    text: str


def pages(root: Path = ROOT) -> list[Path]:
    """README.md and the pages of docs/."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def current_files(root: Path = ROOT) -> list[Path]:
    """The results that pages quote as today's."""
    patterns = {
        pattern
        for page in pages()
        for section in sections(page.read_text(encoding="utf-8"))
        for marker in section.markers
        if not marker.commits
        for pattern in marker.files
    }
    return sorted(file for pattern in patterns for file in root.glob(pattern))


def faults(page: Path, root: Path = ROOT, judge: Callable[[Path], Iterable[str]] | None = None) -> Iterator[str]:
    """What is wrong with the figures of a page, one line each.

    Args:
        judge: what is wrong with a file of results that the page quotes as today's; `stale` where it is left out.
    """
    judge = judge or stale
    name = page.relative_to(root)
    for section in sections(page.read_text(encoding="utf-8")):
        for line in section.tables:
            if not any(marker.line < line for marker in section.markers):
                yield (
                    f"{name}:{line}: a table of figures must stand behind a comment that names its results; got none in this "
                    "section; write <!-- figures: FILES -->, or <!-- no figures: WHY -->"
                )
        for marker in section.markers:
            for commit in marker.commits:
                if not _COMMIT.fullmatch(commit):
                    yield f"{name}:{marker.line}: a commit must be 7 or more hexadecimal digits; got {commit!r}"
                elif commit not in section.text:
                    yield (
                        f"{name}:{marker.line}: the text of the section must name commit {commit}, to which its figures "
                        f'belong; write, say, "at {commit}"'
                    )
            if not (marker.files or marker.commits or marker.none):
                yield f"{name}:{marker.line}: the comment must name the results; got no file"
            for pattern in marker.files:
                files = sorted(root.glob(pattern))
                if not files:
                    yield f"{name}:{marker.line}: {pattern} must be a file of results; there is none"
                elif not marker.commits:
                    for file in files:
                        yield from (f"{name}:{marker.line}: {file.relative_to(root)}: {fault}" for fault in judge(file))


def sections(text: str) -> Iterator[Section]:
    """The sections of a page. What stands in a block of code is neither heading nor table."""
    shown = re.sub(r"^```.*?^```", lambda found: "\n" * found.group().count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    lines = shown.split("\n")
    starts = [0, *(number for number, line in enumerate(lines) if line.startswith("#")), len(lines)]
    for start, end in pairwise(starts):
        part = "\n".join(lines[start:end])
        yield Section(
            tuple(_markers(part, start)), tuple(_tables(lines[start:end], start)), _MARKER.sub("", part)
        )  # fmt: skip


def _markers(part: str, start: int) -> Iterator[Marker]:
    for found in _MARKER.finditer(part):
        line = start + part.count("\n", 0, found.start()) + 1
        if found["kind"] == "no figures":
            yield Marker(line, none=True)
        else:
            yield Marker(line, tuple((found["commits"] or "").split()), tuple(found["rest"].split()))


def _tables(lines: Sequence[str], start: int) -> Iterator[int]:
    """The lines at which tables of figures begin, counted from 1 in the page."""
    rows: list[str] = []
    for number, line in enumerate([*lines, ""]):
        if line.startswith("|"):
            rows.append(line)
            continue
        cells = [cell.strip() for row in rows for cell in row.strip("|").split("|")]
        if sum(bool(_FIGURE.match(cell)) for cell in cells) >= LEAST:
            yield start + number - len(rows) + 1
        rows = []


def stale(file: Path, *, each_kernel_once: bool = False) -> Iterator[str]:
    """Which results of a file were not measured with what is launched today, and how to measure them anew.

    Args:
        each_kernel_once: takes one result of each kernel, type and device. They share a source, and a digest takes tenths of a
            second.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        results = document["results"]
    except (ValueError, KeyError, TypeError):
        yield "holds no results with digests: quote its figures with their commit"
        return
    anew = f"measure it anew: {document.get('command', 'see benchmarks/results/manifest.json')}"
    if not results:
        yield f"holds no result; {anew}"
    if each_kernel_once:
        results = list({tuple(result.get(x) for x in _KERNEL): result for result in reversed(results)}.values())
    for result in results:
        for fault in _differences(result, document):
            yield f"{_title(result)}: {fault}; {anew}"


_KERNEL = ("backend", "device", "step", "kernel", "dtype")
"""What tells kernels apart among results."""


def _title(result: dict[str, Any]) -> str:
    what = result.get("step") or result.get("kernel") or "call"
    sizes = "×".join(str(result[name]) for name in ("m", "n", "k", "rows", "columns", "count") if name in result)
    return f"{what} {sizes} {result.get('dtype', '')} on {result.get('device', '')}"


def _differences(result: dict[str, Any], document: dict[str, Any]) -> Iterator[str]:
    """What differs between a result and today, in words."""
    if "launches" not in result:
        yield "has no digests"
        return
    if result.get("status", "ok") != "ok":
        return  # nothing was measured
    try:
        device = _device(result, document)
        launches = _launches(result, document, device)
    except (GemmportError, KeyError, TypeError, ValueError) as error:
        yield f"cannot be planned as it was: {error}"
        return
    told = launches_digests(launches, device)
    if told != result["launches"]:
        was, now = (" ".join(f"{x['function']} {x['digest']}" for x in each) for each in (result["launches"], told))
        yield f"what was launched ({was}) is not what is launched today ({now})"
    called = result.get("call_path")
    if called is not None and called != call_path_digest(device.backend):
        yield "the code that a call runs through is not today's"


def _device(result: dict[str, Any], document: dict[str, Any]) -> DeviceInfo:
    """The device of a result, as the document's environment describes it."""
    for label, told in document["environment"]["devices"].items():
        device = DeviceInfo.from_dict({name: value for name, value in told.items() if name != "runtime"})
        if result["device"] == label or (
            (device.backend, device.name, device.selector)
            == (result.get("backend"), result["device"], result.get("selector"))
        ):
            return device
    raise KeyError(f"the environment does not describe {result['device']}")


def _launches(result: dict[str, Any], document: dict[str, Any], device: DeviceInfo) -> Sequence[Launch]:
    """What is launched today for what was asked for then.

    Raises:
        GemmportError: it cannot be done any more. KeyError, TypeError, ValueError: the result does not say what it was.
    """
    if "pass" in result:
        rung = next(rung for rung in kernels.ladders()[document["ladder"]] if rung.name == result["step"])
        return _job(result).steps(rung, device).launches
    asked = result["asked"]
    plan = make_plan(_problem(result), device, _shipped(), kernel=asked["kernel"], params=asked["parameters"])
    return plan.launches


def _problem(result: dict[str, Any]) -> GemmProblem:
    """The problem as it lay in memory when it was measured."""
    if "problem" in result["asked"]:
        return GemmProblem.from_dict(result["asked"]["problem"])
    alpha, beta = (complex(*x) if isinstance(x, list) else x for x in (result["alpha"], result["beta"]))
    names = ("batch", "dtype", "output", "accumulator", "trans_a", "trans_b")
    problem = GemmProblem.create(
        result["m"],
        result["n"],
        result["k"],
        alpha=alpha,
        beta=beta,
        precision=result.get("precision", FULL),
        **{name: result[name] for name in names},
    )
    return replace(problem, d=verify.guarded(problem, GUARD_ELEMENTS))


def _job(result: dict[str, Any]) -> PassJob:
    dtype = as_dtype(result["dtype"])
    if "count" in result:
        return Reduction(result["count"], dtype)
    return Transposition(result["rows"], result["columns"], dtype)


@cache
def _shipped() -> Configuration:
    """The configuration without anything of the user's."""
    return load_configuration(())


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path))
def main(files: Iterable[Path]) -> None:
    """Tells what is out of date, one line each: of README.md and docs/, or of FILES of results."""
    found = [f"{file}: {fault}" for file in files for fault in stale(file)]
    if not files:
        found = [fault for page in pages() for fault in faults(page)]
    for line in found:
        click.echo(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
