"""`relayout` moves every bit of small elements to aligned rows, wherever their own rows begin, and fills up with zeros."""

from __future__ import annotations

import numpy as np
import pytest

import gemmport as gp
from gemmport.backends import _nvrtc
from gemmport.contracts.kernel import Parameters
from gemmport.core.dtypes import DTYPES, as_dtype
from gemmport.core.problem import GemmProblem, Layout
from gemmport.kernels import relayout
from gemmport.kernels.relayout import PASS
from gemmport.kernels.transpose import Matrices
from gemmport.runtime.sources import assemble, languages
from mutations import OF_RELAYOUT, Mutation, planted
from on_device import moved
from test_cuda_compile import is_cubin

SMALL = ("int8", "float16", "float32")
"""A type of each size."""

TILES: dict[str, tuple[Parameters, ...]] = {
    "int8": ({}, {"ALONG": 2, "ITEMS": 256, "EACH": 8}),
    "float16": ({"ALONG": 1, "ITEMS": 128}, {"ALONG": 2}),
    "float32": ({"ALONG": 1, "ITEMS": 64}, {"ALONG": 4, "ITEMS": 128, "EACH": 8}),
}
"""That are transposed: of one line and of several, along either side."""


AS_FAR_AS_TILES = 2**17
"""Elements behind the last matrix. Broken passes that leave out a bound reach the end of a tile: 256 rows. Beyond the memory, a
runtime may end the process.
"""


def check_moved(
    backend: gp.Backend, dtype: str, rows: int, columns: int, parameters: Parameters, **how: object
) -> None:
    got, wanted = moved(backend, dtype, rows, columns, parameters, own=PASS, **how)  # type: ignore[arg-type]
    wrong = np.flatnonzero(got != wanted)
    told = f"{dtype} {rows} × {columns} {parameters} {how}"
    assert wrong.size == 0, f"{told}: {wrong.size} bytes of the target are wrong, the first at {wrong[0]}"


def check_all(backend: gp.Backend, guard: int | None = None) -> None:
    """What a broken pass cannot pass: each type, copied and transposed, by tiles of several lines, padded and as it is."""
    for dtype in SMALL:
        for parameters in ({**TILES[dtype][1]}, {"TRANSPOSE": 0, "ALONG": 2, "ITEMS": 64}):
            check_moved(backend, dtype, 71, 133, parameters, guard=guard)
            check_moved(backend, dtype, 16, 80, parameters, gap=0, padded=(48, 96), guard=guard)
    for precision in ("tf32", "bfloat16"):
        check_moved(backend, "float32", 9, 35, {"ALONG": 1, "ITEMS": 64}, precision=precision, guard=guard)


@pytest.mark.best_of_each_backend
def test_every_size_of_element_is_moved_bit_for_bit(backend: gp.Backend) -> None:
    check_all(backend)


@pytest.mark.sample(dtype=["float16"], turned=[1])
@pytest.mark.every_pair("turned", [0, 1])
@pytest.mark.every_pair("dtype", SMALL)
def test_sizes_around_runs_and_tiles_are_exact(backend: gp.Backend, dtype: str, turned: int) -> None:
    """Thin ones, primes, whole tiles; rows that are aligned, and that are not; a source without elements."""
    for tile in TILES[dtype] if turned else ({"ALONG": 1, "ITEMS": 64}, {"ALONG": 8, "EACH": 2}):
        parameters = {**tile, "TRANSPOSE": turned}
        for rows, columns in ((1, 1), (7, 9), (128, 128), (129, 65), (3, 300), (300, 3)):
            check_moved(backend, dtype, rows, columns, parameters)
            check_moved(backend, dtype, rows, columns, parameters, gap=0, batch=3)
        for rows, columns in ((0, 5), (5, 0)):
            check_moved(backend, dtype, rows, columns, parameters, padded=(16, 16))


@pytest.mark.parametrize(
    ("dtype", "parameters", "ld", "told"),
    [
        ("float64", {}, 64, "elements must have 1, 2 or 4 bytes; float64 has 8: use transpose"),
        (
            "int8",
            {},
            63,
            r"whole runs of 16 bytes, and aligned to them; they have 63 bytes, aligned to 1: use transpose",
        ),
        ("int8", {"ALONG": 2}, 64, "ALONG = 2, ITEMS = 256, EACH = 4: transposed, the rule is ITEMS . EACH . 1 % "),
        ("float16", {"EACH": 1, "ITEMS": 512}, 64, "EACH . 2 % 4 = 0 for float16"),
    ],
)
def test_what_it_cannot_move_is_refused_with_the_numbers(
    dtype: str, parameters: Parameters, ld: int, told: str
) -> None:
    source, target = (Matrices(name, Layout(ld, ld * ld)) for name in ("source", "target"))
    with pytest.raises(gp.ParameterError, match=f"relayout: .*{told}"):
        PASS.launch(source, target, ld, ld, as_dtype(dtype), PASS.complete(parameters))


def test_matrices_that_lie_one_below_the_other_are_copied_as_one() -> None:
    """30 of 23 rows are 690, six tiles of 128; 30 with gaps between them, or transposed, have a tile each. 2048 of 2²⁰ + 1 rows
    have tiles of their own, too: together they are more than kernels count.
    """

    def groups(m: int = 23, batch: int = 30, *, turned: bool = False, **layouts: Layout) -> int:
        problem = GemmProblem.create(m, 23, 23, dtype="float16", batch=batch, **layouts)
        made = relayout.prepare(problem, "a", "a_anew", turned=turned, padded=(23, 24) if turned else (m, 24))
        assert (made.layout, made.scratch.nbytes) == (Layout(24, m * 24), batch * m * 24 * 2)
        return made.launch.groups[0]

    assert groups() == 6
    assert groups(a=Layout(23, 24 * 23)) == 30
    assert groups(a=Layout(25, 23 * 25)) == 6
    assert groups(turned=True) == 30
    assert groups(2**20 + 1, 2**11) == 2**11 * (2**13 + 1)
    assert groups(2**20 + 1, 2**10) == 2**23 + 8


@pytest.mark.parametrize("dtype", SMALL)
def test_what_it_prepares_with_is_allowed(dtype: str) -> None:
    for size in (1, 5, 100, 1000, 4095):
        problem = GemmProblem.create(size, size, size, dtype=dtype)
        for turned in (False, True):
            made = relayout.prepare(problem, "a", "a_anew", turned=turned, padded=(size, size + -size % 16))
            assert made.launch.local_bytes <= 2**14
            assert made.layout.ld == size + -size % 16


@pytest.mark.best_of_each_backend
@pytest.mark.planted_fault
@pytest.mark.every_value("fault", OF_RELAYOUT)
def test_a_broken_pass_is_noticed(backend: gp.Backend, fault: Mutation) -> None:
    with planted(fault, PASS.name), pytest.raises(AssertionError, match="bytes of the target are wrong"):
        check_all(backend, AS_FAR_AS_TILES)


@pytest.mark.parametrize("fault", OF_RELAYOUT, ids=lambda fault: fault.name.replace(" ", "-"))
def test_faults_are_planted_in_both_languages(fault: Mutation) -> None:
    layout = Layout(64, 64 * 64)
    launch = PASS.launch(
        Matrices("source", layout), Matrices("target", layout), 64, 64, DTYPES["int8"], PASS.complete({})
    )  # fmt: skip
    shipped = {language: assemble(launch.kernel, language) for language in languages()}
    with planted(fault, PASS.name):
        broken = {language: assemble(launch.kernel, language) for language in languages()}
    assert all(broken[language] != text for language, text in shipped.items())
    if _nvrtc.nvrtc() is not None:
        assert is_cubin(_nvrtc.compile_cuda(broken["cuda"], "sm_90"))
