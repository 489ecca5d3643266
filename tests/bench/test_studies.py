"""The programs of benchmarks/ that answer one question each, as far as they run without a GPU."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import gemmport as gp
from absences import AMD_COMPILER, CUDA_COMPILER, LLVM_MCA, NVDISASM, needs, none_of
from gemmport.backends import _machinecode, _nvrtc, _sass
from gemmport.backends.base import Backend
from gemmport.backends.objects import Memory
from gemmport.bench.timing import Contestant, Timing
from gemmport.core.errors import GemmportError
from gemmport.core.problem import GemmProblem
from gemmport.inspection import amdgcn
from gemmport.runtime.sources import assemble
from made_up_devices import DEVICES
from mutations import NAIVE, planted

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import decoding
import document
import host_operands
import launch_events
import local_memory
import loop_costs
import machine_code
import matrix_unit
import modelled_tiles
import parameters
import register_ports
import rescheduling

with_a_compiler, with_nvdisasm = needs(CUDA_COMPILER), needs(NVDISASM)

HOPPER = DEVICES["NVIDIA sm_90 under CUDA"]


def run(script: Any, backend: Backend, *arguments: object) -> Result:
    given = ["--device", backend.device.selector, *map(str, arguments)]
    return CliRunner().invoke(script.main, given, catch_exceptions=False)


# rescheduling.py


@with_a_compiler
@pytest.mark.machine_code
def test_the_pass_is_timed_in_a_process_of_its_own(tmp_path: Path) -> None:
    what, source, groups = next(rescheduling.programs())
    assert what == {"dtype": "float32", "m": 1000, "ops": "NN", "tile": [64, 128, 16], "shared": False}
    code = tmp_path / rescheduling.FOLDER
    code.parent.mkdir()
    code.symlink_to(rescheduling.ROOT / rescheduling.FOLDER)
    found = rescheduling.times(source, groups, [("today", tmp_path)], 1, tmp_path)
    own = found["codes"]["today"]
    binary = _nvrtc.compile_cuda(loop_costs.as_compiled(source), loop_costs.ARCHITECTURE)
    better = _sass.rescheduled(binary, groups)
    assert own["sha256"] == hashlib.sha256(better).hexdigest()
    assert own["changed"]
    assert own["cycles"] < found["cycles as compiled"]
    assert all(each["median"] > 0 for each in own["seconds"].values())


# modelled_tiles.py


def test_multiply_adds_are_those_of_packed_and_paired_instructions() -> None:
    text = """
        v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[0:1]
        v_dual_fmac_f32 v0, v2, v4 :: v_dual_fmac_f32 v1, v3, v7
        v_dual_mov_b32 v0, v54 :: v_dual_fmac_f32 v1, v3, v7
        v_fma_f64 v[0:1], v[2:3], v[4:5], v[0:1]
        v_mad_u64_u32 v[58:59], s[0:1], v51, s20, 0
        v_mul_f32_e32 v0, v1, v2
    """
    assert modelled_tiles.multiply_adds(amdgcn.parse(text)) == 2 + 2 + 1 + 1


def choice(share: float | None, cache: float, registers: int = 64) -> modelled_tiles.Found:
    return modelled_tiles.Found({}, registers, 1, 4.0, 0 if share else 8, share, "vector unit", {"cache": cache})


def test_the_best_choice_spills_nothing_and_loads_least_of_its_equals() -> None:
    found = [choice(0.5, 1), choice(0.900, 40), choice(0.899, 20), choice(0.899, 20, registers=32), choice(None, 1)]
    assert modelled_tiles.best(found) is found[3]
    assert modelled_tiles.best(found[:2]) is found[1]
    assert modelled_tiles.best(found[4:]) is None


@needs(AMD_COMPILER, LLVM_MCA)
def test_tiles_are_compiled_and_the_best_is_told(tmp_path: Path) -> None:
    output = tmp_path / "tiles.json"
    given = ["--targets", "gfx90a:float32", "--kernel", "tiled", "--output", str(output)]
    done = CliRunner().invoke(modelled_tiles.main, given, catch_exceptions=False)
    assert done.exit_code == 0
    written = json.loads(output.read_text("utf-8"))
    (own,) = written["results"]
    assert own["tried"] == len(modelled_tiles.GRIDS["tiled"])
    assert own["spilled"] == 0
    assert 0 < own["best"]["share"] < 1
    assert own["best"] == own["next"][0]
    assert own["best"]["limit"] == max(own["best"]["clocks"], key=own["best"]["clocks"].get)
    assert written["compiler"].startswith("clang ")


# parameters.py


def test_trials_change_what_the_planner_chooses() -> None:
    problem = GemmProblem.create(4096, 4096, 4096)
    found = list(parameters.trials(problem, HOPPER, ["simt", "tiled"], [{"PORTS": 0}, {"PORTS": 7}, {"TS": 8}]))
    chosen = gp.plan(problem, HOPPER, kernel="simt")
    assert chosen.values["PORTS"] == 1
    assert [(x.plan.variant, x.settings) for x in found] == [
        ("simt", {}), ("simt", {"PORTS": 0}), ("tiled", {}), ("tiled", {"TS": 8})
    ]  # fmt: skip
    assert found[0].plan.values == chosen.values
    assert found[1].plan.values == {**chosen.values, "PORTS": 0}
    assert list(parameters.trials(GemmProblem.create(8, 8, 8, dtype="int32"), HOPPER, ["packed"], [])) == []


@pytest.mark.parametrize("text", ["HASTE=1", "TS", "TS=", "=8", "TS=8,"])
def test_a_trial_is_written_as_parameters(text: str) -> None:
    assert parameters.settings_of("TS=8,MOVES=vload,PAD=-1") == {"TS": 8, "MOVES": "vload", "PAD": -1}
    with pytest.raises(parameters.click.UsageError, match=r"--trial must be NAME=VALUE\[,NAME=VALUE\]"):
        parameters.settings_of(text)


@pytest.mark.processes
def test_trials_are_measured_beside_a_baseline(best_backend: Backend, tmp_path: Path) -> None:
    output = tmp_path / "v.json"
    arguments = ["--backend", best_backend.name, "--kernel", "tiled,naive", "--trial", "PAD=1", "--sizes", 33, "--ops", "NN,TN",
                 "--baseline", "numpy,cublas", "--repeat", 2, "--output", output]  # fmt: skip
    if best_backend.name != "cuda":
        assert parameters.bound_baseline("cublas", GemmProblem.create(8, 8, 8), best_backend, {}) is None
    done = run(parameters, best_backend, *arguments)
    assert done.exit_code == 0
    written = json.loads(output.read_text("utf-8"))
    assert written["environment"]["devices"].keys() == {best_backend.device.label}
    assert [own["trans_a"] for own in written["results"]] == ["N", "T"]
    for own in written["results"]:
        assert [(x["kernel"], x["set"], x["verified"]) for x in own["trials"]] == [
            ("tiled", {}, True), ("tiled", {"PAD": 1}, True), ("naive", {}, True)
        ]  # fmt: skip
        assert own["trials"][1]["parameters"] == {**own["trials"][0]["parameters"], "PAD": 1}
        assert all(x["seconds"]["median"] > 0 for x in (*own["trials"], *own["baselines"].values()))
        assert "numpy" in own["baselines"]
        assert len(own["launches"]) == 3


@pytest.mark.processes
def test_types_take_turns_in_one_measurement(
    best_backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, measured = tmp_path / "v.json", []

    def measure(backend: Backend, contestants: list[Contestant], **options: int) -> dict[str, Timing]:
        measured.append(len(contestants))
        return {own.name: Timing((float(place + 1),), 1) for place, own in enumerate(contestants)}

    monkeypatch.setattr(parameters, "measure", measure)
    arguments = ["--backend", best_backend.name, "--kernel", "naive", "--dtype", "float32,float16", "--sizes", 33,
                 "--baseline", "numpy", "--repeat", 2, "--in-turns", "--output", output]  # fmt: skip
    assert run(parameters, best_backend, *arguments).exit_code == 0
    assert measured == [4]
    results = json.loads(output.read_text("utf-8"))["results"]
    assert [own["dtype"] for own in results] == ["float32", "float16"]
    assert [own["baselines"]["numpy"]["seconds"]["median"] for own in results] == [1.0, 3.0]
    assert [own["trials"][0]["seconds"]["median"] for own in results] == [2.0, 4.0]
    assert all(own["trials"][0]["verified"] for own in results)


@pytest.mark.parametrize("finished", [0, 1])
def test_what_is_interrupted_is_written(finished: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "v.json"
    monkeypatch.setattr(sys, "argv", ["benchmarks/parameters.py"])

    def measure() -> None:
        with document.kept(output) as results:
            results.extend([{"m": 33}] * finished)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure()
    if finished:
        found = json.loads(output.read_text("utf-8"))
        assert (found["interrupted"], found["results"]) == (True, [{"m": 33}])
    else:
        assert not output.exists()


def test_a_wrong_trial_is_told(best_backend: Backend) -> None:
    with planted("drops the last term", NAIVE):
        arguments = ["--backend", best_backend.name, "--kernel", f"tiled,{NAIVE}", "--sizes", 33, "--repeat", 1]
        done = run(parameters, best_backend, *arguments)
    assert done.exit_code == 1
    wrong = [line for line in done.output.splitlines() if "WRONG" in line]
    assert len(wrong) == 1
    assert NAIVE in wrong[0]


# loop_costs.py, machine_code.py


@with_a_compiler
@pytest.mark.machine_code
def test_two_rows_read_less_and_are_taken_where_no_product_is_in_one_bank() -> None:
    each = {(kind, ops): launch for kind, ops, launch in loop_costs.loops()}
    whole, shared = (loop_costs.costs(each[kind, "NN"]) for kind in ("whole tiles", "shared tiles"))
    for own in (whole, shared):
        assert own["ffma"] == 1024
        assert own["as compiled"]["reads"] > own["one row"]["reads"] > own["two rows"]["reads"]
        assert own["as compiled"]["cycles"] > own["one row"]["cycles"] >= own["two rows"]["cycles"]
    assert [own["taken"] for own in (whole, shared)] == ["two rows", "one row"]


@with_a_compiler
@pytest.mark.machine_code
def test_programs_are_made_in_each_way() -> None:
    *_, launch = next(loop_costs.loops())
    source = assemble(launch.kernel, "cuda")
    assert _sass.asked_for(source)

    def compiled(given: str) -> bytes:
        return _nvrtc.compile_cuda(given, "sm_90")

    def program(given: str) -> bytes:
        groups = _sass.asked_for(given)
        return _sass.rescheduled(compiled(given), groups) if groups else compiled(given)

    backend = SimpleNamespace(
        name="cuda", device=HOPPER, compile=compiled, load=lambda binary, _: binary, program=program
    )
    made = {name: way(source) for name, way in machine_code.ways(backend).items()}
    assert list(made) == ["as compiled", "as taken", "one row", "two rows"]
    assert made["as taken"] in (made["one row"], made["two rows"])
    assert len({*made.values()}) == 3
    other = 'extern "C" __global__ void f(float *x) { x[0] = 1.f; }\n'
    assert {way(other) for way in machine_code.ways(backend).values()} == {compiled(other)}


def test_opencl_programs_are_linked_or_not() -> None:
    backend = SimpleNamespace(name="opencl", compile=lambda source: source, program=lambda source: f"better {source}")
    asked = f"#define GROUPS 2\n{machine_code._compilation.LINKED}code"
    assert {name: way(asked) for name, way in machine_code.ways(backend).items()} == {
        "as compiled": "#define GROUPS 2\ncode", "as taken": f"better {asked}"
    }  # fmt: skip


def test_a_plan_has_programs_of_the_way_and_no_others(best_backend: Backend) -> None:
    problem = GemmProblem.create(33, 33, 33)
    plan = gp.plan(problem, best_backend.device, kernel="tiled")
    with best_backend.allocate(4 * 33 * 33) as block:
        memory = dict.fromkeys(("a", "b", "d"), block)
        sources: list[str] = []

        def way(source: str) -> Any:
            sources.append(source)
            return best_backend.compile(source)

        machine_code.bound(plan, best_backend, memory, way)
        assert len(sources) == 1


def test_programs_from_elsewhere_are_refused(best_backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = gp.plan(GemmProblem.create(8, 8, 8), best_backend.device, kernel="tiled")
    monkeypatch.setattr(machine_code, "bind", lambda *_: None)
    with pytest.raises(GemmportError, match="each launch must have a program made for it; got 0 of 1"):
        machine_code.bound(plan, best_backend, {}, best_backend.compile)


def test_other_bits_are_refused(best_backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = gp.plan(GemmProblem.create(8, 8, 8), best_backend.device, kernel="simt")

    def bound(_: object, backend: Backend, memory: dict[str, Memory], byte: int) -> Any:
        return SimpleNamespace(enqueue=lambda: backend.fill(memory["d"], byte))

    monkeypatch.setattr(machine_code, "bound", bound)
    monkeypatch.setattr(machine_code, "ways", lambda _: {"one": 1, "other": 1})
    found = machine_code.compared(plan, best_backend, 1e-4, 2)
    assert all(found["seconds"][name]["median"] > 0 for name in ("one", "other"))
    monkeypatch.setattr(machine_code, "ways", lambda _: {"one": 1, "other": 2})
    with pytest.raises(GemmportError, match="must have the same bits"):
        machine_code.compared(plan, best_backend, 1e-4, 2)


# register_ports.py, matrix_unit.py, launch_events.py


class Clocks:
    """A backend whose warps begin 10 clocks apart, and take 300 for a pass."""

    device = SimpleNamespace(compute_units=3)

    def __init__(self) -> None:
        self.allocate = lambda _: nullcontext()
        self.load = lambda *_: None
        self.launch = lambda _: None

    def prepare(
        self, program: object, function: str, groups: tuple[int, ...], items: tuple[int, ...], _: Sequence[Any]
    ) -> None:
        assert (function, groups) == ("loop", (3, 1, 1))
        self.warps = items[0] // 32

    def download(self, memory: object, clocks: np.ndarray) -> None:
        assert clocks.shape == (3, self.warps, 2)
        clocks[:, :, 0] = 10 * np.arange(self.warps)
        clocks[:, :, 1] = clocks[:, :, 0] + 300 * register_ports.PASSES


@pytest.mark.parametrize("warps", [1, 2])
def test_cycles_are_those_of_a_quarter_for_each_warp(warps: int) -> None:
    kernel = SimpleNamespace(with_loop=lambda _: b"", source="")
    found = register_ports.cycles(Clocks(), kernel, [], warps)
    assert found == pytest.approx((300 + 10 * (4 * warps - 1) / register_ports.PASSES) / warps)


@with_a_compiler
@with_nvdisasm
@pytest.mark.parametrize("terms", matrix_unit.TERMS)
def test_the_matrix_unit_has_numbers_in_registers_alone(terms: int) -> None:
    code = _machinecode.sass(_nvrtc.compile_cuda(matrix_unit.source(terms), "sm_90"), "unit").text
    found = re.findall(r"DMMA\.(\S+) R(\d+), .*R(\d+) ;", code)
    assert [kind for kind, *_ in found] == [f"16x8x{terms}"] * matrix_unit.SUMS
    assert len({d for _, d, _ in found}) == matrix_unit.SUMS
    assert not re.search(r"\b(LDL|STL)\b", code)


@pytest.mark.parametrize("script", [register_ports, matrix_unit], ids=lambda script: script.__name__)
def test_other_gpus_are_refused(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "select_device", lambda *_: DEVICES["NVIDIA sm_70"])
    done = CliRunner().invoke(script.main, [])
    assert done.exit_code == 2
    assert "the device must be of sm_90; got" in done.output


def test_launches_are_measured_with_an_event_and_without(best_backend: Backend, tmp_path: Path) -> None:
    if best_backend.name != "opencl":
        pytest.skip(none_of("opencl"))
    done = run(launch_events, best_backend, "--output", tmp_path / "l.json")
    assert done.exit_code == 0
    written = json.loads((tmp_path / "l.json").read_text("utf-8"))
    assert written["launches"].keys() == {"with an event", "without"}
    assert all(own[x] > 0 for own in written["launches"].values() for x in ("host_us", "device_us"))


# host_operands.py


def test_calls_with_host_arrays_of_all_kinds_are_right_and_timed(best_backend: Backend, tmp_path: Path) -> None:
    output = tmp_path / "h.json"
    done = run(host_operands, best_backend, "--backend", best_backend.name, "--size", 9, "--output", output)
    assert done.exit_code == 0, done.output
    found = json.loads(output.read_text("utf-8"))["results"]
    assert [own["case"] for own in found] == [*host_operands.CASES]
    assert all(own["seconds"] > 0 and own["numpy"] > 0 for own in found)


def test_a_wrong_product_of_host_arrays_ends_it(best_backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_operands.gp, "matmul", lambda a, b, **_: 1.1 * np.matmul(a, b))
    with pytest.raises(AssertionError):
        run(host_operands, best_backend, "--backend", best_backend.name, "--size", 9)


# decoding.py


def test_copies_take_turns() -> None:
    seen: list[int] = []
    contestant = decoding.Turns([lambda x=x: seen.append(x) for x in range(3)]).contestant("all")
    for _ in range(7):
        contestant.enqueue()
    assert seen == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.processes
def test_products_of_few_rows_are_measured_beside_reading(
    best_backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "PAST_CACHES", 3 * 256 * 512 * 2)
    output = tmp_path / "v.json"
    done = run(
        decoding, best_backend, "--backend", best_backend.name, "--rows", "1,5", "--layers", "256x512", "--dtype", "float16",
        "--repeat", 2, "--output", output,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    first, second = json.loads(output.read_text("utf-8"))["results"]
    assert (first["m"], second["m"]) == (1, 5)
    for own in (first, second):
        assert own["copies"] == 3
        assert not own["fault"]
        reading = own["reading"][own["reader"]]["median"]
        assert reading == min(each["median"] for each in own["reading"].values())
        assert own["ratio"] == pytest.approx(reading / own["seconds"]["median"])
    assert re.search(r"float16 NT 5×256×512: \w+ [\d.]+ µs, [\d,]+ GB/s, [\d.]+ × read, \d+ steps", done.output)


@pytest.mark.processes
def test_a_wrong_product_of_few_rows_is_told(best_backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "PAST_CACHES", 1)
    monkeypatch.setattr(decoding, "fault_of", lambda *_: "planted")
    done = run(
        decoding, best_backend, "--backend", best_backend.name, "--rows", 5, "--layers", "64x512", "--dtype", "float16",
        "--repeat", 1,
    )  # fmt: skip
    assert done.exit_code == 1
    assert "WRONG: planted" in done.output


@pytest.mark.processes
def test_candidates_are_timed_beside_the_choice_unless_they_take_far_longer(
    best_backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = gp.plan(GemmProblem.create(5, 64, 512, dtype="float16", trans_b="T"), best_backend.device)
    monkeypatch.setattr(decoding, "PAST_CACHES", 1)
    monkeypatch.setattr(
        decoding, "look", lambda _, each: {"naive": 1.2, chosen.variant: 2.0}.get(each[0].plan.variant, 2.7)
    )
    monkeypatch.setattr(decoding, "fault_of", lambda bound, _: "planted" if bound.plan.variant == "naive" else "")
    monkeypatch.setattr(decoding, "FAR", 2.0)
    file, output = tmp_path / "c.yaml", tmp_path / "d.json"
    file.write_text("naive: [{TS: 8}]\ntiled: [{TS: 8}]\n", "utf-8")
    done = run(
        decoding, best_backend, "--backend", best_backend.name, "--rows", 5, "--layers", "64x512", "--dtype", "float16",
        "--repeat", 1, "--kernel", "naive,tiled", "--candidates", file, "--output", output,
    )  # fmt: skip
    assert done.exit_code == 1
    (own,) = json.loads(output.read_text("utf-8"))["results"]
    assert (own["kernel"], own["fault"]) == (chosen.variant, "")
    assert {(one["kernel"], one["fault"]) for one in own["candidates"]} == {("naive", "planted")}
    assert {(one["kernel"], one["look"], one["fault"]) for one in own["looks"]} == {("tiled", 2.7, "")}
    assert 8 in [one["parameters"]["TS"] for one in own["looks"]]
    assert re.search(r"^  [\d.]+: naive TS=8, WRONG: planted$", done.output, re.MULTILINE)


# local_memory.py


def test_local_memory_that_there_is_is_right_and_more_is_refused(best_backend: Backend) -> None:
    if best_backend.name != "opencl":
        pytest.skip(none_of("opencl"))
    device = best_backend.device
    for way in ("declared", "argument"):
        assert local_memory.attempted(device, way, device.local_memory // 2) == "right"
    assert "right" not in local_memory.attempted(device, "argument", 2**28)
    if device.platform != "nvidia":
        assert "no clSetKernelAttributeNV" in local_memory.attempted(device, "attribute", 1024)


@pytest.mark.processes
def test_each_attempt_is_a_process(best_backend: Backend, tmp_path: Path) -> None:
    if best_backend.name != "opencl":
        pytest.skip(none_of("opencl"))
    output = tmp_path / "l.json"
    done = run(local_memory, best_backend, "--sizes", 1024, "--output", output)
    assert done.exit_code == 0
    written = json.loads(output.read_text("utf-8"))
    found = {own["way"]: own["result"] for own in written["results"]}
    assert found.keys() == set(local_memory.WAYS)
    assert found["declared"] == found["argument"] == "right"
