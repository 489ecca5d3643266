"""Which folders and files are trusted, and how they are made, read and written."""

from __future__ import annotations

import errno
import io
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmport.core.errors import UntrustedError
from gemmport.runtime import trust

STRANGER = 54321
"""A user who is neither root nor the one who runs the tests."""


@pytest.fixture(autouse=True)
def no_private_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests, a group is a group of others."""
    monkeypatch.setattr(trust, "_is_private", lambda group: False)


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a file look as if it were a stranger's; only root could do it."""
    given: set[tuple[int, int]] = set()

    def changed(ask: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def answer(*arguments: object, **options: object) -> os.stat_result:
            told = ask(*arguments, **options)
            if (told.st_dev, told.st_ino) not in given:
                return told
            return os.stat_result([STRANGER if n == 4 else value for n, value in enumerate(told)])

        return answer

    monkeypatch.setattr("os.fstat", changed(os.fstat))
    monkeypatch.setattr("os.lstat", changed(real := os.lstat))

    def give(path: Path) -> None:
        told = real(path)
        given.add((told.st_dev, told.st_ino))

    return give


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def file(folder: Path) -> Path:
    path = folder / "file"
    path.write_bytes(b"data")
    path.chmod(0o600)
    return path


# Folders


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o555, 0o1777, 0o1733])
def test_a_folder_that_others_cannot_write_to_is_trusted(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    assert trust.check_folder(folder) == folder.resolve()


@pytest.mark.parametrize("mode", [0o777, 0o702, 0o720, 0o775])
def test_a_folder_that_others_can_write_to_is_not(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(UntrustedError) as caught:
        trust.check_folder(folder)
    assert str(caught.value) == (
        f"{folder} must be owned by root or by you (user {os.geteuid()}), and writable by nobody else; got owner "
        f"{os.geteuid()} and mode {mode:04o}; run chmod go-w {folder}, or choose another folder"
    )


def test_nor_is_one_in_it(folder: Path) -> None:
    inner = folder / "one" / "two"
    inner.mkdir(parents=True, mode=0o700)
    folder.chmod(0o777)
    with pytest.raises(UntrustedError, match=f"^{folder} must be"):
        trust.check_folder(inner)
    folder.chmod(0o1777)
    assert trust.check_folder(inner) == inner.resolve()


def test_nor_is_a_strangers_nor_one_in_it(folder: Path, give_away: Callable[[Path], None]) -> None:
    inner = folder / "one"
    inner.mkdir(mode=0o700)
    folder.chmod(0o1777)
    give_away(folder)
    for place in (folder, inner):
        with pytest.raises(UntrustedError, match=f"^{folder} .* got owner {STRANGER} .*choose a folder of your own$"):
            trust.check_folder(place)


def test_roots_folders_are_trusted() -> None:
    assert trust.check_folder("/") == Path("/")
    assert trust.check_folder("/proc/self") == Path("/proc", str(os.getpid()))


@pytest.mark.parametrize(
    ("user", "group", "expected"),
    [
        (SimpleNamespace(pw_uid=1000, pw_name="ann"), SimpleNamespace(gr_gid=1000, gr_name="ann", gr_mem=[]), True),
        (
            SimpleNamespace(pw_uid=1000, pw_name="ann"),
            SimpleNamespace(gr_gid=1000, gr_name="ann", gr_mem=["ann"]),
            True,
        ),
        (
            SimpleNamespace(pw_uid=1000, pw_name="ann"),
            SimpleNamespace(gr_gid=1000, gr_name="ann", gr_mem=["bob"]),
            False,
        ),
        (SimpleNamespace(pw_uid=1000, pw_name="ann"), SimpleNamespace(gr_gid=1000, gr_name="users", gr_mem=[]), False),
        (SimpleNamespace(pw_uid=1000, pw_name="ann"), SimpleNamespace(gr_gid=100, gr_name="ann", gr_mem=[]), False),
        (SimpleNamespace(pw_uid=0, pw_name="root"), SimpleNamespace(gr_gid=0, gr_name="root", gr_mem=[]), False),
        (None, SimpleNamespace(gr_gid=1000, gr_name="ann", gr_mem=[]), False),
        (SimpleNamespace(pw_uid=1000, pw_name="ann"), None, False),
    ],
)
def test_a_group_is_private_where_pam_umask_says_so(
    user: SimpleNamespace | None, group: SimpleNamespace | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(told: SimpleNamespace | None) -> Callable[[int], SimpleNamespace]:
        def ask(number: int) -> SimpleNamespace:
            if told is None:
                raise KeyError(number)
            return told

        return ask

    monkeypatch.undo()
    monkeypatch.setattr("pwd.getpwuid", answer(user))
    monkeypatch.setattr("grp.getgrgid", answer(group))
    assert trust._is_private(1000) == expected


def test_a_private_group_may_write_unless_others_are_named_beside_it(
    folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "_is_private", lambda group: True)
    folder.chmod(0o775)
    file.chmod(0o664)
    assert trust.check_folder(folder) == folder.resolve()
    assert trust.read_file(file, 4) == b"data"
    monkeypatch.setattr("os.listxattr", lambda place: ["system.posix_acl_access"])
    with pytest.raises(UntrustedError):
        trust.check_folder(folder)
    with pytest.raises(UntrustedError):
        trust.read_file(file, 4)


# Links


def test_links_on_the_way_are_followed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = folder / "real" / "inner"
    real.mkdir(parents=True)
    (folder / "absolute").symlink_to(real.parent)
    (folder / "relative").symlink_to(Path("real", "..", "absolute"))
    monkeypatch.chdir(folder)
    for path in (
        folder / "absolute" / "inner",
        folder / "relative" / "inner",
        "relative/inner",
        "./real/../absolute/inner/",
    ):
        assert trust.check_folder(path) == real.resolve()
    assert trust.real_path("relative/inner/..") == real.parent.resolve()


def test_a_link_is_as_trustworthy_as_where_it_leads_and_as_who_made_it(
    folder: Path, tmp_path: Path, give_away: Callable[[Path], None]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    link = folder / "link"
    link.symlink_to(elsewhere)
    assert trust.check_folder(link) == elsewhere.resolve()
    elsewhere.chmod(0o777)
    with pytest.raises(UntrustedError, match=f"^{elsewhere} must be"):
        trust.check_folder(link)
    elsewhere.chmod(0o700)
    give_away(link)
    with pytest.raises(UntrustedError, match=f"^{link} must be .*; remove it$"):
        trust.check_folder(link)


def test_links_in_a_circle_end(folder: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        trust.check_folder(folder / "a")


def test_below_a_folder_no_link_is_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (folder / "inner").symlink_to(tmp_path / "elsewhere")
    for call in (trust.check_folder, trust.make_folder, trust.writable_folder, trust.exclusive_folder):
        with pytest.raises(UntrustedError, match=f"^{folder / 'inner'} must be a folder; got a symbolic link"):
            call(folder, "inner")
    assert trust.check_folder(folder / "inner") == (tmp_path / "elsewhere").resolve()


@pytest.mark.parametrize("kind", ["missing", "file", "dangling"])
def test_what_is_no_folder_is_an_error_of_the_system(folder: Path, kind: str) -> None:
    place = folder / "inner"
    if kind == "file":
        place.write_text("")
    elif kind == "dangling":
        place.symlink_to("nowhere")
    with pytest.raises(NotADirectoryError if kind == "file" else FileNotFoundError) as caught:
        trust.check_folder(place)
    assert not isinstance(caught.value, UntrustedError)


# Making


@pytest.fixture
def careless() -> Iterator[None]:
    """What this process makes, everybody may change."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("careless")
def test_what_is_missing_is_made_for_the_user_alone(folder: Path) -> None:
    made = trust.make_folder(folder / "one" / "two", "three", "four")
    assert made == folder.resolve() / "one" / "two" / "three" / "four"
    for place in (made, *made.parents[:3]):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700, place
    assert trust.make_folder(folder / "one" / "two", "three", "four") == made


def test_in_a_folder_that_is_not_trusted_nothing_is_made(folder: Path) -> None:
    folder.chmod(0o777)
    for below in (("one",), ()):
        with pytest.raises(UntrustedError):
            trust.make_folder(folder / "two", *below)
    assert not list(folder.iterdir())


def test_a_folder_that_another_process_makes_meanwhile_is_judged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faster(path: Path, mode: int = 0o777) -> None:
        make(path)
        os.chmod(path, modes.pop())
        raise FileExistsError(path)

    make = os.mkdir
    monkeypatch.setattr("os.mkdir", faster)
    modes = [0o777, 0o700]
    assert trust.make_folder(folder / "one") == folder.resolve() / "one"
    with pytest.raises(UntrustedError):
        trust.make_folder(folder, "two")


def test_that_a_folder_can_be_written_to_is_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: object) -> None:
        raise OSError(30, "Read-only file system")

    assert trust.writable_folder(folder, "inner") == folder.resolve() / "inner"
    assert not list((folder / "inner").iterdir())
    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(OSError, match="Read-only"):
        trust.writable_folder(folder, "inner")


def test_an_exclusive_folder_is_the_users_alone(folder: Path) -> None:
    """What stands in a folder with the sticky bit must be judged, which other programs do not."""
    assert trust.exclusive_folder(folder, "inner") == folder.resolve() / "inner"
    folder.chmod(0o1777)
    assert trust.exclusive_folder(folder, "inner") == folder.resolve() / "inner"
    assert trust.writable_folder(folder) == folder.resolve()
    with pytest.raises(UntrustedError, match=r"mode 1777; choose a folder of your own$"):
        trust.exclusive_folder(folder)


def test_a_temporary_folder_is_the_users_and_is_gone_with_its_process_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    made = trust.temporary_folder("test-")
    (made / "file").write_text("")
    assert (made.parent, stat.S_IMODE(made.stat().st_mode)) == (folder.resolve(), 0o700)
    trust._remove(made, os.getpid() + 1)
    assert made.exists()
    trust._remove(made, os.getpid())
    assert not made.exists()
    folder.chmod(0o777)
    with pytest.raises(UntrustedError):
        trust.temporary_folder("test-")


def test_a_temporary_folder_is_removed_when_the_process_ends() -> None:
    script = "from gemmport.runtime import trust; print(trust.temporary_folder('gemmport-test-'))"
    told = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert Path(told.strip()).name.startswith("gemmport-test-")
    assert not Path(told.strip()).exists()


# Files


def test_a_file_of_the_size_allowed_is_read(file: Path) -> None:
    assert trust.read_file(file, 4) == b"data"
    with pytest.raises(UntrustedError, match=f"^{file} must have 3 bytes at most; got 4; remove it$"):
        trust.read_file(file, 3)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_is_not(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(UntrustedError, match=f"got owner {os.geteuid()} and mode {mode:04o}; run chmod go-w {file}$"):
        trust.read_file(file, 4)


def test_nor_is_a_strangers_file(file: Path, give_away: Callable[[Path], None]) -> None:
    give_away(file)
    with pytest.raises(UntrustedError, match=f"got owner {STRANGER} .*; remove it$"):
        trust.read_file(file, 4)


@pytest.mark.parametrize("target", ["file", "/dev/zero", "nowhere"])
def test_nor_is_a_link(file: Path, target: str) -> None:
    link = file.with_name("link")
    link.symlink_to(target)
    with pytest.raises(UntrustedError, match=f"^{link} must be a regular file; got a symbolic link; remove it$"):
        trust.read_file(link, 4)


def test_nor_is_what_is_no_regular_file(folder: Path) -> None:
    """A FIFO is not waited for."""
    os.mkfifo(folder / "fifo")
    (folder / "inner").mkdir()
    for place in (folder / "fifo", folder / "inner", Path("/dev/zero")):
        with pytest.raises(UntrustedError, match=f"^{place} must be a regular file; got "):
            trust.read_file(place, 4)


def test_a_missing_file_is_an_error_of_the_system(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        trust.read_file(folder / "file", 4)


@pytest.mark.usefixtures("careless")
def test_a_file_is_written_for_the_user_alone_in_the_place_of_a_link_and_not_through_it(
    folder: Path, file: Path
) -> None:
    link = folder / "link"
    link.symlink_to(file)
    trust.write_file(link, b"other")
    assert (file.read_bytes(), link.read_bytes(), link.is_symlink()) == (b"data", b"other", False)
    assert stat.S_IMODE(link.stat().st_mode) == 0o600
    assert {path.name for path in folder.iterdir()} == {"file", "link"}


# Systems without owners

ON_WINDOWS = """
import os, sys
import numpy, pcpp, platformdirs  # which look at the system's name, and not at what it has
for name in ("geteuid", "getuid", "listxattr", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC"):
    delattr(os, name)
sys.modules["pwd"] = sys.modules["grp"] = None
from gemmport.runtime import cache
from gemmport.planning import lookup
from gemmport.runtime import trust
key = cache.program_key("source")
cache.store_program(key, b"program")
assert cache.load_program(key) == b"program"
assert cache.clear_cache()[0].programs == 1
assert lookup.load_configuration().entries
"""


def test_where_users_have_no_numbers_owners_are_not_judged(folder: Path) -> None:
    folder.chmod(0o777)
    environment = {**os.environ, "GEMMPORT_CACHE_DIR": str(folder)}
    told = subprocess.run(
        [sys.executable, "-c", ON_WINDOWS], env=environment, capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stderr) == (0, "")


def test_the_folder_of_temporary_files_is_trusted_here() -> None:
    """Else tests of what is trusted would have no place."""
    assert trust.check_folder(tempfile.gettempdir())


# Each place is asked of itself


def test_without_owners_a_path_is_resolved_and_must_be_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_HAS_OWNERS", False)
    folder.chmod(0o777)
    (folder / "link").symlink_to(folder)
    assert trust.check_folder(folder / "link") == folder.resolve()
    with pytest.raises(FileNotFoundError):
        trust.real_path(folder / "missing")


def test_forty_links_are_followed_and_no_more(folder: Path) -> None:
    (folder / "0").mkdir(mode=0o700)
    for number in range(41):
        (folder / f"{number + 1}").symlink_to(f"{number}")
    assert trust.real_path(folder / "40") == folder.resolve() / "0"
    with pytest.raises(OSError, match="symbolic links") as caught:
        trust.real_path(folder / "41")
    assert (caught.value.errno, caught.value.filename) == (errno.ELOOP, str(folder / "41"))


def test_the_folder_itself_is_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    real = tempfile.TemporaryFile
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **where: tried.append(where) or real(**where))
    trust.writable_folder(folder)
    assert tried == [{"dir": folder.resolve()}]


def test_access_lists_and_groups_are_those_of_what_is_judged(
    folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[object] = []
    groups: list[object] = []
    monkeypatch.setattr("os.listxattr", lambda place: places.append(place) or [])
    monkeypatch.setattr(trust, "_is_private", lambda group: groups.append(group) or True)
    folder.chmod(0o770)
    file.chmod(0o660)
    assert trust.exclusive_folder(folder) == folder.resolve()
    assert places == [folder.resolve()] * 2  # as a folder, and as one of the user's own
    trust.read_file(file, 4)
    handle = places.pop()
    assert isinstance(handle, int)
    assert set(groups) == {folder.stat().st_gid}


def test_where_no_access_list_can_be_asked_for_there_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(place: object) -> list[str]:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(trust, "_is_private", lambda group: True)
    monkeypatch.setattr("os.listxattr", refuse)
    folder.chmod(0o770)
    assert trust.check_folder(folder) == folder.resolve()


def test_a_private_group_is_the_files_and_that_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, object]] = []
    ann = SimpleNamespace(pw_uid=1000, pw_name="ann")
    monkeypatch.undo()
    monkeypatch.setattr("pwd.getpwuid", lambda number: asked.append(("user", number)) or ann)
    group = SimpleNamespace(gr_gid=1000, gr_name="ann", gr_mem=[])
    monkeypatch.setattr("grp.getgrgid", lambda number: asked.append(("group", number)) or group)
    assert trust._is_private(77)
    assert asked == [("user", os.geteuid()), ("group", 77)]


def test_owners_are_root_and_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    owners = {uid: trust._is_owner(SimpleNamespace(st_uid=uid)) for uid in (0, 1, 1000)}  # type: ignore[arg-type]
    assert owners == {0: True, 1: False, 1000: True}


def test_the_removal_of_a_temporary_folder_is_due_in_the_process_that_made_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    due: list[tuple[object, ...]] = []
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr("atexit.register", lambda *call: due.append(call))
    made = trust.temporary_folder("test-")
    assert made.name.startswith("test-")
    assert due == [(trust._remove, made, os.getpid())]
    trust._remove(made / "gone", os.getpid())  # without an error


def test_a_link_is_told_by_other_errors_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError(errno.EMLINK, "as on FreeBSD")

    (file.with_name("link")).symlink_to(file)
    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(UntrustedError, match="got a symbolic link"):
        trust.read_file(file.with_name("link"), 4)
    with pytest.raises(OSError, match="as on FreeBSD"):
        trust.read_file(file, 4)


def test_a_file_that_grows_while_it_is_read_is_refused_and_not_read_on(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []

    class Grown(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            asked.append(size)
            return super().read(size)

    monkeypatch.setattr("os.fdopen", lambda handle, mode, **options: Grown(b"data, and more"))
    with pytest.raises(UntrustedError, match=f"^{file} must not grow while it is read; got more than 4 bytes; "):
        trust.read_file(file, 100)
    assert asked == [5]


def test_memory_is_taken_for_what_a_file_holds_and_not_for_what_it_may(file: Path) -> None:
    assert trust.read_file(file, 1 << 60) == b"data"  # bytes, which no process has


def test_what_is_not_yet_complete_is_beside_its_place_and_goes_where_it_fails(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    real = tempfile.mkstemp
    monkeypatch.setattr("tempfile.mkstemp", lambda **where: made.append(where) or real(**where))

    def refuse(temporary: str, path: Path) -> None:
        if goes_first:
            os.unlink(temporary)
        raise PermissionError("not there")

    monkeypatch.setattr("os.replace", refuse)
    for goes_first in (False, True):  # noqa: B007 - `refuse` reads it
        with pytest.raises(PermissionError, match="not there"):
            trust.write_file(file, b"other")
        assert (file.read_bytes(), list(file.parent.iterdir())) == (b"data", [file])
    assert made == [{"dir": file.parent, "suffix": ".tmp"}] * 2
