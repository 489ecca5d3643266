"""A backend of another package: it has what is abstract, and nothing else; what it lacks is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import gemmport as gp
from gemmport import backends, kernels
from gemmport.backends.objects import Call, Discovery, Event, Memory, Program
from gemmport.core.errors import ArrayError, BackendUnavailableError, CompileError, LaunchError, UnsupportedError
from gemmport.core.plan import Launch
from gemmport.execution.selection import backend_status, devices
from gemmport.planning.lookup import Configuration
from gemmport.planning.planner import make_plan

SHIPPED_LANGUAGE = "opencl"


class Stranger(gp.Backend):
    """Memory of the host's; its compiler takes anything, and its launches are counted."""

    name: ClassVar[str] = "stranger"
    launched = 0

    @classmethod
    def discover(cls) -> Discovery:
        return Discovery((DEVICE,))

    def _allocate(self, nbytes: int) -> Memory:
        native = np.zeros(nbytes, np.uint8)
        return Memory(native, native.ctypes.data, nbytes)

    def _upload(self, memory: Memory, data: np.ndarray, offset: int, queue: Any) -> None:
        memory.native[offset : offset + data.nbytes] = data.reshape(-1).view(np.uint8)

    def _download(self, memory: Memory, out: np.ndarray, offset: int, queue: Any) -> None:
        out.reshape(-1).view(np.uint8)[...] = memory.native[offset : offset + out.nbytes]

    def _copy(self, source: Memory, target: Memory, nbytes: int, queue: Any) -> None:
        target.native[:nbytes] = source.native[:nbytes]

    def compiler(self) -> str:
        return "none 1"

    def compile(self, source: str) -> Program:
        return Program(None, b"", source)

    def prepare(
        self,
        program: Program,
        function: str,
        groups: tuple[int, int, int],
        work_group: tuple[int, int, int],
        arguments: Sequence[Memory | np.generic],
        *,
        dynamic_local_bytes: int = 0,
    ) -> Call:
        return Call(program, function, None, groups, work_group)

    def set_memory(self, call: Call, places: Sequence[tuple[int, int]], memory: Sequence[Memory]) -> None:
        pass

    def launch(self, call: Call, *, queue: Any = None, wait_for: Sequence[Event] = ()) -> None:
        self.launched += 1

    def synchronize(self) -> None:
        pass

    def _close(self) -> None:
        pass


DEVICE = gp.DeviceInfo(
    backend=Stranger.name, name="a loom", platform="jacquard", type="cpu", sources=SHIPPED_LANGUAGE,
    clock_mhz=10**6, vector_width=64,
)  # fmt: skip
"""By its own account the fastest CPU of all."""


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stranger]:
    """Registered, and open."""
    monkeypatch.setattr(backends, "_registered", {})
    gp.register_backend(Stranger)
    with Stranger(DEVICE) as opened:
        yield opened
    backend_status.cache_clear()


def test_needs_few_methods() -> None:
    assert len(gp.Backend.__abstractmethods__) == 12  # as docs/adding-a-backend.md says


def test_is_found_like_any_other_and_ranks_behind_the_runtimes_that_are_known(stranger: Stranger) -> None:
    assert "stranger" in backends.names()
    assert devices("stranger") == [DEVICE]
    found = devices()
    assert found[-1] == DEVICE
    assert found[0].backend != "stranger" or found == [DEVICE]


def test_goes_before_a_shipped_one_of_its_name(stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stranger, "name", "opencl")
    gp.register_backend(Stranger)
    assert backends.load("opencl") is Stranger


def test_arrays_come_and_go(stranger: Stranger) -> None:
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    array = stranger.asarray(host)
    assert np.array_equal(array.get(), host)
    assert np.array_equal(array[:, 1:].get(), host[:, 1:])
    assert not stranger.zeros((5, 7), np.int32).get().any()


def test_products_are_planned_from_the_sources_that_it_names(stranger: Stranger) -> None:
    a, b = stranger.asarray(np.ones((3, 5), np.float32)), stranger.asarray(np.ones((5, 4), np.float32))
    gp.gemm(a, b)
    assert stranger.launched
    sources = {program.source for program in stranger._programs.known.values()}
    assert sources
    assert all("__kernel" in source for source in sources)


def test_times_are_the_host_s(stranger: Stranger) -> None:
    first = stranger.record()
    stranger.wait([first])
    assert stranger.elapsed(first, stranger.record()) >= 0


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (lambda device: device.load(b"", ""), CompileError),
        (lambda device: device.wrap(object(), (1,), np.float32), ArrayError),
        (lambda device: device.share(device.allocate(1), None), ArrayError),
        (lambda device: device.queue_handle, LaunchError),
        (lambda device: device.wait([Event(object())]), LaunchError),
        (lambda device: device.elapsed(Event(object()), Event(object())), LaunchError),
    ],
    ids=["load", "wrap", "share", "queue_handle", "wait", "elapsed"],
)
def test_what_it_lacks_is_refused_by_name(
    stranger: Stranger, refused: Callable[[gp.Backend], object], error: type[Exception]
) -> None:
    with pytest.raises(error, match="backend stranger"):
        refused(stranger)


def test_a_queue_of_the_caller_s_is_refused_where_there_is_one_alone(stranger: Stranger) -> None:
    assert stranger.new_queue() is None
    assert stranger.as_queue(None) is None
    with pytest.raises(LaunchError, match=r"queue must be None: .* has one queue alone"):
        gp.gemm(stranger.asarray(np.ones((2, 2))), stranger.asarray(np.ones((2, 2))), queue=object())


def test_a_backend_whose_driver_is_not_there_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str) -> None:
        raise ImportError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(backends.importlib, "import_module", refused)
    with pytest.raises(
        BackendUnavailableError, match=r"backend cuda does not start: libcuda.so.1: .*; install the driver"
    ):
        backends.load("cuda")


class TestKernelsWithoutASource:
    """Of a language: it is the kernel's folder that says which it has."""

    @pytest.fixture
    def in_cuda_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> kernels.KernelVariant:
        (tmp_path / "cuda").mkdir()
        (tmp_path / "cuda" / "naive.cu").write_text("")
        naive = kernels.variant("naive")

        class Alone(type(naive)):  # type: ignore[misc]
            name = "alone"
            folder = str(tmp_path)

            def source(self, *arguments: Any, **named: Any) -> Any:
                return super().source(*arguments, **{**named, "stem": "naive"})

        monkeypatch.setattr(kernels, "_FAMILY", {"alone": Alone(), **kernels.family()})
        return kernels.variant("alone")

    def test_are_refused_where_they_are_named(self, in_cuda_alone: kernels.KernelVariant) -> None:
        problem = gp.GemmProblem.create(3, 4, 5)
        with pytest.raises(UnsupportedError, match="naive must have a source in opencl"):
            make_plan(problem, DEVICE, Configuration(()), kernel="alone")
        cuda = gp.DeviceInfo(backend="cuda", name="any", platform="nvidia")
        assert make_plan(problem, cuda, Configuration(()), kernel="alone").variant == "alone"

    def test_are_passed_over_otherwise(self, in_cuda_alone: kernels.KernelVariant) -> None:
        plan = make_plan(gp.GemmProblem.create(3, 4, 5), DEVICE, Configuration(()))
        assert plan.variant != "alone"
        assert isinstance(plan.launches[0], Launch)
