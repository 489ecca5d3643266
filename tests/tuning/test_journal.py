"""The journal of trials: one process at a time, nothing lost, what was running marked failed, what was cut short cut off."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import optuna
import pytest

from gemmport.core.errors import LibraryUnavailableError, RecordError
from gemmport.tuning import journal
from made_up_devices import DEVICES

DEVICE = DEVICES["CPU under PoCL"]


def states(path: Path) -> list[str]:
    with journal.opened(path) as storage:
        study = optuna.create_study(storage=storage, study_name="s", load_if_exists=True)
        return [trial.state.name for trial in study.get_trials(deepcopy=False)]


def begun(path: Path) -> None:
    """A journal with a finished trial, and one that its process never ended."""
    with journal.opened(path) as storage:
        study = optuna.create_study(storage=storage, study_name="s")
        study.tell(study.ask(), 1.0)
        study.ask()


def test_a_trial_that_was_running_is_marked_failed_and_the_others_are_there(tmp_path: Path) -> None:
    begun(tmp_path / "a.journal")
    assert states(tmp_path / "a.journal") == ["COMPLETE", "FAIL"]


def test_a_line_that_was_cut_short_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    begun(path)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code": 4, "x": "' + b"y" * 9000)
    assert states(path) == ["COMPLETE", "FAIL"]
    assert path.read_bytes().startswith(whole)
    assert b"yy" not in path.read_bytes()


@pytest.mark.filterwarnings("ignore:The value of `grace_period`")  # Optuna would have more than a test
def test_a_lock_of_a_process_that_died_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.journal"
    begun(path)
    Path(f"{path}.lock").touch()
    monkeypatch.setattr(journal, "GRACE_SECONDS", 1)
    assert states(path) == ["COMPLETE", "FAIL"]
    assert not Path(f"{path}.lock").exists()


def test_a_file_that_is_no_journal_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    path.write_text("not JSON\nnor this\n")
    with (
        pytest.raises(RecordError, match=r"a\.journal must be a journal of gemmport tune.*remove it"),
        journal.opened(path),
    ):
        pass
    with pytest.raises(RecordError, match="cannot be written"), journal.opened(tmp_path / "gone" / "a.journal"):
        pass


def test_two_processes_do_not_share_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    program = (
        "import sys; from pathlib import Path; from gemmport.core.errors import RecordError\n"
        "from gemmport.tuning import journal\n"
        "try:\n"
        "    with journal.opened(Path(sys.argv[1])): print('opened')\n"
        "except RecordError as error: print(error)\n"
    )

    def other() -> str:
        return subprocess.run(
            [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
        ).stdout

    with journal.opened(path):
        assert "is in use by another gemmport tune" in other()
    assert other() == "opened\n"


def test_without_optuna_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(LibraryUnavailableError, match=r"pip install 'gemmport\[tune\]'"):
        journal.import_optuna()


def test_a_key_is_of_the_device_its_driver_the_kernels_and_the_space(monkeypatch: pytest.MonkeyPatch) -> None:
    key = journal.key_of(DEVICE, "space")
    assert journal.key_of(DEVICE, "space") == key
    others = [
        journal.key_of(replace(DEVICE, driver="another"), "space"),
        journal.key_of(replace(DEVICE, platform_version="9.9"), "space"),
        journal.key_of(DEVICE, "another space"),
    ]
    monkeypatch.setattr(journal, "kernel_sources", lambda language: "other sources")
    others.append(journal.key_of(DEVICE, "space"))
    assert len({key, *others}) == 5
