"""`shuffle`: which devices can, by what instructions, and its options: without shuffles, and through the read-only path."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import pytest

import gemmport as gp
from absences import CPP, CUDA_COMPILER, beyond, needs, skip_without
from exact import Sizes, check, problem_of
from gemmport import kernels
from gemmport.backends import _nvrtc
from gemmport.contracts import sub_groups
from gemmport.core.dtypes import DTYPES
from gemmport.runtime.sources import assemble
from made_up_devices import DEVICES
from test_kernels import Parameters, parameters

CUDA = DEVICES["NVIDIA sm_90 under CUDA"]
NVIDIA = DEVICES["NVIDIA sm_90 under OpenCL"]
INTEL = DEVICES["Intel GPU"]

OF_EACH_SIZE = ("int8", "float16", "float32", "complex64", "complex128")
"""Elements of 1, 2, 4, 8 and 16 bytes."""


def source(device: gp.DeviceInfo, dtype: str = "float32", params: Parameters | None = None) -> str:
    """The specialized source of a product with edges."""
    problem = gp.GemmProblem.create(61, 61, 61, dtype=dtype)
    (launch,) = gp.plan(problem, device, kernel="shuffle", params=params).launches
    return assemble(launch.kernel, device.backend)


def preprocessed(text: str) -> str:
    """What a compiler sees of a source, without its prelude's directives."""
    skip_without(CPP)
    done = subprocess.run(["cpp", "-P", "-"], input=text, capture_output=True, text=True, check=True)
    return done.stdout


# Which devices can


@pytest.mark.parametrize("device", [CUDA, NVIDIA, INTEL], ids=lambda device: device.label)
def test_sub_groups_of_supported_devices_are_as_wide_as_the_contract_says(device: gp.DeviceInfo) -> None:
    assert kernels.variant("shuffle").unsupported(gp.GemmProblem.create(1, 1, 1), device) is None
    (launch,) = gp.plan(gp.GemmProblem.create(61, 61, 61), device, kernel="shuffle").launches
    defines = dict(launch.kernel.defines)
    assert defines.items() >= sub_groups.shuffle_defines(device).items()
    assert launch.work_group[0] % int(defines["SUB_GROUP"]) == 0
    assert int(defines["SUB_GROUP"]) % (int(defines["TSN"]) // int(defines["WPTN"])) == 0


def test_sub_groups_of_another_width_are_refused() -> None:
    with pytest.raises(gp.UnsupportedError, match="its sub-groups have 64 lanes: shuffle is made for 16 or 32"):
        gp.plan(gp.GemmProblem.create(61, 61, 61), replace(CUDA, sub_group=64), kernel="shuffle")


@pytest.mark.parametrize("name", ["CPU under PoCL", "AMD gfx90a", "Apple"])
@pytest.mark.parametrize("use_shuffle", [0, 1])
def test_a_device_that_cannot_say_so_is_refused_with_the_reason(name: str, use_shuffle: int) -> None:
    device = DEVICES[name]
    with pytest.raises(gp.UnsupportedError) as caught:
        gp.plan(gp.GemmProblem.create(61, 61, 61), device, kernel="shuffle", params={"USE_SHUFFLE": use_shuffle})
    assert str(caught.value) == f"shuffle on {device.label}: {sub_groups.unsupported(device)}"


def test_where_shuffle_is_unsupported_others_serve() -> None:
    assert gp.plan(gp.GemmProblem.create(61, 61, 61), DEVICES["CPU under PoCL"]).variant != "shuffle"


# By what instructions


@pytest.mark.parametrize("name", OF_EACH_SIZE)
def test_nvidia_s_opencl_is_told_in_its_own_instructions(name: str) -> None:
    """Inline PTX; nothing of Intel's extension is left."""
    text = preprocessed(source(NVIDIA, name))
    assert text.count('__asm__ volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;"') == 1
    assert len(re.findall(r"= shuffled\(held\[", text)) == 1
    assert "ld.global.nc" not in text
    assert "intel" not in text
    local = preprocessed(source(NVIDIA, name, {"USE_SHUFFLE": 0}))
    assert not re.search(r"= shuffled\(", local)
    assert re.search(r"= a_tile\[y\]\[", local)


@pytest.mark.parametrize("name", OF_EACH_SIZE)
def test_nvidia_s_opencl_loads_through_the_read_only_path_if_asked(name: str) -> None:
    text = preprocessed(source(NVIDIA, name, {"USE_LDG": 1}))
    for load in ("u8 %0", "u16 %0", "u32 %0", "v2.u32 {%0, %1}", "v4.u32 {%0, %1, %2, %3}"):
        assert text.count(f"ld.global.nc.{load}, [") == 1
    (kernel,) = re.findall(r"void shuffling\(.*", text, flags=re.DOTALL)
    assert len(re.findall(r"\bload_read_only\([AB] \+ ", kernel)) == 2
    assert not re.search(r"\bload\(", kernel)


def test_intel_s_opencl_is_told_by_its_extension() -> None:
    text = preprocessed(source(INTEL))
    assert "__attribute__((intel_reqd_sub_group_size(16)))\nvoid shuffling(" in text
    assert "intel_sub_group_shuffle(x, (uint)lane)" in text
    assert "asm" not in text


@needs(CUDA_COMPILER)
@pytest.mark.parametrize("use_ldg", [0, 1])
@pytest.mark.parametrize("use_shuffle", [0, 1])
@pytest.mark.parametrize("name", OF_EACH_SIZE)
def test_cuda_compiles_to_the_instructions_that_are_asked_for(name: str, use_shuffle: int, use_ldg: int) -> None:
    """For a chip newer than the compiler, it leaves PTX."""
    params = {**parameters("shuffle"), "USE_SHUFFLE": use_shuffle, "USE_LDG": use_ldg}
    ptx = _nvrtc.compile_cuda(source(CUDA, name, params), "sm_999").decode()
    words = -(-gp.GemmProblem.create(1, 1, 1, dtype=name).accumulator.itemsize // 4)
    assert ptx.count("shfl.sync.idx") == (4 * 3 * words if use_shuffle else 0)  # TSK · WPTM numbers
    loads = {"int8": "8", "float16": "16", "float32": "32", "complex64": "v2.32", "complex128": "v4.32"}
    read_only = [re.sub(r"[bfsu](?=\d)", "", load) for load in re.findall(r"ld\.global\.nc\.(\S+)", ptx)]
    assert read_only == (5 * [loads[name]] if use_ldg else [])  # 3 elements of A and 2 of B for each thread


# The read-only path


@pytest.mark.every_value("kernel", ["shuffle"])
@pytest.mark.parametrize("ops", ["NN", "TT"])
@pytest.mark.parametrize("name", OF_EACH_SIZE)
def test_the_read_only_path_is_exact_or_refused(backend: gp.Backend, kernel: str, ops: str, name: str) -> None:
    """Also of types that are not aligned to the words in which they are loaded."""
    if (arithmetic := DTYPES[name].arithmetic) and arithmetic not in backend.device.computes | {"float16"}:
        pytest.skip(beyond(backend.device, f"it does not compute in {arithmetic}"))
    problem = problem_of(Sizes(53, 29, 41), ops, name, alpha=2.0, beta=-1.0, batch=2)
    params = {**parameters(kernel), "USE_LDG": 1}
    if backend.device.platform == "nvidia":
        check(backend, problem, kernel, params)
    else:
        with pytest.raises(gp.ParameterError, match=r"shuffle on .*: USE_LDG = 1: only NVIDIA's GPUs"):
            gp.plan(problem, backend.device, kernel=kernel, params=params)
