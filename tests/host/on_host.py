"""What is tried of CUDA sources on the host: small products and passes, exact in whichever order work-items take turns.

As a program it tries kernels, passes and SCALES by name, all where none is named, in an environment where sanitizers watch
(`host_compiler.sanitized`); test_host.py starts it:

    python on_host.py [--fault FAULT] [NAME …]

FAULT is one of FAULTS, which is planted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(folder) for folder in (TESTS, *sorted(TESTS.iterdir())) if folder.is_dir()]

import exact  # noqa: E402 - found in the folders above
import gemmport as gp  # noqa: E402
import under_oclgrind  # noqa: E402
from exact import WIDEST_RUN, Sizes, check, problem_of  # noqa: E402
from gemmport import kernels  # noqa: E402
from gemmport.checking import guarded_run  # noqa: E402
from gemmport.contracts.kernel import Parameters  # noqa: E402
from host import ORDERS, Host  # noqa: E402
from mutations import Edit, Mutation, planted  # noqa: E402
from on_device import check_scales_of_kernel, summed  # noqa: E402
from test_kernels import BASE, typed  # noqa: E402

VARIANTS = tuple(
    variant.name for variant in kernels.variants() if variant.name != "sub_group_mma"
)  # OpenCL has that alone

SIZES = Sizes(33, 19, 21)
"""Edges along every dimension of every tile; more than one step along k."""

SHARED = {"simt": Sizes(19, 67, 83), "mma": Sizes(33, 67, 300), "wgmma": Sizes(33, 67, 520)}
"""So many steps that groups share tiles."""

MORE: dict[str, Parameters] = {
    "prefetch": {**BASE["prefetch"], "STAGES": 1, "REG_PREFETCH": 0},
    "shuffle": {},  # of several warps
    "simt": {**BASE["simt"], "TSK": 16, "SLICES": 4},
    "mma": {**BASE["mma"], "WM": 32, "WN": 16, "SHARE": 0},
}
"""Parameters with which kernels have, or need, barriers that they do without with those of BASE."""

BY_MATRIX_UNIT: Parameters = {
    "TSM": 32, "TSN": 32, "TSK": 16, "WM": 32, "WN": 16, "WPTM": 4, "WPTN": 4, "STAGES": 3, "MMA": 1, "PAD": 0
}  # fmt: skip
"""Of `simt`, in float64 and complex128."""

SHARED_SLICES: Parameters = {**BY_MATRIX_UNIT, "SLICES": 2, "SHARE": 1}
"""Likewise, with sums in parts."""

HELD_BY_LINE: dict[str, Parameters] = {
    "a": {**BY_MATRIX_UNIT, "WM": 16, "WN": 32, "LINES": 1},
    "b": {**BY_MATRIX_UNIT, "LINES": 1},
}
"""Of `simt` in float64, by the operand that is held so."""

BY_MATRIX_CORES: dict[str, Parameters] = {
    "float32": {"TSM": 64, "TSN": 128, "TSK": 8, "WM": 64, "WN": 64, "WPTM": 16, "WPTN": 4, "STAGES": 2, "MMA": 2},
    "float64": {
        "TSM": 64,
        "TSN": 64,
        "TSK": 16,
        "WM": 32,
        "WN": 64,
        "WPTM": 8,
        "WPTN": 4,
        "SLICES": 2,
        "MMA": 2,
        "PAD": 0,
    },
}
"""Of `simt`, by type."""


def opened() -> Host:
    """The host's only device."""
    return Host(Host.discover().devices[0])


def in_every_order(backend: Host, tried: Callable[[], object]) -> None:
    """Tries something in every order of work-items' turns, of which `backend.order` is the last that was tried."""
    for backend.order in ORDERS:
        tried()


def product(
    backend: Host, kernel: str, ops: str, params: Parameters | None = None, dtype: str = "", **types: Any
) -> None:
    """A product by a kernel, in float32 or what it has instead: scaled where its type can be, with edges, of a batch; rows are
    aligned where A is transposed.
    """
    dtype = dtype or typed(kernel, "float32")
    scalars: dict[str, Any] = {} if dtype == "bool" else {"alpha": 2.0, "beta": -1.0}
    if dtype.startswith("complex"):
        scalars = {"alpha": 2 - 1j, "beta": 1j - 1}
    multiple = 1 if ops[0] == "N" else WIDEST_RUN
    problem = problem_of(SHARED.get(kernel, SIZES), ops, dtype, batch=2, multiple=multiple, **scalars, **types)
    chosen = BASE[kernel] if params is None else params
    in_every_order(backend, lambda: check(backend, problem, kernel, chosen))


def reduce(backend: gp.Backend, ops: str) -> None:
    """Sums by every tree; the last group is not full."""
    values = exact.integers((333,), "complex64")
    for rung in kernels.ladders()["reduce"]:
        assert summed(backend, values, {**rung.parameters, "ITEMS": 64}, guard=0) == values.sum(), rung.name


PASSES: dict[str, Callable[..., None]] = {**under_oclgrind.PASSES, "reduce": reduce}


SCALES = "wgmma-scales"


def scales(backend: Host) -> None:
    """A product with edges, of a batch, which `wgmma` multiplies by scales."""
    problem = gp.GemmProblem.create(
        67, 131, 160, batch=2, dtype="float8_e4m3fn", output="bfloat16", trans_b="T", alpha=2.0, beta=-1.0
    )
    check_scales_of_kernel(backend, "wgmma", problem, {**BASE["wgmma"], "SHARE": 0})


def run_pass(backend: Host, name: str) -> None:
    """What is tried of a pass."""
    in_every_order(backend, lambda: PASSES[name](backend, "NT"))


def fault(pattern: str, replacement: str, kernel: str) -> Mutation:
    """An edit of a kernel's CUDA source."""
    return Mutation(pattern, (Edit(pattern, replacement),), (kernel,))


FAULTS = {
    "reads beyond a matrix": fault("p < k;", "p <= k;", "naive"),
    "writes beyond shared memory": fault(
        r"tile \+= place\.term \* pitch", r"tile += (place.term + 1) * pitch", "prefetch"
    ),
    "reads runs that are not aligned": fault(
        r"FETCH_RUN_A\((.*)\);", r"fetch_run(A + INDEX_A(\1), PRESENT_A(\1), true);", "prefetch"
    ),
    "reads scales beyond the last row": fault(r"PRESENT\(below < m, 1\) > 0 \? row_scale", "1 ? row_scale", "wgmma"),
    "reads scales beyond the last column": fault(r"w \* APART < present \? column_scale", "1 ? column_scale", "wgmma"),
    "overflows": fault("acc_t sum = ACC_ZERO;", "acc_t sum = (acc_t)(0x7fffffff + m) * 0;", "naive"),
}


def main(arguments: Sequence[str]) -> None:
    """Tries what is named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args(arguments)
    guarded_run.DEFAULT_GUARD = 0  # what is beyond an operand's end is the sanitizer's to see
    backend = opened()
    for name in options.names or (*VARIANTS, *PASSES, SCALES):
        sys.stdout.write(f"{name}\n")
        with planted(FAULTS[options.fault], name.partition("-")[0]) if options.fault else nullcontext():
            if name == SCALES:
                scales(backend)
            elif name in PASSES:
                run_pass(backend, name)
            else:
                product(backend, name, "NT")
                product(backend, name, "TN")
            if name == "simt":
                product(backend, name, "TN", BY_MATRIX_UNIT, "float64")
                product(backend, name, "CR", SHARED_SLICES, "complex128")
                product(backend, name, "NT", BY_MATRIX_CORES["float32"])
            if name == "mma":
                product(backend, name, "TN", MORE[name], "int8", output="int32")


if __name__ == "__main__":
    main(sys.argv[1:])
