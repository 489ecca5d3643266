"""One of the processes that make programs ahead.

It is told {"device": …, "problem": …}, and tells a `Preparation`; or {"device": …, "source": …}, and tells {"refusal": …},
which is empty where the program is on disk, with the better one that there may be. So again and again, until nothing more
is said.
"""

from __future__ import annotations

import logging
from dataclasses import asdict

from gemmport.api.ahead import Preparation
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import GemmportError
from gemmport.core.problem import GemmProblem
from gemmport.execution.selection import get_backend
from gemmport.runtime.child_processes import Channel


def _compiled(source: str, device: DeviceInfo) -> dict[str, str]:
    try:
        get_backend(device=device).program(source)
    except GemmportError as error:
        return {"refusal": str(error)}
    return {"refusal": ""}


def main() -> None:
    """Does what it is told to."""
    logging.basicConfig(level=logging.ERROR)
    channel = Channel()
    while (asked := channel.hear()) is not None:
        device = DeviceInfo.from_dict(asked["device"])
        if "source" in asked:
            channel.tell(_compiled(asked["source"], device))
        else:
            channel.tell(asdict(Preparation.of(GemmProblem.from_dict(asked["problem"]), device)))


if __name__ == "__main__":
    main()
