"""The programs of an open device: in memory, on disk, compiled now or by another process; and better ones in their place."""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from gemmport.backends import _improvement
from gemmport.backends._improvement import Improvement
from gemmport.backends.objects import Program, ProgramCounts
from gemmport.core.errors import LaunchError
from gemmport.runtime import cache, locks
from gemmport.runtime.side_by_side import side_by_side

if TYPE_CHECKING:
    from gemmport.backends.base import Backend

MOST = 256
"""That an open device holds, beside those of what is bound. CPUs' runtimes take two to three megabytes of memory for each."""


_PAUSE, _LONGEST_PAUSE, _LOOKS_AGAIN = 1.0, 10.0, 0.01
"""Seconds without compilations for callers, after which they have launched their products; that this is waited for at most; and
from one look to the next.
"""


class User(Protocol):
    """What has programs bound, and may bind better ones."""

    def renew(self, source: str) -> None:
        """Tells that there is a better program of a source."""


@dataclass
class Programs:
    """Those of a device. Methods are told its backend, which a reference kept here would keep open.

    Attributes:
        pending: of keys of programs, what makes them, or puts better ones in their place.
        replaced: by better ones. To unload one would wait for the device, and they are small.
        users: to be told then.
        turns: of keys of programs that are compiled now, who does.
        failed: keys of programs that another process was to make, and did not.
        for_callers: compilations that callers wait for now. last_for_caller: when one of them ended, or was announced.
        awaited: callers that wait for better programs.
    """

    known: OrderedDict[str, Program] = field(default_factory=OrderedDict)
    counts: ProgramCounts = field(default_factory=ProgramCounts)
    lock: threading.RLock = field(default_factory=threading.RLock)
    pending: dict[str, Improvement] = field(default_factory=dict)
    replaced: deque[Program] = field(default_factory=partial(deque, maxlen=MOST))
    users: weakref.WeakSet[User] = field(default_factory=weakref.WeakSet)
    turns: dict[str, threading.RLock] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    for_callers: int = 0
    last_for_caller: float = 0.0
    awaited: int = 0

    def find(self, key: str) -> Program | None:
        """The program of a key, which is the last to be forgotten now."""
        if key in self.known:
            self.known.move_to_end(key)
        return self.known.get(key)

    def keep(self, key: str, program: Program) -> None:
        """Keeps a program; those that were used least lately are forgotten."""
        self.known[key] = program
        while len(self.known) > MOST:
            self.known.popitem(last=False)

    def replace(self, key: str, program: Program, better: Program) -> None:
        """Gives a better program from now on, to those who have bound the other one, too."""
        with self.lock:
            if self.known.get(key) is program:
                self.known[key] = better
            self.replaced.append(program)
        self.tell(program.source)

    def tell(self, source: str) -> None:
        """Has all who have bound something else for the program of a source bind anew."""
        with self.lock:
            users = list(self.users)
        for user in users:
            user.renew(source)

    def one(self, backend: Backend, source: str, *, at_once: bool = False) -> Program:
        """See `Backend.program`."""
        key = _key(backend, source)
        if not at_once and (coming := self.pending.get(key)) is not None:
            self._await(coming)  # which may be its compilation
        with self.turns.setdefault(key, threading.RLock()) if backend.compiles_at_once else self.lock:
            with self.lock:
                program = self.find(key)
                self.counts.from_memory += program is not None
            if program is None:
                with self._for_caller():
                    program = self._obtained(backend, key, source)
            self.turns.pop(key, None)
            self.failed.discard(key)
        if at_once:
            return program
        if (pending := self.pending.get(key)) is not None:
            self._await(pending)
        with self.lock:
            return self.find(key) or program

    def several(self, backend: Backend, sources: Sequence[str], *, at_once: bool = False) -> list[Program]:
        """See `Backend.programs`."""
        find = partial(backend.program, at_once=at_once)
        made: dict[str, Program] = {}
        if backend.compiles_at_once:
            missing = [source for source in dict.fromkeys(sources) if not self._is_in_memory(_key(backend, source))]
            made.update(zip(missing, side_by_side(find, missing), strict=True))
        return [made.pop(source) if source in made else find(source) for source in sources]

    def make_later(self, backend: Backend, sources: Sequence[str]) -> bool:
        """See `Backend.make_later`."""
        missing = {
            key: source for source in sources if not self._is_there(backend, key := _key(backend, source), source)
        }
        if not backend.compiles_beside or not missing or self.failed & missing.keys():
            return False
        self.last_for_caller = time.monotonic()  # whose programs are compiled next
        for key, source in missing.items():
            keys = _keys_on_disk(backend, key, source)
            improvement = Improvement(
                partial(self._make, backend, key, source, *keys),
                backend._left(*keys, source, backend.device.architecture),
            )
            with self.lock:
                if key in self.pending:
                    continue
                self.pending[key] = improvement
            if not _improvement.submit(improvement):
                self.pending.pop(key, None)
                return False
        return True

    @contextmanager
    def _for_caller(self) -> Iterator[None]:
        with self.lock:
            self.for_callers += 1
        try:
            yield
        finally:
            with self.lock:
                self.for_callers -= 1
                self.last_for_caller = time.monotonic()

    def _await(self, improvement: Improvement) -> None:
        with self.lock:
            self.awaited += 1
        try:
            improvement.done.wait()
        finally:
            with self.lock:
                self.awaited -= 1

    def _await_callers(self) -> None:
        """Returns when no caller has waited for a compilation for a while, or one waits for what is to come: what the runtime
        compiles beside a caller may hold it up until its product is launched.

        Raises:
            LaunchError: this process is at its end.
        """
        latest = time.monotonic() + _LONGEST_PAUSE
        while (now := time.monotonic()) < latest:
            if not self.for_callers and (self.awaited or now > self.last_for_caller + _PAUSE):
                break
            if _improvement.has_ended():
                raise LaunchError("no program is compiled beside callers any more: this process is at its end")
            time.sleep(_LOOKS_AGAIN)

    def settle(self, backend: Backend, sources: Sequence[str] | None = None) -> None:
        """See `Backend.settle_programs`."""
        keys = list(self.pending) if sources is None else [_key(backend, source) for source in sources]
        for key in keys:
            if (improvement := self.pending.get(key)) is not None:
                self._await(improvement)

    def has_best(self, backend: Backend, source: str) -> bool:
        """See `Backend.has_best`."""
        key = _key(backend, source)
        with self.lock:
            if key in self.known and key not in self.pending:
                return True
        return cache.load_program(_keys_on_disk(backend, key, source)[1]) is not None

    def follow(self, backend: Backend, user: User, sources: Sequence[str], bound: Sequence[Program]) -> None:
        """See `Backend.follow`."""
        with self.lock:
            self.users.add(user)
            late = [
                source
                for source, program in zip(sources, bound, strict=True)
                if (key := _key(backend, source)) in self.failed or self.known.get(key, program) is not program
            ]
        for source in late:
            user.renew(source)

    def _is_there(self, backend: Backend, key: str, source: str) -> bool:
        """Whether a program is in memory or on disk."""
        if self._is_in_memory(key):
            return True
        return any(cache.load_program(each) is not None for each in _keys_on_disk(backend, key, source))

    def _is_in_memory(self, key: str) -> bool:
        with self.lock:
            return key in self.known

    def _obtained(self, backend: Backend, key: str, source: str) -> Program:
        """A program that is not in memory: from disk, or compiled now. Whether a better one is to come, is seen to."""
        compiled, better = _keys_on_disk(backend, key, source)
        program = backend._load_cached(better, source)
        improvable = program is None and compiled != better
        if improvable:
            program = backend._load_cached(compiled, source)
        with self.lock:
            self.counts.from_disk += program is not None
        if program is None:
            program = backend._compiled(source)
            with self.lock:
                self.counts.compiled += 1
            _store(compiled, program.binary)
        improvement = None
        if improvable:
            improvement = Improvement(
                partial(self._improve, backend, key, better, program), backend._left(compiled, better, source)
            )
        with self.lock:
            self.keep(key, program)
            if key in self.pending:  # what makes it sees to that, too
                improvement = None
            elif improvement is not None:
                self.pending[key] = improvement
        if improvement is not None:
            _improvement.submit(improvement)
        return program

    def _make(self, backend: Backend, key: str, source: str, compiled: str, better: str) -> None:
        """Makes a program that is not there yet, and then a better one of it.

        Args:
            compiled, better: the keys of both on disk.
        """
        try:
            if backend._compiles_after_callers:  # before others have to wait for what is waited for here
                self._await_callers()
            with locks.exclusive(cache.cache_folder(), compiled):
                binary, made = cache.load_program(better) or cache.load_program(compiled), None
                if binary is None:
                    made = backend._compiled_beside(source)
                    with self.lock:
                        self.counts.compiled += 1
                    _store(compiled, made.binary)
            with self.lock:
                program = self.find(key)
                if program is None:
                    program = made or backend.load(cast("bytes", binary), source)
                    self.keep(key, program)
        except BaseException:
            self.failed.add(key)
            self.pending.pop(key, None)
            raise
        finally:
            self.tell(source)
        if compiled != better:
            self._improve(backend, key, better, program)
        else:
            self.pending.pop(key, None)

    def _improve(self, backend: Backend, key: str, stored: str, program: Program) -> None:
        """Puts a better program in the place of one that is in use.

        Args:
            stored: the key of the better one on disk.
        """
        try:
            with locks.exclusive(cache.cache_folder(), stored):
                with self.lock:  # in which programs are loaded, except where the runtime takes several at once
                    better = backend._load_cached(stored, program.source)
                if better is None:
                    binary = backend._reworked(program)
                    with self.lock:
                        better = program if binary == program.binary else backend.load(binary, program.source)
                    _store(stored, binary)
            if better is not program:
                self.replace(key, program, better)
        finally:
            self.pending.pop(key, None)


def _store(key: str, binary: bytes) -> None:
    """Stores a program on disk; not where the runtime itself keeps what it compiled, and gives no binary."""
    if binary:
        cache.store_program(key, binary)


def _key(backend: Backend, source: str) -> str:
    """What tells the program of a source from all others of any device."""
    return cache.program_key(*backend.program_parts(source).values())


def _keys_on_disk(backend: Backend, key: str, source: str) -> tuple[str, str]:
    """The keys of a program as the compiler makes it, and of a better one; the same where nothing is done to it.

    What is on disk may be another version's of gemmport: so what is done is part of the key.
    """
    return cache.program_key(key), cache.program_key(key, *backend._rework(source))
