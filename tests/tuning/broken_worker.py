"""A process that takes part in tuning like the real one, but crashes, hangs or compiles for ever where a candidate says so."""

from __future__ import annotations

import os
import time

from gemmport.runtime.child_processes import Channel


def main() -> None:
    """Answers as the candidate's parameter FATE says."""
    channel = Channel()
    assert channel.hear() is not None
    channel.tell({"runtime": {"name": "made up"}})
    while (asked := channel.hear()) is not None:
        fate = asked["candidate"][1]["FATE"]
        if fate == "compiles for ever":
            time.sleep(60)
        channel.tell({"built": 0.1})
        if fate == "crashes":
            os._exit(7)
        if fate == "wrong":
            channel.tell({"refused": "wrong", "reason": "freivalds: 3 of 5"})
            continue
        channel.tell({"right": True})
        if fate == "hangs":
            time.sleep(60)
        channel.tell({"look": 0.5})
        answer = channel.hear()
        if answer is not None and answer["sample"]:
            channel.tell({"samples": [3.0, 1.0, 2.0]})


if __name__ == "__main__":
    main()
