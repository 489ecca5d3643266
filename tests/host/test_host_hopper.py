"""Hopper's units on the CPU: what uses them rightly is exact in every order of work-items' turns; each fault is told."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import gemmport as gp
from absences import CXX, needs
from gemmport import kernels
from gemmport.backends.objects import Program
from host import ORDERS, Host
from on_host import opened
from tensor_map import tensor_map

pytestmark = needs(CXX)

PROBES = Path(__file__).with_name("hopper_probes.cu")
TWIN = Path(Host.overrides) / "hopper.cu"
PRELUDE = Path(kernels.__file__).parent / "cuda" / "prelude"

FAULTS: Mapping[str, str] = {
    "no fence of barriers": r"the copy in line \d+ tells a barrier that lacks FENCE_BARRIERS\(\)",
    "no barrier": "the barrier in line \\d+ has not been initialized",
    "a barrier made twice": "the barrier in line \\d+ has been initialized before",
    "barriers made after their use": "has not been initialized",
    "the producer's parity": r"waits in line \d+ for the end of a phase of parity 0 of the barrier .* lacks 8 of 8 that arrive",
    "the consumers' parity": "wrong|reads what a copy has not brought yet",
    "the consumers' phase": "wrong|reads what a copy has not brought yet|overwrites what a product reads",
    "no wait for a tile": "reads what a copy has not brought yet|wrong",
    "no wait for room": r"more than 1 arrive in line \d+ at the barrier at byte \d+ of shared memory, in its phase 0",
    "too many arrive": r"more than 8 arrive in line \d+|overwrites what a product reads",
    "too few arrive": "lacks 1 of 8 that arrive and 0 bytes",
    "too few bytes are expected": "-128 bytes|goes where another one is on its way",
    "too many bytes are expected": "lacks 0 of 1 that arrive and 128 bytes",
    "a tile goes to no multiple of 1024": "must go to a multiple of 1024 bytes",
    "a tile goes beyond": "goes beyond shared memory|not one of shared memory",
    "tiles of A and B exchange places": "wrong",
    "released before it was read": r"the copy in line \d+ overwrites what a product reads that was not awaited",
    "no fence of registers": r"the product in line \d+ lacks GROUP_FENCE\(\) before it",
    "no fence before a new tile": "lacks GROUP_FENCE\\(\\) behind the use of the old ones|were written after",
    "sums set after the fence": r"were written after the last GROUP_FENCE\(\)",
    "sums changed under way": "were touched before they were awaited",
    "sums read under way": "wrong",
    "products that nobody awaits": "overwrites what a product reads that was not awaited",
    "last products that nobody awaits": r"a work-item ends before the product in line \d+ was awaited",
    "no swizzle": "wrong",
    "the distance of eight lines": "wrong",
    "the distance of blocks": "wrong",
    "the place of terms": "wrong",
    "old sums are kept": "wrong",
    "old sums are dropped": "wrong",
    "an operand is not turned": "wrong|outside of shared memory",
    "lanes exchanged": "wrong",
    "rows exchanged": "wrong",
    "lanes differ": r"lanes of a warp differ in descriptors",
    "warps differ": r"warps of a group differ in descriptors",
    "a warp less": r"warps of a group differ in their number of products",
    "a descriptor overflows": "has bits that mean nothing|outside of shared memory",
    "more registers than there are": r"waits in line \d+ for \d+ registers more",
    "an odd number of registers": "must be a multiple of 8 from 24 to 256; got 100",
    "a barrier of too many warps": r"waits in line \d+ for barrier 1, where 128 of 256 are",
}
"""What may be wrong with `multiply`, and what tells so; "wrong": the product."""

NAMES = {name: re.sub(r"\W", "_", name).upper() for name in FAULTS}


@pytest.fixture(scope="module")
def cpu() -> Host:
    return opened()


def source(ops: str, unit: str = "BF16", columns: int = 128, stages: int = 2) -> str:
    """`multiply`, with what it is compiled for."""
    words = {
        "COLUMNS": columns, "STAGES": stages, "TURN_A": int(ops[0] == "T"), "TURN_B": int(ops[1] == "N"),
        "MUL_ADD(...)": f"GROUP_MUL_ADD_{unit}_{columns}(__VA_ARGS__)",
    }  # fmt: skip
    defines = "".join(f"#define {name} {value}\n" for name, value in words.items())
    names = ", ".join(["NONE", *NAMES.values()])
    return f"{twin()}\n{defines}enum {{ {names} }};\n{PROBES.read_text(encoding='utf-8')}"


def twin() -> str:
    """Both parts, as they are put together."""
    own = TWIN.read_text(encoding="utf-8").replace('#include "ptx.cu"', "")
    return (Path(Host.overrides) / "ptx.cu").read_text(encoding="utf-8") + own


def stored(cpu: Host, x: np.ndarray, across: bool) -> tuple[object, np.void]:
    """Matrices (matrix, line, term), along k or across, with a tensor map: a tile has 64 terms of all lines, or of 64."""
    laid = x.transpose(0, 2, 1) if across else x
    row = -(-laid.shape[2] // 8) * 8
    padded = np.full((len(x), laid.shape[1], row), 99, x.dtype)
    padded[:, :, : laid.shape[2]] = laid
    memory = cpu.asarray(padded.view(np.uint8)).memory
    sizes = (laid.shape[2], laid.shape[1], len(x))
    box = (64, 64 if across else x.shape[1], 1)
    return memory, tensor_map(memory.handle, 2, sizes, (2 * row, 2 * row * laid.shape[1]), box)


def check_product(
    cpu: Host, program: Program, ops: str, dtype: type, columns: int, fault: str = "", at: tuple[int, int] = (-8, 16)
) -> None:
    """Two products, of which the first rows and the last columns and terms are outside: all of these are 0.

    Args:
        at: the lines of A and B at which copies begin.
    """
    rng = np.random.default_rng(3)
    terms, lines_a, lines_b = 150, 128, columns
    a = rng.integers(-3, 4, (2, lines_a, terms)).astype(dtype)
    b = rng.integers(-3, 4, (2, lines_b, terms)).astype(dtype)
    _a, map_a = stored(cpu, a, ops[0] == "T")
    _b, map_b = stored(cpu, b, ops[1] == "N")
    out = np.full((2, 128, columns), np.nan, np.float32)
    memory = cpu.asarray(out).memory
    number = list(FAULTS).index(fault) + 1 if fault else 0
    values = [np.int32(x) for x in (terms, 2, *at, number)]
    dynamic = 2 * (16384 + columns * 128)
    cpu.launch(
        cpu.prepare(
            program, "multiply", (1, 1, 1), (384, 1, 1), [memory, map_a, map_b, *values], dynamic_local_bytes=dynamic
        )
    )
    cpu.download(memory, out)
    wanted = np.zeros(out.shape, np.int64)
    inside = a[:, : 128 + at[0]].astype(np.int64) @ b[:, at[1] :].astype(np.int64).transpose(0, 2, 1)
    wanted[:, -at[0] :, : columns - at[1]] = inside
    assert np.array_equal(out, wanted), "wrong"


@pytest.mark.sample(unit=["BF16"], columns=[128])
@pytest.mark.parametrize("columns", [64, 128, 192, 256])
@pytest.mark.parametrize("unit", ["F16", "BF16"])
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_products_of_tiles_are_exact_in_every_order(cpu: Host, ops: str, unit: str, columns: int) -> None:
    program = cpu.program(source(ops, unit, columns))
    for cpu.order in (*ORDERS, *(f"shuffled {seed}" for seed in (26, 27))):
        check_product(cpu, program, ops, {"F16": np.float16, "BF16": ml_dtypes.bfloat16}[unit], columns)


@pytest.mark.parametrize("at", [(-3, 16), (-8, 5)])
def test_a_copy_begins_at_a_multiple_of_16_bytes_of_a_row(cpu: Host, at: tuple[int, int]) -> None:
    """An H100 ends a launch with CUDA_ERROR_ILLEGAL_INSTRUCTION otherwise. Lines may begin anywhere."""
    check_product(cpu, cpu.program(source("NT")), "NT", ml_dtypes.bfloat16, 128, at=at)
    with pytest.raises(gp.LaunchError, match="must begin at a multiple of 16 bytes of a row"):
        check_product(cpu, cpu.program(source("TN")), "TN", ml_dtypes.bfloat16, 128, at=at)


@pytest.fixture(scope="module")
def programs(cpu: Host) -> dict[str, Program]:
    return {ops: cpu.program(source(ops)) for ops in ("NT", "TN")}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_told(cpu: Host, programs: dict[str, Program], fault: str) -> None:
    """In some order of turns; and what is told there says what is wrong."""
    told: list[str] = []
    for ops, order in itertools.product(programs, ORDERS):
        told.append(what_is_told(cpu, programs[ops], ops, order, fault))
        if re.search(FAULTS[fault], told[-1]):
            return
    pytest.fail("\n".join(told))


def what_is_told(cpu: Host, program: Program, ops: str, order: str, fault: str) -> str:
    cpu.order = order
    try:
        check_product(cpu, program, ops, ml_dtypes.bfloat16, 128, fault)
    except (gp.LaunchError, AssertionError) as error:
        return str(error)
    return ""


# Operands as the descriptor's other modes have them


def laid_out(x: np.ndarray, turned: bool, wide: int, leading: int, stride: int) -> np.ndarray:
    """The image, of 8192 bytes, of lines by terms: rows of `wide` bytes, in eights, swizzled where they are wider than 16.
    A row is a line, or, turned, a term; `leading` and `stride` part those that the PTX ISA calls so.
    """
    image = np.zeros(4096, np.uint16)
    eights, repeats = (leading, stride) if turned and wide == 16 else (stride, leading)
    for (line, term), bits in np.ndenumerate(x.view(np.uint16)):
        row, along = (term, line) if turned else (line, term)
        repeat, byte = divmod(2 * along, wide)
        place = row // 8 * eights + row % 8 * wide + repeat * repeats + byte
        image[(place ^ (place >> 7) % (wide // 16) * 16) // 2] = bits
    return image


def descriptor(wide: int, leading: int, stride: int) -> np.uint64:
    """By the PTX ISA's "Matrix Descriptor Format", of an operand at address 0."""
    mode = {16: 0, 128: 1, 64: 2, 32: 3}[wide]
    return np.uint64(mode << 62 | stride // 16 << 32 | leading // 16 << 16)


def check_written(cpu: Host, program: Program, turned: bool, wide: int, fault: int = 0, **of_map: int) -> None:
    """A and B, of 64 lines and 16 terms, from shared memory in the mode."""
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-3, 4, (64, 16)).astype(np.float16) for _ in range(2))
    rows = 16 if turned else 64
    eight, repeat = 8 * wide, rows * wide  # all rows, then the next bytes of each
    leading, stride = (eight, repeat) if turned and wide == 16 else (repeat, eight)
    image = np.concatenate([laid_out(x, turned, wide, leading, stride) for x in (a, b)])
    memory = [cpu.asarray(x).memory for x in (np.full((64, 64), np.nan, np.float32), image)]
    own = descriptor(wide, leading, stride)
    values = {"address": memory[1].handle, "element_bytes": 2, "stride": 128, "rows": 64, **of_map}
    sizes, strides, box = (64, values["rows"], 1), (values["stride"], 8192), (values.get("row", 64), 64, 1)
    of_tile = tensor_map(values["address"], values["element_bytes"], sizes, strides, box)
    cpu.launch(
        cpu.prepare(
            program, "multiply_written", (1, 1, 1), (128, 1, 1), [*memory, own, own, of_tile, np.int32(fault)],
            dynamic_local_bytes=16384,
        )
    )  # fmt: skip
    out = np.zeros((64, 64), np.float32)
    cpu.download(memory[0], out)
    assert np.array_equal(out, a.astype(np.int64) @ b.astype(np.int64).T), "wrong"


@pytest.fixture(scope="module")
def written(cpu: Host) -> dict[bool, Program]:
    return {turned: cpu.program(source("TN" if turned else "NT", "F16", 64)) for turned in (False, True)}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("wide", [16, 32, 64, 128])
@pytest.mark.parametrize("turned", [False, True])
def test_descriptors_are_read_as_the_isa_says(
    cpu: Host, written: dict[bool, Program], turned: bool, wide: int, order: str
) -> None:
    cpu.order = order
    check_written(cpu, written[turned], turned, wide)


@pytest.mark.parametrize(
    ("fault", "of_map", "told"),
    [
        (1, {}, r"the product in line \d+ reads what a work-item wrote without FENCE_SHARED\(\)"),
        (2, {}, r"the copy in line \d+ overwrites what a work-item wrote without FENCE_SHARED\(\)"),
        (3, {}, "a group ends while 1 copies are on their way"),
        (4, {}, "a barrier was overwritten that a copy has to tell"),
        (3, {"address": 8}, "must begin at a multiple of 16 bytes"),
        (3, {"stride": 136}, r"strides .* must be multiples of 16 bytes; got 136"),
        (3, {"rows": 0}, r"dimension 1 .* must be 1 to 2\^32, and its box 1 to 256; got 0 and 64"),
        (3, {"row": 32}, "128 bytes that are swizzled; got 64"),
    ],
)
def test_what_copies_and_products_may_not_do_is_told(
    cpu: Host, written: dict[bool, Program], fault: int, of_map: dict[str, int], told: str
) -> None:
    cpu.order = "forward"
    with pytest.raises(gp.LaunchError, match=told):
        check_written(cpu, written[False], False, 128, fault, **of_map)


# Clusters

CLUSTER = """
extern "C" __global__ __cluster_dims__(2, 1, 1) void exchange(int *out, int fault)
{
    extern __shared__ __align__(1024) char memory[];
    unsigned long long *bar = (unsigned long long *)memory;
    int *number = (int *)(bar + 2), rank = blockIdx.x % 2;
    if (threadIdx.x == 0) {
        BARRIER_INIT(bar, 1);
        FENCE_BARRIERS();
    }
    if (fault != 1)
        CLUSTER_BARRIER();
    if (threadIdx.x == 0) {
        unsigned there, told;
        const int own[4] = {7 + (int)blockIdx.x};
        CLUSTER_ADDRESS(there, fault == 5 ? number + 1 : number, fault == 2 ? 2 : !rank);
        CLUSTER_ADDRESS(told, bar, fault == 6 ? rank : !rank);
        CLUSTER_STORE_WHOLE(there, own, told);
        BARRIER_EXPECT(bar, fault == 3 ? 32 : 16);
        if (fault != 7)
            BARRIER_WAIT(bar, 0);
        out[blockIdx.x] = *number;
    }
    if (fault == 7)
        return;
    if (fault != 4)
        CLUSTER_BARRIER();
    else if (threadIdx.x == 0 && rank == 1)
        CLUSTER_ARRIVE(bar, 0);
    else if (threadIdx.x == 0) {
        BARRIER_WAIT(bar, 1);
        CLUSTER_ARRIVE(bar, 1);
    }
}
"""


def exchanged(cpu: Host, fault: int = 0, groups: int = 4, source: str = CLUSTER) -> list[int]:
    """What each group of two clusters has from the other one."""
    memory = cpu.asarray(np.zeros(groups, np.int32)).memory
    program = cpu.program(twin() + source)
    arguments = [memory, np.int32(fault)]
    cpu.launch(cpu.prepare(program, "exchange", (groups, 1, 1), (64, 1, 1), arguments, dynamic_local_bytes=64))
    out = np.zeros(groups, np.int32)
    cpu.download(memory, out)
    return [int(x) for x in out]


@pytest.mark.parametrize("order", ORDERS)
def test_groups_of_a_cluster_reach_each_other_s_memory(cpu: Host, order: str) -> None:
    cpu.order = order
    assert exchanged(cpu) == [8, 7, 10, 9]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (1, r"the barrier in line \d+ has not been initialized"),
        (2, r"line \d+ must name one of 2 groups of the cluster; got 2"),
        (
            3,
            r"work-item 0 of group 0 of the cluster waits in line \d+ for .* lacks 0 of 1 that arrive and 16 bytes",
        ),
        (4, r"line \d+ reaches shared memory of group 1 of the cluster, which has ended"),
        (5, r"the store in line \d+ must go to a multiple of 16 bytes"),
        (6, r"the store in line \d+ must tell a barrier of the group that it goes to"),
        (7, "a group ends while others store in its memory|which has ended"),
    ],
)
def test_what_groups_of_a_cluster_may_not_do_is_told(cpu: Host, fault: int, told: str) -> None:
    for cpu.order in ("forward", "reversed"):
        try:
            exchanged(cpu, fault)
        except gp.LaunchError as error:
            if re.search(told, str(error)):
                return
    pytest.fail("nothing was told")


@pytest.mark.parametrize(
    ("groups", "source", "told"),
    [
        (3, CLUSTER, "the number of groups must be a multiple of a cluster's"),
        (4, CLUSTER.replace("(2, 1", "(4, 1"), "a cluster must have at most two groups"),
        (
            4,
            CLUSTER.replace("    unsigned", "    __shared__ volatile int own[1]; own[0] = 1;\n    unsigned", 1),
            "none may be declared",
        ),
    ],
)
def test_which_clusters_are_simulated_is_told(cpu: Host, groups: int, source: str, told: str) -> None:
    with pytest.raises(gp.LaunchError, match=told):
        exchanged(cpu, groups=groups, source=source)


# The twin


def names(path: Path) -> set[str]:
    """Of macros, but those that put others together."""
    defined = re.findall(r"(?m)^#define (\w+)\(", path.read_text(encoding="utf-8"))
    return {
        name
        for name in defined
        if not re.fullmatch(r"SUMS_\d+|PLACES_\d+|(GROUP|LINES)_MUL_ADD(_\d+)?|CLUSTER_STORE_\d+", name)
    }


def test_the_twin_has_the_names_of_the_prelude() -> None:
    assert names(TWIN) == names(PRELUDE / "hopper.cu")


def test_the_prelude_s_descriptor_is_the_twin_s(cpu: Host) -> None:
    """Of an operand at byte 2048 of what a launch brings, whose addresses begin at 1024."""
    own = re.search(r"#define MATRIX_DESCRIPTOR(?:.*\\\n)*.*\n", (PRELUDE / "hopper.cu").read_text(encoding="utf-8"))
    assert own
    probe = """
extern "C" __global__ void describe(unsigned long long *out)
{
    extern __shared__ __align__(1024) char memory[];
    out[0] = MATRIX_DESCRIPTOR(memory + 2048, 8192, 1024);
#undef MATRIX_DESCRIPTOR
#define SHARED_ADDRESS(place) host::shared_address(place)
DEFINITION
    out[1] = MATRIX_DESCRIPTOR(memory + 2048, 8192, 1024);
}
"""
    memory = cpu.asarray(np.zeros(2, np.uint64)).memory
    program = cpu.program(twin() + probe.replace("DEFINITION", own[0]))
    cpu.launch(cpu.prepare(program, "describe", (1, 1, 1), (1, 1, 1), [memory], dynamic_local_bytes=4096))
    out = np.zeros(2, np.uint64)
    cpu.download(memory, out)
    assert out.tolist() == [1 << 62 | 64 << 32 | 512 << 16 | 3072 // 16] * 2
