"""The matrix's page: what is in the file, and what a browser makes of it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from absences import CHROMIUM, skip_without
from browser import Browser
from gemmport.matrix import page
from gemmport.matrix.record import FAILED, STATUSES, Header, Record, Verdict
from gemmport.matrix.summary import summarize
from made_up_record import CONTROL, DEVICES, HOSTILE, record
from written_pages import Seen, contrast

FAILING = record(2000, left=112, lost="clWaitForEvents: CL_DEVICE_NOT_AVAILABLE")
RIGHT = record(700, failing=False)
MANY = record(9000)
EMPTY = Record(Header("0.1.0", "quick", (1, 1), "2026-11-21T12:04:32+00:00", {}))


def unsound() -> Record:
    """A record in which one baseline is wrong, and three times as slow."""
    made = record(70, failing=False)
    timed = next(verdict for verdict in made.verdicts.values() if verdict.gflops is not None)
    assert timed.gflops is not None
    made.add(replace(timed, baselines={"numpy": {"gflops": timed.gflops / 3, "ratio": 3.0, "status": "wrong"}}))
    return made


def data_of(text: str) -> dict[str, Any]:
    """What the page's script reads."""
    (told,) = [content for tag, content in Seen(text).raw if tag == "script" and content.startswith("{")]
    data: dict[str, Any] = json.loads(told)
    return data


def unpacked(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells, as page.js unpacks them."""
    columns = {name: [column["values"][row] for row in column["rows"]] for name, column in data["columns"].items()}
    cells = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    for cell in cells:
        cell["id"] = "/".join(cell[axis] for axis in ("kernel", "types", "ops", "shape", "scalars"))
        before, after = cell["command"]
        cell["command"] = before if after is None else before + cell["id"] + after
    return cells


# The file


def test_a_page_of_20_000_cells_is_under_2_megabytes() -> None:
    assert len(page.render(record(20_000)).encode()) < 2_000_000


def test_long_reasons_are_shortened_and_say_so() -> None:
    talkative = record(1000, failing=False)
    for number, (key, verdict) in enumerate(list(talkative.verdicts.items())):
        reason = f"{number} " + "warning: loop not unrolled\n" * 400
        talkative.verdicts[key] = replace(verdict, status="error", reason=reason)
    text = page.render(talkative)
    assert len(text.encode()) < 2_000_000
    reasons = [cell["reason"] for cell in unpacked(data_of(text))]
    assert {len(reason) for reason in reasons} == {page.LONGEST_REASON}
    assert reasons[17].startswith("17 warning")
    assert reasons[17].endswith("… (10,803 characters; the record has them all)")


def test_every_cell_is_in_the_page_with_its_command() -> None:
    found = unpacked(data_of(page.render(FAILING)))
    assert len(found) == 2000
    for cell, verdict in zip(found, FAILING.verdicts.values(), strict=True):
        assert cell["id"] == verdict.cell
        assert (cell["device"], cell["size"]) == (verdict.on, [verdict.m, verdict.n, verdict.k, verdict.batch])
        for name in ("check", "status", "reason", "quirk", "command"):
            assert cell[name] == getattr(verdict, name), name


def test_a_command_without_the_cell_is_kept_whole() -> None:
    one = record(7, failing=False)
    key, verdict = next(iter(one.verdicts.items()))
    one.verdicts[key] = replace(verdict, command="make it again")
    assert unpacked(data_of(page.render(one)))[0]["command"] == "make it again"


def test_rates_and_cells_that_were_tried_again_are_in_the_page() -> None:
    data = data_of(page.render(FAILING))
    verdicts = list(FAILING.verdicts.values())
    assert {(row, gflops) for row, gflops, _ in data["timed"]} == {
        (row, verdict.gflops) for row, verdict in enumerate(verdicts) if verdict.gflops is not None
    }
    again = [verdict.status == "verified" and verdict.reason != "" for verdict in verdicts]
    assert 0 < sum(again) < 20
    assert [cell["retried"] == "yes" for cell in unpacked(data)] == again


def test_the_page_reaches_nothing_outside_itself() -> None:
    text = page.render(RIGHT)
    seen = Seen(text)
    (data,) = [content for _, content in seen.raw if content.startswith("{")]
    own = re.sub("'sha256-.*?'", "", text.replace(data, ""))
    assert not re.search(r"https?:|//[a-z]|@import|url\(|\bimport\b|fetch\(|XMLHttpRequest|WebSocket", own)
    for _, attributes in seen.elements:
        assert "src" not in attributes
        assert str(attributes.get("href", "#")).startswith("#")


def test_the_policy_allows_the_pages_own_style_and_script_alone() -> None:
    seen = Seen(page.render(FAILING))
    (policy,) = [meta for meta in seen.attributes("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in str(policy["content"]).split("; "))
    (style,) = [content for tag, content in seen.raw if tag == "style"]
    (script,) = [content for tag, content in seen.raw if tag == "script" and not content.startswith("{")]

    def source(content: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

    nothing = {"default-src": "'none'", "base-uri": "'none'"}
    assert rules == {**nothing, "style-src": source(style), "script-src": source(script)}


def test_text_of_devices_and_compilers_is_no_markup() -> None:
    text = page.render(FAILING)
    text.encode("utf-8")
    seen = Seen(text)
    assert [tag for tag, _ in seen.raw] == ["style", "script", "script"]
    assert not seen.attributes("img")
    assert HOSTILE in seen.text
    data = data_of(text)
    assert any(HOSTILE in reason and CONTROL in reason for reason in data["columns"]["reason"]["values"])
    assert data["devices"][-1]["hardware"] == HOSTILE


def test_a_device_called_like_a_placeholder_keeps_its_name() -> None:
    named = record(7, failing=False)
    device = named.devices[next(iter(DEVICES))]
    named.add(replace(device, label="$data ${script} $$ \ud800"))
    assert "$data ${script} $$ ?" in Seen(page.render(named).encode("utf-8").decode()).text


def told(text: str) -> str:
    found = re.search(r"<h1>.*?</span>(.*?)</h1>", text)
    assert found
    return found.group(1)


@pytest.mark.parametrize(
    ("made", "mood", "sentence"),
    [
        (RIGHT, "good", r"\d+ cells verified, none failed"),
        (record(700, failing=False, left=5), "idle", r"\d+ cells verified, none failed, 5 not run"),
        (record(700, failing=False, lost="gone"), "bad", r"1 device lost; \d+ cells verified, none failed"),
        (FAILING, "bad", r"\d+ of [\d,]+ cells failed, 1 device lost"),
        (EMPTY, "idle", "Nothing was verified"),
    ],
    ids=["right", "left", "lost", "failing", "empty"],
)
def test_the_verdict_is_the_first_that_is_read(made: Record, mood: str, sentence: str) -> None:
    text = page.render(made)
    assert re.fullmatch(sentence, told(text))
    assert f'<header class="masthead {mood}">' in text
    assert told(text) in text.partition("</title>")[0]


def test_the_head_counts_every_cell() -> None:
    counts = Counter(verdict.status for verdict in FAILING.verdicts.values())
    found = re.search(r'<p class="counts">(.*?)</p>', page.render(FAILING))
    assert found
    stated = dict(reversed(part.split(" ", 1)) for part in found.group(1).split(" · "))
    assert stated == {"devices": "7", "not run": "112", **{status: f"{count:,}" for status, count in counts.items()}}
    assert told(page.render(FAILING)).startswith(f"{sum(counts[status] for status in FAILED)} of ")


def test_a_reader_without_scripts_sees_the_counts_of_each_device() -> None:
    text = page.render(FAILING)
    table = text.partition("<noscript>")[2].partition("</noscript>")[0]
    head = re.findall(r'<th scope="col">(.*?)</th>', table)
    lines = [re.findall(r"<td>(.*?)</td>", line) for line in table.split("<tr>")[2:]]
    for summary, line in zip(summarize(FAILING), lines, strict=True):
        stated = dict(zip(head[1:], line, strict=True))
        assert stated.pop("verdict") == summary.verdict
        assert stated.pop("not run") == f"{summary.left:,}"
        assert {status: int(count.replace(",", "")) for status, count in stated.items()} == {
            status: summary.counts[status] for status in STATUSES
        }


def test_values_stand_in_the_familys_order() -> None:
    columns = data_of(page.render(FAILING))["columns"]
    assert columns["types"]["values"][:4] == ["float16", "bfloat16", "float32", "float64"]
    assert columns["ops"]["values"] == ["NN", "NT", "TN", "TT"]
    assert columns["shape"]["values"][0] == "tiny"
    assert columns["shape"]["values"][-1] == "large"
    assert columns["kernel"]["values"][:3] == ["naive", "tiled", "wpt"]


def test_devices_that_share_a_runtime_are_told_apart() -> None:
    twins = record(7, failing=False)
    first = next(iter(twins.devices.values()))
    other = replace(first, id="other", device=replace(first.device, name="Another CPU"))
    cuda = replace(first, id="cuda", device=replace(first.device, backend="cuda"))
    for tested in (other, cuda):
        twins.add(tested)
    names = {told["id"]: told["name"] for told in data_of(page.render(twins))["devices"]}
    assert len(set(names.values())) == len(names)
    assert names["other"] == "intel 2026.22.10.0.01, Another CPU"
    assert names["cuda"] == "intel 2026.22.10.0.01 (cuda)"
    assert names["opencl/pocl-3.1/AMD-EPYC"] == "pocl 3.1"


def test_quirks_of_the_devices_and_of_their_cells_are_told() -> None:
    made = record(70, failing=False)
    key, verdict = next(iter(made.verdicts.items()))
    made.verdicts[key] = replace(verdict, quirk="of-another-version")
    quirks = {told["id"]: told for told in data_of(page.render(made))["quirks"]}
    assert quirks["of-another-version"] == {"id": "of-another-version", "devices": [verdict.on]}
    rounds = quirks["rusticl-loop-rounds"]
    assert rounds["devices"] == ["opencl/rusticl-22.3.6/llvmpipe"]
    assert "65,535" in rounds["symptom"]
    assert rounds["effect"] == "refusal"
    assert "clblas-threads" not in quirks


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(scheme: str) -> None:
    """A contrast of 4.5 (WCAG 2.1, level AA) for every pair of colours in use."""
    css = files("gemmport.pages").joinpath("base.css").read_text(encoding="utf-8").partition("*, ::before")[0]
    schemes = css.split("@media (prefers-color-scheme: dark)")
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", schemes[scheme == "dark"]))
    colours["white"] = "#ffffff"
    pairs = [(text, behind) for text in ("text", "muted", "link", "bad") for behind in ("page", "card")]
    pairs += [(mood, f"{mood}-soft") for mood in ("good", "bad", "idle", "none")]
    pairs += [("good", "card"), ("idle", "card"), ("text", "raised"), ("white", "bad-strong"), ("muted", "raised")]
    for text, behind in pairs:
        assert contrast(colours[text], colours[behind]) >= 4.5, (text, behind)


# In a browser

SHOWN = "[...document.querySelectorAll('[data-part=cells] tbody tr')]"
FOUND = "document.querySelector('[data-part=found]').textContent"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    skip_without(CHROMIUM)
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    for name, made in {"failing": FAILING, "right": RIGHT, "many": MANY, "empty": EMPTY, "unsound": unsound()}.items():
        (folder / f"{name}.html").write_text(page.render(made), encoding="utf-8")
    return {path.stem: path.as_uri() for path in folder.iterdir()}


Opener = Callable[..., Browser]


@pytest.fixture
def opened(chromium: Browser, addresses: dict[str, str]) -> Iterator[Opener]:
    """Opens one of the pages; whatever was asked for or went wrong meanwhile fails the test."""
    chromium.requests.clear()
    chromium.problems.clear()

    def open_page(name: str, fragment: str = "", **window: Any) -> Browser:
        chromium.open(addresses[name] + fragment, **window)
        return chromium

    yield open_page
    assert not chromium.problems
    assert {request.partition("#")[0] for request in chromium.requests} <= set(addresses.values())


def matching(**wanted: str) -> list[Verdict]:
    return [v for v in FAILING.verdicts.values() if all(getattr(v, name) == value for name, value in wanted.items())]


def visible(seen: Browser, selector: str) -> list[str]:
    """The texts of those elements that take up room."""
    texts: list[str] = seen.evaluate(
        f"[...document.querySelectorAll({selector!r})].filter((e) => e.getClientRects().length).map((e) => e.textContent)"
    )
    return texts


@pytest.mark.parametrize("name", ["failing", "right", "empty"])
@pytest.mark.parametrize(("width", "height"), [(320, 640), (390, 844), (1400, 900)])
def test_a_page_fits_the_window(opened: Opener, name: str, width: int, height: int) -> None:
    seen = opened(name, width=width, height=height)
    assert seen.evaluate("document.documentElement.scrollWidth") == width


def test_hostile_text_is_shown_and_does_nothing(opened: Opener) -> None:
    seen = opened("failing")
    assert seen.evaluate("document.images.length") == 0
    assert HOSTILE in seen.evaluate("document.querySelectorAll('.hardware')[6].textContent")


def test_every_device_is_shown_with_its_verdict(opened: Opener) -> None:
    seen = opened("failing")
    outcomes = seen.evaluate("[...document.querySelectorAll('.outcome')].map((e) => e.firstChild.textContent)")
    for summary, outcome in zip(summarize(FAILING), outcomes, strict=True):
        failed, verified = len(summary.failures), summary.counts["verified"]
        lost = ", lost" if summary.tested.lost else ""
        fine = f"{verified} verified{lost}" if summary.left or lost else f"all {verified} verified"
        expected = f"{failed} of {failed + verified} failed{lost}" if failed else fine
        assert outcome == expected


def test_failures_are_there_where_there_are_some(opened: Opener) -> None:
    seen = opened("failing")
    failed = sum(verdict.failed for verdict in FAILING.verdicts.values())
    assert visible(seen, "nav a[href='#failures']") == [f"Failures{failed + 1}"]  # and a lost device
    assert visible(seen, ".failure h3")[0] == "✗ lostnvidia 3.0 CUDA 13.0.84"
    seen = opened("right")
    assert not visible(seen, "nav a[href='#failures'], #failures")


def test_failures_of_a_device_and_kernel_that_differ_in_numbers_alone_are_one(opened: Opener) -> None:
    groups = Counter(
        (v.on, v.kernel, v.status, re.sub(r"-?\d[\d.,e+-]*", "#", v.reason)) for v in MANY.verdicts.values() if v.failed
    )
    seen = opened("many")
    shown = visible(seen, ".failure > h3 + p")
    assert len(shown) == 6 < len(groups)
    assert shown[0].endswith(f" · {max(groups.values())} cells")
    assert visible(seen, "[data-part=failures] > .more") == [f"{len(groups) - 6} more groups"]
    seen.evaluate("document.querySelector('[data-part=failures] > .more').click()")
    sizes = [re.search(r" (\d+) cells$", text) for text in visible(seen, ".failure > h3 + p")]
    assert sorted(int(size.group(1)) if size else 1 for size in sizes) == sorted(groups.values())


@pytest.mark.parametrize(
    ("fragment", "wanted"),
    [
        ("status=wrong", {"status": "wrong"}),
        ("kernel=tiled&types=float32", {"kernel": "tiled", "types": "float32"}),
        ("device=cuda%2Fnvidia-13.0%2FH200&shape=odd", {"on": "cuda/nvidia-13.0/H200", "shape": "odd"}),
        ("quirk=rusticl-loop-rounds", {"quirk": "rusticl-loop-rounds"}),
        ("kernel=nonsense", {"kernel": "nonsense"}),
    ],
)
def test_a_fragment_filters(opened: Opener, fragment: str, wanted: dict[str, str]) -> None:
    seen = opened("failing", f"#{fragment}")
    expected = matching(**wanted)
    counts = Counter(verdict.status for verdict in expected)
    order = (*FAILED[::-1], "verified", "unsupported")
    text = ", ".join(f"{counts[status]:,} {status}" for status in order if counts[status])
    assert seen.evaluate(FOUND) == f"{len(expected)} of 2,000 cells" + (f": {text}" if text else "")
    assert len(seen.evaluate(f"{SHOWN}.map((row) => row.textContent)")) == max(1, min(50, len(expected)))


def test_what_a_reader_chooses_is_in_the_fragment_and_comes_back_from_it(opened: Opener) -> None:
    seen = opened("failing")
    for field, chosen, event in (("select[name=kernel]", "prefetch", "change"), ("#search", "POCL 3.1", "input")):
        seen.evaluate(f"document.querySelector({field!r}).value = {chosen!r}")
        seen.evaluate(f"document.querySelector({field!r}).dispatchEvent(new Event({event!r}))")
    assert seen.evaluate("location.hash") == "#q=POCL+3.1&kernel=prefetch"
    stated = seen.evaluate(FOUND)
    assert stated.startswith(f"{len(matching(kernel='prefetch', on='opencl/pocl-3.1/AMD-EPYC'))} of 2,000 cells")
    again = opened("failing", "#q=POCL+3.1&kernel=prefetch")
    assert again.evaluate(FOUND) == stated
    assert again.evaluate("document.querySelector('select[name=kernel]').value") == "prefetch"
    assert again.evaluate("document.getElementById('search').value") == "POCL 3.1"
    again.evaluate("new Promise((done) => { addEventListener('hashchange', done); location.hash = '#kernel=naive'; })")
    assert again.evaluate(FOUND).startswith(f"{len(matching(kernel='naive'))} of")


def test_the_filters_count_what_they_would_leave(opened: Opener) -> None:
    seen = opened("failing", "#kernel=prefetch")
    options = seen.evaluate("[...document.querySelector('select[name=status]').options].map((o) => o.textContent)")
    counts = Counter(verdict.status for verdict in matching(kernel="prefetch"))
    assert options[:2] == ["all", f"failed, any way ({sum(counts[status] for status in FAILED)})"]
    assert f"wrong ({counts['wrong']})" in options
    options = seen.evaluate("[...document.querySelector('select[name=kernel]').options].map((o) => o.textContent)")
    assert f"tiled ({len(matching(kernel='tiled'))})" in options


def test_columns_sort_both_ways(opened: Opener) -> None:
    seen = opened("failing")
    heads = "[...document.querySelectorAll('[data-part=cells] thead th')]"
    time = f"{heads}.find((e) => e.textContent === 'Time')"
    last = f"{SHOWN}.map((row) => row.lastElementChild.textContent)"

    def times() -> list[float]:
        return [float(text.removesuffix(" s")) for text in seen.evaluate(last)]

    seconds = sorted(round(verdict.seconds, 2) for verdict in FAILING.verdicts.values())
    seen.evaluate(f"{time}.querySelector('button').click()")
    assert times() == pytest.approx(seconds[::-1][:50])
    assert seen.evaluate("location.hash") == "#sort=-seconds"
    seen.evaluate("document.querySelector('[data-part=cells] [aria-sort=descending] button').focus()")
    seen.press("Enter")
    assert times() == pytest.approx(seconds[:50])
    assert seen.evaluate("document.querySelector('[data-part=cells] [aria-sort=ascending]').textContent") == "Time"
    seen = opened("failing", "#sort=-size")
    sizes = seen.evaluate(f"{SHOWN}.map((row) => row.children[7].textContent)")
    assert set(sizes) == {"2048×2048×2048"}
    seen = opened("failing", "#sort=-kernel")
    assert seen.evaluate(f"{SHOWN}[0].children[2].textContent") == "wpt"


def test_pages_turn_and_stay_within_the_table(opened: Opener) -> None:
    seen = opened("failing", "#page=2&sort=kernel")
    pager = "document.querySelector('[data-part=cells] .pager')"
    second = seen.evaluate(f"{SHOWN}.map((row) => row.querySelector('button').ariaLabel)")
    assert seen.evaluate(f"{pager}.textContent") == "«‹Page 2 of 40›»"
    seen.evaluate(f"{pager}.querySelector('[data-step=\"›\"]').click()")
    assert seen.evaluate("location.hash") == "#sort=kernel&page=3"
    third = seen.evaluate(f"{SHOWN}.map((row) => row.querySelector('button').ariaLabel)")
    assert len(third) == 50
    assert not set(second) & set(third)
    seen = opened("failing", "#page=999")
    assert seen.evaluate(f"{pager}.textContent") == "«‹Page 40 of 40›»"
    seen = opened("failing", "#page=nonsense")
    assert seen.evaluate(f"{pager}.textContent") == "«‹Page 1 of 40›»"


def test_a_row_opens_by_key_with_its_reason_and_command(opened: Opener) -> None:
    seen = opened("failing", "#status=wrong")
    first = matching(status="wrong")[0]
    seen.evaluate("[...document.querySelectorAll('button.open')].find((e) => e.getClientRects().length).focus()")
    seen.press("Enter")
    assert visible(seen, ".detail .command") == [first.command]
    assert first.reason in visible(seen, ".detail dd")
    assert seen.evaluate("document.activeElement.ariaExpanded") == "true"
    seen.press("Enter")
    assert not visible(seen, ".detail")


COPY = "[...document.querySelectorAll('.failure button')].find((e) => e.textContent === {!r}).click()"


def test_a_command_is_copied(opened: Opener) -> None:
    seen = opened("failing")
    seen.evaluate("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    seen.evaluate(COPY.format("Copy command"))
    seen.evaluate("new Promise((done) => setTimeout(done, 50))")
    assert seen.evaluate("window.copied") == FAILING.devices[list(DEVICES)[-1]].command  # the lost device comes first
    assert seen.evaluate("document.querySelector('.failure button').textContent") == "Copied"
    assert seen.evaluate("document.querySelector('[role=status]').textContent") == "Copied."
    seen.evaluate(COPY.format("Copy report"))
    seen.evaluate("new Promise((done) => setTimeout(done, 50))")
    report = seen.evaluate("window.copied")
    worst = matching(status="wrong", kernel="prefetch")[0]
    assert report.startswith(f"**{worst.cell}** (")
    for text in (worst.reason, f"    {worst.command}", "- driver: 3.1+debian", "- numpy: 2.4.6"):
        assert f"\n{text}\n" in report + "\n"


def test_a_command_is_copied_where_there_is_no_clipboard(opened: Opener) -> None:
    seen = opened("failing")
    seen.evaluate("navigator.clipboard.writeText = () => Promise.reject(new Error('not here'))")
    seen.evaluate("document.execCommand = (name) => { window.copied = document.activeElement.value; return true; }")
    seen.evaluate(COPY.format("Copy command"))
    seen.evaluate("new Promise((done) => setTimeout(done, 50))")
    assert seen.evaluate("window.copied") == FAILING.devices[list(DEVICES)[-1]].command
    assert seen.evaluate("document.activeElement.textContent") == "Copied"


def test_the_grid_counts_and_filters(opened: Opener) -> None:
    seen = opened("failing", "#grid=device")
    square = "document.querySelector('.square[aria-label^=\"prefetch, pocl 3.1:\"]')"
    cells = matching(kernel="prefetch", on="opencl/pocl-3.1/AMD-EPYC")
    wrong = sum(verdict.failed for verdict in cells)
    assert seen.evaluate(f"{square}.textContent") == f"✗ {wrong}"
    seen.evaluate(f"{square}.click()")
    assert seen.evaluate(FOUND).startswith(f"{len(cells)} of 2,000 cells")
    assert seen.evaluate("document.activeElement.id") == "cells-title"
    seen.evaluate("document.querySelector('[data-part=grid-axis] [value=shape]').click()")
    assert "grid=shape" in seen.evaluate("location.hash")
    heads = seen.evaluate("[...document.querySelectorAll('.grid thead th')].map((e) => e.textContent)")
    assert heads[0] == "tiny"


def test_the_grid_is_one_stop_and_arrows_walk_in_it(opened: Opener) -> None:
    seen = opened("right", "#grid=ops")
    assert seen.evaluate("document.querySelectorAll('.grid [tabindex=\"0\"]').length") == 1
    seen.evaluate("document.querySelector('.grid [tabindex=\"0\"]').focus()")
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowUp", "ArrowUp", "ArrowUp", "ArrowDown"):
        seen.press(key)
    assert seen.evaluate("document.activeElement.ariaLabel").startswith("tiled, NT: ")
    assert seen.evaluate("document.querySelectorAll('.grid [tabindex=\"0\"]').length") == 1
    seen.press("Enter")
    assert seen.evaluate("location.hash") == "#grid=ops&kernel=tiled&ops=NT"


def test_the_slash_leads_to_the_search_and_is_typed_there(opened: Opener) -> None:
    seen = opened("failing")
    for key in "/a/b":
        seen.press(key)
    assert seen.evaluate("document.activeElement.id") == "search"
    assert seen.evaluate("document.activeElement.value") == "a/b"
    assert seen.evaluate("location.hash") == "#q=a%2Fb"


def test_reasons_that_name_their_device_are_one(opened: Opener) -> None:
    seen = opened("failing")
    expected = [v for v in matching(status="unsupported", kernel="shuffle") if v.reason.startswith("shuffle on ")]
    assert len({verdict.on for verdict in expected}) == 5
    line = "[...document.querySelectorAll('.reasoned')].find((e) => e.textContent.includes('shuffle on the device'))"
    assert seen.evaluate(f"{line}.querySelector('button').textContent") == str(len(expected))
    seen.evaluate(f"{line}.querySelector('button').click()")
    assert seen.evaluate(FOUND) == f"{len(expected)} of 2,000 cells: {len(expected)} unsupported"
    seen.evaluate("document.querySelector('.chip').click()")
    assert seen.evaluate(FOUND).startswith(f"{len(matching(status='unsupported'))} of")


def test_throughput_is_told_beside_the_baselines(opened: Opener) -> None:
    seen = opened("failing", "#at=cuda%2Fnvidia-13.0%2FH200")
    timed = [v for v in matching(on="cuda/nvidia-13.0/H200") if v.gflops is not None]
    lines = seen.evaluate(
        "[...document.querySelectorAll('[data-part=throughput] tbody tr')]"
        ".map((row) => [...row.children].filter((e) => e.getClientRects().length).map((e) => e.textContent.trim()))"
    )
    assert len(lines) == min(10, len(timed))
    fastest = max(timed, key=lambda verdict: verdict.gflops or 0)
    assert lines[0][0] == fastest.kernel
    assert lines[0][-3:] == [f"{fastest.gflops:,.0f}", f"{fastest.baselines['numpy']['ratio']:.2f}×", "0.80×"]
    assert visible(seen, "[data-part=unmeasured] p") == ["clblast: unavailable: CLBlast is not installed"]


def test_a_baseline_that_is_wrong_is_no_yardstick(opened: Opener) -> None:
    seen = opened("unsound", "#timed=-vs+numpy")
    line = visible(seen, "[data-part=throughput] tbody tr:first-child > td")
    assert line[-1] == "3.00× (wrong)"
    assert not visible(seen, "[data-part=throughput] tbody tr:first-child .faster")


def test_a_quirk_leads_to_its_cells(opened: Opener) -> None:
    seen = opened("failing")
    expected = matching(quirk="rusticl-loop-rounds")
    seen.evaluate("document.querySelectorAll('#quirks .more').forEach((button) => button.click())")
    line = "[...document.querySelectorAll('.quirk')].find((e) => e.querySelector('code').textContent === 'rusticl-loop-rounds')"
    assert seen.evaluate(f"{line}.querySelector('button').textContent") == f"{len(expected)} cells"
    seen.evaluate(f"{line}.querySelector('button').click()")
    assert seen.evaluate(FOUND).startswith(f"{len(expected)} of 2,000 cells")


def test_the_dark_scheme_is_dark(opened: Opener) -> None:
    shades = [
        opened("right", dark=dark).evaluate("getComputedStyle(document.body).backgroundColor") for dark in (False, True)
    ]
    light, dark = (sum(map(int, re.findall(r"\d+", shade))) for shade in shades)
    assert light > 600
    assert dark < 150


def test_a_phone_is_shown_the_search_first_and_the_other_filters_on_demand(opened: Opener) -> None:
    seen = opened("failing", width=390, height=844)
    assert visible(seen, "select[name=status]")
    assert not visible(seen, "select[name=scalars]")
    seen.evaluate("[...document.querySelectorAll('button')].find((e) => e.textContent === 'More filters').click()")
    assert visible(seen, "select[name=scalars]")
    small = seen.evaluate(
        "[...document.querySelectorAll('button, select, summary')].filter((e) => e.getClientRects().length)"
        ".filter((e) => e.getBoundingClientRect().height < 24).map((e) => e.textContent)"
    )
    assert not small  # WCAG 2.2, target size
