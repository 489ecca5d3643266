"""Tables in terminals of any width, in pipes and in files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gemmport as gp
from gemmport.cli import fitting, output
from gemmport.cli.output import Column, Sheet, labels, short_names
from made_up_devices import DEVICES
from terminals import COMMAND, shown, without_colours

SHEET = Sheet(
    (
        Column("device", dispensable=2), Column("problem"), Column("parameters", dispensable=3),
        Column("time", numbers=True, dispensable=1), Column("GFLOPS", numbers=True), Column("result"),
    ),
    [
        ["A GPU\nopencl 3.0", "float32 NN 4096×4096×4096", "TSM=128 TSN=128 WPTM=8", "1.25 ms ±12.5%", "12345.6", "PASS"],
        ["A GPU\nopencl 3.0", "float32 NN 1024×1024×1024", "TSM=64 TSN=32 WPTM=4", "7.35 µs ±1.1%", "71.4", "PASS"],
    ],
    ["a note"],
)  # fmt: skip


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Draws a sheet in a terminal of a width; None: a pipe."""

    def draw(sheet: Sheet, width: int | None) -> list[str]:
        monkeypatch.setattr(output.streams, "terminal_width", lambda: width)
        return output.drawn(sheet, to_terminal=True).splitlines()

    return draw


@pytest.mark.parametrize("width", [200, 120, 80, 60, 40])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_broken(wide: Any, width: int) -> None:
    lines = wide(SHEET, width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for number in ("4096×4096×4096", "1024×1024×1024", "12345.6", "71.4"):
        assert number in text


def test_columns_are_left_out_in_their_order_and_told(wide: Any) -> None:
    headings = {width: wide(SHEET, width)[0].split() for width in (130, 66, 46)}
    assert headings[130] == ["device", "problem", "parameters", "time", "GFLOPS", "result"]
    assert headings[66] == ["problem", "parameters", "time", "GFLOPS", "result"]  # the device is the same in all rows
    assert headings[46] == ["problem", "time", "GFLOPS", "result"]
    assert "device: A GPU, opencl 3.0" in wide(SHEET, 66)
    told = " ".join(wide(SHEET, 46))
    width = fitting.needed(SHEET.filled())
    assert f"no room for parameters: a terminal of {width} columns (or COLUMNS={width}) or a pipe shows all" in told
    assert wide(SHEET, width)[0].split() == headings[130]


def test_what_shows_all_includes_the_formats_of_the_command(wide: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_formats", lambda: ("csv", "json"))
    assert "a pipe, --format csv or --format json shows all" in " ".join(wide(SHEET, 46))


def test_in_a_pipe_a_row_is_one_line_and_whole(wide: Any) -> None:
    lines = wide(SHEET, None)
    assert len(lines) == 4
    assert lines[1].split("  ")[0].startswith("A GPU, opencl 3.0 float32 NN 4096×4096×4096 TSM=128 TSN=128 WPTM=8")
    assert lines[1].endswith("1.25 ms ±12.5% 12345.6 PASS")
    assert lines[3] == "a note"


def test_groups_that_have_no_room_side_by_side_stand_below_each_other(wide: Any) -> None:
    columns = [Column("step"), *(Column(f"{g} time", numbers=True, group=g) for g in ("a", "b", "c"))]
    sheet = Sheet(columns, [["naive", "1.0 ms", "2.0 ms", "3.0 ms"]])
    assert wide(sheet, 40) == ["step  a time b time c time", "naive 1.0 ms 2.0 ms 3.0 ms"]
    assert wide(sheet, 20) == ["step  a time b time", "naive 1.0 ms 2.0 ms", "", "step  c time", "naive 3.0 ms"]


def test_words_are_broken_last_and_never_numbers(wide: Any) -> None:
    sheet = Sheet([Column("kernel"), Column("GFLOPS", numbers=True)], [["register_tiled_vectorized", "123456.7"]])
    assert wide(sheet, 24) == ["kernel            GFLOPS", "register_tiled_ 123456.7", "vectorized"]
    assert any(line.endswith(" 123456.7") for line in wide(sheet, 12))


def test_a_file_has_no_colours_whatever_is_asked_of_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in output.drawn(SHEET, to_terminal=False)


def test_devices_that_are_alike_are_told_apart() -> None:
    one = DEVICES["NVIDIA sm_90 under CUDA"]
    from dataclasses import replace  # noqa: PLC0415

    two = replace(one, index=(0, 1))
    assert list(labels([one, two]).values()) == [f"{one.label} 0:0", f"{one.label} 0:1"]
    assert list(labels([one]).values()) == [one.label]
    pocl = DEVICES["CPU under PoCL"]
    older = replace(pocl, platform_version="3.0")
    intel = DEVICES["Intel GPU"]
    assert list(short_names([intel, pocl, older]).values()) == ["intel", "pocl 6.0", "pocl 3.0"]
    assert list(short_names([one, intel]).values()) == ["cuda", "opencl"]


# The command itself


def small(backend: gp.Backend, *arguments: str) -> list[str]:
    device = ["--backend", backend.name, "--device", backend.device.selector]
    return ["run", "--sizes", "8:16:8", "--repeat", "1", "--baseline", "numpy", *device, *arguments]


def piped(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, env={**own, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_run_fits_a_narrow_terminal(best_backend: gp.Backend) -> None:
    status, text = shown(small(best_backend), 60)
    lines = without_colours(text).splitlines()
    assert status == 0
    assert [line for line in lines if len(line) > 60 and " " in line.strip()] == []
    assert "GFLOPS" in lines[0] + lines[1]
    assert "PASS" in text


@pytest.mark.processes
@pytest.mark.parametrize("width", [80, 40])
def test_every_list_fits_a_narrow_terminal(width: int) -> None:
    sizes, cluster = ["64", "64", "64"], ["--cluster", "nodes=2,gpus=2,link=4GB/s,net=1GB/s"]
    for command in (
        ["kernels"], ["devices"], ["--help"], ["run", "--help"], ["configs"], ["configs", "--explain"],
        ["explain", *sizes], ["explain", *sizes, *cluster], ["explain", *sizes, "--devices", "0:0"],
    ):  # fmt: skip
        status, text = shown(command, width)
        assert status == 0
        lines = [line for line in without_colours(text).splitlines() if len(line) > width and " " in line.strip()]
        assert [line for line in lines if not line.startswith("    gemmport ")] == []  # examples can be copied


def test_colours_and_columns_do_not_change_the_table_in_a_pipe(best_backend: gp.Backend) -> None:
    narrow = piped(small(best_backend), COLUMNS="40").stdout
    assert len([line for line in narrow.splitlines() if line.endswith("PASS")]) == 2
    assert "configs/" in narrow
    assert "\x1b" not in narrow
    coloured = piped(small(best_backend), FORCE_COLOR="1").stdout
    assert "\x1b[1m" in coloured
    assert len(re.findall("PASS", coloured)) == 2
    assert "no room" not in coloured


@pytest.mark.processes
def test_no_colour_is_no_colour_in_a_terminal(best_backend: gp.Backend) -> None:
    assert "\x1b[32m" in shown(["devices"], 80)[1]
    assert "\x1b[32m" not in shown(["devices"], 80, {"NO_COLOR": "1"})[1]


# Several devices


def test_all_devices_and_several_are_taken(gemmport_command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEMMPORT_DEVICE")
    monkeypatch.delenv("GEMMPORT_BACKEND")
    known = gp.devices("opencl")
    if len(known) < 2:
        pytest.skip("one device only")
    job = ("run", "--size", 8, "--repeat", 1, "--baseline", "none", "--kernel", "naive", "--format", "json")

    def asked(*arguments: str) -> list[str]:
        status, out, _ = gemmport_command(*job, "--backend", "opencl", *arguments)
        assert status == 0
        return [result["selector"] for result in json.loads(out)["results"]]

    one, two = (device.selector for device in known[:2])
    assert asked("--device", "all") == [device.selector for device in known]
    assert asked("--device", f"{two},{one}") == asked("--device", two, "--device", one) == [two, one]
    assert asked("--device", one, "--device", one) == [one]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--device", "all,0:0"), 2, "--device all is every device: leave out the others"),
        (("--device", "0:0,,1:0"), 2, "write PLATFORM[:DEVICE] with commas between, or all"),
        (("--device", "0:0,no such"), 3, "no device 'no such'"),
        (("--backend", "all", "--device", "no such"), 3, "no backend has a device 'no such'"),
        (("--backend", "vulkan", "--device", "all"), 2, "no backend 'vulkan'"),
    ],
)
def test_devices_that_are_not_there_are_told(
    gemmport_command: Any, arguments: tuple[str, ...], status: int, message: str
) -> None:
    found, out, err = gemmport_command("run", "--size", 8, *arguments)
    assert (found, out) == (status, "")
    assert message in err


def test_a_ladder_of_all_devices_names_each(
    gemmport_command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("GEMMPORT_DEVICE")
    file = tmp_path / "ladder.json"
    options = ("--backend", "opencl", "--size", 16, "--repeat", 1, "--baseline", "none")
    status, _, err = gemmport_command(
        "ladder", "transpose", *options, "--device", "all", "--format", "json", "--output", file
    )
    assert status in (0, 3), err
    told = {result["selector"] for result in json.loads(file.read_text())["results"]}
    assert told == {device.selector for device in gp.devices("opencl")}
