"""The symptoms of `gemmport.core.quirks`, each by itself and without the workaround; test_quirks.py starts a process for each.

    python symptoms.py QUIRK DEVICE [LOG]

DEVICE is as `gemmport.get_backend` takes it; LOG is Oclgrind's. The last line is "shown", "gone" where the runtime does it
right, or "cannot show: " with the reason. A symptom that ends the process says nothing; one that never ends is shown by that.
"""

from __future__ import annotations

import gc
import sys
import sysconfig
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

import gemmport as gp
from exact import Sizes, integers, problem_of
from gemmport import baselines
from gemmport.baselines._clblast_tuning import Tuned
from gemmport.core.errors import LaunchError
from gemmport.core.quirks import quirk
from gemmport.matrix import simulator
from gemmport.runtime.sources import assemble

SHOWN, GONE, CANNOT = "shown", "gone", "cannot show: "

END_THE_PROCESS = (
    "rusticl-unknown-binary", "nvidia-immediate-allocator", "pocl-left-rounds", "pocl-vector-loads", "pocl-first-use",
)  # fmt: skip
NEVER_END = ("clblas-no-terms",)
BY_CHANCE = ("nvidia-immediate-allocator", "pocl-first-use")
"""Races: that one is not seen says nothing."""

BY_PROCESSOR = ("pocl-vector-loads",)
"""Those that a compiler's code for one processor has, and for another not: a Skylake with AVX-512 does not have it."""


class CannotShow(Exception):  # noqa: N818 - nothing went wrong
    """The machine is not one on which the symptom shows, whatever the runtime does."""


Symptom = Callable[[gp.Backend], bool]
SYMPTOMS: dict[str, Symptom] = {}


def symptom(name: str) -> Callable[[Symptom], Symptom]:
    """Registers the symptom of a quirk."""

    def register(shows: Symptom) -> Symptom:
        SYMPTOMS[name] = shows
        return shows

    return register


def computed(
    backend: gp.Backend, source: str, array: np.ndarray[Any, Any], items: tuple[int, ...], *arguments: np.generic,
    options: Sequence[str] | None = None,
) -> np.ndarray[Any, Any]:  # fmt: skip
    """The array after one group of so many work-items ran the kernel `f` on it."""
    chosen = backend.options() if options is None else options
    kernel = cl.Kernel(cl.Program(backend.context, source).build(list(chosen), cache_dir=False), "f")
    buffer = cl.Buffer(backend.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=array)
    kernel.set_args(buffer, *arguments)
    cl.enqueue_nd_range_kernel(backend.queue, kernel, items, items)
    result = np.empty_like(array)
    cl.enqueue_copy(backend.queue, result, buffer)
    return result


SKIPPED_LOOP = """
__kernel __attribute__((reqd_work_group_size(1, 4, 1))) void f(__global int *data, int k)
{
    __local int tile[4];
    const int y = (int)get_local_id(1);
    int sum = 0;
    for (int start = 0; start < k; start += 4) {
        tile[y] = data[y];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int p = 0; p < 4; ++p)
            sum += tile[p];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    data[y] = 2 * data[y] + sum;
}
"""


@symptom("pocl-skipped-loop")
def skipped_loop(backend: gp.Backend) -> bool:
    doubled = computed(backend, SKIPPED_LOOP, np.ones(4, np.int32), (1, 4), np.int32(0))
    return doubled.tolist() != [2, 2, 2, 2]


VECTOR_STORES = """
inline float2 load(__global const float *p)
{
    float2 x;
    #pragma unroll
    for (int w = 0; w < 2; ++w)
        ((float *)&x)[w] = p[w];
    return x;
}

__kernel __attribute__((reqd_work_group_size(4, 8, 1))) void f(__global float *data, long ld, int k)
{
    __local float2 a_tile[8][4], b_tile[8][4];
    __global const float *A = data, *B = data + 64;
    __global float *D = data + 128;
    const int x = (int)get_local_id(0), y = (int)get_local_id(1);
    float2 sum = (float2)0;
    int start = 0;
    do {
        float2 a = load(A + (long)y * ld + (start + x * 2));
        float2 b = load(B + (long)(start + y) * ld + x * 2);
        a_tile[y][x] = a;
        b_tile[y][x] = b;
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int p = 0; p < 8; ++p)
            sum += ((__local float *)&a_tile[y][p / 2])[p % 2] * b_tile[p][x];
        barrier(CLK_LOCAL_MEM_FENCE);
    } while ((start += 8) < k);
    #pragma unroll
    for (int w = 0; w < 2; ++w)
        D[y * ld + x * 2 + w] = ((float *)&sum)[w];
}
"""


@symptom("pocl-vector-stores")
def vector_stores(backend: gp.Backend) -> bool:
    values = integers((3, 8, 8), "float32")
    a, b, d = computed(backend, VECTOR_STORES, values, (4, 8), np.int64(8), np.int32(8))
    return not np.array_equal(a @ b, d)


@symptom("pocl-vector-loads")
def vector_loads(backend: gp.Backend) -> bool:
    params = {"MR": 2, "NR": 1, "VECTOR": 64, "MC": 2, "NC": 64, "KC": 8, "MOVES": "vload"}
    problem = gp.GemmProblem.create(64, 128, 64, trans_b="T")
    launch = gp.plan(problem, backend.device, kernel="packed", params=params).launches[-1]
    source = assemble(launch.kernel, backend.language)
    without = source.replace(" && __clang_major__ != 14", "")
    assert without != source
    # LLVM fails in the last of its steps. Those before it take minutes, and twice as long where tiles cross edges.
    options = [*backend.options(), "-cl-opt-disable"]
    program = cl.Program(backend.context, without).build(options, cache_dir=False)
    return not program.binaries[0]  # asked for its binary, PoCL compiles the kernel


@symptom("pocl-local-memory")
def local_memory(backend: gp.Backend) -> bool:
    """That more is told than is known to work; the crash itself was seen once."""
    told = backend.queue.device.local_mem_size
    if told <= quirk("pocl-local-memory").limits["local_memory"]:
        raise CannotShow(f"the cache of this CPU has {told:,} bytes")
    return True


LOOP_ROUNDS = """
__kernel void f(__global int *data, int rounds)
{
    int sum = 0;
    for (int i = 0; i < rounds; ++i)
        sum += data[i & 1];
    data[0] = sum;
}
"""


@symptom("rusticl-loop-rounds")
def loop_rounds(backend: gp.Backend) -> bool:
    return bool(computed(backend, LOOP_ROUNDS, np.ones(2, np.int32), (1,), np.int32(100_000))[0] != 100_000)


@symptom("rusticl-event-clock")
def event_clock(backend: gp.Backend) -> bool:
    properties = cl.command_queue_properties.PROFILING_ENABLE
    with cl.CommandQueue(backend.context, properties=properties) as queue:
        program = cl.Program(backend.context, LOOP_ROUNDS).build(cache_dir=False)
        kernel = cl.Kernel(program, "f")
        buffer = cl.Buffer(backend.context, cl.mem_flags.READ_WRITE, 8)
        kernel.set_args(buffer, np.int32(50_000))
        event = cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
        event.wait()
        return bool(event.profile.end - event.profile.start < 1000)  # 50,000 loads in less than a microsecond


@symptom("rusticl-group-limit")
def group_limit(backend: gp.Backend) -> bool:
    source = "__kernel void f(__global int *data) { data[get_local_id(0)] = (int)get_local_size(0); }"
    most = backend.device.max_work_group
    assert computed(backend, source, np.zeros(most, np.int32), (most,)).tolist() == [most] * most
    kernel = cl.Kernel(cl.Program(backend.context, source).build(cache_dir=False), "f")
    told = kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, backend.queue.device)
    return bool(told < most)


@symptom("rusticl-unknown-binary")
def unknown_binary(backend: gp.Backend) -> bool:
    try:
        cl.Program(backend.context, [backend.queue.device], [b"no program of this runtime"]).build()
    except cl.Error:
        return False
    return True


OPTIMIZED = """
__kernel void f(__global int *data, uint n)
{
    const size_t i = get_global_id(0);
    data[i] = (int)(i % n + i / n);
}
"""


@symptom("oclgrind-optimized-code")
def optimized_code(backend: gp.Backend) -> bool:
    result = computed(backend, OPTIMIZED, np.full(4, -1, np.int32), (4,), np.uint32(2), options=["-cl-std=CL1.2"])
    return result.tolist() != [0, 1, 1, 2]


@symptom("oclgrind-filled-memory")
def filled_memory(backend: gp.Backend) -> bool:
    log = Path(sys.argv[3])
    buffer = cl.Buffer(backend.context, cl.mem_flags.READ_WRITE, 64)
    cl.enqueue_fill_buffer(backend.queue, buffer, np.full(16, 1, np.uint8), 0, 64)
    source = "__kernel void f(__global int *data) { if (data[get_global_id(0)] > 0) data[get_global_id(0)] = 2; }"
    kernel = cl.Kernel(cl.Program(backend.context, source).build(list(backend.options()), cache_dir=False), "f")
    kernel.set_args(buffer)
    cl.enqueue_nd_range_kernel(backend.queue, kernel, (16,), (4,))
    backend.synchronize()
    found, _ = simulator.faults(log, 0)
    return any("ninitialized" in fault for fault in found)


@symptom("intel-icd-path")
def icd_path(backend: gp.Backend) -> bool:
    shipped = Path(sysconfig.get_path("data"), "etc", "OpenCL", "vendors").glob("*.icd")
    named = [Path(text) for file in shipped if "intelocl" in (text := file.read_text().strip())]
    if not named:
        raise CannotShow("Intel's runtime is not from PyPI here")
    return not any(path.exists() for path in named)


@symptom("intel-queue-context")
def queue_context(backend: gp.Backend) -> bool:
    queue = cl.CommandQueue(cl.Context([backend.queue.device]))
    gc.collect()
    try:
        return queue.context is None
    except cl.Error:
        return True


@symptom("pocl-left-rounds")
def left_rounds(backend: gp.Backend) -> bool:
    launch = gp.plan(gp.GemmProblem.create(2, 2, 20), backend.device, kernel="batched").launches[0]
    source = assemble(launch.kernel, backend.language)
    without = source.replace("#ifdef POCL_DEVICE_ADDRESS_BITS", "#if 0")
    assert without != source
    # LLVM fails in the last of its steps. Those before it take minutes.
    options = [*backend.options(), "-cl-opt-disable"]
    program = cl.Program(backend.context, without).build(options, cache_dir=False)
    return not program.binaries[0]  # asked for its binary, PoCL compiles the kernel


@symptom("pocl-shuffle-down")
def shuffle_down(backend: gp.Backend) -> bool:
    if not backend.device.extensions >= {"cl_intel_subgroups", "cl_intel_required_subgroup_size"}:
        raise CannotShow("the runtime does not announce cl_intel_subgroups and cl_intel_required_subgroup_size")
    source = """
__kernel __attribute__((intel_reqd_sub_group_size(16))) void f(__global uint *a)
{
    const uint x = a[get_global_id(0)];
    a[get_global_id(0)] = intel_sub_group_shuffle_down(x, x, 3u);
}
"""
    lanes = computed(backend, source, np.arange(16, dtype=np.uint32), (16,))
    return lanes[:13].tolist() != list(range(3, 16))


@symptom("nvidia-byte-fills")
def byte_fills(backend: gp.Backend) -> bool:
    size = 5 * 2**29
    buffer = cl.Buffer(backend.context, cl.mem_flags.READ_WRITE, size)
    try:
        cl.enqueue_fill_buffer(backend.queue, buffer, np.uint8(1), 0, size)
        backend.queue.finish()
    except cl.Error:
        return True
    return False


@symptom("nvidia-groups-of-256")
def groups_of_256(backend: gp.Backend) -> bool:
    """Whether any of the family's kernels is told to run in smaller groups only than those in which it is right."""
    tile = {"TSM": 128, "TSN": 128, "TSK": 8, "WPTM": 4, "WPTN": 4}
    cases = (("register_tiled", {**tile, "ARRANGE": "strided", "PAD": 0}), ("tiled", {"TS": 32, "PAD": 0}),
             ("prefetch", {**tile, "WIDTH": 4, "STAGES": 2, "REG_PREFETCH": 1, "PAD": 4}))  # fmt: skip
    a = np.ones((200, 200), np.float32)
    for kernel, params in cases:
        launch = gp.plan(gp.GemmProblem.create(200, 200, 200), backend.device, kernel=kernel, params=params).launches[
            -1
        ]
        source = assemble(launch.kernel, backend.language)
        program = cl.Program(backend.context, source).build(options=list(backend.options()))
        told = cl.Kernel(program, launch.kernel.function).get_work_group_info(
            cl.kernel_work_group_info.WORK_GROUP_SIZE, backend.queue.device
        )
        if told < np.prod(launch.work_group):
            assert (gp.gemm(a, a, device=backend.device, kernel=kernel, params=params) == 200).all()
            return True
    return False


@symptom("nvidia-immediate-allocator")
def immediate_allocator(backend: gp.Backend) -> bool:
    pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(backend.queue))
    lock = threading.Lock()

    def allocate() -> None:
        for turn in range(2000):
            with lock:
                block = pool.allocate(1 << (10 + turn % 12))
            cl.enqueue_fill_buffer(backend.queue, block, np.uint32(turn), 0, 1024)
            with lock:
                block.release()

    threads = [threading.Thread(target=allocate) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    backend.queue.finish()
    return False


TWO_HALVES = 2048
"""Bytes of the buffers that two threads write."""


def used_first_by_two(backend: gp.Backend, made: Callable[[], cl.Buffer], count: int) -> bool:
    """Whether every new buffer is right that two threads write for the first time at once, a half each, on queues of their own.

    Args:
        made: gives a buffer of `TWO_HALVES` bytes. count: of buffers.

    Raises:
        threading.BrokenBarrierError: one of the threads has failed, or hangs.
    """
    buffers: list[cl.Buffer] = []
    meets = threading.Barrier(3, timeout=60)

    def writes(number: int) -> None:
        queue, half = cl.CommandQueue(backend.context, backend.queue.device), np.full(TWO_HALVES // 2, number, np.uint8)
        for _ in range(count):
            meets.wait()
            cl.enqueue_copy(queue, buffers[-1], half, dst_offset=number * half.size, is_blocking=True)
            meets.wait()

    threads = [threading.Thread(target=writes, args=(number,), daemon=True) for number in range(2)]
    for thread in threads:
        thread.start()
    found, expected = np.empty(TWO_HALVES, np.uint8), np.repeat(np.arange(2, dtype=np.uint8), TWO_HALVES // 2)
    is_right = True
    for _ in range(count):
        buffers.append(made())
        meets.wait()
        meets.wait()
        cl.enqueue_copy(backend.queue, found, buffers[-1], is_blocking=True)
        is_right &= np.array_equal(found, expected)
    for thread in threads:
        thread.join()
    return is_right


@symptom("pocl-first-use")
def first_use(backend: gp.Backend) -> bool:
    return not used_first_by_two(
        backend, lambda: cl.Buffer(backend.context, cl.mem_flags.READ_WRITE, TWO_HALVES), 20_000
    )


def refused_by_library(name: str, backend: gp.Backend, problem: gp.GemmProblem) -> bool:
    """Whether a baseline refuses a product that gemmport does not even ask it for."""
    library = baselines.load(name)
    operands = {o: backend.allocate(4 * max(problem.span(o), 1)) for o in ("a", "b", "d")}
    try:
        library.bind(problem, backend, operands, {}).enqueue()
        backend.synchronize()
    except LaunchError:
        return True
    return False


@symptom("clblas-no-terms")
def no_terms(backend: gp.Backend) -> bool:
    refused_by_library("clblas", backend, problem_of(Sizes(4, 4, 0), "NN", "float32", gap=0))
    return False  # it came to an end


@symptom("clblast-gemmk-1")
def equal_tiles_alone_are_right(backend: gp.Backend) -> bool:
    library = baselines.load("clblast")
    tile = {
        "MWG": 128,
        "NWG": 16,
        "KWG": 1,
        "MDIMC": 16,
        "NDIMC": 4,
        "MDIMA": 16,
        "NDIMB": 4,
        "VWM": 8,
        "VWN": 1,
        "KREG": 2,
    }
    rest = {"GEMMK": 1, "KWI": 1, "SA": 0, "SB": 0, "STRM": 0, "STRN": 0}
    each = {"Xgemm": {**tile, **rest}, "GemmRoutine": {"XGEMM_MIN_INDIRECT_SIZE": 0}}
    for kernel, parameters in each.items():
        library._override(backend.queue.device.int_ptr, Tuned(Path(), kernel, "", 32, 0.0, parameters, {}))
    problem = gp.GemmProblem.create(256, 256, 256)
    a, b = (np.random.default_rng(seed).integers(-4, 5, (256, 256)).astype(np.float32) for seed in (0, 1))
    d = backend.zeros((256, 256), np.float32)
    operands = {"a": backend.asarray(a).memory, "b": backend.asarray(b).memory, "d": d.memory}
    library.bind(problem, backend, operands, {}).enqueue()
    return not np.array_equal(d.get(), a @ b)


@symptom("cublas-int8-multiples")
def int8_multiples(backend: gp.Backend) -> bool:
    return refused_by_library("cublas", backend, problem_of(Sizes(5, 3, 7), "NN", "int8", gap=0, output="int32"))


def main() -> None:
    name, device = sys.argv[1:3]
    backend = gp.get_backend(device=device) if name.startswith("cublas") else gp.get_backend("opencl", device=device)
    try:
        answer = SHOWN if SYMPTOMS[name](backend) else GONE
    except CannotShow as reason:
        answer = f"{CANNOT}{reason}"
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
