"""What commands show with: the console and tables for results, on stdout; progress, on stderr.

rich is imported when something is shown, so that a command can import this module before it is known to run.
"""

import errno
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from xccl_emu.base.stage import Stage
from xccl_emu.cli import ending

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.table import Column, Table

HEARD_S = 30.0
_LEAST_WIDTH = 72
"""A terminal that is narrower breaks the lines of a table; narrower columns would hold a letter a line."""


def stdout_console() -> "Console":
    """A console for stdout, as wide as the terminal or 120 columns, but never too narrow for a table."""
    from rich.console import Console

    class Stdout(Console):
        def on_broken_pipe(self) -> None:
            """Raise the error again: the caller knows the exit code for it."""
            self.quiet = True
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    terminal = sys.stdout.isatty() or "FORCE_COLOR" in os.environ
    width = max(shutil.get_terminal_size().columns, _LEAST_WIDTH) if terminal else 120
    return Stdout(width=width, emoji=False)  # mailbox.py:Mailbox: is a name


def table(*columns: "Column | str", **named: Any) -> "Table":
    """A table for that console."""
    from rich.table import Table

    return Table(*columns, **named)


def right(*names: str) -> "list[Column]":
    """Columns of a table that hold numbers."""
    from rich.table import Column

    return [Column(name, justify="right") for name in names]


def escape(text: str) -> str:
    """Return a text as a table takes it that has brackets of its own."""
    from rich import markup

    return markup.escape(text)


def file_of(protocol: str) -> str:
    """Return what must be said again of a protocol that no name is known of."""
    return f" {protocol}" if ":" in protocol else ""


# ---- how far it is


def _progress(quiet: bool, *columns: "ProgressColumn") -> "Progress":
    """Progress on stderr, if that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True, quiet=quiet, emoji=False)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def spinner(name: str, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Says that something is under way; gives a function that says how far it is."""
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}"), TimeElapsedColumn(), TextColumn("{task.fields[note]}")
    with _progress(quiet, SpinnerColumn(), *text) as progress:
        task = progress.add_task(name, total=None, note="")
        yield lambda note: progress.update(task, note=note)


@contextmanager
def counting(
    name: str, total: int, quiet: bool = False, every_s: float = HEARD_S
) -> Iterator[Callable[[int, str], None]]:
    """A bar; gives a function for how many of them are done, and what to say of them.

    Where stderr is no terminal it is a line, at most one in ``every_s``.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    bar = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with _progress(quiet, *bar) as progress:
        task, said_s = progress.add_task(name, total=total), time.monotonic()

        def count(done: int, text: str) -> None:
            progress.update(task, completed=done, description=text)
            nonlocal said_s
            if not quiet and not sys.stderr.isatty() and time.monotonic() - said_s >= every_s:
                said_s = time.monotonic()
                ending.say(f"{name}: {done} of {total} done{f', {text}' if text != name else ''}")

        yield count


@contextmanager
def heard(name: str, quiet: bool = False) -> Iterator[None]:
    """Says on stderr every half minute, where that is no terminal, that something goes on."""
    over, started = threading.Event(), time.monotonic()

    def say() -> None:
        while not over.wait(HEARD_S):
            ending.say(f"{name}: {time.monotonic() - started:.0f} s")

    if not quiet and not sys.stderr.isatty():
        threading.Thread(target=say, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def stages(quiet: bool) -> Stage:
    """Names each stage while it runs, with a spinner on a terminal; not at all if quiet."""

    @contextmanager
    def stage(name: str) -> Iterator[Callable[[int], None]]:
        with spinner(name, quiet) as note, heard(name, quiet):
            yield lambda actions: note(f"{actions / 1e6:.1f} M actions")

    return stage
