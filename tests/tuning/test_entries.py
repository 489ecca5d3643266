"""What was found as a configuration file: it is read back as it was, and serves the device and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gemmport.core.device import DeviceInfo
from gemmport.core.errors import ConfigError
from gemmport.core.problem import GemmProblem
from gemmport.planning import lookup, parser
from gemmport.planning.lookup import load_configuration
from gemmport.planning.schema import Entry
from gemmport.tuning.entries import check_installable, entry_of, install, match_of, to_yaml
from gemmport.tuning.tilings import Tiling, Times
from made_up_devices import DEVICES

DEVICE = DEVICES["CPU under PoCL"]
A: Tiling = ("tiled", (("TS", 8), ("PAD", 1)))
B: Tiling = ("tiled", (("TS", 16), ("PAD", 0)))
MODEL: Tiling = ("gemv", ())
TABLE = [
    Times(GemmProblem.create(512, 512, 512), {A: 1.23456789e-3, B: 2e-3}),
    Times(GemmProblem.create(1, 512, 512, trans_b="T"), {A: 1e-3, MODEL: 1e-4}),
    Times(GemmProblem.create(9, 9, 9)),  # for which nothing has a time
]


def found(dtype: str = "float32", device: DeviceInfo = DEVICE) -> Entry:
    return entry_of(device, dtype, TABLE, [A, B, MODEL], tried=12)


def test_an_entry_is_read_back_as_it_was_written() -> None:
    entry = found()
    (loaded,) = parser.parse(to_yaml([entry], "of a test"), "a.yaml", "call").entries
    assert loaded.entry == entry
    assert entry.kernels == {"tiled": ({"TS": 8, "PAD": 1}, {"TS": 16, "PAD": 0}), "gemv": ({},)}
    first, second = entry.trials
    assert (first.m, first.ops, first.seconds) == (512, "NN", {"tiled": {0: 1.235e-3, 1: 2e-3}})
    assert (second.m, second.ops, second.seconds) == (1, "NT", {"tiled": {0: 1e-3}, "gemv": {0: 1e-4}})
    assert entry.provenance.tuned
    assert entry.provenance.driver == DEVICE.driver
    assert "12 candidates for 2 products" in entry.provenance.note


def test_each_tiling_and_each_trial_is_one_line() -> None:
    text = to_yaml([found()], "of a test")
    assert "        - {TS: 8, PAD: 1}\n" in text
    assert "      - {m: 512, n: 512, k: 512, batch: 1, ops: NN, dtype: float32, seconds: {tiled: {0: " in text
    assert "      gemv: {}\n" in text


def test_an_entry_is_for_the_device_the_runtime_the_type_and_the_shape_classes() -> None:
    match = found().match
    assert match.device_matches(DEVICE)
    for other in (
        replace(DEVICE, name="another"), replace(DEVICE, platform="another"), replace(DEVICE, backend="cuda"),
        replace(DEVICE, platform_version="99.9"),
    ):  # fmt: skip
        assert not match.device_matches(other)
    assert match.problem_matches(GemmProblem.create(500, 500, 500))
    assert match.problem_matches(GemmProblem.create(1, 500, 500))
    assert not match.problem_matches(GemmProblem.create(8, 8, 8))
    assert not match.problem_matches(GemmProblem.create(500, 500, 500, dtype="float64"))


@pytest.mark.parametrize(
    ("version", "other", "wanted"),
    [
        ("3.1", "3.0", "==3.1.*"),
        ("3.0-rc2", "3.1", "==3.0.*"),
        ("2026.22.10.0.01", "2026.23", "==2026.22.*"),
        ("12", "13", "==12.*"),
    ],
)
def test_versions_of_a_runtime_count_to_the_second_number(version: str, other: str, wanted: str) -> None:
    device = replace(DEVICE, platform_version=version)
    match = match_of(device, "float32", ["small"])
    assert match.version == wanted
    assert match.device_matches(device)
    assert not match.device_matches(replace(device, platform_version=other))


def test_a_version_that_nobody_can_read_is_left_out() -> None:
    device = replace(DEVICE, platform_version="of the day")
    assert match_of(device, "float32", ["small"]).device_matches(device)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder, which is not there yet."""
    monkeypatch.setattr(lookup, "user_config_folder", lambda name: tmp_path / "config" / name)
    monkeypatch.delenv("GEMMPORT_CONFIG_PATH", raising=False)
    return tmp_path / "config" / "gemmport"


def test_what_is_installed_is_read_by_default_and_another_type_stays(folder: Path) -> None:
    path = install([found()], DEVICE, "of a test")
    assert path.parent == folder
    assert [loaded.entry for loaded in load_configuration().entries if loaded.source == "user"] == [found()]
    assert install([found("float64")], DEVICE, "of a test") == path
    install([replace(found(), trials=())], DEVICE, "of a test")
    installed = [loaded.entry for loaded in load_configuration().entries if loaded.source == "user"]
    assert installed == [replace(found(), trials=()), found("float64")]
    assert install([found(device=DEVICES["AMD gfx90a"])], DEVICES["AMD gfx90a"], "of a test") != path


def test_nothing_is_installed_where_it_would_not_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMPORT_CONFIG_PATH", "")
    for refuse in (check_installable, lambda: install([found()], DEVICE, "of a test")):
        with pytest.raises(ConfigError, match="GEMMPORT_CONFIG_PATH must not be empty for --install"):
            refuse()
    assert not folder.exists()
