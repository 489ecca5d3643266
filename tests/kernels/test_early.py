"""Launches of `gemv` and `mma` that begin while the one before still runs (EARLY): they touch no memory before they waited.

`wgmma`'s are in test_wgmma.py; what a stream of such launches computes on a GPU, tests/execution/test_early_launches.py says.
"""

from __future__ import annotations

import re

import pytest

import gemmport as gp
from absences import CUDA_COMPILER, needs
from gemmport.backends import _nvrtc
from gemmport.contracts.kernel import Parameters
from gemmport.core.plan import Launch
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan
from gemmport.runtime.sources import assemble
from made_up_devices import DEVICES
from mutations import Edit, Mutation, planted

HOPPER = DEVICES["NVIDIA sm_90 under CUDA"]

CASES: dict[str, tuple[str, Parameters]] = {
    "gemv": ("gemv", {"SPLIT": 4}),
    "gemv by words": ("gemv", {"DOTS": 1}),
    "mma": ("mma", {"TSM": 16, "TSN": 32, "TSK": 64, "WM": 16, "WN": 16, "SHARE": 0}),
    "mma, shared": ("mma", {"TSM": 16, "TSN": 32, "TSK": 64, "WM": 16, "WN": 16, "SHARE": 1}),
}

MEMORY = r"(?:ld|st)\.global|cp\.async\.c[ag]"


def launches(case: str, early: int) -> list[Launch]:
    kernel, params = CASES[case]
    dtype, output = ("int8", "int32") if params.get("DOTS") else ("float16", None)
    problem = gp.GemmProblem.create(1, 96, 4096, dtype=dtype, output=output, trans_b="T", beta=1)
    plan = make_plan(problem, HOPPER, load_configuration(), kernel=kernel, params={**params, "EARLY": early})
    return list(plan.launches)


def hasty(launch: Launch) -> bool:
    """Whether a launch reads or writes memory before it waited, or never waits, by the text of its PTX."""
    ptx = _nvrtc._compile(assemble(launch.kernel, "cuda"), "sm_90", _nvrtc.CUDA_OPTIONS).ptx
    body = re.search(rf"\.entry {launch.kernel.function}\(.*?\n}}", ptx, re.DOTALL)
    assert body, launch.kernel.function
    assert "griddepcontrol.launch_dependents" in body[0]
    before, wait, _ = body[0].partition("griddepcontrol.wait")
    return not wait or re.search(MEMORY, before) is not None


@needs(CUDA_COMPILER)
@pytest.mark.parametrize("case", CASES)
def test_launches_that_begin_early_wait_before_they_touch_memory(case: str) -> None:
    found = launches(case, 1)
    assert len(found) == {"gemv": 2, "mma, shared": 2}.get(case, 1)
    assert not any(map(hasty, found))
    kernel = CASES[case][0]
    never = Mutation("never waits", (Edit(r"    AWAIT_BEFORE\(\)\n", "", times=2),), (kernel,))
    with planted(never, kernel):
        assert all(map(hasty, launches(case, 1)))


@needs(CUDA_COMPILER)
def test_a_wait_behind_a_read_is_told() -> None:
    early = Edit(r"(LET_NEXT\(\)\n)(    AWAIT_BEFORE\(\))", r"\1    if (part_sums[0] == 1) return;\n\2")
    with planted(Mutation("reads first", (early,), ("gemv",)), "gemv"):
        assert list(map(hasty, launches("gemv", 1))) == [False, True]


@pytest.mark.parametrize("kernel", ["gemv", "mma"])
def test_only_cuda_begins_launches_early(kernel: str) -> None:
    assert "#define EARLY" not in assemble(launches(kernel, 0)[0].kernel, "cuda")
    problem = gp.GemmProblem.create(1, 96, 4096, dtype="float16", trans_b="T")
    device = DEVICES["NVIDIA sm_90 under OpenCL"]
    with pytest.raises(gp.ParameterError, match="begin early under CUDA alone, from sm_90 on: EARLY must be 0"):
        make_plan(problem, device, load_configuration(), kernel=kernel, params={"EARLY": 1})
