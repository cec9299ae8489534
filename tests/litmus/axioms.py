"""An axiomatic model of the memory orders: which executions are allowed, judged whole and never run step by step.

It shares no code with `xccl_emu` nor with the explorer in `model.py`.  Memory starts at 0.  A write has two events: it
is *issued*, in the order of its thread, and it *lands* later, when everybody sees it.  A read, a quiet, an atomic is
one event.  An execution says for each address in which order its writes and atomics land, and for each read which
write it takes its value from; it is allowed if nothing has to come before itself, where this comes first:

- what a thread issues, before what it issues later; the issue of a write, before its landing;
- what lands, before the quiet of its thread behind it; before an atomic of its thread that has to wait for it;
- of two writes of a thread, the earlier landing, if `Rules.kept` says so (that is the whole of a memory order); of the
  landings at one address, the earlier in the order of the execution;
- a read of an own write in flight, before that write lands, and after the landings of own writes to that address
  issued between; a read of memory, after the landing of what it reads and of all own earlier writes there, and before
  the next landing there.

A request that signals is two writes: what it copies lands before its signal does, whatever it asks for.

A failed compare-and-swap writes back what it read: nobody can tell.  Under `sc` issue and landing are one.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .suite import Litmus, Op

Outcome = frozenset[tuple[str, int]]
Event = tuple[int, str]
"""Number of an access, and ``issue`` or ``land``."""


@dataclass(frozen=True)
class Access:
    """A write, read, atomic or quiet: its place, how many fences its thread has before it, the order it asks for.

    ``signals``: it is the signal of the request that the access before it copies for.
    """

    number: int
    thread: int
    op: Op
    fences: int
    asks: str = ""
    signals: bool = False

    @property
    def lands(self) -> bool:
        """Does it change memory?"""
        return self.op[0] in ("w", "a", "u", "c")

    @property
    def flies(self) -> bool:
        """Does it land later than it is issued?"""
        return self.op[0] in ("w", "a")

    @property
    def last(self) -> Event:
        """The event at which it is done."""
        return (self.number, "land" if self.flies else "issue")


@dataclass(frozen=True)
class Rules:
    """A memory order: must the first of two accesses of a thread land before the second; do writes land at once?"""

    kept: Callable[[Access, Access], bool]
    at_once: bool = False


def rules(order: str, home: Mapping[str, int]) -> Rules:
    """The memory order of this name, with each address on the die that ``home`` says."""

    def kept(first: Access, then: Access) -> bool:
        one, other = first.op[1], then.op[1]  # type: ignore[misc]
        if then.signals and first.number == then.number - 1:
            return True
        if home[one] != home[other]:
            return False
        if first.fences < then.fences or order in ("sc", "fifo"):
            return True
        if "no-order" in (first.asks, then.asks):
            return False
        return then.asks == "strong" or (order == "relaxed" and one == other)

    return Rules(kept, order == "sc")


def allowed(
    program: Sequence[Sequence[Op]],
    of: Rules,
    asks: Sequence[Sequence[str]] = (),
    signals: Sequence[Sequence[bool]] = (),
) -> set[Outcome]:
    """The outcomes of all allowed executions, each a set of (name, value): "x" or "thread:register".

    ``asks`` has for each operation of each thread which order it asks for, ``signals`` whether it is the signal of the
    one before it.
    """
    none = [[False] * len(ops) for ops in program]
    accesses = list(_accesses(program, asks or [[""] * len(ops) for ops in program], signals or none))
    always = _always(accesses, of)
    found = set[Outcome]()
    for landings in _landings(accesses):
        ordered = always | {
            (a.last, b.last) for there in landings.values() for a, b in itertools.pairwise(there)
        }  # fmt: skip
        if not _acyclic(ordered):
            continue
        values, old = _values(landings)
        reads = [access for access in accesses if access.op[0] == "r"]
        choices = [list(_sources(read, accesses, landings, of)) for read in reads]
        for chosen in itertools.product(*choices):
            if _acyclic(ordered.union(*(edges for _, edges in chosen))):
                seen = {
                    f"{read.thread}:{read.op[2]}": values[source] if source >= 0 else 0  # type: ignore[misc]
                    for read, (source, _) in zip(reads, chosen, strict=True)
                }
                ends = {addr: values[there[-1].number] if there else 0 for addr, there in landings.items()}
                found.add(frozenset((ends | old | seen).items()))
    return found


def allowed_of(test: Litmus, order: str) -> set[Outcome]:
    """The allowed outcomes of a row of a table."""
    return allowed(test.program, rules(order, test.home), test.asks, test.signals)


def _accesses(
    program: Sequence[Sequence[Op]], asks: Sequence[Sequence[str]], signals: Sequence[Sequence[bool]]
) -> Iterator[Access]:
    numbers = itertools.count()
    for thread, ops in enumerate(program):
        fences = 0
        for op, order, signal in zip(ops, asks[thread], signals[thread], strict=True):
            if op[0] == "s":
                fences += 1
            else:
                yield Access(next(numbers), thread, op, fences, order, signal)


def _always(accesses: Sequence[Access], of: Rules) -> set[tuple[Event, Event]]:
    """What comes first in every execution."""
    edges = set[tuple[Event, Event]]()
    for access in accesses:
        if access.flies:
            edges.add(((access.number, "issue"), access.last))
    for first, then in itertools.combinations(accesses, 2):
        if first.thread != then.thread:
            continue
        edges.add((((first.number, "issue")), (then.number, "issue")))
        if of.at_once:
            edges.add((first.last, (then.number, "issue")))
        elif first.flies and (then.op[0] == "f" or (then.lands and of.kept(first, then))):
            edges.add((first.last, then.last))
    return edges


def _landings(accesses: Sequence[Access]) -> Iterator[dict[str, tuple[Access, ...]]]:
    """Every order in which the writes and atomics of each address may land."""
    names = sorted({access.op[1] for access in accesses if access.op[0] != "f"})  # type: ignore[misc]
    each = [[access for access in accesses if access.lands and access.op[1] == name] for name in names]  # type: ignore[misc]
    for orders in itertools.product(*(itertools.permutations(there) for there in each)):
        yield dict(zip(names, orders, strict=True))


def _values(landings: Mapping[str, Sequence[Access]]) -> tuple[dict[int, int], dict[str, int]]:
    """What stands in memory behind each landing, and what the atomics return."""
    values, old = dict[int, int](), dict[str, int]()
    for there in landings.values():
        now = 0
        for access in there:
            if access.op[0] == "u":
                old[f"{access.thread}:{access.op[2]}"] = now
                now += access.op[3]
            elif access.op[0] == "c":
                old[f"{access.thread}:{access.op[2]}"] = now
                now = access.op[4] if now == access.op[3] else now
            elif access.op[0] == "w":
                now = access.op[2]
            elif access.op[0] == "a":
                now += access.op[2]
            values[access.number] = now
    return values, old


def _sources(
    read: Access, accesses: Sequence[Access], landings: Mapping[str, Sequence[Access]], of: Rules
) -> Iterator[tuple[int, set[tuple[Event, Event]]]]:
    """Where a read may have its value from (-1: memory as it was), and what comes first then."""
    addr, event = read.op[1], (read.number, "issue")  # type: ignore[misc]
    own = [a for a in accesses if a.thread == read.thread and a.number < read.number and a.op[:2] == ("w", addr)]
    landed = {(write.last, event) for write in own}
    if not of.at_once:
        for k, write in enumerate(own):
            behind = {(later.last, event) for later in own[k + 1 :]}
            yield write.number, behind | {(event, write.last)}
    there = landings[addr]
    for k in range(-1, len(there)):
        edges = set(landed)
        if k >= 0:
            edges.add((there[k].last, event))
        if k + 1 < len(there):
            edges.add((event, there[k + 1].last))
        yield there[k].number if k >= 0 else -1, edges


def _acyclic(edges: set[tuple[Event, Event]]) -> bool:
    """Does nothing come before itself?"""
    after: dict[Event, list[Event]] = {}
    waits: dict[Event, int] = {}
    for one, other in edges:
        after.setdefault(one, []).append(other)
        waits[other] = waits.get(other, 0) + 1
        waits.setdefault(one, 0)
    free, done = [event for event, n in waits.items() if n == 0], 0
    while free:
        done += 1
        for event in after.get(free.pop(), ()):
            waits[event] -= 1
            if waits[event] == 0:
                free.append(event)
    return done == len(waits)
