"""The process that makes and reschedules machine code for another one, which goes on meanwhile. It needs and opens no GPU.

    python __main__.py          answers messages, until the other process ends
    python __main__.py left     does what a process left that has ended, by the cache of programs

A message has a cubin, as base64, and the work-groups of `rescheduled`, or a source and an architecture; the answer has the
cubin that came of it. What is left stands on standard input: a list of `Left` in JSON.
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

from gemmport.backends._improvement import Left
from gemmport.backends._nvrtc import compile_cuda
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
        finish(Left(*each) for each in json.load(sys.stdin))
        return
    channel = Channel()
    while (job := channel.hear()) is not None:
        if "source" in job:
            cubin = compile_cuda(job["source"], job["architecture"])
        else:
            cubin = rescheduled(b64decode(job["cubin"]), int(job["groups"]))
        channel.tell({"cubin": b64encode(cubin).decode()})


def finish(left: Iterable[Left]) -> None:
    """Makes programs that are missing in the cache, of those that stand there or of their sources."""
    for each in left:
        if hasattr(signal, "alarm"):
            signal.alarm(int(2 * LIMIT))  # nobody else ends a process that hangs
        with locks.exclusive(cache.cache_folder(), each.better):
            if cache.load_program(each.better) is not None:
                continue
            binary = cache.load_program(each.compiled)
            if binary is None and each.source:
                binary = compile_cuda(each.source, each.architecture)
                cache.store_program(each.compiled, binary)
            if binary is not None and each.groups:
                cache.store_program(each.better, rescheduled(binary, each.groups))


if __name__ == "__main__":
    main(sys.argv[1:])
