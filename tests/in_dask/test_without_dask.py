"""gemmport.dask where Dask, or its scheduler, is not installed."""

from __future__ import annotations

import subprocess
import sys

from absences import DASK, skip_without

TRY = """
from gemmport.core.errors import LibraryUnavailableError
try:
    {0}
except LibraryUnavailableError as error:
    print(isinstance(error, ImportError), error)
"""


def run(hidden: str, code: str) -> str:
    hide = f"import sys; sys.modules[{hidden!r}] = None; import gemmport\n"
    return subprocess.run(
        [sys.executable, "-c", hide + code], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_the_error_says_how_to_get_it_and_is_an_import_error() -> None:
    told = run("dask", TRY.format("import gemmport.dask"))
    assert told.startswith("True gemmport.dask needs Dask's arrays (")
    assert told.endswith("): pip install 'gemmport[dask]'\n")


def test_nothing_else_needs_it() -> None:
    assert run("dask", "print(gemmport.matmul([[2]], [[3]]))") == "[[6]]\n"


def test_products_need_no_scheduler_and_what_does_says_so() -> None:
    skip_without(DASK)
    told = run("distributed", "import gemmport.dask\nprint(gemmport.dask.matmul.__name__)")
    assert told == "matmul\n"
    told = run("distributed", "import gemmport.dask" + TRY.format("gemmport.dask.WorkerDevice"))
    assert told.startswith("True gemmport.dask.WorkerDevice needs Dask's scheduler (")
