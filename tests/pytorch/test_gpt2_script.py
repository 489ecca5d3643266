"""benchmarks/gpt2.py on a tiny model, where the tests have their tensors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from absences import TORCH, needs

if TORCH.is_here():
    import torch

    import small_gpt  # noqa: F401  # puts the script's folder on the path
    import tensors

pytestmark = needs(TORCH)

TINY = [
    *("--layers", "1", "--width", "16", "--heads", "2", "--words", "19", "--batch", "2", "--length", "6"),
    *("--compiler", "aot_eager", "--repeat", "1", "--seconds", "0"),
]


def test_a_tiny_model_is_judged_and_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gpt2  # noqa: PLC0415 - it needs torch

    file = tmp_path / "gpt2.json"
    ran = CliRunner().invoke(gpt2.main, ["--device", tensors.place, *TINY, "--output", str(file)])
    assert ran.exit_code == 0, ran.output
    document = json.loads(file.read_text())
    found = {result["way"]: result for result in document["results"]}
    assert set(found) == {"eager", "compiled", "step"} | ({"graph"} if tensors.place == "cuda" else set())
    assert [found[way]["products"] for way in ("eager", "compiled", "step")] == [7, 7, 21]
    assert all(found[way]["seconds"][side]["median"] > 0 for way in found for side in ("torch", "gemmport"))
    assert document["model"]["weights"] == sum(x.numel() for x in gpt2.GPT(19, 16, 2, 1, 6).parameters())


def test_numbers_that_are_off_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import gpt2  # noqa: PLC0415 - it needs torch

    from gemmport.torch import mode  # noqa: PLC0415 - as above

    mm = torch.ops.aten.mm.default
    own = mode._ROUTES[mm]
    monkeypatch.setitem(mode._ROUTES, mm, lambda a, b: own(a, b) * (1 + 1e-4))
    ran = CliRunner().invoke(gpt2.main, ["--device", tensors.place, *TINY])
    assert ran.exit_code == 1
    assert "FAIL" in ran.output
