"""Groups of commands: in sections, loaded where they are asked for, with the nearest names for one that is not known."""

from __future__ import annotations

import difflib
import importlib
import logging
import shutil
import sys
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from gemmport.cli import outline, streams

_COUNT = "gemmport.verbose"
"""Where a context keeps how often -v stands on the command line, before and behind the command's name."""


_CLICKS_LEAST = 52
"""Columns of a terminal below which click writes helps as if it had so many."""


class Group(click.Group):
    """Names the nearest commands where there is none of a name, as click does for options."""

    group_class = type

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if (
            args
            and not args[0].startswith("-")
            and not ctx.resilient_parsing
            and self.get_command(ctx, args[0]) is None
        ):
            near = difflib.get_close_matches(args[0], self.list_commands(ctx))
            meant = f" Did you mean {' or '.join(near)}?" if near else f" {ctx.command_path} --help lists them."
            ctx.fail(f"No such command {args[0]!r}.{meant}")
        return super().resolve_command(ctx, args)


class Root(Group):
    """The command's own group.

    Args:
        sections: heading → name of a command → where it is, "MODULE:NAME".
    """

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        self._sections = sections
        self._places = {name: place for section in sections.values() for name, place in section.items()}

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        columns = shutil.get_terminal_size().columns
        if columns < _CLICKS_LEAST:
            extra = {"terminal_width": columns - 2, **extra}
        return super().make_context(info_name, args, parent, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._places, *(name for name in super().list_commands(ctx) if name not in self._places)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._places and cmd_name not in self.commands:
            if ctx.resilient_parsing:  # a shell asks, and waits
                self.add_command(outline.command(cmd_name, lambda: self._loaded(cmd_name), ctx), cmd_name)
            else:
                self.add_command(self._loaded(cmd_name), cmd_name)
        return super().get_command(ctx, cmd_name)

    def _loaded(self, name: str) -> click.Command:
        module, _, attribute = self._places[name].partition(":")
        found: click.Command = getattr(importlib.import_module(module), attribute)
        return found

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        super().add_command(cmd, name)
        _take_verbose(cmd)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names alone: what commands say of themselves would have to be loaded."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name) for name in self.list_commands(ctx) if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        told = {name for section in self._sections.values() for name in section}
        sections = {
            **{heading: tuple(section) for heading, section in self._sections.items()},
            "Others": tuple(name for name in self.list_commands(ctx) if name not in told),
        }
        width = max(map(len, self.list_commands(ctx)))
        for heading, names in sections.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            limit = formatter.width - 6 - width
            rows = [(name.ljust(width), command.get_short_help_str(limit)) for name, command in commands if command]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def verbose() -> click.Option:
    """-v, which counts wherever it stands."""
    return click.Option(
        ["-v", "--verbose"], count=True, expose_value=False, callback=_log_more,
        help="Log what was chosen and why; twice for more.",
    )  # fmt: skip


def _take_verbose(command: click.Command) -> None:
    """Gives a command, and those in it, the option -v."""
    if not any("-v" in option.opts for option in command.params):
        command.params.append(verbose())
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        _take_verbose(inner)


def _log_more(context: click.Context, _: click.Parameter, count: int) -> None:
    if context.resilient_parsing:
        return
    context.meta[_COUNT] = context.meta.get(_COUNT, 0) + count
    if count:
        logging.getLogger().setLevel(level(context))


def level(context: click.Context) -> int:
    """Of what is logged."""
    count: int = context.meta.get(_COUNT, 0)
    return (logging.WARNING, logging.INFO, logging.DEBUG)[min(count, 2)]


def log_to_standard_error(context: click.Context) -> None:
    """From now on, what is as important as -v asks for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(streams.Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level(context), handlers=[handler])
