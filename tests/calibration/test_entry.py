"""The entry of a configuration that states what was measured: for this device of this runtime, and no other."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from gemmport.calibration.benchmarks import MultiplyAdds, ReadGlobal
from gemmport.calibration.entry import file_name, file_text, model_entry
from gemmport.calibration.figures import Figure
from gemmport.calibration.measuring import Measured
from gemmport.contracts.device_model import derived
from gemmport.core.device import DeviceInfo
from gemmport.planning.lookup import Configuration
from gemmport.planning.parser import parse
from made_up_devices import DEVICES

FORM = {"ITEMS": 1, "WIDTH": 4, "CHAINS": 8}
CPU, GPU = DEVICES["CPU under PoCL"], DEVICES["NVIDIA sm_90 under CUDA"]


def measured(device: DeviceInfo) -> Measured:
    figures = (Figure("multiply-adds float32", (1.23456e12, 1.3e12, 1.1e12)), Figure("read_bandwidth", (2e10,)))
    forms = {"multiply-adds float32": MultiplyAdds(8, 16, FORM), "read_bandwidth": ReadGlobal(8, 16, FORM)}
    return Measured(device, figures, forms, {"latency": "it refuses"}, 12.0)


@pytest.mark.parametrize("device", [CPU, GPU], ids=["cpu", "gpu"])
def test_what_is_written_is_read_again_and_the_rest_is_derived(device: DeviceInfo) -> None:
    loaded = parse(file_text(measured(device)), "mine.yaml", "user")
    model = Configuration(loaded.entries, models=loaded.models).model(device)
    assert model.multiply_adds == {**derived(device).multiply_adds, "float32": 1.235e12}
    assert model.read_bandwidth == 2e10
    assert model.latency == derived(device).latency
    assert model.origin.startswith("mine.yaml: ")


def test_numbers_are_numbers_to_every_reader_of_yaml() -> None:
    (model,) = yaml.safe_load(file_text(measured(CPU)))["models"]
    assert model["multiply_adds"] == {"float32": 1.235e12}
    assert model["read_bandwidth"] == 2e10
    assert "read_bandwidth: 2.0e+10\n" in file_text(measured(CPU))


def test_rates_of_matrix_units_stand_apart() -> None:
    """Each where it belongs, whatever others there are."""
    rates = {
        "multiply-adds float64": 1.5e13,
        "matrix multiply-adds float64": 3.1e13,
        "matrix multiply-adds float16": 3.3e14,
    }
    figures = tuple(Figure(name, (value,)) for name, value in rates.items())
    loaded = parse(file_text(Measured(GPU, figures, {}, {}, 1.0)), "mine.yaml", "user")
    model = Configuration(loaded.entries, models=loaded.models).model(GPU)
    assert model.matrix_multiply_adds == {"float64": 3.1e13, "float16": 3.3e14}
    assert model.multiply_adds == {**derived(GPU).multiply_adds, "float64": 1.5e13}


def test_the_model_is_of_this_device_and_of_a_cpu_s_runtime_in_this_version() -> None:
    loaded = parse(file_text(measured(CPU)), "mine.yaml", "user")
    configuration = Configuration(loaded.entries, models=loaded.models)
    assert configuration.model(replace(CPU, platform_version="6.0.1")).read_bandwidth == 2e10
    for other in (
        replace(CPU, index=(9, 1), platform_version="6.1"), replace(CPU, index=(9, 2), platform="intel"),
        replace(CPU, index=(9, 3), name="another"),
    ):  # fmt: skip
        assert configuration.model(other) == derived(other)
    assert "version" not in model_entry(measured(GPU), {"date": "2026-11-24", "gemmport": "1"})["match"]


def test_provenance_says_where_numbers_come_from() -> None:
    told = model_entry(measured(CPU), {"date": "2026-11-24", "gemmport": "7.7"})["provenance"]
    assert told["date"].isoformat() == "2026-11-24"
    assert told["gemmport"] == "7.7"
    assert "multiply-adds float32 4.1 %" in told["figures"]
    assert "medians of 3 rounds" in told["figures"]
    assert told["note"] == "latency is derived: it refuses"


def test_each_device_of_each_runtime_has_a_file_of_its_own() -> None:
    assert file_name(CPU) == "model-opencl-pocl-6.0-cpu-znver4-amd-epyc-9654.yaml"
    assert len({file_name(device) for device in DEVICES.values()}) > len(DEVICES) - 3
