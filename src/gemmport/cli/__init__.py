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
from gemmport.cli.groups import Root, log_to_standard_error, verbose
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
from gemmport.runtime import last_words

EXIT_USAGE = 2
EXIT_UNAVAILABLE = 3
EXIT_INTERNAL = 70  # EX_SOFTWARE of sysexits.h

_UNAVAILABLE = (
    BackendUnavailableError, DeviceNotFoundError, CompileError, LaunchError, DeviceMemoryError, ToolUnavailableError,
    LibraryUnavailableError, ProfileError,
)  # fmt: skip


SECTIONS = {
    "Look around": {
        "doctor": "gemmport.cli.doctor:doctor",
        "devices": "gemmport.cli.devices:devices",
        "kernels": "gemmport.cli.kernels:kernels",
        "configs": "gemmport.cli.configs:configs",
    },
    "Compute and time": {
        "run": "gemmport.cli.run:run",
        "bench": "gemmport.cli.bench:bench",
        "calls": "gemmport.cli.calls:calls",
        "ladder": "gemmport.cli.ladder:ladder",
        "calibrate": "gemmport.cli.calibrate:calibrate_command",
    },
    "Understand": {
        "explain": "gemmport.cli.explain:explain_command",
        "inspect": "gemmport.cli.inspect:inspect_command",
        "profile": "gemmport.cli.profile:profile",
        "regret": "gemmport.cli.regret:regret",
    },
    "Prove": {
        "matrix": "gemmport.cli.matrix:matrix",
        "fuzz": "gemmport.cli.fuzz:fuzz",
    },
    "Tune": {
        "tune": "gemmport.cli.tune:tune",
    },
    "Keep": {
        "cache": "gemmport.cli.cache:cache",
    },
}
"""The commands by what they are for; a module is imported where its command is asked for."""

FIRST_STEPS = """\
Usage: gemmport COMMAND [OPTIONS]

One matrix product on every device that CUDA or OpenCL reaches.

  gemmport doctor            what works on this machine, and what does not
  gemmport run               a product on the best device: verified, timed
  gemmport run --device all --sizes 256:2048:256
                             on every device, of several sizes
  gemmport calls             what a call from Python costs
  gemmport kernels           the kernels and their parameters

gemmport --help lists all commands, and gemmport COMMAND --help its options.
"""


WHERE_A_DRIVER_ENDS_IT = (
    "gemmport: the process ended as it listed devices, for a driver or runtime aborted or crashed: gemmport doctor tries each "
    "apart, and names it"
)


@click.group(
    cls=Root, sections=SECTIONS, params=[verbose()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)  # fmt: skip
@click.version_option(__version__, prog_name="gemmport", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """One matrix product on every device that CUDA or OpenCL reaches."""
    log_to_standard_error(context)


def main() -> NoReturn:
    """The entry point: runs a command and turns every error into a message and an exit status."""
    streams.prepare()
    termination.end_on_signals()
    last_words.leave(WHERE_A_DRIVER_ENDS_IT)
    status = _run_command()
    termination.leave()
    sys.exit(status)


def _run_command() -> int:
    try:
        status = cli.main(standalone_mode=False, prog_name="gemmport")
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        if error.ctx is not None and error.ctx.parent is None:
            click.echo(FIRST_STEPS, err=True, nl=False)
        else:
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
