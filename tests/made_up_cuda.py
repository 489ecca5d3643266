"""Stand-ins for CUDA's driver, and for PyCUDA over it."""

from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace
from typing import Any

CONTEXT = SimpleNamespace(handle=0xC0)

PER_THREAD = 2
"""The handle of the default stream of whichever thread asks."""

GIVING_BACK = ("cuStreamDestroy_v2", "cuMemFreeHost", "cuModuleUnload", "cuMemFree_v2")

WAITING = (
    "cuStreamSynchronize", "cuEventSynchronize", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuCtxSynchronize",
)  # fmt: skip
"""What waits, or may: copies from and to pageable memory do."""


class Driver:
    """Hands out handles, and notes what was given back, in which context and thread.

    Attributes:
        numbers: of streams, by their handles; 7 of others. That of the per-thread default stream is the thread's own.
    """

    def __init__(self) -> None:
        self.memory = (ctypes.c_char * 64)()
        self.given_back: list[tuple[str, int, list[int], bool, int]] = []
        self.contexts: dict[int, list[int]] = {}
        self.modes: dict[int, int] = {}
        self.results: dict[str, int] = {}
        self.numbers: dict[int, int] = {}
        self.waited: list[tuple[str, bool]] = []
        self.loading: list[tuple[str, bool]] = []

    @property
    def current(self) -> list[int]:
        return self.contexts.setdefault(threading.get_ident(), [])

    def cuMemHostAlloc(self, made: Any, nbytes: Any, flags: Any) -> int:  # noqa: N802 - the driver's
        made._obj.value = ctypes.addressof(self.memory)
        return 0

    def cuStreamCreate(self, made: Any, flags: Any) -> int:  # noqa: N802
        made._obj.value = 0x57
        return 0

    def cuModuleLoadData(self, made: Any, binary: bytes) -> int:  # noqa: N802
        made._obj.value = 0x30D
        return self.results.get("cuModuleLoadData", 0)

    def cuStreamGetId(self, stream: Any, number: Any) -> int:  # noqa: N802
        number._obj.value = threading.get_ident() if stream.value == PER_THREAD else self.numbers.get(stream.value, 7)
        return 0

    def cuCtxPushCurrent_v2(self, context: Any) -> int:  # noqa: N802
        if not (result := self.results.get("cuCtxPushCurrent_v2", 0)):
            self.current.append(context.value)
        return result

    def cuCtxPopCurrent_v2(self, context: Any) -> int:  # noqa: N802
        self.current.pop()
        return 0

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:  # noqa: N802
        result = self.results.get("cuThreadExchangeStreamCaptureMode", 0)
        if result == 0:
            own = threading.get_ident()
            before, self.modes[own] = self.modes.get(own, 0), mode._obj.value
            mode._obj.value = before
        return result

    def __getattr__(self, name: str) -> Any:
        def answer(*arguments: Any) -> int:
            if name in GIVING_BACK:
                own = threading.get_ident()
                relaxed = self.modes.get(own, 0) == 2
                self.given_back.append((name, arguments[0].value, list(self.current), relaxed, own))
            if name in WAITING:
                self.waited.append((name, self.modes.get(threading.get_ident(), 0) == 2))
            if name.startswith(("cuModule", "cuFunc")):
                self.loading.append((name, self.modes.get(threading.get_ident(), 0) == 2))
            return self.results.get(name, 0)

        return answer


class Error(Exception):
    """As PyCUDA has it."""


class Context:
    """A primary context. Where one is collected, it becomes the thread's current one, and stays that, as PyCUDA has it."""

    handle = CONTEXT.handle
    opened: Any

    def __del__(self) -> None:
        self.opened.current.append(self.handle)

    def push(self) -> None:
        self.opened.current.append(self.handle)

    @classmethod
    def pop(cls) -> None:
        cls.opened.current.pop()

    @classmethod
    def synchronize(cls) -> None:
        cls.opened.cuCtxSynchronize()


class Block:
    """Of the pool, which frees it at once, as one that holds nothing does."""

    def __init__(self, opened: Driver) -> None:
        self.opened = opened

    def __int__(self) -> int:
        return 0x1000

    def free(self) -> None:
        self.opened.cuMemFree_v2(ctypes.c_uint64(0x1000))
