"""Progress and tables on the terminal; everything but the result goes to stderr."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.table import Column

from xccl_emu.cli import ending
from xccl_emu.stage import Stage

HEARD_S = 30.0


def _progress(quiet: bool, *columns: ProgressColumn) -> Progress:
    """Progress on stderr, if that is a terminal."""
    console = Console(stderr=True, quiet=quiet, emoji=False)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def spinner(name: str, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Says that something is under way; gives a function that says how far it is."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), Elapsed(), TextColumn("{task.fields[note]}"))
    with _progress(quiet, *columns) as progress:
        task = progress.add_task(name, total=None, note="")
        yield lambda note: progress.update(task, note=note)


@contextmanager
def counting(name: str, total: int, quiet: bool = False) -> Iterator[Callable[[int, str], None]]:
    """A bar; gives a function for how many of them are done, and what to say of them."""
    with _progress(quiet, TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Elapsed()) as progress:
        task = progress.add_task(name, total=total)
        yield lambda done, text: progress.update(task, completed=done, description=text)


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


def right(*names: str) -> list[Column]:
    """Columns of a table that hold numbers."""
    return [Column(name, justify="right") for name in names]


def file_of(protocol: str) -> str:
    """Return what must be said again of a protocol that no name is known of."""
    return f" {protocol}" if ":" in protocol else ""
