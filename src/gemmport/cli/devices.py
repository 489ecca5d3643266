"""`gemmport devices`: every backend, platform and device; what is missing, and how to get it."""

from __future__ import annotations

import json

import click

from gemmport import backends
from gemmport.cli import streams
from gemmport.core.device import DeviceInfo
from gemmport.core.quirks import quirks_of
from gemmport.execution.selection import backend_status
from gemmport.execution.selection import devices as known_devices


@click.command(short_help="List devices, and what is missing.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def devices(form: str) -> None:
    """List every backend, platform and device; what is missing, and how to get it."""
    statuses = [backend_status(name) for name in backends.names()]
    if form == "json":
        document = {
            status.name: {
                "error": status.error,
                "notes": status.notes,
                "devices": [device.to_dict() for device in status.devices],
            }
            for status in statuses
        }
        streams.echo(json.dumps(document, indent=2))
        return
    known = known_devices()
    tell = streams.Prose(indent=7)
    for status in statuses:
        tell(status.name, style="bold")
        for device in status.devices:
            first = "  (taken where none is named)" if known[1:] and device == known[0] else ""
            tell(f"  {device.selector}  {device.name}{first}", style="green")
            for line in _describe(device):
                tell(f"       {line}")
            for quirk in quirks_of(device):
                tell(f"       {quirk.mark} ({quirk.effect}): {quirk.symptom}", style="dim")
        for note in (status.error, *status.notes):
            if note:
                tell(f"  –    {note}", style="yellow")


def _describe(device: DeviceInfo) -> list[str]:
    peak = device.peak_gflops("float32")
    clock = f" at {device.clock_mhz} MHz" if device.clock_mhz else ""
    told = f", about {peak:,.0f} GFLOPS in float32" if peak else ""
    limit = device.max_work_group
    hardware = ", ".join(filter(None, (device.type, device.vendor, device.architecture)))
    return [
        f"{device.platform} {device.platform_version} ({device.platform_name}), driver {device.driver}",
        f"{hardware}, {device.compute_units} compute units{clock}{told}",
        f"{device.memory / 2**30:.1f} GiB, {device.local_memory // 1024} KiB of local memory, work-groups up to {limit}",
        f"computes {', '.join(sorted(device.computes))}",
    ]
