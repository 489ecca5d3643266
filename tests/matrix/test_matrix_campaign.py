"""`gemmport matrix`: every cell gets its verdict, whatever kernels and runtimes do, and whatever ends the run."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import gemmport as gp
from absences import OCLGRIND, needs
from gemmport.matrix import campaign, simulator
from gemmport.matrix.campaign import Lane, Options, command_for, identities, lanes, run
from gemmport.matrix.cells import Cell
from gemmport.matrix.record import Header, Journal, Record, Verdict, merge, read
from gemmport.matrix.turns import Turns
from gemmport.runtime.cache import OWN_ICD
from import_path import import_path
from made_up_devices import DEVICES

FEW = ("--kernel", "naive", "--dtype", "float32", "--ops", "NN", "--shape", "odd", "--shape", "batched")
"""Two shapes of a program in a quick run: two cells; all twelve with --full."""


def words_of(device: gp.DeviceInfo, *arguments: object, planted: str = "") -> list[str]:
    """The command line of `gemmport matrix` on a device; with a planted fault, on the kernel of faulty_kernels as well."""
    words = ["matrix", "--backend", device.backend, "--device", device.selector, *map(str, arguments)]
    return [*words, "--import", "faulty_kernels", "--kernel", "broken"] if planted else words


def environment_with(planted: str) -> dict[str, str]:
    return {**os.environ, "GEMMPORT_PLANTED": planted, "PYTHONPATH": import_path(Path(__file__).parents[1])}


@contextmanager
def started(words: Sequence[str], planted: str = "") -> Iterator[subprocess.Popen[str]]:
    """The command line in a process of its own."""
    command = [sys.executable, "-c", "from gemmport.cli import main; main()", *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment_with(planted)
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def done(words: Sequence[str], planted: str = "") -> tuple[int, str, str]:
    """Exit status, output and errors of the command line."""
    with started(words, planted) as process:
        out, errors = process.communicate(timeout=300)
        return process.returncode, out, errors


def judged(
    device: gp.DeviceInfo, path: Path, *arguments: object, planted: str = "", status: int = 0
) -> list[Verdict]:  # fmt: skip
    """The verdicts of a run with --output."""
    found, _, errors = done(words_of(device, *arguments, "--output", path, planted=planted), planted)
    assert found == status, errors
    return list(read(path).verdicts.values())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.jsonl"


@pytest.mark.best_of_each_backend
@pytest.mark.processes
def test_cells_are_right_on_a_device(backend: gp.Backend, path: Path) -> None:
    verdicts = judged(backend.device, path, "--full", "--kernel", "tiled", "--dtype", "float32", "--ops", "NT")
    assert {verdict.status for verdict in verdicts} == {"verified"}, [v for v in verdicts if v.status != "verified"]
    simulated = backend.device.platform == "oclgrind"
    assert len(verdicts) == 11 * 6 + (not simulated)
    assert {verdict.check for verdict in verdicts} == {"exact", "statistical"}
    assert all(verdict.command.endswith(verdict.cell) and verdict.seconds > 0 for verdict in verdicts)
    (device,) = read(path).devices.values()
    found = device.device
    if found.platform == "pocl":  # what it tells of memory is of what was free when its process began
        found = replace(found, memory=backend.device.memory, max_allocation=backend.device.max_allocation)
    assert found == backend.device
    assert device.runtime == backend.environment()
    if not simulated:
        (timed,) = (verdict for verdict in verdicts if verdict.shape == "large")
        assert timed.gflops is not None
        assert timed.gflops > 0
        assert timed.baselines
        assert all("ratio" in beside for beside in timed.baselines.values())


@pytest.mark.skipif(os.name != "posix", reason="a signal is sent to a thread")
def test_an_interrupted_run_waits_for_its_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    class Judge:
        def __init__(self, _: object, lane: Lane) -> None:
            self.lane = lane

        def judge_all(self) -> None:
            if self.lane.id == "0":
                time.sleep(0.1)  # the threads are waited for by now
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(0.5)
            ended.append(self.lane.id)

    monkeypatch.setattr(campaign, "_Judge", Judge)
    journal = Journal(Header("0", "cells", (1, 1), "", {}), tmp_path / "record.jsonl")
    work = [Lane(next(iter(DEVICES.values())), str(number), "", 1, []) for number in range(2)]
    with pytest.raises(KeyboardInterrupt):
        run(work, journal, Options(jobs=2))
    assert sorted(ended) == ["0", "1"]


def test_what_cannot_be_has_the_reason(best_backend: gp.Backend, tmp_path: Path) -> None:
    device = replace(best_backend.device, computes=frozenset({"float32"}), local_memory=64, dynamic_local_memory=0)
    journal = Journal(Header("0", "cells", (1, 1), "", {}), tmp_path / "record.jsonl")
    asked = [
        Cell.parse(text)
        for text in ("naive/float64/NN/odd/a1b0", "tiled/float32/NN/odd/a1b0", "naive/float32/NN/odd/a1b0")
    ]
    run(lanes([device], lambda _: asked, journal), journal, Options())
    journal.close()
    double, large, small = journal.record.verdicts.values()
    assert [verdict.status for verdict in (double, large, small)] == ["unsupported", "unsupported", "verified"]
    assert "does not compute in float64" in double.reason
    assert "bytes of local memory per group" in large.reason
    assert (double.m, small.m > 0) == (0, True)


@pytest.mark.planted_fault
@pytest.mark.processes
class TestFaults:
    @pytest.mark.parametrize(
        ("fault", "status"),
        [
            ("drops the last term", "wrong"), ("ignores beta", "wrong"), ("skips the last row", "wrong"),
            ("reads the wrong column", "wrong"), ("does not compile", "error"),
        ],
    )  # fmt: skip
    @pytest.mark.sample(fault=["drops the last term"])
    def test_of_kernels_are_told_with_a_command_that_shows_them(
        self, best_backend: gp.Backend, path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, status: str
    ) -> None:
        narrow = ("--full", "--dtype", "float32", "--ops", "NN", "--shape", "odd")
        verdicts = judged(best_backend.device, path, *narrow, planted=fault, status=1)
        failures = [verdict for verdict in verdicts if verdict.failed]
        assert {verdict.status for verdict in failures} == {status}
        assert all(verdict.reason for verdict in failures)
        if fault == "ignores beta":
            assert "a1b0" not in {verdict.scalars for verdict in failures}
            assert {"a2b-1", "a0b2", "in-place", "random"} <= {verdict.scalars for verdict in failures}
        monkeypatch.setenv("GEMMPORT_PLANTED", fault)
        words = shlex.split(failures[-1].command)
        start = words.index("gemmport")  # settings go before it
        again, out, errors = done(words[start + 1 :], fault)
        assert again == 1, errors
        assert failures[-1].command in out
        assert failures[-1].reason.splitlines()[0] in out

    @pytest.mark.parametrize(
        ("fault", "status", "reason"),
        [("aborts", "crash", "SIGABRT"), ("exits", "crash", "status 0"), ("hangs", "hang", "no result after 5 s")],
    )
    def test_of_runtimes_cost_their_cell_alone(
        self, best_backend: gp.Backend, path: Path, fault: str, status: str, reason: str
    ) -> None:
        limit = 5 if fault == "hangs" else 100
        asked = [
            f"{kernel}/float32/NN/{shape}/a1b1"
            for shape in ("tiny", "batched", "odd")
            for kernel in ("naive", "broken")
        ]
        named = [word for cell in asked for word in ("--cell", cell)]
        verdicts = judged(best_backend.device, path, *named, "--cell-limit", limit, planted=fault, status=1)
        assert [verdict.cell for verdict in verdicts] == asked
        for verdict in verdicts:
            struck = verdict.cell == "broken/float32/NN/batched/a1b1"
            assert verdict.status == (status if struck else "verified")
            assert reason in verdict.reason if struck else verdict.reason == ""

    def test_of_neighbours_are_not_blamed_on_a_cell(self, best_backend: gp.Backend, path: Path) -> None:
        verdicts = judged(best_backend.device, path, *FEW[2:], "--full", planted="aborts at last")
        again = [verdict for verdict in verdicts if verdict.reason]
        assert {verdict.status for verdict in verdicts} == {"verified"}
        assert len(verdicts) == 12
        assert 1 <= len(again) <= 3
        assert all("in a process of its own" in verdict.reason and "SIGABRT" in verdict.reason for verdict in again)

    def test_of_a_device_lose_the_device_and_no_other(
        self, best_backend: gp.Backend, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(campaign, "_START_LIMIT", 60.0)
        gone = replace(best_backend.device, index=(77, 77), name="gone")  # CUDA has one platform
        journal = Journal(Header("0", "cells", (1, 1), "", {}), path)
        work = lanes([gone, best_backend.device], lambda _: [Cell.parse("naive/float32/NN/odd/a1b0")], journal)
        run(work, journal, Options(jobs=2))
        journal.close()
        record = read(path)
        assert "cannot be opened" in record.devices[work[0].id].lost
        assert [(verdict.on, verdict.status) for verdict in record.verdicts.values()] == [(work[1].id, "verified")]
        assert [lane.state for lane in work] == ["lost", "done"]


def lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines()) if path.exists() else 0


MANY = ("--full", "--kernel", "naive", "--kernel", "tiled", "--dtype", "float32", "--shape", "odd", "--shape", "tiny")


@pytest.mark.processes
class TestInterruptions:
    @pytest.mark.parametrize(
        ("end", "status"), [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=str
    )
    def test_lose_nothing(self, best_backend: gp.Backend, path: Path, end: signal.Signals, status: int) -> None:
        words = words_of(best_backend.device, *MANY, "--output", path)
        with started(words) as process:
            while lines(path) < 6:
                assert process.poll() is None, process.communicate()
                time.sleep(0.01)
            process.send_signal(end)
            _, errors = process.communicate(timeout=60)
            assert process.returncode == status
        before = path.read_bytes()
        kept = read(path)
        assert 3 <= len(kept.verdicts) < 2 * 2 * 4 * 6
        if status > 0:
            assert f"--output {path}" in errors
        found, _, errors = done(words)
        assert found == 0, errors
        whole = before[: before.rfind(b"\n") + 1]
        assert path.read_bytes().startswith(whole)  # nothing was judged twice
        assert len(read(path).verdicts) == lines(path) - 2 == 2 * 2 * 4 * 6

    def test_end_the_workers(self, best_backend: gp.Backend, path: Path) -> None:
        words = words_of(best_backend.device, *FEW[2:], "--output", path, planted="hangs")
        for end in (signal.SIGINT, signal.SIGKILL):
            path.unlink(missing_ok=True)
            with started(words, "hangs") as process:
                while lines(path) < 2:
                    time.sleep(0.05)
                time.sleep(0.5)
                workers = children(process.pid)
                assert workers or not Path("/proc").exists()
                process.send_signal(end)
                process.communicate(timeout=60)
            for _ in range(50):  # of one that is killed, the system ends them
                if not any(map(is_running, workers)):
                    break
                time.sleep(0.1)
            assert not any(map(is_running, workers))

    def test_by_the_clock_leave_cells_and_say_so(self, best_backend: gp.Backend, path: Path) -> None:
        # On a busy machine, the time may end before the first verdict. The next run goes on.
        for seconds in (8, 16, 64):
            limit = ("--time-limit", seconds)
            words = words_of(best_backend.device, *FEW[2:], "--full", *limit, "--output", path, planted="hangs")
            start = time.monotonic()
            status, out, errors = done(words, "hangs")
            assert (status, time.monotonic() - start < seconds + 52) == (4, True), errors
            assert "cells are left" in errors
            assert f"--output {path}" in errors
            assert " left" in out
            if read(path).verdicts:
                break
        assert 0 < len(read(path).verdicts) < 12

    def test_by_the_clock_before_the_first_cell_are_no_success(self, best_backend: gp.Backend, path: Path) -> None:
        status, _, errors = done(words_of(best_backend.device, *FEW, "--time-limit", 0.01, "--output", path))
        assert (status, "2 cells are left" in errors) == (4, True), errors
        assert read(path).verdicts == {}


def is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    task = Path(f"/proc/{pid}/task")
    found = [word for each in task.glob("*/children") for word in each.read_text().split()] if task.exists() else []
    return [int(word) for word in found]


class TestCommand:
    def test_says_what_came_of_it(self, best_backend: gp.Backend, tmp_path: Path) -> None:
        target = tmp_path / "record.json"
        status, out, errors = done(words_of(best_backend.device, *FEW, "--json", target))
        assert status == 0, errors
        assert "all verified" in out
        assert best_backend.device.name in out
        data = json.loads(target.read_text("utf-8"))
        assert (data["schema"], data["scope"], data["chosen"]["kernels"]) == (1, "quick", ["naive"])
        assert {cell["status"] for cell in data["cells"]} == {"verified"}

    @pytest.mark.parametrize(
        ("arguments", "status", "told"),
        [
            (["--kernel", "absent"], 2, "absent"), (["--dtype", "int7"], 2, "int7"), (["--ops", "XX"], 2, "XX"),
            (["--shape", "round"], 2, "round"), (["--cell", "naive"], 2, "KERNEL/TYPES"), (["--shard", "3/2"], 2, "3/2"),
            (["--import", "no_such_module"], 2, "no_such_module'; PYTHONPATH must have its folder"),
            (["--import", ""], 2, "--import ''"), (["--time-limit", "nan"], 2, "above 0"),
            (["--output", "/no/such/folder/x"], 2, "--output"), (["--html", "/no/such/folder/x"], 2, "--html"),
            (["--device", "no such device"], 3, "no such device"),
        ],
    )  # fmt: skip
    @pytest.mark.processes
    def test_refuses_what_it_does_not_know(
        self, best_backend: gp.Backend, arguments: list[str], status: int, told: str
    ) -> None:
        found, _, errors = done(["matrix", "--backend", best_backend.device.backend, *arguments])
        assert (found, told in errors) == (status, True), errors

    @pytest.mark.processes
    def test_does_not_go_on_with_another_matrix(self, best_backend: gp.Backend, path: Path) -> None:
        judged(best_backend.device, path, *FEW)
        status, _, errors = done(words_of(best_backend.device, *FEW, "--full", "--output", path))
        assert status == 2
        assert "name another file" in errors

    @pytest.mark.processes
    def test_shards_merge_into_the_whole(self, best_backend: gp.Backend, tmp_path: Path) -> None:
        device, narrow = best_backend.device, ("--kernel", "naive", "--shape", "odd", "--shape", "tiny", "--full")
        files = [tmp_path / f"{number}.jsonl" for number in (1, 2)]
        narrow = (*narrow, "--dtype", "float32", "--dtype", "int8")
        for number, file in enumerate(files, 1):
            assert judged(device, file, *narrow, "--shard", f"{number}/2")
        whole = {verdict.cell for verdict in judged(device, tmp_path / "whole.jsonl", *narrow)}
        merged = tmp_path / "merged.jsonl"
        status, out, errors = done(["matrix", "merge", *map(str, files), "--output", str(merged)])
        assert status == 0, errors
        assert {verdict.cell for verdict in read(merged).verdicts.values()} == whole
        assert "all verified" in out
        assert done(["matrix", "report", str(merged)])[1] == out
        files[0].write_text("no record\n", encoding="utf-8")
        assert done(["matrix", "merge", *map(str, files)])[0] == 2

    @pytest.mark.processes
    def test_reports_failures_with_the_status_of_the_run(self, best_backend: gp.Backend, path: Path) -> None:
        judged(best_backend.device, path, *FEW[2:], planted="skips the last row", status=1)
        status, out, _ = done(["matrix", "report", str(path)])
        assert status == 1
        for verdict in read(path).verdicts.values():
            assert (verdict.command in out) == verdict.failed


class TestDevices:
    def test_have_names_of_their_own(self) -> None:
        found = [*DEVICES.values(), DEVICES["CPU under PoCL"]]
        names = identities(found)
        assert len(set(names)) == len(names)
        assert names[-1] == names[found.index(found[-1])] + "/2"
        assert all(c.isalnum() or c in "/._-" for name in names for c in name)

    def test_are_said_in_commands_so_that_no_other_is_meant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in campaign.DECISIVE:
            monkeypatch.delenv(name, raising=False)
        old = DEVICES["CPU under PoCL"]
        new = replace(old, platform_version="7.0", index=(3, 0))
        assert "--device pocl" in command_for(old, [old])
        assert "--device 'pocl 7.0'" in command_for(new, [old, new])
        twin = replace(new, index=(3, 1))
        assert "--device 3:1" in command_for(twin, [old, new, twin])
        monkeypatch.setenv("RUSTICL_ENABLE", "llvmpipe")
        assert command_for(old, [old], ("mine",), "a/b").startswith("RUSTICL_ENABLE=llvmpipe gemmport matrix")
        assert command_for(old, [old], ("mine",), "a/b").endswith("--import mine --cell a/b")

    def test_are_not_said_to_need_what_gemmport_sets_itself(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        device = DEVICES["CPU under PoCL"]
        monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
        assert f"OCL_ICD_VENDORS={tmp_path}" in command_for(device, [device])
        (tmp_path / OWN_ICD).touch()
        assert "OCL_ICD_VENDORS" not in command_for(device, [device])

    @needs(OCLGRIND)
    def test_that_are_simulated_tell_what_no_result_shows(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:  # fmt: skip
        faults = iter([["race"], []])
        monkeypatch.setattr(simulator, "faults", lambda log, since: (next(faults), since))
        journal = Journal(Header("0", "cells", (1, 1), "", {}), path)
        asked = [Cell.parse(f"naive/float32/NN/{shape}/a1b0") for shape in ("tiny", "odd")]
        work = lanes(simulator.devices(), lambda _: asked, journal)
        run(work, journal, Options())
        journal.close()
        found = [(verdict.status, verdict.reason) for verdict in journal.record.verdicts.values()]
        assert found == [("wrong", "race"), ("verified", "")]


class TestTurns:
    def test_alone_is_alone_and_not_kept_waiting(self) -> None:
        turns, inside, most, alone = Turns(), [0], [0], [0]
        lock = threading.Lock()

        def share() -> None:
            for _ in range(200):
                with turns.shared():
                    with lock:
                        inside[0] += 1
                        most[0] = max(most[0], inside[0])
                    time.sleep(0.0005)
                    with lock:
                        inside[0] -= 1

        def take() -> None:
            for _ in range(20):
                with turns.alone():
                    assert inside[0] == 0
                    time.sleep(0.001)
                    assert inside[0] == 0
                alone[0] += 1

        threads = [threading.Thread(target=work) for work in (share, share, take, take)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert alone[0] == 40
        assert most[0] == 2


@pytest.mark.processes
def test_a_merged_record_has_the_devices_of_all(best_backend: gp.Backend, path: Path) -> None:
    judged(best_backend.device, path, *FEW)
    one = read(path)
    (tested,) = one.devices.values()
    other = Record(one.header, {"other": replace(tested, id="other")})
    assert set(merge([one, other]).devices) == {tested.id, "other"}


def test_a_lane_knows_how_far_it_is() -> None:
    lane = Lane(DEVICES["CPU under PoCL"], "id", "command", 3, [Cell.parse("naive/int8/NN/odd/a1b0")])
    assert (lane.done, lane.rate, lane.failed) == (2, None, 0)
    lane.counts.update(["crash", "verified"])
    assert lane.failed == 1
