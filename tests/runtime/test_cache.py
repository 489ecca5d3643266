"""The program cache: what is stored comes back as it was, or not at all."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemmport.backends import _runtimes
from gemmport.core.errors import UntrustedError
from gemmport.runtime import cache
from gemmport.runtime.cache import (
    CacheUse,
    cache_folder,
    cache_use,
    check_writable,
    clear_cache,
    load_program,
    load_text,
    program_key,
    store_program,
    store_text,
)

KEY = program_key("source", "device")
PAYLOAD = bytes(range(256)) + b"\x00\r\n\xff"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def careless() -> Iterator[None]:
    """What this process makes, everybody may change."""
    before = os.umask(0)
    yield
    os.umask(before)


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


# Texts


def test_a_text_comes_back_under_its_key_alone(caplog: pytest.LogCaptureFixture) -> None:
    other = program_key("another")
    assert load_text("notes", KEY) is None
    store_text("notes", KEY, "größer")
    assert (load_text("notes", KEY), load_text("notes", other), load_text("others", KEY)) == ("größer", None, None)
    store_text("notes", other, "")
    assert (load_text("notes", KEY), load_text("notes", other)) == (None, "")
    assert not caplog.messages  # to be replaced is no damage


def test_texts_are_no_programs() -> None:
    store_text("notes", KEY, "text")
    assert cache_use() == CacheUse(0, 0)
    assert clear_cache() == (CacheUse(0, 0), 0)
    assert load_text("notes", KEY) == "text"


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
    assert caplog.messages[0].endswith("set GEMMPORT_CACHE_DIR")


def test_an_unusable_folder_is_warned_of_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not for each program, nor once more for reading; but another folder is another matter."""
    caplog.set_level(logging.DEBUG, "gemmport.runtime.cache")
    for place in (folder, folder.with_name("other")):
        caplog.clear()
        place.write_text("a file stands where the folder should be")
        monkeypatch.setenv("GEMMPORT_CACHE_DIR", str(place))
        for number in range(3):
            assert load_program(program_key(str(number))) is None
            store_program(program_key(str(number)), PAYLOAD)
        assert [record.levelname for record in caplog.records] == ["WARNING", *["DEBUG"] * 5]


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
    assert "Permission denied" in line
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_an_interrupted_write_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store_program(KEY, PAYLOAD)
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_a_folder_that_can_be_written_to_is_made(folder: Path) -> None:
    check_writable()
    assert folder.is_dir()
    assert not list(folder.iterdir())


def test_a_folder_that_cannot_be_written_to_is_an_error(folder: Path) -> None:
    folder.write_text("a file stands where the folder should be")
    with pytest.raises(OSError, match="cache"):
        check_writable()


# Folders and entries that somebody else may have made


@pytest.mark.parametrize("depth", range(4))
def test_a_program_in_a_folder_that_others_may_write_to_is_absent(
    folder: Path, entry: Path, depth: int, caplog: pytest.LogCaptureFixture
) -> None:
    """However right its key and checksum are, they may have forged it. The log says so once."""
    caplog.set_level(logging.DEBUG, "gemmport.runtime.cache")
    before = entry.read_bytes()
    place = (entry.parent, entry.parents[1], folder, folder.parent)[depth]
    mode = place.stat().st_mode
    place.chmod(0o777)
    assert load_program(KEY) is None
    store_program(KEY, b"other")
    assert entry.read_bytes() == before
    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG"]
    assert f"{place} must be owned by root or by you" in caplog.messages[0]
    place.chmod(mode)
    assert load_program(KEY) == PAYLOAD


def test_what_others_may_write_to_is_neither_measured_nor_cleared(folder: Path, entry: Path) -> None:
    folder.chmod(0o777)
    for call in (cache_use, clear_cache, check_writable):
        with pytest.raises(UntrustedError):
            call()
    assert entry.exists()


def test_an_entry_that_others_may_write_is_absent_and_replaced(entry: Path) -> None:
    entry.chmod(0o666)
    assert load_program(KEY) is None
    store_program(KEY, PAYLOAD)
    assert load_program(KEY) == PAYLOAD


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/stdin", "the same program"])
def test_an_entry_that_is_a_link_is_absent_and_replaced(entry: Path, tmp_path: Path, target: str) -> None:
    """/dev/zero has no end."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(entry.read_bytes())
    elsewhere.chmod(0o600)
    entry.unlink()
    entry.symlink_to(elsewhere if target == "the same program" else target)
    assert load_program(KEY) is None
    before = elsewhere.read_bytes()
    store_program(KEY, b"new")
    assert (load_program(KEY), elsewhere.read_bytes()) == (b"new", before)


def test_an_entry_without_end_is_absent(entry: Path) -> None:
    os.truncate(entry, 2**40)
    assert load_program(KEY) is None


def test_a_fifo_in_the_place_of_an_entry_is_absent(entry: Path) -> None:
    entry.unlink()
    os.mkfifo(entry)
    assert load_program(KEY) is None


@pytest.mark.usefixtures("careless")
def test_folders_and_entries_are_made_for_the_user_alone(folder: Path) -> None:
    store_program(KEY, PAYLOAD)
    store_text("notes", KEY, "text")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*")) if path.is_dir()}
    assert modes == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()} == {0o600}


@pytest.mark.parametrize("depth", [0, 1])
def test_nothing_is_removed_through_a_link(folder: Path, entry: Path, tmp_path: Path, depth: int) -> None:
    """Neither where a folder of programs is one, nor where the folder of all of them is."""
    linked = entry.parents[depth]
    precious = linked.rename(tmp_path / "precious")
    linked.symlink_to(precious)
    try:
        assert clear_cache() == (CacheUse(0, 0), 0)
    except UntrustedError:
        assert depth == 1
    kept = precious.rglob(KEY)
    assert [path.read_bytes()[-len(PAYLOAD) :] for path in kept] == [PAYLOAD]
    assert load_program(KEY) is None
    store_program(KEY, b"other")
    assert [path.read_bytes()[-len(PAYLOAD) :] for path in precious.rglob(KEY)] == [PAYLOAD]


# Use and clearing


def test_what_the_programs_take_is_counted(folder: Path) -> None:
    assert cache_use() == CacheUse(0, 0)
    for text in "abc":
        store_program(program_key(text), PAYLOAD)
    stored = [path for path in folder.rglob("*") if path.is_file()]
    assert cache_use() == CacheUse(3, sum(path.stat().st_size for path in stored))
    assert cache_use().nbytes > 3 * len(PAYLOAD)


def test_clearing_removes_every_program_and_says_what_was_freed(folder: Path) -> None:
    for text in "abc":
        store_program(program_key(text), PAYLOAD)
    before = cache_use()
    assert clear_cache() == (before, 0)
    assert cache_use() == CacheUse(0, 0)
    assert load_program(program_key("a")) is None
    assert clear_cache() == (CacheUse(0, 0), 0)


def test_clearing_touches_nothing_that_is_not_a_program(folder: Path, entry: Path) -> None:
    """A user may name the wrong folder; and runtimes are registered in this one."""
    others = [
        folder / "thesis.pdf",
        folder / "icd" / "python" / "intel.icd",
        folder / "programs" / "thesis.pdf",
        folder / "programs" / "ab" / "thesis.pdf",
        folder / "programs" / "ab" / ("cd" + 62 * "0"),
        folder / "programs" / "ab" / (63 * "a"),
        folder / "programs" / "ab" / "about me.txt",
        folder / "programs" / "mine" / ("ab" + 62 * "0"),
        folder / "ab" / ("ab" + 62 * "0"),
    ]
    for other in others:
        other.parent.mkdir(parents=True, exist_ok=True)
        other.write_text("mine")
        os.utime(other, (0, 0))
    assert clear_cache()[0].programs == 1
    assert not entry.exists()
    assert all(other.read_text() == "mine" for other in others)


def test_clearing_leaves_what_is_being_written_and_removes_what_was_abandoned(folder: Path, entry: Path) -> None:
    fresh, old = entry.with_name("tmpabc123.tmp"), entry.with_name("tmp_old_12.tmp")
    for path in (fresh, old):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert clear_cache()[0].programs == 1
    assert (fresh.exists(), old.exists()) == (True, False)


def test_a_program_that_cannot_be_removed_is_counted_and_named(
    entry: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    assert clear_cache() == (CacheUse(0, 0), 1)
    assert caplog.messages == [f"cannot remove {entry}: [Errno 13] Permission denied"]


def test_a_program_that_another_process_removes_meanwhile_is_not_counted(
    entry: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = cache._size

    def size_then_gone(path: Path) -> int | None:
        size = real(path)
        os.unlink(path)
        return size

    monkeypatch.setattr(cache, "_size", size_then_gone)
    assert clear_cache() == (CacheUse(0, 0), 0)
    assert not caplog.messages


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


def test_clearing_while_another_process_writes_does_no_harm(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither a warning here nor one there, and what was written last is there, or was removed as a whole."""
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    warned = context.Value("i", 0)
    writer = context.Process(target=write_often_and_count_warnings, args=(str(folder), start, warned))
    writer.start()
    start.wait(timeout=60)
    removed = 0
    while writer.is_alive():
        removed += clear_cache()[0].programs
    writer.join()
    assert (writer.exitcode, warned.value, caplog.messages) == (0, 0, [])
    assert removed > 0
    assert load_program(KEY) in {None, payload_of(1)}


def write_often_and_count_warnings(folder: str, start: object, warned: object) -> None:
    os.environ["GEMMPORT_CACHE_DIR"] = folder

    class Count(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warned.value += 1

    logging.getLogger("gemmport").addHandler(Count())
    start.wait()
    for _ in range(200):
        store_program(KEY, payload_of(1))
        assert load_program(KEY) in {None, payload_of(1)}


# Runtimes of this environment are registered in the cache folder


@pytest.fixture
def intel_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Python environment that holds Intel's runtime, on a system that has none of it."""
    library = tmp_path / "venv" / "lib" / "libintelocl.so"
    library.parent.mkdir(parents=True)
    library.write_text("")
    monkeypatch.setattr(_runtimes.sysconfig, "get_path", lambda name: str(tmp_path / "venv"))
    monkeypatch.setattr(_runtimes.sys, "platform", "linux")
    monkeypatch.setenv("OCL_ICD_VENDORS", "")  # so that it is as before when the test ends
    monkeypatch.delenv("OCL_ICD_VENDORS")
    return library


def test_intels_runtime_is_registered_in_the_cache_folder(folder: Path, intel_wheel: Path) -> None:
    _runtimes.register()
    chosen = Path(os.environ["OCL_ICD_VENDORS"])
    assert folder in chosen.parents
    assert (chosen / "gemmport-intel.icd").read_text() == f"{intel_wheel}\n"


def test_where_the_cache_folder_is_unusable_a_temporary_folder_serves(
    folder: Path, intel_wheel: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write_text("a file stands where the folder should be")
    _runtimes.register()
    chosen = Path(os.environ["OCL_ICD_VENDORS"])
    assert chosen.name.startswith("gemmport-icd-")
    assert (chosen / "gemmport-intel.icd").read_text() == f"{intel_wheel}\n"
    assert not caplog.messages


@pytest.mark.parametrize("depth", ["icd", "icd/of this environment"])
def test_nothing_is_removed_or_written_through_a_link_in_the_place_of_the_list(
    folder: Path, intel_wheel: Path, tmp_path: Path, depth: str
) -> None:
    _runtimes.register()
    listed = Path(os.environ.pop("OCL_ICD_VENDORS"))
    linked = listed if "/" in depth else listed.parent
    shutil.rmtree(linked)
    precious = tmp_path / "precious"
    (precious / listed.name).mkdir(parents=True)
    files = [
        where / name for where in (precious, precious / listed.name) for name in ("mine.icd", "gemmport-intel.icd", "a")
    ]
    for file in files:
        file.write_text("mine")
    linked.symlink_to(precious)
    _runtimes.register()
    assert [file.read_text() for file in files] == ["mine"] * len(files)
    assert len(list(precious.rglob("*"))) == len(files) + 1
    assert folder not in Path(os.environ["OCL_ICD_VENDORS"]).parents


def test_a_link_in_the_list_is_replaced_and_what_it_leads_to_is_left_alone(
    folder: Path, intel_wheel: Path, tmp_path: Path
) -> None:
    _runtimes.register()
    listed = Path(os.environ.pop("OCL_ICD_VENDORS"))
    (tmp_path / "mine").write_text("mine")
    for name in ("gemmport-intel.icd", "other.icd"):
        (listed / name).unlink(missing_ok=True)
        (listed / name).symlink_to(tmp_path / "mine")
    (listed / "notes.txt").write_text("no runtime")
    _runtimes.register()
    assert (tmp_path / "mine").read_text() == "mine"
    assert (listed / "gemmport-intel.icd").read_text() == f"{intel_wheel}\n"
    assert not (listed / "other.icd").exists()
    assert (listed / "notes.txt").exists()


def test_a_list_that_others_may_write_is_not_used(folder: Path, intel_wheel: Path) -> None:
    _runtimes.register()
    listed = Path(os.environ.pop("OCL_ICD_VENDORS"))
    listed.chmod(0o777)
    _runtimes.register()
    assert folder not in Path(os.environ["OCL_ICD_VENDORS"]).parents


def test_a_list_that_is_right_is_not_written_again(
    folder: Path, intel_wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be on a file system that cannot be written to."""
    _runtimes.register()
    listed = os.environ.pop("OCL_ICD_VENDORS")
    monkeypatch.setattr("gemmport.runtime.trust.write_file", lambda path, data: pytest.fail(f"writes {path}"))
    _runtimes.register()
    assert os.environ["OCL_ICD_VENDORS"] == listed


@pytest.mark.parametrize("others", [["system.icd"], []])
def test_where_no_folder_is_usable_intels_runtime_is_the_only_one(
    folder: Path, intel_wheel: Path, others: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """What the loader then does without, the log says."""
    monkeypatch.setattr(_runtimes, "SYSTEM", tmp_path)
    for name in others:
        (tmp_path / name).write_text("libsystem.so")
    folder.write_text("a file stands where the folder should be")
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    _runtimes.register()
    assert os.environ["OCL_ICD_VENDORS"] == str(intel_wheel)
    assert [f"without {name}; set TMPDIR" in line for name, line in zip(others, caplog.messages, strict=True)] == [
        True
    ] * len(others)


# The folder of PoCL


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home, where PoCL keeps its programs if no variable says anything else."""
    for name in ("POCL_CACHE_DIR", "XDG_CACHE_HOME", "POCL_KERNEL_CACHE"):
        monkeypatch.setenv(name, "")  # so that it is as before when the test ends
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "home/.cache/pocl/kcache"),
        ({"POCL_KERNEL_CACHE": "0"}, "home/.cache/pocl/uncached"),
        ({"XDG_CACHE_HOME": "caches"}, "caches/pocl/kcache"),
        ({"POCL_CACHE_DIR": "own", "XDG_CACHE_HOME": "caches"}, "own"),
    ],
)
def test_pocl_keeps_its_own_folder_where_that_is_usable(
    home: Path, tmp_path: Path, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value if name == "POCL_KERNEL_CACHE" else str(tmp_path / value))
    before = dict(os.environ)
    assert _runtimes.choose_folder_of_pocl() == ""
    assert dict(os.environ) == before
    assert (tmp_path / expected).is_dir()


@pytest.mark.parametrize("fault", ["a file", "open to all"])
def test_else_it_is_given_one_in_the_cache(
    home: Path, folder: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(home / ".cache", fault)
    assert _runtimes.choose_folder_of_pocl() == ""
    assert os.environ["POCL_CACHE_DIR"] == str(folder / "pocl")
    assert not caplog.messages


@pytest.mark.parametrize("fault", ["a file", "open to all"])
def test_else_a_temporary_one_and_the_log_says_once_that_nothing_is_kept(
    home: Path, folder: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(home / ".cache", fault)
    spoil(folder, fault)
    assert _runtimes.choose_folder_of_pocl() == ""
    store_program(KEY, PAYLOAD)
    assert Path(os.environ["POCL_CACHE_DIR"]).name.startswith("gemmport-pocl-")
    (line,) = caplog.messages
    assert line.endswith("without it each process compiles anew: set GEMMPORT_CACHE_DIR")


def test_without_any_it_is_refused(home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(home / ".cache", "a file")
    spoil(folder, "a file")
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    detail, _, remedy = _runtimes.choose_folder_of_pocl().partition("; ")
    assert detail.startswith(
        "PoCL is left out: it writes what it compiles to a folder and loads it from there, and has none ("
    )
    assert str(home / ".cache") in detail
    assert remedy.startswith(
        "set POCL_CACHE_DIR or TMPDIR to a folder of your own that can be written to, or use another"
    )
    assert "POCL_CACHE_DIR" not in os.environ


def test_a_folder_in_which_others_may_make_files_is_none_for_pocl(home: Path, folder: Path) -> None:
    """The sticky bit keeps them from replacing what is there, and not from being the first."""
    (home / "shared").mkdir()
    (home / "shared").chmod(0o1777)
    os.environ["POCL_CACHE_DIR"] = str(home / "shared")
    assert _runtimes.choose_folder_of_pocl() == ""
    assert os.environ["POCL_CACHE_DIR"] == str(folder / "pocl")


def spoil(folder: Path, fault: str) -> None:
    if fault == "a file":
        folder.write_text("a file stands where the folder should be")
    else:
        folder.mkdir()
        folder.chmod(0o777)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("pocl.icd", "x", True),
        ("other.icd", "/opt/pocl/lib/libpocl.so", True),
        ("nvidia.icd", "libnvidia-opencl.so.1", False),
    ],
)
@pytest.mark.parametrize("chosen", ["folder", "file"])
def test_whether_pocl_may_be_found_is_told_by_its_icd_file(
    name: str, text: str, expected: bool, chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_text(text)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path if chosen == "folder" else tmp_path / name))
    assert _runtimes._pocl_is_here() == expected
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "gone"))
    assert not _runtimes._pocl_is_here()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "pocl_binary_distribution")
    assert _runtimes._pocl_is_here()


def test_a_user_without_a_home_has_a_folder_that_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The library's versions say differently that there is none."""

    def none(*arguments: object) -> str:
        raise RuntimeError("no home")

    monkeypatch.setattr("gemmport.runtime.cache._warned", set())  # as often as this test is run in a process
    monkeypatch.delenv("GEMMPORT_CACHE_DIR")
    for answer in (none, lambda *arguments: "~/.cache/gemmport"):
        monkeypatch.setattr("platformdirs.user_cache_dir", answer)
        store_program(KEY, PAYLOAD)
        with pytest.raises(NotADirectoryError):
            check_writable()
    assert len(caplog.messages) == 1


def test_the_default_folder_is_gemmports_of_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.delenv("GEMMPORT_CACHE_DIR")
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *words: asked.append(words) or "/home/ann/cache")
    assert cache_folder() == Path("/home/ann/cache")
    assert asked == [("gemmport", "gemmport")]
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *words: "~/cache")
    assert cache_folder() == Path(os.devnull, "gemmport")


def two_programs(folder: Path) -> list[Path]:
    for key in (KEY, program_key("other")):
        store_program(key, PAYLOAD)
    return [path for path in folder.rglob("*") if path.is_file()]


def test_where_another_process_is_faster_the_rest_is_cleared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_programs(folder)
    real, gone = Path.unlink, []

    def unlink(path: Path) -> None:
        real(path)
        if not gone:
            gone.append(path)
            raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "unlink", unlink)
    removed, refused = clear_cache()
    assert (removed.programs, refused) == (1, 0)
    assert cache_use() == CacheUse()


def test_each_program_that_cannot_be_removed_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(path)

    two_programs(folder)
    monkeypatch.setattr(Path, "unlink", refuse)
    assert clear_cache() == (CacheUse(), 2)


def test_a_program_of_unknown_size_counts_as_one_of_no_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_programs(folder)
    monkeypatch.setattr("gemmport.runtime.cache._size", lambda path: None)
    assert clear_cache() == (CacheUse(2, 0), 0)


def test_links_in_the_place_of_programs_are_passed_over(folder: Path) -> None:
    program, _ = two_programs(folder)
    link = program.with_name(program.parent.name + "0" * 62)
    link.symlink_to(program)
    assert cache_use().programs == 2
    assert clear_cache()[0].programs == 2
    assert link.is_symlink()
