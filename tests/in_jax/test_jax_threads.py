"""XLA calls from its own threads, when it wants to: nothing waits for ever, nothing is mixed up, and the end is quiet."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from absences import JAX_ON_CPUS, needs
from exact import integers

if JAX_ON_CPUS.is_here():
    import jax
    import jax.numpy as jnp

    import gemmport.jax as gj

pytestmark = needs(JAX_ON_CPUS)


def made() -> tuple[Any, Any, np.ndarray]:
    a, b = integers((48, 48), np.float32), integers((48, 48), np.float32, np.random.default_rng(5))
    return jnp.asarray(a), jnp.asarray(b), ((a @ b) % 5) @ ((b @ a) % 5)


def test_many_calls_that_nobody_waits_for() -> None:
    x, y, wanted = made()
    product = jax.jit(lambda x, y: gj.matmul(gj.matmul(x, y) % 5, gj.matmul(y, x) % 5))
    for found in [product(x, y) for _ in range(100)]:
        np.testing.assert_array_equal(found, wanted)


def test_threads_while_another_holds_the_interpreter() -> None:
    x, y, wanted = made()
    product, right = jax.jit(lambda x, y: gj.matmul(gj.matmul(x, y) % 5, gj.matmul(y, x) % 5)), []
    threads = [
        threading.Thread(target=lambda: right.extend(np.array_equal(product(x, y), wanted) for _ in range(20)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        sum(range(1000))
    assert right == [True] * 80


def test_inside_of_loops_and_branches() -> None:
    x, y, _ = made()

    @jax.jit
    def power(x: Any, odd: Any) -> Any:
        found, _ = jax.lax.scan(lambda kept, _: (gj.matmul(kept, y) % 5, None), x, None, length=9)
        return jax.lax.cond(odd, lambda z: gj.matmul(z, y) % 5, lambda z: z, found)

    for odd in (False, True):
        wanted = np.asarray(x)
        for _ in range(9 + odd):
            wanted = wanted @ np.asarray(y) % 5
        np.testing.assert_array_equal(power(x, odd), wanted)


DEVICES = """
import jax, jax.numpy as jnp, numpy as np
import gemmport.jax as gj

a = np.arange(2 * 32 * 32, dtype=np.float32).reshape(2, 32, 32) % 5
product = jax.pmap(gj.matmul)
for _ in range(10):
    found = [product(a, a) for _ in range(10)]
    assert all(np.array_equal(each, a @ a) for each in found)
print(len(found[0].devices()))
"""

ENDING = """
import jax, jax.numpy as jnp
import gemmport.jax as gj

x, product = jnp.ones((700, 700)), jax.jit(gj.matmul)
product(x, x).block_until_ready()
kept = [product(x, x) for _ in range(20)]  # which nobody waits for
print("end")
"""


def run(code: str, **variables: str) -> tuple[int, str, str]:
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, **variables},
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.processes
def test_two_devices_of_jax_at_once() -> None:
    assert run(DEVICES, XLA_FLAGS="--xla_force_host_platform_device_count=2") == (0, "2\n", "")


@pytest.mark.processes
def test_the_end_of_a_process_is_quiet() -> None:
    assert run(ENDING) == (0, "end\n", "")
