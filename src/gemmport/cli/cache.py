"""`gemmport cache`: where compiled programs are kept, what they take, and emptying it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from gemmport.cli import streams
from gemmport.runtime.cache import CacheUse, cache_folder, cache_use, clear_cache


@click.group(invoke_without_command=True)
@click.pass_context
def cache(context: click.Context) -> None:
    """Show or empty the cache of compiled programs.

    Programs are kept on disk, so that only the first process compiles them: in GEMMPORT_CACHE_DIR, or the user's cache folder.
    Nothing is lost by emptying it: what is missing is compiled again.
    """
    if context.invoked_subcommand is None:
        context.invoke(info)


@cache.command()
def info() -> None:
    """Show where the programs are, how many, and how large.

    `gemmport cache` alone does the same.
    """
    with _readable():
        streams.echo(f"{cache_folder()}: {_told(cache_use())}")


@cache.command()
def clear() -> None:
    """Remove all compiled programs, and say what was freed.

    Safe while other processes use the cache. Nothing in the folder but gemmport's own programs is removed.
    """
    with _readable():
        removed, refused = clear_cache()
    streams.echo(f"{cache_folder()}: removed {_told(removed)}")
    if refused:
        raise click.ClickException(f"{refused} could not be removed: see the warnings above")


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise click.ClickException(
            f"the cache cannot be read: {error}; set GEMMPORT_CACHE_DIR to another folder"
        ) from error


def _told(use: CacheUse) -> str:
    return f"{use.programs} program{'' if use.programs == 1 else 's'}, {use.nbytes / 1e6:.1f} MB"
