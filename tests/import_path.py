"""PYTHONPATH for processes that tests start: they import modules of tests, and gemmport from where it may be installed."""

from __future__ import annotations

import os
from pathlib import Path


def import_path(*folders: Path) -> str:
    """It with more folders, before the others: gemmport itself may stand in one of those."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
