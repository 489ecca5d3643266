"""Memory of OpenCL's devices, which the backend allocates or takes from others."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import gemmport as gp
from absences import beyond
from gemmport.backends.objects import Memory

cl = pytest.importorskip("pyopencl")
arrays = pytest.importorskip("pyopencl.array")

symptoms = import_module("symptoms")  # which imports PyOpenCL


@pytest.mark.every_runtime
@pytest.mark.parametrize("given", ["allocated", "wrapped", "array"])
def test_two_threads_may_be_the_first_to_use_new_memory(backend: gp.Backend, given: str) -> None:
    """Without pocl-first-use's workaround this ends the process on that runtime, as a rule."""
    if backend.name != "opencl":
        pytest.skip(beyond(backend.device, "its buffers are not OpenCL's"))

    kept: list[Memory] = []  # none of it is given twice

    def made() -> Any:
        if given == "allocated":
            kept.append(backend.allocate(symptoms.TWO_HALVES))
        elif given == "wrapped":
            buffer = cl.Buffer(backend.context, cl.mem_flags.READ_WRITE, symptoms.TWO_HALVES)
            kept.append(backend.wrap(buffer, symptoms.TWO_HALVES, np.uint8).memory)
        else:
            kept.append(backend.adopt(arrays.empty(backend.queue, symptoms.TWO_HALVES, np.uint8)).memory)
        return kept[-1].native

    assert symptoms.used_first_by_two(backend, made, 1000)
