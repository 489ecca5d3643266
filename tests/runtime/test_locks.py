"""One process at a time, and never one that is gone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gemmport.runtime.locks import exclusive

HOLDER = """
import sys
from pathlib import Path
from gemmport.runtime.locks import exclusive
with exclusive(Path(sys.argv[1]), "work", 0) as held:
    print(held, flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        yield process
        process.kill()


def test_others_are_kept_out_until_the_process_ends(tmp_path: Path) -> None:
    with another_process(tmp_path) as process:
        with exclusive(tmp_path, "work", 0.1) as held:
            assert not held  # but the work is done
        with exclusive(tmp_path, "other work", 0) as held:
            assert held
        process.kill()
        with exclusive(tmp_path, "work", 60) as held:
            assert held
    with exclusive(tmp_path / "new", "work", 0) as held:
        assert held


def test_where_there_is_no_folder_the_work_is_done(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with exclusive(tmp_path / "file" / "folder", "work", 60) as held:
        assert not held


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such links for everybody")
def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with exclusive(tmp_path, "work", 0) as held:
        assert not held
    assert not (tmp_path / "elsewhere").exists()
