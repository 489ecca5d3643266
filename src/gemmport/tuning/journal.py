"""The file in which Optuna keeps every trial: a tuner that was interrupted or killed goes on with it.

One process at a time writes it. Trials that were running when their process died are marked failed, and a line that its end
cut short is cut off.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gemmport.core.device import DeviceInfo
from gemmport.core.errors import LibraryUnavailableError, RecordError
from gemmport.runtime import trust
from gemmport.runtime.cache import cache_folder
from gemmport.runtime.fingerprint import LENGTH, of_code, of_texts
from gemmport.runtime.locks import exclusive

if TYPE_CHECKING:
    import optuna

log = logging.getLogger(__name__)

FOLDER = "tuning"
"""Of journals, in the cache folder."""

GRACE_SECONDS = 5
"""After which Optuna's lock of a process that died is broken. It is held for milliseconds."""


def import_optuna() -> None:
    """Imports Optuna, and has it log like everything else.

    Raises:
        LibraryUnavailableError: it is not installed.
    """
    try:
        import optuna  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise LibraryUnavailableError(
            f"gemmport tune needs Optuna, which is not installed ({error}): pip install 'gemmport[tune]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)


def key_of(device: DeviceInfo, space: str) -> str:
    """What trials depend on beside the product: the device with its driver and runtime, the kernels, and the search space.

    Args:
        space: as `gemmport.tuning.space.fingerprint`.
    """
    return of_texts(*device.identity, kernel_sources(device.language), space)


def kernel_sources(language: str) -> str:
    """A fingerprint of all kernels: their contracts, and their sources in a language."""
    import gemmport.kernels  # noqa: PLC0415 - its place

    root = Path(gemmport.kernels.__path__[0])
    sources = sorted(path for path in (root / language).rglob("*") if path.is_file())
    texts = (path.read_text("utf-8") for path in sources)
    return of_texts(of_code(sorted(root.glob("*.py"))), *texts)


def default_path(key: str) -> Path:
    """Where a journal is kept where nobody says so.

    Raises:
        RecordError: there is no such folder, and it cannot be made.
    """
    try:
        return trust.make_folder(cache_folder() / FOLDER) / f"{key[:LENGTH]}.journal"
    except OSError as error:
        raise RecordError(
            f"the journal of trials has no place: {error}; name a file by -o, or another folder by GEMMPORT_CACHE_DIR"
        ) from error


@contextmanager
def opened(path: Path) -> Iterator[optuna.storages.JournalStorage]:
    """The journal in a file, which need not be there, for this process alone.

    Raises:
        RecordError: another process has it open, it cannot be written, or it is another kind of file.
        LibraryUnavailableError: Optuna is not installed.
    """
    import_optuna()
    from optuna.storages import JournalStorage  # noqa: PLC0415 - of an extra
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock  # noqa: PLC0415

    with _alone(path):
        try:
            _cut_off(path)
            # Whoever was killed while it held Optuna's own lock does not let go of it; nobody else holds it here.
            lock = JournalFileOpenLock(str(path), grace_period=GRACE_SECONDS)
            storage = JournalStorage(JournalFileBackend(str(path), lock))
            _fail_what_was_running(storage)
        except OSError as error:
            raise RecordError(f"{path} cannot be written: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(
                f"{path} must be a journal of gemmport tune; got {type(error).__name__}: {error}; remove it to begin anew"
            ) from error
        yield storage


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    folder = cache_folder() / FOLDER
    try:
        trust.make_folder(folder)
    except OSError as error:
        log.info("no lock keeps other processes off %s: %s", path, error)
        yield
        return
    with exclusive(folder, str(path.resolve()), seconds=0) as alone:
        if not alone:
            raise RecordError(
                f"{path} is in use by another gemmport tune: wait until it ends, or name another file by -o"
            )
        yield


def _cut_off(path: Path) -> None:
    """Removes what stands behind the last whole line."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        kept = end
        while kept:
            start = max(kept - 4096, 0)
            file.seek(start)
            found = file.read(kept - start).rfind(b"\n")
            if found >= 0:
                kept = start + found + 1
                break
            kept = start
        if kept < end:
            file.truncate(kept)


def _fail_what_was_running(storage: optuna.storages.JournalStorage) -> None:
    from optuna.trial import TrialState  # noqa: PLC0415 - of an extra

    for study in storage.get_all_studies():
        for trial in storage.get_all_trials(study._study_id, deepcopy=False, states=(TrialState.RUNNING,)):
            storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
