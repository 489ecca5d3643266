"""Where memory lies on a device of OpenCL, which OpenCL does not tell its host: a kernel does.

Tensor maps hold addresses (`_tensormaps`). A kernel that finds those of its operands in its maps has tiles copied at once; else
it writes maps of its own first. So an address here may be wrong: handles are used again, and runtimes may move memory.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import pyopencl as cl

from gemmport.runtime.kept import keep

log = logging.getLogger(__name__)

SOURCE = """__kernel void where(__global const char *memory, __global ulong *told)
{
    *told = (ulong)memory;
}
"""

_MOST = 4096
"""Addresses that are kept."""

_MOST_GUESSES = 10_000
"""After which all are forgotten. Handles of released memory are used again, and OpenCL does not tell when: an array that has
such a handle would have the address of another for good.
"""

_SEEN = 0
"""In an address's place: memory was given once."""


class Addresses:
    """Those of memory that was given before, of one device: for memory that is given once it does not pay to ask.

    A kernel of one work-item tells them, on a queue of its own. Who asks waits for it, once for each memory: not for what other
    queues have yet to begin, but for room beside a product that fills the device. Who comes while another asks gets no
    address then: threads do not wait for each other, nor does a handler of signals for what it interrupts.
    """

    def __init__(self, context: cl.Context, device: cl.Device, program: cl.Program | None) -> None:
        """
        Args:
            program: of `SOURCE`; None where it cannot be compiled, so that no address is known.
        """
        self._known: dict[int, int] = {}
        self._left = _MOST_GUESSES
        self._asking = threading.Lock()
        self._context, self._device, self._program = context, device, program
        self._asker: _Asker | None = None

    def guess(self, memory: Any) -> int:
        """The address of memory that was given before, 0 otherwise.

        Args:
            memory: what has a cl_mem, or the address of what host and device share.
        """
        if isinstance(memory, int):
            return memory
        if self._left <= 0:
            self._known.clear()
            self._left = _MOST_GUESSES
        self._left -= 1
        known = self._known.get(handle := int(memory.int_ptr))
        if known is None:
            keep(self._known, handle, _SEEN, _MOST)
            return 0
        return known or self.address(memory)

    def address(self, memory: Any) -> int:
        """The address of memory, 0 where it is not found out; see `guess`."""
        if isinstance(memory, int):
            return memory
        handle = int(memory.int_ptr)
        if known := self._known.get(handle, _SEEN):
            return known
        if found := self._asked(memory):
            keep(self._known, handle, found, _MOST)
        return found

    def _asked(self, memory: Any) -> int:
        if self._program is None or not self._asking.acquire(blocking=False):
            return 0
        try:
            self._asker = self._asker or _Asker(self._context, self._device, self._program)
            return self._asker.address(memory)
        except cl.Error as error:
            log.debug("it is not found out any more where memory lies: %s", error)
            self._program = None
            return 0
        finally:
            self._asking.release()


class _Asker:
    """What a device needs to tell where memory lies."""

    def __init__(self, context: cl.Context, device: cl.Device, program: cl.Program) -> None:
        self._queue = cl.CommandQueue(context, device)
        self._kernel = cl.Kernel(program, "where")
        self._told = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, 8)
        self._kernel.set_arg(1, self._told)

    def address(self, memory: Any) -> int:
        told = np.empty(1, np.uint64)
        self._kernel.set_arg(0, memory)
        cl.enqueue_nd_range_kernel(self._queue, self._kernel, (1,), (1,))
        cl.enqueue_copy(self._queue, told, self._told)
        return int(told[0])
