"""Whether `mma`, `wgmma` or, by the matrix unit, `simt` is right on an NVIDIA GPU, how fast each tiling is beside cuBLAS, and
which shall be listed.

    python benchmarks/mma.py --seconds 450 --output mma.json
    python benchmarks/mma.py --kernel wgmma --seconds 180 --output wgmma.json
    python benchmarks/mma.py --kernel simt --seconds 300 --output simt-mma.json
    python benchmarks/mma.py --kernel wgmma --dtypes bfloat16 --sizes 1024 --tiling TSM=64,TSN=128,SHARE=0,CLUSTER=b

First every tiling of the device's model, of `simt` every one that is generated for the unit, is verified in every type, shared
and not unless it says which, on odd sizes and whole tiles. Those that failed are told, and not timed. Then come ratios to the
faster of cuBLAS and cuBLASLt: of every tiling on squares of one layout, and of the best of them on all
four. FP8 begins with NT, which is all that cuBLASLt has of it on Hopper, and has a result in bfloat16. What is left when time
is up is told, and not done. OpenCL's times stand beside those of both under CUDA in the same run; what neither computes stands
alone, and that is told. At the end stand, for each type, the tilings that were the fastest somewhere.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import click
import document

from gemmport import kernels
from gemmport.bench.products import Options, Result, run_benchmark
from gemmport.checking import verification
from gemmport.cli.options import chosen_parameters
from gemmport.contracts.device_model import DeviceModel
from gemmport.contracts.kernel import KernelVariant
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import GemmportError
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem
from gemmport.execution.selection import get_backend, select_device
from gemmport.kernels import _mma_tilings, _simt_tilings
from gemmport.planning.lookup import Configuration, load_configuration

OUTPUTS = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "int8": "int32",
    "uint8": "int32",
    "float8_e4m3fn": "float32",
    "float8_e5m2": "float32",
    "float32": "float32",
}
"""The types of `mma` and `wgmma`, each with its output's. Float32 is multiplied as TF32."""

OF_SIMT = ("complex128", "float64")
"""What `simt` multiplies by the unit."""

TIMED = ("float16", "int8", "bfloat16", "float8_e4m3fn", "float32", *OF_SIMT)

LAYOUTS = ("NN", "NT", "TN", "TT")

SIZES = (1024, 4096, 256, 2048, 512, 8192)
"""In the order in which they are timed: what is left out when time is up is least missed."""

CONJUGATED = str.maketrans("NT", "RC")

REGISTERS = {"most_registers": 255, "addresses": 60}
"""For `simt`: of a thread, from compute capability 3.5 on (CUDA C++ Programming Guide, technical specifications); and those
beside sums and what is read ahead, with which complex128 spills nothing, edges or not (NVRTC 13.5, sm_80 to sm_100).
"""

VENDORS = ("cublas", "cublaslt")
"""The baselines; a ratio is to the faster one."""

FIRST, OUTPUTS_TIMED = {"float8_e4m3fn": "NT"}, {"float8_e4m3fn": "bfloat16"}
"""The layout in which all tilings are timed, where it is not the first, and the type of the result, where it is another one."""

BEST = 3
"""Tilings of a size that are timed in the other layouts, too."""

ODD, WHOLE = (517, 389, 1043), (512, 768, 1024)

Parameters = Mapping[str, ParameterValue]


@dataclass
class Search:
    """What is found on one device.

    Attributes:
        kernel: which is tried.
        ends: the clock's reading at which no more is begun.
        dtypes: of A and B, to which it is kept; empty: all.
        layouts: in which the best tilings of a size are timed, beside the first.
        asked: tilings that are tried instead of those that are listed or generated; empty: these.
        right: products by type that were verified. wrong: tilings by type that failed, as text, with the reason.
    """

    kernel: KernelVariant
    device: DeviceInfo
    configuration: Configuration
    ends: float
    dtypes: Sequence[str] = ()
    layouts: Sequence[str] = LAYOUTS
    asked: Sequence[Parameters] = ()
    results: list[dict[str, Any]] = field(default_factory=list)
    right: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def model(self) -> DeviceModel:
        return self.configuration.model(self.device)

    def tilings(self, problem: GemmProblem) -> list[Parameters]:
        """Those that fit the device, for the problem's type."""
        if self.asked or self.kernel.name == "wgmma":
            listed = self.asked or self.model.tilings["wgmma"]
            fits = [self.kernel.unfit(self.kernel.complete(each), problem, self.device) is None for each in listed]
            return [{**each} for each, fit in zip(listed, fits, strict=True) if fit]
        if self.kernel.name == "simt":
            generated = _simt_tilings.generated_for_matrix_unit()
            own = {**_simt_tilings.USUAL, **self.model.constants("simt"), **REGISTERS}
            found = [_simt_tilings.fit(self.kernel, each, problem, self.device, own) for each in generated]
        else:
            stated = (*self.model.tilings["mma"], _mma_tilings.SMALLEST)
            own = _mma_tilings.constants(self.device, self.model)
            found = [_mma_tilings.fit(self.kernel, each, problem, self.device, own) for each in stated]
        return [fitted for fitted in found if fitted]

    @property
    def types(self) -> tuple[str, ...]:
        """Those that the kernel multiplies by the unit of the device."""
        if self.kernel.name == "simt":
            able = OF_SIMT
        else:
            able = tuple(
                own for own in OUTPUTS if not self.kernel.unsupported(product(1, 1, 1, own, "NN"), self.device)
            )
        return tuple(own for own in able if own in self.dtypes or not self.dtypes)

    def run(self, problem: GemmProblem, tiling: Parameters, *, verify: bool, repeat: int) -> Result | None:
        """One product; None where time is up. An error is a result, too."""
        told = f"{problem} on {self.device.backend}: {dict(tiling)}"
        if time.monotonic() > self.ends:
            self.left_out.append(told)
            return None
        baselines = VENDORS if self.device.backend == "cuda" and not verify else ()
        options = Options(
            self.configuration,
            kernels=(self.kernel.name,),
            params=dict(tiling),
            verify=verify,
            baselines=baselines,
            repeat=repeat,
        )
        (result,) = run_benchmark([problem], [self.device], options)
        return result

    def verified(self) -> None:
        """Every tiling in every type, laid out in one way or another, on odd sizes and whole tiles; all types in turn."""
        tilings = {dtype: self.tilings(product(1, 1, 1, dtype, "NN")) for dtype in self.types}
        for number in range(max(map(len, tilings.values()))):
            ops = LAYOUTS[number % len(LAYOUTS)]
            for dtype in tilings:
                conjugated = dtype == "complex128" and number // len(LAYOUTS) % 2
                for tiling in tilings[dtype][number : number + 1]:
                    self._verified(dtype, ops.translate(CONJUGATED) if conjugated else ops, tiling)

    def _verified(self, dtype: str, ops: str, tiling: Parameters) -> None:
        # The others have no such parameter.
        anew = [(ODD, {"SHARE": 0, "ANEW": 1})] if self.kernel.name == "mma" else []
        for sizes, more in ((ODD, {"SHARE": 1}), (WHOLE, {"SHARE": 0}), *anew):
            problem = product(*sizes, dtype, ops, beta=-1.0)
            result = self.run(problem, {**more, **tiling}, verify=True, repeat=1)
            if result is None:
                continue
            if result.status == "ok":
                self.right[dtype] += 1
            else:
                self.wrong[f"{dtype} {dict(tiling)}"] = f"{problem}: {result.status}: {result.reason}"
                click.echo(f"WRONG {self.device.backend} {dtype} {dict(tiling)}: {result.reason}", err=True)

    def timed(self, sizes: tuple[int, ...]) -> None:
        """Every tiling on squares as stored, and the best ones in the other layouts."""
        for size in sizes:
            for dtype in (own for own in TIMED if own in self.types):
                found: list[tuple[float, Parameters]] = []
                first = FIRST.get(dtype, LAYOUTS[0])
                for tiling in self.tilings(timed_product(size, dtype, first)):
                    if f"{dtype} {dict(tiling)}" not in self.wrong:
                        found += self._timed(size, dtype, first, tiling)
                fastest = sorted(found, key=lambda pair: pair[0])
                best = list({tuple(sorted(tiling.items())): tiling for _, tiling in fastest}.values())[:BEST]
                for ops in (each for each in self.layouts if each != first):
                    for tiling in best:
                        self._timed(size, dtype, ops, tiling)

    def _timed(self, size: int, dtype: str, ops: str, tiling: Parameters) -> Iterator[tuple[float, Parameters]]:
        """Seconds per work without sharing and with it; on record."""
        found = []
        for share in (tiling["SHARE"],) if "SHARE" in tiling else (0, 1):
            params = {**tiling, "SHARE": share}
            result = self.run(timed_product(size, dtype, ops), params, verify=False, repeat=10)
            if result is None:
                continue
            own = result.to_dict()
            self.results.append({**own, "ops": ops, "tiling": dict(params)})
            if own.get("gflops"):
                ratio = beside(own["gflops"], own.get("baselines", {}))
                click.echo(
                    f"{self.device.backend} {dtype} {ops} {size}: {own['gflops']:,.0f} GFLOPS{ratio} {params}", err=True
                )
                found.append((1 / own["gflops"], tiling))
            else:
                click.echo(
                    f"{self.device.backend} {dtype} {ops} {size}: {result.status}: {result.reason} {params}", err=True
                )
        return iter(found)


def beside(gflops: float, baselines: Mapping[str, Mapping[str, Any]]) -> str:
    """What part of the fastest baseline's rate a kernel reaches, for people; why there is none, where there is none."""
    rates = {name: one["gflops"] for name, one in baselines.items() if one["gflops"]}
    if rates:
        name = max(rates, key=rates.__getitem__)
        return f", {gflops / rates[name]:.2f} of {name}"
    return ", alone: " + "; ".join(str(one["reason"]) for one in baselines.values()) if baselines else ""


def timed_product(size: int, dtype: str, ops: str) -> GemmProblem:
    """A square, with the result in which its type is timed."""
    return product(size, size, size, dtype, ops, output=OUTPUTS_TIMED.get(dtype))


def product(
    m: int, n: int, k: int, dtype: str, ops: str, beta: float = 0.0, output: str | None = None
) -> GemmProblem:  # fmt: skip
    """A product in a type that is among OUTPUTS or OF_SIMT; its result has that of OUTPUTS, unless another is told."""
    return GemmProblem.create(
        m, n, k, dtype=dtype, output=output or OUTPUTS.get(dtype, dtype), trans_a=ops[0], trans_b=ops[1], alpha=1.0, beta=beta,
        precision="tf32" if dtype == "float32" else "full",
    )  # fmt: skip


def best(trials: list[Search]) -> dict[str, list[dict[str, Any]]]:
    """By backend and type, the fastest tiling of each size and layout: what is worth a place in a configuration."""
    fastest: dict[tuple[str, str, int, str], dict[str, Any]] = {}
    for trial in trials:
        for own in trial.results:
            key = (trial.device.backend, own["dtype"], own["m"], own["ops"])
            if own.get("gflops") and own["gflops"] > fastest.get(key, {"gflops": 0})["gflops"]:
                fastest[key] = own
    found: dict[str, list[dict[str, Any]]] = {}
    for (backend, dtype, size, ops), own in sorted(fastest.items(), key=lambda pair: str(pair[0])):
        line = {"size": size, "ops": ops, "gflops": own["gflops"], "tiling": own["tiling"]}
        found.setdefault(f"{backend} {dtype}", []).append(line)
    return found


@click.command()
@click.option(
    "--kernel", default="mma", show_default=True, type=click.Choice(["mma", "wgmma", "simt"]), help="Which is tried."
)
@click.option("--device", default=None, metavar="PLATFORM[:DEVICE]", help="As in gemmport run. Default: the best.")
@click.option("--backends", default="cuda,opencl", show_default=True, help="Which are tried, in their order.")
@click.option("--seconds", default=450.0, show_default=True, help="When no more is begun.")
@click.option("--sizes", default=",".join(map(str, SIZES)), show_default=True, help="Of squares, in their order.")
@click.option(
    "--layouts", default=",".join(LAYOUTS), show_default=True, help="Of which the best tilings are timed in all."
)
@click.option("--dtypes", default="", metavar="NAME[,NAME]", help="Of A and B. Default: all that the kernel has.")
@click.option(
    "--tiling",
    "tilings",
    multiple=True,
    metavar="NAME=VALUE[,NAME=VALUE]",
    help="Tried instead of those that are listed; repeatable.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Write JSON to this file, and not to standard output.")
def main(
    kernel: str, device: str | None, backends: str, seconds: float, sizes: str, layouts: str, dtypes: str,
    tilings: tuple[str, ...], output: Path | None,
) -> None:  # fmt: skip
    """Verifies and times a kernel under CUDA, and under OpenCL where it has it."""
    # One tiling after the other takes the same operands, which take a second to draw.
    verification.random_operands = lru_cache(maxsize=1)(verification.random_operands)
    begun, configuration, trials = time.monotonic(), load_configuration(), list[Search]()
    for name in backends.split(","):
        try:
            target = select_device(device, name)
        except GemmportError as error:
            click.echo(f"{name}: {error}", err=True)
            continue
        asked = [chosen_parameters(tiling.split(","), kernel) for tiling in tilings]
        kept = tuple(filter(None, dtypes.split(",")))
        trial = Search(kernels.variant(kernel), target, configuration, 0.0, kept, layouts.split(","), asked)
        if not trial.types:
            click.echo(f"{target.label}: {kernel} multiplies nothing of {dtypes or 'all types'} there", err=True)
            continue
        if not trial.tilings(product(1, 1, 1, trial.types[0], "NN")):
            click.echo(f"{target.label}: no tiling fits", err=True)
            continue
        trials.append(trial)
    if not trials:
        raise click.UsageError(
            "the device must be an NVIDIA GPU that has the kernel's instructions, for --dtypes; there is none here"
        )
    # Of the time each backend has its part: a third for whether it is right, the rest for how fast it is.
    for number, trial in enumerate(trials):
        start, part = begun + seconds * number / len(trials), seconds / len(trials)
        trial.ends = start + part / 3
        trial.verified()
        trial.ends = start + part
        trial.timed(tuple(int(size) for size in sizes.split(",")))
    listed = best(trials)
    for key, lines in listed.items():
        for line in lines:
            click.echo(f"{key} {line['size']} {line['ops']}: {line['gflops']:,.0f} GFLOPS {line['tiling']}", err=True)
    for trial in trials:
        right = ", ".join(f"{count} of {dtype}" for dtype, count in trial.right.items()) or "none"
        told = f"{len(trial.wrong)} tilings wrong; products right: {right}; {len(trial.left_out)} trials left out"
        click.echo(f"{trial.device.label}: {told}", err=True)
    document.write(
        output, [get_backend(device=trial.device) for trial in trials],
        results=[own for trial in trials for own in trial.results], best=listed,
        right={trial.device.backend: dict(trial.right) for trial in trials},
        wrong={trial.device.backend: trial.wrong for trial in trials},
        left_out={trial.device.backend: trial.left_out for trial in trials},
    )  # fmt: skip


if __name__ == "__main__":
    main()
