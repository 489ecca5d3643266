"""gemmport.jax where JAX is not installed."""

from __future__ import annotations

import subprocess
import sys

HIDDEN = "import sys; sys.modules['jax'] = sys.modules['jax.ffi'] = None; import gemmport; "


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", HIDDEN + code], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_the_error_says_how_to_get_it_and_is_an_import_error() -> None:
    told = run(
        "from gemmport.core.errors import LibraryUnavailableError\n"
        "try:\n    import gemmport.jax\n"
        "except LibraryUnavailableError as error:\n    print(isinstance(error, ImportError), error)"
    )
    assert told.startswith("True gemmport.jax needs JAX 0.5 or newer (")
    assert told.endswith("): pip install jax\n")


def test_nothing_else_needs_it() -> None:
    assert run("print(gemmport.gemm.__name__)") == "gemm\n"
