"""The pass that scales sums: every element by the scales of its row and its column, wherever all of them lie, and no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gemmport as gp
from gemmport.backends import _nvrtc
from gemmport.contracts.scales import ScaleLayout
from gemmport.core.problem import GemmProblem, Layout
from gemmport.kernels import rescale
from gemmport.runtime.sources import assemble, languages
from mutations import OF_RESCALE, Mutation, planted
from on_device import rescaled
from test_cuda_compile import is_cubin

LAYOUTS: dict[str, dict[str, Any]] = {
    "short rows": {"m": 61, "n": 7, "batch": 2},
    "long rows": {"m": 5, "n": 67, "batch": 3},
    "rows of several groups": {"m": 2, "n": 2100},
    "gaps": {"m": 13, "n": 70, "batch": 2, "c": Layout(75, 1003, 3), "d": Layout(72, 950, 5)},
    "side by side": {"m": 9, "n": 11, "batch": 2, "d": Layout(30, 13)},
    "one element": {"m": 1, "n": 1},
    "a column": {"m": 500, "n": 1},
    "a row": {"m": 1, "n": 500},
}

OUTPUTS = ("float32", "float16", "bfloat16")
SCALED = ("rows, columns", "rows", "columns")


def problem_of(lies: str, output: str, beta: float) -> GemmProblem:
    return GemmProblem.create(k=0, dtype="float8_e4m3fn", output=output, alpha=-2, beta=beta, **LAYOUTS[lies])


def check_rescaled(backend: gp.Backend, lies: str, output: str, scaled: str, beta: float) -> None:
    got, wanted = rescaled(backend, problem_of(lies, output, beta), scaled)
    wrong = np.flatnonzero(got.view(f"u{got.itemsize}") != wanted.view(f"u{got.itemsize}"))
    assert wrong.size == 0, f"{wrong.size} elements of D's memory are wrong, the first at {wrong[0]}"


def check_all(backend: gp.Backend) -> None:
    for lies in ("short rows", "long rows"):
        check_rescaled(backend, lies, "float32", "rows, columns", 3.0)


@pytest.mark.every_pair("lies", LAYOUTS)
@pytest.mark.every_pair("output", OUTPUTS)
@pytest.mark.every_pair("scaled", SCALED)
@pytest.mark.every_pair("beta", [0.0, 3.0])
def test_elements_are_scaled_wherever_they_lie(
    backend: gp.Backend, lies: str, output: str, scaled: str, beta: float
) -> None:
    check_rescaled(backend, lies, output, scaled, beta)


def test_c_is_scaled_once_in_place(backend: gp.Backend) -> None:
    got, wanted = rescaled(backend, problem_of("short rows", "float16", -1), "rows, columns", in_place=True)
    np.testing.assert_array_equal(got.view(np.uint16), wanted.view(np.uint16))


@pytest.mark.planted_fault
@pytest.mark.best_of_each_backend
@pytest.mark.every_value("fault", OF_RESCALE)
def test_a_broken_pass_is_noticed(backend: gp.Backend, fault: Mutation) -> None:
    with planted(fault, "rescale"), pytest.raises(AssertionError, match="elements of D's memory are wrong"):
        check_all(backend)


@pytest.mark.best_of_each_backend
def test_the_unbroken_pass_passes(backend: gp.Backend) -> None:
    check_all(backend)


@pytest.mark.parametrize("fault", OF_RESCALE, ids=lambda fault: fault.name.replace(" ", "-"))
def test_faults_are_planted_in_both_languages(fault: Mutation) -> None:
    lying = ScaleLayout(0, 1, 9)
    kernel = rescale.PASS.launch(problem_of("gaps", "float16", 1), (lying, lying), 256).kernel
    shipped = {language: assemble(kernel, language) for language in languages()}
    with planted(fault, "rescale"):
        broken = {language: assemble(kernel, language) for language in languages()}
    assert all(broken[language] != text for language, text in shipped.items())
    if _nvrtc.nvrtc() is not None:
        assert is_cubin(_nvrtc.compile_cuda(broken["cuda"], "sm_90"))


def test_a_launch_has_as_few_groups_as_rows_and_lengths_need() -> None:
    for m, n, groups in ((1000, 7, 7), (10, 1024, 10), (10, 1025, 20), (3, 64, 3)):
        launch = rescale.PASS.launch(GemmProblem.create(m, n, 0), (None, None), 256)
        assert launch.groups == (groups, 1, 1)
        assert launch.work_group == (256, 1, 1)
