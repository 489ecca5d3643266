"""A plugin of pytest. Tests marked `away_from_jax` run in a process of their own where JAX is at work on a GPU in this one.

A thread of JAX's waits for its streams every five seconds, by which CUDA breaks off a capture of its default mode
(docs/interchange.md). It does so until the process ends, also after `jax.extend.backend.clear_backends()`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MARKER = "away_from_jax"


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker."""
    config.addinivalue_line("markers", f"{MARKER}: must not share its process with JAX on a GPU")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test elsewhere, with what its own process would say of it; nothing where it may run here."""
    if pyfuncitem.get_closest_marker(MARKER) is None or not is_jax_at_work():
        return None
    options = [
        f"--{name}={value}" for name in ("backend", "device") if (value := pyfuncitem.config.getoption(name, None))
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, pyfuncitem.nodeid],
        cwd=pyfuncitem.config.rootpath, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        pytest.fail(f"away from JAX:\n{done.stdout}{done.stderr}", pytrace=False)
    if "1 passed" not in done.stdout:
        pytest.skip(f"away from JAX:\n{done.stdout}")
    return True


def is_jax_at_work() -> bool:
    """Whether JAX has been imported and computes on a GPU."""
    jax = sys.modules.get("jax")
    return jax is not None and jax.default_backend() == "gpu"
