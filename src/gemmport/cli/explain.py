"""`gemmport explain`: why a product is computed the way it is, how long that is expected to take, and how long it takes."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gemmport.api.explain import chip_or_device
from gemmport.api.explain import explain as explain_dealt
from gemmport.bench.explained import measured
from gemmport.bench.products import Options
from gemmport.cli import options, plots, streams
from gemmport.cli.output import progress_on_terminal, write
from gemmport.cli.recorded import recorded_device
from gemmport.contracts.named_devices import CHIPS
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import BackendUnavailableError, DeviceNotFoundError
from gemmport.execution.selection import select_device
from gemmport.multidevice.outlook import Outlook, Placement
from gemmport.planning.cluster import Cluster, ClusterExplanation, explain_cluster
from gemmport.planning.explanation import Explanation, explain
from gemmport.planning.explanation_page import page
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import AUTO

INDENT = 13
"""Blanks before what a narrow terminal has no room for in its line."""


@click.command("explain", short_help="Explain how a product is computed, and why.")
@click.argument("m", type=int, required=False)
@click.argument("n", type=int, required=False)
@click.argument("k", type=int, required=False)
@click.option("--size", type=int, help="M, N and K in one number.")
@click.option("--batch", type=int, default=1, show_default=True, help="Products in one launch.")
@options.dtype
@click.option("--output-dtype", help="Of C and D. Default: that of A and B.")
@click.option("--accumulator", help="Of the sums. Default: float32 or wider, int32 or int64.")
@options.precision
@options.transpositions
@click.option("--alpha", type=complex, default="1", show_default=True, help="A number: 2, 0.5, 1+2j.")
@click.option("--beta", type=complex, default="0", show_default=True, help="Likewise.")
@options.one_device
@options.together_devices
@options.placement
@click.option(
    "--recorded",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A device that need not be here: of a JSON document of gemmport devices or run; --device takes words of its label.",
)
@click.option(
    "--cluster",
    "cluster_text",
    metavar="KEY=VALUE,...",
    help="Predict schedules on many such devices: nodes=64,gpus=8,link=450GB/s,net=50GB/s[,memory=80GB]; --device may be a "
    f"chip that is not here: {', '.join(CHIPS)}.",
)
@click.option("--kernel", default=AUTO, show_default=True, help="A kernel by name; auto: as the configuration says.")
@options.config_files
@options.settings
@options.device_memory
@click.option("--measure", is_flag=True, help="Run it, verify it, and set what it takes beside the prediction.")
@click.option("--repeat", type=click.IntRange(min=1), default=10, show_default=True, help="Samples of the measurement.")
@click.option(
    "--plot",
    "picture",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw the roofline with the product under it: .png, .svg, .pdf.",
)
@options.report("text", "json")
def explain_command(
    m: int | None, n: int | None, k: int | None, size: int | None, batch: int, dtype: str, output_dtype: str | None,
    accumulator: str | None, precision: str | None, trans_a: str, trans_b: str, alpha: complex, beta: complex,
    backend: str | None, device: str | None, devices_together: tuple[str, ...], placement: Placement,
    recorded: Path | None,
    cluster_text: str | None, kernel: str,
    config_files: tuple[Path, ...], settings: tuple[str, ...], device_memory: int | None, measure: bool, repeat: int,
    picture: Path | None, form: str, output: Path | None,
) -> int:  # fmt: skip
    """Explain on one page how a product of M × K by K × N matrices is computed on a device, and why.

    Roofline, plan, predicted time by part, what else was considered, and which configuration entries lost. With --cluster:
    time, traffic and memory of each device by 1-D, 2-D and 2.5-D schedules, beside the least that any moves.

    With --devices: whether it pays to deal the product to several devices, and what is expected of each. With --placement, of
    arrays that are on the devices: what travels between them, too.

    Exit status: 0 all well; 1 what --measure ran failed verification; 2 bad usage or configuration; 3 the backend or device
    is not usable here.
    """
    if output is not None:
        options.check_writable("--output", output)
    plots.check_plot(picture)
    if recorded is not None and measure:
        raise click.UsageError("--measure runs on a device that is here: leave out --recorded")
    m, n, k = _extents(m, n, k, size)
    configuration = load_configuration(config_files)
    problem = options.make_problem(
        m=m, n=n, k=k, batch=batch, dtype=dtype, output=output_dtype, accumulator=accumulator, precision=precision,
        default=configuration.precision, trans_a=trans_a, trans_b=trans_b, alpha=alpha, beta=beta,
    )  # fmt: skip
    if devices_together:
        from gemmport.cli.dealt import described, refuse_beside_devices  # noqa: PLC0415 - which takes what deals

        refuse_beside_devices(
            device=device,
            recorded=recorded,
            measure=measure,
            plot=picture,
            cluster=cluster_text,
        )
        dealt = explain_dealt(
            problem, devices=described(devices_together), backend=backend, kernel=kernel,
            params=options.chosen_parameters(settings, kernel), config=config_files, device_memory=device_memory,
            placement=placement,
        )  # fmt: skip
        _tell(dealt, form, output)
        return 0
    options.check_alone(placement)
    params = options.chosen_parameters(settings, kernel)
    if cluster_text is not None:
        if measure or picture is not None or device_memory is not None:
            raise click.UsageError(
                "--cluster predicts of devices with all their memory, or memory= of it: leave out --measure, --plot and "
                "--device-memory"
            )
        on_many = explain_cluster(
            problem, Cluster.parse(cluster_text), _chip_or_device(device, backend, recorded), configuration, kernel=kernel,
            params=params, params_origin="--set",
        )  # fmt: skip
        _tell(on_many, form, output)
        return 0
    target = _device(device, backend) if recorded is None else recorded_device(recorded, device, backend)
    found = explain(
        problem, target, configuration, kernel=kernel, params=params, params_origin="--set", device_memory=device_memory
    )
    if measure:
        chosen = Options(configuration, (kernel,), params, "--set", baselines=(), repeat=repeat)
        with progress_on_terminal() as tell:
            found = measured(found, chosen, progress=tell)
    if picture is not None:
        plots.plot_roofline(found, picture)
    _tell(found, form, output)
    return 1 if found.measured is not None and found.measured.verified is False else 0


def _extents(m: int | None, n: int | None, k: int | None, size: int | None) -> tuple[int, int, int]:
    """Those of the arguments, or of --size."""
    if size is not None:
        if m is not None:
            raise click.UsageError("--size is in the place of M, N and K: leave out one or the other")
        return size, size, size
    if m is None or n is None or k is None:
        raise click.UsageError("M, N and K must be three numbers, or --size one")
    return m, n, k


def _device(device: str | None, backend: str | None) -> DeviceInfo:
    """The device of a description. Where it is not here, the error names the options that explain without it."""
    try:
        return select_device(device, backend)
    except (BackendUnavailableError, DeviceNotFoundError) as error:
        raise type(error)(
            f"{error}; a device that is not here is explained with --recorded FILE (gemmport devices --format json writes one "
            f"where it is), and of the chips {', '.join(CHIPS)} with --cluster nodes=1,gpus=8,link=450GB/s,net=50GB/s"
        ) from error


def _chip_or_device(device: str | None, backend: str | None, recorded: Path | None) -> DeviceInfo:
    if recorded is not None:
        return recorded_device(recorded, device, backend)
    return chip_or_device(device, backend)


def _tell(found: Explanation | ClusterExplanation | Outlook, form: str, output: Path | None) -> None:
    if form == "json":
        write(json.dumps(found.to_dict(), indent=2, allow_nan=False, ensure_ascii=False) + "\n", output)
    elif output is not None:
        write(streams.shown(f"{found}\n"), output)
    else:
        width = streams.terminal_width()
        told = page(found, width) if isinstance(found, Explanation) and width is not None else str(found)
        streams.Prose(indent=INDENT)(told)
