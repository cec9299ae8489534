"""Who waits for whom, by the flag words of ranks that hang.

A rank sends its words of a call to all, to itself too, when it has cleaned the buffer of the next call, and is in the
next call only when it has the words of all.  So its own words are in the buffer of its last call, and ranks are at
most one call apart: the words of one that is ahead are in the other buffer of one that is not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base import words as w
from xccl_emu.base.sizes import some
from xccl_emu.doors.flags.layouts import BUFFERS, Dump, Signal

WAITS, RECEIVED, SENDS, SILENT, UNKNOWN = "waits", "received", "sends", "silent", "no dump"
_SHOWN_MOST = 4
"""Lines of a rank that waits for many."""


@dataclass(frozen=True)
class Awaited(w.Printed):
    """A rank whose words another one waits for."""

    rank: Annotated[int, "its number"]
    experts: Annotated[list[int], "the experts whose words are missing, by their numbers in the group"]
    what: Annotated[str, "what is awaited, in words"]
    because: Annotated[str, "what that rank does, in words"]


@dataclass(frozen=True)
class RankState(w.Printed):
    """What a rank does."""

    rank: Annotated[int, "its number"]
    does: Annotated[
        str,
        "`waits`; `received`, its last call is whole; `sends`, it has sent a part; `silent`, it has sent nothing since"
        " it cleaned its buffers; `no dump`",
    ]
    call: Annotated[str, "its last call: `dispatch`, `combine`, or empty"]
    buffer: Annotated[int | None, "the buffer of words of that call"]
    calls: Annotated[int | None, "calls that its host has begun"]
    waits_for: Annotated[list[Awaited], "ranks that it waits for"]


@dataclass(frozen=True)
class WrongWord(w.Printed):
    """A word that no protocol writes there."""

    rank: Annotated[int, "the rank that has it"]
    buffer: Annotated[int, "the buffer of words"]
    index: Annotated[int, "its place there"]
    value: Annotated[int, "what it is"]
    says: Annotated[str, "what is wrong with it"]


@dataclass(frozen=True)
class WaitGraph(w.Printed):
    """Who waits for whom."""

    layout: Annotated[str, "how the words lie"]
    n_ranks: Annotated[int, "ranks of the group"]
    n_experts: Annotated[int, "experts of all ranks"]
    ranks: Annotated[list[RankState], "what each rank does"]
    look_at: Annotated[list[int], "ranks that others wait for, and that wait for nobody"]
    cycles: Annotated[list[list[int]], "ranks that wait for each other"]
    wrong_words: Annotated[list[WrongWord], "words that no protocol writes there"]

    def is_at_rest(self) -> bool:
        """Does nobody wait or send, and is every word one that may be?"""
        return not self.wrong_words and not any(state.waits_for or state.does == SENDS for state in self.ranks)


class _Rank:
    """The words of a rank, read by the calls that wrote them."""

    def __init__(self, dump: Dump, number: int) -> None:
        own = dump.ranks[number]
        self.number, self.words = number, own["signals"]
        self.calls = int(own["calls"]) if "calls" in own else None
        mask = own.get("mask", np.zeros(dump.n_ranks, np.int32))
        self.left_out = {int(rank) for rank in np.flatnonzero(mask)}
        self.signals = [self._signal(dump, each) for each in self.words]
        self.grids = [dump.placed(each, signal) for each, signal in zip(self.words, self.signals, strict=True)]
        self.own = [int((grid[number] != 0).sum()) for grid in self.grids]
        newest = max(range(BUFFERS), key=lambda b: (self.own[b], -np.count_nonzero(self.grids[b])))
        self.buffer = newest if self.own[newest] else None
        self.missing: list[int] = []
        self.does, self.call = SILENT, ""
        if self.buffer is not None:
            self.call = self.signals[newest].call
            lack = (self.grids[newest] == 0).any(1) & (mask == 0)
            self.missing = np.flatnonzero(lack).tolist() if self.own[newest] == dump.local else []
            self.does = SENDS if self.own[newest] < dump.local else WAITS if self.missing else RECEIVED

    def _signal(self, dump: Dump, words: NDArray[Any]) -> Signal:
        """The kind of call that a buffer is of: by the rank's own words, or else by most."""

        def fits(signal: Signal) -> tuple[int, int]:
            right = signal.may_be(words)
            return int(dump.placed(right, signal)[self.number].sum()), int(right.sum())

        return max(dump.layout.signals, key=fits)


class _Waits:
    """The graph of a dump."""

    def __init__(self, dump: Dump) -> None:
        self.dump = dump
        self.ranks = {number: _Rank(dump, number) for number in sorted(dump.ranks)}

    def state(self, number: int) -> RankState:
        """Say what a rank does."""
        rank = self.ranks.get(number)
        if rank is None:
            return self._unseen(number)
        waits_for = []
        if rank.buffer is not None:
            grid, signal = rank.grids[rank.buffer], rank.signals[rank.buffer]
            waits_for = [
                self._awaited(number, source, signal, grid[source] == 0, self._because(rank, rank.buffer, source))
                for source in rank.missing
            ]
        return RankState(number, rank.does, rank.call, rank.buffer, rank.calls, waits_for)

    def _unseen(self, number: int) -> RankState:
        """Say what a rank without a dump does: it waits for those that have its words of a call which they lack."""
        call, at, waits_for = "", None, []
        for rank in self.ranks.values():
            for buffer in {*range(BUFFERS)} - {rank.buffer}:
                if rank.grids[buffer][number].any():
                    signal, at = rank.signals[buffer], buffer
                    call, lacks = signal.call, np.ones(self.dump.local, bool)
                    why = f"rank {rank.number} has words of rank {number} there, and has not sent"
                    waits_for.append(self._awaited(number, rank.number, signal, lacks, why))
        return RankState(number, UNKNOWN, call, at, None, waits_for)

    def _awaited(self, number: int, source: int, signal: Signal, lacks: NDArray[np.bool_], why: str) -> Awaited:
        first = (source if signal.at_source else number) * self.dump.local
        experts = (first + np.flatnonzero(lacks)).tolist()
        whose = "its" if signal.at_source else "own"
        what = f"the {signal.name}s of rank {source} for {whose} experts {_ranges(experts)}"
        return Awaited(source, experts, what, why)

    def _because(self, rank: _Rank, buffer: int, source: int) -> str:
        """Say what a rank does whose words are awaited in a buffer."""
        other, name = self.ranks.get(source), f"rank {source}"
        if other is None:
            return f"there is no dump of {name}: its process may have ended"
        if rank.number in other.left_out:
            return f"{name} has left rank {rank.number} out, and sends it nothing"
        came = int(np.count_nonzero(rank.grids[buffer][source]))
        part = f"{came} of {self.dump.local} have come, and " if came else ""
        if other.buffer is None:
            return f"{part}{name} has sent nothing since it cleaned its buffers{self._calls(rank, other)}"
        if other.does == SENDS and other.buffer == buffer:
            return f"{part}{name} is sending yet: it has {other.own[buffer]} of its own {self.dump.local} words"
        lost = "the words are lost or on their way"
        does = f"waits for {_named(other.missing) if other.missing else 'nobody'}"
        if other.buffer == buffer:
            return f"{part}{name} has sent them in its {other.call}, and {does}: {lost}"
        if rank.grids[1 - buffer][source].any():
            return f"{part}{name} has sent its next call already, {other.call}: {lost}"
        before = f"its {other.call} before that (buffer {other.buffer})"
        if other.does == RECEIVED:
            return f"{part}{name} has not sent: it has received {before}, and begun no other{self._calls(rank, other)}"
        return f"{part}{name} has not sent: {before} has not ended, it {does}"

    def _calls(self, rank: _Rank, other: _Rank) -> str:
        """Compare what the hosts of two ranks have begun, if both say it."""
        if rank.calls is None or other.calls is None:
            return ""
        if other.calls < rank.calls:
            return f"; its host has begun {some(other.calls, 'calls')}, and rank {rank.number}'s {rank.calls}"
        return f"; its host has begun {some(other.calls, 'calls')}, this one too: its device does not come to it"

    def wrong_words(self) -> Iterator[WrongWord]:
        """Find words that are none of their call, and what was not cleaned."""
        most = self.dump.common.get("num_max_dispatch_tokens_per_rank")
        index = np.arange(self.dump.common["num_experts"])
        for rank in self.ranks.values():
            for buffer, (words, signal) in enumerate(zip(rank.words, rank.signals, strict=True)):
                bad = (words != 0) & ~signal.may_be(words)
                if most is not None and signal.least < -most - 1:
                    bad |= words < -most - 1
                for i in np.flatnonzero(bad).tolist():
                    source = int(np.argwhere(self.dump.placed(index, signal) == i)[0][0])
                    yield WrongWord(rank.number, buffer, i, int(words[i]), self._wrong(int(words[i]), signal, source))
            if all(own == self.dump.local for own in rank.own):
                old = 1 - (rank.buffer or 0)
                i = int(self.dump.placed(index, rank.signals[old])[rank.number][0])
                says = "its own words are in both buffers: one was not cleaned"
                yield WrongWord(rank.number, old, i, int(rank.words[old][i]), says)

    def _wrong(self, value: int, signal: Signal, source: int) -> str:
        place = f"the place of a {signal.name} of rank {source} in {signal.call}"
        others = [each for each in self.dump.layout.signals if each is not signal and each.may_be(np.array(value))]
        if others:
            return f"{place} has a {others[0].name}, as {others[0].call} sends it: ranks are in different calls"
        most = self.dump.common.get("num_max_dispatch_tokens_per_rank")
        if signal.most == signal.least:
            return f"{place} must be {signal.most}: it was sent twice, or never cleaned, or is of something else"
        return f"{place} must be -n - 1 for n tokens{'' if most is None else f', at most {most}'}"


def wait_graph(name: str, dump: Dump) -> WaitGraph:
    """Return who waits for whom, of a dump in the layout of that name."""
    waits = _Waits(dump)
    states = [waits.state(number) for number in range(dump.n_ranks)]
    edges = {state.rank: [each.rank for each in state.waits_for] for state in states}
    awaited = {other for others in edges.values() for other in others}
    look_at = sorted(rank for rank in awaited if not edges[rank])
    wrong = [*waits.wrong_words()]
    return WaitGraph(name, dump.n_ranks, dump.common["num_experts"], states, look_at, _cycles(edges), wrong)


def _cycles(edges: dict[int, list[int]]) -> list[list[int]]:
    """Ranks that reach each other, each such set once."""
    reach = np.zeros((len(edges), len(edges)), bool)
    for rank, others in edges.items():
        reach[rank, others] = True
    for middle in range(len(edges)):
        reach |= np.outer(reach[:, middle], reach[middle])
    both = reach & reach.T
    return [list(each) for each in sorted({tuple(np.flatnonzero(row).tolist()) for row in both if row.any()})]


def _ranges(numbers: list[int]) -> str:
    """Return numbers as text such as ``0-3, 8``."""
    runs = ([n for _, n in run] for _, run in groupby(enumerate(numbers), lambda each: each[1] - each[0]))
    return ", ".join(f"{run[0]}-{run[-1]}" if run[1:] else str(run[0]) for run in runs)


def _named(ranks: list[int]) -> str:
    """Return ranks as text."""
    return f"rank{'s' * (len(ranks) > 1)} {_ranges(ranks)}"


def lines(graph: WaitGraph) -> Iterator[str]:
    """Yield a line for each rank and what it waits for, what is wrong with words, and where to look first."""
    for state in graph.ranks:
        unseen = ", without a dump," * (state.does == UNKNOWN)
        where = f"rank {state.rank}{unseen} {{}} in {state.call} (buffer {state.buffer})"
        for each in state.waits_for[:_SHOWN_MOST]:
            yield f"{where.format('waits')} for {each.what}: {each.because}"
        if state.waits_for[_SHOWN_MOST:]:
            yield f"{where.format('waits')} for {_named([each.rank for each in state.waits_for[_SHOWN_MOST:]])}, too"
        if state.does == SENDS:
            yield f"{where.format('is sending yet')}"
    for word in graph.wrong_words:
        yield f"rank {word.rank}, buffer {word.buffer}, word {word.index} is {word.value}: {word.says}"
    for cycle in graph.cycles:
        yield f"{_named(cycle)} wait for each other"
    for rank in graph.look_at:
        waiting = [each.rank for each in graph.ranks if rank in [other.rank for other in each.waits_for]]
        yield f"look at rank {rank} first: {_named(waiting)} wait{'s' * (len(waiting) == 1)} for it, and it for nobody"
    if graph.is_at_rest():
        yield "nobody waits: every rank with a dump has received its last call, or has made none"
