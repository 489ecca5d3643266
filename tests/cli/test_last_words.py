"""What is said where a runtime ends the process of a command: a real library that aborts, found by the loader's ICD file."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from absences import CXX, LINUX, skip_without

COMMAND = [sys.executable, "-c", "from gemmport.cli import main; main()"]
TOLD = "gemmport doctor tries each apart"


@pytest.fixture(scope="module")
def aborting(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the loader finds one runtime, which aborts as it is loaded."""
    skip_without(CXX)
    skip_without(LINUX)
    folder = tmp_path_factory.mktemp("runtime")
    source, library = folder / "runtime.cpp", folder / "libaborts.so"
    source.write_text("#include <cstdlib>\n__attribute__((constructor)) static void loaded() { abort(); }\n")
    subprocess.run([os.environ.get("CXX", "c++"), "-shared", "-fPIC", "-o", library, source], check=True)
    (folder / "aborts.icd").write_text(f"{library}\n")
    return {**os.environ, "OCL_ICD_VENDORS": str(folder), "GEMMPORT_BACKEND": "opencl"}


@pytest.mark.sample(command=["devices"])
@pytest.mark.processes
@pytest.mark.parametrize("command", ["devices", "run --size 4", "run --device intel", "devices --format json"])
def test_a_runtime_that_aborts_does_not_end_a_command_without_a_word(aborting: dict[str, str], command: str) -> None:
    ended = subprocess.run([*COMMAND, *command.split()], env=aborting, capture_output=True, text=True, check=False)
    assert ended.returncode == -6
    assert TOLD in ended.stderr
    assert not ended.stdout


@pytest.mark.processes
def test_the_library_says_nothing_in_its_place(aborting: dict[str, str]) -> None:
    script = [sys.executable, "-c", "import gemmport; gemmport.devices()"]
    ended = subprocess.run(script, env=aborting, capture_output=True, text=True, check=False)
    assert ended.returncode == -6
    assert TOLD not in ended.stderr


def test_nothing_is_said_where_all_is_well() -> None:
    script = (
        "from gemmport.runtime import last_words\nlast_words.leave('the end')\nwith last_words.if_it_ends(): pass\n"
    )
    for end, told in (("", ""), ("with last_words.if_it_ends(): import os; os._exit(0)", "the end\n")):
        ended = subprocess.run([sys.executable, "-c", script + end], capture_output=True, text=True, check=True)
        assert ended.stderr == told
