"""Who releases a memory, and when: as soon as it is collected, or at the end of the process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemmport.backends.base import Backend

log = logging.getLogger(__name__)

owned: dict[object, tuple[Backend, Callable[[], None]]] = {}
"""Memory to be released, by a reference to it or another key, whose it is, and how. Not kept by the backend: in a cycle of
garbage with it, no reference would call.
"""


def disown(reference: object) -> None:
    """Releases a memory, unless that was done."""
    found = owned.pop(reference, None)
    if found is not None:
        _, release = found
        release()


def release_all() -> None:
    """Releases what is still owned at the end of the process, while everything that takes is still there."""
    for reference, (backend, _) in list(owned.items()):
        try:
            disown(reference)
        except Exception:  # whatever it is, the next can still be released
            log.exception("memory of %s is not released", backend)
