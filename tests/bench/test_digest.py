"""Digests of launches and of the call path: what changes them, and what does not."""

from __future__ import annotations

import gc
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gemmport as gp
from gemmport import backends, kernels
from gemmport.backends import _compilation, _sass
from gemmport.bench import digest
from gemmport.bench.digest import call_path, call_path_digest, launch_digest
from gemmport.core.device import DeviceInfo
from gemmport.core.plan import Integer, KernelSource, Launch
from gemmport.core.problem import GemmProblem
from gemmport.execution import repeated
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan
from gemmport.runtime import fingerprint, sources
from made_up_devices import DEVICES

CPU, GPU = DEVICES["CPU under PoCL"], DEVICES["NVIDIA sm_90 under CUDA"]
SHIPPED = Path(kernels.__path__[0])


def launches(device: DeviceInfo, kernel: str, size: int = 512) -> tuple[Launch, ...]:
    return make_plan(GemmProblem.create(size, size, size), device, load_configuration(()), kernel=kernel).launches


@pytest.fixture
def in_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    """Replaces text, once, in a copy of the kernels' sources, which takes their place."""
    copy = tmp_path / "kernels"
    shutil.copytree(SHIPPED, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sources, "_shipped", lambda: copy)

    def change(file: str, old: str, new: str) -> None:
        text = (copy / file).read_text("utf-8")
        assert text.count(old) >= 1, f"{file} does not hold {old!r}"
        (copy / file).write_text(text.replace(old, new, 1), "utf-8")

    return change


def of_packed() -> list[str]:
    return [launch_digest(launch, CPU) for launch in launches(CPU, "packed")]


def test_a_digest_is_the_same_each_time_and_short() -> None:
    before = of_packed()
    digest._expanded.cache_clear()
    assert of_packed() == before
    assert all(re.fullmatch("[0-9a-f]{16}", one) for one in before)


def test_a_comment_and_blanks_do_not_count(in_a_copy: Callable[[str, str, str], None]) -> None:
    before = of_packed()
    for file in ("opencl/pack.cl", "opencl/packed.cl", "opencl/prelude/arithmetic.cl"):
        in_a_copy(file, "{", "{ // a comment, and a line more\n\n   /* another */")
    assert of_packed() == before


def test_a_token_that_the_kernel_uses_counts(in_a_copy: Callable[[str, str, str], None]) -> None:
    pack, packed = of_packed()
    in_a_copy("opencl/pack.cl", "get_group_id(0)", "(get_group_id(0) + 0)")
    changed_pack, same_packed = of_packed()
    assert changed_pack != pack
    assert same_packed == packed


def test_a_helper_of_the_prelude_counts_for_the_kernels_that_reach_it_alone(
    in_a_copy: Callable[[str, str, str], None],
) -> None:
    (tiled,) = launches(CPU, "tiled")
    before = launch_digest(tiled, CPU), of_packed()[0]
    in_a_copy(
        "opencl/prelude/tiles.cl", "tile.batch = (int)", "tile.batch = (int)+"
    )  # of this_tile, which pack does without
    assert launch_digest(tiled, CPU) != before[0]
    assert of_packed()[0] == before[1]


def test_the_order_of_definitions_and_the_file_do_not_count(tmp_path: Path) -> None:
    one = "int f(int x) { return x + 1; }\nint g(int x) { return x; }\n"
    other = "int g(int x) { return x; }\nint f(int x) { return x + 1; }\n"
    kernel = "__kernel void work(__global int *p) { *p = f(g(*p)); }\n"
    found = set()
    for name, text in (("first", one), ("second", other)):
        folder = tmp_path / name / "opencl"
        folder.mkdir(parents=True)
        (folder / f"{name}.cl").write_text(text + kernel)
        source = KernelSource(
            name, "work", (("IN", "float32"), ("OUT", "float32"), ("ACC", "float32")), str(tmp_path / name)
        )
        found.add(launch_digest(Launch(source, (1, 1, 1), (1, 1, 1), ()), CPU))
    assert len(found) == 1


def _one(device: DeviceInfo = CPU) -> Launch:
    return launches(device, "naive")[0]


@pytest.mark.parametrize(
    "changed",
    [
        replace(_one(), groups=(1, 1, 1)),
        replace(_one(), work_group=(1, 1, 1)),
        replace(_one(), local_bytes=4),
        replace(_one(), dynamic_local_bytes=4),
        replace(_one(), arguments=(*_one().arguments, Integer(1))),
    ],
    ids=["groups", "work_group", "local_bytes", "dynamic_local_bytes", "arguments"],
)
def test_geometry_and_numbers_count(changed: Launch) -> None:
    assert launch_digest(changed, CPU) != launch_digest(_one(), CPU)


def test_options_and_the_architecture_count(monkeypatch: pytest.MonkeyPatch) -> None:
    launch, other = _one(GPU), replace(GPU, architecture="sm_80")
    before = launch_digest(launch, GPU)
    assert launch_digest(launch, other) != before
    monkeypatch.setattr(_compilation, "options", lambda device: ("--fast",))
    assert launch_digest(launch, GPU) != before


def test_the_rescheduler_counts_for_what_asks_for_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asking, other = launches(GPU, "simt", 4096)[0], _one(GPU)
    assert _sass.asked_for(sources.assemble(asking.kernel, "cuda"))
    before = launch_digest(asking, GPU), launch_digest(other, GPU)
    monkeypatch.setattr(_sass, "VERSION", "another")
    assert launch_digest(asking, GPU) != before[0]
    assert launch_digest(other, GPU) == before[1]


@pytest.mark.parametrize(
    ("asks", "besides"),
    [
        (_compilation.LINKED, ()),
        ("#define SCHEDULE_FOR_PORTS 2\n#define GROUPS 3\n", ("rescheduled", "2", "3", _sass.VERSION)),
    ],
    ids=["linked", "rescheduled"],
)
def test_linking_as_under_cuda_counts_under_opencl_alone(asks: str, besides: tuple[str, ...]) -> None:
    source = f"{asks}__kernel void f() {{}}"
    assert _compilation.rework(replace(GPU, backend="opencl"), source) == ("linked", *besides)
    assert _compilation.rework(GPU, source) == besides
    assert _compilation.rework(CPU, source) == ()


# Fingerprints of Python code


CODE = '''
"""What it is."""
import os


def f(x: int) -> int:
    """What it does."""
    return x + 1
'''


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        (CODE.replace("import os", "from os import path"), True),
        (CODE.replace("What it does", "What else it does"), True),
        (CODE.replace("return", "# why\n    return"), True),
        (CODE.replace("x + 1", "x + 2"), False),
        (CODE.replace("def f", "def g"), False),
    ],
    ids=["imports", "docstring", "comment", "number", "name"],
)
def test_code_counts_and_comments_do_not(tmp_path: Path, changed: str, same: bool) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text(CODE)
    other.write_text(changed)
    assert (fingerprint.of_code([one]) == fingerprint.of_code([other])) == same


def test_a_fingerprint_of_modules_knows_no_order(tmp_path: Path) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("x = 1")
    other.write_text("y = 1")
    assert fingerprint.of_code([one, other]) == fingerprint.of_code([other, one]) != fingerprint.of_code([one])


# The call path


def test_every_module_that_runs_in_a_repeated_call_is_in_the_call_path(
    backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is kept and of what is not, of host arrays and of device arrays."""
    a = np.ones((48, 48), np.float32)
    out = np.empty_like(a)
    on_device, result = backend.asarray(a), backend.empty((48, 48), "float32")
    calls = (
        lambda: gp.matmul(a, a, out=out, device=backend.device),
        lambda: gp.gemm(on_device, on_device, out=result),
        lambda: gp.gemm(on_device, on_device),
    )
    ran: set[str] = set()
    for kept in (True, False):
        if not kept:
            monkeypatch.setattr(repeated, "again", lambda *_, **__: (None, None))
        for call in calls:
            call()
            call()
            ran |= modules_of(call)
    assert {"gemmport.api.matmul", "gemmport.execution.repeated", f"gemmport.backends.{backend.name}"} <= ran
    assert sorted(ran - {f"gemmport.{name}" for name in call_path(backend.name)}) == []


def modules_of(call: Callable[[], object]) -> set[str]:
    """Modules of gemmport of which a function runs in a call."""
    seen: set[str] = set()

    def note(frame: object, event: str, argument: object) -> None:
        seen.add(str(getattr(frame, "f_globals", {}).get("__name__", "")))

    gc.collect()
    gc.disable()  # what other tests left would be freed now and then, by functions of other modules
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return {name for name in seen if name.startswith("gemmport")}


@pytest.mark.parametrize("name", backends.names())
def test_the_call_path_needs_no_backend(name: str) -> None:
    code = (
        "import sys; sys.modules['pycuda'] = None; from gemmport.bench.digest import call_path_digest as d; "
        f"print(d({name!r}))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert told == call_path_digest(name)
    assert call_path_digest("cuda") != call_path_digest("opencl")


def test_the_call_path_changes_with_a_module_of_it_and_not_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, place, copy = call_path_digest("opencl"), digest._file, tmp_path / "moved.py"
    text = place("gemmport.execution.executor").read_text("utf-8")
    monkeypatch.setattr(digest, "_file", lambda name: copy if name == "gemmport.execution.executor" else place(name))
    copy.write_text(f"# moved\n{text}", "utf-8")
    assert call_path_digest("opencl") == before
    copy.write_text(f"{text}\nMORE = 1\n", "utf-8")
    assert call_path_digest("opencl") != before
