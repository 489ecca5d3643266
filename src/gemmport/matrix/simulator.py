"""Oclgrind, a simulator of OpenCL devices that finds data races, uninitialized reads and accesses out of bounds.

Its device is there only for programs that run under it, and what it finds is in its log.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from gemmport.core.device import DeviceInfo
from gemmport.runtime.child_processes import scratch_folder

log = logging.getLogger(__name__)

MOST_FAULTS = 5
"""Different faults that are told of one cell; each is met by many work-items."""

_START_LIMIT = 120.0
"""Seconds in which its device must have been found."""

_NO_SOURCE = "(source not available)"
"""What stands for the line of a program that was loaded from the cache, and not compiled now."""

_MESSAGES = 10**6
"""Messages in a log: by default, Oclgrind says nothing more after a thousand, and a later cell would pass unseen."""


def installed() -> bool:
    """Whether it is on the PATH."""
    return shutil.which("oclgrind") is not None


def devices() -> list[DeviceInfo]:
    """Its device, which a process under it is asked for; none where it is not installed, or does not start."""
    if not installed():
        return []
    with scratch_folder("gemmport-oclgrind-") as folder:
        answers = Path(folder) / "answers"
        probe = (sys.executable, "-m", "gemmport.diagnose.child", str(answers), "backend", "opencl")
        environment = {**os.environ, "PYTHONSAFEPATH": "1"}  # nothing is imported from where the user stands
        try:
            words = [*command(Path(folder) / "log"), *probe]
            done = subprocess.run(words, env=environment, check=False, capture_output=True, timeout=_START_LIMIT)
        except (OSError, subprocess.TimeoutExpired) as error:
            log.warning("Oclgrind does not start: %s", error)
            return []
        lines = answers.read_text("utf-8").splitlines() if answers.exists() else []
    found = [DeviceInfo.from_dict(told) for line in lines for told in json.loads(line).get("devices", ())]
    own = [device for device in found if device.platform == "oclgrind"]
    if not own:
        log.warning("Oclgrind shows no device: %s", done.stderr.decode(errors="replace")[-500:])
    return own


def command(log: Path) -> list[str]:
    """What goes before a command so that it runs under Oclgrind, which writes what it finds into `log`."""
    return ["oclgrind", "--data-races", "--uninitialized", "--max-errors", str(_MESSAGES), "--log", str(log)]


def faults(log: Path, since: int) -> tuple[list[str], int]:
    """What was found since the log had so many bytes, and how many it has now.

    Each fault is one line: what it is, the kernel, and the line of the source; how often, where it was met several times. At
    most `MOST_FAULTS`, and how many others there were. All that is in the log counts: where Oclgrind meets what it cannot
    simulate, it says so there and goes on with wrong data.
    """
    try:
        with log.open("rb") as file:
            file.seek(since)
            text = file.read()
    except FileNotFoundError:
        return [], since
    messages = re.split(r"\n\s*\n(?=\S)", text.decode(errors="replace").strip())
    counted = Counter(_in_one_line(message) for message in messages if message)
    told = [f"{fault} ({count} times)" if count > 1 else fault for fault, count in counted.most_common(MOST_FAULTS)]
    if len(counted) > MOST_FAULTS:
        told.append(f"and {len(counted) - MOST_FAULTS} others")
    return told, since + len(text)


def _in_one_line(message: str) -> str:
    """A message without what differs between the work-items that meet the same fault: addresses and their own numbers."""
    lines = [line.strip() for line in message.splitlines()]
    headline = " ".join(line for line, raw in zip(lines, message.splitlines(), strict=True) if raw[:1].strip())
    kernel = next((line.partition(":")[2].strip() for line in lines if line.startswith("Kernel:")), "")
    places = [
        f"at {found.group(1)}" + (f": {source}" if source != _NO_SOURCE else "")
        for line, source in itertools.pairwise(lines)
        if (found := re.match(r"At (line \d+)", line))
    ]
    headline = re.sub(r" (at|to|from) (\w+ memory) address 0x[0-9a-f]+", r" \1 \2", headline)
    return ", ".join(filter(None, (headline, f"in {kernel}" if kernel else "", *dict.fromkeys(places))))
