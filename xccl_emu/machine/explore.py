"""Every schedule and delivery order of a small pod, found the naive way: the reference that faster searches must equal.

From each state every action of every actor is tried, one grain or one write at a time; nothing is merged or reduced.
States are told apart by 128-bit fingerprints of what can influence the rest of the run: counters, the table of last
writers, random state and logs are left out, queues are read from their head, and of the writes in flight only that
order counts which the memory order keeps.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xccl_emu.errors import CapacityError, ConfigError
from xccl_emu.lang.abi import REGISTERS, RESULT
from xccl_emu.machine import compiled, report
from xccl_emu.machine import layout as at
from xccl_emu.machine.actions import act, choices, nth_choice
from xccl_emu.machine.driver import begin
from xccl_emu.machine.flight import flight
from xccl_emu.machine.pipes import entry_of
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.policies.common import n_actors, nth_actor
from xccl_emu.machine.words import jit

Words = tuple[int, ...]
_STATE_WORDS_MAX = 1 << 17
_ROWS, _ROWS_LEAST = 1 << 12, 1 << 6  # outcomes, or errors, that are kept until Python fetches them
_ROW_WORDS = 1 << 22  # that all these rows have about; more if one state can have more
_SLICE_FIRST, _SLICE_SECONDS = 1 << 7, 0.05  # states expanded between two looks at the clock, and how long that takes
_ERROR_WORDS = at.ERROR_B + 1 - at.ERROR
_STACK, _STATES, _TRANSITIONS, _DEADLOCKS, _OUTCOMES, _ERRORS, _SLICE = range(7)  # what is counted; what is left to do
_ENDED, _STACK_FULL, _TABLE_FULL, _ROWS_FULL, _PAUSED = range(5)  # why the search stops
_MEMORY, _PLAIN, _QUEUE, _FLIGHTS, _UNHASHED = range(5)  # kinds of the parts of the state that can change

_SEED_1, _PRIME_1, _SHIFT_1 = np.uint64(0x243F6A8885A308D3), np.uint64(0x9E3779B97F4A7C15), np.uint64(29)
_SEED_2, _PRIME_2, _SHIFT_2 = np.uint64(0x13198A2E03707344), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(32)


@dataclass(frozen=True)
class Bounds:
    """Limits of the machine within which a search is exhaustive."""

    grains: int
    """In so many grains a transfer is read at most; one of more pieces is read several pieces at a time."""
    queue_depth: int
    """Instructions that a pipe's queue holds; a kernel that issues more waits."""
    dma_descriptors: int
    """Of one core."""
    flight_pieces: int
    """Writes in flight that a die holds; 0 under `sc`."""


@dataclass(frozen=True)
class Explored:
    """What a search found."""

    states: int
    """Different states, by 128-bit fingerprint."""
    transitions: int
    """Enabled actions over all these states, with those that end in a violation."""
    outcomes: frozenset[Words]
    """At each end with all kernels done: the observed words, then what each core returned, in the order of cores."""
    deadlocks: int
    """States in which some kernel is not done and nothing can go on."""
    errors: frozenset[str]
    """Messages of the violations; the search does not go on behind one."""
    complete: bool
    """False if the search met a limit: of states, seconds or bytes."""
    bounds: Bounds
    """What "every schedule" means: nothing is said of a machine with wider ones."""


def explore(
    pod: Pod,
    observe: Sequence[tuple[int, int]] = (),
    max_states: int = 1_000_000,
    seconds: float | None = None,
    max_bytes: int | None = None,
) -> Explored:
    """Explore every run of what is launched on `pod`, which is afterwards as it was before its first action.

    `observe` lists ranges of memory as (address, bytes), both multiples of 8.  It stops with more than ``max_states``
    states, after about ``seconds`` (to compile does not count), or before states that wait and fingerprints take
    ``max_bytes``.  Raises CapacityError if more than a MiB of the pod can change, ConfigError for a bad range, a pod
    that is not ready to run or one of plain generators (their locals cannot be put back), KernelError where the
    arithmetic of a kernel fails.
    """
    observed = _observed(pod, observe)
    begin(pod)
    parts = _parts(pod)
    if parts[:, 2].sum() > _STATE_WORDS_MAX:
        most = 8 * _STATE_WORDS_MAX
        raise CapacityError(f"pod {pod.spec.name}: more than {most} bytes can change; take a smaller one")
    space = (pod.memory, pod.state, pod.memory.view(np.uint64), pod.state.view(np.uint64))
    stack, table = np.zeros((64, int(parts[:, 2].sum())), np.uint64), np.zeros((1 << 12, 2), np.uint64)
    n_rows = min(_ROWS, max(_ROWS_LEAST, _ROW_WORDS // max(len(observed), 1)))
    outcomes, errors = np.zeros((n_rows, len(observed)), np.int64), np.zeros((n_rows, _ERROR_WORDS), np.int64)
    counted, at_once = np.zeros(7, np.int64), _SLICE_FIRST
    ends, bad = set[Words](), set[Words]()
    root = stack[:1].copy()
    _save(space, parts, root, 0)
    why = _ROWS_FULL
    try:
        # hashes wrap; with the JIT off NumPy would warn
        with np.errstate(over="ignore"), compiled.arithmetic_of(pod.kernels):
            _push(space, parts, stack, table, counted)
            _search(space, parts, observed, stack, table, outcomes, errors, counted, max_states)  # nothing, but compile
            started = time.perf_counter()
            while why != _ENDED:
                looked, counted[_SLICE] = time.perf_counter(), at_once
                why = _search(space, parts, observed, stack, table, outcomes, errors, counted, max_states)
                if why == _ROWS_FULL and not counted[_OUTCOMES] and not counted[_ERRORS]:  # too few for one state
                    outcomes, errors = np.concatenate([outcomes] * 2), np.concatenate([errors] * 2)
                ends.update(map(tuple, outcomes[: counted[_OUTCOMES]].tolist()))
                bad.update(map(tuple, errors[: counted[_ERRORS]].tolist()))
                counted[_OUTCOMES] = counted[_ERRORS] = 0
                if _over(started, seconds) or _too_large(why, stack, table, max_bytes):
                    break
                if why == _PAUSED:
                    at_once = at_once * 2 if time.perf_counter() - looked < _SLICE_SECONDS else max(at_once // 2, 1)
                elif why == _STACK_FULL:
                    stack = np.concatenate([stack, np.zeros_like(stack)])
                elif why == _TABLE_FULL:
                    table = _add_all(table, np.zeros((4 * len(table), 2), np.uint64))
    finally:
        _restore(space, parts, root, 0)
        pod.state[[at.N_ACTIVE, at.N_ACTIVE_DIES, at.N_LIVE]] = 0
    states, transitions, deadlocks = (int(counted[i]) for i in (_STATES, _TRANSITIONS, _DEADLOCKS))
    messages = frozenset(_message(pod, error) for error in bad)
    bounds = Bounds(at.MAX_GRAINS, at.QUEUE_DEPTH, at.N_DMA_SLOTS, int(pod.state[at.FLIGHT_CAPACITY]))
    return Explored(states, transitions, frozenset(ends), deadlocks, messages, not counted[_STACK], bounds)


def standing(pod: Pod) -> tuple[int, int]:
    """Fingerprint of the state in which a run of a pod stands: equal for states that `explore` takes for one."""
    parts = _parts(pod)
    space = (pod.memory, pod.state, pod.memory.view(np.uint64), pod.state.view(np.uint64))
    with np.errstate(over="ignore"):
        one, two = _fingerprint(space, parts)
    return int(one), int(two)


def _over(started: float, seconds: float | None) -> bool:
    return seconds is not None and time.perf_counter() - started > seconds


def _too_large(why: int, stack: NDArray[np.uint64], table: NDArray[np.uint64], max_bytes: int | None) -> bool:
    """Would what has to grow now take too much memory?  (While it grows the old one is there too.)"""
    if max_bytes is None or why not in (_STACK_FULL, _TABLE_FULL):
        return False
    grown = 2 * stack.nbytes if why == _STACK_FULL else 4 * table.nbytes
    return stack.nbytes + table.nbytes + grown > max_bytes


def _observed(pod: Pod, ranges: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Words that make an outcome, [n, 2]: 1 and index in memory, or 0 and index in state."""
    end = pod.spec.n_dies * pod.spec.die_bytes
    for address, nbytes in ranges:
        if address % 8 or nbytes % 8 or nbytes < 0 or not 0 <= address <= end - nbytes:
            raise ConfigError(f"observe: {nbytes} bytes at {address}: must be multiples of 8 inside of the pod")
    words = [(1, word) for address, nbytes in ranges for word in range(address // 8, (address + nbytes) // 8)]
    return np.array(words + [(0, pod.core_base(core) + RESULT) for core in pod.active_cores()], np.int64).reshape(-1, 2)


def _parts(pod: Pod) -> NDArray[np.int64]:
    """What a run can change, [n, 3]: kind, first word, words."""
    spec, st, cores = pod.spec, pod.state, pod.active_cores()
    launches = [launch for core in cores if (launch := pod.launch_of(core)) is not None]
    parts = [(_UNHASHED, at.N_LIVE, 1), (_UNHASHED, at.ERROR, _ERROR_WORDS)]
    parts.append((_MEMORY, 0, spec.n_dies * spec.die_bytes // 8))
    for core, launch in zip(cores, launches, strict=True):
        base = pod.core_base(core)
        parts.append((_MEMORY, int(st[base + at.UB_BASE]) // 8, spec.ub_bytes // 8))
        parts.append((_PLAIN, base, at.PIPES))
        parts += [(_QUEUE, base + at.PIPES + i * at.PIPE_WORDS, at.PIPE_WORDS) for i in range(3)]
        parts.append((_PLAIN, base + at.DMA_SLOTS, at.WINDOWS - at.DMA_SLOTS))
        parts.append((_PLAIN, base + REGISTERS, launch.kernel.n_registers))
    parts.append((_PLAIN, int(st[at.GROUP_BASE]), len(cores) * at.GROUP_WORDS))
    for die in sorted({launch.die for launch in launches}):
        parts.append((_FLIGHTS, int(st[at.DIE_BASE]) + die * int(st[at.DIE_WORDS]), int(st[at.DIE_WORDS])))
    return np.array(parts, np.int64)


def _message(pod: Pod, error: Words) -> str:
    region = slice(at.ERROR, at.ERROR + _ERROR_WORDS)
    pod.state[region] = error
    message = str(report.violation(pod))
    pod.state[region] = 0
    return message


@jit
def _search(space, parts, observed, stack, table, outcomes, errors, counted, max_states):
    """Expand states from the stack until none is left, the limit is met, or something is full.

    Row 0 of the stack is the state that is being expanded; the rows behind it wait.
    """
    mem, st, mem64, st64 = space
    actors = n_actors(st)
    while counted[_STACK] > 0 and counted[_STATES] <= max_states:
        if counted[_SLICE] == 0:
            return _PAUSED
        counted[_SLICE] -= 1
        _restore(space, parts, stack, counted[_STACK])
        possible = 1
        for a in range(actors):
            possible += choices(st, nth_actor(st, a))
        if counted[_STACK] + possible >= stack.shape[0]:
            return _STACK_FULL
        if 2 * (counted[_STATES] + possible) >= table.shape[0]:
            return _TABLE_FULL
        if max(counted[_OUTCOMES], counted[_ERRORS]) + possible >= outcomes.shape[0]:
            return _ROWS_FULL
        counted[_STACK] -= 1
        if st[at.N_LIVE] == 0:
            for i in range(observed.shape[0]):
                word = observed[i, 1]
                outcomes[counted[_OUTCOMES], i] = np.int64(mem64[word] if observed[i, 0] else st64[word])
            counted[_OUTCOMES] += 1
            continue
        _save(space, parts, stack, 0)
        before = counted[_TRANSITIONS]
        for a in range(actors):
            actor = nth_actor(st, a)
            for n in range(choices(st, actor)):
                if act(mem, st, actor, nth_choice(st, actor, n)) or st[at.ERROR] != 0:
                    counted[_TRANSITIONS] += 1
                    if st[at.ERROR] == 0:
                        _push(space, parts, stack, table, counted)
                    else:
                        for i in range(_ERROR_WORDS):
                            errors[counted[_ERRORS], i] = st[at.ERROR + i]
                        counted[_ERRORS] += 1
                    _restore(space, parts, stack, 0)
        if counted[_TRANSITIONS] == before:
            counted[_DEADLOCKS] += 1
    return _ENDED


@jit
def _push(space, parts, stack, table, counted):
    """Put the present state on the stack if it is new."""
    one, two = _fingerprint(space, parts)
    if _add(table, one, two):
        counted[_STATES] += 1
        counted[_STACK] += 1
        _save(space, parts, stack, counted[_STACK])


@jit
def _save(space, parts, rows, row):
    _, _, mem64, st64 = space
    to = 0
    for p in range(parts.shape[0]):
        for i in range(parts[p, 1], parts[p, 1] + parts[p, 2]):
            rows[row, to] = mem64[i] if parts[p, 0] == _MEMORY else st64[i]
            to += 1


@jit
def _restore(space, parts, rows, row):
    _, _, mem64, st64 = space
    source = 0
    for p in range(parts.shape[0]):
        for i in range(parts[p, 1], parts[p, 1] + parts[p, 2]):
            if parts[p, 0] == _MEMORY:
                mem64[i] = rows[row, source]
            else:
                st64[i] = rows[row, source]
            source += 1


@jit
def _add(table, one, two):
    """Add a fingerprint to the hash set (open addressing; zeros are free places); False if it is there already."""
    last = table.shape[0] - 1
    place = np.int64(one & np.uint64(last))
    while table[place, 0] != 0 or table[place, 1] != 0:
        if table[place, 0] == one and table[place, 1] == two:
            return False
        place = (place + 1) & last
    table[place, 0] = one
    table[place, 1] = two
    return True


@jit
def _add_all(table, larger):
    """The larger hash set, with all that was in the smaller one."""
    for i in range(table.shape[0]):
        if table[i, 0] != 0 or table[i, 1] != 0:
            _add(larger, table[i, 0], table[i, 1])
    return larger


@jit
def _mix(one, two, word):
    """Append a word to both halves of a fingerprint."""
    one = (one ^ word) * _PRIME_1
    two = (two + word) * _PRIME_2
    return one ^ (one >> _SHIFT_1), two ^ (two >> _SHIFT_2)


@jit
def _fingerprint(space, parts):
    """128 bits of everything that the rest of the run, or its outcome, can depend on."""
    _, st, mem64, st64 = space
    one, two = _SEED_1, _SEED_2
    for p in range(parts.shape[0]):
        kind, first = parts[p, 0], parts[p, 1]
        if kind == _MEMORY:
            for i in range(first, first + parts[p, 2]):
                one, two = _mix(one, two, mem64[i])
        elif kind == _PLAIN:
            for i in range(first, first + parts[p, 2]):
                one, two = _mix(one, two, st64[i])
        elif kind == _QUEUE:
            one, two = _mix(one, two, st64[first + at.PIPE_COUNT])
            for j in range(st[first + at.PIPE_COUNT]):
                for i in range(at.ENTRY_WORDS):
                    one, two = _mix(one, two, st64[entry_of(st, first, j) + i])
        elif kind == _FLIGHTS:
            sum_1, sum_2 = _flights(st, st64, first)
            one, two = _mix(one, two, sum_1)
            one, two = _mix(one, two, sum_2)
    return one, two


@jit
def _flights(st, st64, ring):
    """Sum over a die's writes in flight: each with how many older ones have to become visible before it."""
    sum_1, sum_2 = np.uint64(0), np.uint64(0)
    for k in range(st[ring + at.FLIGHT_COUNT]):
        entry = flight(st, ring, k)
        rank = 0
        for j in range(k):
            rank += _ordered(st, flight(st, ring, j), entry)
        one, two = _mix(_SEED_2, _SEED_1, np.uint64(rank))
        for i in range(at.FLIGHT_WORDS):
            if i != at.FLIGHT_SITE:
                one, two = _mix(one, two, st64[entry + i])
        sum_1 += one
        sum_2 += two
    return sum_1, sum_2


@jit
def _ordered(st, older, younger):
    """1 if the memory order keeps two writes of a die in order (written anew here, not taken from `flight`)."""
    one, other = st[older + at.FLIGHT_ADDRESS], st[younger + at.FLIGHT_ADDRESS]
    if st[at.ORDER] == at.ORDER_FIFO:
        return 1 if one >> st[at.DIE_SHIFT] == other >> st[at.DIE_SHIFT] else 0
    if one // at.PIECE_BYTES != other // at.PIECE_BYTES or st[older + at.FLIGHT_CORE] != st[younger + at.FLIGHT_CORE]:
        return 0
    kind, kind_other = st[older + at.FLIGHT_KIND], st[younger + at.FLIGHT_KIND]
    return 1 if max(kind, at.KIND_ADD) == max(kind_other, at.KIND_ADD) else 0
