"""Behind a search's local actions nothing local is left: what is local is not explored, so nobody would come to it."""

import pytest
from numba import config

from xccl_emu.check.search import setup
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import linked, run_local
from xccl_emu.guards.campaign.generate import draw
from xccl_emu.guards.campaign.judge import JudgeBudget, Scene, searched
from xccl_emu.guards.campaign.programs import ORDERS

PROGRAMS = 40


@pytest.mark.nojit
@pytest.mark.skipif(not config.DISABLE_JIT, reason="looks into the search, which runs as Python with the JIT off")
@pytest.mark.parametrize("order", ORDERS)
def test_nothing_local_is_left(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each transition of random programs' searches another round over all cores takes no local action."""
    transitions = 0

    def settled(mem, st, ck, rows, named, process, n):  # type: ignore[no-untyped-def]
        nonlocal transitions
        transitions, before = transitions + 1, ck[cs.ACTIONS]
        for m in range(ck[cs.N]):
            run_local.run_local(mem, st, ck, rows, named, ck[ck[cs.MEMBERS] + m])
        assert ck[cs.ACTIONS] == before
        return run_local.make_transition(mem, st, ck, rows, named, process, n)

    monkeypatch.setitem(setup._LINKED, linked.TRANSITION, settled)
    for number in range(PROGRAMS):
        scene = Scene(draw(0, number).small, order, None, JudgeBudget(states=60))
        searched(scene.trial, "full", scene.budget)
    assert transitions > PROGRAMS
