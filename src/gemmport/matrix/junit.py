"""A record as JUnit XML, which continuous integration reads: a suite per device, a case per cell.

The elements and attributes are those of Jenkins' schema (xunit-plugin, junit-10.xsd).
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from gemmport.core.quirks import quirks_of
from gemmport.matrix.record import Record, Verdict
from gemmport.matrix.summary import Summary, summarize

_ELEMENTS = {"wrong": "failure", "error": "error", "hang": "error", "crash": "error", "unsupported": "skipped"}
"""What a status is in a case. A wrong result is a failure; what ended without a result is an error."""


def render(record: Record) -> str:
    """The XML document of a record.

    A case's class is its device and kernel, so that no two cases are called the same. Cells that are due and were not
    judged are left out: the suite's property `left` counts them. A lost device is one errored case more.
    """
    suites = [_suite(number, summary, record.header.started) for number, summary in enumerate(summarize(record))]
    root = ET.Element("testsuites", name=f"gemmport matrix {record.header.part}")
    for total in ("tests", "failures", "errors"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in suites)))
    root.set("time", _seconds(sum(float(suite.get("time", "0")) for suite in suites)))
    root.extend(suites)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(number: int, summary: Summary, started: str) -> ET.Element:
    tested = summary.tested
    cases = [_case(verdict) for verdict in summary.verdicts]
    if tested.lost:
        cases.append(_lost(summary))
    suite = ET.Element(
        "testsuite", id=str(number), name=_legal(tested.id), timestamp=started[:19], tests=str(len(cases)),
        failures=_count(cases, "failure"), errors=_count(cases, "error"), skipped=_count(cases, "skipped"),
        time=_seconds(sum(verdict.seconds for verdict in summary.verdicts)),
    )  # fmt: skip
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(summary):
        ET.SubElement(properties, "property", name=_legal(name), value=_legal(value))
    suite.extend(cases)
    return suite


def _properties(summary: Summary) -> list[tuple[str, str]]:
    """What the suite was made on; hosts beyond the first have their number."""
    tested = summary.tested
    device = tested.device
    told = {
        "device": tested.label, "backend": device.backend, "platform": device.platform_name or device.platform,
        "platform version": device.platform_version, "driver": device.driver, "architecture": device.architecture,
        "command": tested.command, "due": str(tested.cells), "left": str(summary.left),
    }  # fmt: skip
    told["quirks"] = ", ".join(quirk.id for quirk in quirks_of(device))
    told |= {f"runtime {name}": version for name, version in tested.runtime.items()}
    for number, environment in enumerate(tested.environments, 1):
        host = "host" if number == 1 else f"host {number}"
        told |= {f"{host} {name}": value for name, value in environment.items()}
    return [(name, value) for name, value in told.items() if value]


def _case(verdict: Verdict) -> ET.Element:
    name = {"classname": _legal(f"{verdict.on}.{verdict.kernel}"), "name": _legal(verdict.cell)}
    case = ET.Element("testcase", {**name, "time": _seconds(verdict.seconds)})
    if verdict.status in _ELEMENTS:
        first_line = verdict.reason.partition("\n")[0] or verdict.status
        found = ET.SubElement(case, _ELEMENTS[verdict.status], type=verdict.status, message=_legal(first_line))
        found.text = _legal(_text(verdict))
    elif verdict.reason:
        ET.SubElement(case, "system-out").text = _legal(verdict.reason)
    return case


def _text(verdict: Verdict) -> str:
    size = f"m {verdict.m}, n {verdict.n}, k {verdict.k}, batch {verdict.batch}, {verdict.check} check"
    quirk = f"known as: {verdict.quirk}" if verdict.quirk else ""
    return "\n".join(filter(None, (f"{verdict.status}: {verdict.reason}", size, quirk, f"again: {verdict.command}")))


def _lost(summary: Summary) -> ET.Element:
    tested = summary.tested
    case = ET.Element("testcase", classname=_legal(f"{tested.id}.device"), name="device", time="0.000")
    found = ET.SubElement(case, "error", type="lost", message=_legal(tested.lost.partition("\n")[0]))
    found.text = _legal(f"the device was lost: {tested.lost}\n{summary.left} cells are left\nagain: {tested.command}")
    return case


def _count(cases: list[ET.Element], element: str) -> str:
    return str(sum(case.find(element) is not None for case in cases))


def _seconds(time: float) -> str:
    return f"{time:.3f}"


_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 (section 2.2) does not allow: most control characters, surrogates, U+FFFE and U+FFFF."""


def _legal(text: str) -> str:
    """Text that XML can hold; each other character is written as its code, as in "\\x1b"."""
    return _ILLEGAL.sub(lambda found: ascii(found.group())[1:-1], text)
