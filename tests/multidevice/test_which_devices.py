"""Which devices `devices=` means."""

from __future__ import annotations

from dataclasses import replace

import pytest

import gemmport as gp
from gemmport.core.device import DeviceInfo
from gemmport.multidevice.selection import chosen_backends, distinct

H200 = DeviceInfo("cuda", "NVIDIA H200", "nvidia", (0, 0), vendor="nvidia")
INTEL = DeviceInfo("opencl", "AMD EPYC", "intel", (2, 0), type="cpu", vendor="amd")


def test_all_means_each_chip_once() -> None:
    second = replace(H200, index=(0, 1))
    through_opencl = [replace(H200, backend="opencl", index=(1, number)) for number in (0, 1)]
    other = replace(H200, backend="opencl", index=(1, 2), name="NVIDIA T4")
    pocl = replace(INTEL, platform="pocl", index=(3, 0), name="pthread-AMD EPYC")
    found = distinct([H200, second, *through_opencl, other, INTEL, pocl])
    assert found == [H200, second, other, INTEL]


def test_a_list_takes_what_names_a_device_and_each_device_once(best_backend: gp.Backend) -> None:
    device = best_backend.device
    words = f"{device.platform} {device.platform_version}:{device.index[1]}"
    with gp.open_backend(device=device) as own:
        found = chosen_backends([device, own, words, own])
    assert found == [best_backend, own]


@pytest.mark.parametrize("given", [[None], [""], (), {}, 3])
def test_what_names_none_is_refused(given: object) -> None:
    with pytest.raises(gp.DeviceNotFoundError):
        chosen_backends(given)
