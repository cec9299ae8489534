"""Small programs that fool a search which reduces too much, or make it cry wolf, each with the verdict it deserves."""

from dataclasses import dataclass, field

import pytest

from xccl_emu.campaign.judge import BRUTE_FORCE, Scene, judge_scene, verdict_of
from xccl_emu.campaign.programs import ORDERS, Small, program
from xccl_emu.check import verdict as kinds

from .search_support import LARGE, search

RACE = "race"
RACES = (kinds.DATA_RACE, kinds.TORN_METADATA)
ANY = "a violation"
"""Which one is found first, and whether both searches find the same, is open."""


@dataclass(frozen=True)
class Trap:
    """Programs, and their verdict by memory order, or one for all."""

    name: str
    programs: tuple[str, ...]
    verdict: str | dict[str, str]
    cores_per_die: int = 1
    memory: dict[int, int] = field(default_factory=dict)

    def small(self) -> Small:
        """The configuration."""
        return Small(tuple(program(text) for text in self.programs), self.cores_per_die, 0, self.memory)

    def verdicts(self) -> list[tuple[str, str]]:
        """Order and verdict."""
        return [(order, self.verdict) for order in ORDERS] if isinstance(self.verdict, str) else [*self.verdict.items()]


OK, LOCKED, WRONG, FAILED = kinds.VERIFIED, kinds.DEADLOCK, kinds.WRONG_BITS, kinds.ASSERTION
LATE = {"sc": OK, "relaxed": RACE}
"""Right if writes are visible at once only."""

TICKET = "atomic_taken 0.0 1; skip_unless 1 1 1; ge 0.4 1; load 1.0; store 1.0 3; quiet; add 0.4 1"
READ_BACK = "ge 0.4 1; in 1.0 1 0; set 1 0 1; wait 1 0 1; ub_load 0 1"
TRAPS = (
    # flags
    Trap("a pulse is missed", ("store 1.4 1; store 1.4 0", "eq 1.4 1"), LOCKED),
    Trap("a pulse is missed by unequal", ("store 1.4 1; store 1.4 0", "ne 1.4 0"), LOCKED),
    Trap("a pulse is missed by at least", ("store 1.4 1; store 1.4 0", "ge 1.4 1"), LOCKED),
    Trap("a counter runs past", ("store 1.4 1; store 1.4 2", "eq 1.4 1"), LOCKED),
    Trap("a counter may run past at least", ("store 1.4 1; store 1.4 2", "ge 1.4 1"), OK),
    Trap("a flag handed back", ("store 1.4 1; eq 1.4 0", "ne 1.4 0; store 1.4 0"), OK),
    Trap("two write a flag", ("store 1.4 1", "store 1.4 2", "eq 1.4 1"), LOCKED),
    Trap("two add to a counter", ("add 1.4 1", "add 1.4 1", "eq 1.4 2"), OK),
    Trap("a counter is missed", ("add 1.4 1", "add 1.4 1", "eq 1.4 1"), LOCKED),
    Trap("a flag by both ways", ("store 1.0 1", "put 1.0 1 2; store 1.0 2", "eq 1.0 1"), LOCKED),
    Trap("nobody sets a flag", ("ge 0.4 1", "skip_unless 0 0"), LOCKED),
    Trap("a loop of loads ends", ("store 1.0 1", "spin 1.0 1"), OK),
    Trap("a loop of loads need not end", ("store 1.0 1; store 1.0 2", "spin 1.0 1"), kinds.LIVELOCK),
    # data and a flag
    Trap("data behind a quiet", ("store 1.0 5; quiet; store 1.4 1", "ge 1.4 1; load 1.0"), OK),
    Trap("data without a quiet", ("store 1.0 5; store 1.4 1", "ge 1.4 1; load 1.0"), LATE),
    Trap("data behind an atomic", ("store 1.0 5; atomic 1.4 1", "ge 1.4 1; load 1.0"), LATE),
    Trap("data pulled early", ("store 1.0 5; quiet; store 1.4 1", "in 1.0 0 0; ge 1.4 1; quiet; ub_load 0 0"), RACE),
    Trap("data and flag in one piece", ("ub_store 3 0; ub_store 1 3; out 1.0 0 2", "ge 1.3 1; load 1.0"), OK),
    Trap("flag in the last of two pieces", ("ub_store 3 0; ub_store 1 7; out 1.0 0 4", "ge 1.7 1; load 1.0"), LATE),
    Trap("fields beside a polled word", ("put 1.0 1 1", "ge 1.0 1; load 1.1"), OK),
    Trap("fields that are overwritten", ("put 1.0 1 1; put 1.0 2 2", "ge 1.0 1; load 1.1"), RACE),
    Trap("a flag that is also data", ("store 1.0 1; store 1.4 1", "ge 1.4 1; load 1.0", "ge 1.0 1"), LATE),
    Trap("an index that was polled", ("store 1.1 3; quiet; store 1.4 1", "ge_taken 1.4 1; load_at 1.0"), OK),
    Trap("acknowledged after the load", ("store 1.0 5; quiet; store 1.4 1; ge 0.4 1; store 1.0 6",
                                         "ge 1.4 1; load 1.0; store 0.4 1"), OK),
    Trap("acknowledged before the load", ("store 1.0 5; quiet; store 1.4 1; ge 0.4 1; store 1.0 6",
                                          "ge 1.4 1; store 0.4 1; load 1.0"), RACE),
    Trap("acknowledged by DMA before the load", ("dma 0.0 1.4 0; load 1.0; wait 4 0 0", "ge 1.4 1; store 1.0 6"),
         RACE, memory={0: 1}),
    Trap("acknowledged by DMA after the load", ("load 1.0; dma 0.0 1.4 0; wait 4 0 0", "ge 1.4 1; store 1.0 6"),
         RACE, memory={0: 1}),
    Trap("acknowledged when pulled", ("store 1.0 5; quiet; store 1.4 1; ge 0.4 1; store 1.0 6",
                                      "ge 1.4 1; in 1.0 0 0; set 1 0 1; wait 1 0 1; put 0.4 1; ub_load 0 0"), OK),
    Trap("acknowledged while it is pulled", ("store 1.0 5; quiet; store 1.4 1; ge 0.4 1; store 1.0 6",
                                             "ge 1.4 1; in 1.0 0 0; put 0.4 1; set 1 0 1; wait 1 0 1"), RACE),
    Trap("a lock of tickets", (TICKET, TICKET), OK),
    Trap("a lock that nobody respects", ("atomic_taken 0.0 1; load 1.0; store 1.0 3; quiet; add 0.4 1",
                                         "atomic_taken 0.0 1; load 1.0; store 1.0 3; quiet; add 0.4 1"), RACE),
    # three cores
    Trap("passed on", ("store 0.0 5; quiet; store 1.0 1", "ge 1.0 1; store 2.0 1", "ge 2.0 1; load 0.0"), OK),
    Trap("passed on without a quiet", ("store 0.0 5; store 1.0 1", "ge 1.0 1; store 2.0 1", "ge 2.0 1; load 0.0"),
         LATE),
    Trap("more is passed on", ("store 0.0 1; quiet; store 1.0 1", "ge 1.0 1; store 1.4 3; quiet; store 2.0 1",
                               "ge 2.0 1; load 0.0; load 1.4"), OK),
    Trap("more is passed on without a quiet", ("store 0.0 1; quiet; store 1.0 1", "ge 1.0 1; store 1.4 3; store 2.0 1",
                                               "ge 2.0 1; load 0.0; load 1.4"), LATE),
    Trap("what was polled is passed on", ("store 0.0 1", "ge 0.0 1; store 1.0 1", "ge 1.0 1; load_named 0.0"), OK),
    # groups
    Trap("a barrier behind a quiet", ("store 0.0 5; quiet; arrive; await", "arrive; await; load 0.0"), OK, 2),
    Trap("a barrier without a quiet", ("store 0.0 5; arrive; await", "arrive; await; load 0.0"), LATE, 2),
    Trap("the quiet of another core", ("store 1.0 5; arrive; await", "arrive; await; quiet; store 1.4 1",
                                       "ge 1.4 1; load 1.0"), LATE, 2),
    Trap("the quiets of both cores", ("store 1.0 5; quiet; arrive; await", "arrive; await; quiet; store 1.4 1",
                                      "ge 1.4 1; load 1.0"), OK, 2),
    Trap("a barrier behind a load", ("load 0.0; arrive; await", "arrive; await; store 0.0 5"), OK, 2),
    Trap("a barrier while it is pulled", ("in 0.0 0 0; arrive; await; quiet", "arrive; await; store 0.0 5"), RACE, 2),
    # inside of a core
    Trap("a half that is used again", ("ub_store 3 0; out 1.0 0 0; ub_store 4 0; quiet; store 1.4 1",
                                       "ge 1.4 1; load 1.0"), RACE),
    Trap("a half that is used again when it has left", (
        "ub_store 3 0; out 1.0 0 0; set 3 0 0; wait 3 0 0; ub_store 4 0; quiet; store 1.4 1", "ge 1.4 1; load 1.0",
    ), OK),
    Trap("a half that is used again when another core says so", (
        "ub_store 1 0; out 1.0 0 0; put 1.4 1; ge 0.4 1; ub_store 2 0; quiet", "ge 1.4 1; put 0.4 1"), OK),
    Trap("another core says so without being asked", (
        "ub_store 1 0; out 1.0 0 0; put 1.4 1; ge 0.4 1; ub_store 2 0; quiet", "put 0.4 1; ge 1.4 1"), RACE),
    Trap("used before it is pulled", ("in 0.0 0 0; ub_load 0 0",), RACE),
    Trap("used when it is pulled", ("in 0.0 0 0; set 1 0 0; wait 1 0 0; ub_load 0 0",), OK),
    Trap("the event of another transfer", ("in 0.0 0 0; set 1 0 0; in 0.4 1 0; set 1 0 1; wait 1 0 0; ub_load 0 1; "
                                           "wait 1 0 1",), RACE),
    Trap("an event that nobody waits for", ("in 0.0 0 0; set 1 0 0",), kinds.LEFTOVER),
    Trap("read back behind a quiet", ("ub_store 3 0; out 0.0 0 0; quiet; in 0.0 1 0; quiet; ub_load 0 1",), OK),
    Trap("read back behind an event", ("ub_store 3 0; out 0.0 0 0; set 3 1 0; wait 3 1 0; in 0.0 1 0; quiet",), LATE),
    Trap("read back when polled", ("ub_store 3 0; out 0.0 0 0; eq 0.0 3; in 0.0 1 0; quiet; ub_load 0 1",), OK),
    Trap("read back when a later one is polled", ("ub_store 3 0; out 0.0 0 0; out 0.4 0 0; eq 0.4 3; in 0.0 1 0; "
                                                  "quiet; ub_load 0 1",), {"relaxed": RACE}),
    Trap("polled until it is old", ("ub_store 3 0; out 0.0 0 0; eq 0.0 0",), LOCKED),
    Trap("DMA that was waited for", ("dma 0.0 1.0 0; wait 4 0 0; store 1.4 1", "ge 1.4 1; load 1.0"), OK),
    Trap("DMA that was not waited for", ("dma 0.0 1.0 0; store 1.4 1; wait 4 0 0", "ge 1.4 1; load 1.0"), RACE),
    Trap("DMA of a late write", ("ub_store 3 0; out 0.0 0 0; set 3 0 0; wait 3 0 0; dma 0.0 0.4 0; wait 4 0 0",), LATE),
    # flags that their writer reads
    Trap("an own flag by a plain load", ("atomic 0.4 1; put 1.0 1; load 1.0; fail_unless 1 0", "ne_taken 1.0 0"),
         RACE),
    Trap("an own counter by a plain load", ("ge 0.4 1; add 1.0 1; load 1.0; fail_unless 1 2",
                                            "add 1.0 1; quiet; store 0.4 1", "ge 1.0 2"), ANY),
    Trap("own flags, torn", ("atomic 0.4 1; put 1.0 1; put 1.4 2; in 1.0 0 4; quiet; ub_load 0 4; skip_unless 0 2 2; "
                             "ub_load 0 0; fail_unless 1 1", "ne_taken 1.0 0; ne_taken 1.4 0"), RACE),
    Trap("flags that DMA copies in any order", ("dma 0.0 1.0 4; wait 4 0 4", "ne_taken 1.4 0; load_named 1.0; "
                                                "fail_unless 1 1"), RACE, memory={0: 1, 4: 1}),
    Trap("own data read back behind an answer", (f"ub_store 3 0; out 1.0 0 0; put 1.4 1; {READ_BACK}",
                                                 "ge 1.4 1; put 0.4 1"), {"sc": OK, "fifo": OK, "relaxed": RACE}),
    Trap("own data read back behind an answer, its flag to another die",
         (f"ub_store 3 0; out 1.0 0 0; put 2.4 1; {READ_BACK}", "skip_unless 0 0", "ge 2.4 1; put 0.4 1"),
         {"sc": OK, "fifo": RACE, "relaxed": RACE}),
    Trap("own data read back behind an answer to what came before it",
         (f"put 1.4 1; ub_store 3 0; out 1.0 0 0; {READ_BACK}", "ge 1.4 1; put 0.4 1"),
         {"fifo": RACE, "relaxed": RACE}),
    Trap("an answer frees the data buffer", ("ub_store 1 0; out 1.0 0 0; put 1.4 1; ge 0.4 1; ub_store 2 0; quiet",
                                             "ge 1.4 1; put 0.4 1"), OK),
    Trap("an atomic that waits for a write, a load beside it", ("add 1.4 1; atomic 1.0 3",
                                                                "atomic 1.0 1; add 1.4 1; load 1.0"), RACE),
    # what is released without a quiet
    Trap("a flag that does not wait for mtu-out", ("ub_store 5 0; out 1.0 0 0; store 1.4 1; quiet",
                                                   "ge 1.4 1; load 1.0"), RACE),
    Trap("a flag that waits for mtu-out", ("ub_store 5 0; out 1.0 0 0; set 3 0 1; wait 3 0 1; store 1.4 1; quiet",
                                           "ge 1.4 1; load 1.0"), {"sc": OK, "fifo": OK, "relaxed": RACE}),
    Trap("a flag for the data before it, read is what comes behind it",
         ("store 1.0 5; store 1.4 1; store 1.0 6; store 1.4 2", "ge 1.4 1; load 1.0"), RACE),
    Trap("data before a barrier", ("store 0.0 5; arrive; await", "load 0.0; arrive; await"), RACE, cores_per_die=2),
)  # fmt: skip


def wrong_of(trap: Trap) -> list[str]:
    """What the searches say of a trap that they should not."""
    wrong, small = [], trap.small()
    for order, verdict in trap.verdicts():
        for full in (True, False):
            found = search(small, order, full)
            said = verdict_of(found)
            right = found.violation if verdict == ANY else said == verdict or (verdict == RACE and said in RACES)
            if not right:
                wrong.append(f"{order}, {'full' if full else 'merged'}: {said}, not {verdict} {found.message}")
    return wrong


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_trap(trap: Trap) -> None:
    """Both searches give the verdict that the memory model gives."""
    assert not wrong_of(trap), trap.small()


@pytest.mark.slow
@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_trap_as_the_naive_search_sees_it(trap: Trap) -> None:
    """Both searches say what the naive one says, in each order and whichever end is the expected one."""
    small, wrong = trap.small(), []
    for order in ORDERS:
        outcomes = small.naive(order, LARGE.brute).outcomes
        for outcome in sorted({words[: small.n_words()] for words in outcomes})[:4] or [None]:
            scene = Scene(small, order, outcome, LARGE)
            wrong += judge_scene(scene, judges=("full", "merged", BRUTE_FORCE)).contradictions
    assert not wrong, small


@pytest.mark.nojit
@pytest.mark.parametrize("name", ["data behind a quiet", "data without a quiet", "a pulse is missed"])
def test_the_search_runs_as_plain_python(name: str) -> None:
    """The verdicts are the same with compiled functions and without."""
    (trap,) = (trap for trap in TRAPS if trap.name == name)
    assert not wrong_of(Trap(name, trap.programs, {"relaxed": dict(trap.verdicts())["relaxed"]}))
