"""What a shell completes of a command, kept from one time to the next: a shell waits, and to import a command takes long.

An outline is a command's options, arguments and values, as plain data in the cache. It holds as long as the package's files are
what they were.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from gemmport import __version__
from gemmport.cli import completion
from gemmport.runtime.cache import load_text, program_key, store_text

SCHEMA = 1

PACKAGES = ("cli", "kernels", "baselines", "backends", "core")
"""Where commands and what their values are named after stand."""


def command(name: str, load: Callable[[], click.Command], context: click.Context) -> click.Command:
    """A command for completion alone: of its outline where the cache has one, else itself, whose outline is kept.

    Args:
        load: imports the command.
    """
    file, key = f"outline-{name}.json", _key()
    kept = load_text(file, key)
    if kept is not None:
        return _of(json.loads(kept))
    found = load()
    with click.Context(found, parent=context, info_name=name, resilient_parsing=True) as own:
        store_text(file, key, json.dumps(_outline(found, own)))
    return found


def _key() -> str:
    """What stands for the package's files, as far as they tell what is completed."""
    told = [f"{SCHEMA}", __version__, sys.version]
    for package in PACKAGES:
        spec = find_spec(f"gemmport.{package}")
        for folder in (spec and spec.submodule_search_locations) or ():
            with os.scandir(folder) as files:
                stats = {file.name: file.stat() for file in files if file.name.endswith(".py")}
            told += [f"{Path(folder, name)} {stats[name].st_mtime_ns} {stats[name].st_size}" for name in sorted(stats)]
    return program_key(*told)


def _outline(found: click.Command, context: click.Context) -> dict[str, Any]:
    """A command, and those in it, as plain data."""
    inner = {}
    if isinstance(found, click.Group):
        for name in found.list_commands(context):
            member = found.get_command(context, name)
            if member is not None:
                inner[name] = _outline(member, click.Context(member, parent=context, info_name=name))
    return {
        "help": found.get_short_help_str(),
        "parameters": [_parameter(each, context) for each in found.params],
        "commands": inner if isinstance(found, click.Group) else None,
    }


def _parameter(parameter: click.Parameter, context: click.Context) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": parameter.name,
        "opts": parameter.opts,
        "secondary": parameter.secondary_opts,
        "nargs": parameter.nargs,
        "multiple": parameter.multiple,
        "argument": isinstance(parameter, click.Argument),
    }
    if isinstance(parameter, click.Option):
        optional = isinstance(parameter.flag_value, str) and not parameter.is_flag  # a value that may be left out
        told |= {
            "flag": parameter.is_flag, "count": parameter.count, "hidden": parameter.hidden, "help": parameter.help,
            "flag_value": parameter.flag_value if optional else None,
        }  # fmt: skip
    with completion.without_devices(context):
        values = parameter.shell_complete(context, "")
        told["values"] = [[each.value, each.type, each.help] for each in values]
        told["listed"] = bool(parameter.shell_complete(context, ","))
    return told


def _of(told: dict[str, Any]) -> click.Command:
    """A command that completes as the one does that an outline is of, and does nothing."""
    parameters = [_parameter_of(each) for each in told["parameters"]]
    if told["commands"] is None:
        return click.Command(None, params=parameters, short_help=told["help"])
    inner = {name: _of(each) for name, each in told["commands"].items()}
    return click.Group(None, params=parameters, short_help=told["help"], commands=inner)


def _parameter_of(told: dict[str, Any]) -> click.Parameter:
    values = [CompletionItem(value, type=kind, help=tip) for value, kind, tip in told["values"]]

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _beginning(context, parameter, incomplete, values, listed=told["listed"])

    common: dict[str, Any] = {"type": click.UNPROCESSED, "shell_complete": complete, "nargs": told["nargs"]}
    if told["argument"]:
        return click.Argument([told["name"]], required=False, **common)
    first, *others = told["opts"]
    both = "/".join([first, *told["secondary"][:1]])
    if told["flag"] or told["count"]:
        return click.Option(
            [told["name"], both, *others], is_flag=told["flag"] or None, count=told["count"], hidden=told["hidden"],
            multiple=told["multiple"] and told["flag"], help=told["help"],
        )  # fmt: skip
    if told["flag_value"] is not None:
        common["flag_value"] = told["flag_value"]
    return click.Option(
        [told["name"], *told["opts"]], is_flag=False, multiple=told["multiple"], hidden=told["hidden"], help=told["help"],
        **common,
    )  # fmt: skip


def _beginning(
    context: click.Context,
    parameter: click.Parameter,
    incomplete: str,
    values: Sequence[CompletionItem],
    *,
    listed: bool,
) -> list[CompletionItem]:
    """The values that are meant by what was typed."""
    if any(each.type == completion.DEVICES for each in values):
        return completion.devices(context, parameter, incomplete)
    if any(each.type != "plain" for each in values):  # files and folders, which the shell finds
        return [CompletionItem(incomplete, type=each.type) for each in values]
    if listed:
        return completion.beginning(incomplete, {each.value: each.help or "" for each in values})
    return [each for each in values if each.value.startswith(incomplete)]
