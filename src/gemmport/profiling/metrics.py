"""The figures of a profile, and the counters of Nsight Compute that they are read from.

Counters are named as in the chapters "Metrics Structure" and "Metrics Reference" of NVIDIA's Kernel Profiling Guide
(docs.nvidia.com/nsight-compute/ProfilingGuide): the unit of the chip, two underlines, what is counted, how it is summed up
over all such units (sum, avg), and of what it is a ratio. `pct_of_peak_sustained_active` is a percentage of the most that
the unit can do in the cycles in which it had work, `_elapsed` of the most in all cycles of the launch. `ncu --query-metrics`
lists what a chip has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Unit = Literal["s", "byte/s", "%", "warps", "blocks", "registers", "instructions", "wavefronts", "conflicts"]

Figures = Mapping[str, "float | None"]
"""Values by the keys of metrics; None where this chip, or this version of Nsight Compute, has no such counter."""

WARP = 32
"""Threads of a warp, on every NVIDIA GPU (CUDA C++ Programming Guide, "SIMT Architecture")."""


@dataclass(frozen=True)
class Metric:
    """One figure of a launch.

    Attributes:
        key: its name in `Figures` and in JSON; label: what tables call it.
        counter: Nsight Compute's name.
        unit: of the figure; Nsight Compute's own are converted to it.
        arithmetic: of the problems that it is asked of; empty for all.
    """

    key: str
    label: str
    counter: str
    unit: Unit
    meaning: str
    arithmetic: str = ""


@dataclass(frozen=True)
class Stall:
    """A reason for which a warp issues no instruction in a cycle.

    Attributes:
        reason: as it stands in Nsight Compute's counters.
        waits_for: what such a warp waits for.
        remedy: what makes a kernel wait less for it.
    """

    reason: str
    waits_for: str
    remedy: str

    @property
    def key(self) -> str:
        """Its name in `Figures`."""
        return f"stall_{self.reason}"

    @property
    def label(self) -> str:
        """What tables call it."""
        return f"stall: {self.reason.replace('_', ' ')}"


NOT_SELECTED = Stall(
    "not_selected", "nothing: the scheduler took another one", "nothing: more warps are ready than issue"
)

STALLS = (
    Stall("long_scoreboard", "data from global memory", "bring it earlier, or more of it per load; keep more warps"),
    Stall("short_scoreboard", "data from shared memory", "fewer and wider loads, no bank conflicts, more work in between"),
    Stall("mio_throttle", "room in the queue of shared-memory instructions", "fewer and wider loads: more work per item"),
    Stall("lg_throttle", "room in the queue of global-memory instructions", "fewer and wider loads; tiles in shared memory"),
    Stall("barrier", "the other warps of the group at a barrier", "smaller groups, or two tiles in turn"),
    Stall("math_pipe_throttle", "an arithmetic pipe that others use", "nothing, where that pipe does the product's own work"),
    Stall("wait", "the fixed latency of their last instruction", "more independent instructions; more warps"),
    Stall("dispatch_stall", "the dispatcher, which is held up", "fewer conflicts of register banks"),
    Stall("branch_resolving", "the target of a branch", "longer loop bodies"),
    Stall("no_instruction", "their next instruction, which is not in the cache", "a shorter loop body"),
    Stall("imc_miss", "a constant that is not in the cache", "fewer constants"),
    Stall("drain", "their stores, after their last instruction", "wider stores"),
    NOT_SELECTED,
)  # fmt: skip
"""The reasons that a product of matrices can meet; those of atomics, textures and sleep are left out."""

_PERCENT_ACTIVE = "avg.pct_of_peak_sustained_active"
_PERCENT_ELAPSED = "avg.pct_of_peak_sustained_elapsed"

METRICS = (
    Metric("duration", "duration", "gpu__time_duration.sum", "s", "time of the launch, with cold caches"),
    Metric("issue_active", "issue slots used", f"smsp__issue_active.{_PERCENT_ACTIVE}", "%",
           "cycles in which a scheduler issued an instruction; it issues at most one per cycle"),
    Metric("instructions", "instructions of warps", "smsp__inst_executed.sum", "instructions", "executed, by warps"),
    Metric("fma", "FMA of threads", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", "instructions",
           "fused multiply-adds executed, by threads", "float32"),
    Metric("fma", "FMA of threads", "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum", "instructions",
           "fused multiply-adds executed, by threads", "float64"),
    Metric("fma", "FMA of threads", "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum", "instructions",
           "fused multiply-adds executed, by threads", "float16"),
    Metric("fma_pipe", "FMA pipe used", f"sm__inst_executed_pipe_fma.{_PERCENT_ACTIVE}", "%",
           "instructions of the pipe that multiplies and adds", "float32"),
    Metric("fma_pipe", "FMA pipe used", f"sm__inst_executed_pipe_fp64.{_PERCENT_ACTIVE}", "%",
           "instructions of the pipe that multiplies and adds", "float64"),
    Metric("fma_pipe", "FMA pipe used", f"sm__inst_executed_pipe_fp16.{_PERCENT_ACTIVE}", "%",
           "instructions of the pipe that multiplies and adds", "float16"),
    Metric("dram", "DRAM", f"dram__throughput.{_PERCENT_ELAPSED}", "%", "throughput of the device's memory"),
    Metric("dram_read", "DRAM read", "dram__bytes_read.sum.per_second", "byte/s", "read from the device's memory"),
    Metric("dram_write", "DRAM written", "dram__bytes_write.sum.per_second", "byte/s", "written to the device's memory"),
    Metric("l2", "L2 cache", f"lts__throughput.{_PERCENT_ELAPSED}", "%", "throughput of the L2 cache"),
    Metric("l2_bytes", "L2 cache moved", "lts__t_bytes.sum.per_second", "byte/s", "read from and written to the L2 cache"),
    Metric("l1", "L1 cache and shared memory", f"l1tex__throughput.{_PERCENT_ACTIVE}", "%",
           "throughput of the memory inside the multiprocessors, which caches and shared memory divide"),
    Metric("l1_bytes", "L1 cache moved", "l1tex__t_bytes.sum.per_second", "byte/s",
           "read and written through the L1 cache; shared memory is not counted"),
    Metric("shared", "shared memory", f"l1tex__data_pipe_lsu_wavefronts_mem_shared.{_PERCENT_ELAPSED}", "%",
           "cycles in which the data stage served shared memory"),
    Metric("shared_loads", "shared loads", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", "wavefronts",
           "turns that loads from shared memory took"),
    Metric("shared_load_conflicts", "bank conflicts of loads", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
           "conflicts", "turns that loads took because two threads wanted one bank"),
    Metric("shared_stores", "shared stores", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum", "wavefronts",
           "turns that stores to shared memory took"),
    Metric("shared_store_conflicts", "bank conflicts of stores", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
           "conflicts", "turns that stores took because two threads wanted one bank"),
    Metric("occupancy", "occupancy achieved", f"sm__warps_active.{_PERCENT_ACTIVE}", "%",
           "warps that were resident, of those that fit a multiprocessor at most"),
    Metric("occupancy_most", "occupancy possible", "sm__maximum_warps_per_active_cycle_pct", "%",
           "warps that can be resident with this kernel's registers, shared memory and groups"),
    Metric("registers", "registers per thread", "launch__registers_per_thread", "registers", "of one thread"),
    Metric("limit_registers", "groups that registers allow", "launch__occupancy_limit_registers", "blocks",
           "groups of one multiprocessor for which there are registers"),
    Metric("limit_shared", "groups that shared memory allows", "launch__occupancy_limit_shared_mem", "blocks",
           "groups of one multiprocessor for which there is shared memory"),
    Metric("limit_warps", "groups that warps allow", "launch__occupancy_limit_warps", "blocks",
           "groups of one multiprocessor for which there are warps"),
    *(
        Metric(stall.key, stall.label, f"smsp__average_warps_issue_stalled_{stall.reason}_per_issue_active.ratio", "warps",
               f"warps that, while one instruction was issued, waited for {stall.waits_for}")
        for stall in STALLS
    ),
)  # fmt: skip


def metrics_for(arithmetic: str) -> tuple[Metric, ...]:
    """What is asked of problems that compute in a floating-point type; in an empty one, of those that compute in integers."""
    return tuple(metric for metric in METRICS if metric.arithmetic in ("", arithmetic))


def fma_share(figures: Figures) -> float | None:
    """Percent of all instructions that are multiply-adds; the rest is what it takes to feed them."""
    fma, instructions = figures.get("fma"), figures.get("instructions")
    return 100 * fma / (WARP * instructions) if fma is not None and instructions else None
