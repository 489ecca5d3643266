"""`sub_group_mma`: exact where a CPU does what the instructions do; chosen where a device was found right, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

import emulated
import gemmport as gp
from exact import Sizes, check, problem_of
from gemmport import kernels
from gemmport.contracts.kernel import Form, Parameters
from gemmport.contracts.matrix_instructions import FAMILIES, MatrixInstruction, instruction_of
from gemmport.contracts.named_devices import device_of
from gemmport.core.dtypes import DTYPES
from gemmport.diagnose.forms import fault
from gemmport.kernels.sub_group_mma import _turn_terms
from gemmport.planning import verdicts
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan
from mutations import OF_SUB_GROUP_MMA, Mutation, planted

SUB_GROUP_MMA = kernels.variant("sub_group_mma")


def tiles(own: MatrixInstruction, dtype: str) -> Parameters:
    depth = max(64 // DTYPES[dtype].itemsize, _turn_terms(own))
    return {"TSM": 32, "TSN": 32, "TSK": depth, "WM": 16, "WN": 16, "LANES": own.lanes, "RASTER": 3}


@pytest.mark.sample(family=["gfx11"], dtype=["float16"], ops=["TN"])
@pytest.mark.every_pair("family", list(FAMILIES))
@pytest.mark.every_pair("dtype", ["float16", "bfloat16", "int8", "uint8"])
@pytest.mark.every_pair("ops", ["NN", "NT", "TN", "TT"])
def test_products_are_exact_where_a_cpu_does_what_the_instruction_does(
    tmp_path: Path, family: str, dtype: str, ops: str
) -> None:
    """With edges, and rows that are aligned and not; without terms; a narrow result."""
    if dtype not in FAMILIES[family]:
        assert not FAMILIES[family].keys() - {"float16", "bfloat16", "int8"}
        return
    backend, params = emulated.opened(family, tmp_path), tiles(FAMILIES[family][dtype], dtype)
    wide = "float32" if DTYPES[dtype].kind == "real" else "int32"
    for sizes, multiple, output in (
        (Sizes(37, 45, 75), 1, wide),
        (Sizes(64, 32, 128), 16, wide),
        (Sizes(1, 70, 17), 16, dtype),
        (Sizes(5, 3, 0), 1, wide),
    ):
        problem = problem_of(sizes, ops, dtype, batch=2, alpha=2.0, beta=-1.0, multiple=multiple, output=output)
        check(backend, problem, "sub_group_mma", params)


@pytest.mark.parametrize("mutation", OF_SUB_GROUP_MMA, ids=lambda mutation: mutation.name.replace(" ", "-"))
@pytest.mark.planted_fault
@pytest.mark.sample(mutation=[])
def test_faults_of_the_kernel_show(tmp_path: Path, mutation: Mutation) -> None:
    backend, own = emulated.opened("gfx11", tmp_path), FAMILIES["gfx11"]["float16"]
    problem = problem_of(Sizes(64, 64, 72), mutation.ops, "float16", multiple=16)
    with planted(mutation, "sub_group_mma"), pytest.raises(AssertionError, match=r"elements are wrong|written"):
        check(backend, problem, "sub_group_mma", {**tiles(own, "float16"), "TSM": 64, "WM": 32})


def test_each_sum_and_each_number_is_in_its_place() -> None:
    """All of A, of B and of the sums, each as often as there are copies of it."""
    for own in (each for family in FAMILIES.values() for each in family.values()):
        in_word = 4 // own.element_bytes
        lanes = range(own.lanes)
        a = [own.place_of_a(lane, x) for lane in lanes for x in range(own.words_of_a * in_word)]
        b = [own.place_of_b(lane, x) for lane in lanes for x in range(own.words_of_b * in_word)]
        sums = [own.place_of_sum(lane, x) for lane in lanes for x in range(own.sums)]
        assert set(a) == {(row, term) for row in range(own.rows) for term in range(own.terms)}
        assert set(b) == {(term, column) for term in range(own.terms) for column in range(own.columns)}
        assert len(a) % len(set(a)) == len(b) % len(set(b)) == 0
        assert sorted(sums) == [(row, column) for row in range(own.rows) for column in range(own.columns)]


# Of AMD's Matrix Instruction Calculator (2ef9189): of lane 17, the numbers of A in its registers, and rows of D.
TOLD = {
    ("gfx11", "float16"): ([(1, k) for k in range(16)], [1, 3, 5, 7, 9, 11, 13, 15]),
    ("gfx12", "float16"): ([(1, k) for k in (4, 5, 6, 7, 12, 13, 14, 15)], [8, 9, 10, 11, 12, 13, 14, 15]),
    ("gfx12", "int8"): ([(1, k) for k in range(8, 16)], [8, 9, 10, 11, 12, 13, 14, 15]),
    ("gfx90a", "bfloat16"): ([(1, k) for k in range(4, 8)], [4, 5, 6, 7]),
    ("gfx90a", "int8"): ([(1, k) for k in range(4, 8)], [4, 5, 6, 7]),
    ("gfx942", "int8"): ([(1, k) for k in range(8, 16)], [4, 5, 6, 7]),
}


@pytest.mark.parametrize(("family", "dtype"), TOLD)
def test_numbers_are_where_amd_s_calculator_tells(family: str, dtype: str) -> None:
    own, (a, rows) = FAMILIES[family][dtype], TOLD[family, dtype]
    assert [own.place_of_a(17, x) for x in range(len(a))] == a
    assert [own.place_of_b(17, x) for x in range(len(a))] == [(term, row) for row, term in a]
    assert [own.place_of_sum(17, x) for x in range(own.sums)] == [(row, 1) for row in rows]


# Verdicts

GFX11, GFX90A = device_of("gfx1100"), device_of("gfx90a")


def form(device: gp.DeviceInfo, name: str) -> Form:
    return next(each for each in verdicts.forms(device) if each.name == name)


def chosen(device: gp.DeviceInfo, dtype: str) -> tuple[str, object]:
    """The kernel, and its MMA where it has one, with what was noted until now."""
    plan = make_plan(gp.GemmProblem.create(1024, 1024, 1024, dtype=dtype), device, load_configuration())
    return plan.variant, plan.values.get("MMA", 0)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("device", "dtype", "name", "taken"),
    [
        (GFX11, "float16", "float16", ("sub_group_mma", 0)),
        (device_of("pvc"), "bfloat16", "bfloat16", ("sub_group_mma", 0)),
        (GFX90A, "float32", "float32 with MMA = 2", ("simt", 2)),
        (GFX90A, "float64", "float64 with MMA = 2", ("simt", 2)),
    ],
    ids=["gfx1100", "pvc", "gfx90a-float32", "gfx90a-float64"],
)
def test_a_form_is_chosen_where_it_was_found_right_and_nowhere_else(
    device: gp.DeviceInfo, dtype: str, name: str, taken: tuple[str, object]
) -> None:
    assert chosen(device, dtype) != taken
    verdicts.note(form(device, name), device, right=False)
    assert chosen(device, dtype) != taken
    verdicts.note(form(device, name), device, right=True)
    if taken[0] == "simt":  # float64's entry has other kernels first
        model = load_configuration().model(device)
        problem = gp.GemmProblem.create(1024, 1024, 1024, dtype=dtype)
        best = kernels.variant("simt").considered(problem, device, model)[0]
        assert best["MMA"] == 2
    else:
        assert chosen(device, dtype) == taken


def test_a_verdict_is_of_one_type_one_driver_and_one_source(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts.note(form(GFX11, "float16"), GFX11, right=True)
    verdicts.note(form(GFX11, "bfloat16"), GFX11, right=False)
    assert verdicts.known(GFX11) == {"sub_group_mma": {"float16": True, "bfloat16": False}}
    assert verdicts.known(device_of("gfx1101")) == {}
    monkeypatch.setattr(verdicts, "assemble", lambda kernel, language: "another source")
    assert verdicts.known(GFX11) == {}


def test_a_device_that_computes_wrongly_is_found(tmp_path: Path) -> None:
    backend = emulated.opened("gfx11", tmp_path, wrong=True)
    assert "elements differ" in fault(backend, form(backend.device, "float16"))


@pytest.mark.sample(family=[])
@pytest.mark.every_value("family", list(FAMILIES))
def test_a_device_that_computes_right_is_found_so(tmp_path: Path, family: str) -> None:
    backend = emulated.opened(family, tmp_path)
    assert {each.name: fault(backend, each) for each in verdicts.forms(backend.device)} == dict.fromkeys(
        FAMILIES[family], ""
    )


def test_devices_without_such_instructions_have_nothing_to_verify() -> None:
    for name in ("gfx1030", "tgllp", "sm_90"):
        assert [each for each in verdicts.forms(device_of(name)) if each.kernel == "sub_group_mma"] == []
        assert instruction_of(DTYPES["float16"], device_of(name)) is None
