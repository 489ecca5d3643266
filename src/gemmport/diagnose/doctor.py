"""What works here, what does not, and how to mend it: versions, settings, cache, backends, devices, baselines.

Every look at a runtime is taken by a process of its own (`gemmport.diagnose.child`) under a time limit: that a runtime crashes
or hangs is a finding like any other.
"""

from __future__ import annotations

import difflib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

from gemmport import backends, baselines
from gemmport.backends.parts import Part
from gemmport.bench.environment import calls_are_compiled, host_environment
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, default_accumulator
from gemmport.core.errors import ConfigError, UntrustedError
from gemmport.diagnose.links import Link, Reach, told_between
from gemmport.planning import verdicts
from gemmport.planning.lookup import load_configuration
from gemmport.runtime.cache import cache_folder, cache_use, check_writable
from gemmport.runtime.child_processes import scratch_file, scratch_folder, session

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
    """Looks at everything.

    Args:
        timeout: seconds that one look at a runtime may take; a first compilation can need many.
        progress: told what is being looked at.
    """
    return _Examination(timeout, progress).run()


@dataclass(frozen=True)
class _Answer:
    """What a probe answered, and how it ended: empty where it ended well."""

    lines: Sequence[dict[str, Any]]
    fault: str


class _Examination:
    def __init__(self, timeout: float, progress: Callable[[str], None]) -> None:
        self.timeout = timeout
        self.progress = progress
        self.environment = {**os.environ, "PYTHONSAFEPATH": "1"}  # the probe imports nothing from where the user stands
        self.right: list[str] = []
        self.wrong: list[str] = []
        self.chosen = ""

    def run(self) -> Diagnosis:
        findings = [_versions(), _calls(), *self._settings(), _cache()]
        found: list[DeviceInfo] = []
        for name in backends.names():
            findings += self._backend(name, found)
        # The products compile into a cache of their own, so that the compiler is looked at and not the user's cache.
        with _empty_cache() as folder:
            fresh = {**self.environment, "GEMMPORT_CACHE_DIR": folder}
            for device in found:
                findings += self._device(device, fresh)
                findings += self._forms(device, fresh)
        findings += self._choice(found)
        findings += self._links(found)
        findings += self._baselines(found)
        return Diagnosis(tuple(findings), tuple(self.right), tuple(dict.fromkeys(self.wrong)), self.chosen)

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
        if icds := os.environ.get("OCL_ICD_VENDORS"):
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

    def _backend(self, name: str, found: list[DeviceInfo]) -> Iterator[Finding]:
        """Findings of a backend; its devices are added to `found`."""
        self.progress(f"backend {name}")
        answer = self._ask("backend", name)
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

    def _device(self, device: DeviceInfo, environment: Mapping[str, str]) -> Iterator[Finding]:
        """Computes and checks a product in each type."""
        name = f"{device.backend} {device.selector}"
        subject = f"{name} = {device.label}"
        self.progress(subject)
        sums = {dtype: default_accumulator(DTYPES[dtype], DTYPES[dtype]).arithmetic for dtype in PRODUCTS}
        dtypes = [dtype for dtype in PRODUCTS if not sums[dtype] or sums[dtype] in device.computes]
        verified: list[str] = []
        for dtype, line, fault in self._ask_each(("device", *name.split()), dtypes, environment):
            if line is not None and line["status"] == "ok":
                verified.append(f"{dtype} by {line['kernel']} from {line['entry']}")
                continue
            reason = fault if line is None else line["reason"]
            if line is not None and line["status"] == "failed":
                self.wrong.append(name)
                detail = f"{dtype} is computed WRONGLY by {line['kernel']} from {line['entry']}: {reason}"
                remedy = f"do not use this device; report it with gemmport doctor --json; {_ELSEWHERE}"
            elif line is not None and line["status"] == "refused":
                detail = f"{dtype}: {reason}"
                remedy = f"correct the entry of yours that asks for it, or {_WITHOUT_YOURS}"
            else:
                detail = f"{dtype}: {reason}" if dtype else f"all products are right, but the process {reason}"
                remedy = f"upgrade its runtime or driver, or {_ELSEWHERE}"
            yield Finding("problem" if dtype else "warning", "devices", subject, detail, remedy)
        if len(verified) == len(dtypes) and verified:
            self.right.append(name)
        told = f"verified: {', '.join(verified)}; " if verified else ""
        yield Finding("ok" if verified else "warning", "devices", subject, told + _abilities(device))

    def _forms(self, device: DeviceInfo, environment: Mapping[str, str]) -> Iterator[Finding]:
        """Tries what only simulations have shown to be right, and notes the verdicts: plans take what is right from then on."""
        name = f"{device.backend} {device.selector}"
        forms = {form.label: form for form in verdicts.forms(device)}
        right: list[str] = []
        for label, line, fault in self._ask_each(("form", *name.split()), list(forms), environment):
            if not label:
                continue
            form = forms[label]
            reason = fault if line is None else line["fault"] or line["reason"]
            verdicts.note(form, device, right=not reason)
            if not reason:
                right.append(f"{form.name} by {form.kernel} ({form.told})")
                continue
            wrong = line is not None and line["fault"]
            detail = f"{form.name} by {form.kernel} ({form.told}) {'is WRONG' if wrong else 'does not run'}: {reason}"
            yield Finding(
                "warning", "devices", name, detail, "nothing chooses it; report it with gemmport doctor --json"
            )
        if right:
            yield Finding("ok", "devices", name, f"verified, and chosen from now on: {', '.join(right)}")

    def _choice(self, found: Sequence[DeviceInfo]) -> Iterator[Finding]:
        """The device that is taken where none is named."""
        if not found:
            remedy = "pip install 'gemmport[pocl]' (any x86-64 Linux), or the OpenCL driver of your GPU"
            yield Finding("problem", "devices", "no device", "no backend reaches any device here", remedy)
            return
        self.progress("the device that is taken where none is named")
        answer = self._ask("chosen")
        subject = "where none is named"
        if answer.fault or not answer.lines:
            yield Finding("problem", "devices", subject, f"choosing a device {answer.fault}", _ELSEWHERE)
            return
        (line,) = answer.lines
        if "error" in line:
            missing = line["kind"] in ("BackendUnavailableError", "DeviceNotFoundError")
            remedy = "unset GEMMPORT_DEVICE GEMMPORT_BACKEND, or name one of the devices above"
            yield Finding("problem", "devices" if missing else "settings", subject, line["error"], remedy)
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

    def _baselines(self, found: Sequence[DeviceInfo]) -> Iterator[Finding]:
        names = list(dict.fromkeys(name for device in found for name in baselines.for_device(device)))
        self.progress("baselines")
        for name, line, fault in self._ask_each(("baseline",), names, self.environment):
            if line is not None and "version" in line:
                yield Finding("ok", "baselines", name, str(line["version"]))
            elif line is not None:
                detail, _, remedy = line["error"].partition("; ")
                yield Finding("warning", "baselines", name, detail, remedy)
            else:
                yield Finding("warning", "baselines", name or "baselines", fault, "gemmport run --baseline none")

    def _ask_each(
        self, command: Sequence[str], items: Sequence[str], environment: Mapping[str, str]
    ) -> Iterator[tuple[str, dict[str, Any] | None, str]]:
        """Each item with the line that answers it, or with the fault that its probe ended with; the next has a new probe.

        A probe that ends badly after its last answer is an item of no name.
        """
        remaining = list(items)
        while remaining:
            answer = self._ask(*command, *remaining, environment=environment)
            for line in answer.lines:
                yield remaining.pop(0), line, ""
            if remaining or answer.fault:
                yield (remaining.pop(0) if remaining else ""), None, answer.fault or "gave no answer"

    def _ask(self, *arguments: str, environment: Mapping[str, str] | None = None) -> _Answer:
        """Runs a probe to its end or to the time limit."""
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
                try:
                    status = process.wait(self.timeout)
                    fault = _ending(status)
                except subprocess.TimeoutExpired:
                    fault = f"did not end within {self.timeout:g} seconds"
            answers.seek(0)
            said.seek(0)
            told = answers.read().decode("utf-8", errors="replace").splitlines(keepends=True)
            last = said.read().decode("utf-8", errors="replace").strip().splitlines()[-1:] if fault else []
        whole = [json.loads(line) for line in told if line.endswith("\n")]  # a crash may cut the last one short
        return _Answer(whole, ": ".join([fault, *last]))


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
