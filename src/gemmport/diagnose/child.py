"""What `gemmport doctor` looks at in processes of their own, so that a runtime that crashes or hangs takes nothing with it.

    python -m gemmport.diagnose.child FILE backend NAME…                  its pieces and its devices
    python -m gemmport.diagnose.child FILE device BACKEND SELECTOR DTYPE… a verified product in each type
    python -m gemmport.diagnose.child FILE form BACKEND SELECTOR LABEL…   exact products by forms of kernels
    python -m gemmport.diagnose.child FILE link BACKEND SELECTOR OTHER…   its link to the host; how it reaches others
    python -m gemmport.diagnose.child FILE chosen                         the device that is taken where none is named
    python -m gemmport.diagnose.child FILE baseline NAME…                 its version

Each answer is one line of JSON in FILE, written when it is known: after a crash, those before it are there. Standard output is
left to the runtimes, some of which write to it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from gemmport import baselines
from gemmport.backends.parts import parts
from gemmport.bench.products import Options, run_benchmark
from gemmport.core.errors import BaselineUnavailableError, GemmportError
from gemmport.core.problem import GemmProblem
from gemmport.diagnose.forms import fault
from gemmport.diagnose.links import measured
from gemmport.execution.links import measured_between
from gemmport.execution.selection import backend_status, get_backend, select_device
from gemmport.planning import verdicts
from gemmport.planning.lookup import load_configuration
from gemmport.runtime.child_processes import end_with_parent

SIZES = (65, 63, 66)
"""m, n and k: small, and multiples of no tile, so that edges are computed too."""


def _backend(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        yield {"parts": [asdict(part) for part in parts(name)]}
        status = backend_status(name)
        yield {
            "error": status.error,
            "notes": status.notes,
            "devices": [device.to_dict() for device in status.devices],
        }


def _device(arguments: Sequence[str]) -> Iterator[dict[str, Any]]:
    backend, selector, *dtypes = arguments
    device = select_device(selector, backend)
    options = Options(load_configuration(), baselines=(), repeat=1)
    for dtype in dtypes:
        try:
            (result,) = run_benchmark([GemmProblem.create(*SIZES, dtype=dtype)], [device], options)
        except GemmportError as error:  # the user's configuration asks for what is not possible here
            yield {"status": "refused", "reason": str(error), "kernel": "", "entry": ""}
        else:
            plan = result.plan
            kernel, entry = (plan.variant, plan.entry) if plan else (result.kernel, "")
            yield {"status": result.status, "reason": result.reason, "kernel": kernel, "entry": entry}


def _form(arguments: Sequence[str]) -> Iterator[dict[str, Any]]:
    backend, selector, *labels = arguments
    opened = get_backend(backend, selector)
    known = {form.label: form for form in verdicts.forms(opened.device)}
    for label in labels:
        try:
            wrong = fault(opened, known[label])
        except GemmportError as error:
            yield {"status": "refused", "reason": str(error)}
        else:
            yield {"status": "failed" if wrong else "ok", "reason": wrong}


def _chosen(_: Sequence[str]) -> Iterator[dict[str, Any]]:
    try:
        device = select_device()
    except GemmportError as error:
        yield {"error": str(error), "kind": type(error).__name__}
    else:
        yield {"backend": device.backend, "selector": device.selector}


def _link(arguments: Sequence[str]) -> Iterator[dict[str, Any]]:
    backend, selector, *others = arguments
    opened = get_backend(backend, selector)
    yield asdict(measured(opened))
    for other in others:
        device = select_device(other, backend)
        reaches = opened.reaches(device)
        yield {"reaches": reaches, "rate": measured_between(get_backend(backend, other), opened) if reaches else None}


def _baseline(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        try:
            yield {"version": baselines.load(name).version}
        except BaselineUnavailableError as error:
            yield {"error": str(error)}


_PROBES: dict[str, Callable[[Sequence[str]], Iterator[dict[str, Any]]]] = {
    "backend": _backend,
    "device": _device,
    "form": _form,
    "link": _link,
    "chosen": _chosen,
    "baseline": _baseline,
}


def main() -> None:
    """Answers the command line."""
    end_with_parent()
    _, file, question, *arguments = sys.argv
    with open(file, "w", encoding="utf-8") as answers:
        for answer in _PROBES[question](arguments):
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
