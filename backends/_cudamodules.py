"""CUDA's modules, their kernels, and launches on any stream."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from gemmport.backends import _cudadriver, _scripts
from gemmport.backends._cudadriver import Relaxed

WORD = 8
"""Bytes of a pointer."""

LAUNCH = "cuLaunchKernelEx"

# CUfunction_attribute
MAX_THREADS_PER_BLOCK, SHARED_BYTES, LOCAL_BYTES, REGISTERS, MAX_DYNAMIC_SHARED_BYTES = 0, 1, 3, 4, 8

# CUlaunchAttributeID
PROGRAMMATIC_STREAM_SERIALIZATION = 6


class Function:
    """A kernel of a module, which it keeps loaded.

    CUDA may load a kernel late: when it is looked up, asked for an attribute, or told one. A graph may be captured then.
    """

    def __init__(self, module: Module, handle: int) -> None:
        self.module, self.handle = module, ctypes.c_void_p(handle)

    def attribute(self, number: int) -> int:
        """One of the constants above, of this kernel."""
        value = ctypes.c_int()
        with Relaxed():
            _cudadriver.check("cuFuncGetAttribute", ctypes.byref(value), ctypes.c_int(number), self.handle)
        return value.value

    def allow_shared(self, nbytes: int) -> None:
        """Lets it be launched with so much shared memory of a size that is told at the launch."""
        with Relaxed():
            _cudadriver.check(
                "cuFuncSetAttribute", self.handle, ctypes.c_int(MAX_DYNAMIC_SHARED_BYTES), ctypes.c_int(nbytes)
            )


class Module:
    """A loaded program. It is unloaded when the last of its functions is gone, in the context it was loaded in."""

    def __init__(self, binary: bytes, context: Any) -> None:
        """Loads a cubin or PTX into the current context, which is given, too, as PyCUDA has it.

        Raises:
            LaunchError: the driver refuses.
        """
        handle = ctypes.c_void_p()
        with Relaxed():
            _cudadriver.check("cuModuleLoadData", ctypes.byref(handle), binary)
        self._handle = handle
        self._unloading = _cudadriver.given_back(self, context, "cuModuleUnload", handle)

    def function(self, name: str) -> Function:
        """A kernel by its name.

        Raises:
            LaunchError: there is none.
        """
        handle = ctypes.c_void_p()
        with Relaxed():
            _cudadriver.check("cuModuleGetFunction", ctypes.byref(handle), self._handle, name.encode())
        return Function(self, handle.value or 0)

    def pin(self) -> None:
        """Keeps it loaded until the process ends, for a graph that may launch it at any time."""
        self._unloading.detach()


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("groups", ctypes.c_uint * 3),
        ("work_group", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("number_of_attributes", ctypes.c_uint),
    )


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, whose value has 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("value", ctypes.c_int * 17))

    @classmethod
    def of(cls, number: int, value: int) -> _Attribute:
        own = cls(number)
        own.value[1] = value  # behind the padding
        return own


class Launch:
    """A kernel with its geometry, and its arguments in memory, as the driver takes them.

    What the driver is given is made once: to convert it takes as long as the launch.

    Attributes:
        words: the arguments, of which a pointer is one. places: in which word each argument begins.
    """

    def __init__(
        self,
        function: Function,
        groups: tuple[int, int, int],
        work_group: tuple[int, int, int],
        arguments: bytearray,
        offsets: Sequence[int],
        shared_bytes: int,
        *,
        early: bool = False,
    ) -> None:
        """Args:
        arguments: all of them, a whole number of words; what stands there at the launch counts.
        offsets: where each begins, which for a pointer is a word.
        early: whether it may begin before the launch before it in its stream has ended; the kernel then waits for that.
        """
        self.function = function
        self.words, self.places = memoryview(arguments).cast("Q"), [offset // WORD for offset in offsets]
        start = ctypes.addressof((ctypes.c_char * len(arguments)).from_buffer(arguments))
        self._attribute = _Attribute.of(PROGRAMMATIC_STREAM_SERIALIZATION, 1)
        attributes = ctypes.addressof(self._attribute) if early else None
        self._config = _Config((*groups,), (*work_group,), shared_bytes, None, attributes, int(early))
        self._pointers = (ctypes.c_void_p * len(offsets))(*[start + offset for offset in offsets])
        self._start = start
        self._given = (
            ctypes.c_void_p(ctypes.addressof(self._config)),
            function.handle,
            ctypes.c_void_p(ctypes.addressof(self._pointers)),
            None,
        )
        self._launch = _cudadriver.driver().cuLaunchKernelEx

    def __call__(self, stream: int) -> None:
        """Enqueues it.

        Raises:
            LaunchError: the driver refuses it, or an earlier launch failed.
        """
        self._config.stream = stream
        if (result := self._launch(*self._given)) != 0:
            _cudadriver.fail(LAUNCH, result)

    def script(self, places: Sequence[tuple[int, int]]) -> list[int]:
        """The launch as `_launching.cuda` reads it, which then writes memory into the given places."""
        words: list[int] = [
            ctypes.addressof(self._config),
            self.function.handle.value or 0,
            ctypes.addressof(self._pointers),
        ]
        words.append(len(places))
        for number, operand in places:
            words += self._start + self.places[number] * WORD, operand
        return words


def script(launches: Sequence[tuple[Launch, Sequence[tuple[int, int]]]], context: int) -> bytes:
    """Launches in a context, with the places of their memory, as `_launching.cuda` takes them.

    The script holds addresses: the launches must live as long as it is used.
    """
    driver = _cudadriver.driver()
    words = [*map(_scripts.address_of, (driver.cuLaunchKernelEx, driver.cuCtxGetCurrent)), context, len(launches)]
    return _scripts.written(words + [word for launch, places in launches for word in launch.script(places)])
