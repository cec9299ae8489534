"""What dies ask of other dies, by role: counts of a run, side by side, as `xccl-emu compare` prints them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base import words as w
from xccl_emu.machine.stats import DieTraffic


@dataclass(frozen=True)
class TrafficLine(w.Printed):
    """What the dies of one role asked of other dies: [mean, most] of a die."""

    RECORD = "Traffic"
    protocol: w.Protocol
    part: Annotated[str, "the operator, or the role of the dies"]
    n_dies: Annotated[int, "dies of the role"]
    writes: Annotated[tuple[float, float], "by mtu-out and DMA"]
    flags: Annotated[tuple[float, float], "writes of at most a granule"]
    reads: Annotated[tuple[float, float], "by mtu-in, DMA and scalar loads"]
    write_bytes: Annotated[tuple[float, float], "bytes of writes and flags"]
    read_bytes: Annotated[tuple[float, float], "bytes of reads"]
    dies_written: Annotated[tuple[float, float], "different dies that are written to"]
    dies_read: Annotated[tuple[float, float], "different dies that are read"]
    managed_bytes: Annotated[int, "reserved on a die"]
    meta_bytes: Annotated[int, "reserved on a die"]


@dataclass(frozen=True)
class Comparison(w.Printed):
    """All results; `wrong` counts elements of rows and outputs that are not the oracle's."""

    configuration: Annotated[dict[str, int | str], w.CONFIGURATION]
    results: Annotated[list[TrafficLine], "a line for each role of dies in each protocol"]
    wrong: Annotated[int, w.WRONG]


def line_of(
    protocol: str, part: str, traffic: DieTraffic, dies: Sequence[int], reserved: tuple[int, int]
) -> TrafficLine:
    """Return what these dies asked for; `reserved`: bytes of each in the managed and in the metadata area."""

    def of(values: NDArray[np.int64]) -> tuple[float, int]:
        chosen = values[list(dies)]
        return float(chosen.mean()), int(chosen.max())

    measured = {name: of(values) for name, values in vars(traffic).items()}
    return TrafficLine(protocol, part, len(dies), **measured, managed_bytes=reserved[0], meta_bytes=reserved[1])


_COLUMNS = ("writes", "flags", "reads", "kB written", "kB read", "dies written", "dies read")


def as_markdown(comparison: Comparison) -> str:
    """A table; of what a die asks of others, the mean over the dies and, where another one differs, the most."""
    head, *lines = cells(comparison)
    rows = [head, ("---", "---", *["---:"] * (len(head) - 2)), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cells(comparison: Comparison) -> list[tuple[str, ...]]:
    """The names of the columns, then the rows."""
    head = ("protocol", "what", "dies", *_COLUMNS, "managed KiB", "metadata KiB")
    return [head, *(tuple(_cells(line)) for line in comparison.results)]


def _cells(line: TrafficLine) -> Iterator[str]:
    yield from (line.protocol, line.part, str(line.n_dies))
    for mean, most in (line.writes, line.flags, line.reads):
        yield _mean_and_most(mean, f"{mean:.1f}", most, f"{most}")
    for mean, most in (line.write_bytes, line.read_bytes):
        yield _mean_and_most(mean, f"{mean / 1e3:,.1f}", most, f"{most / 1e3:,.1f}")
    for mean, most in (line.dies_written, line.dies_read):
        yield _mean_and_most(mean, f"{mean:.1f}", most, f"{most}")
    yield from (f"{nbytes / (1 << 10):,.1f}" for nbytes in (line.managed_bytes, line.meta_bytes))


def _mean_and_most(mean: float, mean_text: str, most: float, most_text: str) -> str:
    return most_text if mean == most else f"{mean_text} ({most_text})"
