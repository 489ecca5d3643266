"""Files of results are there whole or as they were, and are read within a bound."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gemmport.runtime import files


def test_a_file_is_written_and_keeps_its_rights(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    files.write_text(path, "ü")
    assert path.read_bytes() == "ü".encode()
    path.chmod(0o640)
    files.write_text(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["results.json"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "there" / "results.json")
    files.write_text(link, "text")
    assert link.is_symlink()
    assert (tmp_path / "there" / "results.json").read_text() == "text"


def test_who_is_ended_while_writing_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.json"
    files.write_text(path, "old")

    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files.shutil, "copymode", ended)
    with pytest.raises(KeyboardInterrupt):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["results.json"]


def test_what_lies_beside_is_not_written(tmp_path: Path) -> None:
    """Another user may have put a link there."""
    path, other = tmp_path / "results.json", tmp_path / "other"
    other.write_text("theirs")
    (tmp_path / f".results.json.{os.getpid()}").symlink_to(other)
    files.write_text(path, "ours")
    assert (path.read_text(), other.read_text()) == ("ours", "theirs")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_device_is_written_as_it_is() -> None:
    with pytest.raises(OSError, match="No space left"):
        files.write_text(Path("/dev/full"), "text")
    files.write_text(Path(os.devnull), "text")


def test_a_name_that_leaves_no_room_for_another_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    files.write_text(path, "text")
    assert path.read_text() == "text"


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev/zero")
def test_what_has_no_end_is_not_read_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    with pytest.raises(OSError, match="it must have at most 1,000 bytes"):
        files.read_bytes(Path("/dev/zero"))
