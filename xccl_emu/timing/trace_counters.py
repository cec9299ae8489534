"""What each link of the fabric carries over a timed run, as the counters of a trace.

The links are the model's: of a die its egress and its ingress, by class of path, and its own memory; of a node
what all its dies together send to and get from other nodes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.lang.requests import DMA, MTU_IN, OP_LOAD
from xccl_emu.timing.array import PS_PER_NS
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.fabric import OTHER_CPU, OTHER_NODE, SAME_DIE
from xccl_emu.timing.run import Timing

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
    """The counters of some dies, and of all nodes if the log is complete, up to ``end`` picoseconds."""
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
    reads = (engine == MTU_IN) | fetched | (records[:, tl.RECORD_OP] == OP_LOAD)
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
