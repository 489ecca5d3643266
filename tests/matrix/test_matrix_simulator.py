"""What Oclgrind finds is read from its log, cell by cell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from absences import OCLGRIND, needs
from gemmport.matrix import simulator

needs_oclgrind = needs(OCLGRIND)

MESSAGES = """
Read-write data race at local memory address 0x4000000000004
\tKernel: tiled

\tFirst entity:  Local(1,0,0) Group(0,0,0)
\t  store float %cond, float addrspace(3)* %arrayidx, align 4
\tAt line 12 (column 5) of input.cl:
\t  a_tile[y][x] = a;

\tSecond entity: Local(0,0,0) Group(0,0,0)
\t  %0 = load float, float addrspace(3)* %arrayidx2, align 4
\tAt line 15 (column 9) of input.cl:
\t  sum += a_tile[y][p];


Uninitialized value read from global memory address 0x100000000000c
\tKernel: tiled
\tEntity: Global(3,0,0) Local(3,0,0) Group(0,0,0)
\tAt line 9 (column 3) of input.cl:
\t  x = A[i];


Uninitialized value read from global memory address 0x1000000000010
\tKernel: tiled
\tEntity: Global(4,0,0) Local(4,0,0) Group(0,0,0)
\tAt line 9 (column 3) of input.cl:
\t  x = A[i];

"""


def test_messages_are_told_in_a_line_each_without_what_differs_between_work_items(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(MESSAGES)
    told, read = simulator.faults(log, 0)
    assert told == [
        "Uninitialized value read from global memory, in tiled, at line 9: x = A[i]; (2 times)",
        "Read-write data race at local memory, in tiled, at line 12: a_tile[y][x] = a;, at line 15: sum += a_tile[y][p];",
    ]
    assert read == len(MESSAGES)
    assert simulator.faults(log, read) == ([], read)
    with log.open("a") as file:
        file.write(
            "\nOCLGRIND FATAL ERROR (./src/plugins/Uninitialized.cpp:1805)\nUnsupported instruction: freeze\n\tKernel: naive\n"
        )
    told, _ = simulator.faults(log, read)
    assert told == [
        "OCLGRIND FATAL ERROR (./src/plugins/Uninitialized.cpp:1805) Unsupported instruction: freeze, in naive"
    ]


def test_a_program_without_its_source_is_told_by_its_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    message = (
        "Invalid read of size 4 at global memory address 0x0\n\tKernel: naive\n\tAt line 7 (column 3) of input.cl:\n"
    )
    log.write_text(f"\n{message}\t  (source not available)\n")
    assert simulator.faults(log, 0)[0] == ["Invalid read of size 4 at global memory, in naive, at line 7"]


def test_no_more_faults_are_told_than_a_person_reads(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"\nInvalid read of size 4\n\tKernel: k{number}\n" for number in range(40)))
    told, _ = simulator.faults(log, 0)
    assert len(told) == simulator.MOST_FAULTS + 1
    assert told[-1] == f"and {40 - simulator.MOST_FAULTS} others"


def test_a_log_that_is_not_there_yet_says_nothing(tmp_path: Path) -> None:
    assert simulator.faults(tmp_path / "log", 0) == ([], 0)


def test_without_oclgrind_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert not simulator.installed()
    assert simulator.devices() == []


def test_one_that_does_not_start_has_no_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "oclgrind"
    broken.write_text("#!/bin/sh\necho no such library >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert simulator.devices() == []
    assert "no such library" in caplog.text


@needs_oclgrind
def test_its_device_is_found() -> None:
    (device,) = simulator.devices()
    assert (device.backend, device.platform) == ("opencl", "oclgrind")
    assert device.platform_version


ONE_AFTER_ANOTHER = """
import json, sys
from pathlib import Path
import numpy as np
import pyopencl as cl
import gemmport as gp
from gemmport.matrix import simulator

SOURCES = {
    "right": "data[x] = x;",
    "race": "tile[x] = x; data[x] = tile[x ^ 1];",
    "uninitialized": "if (x) tile[x] = x; barrier(CLK_LOCAL_MEM_FENCE); data[x] = tile[x];",
    "out of bounds": "data[x + 8] = x;",
    "right again": "tile[x] = x; barrier(CLK_LOCAL_MEM_FENCE); data[x] = tile[x ^ 1];",
}
backend = gp.get_backend("opencl", device="oclgrind")
read, found = 0, {}
for name, code in SOURCES.items():
    text = "__kernel void f(__global int *data) { __local int tile[8]; const int x = get_local_id(0); %s }" % code
    kernel = cl.Kernel(cl.Program(backend.context, text).build(list(backend.options()), cache_dir=False), "f")
    buffer = cl.Buffer(backend.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(8, np.int32))
    kernel.set_args(buffer)
    cl.enqueue_nd_range_kernel(backend.queue, kernel, (8,), (8,))
    backend.synchronize()
    found[name], read = simulator.faults(Path(sys.argv[1]), read)
print(json.dumps(found))
"""


@needs_oclgrind
def test_planted_faults_are_found_when_they_happen(tmp_path: Path) -> None:
    """A race, an uninitialized read and a write out of bounds are in the log as soon as the device is waited for."""
    log = tmp_path / "log"
    words = [*simulator.command(log), sys.executable, "-c", ONE_AFTER_ANOTHER, str(log)]
    environment = {**os.environ, "GEMMPORT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["right"] == found["right again"] == []
    for name, words_of_it in (
        ("race", "data race at local memory"),
        ("uninitialized", "Uninitialized"),
        ("out of bounds", "Invalid write"),
    ):
        assert any(words_of_it in fault and "in f, at line 1" in fault for fault in found[name]), found


FLOOD = """
import sys
from pathlib import Path
import numpy as np
import pyopencl as cl
import gemmport as gp
from gemmport.matrix import simulator

backend = gp.get_backend("opencl", device="oclgrind")
log, read = Path(sys.argv[1]), 0
for code in ("data[x] = tile[x];", "tile[x] = x; data[x] = tile[x ^ 1];"):
    text = "__kernel void f(__global int *data) { __local int tile[64]; const int x = get_local_id(0); %s }" % code
    kernel = cl.Kernel(cl.Program(backend.context, text).build(list(backend.options()), cache_dir=False), "f")
    buffer = cl.Buffer(backend.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(64, np.int32))
    kernel.set_args(buffer)
    for _ in range(24):
        cl.enqueue_nd_range_kernel(backend.queue, kernel, (64,), (64,))
    backend.synchronize()
    before, (found, read) = read, simulator.faults(log, read)
print(before > 0 and any("race" in fault for fault in found))
"""


@needs_oclgrind
def test_a_flood_of_messages_does_not_hide_later_ones(tmp_path: Path) -> None:
    """Oclgrind's own limit is a thousand."""
    log = tmp_path / "log"
    words = [*simulator.command(log), sys.executable, "-c", FLOOD, str(log)]
    environment = {**os.environ, "GEMMPORT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.splitlines()[-1:] == ["True"], done.stdout + done.stderr
