"""The program cache: what is stored comes back as it was, or not at all."""

from __future__ import annotations

import logging
import multiprocessing
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemmport.cache import cache_folder, load_program, program_key, store_program

KEY = program_key("source", "device")
PAYLOAD = bytes(range(256)) + b"\x00\r\n\xff"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def entry(folder: Path) -> Path:
    """The file of a stored program."""
    store_program(KEY, PAYLOAD)
    (path,) = (path for path in folder.rglob("*") if path.is_file())
    return path


@pytest.mark.parametrize("payload", [PAYLOAD, b"", b"x" * 2**20], ids=["bytes", "empty", "long"])
def test_a_stored_program_comes_back(payload: bytes) -> None:
    store_program(KEY, payload)
    assert load_program(KEY) == payload


def test_a_program_that_was_never_stored_is_none() -> None:
    assert load_program(KEY) is None


def test_a_program_replaces_the_one_under_the_same_key() -> None:
    store_program(KEY, b"old, and longer")
    store_program(KEY, b"new")
    assert load_program(KEY) == b"new"


def test_programs_of_other_keys_are_other_programs() -> None:
    other = program_key("another source", "device")
    store_program(KEY, b"one")
    store_program(other, b"other")
    assert (load_program(KEY), load_program(other)) == (b"one", b"other")


def test_nothing_but_the_entry_is_left_behind(folder: Path, entry: Path) -> None:
    assert [path for path in folder.rglob("*") if path.is_file()] == [entry]


# Damage


def assert_absent(caplog: pytest.LogCaptureFixture, entry: Path) -> None:
    caplog.clear()
    assert load_program(KEY) is None
    assert caplog.messages == [f"the cached program {entry} is damaged: compiling again"]


def test_every_truncation_is_absent_and_logged(entry: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = entry.read_bytes()
    for length in range(len(data)):
        entry.write_bytes(data[:length])
        assert_absent(caplog, entry)


def test_every_flipped_bit_is_absent_and_logged(entry: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = entry.read_bytes()
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1 << position % 8
        entry.write_bytes(broken)
        assert_absent(caplog, entry)


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\x7fELF" + bytes(200), PAYLOAD], ids=["empty", "line", "ELF", "payload"]
)
def test_a_foreign_file_is_absent_and_logged(entry: Path, caplog: pytest.LogCaptureFixture, data: bytes) -> None:
    entry.write_bytes(data)
    assert_absent(caplog, entry)


def test_bytes_after_the_end_are_damage(entry: Path, caplog: pytest.LogCaptureFixture) -> None:
    entry.write_bytes(entry.read_bytes() + b"\x00")
    assert_absent(caplog, entry)


def test_the_entry_of_another_key_is_damage(entry: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that was copied or renamed is a sound program of another source."""
    other = program_key("another source")
    store_program(other, PAYLOAD)
    (copied,) = (path for path in entry.parents[1].rglob(other) if path.is_file())
    entry.write_bytes(copied.read_bytes())
    assert_absent(caplog, entry)


def test_a_damaged_entry_is_replaced_by_the_next_store(entry: Path) -> None:
    entry.write_bytes(b"damaged")
    store_program(KEY, PAYLOAD)
    assert load_program(KEY) == PAYLOAD


# Keys

parts = st.lists(st.text(max_size=5), max_size=4)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        (("ab",), ("a", "b")),
        (("a", ""), ("a",)),
        (("", "a"), ("a", "")),
        ((), ("",)),
        (("a\x00b",), ("a", "b")),
        (("ä",), ("a",)),
    ],
)
def test_parts_that_read_alike_together_have_other_keys(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert program_key(*one) != program_key(*other)


@given(parts, parts)
def test_keys_are_equal_exactly_where_all_parts_are(one: list[str], other: list[str]) -> None:
    assert (program_key(*one) == program_key(*other)) == (one == other)


@given(parts)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_key_is_a_file_name_everywhere(words: list[str]) -> None:
    assert set(program_key(*words)) <= set("0123456789abcdef")


# Folders


def test_the_folder_is_the_one_of_the_environment(folder: Path) -> None:
    assert cache_folder() == folder


@pytest.mark.parametrize("value", [None, ""])
def test_without_one_it_is_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("GEMMPORT_CACHE_DIR")
    if value is not None:
        monkeypatch.setenv("GEMMPORT_CACHE_DIR", value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path("/home-of-a-test")))
    assert cache_folder().is_absolute()
    assert "gemmport" in cache_folder().parts[-1].lower() + cache_folder().parts[-2].lower()


def test_a_folder_that_cannot_be_made_is_a_log_line(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.write_text("a file stands where the folder should be")
    store_program(KEY, PAYLOAD)
    assert "cannot write the program cache" in caplog.messages[0]
    assert load_program(KEY) is None
    assert "cannot read the program cache" in caplog.messages[1]


@pytest.mark.parametrize("call", ["mkstemp", "replace"])
def test_a_write_that_fails_is_a_log_line_and_leaves_nothing_behind(
    call: str, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr({"mkstemp": "tempfile.mkstemp", "replace": "os.replace"}[call], refuse)
    store_program(KEY, PAYLOAD)
    (line,) = caplog.messages
    assert line.startswith("cannot write the program cache")
    assert line.endswith("Permission denied")
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_an_interrupted_write_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store_program(KEY, PAYLOAD)
    assert not [path for path in folder.rglob("*") if path.is_file()]


# Several processes


def payload_of(writer: int) -> bytes:
    return bytes([writer]) * 100_000


def write_often(folder: str, writer: int, start: object) -> None:
    os.environ["GEMMPORT_CACHE_DIR"] = folder
    logging.disable()
    start.wait()
    for _ in range(50):
        store_program(KEY, payload_of(writer))


def test_processes_that_write_the_same_key_at_once_leave_a_sound_entry(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At the end, and at every moment on the way: a reader never sees half of an entry."""
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(3)
    writers = [context.Process(target=write_often, args=(str(folder), number, start)) for number in (1, 2)]
    for writer in writers:
        writer.start()
    start.wait(timeout=60)
    seen = set()
    while any(writer.is_alive() for writer in writers):
        seen.add(load_program(KEY))
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert load_program(KEY) in {payload_of(1), payload_of(2)}
    assert seen <= {None, payload_of(1), payload_of(2)}
    assert not caplog.messages
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 1
