"""Results of runs as tables for people, 80 columns wide."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

_CAPTION = "in, out: through mtu-in and mtu-out; vector: elements; GB/s: bytes that instructions copied"


def of_layers(result: Any) -> Table:
    """The main job's result: each protocol of each round, what it moved, how long it took; 80 columns wide."""
    title = f"{result.ranks} ranks, {_batch(result)}"
    if result.replicas:
        title += f"\n{result.replicas} replicas: {result.hottest_die_rows} rows on the hottest die"
        title += f", {result.hottest_die_rows_without_replicas} without"
    return _protocols(title, result.rounds)


def of_calls(result: Any) -> Table:
    """The same of calls between attention dies and expert dies."""
    return _protocols(f"{result.dies} dies, {_batch(result)}", result.rounds)


def _batch(result: Any) -> str:
    return f"{result.tokens} tokens, {result.messages} messages; {result.routing}"


def _protocols(title: str, rounds: Sequence[dict[str, dict[str, Any]]]) -> Table:
    """A line for each protocol of each round."""
    table = Table(title=title, caption=_CAPTION)
    table.add_column("protocol")
    for name in ("in GB", "out GB", "dma GB", "vector G", "M instr", "seconds", "GB/s"):
        table.add_column(name, justify="right")
    for number, protocols in enumerate(rounds, start=1):
        suffix = f" {number}" if len(rounds) > 1 else ""
        for name, stats in protocols.items():
            table.add_row(name + suffix, *_moe_row(stats))
    return table


def _moe_row(stats: dict[str, Any]) -> list[str]:
    moved, seconds = stats["bytes_by_pipe"], stats["seconds"]
    copied = moved["mtu-in"] + moved["mtu-out"] + 2 * moved["dma"]
    billions = [moved["mtu-in"], moved["mtu-out"], moved["dma"], stats["vector_elements"]]
    rate = copied / 1e9 / max(seconds, 1e-9)
    millions = sum(stats["instructions"].values()) / 1e6
    return [*(f"{n / 1e9:.2f}" for n in billions), f"{millions:.2f}", f"{seconds:.2f}", f"{rate:.1f}"]


def of_transfers(result: Any) -> Table:
    """A send/recv job's result: each round, what it moved, how long it took."""
    title = f"{result.pairs} pair{'s' if result.pairs > 1 else ''} of dies, {result.nbytes:,} bytes each"
    table = Table(title=title, caption="in, out: through mtu-in and mtu-out")
    for name in ("round", "in MB", "out MB", "dma MB", "instructions", "seconds", "payload GB/s"):
        table.add_column(name, justify="right")
    for number, stats in enumerate(result.rounds):
        moved = stats["bytes_by_pipe"]
        rate = result.pairs * result.nbytes / 1e9 / max(stats["seconds"], 1e-9)
        table.add_row(
            str(number + 1), *(f"{moved[k] / 1e6:.2f}" for k in ("mtu-in", "mtu-out", "dma")),
            f"{sum(stats['instructions'].values()):,}", f"{stats['seconds']:.3f}", f"{rate:.2f}",
        )  # fmt: skip
    return table


def told(result: Any) -> str:
    """Seconds, memory, and how many elements were wrong."""
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in result.stages.items())
    total = f"{result.seconds:.1f} s in all ({stages}), {result.resident_gb:.1f} GB resident"
    return f"{total}\n#wrong {result.wrong}"
