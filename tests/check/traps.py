"""Small programs that fool a search which reduces too much, or make it cry wolf, with the verdicts they deserve."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tests.machine.support import small
from xccl_emu.check import verdict as kinds
from xccl_emu.check.trial import Expected, Trial
from xccl_emu.guards.campaign.programs import Small, address_of

from .kinds import EVENTS, FAILED, LEFTOVER, LIVELOCK, LOCKED, RACE, TORN, UNWRITTEN, WRONG

RACES = RACE | TORN
ANY = RACES | LOCKED | UNWRITTEN | WRONG
OK, UNFINISHED = frozenset({kinds.VERIFIED}), frozenset({kinds.UNFINISHED})
WEAK = {"sc": OK, "fifo": RACES, "relaxed": RACES}
"""Right if writes are visible at once only."""
LATE = {"sc": OK, "fifo": OK, "relaxed": RACES}
"""Right unless writes to one die overtake each other."""
TWICE = {"sc": OK, "fifo": OK, "relaxed": OK}
"""Right unless writes of one core to one address overtake each other; what is wrong then is to be added."""


@dataclass(frozen=True)
class Trap:
    """Programs of cores, most often a die each, and what may be said of them, by order if that matters."""

    name: str
    programs: str
    """Divided by ``|``."""
    allowed: frozenset[str] | dict[str, frozenset[str]]
    expected: dict[int, int] = field(default_factory=dict)
    """Words (as `Small.memory` names them) that must hold a value at the end."""
    owners: tuple[int, ...] = ()
    """Cores that own them."""
    dies: int = 0
    cores: int = 1
    """Cores of each die."""
    fresh: bool = False
    memory: dict[int, int] = field(default_factory=dict)
    rare: bool = False
    """May a few hundred schedules miss what is wrong?"""
    atomic_bytes: int = 32
    scalar_cache: int = 0
    asks: dict[str, str] = field(default_factory=dict)
    configuration: ClassVar[Mapping[str, int | str]] = {}

    def small(self) -> Small:
        """The configuration."""
        sizes = {"cores_per_die": self.cores, "dies": self.dies, "atomic_bytes": self.atomic_bytes}
        more = {"fresh": self.fresh, "scalar_cache": self.scalar_cache, "asks": self.asks}
        return small(self.programs, memory=self.memory, **sizes, **more)

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """Launched, on a fresh pod."""
        trial = self.small().trial(order, None)
        expected = tuple(
            Expected(f"word {word}", address_of(trial.pod, word), value.to_bytes(8, "little"), self.owners)
            for word, value in self.expected.items()
        )
        return Trial(trial.pod, expected, trial.filled)

    def allows(self, order: str) -> frozenset[str]:
        """What may be said under an order."""
        if not isinstance(self.allowed, dict):
            return self.allowed
        return self.allowed[order if order in self.allowed else "relaxed"]


HINT = "store 1.7 1; store 1.7 2"
"""A word that is 1 for a moment: a branch on meeting that is rare."""
COUNT = "store 1.7 1; quiet; store 1.7 2; quiet; store 1.7 3; quiet; store 1.7 4"
FIELD = "ub_store 3 0; put 1.0 1 5; put 1.0 2 3; out m1.0 0 0; quiet; put 1.0 3 7"
PULL = "in m1.0 0 0; set 1 0 0; wait 1 0 0"
LOOK = "load_named 1.7; skip_unless 0 1 2"
LOOKS = "load_named 1.7; skip_unless 0 1 4; load_named 1.7; skip_unless 0 3 2"
"""What follows is: the rare instruction, a jump over the other one, and that."""
SEQLOCK = "store 0.0 1; quiet; store 0.4 5; quiet; store 0.0 2; quiet"

OUT = "ub_store 3 0; out m1.0 0 2"
IN = "in m1.0 0 2; quiet; ub_load 0 0"
BACK = "in m1.0 1 0; set 1 0 1; wait 1 0 1"
TICKET = "atomic_taken 0.0 1; skip_unless 1 1 1; ge 0.4 1; load 1.0; store 1.0 3; quiet; add 0.4 1"
TOLD = "store m1.0 5; store 0.0 1"
"""Data to die 1, and a flag for the neighbour."""
STRONG_HALF = {"store2": "strong"}
ONE_HALF = "store 1.4 1; eq 1.4; store 1.0 | line 1.4 1; load 1.0; store 1.4"
"""Stores of 4 bytes ask to become visible behind what is before them."""
READ_BACK = "ge 0.4 1; in 1.0 1 0; set 1 0 1; wait 1 0 1; ub_load 0 1"
RARE = "load_named 1.7; skip_unless 0 1 7; load_named 1.7; skip_unless 0 2 5; load_named 1.7; skip_unless 0 3 2"
CARRY = "in 0.4 0 0; set 1 3 0; wait 1 3 0"
PADDED = "ub_store 3 0; out m1.0 0 1; quiet; put 1.4 1"
"""A word of data, and one of padding that nobody has written, to die 1."""
BY_DMA = "dma_data m0.0 1.0 1; wait 4 0 1; quiet; put 1.4 1"
FRESH: dict[str, Any] = {"dies": 2, "fresh": True}
TRAPS = (
    # flags
    Trap("a pulse is missed", "store 1.4 1; store 1.4 0 | eq 1.4 1", LOCKED),
    Trap("a pulse is missed by unequal", "store 1.4 1; store 1.4 0 | ne 1.4 0", LOCKED),
    Trap("a pulse is missed by at least", "store 1.4 1; store 1.4 0 | ge 1.4 1", LOCKED),
    Trap("a counter runs past", "store 1.4 1; store 1.4 2 | eq 1.4 1", LOCKED),
    Trap("a counter may run past at least", "store 1.4 1; store 1.4 2 | ge 1.4 1", OK),
    Trap("a flag handed back", "store 1.4 1; eq 1.4 0 | ne 1.4 0; store 1.4 0", OK),
    Trap("two write a flag", "store 1.4 1 | store 1.4 2 | eq 1.4 1", LOCKED),
    Trap("two add to a counter", "add 1.4 1 | add 1.4 1 | eq 1.4 2", OK),
    Trap("a flag that one core writes and another adds to", "put 1.4 1 | ge 1.4 2 | add 1.4 1", LOCKED),
    Trap("a counter is missed", "add 1.4 1 | add 1.4 1 | eq 1.4 1", LOCKED),
    Trap("a flag by both ways", "store 1.0 1 | put 1.0 1 2; store 1.0 2 | eq 1.0 1", LOCKED),
    Trap("nobody sets a flag", "ge 0.4 1 | skip_unless 0 0", LOCKED),
    Trap("a loop of loads ends", "store 1.0 1 | spin 1.0 1", OK),
    Trap("a loop of loads need not end", "store 1.0 1; store 1.0 2 | spin 1.0 1", LIVELOCK),
    # data and a flag
    Trap("data behind a quiet", "store 1.0 5; quiet; store 1.4 1 | ge 1.4 1; load 1.0", OK),
    Trap("data without a quiet", "store 1.0 5; store 1.4 1 | ge 1.4 1; load 1.0", LATE),
    Trap("data behind an atomic", "store 1.0 5; atomic 1.4 1 | ge 1.4 1; load 1.0", LATE),
    Trap("data pulled early", "store 1.0 5; quiet; store 1.4 1 | in 1.0 0 0; ge 1.4 1; quiet; ub_load 0 0", RACES),
    Trap("data and flag in one granule", "ub_store 3 0; ub_store 1 3; out 1.0 0 2 | ge 1.3 1; load 1.0", OK),
    Trap("flag in the last of two granules", "ub_store 3 0; ub_store 1 7; out 1.0 0 4 | ge 1.7 1; load 1.0", LATE),
    Trap("fields beside a polled word", "put 1.0 1 1 | ge 1.0 1; load 1.1", OK),
    Trap("fields that are overwritten", "put 1.0 1 1; put 1.0 2 2 | ge 1.0 1; load 1.1", RACES),
    Trap("a flag that is also data", "store 1.0 1; store 1.4 1 | ge 1.4 1; load 1.0 | ge 1.0 1", LATE),
    Trap("an index that was polled", "store 1.1 3; quiet; store 1.4 1 | ge_taken 1.4 1; load_at 1.0", OK),
    Trap("acknowledged after the load",
         "store 1.0 5; quiet; store 1.4 1; ge 0.4 1; store 1.0 6 | ge 1.4 1; load 1.0; store 0.4 1", OK),
    Trap("acknowledged before the load",
         "store 1.0 5; quiet; store 1.4 1; ge 0.4 1; store 1.0 6 | ge 1.4 1; store 0.4 1; load 1.0", RACES),
    Trap("acknowledged by DMA before the load",
         "dma 0.0 1.4 0; load 1.0; wait 4 0 0 | ge 1.4 1; store 1.0 6", RACES, memory={0: 1}),
    Trap("acknowledged by DMA after the load",
         "load 1.0; dma 0.0 1.4 0; wait 4 0 0 | ge 1.4 1; store 1.0 6", RACES, memory={0: 1}),
    Trap("acknowledged when pulled",
         "store 1.0 5; quiet; store 1.4 1; ge 0.4 1; store 1.0 6 | "
         "ge 1.4 1; in 1.0 0 0; set 1 0 1; wait 1 0 1; put 0.4 1; ub_load 0 0", OK),
    Trap("acknowledged while it is pulled",
         "store 1.0 5; quiet; store 1.4 1; ge 0.4 1; store 1.0 6 | "
         "ge 1.4 1; in 1.0 0 0; put 0.4 1; set 1 0 1; wait 1 0 1", RACES),
    Trap("a lock of tickets", f"{TICKET} | {TICKET}", OK),
    Trap("a lock that nobody respects",
         "atomic_taken 0.0 1; load 1.0; store 1.0 3; quiet; add 0.4 1 | "
         "atomic_taken 0.0 1; load 1.0; store 1.0 3; quiet; add 0.4 1", RACES),
    # fields that are made visible at once
    Trap("a field that is acknowledged", "put 1.0 1 1; ge 0.4 1; put 1.0 2 2 | "
         "eq 1.0 1; load 1.1; put 0.4 1; eq 1.0 2; load 1.1", OK),
    Trap("a field acknowledged before its data is read", "put 1.0 1 1; ge 0.4 1; put 1.0 2 2 | "
         "eq 1.0 1; put 0.4 1; load 1.1", RACES),
    Trap("a field that runs past", "put 1.0 1 1; put 1.0 2 2 | eq 1.0 1; load 1.1", RACES | LOCKED),
    Trap("a field that runs past, and is read when all is done",
         "eq 0.0 1; load 0.1; put 1.4 1; eq 0.0 2; ge 0.4 1; load 0.1 | "
         "put 0.0 1 1; ge 1.4 1; put 0.0 2 2; quiet; put 0.0 3 3; quiet; put 0.4 1", LOCKED),
    Trap("a field that may run past its reader",
         "put 1.0 1 1; put 1.0 2 2 | eq 1.0 2; load 1.1", TWICE | {"unordered": RACES}),
    Trap("a field read before it is polled", "put 1.0 1 1 | load 1.1; ge 1.0 1; load 1.2", RACES),
    Trap("a field pulled while it is polled", "put 1.0 1 1 | in 1.0 0 2; ge 1.0 1; quiet; ub_load 0 1", RACES),
    Trap("a field pulled behind the poll", "put 1.0 1 1 | ge 1.0 1; in 1.0 0 2; quiet; ub_load 0 1", OK),
    Trap("a field read by its writer", "put 1.0 1 1; load 1.1 | eq 1.0 1", RACES),
    Trap("a field read by a third", "put 1.0 1 1 | eq 1.0 1; put 2.4 1 | ge 2.4 1; load 1.1", OK),
    Trap("a field read by a third that is told by nobody", "put 1.0 1 1 | eq 1.0 1 | load 1.1", RACES),
    Trap("two fields side by side, one of them polled",
         "put 1.0 1 1; put 1.4 1 1 | eq 1.0 1; load 1.1; load 1.5", RACES),
    Trap("two fields side by side, both polled",
         "put 1.0 1 1; put 1.4 1 1 | eq 1.0 1; eq 1.4 1; in 1.0 0 4; quiet", OK),
    Trap("a field and data without a quiet", f"{OUT}; put 1.0 1 1 | eq 1.0 1; {IN}; load 1.1", LATE),
    Trap("a field and data behind a fence", f"{OUT}; fence; put 1.0 1 1 | eq 1.0 1; {IN}; load 1.1", OK),
    Trap("an own field", "put 0.0 1 1; ge 0.0 1; load 0.1; put 0.0 2 2; ge 0.0 2; load 0.1 | quiet", OK),
    Trap("an own field that may be older", "put 0.0 1 1; put 0.0 2 2; ge 0.0 1; load 0.1 | quiet", RACES),
    Trap("data pulled early, the flag set before it is known",
         f"ge 0.4 1; {OUT} | in m1.0 0 2; put 0.4 1; quiet", RACES, memory={40: 1}),
    Trap("data pulled, then told", f"ge 0.4 1; {OUT} | in m1.0 0 2; quiet; put 0.4 1", OK, memory={40: 1}),
    # fences
    Trap("data behind a fence", "store 1.0 5; fence; store 1.4 1 | ge 1.4 1; load 1.0", OK),
    Trap("data behind a fence, by mtu-out", f"{OUT}; fence; put 1.4 1 | ge 1.4 1; {IN}", OK),
    Trap("data behind a fence, the flag by a store", f"{OUT}; fence; store 1.4 1 | ge 1.4 1; {IN}", OK),
    Trap("data behind a fence, the flag by an atomic", f"{OUT}; fence; atomic 1.4 1 | ge 1.4 1; {IN}", OK),
    Trap("data behind a fence, the flag elsewhere", f"{OUT}; fence; put 2.4 1 | ge 2.4 1; {IN}", WEAK, dies=3),
    Trap("data behind a fence, the atomic elsewhere",
         "store 1.0 5; fence; atomic 2.4 1 | ge 2.4 1; load 1.0", WEAK, dies=3),
    Trap("data behind a fence, a second flag elsewhere",
         f"{OUT}; fence; put 1.4 1; put 2.4 1 | ge 2.4 1; load m1.0", WEAK, dies=3),
    Trap("data behind a fence, passed on", f"{OUT}; fence; put 1.4 1 | ge 1.4 1; put 2.4 1 | ge 2.4 1; load m1.0", OK),
    Trap("a fence before the data", f"fence; {OUT}; put 1.4 1 | ge 1.4 1; {IN}", LATE),
    Trap("a fence behind the flag", f"{OUT}; put 1.4 1; fence | ge 1.4 1; {IN}", LATE),
    Trap("a fence of the reader", f"{OUT}; put 1.4 1 | ge 1.4 1; fence; {IN}", LATE),
    Trap("a fence of a neighbour",
         "store 1.0 5; store 0.4 1 | ge 0.4 1; fence; store 1.4 1 | ge 1.4 1; load 1.0", LATE, cores=2),
    Trap("a fence before a barrier", "store 0.0 5; fence; arrive; await | arrive; await; load 0.0", WEAK, cores=2),
    Trap("a fence does not cover DMA",
         "dma_data 0.0 1.0 0; fence; put 1.4 1; wait 4 0 0 | ge 1.4 1; load m1.0", RACES, memory={0: 7}),
    Trap("own data behind a fence and an answer",
         f"{OUT}; fence; put 1.4 1; ge 0.4 1; {BACK} | ge 1.4 1; put 0.4 1", OK),
    Trap("own data behind an answer", f"{OUT}; put 1.4 1; ge 0.4 1; {BACK} | ge 1.4 1; put 0.4 1", LATE),
    Trap("own data elsewhere behind a fence and an answer",
         f"{OUT}; fence; put 2.4 1; ge 0.4 1; {BACK} | | ge 2.4 1; put 0.4 1", WEAK),
    Trap("own data behind an answer to the flag before",
         f"put 1.4 1; fence; {OUT}; ge 0.4 1; {BACK} | ge 1.4 1; put 0.4 1", RACES | UNWRITTEN),
    Trap("own data behind a fence and a neighbour who has the flag",
         f"{OUT}; fence; put 1.4 1; arrive; await; {BACK} | ge 1.4 1; arrive; await", OK, cores=2, dies=2),
    Trap("own data after a neighbour who has the flag",
         f"{OUT}; put 1.4 1; arrive; await; {BACK} | ge 1.4 1; arrive; await", LATE, cores=2, dies=2),
    Trap("own data after a neighbour who has the flag later",
         f"{OUT}; fence; put 1.4 1; arrive; await; {BACK} | arrive; await; ge 1.4 1",
         RACES | UNWRITTEN, cores=2, dies=2),
    Trap("own data after a neighbour who has the flag before",
         f"put 1.4 1; fence; {OUT}; arrive; await; {BACK} | ge 1.4 1; arrive; await",
         RACES | UNWRITTEN, cores=2, dies=2),
    Trap("own data behind a fence and an own flag", f"{OUT}; fence; put 1.4 1; eq 1.4 1; {BACK} | ", OK),
    Trap("own data behind an own flag", f"{OUT}; put 1.4 1; eq 1.4 1; {BACK} | ", LATE),
    Trap("own data behind a fence and an atomic", f"{OUT}; fence; atomic 1.4 1; {BACK} | ", OK),
    Trap("own data behind an atomic", f"{OUT}; set 3 0 0; wait 3 0 0; atomic 1.4 1; {BACK} | ", LATE),
    Trap("own counts behind fences",
         "add 1.0 1; fence; add 1.4 1 | add 1.0 1; fence; add 1.4 1; ge 1.4 2; load 1.0", OK, cores=2, dies=2),
    Trap("an own load before a fence", "store 1.0 1; load 1.0; fence; put 1.4 1 | ge 1.4 1; load 1.0; fence", OK),
    Trap("a slot filled again behind a fence",
         f"{OUT}; fence; put 1.4 1; ge 0.4 1; ub_store 4 0; out m1.0 0 2; fence; put 1.4 2 | "
         f"ge 1.4 1; {IN}; put 0.4 1; ge 1.4 2; load m1.0", OK),
    Trap("a slot filled again behind a fence alone",
         f"{OUT}; fence; put 1.4 1; out m1.0 8 2; fence; put 1.4 2 | ge 1.4 1; {IN}", RACES),
    Trap("two writes over each other with a fence between",
         "ub_store 3 0; out m1.0 0 0; fence; store m1.0 4; fence; put 1.4 1 | ge 1.4 1; load m1.0", OK, {32 | 8: 4}),
    Trap("two flags with a fence between",
         "store 1.0 1; fence; store 1.4 1 | ge 1.4 1; load_named 1.0; fail_unless 3 1 | ge 1.0 1", OK),
    Trap("two flags with a fence between, elsewhere",
         "store 1.0 1; fence; store 2.4 1 | ge 2.4 1; load_named 1.0; fail_unless 3 1 | ge 1.0 1",
         {"sc": OK, "fifo": FAILED, "relaxed": FAILED}),
    Trap("an own flag behind a fence",
         "put 1.0 1; fence; put 1.4 1; eq 1.4 1; store 2.0 1 | ge 2.0 1; load_named 1.0; fail_unless 3 1 | "
         "ge 1.0 1; load_named 1.4", OK),
    Trap("a data buffer filled again behind a store behind a fence",
         "ub_store 3 0; out m1.0 0 2; fence; store 0.4 1; ub_store 4 0; quiet; store 1.4 1 | ge 1.4 1; load m1.0", OK),
    Trap("own data read back behind a store behind a fence", "ub_store 3 0; out 0.0; fence; store 0.4 1; in 0.0 1 | ",
         WEAK),
    Trap("own data read back behind a flag behind a fence", "add 0.1 1; fence; store 0.0 1; in 0.1 | ge 0.0 1", WEAK),
    Trap("a store and a transfer to the same bytes", "out m0.0; store m0.0 | ", RACES),
    Trap("two stores of which a fence divides one from a transfer", "out m0.0 0 1; store m0.1; fence; store m0.1 | ",
         RACES),
    Trap("a store behind a fence that mtu-out cannot come to", "wait 0 3 0; fence; store 1.0 1; set 0 3 0 | ", LOCKED),
    # three cores
    Trap("passed on", "store 0.0 5; quiet; store 1.0 1 | ge 1.0 1; store 2.0 1 | ge 2.0 1; load 0.0", OK),
    Trap("passed on without a quiet", "store 0.0 5; store 1.0 1 | ge 1.0 1; store 2.0 1 | ge 2.0 1; load 0.0", WEAK),
    Trap("more is passed on",
         "store 0.0 1; quiet; store 1.0 1 | ge 1.0 1; store 1.4 3; quiet; store 2.0 1 | ge 2.0 1; load 0.0; load 1.4",
         OK),
    Trap("more is passed on without a quiet",
         "store 0.0 1; quiet; store 1.0 1 | ge 1.0 1; store 1.4 3; store 2.0 1 | ge 2.0 1; load 0.0; load 1.4", WEAK),
    Trap("what was polled is passed on", "store 0.0 1 | ge 0.0 1; store 1.0 1 | ge 1.0 1; load_named 0.0", OK),
    # groups
    Trap("a barrier behind a quiet", "store 0.0 5; quiet; arrive; await | arrive; await; load 0.0", OK, cores=2),
    Trap("a barrier without a quiet", "store 0.0 5; arrive; await | arrive; await; load 0.0", WEAK, cores=2),
    Trap("the quiet of another core",
         "store 1.0 5; arrive; await | arrive; await; quiet; store 1.4 1 | ge 1.4 1; load 1.0", LATE, cores=2),
    Trap("the quiets of both cores",
         "store 1.0 5; quiet; arrive; await | arrive; await; quiet; store 1.4 1 | ge 1.4 1; load 1.0", OK, cores=2),
    Trap("a barrier behind a load", "load 0.0; arrive; await | arrive; await; store 0.0 5", OK, cores=2),
    Trap("a barrier after what was pulled",
         "in m0.0 8; set 1; wait 1; arrive; await; quiet | arrive; await; store m0.0 5", OK, memory={0o40: 1}, cores=2),
    Trap("a barrier while it is pulled",
         "in 0.0 0 0; arrive; await; quiet | arrive; await; store 0.0 5", RACES, cores=2),
    # inside of a core
    Trap("a half that is used again",
         "ub_store 3 0; out 1.0 0 0; ub_store 4 0; quiet; store 1.4 1 | ge 1.4 1; load 1.0", RACES),
    Trap("a half that is used again when it has left",
         "ub_store 3 0; out 1.0 0 0; set 3 0 0; wait 3 0 0; ub_store 4 0; quiet; store 1.4 1 | ge 1.4 1; load 1.0", OK),
    Trap("a half that is used again when another core says so",
         "ub_store 1 0; out 1.0 0 0; put 1.4 1; ge 0.4 1; ub_store 2 0; quiet | ge 1.4 1; put 0.4 1", OK),
    Trap("another core says so without being asked",
         "ub_store 1 0; out 1.0 0 0; put 1.4 1; ge 0.4 1; ub_store 2 0; quiet | put 0.4 1; ge 1.4 1", RACES),
    Trap("used before it is pulled", "in 0.0 0 0; ub_load 0 0", RACES),
    Trap("used when it is pulled", "in 0.0 0 0; set 1 0 0; wait 1 0 0; ub_load 0 0", OK),
    Trap("the event of another transfer",
         "in 0.0 0 0; set 1 0 0; in 0.4 1 0; set 1 0 1; wait 1 0 0; ub_load 0 1; wait 1 0 1", RACES),
    Trap("an event that nobody waits for", "in 0.0 0 0; set 1 0 0", LEFTOVER),
    Trap("read back behind a quiet", "ub_store 3 0; out 0.0 0 0; quiet; in 0.0 1 0; quiet; ub_load 0 1", OK),
    Trap("read back behind an event", "ub_store 3 0; out 0.0 0 0; set 3 1 0; wait 3 1 0; in 0.0 1 0; quiet", WEAK),
    Trap("read back when polled", "ub_store 3 0; out 0.0 0 0; eq 0.0 3; in 0.0 1 0; quiet; ub_load 0 1", OK),
    Trap("read back when a later one is polled",
         "ub_store 3 0; out 0.0 0 0; out 0.4 0 0; eq 0.4 3; in 0.0 1 0; quiet; ub_load 0 1", LATE),
    Trap("read back behind an own store over all of it",
         "out 1.0; set 3; wait 3; store 1.0; load 1.0 | eq 1.0", TWICE | {"unordered": RACES}),
    Trap("read back behind an own store over a part of it",
         "put 1.0; set 3; wait 3; store 1.0; load 1.0 | eq 1.0", WEAK),
    Trap("read back behind an own store over all of it that nothing orders",
         "out 1.0; store 1.0; load 1.0 | eq 1.0", RACES),
    Trap("polled until it is old", "ub_store 3 0; out 0.0 0 0; eq 0.0 0", LOCKED),
    Trap("DMA that was waited for", "dma 0.0 1.0 0; wait 4 0 0; store 1.4 1 | ge 1.4 1; load 1.0", OK),
    Trap("DMA that was not waited for", "dma 0.0 1.0 0; store 1.4 1; wait 4 0 0 | ge 1.4 1; load 1.0", RACES),
    Trap("two copies by DMA with one event", "dma 0.0 1.0 1; dma 0.0 1.0 1; wait 4 0 1; wait 4 0 1", RACES, dies=2),
    Trap("DMA of a late write", "ub_store 3 0; out 0.0 0 0; set 3 0 0; wait 3 0 0; dma 0.0 0.4 0; wait 4 0 0", WEAK),
    # flags that their writer reads
    Trap("an own flag by a plain load", "atomic 0.4 1; put 1.0 1; load 1.0; fail_unless 1 0 | ne_taken 1.0 0", RACES),
    Trap("an own counter by a plain load",
         "ge 0.4 1; add 1.0 1; load 1.0; fail_unless 1 2 | add 1.0 1; quiet; store 0.4 1 | ge 1.0 2",
         RACES | FAILED),
    Trap("own flags, torn",
         "atomic 0.4 1; put 1.0 1; put 1.4 2; in 1.0 0 4; quiet; ub_load 0 4; skip_unless 0 2 2; "
         "ub_load 0 0; fail_unless 1 1 | ne_taken 1.0 0; ne_taken 1.4 0", RACES),
    Trap("flags that DMA copies in any order",
         "dma 0.0 1.0 4; wait 4 0 4 | ne_taken 1.4 0; load_named 1.0; fail_unless 1 1", RACES, memory={0: 1, 4: 1}),
    Trap("own data read back behind an answer",
         f"ub_store 3 0; out 1.0 0 0; put 1.4 1; {READ_BACK} | ge 1.4 1; put 0.4 1", LATE),
    Trap("own data read back behind an answer, its flag to another die",
         f"ub_store 3 0; out 1.0 0 0; put 2.4 1; {READ_BACK} | skip_unless 0 0 | ge 2.4 1; put 0.4 1", WEAK),
    Trap("own data read back behind an answer to what came before it",
         f"put 1.4 1; ub_store 3 0; out 1.0 0 0; {READ_BACK} | ge 1.4 1; put 0.4 1", RACES),
    Trap("an answer frees the data buffer",
         "ub_store 1 0; out 1.0 0 0; put 1.4 1; ge 0.4 1; ub_store 2 0; quiet | ge 1.4 1; put 0.4 1", OK),
    Trap("an atomic that waits for a write, a load beside it",
         "add 1.4 1; atomic 1.0 3 | atomic 1.0 1; add 1.4 1; load 1.0", RACES),
    # what is released without a quiet
    Trap("a flag that does not wait for mtu-out",
         "ub_store 5 0; out 1.0 0 0; store 1.4 1; quiet | ge 1.4 1; load 1.0", RACES),
    Trap("a flag that waits for mtu-out",
         "ub_store 5 0; out 1.0 0 0; set 3 0 1; wait 3 0 1; store 1.4 1; quiet | ge 1.4 1; load 1.0", LATE),
    Trap("a flag for the data before it, read is what comes behind it",
         "store 1.0 5; store 1.4 1; store 1.0 6; store 1.4 2 | ge 1.4 1; load 1.0", RACES),
    Trap("data before a barrier", "store 0.0 5; arrive; await | load 0.0; arrive; await", RACES, cores=2),
    # A: facts that grew without a change of class
    Trap("two pipes to one flag",
         f"put 1.0 1; {LOOK}; store 1.0 2; skip_if 0 1 1; put 1.0 2 | ge_taken 1.0 2 | {HINT}", LOCKED),
    Trap("two pipes to one flag, rarer",
         f"put 1.0 1; {LOOKS}; store 1.0 2; skip_if 0 3 1; put 1.0 2 | ge_taken 1.0 2 | {COUNT}", LOCKED, rare=True),
    Trap("a second polled word of a field",
         f"{FIELD} | {LOOK}; ge 1.1 5; skip_if 0 1 1; ge 1.0 3; {PULL} | {HINT}", ANY),
    Trap("a second polled word of a field, rarer",
         f"{FIELD} | {LOOKS}; ge 1.1 5; skip_if 0 3 1; ge 1.0 3; {PULL} | {COUNT}", ANY, rare=True),
    # C: mtu-out over several granules
    Trap("a later granule of a transfer", "ub_store 3 4; out 1.0 0 4; store 1.4 7 | ge 1.4 7", LOCKED),
    Trap("parts of two granules", "ub_store 1 0; ub_store 3 1; out 1.3 0 1; store 1.4 7 | ge 1.4 7", LOCKED),
    # D: expected bytes that belonged to no part
    Trap("bytes that nobody writes", "store 0.0 1 | store 1.0 1", WRONG, {0o20: 9}, dies=3),
    Trap("bytes that nobody may write, written late",
         f"load_named 1.7; skip_unless 0 1 1; store 3.0 5 | {HINT} | store 2.0 1", WRONG, {0o30: 0}, dies=4),
    # E: polls as accesses
    Trap("a flag by DMA", "dma 0.0 1.4 0; wait 4 0 0 | ge 1.4 1", RACES, memory={0: 1}),
    Trap("a poll that DMA passes by", "dma 0.0 1.4 0; wait 4 0 0; store 1.4 2 | ge 1.4 2", RACES, memory={0: 1}),
    Trap("a flag by mtu-out of less than a granule", "ub_store 1 0; out 1.4 0 0 | ge 1.4 1", OK),
    # F: a core and its own flag
    Trap("an own flag read plainly", "put 1.0 1; set 3 0 0; wait 3 0 0; load 1.0 | ge 1.0 1", WEAK),
    Trap("an own flag read plainly, not waited for", "put 1.0 1; load 1.0 | ge 1.0 1", RACES),
    Trap("an own flag read behind a quiet", "put 1.0 1; quiet; load 1.0 | ge 1.0 1", OK),
    Trap("an own flag polled, then read", "put 1.0 1; ge 1.0 1; load 1.0 | ge 1.0 1", OK),
    Trap("data in flight read back, nobody else there",
         "ub_store 3 0; out m1.0 0 0; set 3 1 0; wait 3 1 0; in m1.0 4 0; quiet | quiet", WEAK),
    Trap("two whole writes by two pipes, polled in some runs",
         f"put 1.0 1; store 1.0 2 | load_named 1.7; skip_unless 0 1 1; ge 1.0 1 | {HINT}", OK),
    Trap("two whole writes by two cores, in metadata", "store 1.0 1 | store 1.0 2", OK, dies=2),
    Trap("two whole writes by two cores, in a managed area", "store m1.0 1 | store m1.0 2", RACES, dies=2),
    # G: what nobody has written
    Trap("a data buffer that nobody has written", "out 1.0 0 0", UNWRITTEN, dies=2, fresh=True),
    Trap("a half of a data buffer", "ub_store 1 0; out 1.0 0 1", UNWRITTEN, dies=2, fresh=True),
    Trap("a data buffer that was filled", "ub_store 1 0; ub_store 1 1; out 1.0 0 1", OK, dies=2, fresh=True),
    Trap("a plain read of a managed area", "load m1.0", UNWRITTEN, dies=2),
    # padding: what nobody has written may travel to where nobody has written either
    Trap("padding that travels", f"{PADDED} | ge 1.4 1; load m1.0", OK, **FRESH),
    Trap("padding that is read", f"{PADDED} | ge 1.4 1; load m1.1", UNWRITTEN, **FRESH),
    Trap("padding that is pulled", f"{PADDED} | ge 1.4 1; in m1.0 0 1; quiet; ub_load 0 0", OK, **FRESH),
    Trap("padding that is pulled, and read",
         f"{PADDED} | ge 1.4 1; in m1.0 0 1; quiet; ub_load 0 1", UNWRITTEN, **FRESH),
    Trap("padding that is pulled over what is written",
         f"{PADDED} | ub_store 1 1; ge 1.4 1; in m1.0 0 1; quiet; ub_load 0 0", UNWRITTEN, **FRESH),
    Trap("padding that is expected", f"{PADDED} | ge 1.4 1; load m1.0", UNWRITTEN, {0o51: 0}, **FRESH),
    Trap("padding over what is written", f"store m1.1 7; quiet; {PADDED} | ge 1.4 1; load m1.0", UNWRITTEN, **FRESH),
    Trap("padding by DMA", f"ub_store 3 0; out m0.0 0 1; quiet; {BY_DMA} | ge 1.4 1; load m1.0", OK, **FRESH),
    Trap("padding by DMA over what is written",
         f"ub_store 3 0; out m0.0 0 1; store m1.1 2; quiet; {BY_DMA} | ge 1.4 1; load m1.0", UNWRITTEN, **FRESH),
    Trap("padding under an addition, not ordered", "ub_store 3 0; out m1.0 0 1 | add m1.1 1", UNWRITTEN, **FRESH),
    Trap("padding under an addition", f"{PADDED} | ge 1.4 1; add m1.1 1", UNWRITTEN, **FRESH),
    Trap("padding under an atomic", "ub_store 3 0; out m1.0 0 1 | atomic m1.1 1", UNWRITTEN, **FRESH),
    Trap("padding under a poll",
         "ub_store 3 0; out m1.0 0 1; quiet; store m1.1 1 | ge m1.1 1", RACES | UNWRITTEN, **FRESH),
    Trap("padding under a named load", "ub_store 3 0; out m1.0 0 1 | load_named m1.1", RACES | UNWRITTEN, **FRESH),
    Trap("padding after a named load",
         "ge 0.4 1; ub_store 3 0; out m1.0 0 1 | load_named m1.1; store 0.4 1", OK, **FRESH),
    Trap("padding beside a flag", "ub_store 1 0; out m1.0 0 1 | ge m1.0 1", OK, **FRESH),
    Trap("padding written over", "ub_store 3 0; out m1.0 0 1; quiet; store m1.1 2; quiet; put 1.4 1 | "
         "ge 1.4 1; load m1.1", {**TWICE, "unordered": UNWRITTEN}, **FRESH),
    Trap("padding written over, nothing in between", "ub_store 3 0; out m1.0 0 1; store m1.1 2; quiet; put 1.4 1 | "
         "ge 1.4 1; load m1.1", RACES | UNWRITTEN, **FRESH),
    Trap("padding that a vector copies", "ub_store 3 0; v_copy 0 4 1; out m1.0 4 1", UNWRITTEN, **FRESH),
    Trap("padding that is added", "ub_store 3 0; add_out m1.0 0 1", UNWRITTEN, **FRESH),
    # what an attack on the argument found
    Trap("DMA over an own write in flight", "store 0.0 5; dma 0.4 0.0; wait 4", LATE),
    Trap("DMA over an own write that is visible", "store 0.0 5; quiet; dma 0.4 0.0; wait 4", OK),
    Trap("a descriptor used again while mtu-out does not know",
         "ge 0.0 1; in m1.0 8; set 1 3; wait 1 3; out m0.0; dma_data m0.4 0.0; wait 4; dma_data m0.4 0.1; wait 4 | "
         "store m1.0 7; quiet; store 0.0 1", RACES | UNFINISHED, memory={0o44: 7}),
    Trap("an own store polled, then copied by DMA", "store 1.0 1; eq 1.0 1; dma 1.0 1.4; wait 4", WEAK, dies=2),
    Trap("an own put polled, then copied by DMA", "put 1.0 1; eq 1.0 1; dma 1.0 1.4; wait 4", OK, dies=2),
    Trap("an owner that returns at any moment",
         "end | store 0.1 6; quiet; store 0.1 5", WRONG, {1: 5}, memory={1: 5}, owners=(0,)),
    Trap("an owner whose bytes stay the same", "end | store 0.1 5", OK, {1: 5}, memory={1: 5}, owners=(0,)),
    Trap("two flags of one core by two pipes", "put 1.0 1; store 1.0 2", OK, dies=2),
    Trap("an answered flag while a later one flies",
         "ub_store 5; out m1.0; put 1.0 1; put 1.4 1; ge 0.0 1; ub_store 6 | ge 1.0 1; store 0.0 1; ge 1.4 1", OK),
    Trap("an event set again behind an answer",
         "in 0.4; set 1 3; wait 1 3; put 1.0 1; ge 0.0 1; set 1 3; wait 1 3 | ge 1.0 1; store 0.0 1", OK),
    # right all along
    Trap("pushed into a die that is done", "ub_store 5 0; out 1.0 0 0 | store 1.4 1", OK, {0o10: 5}),
    Trap("a seqlock by named loads",
         f"{SEQLOCK} | load_named 0.0; skip_unless 0 2 3; load_named 0.4; skip_if 0 5 1; fail_unless 7 5", OK),
    Trap("a seqlock that reads plainly", f"{SEQLOCK} | load_named 0.0; load 0.4; load_named 0.0", RACES),
    # what orders two accesses, one program for each way and one without it
    Trap("a field behind two granules",
         "ub_store 3; ub_store 3 4; out 1.0 0 4; quiet; put 2.4 1 2 | "
         "ge 2.4 1; load 2.5; in 1.0 0 4; set 1 0; wait 1 0; ub_load 0 4", OK, dies=3),
    Trap("a field that overtakes two granules",
         "ub_store 3; ub_store 3 4; out 1.0 0 4; put 2.4 1 2 | "
         "ge 2.4 1; load 2.5; in 1.0 0 4; set 1 0; wait 1 0; ub_load 0 4", WEAK, dies=3),
    Trap("two granules used before they are pulled",
         "ub_store 3; ub_store 3 4; out 1.0 0 4; quiet; put 2.4 1 2 | ge 2.4 1; in 1.0 0 4; ub_load 0 4",
         RACES, dies=3),
    Trap("read before a flag", "store 1.0 5; quiet; store 1.4 1 | load 1.0; ge 1.4 1", RACES),
    Trap("data on one die, its flag on another", "store 0.0 7; store 1.0 1 | ge 1.0 1; load 0.0", WEAK),
    Trap("a barrier of a counter",
         "store 1.0 3; quiet; atomic 1.4 1; ge 1.4 2; load 0.0 | store 0.0 3; quiet; atomic 1.4 1; ge 1.4 2; load 1.0",
         OK),
    Trap("a barrier of a counter, without a quiet",
         "store 1.0 3; atomic 1.4 1; ge 1.4 2; load 1.1 | store 1.1 3; atomic 1.4 1; ge 1.4 2; load 1.0", LATE),
    Trap("a barrier of a counter that nobody waits for",
         "store 1.0 3; quiet; atomic 1.4 1; load 0.0 | store 0.0 3; quiet; atomic 1.4 1; load 1.0", RACES),
    Trap("two additions",
         "store 2.0 7; quiet; add 2.4 1 | store 2.1 7; quiet; add 2.4 1 | ge 2.4 2; load 2.0; load 2.1", OK),
    Trap("two additions without a quiet",
         "store 2.0 7; add 2.4 1 | store 2.1 7; add 2.4 1 | ge 2.4 2; load 2.0; load 2.1", LATE),
    Trap("own stores read back", "store 0.0 1; load 0.0", OK),
    Trap("own stores pulled", "store 0.0 1; in 0.0 0 0; quiet", WEAK),
    Trap("an own put read back behind a quiet", "put m0.0 1; quiet; load m0.0; store m0.0 2", OK),
    Trap("an own put read back", "put 0.0 1; load 0.0", RACES),
    Trap("an own put overwritten", "put m0.0 1; store m0.0 2", RACES),
    Trap("transfers that overlap in the data buffer", "in 0.0 0 2; in 0.4 1 2; quiet", OK),
    Trap("copied by the vector pipe when it is pulled", "in 0.0 0 2; set 1 2 0; wait 1 2 0; v_copy 0 8 2", OK),
    Trap("copied by the vector pipe before it is pulled", "in 0.0 0 2; v_copy 0 8 2", RACES),
    Trap("summed as the second row when it is pulled", "in 0.0 0 2; set 1 2 0; wait 1 2 0; v_add 4 8 2", OK),
    Trap("summed as the second row before it is pulled", "in 0.0 0 2; v_add 4 8 2", RACES),
    Trap("pulled over the second row before it is summed", "v_add 4 8 2; in 0.0 0 2", RACES),
    Trap("summed as the second row while it is written out", "out 0.0 0 2; v_add 4 8 2", OK),
    Trap("written out while a row is summed in place of it", "out 0.0 0 2; v_add 4 0 2", RACES),
    Trap("written out when the vector pipe has made it", "v_copy 0 8 2; set 2 3 0; wait 2 3 0; out 0.0 8 2", OK),
    Trap("written out before the vector pipe has made it", "v_copy 0 8 2; out 0.0 8 2", RACES),
    Trap("different words of a granule", "store m1.0 1; store m1.0 2 | store m1.1 1; store m1.1 2", OK),
    Trap("a word of two cores", "store m1.0 1; store m1.0 2 | store m1.0 1; store m1.0 2", RACES),
    Trap("a look at a field", "put 1.0 1 2 | load_named 1.0", OK),
    Trap("a look at a field without a name", "put 1.0 1 2 | load 1.0", RACES),
    # writes of one core to one address, which keep their order unless the memory order is `unordered`
    Trap("a word that is stored twice",
         "store m1.0 1; store m1.0 2; quiet", TWICE | {"unordered": WRONG}, {0o50: 2}, dies=2),
    Trap("a word that is stored twice, a fence between",
         "store m1.0 1; fence; store m1.0 2; quiet", OK, {0o50: 2}, dies=2),
    Trap("two transfers to one place",
         "ub_store 3; out m1.0 0 1; ub_store 5 4; set 0 3 0; wait 0 3 0; out m1.0 4 1; quiet",
         TWICE | {"unordered": WRONG}, {0o50: 5}, dies=2),
    Trap("transfers that share a word",
         "ub_store 3; ub_store 5 4; out m1.0 0 1; out m1.1 4 1; quiet",
         TWICE | {"unordered": WRONG}, {0o50: 3, 0o51: 5}, dies=2),
    Trap("data written twice before its flag",
         "store m1.0 1; store m1.0 2; quiet; put 1.4 1 | ge 1.4 1; load m1.0; fail_unless 7 2",
         TWICE | {"unordered": FAILED}),
    Trap("data written twice, a fence between",
         "store m1.0 1; fence; store m1.0 2; quiet; put 1.4 1 | ge 1.4 1; load m1.0; fail_unless 7 2", OK),
    Trap("an older head over a newer", "store 1.0 1; store 1.0 2 | ge 1.0 2", TWICE | {"unordered": LOCKED}),
    Trap("an older head over a newer, put", "put 1.0 1; put 1.0 2 | ge 1.0 2", TWICE | {"unordered": LOCKED}),
    # whoever polls comes first: so the granule is known to be polled before a second write may overtake the first
    Trap("an older head over a newer that is polled first", "ge 0.0 2 | put 0.0 1; put 0.0 2",
         TWICE | {"unordered": LOCKED}),
    Trap("an older head, put without an order, over a newer that is polled first", "ge 0.0 2 | put 0.0 1; put 0.0 2",
         TWICE | {"relaxed": LOCKED, "unordered": LOCKED}, asks={"put0": "no-order"}),
    Trap("an older field over a newer that is polled first", "ge 0.0 2; load 0.1 | put 0.0 1 1; put 0.0 2 2",
         TWICE | {"unordered": RACES | LOCKED}),
    Trap("an older field, put without an order, over a newer that is polled first",
         "ge 0.0 2; load 0.1 | put 0.0 1 1; put 0.0 2 2",
         TWICE | {"relaxed": RACES | LOCKED, "unordered": RACES | LOCKED}, asks={"put0": "no-order"}),
    Trap("a head behind a fence", "store 1.0 1; fence; store 1.0 2 | ge 1.0 1; ge 1.0 2", OK),
    Trap("a head that is added to", "add 1.0 1; add 1.0 1 | ge 1.0 1; ge 1.0 2", OK),
    Trap("an own put seen that another overtakes", "put 0.0 1; put 0.0 2; eq 0.0 2", TWICE | {"unordered": LOCKED}),
    Trap("an own store seen that another overtakes",
         "store 0.0 1; store 0.0 2; eq 0.0 2; quiet; eq 0.0 2", TWICE | {"unordered": LOCKED}),
    Trap("an addition that overtakes a store",
         "store 1.0 5; atomic 1.0 1; quiet | ge 1.0 6", TWICE | {"unordered": LOCKED}),
    Trap("an addition behind a fence", "store 1.0 5; fence; atomic 1.0 1; quiet | ge 1.0 6", OK),
    # what planted bugs showed
    Trap("a payload that may arrive after its receiver's return",
         "ub_store 5 0; out m1.0 0 0; put 1.4 1; quiet | ge 1.4 1", LATE | {"relaxed": WRONG}, {0o50: 5}, owners=(1,)),
    Trap("an event set anew before the vector pipe has taken it",
         "set 1 2 0; set 2 1 1; wait 1 2 0; wait 2 1 1; set 1 2 0; wait 1 2 0", EVENTS),
    Trap("an event of the scalar unit in two rounds", "set 0 3; wait 0 3; put 1.0 1; set 0 3; wait 0 3 | ", EVENTS),
    Trap("an event set again, which only a full queue puts off",
         f"set 0 3; wait 0 3; {'; '.join(['put 1.0 1'] * 8)}; set 0 3; wait 0 3 | ", EVENTS),
    Trap("an event set again behind another one",
         f"set 0 3; wait 0 3; {'; '.join(['put 1.0 1'] * 8)}; set 3 0; wait 3 0; set 0 3; wait 0 3 | ", OK),
    # what an attack on lines, units of other sizes, swaps and early data under `fifo` found, and what it did not
    Trap("a store that a fence holds back", "in 0.0 0 1; set 1 3; wait 1 3; fence; store 0.1 5; quiet | ge 0.1 5", OK),
    Trap("a swap that a fence holds back", "in 0.0 0 1; set 1 3; wait 1 3; fence; swap 0.1 0 5; quiet | ge 0.1 5", OK),
    Trap("a store that no fence holds back", "in 0.0 0 1; set 1 3; wait 1 3; store 0.1 5; quiet | ge 0.1 5", RACES),
    Trap("answers to two additions of 8 bytes, of which 4 become visible at once",
         "ub_store 5; out m1.0; add 1.0 1; ge 0.0 1; ub_store 6; out m1.1; add 1.0 1; ge 0.0 2; ub_store 7 | "
         "ge 1.0 1; add 0.0 1; ge 1.0 2; add 0.0 1", OK, atomic_bytes=4),
    Trap("a line that nobody writes", "line 0.0 1 1 | quiet", LOCKED, atomic_bytes=16),
    Trap("a line that DMA passes by", "dma_data 0.0 8; wait 4 | line m1.0 1 1", RACES, memory={0: 2, 0o50: 0}),
    Trap("data before a line", "store m1.0 5; put 1.0 1 1 | line 1.0 1 1; load m1.0", LATE, memory={0o50: 1}),
    Trap("data behind a line", "put 1.0 1 1; store m1.0 5 | line 1.0 1 1; load m1.0", RACES, memory={0o50: 1}),
    Trap("data after a line that is put with a strong order", "put 1.0 1 1; store m1.0 5 | line 1.0 1 1; load m1.0",
         RACES, memory={0o50: 1}, asks={"put0": "strong"}),
    Trap("a field that is polled as a line, too",
         "ge 0.0 2 | line_ne 0.0 0; ub_load 0 24; fail_unless 5 2 | put 0.0 1 1; put 0.0 2 2", FAILED, {1: 2},
         owners=(0,)),
    Trap("a neighbour's data before a line",
         "store m1.0 5; arrive; await | arrive; await; put 1.0 1 1 | line 1.0 1 1; load m1.0",
         LATE, cores=2, memory={0o50: 1}),
    Trap("data on one die, a line on another",
         "store m1.0 5; put 2.0 1 1 | | line 2.0 1 1; load m1.0", WEAK, memory={0o50: 1}),
    Trap("a line with a flag in each unit",
         "ub_store 1 0; ub_store 5 1; ub_store 1 2; out 1.0 0 2 | line 1.0 1 9; ub_load 0 25; fail_unless 7 5",
         OK, atomic_bytes=16),
    Trap("a line with a flag in one unit",
         "ub_store 1 0; ub_store 5 2; out 1.0 0 2 | line 1.0 1 1; ub_load 0 26; fail_unless 7 5",
         FAILED, atomic_bytes=16),
    Trap("the last of four units is polled",
         "ub_store 5 0; ub_store 1 3; out m1.0 0 2 | ge m1.3 1; load m1.0", LATE, memory={0o50: 1}, atomic_bytes=8),
    Trap("four units before a fence",
         "ub_store 5 0; out m1.0 0 2; fence; put 1.0 1 | line 1.0 1; load m1.0", OK, atomic_bytes=8),
    Trap("a swap that fails releases nothing",
         "store m1.0 5; quiet; swap 1.0 3 1 | store 1.0 1 | ge 1.0 1; load m1.0", RACES, memory={0o50: 1}),
    Trap("a line that is not aligned is refused, whatever DMA writes there",
         "atomic 0.7 1; line 0.1 1 | dma m1.0 0 1; wait 4 0 0", EVENTS, memory={0o50: 1}),
    Trap("a signal announces its own bytes", "ub_store 5 0; signal 1.0 0 | ge 1.0 1; load m1.0", OK, memory={0o50: 1}),
    Trap("a signal announces no other bytes",
         "ub_store 5 0; out m1.4; signal 1.0 0 | ge 1.0 1; load m1.4", LATE, memory={0o54: 1}),
    Trap("a swap that does not fail releases", "store m1.0 5; quiet; swap 1.0 0 1 | ge 1.0 1; load m1.0", OK),
    Trap("a signal that sets behind one of its core that adds",
         "signal 1.0 3 8; signal 1.0 12 | ge 1.0 1; signal 1.0 19",
         {"sc": OK, "fifo": OK, "relaxed": OK, "unordered": RACES}, dies=2),
    Trap("a signal of whose granule its core writes another word, whoever else writes there",
         "put 1.0 1; signal 1.0 0; add 1.1 1 | store 1.0 7 | ge 1.1 1; in m1.0",
         {"sc": OK, "fifo": OK, "relaxed": OK, "unordered": RACES}, memory={0o50: 1}, dies=3),
    Trap("a signal of whose granule another core writes a word",
         "signal 1.0 0; add 1.1 1 | add 1.1 1 | ge 1.1 1; in m1.0", RACES, memory={0o50: 1}, dies=3),
    # caches of scalar units
    Trap("a flag that is evicted before a fence that it is behind",
         "out m1.0; fence; store 1.4 1 | ge 1.4 1; load m1.0", RACES, memory={0o50: 1}, scalar_cache=3),
    Trap("data behind a fence, with caches",
         "ub_store 5 0; out m1.0; fence; put 1.4 1 | ge 1.4 1; load m1.0", OK, scalar_cache=4),
    Trap("what a cache holds back is seen in bytes, and is no race",
         "store m1.0 5; dcci m1.0; put 1.4 1 | ge 1.4 1; load m1.0", OK, dies=2, scalar_cache=4),
    Trap("a flag that waits for its line to be evicted", "store 0.4 1; ge 0.4 1", LOCKED, scalar_cache=3),
    Trap("a load of a line that is being written back",
         "out 0.0 | store 0.0; dcci 0.0; load_at 0.0", RACES, cores=2, scalar_cache=3),
    Trap("a quiet after a field that a core with a cache polls", "put 1.0 1 1; quiet | ge 1.0 1; in 1.1; quiet", OK,
         scalar_cache=5),
    # under `fifo`, what waits for a write waits for what its die wrote to that die before it
    Trap("a quiet after a write after a neighbour's data",
         f"{TOLD} | ge 0.0 1; store 1.4 7; quiet; store 0.4 1 | ge 0.4 1; load m1.0", LATE, cores=2, memory={0o50: 1}),
    Trap("a quiet after a put after a neighbour's data",
         f"{TOLD} | ge 0.0 1; put m1.4 7; quiet; store 0.4 1 | ge 0.4 1; load m1.0", LATE, cores=2, memory={0o50: 1}),
    Trap("a quiet behind data of two neighbours",
         "store m1.0 5; put 0.0 1 | ge 0.0 1; store 1.4 7; quiet; put 0.4 1 | "
         "ge 0.4 1; load m1.0; load m1.4 | | store m1.4 3; quiet; put 0.4 1",
         RACES, cores=2, dies=3, memory={0o50: 1, 0o54: 1}),
    Trap("a quiet with nothing to wait for behind a neighbour's data",
         f"{TOLD} | ge 0.0 1; quiet; store 0.4 1 | ge 0.4 1; load m1.0", WEAK, cores=2, memory={0o50: 1}),
    Trap("a quiet after a write to another die than a neighbour's data",
         f"{TOLD} | ge 0.0 1; store 2.4 7; quiet; store 0.4 1 | ge 0.4 1; load m1.0",
         WEAK, cores=2, dies=3, memory={0o50: 1}),
    Trap("a quiet after a write before a neighbour's data",
         f"{TOLD} | store 1.4 7; ge 0.0 1; quiet; store 0.4 1 | ge 0.4 1; load m1.0", WEAK, cores=2, memory={0o50: 1}),
    Trap("a quiet of a core on another die than the data's",
         f"{TOLD} | ge 2.4 1; load m1.0 | ge 0.0 1; store 1.4 7; quiet; store 2.4 1", WEAK, dies=3, memory={0o50: 1}),
    Trap("DMA that is complete behind own data",
         "store m1.0 5; dma 0.0 1.4 0; wait 4; store 0.4 1 | ge 0.4 1; load m1.0", LATE, memory={0o50: 1}),
    Trap("DMA that is complete behind a neighbour's data",
         f"{TOLD} | ge 0.0 1; dma 0.1 1.4 0; wait 4; store 0.4 1 | ge 0.4 1; load m1.0",
         LATE, cores=2, memory={0o50: 1}),
    Trap("DMA that is rung before own data",
         "dma 0.0 1.4 0; store m1.0 5; wait 4; store 0.4 1 | ge 0.4 1; load m1.0", WEAK, memory={0o50: 1}),
    Trap("DMA to another die than own data",
         "store m1.0 5; dma 0.0 2.4 0; wait 4; store 0.4 1 | ge 0.4 1; load m1.0", WEAK, dies=3, memory={0o50: 1}),
    Trap("own data read back behind DMA",
         f"store m1.0 5; dma 0.0 1.4 0; wait 4; {PULL}", LATE, dies=2, memory={0o50: 1}),
    Trap("own data read back behind DMA that was rung before",
         f"dma 0.0 1.4 0; store m1.0 5; wait 4; {PULL}", WEAK, dies=2, memory={0o50: 1}),
    Trap("own data read back behind DMA to another die",
         f"store m1.0 5; dma 0.0 2.4 0; wait 4; {PULL}", WEAK, dies=3, memory={0o50: 1}),
    Trap("own data of mtu-out read back behind DMA",
         "ub_store 5 0; out m1.0 0 0; set 3 0 0; wait 3 0 0; dma 0.0 1.4 0; wait 4; load m1.0",
         LATE, dies=2, memory={0o50: 1}),
    Trap("own data of mtu-out, which DMA need not be behind",
         "ub_store 5 0; out m1.0 0 0; dma 0.0 1.4 0; wait 4; load m1.0", RACES, dies=2, memory={0o50: 1}),
    Trap("own data read back behind a neighbour's DMA",
         f"{TOLD}; ge 0.4 1; {PULL} | ge 0.0 1; dma 0.1 1.4 0; wait 4; store 0.4 1",
         LATE, cores=2, dies=2, memory={0o50: 1}),
    Trap("own data read back behind a barrier behind a neighbour's DMA",
         f"store m1.0 5; arrive; await; arrive; await; {PULL} | arrive; await; dma 0.1 1.4 0; wait 4; arrive; await",
         LATE, cores=2, dies=2, memory={0o50: 1}),
    Trap("a neighbour writes over data behind a barrier",
         "store m1.0 5; arrive; await | arrive; await; put m1.0 7 1; quiet; store 0.4 1 | ge 0.4 1; load m1.0",
         LATE, cores=2),
    Trap("a neighbour writes over data behind a flag", f"{TOLD} | ge 0.0 1; put m1.0 7 1", LATE, cores=2, dies=2),
    Trap("a neighbour writes over data behind nothing", "store m1.0 5 | put m1.0 7 1", RACES, cores=2, dies=2),
    Trap("a core of another die writes over data behind a flag", f"{TOLD} | ge 0.0 1; put m1.0 7 1", WEAK),
    Trap("a neighbour's DMA writes over data behind a flag",
         f"{TOLD} | ge 0.0 1; dma_data 0.4 1.0 0; wait 4", LATE, cores=2, dies=2),
    Trap("a neighbour writes over what DMA writes",
         "dma_data 0.4 1.0 0; store 0.0 1; wait 4 | ge 0.0 1; store m1.0 7", RACES, cores=2, dies=2),
    Trap("a neighbour writes over what DMA has written",
         "dma_data 0.4 1.0 0; wait 4; store 0.0 1 | ge 0.0 1; store m1.0 7", OK, cores=2, dies=2),
    # two granules that become visible at once: of two cores a die, so that words 0 and 4 are in one such unit
    Trap("a unit of two granules, written at once",
         "ge 0.0 1; load 0.4 | | ub_store 1 0; ub_store 3 4; out 0.0 0 4", OK, cores=2, atomic_bytes=64),
    Trap("data in the other granule of a flag's unit", "ge 0.0 1; load 0.4 | | put 0.4 5; put 0.0 1",
         TWICE | {"unordered": RACES}, cores=2, atomic_bytes=64),
    Trap("data in the other granule behind the flag", "ge 0.0 1; load 0.4 | | put 0.0 1; put 0.4 5", RACES,
         cores=2, atomic_bytes=64),
    Trap("data of a neighbour in the other granule of a flag's unit",
         "ge 0.0 1; load 0.4 | | store 0.4 5; arrive; await | arrive; await; store 0.0 1",
         LATE, cores=2, atomic_bytes=64),
    Trap("data in the next unit", "ge m0.0 1; load 0.4 | | put 0.4 5; put m0.0 1", LATE, cores=2, atomic_bytes=64),
    Trap("an atomic behind data in the other granule of its unit",
         "ge 1.0 1; load 0.4 | | store 0.4 5; atomic 0.0 1; store 1.0 1", TWICE | {"unordered": RACES}, cores=2,
         atomic_bytes=64),
    Trap("a line behind data in the other granule of its unit", "line 0.0 1 1; load 0.4 | | put 0.4 5; put 0.0 1",
         TWICE | {"unordered": RACES}, cores=2, atomic_bytes=64),
    Trap("a signal behind data in the other granule of its payload's unit",
         "store m1.4 7; ub_store 5 0; signal 1.0 0 | ge 1.0 1; load m1.4; load m1.0",
         TWICE | {"unordered": RACES}, memory={0o50: 1, 0o54: 1}, atomic_bytes=64),
    Trap("own words read back behind a poll of the other granule of their unit",
         "ub_store 1 0; ub_store 3 4; out 0.0 0 4; ge 0.0 1; load 0.4", OK, cores=2, atomic_bytes=64),
    # signals beside caches: the signal and its payload go past the writer's, and a reader may have an old line
    Trap("a payload behind its signal, loaded through a cache",
         "ub_store 5 0; signal 1.0 0 | ge 1.0 1; load m1.0; fail_unless 7 5", OK, memory={0o50: 1}, scalar_cache=5),
    Trap("a payload whose line a cache has from a neighbouring word",
         "ub_store 5 0; signal 1.0 0 | load m1.4; ge 1.0 1; load m1.0; fail_unless 7 5", FAILED,
         memory={0o50: 1, 0o54: 1}, scalar_cache=5),
    Trap("a payload whose line a cache has dropped",
         "ub_store 5 0; signal 1.0 0 | load m1.4; ge 1.0 1; dcci m1.0; load m1.0; fail_unless 7 5", OK,
         memory={0o50: 1, 0o54: 1}, scalar_cache=5),
    Trap("a payload that a changed line is written back over",
         "ub_store 5 0; signal 1.0 0 | store m1.1 3; ge 1.0 1; dcci m1.0; quiet; load m1.0; fail_unless 7 5", FAILED,
         memory={0o50: 1, 0o51: 1}, scalar_cache=5),
    Trap("a signal announces no store that is still in a cache",
         "store m1.4 7; ub_store 5 0; signal 1.0 0 | ge 1.0 1; load m1.4; fail_unless 7 7", FAILED,
         memory={0o50: 1, 0o54: 1}, scalar_cache=5),
    Trap("a signal behind a line that is on its way back",
         "store m1.4 7; dcci m1.4; ub_store 5 0; signal 1.0 0 | ge 1.0 1; load m1.4; fail_unless 7 7",
         {"sc": OK, "fifo": OK, "relaxed": FAILED}, memory={0o50: 1, 0o54: 1}, scalar_cache=5),
    Trap("a signal behind a line that was awaited",
         "store m1.4 7; dcci m1.4; quiet; ub_store 5 0; signal 1.0 0 | ge 1.0 1; load m1.4; fail_unless 7 7", OK,
         memory={0o50: 1, 0o54: 1}, scalar_cache=5),
    Trap("a line that is written back between two parts of a transfer",
         "store m1.0 5; store m1.4 6; put 1.4 1 | ge 1.4 1; in m1.0 0 4; quiet; ub_load 0 0; skip_unless 0 1 2; "
         "ub_load 0 4; fail_unless 7 1", FAILED, memory={0o50: 1, 0o54: 1}, rare=True, scalar_cache=5),
    Trap("an older store of a half behind a newer one of the word", "store4 1.0 5; store 1.0 6 | ge 1.0 1; load 1.0",
         TWICE | {"unordered": RACES}, memory={0o10: -1 << 40}),
    Trap("an older store of a half, without an order, behind a newer one of the word",
         "store4 1.0 5; store 1.0 6 | ge 1.0 1; load 1.0", LATE, memory={0o10: -1 << 40}, asks={"store2": "no-order"}),
    # halves of a word: where 4 bytes become visible at once, a store of 8 is two writes
    Trap("the second half of a word whose first was polled", "store 1.1 1 | part_ge 1.1 1 2; load4 1.1 0 8",
         {"sc": OK, "fifo": RACES, "relaxed": RACES}, atomic_bytes=4),
    Trap("the second half of a word that was polled to the end", "store 1.1 1 | part_ge 1.1 1 2; load4 1.1 0 8", OK,
         atomic_bytes=8),
    Trap("data behind a quiet and half of a word", "store m1.0 5; quiet; store 1.0 1 | part_ge 1.0 1 2; load m1.0", OK,
         atomic_bytes=4),
    Trap("data after the other half of a word, strong",
         "ub_store 1 0; store m1.0 5; store4 1.0 1 8; out 1.0 0 5 | part_ge 1.0 1 2; load m1.0", LATE,
         memory={0o50: 1}, atomic_bytes=4, asks=STRONG_HALF),
    Trap("data after the other half of a word, strong, and an atomic on both",
         "store m1.0 5; store4 1.0 1 8; atomic 1.0 1 | part_ge 1.0 1 2; load m1.0", TWICE | {"unordered": RACES},
         memory={0o50: 1}, atomic_bytes=4, asks=STRONG_HALF),
    Trap("half of a word tells, beside the other half of an own store", ONE_HALF, OK, dies=2, atomic_bytes=4),
    Trap("an addition over both halves of a word of which one was stored", "store4 1.0 1; add 1.0 | ge 1.0 1; in 1.0",
         RACES, atomic_bytes=4),
    Trap("two DMA descriptors that write the same bytes fill all places in flight",
         "dma 0.0 1.0 4; dma 0.2 1.2 1; wait 4 0 4; wait 4 0 1 | ", RACES, memory={0: 1}, atomic_bytes=4),
    # a core's poll of its own put: an older value may be gone, and a fence before the put tells of what is before it
    Trap("an own poll for the value before the put", "put 0.0 1; eq 0.0", LOCKED),
    Trap("an own poll for the value before the second put", "put 0.0 1; eq 0.0 1; put 0.0 2; eq 0.0 1", LOCKED),
    Trap("an own poll of the other word of a put for its value before", "put_one 0.3 1 1; eq 0.0", LOCKED),
    Trap("an own poll for the value before a put that waits for the poll",
         "wait 0 3 0; put 0.0 1; eq 0.0; set 0 3 0; eq 0.0 1", OK),
    Trap("an own poll for the value before a put that waits for a transfer",
         "ge 0.4 1; in m1.0 0 0; set 1 3 0; wait 1 3 0; put 0.0 1; eq 0.0 | store m1.0 5; quiet; store 0.4 1", LOCKED),
    Trap("an own poll for each of two puts", "put 0.0 1; eq 0.0 1; put 0.0 2; eq 0.0 2", OK),
    Trap("an own flag behind data and a fence, then a flag for others",
         "ub_store 3 0; out m1.0 0 0; fence; put 1.0 1; eq 1.0 1; store 0.0 1 | ge 0.0 1; load m1.0", OK),
    Trap("a tentative read, then in a rare branch a copy over its source",
         f"tentative 0.4 0 0; {RARE}; dma 0.0 0.4 0; wait 4 0 0 | {COUNT}", OK),
    # a race's accesses are written down one by one: what waits for a value is first, since the other may take it away
    Trap("a copy over what a poll of several words waits for", "dma 0.1 1.4 0; wait 4 0 0 | any 1.4 1.5 0", RACES,
         memory={12: 1}),
    Trap("a copy over what a poll of a line waits for", "dma 0.0 1.4 1; wait 4 0 1 | line 1.4 1 4", RACES,
         memory={12: 1, 13: 1}),
    Trap("a copy over what an own poll of several words waits for, in a larger unit",
         "dma 0.1 0.4 0; any 0.4 0.5 0; wait 4 0 0", RACES, memory={4: 1}, atomic_bytes=128, cores=2),
    Trap("a copy over what a poll waits for", "dma 0.0 1.4; wait 4 | ge 1.4 1", RACES, memory={0: 1}),
    Trap("a poll of a line over what is read", "in 1.0 24 2; line 0.0 0 1; quiet; ub_load 0 24", RACES, dies=2),
    Trap("an owner that polls what is written again", "ge 0.0 1 | put 0.0 1; put 0.0 2", WRONG, {0: 2}, owners=(0,)),
    Trap("own data after a signal and an answer",
         "ub_store 5 0; signal 1.0 0; ge 0.4 1; in m1.0; quiet; ub_load 0 0 | ge 1.0 1; put 0.4 1", OK,
         memory={0o50: 1}),
    # what keeps its turn under `fifo` is in flight, so whoever polls it waits for that
    Trap("a granule that keeps its turn is a flag in a rare branch",
         "ge 0.0 1; ge 0.4 1; put m0.0 1; put 1.4 1 | put 1.0 1; put 0.0 1 | load_named 1.0; load_named m1.7; "
         "skip_unless 0 1 9; load_named m1.7; skip_unless 0 2 7; load_named m1.7; skip_unless 0 3 5; put 0.4 1; "
         "ge 1.4 1; load_named m0.0; fail_unless 0 1; skip_unless 0 31 1; put 0.4 1 | | "
         "store m1.7 1; store m1.7 2; store m1.7 3",
         {"sc": OK, "fifo": FAILED, "relaxed": FAILED}, cores=2, rare=True),
    # additions: one of a word carries, one of 4-byte integers does not
    Trap("additions of two widths do not commute", f"{CARRY}; add 0.0 1; add_out 0.0 0 0", TWICE | {"unordered": WRONG},
         {0: 0x1FFFFFFFF}, memory={0: 0xFFFFFFFF, 4: 0xFFFFFFFF}),
    Trap("additions of two widths that ask for no order", f"{CARRY}; add 0.0 1; add_out 0.0 0 0",
         {"sc": OK, "fifo": OK, "relaxed": WRONG}, {0: 0x1FFFFFFFF}, memory={0: 0xFFFFFFFF, 4: 0xFFFFFFFF},
         asks={"add0": "no-order", "mtu_add0": "no-order"}),
    Trap("additions of one width", "add 0.0 1; add 0.0 2", OK, {0: 4}, memory={0: 1}),
)  # fmt: skip
NAMED = {trap.name: trap for trap in TRAPS}
