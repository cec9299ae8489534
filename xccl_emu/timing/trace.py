"""A timed run in the Chrome trace event format, which Perfetto opens: when each pipe of each core did what.

A process is a die, a thread one engine of a core (DMA has one for each copy that runs at the same time), or the kernels
that the core runs, with their steps (`spans`).  A slice of an engine is an action that took time, named by the step of
the paper; before it comes what the scalar unit waited for.  An arrow leads from a write to what saw it on another core:
a poll from the flag, a transfer from the last of its bytes to become visible.  Counters show what each link carries.
Times are microseconds, rounded to nanoseconds as Perfetto keeps them.

Arrows begin where each action saw a write.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.output import write_text
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.requests import DMA, MTU_IN
from xccl_emu.timing.array import PS_PER_NS, PS_PER_US
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.fabric import OTHER_CPU, OTHER_NODE, SAME_DIE
from xccl_emu.timing.run import Timing
from xccl_emu.timing.spans import launched, spans

NOTHING = -1
"""In place of the number of a record."""

_SEEING = ops.POLLS | (ops.FETCHES & ops.QUEUED)
_WORD = 8
_Numbers = NDArray[np.int64]


def seen_writes(timing: Timing, rows: _Numbers) -> _Numbers:
    """Return, for each of some records, the number of the write that it saw, of the same records, or `NOTHING`.

    That is, of the writes by other cores to what it reads which were visible when it began, the last to become so.
    Polls, transfers, DMA and the loads that are synchronizations see writes; other loads read what does not change.
    """
    saw = np.full(len(rows), NOTHING, np.int64)
    writes = _Writes(timing, rows)
    for i in np.flatnonzero(_sees(timing, rows)).tolist():
        saw[i] = writes.seen_by(timing.records[rows[i]])
    return saw


def _sees(timing: Timing, rows: _Numbers) -> NDArray[np.bool_]:
    records = timing.records[rows]
    asked = records[:, tl.RECORD_OP]
    sees: NDArray[np.bool_] = (_SEEING >> asked & 1 != 0) & (records[:, tl.RECORD_READ] >= 0)
    for i in np.flatnonzero(ops.LOADS >> asked & 1).tolist():
        site = timing.site(records[i])
        sees[i] = site is not None and bool(site.sync)
    return sees


class _Writes:
    """The writes among some records, by address."""

    def __init__(self, timing: Timing, rows: _Numbers) -> None:
        written = timing.records[rows, tl.RECORD_WRITTEN]
        numbers = rows[written >= 0]
        self._numbers = numbers[np.argsort(timing.records[numbers, tl.RECORD_WRITTEN], kind="stable")]
        found = timing.records[self._numbers]
        self._start, self._core = found[:, tl.RECORD_WRITTEN], found[:, tl.RECORD_CORE]
        sizes = np.maximum(found[:, tl.RECORD_NBYTES], _WORD)
        self._end, self._visible = self._start + sizes, found[:, tl.RECORD_VISIBLE]
        self._longest = int(sizes.max(initial=0))

    def seen_by(self, row: _Numbers) -> int:
        """Number of the write that a record saw, or `NOTHING`."""
        read = int(row[tl.RECORD_READ])
        end = read + max(int(row[tl.RECORD_NBYTES]), _WORD)
        first, last = np.searchsorted(self._start, [read - self._longest, end])
        near = slice(int(first), int(last))
        fits = (self._end[near] > read) & (self._core[near] != row[tl.RECORD_CORE])
        fits &= self._visible[near] <= row[tl.RECORD_START]
        if not fits.any():
            return NOTHING
        return int(self._numbers[near][np.where(fits, self._visible[near], -1).argmax()])


Event = dict[str, Any]

ENGINES = ("scalar", "mtu-in", "vector", "mtu-out", "dma")
EVENTS_MAX = 200_000
"""Slices and ends of arrows of a trace, unless it is said otherwise: a file of about 50 MB."""

_THREADS = 16
"""Numbers that a core has for its threads, from 1 on: Perfetto keeps thread 0 of process 0 for what is idle."""
_KERNELS = _THREADS - 1
"""The one that says which kernels it runs, which is shown first."""

Row = NDArray[np.int64]


@dataclass(frozen=True)
class Trace:
    """The events of a trace in the order of time, and what is not among them."""

    events: list[Event]
    slices: int
    arrows: int
    left_out: int
    """Actions of the chosen dies that begin when there are as many events as may be."""
    until_us: float
    """When the first of these begins; without any, when the run ends."""

    def to_json(self, about: Mapping[str, str]) -> dict[str, Any]:
        """The trace, ready for `json.dump`, with facts ``about`` the run."""
        data = {**about} | {"actions left out": str(self.left_out), "until": f"{self.until_us} us"}
        return {"displayTimeUnit": "ns", "otherData": data, "traceEvents": self.events}


def trace(timing: Timing, dies: Collection[int] | None = None, events_max: int = EVENTS_MAX) -> Trace:
    """The trace of some dies, or of all: the first this many events of it, and names and counters.

    Raises ConfigError for a run without a log, a die that took no part in it or is not in its log, or a number of
    events below 1.
    """
    chosen = _chosen(timing, dies)
    if events_max < 1:
        raise ConfigError("events_max", events_max, "must be at least 1")
    on_die = timing.records[:, tl.RECORD_CORE] // timing.cores_per_die
    kept = np.flatnonzero(np.isin(on_die, sorted(chosen)))
    return _Writer(timing, kept[np.argsort(timing.records[kept, tl.RECORD_START], kind="stable")]).write(
        sorted(chosen), events_max
    )


def save_trace(
    timing: Timing,
    path: str | Path,
    dies: Collection[int] | None = None,
    events_max: int = EVENTS_MAX,
    about: Mapping[str, str] | None = None,
) -> Trace:
    """Write a trace to a file, an event a line, with facts ``about`` the run, and return it; raises as `trace`."""
    made = trace(timing, dies, events_max)
    parts = made.to_json(about or {})
    lines = ",\n".join(json.dumps(event, ensure_ascii=False) for event in parts.pop("traceEvents"))
    head = json.dumps(parts, ensure_ascii=False, indent=1)[:-2]
    write_text(path, f'{head},\n "traceEvents": [\n{lines}\n]}}\n')
    return made


def _chosen(timing: Timing, dies: Collection[int] | None) -> set[int]:
    if not len(timing.records):
        raise ConfigError("log", False, "a trace needs a run with log=True")
    took_part = {core // timing.cores_per_die for core in timing.kernels}
    chosen = took_part if dies is None else set(dies)
    if not chosen or not chosen <= took_part:
        wrong = sorted(chosen - took_part)
        raise ConfigError("dies", wrong, f"did not take part; there are {sorted(took_part)}")
    unlogged = chosen - timing.logged
    if unlogged:
        raise ConfigError("dies", sorted(unlogged), f"are not in the log, which is of {sorted(timing.logged)}")
    return chosen


@dataclass
class _Writer:
    """Makes the events of some records, given in the order in which they begin."""

    timing: Timing
    rows: NDArray[np.int64]
    events: list[Event] = field(default_factory=list)
    arrows: int = 0
    free: dict[int, int] = field(default_factory=dict)
    """When the scalar unit of each core was done with what it did before."""
    lanes: dict[int, list[int]] = field(default_factory=dict)
    """When each of a core's threads for DMA is free again."""
    threads: dict[int, int] = field(default_factory=dict)
    """Thread of each record."""
    used: set[tuple[int, int]] = field(default_factory=set)

    def write(self, dies: list[int], events_max: int) -> Trace:
        saw = seen_writes(self.timing, self.rows)
        done = 0
        for number, write in zip(self.rows.tolist(), saw.tolist(), strict=True):
            if len(self.events) >= events_max:
                break
            done += 1
            self._add(number, write)
        left, records = len(self.rows) - done, self.timing.records
        end = records[self.rows[done], tl.RECORD_START] if left else round(self.timing.latency_us * PS_PER_US)
        slices = len(self.events) - 2 * self.arrows
        self._add_spans(self.rows[:done])
        self.events += counters(self.timing, dies, int(end))
        self.events.sort(key=lambda event: (event["ts"], -event.get("dur", 0.0)))
        return Trace([*self._names(), *self.events], slices, self.arrows, left, int(end) / PS_PER_US)

    def _add(self, number: int, write: int) -> None:
        """The slices of a record, and the arrow to it; where it took no time there is nothing to see."""
        row = self.timing.records[number]
        core, start, end = int(row[tl.RECORD_CORE]), int(row[tl.RECORD_START]), int(row[tl.RECORD_END])
        if row[tl.RECORD_ENGINE] == rq.SCALAR:
            before, self.free[core] = self.free.get(core, 0), end
            if start > before:
                self.events.append(self._slice(number, row, "waits: ", before, start))
        if end == start:
            return
        self.events.append(self._slice(number, row, "", start, end))
        if write != NOTHING:
            self.arrows += 1
            self.events += self._arrow(write, number)

    def _add_spans(self, rows: _Numbers) -> None:
        """Add what cores run: slices of launches, with their steps within."""
        for span in spans(self.timing, rows):
            die, core = divmod(span.core, self.timing.cores_per_die)
            first, last = _ns(span.begin), _ns(span.end)
            place = {"pid": die, "tid": core * _THREADS + _KERNELS}
            self.used.add((die, place["tid"]))
            times = {"ts": first / 1000, "dur": (last - first) / 1000}
            self.events.append({"ph": "X", "name": span.name, "cat": span.kind, **times, **place, "args": {}})

    def _slice(self, number: int, row: Row, prefix: str, start: int, end: int) -> Event:
        first, last = _ns(start), _ns(end)
        return {
            "ph": "X", "name": prefix + name_of(self.timing, row), "cat": rq.OPERATIONS[int(row[tl.RECORD_OP])],
            "ts": first / 1000, "dur": (last - first) / 1000, **self._place(number),
            "args": details_of(self.timing, row),
        }  # fmt: skip

    def _arrow(self, write: int, reader: int) -> list[Event]:
        flag = self.timing.records[reader, tl.RECORD_ENGINE] == rq.SCALAR
        name = "flag" if flag else "data"
        common = {"cat": name, "name": name, "id": reader}
        return [
            {"ph": "s", "ts": self._middle(write), **common, **self._place(write)},
            {"ph": "f", "bp": "e", "ts": self._middle(reader), **common, **self._place(reader)},
        ]

    def _middle(self, number: int) -> float:
        """A time within the slice of a record, and in no other slice of its thread."""
        row = self.timing.records[number]
        return (_ns(int(row[tl.RECORD_START])) + _ns(int(row[tl.RECORD_END]))) // 2 / 1000

    def _place(self, number: int) -> Event:
        die, core = divmod(int(self.timing.records[number, tl.RECORD_CORE]), self.timing.cores_per_die)
        if number not in self.threads:
            self.threads[number] = core * _THREADS + self._thread(self.timing.records[number])
            self.used.add((die, self.threads[number]))
        return {"pid": die, "tid": self.threads[number]}

    def _thread(self, row: Row) -> int:
        """Return the thread of an engine; for DMA the first that is free, as descriptors run at the same time."""
        engine = int(row[tl.RECORD_ENGINE])
        if engine != rq.DMA:
            return engine + 1
        lanes = self.lanes.setdefault(int(row[tl.RECORD_CORE]), [])
        lane = next((i for i, free in enumerate(lanes) if free <= row[tl.RECORD_START]), len(lanes))
        lanes[lane : lane + 1] = [int(row[tl.RECORD_END])]
        return rq.DMA + 1 + lane

    def _names(self) -> Iterator[Event]:
        fabric, spec = self.timing.fabric, self.timing.spec
        for die in sorted({die for die, _ in self.used}):
            node = int(fabric.nodes_of(np.array([die]), spec.n_dies)[0])
            chip = f"chip {die // fabric.dies_per_chip}, " if die < spec.n_dies else ""
            name = f"{spec.home(die, ' ')} ({chip}node {node})"
            yield {"ph": "M", "name": "process_name", "pid": die, "tid": 0, "args": {"name": name}}
            yield {"ph": "M", "name": "process_sort_index", "pid": die, "tid": 0, "args": {"sort_index": die}}
        for die, thread in sorted(self.used):
            place = {"pid": die, "tid": thread}
            order = thread - _KERNELS if thread % _THREADS == _KERNELS else thread
            yield {"ph": "M", "name": "thread_name", **place, "args": {"name": _thread_name(thread)}}
            yield {"ph": "M", "name": "thread_sort_index", **place, "args": {"sort_index": order}}


def _thread_name(thread: int) -> str:
    core, number = divmod(thread, _THREADS)
    if number == _KERNELS:
        return f"core {core} kernels"
    lane = f" {number - rq.DMA}" if number > rq.DMA + 1 else ""
    return f"core {core} {ENGINES[min(number - 1, rq.DMA)]}{lane}"


def name_of(timing: Timing, row: Row) -> str:
    """Return what a record is called, by the step of the paper and the synchronization: ``step 3: issue put, tail``."""
    site = timing.site(row)
    issued = "issue " if row[tl.RECORD_ENGINE] == rq.SCALAR and ops.QUEUED >> int(row[tl.RECORD_OP]) & 1 else ""
    step = f"step {site.step}: " if site and site.step else ""
    return step + issued + rq.OPERATIONS[int(row[tl.RECORD_OP])] + (f", {site.sync}" if site and site.sync else "")


def details_of(timing: Timing, row: Row) -> Event:
    """Return what a click on a record shows: its kernel and source, what it reads and writes, bytes and waits."""
    read, written, site = int(row[tl.RECORD_READ]), int(row[tl.RECORD_WRITTEN]), timing.site(row)
    details: Event = {"kernel": launched(timing, row) or timing.kernels[int(row[tl.RECORD_CORE])].name}
    if site:
        source = "/".join(Path(site.file).parts[-2:])
        details |= {"step": site.step, "sync": site.sync, "source": f"{source}:{site.line}"}
    places = {"reads": timing.labels.name(read), "writes": timing.labels.name(written)}
    details |= {what: name for what, name in places.items() if name}
    if row[tl.RECORD_NBYTES]:
        details |= {"bytes": int(row[tl.RECORD_NBYTES]), "die": int(row[tl.RECORD_PEER])}
    if row[tl.RECORD_VISIBLE] > row[tl.RECORD_END]:
        details["done_us"] = int(row[tl.RECORD_VISIBLE]) / PS_PER_US
    if row[tl.RECORD_QUEUED]:
        details["queued_us"] = int(row[tl.RECORD_QUEUED]) / PS_PER_US
    return details


def _ns(picoseconds: int) -> int:
    return (picoseconds + PS_PER_NS // 2) // PS_PER_NS


# ---- what each link carries, as counters

BINS = 400
"""Samples of each counter over the time that is shown."""

NODES_FROM = 1_000_000
"""Number of the process of node 0, above all dies' numbers."""

_Times = NDArray[np.int64]


@dataclass(frozen=True)
class _Moves:
    """All transfers of a run: from where to where, by what class of path, how many bytes, and from when to when."""

    source: _Times
    target: _Times
    path: _Times
    nbytes: _Times
    start: _Times
    end: _Times


def counters(timing: Timing, dies: Sequence[int], end: int) -> Iterator[dict[str, Any]]:
    """The counters of some dies, and of all nodes if the log is complete, up to ``end`` picoseconds.

    The links are the model's: of a die its egress and its ingress, by class of path, and its own memory; of a node what
    all its dies together send to and get from other nodes.
    """
    moves, width = _moves(timing), max(PS_PER_NS, -(-end // BINS))
    for die in dies:
        for name, chosen in _links(timing, moves, die).items():
            yield from _samples(moves, chosen, width, end, {"pid": die, "name": f"{name} GB/s"})
    if not timing.complete:
        return
    nodes = [timing.fabric.nodes_of(ends, timing.spec.n_dies) for ends in (moves.source, moves.target)]
    far = np.isin(moves.path, (OTHER_NODE, OTHER_CPU))
    for node in np.unique(np.concatenate(nodes)[np.concatenate([far, far])]).tolist():
        named = {"name": f"node {node}, uplinks"}
        yield {"ph": "M", "name": "process_name", "pid": NODES_FROM + node, "tid": 0, "ts": 0.0, "args": named}
        for name, of in zip(("to other nodes", "from other nodes"), nodes, strict=True):
            where = {"pid": NODES_FROM + node, "name": f"{name} GB/s"}
            yield from _samples(moves, far & (of == node), width, end, where)


def _moves(timing: Timing) -> _Moves:
    records = timing.records
    records = records[(records[:, tl.RECORD_NBYTES] > 0) & (records[:, tl.RECORD_END] > records[:, tl.RECORD_START])]
    engine, peer = records[:, tl.RECORD_ENGINE], records[:, tl.RECORD_PEER]
    here = records[:, tl.RECORD_CORE] // timing.cores_per_die
    fetched = (engine == DMA) & (records[:, tl.RECORD_READ] // timing.spec.die_bytes != here)
    reads = (engine == MTU_IN) | fetched | (ops.LOADS >> records[:, tl.RECORD_OP] & 1 != 0)
    source, target = np.where(reads, peer, here), np.where(reads, here, peer)
    path = timing.fabric.paths_of(source, target, timing.spec.n_dies)
    path += tl.CLASSES * timing.networks_of(np.where(reads, records[:, tl.RECORD_READ], records[:, tl.RECORD_WRITTEN]))
    start = records[:, tl.RECORD_START] + records[:, tl.RECORD_QUEUED]
    return _Moves(source, target, path, records[:, tl.RECORD_NBYTES], start, records[:, tl.RECORD_END])


def _links(timing: Timing, moves: _Moves, die: int) -> Mapping[str, NDArray[np.bool_]]:
    """The transfers on each link of a die, of those that carry something."""
    links = {"memory": (moves.path == SAME_DIE) & (moves.source == die)}
    for first, network in enumerate(timing.fabric.networks):
        for number, path in enumerate(network.paths):
            if number != SAME_DIE:
                chosen = moves.path == first * tl.CLASSES + number
                for way, ends in (("egress", moves.source), ("ingress", moves.target)):
                    name = f"{way}, {path.medium}"
                    links[name] = links.get(name, False) | chosen & (ends == die)
    return {name: chosen for name, chosen in links.items() if chosen.any()}


def _samples(
    moves: _Moves, chosen: NDArray[np.bool_], width: int, end: int, event: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The mean rate in each bin, where it differs from that before; a transfer's bytes are spread over its time."""
    edges = np.arange(0, end + width, width)
    rates = np.diff(_moved_until(moves, chosen, edges)) * 1000 / width
    before = -1.0
    for at, rate in zip(edges.tolist(), [*np.round(rates, 2).tolist(), 0.0], strict=True):
        if rate != before:
            yield {"ph": "C", **event, "ts": at // PS_PER_NS / 1000, "args": {"value": rate}}
        before = rate


def _moved_until(moves: _Moves, chosen: NDArray[np.bool_], times: _Times) -> NDArray[np.float64]:
    """Bytes that these transfers have moved until each of some times: from its begin on a transfer moves them evenly,
    and from its end on as many are taken off again."""
    rates = moves.nbytes[chosen] / np.maximum(moves.end[chosen] - moves.start[chosen], 1)
    total = np.zeros(len(times))
    for sign, since in ((1, moves.start[chosen]), (-1, moves.end[chosen])):
        order = np.argsort(since, kind="stable")
        begun = np.searchsorted(since[order], times, side="right")
        rate = np.concatenate([[0.0], np.cumsum(rates[order])])
        at = np.concatenate([[0.0], np.cumsum(rates[order] * since[order])])
        total += sign * (rate[begun] * times - at[begun])
    return total
