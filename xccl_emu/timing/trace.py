"""A timed run in the Chrome trace event format, which Perfetto opens: when each pipe of each core did what.

A process is a die, a thread one engine of a core.  A flow arrow leads from a write of one word to the poll that saw
it.  Counters tell how many bytes a second leave and reach a die.  Times are microseconds.
"""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.errors import ConfigError
from xccl_emu.lang.requests import DMA, MTU_IN, OP_FENCE, OP_POLL, OP_RETURN, OPERATIONS
from xccl_emu.timing.array import PS_PER_US
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.run import Timing

Event = dict[str, Any]

ENGINES = ("scalar", "mtu-in", "vector", "mtu-out", "dma")
COUNTER_BINS = 400
"""Samples of each counter over the run."""

_WAITS = (OP_POLL, OP_FENCE)


def trace(timing: Timing, dies: Collection[int] | None = None) -> dict[str, Any]:
    """The trace of some dies, or of all, ready for `json.dump`.

    Raises ConfigError for a run without a log, or a die that took no part in it.
    """
    if not len(timing.records):
        raise ConfigError("log=False: a trace needs a run with log=True")
    per_die = timing.cores_per_die
    on_die = timing.records[:, tl.RECORD_CORE] // per_die
    took_part = set(np.unique(on_die).tolist())
    chosen = took_part if dies is None else set(dies)
    if not chosen <= took_part:
        raise ConfigError(f"dies={sorted(chosen - took_part)}: did not take part; there are {sorted(took_part)}")
    kept = np.isin(on_die, sorted(chosen))
    events = [*_names(timing, kept), *_slices(timing, kept), *_flows(timing, kept), *_counters(timing, chosen)]
    return {"displayTimeUnit": "ns", "traceEvents": events}


def save_trace(timing: Timing, path: str | Path, dies: Collection[int] | None = None) -> None:
    """Write the trace to a file."""
    Path(path).write_text(json.dumps(trace(timing, dies)), "utf-8")


def _us(picoseconds: Any) -> float:
    return int(picoseconds) / PS_PER_US


def _place(timing: Timing, row: NDArray[np.int64]) -> Event:
    die, core = divmod(int(row[tl.RECORD_CORE]), timing.cores_per_die)
    return {"pid": die, "tid": core * len(ENGINES) + int(row[tl.RECORD_ENGINE]) + 1}


def _names(timing: Timing, kept: NDArray[np.bool_]) -> Iterator[Event]:
    used = np.unique(timing.records[kept][:, [tl.RECORD_CORE, tl.RECORD_ENGINE]], axis=0)
    for die in np.unique(used[:, 0] // timing.cores_per_die).tolist():
        yield {"ph": "M", "name": "process_name", "pid": die, "tid": 0, "args": {"name": f"die{die}"}}
    for core, engine in used.tolist():
        die, on_die = divmod(core, timing.cores_per_die)
        thread = {"pid": die, "tid": on_die * len(ENGINES) + engine + 1}
        yield {"ph": "M", "name": "thread_name", **thread, "args": {"name": f"core{on_die}.{ENGINES[engine]}"}}


def _slices(timing: Timing, kept: NDArray[np.bool_]) -> Iterator[Event]:
    """A slice for each action that took time; what a scalar unit waited for before it is a slice, too."""
    free: dict[int, int] = {}
    for number in np.flatnonzero(kept).tolist():
        row = timing.records[number]
        core, start, end = int(row[tl.RECORD_CORE]), int(row[tl.RECORD_START]), int(row[tl.RECORD_END])
        if row[tl.RECORD_ENGINE] == 0:
            before, free[core] = free.get(core, start), end
            if row[tl.RECORD_OP] in _WAITS and start > before:
                yield _slice(timing, row, "waits: ", before, start)
        if end > start:
            yield _slice(timing, row, "", start, end)


def _slice(timing: Timing, row: NDArray[np.int64], prefix: str, start: int, end: int) -> Event:
    operation = _operation(row)
    site = _site(timing, row)
    told = {"step": site.step, "sync": site.sync, "source": f"{site.file}:{site.line}"} if site else {}
    step = f"step {site.step}: " if site and site.step else ""
    args = {**told, "bytes": int(row[tl.RECORD_NBYTES])} | ({"die": int(row[tl.RECORD_PEER])} if row[6] else {})
    return {
        "ph": "X", "name": prefix + step + operation, "cat": operation, "ts": _us(start), "dur": _us(end - start),
        **_place(timing, row), "args": args,
    }  # fmt: skip


def _operation(row: NDArray[np.int64]) -> str:
    return "dma" if row[tl.RECORD_ENGINE] == DMA else OPERATIONS[int(row[tl.RECORD_OP])]


def _site(timing: Timing, row: NDArray[np.int64]) -> Any:
    kernel = timing.kernels[int(row[tl.RECORD_CORE])]
    returns = row[tl.RECORD_OP] == OP_RETURN and row[tl.RECORD_ENGINE] == 0
    return None if returns else kernel.sites[int(row[tl.RECORD_SITE])]


def _flows(timing: Timing, kept: NDArray[np.bool_]) -> Iterator[Event]:
    """From each write of a word to the polls that waited for it, where both ends are shown."""
    records = timing.records
    polls = np.flatnonzero(kept & (records[:, tl.RECORD_ENGINE] == 0) & (records[:, tl.RECORD_OP] == OP_POLL))
    for number in polls.tolist():
        cause = int(records[number, tl.RECORD_CAUSE])
        if cause < 0 or not kept[cause] or records[cause, tl.RECORD_CORE] == records[number, tl.RECORD_CORE]:
            continue
        common = {"cat": "flag", "name": "flag", "id": number}
        left = (int(records[cause, tl.RECORD_START]) + int(records[cause, tl.RECORD_END])) // 2
        seen = (int(records[number, tl.RECORD_START]) + int(records[number, tl.RECORD_END])) // 2
        yield {"ph": "s", "ts": _us(left), **common, **_place(timing, records[cause])}
        yield {"ph": "f", "bp": "e", "ts": _us(seen), **common, **_place(timing, records[number])}


def _counters(timing: Timing, dies: Collection[int]) -> Iterator[Event]:
    """Bytes a second that leave and reach each die over the fabric, in equal bins of the run."""
    records = timing.records
    moved = records[(records[:, tl.RECORD_NBYTES] > 0) & (records[:, tl.RECORD_ENGINE] > 0)]
    here = moved[:, tl.RECORD_CORE] // timing.cores_per_die
    remote = moved[here != moved[:, tl.RECORD_PEER]]
    here = remote[:, tl.RECORD_CORE] // timing.cores_per_die
    reads = remote[:, tl.RECORD_ENGINE] == MTU_IN
    source = np.where(reads, remote[:, tl.RECORD_PEER], here)
    target = np.where(reads, here, remote[:, tl.RECORD_PEER])
    end = int(records[:, tl.RECORD_END].max())
    width = max(1, -(-end // COUNTER_BINS))
    for die in sorted(dies):
        for name, at in (("egress GB/s", source), ("ingress GB/s", target)):
            mine = remote[at == die]
            rates = np.bincount(mine[:, tl.RECORD_END] // width, mine[:, tl.RECORD_NBYTES]) * 1000 / width
            for i, rate in enumerate(rates.tolist()):
                yield {"ph": "C", "name": name, "pid": die, "ts": _us(i * width), "args": {"value": round(rate, 2)}}
