"""The passes of the transpose ladder move every bit of every element to its place, and no other; and pad with zeros."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from gemmport import kernels
from gemmport.backends import _nvrtc
from gemmport.contracts.kernel import Parameters, Rung
from gemmport.core.dtypes import DTYPES, FLOAT32
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import Layout
from gemmport.execution.executor import enqueue_launches, prepare_launch
from gemmport.kernels.transpose import LADDER, PASS, Matrices
from gemmport.runtime.sources import assemble, languages
from made_up_devices import DEVICES
from mutations import OF_TRANSPOSE, Mutation, planted
from on_device import moved
from test_cuda_compile import is_cubin
from test_kernels import SPAN

SMALL: dict[str, ParameterValue] = {"TS": 8, "ROWS": 4}

SIZES = ((1, 1), (8, 8), (16, 24), (7, 9), (9, 7), (31, 53), (1, 101), (101, 1), (3, 200), (200, 3))
"""One element, whole tiles, around them, primes, thin ones."""

each_rung = pytest.mark.every_pair("rung", LADDER)


def check_moved(backend: gp.Backend, *what: object, **how: object) -> None:
    got, wanted = moved(backend, *what, **how)  # type: ignore[arg-type]
    wrong = np.flatnonzero(got != wanted)
    assert wrong.size == 0, f"{what} {how}: {wrong.size} bytes of the target are wrong, the first at {wrong[0]}"


@pytest.mark.every_pair("dtype", DTYPES)
@each_rung
def test_every_step_moves_every_type_bit_for_bit(backend: gp.Backend, rung: Rung, dtype: str) -> None:
    for rows, columns in SIZES:
        check_moved(backend, dtype, rows, columns, {**SMALL, **rung.parameters})


@each_rung
def test_every_step_with_its_own_parameters_is_exact(backend: gp.Backend, rung: Rung) -> None:
    for rows, columns in ((64, 96), (67, 129), (1, 1)):
        check_moved(backend, "float32", rows, columns, rung.parameters, batch=3)
        check_moved(backend, "float32", rows, columns, rung.parameters, batch=1, gap=0)


@pytest.mark.sample(ts=[5, 8])
@pytest.mark.every_pair(
    ("ts", "rows_of_items", "pad"),
    [(1, 1, 0), (2, 1, 3), (5, 5, 1), (6, 3, 0), (8, 1, 8), (16, 16, 1), (32, 2, 0), (64, 4, 1)],
)
@pytest.mark.every_pair("transposed", [0, 1])
@pytest.mark.every_pair("staged", [0, 1])
@pytest.mark.every_pair("order", ["rows", "diagonal"])
def test_tiles_of_any_shape_are_exact(
    backend: gp.Backend, ts: int, rows_of_items: int, pad: int, transposed: int, staged: int, order: str
) -> None:
    shape = {"TS": ts, "ROWS": rows_of_items, "PAD": pad, "TRANSPOSE": transposed, "STAGED": staged, "ORDER": order}
    for rows, columns in ((2 * ts, 3 * ts), (ts + 1, 2 * ts + 1), (53, 31)):
        check_moved(backend, "int16", rows, columns, shape)


@pytest.mark.every_pair("dtype", ["int8", "float32", "complex128"])
@each_rung
def test_what_the_source_does_not_reach_is_zero(backend: gp.Backend, rung: Rung, dtype: str) -> None:
    """Within a tile, beyond whole tiles, along one dimension; and of a source without elements."""
    for rows, columns, padded in (
        (7, 9, (8, 16)), (17, 5, (40, 9)), (8, 8, (8, 17)), (8, 8, (9, 8)), (1, 1, (16, 16)), (0, 5, (9, 5)), (5, 0, (5, 9)),
    ):  # fmt: skip
        check_moved(backend, dtype, rows, columns, {**SMALL, **rung.parameters}, padded=padded)


@pytest.mark.every_pair("sizes", [(0, 5, 1), (5, 0, 1), (5, 5, 0)])
@each_rung
def test_without_elements_nothing_is_launched(rung: Rung, sizes: tuple[int, int, int]) -> None:
    rows, columns, batch = sizes
    steps = rung.own.steps(rows, columns, FLOAT32, rung.parameters, DEVICES["Apple"], batch=batch)
    assert (steps.launches, steps.scratch) == ([], ())


@each_rung
def test_steps_move_dense_matrices_from_source_to_target(backend: gp.Backend, rung: Rung) -> None:
    host = np.arange(2 * 67 * 35, dtype=np.float32).reshape(2, 67, 35)
    wanted = host.transpose(0, 2, 1) if rung.parameters["TRANSPOSE"] else host
    source, target = backend.asarray(host), backend.zeros(wanted.shape, np.float32)
    steps = rung.own.steps(67, 35, FLOAT32, rung.parameters, backend.device, batch=2)
    memory = {"source": source.memory, "target": target.memory}
    enqueue_launches(steps.launches, backend, memory, writes=("target",))
    assert np.array_equal(target.get(), wanted)


def test_the_ladder_has_its_steps_in_order() -> None:
    names = ["copy", "copy_tiled", "transpose_naive", "transpose_tiled", "transpose_padded", "transpose_diagonal"]
    assert [rung.name for rung in kernels.ladders()["transpose"]] == names
    assert all(rung.adds and rung.own in kernels.passes() for rung in LADDER)


@each_rung
def test_defaults_fit_every_device(rung: Rung) -> None:
    for name, device in DEVICES.items():
        (launch,) = rung.own.steps(999, 999, FLOAT32, rung.parameters, device).launches
        assert launch.work_group == (32, 8, 1), name


@pytest.mark.parametrize(
    ("parameters", "device", "told"),
    [
        ({"ROWS": 32}, "work-groups of 256", "needs 1,024 work-items per group; .* allows 256"),
        (
            {"TS": 64, "ROWS": 4, "PAD": 1},
            "16 KB of local memory",
            "needs 16,640 bytes of local memory .* allows 16,384",
        ),
        ({"ROWS": 7}, "Apple", "TS = 32, ROWS = 7: the rule is TS % ROWS = 0"),
        ({"ORDER": "columns"}, "Apple", "ORDER = 'columns' is not allowed: it is one of rows, diagonal"),
    ],
)
def test_what_breaks_a_rule_or_a_limit_is_told_with_the_numbers(parameters: Parameters, device: str, told: str) -> None:
    with pytest.raises(gp.ParameterError, match=f"transpose.*{told}"):
        PASS.steps(99, 99, FLOAT32, parameters, DEVICES[device])


def test_copies_that_are_not_staged_take_no_local_memory() -> None:
    device = replace(DEVICES["16 KB of local memory"], local_memory=0)
    assert PASS.steps(99, 99, FLOAT32, {"STAGED": 0, "TS": 64, "ROWS": 4}, device).launches[0].local_bytes == 0


def test_more_than_65_535_groups(backend: gp.Backend) -> None:
    """CUDA's limit on the second and third dimension of a grid."""
    tiny = {"TS": 1, "ROWS": 1}
    check_moved(backend, "int8", 257, 263, tiny, batch=1)
    check_moved(backend, "int8", 2, 1, tiny, batch=32_800)


def check_beyond_32_bits(backend: gp.Backend, parameters: Parameters) -> None:
    """Rows, and matrices of the batch, that begin at 2³¹ and 2³² elements of one memory: wrapped indices lie in it too."""
    memory = backend.allocate(SPAN)
    rng = np.random.default_rng(1)
    for rows, columns, batch in ((3, 3, 1), (1, 1, 3)):
        layout = {"source": Layout(2**30, 2**30 * rows, 2**31), "target": Layout(2**30, 2**30 * rows, 2**31 + 2**10)}
        turned = bool(parameters["TRANSPOSE"])
        values = rng.integers(-128, 128, (batch, rows, columns), np.int8)
        # What wrapped indices would read instead.
        for place, row in np.ndindex(4, 3):
            backend.upload(memory, rng.integers(-128, 128, 4, np.int8), offset=2**30 * place + 2**10 * row)
        starts = {
            (matrix, row): 2**31 + matrix * layout["source"].batch_stride + row * 2**30
            for matrix, row in np.ndindex(batch, rows)
        }
        for (matrix, row), start in starts.items():
            backend.upload(memory, values[matrix, row], offset=start)
        launch = PASS.launch(
            Matrices("source", layout["source"]), Matrices("target", layout["target"]), rows, columns, DTYPES["int8"],
            PASS.complete({**SMALL, **parameters}), batch=batch,
        )  # fmt: skip
        backend.launch(prepare_launch(launch, backend, {"source": memory, "target": memory}))
        wanted = values.transpose(0, 2, 1) if turned else values
        for matrix, row in np.ndindex(*wanted.shape[:2]):
            got = np.empty(wanted.shape[2], np.int8)
            start = layout["target"].offset + matrix * layout["target"].batch_stride + row * 2**30
            backend.download(memory, got, offset=start)
            assert got.tolist() == wanted[matrix, row].tolist(), f"row {row} of matrix {matrix} is wrong"


@pytest.mark.large
@each_rung
def test_elements_beyond_32_bits_are_reached(fresh_backend: gp.Backend, rung: Rung) -> None:
    most = fresh_backend.device.max_allocation
    if most < SPAN:
        pytest.skip(beyond(fresh_backend.device, f"it allows {most:,} bytes in one allocation"))
    check_beyond_32_bits(fresh_backend, rung.parameters)


# Faults


def check_all(backend: gp.Backend) -> None:
    """What a broken pass cannot pass: every step, padded and as it is, in words of four and of sixteen bytes."""
    for rung in LADDER:
        for dtype, (rows, columns) in itertools.product(("float32", "complex128"), ((7, 19), (24, 8))):
            check_moved(backend, dtype, rows, columns, {**SMALL, **rung.parameters})
            check_moved(backend, dtype, rows, columns, {**SMALL, **rung.parameters}, padded=(rows + 2, columns + 9))


def check_all_beyond_32_bits(backend: gp.Backend) -> None:
    for rung in LADDER:
        check_beyond_32_bits(backend, rung.parameters)


@pytest.mark.best_of_each_backend
@pytest.mark.planted_fault
@pytest.mark.every_value("fault", OF_TRANSPOSE)
def test_a_broken_pass_is_noticed(backend: gp.Backend, fault: Mutation) -> None:
    if fault.noticed_by == "exact":
        with planted(fault, PASS.name), pytest.raises(AssertionError, match="bytes of the target are wrong"):
            check_all(backend)
    elif backend.device.max_allocation < SPAN:
        pytest.skip(beyond(backend.device, f"it allows {backend.device.max_allocation:,} bytes in one allocation"))
    else:
        with planted(fault, PASS.name), pytest.raises(AssertionError, match="is wrong"):
            check_all_beyond_32_bits(backend)


@pytest.mark.best_of_each_backend
def test_the_unbroken_pass_passes(backend: gp.Backend) -> None:
    check_all(backend)


@pytest.mark.parametrize("fault", OF_TRANSPOSE, ids=lambda fault: fault.name.replace(" ", "-"))
def test_faults_are_planted_in_both_languages(fault: Mutation) -> None:
    (launch,) = PASS.steps(61, 61, DTYPES["complex128"], {"ORDER": "diagonal"}, DEVICES["NVIDIA sm_70"]).launches
    shipped = {language: assemble(launch.kernel, language) for language in languages()}
    with planted(fault, PASS.name):
        broken = {language: assemble(launch.kernel, language) for language in languages()}
    assert all(broken[language] != text for language, text in shipped.items())
    if _nvrtc.nvrtc() is not None:
        assert is_cubin(_nvrtc.compile_cuda(broken["cuda"], "sm_90"))


def test_names_of_faults_are_used_once() -> None:
    names = [fault.name for fault in OF_TRANSPOSE]
    assert len(names) == len(set(names))
