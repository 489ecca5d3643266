"""What never ends ends all the same, with an error that says who runs, or waits, and where."""

from __future__ import annotations

import time

import numpy as np
import pytest

import gemmport as gp
from absences import CXX, needs
from host import ORDERS
from on_host import opened

pytestmark = needs(CXX)

WITHOUT_END = """
extern "C" __global__ void runs(unsigned *out)
{
    volatile unsigned x = 0;
    __syncthreads();
    while (x == 0)
        ;
    out[threadIdx.x] = x;
}
extern "C" __global__ void meets(unsigned *out)
{
    volatile unsigned x = 0;
    while (x == 0)
        __syncthreads();
    out[threadIdx.x] = x;
}
extern "C" __global__ void ends(unsigned *out) { out[threadIdx.x] = threadIdx.x; }
"""


@pytest.mark.sample(order=["forward"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_launch_that_never_ends_is_ended_and_the_next_one_runs(order: str) -> None:
    """Whether its work-items come to a barrier or not."""
    cpu = opened()
    cpu.order, cpu.seconds = order, 0.1
    program = cpu.program(WITHOUT_END)
    memory = cpu.asarray(np.zeros(64, np.uint32)).memory
    for function in ("runs", "meets"):
        start = time.thread_time()
        with pytest.raises(gp.LaunchError, match=rf"{function}, .* runs after 0\.1 seconds, .* in line \d+"):
            cpu.launch(cpu.prepare(program, function, (2, 1, 1), (64, 1, 1), [memory]))
        assert 0.1 <= time.thread_time() - start < 3
    cpu.launch(cpu.prepare(program, "ends", (1, 1, 1), (64, 1, 1), [memory]))
    out = np.zeros(64, np.uint32)
    cpu.download(memory, out)
    assert out.tolist() == list(range(64))


def test_all_who_wait_in_vain_are_told() -> None:
    cpu = opened()
    program = cpu.program(
        'extern "C" __global__ void waits(unsigned *out) { if (threadIdx.x % 32 == 0) __syncwarp(); else __syncthreads(); }'
    )
    memory = cpu.asarray(np.zeros(64, np.uint32)).memory
    with pytest.raises(gp.LaunchError, match=r"work-item 0 waits in line 1 for others that never come there"):
        cpu.launch(cpu.prepare(program, "waits", (1, 1, 1), (64, 1, 1), [memory]))
