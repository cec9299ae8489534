"""What runs of a small pod can come to from any of its states, by brute force: what no faster search may lose.

An *end* is what all cores have left and returned, a deadlock, or an error of the machine.  Where no run comes to one of
these, to go on for ever is an end too.  The graph is `machine.explore`'s: every action of every actor, nothing reduced.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xccl_emu.machine import driver
from xccl_emu.machine.device import ends as device
from xccl_emu.machine.device import explore as explore_device
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.driver import begin
from xccl_emu.machine.explore import changing, message_of, observed_words
from xccl_emu.machine.pod import Pod

DEADLOCK, FOR_EVER = "a deadlock", "it goes on for ever"
_STATE_WORDS_MAX = 1 << 13  # with rows for all states of a graph the address space is limit enough
_EDGES = 16
"""Most edges of a graph, for each state that there is room for."""


@dataclass(frozen=True)
class Ends:
    """What runs can come to from some states."""

    sets: NDArray[np.uint64]
    """For each state that was asked for, and before them the one in which the pod begins: a bit for each end."""
    names: tuple[str, ...]
    """What each bit means, in words."""
    states: int
    """How many the whole graph has."""

    def of(self, bits: NDArray[np.uint64]) -> list[str]:
        """The ends of a set, in words."""
        return [name for k, name in enumerate(self.names) if int(bits[k // 64]) >> k % 64 & 1]


def ends(
    pod: Pod,
    states: NDArray[np.uint64],
    observe: Sequence[tuple[int, int]] = (),
    max_states: int = 20_000,
) -> Ends | None:
    """Find what runs of what is launched on `pod` can come to, from its start and from each of some states.

    A state is a row of the words that `explore.changing` lists.  Ends differ if observed memory (as `explore` takes
    it) or what a core returns does.  None if there are more than ``max_states`` states or many more transitions, or if
    one takes more than 64 KiB.  Raises as `explore` does.
    """
    observed = observed_words(pod, observe)
    begin(pod)
    parts = changing(pod)
    n = int(parts[:, 2].sum())
    space = (pod.memory, pod.state, pod.memory.view(np.uint64), pod.state.view(np.uint64))
    root = np.zeros((1, n), np.uint64)
    explore_device.save(space, parts, root, 0)
    given = np.concatenate([root, states.reshape(-1, n)])
    most = max_states + len(given)
    if n > _STATE_WORDS_MAX or len(states) > max_states:
        return None
    table = np.zeros((1 << (2 * most).bit_length(), 3), np.uint64)
    graph = (
        np.empty((most, n), np.uint64),
        np.zeros(most, np.int64),
        table,
        np.empty((_EDGES * most, 2), np.int64),
        np.empty((most, 2 + max(len(observed), explore_device.ERROR_WORDS)), np.int64),
        np.zeros(4, np.int64),
    )
    met = np.zeros(len(given), np.int64)
    try:
        # hashes wrap; with the JIT off NumPy would warn
        with np.errstate(over="ignore"), driver.arithmetic_of(pod.kernels):
            device.meet_all(space, parts, graph, given, met)
            if device.expand(space, parts, graph, observed) == device.FULL:
                return None
    finally:
        explore_device.restore(space, parts, root, 0)
        pod.state[[ms.N_ACTIVE, ms.N_ACTIVE_DIES, ms.N_LIVE]] = 0
    n_states, n_edges, n_ends = (int(graph[-1][k]) for k in (device.STATES, device.EDGES, device.ENDS))
    return _spread(pod, graph[3][:n_edges], graph[4][:n_ends], n_states, met)


def _spread(
    pod: Pod, edges: NDArray[np.int64], found: NDArray[np.int64], n_states: int, met: NDArray[np.int64]
) -> Ends:
    """Number what was found, and say of each state that was met which of it can be reached."""
    order = {what: k + 1 for k, what in enumerate(dict.fromkeys(end.tobytes() for end in found[:, 1:]))}
    sets = np.zeros((n_states + 1, len(order) // 64 + 1), np.uint64)
    for end in found:
        k = order[end[1:].tobytes()]
        sets[end[0], k // 64] |= np.uint64(1 << k % 64)
    device.spread(edges, len(edges), sets)
    sets[~sets.any(axis=1), 0] = 1
    device.spread(edges, len(edges), sets)
    names = (FOR_EVER, *(_name(pod, np.frombuffer(what, np.int64)) for what in order))
    return Ends(sets[met], names, n_states)


def _name(pod: Pod, end: NDArray[np.int64]) -> str:
    if end[0] == device.DEADLOCK:
        return DEADLOCK
    if end[0] == device.ERROR:
        return message_of(pod, tuple(end[1 : 1 + explore_device.ERROR_WORDS].tolist()))
    words = ((k, int(word)) for k, word in enumerate(end[1:]) if word)
    return "words " + (", ".join(f"{k}: {word}" for k, word in words) or "all 0")
