"""How near the kernels' predictions come to recorded times.

    python benchmarks/predictions.py --config benchmarks/models/zen4.yaml DOCUMENT.json …

Every verified result of `gemmport run`, every trial of `benchmarks/mma.py`, and every choice that `benchmarks/tuning.py
unseen` measured, is predicted anew, by the model that the files of --config, and behind them the shipped ones, have of the
device that the document describes. Printed by platform, and by kernel: how many there are, the share whose prediction lies
within a factor of the time, and quantiles of predicted over measured time. Half of the products, by a digest of their names,
are held out: `--fit half` leaves them out, and `--fit held` shows them alone, so that constants are fitted to one half and
reported of the other. What `--no-verify` measured is passed over, but with `--unverified`.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from gemmport import kernels
from gemmport.contracts.device_model import Prediction
from gemmport.core.device import DeviceInfo
from gemmport.core.precision import FULL
from gemmport.core.problem import GemmProblem
from gemmport.planning import preparation
from gemmport.planning.lookup import Configuration, load_configuration

_KNOWN = {field.name for field in fields(DeviceInfo)}

HALVES = ("half", "held")


@dataclass(frozen=True)
class Timed:
    """A product on a device, by a kernel, and the median of its time.

    Attributes:
        chosen: whether the planner chose the kernel.
    """

    device: DeviceInfo
    problem: GemmProblem
    kernel: str
    parameters: tuple[tuple[str, Any], ...]
    seconds: float
    chosen: bool

    @property
    def half(self) -> str:
        """That to which constants are fitted, or the one that is held out: the same one for all kernels and devices."""
        return HALVES[hashlib.sha256(str(self.problem).encode()).digest()[0] % 2]

    def predicted(self, configuration: Configuration) -> Prediction:
        """What the kernel's model expects."""
        variant = kernels.variant(self.kernel)
        model = configuration.model(self.device)
        values = variant.complete(dict(self.parameters))
        return preparation.predicted(variant, self.problem, self.device, model, values)


def timed_in(document: dict[str, Any], *, unverified: bool = False) -> Iterator[Timed]:
    """The times of a document of `gemmport run`, `benchmarks/tuning.py unseen`, or `benchmarks/mma.py`, which verifies tilings
    before it times those that are right.

    Args:
        unverified: whether results count that nobody verified; those that are wrong never do.
    """
    devices = [
        DeviceInfo.from_dict({key: value for key, value in described.items() if key in _KNOWN})
        for described in document["environment"]["devices"].values()
    ]
    for one in document.get("results", ()):  # kills have none
        if "problem" in one:
            problem = _problem(one["problem"])
            choices = [one[name] for name in ("shipped", "tuned", "calibrated", "model") if name in one]
            for each in {json.dumps([one["kernel"], one["parameters"]]): one for one in choices}.values():
                if "seconds" in each:
                    yield Timed(
                        devices[0], problem, each["kernel"], (*each["parameters"].items(),), each["seconds"], True
                    )
        elif one.get("status") == "ok" and (
            one.get("verified") or (one.get("verified") is None and (unverified or "right" in document))
        ):
            named = one["backend"], one["selector"]  # a GPU has the same selector under CUDA and OpenCL
            device = next(each for each in devices if (each.backend, each.selector) == named)
            stated = tuple((name, choice["value"]) for name, choice in one["parameters"].items())
            chosen = one.get("asked", {}).get("kernel", "auto") == "auto"
            yield Timed(device, _problem(one), one["kernel"], stated, one["seconds"]["median"], chosen)


def _problem(told: dict[str, Any]) -> GemmProblem:
    names = ("batch", "dtype", "output", "accumulator", "trans_a", "trans_b", "alpha", "beta")
    given = {name: complex(*told[name]) if isinstance(told[name], list) else told[name] for name in names}
    return GemmProblem.create(told["m"], told["n"], told["k"], **given, precision=told.get("precision", FULL))


def share(ratios: Sequence[float], within: float) -> float:
    """Of ratios that lie within a factor of 1."""
    return sum(1 / within <= ratio <= within for ratio in ratios) / len(ratios)


@click.command()
@click.argument("documents", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--config", "files", multiple=True, type=click.Path(path_type=Path), help="E.g. a calibrated model.")
@click.option("--within", default=1.25, show_default=True, help="The factor.")
@click.option("--fit", type=click.Choice(HALVES), default=None, help="One half of the products alone.")
@click.option("--each", is_flag=True, help="Tell each one that lies beyond, with the parts of its prediction.")
@click.option("--unverified", is_flag=True, help="Take what --no-verify measured, too.")
def main(
    documents: Iterable[Path], files: Sequence[Path], within: float, fit: str | None, each: bool, unverified: bool
) -> None:
    """Sets predictions beside the times of documents."""
    configuration = load_configuration(files)
    rows: dict[tuple[str, str], list[float]] = defaultdict(list)
    for path in documents:
        for one in timed_in(json.loads(path.read_text(encoding="utf-8")), unverified=unverified):
            if fit is not None and one.half != fit:
                continue
            prediction = one.predicted(configuration)
            ratio = prediction.seconds / one.seconds
            platform = f"{one.device.platform} {one.device.platform_version}"
            for name in ("all", *(["as chosen"] if one.chosen else []), one.kernel):
                rows[platform, name].append(ratio)
            if each and share([ratio], within) == 0:
                parts = ", ".join(f"{name} {1e6 * value:.1f}" for name, value in prediction.parts.items() if value)
                time = f"{1e6 * one.seconds:10.1f} µs × {ratio:.2f}"
                click.echo(f"{platform:20.12} {one.kernel:8} {one.problem!s:42} {time}: {parts}")
    click.echo(f"{'platform':24} {'kernel':12} {'times':>6} {'within':>7} {'least':>6} {'median':>7} {'most':>6}")
    for (platform, name), ratios in sorted(rows.items()):
        told = f"{min(ratios):6.2f} {statistics.median(ratios):7.2f} {max(ratios):6.2f}"
        click.echo(f"{platform:24} {name:12} {len(ratios):6} {share(ratios, within):7.0%} {told}")


if __name__ == "__main__":
    main()
