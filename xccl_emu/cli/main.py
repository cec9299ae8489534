"""The command's root: its subcommands, ``--version``, and how it ends when something goes wrong."""

import errno
import functools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from xccl_emu import __version__
from xccl_emu.base.errors import (
    ConfigError,
    KernelError,
    OutputError,
    ReplayError,
    RunError,
    UnfinishedError,
    XcclEmuError,
)
from xccl_emu.cli import ending, plain_first
from xccl_emu.cli.app import App
from xccl_emu.jit import cache

SECTIONS = {
    "Write and run": ("list", "new", "scaffold", "run"),
    "Prove": ("check", "show", "explain", "fuzz", "corpus", "litmus", "campaign"),
    "Measure": ("bench", "trace", "compare", "sizes", "plan", "fit"),
}
"""The commands by what they are for, as help lists them.  Each is the ``app`` of the module of its name, here or in the
``cli`` of another package below `xccl_emu`: nothing here names one of these."""
ORDER = tuple(name for section in SECTIONS.values() for name in section)
_FAMILIES = {"kernels": "kernels", "machine": "the machine", "check": "the checker", "timing": "virtual time"}


class _Commands(Mapping[str, Any]):
    """The commands by name; the module of one is imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        if name not in ORDER:
            raise KeyError(name)
        command = typer.main.get_command(import_module(_module_of(name)).app)
        command.name = name
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(ORDER)

    def __len__(self) -> int:
        return len(ORDER)


def _module_of(name: str) -> str:
    """Return the module of a command."""
    here = Path(__file__).parent
    if not (here / f"{name}.py").is_file():
        here = next(here.parent.glob(f"*/cli/{name}.py")).parent
    return ".".join(("xccl_emu", *here.relative_to(Path(__file__).parents[1]).parts, name))


class ReportingGroup(typer.core.TyperGroup):
    """A root group whose commands end with one message on stderr and an exit code instead of a traceback.

    Only errors that the emulator raises on purpose are reported so, files and streams that cannot be written, and a
    lack of memory; anything else is a bug and keeps its traceback.
    """

    def __init__(self, **named: Any) -> None:
        super().__init__(**{**named, "commands": named.get("commands") or _Commands()})

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands to help, section by section."""
        commands = {name: command for name in ORDER if (command := self.get_command(ctx, name))}
        room = formatter.width - 6 - max(map(len, commands))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, commands[name].get_short_help_str(room)) for name in names])

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **named: Any) -> Any:
        """Read the command line, which may print help; raises `typer.Exit` as `invoke` does."""
        with _reported():
            _check_digits(args)
            return super().make_context(info_name, args, *more, **named)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; raises `typer.Exit` with the code that fits an error or Ctrl-C."""
        with _reported():
            return super().invoke(ctx)


def _check_digits(words: Sequence[str]) -> None:
    """ConfigError for a number in digits of another script, which Python would take."""
    for word in words:
        value = word.partition("=")[2] if word.startswith("-") else word
        if value.isdecimal() and not value.isascii():
            raise ConfigError(f"{word}: a number must be written with the digits 0 to 9")


@contextmanager
def _reported() -> Iterator[None]:
    try:
        try:
            yield
        except Exception as error:
            if not hasattr(error, "exit_code"):
                ending.raise_heard()
            raise
        finally:
            sys.stdout.flush()
    except XcclEmuError as error:
        raise _ended(f"error: {error}{_place_of(error)}", _code_of(error)) from error
    except SystemExit as error:
        if error.code == ending.TERMINATED:
            raise
        what = f"the protocol ended the process (SystemExit: {error.code}); it has to return, or to raise an error"
        raise _ended(f"error: {what}", ending.USAGE) from error
    except KeyboardInterrupt as error:
        raise _ended("interrupted", ending.INTERRUPTED) from error
    except OSError as error:
        if ending.is_lack_of_memory(error):
            raise _ended(ending.out_of_memory(error), ending.UNFINISHED) from error
        if error.errno is None:  # of a library, and about no file
            raise
        ending.drop_output()
        if error.errno == errno.EPIPE:
            raise typer.Exit(ending.READER_GONE) from error
        raise _ended(f"error: {error.filename or 'output'}: {error.strerror}", ending.NOT_WRITTEN) from error
    except EOFError as error:  # the library takes it for a user who has left
        raise RuntimeError(f"unexpected end of a file: {error}") from error
    except Exception as error:
        if hasattr(error, "format_message") or not ending.is_lack_of_memory(error):  # help, too, speaks of memory
            raise
        raise _ended(ending.out_of_memory(error), ending.UNFINISHED) from error


def _place_of(error: XcclEmuError) -> str:
    """Return the line of a user's file whose call was refused, in brackets; empty if no such file is loaded."""
    folder = sys.modules.get("xccl_emu.protocol.folder")
    place = folder.place_of(error) if folder and isinstance(error, ConfigError) else ""
    return f" ({os.path.relpath(place)})" if place else ""


def _code_of(error: XcclEmuError) -> int:
    if isinstance(error, RunError):
        return ending.WRONG
    if isinstance(error, (ConfigError, KernelError, ReplayError)):
        return ending.USAGE
    if isinstance(error, UnfinishedError):
        return ending.UNFINISHED
    return ending.NOT_WRITTEN if isinstance(error, OutputError) else ending.WRONG


def _ended(message: str, code: int) -> typer.Exit:
    ending.say(message)
    return typer.Exit(code)


app = App(
    cls=ReportingGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=ending.EXIT_CODES,
)


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
    """Run, check and time the communication protocols of an emulated CloudMatrix384 supernode.

    \b
      xccl-emu list            the protocols
      xccl-emu list sendrecv   what can be chosen of one
      xccl-emu run sendrecv    run it, and compare every bit
      xccl-emu check sendrecv  prove it: every schedule, on a small pod
      xccl-emu trace sendrecv  see what each pipe did, and when
    """


@functools.cache
def _say_compiling(family: str) -> None:
    """Say once of each family of functions that it is being compiled, on stderr."""
    typer.echo(f"xccl-emu: compiling, once: {_FAMILIES[family]}", err=True)


def command() -> None:
    """The command, which says on stderr what it compiles; leaves through `SystemExit`."""
    cache.listeners += [_say_compiling, plain_first.listen]
    app(prog_name="xccl-emu")
