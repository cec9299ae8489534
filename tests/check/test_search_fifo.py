"""The search under `fifo`: data and flags before their turn, where nobody can tell, and in their turn where one can."""

import pytest

from examples.ring_all_gather import ring_all_gather
from tests.machine.support import small
from xccl_emu.check.search.exhaustive import Found, Search
from xccl_emu.check.search.setup import Setup
from xccl_emu.check.trial import Checkable
from xccl_emu.check.verdict import VERIFIED
from xccl_emu.guards.campaign.generate import AN_END, ProgramCase
from xccl_emu.guards.campaign.judge import BUDGET, Scene, judge_scene, outcome_of
from xccl_emu.protocol.registry import make
from xccl_emu.protocols.sendrecv.case import SendRecvCase

PROGRAMS = {
    "data and a flag behind it": (1, "store m1.0 5; put 1.4 1 | ge 1.4 1; load m1.0", True),
    "a flag before its data": (1, "put 1.4 1; store m1.0 5 | ge 1.4 1; load m1.0", False),
    "a flag of another core behind a barrier": (
        2, "store m1.0 5; arrive; await | arrive; await; put 1.4 1 | ge 1.4 1; load m1.0", True,
    ),
    "a flag of another core": (2, "store m1.0 5 | put 1.4 1 | ge 1.4 1; load m1.0", False),
    "a flag to another die": (1, "store m1.0 5; put 2.4 1 | ge 1.4 1; load m1.0 | ge 2.4 1; put 1.4 1", False),
    "a quiet that waits for another core's flag": (
        2, "store 1.4 1; arrive; await | arrive; await; store m1.0 5; quiet; put 2.4 1 | ge 1.4 0 | ge 1.4 0 | "
           "ge 2.4 1; load_named 1.4", True,
    ),
    "two flags of two cores to one reader": (
        2, "store 1.4 1; arrive; await | arrive; await; put 1.0 1 | ge 1.0 1; load_named 1.4", True,
    ),
    "data by two pipes, then a flag": (
        1, "ub_store 3 0; out m1.0 0 2; store m1.4 5; quiet; put 1.4 1 | ge 1.4 1; load m1.4; load m1.0", True,
    ),
    "data over data that keeps its turn": (
        1, "ub_store 3 0; out m1.0 0 4; set 3 0 1; wait 3 0 1; store m1.0 6; put 1.4 2 | "
           "ge 1.4 2; load m1.0; load m1.4", True,
    ),
}  # fmt: skip


def searched(case: Checkable, order: str, full: bool = True) -> Found:
    """What the search under this very order finds; nothing is handed on."""
    return Search(Setup(case.build(order), full=full), max_states=200_000, seconds=60, progress=None).run()


@pytest.mark.parametrize("name", PROGRAMS)
def test_judges_agree(name: str) -> None:
    """Full, merged and breadth-first search, brute force and sampling say the same of what only `fifo` orders."""
    cores, text, right = PROGRAMS[name]
    case = ProgramCase(small(text, cores_per_die=cores), AN_END)
    outcome = outcome_of(case, Scene(case.small, "sc", None, BUDGET))
    judged = judge_scene(Scene(case.small, "fifo", outcome, BUDGET))
    assert judged.contradictions == []
    assert (judged.verdicts["full"] == VERIFIED) == (judged.verdicts["merged"] == VERIFIED) == right


@pytest.mark.parametrize("order", ["sc", "fifo"])
def test_the_ring_has_as_few_states_under_each_order(order: str) -> None:
    """Four dies, each order searched by itself: as many states as under `relaxed`."""
    relaxed, found = searched(ring_all_gather(dies=4), "relaxed"), searched(ring_all_gather(dies=4), order)
    assert (found.reason, found.violation, found.states) == ("", 0, relaxed.states)
    assert found.states <= 10_000


@pytest.mark.parametrize(
    "case", [SendRecvCase(slots=1, chunks=2, granules=2), make("all-gather-ring", ranks=2)], ids=["sendrecv", "ring"]
)
def test_shipped_protocols_are_verified_in_fewer_states(case: Checkable) -> None:
    """The full search says what the one says that merges only, and has fewer states."""
    full, merged = searched(case, "fifo"), searched(case, "fifo", full=False)
    assert (full.reason, full.violation, merged.reason, merged.violation) == ("", 0, "", 0)
    assert full.states < merged.states
