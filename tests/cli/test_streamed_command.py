"""`gemmport run --device-memory`: products that pass through a device in tiles."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gemmport.api.product import Choice
from gemmport.bench import streamed
from gemmport.cli import options as cli_options
from gemmport.cli import output

SMALL = ("--size", 300, "--device-memory", "300kB", "--repeat", 1)


def test_products_in_tiles_are_verified(gemmport_command, monkeypatch):
    monkeypatch.setattr(output, "LINE_SECONDS", 1e6)  # a busy machine would tell how far it is
    options = ("--dtype", "float16", "--beta", 2, "--trans-a", "--format", "json")
    status, out, err = gemmport_command("run", *SMALL, *options)
    assert (status, err) == (0, "")
    (result,) = json.loads(out)["results"]
    assert result["verified"] is True
    assert result["schedule"]["tiles"] > 1
    assert result["schedule"]["device_bytes"] <= 300_000
    assert "PASS" in gemmport_command("run", *SMALL)[1]


def test_operands_are_read_from_maps(gemmport_command, monkeypatch, tmp_path):
    product, given = streamed.gemm, []
    monkeypatch.setattr(
        streamed, "gemm", lambda *x, **options: given.append((*x, options["c"])) or product(*x, **options)
    )
    status, out, _ = gemmport_command("run", *SMALL, "--beta", 2, "--mapped", tmp_path, "--format", "json")
    (result,) = json.loads(out)["results"]
    assert (status, result["verified"], result["mapped"]) == (0, True, True)
    assert all(type(x) is np.memmap and x.filename.is_relative_to(tmp_path) for each in given for x in each)
    assert not [*tmp_path.iterdir()]
    assert json.loads(gemmport_command("run", *SMALL, "--format", "json")[1])["results"][0]["mapped"] is False
    status, _, err = gemmport_command("run", "--size", 30, "--mapped", tmp_path)
    assert status == 2
    assert "--mapped says nothing without --device-memory" in err


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_products_in_tiles_are_rounded_as_was_asked_for(gemmport_command, monkeypatch, precision):
    product = streamed.gemm
    status, out, _ = gemmport_command("run", *SMALL, "--precision", precision)
    assert status == 0
    assert f"rounded to {precision}" in out
    monkeypatch.setattr(streamed, "gemm", lambda *given, **options: product(*given, **{**options, "precision": "full"}))
    status, out, _ = gemmport_command("run", *SMALL, "--precision", precision)
    assert status == 1, "what is not rounded is told from what is"
    assert "FAIL" in out


def test_a_wrong_result_fails(gemmport_command, monkeypatch):
    product = streamed.gemm

    def broken(*given, **options):
        result = product(*given, **options)
        result[-1, -1] = np.float32(1e6)
        return result

    monkeypatch.setattr(streamed, "gemm", broken)
    status, out, _ = gemmport_command("run", *SMALL)
    assert status == 1
    assert "FAIL" in out


def test_what_takes_long_is_repeated_as_often_as_asked_or_a_few_times(gemmport_command, monkeypatch):
    product, calls = streamed.gemm, []
    monkeypatch.setattr(streamed, "gemm", lambda *given, **options: calls.append(1) or product(*given, **options))
    monkeypatch.setattr(cli_options, "PATIENCE_SECONDS", 0.0)
    for repeat, times in (((), 3), (("--repeat", 5), 5)):
        calls.clear()
        assert gemmport_command("run", *SMALL[:-2], *repeat)[0] == 0
        assert len(calls) == 1 + times


def test_what_does_not_go_with_it_is_refused(gemmport_command):
    status, _, err = gemmport_command("run", "--size", 30, "--device-memory", "much")
    assert status == 2
    assert "must be a number of bytes" in err
    assert gemmport_command("run", *SMALL, "--format", "csv")[0] == 2
    status, _, err = gemmport_command("run", *SMALL, "--baseline", "numpy")
    assert status == 2
    assert "leave out --baseline" in err


def test_an_explanation_tells_the_traffic(gemmport_command):
    status, out, _ = gemmport_command("explain", 3000, 3000, 3000, "--device-memory", "4MiB")
    assert status == 0
    assert "bound: 2mnk/√M is" in out


def test_several_devices_are_asked_for_nothing_that_was_not_given(gemmport_command, monkeypatch):
    asked = []
    monkeypatch.setattr("gemmport.cli.dealt.run_on_devices", lambda *given, **_: asked.append(given[3].choice) or 0)
    assert gemmport_command("run", "--devices", "all", "--size", 64)[0] == 0
    assert asked == [Choice()], "what is asked for is planned anew for each product"
