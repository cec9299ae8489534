"""The command's root: its subcommands, ``--version``, and how it ends when something goes wrong."""

import errno
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
import typer.core

from xccl_emu import __version__, _cache
from xccl_emu.cli import bench, campaign, check, compare, fit, listing, run, trace
from xccl_emu.cli.cases import ANY_SIZE
from xccl_emu.errors import ConfigError, XcclEmuError

EXIT_FAILED = 1
"""A run ended early, or what it checked does not hold."""

EXIT_USAGE = 2
"""The command line or the configuration that it describes is wrong; typer uses the same code."""

EXIT_INTERRUPTED = 130
"""Ctrl-C: 128 + SIGINT, as shells have it."""


_FAMILIES = {"kernels": "kernels", "machine": "the machine", "check": "the checker", "timing": "virtual time"}


class ReportingGroup(typer.core.TyperGroup):
    """A root group whose commands end with one message on stderr and an exit code instead of a traceback.

    Only errors that the emulator raises on purpose are reported so, and files and streams that cannot be written;
    anything else is a bug and keeps its traceback.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the command; raises `typer.Exit` with the code that fits a `XcclEmuError` or Ctrl-C."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except ConfigError as error:
            raise _ended(f"error: {error}", EXIT_USAGE) from error
        except XcclEmuError as error:
            raise _ended(f"error: {error}", EXIT_FAILED) from error
        except KeyboardInterrupt as error:
            raise _ended("interrupted", EXIT_INTERRUPTED) from error
        except OSError as error:
            if error.errno == errno.EPIPE:  # who read stdout has gone: the library ends quietly then
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter fails once more when it ends
            raise _ended(f"error: {error.filename or 'output'}: {error.strerror}", EXIT_FAILED) from error


def _ended(message: str, code: int) -> typer.Exit:
    typer.echo(f"xccl-emu: {message}", err=True)
    return typer.Exit(code)


app = typer.Typer(
    cls=ReportingGroup,
    no_args_is_help=True,
    add_completion=False,
    # Plain help: drawing it with rich would double the time of --help.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(run.app, name="run")
app.add_typer(bench.app, name="bench")
app.command("campaign")(campaign.campaign)
app.command("check", no_args_is_help=True, context_settings=ANY_SIZE)(check.check)
app.command("compare", context_settings=ANY_SIZE)(compare.compare)
app.command("fit")(fit.fit)
app.command("list")(listing.list_protocols)
app.command("trace", no_args_is_help=True, context_settings=ANY_SIZE)(trace.trace)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"xccl-emu {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Run, check and time the communication protocols of an emulated CloudMatrix384 supernode."""


def _tell_compiling() -> Callable[[str], None]:
    """Says once of each family of functions that it is being compiled, on stderr."""
    told: set[str] = set()

    def tell(family: str) -> None:
        if family not in told:
            told.add(family)
            typer.echo(f"xccl-emu: compiling, once: {_FAMILIES[family]}", err=True)

    return tell


def main() -> None:
    """Entry point of the command; leaves through `SystemExit`."""
    _cache.listeners.append(_tell_compiling())
    app(prog_name="xccl-emu")
