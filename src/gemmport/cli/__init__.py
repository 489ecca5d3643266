"""The command line. Exit status: 0 all well; 1 a result failed verification; 2 bad usage or configuration; 3 a known backend
that is not usable here, no such device, or a device that refused; 130 interrupted; 143 terminated. What is written to a closed
standard output goes nowhere, and changes no exit status.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import NoReturn

import click

from gemmport import __version__
from gemmport.cli import streams, termination
from gemmport.cli.cache import cache
from gemmport.cli.calls import calls
from gemmport.cli.configs import configs
from gemmport.cli.devices import devices
from gemmport.cli.doctor import doctor
from gemmport.cli.explain import explain_command
from gemmport.cli.fuzz import fuzz
from gemmport.cli.inspect import inspect_command
from gemmport.cli.kernels import kernels
from gemmport.cli.ladder import ladder
from gemmport.cli.matrix import matrix
from gemmport.cli.profile import profile
from gemmport.cli.regret import regret
from gemmport.cli.run import run
from gemmport.core.errors import (
    BackendUnavailableError,
    CompileError,
    DeviceMemoryError,
    DeviceNotFoundError,
    GemmportError,
    LaunchError,
    LibraryUnavailableError,
    ProfileError,
    ToolUnavailableError,
)

EXIT_USAGE = 2
EXIT_UNAVAILABLE = 3
EXIT_INTERNAL = 70  # EX_SOFTWARE of sysexits.h

_UNAVAILABLE = (
    BackendUnavailableError, DeviceNotFoundError, CompileError, LaunchError, DeviceMemoryError, ToolUnavailableError,
    LibraryUnavailableError, ProfileError,
)  # fmt: skip


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="gemmport", message="%(prog)s %(version)s")
@click.option("-v", "--verbose", count=True, help="Log what was chosen and why; twice for more.")
def cli(verbose: int) -> None:
    """One matrix product on every device that CUDA or OpenCL reaches."""
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(streams.Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


for command in (
    run, explain_command, calls, ladder, inspect_command, profile, devices, kernels, configs, doctor, cache, fuzz, matrix,
    regret,
):  # fmt: skip
    cli.add_command(command)


def main() -> NoReturn:
    """The entry point: runs a command and turns every error into a message and an exit status."""
    streams.prepare()
    termination.end_on_sigterm()
    sys.exit(_run_command())


def _run_command() -> int:
    try:
        status = cli.main(standalone_mode=False, prog_name="gemmport")
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return EXIT_USAGE
    except click.ClickException as error:
        told = io.StringIO()
        error.show(told)
        streams.echo(told.getvalue().rstrip("\n"), err=True)
        return EXIT_USAGE
    except GemmportError as error:
        streams.echo(f"gemmport: {error}", err=True)
        return EXIT_UNAVAILABLE if isinstance(error, _UNAVAILABLE) else EXIT_USAGE
    except (KeyboardInterrupt, click.Abort) as interrupt:
        click.echo("gemmport: interrupted", err=True)
        return termination.exit_status(interrupt)
    except (BrokenPipeError, SystemExit):  # the reader of our output left, as `head` does; click says so by leaving too
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        streams.echo(f"gemmport: cannot write: {error}", err=True)
        return EXIT_USAGE
    except Exception as error:  # a user is not shown a traceback; -vv logs it
        logging.getLogger(__name__).debug("internal error", exc_info=True)
        streams.echo(
            f"gemmport: internal error: {type(error).__name__}: {error}; report this, with what gemmport -vv says",
            err=True,
        )
        return EXIT_INTERNAL
    return status if isinstance(status, int) else 0
