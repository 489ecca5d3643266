"""A backend whose operations fail where they are told to, with the errors of its runtime."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from gemmport import backends
from gemmport.backends.base import Backend, HostArray
from gemmport.backends.objects import Call, Event, Memory, Program
from gemmport.core.device import DeviceInfo

Operation = Literal["allocation", "compilation", "launch", "copy"]


class Faults(threading.local):
    """What is to fail next in the thread that asks.

    Attributes:
        operation: that fails; None where nothing is to, or it has.
    """

    def __init__(self) -> None:
        self.operation: Operation | None = None
        self._before = 0

    def arm(self, operation: Operation, before: int = 0) -> None:
        """Lets an operation fail once in this thread, after so many that do not."""
        self.operation, self._before = operation, before

    def disarm(self) -> bool:
        """Lets nothing fail any more; whether something did since `arm`."""
        failed, self.operation = self.operation is None, None
        return failed

    def due(self, operation: Operation) -> bool:
        """Whether this operation is the one to fail."""
        if self.operation != operation:
            return False
        self._before -= 1
        if self._before >= 0:
            return False
        self.operation = None
        return True


class FaultyBackend(Backend):
    """What `faulty` opens."""

    faults: Faults

    @abstractmethod
    def forget(self) -> dict[str, Program]:
        """Forgets its programs, which are then loaded or compiled again; what was forgotten, for `remember`."""

    @abstractmethod
    def remember(self, programs: Mapping[str, Program]) -> None:
        """Knows programs again, but those that were loaded or compiled meanwhile."""


def faulty(device: DeviceInfo) -> FaultyBackend:
    """Opens a device once more, beside the backend of `get_backend`.

    Raises:
        BackendUnavailableError, DeviceNotFoundError: as `get_backend`.
    """
    kind: Any = backends.load(device.backend)

    class Faulty(kind):  # type: ignore[misc]  # the class is known where the device is
        def __init__(self, device: DeviceInfo) -> None:
            self.faults = Faults()
            super().__init__(device)

        def forget(self) -> dict[str, Program]:
            with self._programs.lock:
                known = dict(self._programs.known)
                self._programs.known.clear()
            return known

        def remember(self, programs: Mapping[str, Program]) -> None:
            with self._programs.lock:
                for key, program in programs.items():
                    self._programs.keep(key, program)

        def _strike(self, operation: Operation) -> None:
            if self.faults.due(operation):
                with self.current():  # which makes ours of the runtime's errors
                    raise MemoryError("injected") if operation == "allocation" else self.runtime_error("injected")

        def _allocate(self, nbytes: int) -> Memory:
            self._strike("allocation")
            return super()._allocate(nbytes)  # type: ignore[no-any-return]

        def _load_cached(self, key: str, source: str) -> Program | None:
            # What is on disk is not compiled, and could not fail.
            return None if self.faults.operation == "compilation" else super()._load_cached(key, source)

        def compile(self, source: str) -> Program:
            if self.faults.due("compilation"):
                source = f"#error injected\n{source}"
            return super().compile(source)  # type: ignore[no-any-return]

        launcher = Backend.launcher  # by way of `launch`

        def launch(self, call: Call, *, queue: Any = None, wait_for: Sequence[Event] = ()) -> None:
            self._strike("launch")
            super().launch(call, queue=queue, wait_for=wait_for)

        def _upload(self, memory: Memory, data: HostArray, offset: int, queue: Any) -> None:
            self._strike("copy")
            super()._upload(memory, data, offset, queue)

        def _download(self, memory: Memory, out: HostArray, offset: int, queue: Any) -> None:
            self._strike("copy")
            super()._download(memory, out, offset, queue)

        def _copy(self, source: Memory, target: Memory, nbytes: int, queue: Any) -> None:
            self._strike("copy")
            super()._copy(source, target, nbytes, queue)

        def _fill(self, memory: Memory, byte: int, queue: Any) -> None:
            self._strike("copy")
            super()._fill(memory, byte, queue)

    opened: FaultyBackend = Faulty(device)
    return opened
