"""The process that reschedules machine code for another one, which goes on meanwhile. It needs no GPU, and opens none.

    python __main__.py          answers messages, until the other process ends
    python __main__.py LEFT     does what a process left that has ended, by the cache of programs

A message has a cubin, as base64, and the work-groups of `rescheduled`; the answer has the cubin that came of it. LEFT is a
list in JSON: of each program the key of what the compiler made, the key of what is missing, and the work-groups.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterable
from contextlib import suppress

from gemmport.backends._rescheduler import LIMIT
from gemmport.backends._sass.reschedule import rescheduled
from gemmport.runtime import cache, locks
from gemmport.runtime.child_processes import Channel

NICENESS = 10
"""Whatever else the machine has to do comes first."""


def main(arguments: list[str]) -> None:
    """Answers messages, or does what was left."""
    with suppress(AttributeError, OSError):  # not on Windows
        os.nice(NICENESS)
    gc.disable()  # there is little garbage, and much that stays
    if arguments:
        finish(json.loads(arguments[0]))
        return
    channel = Channel()
    while (job := channel.hear()) is not None:
        better = rescheduled(b64decode(job["cubin"]), int(job["groups"]))
        channel.tell({"cubin": b64encode(better).decode()})


def finish(left: Iterable[tuple[str, str, int]]) -> None:
    """Reschedules programs that stand in the cache, and puts what comes of them beside them."""
    for compiled, better, groups in left:
        if hasattr(signal, "alarm"):
            signal.alarm(int(2 * LIMIT))  # nobody else ends a process that hangs
        with locks.exclusive(cache.cache_folder(), better):
            binary = cache.load_program(compiled) if cache.load_program(better) is None else None
            if binary is not None:
                cache.store_program(better, rescheduled(binary, groups))


if __name__ == "__main__":
    main(sys.argv[1:])
