"""Programs of which the exhaustive search once said "verified" though they are wrong, and some that it must verify."""

from dataclasses import dataclass, field

import pytest

from xccl_emu.campaign.judge import SEARCHES, Budget, searched, verdict_of
from xccl_emu.campaign.programs import ORDERS, Small, program
from xccl_emu.check import verdict as kinds
from xccl_emu.check.check import check
from xccl_emu.check.sampling.sample import replay, sample
from xccl_emu.check.trial import Expected, Trial

BUDGET = Budget(states=200_000, seconds=60)
ANY = frozenset({kinds.DATA_RACE, kinds.TORN_METADATA, kinds.DEADLOCK, kinds.UNWRITTEN_READ, kinds.WRONG_BITS})
RACE = frozenset({kinds.DATA_RACE, kinds.TORN_METADATA})
LOCKED, WRONG = frozenset({kinds.DEADLOCK}), frozenset({kinds.WRONG_BITS})
UNWRITTEN, LIVELOCK = frozenset({kinds.UNWRITTEN_READ}), frozenset({kinds.LIVELOCK})
NOTHING, UNFINISHED = frozenset({kinds.VERIFIED}), frozenset({kinds.UNFINISHED})
EVERYWHERE_FINE = dict.fromkeys(ORDERS, NOTHING)


@dataclass(frozen=True)
class Attack:
    """Programs of cores, most often a die each, and what may be said of them, by order if that matters."""

    name: str
    programs: tuple[str, ...]
    allowed: frozenset[str] | dict[str, frozenset[str]]
    expected: dict[int, int] | None = None
    """Words (as `Small.memory` names them) that must hold a value at the end."""
    owned: bool = False
    """Does the first core own them, so that they are judged when it returns?"""
    dies: int = 0
    cores_per_die: int = 1
    fresh: bool = False
    memory: dict[int, int] = field(default_factory=dict)

    def trial(self, order: str) -> Trial:
        """Built anew."""
        small = Small(
            tuple(program(text) for text in self.programs), self.cores_per_die, self.dies, self.memory, fresh=self.fresh
        )
        trial = small.trial(order, None)
        owners = (0,) if self.owned else ()
        expected = tuple(
            Expected(f"word {word}", trial.pod.meta(word >> 3 & 3, 8 * (word & 7)), value.to_bytes(8, "little"), owners)
            for word, value in (self.expected or {}).items()
        )
        return Trial(trial.pod, expected, trial.filled)

    def allows(self, order: str) -> frozenset[str]:
        """What may be said under an order."""
        return self.allowed[order] if isinstance(self.allowed, dict) else self.allowed


HINT = "store 1.7 1; store 1.7 2"
"""A word that is 1 for a moment: a branch on meeting that is rare."""
COUNT = "store 1.7 1; quiet; store 1.7 2; quiet; store 1.7 3; quiet; store 1.7 4"
FIELD = "ub_store 3 0; put 1.0 1 5; put 1.0 2 3; out m1.0 0 0; quiet; put 1.0 3 7"
PULL = "in m1.0 0 0; set 1 0 0; wait 1 0 0"
LOOK = "load_named 1.7; skip_unless 0 1 2"
LOOKS = "load_named 1.7; skip_unless 0 1 4; load_named 1.7; skip_unless 0 3 2"
"""What follows is: the rare instruction, a jump over the other one, and that."""
SEQLOCK = "store 0.0 1; quiet; store 0.4 5; quiet; store 0.0 2; quiet"

ATTACKS = (
    # A: facts that grew without a change of class
    Attack("two pipes to one flag",
           (f"put 1.0 1; {LOOK}; store 1.0 2; skip_if 0 1 1; put 1.0 2", "ge_taken 1.0 2", HINT), LOCKED),
    Attack("two pipes to one flag, rarer",
           (f"put 1.0 1; {LOOKS}; store 1.0 2; skip_if 0 3 1; put 1.0 2", "ge_taken 1.0 2", COUNT), LOCKED),
    Attack("a second polled word of a field",
           (FIELD, f"{LOOK}; ge 1.1 5; skip_if 0 1 1; ge 1.0 3; {PULL}", HINT), ANY),
    Attack("a second polled word of a field, rarer",
           (FIELD, f"{LOOKS}; ge 1.1 5; skip_if 0 3 1; ge 1.0 3; {PULL}", COUNT), ANY),
    # B: livelock breadth first
    Attack("a reader that never agrees", ("store 1.0 1; store 1.0 2", "spin 1.0 1"), LIVELOCK),
    # C: mtu-out over several pieces
    Attack("a later piece of a transfer", ("ub_store 3 4; out 1.0 0 4; store 1.4 7", "ge 1.4 7"), LOCKED),
    Attack("parts of two pieces", ("ub_store 1 0; ub_store 3 1; out 1.3 0 1; store 1.4 7", "ge 1.4 7"), LOCKED),
    # D: expected bytes that belonged to no part
    Attack("bytes that nobody writes", ("store 0.0 1", "store 1.0 1"), WRONG, {0o20: 9}, dies=3),
    Attack("bytes that nobody may write, written late",
           ("load_named 1.7; skip_unless 0 1 1; store 3.0 5", HINT, "store 2.0 1"), WRONG, {0o30: 0}, dies=4),
    # E: polls as accesses
    Attack("a flag by DMA", ("dma 0.0 1.4 0; wait 4 0 0", "ge 1.4 1"), RACE, memory={0: 1}),
    Attack("a poll that DMA passes by", ("dma 0.0 1.4 0; wait 4 0 0; store 1.4 2", "ge 1.4 2"), RACE, memory={0: 1}),
    Attack("a flag by mtu-out of less than a piece", ("ub_store 1 0; out 1.4 0 0", "ge 1.4 1"), NOTHING),
    # F: a core and its own flag
    Attack("an own flag read plainly", ("put 1.0 1; set 3 0 0; wait 3 0 0; load 1.0", "ge 1.0 1"),
           {"sc": NOTHING, "fifo": RACE, "relaxed": RACE}),
    Attack("an own flag read plainly, not waited for", ("put 1.0 1; load 1.0", "ge 1.0 1"), RACE),
    Attack("an own flag read behind a quiet", ("put 1.0 1; quiet; load 1.0", "ge 1.0 1"), NOTHING),
    Attack("an own flag polled, then read", ("put 1.0 1; ge 1.0 1; load 1.0", "ge 1.0 1"), NOTHING),
    Attack("data in flight read back, nobody else there",
           ("ub_store 3 0; out m1.0 0 0; set 3 1 0; wait 3 1 0; in m1.0 4 0; quiet", "quiet"),
           {"sc": NOTHING, "fifo": RACE, "relaxed": RACE}),
    Attack("two whole writes by two pipes, polled in some runs",
           ("put 1.0 1; store 1.0 2", "load_named 1.7; skip_unless 0 1 1; ge 1.0 1", HINT), NOTHING),
    Attack("two whole writes by two cores, in metadata", ("store 1.0 1", "store 1.0 2"), NOTHING, dies=2),
    Attack("two whole writes by two cores, in a managed area", ("store m1.0 1", "store m1.0 2"), RACE, dies=2),
    # G: what nobody has written
    Attack("a data buffer that nobody has written", ("out 1.0 0 0",), UNWRITTEN, dies=2, fresh=True),
    Attack("a half of a data buffer", ("ub_store 1 0; out 1.0 0 1",), UNWRITTEN, dies=2, fresh=True),
    Attack("a data buffer that was filled", ("ub_store 1 0; ub_store 1 1; out 1.0 0 1",), NOTHING, dies=2, fresh=True),
    Attack("a plain read of a managed area", ("load m1.0",), UNWRITTEN, dies=2),
    # what an attack on the argument found
    Attack("DMA over an own write in flight", ("store 0.0 5; dma 0.4 0.0; wait 4",),
           {**EVERYWHERE_FINE, "relaxed": RACE}),
    Attack("DMA over an own write that is visible", ("store 0.0 5; quiet; dma 0.4 0.0; wait 4",), NOTHING),
    Attack("a descriptor used again while mtu-out does not know",
           ("ge 0.0 1; in m1.0 8; set 1 3; wait 1 3; out m0.0; dma_data m0.4 0.0; wait 4; dma_data m0.4 0.1; wait 4",
            "store m1.0 7; quiet; store 0.0 1"), RACE | UNFINISHED, memory={0o44: 7}),
    Attack("an own store polled, then copied by DMA", ("store 1.0 1; eq 1.0 1; dma 1.0 1.4; wait 4",),
           {"sc": NOTHING, "fifo": RACE, "relaxed": RACE}, dies=2),
    Attack("an own put polled, then copied by DMA", ("put 1.0 1; eq 1.0 1; dma 1.0 1.4; wait 4",), NOTHING, dies=2),
    Attack("an owner that returns at any moment", ("end", "store 0.1 6; quiet; store 0.1 5"), WRONG, {1: 5},
           memory={1: 5}, owned=True),
    Attack("an owner whose bytes stay the same", ("end", "store 0.1 5"), NOTHING, {1: 5}, memory={1: 5}, owned=True),
    Attack("two flags of one core by two pipes", ("put 1.0 1; store 1.0 2",), NOTHING, dies=2),
    Attack("an answered flag while a later one flies",
           ("ub_store 5; out m1.0; put 1.0 1; put 1.4 1; ge 0.0 1; ub_store 6", "ge 1.0 1; store 0.0 1; ge 1.4 1"),
           NOTHING),
    Attack("an event set again behind an answer",
           ("in 0.4; set 1 3; wait 1 3; put 1.0 1; ge 0.0 1; set 1 3; wait 1 3", "ge 1.0 1; store 0.0 1"), NOTHING),
    # right all along
    Attack("pushed into a die that is done", ("ub_store 5 0; out 1.0 0 0", "store 1.4 1"), NOTHING, {0o10: 5}),
    Attack("a seqlock by named loads",
           (SEQLOCK, "load_named 0.0; skip_unless 0 2 3; load_named 0.4; skip_if 0 5 1; fail_unless 7 5"), NOTHING),
    Attack("a seqlock that reads plainly", (SEQLOCK, "load_named 0.0; load 0.4; load_named 0.0"), RACE),
)  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_every_search_judges_rightly(attack: Attack) -> None:
    """Full, merged and breadth-first searches say what is right under each order, and what they find replays."""
    for order in ORDERS:
        for name in SEARCHES:
            found = searched(attack.trial(order), name, BUDGET)
            assert verdict_of(found) in attack.allows(order), (order, name, found.message)
            if found.violation:
                assert replay(attack.trial(order), found.actions, found.loop) is not None, (order, name, found.message)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_sampled_schedules_never_contradict(attack: Attack) -> None:
    """Where the searches verify, schedules of the portfolio find nothing under the monitor."""
    for order in ORDERS:
        if attack.allows(order) == NOTHING:
            found = sample(attack.trial(order), schedules=300).violation
            assert found is None, (order, found.message if found else "")


@dataclass(frozen=True)
class Loops:
    """A reader that spins until a word is 1, which it is for a moment only."""

    name: str = "loops"
    configuration: dict[str, int | str] = field(default_factory=dict)

    def build(self, order: str, without: tuple[str, ...] = ()) -> Trial:
        """Launched."""
        return Attack("", ("store 1.0 1; store 1.0 2", "spin 1.0 1"), LIVELOCK).trial(order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("breadth_first", [False, True])
def test_a_livelock_is_told_with_its_loop(order: str, breadth_first: bool) -> None:
    """The last actions of its witness lead from a state back to it, and its replay says livelock."""
    verdict = check(Loops(), order=order, breadth_first=breadth_first)
    assert verdict.violation is not None
    assert verdict.violation.kind == kinds.LIVELOCK
    assert 0 < verdict.violation.loop < len(verdict.violation.actions)
    again = replay(Loops().build(order), verdict.violation.actions, verdict.violation.loop)
    assert again is not None
    assert again.kind == kinds.LIVELOCK


@pytest.mark.parametrize("order", ["sc", "fifo"])
def test_a_cycle_is_searched_under_its_own_order(order: str) -> None:
    """A verdict under relaxed is handed on only if no state can be reached from itself."""
    verdict = check(Endless(), order=order)
    assert verdict.verdict == kinds.VERIFIED
    assert "relaxed" not in verdict.reason


@dataclass(frozen=True)
class Endless:
    """A reader that spins, and in the end sees what it waits for."""

    name: str = "endless"
    configuration: dict[str, int | str] = field(default_factory=dict)

    def build(self, order: str, without: tuple[str, ...] = ()) -> Trial:
        """Launched."""
        return Attack("", ("store 1.0 1", "spin 1.0 1"), NOTHING).trial(order)
