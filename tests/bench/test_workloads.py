"""The suite of published workloads: large enough, of named sources, in reach of one GPU, and planned throughout."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import gemmport as gp
from gemmport.cli.shapes import read_shapes
from gemmport.core.problem import GemmProblem
from made_up_devices import DEVICES

ROOT = Path(__file__).parents[2]
WORKLOADS = read_shapes(ROOT / "benchmarks" / "shapes" / "workloads.csv", GemmProblem.create)
PAGE = (ROOT / "docs" / "shapes.md").read_text(encoding="utf-8")


def test_there_are_at_least_sixty_with_labels_that_differ_and_problems_that_differ():
    assert len(WORKLOADS) >= 60
    assert len({workload.label for workload in WORKLOADS} - {""}) == len(WORKLOADS)
    assert len({workload.problem for workload in WORKLOADS}) == len(WORKLOADS)


def test_the_page_names_every_source_and_says_how_many_problems_it_gives():
    counts = Counter(workload.source for workload in WORKLOADS)
    told = {name: int(count) for name, count in re.findall(r"^\| ([^|]+?) \| ([0-9]+) \|", PAGE, re.MULTILINE)}
    assert told == counts
    assert f"{len(WORKLOADS)} products" in PAGE


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.label)
def test_each_takes_a_moment_and_fits_into_memory(workload):
    problem = workload.problem
    assert problem.flops <= 3e12
    assert all(problem.span(operand) * 4 <= 2e9 for operand in ("a", "b", "d"))


@pytest.mark.parametrize("device", ["NVIDIA sm_90 under CUDA", "NVIDIA sm_90 under OpenCL", "CPU under PoCL"])
def test_each_has_a_plan(device):
    for workload in WORKLOADS:
        assert gp.plan(workload.problem, DEVICES[device]).launches


def test_products_of_deepbench_are_those_of_its_columns_with_operands_exchanged():
    found = [workload for workload in WORKLOADS if workload.source == "DeepBench"]
    for workload in found:
        m, n, k, ops = re.fullmatch(r"DeepBench \w+ (\d+)×(\d+)×(\d+) ([NT]{2})", workload.label).groups()
        problem = workload.problem
        assert (problem.n, problem.m, problem.k) == (int(m), int(n), int(k))
        assert problem.trans_b + problem.trans_a == ops
