"""The soak: what must not happen in hours of products and injected errors is noticed when it does."""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
from click.testing import CliRunner

import gemmport as gp
from gemmport.cli.fuzz import fuzz
from gemmport.core.errors import CompileError, DeviceMemoryError, GemmportError, LaunchError
from gemmport.execution.selection import share_backend
from gemmport.fuzz.faulty import FaultyBackend, Operation, faulty
from gemmport.fuzz.soak import LEAST_SAMPLES, Product, Sample, Soak, SoakOptions, SoakReport, Way, growth, run_soak
from test_fuzz import run_command

ERRORS: dict[Operation, type[GemmportError]] = {
    "allocation": DeviceMemoryError, "compilation": CompileError, "launch": LaunchError, "copy": LaunchError,
}  # fmt: skip


@pytest.fixture
def failing(best_backend: gp.Backend) -> Iterator[FaultyBackend]:
    """The best device once more, as the one that `get_backend` gives."""
    opened = faulty(best_backend.device)
    share_backend(opened)
    yield opened
    share_backend(best_backend)
    opened.close()


def made(rss: Sequence[float] = (), handles: Sequence[int] = (), threads: Sequence[int] = ()) -> list[Sample]:
    count = max(map(len, (rss, handles, threads)))
    usual: list[tuple[Sequence[float], float]] = [(rss, 4e8), (handles, 9), (threads, 8)]
    columns = [[*values] or [other] * count for values, other in usual]
    return [Sample(float(i), i, *(int(column[i]) for column in columns)) for i in range(count)]


class TestGrowth:
    def test_of_what_stays_the_same_or_is_given_back_is_none(self) -> None:
        filling_up = [1e8 + 4e8 * min(i / 20, 1) + (i % 7) * 2**20 for i in range(100)]
        compiling = [8] * 50 + 5 * [8, *([13] * 9)]
        for samples in (
            made(rss=filling_up),
            made(handles=[9, 11] * 50),
            made(threads=[8] * 99),
            made(threads=compiling),
        ):
            assert not any(each.grows for each in growth(samples).values())

    @pytest.mark.parametrize(
        "leak",
        [
            {"rss": [4e8 + i * 2**20 for i in range(100)]}, {"handles": [9 + i // 8 for i in range(100)]},
            {"threads": [8 + i // 8 for i in range(100)]},
        ],
        ids=lambda leak: next(iter(leak)),
    )  # fmt: skip
    def test_of_a_leak_is_told(self, leak: dict[str, Any]) -> None:
        (name,) = leak
        found = {key for key, each in growth(made(**leak)).items() if each.grows}
        assert found == {"rss_bytes" if name == "rss" else name}

    def test_of_too_few_samples_is_not_told(self) -> None:
        assert growth(made(rss=[1, 2, 3])) == {}

    @pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux tells these numbers")
    def test_samples_are_those_of_this_process(self, tmp_path: Path) -> None:
        before = Sample.now(0.0, 0)
        held = np.ones(2**23)  # 64 MiB
        end = threading.Event()
        thread = threading.Thread(target=end.wait)
        thread.start()
        with (tmp_path / "one").open("w"), (tmp_path / "two").open("w"):
            after = Sample.now(1.0, 0)
        end.set()
        thread.join()
        assert after.rss_bytes - before.rss_bytes > 0.9 * held.nbytes
        assert (after.handles - before.handles, after.threads - before.threads) == (2, 1)


class TestInjectedErrors:
    @pytest.mark.parametrize("operation", get_args(Operation))
    def test_are_ours_and_leave_the_next_product_right(self, failing: FaultyBackend, operation: Operation) -> None:
        product = Product.draw(np.random.default_rng(1), "float32")
        # A product of device arrays that was computed before is bound, and compiles nothing.
        way: Way = "named kernel" if operation == "compilation" else "device arrays"
        for before in range(1 if operation in ("compilation", "launch") else 2):
            failing.forget()
            failing.release_workspaces()  # or they are given back for what found no memory, which it then finds
            failing.faults.arm(operation, before)
            with pytest.raises(ERRORS[operation], match="injected"):
                product.compute(way, failing, [])
            assert failing.faults.disarm()
            assert np.array_equal(product.compute(way, failing, []), product.expected)

    def test_strike_the_thread_that_asked_alone(self, failing: FaultyBackend) -> None:
        failing.faults.arm("launch")
        product, results = Product.draw(np.random.default_rng(1), "float32"), []
        other = threading.Thread(target=lambda: results.append(product.compute("device arrays", failing, [])))
        other.start()
        other.join()
        assert np.array_equal(results[0], product.expected)
        assert not failing.faults.disarm()


class TestFaults:
    """Each plants one into what is soaked until it was noticed, which takes a moment."""

    def soaked(self, failing: FaultyBackend) -> Counter[str]:
        report = Soak(failing, SoakOptions(20, threads=2)).run()
        assert not report.passed
        assert report.to_dict()["passed"] is False
        return Counter(fault.kind for fault in report.faults)

    @pytest.fixture(autouse=True)
    def one_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Few programs, which are compiled in no time."""
        monkeypatch.setattr("gemmport.fuzz.soak._PRODUCTS", 1)
        monkeypatch.setattr("gemmport.fuzz.soak._STRIKES", 0.9)
        monkeypatch.setattr("gemmport.fuzz.soak.MOST_FAULTS", 1)
        ways: tuple[Way, ...] = ("named kernel",)
        monkeypatch.setattr("gemmport.fuzz.soak.get_args", lambda of: ways if of is Way else get_args(of))

    def test_an_exception_that_is_not_ours_is_noticed(
        self, failing: FaultyBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def strike(self: Any, operation: str) -> None:
            if self.faults.due(operation):
                raise self.runtime_error("injected")

        monkeypatch.setattr(type(failing), "_strike", strike)
        assert set(self.soaked(failing)) == {"foreign"}

    def test_a_wrong_product_after_an_error_is_noticed(
        self, failing: FaultyBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compute, spoiled = Product.compute, threading.local()

        def once_more_wrong(product: Product, *arguments: Any) -> Any:
            try:
                result = compute(product, *arguments)
            except GemmportError:
                spoiled.next = True
                raise
            if getattr(spoiled, "next", False):
                spoiled.next = False
                result = result + 1
            return result

        monkeypatch.setattr(Product, "compute", once_more_wrong)
        assert set(self.soaked(failing)) == {"wrong"}

    def test_an_error_of_ours_that_nobody_injected_is_noticed(
        self, failing: FaultyBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compute = Product.compute
        numbers = iter(range(10**9))

        def seldom_refused(product: Product, *arguments: Any) -> Any:
            if next(numbers) % 10 == 9:
                failing.faults.disarm()
                raise LaunchError("refused")
            return compute(product, *arguments)

        monkeypatch.setattr(Product, "compute", seldom_refused)
        assert "error" in self.soaked(failing)

    def test_a_warning_is_noticed(self, failing: FaultyBackend, monkeypatch: pytest.MonkeyPatch) -> None:
        """PyCUDA's way to say that it lost what it could not destroy in this thread."""
        compute = Product.compute

        def lost(product: Product, *arguments: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                warnings.warn("module in out-of-thread context could not be cleaned up", stacklevel=1)
            return compute(product, *arguments)

        monkeypatch.setattr(Product, "compute", lost)
        showed = warnings.showwarning
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            assert set(self.soaked(failing)) == {"warning"}
        assert warnings.showwarning is showed

    @pytest.mark.planted_fault
    @pytest.mark.sample(leak=["handles"])
    @pytest.mark.parametrize("leak", ["rss_bytes", "handles", "threads"])
    def test_a_leak_is_noticed(self, failing: FaultyBackend, leak: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of so much between one sample and the next, however long that takes."""
        # What other tests left in this process would take a second to be looked through for each sample.
        monkeypatch.setattr("gemmport.fuzz.soak.gc", SimpleNamespace(collect=lambda: 0))
        monkeypatch.setattr("gemmport.fuzz.soak._C", SimpleNamespace())
        end, held, kept = threading.Event(), ExitStack(), []
        soak = Soak(failing, SoakOptions(20, threads=2))

        def lose(report: SoakReport) -> None:
            if len(report.samples) == LEAST_SAMPLES:
                soak.stopped.set()
            if leak == "rss_bytes":
                kept.append(np.ones(6 * 2**20))  # more than other tests of this process may give back meanwhile
                return
            for _number in range(8):
                if leak == "handles":
                    held.callback(os.close, os.dup(0))
                else:
                    thread = threading.Thread(target=end.wait)
                    thread.start()
                    held.callback(thread.join)

        with held:
            report = soak.run(lose)
            end.set()
        assert not report.faults
        assert report.growth, f"{len(report.samples)} samples are too few"
        assert {name for name, each in report.growth.items() if each.grows} == {leak}
        assert not report.passed


def test_a_soak_that_computed_nothing_has_not_passed(best_backend: gp.Backend) -> None:
    report = SoakReport(best_backend.device, seed=0)
    assert not report.passed
    report.ways["device arrays"] += 1
    assert report.passed


@pytest.mark.processes
def test_a_soak_of_every_device_is_right_and_nothing_grows(backend: gp.Backend) -> None:
    report = run_soak(backend.device, SoakOptions(3))
    assert not report.faults, report.faults[0]
    assert set(report.ways) == set(get_args(Way))
    assert set(report.raised) == set(get_args(Operation))
    assert not report.growth["handles"].grows
    assert not report.growth["threads"].grows
    assert len(report.samples) >= LEAST_SAMPLES


@pytest.mark.processes
def test_the_command_reports_and_exits_with_its_verdict(best_backend: gp.Backend, tmp_path: Path) -> None:
    device = best_backend.device
    where = ("fuzz", "--backend", device.backend, "--device", device.selector)
    done = run_command([*where, "--minutes", "0.05", "--format", "json"])
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["passed"] else 1), done.stderr
    assert report["faults"] == []
    assert report["products"] > 0
    assert {"seconds", "products", "rss_bytes", "handles", "threads"} == set(report["samples"][0])
    assert {"rss_bytes", "handles", "threads"} == set(report["growth"])


def test_a_soak_and_a_campaign_are_not_asked_for_at_once() -> None:
    done = CliRunner().invoke(fuzz, ["--minutes", "1", "--problems", "3"])
    assert done.exit_code == 2
    assert "--minutes" in done.output
