"""What backends/base.py promises, held to on every device. Nothing here knows a backend, but for foreign arrays and queues."""

from __future__ import annotations

import gc
import itertools
import re
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from exact import integers
from gemmport.backends import _programs, base
from gemmport.backends.objects import Memory, Program
from gemmport.contracts.kernel import problem_defines
from gemmport.core.plan import KernelSource
from gemmport.core.quirks import quirk
from gemmport.runtime import cache
from gemmport.runtime.sources import assemble

pytestmark = pytest.mark.every_runtime

_salt = itertools.count()


def source_of_probe(backend: gp.Backend, salt: int | None = None) -> str:
    """The source of the small kernels; with a salt, one that no test has compiled before."""
    kind = "float64" if "float64" in backend.device.computes else "float32"
    defines = problem_defines(gp.GemmProblem.create(1, 1, 1, dtype=kind))
    if salt is not None:
        defines["SALT"] = salt
    folder = str(Path(__file__).parents[1] / "contract")
    return assemble(KernelSource("probe", "", tuple(defines.items()), folder), backend.language, backend.overrides)


@pytest.fixture
def probe(backend: gp.Backend) -> Program:
    return backend.program(source_of_probe(backend))


@pytest.fixture
def kept_backend(fresh_backend: gp.Backend) -> gp.Backend:
    """One whose programs are kept on disk."""
    if type(fresh_backend).load is base.Backend.load:
        pytest.skip(beyond(fresh_backend.device, "the backend loads no programs"))
    return fresh_backend


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own, also for a runtime that has one itself."""
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("POCL_KERNEL_CACHE", "0")
    return tmp_path


def upload(backend: gp.Backend, data: np.ndarray) -> Memory:
    memory = backend.allocate(data.nbytes)
    backend.upload(memory, data)
    return memory


def download(backend: gp.Backend, memory: Memory, dtype: Any, count: int) -> np.ndarray:
    out = np.empty(count, dtype)
    backend.download(memory, out)
    return out


def run(backend: gp.Backend, program: Program, function: str, *arguments: Any, groups: int = 1, items: int = 1) -> None:
    backend.launch(backend.prepare(program, function, (groups, 1, 1), (items, 1, 1), arguments))


def counts(backend: gp.Backend) -> tuple[int, int, int]:
    made = backend.program_counts
    return made.compiled, made.from_disk, made.from_memory


def works(backend: gp.Backend, program: Program) -> bool:
    memory = upload(backend, np.arange(4, dtype=np.int32))
    run(backend, program, "scale_add", memory, np.int32(3), np.int32(1), items=4)
    return download(backend, memory, np.int32, 4).tolist() == [1, 4, 7, 10]


class TestDevice:
    def test_tells_who_it_is(self, backend: gp.Backend) -> None:
        info = backend.device
        assert info.backend == backend.name
        assert info.name == info.name.strip() != ""
        assert info.platform == info.platform.lower() != ""
        assert info.platform_name
        assert info.platform_version[0].isdigit()
        assert info.driver
        assert info.vendor == info.vendor.lower()

    def test_tells_limits_that_can_be_true(self, backend: gp.Backend) -> None:
        info = backend.device
        assert info.compute_units >= 1
        assert 0 <= info.clock_mhz < 10_000
        assert 2**20 <= info.max_allocation <= info.memory
        assert 1 <= info.max_work_group <= np.prod(info.max_work_item_sizes, dtype=np.int64)
        assert info.max_groups >= 2**16
        assert 2**10 <= info.local_memory <= 2**24
        assert info.vector_width >= 1
        assert "float32" in info.computes
        assert (info.peak_gflops("float32") or 1) > 0

    def test_survives_as_plain_data(self, backend: gp.Backend) -> None:
        assert gp.DeviceInfo.from_dict(backend.device.to_dict()) == backend.device

    def test_is_found_again_by_its_selector(self, backend: gp.Backend) -> None:
        assert gp.get_backend(backend.name, device=backend.device.selector) is gp.get_backend(device=backend.device)

    def test_tells_versions_of_what_lies_below(self, backend: gp.Backend) -> None:
        environment = backend.environment()
        assert {"platform", "driver"} <= environment.keys()
        assert all(environment.values())

    def test_tells_where_on_pci_it_is(self, backend: gp.Backend) -> None:
        """NVIDIA's GPUs do, in both languages, and nvidia-smi knows the GPU by it."""
        place, tool = backend.bus_id(), shutil.which("nvidia-smi")
        if backend.device.vendor != "nvidia":
            assert place == ""
            return
        assert re.fullmatch(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", place)
        if tool is not None:
            command = [tool, f"--id={place}", "--query-gpu=name", "--format=csv,noheader"]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            assert told.strip()
            assert backend.device.name.startswith(told.strip())

    def test_gives_c_libraries_a_queue(self, backend: gp.Backend) -> None:
        try:
            handle = backend.queue_handle
        except gp.LaunchError as error:
            pytest.skip(beyond(backend.device, str(error)))
        assert handle != 0


class TestMemory:
    @pytest.mark.parametrize("offset", [0, 4, 12, 252])
    def test_upload_and_download_start_at_their_offsets(self, backend: gp.Backend, offset: int) -> None:
        data = np.arange(64, dtype=np.int32)
        memory = upload(backend, data)
        part = np.array([-1] if offset == 252 else [-1, -2], np.int32)
        backend.upload(memory, part, offset=offset)
        data[offset // 4 : offset // 4 + part.size] = part
        np.testing.assert_array_equal(download(backend, memory, np.int32, 64), data)
        rest = np.empty(64 - offset // 4, np.int32)
        backend.download(memory, rest, offset=offset)
        np.testing.assert_array_equal(rest, data[offset // 4 :])

    def test_the_host_array_may_be_reused_when_upload_returns(self, backend: gp.Backend, probe: Program) -> None:
        """Although the device is busy, so that a copy that is only enqueued would come too late."""
        data = np.arange(2**20, dtype=np.int32)
        memory = backend.allocate(data.nbytes)
        run(backend, probe, "spin", upload(backend, np.ones(1, np.uint32)), np.int32(60_000))
        backend.upload(memory, data)
        data[:] = -1
        np.testing.assert_array_equal(download(backend, memory, np.int32, data.size), np.arange(data.size))

    def test_copy_takes_the_first_bytes_and_no_more(self, backend: gp.Backend) -> None:
        source, target = upload(backend, np.arange(16, dtype=np.int32)), upload(backend, np.full(16, -1, np.int32))
        backend.copy(source, target, 20)
        assert download(backend, target, np.int32, 16).tolist() == [0, 1, 2, 3, 4, *[-1] * 11]

    @pytest.mark.parametrize("nbytes", [1, 3, 4, 1000])
    def test_fill_sets_every_byte_and_no_other(self, backend: gp.Backend, nbytes: int) -> None:
        other = upload(backend, np.full(64, 7, np.uint8))
        memory = backend.allocate(nbytes)
        for byte in (0x00, 0xA5):
            backend.fill(memory, byte)
            assert (download(backend, memory, np.uint8, nbytes) == byte).all()
        assert (download(backend, other, np.uint8, 64) == 7).all()

    def test_blocks_do_not_overlap(self, backend: gp.Backend) -> None:
        blocks = [upload(backend, np.full(33, number, np.int32)) for number in range(20)]
        for number, block in enumerate(blocks):
            assert (download(backend, block, np.int32, 33) == number).all()

    def test_a_request_for_nothing_can_be_passed_to_a_kernel(self, backend: gp.Backend, probe: Program) -> None:
        nothing = backend.allocate(0)
        assert nothing.nbytes == 1
        assert nothing.handle != 0
        backend.prepare(probe, "spin", (1, 1, 1), (1, 1, 1), [nothing, np.int32(0)])

    @pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 5)])
    def test_an_empty_array_goes_there_and_back(self, backend: gp.Backend, shape: tuple[int, ...]) -> None:
        array = backend.asarray(np.empty(shape, np.float32))
        assert array.get().shape == array.shape == shape
        assert array.size == 0

    def test_beyond_the_largest_allocation_names_both_numbers(self, backend: gp.Backend) -> None:
        wanted = backend.device.max_allocation + 1
        with pytest.raises(gp.DeviceMemoryError) as caught:
            backend.allocate(wanted)
        assert isinstance(caught.value, MemoryError)
        assert f"{wanted:,}" in str(caught.value)
        assert f"{backend.device.max_allocation:,}" in str(caught.value)

    def test_memory_of_the_host_for_copies_goes_there_and_back(self, backend: gp.Backend) -> None:
        sent, taken = backend.host_buffer(64), backend.host_buffer(64)
        assert sent.dtype == taken.dtype == np.uint8
        assert sent.shape == taken.shape == (64,)
        sent[:] = np.arange(64)
        taken[:] = 0
        with backend.allocate(64) as memory:
            backend.upload(memory, sent)
            backend.download(memory, taken)
        np.testing.assert_array_equal(taken, np.arange(64))
        assert backend.host_buffer(0).size == 0

    def test_a_part_of_a_memory_is_the_same_bytes(self, backend: gp.Backend) -> None:
        whole = upload(backend, np.arange(4096, dtype=np.int32))
        assert backend.part(whole, 0) is whole
        assert backend.part(whole, whole.nbytes) is None
        part = backend.part(whole, 4096)  # where each runtime lets a memory begin
        if part is None:
            pytest.skip(beyond(backend.device, "the backend gives no address within a memory"))
        assert (part.nbytes, part.alignment, part.access is whole.access) == (
            whole.nbytes - 4096,
            whole.alignment,
            True,
        )
        backend.fill(part, 0xFF)
        found = download(backend, whole, np.int32, 4096)
        np.testing.assert_array_equal(found, [*range(1024), *[-1] * 3072])
        assert backend.address(part) == (backend.address(whole)[0], backend.address(whole)[1] + 4096)

    def test_free_memory_is_some_of_it(self, backend: gp.Backend) -> None:
        assert 0 < backend.free_memory <= backend.device.memory

    def test_released_memory_is_gone_at_the_end_of_its_block(self, backend: gp.Backend) -> None:
        with backend.allocate(64) as memory:
            assert (memory.nbytes, memory.native is None) == (64, False)
        assert (memory.handle, memory.nbytes, memory.native) == (0, 0, None)

    def test_memory_is_released_once(self, fresh_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
        """When it is collected, or by `release`, whichever comes first."""
        released: list[object] = []
        release = type(fresh_backend)._release
        monkeypatch.setattr(
            type(fresh_backend), "_release", lambda *given: (released.append(given[1]), release(*given))
        )  # fmt: skip
        collected, told = fresh_backend.allocate(64), fresh_backend.allocate(64)
        accesses = [collected.access, told.access]
        del collected
        gc.collect()
        assert released == accesses[:1]
        told.release()
        told.release()
        del told
        gc.collect()
        assert released == accesses

    def test_memory_that_is_left_is_released_at_the_end_of_the_process(self, backend: gp.Backend) -> None:
        """While everything that takes is still there, and also of a backend that nobody knows any more."""
        code = f"""
import atexit, gc, importlib, sys
atexit.register(print, "exit")
import gemmport as gp
sys.path[:0] = {sys.path!r}
gp.register_backend(importlib.import_module({type(backend).__module__!r}).{type(backend).__qualname__})
known = gp.get_backend({backend.name!r}, {backend.device.selector!r})
opened = type(known)(known.device)  # which nobody else keeps
opened._release = lambda *given, release=opened._release: (release(*given), print("released", given[0].home))
left, opened.kept["memory"] = opened.allocate(64), opened.allocate(64)
del opened, known
gc.collect()
print("end")
"""
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert ran.stdout.split("\n")[:4] == ["end", "released None", "released None", "exit"]

    def test_release_does_not_disturb_work_already_enqueued(self, backend: gp.Backend, probe: Program) -> None:
        """The pool may hand the block out again at once: what was enqueued before must be done by then, in order."""
        source, target = upload(backend, np.arange(256, dtype=np.int32)), backend.allocate(1024)
        slow = upload(backend, np.ones(1, np.uint32))
        run(backend, probe, "spin", slow, np.int32(3_000))
        backend.copy(source, target, 1024)
        source.release()
        again = backend.allocate(1024)
        backend.fill(again, 0xFF)
        np.testing.assert_array_equal(download(backend, target, np.int32, 256), np.arange(256))


class TestPrograms:
    def test_come_from_memory_the_second_time(self, fresh_backend: gp.Backend, cache_folder: Path) -> None:
        source = source_of_probe(fresh_backend, next(_salt))
        first = fresh_backend.program(source)
        assert counts(fresh_backend) == (1, 0, 0)
        assert fresh_backend.program(source) is first
        assert counts(fresh_backend) == (1, 0, 1)
        assert works(fresh_backend, first)

    def test_are_forgotten_where_there_are_many_the_least_lately_used_first(
        self, fresh_backend: gp.Backend, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_programs, "MOST", 2)
        first, second, third = (source_of_probe(fresh_backend, next(_salt)) for _ in range(3))
        for source in (first, second, first, third):
            fresh_backend.program(source)
        assert counts(fresh_backend) == (3, 0, 1)
        fresh_backend.program(first)
        assert counts(fresh_backend) == (3, 0, 2)
        assert works(fresh_backend, fresh_backend.program(second))
        assert counts(fresh_backend)[2] == 2

    def test_come_from_disk_when_the_device_is_opened_again(self, kept_backend: gp.Backend, cache_folder: Path) -> None:
        source = source_of_probe(kept_backend, next(_salt))
        kept_backend.program(source)
        with reopened(kept_backend) as later:
            assert works(later, later.program(source))
            assert counts(later) == (0, 1, 0)

    def test_that_the_runtime_keeps_itself_are_not_stored_again(
        self, kept_backend: gp.Backend, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("POCL_KERNEL_CACHE")
        program = kept_backend.program(source_of_probe(kept_backend, next(_salt)))
        assert works(kept_backend, program)
        kept = kept_backend.device.platform == "pocl"
        assert (program.binary == b"") == kept
        assert len(entries(cache_folder)) == (0 if kept else 1)

    def test_of_two_sources_are_two(self, kept_backend: gp.Backend, cache_folder: Path) -> None:
        one, two = (kept_backend.program(source_of_probe(kept_backend, next(_salt))) for _ in range(2))
        assert one is not two
        assert counts(kept_backend) == (2, 0, 0)
        assert len(entries(cache_folder)) == 2

    @pytest.mark.parametrize(
        "damage",
        [
            pytest.param(lambda data: data[: len(data) // 2], id="cut-short"),
            pytest.param(lambda data: data[:-1] + bytes([data[-1] ^ 1]), id="one-bit-flipped"),
            pytest.param(lambda data: b"", id="emptied"),
            pytest.param(lambda data: b"something else", id="replaced"),
        ],
    )
    def test_damaged_on_disk_are_built_again_and_mended(
        self,
        kept_backend: gp.Backend,
        cache_folder: Path,
        damage: Callable[[bytes], bytes],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        source = source_of_probe(kept_backend, next(_salt))
        kept_backend.program(source)
        (entry,) = entries(cache_folder)
        whole = entry.read_bytes()
        entry.write_bytes(damage(whole))
        with reopened(kept_backend) as later:
            assert works(later, later.program(source))
            assert counts(later) == (1, 0, 0)
        assert "is damaged" in caplog.text  # found by us: a runtime may crash on it
        with reopened(kept_backend) as mended:
            mended.program(source)
            assert counts(mended) == (0, 1, 0)

    def test_that_the_runtime_refuses_are_built_again(
        self, kept_backend: gp.Backend, cache_folder: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        if (known := quirk("rusticl-unknown-binary")).applies_to(kept_backend.device):
            pytest.skip(beyond(kept_backend.device, known.symptom))
        source = source_of_probe(kept_backend, next(_salt))
        kept_backend.program(source)
        (entry,) = entries(cache_folder)
        cache.store_program(entry.name, b"intact on disk, but no program of this runtime")
        with reopened(kept_backend) as later:
            assert works(later, later.program(source))
            assert counts(later) == (1, 0, 0)
        assert "refuses a cached program" in caplog.text
        with reopened(kept_backend) as mended:
            mended.program(source)
            assert counts(mended) == (0, 1, 0)

    def test_that_others_may_have_forged_are_built_again(self, kept_backend: gp.Backend, cache_folder: Path) -> None:
        """The entry is a sound program with the right key and checksum, which multiplies by another factor."""
        honest = source_of_probe(kept_backend, next(_salt))
        forged = honest.replace("data[i] = data[i] * factor", "data[i] = 42 - data[i] * factor")
        keys: list[str] = []
        for source in (honest, forged):
            kept_backend.program(source)
            keys += [path.name for path in entries(cache_folder) if path.name not in keys]
        cache.store_program(keys[0], cache.load_program(keys[1]) or b"")
        with reopened(kept_backend) as deceived:
            assert not works(deceived, deceived.program(honest))
            assert counts(deceived) == (0, 1, 0)
        cache_folder.chmod(0o777)
        with reopened(kept_backend) as careful:
            assert works(careful, careful.program(honest))
            assert counts(careful) == (1, 0, 0)

    def test_that_another_version_reworked_are_reworked_again(
        self, kept_backend: gp.Backend, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = source_of_probe(kept_backend, next(_salt))
        kept_backend.program(source)
        with reopened(kept_backend) as later:
            monkeypatch.setattr(later, "_rework", lambda source: ("another version",))
            later.program(source)
            assert counts(later) == (0, 1, 0)  # what the compiler made is the same
        assert len(entries(cache_folder)) == 2

    def test_are_built_where_the_cache_cannot_be_written(
        self, fresh_backend: gp.Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("no folder")
        monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path / "file"))
        assert works(fresh_backend, fresh_backend.program(source_of_probe(fresh_backend, next(_salt))))

    def test_with_errors_are_refused_where_no_file_can_be_written(
        self, fresh_backend: gp.Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """PyOpenCL would write the source to one."""
        monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
        source = source_of_probe(fresh_backend, next(_salt)).replace("data[i] * factor", "not_declared_anywhere")
        with pytest.raises(gp.CompileError) as caught:
            fresh_backend.program(source)
        assert "not_declared_anywhere" in caught.value.log

    def test_with_errors_tell_the_numbered_lines(self, fresh_backend: gp.Backend, cache_folder: Path) -> None:
        lines = source_of_probe(fresh_backend, next(_salt)).splitlines()
        wrong = next(number for number, line in enumerate(lines) if "data[i] = data[i] * factor" in line)
        lines[wrong] = "    data[i] = not_declared_anywhere * factor;"
        source = "\n".join(lines)
        with pytest.raises(gp.CompileError) as caught:
            fresh_backend.program(source)
        error = caught.value
        assert f">{wrong + 1:5d} | {lines[wrong]}" in str(error)
        assert "not_declared_anywhere" in error.log
        assert error.source == source
        assert fresh_backend.device.label in str(error)
        assert entries(cache_folder) == []
        assert counts(fresh_backend) == (0, 0, 0)


def reopened(backend: gp.Backend) -> gp.Backend:
    return type(backend)(backend.device)


def entries(folder: Path) -> list[Path]:
    return [path for path in (folder / "programs").rglob("*") if path.is_file()]


class TestLaunches:
    def test_a_function_that_is_not_there_is_named(self, backend: gp.Backend, probe: Program) -> None:
        with pytest.raises(gp.LaunchError, match="no_such_kernel"):
            backend.prepare(probe, "no_such_kernel", (1, 1, 1), (1, 1, 1), [])

    def test_a_group_too_large_is_refused_with_its_size(self, backend: gp.Backend, probe: Program) -> None:
        most = backend.device.max_work_group
        memory = backend.allocate(4 * (most + 1))
        with pytest.raises(gp.LaunchError, match=str(most + 1)):
            backend.prepare(probe, "scale_add", (1, 1, 1), (most + 1, 1, 1), [memory, np.int32(1), np.int32(1)])

    def test_can_be_taken_apart_or_say_why_not(self, backend: gp.Backend, probe: Program) -> None:
        memory = upload(backend, np.zeros(8, np.int32))
        call = backend.prepare(probe, "scale_add", (2, 1, 1), (4, 1, 1), [memory, np.int32(1), np.int32(1)])
        found = backend.disassemble(call)
        assert found.listings
        for listing in found.listings:
            assert "scale_add" in listing.text or listing.note
        if any(listing.text for listing in found.listings):
            assert found.resources.max_work_items is not None
            assert found.resources.max_work_items >= 4

    def test_run_in_the_order_in_which_they_are_enqueued(self, backend: gp.Backend, probe: Program) -> None:
        memory = upload(backend, np.zeros(8, np.int32))
        steps = [(3, 1), (5, 2), (2, 7), (7, -3)] * 25
        calls = {
            step: backend.prepare(probe, "scale_add", (2, 1, 1), (4, 1, 1), [memory, *map(np.int32, step)])
            for step in set(steps)
        }
        for step in steps:
            backend.launch(calls[step])
        expected = 0
        for factor, summand in steps:
            expected = (expected * factor + summand) % 2**32
        assert (download(backend, memory, np.uint32, 8) == expected).all()

    def test_arguments_arrive_in_their_types(self, backend: gp.Backend, probe: Program) -> None:
        kind = np.float64 if "float64" in backend.device.computes else np.float32
        memory = backend.allocate(4 * np.dtype(kind).itemsize)
        run(backend, probe, "arguments", memory, np.int32(-5), np.int64(-(2**40)), np.float32(0.5), kind(-0.25))
        assert download(backend, memory, kind, 4).tolist() == [-5, -256, 0.5, -0.25]

    @pytest.mark.parametrize(
        ("groups", "items"), [((5, 1, 1), (8, 2, 2)), ((2, 3, 4), (4, 2, 1)), ((1, 1, 1), (1, 1, 1))]
    )
    def test_geometry_counts_groups_and_their_items(
        self, backend: gp.Backend, probe: Program, groups: tuple[int, int, int], items: tuple[int, int, int]
    ) -> None:
        in_group = int(np.prod(items))
        memory = upload(backend, np.full(int(np.prod(groups)) * in_group + 1, -1, np.int32))
        backend.launch(backend.prepare(probe, "geometry", groups, items, [memory]))
        expected = [g * 1000 + i for g in range(int(np.prod(groups))) for i in range(in_group)]
        assert download(backend, memory, np.int32, len(expected) + 1).tolist() == [*expected, -1]

    def test_local_memory_may_be_sized_at_launch(self, backend: gp.Backend, probe: Program) -> None:
        memory = upload(backend, np.arange(32, dtype=np.int32))
        backend.launch(backend.prepare(probe, "reverse", (2, 1, 1), (16, 1, 1), [memory], dynamic_local_bytes=64))
        assert download(backend, memory, np.int32, 32).tolist() == [*range(15, -1, -1), *range(31, 15, -1)]

    def test_a_call_may_be_launched_again(self, backend: gp.Backend, probe: Program) -> None:
        memory = upload(backend, np.ones(1, np.int32))
        call = backend.prepare(probe, "scale_add", (1, 1, 1), (1, 1, 1), [memory, np.int32(2), np.int32(0)])
        for _ in range(10):
            backend.launch(call)
        assert download(backend, memory, np.int32, 1).tolist() == [1024]

    def test_synchronize_waits(self, backend: gp.Backend, probe: Program) -> None:
        """What was enqueued is finished: another queue, which waits for nothing, sees it."""
        memory = upload(backend, np.array([1], np.int32))
        run(backend, probe, "spin", upload(backend, np.ones(1, np.uint32)), np.int32(30_000))
        run(backend, probe, "scale_add", memory, np.int32(0), np.int32(5))
        backend.synchronize()
        out = np.empty(1, np.int32)
        backend.download(memory, out, queue=second_queue(backend))
        assert out[0] == 5


class TestEvents:
    def test_elapsed_is_positive_and_grows_with_the_work(self, backend: gp.Backend, probe: Program) -> None:
        check_elapsed(backend, probe)

    def test_a_launch_waits_for_an_event_of_another_queue(self, backend: gp.Backend, probe: Program) -> None:
        check_order_of_queues(backend, probe)


def check_elapsed(backend: gp.Backend, probe: Program) -> None:
    """The time between two markers is that of what lies between: within what the host saw, and more for more work."""
    memory = upload(backend, np.ones(1, np.uint32))

    def seconds(steps: int, launches: int = 1) -> float:
        call = backend.prepare(probe, "spin", (1, 1, 1), (1, 1, 1), [memory, np.int32(steps)])
        backend.launch(call)  # the first launch may compile
        begun = time.perf_counter()
        start = backend.record()
        for _ in range(launches):
            backend.launch(call)
        elapsed = backend.elapsed(start, backend.record())
        assert 0 < elapsed < time.perf_counter() - begun
        return elapsed

    # Where the machine is busy, a launch takes longer than its work.
    short = min(seconds(500) for _ in range(3))
    assert any(seconds(60_000, launches) > 2 * short for launches in (1, 10, 100))


def check_order_of_queues(backend: gp.Backend, probe: Program) -> None:
    """A launch that is given an event of another queue comes after it."""
    other = second_queue(backend)
    busy = upload(backend, np.ones(1, np.uint32))
    data = upload(backend, np.array([1], np.int32))
    spin = backend.prepare(probe, "spin", (1, 1, 1), (1, 1, 1), [busy, np.int32(50_000)])
    set_to_two = backend.prepare(probe, "scale_add", (1, 1, 1), (1, 1, 1), [data, np.int32(0), np.int32(2)])
    double = backend.prepare(probe, "scale_add", (1, 1, 1), (1, 1, 1), [data, np.int32(10), np.int32(1)])
    for call in (spin, set_to_two, double):  # the first launch may compile
        backend.launch(call)
    backend.synchronize()
    for _ in range(3):
        backend.upload(data, np.array([1], np.int32))
        backend.launch(spin, queue=other)
        backend.launch(set_to_two, queue=other)
        backend.launch(double, wait_for=[backend.record(queue=other)])
        assert download(backend, data, np.int32, 1).tolist() == [21]


def second_queue(backend: gp.Backend) -> Any:
    """A native queue beside the backend's own."""
    queue = backend.new_queue()
    return pytest.skip(beyond(backend.device, "it has one queue alone")) if queue is None else queue


VIEWS = [
    (slice(2, 7),),
    (slice(None, None, 2), slice(1, None, 3)),
    (slice(None, None, -1),),
    (slice(7, 2, -2), slice(None, None, -1)),
    (3,),
    (-1, slice(2, 5)),
    (slice(None), 4),
    (slice(5, 5),),
    (Ellipsis, slice(0, 3)),
]


class TestArrays:
    @pytest.mark.parametrize("key", VIEWS, ids=str)
    def test_views_are_those_of_numpy(self, backend: gp.Backend, key: Any) -> None:
        host = np.arange(90, dtype=np.float32).reshape(9, 10)
        array = backend.asarray(host)
        np.testing.assert_array_equal(array[key].get(), host[key])
        np.testing.assert_array_equal(array.T[key].get(), host.T[key])
        np.testing.assert_array_equal(array[1:, 2:][key].get(), host[1:, 2:][key])
        assert array[key].memory is array.memory

    @pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4)])
    def test_t_reverses_the_dimensions(self, backend: gp.Backend, shape: tuple[int, ...]) -> None:
        host = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
        np.testing.assert_array_equal(backend.asarray(host).T.get(), host.T)

    @pytest.mark.parametrize(
        "host",
        [
            np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4)),
            np.arange(24, dtype=np.int16)[::-2],
            np.broadcast_to(np.arange(3, dtype=np.int32), (4, 3)),
            np.arange(5, dtype=np.complex64),
        ],
        ids=["column-major", "negative-step", "broadcast", "complex"],
    )
    def test_any_host_array_goes_there_and_back(self, backend: gp.Backend, host: np.ndarray) -> None:
        array = backend.asarray(host)
        assert (array.shape, array.dtype) == (host.shape, host.dtype)
        np.testing.assert_array_equal(array.get(), host)

    def test_get_is_a_copy(self, backend: gp.Backend) -> None:
        array = backend.asarray(np.arange(6))
        array.get()[:] = 0
        array[::2].get()[:] = 0
        assert array.get().tolist() == [0, 1, 2, 3, 4, 5]

    @pytest.mark.parametrize("key", [(9,), (0, 10), ([1, 2],), (0, 0, 0), ("x",), (True,), (0, True)], ids=str)
    def test_an_index_that_makes_no_view_is_refused(self, backend: gp.Backend, key: Any) -> None:
        with pytest.raises(IndexError):
            backend.asarray(np.zeros((9, 10), np.float32))[key]

    def test_what_is_no_array_of_numbers_is_refused(self, backend: gp.Backend) -> None:
        with pytest.raises(gp.ArrayError, match="object"):
            backend.asarray(object())
        for make in (backend.empty, backend.zeros):
            with pytest.raises(gp.DtypeError, match="elements must be numbers; got object"):
                make((2, 2), object)
            with pytest.raises(gp.DtypeError, match="dtype must be one of NumPy's; got nothing"):
                make((2, 2), "nothing")

    def test_numpy_reads_a_copy_or_is_refused(self, backend: gp.Backend) -> None:
        """It would read a sequence of sequences without elements, whose sum is 0."""
        array = backend.asarray(np.ones((3, 4), np.float32))
        np.testing.assert_array_equal(np.asarray(array), np.ones((3, 4), np.float32))
        with pytest.raises(gp.UnsupportedError, match=r"numpy.sum must .*copy it with get\(\)"):
            np.sum(array)

    def test_is_iterated_by_views(self, backend: gp.Backend) -> None:
        host = np.arange(12).reshape(3, 4)
        assert [row.get().tolist() for row in backend.asarray(host)] == host.tolist()

    def test_lists_of_unlike_lengths_are_refused(self, backend: gp.Backend) -> None:
        for take in (backend.asarray, backend.zeros((2, 2), np.float32).set):
            with pytest.raises(gp.ShapeError, match="or a list of arrays of one shape"):
                take([[1], [2, 3]])

    def test_what_was_released_is_refused(self, backend: gp.Backend) -> None:
        array = backend.asarray(np.ones((3, 3), np.float32))
        view, other = array[1:], backend.asarray(np.ones((3, 3), np.float32))
        array.release()
        array.release()
        for use in (
            array.get, view.get, lambda: array.set(0), lambda: gp.gemm(array, other), lambda: gp.matmul(other, array),
            lambda: gp.gemm(other, other, out=array), lambda: gp.gemm([other, array], other),
        ):  # fmt: skip
            with pytest.raises(gp.ArrayError, match="must not be used after it was released"):
                use()

    def test_an_array_of_this_device_is_taken_as_it_is(self, backend: gp.Backend) -> None:
        array = backend.asarray(np.zeros(3))
        assert backend.asarray(array) is array

    def test_an_array_of_another_device_is_refused(self, backend: gp.Backend, fresh_backend: gp.Backend) -> None:
        array = fresh_backend.asarray(np.zeros((3, 3), np.float32))
        with pytest.raises(gp.ArrayError, match="got one of another"):
            backend.asarray(array)
        with pytest.raises(gp.ArrayError, match="another context"):
            gp.gemm(backend.asarray(np.zeros((3, 3), np.float32)), array)


class TestForeignArrays:
    def test_are_read_in_place(self, backend: gp.Backend) -> None:
        host = integers((6, 8), np.float32)
        foreign, handle = foreign_array(backend, host)
        array = backend.asarray(foreign)
        assert array.memory.handle == handle
        assert (array.shape, array.dtype) == (host.shape, host.dtype)
        np.testing.assert_array_equal(array.get(), host)

    @pytest.mark.parametrize("key", [(slice(2, 5),), (slice(1, None, 2), slice(3, 7)), (slice(None), 2)], ids=str)
    def test_keep_their_strides_and_offset(self, backend: gp.Backend, key: Any) -> None:
        host = integers((6, 8), np.float32)
        foreign, _ = foreign_array(backend, host, key)
        np.testing.assert_array_equal(backend.asarray(foreign).get(), host[key])

    def test_stay_alive_while_they_are_used(self, backend: gp.Backend) -> None:
        host = integers((64, 64), np.float32)
        array = backend.asarray(foreign_array(backend, host)[0])
        gc.collect()
        others = [backend.asarray(np.full((64, 64), 9, np.float32)) for _ in range(4)]
        np.testing.assert_array_equal(array.get(), host)
        assert all(other.memory.handle != array.memory.handle for other in others)

    def test_go_into_a_product(self, backend: gp.Backend) -> None:
        a, b = integers((6, 8), np.float32), integers((8, 5), np.float32)
        product = gp.gemm(backend.asarray(foreign_array(backend, a)[0]), backend.asarray(foreign_array(backend, b)[0]))
        np.testing.assert_array_equal(product.get(), a @ b)

    def test_of_another_context_are_refused(self, backend: gp.Backend, fresh_backend: gp.Backend) -> None:
        if backend.name != "opencl":
            pytest.skip(beyond(backend.device, "its backend has one context, which all libraries share"))
        foreign, _ = foreign_array(fresh_backend, np.zeros(4, np.float32))
        with pytest.raises(gp.ArrayError, match="another context"):
            backend.asarray(foreign)


class _WithInterface:
    """Another library's array, as CUDA's libraries show them to each other."""

    def __init__(self, owner: gp.DeviceArray) -> None:
        size = owner.dtype.itemsize
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": owner.shape,
            "typestr": owner.dtype.str,
            "data": (owner.memory.handle + owner.offset * size, False),
            "strides": tuple(step * size for step in owner.strides),
            "version": 3,
        }


def foreign_array(backend: gp.Backend, host: np.ndarray, key: Any = ()) -> tuple[Any, int]:
    """An array of another library in this device's memory, sliced, and the handle of its memory."""
    if backend.name == "opencl":
        import pyopencl.array  # noqa: PLC0415 - only where the backend is there

        whole = pyopencl.array.to_device(backend.queue, host)
        return whole[key] if key else whole, whole.base_data.int_ptr
    if backend.name == "cuda":
        owner = backend.asarray(host)
        return _WithInterface(owner[key] if key else owner), owner.memory.handle
    return pytest.skip(beyond(backend.device, "which libraries share its memory is not told here"))


class TestThreads:
    THREADS = 8

    def together(self, work: Callable[[int], Any]) -> Sequence[Any]:
        barrier = threading.Barrier(self.THREADS)

        def one(number: int) -> Any:
            barrier.wait()
            return work(number)

        with ThreadPoolExecutor(self.THREADS) as pool:
            return list(pool.map(one, range(self.THREADS)))

    def test_compile_one_program_once(self, fresh_backend: gp.Backend, cache_folder: Path) -> None:
        source = source_of_probe(fresh_backend, next(_salt))
        programs = self.together(lambda _: fresh_backend.program(source))
        assert all(program is programs[0] for program in programs)
        assert counts(fresh_backend) == (1, 0, self.THREADS - 1)

    def test_gemm_at_once_and_are_right(self, fresh_backend: gp.Backend, cache_folder: Path) -> None:
        def products(number: int) -> list[bool]:
            right = []
            for round_ in range(6):
                m, n, k = 20 + number, 30 + round_, 10 + number * round_
                rng = np.random.default_rng([number, round_])
                a, b = integers((m, k), np.float32, rng), integers((k, n), np.float32, rng)
                d = gp.gemm(fresh_backend.asarray(a), fresh_backend.asarray(b), alpha=2.0, kernel="naive")
                right.append(np.array_equal(d.get(), 2 * (a @ b)))
            return right

        assert self.together(products) == [[True] * 6] * self.THREADS

    def test_lose_nothing_that_they_drop_last(self, fresh_backend: gp.Backend, cache_folder: Path) -> None:
        """PyCUDA warns where it cannot destroy a module or an event, and never gives back what that holds."""

        def work() -> None:
            for _ in range(2):  # what the first leaves goes when the second is made
                works(fresh_backend, fresh_backend.compile(source_of_probe(fresh_backend, next(_salt))))
                fresh_backend.record()

        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            gc.collect()
        assert not [str(each.message) for each in told if "could not be cleaned up" in str(each.message)]


class TestClosing:
    def test_a_closed_device_can_be_opened_again(self, backend: gp.Backend, cache_folder: Path) -> None:
        a = integers((20, 20), np.float32)
        for _ in range(3):
            with type(backend)(backend.device) as opened:
                array = opened.asarray(a)
                np.testing.assert_array_equal(gp.gemm(array, array).get(), a @ a)

    def test_arrays_may_outlive_their_device(self, backend: gp.Backend) -> None:
        with type(backend)(backend.device) as opened:
            array = opened.asarray(np.zeros((4, 4), np.float32))
        del opened, array
        gc.collect()
        assert works(backend, backend.program(source_of_probe(backend)))

    def test_closing_leaves_other_users_of_the_device_alone(self, backend: gp.Backend) -> None:
        array = backend.asarray(np.arange(5))
        type(backend)(backend.device).close()
        assert array.get().tolist() == [0, 1, 2, 3, 4]
        assert works(backend, backend.program(source_of_probe(backend)))
