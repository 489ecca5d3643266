"""What CLBlast's tuners found is read as they write it, is in force where it belongs and told, or it is said what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tested
from absences import CLBLAST, none_of, skip_without
from gemmport.baselines import _clblast_tuning as tuning
from gemmport.core.errors import BaselineUnavailableError

DEVICE = "A device"

OTHER = {"GEMMK": 0}

XGEMM = {
    "GEMMK": 0, "KREG": 1, "KWG": 16, "KWI": 2, "MDIMA": 8, "MDIMC": 8, "MWG": 128, "NDIMB": 8, "NDIMC": 8, "NWG": 16,
    "SA": 1, "SB": 0, "STRM": 1, "STRN": 0, "VWM": 2, "VWN": 1,
}  # fmt: skip
"""Allowed by the kernel, and nothing that CLBlast has for any device."""

INDIRECT = {"XGEMM_MIN_INDIRECT_SIZE": 0}
"""So that each product is by Xgemm."""

MAIN = "from gemmport.cli import main; main()"


def found(
    folder: Path, family: str, parameters: dict[str, int], *times: float, device: str = DEVICE, precision: int = 32,
    **content: Any,
) -> Path:  # fmt: skip
    """A file as a tuner writes it; of the results, which have all that was tried, only what they took."""
    file = folder / f"clblast_{family}_{precision}.json"
    told = {**parameters, "PRECISION": precision}
    best = " ".join(f"{name}={value}" for name, value in told.items())
    head = {"kernel_family": family, "precision": str(precision), "best_parameters": best, "device": device, **content}
    each = [{"kernel": "K", "time": time, "parameters": told} for time in times or (1.0,)]
    file.write_text(json.dumps({**head, "results": each}))
    return file


def test_of_a_kernels_files_the_fastest_counts(tmp_path):
    found(tmp_path, "xgemm_1", {**OTHER, "MWG": 16}, 3.0, 2.0, arg_m="1024")
    found(tmp_path, "xgemm_2", {**OTHER, "MWG": 32}, 9.0, 1.001, 4.0, arg_m="1024")
    found(tmp_path, "xgemm_12", {**OTHER, "MWG": 64}, 1.002, arg_m="1024")
    found(tmp_path, "copy", {"COPY_VW": 4}, 7.0, arg_m="512")
    best = tuning.fastest(tuning.read(tmp_path), DEVICE, 32)
    assert {kernel: one.parameters for kernel, one in best.items()} == {
        "Xgemm": {**OTHER, "MWG": 32},
        "Copy": {"COPY_VW": 4},
    }


def test_equally_fast_ones_are_the_tuners_best(tmp_path):
    file = found(tmp_path, "copy", {"COPY_VW": 4}, 1.0)
    content = json.loads(file.read_text())
    content["results"].insert(0, {**content["results"][0], "parameters": {"COPY_VW": 2, "PRECISION": 32}})
    file.write_text(json.dumps(content))
    assert tuning.fastest(tuning.read(tmp_path), DEVICE, 32)["Copy"].parameters == {"COPY_VW": 4}


def test_what_the_library_gets_wrong_is_no_best(tmp_path):
    wrong, right = {"GEMMK": 1, "MWG": 64, "NWG": 32}, {"GEMMK": 1, "MWG": 64, "NWG": 64}
    file = found(tmp_path, "xgemm_12", wrong, 1.0)
    content = json.loads(file.read_text())
    content["results"].append({"kernel": "Xgemm", "time": 2.0, "parameters": {**right, "PRECISION": 32}})
    file.write_text(json.dumps(content))
    found(tmp_path, "xgemm_11", wrong, 1.0)
    found(tmp_path, "xgemm_1", {**wrong, "GEMMK": 0}, 3.0)
    assert tuning.fastest(tuning.read(tmp_path), DEVICE, 32)["Xgemm"].parameters == right


def test_every_kernel_of_a_product_is_known_by_the_name_that_the_library_has_for_it(tmp_path):
    for family in ("xgemm_11", "xgemm_direct_2", "copy", "pad", "transpose", "padtranspose", "gemm_routine", "xaxpy"):
        found(tmp_path, family, {"GEMMK": 0})
    kernels = {"Xgemm", "XgemmDirect", "Copy", "Pad", "Transpose", "Padtranspose", "GemmRoutine"}
    assert tuning.fastest(tuning.read(tmp_path), DEVICE, 32).keys() == kernels


def test_other_devices_and_types_do_not_count(tmp_path):
    found(tmp_path, "xgemm_1", {**OTHER, "MWG": 16}, 5.0)
    found(tmp_path, "xgemm_2", {**OTHER, "MWG": 32}, 1.0, device="Another")
    found(tmp_path, "xgemm_1", {**OTHER, "MWG": 64}, 1.0, precision=64)
    read = tuning.read(tmp_path)
    assert tuning.fastest(read, DEVICE, 32)["Xgemm"].parameters == {**OTHER, "MWG": 16}
    assert tuning.fastest(read, DEVICE, 64)["Xgemm"].parameters == {**OTHER, "MWG": 64}
    with pytest.raises(
        BaselineUnavailableError, match=r"no results are of Another in CLBlast's precision 64, only of A de"
    ):
        tuning.fastest(read, "Another", 64)


def test_times_of_different_products_are_not_compared(tmp_path):
    found(tmp_path, "xgemm_1", {**OTHER, "MWG": 16}, arg_m="1024")
    found(tmp_path, "xgemm_2", {**OTHER, "MWG": 32}, arg_m="4096")
    with pytest.raises(
        BaselineUnavailableError, match=r"xgemm_1_32\.json and .*xgemm_2_32\.json are of different products"
    ):
        tuning.fastest(tuning.read(tmp_path), DEVICE, 32)


def test_a_devices_words_are_read_as_the_tuner_writes_them(tmp_path):
    file = found(tmp_path, "copy", {"COPY_VW": 4}, device="A~device  ")
    file.write_text(file.read_text().replace("~", "\t"))
    assert tuning.fastest(tuning.read(tmp_path), "A\tdevice", 32)


@pytest.mark.parametrize(
    ("parameters", "changes"),
    [
        ("COPY_VW", {}),
        ("COPY_VW=x", {}),
        (4, {}),
        ("", {"results": []}),
        ("", {"precision": "single"}),
        ("", {"device": None}),
    ],
)
def test_a_file_of_something_else_is_named(tmp_path, parameters, changes):
    file = found(tmp_path, "copy", {})
    file.write_text(json.dumps({**json.loads(file.read_text()), "best_parameters": parameters, **changes}))
    with pytest.raises(BaselineUnavailableError, match=r"clblast_copy_32\.json is not what a tuner of CLBlast writes"):
        tuning.read(tmp_path)


@pytest.mark.parametrize(
    ("folder", "told"),
    [
        ("", "it has no results of CLBlast's tuners that can be used"),
        ("there/is/none", "there is no such folder"),
        ("other.txt", "there is no such folder"),
    ],
)
def test_a_folder_without_results_is_named(tmp_path, folder, told):
    (tmp_path / "other.txt").write_text("{}")
    with pytest.raises(BaselineUnavailableError, match=f"^{tuning.VARIABLE} = {tmp_path / folder}: {told}"):
        tuning.read(tmp_path / folder)


@pytest.mark.parametrize("depth", ["the file", "its folder"])
def test_what_others_may_write_is_refused(tmp_path, depth):
    file = found(tmp_path, "copy", {"COPY_VW": 4})
    place = file if depth == "the file" else tmp_path
    place.chmod(0o777)
    with pytest.raises(BaselineUnavailableError, match=f"^{tuning.VARIABLE}: {place} must be owned by root or by you"):
        tuning.read(tmp_path)


@pytest.fixture
def device(request: pytest.FixtureRequest):
    """An OpenCL device, where CLBlast is installed."""
    skip_without(CLBLAST)
    found = [device for device in tested.devices(request.config) if device.backend == "opencl"]
    if not found:
        pytest.skip(none_of("opencl"))
    return found[0]


def run(device, folder: Path, *options: str) -> dict[str, Any]:
    """CLBlast as `gemmport run` reports it, from a process of its own: what it was given lasts as long as that."""
    command = ["run", "--backend", "opencl", "--device", device.selector, "--size", "65", "--repeat", "1", *options]
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *command, "--baseline", "clblast", "--format", "json"],
        env={**os.environ, tuning.VARIABLE: str(folder)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    return result["baselines"]["clblast"]


def test_what_was_found_is_in_force_and_told(device, tmp_path):
    found(tmp_path, "xgemm_1", XGEMM, device=device.name)
    found(tmp_path, "gemm_routine", INDIRECT, device=device.name)
    told = run(device, tmp_path)
    assert told["verified"] is True
    assert told["tuning"] == {"GemmRoutine": INDIRECT, "Xgemm": XGEMM}
    # That it is in force shows where it cannot be: no device has so large a group.
    found(tmp_path, "xgemm_1", {**XGEMM, "MDIMC": 1024, "NDIMC": 1024, "MWG": 2048, "NWG": 1024}, device=device.name)
    told = run(device, tmp_path)
    assert told["available"] is False
    assert "CLBlast refuses float32 NN 65×65×65 with error" in told["reason"]


def test_parameters_that_the_library_does_not_take_are_named_with_their_file(device, tmp_path):
    file = found(
        tmp_path, "xgemm_1", {**{name: XGEMM[name] for name in XGEMM if name != "MWG"}, "MGW": 64}, device=device.name
    )
    told = run(device, tmp_path)
    assert told["available"] is False
    assert f"refuses the parameters of Xgemm in {file} with error -2047" in told["reason"]
    assert "MGW" in told["reason"]


def test_without_results_of_the_type_it_does_not_run_on_its_own_parameters(device, tmp_path):
    found(tmp_path, "xgemm_1", XGEMM, device=device.name)
    told = run(device, tmp_path, "--dtype", "complex64")
    assert told["available"] is False
    assert "in CLBlast's precision 3232, only of" in told["reason"]
