"""The process in which the cells of one device are judged: whatever a runtime does to it, the campaign goes on.

It is told {"device": …, "imports": […]}, opens the device and tells {"runtime": …}; then it is told {"cell": id} again and
again, and tells what came of each, a `Judgement`, until nothing more is said.
"""

from __future__ import annotations

import importlib
import logging
from dataclasses import asdict

from gemmport.core.device import DeviceInfo
from gemmport.execution.selection import get_backend
from gemmport.matrix.cells import Cell
from gemmport.matrix.judge import judge
from gemmport.runtime.child_processes import Channel


def main() -> None:
    """Judges the cells that it is told."""
    logging.basicConfig(level=logging.ERROR)
    channel = Channel()
    job = channel.hear()
    if job is None:
        return
    for module in job["imports"]:
        importlib.import_module(module)
    backend = get_backend(device=DeviceInfo.from_dict(job["device"]))
    channel.tell({"runtime": backend.environment()})
    while (asked := channel.hear()) is not None:
        channel.tell(asdict(judge(Cell.parse(asked["cell"]), backend)))


if __name__ == "__main__":
    main()
