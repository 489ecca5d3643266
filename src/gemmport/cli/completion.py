"""Values that a shell completes: kernels, types, baselines, backends, and devices, for which alone runtimes are loaded.

What knows the values is imported where they are asked for: a shell waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click
from click.shell_completion import CompletionItem, FishComplete, add_completion_class

AUTO, ALL, NONE = "auto", "all", "none"

DEVICES = "devices"
"""The type of an item that stands for all devices, where they are not to be looked for."""

_WITHOUT_DEVICES = "gemmport.completion.without_devices"


class Fish(FishComplete):
    """Splits the type from the rest alone: lists of names have commas, and so have descriptions."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split -m 1 ","')


add_completion_class(Fish)


def kernels(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of --kernel."""
    return beginning(incomplete, {AUTO: "as the configuration says", ALL: "every kernel", **_kernels()})


def kernel_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of what takes names alone."""
    return beginning(incomplete, _kernels())


def _kernels() -> dict[str, str]:
    from gemmport.kernels import variants  # noqa: PLC0415 - where it is asked for

    return {variant.name: variant.summary for variant in variants()}


def dtypes(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of --dtype and its like."""
    from gemmport.core.dtypes import INPUTS  # noqa: PLC0415 - where it is asked for

    return beginning(incomplete, dict.fromkeys(INPUTS, ""))


def precisions(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of --precision."""
    from gemmport.core.precision import PRECISIONS  # noqa: PLC0415 - where it is asked for

    return beginning(incomplete, dict.fromkeys(PRECISIONS, ""))


def backends(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of --backend."""
    from gemmport.backends import names  # noqa: PLC0415 - where it is asked for

    told = {AUTO: "that of the best device", ALL: "side by side"}
    return beginning(incomplete, {**dict.fromkeys(names(), ""), **told})


def baselines(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of --baseline."""
    from gemmport.baselines import names  # noqa: PLC0415 - where it is asked for

    return beginning(incomplete, {**dict.fromkeys((AUTO, NONE), ""), **dict.fromkeys(names(), "")})


def devices(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of --device: the runtime's name where it has one device, and its numbers else."""
    if context.meta.get(_WITHOUT_DEVICES):
        return [CompletionItem("", type=DEVICES)]
    from gemmport.execution.selection import devices as known_devices  # noqa: PLC0415 - it loads runtimes

    backend = context.params.get("backend") or AUTO
    found = known_devices(AUTO if backend == ALL else backend)
    count = Counter(device.platform for device in found)
    names = {device.platform if count[device.platform] == 1 else device.selector: device.label for device in found}
    return beginning(incomplete, {**names, ALL: "every device"})


@contextmanager
def without_devices(context: click.Context) -> Iterator[None]:
    """Meanwhile, `devices` looks for none and gives one item, of the type `DEVICES`."""
    context.meta[_WITHOUT_DEVICES] = True
    try:
        yield
    finally:
        del context.meta[_WITHOUT_DEVICES]


def beginning(incomplete: str, names: Mapping[str, str]) -> list[CompletionItem]:
    """The names that begin as what was typed does; behind a comma, as what stands behind it."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [
        CompletionItem(f"{before}{comma}{name}", help=told or None)
        for name, told in names.items()
        if name.startswith(last.lower()) and name not in taken and not (comma and name in (AUTO, ALL, NONE))
    ]
