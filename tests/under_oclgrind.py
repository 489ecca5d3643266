"""Runs kernels on Oclgrind's simulated device and checks their results; test_oclgrind.py starts it and reads the log.

    oclgrind --data-races --uninitialized --log FILE python under_oclgrind.py SAID

Starting takes a second, so that one process runs kernel after kernel. Through a `Channel` it is told the `kernel`, a variant
or a pass; its `params`; `ops`, pairs with commas between them; and `fault`, the name of a mutation to plant, or nothing. Of a
variant with a fault, no more products are computed than until Oclgrind complains. It answers with `wrong`, the traceback of an
error such as an AssertionError for a wrong result, or nothing. What is printed goes to the file SAID.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

import exact
import gemmport as gp
from exact import WIDEST_RUN, Sizes, check, problem_of
from extensions import EXTENSIONS
from gemmport import kernels
from gemmport.checking import device_check, guarded_run, verification
from gemmport.checking.reference import reference
from gemmport.contracts import sub_groups
from gemmport.core.dtypes import FLOAT32
from gemmport.core.layout import matrices
from gemmport.core.precision import FORMATS
from gemmport.core.problem import GemmProblem, Layout, as_op
from gemmport.execution import copies
from gemmport.execution.copies import dense_copy
from gemmport.kernels.packed import Packed
from gemmport.kernels.shuffle import Shuffle
from gemmport.kernels.times_vector import Sums
from gemmport.runtime.child_processes import Channel
from mutations import planted
from on_device import check_microbenchmarks, check_wide_sums, filled, moved, placed, rescaled, summed


def times_vector(backend: gp.Backend, ops: str) -> None:
    """A small product, checked by the sums of the device and by double-float ones; one group is not full."""
    problem = problem_of(Sizes(9, 35, 33), ops, "complex64", beta=1.0, batch=2)
    operands = verification.random_operands(problem, 0)
    memory = placed(backend, problem, operands, reference(problem, operands))
    assert device_check.check_freivalds_on(backend, problem, memory, 0).passed
    check_wide_sums(backend, Sums(FLOAT32, complex=True, pairs=True), "complex64", as_op(ops[0]), 9, 35)


def fill_random(backend: gp.Backend, ops: str) -> None:
    """Normal and whole numbers; the last group is not full."""
    for name, how in (("complex64", "normal"), ("int8", "all"), ("float8_e5m2", "whole")):
        flat, wanted = filled(backend, name, how, Layout(50, 50 * 61), 61, 43, 2, seed=0)
        got = matrices(flat, Layout(50, 50 * 61), 61, 43, 2)
        assert np.allclose(got.astype(np.complex64), wanted.astype(np.complex64), atol=1e-5)


def copy_strided(backend: gp.Backend, ops: str) -> None:
    """A view of five dimensions, gathered, converted, and put back into another; the last group is not full."""
    host = exact.integers((2, 3, 4, 6, 7), "float32")
    array = backend.asarray(host)
    view = dense_copy(array[:, ::-1, :, ::2], np.dtype("complex64"))
    assert np.array_equal(view.get(), host[:, ::-1, :, ::2])
    target = backend.zeros((2, 3, 4, 6, 7), "float32")
    copies.copy_strided(array[:, :, :, :, 1:3], target[:, :, :, :, 4:6])
    host[..., 4:6] = host[..., 1:3].copy()
    assert np.array_equal(target.get()[..., 4:6], host[..., 4:6])


# Oclgrind has no sub-groups. Where one is the whole group, the group's barrier may stand in for its own; what others pass is
# not simulated.
ONE_SUB_GROUP = {
    "SUB_GROUP": 32,
    "SYNC_SUB_GROUP()": "barrier(CLK_LOCAL_MEM_FENCE)",
    "this_sub_group()": "0",
    "shuffled_word(x, lane)": "x",
    "shuffled_down_word(x, offset)": "x",
}


def reduce(backend: gp.Backend, ops: str) -> None:
    """Sums by every tree but that of shuffles; no group is full in the end."""
    values = exact.integers((133,), "complex64")
    with mock.patch.object(sub_groups, "shuffle_defines", return_value=ONE_SUB_GROUP):
        for tree in ("divergent", "interleaved", "sequential", "unrolled_warp", "unrolled"):
            parameters: dict[str, int | str] = {"TREE": tree, "ITEMS": 32, "EACH": 3}
            for count in (0, 133):
                assert summed(backend, values[:count], parameters, guard=0) == values[:count].sum()


def transpose(backend: gp.Backend, ops: str) -> None:
    """Every step of the ladder, padded and as it is; tiles cross every edge."""
    for rung in kernels.ladders()["transpose"]:
        for padded in (None, (9, 13)):
            got, wanted = moved(backend, "complex64", 7, 11, {"TS": 4, "ROWS": 2, **rung.parameters}, padded=padded)
            assert np.array_equal(got, wanted)


def relayout(backend: gp.Backend, ops: str) -> None:
    """Runs that are aligned and that are not, copied and transposed; the last of a matrix reach to its end."""
    for turned, gap in ((0, 0), (1, 1)):
        for dtype, along in (("int8", 1), ("float16", 1), ("float32", 2)):
            parameters: dict[str, int | str] = {"TRANSPOSE": turned, "ALONG": along, "ITEMS": 128, "EACH": 8}
            got, wanted = moved(backend, dtype, 35, 37 - gap, parameters, batch=1, gap=gap, own=kernels.relayout.PASS)
            assert np.array_equal(got, wanted)


def pack(backend: gp.Backend, ops: str) -> None:
    """Panels, by way of a product: no extent is a multiple of theirs, and one operand is the same for all of the batch."""
    panels: dict[str, int | str] = {"MR": 6, "NR": 1, "VECTOR": 16, "MC": 6, "NC": 16, "KC": 8}
    for dtype in ("float32", "complex64", "float16", "bfloat16"):
        check(backend, problem_of(Sizes(17, 15, 13), ops, dtype, batch=2, share_a=True), "packed", panels)


def convert(backend: gp.Backend, ops: str) -> None:
    """Rounded operands, by way of a product: the last group of each is not full, and the batch shares one."""
    for precision in FORMATS:
        problem = problem_of(Sizes(17, 15, 13), ops, "complex64", batch=2, share_a=True)
        check(backend, replace(problem, precision=precision), "naive", {})


def rescale(backend: gp.Backend, ops: str) -> None:
    """Short rows and long ones, of several groups, none of which is full."""
    for m, n in ((17, 15), (3, 70), (2, 1100)):
        problem = GemmProblem.create(m, n, 0, batch=2, dtype="float8_e5m2", output="bfloat16", alpha=-2, beta=1)
        got, wanted = rescaled(backend, problem, "rows, columns")
        assert np.array_equal(got.view(np.uint16), wanted.view(np.uint16))


def microbenchmarks(backend: gp.Backend, ops: str) -> None:
    """Each function, of several groups."""
    check_microbenchmarks(backend)


PASSES = {
    "pack": pack,
    "convert": convert,
    "rescale": rescale,
    "microbenchmarks": microbenchmarks,
    "copy_strided": copy_strided,
    "times_vector": times_vector,
    "fill_random": fill_random,
    "reduce": reduce,
    "transpose": transpose,
    "relayout": relayout,
}


# One sub-group, whose lanes read their own registers alone.
LONE_LANES = {
    "SUB_GROUP": 32,
    "this_sub_group()": "0",
    "this_lane()": "this_item()",
    "shuffled_word(x, lane)": "x",
    "shuffled_down_word(x, offset)": "x",
}


@contextmanager
def every_kernel() -> Iterator[None]:
    """Lets `shuffle` be planned, of which the form with USE_SHUFFLE = 0 needs no sub-groups; of any other, sums are wrong. And
    `packed`, though the simulator says that it is a GPU.
    """
    with (
        mock.patch.object(Packed, "unsupported", return_value=None),
        mock.patch.object(Shuffle, "unsupported", return_value=None),
        mock.patch.object(sub_groups, "shuffle_defines", return_value=LONE_LANES),
    ):
        yield


def main(said: str) -> None:
    channel = Channel()
    with open(said, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    guarded_run.DEFAULT_GUARD = 0  # the simulator itself sees what is beyond an operand's end
    for variant in EXTENSIONS:
        gp.register(variant)
    while (told := channel.hear()) is not None:
        wrong = ""
        try:
            simulate(**told)
        except Exception:  # noqa: BLE001 - told to whoever asked
            wrong = traceback.format_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        channel.tell({"wrong": wrong})


def simulate(kernel: str, params: Mapping[str, int | str], ops: str, fault: str) -> None:
    """Computes a kernel's products of all pairs of ops; with a fault, until Oclgrind complains."""
    with planted(fault, kernel) if fault else nullcontext(), every_kernel():
        for pair in ops.split(","):
            if compute(kernel, params, pair, until_noticed=bool(fault)):
                break


def products(kernel: str, ops: str) -> Iterator[tuple[gp.GemmProblem, bool]]:
    """With edges and without, aligned and not; in place, which is told beside each; without terms."""
    if kernel == "simt":  # whose groups share tiles that have so many steps, one of them parts of two
        yield problem_of(Sizes(9, 40, 83), ops, "float32", beta=0.5), False
    if kernel == "batched":  # whose matrices of the size of the tile are moved as one row
        yield gp.GemmProblem.create(12, 20, 6, batch=3, trans_a=ops[0], trans_b=ops[1], beta=0.5), False
    for sizes, batch, multiple in (
        (Sizes(9, 19, 11), 2, 1),
        (Sizes(9, 19, 11), 2, WIDEST_RUN),
        (Sizes(1, 1, 1), 1, 1),
        (Sizes(16, 16, 16), 1, WIDEST_RUN),
    ):
        yield problem_of(sizes, ops, "float32", alpha=2.0, beta=-1.0, batch=batch, multiple=multiple), False
    yield problem_of(Sizes(9, 19, 11), ops, "float32", in_place=True, beta=0.5), True
    yield problem_of(Sizes(9, 19, 0), ops, "float32"), False


def compute(kernel: str, params: Mapping[str, int | str], ops: str, *, until_noticed: bool) -> bool:
    """Computes a kernel's products, all or until Oclgrind complains, which is returned."""
    backend = gp.get_backend("opencl", device="oclgrind")
    if kernel in PASSES:
        PASSES[kernel](backend, ops)
        return False
    before = complaints()
    for problem, in_place in products(kernel, ops):
        check(backend, problem, kernel, params, in_place=in_place)
        if until_noticed and complaints() > before:
            return True
    return False


def complaints() -> int:
    """Bytes of Oclgrind's log."""
    log = Path(os.environ["OCLGRIND_LOG"])
    return log.stat().st_size if log.exists() else 0


if __name__ == "__main__":
    main(*sys.argv[1:])
