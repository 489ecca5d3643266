"""`gemmport doctor`: of every fault it says what, where and what to do, and it never falls with it."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from copy import copy
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest

import gemmport
from absences import LINUX, beyond, skip_without
from gemmport import backends, baselines, cli
from gemmport.backends import _opencldiscovery, parts
from gemmport.contracts.kernel import Form
from gemmport.core.errors import BackendUnavailableError
from gemmport.diagnose import doctor
from gemmport.diagnose.doctor import Diagnosis, Finding, examine
from gemmport.runtime.cache import OWN_ICD
from made_up_devices import DEVICES

TESTS = Path(__file__).parents[1]

WITH_FAULT = """
import os, signal, sys, time
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {tests!r})
from mutations import NAIVE, planted
from gemmport import baselines
from gemmport.bench import products
from gemmport.diagnose import child
from gemmport.execution import selection
from gemmport.core.errors import BackendUnavailableError
asked = sys.argv[2]
if asked == "device" and {programs!r}:
    os.environ["GEMMPORT_CACHE_DIR"] = {programs!r}
{fault}
if __name__ == "__main__":
    child.main()
"""


@pytest.fixture(autouse=True)
def own_settings(monkeypatch, best_backend):
    """The best device is the only one that is found, and no variable is set, so that a test is quick and alone."""
    for name in list(os.environ):
        if name.startswith("GEMMPORT_") and name != "GEMMPORT_CACHE_DIR":
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """A cache in which products that were compiled anew by one examination are found by the next."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture
def with_fault(monkeypatch, tmp_path, best_backend, programs):
    """Runs an examination whose probes have a fault, on the best device alone: a product in float32, or in other types too.

    Where they are not what is looked at, products are compiled once for all of the tests, and not `anew`, and nobody asks for
    other backends and for baselines, each of which costs a process. Nothing waits for a verdict but `forms`. The `timeout` is
    that of products: elsewhere a machine may be as busy as it likes.
    """
    device = best_backend.device

    def run(
        fault: str = "",
        *,
        timeout: float | None = None,
        products: tuple[str, ...] = ("float32",),
        anew: bool = False,
        everything: bool = False,
        forms: tuple[Form, ...] = (),
        progress: Callable[[str], None] = lambda _: None,
    ) -> Diagnosis:
        only = (
            f"real = selection.backend_status\n"
            f"selection.backend_status = child.backend_status = lambda name: replace(real(name), devices=tuple(\n"
            f"    d for d in real(name).devices if (d.backend, d.selector) == {(device.backend, device.selector)!r}))\n"
        )
        script = tmp_path / "probe.py"
        script.write_text(
            WITH_FAULT.format(tests=str(TESTS), programs="" if anew else str(programs), fault=only + fault),
            encoding="utf-8",
        )
        monkeypatch.setattr(doctor, "PROBE", (sys.executable, str(script)))
        monkeypatch.setattr(doctor, "PRODUCTS", products)
        monkeypatch.setattr(doctor, "verdicts", waiting(*forms))
        if not everything:
            monkeypatch.setattr(doctor, "backends", SimpleNamespace(names=lambda: (device.backend,)))
            monkeypatch.setattr(doctor, "baselines", SimpleNamespace(for_device=lambda device: ()))
        if timeout is not None:
            monkeypatch.setattr(doctor._Examination, "_ask", with_less_time(timeout))
        return examine(progress=progress)

    return run


def with_less_time(seconds: float) -> Callable[..., doctor._Answer]:
    """In place of `_Examination._ask`, with another time limit for products."""
    real = doctor._Examination._ask

    def ask(self: doctor._Examination, question: str, *more: str, **how: Any) -> doctor._Answer:
        asking = copy(self)
        asking.timeout = seconds if question == "device" else self.timeout
        return real(asking, question, *more, **how)

    return ask


def waiting(*forms: Form) -> SimpleNamespace:
    """In place of `verdicts`: forms that wait for one, and those that were noted as right."""
    noted: list[str] = []

    def note(form: Form, device: gemmport.DeviceInfo, *, right: bool) -> None:
        noted.extend([form.name] if right else [])

    return SimpleNamespace(forms=lambda device: forms, note=note, right=noted)


ONE, OTHER = (Form("naive", name, "float32", "float32", {}, "made up") for name in ("one", "other"))


def name_of(backend: gemmport.Backend) -> str:
    return f"{backend.device.backend} {backend.device.selector}"


def problems(diagnosis: Diagnosis) -> list[Finding]:
    return [finding for finding in diagnosis.findings if finding.status == "problem"]


@pytest.mark.processes
def test_where_all_is_well_every_device_of_this_machine_is_verified():
    diagnosis = examine()
    devices = gemmport.devices()
    names = {f"{device.backend} {device.selector}" for device in devices}
    assert (set(diagnosis.right), diagnosis.wrong, diagnosis.exit_status) == (names, (), 0)
    assert diagnosis.chosen == f"{devices[0].backend} {devices[0].selector}"
    assert not problems(diagnosis)
    found = {finding.subject: finding for finding in diagnosis.findings if finding.area == "devices"}
    for device in devices:
        assert "verified: float32 by " in found[f"{device.backend} {device.selector} = {device.label}"].detail
    assert [f.status for f in diagnosis.findings if f.subject == "numpy"] in ([], ["ok"])


def test_a_device_that_computes_wrongly_is_named(with_fault, best_backend):
    diagnosis = with_fault("""
real_plan = products.make_plan
broken = planted("drops the last term", NAIVE)
broken.__enter__()
products.make_plan = lambda *a, **options: real_plan(*a, **{**options, "kernel": NAIVE, "params": {}})
""")
    assert diagnosis.exit_status == 1
    assert diagnosis.wrong == (name_of(best_backend),)
    assert not diagnosis.right
    assert any("float32 is computed WRONGLY by naive" in finding.detail for finding in problems(diagnosis))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV"),
        ("os._exit(7)", "ended with exit status 7"),
        ("raise RuntimeError('the runtime is confused')", "the runtime is confused"),
        ("os._exit(0)", "gave no answer"),
        ("time.sleep(3600)", "did not end within 5 seconds"),
        ("os.system('sleep 3600')", "did not end within 5 seconds"),
    ],
)
def test_a_runtime_that_falls_over_in_a_product_is_a_finding(with_fault, best_backend, fault, told):
    diagnosis = with_fault(f"if asked == 'device':\n    {fault}", timeout=5.0 if "sleep" in fault else None)
    assert diagnosis.exit_status == 3
    (found,) = (finding for finding in problems(diagnosis) if best_backend.device.label in finding.subject)
    assert found.detail.startswith("float32: ")
    assert told in found.detail
    assert "GEMMPORT_DEVICE" in found.remedy


@pytest.mark.processes
def test_what_a_runtime_started_is_ended_with_it(with_fault, tmp_path):
    """Compilers that a runtime starts would go on otherwise."""
    skip_without(LINUX)
    started = tmp_path / "started"
    with_fault(f"if asked == 'device':\n    os.system('echo $$ > {started}; exec sleep 600')", timeout=10.0)
    assert_ended(started)


@pytest.mark.processes
def test_what_ends_an_examination_ends_its_probes(with_fault, tmp_path, monkeypatch):
    """At once, and not at their time limit."""
    skip_without(LINUX)
    started, ended = tmp_path / "started", []
    end = doctor.end_session
    monkeypatch.setattr(doctor, "end_session", lambda process: (end(process), ended.append(process)))

    def interrupt(said: str) -> None:
        if said.startswith("devices: 1 of 2"):
            for _ in range(600):
                if started.exists():
                    break
                time.sleep(0.1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with_fault(
            f"if asked == 'form':\n    os.system('echo $$ > {started}; exec sleep 600')",
            forms=(ONE,),
            progress=interrupt,
        )
    assert ended
    assert_ended(started)


def assert_ended(file: Path) -> None:
    """Asserts that the process whose number is in a file comes to its end."""
    stat = Path("/proc", file.read_text().strip(), "stat")
    for _ in range(50):
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail(f"process {stat.parent.name} is still there")


@pytest.mark.processes
def test_a_type_that_crashes_does_not_hide_the_others(with_fault, best_backend):
    if "float64" not in best_backend.device.computes:
        pytest.skip(beyond(best_backend.device, "it computes in one type only"))
    diagnosis = with_fault("""
real_run = child.run_benchmark
def run_or_crash(problems, *a):
    if problems[0].dtype.name == "float32":
        os.abort()
    return real_run(problems, *a)
child.run_benchmark = run_or_crash
""", products=("float32", "float64"))  # fmt: skip
    (found,) = (f for f in problems(diagnosis) if best_backend.device.label in f.subject)
    assert found.detail.startswith("float32: was ended by SIGABRT")
    assert any("verified: float64 by" in finding.detail for finding in diagnosis.findings)
    assert diagnosis.exit_status == 3


@pytest.mark.processes
def test_a_runtime_that_falls_over_after_its_work_is_a_warning(with_fault, best_backend):
    diagnosis = with_fault("import atexit\nif asked == 'device':\n    atexit.register(os.abort)")
    assert diagnosis.exit_status == 0
    assert diagnosis.right == (name_of(best_backend),)
    assert any("all products are right, but the process was ended by SIGABRT" in f.detail for f in diagnosis.findings)


@pytest.mark.processes
def test_a_discovery_that_crashes_is_a_finding_and_the_pieces_are_told(with_fault):
    diagnosis = with_fault("child.backend_status = lambda name: os.abort()", everything=True)
    assert diagnosis.exit_status == 3
    for name in backends.names():
        assert any(f.subject == name and "SIGABRT" in f.detail for f in problems(diagnosis))
    assert any(finding.subject == "opencl: pyopencl" for finding in diagnosis.findings)
    assert any(finding.subject == "no device" and "gemmport[pocl]" in finding.remedy for finding in diagnosis.findings)


@pytest.mark.processes
def test_what_runtimes_print_does_not_disturb_the_answers(with_fault):
    assert (
        with_fault("print('hello'); os.write(1, b'{\"devices\": 5}\\n')\nos.system('echo from a child')").exit_status
        == 0
    )


@pytest.mark.processes
def test_a_backend_that_is_missing_is_a_warning_with_the_command(with_fault):
    diagnosis = with_fault(
        "before = child.backend_status\n"
        "missing = selection.BackendStatus('cuda', error='backend cuda is not installed: it needs x; pip install x')\n"
        "selection.backend_status = child.backend_status = lambda name: missing if name == 'cuda' else before(name)",
        everything=True,
    )
    (found,) = (f for f in diagnosis.findings if f.subject == "cuda")
    assert found == Finding("warning", "backends", "cuda", "backend cuda is not installed: it needs x", "pip install x")


@pytest.mark.processes
def test_notes_of_a_backend_are_warnings_with_their_remedy(with_fault):
    note = "platform rusticl has no device; to use it on the CPU: export RUSTICL_ENABLE=llvmpipe"
    diagnosis = with_fault(
        f"before = child.backend_status\nchild.backend_status = lambda name: replace(before(name), notes=({note!r},))",
        everything=True,
    )
    found = [f for f in diagnosis.findings if f.detail == "platform rusticl has no device"]
    assert {f.remedy for f in found} == {"to use it on the CPU: export RUSTICL_ENABLE=llvmpipe"}
    assert len(found) == len(backends.names())


@pytest.mark.processes
def test_a_baseline_that_is_missing_or_crashes_is_a_warning(with_fault, best_backend):
    wanted = baselines.for_device(best_backend.device)
    diagnosis = with_fault("baselines.load = lambda name: os.abort()", everything=True)
    found = {f.subject: f for f in diagnosis.findings if f.area == "baselines"}
    assert set(found) == set(wanted)
    assert all(f.status == "warning" and "SIGABRT" in f.detail for f in found.values())
    assert diagnosis.exit_status == 0


# Side by side


def tried(
    monkeypatch: pytest.MonkeyPatch, probe: Callable[[str], doctor._Told], *forms: Form
) -> tuple[list[Finding], list[str]]:
    """Findings of forms on a device whose product is right, and the names of those that are chosen from then on.

    Args:
        probe: what comes of a form, by its label.
    """
    examination = doctor._Examination(1.0, lambda _: None)

    def ask_each(command: Sequence[str], items: Sequence[str], environment: object) -> list[doctor._Told]:
        own = {"status": "ok", "reason": "", "kernel": "naive", "entry": ""}
        return [probe(item) if command[0] == "form" else doctor._Told(item, own) for item in items]

    monkeypatch.setattr(examination, "_ask_each", ask_each)
    monkeypatch.setattr(doctor, "verdicts", own := waiting(*forms))
    with examination.threads:
        _, *told = examination._tried([DEVICES["Apple"]]).values()
    return list(doctor._forms(DEVICES["Apple"], [each for one in told for each in one])), own.right


def right(label: str) -> doctor._Told:
    return doctor._Told(label, {"status": "ok", "reason": ""})


def test_looks_are_taken_side_by_side_and_told_in_order(monkeypatch):
    monkeypatch.setattr(doctor, "usable_cores", lambda: 2)
    met = threading.Barrier(2)

    def probe(label: str) -> doctor._Told:
        met.wait(60)
        return right(label)

    findings, chosen = tried(monkeypatch, probe, ONE, OTHER)
    assert chosen == ["one", "other"]
    assert [finding.detail for finding in findings] == [
        "verified, and chosen from now on: one by naive (made up), other by naive (made up)"
    ]


@pytest.mark.parametrize(
    ("first", "times", "status"),
    [
        (doctor._Told(OTHER.label, None, "ended with exit status 1: out of memory"), 2, "ok"),
        (doctor._Told(OTHER.label, {"status": "refused", "reason": "out of memory"}), 2, "ok"),
        (doctor._Told(OTHER.label, None, "did not end within 1 seconds", hangs=True), 1, "warning"),
        (doctor._Told(OTHER.label, {"status": "failed", "reason": "an element differs"}), 1, "warning"),
    ],
    ids=["crash", "refusal", "hang", "wrong"],
)
def test_what_does_not_run_beside_others_is_tried_again_alone(monkeypatch, first, times, status):
    """But what hangs would hang again, and a wrong result stays one."""
    asked: list[str] = []

    def probe(label: str) -> doctor._Told:
        asked.append(label)
        return first if label == OTHER.label and asked.count(label) == 1 else right(label)

    findings, chosen = tried(monkeypatch, probe, ONE, OTHER)
    assert [asked.count(form.label) for form in (ONE, OTHER)] == [1, times]
    assert findings[0].status == status
    assert chosen == (["one", "other"] if status == "ok" else ["one"])


# Settings


@pytest.mark.processes
def test_a_broken_configuration_is_a_problem_and_devices_are_looked_at_all_the_same(
    with_fault, monkeypatch, tmp_path, best_backend
):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "mine.yaml").write_text("schema: 1\n")
    monkeypatch.setenv("GEMMPORT_CONFIG_PATH", str(folder))
    diagnosis = with_fault()
    assert diagnosis.exit_status == 2
    (found,) = problems(diagnosis)
    assert f"{folder / 'mine.yaml'}: entries is missing" in found.detail
    assert "gemmport configs --check" in found.remedy
    assert diagnosis.right == (name_of(best_backend),)


@pytest.mark.parametrize(
    "text", ["[" * 50_000, "schema: !!bool 1", "schema: " + "9" * 5000, 'schema: "\\e[31m"'], ids=len
)
def test_whatever_stands_in_a_configuration_it_is_a_finding(monkeypatch, tmp_path, text):
    (tmp_path / "mine.yaml").write_text(text)
    monkeypatch.setenv("GEMMPORT_CONFIG_PATH", str(tmp_path))
    (found,) = (f for f in doctor._Examination(1.0, lambda _: None)._settings() if f.status == "problem")
    assert found.detail.startswith(f"{tmp_path / 'mine.yaml'}: line 1: ")
    assert found.detail.isprintable()


@pytest.mark.processes
def test_a_configuration_that_asks_too_much_of_the_device_is_a_problem(with_fault, monkeypatch, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    too_large = "{TSM: 512, TSN: 512, TSK: 128, WPTM: 16, WPTN: 16}"
    (folder / "mine.yaml").write_text(
        "schema: 1\ndescription: x\nentries:\n"
        f"- {{name: big, kernels: {{register_tiled: {too_large}}}, provenance: {{tuned: false}}}}\n"
    )
    monkeypatch.setenv("GEMMPORT_CONFIG_PATH", str(folder))
    diagnosis = with_fault()
    assert diagnosis.exit_status == 3
    assert any("TSM = 512" in f.detail and "export GEMMPORT_CONFIG_PATH=" in f.remedy for f in problems(diagnosis))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "value", "told", "status"),
    [
        ("GEMMPORT_DEVICE", "no such device", "no device 'no such device'; there are", 3),
        ("GEMMPORT_BACKEND", "vulkan", f"no backend 'vulkan': there are {', '.join(backends.names())}", 2),
    ],
)
def test_a_device_or_backend_that_is_asked_for_in_vain_is_a_problem(with_fault, monkeypatch, name, value, told, status):
    monkeypatch.setenv(name, value)
    diagnosis = with_fault()
    assert diagnosis.exit_status == status
    (found,) = problems(diagnosis)
    assert told in found.detail
    assert name in found.remedy
    assert f"{name}={value!r}: " in found.detail
    (setting,) = (f for f in diagnosis.findings if f.subject == name)
    assert (setting.status, setting.remedy) == ("warning", f"unset {name}")  # no ✓ for what is not there
    assert repr(value) in setting.detail


@pytest.mark.processes
def test_a_variable_that_nothing_reads_is_a_warning(with_fault, monkeypatch):
    monkeypatch.setenv("GEMMPORT_DEVISE", "pocl")
    diagnosis = with_fault()
    (found,) = (f for f in diagnosis.findings if f.subject == "GEMMPORT_DEVISE")
    assert found.status == "warning"
    assert found.remedy == "unset GEMMPORT_DEVISE; did you mean GEMMPORT_DEVICE?"
    assert diagnosis.exit_status == 0


@pytest.mark.parametrize("there", [True, False])
def test_runtimes_that_are_chosen_are_told_where_they_are_there(monkeypatch, tmp_path, there):
    """Else they are a fault of the backend, which says so itself, and no runtime is to be installed."""
    place = tmp_path if there else tmp_path / "gone"
    monkeypatch.setenv("OCL_ICD_VENDORS", str(place))
    examination = doctor._Examination(1.0, lambda _: None)
    told = [f for f in examination._settings() if f.subject == "OCL_ICD_VENDORS"]
    assert [f.status for f in told] == (["ok"] if there else [])
    (nothing,) = examination._choice([], doctor._Answer((), "", hangs=False))
    assert nothing.remedy == "unset OCL_ICD_VENDORS"
    monkeypatch.delenv("OCL_ICD_VENDORS")
    (nothing,) = examination._choice([], doctor._Answer((), "", hangs=False))
    assert nothing.remedy.startswith(
        "pip install 'gemmport[intel]' (any x86-64 Linux) or 'gemmport[pocl]' (no AMD CPU from"
    )


def test_every_variable_that_the_sources_read_is_known():
    read = set()
    for package in (gemmport, backends):
        for path in Path(package.__path__[0]).rglob("*.py"):
            read |= set(re.findall(r'"(GEMMPORT_[A-Z_]+)"', path.read_text(encoding="utf-8")))
    assert read == doctor.VARIABLES.keys()


@pytest.mark.processes
def test_a_cache_that_cannot_be_written_to_is_a_problem_where_it_was_asked_for(with_fault, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path / "file"))
    diagnosis = with_fault()
    assert diagnosis.exit_status == 2
    assert [(f.area, f.subject) for f in problems(diagnosis)] == [("cache", str(tmp_path / "file"))]


def test_a_cache_that_others_may_write_to_is_mended_by_a_command(monkeypatch, tmp_path):
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))
    assert doctor._cache().status == "ok"
    tmp_path.chmod(0o777)
    found = doctor._cache()
    assert (found.status, found.remedy) == ("problem", f"run chmod go-w {tmp_path}, or choose another folder")
    assert found.detail.startswith(f"{tmp_path} must be owned by root or by you")


@pytest.mark.processes
def test_a_configuration_that_others_may_write_is_a_problem(with_fault, monkeypatch, tmp_path, best_backend):
    folder = tmp_path / "mine"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("GEMMPORT_CONFIG_PATH", str(folder))
    diagnosis = with_fault()
    (found,) = problems(diagnosis)
    assert found.detail.startswith(f"not read: {folder} must be owned by root or by you")
    assert found.remedy == f"run chmod go-w {folder}, or choose another folder"
    assert (diagnosis.exit_status, diagnosis.right) == (2, (name_of(best_backend),))


@pytest.mark.processes
def test_it_needs_no_folder_that_can_be_written_to(with_fault, monkeypatch, best_backend):
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    diagnosis = with_fault()
    assert (diagnosis.exit_status, diagnosis.right) == (0, (name_of(best_backend),))


@pytest.mark.processes
def test_products_are_compiled_and_the_users_cache_is_left_alone(with_fault, monkeypatch, tmp_path):
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path / "cache"))
    assert with_fault(anew=True).exit_status == 0
    assert not (tmp_path / "cache" / "programs").exists()


# Verdicts

OK = Finding("ok", "devices", "", "")
FAULT = Finding("problem", "settings", "", "")
UNASKED = Finding("problem", "devices", "", "")


@pytest.mark.parametrize(
    ("diagnosis", "status"),
    [
        (Diagnosis((OK,), ("a 0:0",), (), "a 0:0"), 0),
        (Diagnosis((UNASKED,), ("a 0:0",), (), "a 0:0"), 0),
        (Diagnosis((OK,), ("a 0:0",), ("b 0:0",), "a 0:0"), 1),
        (Diagnosis((FAULT,), (), ("b 0:0",), ""), 1),
        (Diagnosis((FAULT,), ("a 0:0",), (), ""), 2),
        (Diagnosis((FAULT,), (), (), ""), 3),
        (Diagnosis((OK,), ("a 0:0",), (), "b 0:0"), 3),
        (Diagnosis((OK,), ("a 0:0",), (), ""), 3),
    ],
)
def test_the_exit_status_follows_from_the_findings(diagnosis, status):
    assert diagnosis.exit_status == status


# Pieces


def part(backend: str, name: str) -> parts.Part:
    (found,) = (p for p in parts.parts(backend) if p.name == name)
    return found


def test_an_icd_file_whose_library_is_gone_is_named(monkeypatch, tmp_path):
    skip_without(LINUX)
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    (tmp_path / "good.icd").write_text("libc.so.6\n")
    (tmp_path / "unknown.icd").write_text("libOpenCLofNobody.so\n")
    (tmp_path / "empty.icd").write_text("\n")
    (tmp_path / "gone.icd").write_text("/no/such/libpocl.so\n")
    assert part("opencl", str(tmp_path / "good.icd")).present
    gone = part("opencl", str(tmp_path / "gone.icd"))
    assert not gone.present
    assert "/no/such/libpocl.so, which does not exist" in gone.detail
    assert f"rm {tmp_path / 'gone.icd'}" in gone.remedy
    for name, told in (("unknown", "'libOpenCLofNobody.so', which cannot be loaded: libOpen"), ("empty", "is empty;")):
        bad = part("opencl", str(tmp_path / f"{name}.icd"))
        assert not bad.present
        assert told in bad.detail


def test_a_folder_of_runtimes_that_is_gone_is_named(monkeypatch, tmp_path):
    skip_without(LINUX)
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "gone"))
    assert part("opencl", "OCL_ICD_VENDORS").remedy == "unset OCL_ICD_VENDORS"


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        (
            "gone",
            r"^OpenCL's loader finds no runtime where OCL_ICD_VENDORS='.*/gone' says \(.*\); unset OCL_ICD_VENDORS$",
        ),
        ("", r"^no OpenCL runtime is installed \(.*\); install one, e\.g\. pip install 'gemmport\[intel\]' \(any x86"),
        ("ours", r"^no OpenCL runtime is installed "),
    ],
)
def test_without_a_runtime_the_variable_is_named_that_hides_them(monkeypatch, tmp_path, chosen, told):
    """Not where gemmport itself has set it."""
    if chosen == "ours":
        (tmp_path / "ours").mkdir()
        (tmp_path / "ours" / OWN_ICD).write_text("libintelocl.so")
    monkeypatch.setenv("OCL_ICD_VENDORS", chosen and str(tmp_path / chosen))

    def none():
        raise cl.LogicError("clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR")

    monkeypatch.setattr(cl, "get_platforms", none)
    with pytest.raises(BackendUnavailableError, match=told):
        _opencldiscovery.platforms()


def test_without_pycuda_it_is_said_what_it_is_built_with(monkeypatch):
    monkeypatch.setattr(parts, "_package", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.delenv("CUDA_ROOT", raising=False)
    assert "export CUDA_ROOT=" in part("cuda", "CUDA toolkit").remedy
    monkeypatch.setenv("CUDA_ROOT", "/no/such/cuda")
    assert part("cuda", "CUDA toolkit").detail.startswith("CUDA_ROOT = /no/such/cuda holds no bin/nvcc")
    monkeypatch.setattr("shutil.which", lambda name: f"/opt/{name}")
    assert part("cuda", "CUDA toolkit").present


def test_a_missing_driver_and_a_missing_compiler_are_named_with_how_to_get_them(monkeypatch):
    def absent(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", absent)
    monkeypatch.setattr(parts._nvrtc, "nvrtc", lambda: None)
    monkeypatch.setattr(parts._nvrtc, "nvcc", lambda: None)
    parts._nvrtc.compiler.cache_clear()
    assert not part("cuda", "NVIDIA's driver").present
    assert "driver" in part("cuda", "NVIDIA's driver").remedy
    assert "pip install 'gemmport[nvrtc]'" in part("cuda", "compiler").remedy
    parts._nvrtc.compiler.cache_clear()


def test_of_an_unknown_backend_no_pieces_are_known():
    assert parts.parts("metal") == ()


# The command


@pytest.mark.processes
def test_the_command_prints_findings_remedies_and_json(with_fault, monkeypatch, capfd, best_backend):
    diagnosis = with_fault()
    shown = Diagnosis((*diagnosis.findings, Finding("problem", "cache", "it", "is [bold]broken", "mend it")), *(
        diagnosis.right, diagnosis.wrong, diagnosis.chosen))  # fmt: skip
    monkeypatch.setattr(import_module("gemmport.cli.doctor"), "examine", lambda **options: shown)
    outputs = []
    for options in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", ["gemmport", "doctor", *options])
        assert cli._run_command() == 2
        outputs.append(capfd.readouterr().out)
    text, document = outputs[0], json.loads(outputs[1])
    assert "✗ it  is [bold]broken\n  → mend it" in text
    assert "1 device computes right, 0 wrongly; 1 problem" in text
    assert best_backend.device.label in text
    assert document["findings"][-1] == {
        "status": "problem", "area": "cache", "subject": "it", "detail": "is [bold]broken", "remedy": "mend it",
    }  # fmt: skip
    assert (document["right"], document["exit_status"]) == ([name_of(best_backend)], 2)
