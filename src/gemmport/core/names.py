"""Names that people write: those of runtimes and vendors, and which one was meant."""

from __future__ import annotations

from collections.abc import Collection

PLATFORMS = {
    "portable computing language": "pocl",
    "intel": "intel",
    "rusticl": "rusticl",
    "oclgrind": "oclgrind",
    "nvidia": "nvidia",
    "amd": "amd",
    "apple": "apple",
    "arm": "arm",
    "clover": "clover",
}
"""Starts of the platforms' names in their own words → the aliases that people use."""

VENDORS = {
    "nvidia": "nvidia",
    "amd": "amd",
    "advanced micro devices": "amd",
    "intel": "intel",
    "arm": "arm",
    "mali": "arm",
    "apple": "apple",
    "qualcomm": "qualcomm",
}
"""Words in what devices and their vendors are called → the vendors' names, in the order in which they are looked for."""


def did_you_mean(name: object, known: Collection[str]) -> str:
    """The end of a message about an unknown name: "; did you mean TSM?", or nothing where no known one is near it."""
    # Imported where a name is wrong: that is rare, and every process would wait for it.
    from difflib import get_close_matches  # noqa: PLC0415

    spellings = {each.casefold(): each for each in known}
    near = get_close_matches(str(name)[:100].casefold(), spellings, n=1)
    return f"; did you mean {spellings[near[0]]}?" if near else ""
