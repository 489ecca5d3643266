"""The page of a benchmark: what is in the file, and what a browser makes of it."""

from __future__ import annotations

import copy
import json
import re
import statistics
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from absences import CHROMIUM, skip_without
from browser import Browser
from gemmport.bench import page
from gemmport.bench.charts import COLOURS
from written_pages import Seen, contrast

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "h200"

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"


def on_file(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((RESULTS / name).read_text("utf-8"))
    return document


def suites() -> dict[str, Any]:
    """A document of two suites, made of one of `gemmport run`: CUDA and OpenCL on one GPU beside cuBLAS."""
    document = on_file("run/workloads-float32.json")
    for number, result in enumerate(document["results"]):
        result["suite"] = "even" if number // 2 % 2 == 0 else "odd"
    own = list(document["environment"]["devices"])
    standings = []
    for suite in ("even", "odd"):
        for one in document["standings"]:
            names = {result["label"] for result in document["results"] if result["suite"] == suite}
            ratios = {name: ratio for name, ratio in one["ratios"].items() if name in names}
            standings.append({**one, "suite": suite, "dtype": "float32", "ratios": ratios})
    return {
        **document,
        "suites": [{"name": name, "about": f"every other, {name}", "problems": 46} for name in ("even", "odd")],
        "left": [{"suite": "odd", "name": "vast", "device": own[0], "reason": "the budget of 60 s was used up"}] * 2,
        "ceilings": {label: {"gflops": {"float32": 66900.0}, "gb_per_second": 4100.0} for label in own},
        "standings": standings,
    }


BENCH, CALLS = suites(), on_file("calls/workloads-torch.json")


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="record">(.*?)</script>', text)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


# The file


@pytest.mark.parametrize("document", [BENCH, CALLS], ids=["bench", "calls"])
def test_the_page_reaches_nothing_outside_itself(document: dict[str, Any]) -> None:
    text = page.render(document)
    seen = Seen(text)
    own = re.sub(r'<script type="application/json".*?</script>|\'sha256-.*?\'', "", text)
    assert not re.search(r"https?:|//[a-z]|@import|url\(|\bimport\b|fetch\(|XMLHttpRequest|WebSocket", own)
    for _, attributes in seen.elements:
        assert "src" not in attributes
        assert "style" not in attributes  # its own policy would not allow it
        assert str(attributes.get("href", "#")).startswith("#")


def test_the_summary_has_the_mean_the_worst_and_the_count_of_each_device_suite_and_baseline() -> None:
    text = page.render(BENCH)
    table = text.partition('aria-label="Summary"')[2].partition("</table>")[0]
    lines = [re.sub("<.*?>", " ", line).split() for line in table.split("<tr")[2:]]
    ratios: dict[tuple[str, str], list[float]] = {}
    for one in BENCH["standings"]:
        for suite in (one["suite"], "all suites"):
            ratios.setdefault((one["device"], suite), []).extend(one["ratios"].values())
    assert len(lines) == len(ratios) == 6
    for (device, suite), line in zip(sorted(ratios, key=lambda key: key[1] == "all suites"), lines, strict=True):
        own = ratios[device, suite]
        told = " ".join(line)
        assert f"NVIDIA H200 {device.partition('(')[2].rstrip(')')}" in told
        assert f"{suite} {statistics.geometric_mean(own):.3f}× worst {min(own):.3f}×" in told
        assert told.endswith(f"{sum(ratio < 1 for ratio in own)} of {len(own)} below 1")


def test_opencl_has_the_ratio_to_what_was_timed_under_cuda_in_the_same_run() -> None:
    rows = data_of(page.render(BENCH))["rows"]
    standing = next(one for one in BENCH["standings"] if one["device"] != one["timed_on"])
    own = {
        row["name"]: row["ratios"]
        for row in rows
        if row["device"] == standing["device"] and row["suite"] == standing["suite"]
    }
    assert own == {name: {"cublas": ratio} for name, ratio in standing["ratios"].items()}


def test_every_result_is_in_the_table_with_its_time_and_rate() -> None:
    rows = data_of(page.render(BENCH))["rows"]
    for row, result in zip(rows, BENCH["results"], strict=True):
        assert (row["name"], row["by"]) == (result["label"], result["kernel"])
        assert row["seconds"] == result["seconds"]["median"]
        assert row["gflops"] == pytest.approx(result["gflops"])


def test_there_is_a_picture_for_each_suite_and_device_and_a_roofline_for_each_device() -> None:
    seen = Seen(page.render(BENCH))
    assert seen.count("svg", role="img") == 2 * 2 + 2
    assert seen.text.count("Ceilings: peak 66,900 GFLOPS, estimated, copy 4,100 GB/s, measured.") == 2
    calls = Seen(page.render(CALLS))
    assert calls.count("svg", role="img") == 3  # a way each
    assert not calls.count("section", id="rooflines")


def test_calls_have_a_line_for_each_way_and_result() -> None:
    data = data_of(page.render(CALLS))
    assert data["called"] is True
    for result in CALLS["results"]:
        own = [row for row in data["rows"] if row["name"] == result["label"]]
        assert {row["by"] for row in own} == {f"torch, out, {way}" for way in ("host", "back to back", "awaited")}
        (awaited,) = (row for row in own if row["by"].endswith("awaited"))
        assert awaited["ratios"] == {"torch.matmul": result["baselines"]["torch.matmul"]["ratios"]["out"]["awaited"]}


def test_what_was_left_out_is_told_once_with_its_number() -> None:
    text = Seen(page.render(BENCH)).text
    assert text.count("the budget of 60 s was used up (2×)") == 1
    assert text.count("cublas does not compute on opencl memory (92×)") == 1


def test_a_wrong_result_is_the_first_that_is_read() -> None:
    wrong = copy.deepcopy(BENCH)
    wrong["results"][0] |= {"status": "failed", "reason": "exact: 3 of 5 differ"}
    text = page.render(wrong)
    assert "1 of 184 results failed verification</h1>" in text
    assert '<header class="masthead bad">' in text
    assert data_of(text)["rows"][0]["ratios"] == {}
    assert "As fast or faster in" in page.render(BENCH).partition("</h1>")[0]


def test_then_and_now_has_the_worse_first() -> None:
    row = {
        "device": "d",
        "kernel": "k",
        "baseline": "b",
        "now": {"value": 0.5, "spread": 0.0},
        "then": None,
        "reason": "",
    }
    rows = [
        {**row, "task": "new one", "change_percent": None, "verdict": "new"},
        {
            **row,
            "task": "worse one",
            "then": {"value": 1.0, "spread": 0.0},
            "change_percent": -50.0,
            "verdict": "worse",
        },
    ]
    told = {"with": "then.json", "date": "2026-11-20", "worse": 1, "rows": rows, "notes": []}
    text = Seen(page.render({**BENCH, "comparison": told})).text
    assert "Beside then.json of 2026-11-20: 1 worse, 1 new." in text
    assert text.index("worse one") < text.index("new one")
    assert "-50.0 %" in text


def test_text_of_devices_is_no_markup() -> None:
    hostile = json.loads(json.dumps(BENCH).replace("NVIDIA H200", HOSTILE))
    seen = Seen(page.render(hostile))
    assert not seen.count("img")
    assert seen.count("script") == 2
    assert HOSTILE in seen.text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_stand_out_from_what_is_behind_them(scheme: str) -> None:
    """A contrast of 3 (WCAG 2.1, level AA, of graphics)."""
    colours = {}
    for package, name in (("gemmport.pages", "base.css"), ("gemmport.bench", "page.css")):
        parts = files(package).joinpath(name).read_text("utf-8").split("@media (prefers-color-scheme: dark)")
        colours |= dict(re.findall(r"--([\w-]+): (#\w{6});", parts[scheme == "dark"]))
    assert all(contrast(colours[f"s{number}"], colours["card"]) >= 3 for number in range(COLOURS))


# In a browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    skip_without(CHROMIUM)
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


Opener = Callable[..., Browser]


@pytest.fixture
def opened(chromium: Browser, tmp_path: Path) -> Iterator[Opener]:
    """Opens the page of a document; whatever was asked for or went wrong meanwhile fails the test."""
    chromium.requests.clear()
    chromium.problems.clear()
    file = tmp_path / "page.html"

    def open_page(document: dict[str, Any], fragment: str = "", **window: Any) -> Browser:
        file.write_text(page.render(document), encoding="utf-8")
        chromium.open(file.as_uri() + fragment, **window)
        return chromium

    yield open_page
    assert not chromium.problems
    assert {request.partition("#")[0] for request in chromium.requests} <= {file.as_uri()}


LINES = "[...document.querySelectorAll('[data-part=results] tbody tr')].map((line) => line.textContent)"
FOUND = "document.querySelector('[data-part=found]').textContent"


@pytest.mark.processes
def test_it_opens_without_a_network_and_fits_narrow_and_wide_windows(opened: Opener) -> None:
    for document in (BENCH, CALLS):
        for width in (400, 1400):
            seen = opened(document, width=width)
            assert seen.evaluate("document.documentElement.scrollWidth") == width
            assert len(seen.evaluate(LINES)) == 50
            assert seen.evaluate(
                "[...document.querySelectorAll('svg.plot')].every((plot) => plot.getBoundingClientRect().width > 300)"
            )


@pytest.mark.processes
def test_the_table_sorts_and_filters_and_its_address_says_how(opened: Opener) -> None:
    seen = opened(BENCH)
    assert seen.evaluate(FOUND) == "All 184 results"
    seen.evaluate(
        "[...document.querySelectorAll('th button')].find((one) => one.textContent.startsWith('GFLOPS')).click()"
    )
    fastest = max(BENCH["results"], key=lambda result: result["gflops"])
    assert fastest["label"] in seen.evaluate(LINES)[0]
    seen.evaluate(
        "const chosen = document.querySelector('select[name=suite]'); chosen.value = 'odd';"
        "chosen.dispatchEvent(new Event('change'))"
    )
    assert seen.evaluate(FOUND) == "92 of 184 results"
    assert "suite=odd" in seen.evaluate("location.hash")
    assert "sort=-gflops" in seen.evaluate("location.hash")
    seen = opened(BENCH, "#q=deepbench+simt&by=gemv")
    assert seen.evaluate(FOUND).endswith("of 184 results")
    assert seen.evaluate("document.querySelector('[data-part=results] .none').textContent") == "No result is like this."


@pytest.mark.processes
def test_a_result_opens_to_its_details(opened: Opener) -> None:
    seen = opened(BENCH)
    seen.evaluate("document.querySelector('button.open').click()")
    told = seen.evaluate("document.querySelector('tr.detail').textContent")
    assert BENCH["results"][0]["entry"] in told


@pytest.mark.processes
def test_the_dark_scheme_is_dark_in_the_plots_too(opened: Opener) -> None:
    script = "getComputedStyle(document.querySelector('svg.plot circle')).fill"
    light, dark = (opened(BENCH, dark=dark).evaluate(script) for dark in (False, True))
    assert sum(map(int, re.findall(r"\d+", light))) < sum(map(int, re.findall(r"\d+", dark)))
