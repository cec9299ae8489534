"""The frames of the path, depth first, and from the first cycle on the components of the states.

Once a state has been reached from itself it matters whether every state has a way to an end.  States that can reach
each other are a component, and have such a way if one of them has (R. Tarjan, Depth-first search and linear graph
algorithms, 1972).  A state is *open* while its component may still grow: it is on the path, or can reach one that is.
States that are not open have a way to an end, or `checker_state.LOST` is 1.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.words import jit

(
    PROCESS, N, MARK, HASH, ANY, AHEAD, CHOICES,
    ENDS,  # is 1 if the state, or one of its component, is known to have a way to an end
    NUMBER,  # from the first cycle on: the number among the open states
    LOW,  # the lowest number that the state is known to reach
    ID,  # the number of the state, in order of coming
) = range(11)  # fmt: skip
WORDS = 11


class Opened(NamedTuple):
    """The open states: those that came last are closed first."""

    places: NDArray[np.int64]
    """A hash table: number + 1 of a state, 0 for a free place."""
    hashes: NDArray[np.uint64]
    """Their fingerprints by number, half as many."""


@jit
def as_kept(hash_):
    """A fingerprint as hash sets have it: 0 is a free place."""
    return hash_ if hash_ != 0 else np.uint64(1)


@jit
def open_frame(ck):
    """Begin with the state that the path leads to."""
    frame = ck[cs.FRAMES] + ck[cs.DEPTH] * WORDS
    if frame + 2 * WORDS > ck[cs.FRAMES_END]:
        ck[cs.LIMIT] = cs.LIMIT_DEPTH
        return
    ck[frame + PROCESS], ck[frame + N], ck[frame + ANY], ck[frame + CHOICES], ck[frame + ENDS] = -1, 0, 0, 0, 0
    ck[frame + MARK], ck[frame + HASH], ck[frame + ID] = ck[cs.LOG], ck[cs.HASH], ck[cs.STATES] - 1
    _count(ck, frame, 1)


@jit
def enter(ck, opened):
    """Open the state of the frame that was opened, if there are cycles."""
    if ck[cs.CYCLES] and not ck[cs.LIMIT]:
        _number(ck, opened, ck[cs.FRAMES] + ck[cs.DEPTH] * WORDS)


@jit
def leave(ck, opened, frame, ends):
    """Leave a state that is done with, for the one before it; ``ends`` if it is an end."""
    _count(ck, frame, -1)
    ck[cs.DEPTH] -= 1
    ck[frame + ENDS] |= ends
    before, low = frame - WORDS, ck[frame + LOW]
    if not ck[cs.CYCLES]:
        ck[frame + ENDS] = 1  # what it leads to was left before it
    elif low == ck[frame + NUMBER]:
        ck[cs.LOST] |= 1 - ck[frame + ENDS]
        _close(ck, opened, low)
    if ck[cs.DEPTH] >= 0:
        ck[before + ENDS] |= ck[frame + ENDS]
        if ck[cs.CYCLES]:
            ck[before + LOW] = min(ck[before + LOW], low)


@jit
def meet(st, ck, opened, frame, hash_):
    """Note that the state of a frame leads to a known one."""
    if not ck[cs.CYCLES]:
        if not _on_path(ck, hash_):
            ck[frame + ENDS] = 1
            return
        ck[cs.CYCLES] = 1
        ck[cs.LOST] = st[ms.CACHE_LINES] != 0  # where transitions are optional not every way counts: breadth first sees
        for d in range(ck[cs.DEPTH] + 1):
            _number(ck, opened, ck[cs.FRAMES] + d * WORDS)
    number = opened.places[_place_of(opened, as_kept(cs.unsigned(hash_)))] - 1
    if number < 0:
        ck[frame + ENDS] = 1
    else:
        ck[frame + LOW] = min(ck[frame + LOW], number)


@jit
def are_many(ck, opened):
    """Return whether the open states need more room before the search goes on."""
    return 2 * max(ck[cs.N_OPEN], ck[cs.DEPTH] + 1) + 2 > opened.places.size


@cs.entry
def number_all(ck, opened, larger):
    """Copy the open states into larger arrays."""
    n, ck[cs.N_OPEN] = ck[cs.N_OPEN], 0
    for number in range(n):
        _add(ck, larger, opened.hashes[number])


@jit
def _number(ck, opened, frame):
    ck[frame + NUMBER] = ck[frame + LOW] = ck[cs.N_OPEN]
    _add(ck, opened, as_kept(cs.unsigned(ck[frame + HASH])))


@jit
def _add(ck, opened, one):
    number = ck[cs.N_OPEN]
    opened.places[_place_of(opened, one)], opened.hashes[number], ck[cs.N_OPEN] = number + 1, one, number + 1


@jit
def _close(ck, opened, first):
    """Close the states from a number on: each leaves its place as it was before it came."""
    while ck[cs.N_OPEN] > first:
        ck[cs.N_OPEN] -= 1
        opened.places[_place_of(opened, opened.hashes[ck[cs.N_OPEN]])] = 0


@jit
def _place_of(opened, one):
    """Return the place of an open state, or the free place where it would be (open addressing)."""
    last = np.uint64(opened.places.size - 1)
    place = one & last
    while opened.places[np.int64(place)] != 0 and opened.hashes[opened.places[np.int64(place)] - 1] != one:
        place = (place + np.uint64(1)) & last
    return np.int64(place)


@jit
def _count(ck, frame, change):
    ck[ck[cs.ON_PATH] + (ck[frame + HASH] & cs.ON_PATH_WORDS - 1)] += change


@jit
def _on_path(ck, hash_):
    """Return whether a known state is on the path to the present one, or is it."""
    if ck[ck[cs.ON_PATH] + (hash_ & cs.ON_PATH_WORDS - 1)] == 0:
        return False
    for d in range(ck[cs.DEPTH] + 1):
        if ck[ck[cs.FRAMES] + d * WORDS + HASH] == hash_:
            return True
    return False
