"""What a plan costs that no cache has: each kernel is ranked once, in a bounded number of steps."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytest

from gemmport import kernels
from gemmport.core.problem import GemmProblem
from gemmport.planning.explanation import explain
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan
from made_up_devices import DEVICES

HOPPER = DEVICES["NVIDIA sm_90 under CUDA"]


def test_an_explanation_ranks_each_kernel_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of halves, which `wgmma` leaves to `mma` where that is expected to be faster."""
    ranked: Counter[str] = Counter()

    def counts(kind: type) -> None:
        own = kind.considered  # type: ignore[attr-defined]

        def considered(self: Any, *args: Any) -> Any:
            ranked[self.name] += 1
            return own(self, *args)

        monkeypatch.setattr(kind, "considered", considered)

    for name in ("wgmma", "mma", "gemv", "batched"):
        counts(type(kernels.variant(name)))
    explain(GemmProblem.create(512, 512, 512, dtype="float16"), HOPPER, load_configuration())
    assert set(ranked) >= {"wgmma", "mma"}
    assert set(ranked.values()) == {1}


@pytest.mark.parametrize(
    ("dtype", "size", "most"), [("float32", 4096, 9_000), ("float16", 4096, 8_000), ("float16", 4095, 12_000)]
)
def test_a_plan_takes_a_bounded_number_of_calls(dtype: str, size: int, most: int) -> None:
    """Of functions of Python: they are counted, as times depend on the machine."""
    problem, configuration = GemmProblem.create(size, size, size, dtype=dtype), load_configuration()
    make_plan(problem, HOPPER, configuration)  # reads what is shipped, and makes the device's model
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    problem = GemmProblem.create(size, size, size, dtype=dtype)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        make_plan(problem, HOPPER, configuration)
    finally:
        sys.setprofile(before)
    assert 0 < calls <= most, calls
