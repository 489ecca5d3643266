"""`gemv` for bytes that are multiplied four at once (DOTS): where it is chosen, and what refuses it by name."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import gemmport as gp
import opencl_for_nvidia
from absences import CUDA_COMPILER, needs
from gemmport.backends import _nvrtc
from gemmport.core.problem import Layout
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan
from gemmport.runtime.sources import assemble
from made_up_devices import DEVICES

NVIDIA = ["NVIDIA sm_70", "NVIDIA sm_90 under CUDA", "NVIDIA sm_90 under OpenCL"]


def decoding(rows: int = 1, dtype: str = "int8", ops: str = "NT") -> gp.GemmProblem:
    return gp.GemmProblem.create(rows, 4096, 14336, dtype=dtype, output="int32", trans_a=ops[0], trans_b=ops[1])


def planned(problem: gp.GemmProblem, device: str, **params: int) -> gp.Plan:
    return make_plan(problem, DEVICES[device], load_configuration(), kernel="gemv", params=params or None)


@pytest.mark.parametrize("device", NVIDIA)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("rows", [1, 4])
def test_bytes_are_multiplied_four_at_once_where_a_device_does(device: str, dtype: str, rows: int) -> None:
    assert planned(decoding(rows, dtype), device).values["DOTS"] == 1


@pytest.mark.parametrize("device", [name for name in DEVICES if name not in NVIDIA])
def test_other_devices_convert_bytes_and_refuse_it(device: str) -> None:
    assert planned(decoding(), device).values["DOTS"] == 0
    with pytest.raises(
        gp.ParameterError, match=r"NVIDIA's GPUs multiply four bytes at once from sm_61 on, this is .*: DOTS must be 0"
    ):
        planned(decoding(), device, DOTS=1)


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (decoding(ops="NN"), "DOTS must be 0 where an operand lies across k"),
        (decoding(3, ops="TT"), "DOTS must be 0 where an operand lies across k"),
        (replace(decoding(), b=Layout(ld=14337)), "the matrix's rows must be aligned to 4 bytes, or DOTS be 0"),
        (decoding(dtype="int16"), "DOTS must be 0 for int16 in int32"),
        (
            gp.GemmProblem.create(1, 64, 64, dtype="int8", accumulator="int64", output="int64", trans_b="T"),
            "for int8 in int64",
        ),
    ],
    ids=["matrix across", "vectors across", "not aligned", "no bytes", "longer sums"],
)
def test_what_does_not_come_in_words_is_refused(problem: gp.GemmProblem, told: str) -> None:
    for device in NVIDIA:
        assert planned(problem, device).values["DOTS"] == 0
        with pytest.raises(gp.ParameterError, match=told):
            planned(problem, device, DOTS=1)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_vectors_of_float8_are_for_the_matrix_unit_where_it_has_them(dtype: str) -> None:
    """1 × 14336 × 4096 took 88 µs on an H100, and 16 rows 26 by `mma` (docs/mma.md). A matrix that lies across k, or in rows of
    odd bytes, `mma` would have laid out anew.
    """
    before, first = (replace(DEVICES[NVIDIA[1]], architecture=x) for x in ("sm_80", "sm_89"))

    def one_row(ops: str = "NT", ld: int = 14336) -> gp.GemmProblem:
        b = Layout(ld) if ops == "NT" else None
        return gp.GemmProblem.create(1, 4096, 14336, dtype=dtype, b=b, trans_a=ops[0], trans_b=ops[1])

    for device, problem, kernel in (
        (first, one_row(), "mma"),
        (before, one_row(), "gemv"),
        (first, one_row("NN"), "gemv"),
        (first, one_row(ld=14337), "gemv"),
    ):
        assert gp.plan(problem, device).variant == kernel


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("rows", [1, 4])
def test_opencl_compiles_the_instruction(dtype: str, rows: int, tmp_path: Path) -> None:
    ptx = opencl_for_nvidia.compiled(planned(decoding(rows, dtype), NVIDIA[2]).launches[0], "sm_90", tmp_path)
    sign = {"int8": "s32", "uint8": "u32"}[dtype]
    assert f"dp4a.{sign}.{sign}" in ptx
    assert "ld.global.v4" in ptx


@needs(CUDA_COMPILER)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_machine_code_takes_no_byte_apart(dtype: str) -> None:
    """Its loop has four instructions for 16 bytes of the matrix, and a load for each operand."""
    launch = planned(decoding(dtype=dtype), "NVIDIA sm_90 under CUDA").launches[0]
    listing = _nvrtc.disassemble(assemble(launch.kernel, "cuda"), "sm_90", "gemv").listings[0].text
    sign = {"int8": "s32", "uint8": "u32"}[dtype]
    assert len(re.findall(rf"dp4a\.{sign}\.{sign}", listing)) % 4 == 0
    assert f"dp4a.{sign}.{sign}" in listing
    assert "ld.global.v4" in listing
