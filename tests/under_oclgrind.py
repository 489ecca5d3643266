"""Runs one kernel on Oclgrind's simulated device and checks its results; test_oclgrind.py starts it and reads the log.

    oclgrind --data-races --uninitialized --log FILE python under_oclgrind.py KERNEL PARAMETERS OPS [FOLDER]

PARAMETERS is a JSON object; FOLDER holds other sources of the kernel. A wrong result is an AssertionError.
"""

from __future__ import annotations

import json
import sys

import gemmport as gp
from exact import Sizes, check, problem_of
from extensions import EXTENSIONS
from gemmport import kernels


def main(kernel: str, params: str, ops: str, folder: str = "") -> None:
    for variant in EXTENSIONS:
        gp.register(variant)
    if folder:
        original = kernels.variant(kernel)
        changed = type(original)()
        changed.folder = folder  # type: ignore[misc]  # of this instance alone
        gp.register(changed)
    backend = gp.get_backend("opencl", device="oclgrind")
    for sizes, batch in ((Sizes(9, 19, 11), 2), (Sizes(1, 1, 1), 1), (Sizes(16, 16, 16), 1)):
        check(backend, problem_of(sizes, ops, "float32", alpha=2.0, beta=-1.0, batch=batch), kernel, json.loads(params))
    check(
        backend,
        problem_of(Sizes(9, 19, 11), ops, "float32", in_place=True, beta=0.5),
        kernel,
        json.loads(params),
        in_place=True,
    )
    check(backend, problem_of(Sizes(9, 19, 0), ops, "float32"), kernel, json.loads(params))


if __name__ == "__main__":
    main(*sys.argv[1:])
