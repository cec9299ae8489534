"""Progress and tables on the terminal; everything but the result goes to stderr."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from xccl_emu.cli.console import stdout_console


class Stages:
    """Names each stage while it runs: with a spinner on a terminal, as plain lines elsewhere, not at all if quiet."""

    def __init__(self, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet)

    @contextmanager
    def __call__(self, name: str) -> Iterator[Callable[[int], None]]:
        """Gives a function to call with the number of actions so far."""
        if not self._console.is_terminal:
            yield lambda actions: None
            return
        texts = TextColumn("{task.description}"), TextColumn("{task.fields[note]}")
        columns = (SpinnerColumn(), texts[0], TimeElapsedColumn(), texts[1])
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(name, total=None, note="")

            def update(actions: int) -> None:
                progress.update(task, note=f"{actions / 1e6:.1f} M actions")

            yield update


def print_result(table: Table, closing: str) -> None:
    """Print a table and a line to stdout."""
    console = stdout_console()
    console.print(table)
    console.print(closing, highlight=False)
