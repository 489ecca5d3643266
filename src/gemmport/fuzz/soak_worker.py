"""The process that a soak watches. It reads what `run_soak` asks for, and writes its report after each sample."""

from __future__ import annotations

import logging
from dataclasses import asdict

from gemmport.execution.selection import select_device, share_backend
from gemmport.fuzz.faulty import faulty
from gemmport.fuzz.soak import Soak, SoakOptions, SoakReport
from gemmport.runtime.child_processes import Channel


def main() -> None:
    """Soaks the device that it reads from its parent."""
    logging.basicConfig(level=logging.CRITICAL)  # refused programs and memory are what is injected
    channel = Channel()
    asked = channel.hear()
    if asked is None:
        return
    backend = faulty(select_device(asked.pop("device"), asked.pop("backend")))
    share_backend(backend)

    def tell(report: SoakReport) -> None:
        told = report.to_dict()
        channel.tell({"sample": asdict(report.samples[-1]), **{key: told[key] for key in ("ways", "raised", "faults")}})

    Soak(backend, SoakOptions(**asked)).run(tell)
    channel.tell({"end": True})


if __name__ == "__main__":
    main()
