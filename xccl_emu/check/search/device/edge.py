"""Transitions that are kept, for questions about the graph of all states."""

from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.machine.device.words import jit

FROM, TO, PROCESS, CHOICE = range(4)
"""States by number; ``TO`` is -1 where a run ends."""
WORDS = 4
ROOM = 4096
"""Room for this many transitions, at least, before more of a state are made."""
RETURNED = -2
"""As the process: in this state all cores are done but those that are spared (`SPARED`)."""


@jit
def add(ck, edges, state, to, process, choice):
    """Keep a transition."""
    n = ck[cs.N_EDGES]
    edges[n, FROM], edges[n, TO], edges[n, PROCESS], edges[n, CHOICE] = state, to, process, choice
    ck[cs.N_EDGES] = n + 1


@cs.entry
def spread_back(edges, ending):
    """Mark in ``ending`` the states that come to an end, by ``edges``; was any new?

    Most transitions lead to a state that is expanded later, or, depth first, to one that was left before: both ways
    through them few rounds are left.
    """
    new = False
    for e in range(edges.shape[0] - 1, -1, -1):
        new |= _spread(edges, ending, e)
    for e in range(edges.shape[0]):
        new |= _spread(edges, ending, e)
    return new


@jit
def _spread(edges, ending, e):
    if ending[edges[e, FROM]] or not (edges[e, TO] < 0 or ending[edges[e, TO]]):
        return False
    ending[edges[e, FROM]] = True
    return True
