"""What the programs of this folder write: JSON with command, environment and devices, as `gemmport run` does."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gemmport.backends.base import Backend
from gemmport.bench.environment import host_environment

SCHEMA = 1


def command_line() -> str:
    """The command as it was given, without where its output goes."""
    given = iter(sys.argv[1:])
    told = ["python", f"benchmarks/{Path(sys.argv[0]).name}"]
    for word in given:
        if word == "--output":
            next(given, None)
        elif not word.startswith("--output="):
            told.append(word)
    return shlex.join(told)


def write(output: Path | None, backends: Iterable[Backend] = (), **content: Any) -> None:
    """Writes a document to a file, or to standard output.

    Args:
        output: the file; None: standard output.
        backends: those of the devices that were measured.
        content: what the document has beside command and environment.
    """
    devices = {
        backend.device.label: {**backend.device.to_dict(), "runtime": backend.environment()} for backend in backends
    }
    environment = {**host_environment(), "devices": devices}
    document = {"schema": SCHEMA, "command": command_line(), "environment": environment, **content}
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")


@contextmanager
def kept(output: Path | None, backends: Iterable[Backend] = ()) -> Iterator[list[dict[str, Any]]]:
    """A list of results, to be filled; it is written to a file at the end, and where Ctrl-C comes before that.

    Args:
        output: the file; None: nothing is written.
        backends: as in `write`.
    """
    results: list[dict[str, Any]] = []
    try:
        yield results
    except KeyboardInterrupt:
        if output is not None and results:
            write(output, backends, interrupted=True, results=results)
        raise
    if output is not None:
        write(output, backends, results=results)
