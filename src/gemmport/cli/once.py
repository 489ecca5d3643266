"""What is missing on this machine, and not asked for by name: told at the first command that would use it, and not again.

`gemmport doctor` and `gemmport devices` always tell it, and so does -v.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from gemmport.runtime.cache import load_text, program_key, store_text

_NAME = "told"
_KEY = program_key("what is missing", "1")

_MOST = 100
"""Notes that are remembered."""


def news(missing: Mapping[str, str]) -> list[str]:
    """Of what is missing, name → why, a line for each that was not told on this machine, in these words, or for all with -v."""
    lines = {program_key(name, why): why if why.startswith(name) else f"{name}: {why}" for name, why in missing.items()}
    if logging.getLogger("gemmport").isEnabledFor(logging.INFO):
        return list(lines.values())
    told = _told()
    fresh = {key: line for key, line in lines.items() if key not in told}
    if not fresh:
        return []
    store_text(_NAME, _KEY, json.dumps([*told, *fresh][-_MOST:]))
    return [f"{line} (told once; gemmport doctor tells it again)" for line in fresh.values()]


def _told() -> list[str]:
    try:
        found = json.loads(load_text(_NAME, _KEY) or "[]")
    except ValueError:  # nobody's but ours, and written whole: of another version
        return []
    return [str(key) for key in found]
