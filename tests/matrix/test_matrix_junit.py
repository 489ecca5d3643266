"""The matrix as JUnit XML: read again by a parser, and held against the elements and attributes that Jenkins' schema knows."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace

import pytest

from gemmport.matrix import junit
from gemmport.matrix.record import Header, Record, Verdict
from gemmport.matrix.summary import summarize
from made_up_record import CONTROL, HOSTILE, record

FAILING = record(2000, left=112, lost="clWaitForEvents: CL_DEVICE_NOT_AVAILABLE\nthree times")

# Of xunit-plugin's junit-10.xsd: by element, its attributes, those of them that must be there, and what may stand in it.
SHAPE: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, set(), {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "group", "time", "skipped", "timestamp", "hostname", "id", "package", "file",
         "log", "url"},
        {"name", "tests", "failures", "errors"},
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, {"name", "value"}, set()),
    "testcase": (
        {"name", "time", "classname", "group"},
        {"name"},
        {"skipped", "error", "failure", "system-out", "system-err"},
    ),
    "skipped": ({"type", "message"}, set(), set()),
    "error": ({"type", "message"}, set(), set()),
    "failure": ({"type", "message"}, set(), set()),
    "system-out": (set(), set(), set()),
}  # fmt: skip


@pytest.fixture(scope="module")
def root() -> ET.Element:
    return ET.fromstring(junit.render(FAILING).encode("utf-8"))


def case_of(root: ET.Element, verdict: Verdict) -> ET.Element:
    (found,) = [
        case for case in root.iter("testcase")
        if case.get("name") == verdict.cell and case.get("classname") == f"{verdict.on}.{verdict.kernel}"
    ]  # fmt: skip
    return found


def first(status: str, made: Record = FAILING) -> Verdict:
    return next(verdict for verdict in made.verdicts.values() if verdict.status == status)


def test_the_document_has_the_shape_of_jenkins_schema(root: ET.Element) -> None:
    seen = Counter(element.tag for element in root.iter())
    assert seen.keys() == SHAPE.keys()
    for element in root.iter():
        known, needed, inside = SHAPE[element.tag]
        assert needed <= element.attrib.keys() <= known, element.tag
        assert {child.tag for child in element} <= inside, element.tag
        if element.tag in ("testsuite", "testsuites"):
            assert re.fullmatch(r"\d+\.\d{3}", element.attrib["time"])
        assert inside or not len(element)


def test_the_document_says_that_it_is_utf_8_and_is() -> None:
    content = junit.render(FAILING).encode("utf-8")
    assert content.startswith(b'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites ')
    assert "Größe".encode() in content


def test_a_suite_is_a_device_and_counts_its_cells(root: ET.Element) -> None:
    for suite, summary in zip(root, summarize(FAILING), strict=True):
        counts, lost = summary.counts, bool(summary.tested.lost)
        assert suite.get("name") == summary.tested.id
        assert suite.get("timestamp") == "2026-11-21T12:04:32"
        assert [int(suite.get(name, "")) for name in ("tests", "failures", "errors", "skipped")] == [
            counts.total() + lost, counts["wrong"], counts["error"] + counts["hang"] + counts["crash"] + lost,
            counts["unsupported"],
        ]  # fmt: skip
        assert len(suite.findall("testcase")) == counts.total() + lost
        assert float(suite.get("time", "")) == pytest.approx(sum(v.seconds for v in summary.verdicts), abs=1e-3)
    for name in ("tests", "failures", "errors"):
        assert int(root.get(name, "")) == sum(int(suite.get(name, "")) for suite in root)
    assert root.get("tests") == "2001"


@pytest.mark.parametrize(
    ("status", "element"),
    [("wrong", "failure"), ("error", "error"), ("hang", "error"), ("crash", "error"), ("unsupported", "skipped")],
)
def test_what_is_not_verified_says_why_and_how_to_do_it_again(root: ET.Element, status: str, element: str) -> None:
    made = FAILING if status in {verdict.status for verdict in FAILING.verdicts.values()} else record(20_000)
    verdict = first(status, made)
    case = case_of(root if made is FAILING else ET.fromstring(junit.render(made)), verdict)
    (found,) = list(case)
    assert (found.tag, found.get("type")) == (element, status)
    assert found.get("message") == junit._legal(verdict.reason.partition("\n")[0])
    text = found.text or ""
    assert text.startswith(f"{status}: ")
    assert f"m {verdict.m}, n {verdict.n}, k {verdict.k}, batch {verdict.batch}, {verdict.check} check" in text
    assert text.endswith(f"again: {verdict.command}")


def test_a_verified_cell_has_nothing_in_it_but_a_note(root: ET.Element) -> None:
    plain = next(v for v in FAILING.verdicts.values() if v.status == "verified" and not v.reason)
    case = case_of(root, plain)
    assert not len(case)
    assert float(case.get("time", "")) == pytest.approx(plain.seconds, abs=1e-3)
    again = next(v for v in FAILING.verdicts.values() if v.status == "verified" and v.reason)
    (note,) = list(case_of(root, again))
    assert (note.tag, note.text) == ("system-out", again.reason)


def test_a_quirk_that_explains_a_cell_is_named() -> None:
    made = record(70, failing=False)
    verdict = first("unsupported", made)
    made.add(replace(verdict, quirk="rusticl-loop-rounds"))
    (found,) = list(case_of(ET.fromstring(junit.render(made)), verdict))
    assert "\nknown as: rusticl-loop-rounds\n" in (found.text or "")


def test_no_two_cases_are_called_the_same(root: ET.Element) -> None:
    names = Counter((case.get("classname"), case.get("name")) for case in root.iter("testcase"))
    assert set(names.values()) == {1}


def test_a_suite_tells_on_what_it_was_made(root: ET.Element) -> None:
    suite = root.find("testsuite[@name='opencl/rusticl-22.3.6/llvmpipe']")
    assert suite is not None
    told = {found.get("name"): found.get("value") for found in suite.iter("property")}
    assert told.items() >= {
        "device": "llvmpipe (LLVM 15.0.6, 256 bits) (opencl, rusticl 22.3.6)", "backend": "opencl", "platform": "rusticl",
        "platform version": "22.3.6", "driver": "22.3.6", "runtime pyopencl": "2026.1.4", "host gemmport": "0.1.0",
        "host python": "3.12.4", "host cpu": "AMD EPYC 7R13 Processor", "left": "0",
    }.items()  # fmt: skip
    assert "rusticl-loop-rounds" in str(told["quirks"])
    assert next(found.get("value") for found in root.iter("property") if found.get("name") == "left") == "112"


def test_every_host_of_a_merged_record_is_told() -> None:
    made = record(7, failing=False)
    tested = next(iter(made.devices.values()))
    made.add(replace(tested, environments=(*tested.environments, {"cpu": "Another CPU"})))
    (suite, *_) = ET.fromstring(junit.render(made))
    told = {found.get("name"): found.get("value") for found in suite.iter("property")}
    assert told["host cpu"] == "AMD EPYC 7R13 Processor"
    assert told["host 2 cpu"] == "Another CPU"


def test_a_lost_device_is_an_error_of_its_own(root: ET.Element) -> None:
    (case,) = [case for case in root[-1].iter("testcase") if case.get("name") == "device"]
    (error,) = list(case)
    assert (error.tag, error.get("type")) == ("error", "lost")
    assert error.get("message") == "clWaitForEvents: CL_DEVICE_NOT_AVAILABLE"
    assert "three times\n0 cells are left\nagain: gemmport matrix" in (error.text or "")


def test_text_that_xml_cannot_hold_is_written_as_codes(root: ET.Element) -> None:
    verdict = next(v for v in record(20_000).verdicts.values() if CONTROL in v.reason)
    made = record(7, failing=False)
    on, first_one = next(iter(made.verdicts.items()))
    made.verdicts[on] = replace(first_one, status="error", reason=f"{HOSTILE} {CONTROL}\nsecond line")
    text = junit.render(made)
    (found,) = list(case_of(ET.fromstring(text.encode("utf-8")), made.verdicts[on]))
    shown = r"bad bytes \x00\x1b[31m\ufffe\ud800 end"
    assert found.get("message") == f"{HOSTILE} {shown}"
    assert f"{HOSTILE} {shown}\nsecond line" in (found.text or "")
    assert verdict.status == "error"


def test_what_xml_can_hold_is_kept() -> None:
    kept = "tab\t line\n ü \u2028 \ue000 \ufffd \U0001f600 <&>\"'"
    assert junit._legal(kept) == kept


def test_a_record_without_devices_is_a_document() -> None:
    empty = ET.fromstring(junit.render(Record(Header("0.1.0", "quick", (1, 1), "2026-11-21T12:04:32+00:00", {}))))
    assert (empty.tag, empty.get("tests"), len(empty)) == ("testsuites", "0", 0)
    assert empty.get("name") == "gemmport matrix quick 1/1"
