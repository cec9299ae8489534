"""Breadth first: for a violation with the fewest transitions, and for the graph of all states.

No state is kept, only how it was reached.  To expand a state, the search goes back to where the path to it leaves the
present one and goes on from there; states that wait in line mostly differ from their neighbours in the last step.
"""

from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import dfs, edge, frames
from xccl_emu.check.search.device.linked import transition
from xccl_emu.check.search.device.run_local import go, n_tried, need_not_happen, over
from xccl_emu.machine.device.words import jit

PARENT, PROCESS, CHOICE, DEPTH_OF = range(4)
QUEUE_WORDS = 4


@jit
def _go_to(mem, st, ck, rows, named, queue, state):
    """Bring the machine to a state: back to where its path leaves the present one, then forward."""
    d, at = queue[state, DEPTH_OF], state
    while d > ck[cs.DEPTH] or ck[ck[cs.FRAMES] + d * frames.WORDS + frames.ID] != at:
        ck[ck[cs.FRAMES] + d * frames.WORDS + frames.ID] = at  # where the way leads, for when it is gone
        at = queue[at, PARENT]
        d -= 1
    cs.step_back(mem, st, ck, ck[ck[cs.FRAMES] + d * frames.WORDS + frames.MARK])
    ck[cs.HASH], ck[cs.DEPTH] = ck[ck[cs.FRAMES] + d * frames.WORDS + frames.HASH], d
    while d < queue[state, DEPTH_OF]:
        frame = ck[cs.FRAMES] + d * frames.WORDS
        at = ck[frame + frames.WORDS + frames.ID]
        ck[frame + frames.PROCESS], ck[frame + frames.N] = queue[at, PROCESS], queue[at, CHOICE] + 1
        transition(mem, st, ck, rows, named, queue[at, PROCESS], queue[at, CHOICE])
        d += 1
        ck[cs.DEPTH] = d
        frames.open_frame(ck)
        ck[frame + frames.WORDS + frames.ID] = at


@cs.entry
def breadth_first(mem, st, ck, rows, named, graph, budget):
    """Expand states in order; `ENDED`, `PAUSED`, or `TABLE_FULL` when what it is given must grow.

    ``graph`` is a hash table, the numbers of the states that it holds, queue (half as long as these) and edges:
    ``queue`` [states, 4] holds parent, process, choice and depth of each state; ``edges`` [n, 4] takes transitions as
    (from, to, process, choice).
    """
    _, _, queue, edges = graph
    taken = 0
    while ck[cs.QUEUE_HEAD] < ck[cs.QUEUE_TAIL] and not over(ck):
        if taken >= budget or ck[cs.STATES] > ck[cs.STATES_MAX]:
            return dfs.PAUSED
        if ck[cs.QUEUE_TAIL] + edge.ROOM > queue.shape[0] or ck[cs.N_EDGES] + edge.ROOM > edges.shape[0]:
            return dfs.TABLE_FULL
        state = ck[cs.QUEUE_HEAD]
        _go_to(mem, st, ck, rows, named, queue, state)
        taken += 1
        moved = _expand(mem, st, ck, rows, named, graph, state)
        if over(ck):
            return dfs.ENDED
        if not moved:
            ck[ck[cs.FRAMES] + ck[cs.DEPTH] * frames.WORDS + frames.N] = (
                0  # what need not happen is not on the way here
            )
            dfs.judge_end(mem, st, ck)
        dfs.keep_ends(st, ck, edges, state, moved)
        ck[cs.QUEUE_HEAD] += 1
    return dfs.ENDED


@jit
def _expand(mem, st, ck, rows, named, graph, state):
    """Try every transition of the present state; False if there is none that must happen sooner or later."""
    table, ids, queue, edges = graph
    frame, moved = ck[cs.FRAMES] + ck[cs.DEPTH] * frames.WORDS, False
    for process in range(dfs.n_processes(st, ck)):
        for n in range(n_tried(mem, st, ck, named, process)):
            optional = need_not_happen(st, ck, process, n)
            if go(mem, st, ck, rows, named, process, n):
                moved = moved or not optional & 1
                ck[cs.TRANSITIONS] += 1
                ck[frame + frames.PROCESS], ck[frame + frames.N] = process, n + 1
                if over(ck):
                    return True
                to = dfs.find_or_add(table, ids, ck[cs.HASH], ck[cs.QUEUE_TAIL])
                if to == ck[cs.QUEUE_TAIL]:
                    queue[to, PARENT], queue[to, PROCESS], queue[to, CHOICE] = state, process, n
                    queue[to, DEPTH_OF] = ck[cs.DEPTH] + 1
                    ck[cs.QUEUE_TAIL] += 1
                    ck[cs.STATES] += 1
                if not optional:  # a run that waits for such a transition may wait for ever
                    edge.add(ck, edges, state, to, process, n)
                elif queue[to, DEPTH_OF] <= ck[cs.DEPTH]:
                    ck[cs.CYCLES] = 1
                cs.step_back(mem, st, ck, ck[frame + frames.MARK])
                ck[cs.HASH] = ck[frame + frames.HASH]
    return moved
