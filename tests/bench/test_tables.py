"""benchmarks/tables.py: every table and plot of README.md and docs/ is what its files of results say."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from absences import MATPLOTLIB, skip_without

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import figures
import tables
from recipes import RECIPES, gpu, studies
from recipes.calls import calls_of
from recipes.cpu import aimed
from recipes.table import FOLDER, Files, Table, one, significant


@pytest.mark.parametrize("page", figures.pages(), ids=lambda page: page.name)
def test_a_page_has_the_tables_of_its_files(page: Path) -> None:
    found = list(tables.faults(page))
    assert not found, "\n".join(["", *found, "python benchmarks/tables.py writes them anew"])


@pytest.mark.parametrize("page", figures.pages(), ids=lambda page: page.name)
def test_an_empty_line_ends_a_table(page: Path) -> None:
    """Markdown takes a line right below for one more row."""
    text = page.read_text("utf-8")
    assert not re.findall(r"^\|.*\|\n(?![|\n]).+", text, re.MULTILINE)


def test_pictures_are_those_of_their_files() -> None:
    skip_without(MATPLOTLIB)
    assert list(tables.stale_plots()) == []


def test_a_picture_of_other_files_is_told(tmp_path: Path) -> None:
    skip_without(MATPLOTLIB)
    for name in tables.PLOTS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((figures.ROOT / name).read_text("utf-8"))
    for name in ("squares", "large-squares"):
        for folder in tables.CPUS:
            for dtype in ("float32", "float64"):
                other(tmp_path / FOLDER / folder / "run" / f"{name}-{dtype}.json")
    for name in ("h200/run/squares-float32", *(f"{folder}/calls/float32" for folder in tables.CPUS)):
        other(tmp_path / FOLDER / f"{name}.json")
    assert len(list(tables.stale_plots(tmp_path))) == 2


def other(copy: Path) -> None:
    """A file of results, of which the first says that it was slower."""
    document = json.loads((figures.ROOT / copy.relative_to(copy.parents[4])).read_text("utf-8"))
    first = document["results"][0]
    first["ratio"] = first["gflops"] = 0.125
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(json.dumps(document))


def test_every_recipe_is_that_of_a_table() -> None:
    text = "".join(page.read_text("utf-8") for page in figures.pages())
    assert {name for name in RECIPES if f"<!-- table: {name} -->" not in text} == set()


def test_tables_of_calls_are_those_of_either_schema(tmp_path: Path) -> None:
    numbers = {"out": {"host": 1e-6, "back_to_back": 2e-6, "awaited": 3e-6}, "new": {"host": 4e-6}}
    times = {kind: {way: {"median": x} for way, x in ways.items()} for kind, ways in numbers.items()}
    beside = {"seconds": {"out": {"awaited": {"median": 6e-6}}}, "ratios": {"out": {"awaited": 2.0}}}
    about = {"device": "here", "m": 64, "n": 64, "k": 64}
    results = [
        {**about, "arrays": "numpy", "seconds": times, "baselines": {"numpy.matmul": beside}},
        {**about, "arrays": "device", "seconds": times, "baselines": {}},
    ]
    file = tmp_path / FOLDER / "here" / "calls" / "a.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"schema": 3, "floors": {"here": {"median": 7e-6}}, "results": results}))
    (numpy,) = calls_of(Files(tmp_path), "here/calls/a.json")
    (device,) = calls_of(Files(tmp_path), "here/calls/a.json", "device")
    assert [numpy[x]["median"] for x in ("seconds", "numpy_seconds", "floor_seconds")] == [3e-6, 6e-6, 7e-6]
    assert numpy["ratio"] == 2.0
    assert [device["host_seconds"][kind]["median"] for kind in ("out", "new")] == [1e-6, 4e-6]


# A page of one table


def speeds(files: Files) -> Table:
    return Table(["size", "GFLOPS>"], [[str(r["m"]), f"{r['gflops']:.2f}"] for r in files.results("here/run/a.json")])


PAGE = """# Speed

At abcdef1:

<!-- figures at abcdef1: benchmarks/results/here/run/a.json -->
<!-- table: speeds -->

| size | GFLOPS |
|---|--:|
| 64 | 2.50 |
| 128 | 3.00 |
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    file = tmp_path / FOLDER / "here" / "run" / "a.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"results": [{"m": 64, "gflops": 2.5}, {"m": 128, "gflops": 3.0}]}))
    return tmp_path


def faults_of(root: Path, text: str) -> list[str]:
    page = root / "README.md"
    page.write_text(text)
    return list(tables.faults(page, root, {"speeds": speeds}))


def test_a_table_that_is_made_of_its_files_is_no_fault(root: Path) -> None:
    assert faults_of(root, PAGE) == []
    assert faults_of(root, PAGE.replace("a.json", "*.json")) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("2.50", "2.51", "-| 64 | 2.51 |"),
        ("| 128 | 3.00 |\n", "", "+| 128 | 3.00 |"),
        ("GFLOPS", "GB/s", "-| size | GB/s |"),
        ("run/a.json", "run/b.json", "must name benchmarks/results/here/run/a.json"),
        (
            "table: speeds",
            "table: haste",
            "README.md:8: the comment must name a recipe; got 'haste'; write one of speeds",
        ),
        (
            "benchmarks/results/here/run/a.json -->\n<!-- table: speeds",
            "-->\n<!-- what",
            "README.md:8: a table of figures",
        ),
        ("<!-- table: speeds -->\n", "", "README.md:7: a table of figures must have a recipe"),
        ("table: speeds", "table by hand: counted", "README.md:8: a table of figures must have a recipe"),
    ],
    ids=["a digit", "a row", "the head", "another file", "no such recipe", "computed", "no recipe", "by hand"],
)
def test_a_table_that_is_not_is_told(root: Path, old: str, new: str, fault: str) -> None:
    assert any(fault in line for line in faults_of(root, PAGE.replace(old, new)))


def test_a_file_that_changed_changes_the_table(root: Path) -> None:
    (root / FOLDER / "here" / "run" / "a.json").write_text(json.dumps({"results": [{"m": 64, "gflops": 2.25}]}))
    assert "+| 64 | 2.25 |" in faults_of(root, PAGE)
    made = tables.rebuilt(PAGE, Files(root), {"speeds": speeds})
    assert made == PAGE.replace("2.50", "2.25").replace("| 128 | 3.00 |\n", "")


def test_a_table_that_was_not_there_stays_apart_from_what_follows(tmp_path: Path) -> None:
    page = "<!-- table: speeds -->\n\nA text.\n"
    made = tables.rebuilt(page, Files(tmp_path), {"speeds": lambda _: Table(["size>"], [["1"]])})
    assert made == "<!-- table: speeds -->\n\n| size |\n|--:|\n| 1 |\n\nA text.\n"
    assert tables.rebuilt(made, Files(tmp_path), {"speeds": lambda _: Table(["size>"], [["1"]])}) == made


# What recipes compute


def test_a_row_needs_a_cell_for_each_column() -> None:
    with pytest.raises(ValueError, match="a row must have 2 cells; got 1"):
        Table(["size", "GFLOPS>"], [["64"]]).markdown()


def test_one_result_is_asked_for() -> None:
    results = [{"m": 64, "k": 1}, {"m": 64, "k": 2}]
    assert one(results, k=2) is results[1]
    for wanted in ({"m": 64}, {"m": 65}):
        with pytest.raises(LookupError, match="one result must have"):
            one(results, **wanted)


def test_digits_that_count() -> None:
    assert [significant(x) for x in (5.178, 30.14, 0.8531, 12.0, 1.5, 0.0290)] == [
        "5.18", "30.1", "0.853", "12", "1.5", "0.029"
    ]  # fmt: skip


def test_what_was_missed_is_marked_as_it_is_printed() -> None:
    assert aimed([1.04, 0.98], "1.00") == "1.04 / 0.98 ✗ (≥ 1.00)"
    assert aimed([9.97, 5.4], "10", digits=1) == "10.0 / 5.4 ✗ (≥ 10)"
    assert aimed([0.07, 0.12]) == "0.07 / 0.12"


def run_of(backend: str, gflops: float, cublas: float | None) -> dict[str, object]:
    ratio = None if cublas is None else gflops / cublas
    same = {
        "m": 8,
        "n": 8,
        "k": 8,
        "batch": 1,
        "dtype": "float32",
        "trans_a": "N",
        "trans_b": "N",
        "alpha": 1.0,
        "beta": 0.0,
    }
    baselines = {"cublas": {"gflops": cublas, "ratio": ratio}}
    return {**same, "label": "", "source": "", "backend": backend, "gflops": gflops, "baselines": baselines}


def test_opencl_stands_beside_cublas_under_cuda() -> None:
    results = [run_of("cuda", 30.0, 20.0), run_of("opencl", 10.0, None)]
    assert [gpu.beside_cublas(result, results) for result in results] == [1.5, 0.5]


def test_of_a_kernel_that_was_measured_again_the_last_counts() -> None:
    def result(cublas: float, *trials: tuple[dict[str, int], float]) -> dict[str, object]:
        each = [{"kernel": "batched", "set": own, "seconds": {"median": taken}} for own, taken in trials]
        return {"trials": each, "baselines": {"cublas": {"seconds": {"median": cublas}}}}

    first, second = result(80.0, ({}, 10.0), ({"PRODUCTS": 8}, 5.0)), result(90.0, ({"PRODUCTS": 8}, 5.0), ({}, 9.0))
    assert studies.beside_cublas([first], "batched") == 8.0
    assert studies.beside_cublas([first, second], "batched") == 10.0
    assert studies.beside_cublas([first], "simt") is None
