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

_SEEN, _UNKNOWN = 0, 1
"""In an address's place, where neither is one: memory was given once; it is not found out where that is."""


class Addresses:
    """Those of memory that was given before, of one device: for memory that is given once it does not pay to ask.

    A kernel of one work-item tells them, on a queue of its own, so that who asks waits for a launch, once, and not for the work
    of other queues.
    """

    def __init__(self, context: cl.Context, device: cl.Device, program: cl.Program) -> None:
        """
        Args:
            program: of `SOURCE`.
        """
        self._known: dict[int, int] = {}
        self._lock = threading.Lock()
        self._queue = cl.CommandQueue(context, device)
        self._kernel = cl.Kernel(program, "where")
        self._told = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, 8)
        self._kernel.set_arg(1, self._told)

    def guess(self, memory: Any) -> int:
        """The address of memory that was given before, 0 otherwise.

        Args:
            memory: what has a cl_mem, or the address of what host and device share.
        """
        if isinstance(memory, int):
            return memory
        known = self._known.get(handle := int(memory.int_ptr))
        if known is None:
            keep(self._known, handle, _SEEN, _MOST)
            return 0
        return known if known > _UNKNOWN else self.address(memory)

    def address(self, memory: Any) -> int:
        """The address of memory, 0 where it is not found out; see `guess`."""
        if isinstance(memory, int):
            return memory
        known = self._known.get(handle := int(memory.int_ptr), _SEEN)
        if known == _SEEN:
            keep(self._known, handle, known := self._ask(memory), _MOST)
        return known if known != _UNKNOWN else 0

    def _ask(self, memory: Any) -> int:
        told = np.empty(1, np.uint64)
        try:
            with self._lock:
                self._kernel.set_arg(0, memory)
                cl.enqueue_nd_range_kernel(self._queue, self._kernel, (1,), (1,))
                cl.enqueue_copy(self._queue, told, self._told)
        except cl.Error as error:
            log.debug("it is not found out where memory lies: %s", error)
            return _UNKNOWN
        return int(told[0])
