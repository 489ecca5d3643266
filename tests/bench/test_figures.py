"""Figures that README.md and docs/ quote: each belongs to what is launched today, or to a commit that the reader is told."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmport import kernels
from gemmport.bench.pass_jobs import Reduction, Transposition
from gemmport.bench.passes import PassResult
from gemmport.bench.products import GUARD_ELEMENTS, Asked, Result
from gemmport.checking.verification import guarded
from gemmport.core.dtypes import as_dtype
from gemmport.core.plan import Plan
from gemmport.core.problem import GemmProblem
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan
from gemmport.runtime import sources
from made_up_devices import DEVICES
from tiers import Tier, tier_of

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import figures

CPU, GPU = DEVICES["CPU under PoCL"], DEVICES["NVIDIA sm_90 under CUDA"]
TABLE = "\n| size | GFLOPS | × NumPy |\n|--:|--:|--:|\n| 64 | 25 | 0.28 |\n"
COMMAND = "gemmport run --device pocl --size 64 --format json"


@pytest.mark.parametrize("page", figures.pages(), ids=lambda page: page.name)
def test_figures_are_todays_or_say_to_which_commit_they_belong(page: Path) -> None:
    found = list(figures.faults(page, judge=lambda file: ()))
    assert not found, "\n".join(["", *found])


@pytest.mark.sample(file=[file for file in figures.current_files() if "float64" not in file.stem])
@pytest.mark.parametrize("file", figures.current_files(), ids=lambda file: file.stem)
def test_results_that_pages_quote_are_of_what_is_launched_today(file: Path, request: pytest.FixtureRequest) -> None:
    """make test takes each kernel once, in float32: a kernel's results have one source."""
    found = list(figures.stale(file, each_kernel_once=tier_of(request.config) is Tier.TEST))
    assert not found, "\n".join(["", *found])


# Results, as the commands write them


def planned(kernel: str = "auto", **parameters: int) -> Plan:
    problem = GemmProblem.create(64, 48, 32, dtype="float32", trans_b="T", alpha=2.0)
    problem = figures.replace(problem, d=guarded(problem, GUARD_ELEMENTS))
    return make_plan(problem, CPU, load_configuration(()), kernel=kernel, params=parameters)


def of_run(kernel: str = "auto", **parameters: int) -> dict[str, Any]:
    plan = planned(kernel, **parameters)
    return Result(plan.problem, CPU, plan.variant, "ok", plan=plan, asked=Asked(kernel, parameters)).to_dict()


def of_passes() -> list[dict[str, Any]]:
    found = []
    for name, job in (
        ("transpose", Transposition(64, 32, as_dtype("float32"))),
        ("reduce", Reduction(1000, as_dtype("int8"))),
    ):
        rung = kernels.ladders()[name][0]
        launches = tuple(job.steps(rung, CPU).launches)
        found.append({"step": rung.name, **PassResult(job, rung, CPU, "ok", launched=launches).to_dict()})
    return found


def document(*results: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What a command writes, through JSON."""
    devices = {device.label: {**device.to_dict(), "runtime": {"driver": "1"}} for device in (GPU, CPU)}
    whole = {"schema": 1, "command": COMMAND, "environment": {"devices": devices}, **more, "results": list(results)}
    return dict(json.loads(json.dumps(whole)))


@pytest.fixture
def repository(tmp_path: Path) -> Callable[..., list[str]]:
    """The faults of a page in a repository whose one file of results is this document."""

    def faults(text: str, content: dict[str, Any]) -> list[str]:
        (tmp_path / "docs").mkdir(exist_ok=True)
        (tmp_path / "results.json").write_text(json.dumps(content))
        page = tmp_path / "docs" / "page.md"
        page.write_text(text)
        return list(figures.faults(page, tmp_path))

    return faults


CURRENT = f"# Speed\n\nFast:\n\n<!-- figures: results.json -->\n{TABLE}"


@pytest.mark.parametrize(
    "result",
    [of_run(), of_run("tiled", TS=4), {**of_run(), "status": "unsupported", "launches": []}],
    ids=["auto", "asked", "nothing was measured"],
)
def test_results_of_today_are_no_fault(repository: Callable[..., list[str]], result: dict[str, Any]) -> None:
    assert repository(CURRENT, document(result)) == []


def test_passes_of_today_are_no_fault(repository: Callable[..., list[str]]) -> None:
    for result, ladder in zip(of_passes(), ("transpose", "reduce"), strict=True):
        assert repository(CURRENT, document(result, ladder=ladder)) == []


def test_one_result_of_each_kernel_stands_for_the_others(tmp_path: Path) -> None:
    planted = of_run("tiled", TS=4)
    planted["launches"][0]["digest"] = "0" * 16
    file = tmp_path / "results.json"
    file.write_text(json.dumps(document(of_run("naive"), of_run("naive"), planted, planted)))
    assert len(list(figures.stale(file))) == 2
    assert len(list(figures.stale(file, each_kernel_once=True))) == 1


def test_another_digest_is_told_with_page_file_result_and_command(repository: Callable[..., list[str]]) -> None:
    result = of_run("tiled")
    result["launches"][0]["digest"] = "0" * 16
    (fault,) = repository(CURRENT, document(of_run("naive"), result))
    for words in ("docs/page.md:5", "results.json", "tiled 64×48×32 float32", "tiled 0000000000000000", COMMAND):
        assert words in fault


@pytest.mark.parametrize(
    ("file", "old", "stale"),
    [
        ("opencl/pack.cl", "get_group_id(0)", True),
        ("opencl/naive.cl", "get_local_id(0)", False),
        ("cuda/pack.cu", "blockIdx.x", False),
    ],
)
def test_a_token_in_a_source_makes_the_figures_of_its_kernel_stale(
    repository: Callable[..., list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    old: str,
    stale: bool,
) -> None:
    then = document(of_run("packed"))
    copy = tmp_path / "kernels"
    shutil.copytree(Path(kernels.__path__[0]), copy, ignore=shutil.ignore_patterns("__pycache__"))
    text = (copy / file).read_text("utf-8")
    assert old in text
    (copy / file).write_text(text.replace(old, f"({old} + 0)"), "utf-8")
    monkeypatch.setattr(sources, "_shipped", lambda: copy)
    assert bool(repository(CURRENT, then)) is stale


def test_a_comment_and_a_renamed_file_make_no_figure_stale(
    repository: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    then = document(of_run("packed"))
    copy = tmp_path / "elsewhere"
    shutil.copytree(Path(kernels.__path__[0]), copy, ignore=shutil.ignore_patterns("__pycache__"))
    source = copy / "opencl" / "pack.cl"
    source.with_name("pack.c").write_text(f"// moved\n{source.read_text('utf-8')}", "utf-8")
    source.unlink()
    monkeypatch.setattr(sources, "_shipped", lambda: copy)
    assert repository(CURRENT, then) == []


def test_the_call_path_of_calls_counts(repository: Callable[..., list[str]]) -> None:
    plan = planned()
    asked = {"kernel": "auto", "parameters": {}, "problem": plan.problem.to_dict()}
    call = {
        "device": CPU.label, "m": 64, "n": 48, "k": 32, "dtype": "float32", "asked": asked,
        "launches": of_run()["launches"], "call_path": figures.call_path_digest("opencl"),
    }  # fmt: skip
    assert repository(CURRENT, document(call)) == []
    (fault,) = repository(CURRENT, document({**call, "call_path": "0" * 16}))
    assert "the code that a call runs through is not today's" in fault


def test_results_without_digests_or_of_a_device_that_is_not_described_are_no_figures_of_today(
    repository: Callable[..., list[str]],
) -> None:
    result = of_run()
    without = {name: value for name, value in result.items() if name != "launches"}
    assert "has no digests" in repository(CURRENT, document(without))[0]
    assert "cannot be planned" in repository(CURRENT, document({**result, "device": "another"}))[0]
    assert "holds no result;" in repository(CURRENT, document())[0]
    assert "holds no results with digests" in repository(CURRENT, {"trials": []})[0]


# Pages


def test_a_table_of_figures_needs_a_comment_in_its_section(repository: Callable[..., list[str]]) -> None:
    marked = f"# Speed\n\nAt abcdef1:\n\n<!-- figures at abcdef1: results.json -->\n{TABLE}"
    assert repository(marked, document()) == []
    (fault,) = repository(f"{marked}\n## More\n{TABLE}", document())
    assert "docs/page.md:13: a table of figures must stand behind a comment" in fault
    (fault,) = repository(f"# Speed\n{TABLE}\nAt abcdef1:\n<!-- figures at abcdef1: results.json -->\n", document())
    assert "docs/page.md:3:" in fault


@pytest.mark.parametrize(
    "text",
    [
        "| step | reads |\n|---|---|\n| `naive` | 2 |\n| `tiled` | TS |\n",
        f"```\n{TABLE}```\n",
        f"<!-- no figures: exit statuses -->\n{TABLE}",
    ],
    ids=["two numbers", "in code", "said to hold none"],
)
def test_other_tables_need_none(repository: Callable[..., list[str]], text: str) -> None:
    assert repository(f"# Page\n\n{text}", document()) == []


def test_a_commit_is_told_to_the_reader(repository: Callable[..., list[str]]) -> None:
    hidden = f"# Speed\n\nFast:\n\n<!-- figures at abcdef1 1234567: results.json -->\n{TABLE}"
    first, second = repository(hidden, document())
    assert "docs/page.md:5: the text of the section must name commit abcdef1" in first
    assert "must name commit 1234567" in second
    (fault,) = repository(hidden.replace("Fast", "At abcdef1"), document())
    assert "must name commit 1234567" in fault
    assert (
        "7 or more hexadecimal digits; got 'lately'" in repository(hidden.replace("abcdef1", "lately"), document())[0]
    )


def test_a_comment_names_files_that_are_there(repository: Callable[..., list[str]]) -> None:
    text = f"# Speed\n\nAt abcdef1:\n\n<!-- figures at abcdef1: FILES -->\n{TABLE}"
    assert "gone.json must be a file of results" in repository(text.replace("FILES", "gone.json"), document())[0]
    assert repository(text.replace("FILES", ""), document()) == []  # computed at that commit
    assert "must name the results; got no file" in repository(f"<!-- figures: -->\n{TABLE}", document())[0]
    assert repository(text.replace("FILES", "res*.json"), document()) == []


def test_the_command_tells_what_is_stale(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    result = of_run()
    result["launches"][0]["digest"] = "0" * 16
    for content, status in ((document(of_run()), 0), (document(result), 1)):
        file = tmp_path / "results.json"
        file.write_text(json.dumps(content))
        with pytest.raises(SystemExit) as ended:
            figures.main([str(file)])
        assert ended.value.code == status
    assert f"measure it anew: {COMMAND}" in capsys.readouterr().out


def test_complex_scalars_are_read_back() -> None:
    problem = GemmProblem.create(8, 8, 8, dtype="complex64", alpha=1 + 2j)
    problem = figures.replace(problem, d=guarded(problem, GUARD_ELEMENTS))
    plan = make_plan(problem, CPU, load_configuration(()))
    told = Result(problem, CPU, plan.variant, "ok", plan=plan).to_dict()
    assert figures._problem(json.loads(json.dumps(told))) == problem
    assert np.isfinite(told["alpha"]).all()
