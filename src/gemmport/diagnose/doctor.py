"""What works here, what does not, and how to mend it: versions, settings, cache, backends, devices, baselines.

Every look at a runtime is taken by a process of its own (`gemmport.diagnose.child`) under a time limit: that a runtime crashes
or hangs is a finding like any other. The looks are taken side by side, since most of their time is compilers'; only links are
measured with nothing beside them.
"""

from __future__ import annotations

import difflib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from gemmport import backends, baselines
from gemmport.backends.parts import Part
from gemmport.bench.environment import calls_are_compiled, host_environment, was_given
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, default_accumulator
from gemmport.core.errors import ConfigError, UntrustedError
from gemmport.diagnose.links import Link, Reach, told_between
from gemmport.execution.selection import BACKEND_VARIABLE, DEVICE_VARIABLE
from gemmport.planning import verdicts
from gemmport.planning.lookup import load_configuration
from gemmport.runtime.cache import cache_folder, cache_use, check_writable
from gemmport.runtime.child_processes import end_session, scratch_file, scratch_folder, session
from gemmport.runtime.host_cpu import usable_cores

Status = Literal["ok", "warning", "problem"]
Area = Literal["versions", "settings", "cache", "backends", "devices", "links", "baselines"]

PROBE: tuple[str, ...] = (sys.executable, "-m", "gemmport.diagnose.child")

PRODUCTS = ("float32", "float64", "float16", "complex64", "int8")
"""The types in which a product is computed, where the device can: the others need nothing more of it."""

VARIABLES = {
    "GEMMPORT_BACKEND": "the backend that is taken where none is named",
    "GEMMPORT_DEVICE": "the device that is taken where none is named",
    "GEMMPORT_CONFIG_PATH": "folders of configurations that go before the shipped ones; empty leaves out the user's own, too",
    "GEMMPORT_CACHE_DIR": "the folder of compiled programs",
    "GEMMPORT_CLBLAST": "the file of the CLBlast library",
    "GEMMPORT_CLBLAST_TUNING": "the folder of what CLBlast's tuners found",
    "GEMMPORT_CLBLAS": "the file of the clBLAS library",
}
"""Every environment variable that gemmport reads, and its effect."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        status: "ok"; "warning": something is missing or may surprise, but nobody asked for it; "problem": it is broken.
        area: the part of the examination it belongs to.
        subject: what was looked at.
        detail: what was found.
        remedy: what to do, if possible a command; empty where nothing is to be done or known.
    """

    status: Status
    area: Area
    subject: str
    detail: str
    remedy: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All findings, and what follows from them. Devices are named as "BACKEND SELECTOR", e.g. "opencl 1:0".

    Attributes:
        right: devices whose every product was verified.
        wrong: devices with a product that failed verification.
        chosen: the device that is taken where none is named; empty where there is none, or it cannot be told.
    """

    findings: tuple[Finding, ...]
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    chosen: str

    @property
    def exit_status(self) -> int:
        """Of `gemmport doctor`: 0 all that was asked for works; 1 a device computes wrongly; 2 a setting is broken; 3 no device
        computes right, or the one that is taken where none is named does not.
        """
        if self.wrong:
            return 1
        if not self.right:
            return 3
        if any(finding.status == "problem" and finding.area in ("settings", "cache") for finding in self.findings):
            return 2
        return 0 if self.chosen in self.right else 3


def examine(*, timeout: float = 120.0, progress: Callable[[str], None] = lambda _: None) -> Diagnosis:
    """Looks at everything, with as many processes at a time as there are cores.

    Args:
        timeout: seconds that one look at a runtime may take; a first compilation can need many. The products of a device are
            one look, and so is each form of a kernel.
        progress: told what is being looked at.
    """
    examination = _Examination(timeout, progress)
    with examination.threads:
        try:
            return examination.run()
        except BaseException:
            examination.stop()
            raise


@dataclass(frozen=True)
class _Answer:
    """What a probe answered, and how it ended: empty where it ended well.

    Attributes:
        hangs: whether it had to be ended.
    """

    lines: Sequence[dict[str, Any]]
    fault: str
    hangs: bool


@dataclass(frozen=True)
class _Look:
    """Something that is tried on a device: products in types ("device"), or a form of a kernel ("form")."""

    question: str
    device: DeviceInfo
    items: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """What a probe is asked, but for the items."""
        return (self.question, self.device.backend, self.device.selector)


@dataclass(frozen=True)
class _Told:
    """The line that answers an item, or None with the fault that its probe ended with."""

    item: str
    line: dict[str, Any] | None
    fault: str = ""
    hangs: bool = False

    @property
    def status(self) -> str:
        """Of the line: "ok", "failed" (a wrong result), or another; "fault" where there is none."""
        return self.line["status"] if self.line is not None else "fault"

    @property
    def reason(self) -> str:
        """Why the status is not "ok"."""
        return self.line["reason"] if self.line is not None else self.fault

    @property
    def may_be_well_alone(self) -> bool:
        """Whether it may be due to what ran beside it: a device has so much memory, or may serve one process at a time."""
        return bool(self.item) and not self.hangs and self.status not in ("ok", "failed")


def _as_it_serves(finding: Finding, choice: _Answer) -> Finding:
    """A finding about a setting, which is no more than a warning where the choice of a device by it failed."""
    failed = any("error" in line for line in choice.lines)
    if not failed or finding.subject not in (BACKEND_VARIABLE, DEVICE_VARIABLE):
        return finding
    detail = f"{os.environ[finding.subject]!r}: no device is chosen by it, as is told below"
    return replace(finding, status="warning", detail=detail, remedy=f"unset {finding.subject}")


class _Examination:
    def __init__(self, timeout: float, progress: Callable[[str], None]) -> None:
        self.timeout = timeout
        self.progress = progress
        self.threads = ThreadPoolExecutor(usable_cores())
        self.environment = {**os.environ, "PYTHONSAFEPATH": "1"}  # the probe imports nothing from where the user stands
        self.right: list[str] = []
        self.wrong: list[str] = []
        self.chosen = ""
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = threading.Event()

    def run(self) -> Diagnosis:
        findings = [_versions(), _calls(), *self._settings(), _cache()]
        found: list[DeviceInfo] = []
        self.progress("backends")
        for name, answer in [(name, self.threads.submit(self._ask, "backend", name)) for name in backends.names()]:
            findings += self._backend(name, answer.result(), found)
        names = list(dict.fromkeys(name for device in found for name in baselines.for_device(device)))
        choice = self.threads.submit(self._ask, "chosen")
        libraries = self.threads.submit(self._ask_each, ("baseline",), names, self.environment)
        tried = self._tried(found)
        for device in found:
            products, *forms = (tried[look] for look in _looks(device))
            findings += self._products(device, products)
            findings += _forms(device, [each for told in forms for each in told])
        chosen = choice.result()
        findings = [_as_it_serves(finding, chosen) for finding in findings]
        findings += self._choice(found, chosen)
        self.progress("baselines")
        told_of_libraries = libraries.result()  # no look is taken beside those at links
        findings += self._links(found)
        findings += _baselines(told_of_libraries)
        return Diagnosis(tuple(findings), tuple(self.right), tuple(dict.fromkeys(self.wrong)), self.chosen)

    def stop(self) -> None:
        """Ends the probes that run, and lets no other start."""
        self._stopped.set()
        self.threads.shutdown(wait=False, cancel_futures=True)
        for process in tuple(self._running):
            end_session(process)

    def _settings(self) -> Iterator[Finding]:
        for name, value in sorted(os.environ.items()):
            if not name.startswith("GEMMPORT_"):
                continue
            if name in VARIABLES:
                yield Finding("ok", "settings", name, f"{value!r}: {VARIABLES[name]}")
            else:
                (close,) = difflib.get_close_matches(name, VARIABLES, n=1) or ("",)
                remedy = f"unset {name}" + (f"; did you mean {close}?" if close else "")
                yield Finding("warning", "settings", name, "nothing reads this variable", remedy)
        icds = os.environ.get("OCL_ICD_VENDORS", "")
        if icds and Path(icds).exists():  # else it is told as a fault of the backend
            yield Finding("ok", "settings", "OCL_ICD_VENDORS", f"{icds!r}: the only OpenCL runtimes that are looked at")
        try:
            configuration = load_configuration()
        except ConfigError as error:
            # What is shipped is sound: the fault is in a file of the user's, without which the devices are looked at.
            self.environment["GEMMPORT_CONFIG_PATH"] = ""
            remedy = f"correct it (gemmport configs --check FILE), or {_WITHOUT_YOURS}"
            yield Finding("problem", "settings", "configuration", str(error), remedy)
        else:
            loaded = configuration.entries
            own = [entry for entry in loaded if entry.source == "user"]
            told = f"{len(own)} entries of yours, {len(loaded) - len(own)} shipped, no fault"
            yield Finding("ok", "settings", "configuration", told)
            for refused in configuration.refused:
                detail, _, remedy = refused.rpartition("; ")
                yield Finding("problem", "settings", "configuration", f"not read: {detail}", remedy)

    def _backend(self, name: str, answer: _Answer, found: list[DeviceInfo]) -> Iterator[Finding]:
        """Findings of a backend; its devices are added to `found`."""
        for line in answer.lines:
            for part in (Part(**data) for data in line.get("parts", ())):
                status: Status = "ok" if part.present else "warning"
                yield Finding(status, "backends", f"{name}: {part.name}", part.detail, part.remedy)
            for reason in (line.get("error", ""), *line.get("notes", ())):
                if reason:
                    detail, _, remedy = reason.partition("; ")
                    yield Finding("warning", "backends", name, detail, remedy)
            found += map(DeviceInfo.from_dict, line.get("devices", ()))
        if answer.fault:
            detail = f"looking for its devices {answer.fault}"
            remedy = (
                "remove or upgrade the runtime that was installed last; gemmport -vv devices shows how far it comes"
            )
            yield Finding("problem", "backends", name, detail, remedy)

    def _tried(self, found: Sequence[DeviceInfo]) -> dict[_Look, list[_Told]]:
        """What came of all that is tried on the devices. It is tried side by side; what does not run there, again alone.

        All is compiled into a cache of its own, so that the compiler is looked at and not the user's cache.
        """
        looks = [look for device in found for look in _looks(device)]
        with _empty_cache() as folder:
            fresh = {**self.environment, "GEMMPORT_CACHE_DIR": folder}
            futures = {self.threads.submit(self._ask_each, look.command, look.items, fresh): look for look in looks}
            for done, future in enumerate(as_completed(futures), 1):
                self.progress(f"devices: {done} of {len(looks)} looks, the last at {futures[future].device.label}")
            tried = {look: future.result() for future, look in futures.items()}
            for look in looks if len(looks) > 1 else ():
                for each in [each for each in tried[look] if each.may_be_well_alone]:
                    self.progress(f"{look.device.label}, with nothing beside it")
                    place = tried[look].index(each)
                    tried[look][place : place + 1] = self._ask_each(look.command, [each.item], fresh)
        return tried

    def _products(self, device: DeviceInfo, told: Sequence[_Told]) -> Iterator[Finding]:
        """Findings of a product in each type."""
        name = f"{device.backend} {device.selector}"
        subject = f"{name} = {device.label}"
        verified: list[str] = []
        for each in told:
            if each.line is not None and each.status == "ok":
                verified.append(f"{each.item} by {each.line['kernel']} from {each.line['entry']}")
                continue
            if each.line is not None and each.status == "failed":
                self.wrong.append(name)
                by = f"{each.line['kernel']} from {each.line['entry']}"
                detail = f"{each.item} is computed WRONGLY by {by}: {each.reason}"
                remedy = f"do not use this device; report it with gemmport doctor --json; {_ELSEWHERE}"
            elif each.status == "refused":
                detail = f"{each.item}: {each.reason}"
                remedy = f"correct the entry of yours that asks for it, or {_WITHOUT_YOURS}"
            else:
                right = "all products are right, but the process"
                detail = f"{each.item}: {each.reason}" if each.item else f"{right} {each.reason}"
                remedy = f"upgrade its runtime or driver, or {_ELSEWHERE}"
            yield Finding("problem" if each.item else "warning", "devices", subject, detail, remedy)
        if verified and len(verified) == sum(bool(each.item) for each in told):
            self.right.append(name)
        begins = f"verified: {', '.join(verified)}; " if verified else ""
        yield Finding("ok" if verified else "warning", "devices", subject, begins + _abilities(device))

    def _choice(self, found: Sequence[DeviceInfo], answer: _Answer) -> Iterator[Finding]:
        """The device that is taken where none is named."""
        if not found:
            remedy = (
                "unset OCL_ICD_VENDORS"
                if was_given("OCL_ICD_VENDORS")
                else "pip install 'gemmport[intel]' (any x86-64 Linux) or 'gemmport[pocl]' (no AMD CPU from Zen 5 on), or the "
                "OpenCL driver of your GPU"
            )
            yield Finding("problem", "devices", "no device", "no backend reaches any device here", remedy)
            return
        subject = "where none is named"
        if answer.fault or not answer.lines:
            yield Finding("problem", "devices", subject, f"choosing a device {answer.fault}", _ELSEWHERE)
            return
        (line,) = answer.lines
        if "error" in line:
            missing = line["kind"] in ("BackendUnavailableError", "DeviceNotFoundError")
            detail, _, remedy = line["error"].partition("; unset ")  # of the variable that it is due to
            remedy = f"unset {remedy}" if remedy else "name one of the devices above"
            yield Finding("problem", "devices" if missing else "settings", subject, detail, remedy)
            return
        self.chosen = f"{line['backend']} {line['selector']}"
        if self.chosen in self.right:
            yield Finding("ok", "devices", subject, f"{self.chosen} is taken")
        else:
            yield Finding("problem", "devices", subject, f"{self.chosen} is taken, which does not work", _ELSEWHERE)

    def _links(self, found: Sequence[DeviceInfo]) -> Iterator[Finding]:
        """Where several devices compute right: how each is linked to the host, and two of them, unless both are the CPU."""
        right = [device for device in found if f"{device.backend} {device.selector}" in self.right]
        if len(right) < 2:
            return
        links: dict[DeviceInfo, Link] = {}
        reaches: dict[tuple[DeviceInfo, DeviceInfo], Reach] = {}
        for device in right:
            name = f"{device.backend} {device.selector}"
            self.progress(f"links of {name}")
            others = [each for each in right if each.backend == device.backend and each != device]
            answer = self._ask("link", *name.split(), *(each.selector for each in others))
            for line in answer.lines[:1]:
                links[device] = Link(**line)
                yield Finding("ok", "links", name, str(links[device]))
            reaches |= {(device, other): Reach(**line) for other, line in zip(others, answer.lines[1:], strict=False)}
            if answer.fault:
                yield Finding("warning", "links", name, f"measuring its link {answer.fault}", _ELSEWHERE)
        for first, second in combinations(links, 2):
            if "cpu" == first.type == second.type:
                continue
            there, back = (reaches.get(pair, Reach()) for pair in ((first, second), (second, first)))
            subject = f"{first.backend} {first.selector} – {second.backend} {second.selector}"
            yield Finding("ok", "links", subject, told_between(links[first], links[second], there, back))

    def _ask_each(self, command: Sequence[str], items: Sequence[str], environment: Mapping[str, str]) -> list[_Told]:
        """What comes of each item; the one after an item that ended its probe has a new probe.

        A probe that ends badly after its last answer is an item of no name.
        """
        remaining, told = list(items), list[_Told]()
        while remaining:
            answer = self._ask(*command, *remaining, environment=environment)
            told += [_Told(remaining.pop(0), line) for line in answer.lines]
            if remaining or answer.fault:
                item = remaining.pop(0) if remaining else ""
                told.append(_Told(item, None, answer.fault or "gave no answer", answer.hangs))
        return told

    def _ask(self, *arguments: str, environment: Mapping[str, str] | None = None) -> _Answer:
        """Runs a probe to its end or to the time limit.

        Raises:
            CancelledError: `stop` has been called.
        """
        hangs = False
        # Pipes would wait for the probe's own children too.
        with scratch_file() as answers, scratch_file() as said:
            with session(
                [*PROBE, f"/dev/fd/{answers.fileno()}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=environment or self.environment,
                pass_fds=(answers.fileno(),),
            ) as process:
                self._running.add(process)
                try:
                    status = 0 if self._stopped.is_set() else process.wait(self.timeout)
                    fault = _ending(status)
                except subprocess.TimeoutExpired:
                    hangs, fault = True, f"did not end within {self.timeout:g} seconds"
                self._running.discard(process)
            if self._stopped.is_set():
                raise CancelledError
            answers.seek(0)
            said.seek(0)
            told = answers.read().decode("utf-8", errors="replace").splitlines(keepends=True)
            last = said.read().decode("utf-8", errors="replace").strip().splitlines()[-1:] if fault else []
        whole = [json.loads(line) for line in told if line.endswith("\n")]  # a crash may cut the last one short
        return _Answer(whole, ": ".join([fault, *last]), hangs)


def _looks(device: DeviceInfo) -> tuple[_Look, ...]:
    """A product in each type; and, each by itself for it takes many programs, the forms that wait for a verdict."""
    sums = {dtype: default_accumulator(DTYPES[dtype], DTYPES[dtype]).arithmetic for dtype in PRODUCTS}
    dtypes = tuple(dtype for dtype in PRODUCTS if not sums[dtype] or sums[dtype] in device.computes)
    return (
        _Look("device", device, dtypes),
        *(_Look("form", device, (form.label,)) for form in verdicts.forms(device)),
    )


def _forms(device: DeviceInfo, told: Sequence[_Told]) -> Iterator[Finding]:
    """Findings of forms. Notes the verdicts: plans take what is right from then on."""
    name = f"{device.backend} {device.selector}"
    forms = {form.label: form for form in verdicts.forms(device)}
    right: list[str] = []
    for each in told:
        if not each.item:
            continue
        form = forms[each.item]
        verdicts.note(form, device, right=each.status == "ok")
        if each.status == "ok":
            right.append(f"{form.name} by {form.kernel} ({form.told})")
            continue
        how = "is WRONG" if each.status == "failed" else "does not run"
        detail = f"{form.name} by {form.kernel} ({form.told}) {how}: {each.reason}"
        yield Finding("warning", "devices", name, detail, "nothing chooses it; report it with gemmport doctor --json")
    if right:
        yield Finding("ok", "devices", name, f"verified, and chosen from now on: {', '.join(right)}")


def _baselines(told: Sequence[_Told]) -> Iterator[Finding]:
    for each in told:
        if each.line is None:
            yield Finding("warning", "baselines", each.item or "baselines", each.fault, "gemmport run --baseline none")
        elif "version" in each.line:
            yield Finding("ok", "baselines", each.item, str(each.line["version"]))
        else:
            detail, _, remedy = each.line["error"].partition("; ")
            yield Finding("warning", "baselines", each.item, detail, remedy)


@contextmanager
def _empty_cache() -> Iterator[str]:
    """A folder for programs; where no folder can be written to, one that cannot be made, so that nothing is cached."""
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(scratch_folder("gemmport-doctor-"))
        except OSError:
            folder = os.devnull
        yield folder


_ELSEWHERE = "use another device: export GEMMPORT_DEVICE=PLATFORM[:DEVICE]"

_WITHOUT_YOURS = "leave out the files of yours: export GEMMPORT_CONFIG_PATH="


def _versions() -> Finding:
    host = host_environment()
    told = (f"gemmport {host['gemmport']}", f"Python {host['python']}", f"NumPy {host['numpy']} ({host['blas']})",
            host["system"], f"{host['cpu']}, {host['cores']} cores")  # fmt: skip
    return Finding("ok", "versions", "this installation", ", ".join(told))


def _calls() -> Finding:
    if calls_are_compiled():
        return Finding("ok", "versions", "repeated calls", "found and launched in C")
    remedy = (
        "apt-get install gcc python3-dev, and install gemmport anew without GEMMPORT_PURE"
        if sys.version_info >= (3, 11)
        else "use Python 3.11 or newer"
    )
    return Finding("warning", "versions", "repeated calls", "found and launched in Python, in twice the time", remedy)


def _cache() -> Finding:
    folder, asked = cache_folder(), "GEMMPORT_CACHE_DIR" in os.environ
    try:
        check_writable()
        use = cache_use()
    except UntrustedError as error:
        detail, _, remedy = str(error).rpartition("; ")
        return Finding("problem" if asked else "warning", "cache", str(folder), detail, remedy)
    except OSError as error:
        remedy = "export GEMMPORT_CACHE_DIR=FOLDER, one that you can write to; until then each process compiles anew"
        return Finding("problem" if asked else "warning", "cache", str(folder), str(error), remedy)
    return Finding("ok", "cache", str(folder), f"{use.programs} programs, {use.nbytes / 1e6:.1f} MB")


def _abilities(device: DeviceInfo) -> str:
    """Which floating-point types the device computes in, and why not the others."""
    told = [f"computes {', '.join(sorted(device.computes))}"]
    for dtype in ("float64", "float16"):
        if dtype not in device.computes:
            stored = "stores it only" if dtype == "float16" else "does not offer it"
            told.append(f"no {dtype} arithmetic: this device, or its driver, {stored}")
    return "; ".join(told)


def _ending(status: int) -> str:
    """How a process ended; empty where well."""
    if status >= 0:
        return f"ended with exit status {status}" if status else ""
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
