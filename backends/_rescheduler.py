"""The process in which machine code of NVIDIA's GPUs is rescheduled or made: in this one, Python would be held up meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmport.core.errors import LaunchError
from gemmport.runtime.cache import cache_folder
from gemmport.runtime.child_processes import Conversation, scratch_file

if TYPE_CHECKING:
    from gemmport.backends._improvement import Left

LEFT = "left"
"""Its argument, where it finds what to do on its standard input."""

LIMIT = 60.0
"""Seconds for a program, of which none takes one."""


class Rescheduler:
    """The process, which is started when it is needed. One thread may speak with it; any may end it."""

    def __init__(self) -> None:
        self._conversation: Conversation | None = None
        self._ended = False

    def rescheduled(self, cubin: bytes, groups: int) -> bytes:
        """As `gemmport.backends._sass.rescheduled`.

        Raises:
            LaunchError: the process does not start, has ended, takes too long, or says something else. The next time, there is
                another one.
        """
        better = self._answer({"cubin": b64encode(cubin).decode(), "groups": groups})
        if len(better) != len(cubin):
            raise LaunchError(f"a rescheduled cubin must have its {len(cubin):,} bytes; got {len(better):,}")
        return better

    def compiled(self, source: str, architecture: str) -> bytes:
        """As `gemmport.backends._nvrtc.compile_cuda`.

        Raises:
            LaunchError: likewise, and where the compiler refuses the source.
        """
        return self._answer({"source": source, "architecture": architecture})

    def _answer(self, job: Mapping[str, Any]) -> bytes:
        try:
            return self._answered(job)
        except (LaunchError, KeyError, TypeError, ValueError, OSError) as error:
            self.end()
            raise LaunchError(f"the process that reschedules machine code failed: {error!r}") from error

    def _answered(self, job: Mapping[str, Any]) -> bytes:
        conversation = self._conversation = self._conversation or Conversation(command(), environment())
        if self._ended:
            raise LaunchError("it was ended")
        conversation.tell(job)
        answer = conversation.hear(LIMIT)
        if answer is None:
            raise LaunchError(conversation.last_words())
        return b64decode(answer["cubin"], validate=True)

    def end(self, *, for_good: bool = False) -> None:
        """Ends the process, if there is one; `for_good`: there will be no other."""
        self._ended = self._ended or for_good
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            conversation.close()


def leave(programs: Sequence[Left]) -> None:
    """Leaves programs in the cache to a process that goes on when this one has ended; see `gemmport.backends._sass`.

    Raises:
        LaunchError, OSError: it does not start.
    """
    folder = cache_folder().absolute()
    with scratch_file() as told:  # not in its arguments: sources are long
        told.write(json.dumps(programs).encode())
        told.seek(0)
        process = subprocess.Popen(
            [*command(), LEFT], cwd=folder, start_new_session=True,
            env={**environment(), "GEMMPORT_CACHE_DIR": str(folder)},
            stdin=told, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    process.returncode = 0  # nobody waits for it, of which Python would warn


def command() -> list[str]:
    """What starts the process.

    Raises:
        LaunchError: Python does not tell its own program, as where it is a part of another.
    """
    program = Path(sys.executable or "").name.lower()
    if getattr(sys, "frozen", False) or not program.startswith(("python", "pypy")):
        raise LaunchError(f"sys.executable must be Python's; got {sys.executable!r}")
    # By its file: before Python 3.11, -m would import from the folder that this process works in.
    return [sys.executable, str(Path(__file__).with_name("_sass") / "__main__.py")]


def environment() -> dict[str, str]:
    """Variables for it, by which it imports nothing from the folder of its file either."""
    return {**os.environ, "PYTHONSAFEPATH": "1"}
