"""Values that a shell completes: kernels, types, baselines, backends, and devices, for which alone runtimes are loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import click
from click.shell_completion import CompletionItem

from gemmport import backends as known_backends
from gemmport import baselines as known_baselines
from gemmport import kernels as known_kernels
from gemmport.core.dtypes import DTYPES
from gemmport.execution.selection import ALL, AUTO
from gemmport.execution.selection import devices as known_devices


def kernels(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of --kernel."""
    family = {variant.name: variant.summary for variant in known_kernels.variants()}
    return _beginning(incomplete, {AUTO: "as the configuration says", ALL: "every kernel", **family})


def kernel_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of what takes names alone."""
    return _beginning(incomplete, {variant.name: variant.summary for variant in known_kernels.variants()})


def dtypes(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of --dtype and its like."""
    return _beginning(incomplete, dict.fromkeys(DTYPES, ""))


def backends(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of --backend."""
    told = {AUTO: "that of the best device", ALL: "side by side"}
    return _beginning(incomplete, {**dict.fromkeys(known_backends.names(), ""), **told})


def baselines(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of --baseline."""
    return _beginning(incomplete, {**dict.fromkeys((AUTO, "none"), ""), **dict.fromkeys(known_baselines.names(), "")})


def devices(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of --device: the runtime's name where it has one device, and its numbers else."""
    backend = context.params.get("backend") or AUTO
    found = known_devices(AUTO if backend == ALL else backend)
    count = Counter(device.platform for device in found)
    names = {device.platform if count[device.platform] == 1 else device.selector: device.label for device in found}
    return _beginning(incomplete, {**names, ALL: "every device"})


def _beginning(incomplete: str, names: Mapping[str, str]) -> list[CompletionItem]:
    """The names that begin as what was typed does; behind a comma, as what stands behind it."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [
        CompletionItem(f"{before}{comma}{name}", help=told or None)
        for name, told in names.items()
        if name.startswith(last.lower()) and name not in taken and not (comma and name in (AUTO, ALL, "none"))
    ]
