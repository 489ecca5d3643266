"""Kernels that are wrong on purpose, for --import faulty_kernels of `gemmport fuzz` and `gemmport matrix`: registered where
this is imported.

GEMMPORT_PLANTED names the fault: a mutation of naive, or what a runtime may do to the process: "aborts", "hangs", "exits", or
"aborts at last", which takes several problems.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from contextlib import ExitStack

from gemmport import kernels
from gemmport.kernels.naive import Naive
from mutations import NAIVE, planted

FAULT = os.environ["GEMMPORT_PLANTED"]

ODD, MANY = 7, 3
"""What a runtime does to the process, it does to problems of which m is a multiple of this, and to so many products at once."""

PATIENCE = 3
"""Of such problems, that at which the process aborts at last."""

_met = itertools.count(1)


def abort_at_last() -> None:
    """Ends the process that has met enough."""
    if next(_met) == PATIENCE:
        os.abort()


DEEDS: dict[str, Callable[[], object]] = {
    "aborts": os.abort,
    "hangs": lambda: time.sleep(3600),
    "exits": lambda: os._exit(0),
    "aborts at last": abort_at_last,
}


class Broken(Naive):
    """naive under another name, which may do something to the process."""

    name = "broken"

    def source(self, defines, *, function="", stem=""):  # type: ignore[no-untyped-def]
        return super().source(defines, function=NAIVE, stem=NAIVE)

    def steps(self, problem, device, parameters):  # type: ignore[no-untyped-def]
        if FAULT in DEEDS and (problem.m % ODD == 0 or problem.batch == MANY):
            DEEDS[FAULT]()
        return super().steps(problem, device, parameters)


open_until_the_end = ExitStack()
if FAULT not in DEEDS:
    open_until_the_end.enter_context(planted(FAULT, NAIVE))
kernels.register(Broken())
