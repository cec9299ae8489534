"""Progress and tables on the terminal; everything but the result goes to stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table


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


def moe_table(result: Any) -> Table:
    """The main job's result: each protocol of each round, what it moved, how long it took."""
    table = Table(title=f"{result.ranks} ranks, {result.tokens} tokens, {result.messages} messages; {result.routing}")
    names = ("round", "protocol", "mtu-in GB", "mtu-out GB", "dma GB", "vector G", "instructions", "seconds", "GB/s")
    for name in names:
        table.add_column(name, justify="left" if name == "protocol" else "right")
    for number, protocols in enumerate(result.rounds):
        for name, stats in protocols.items():
            moved = stats["bytes_by_pipe"]
            copied = moved["mtu-in"] + moved["mtu-out"] + 2 * moved["dma"]
            table.add_row(
                str(number + 1), name, *(f"{moved[k] / 1e9:.2f}" for k in ("mtu-in", "mtu-out", "dma")),
                f"{stats['vector_elements'] / 1e9:.2f}",
                f"{sum(stats['instructions'].values()):,}", f"{stats['seconds']:.2f}",
                f"{copied / 1e9 / max(stats['seconds'], 1e-9):.1f}",
            )  # fmt: skip
    return table


def sendrecv_table(result: Any) -> Table:
    """A send/recv job's result: each round, what it moved, how long it took."""
    table = Table(title=f"{result.pairs} pair{'s' if result.pairs > 1 else ''} of dies, {result.nbytes:,} bytes each")
    for name in ("round", "mtu-in MB", "mtu-out MB", "dma MB", "instructions", "seconds", "payload GB/s"):
        table.add_column(name, justify="right")
    for number, stats in enumerate(result.rounds):
        moved = stats["bytes_by_pipe"]
        rate = result.pairs * result.nbytes / 1e9 / max(stats["seconds"], 1e-9)
        table.add_row(
            str(number + 1), *(f"{moved[k] / 1e6:.2f}" for k in ("mtu-in", "mtu-out", "dma")),
            f"{sum(stats['instructions'].values()):,}", f"{stats['seconds']:.3f}", f"{rate:.2f}",
        )  # fmt: skip
    return table


def print_result(table: Table, closing: str) -> None:
    """Print a table and a line to stdout."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    console.print(closing, highlight=False)
