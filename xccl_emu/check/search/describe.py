"""What a search found, in words, and the actions that bring it about on the machine."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check import messages
from xccl_emu.check import verdict as kinds
from xccl_emu.check.device.accesses import AGENT_DMA
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device.inside import AGENT_BEFORE
from xccl_emu.check.trial import Trial
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST, REQUEST_WORDS
from xccl_emu.machine import driver, report
from xccl_emu.machine.device import flight, pipes, polls
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.cache import LINE_SHIFT, _under_way, through_cache
from xccl_emu.machine.device.polls import flags_in, line_part, polls_line
from xccl_emu.machine.device.scalar import which_holds
from xccl_emu.machine.pod import Pod

_LOG_ACTIONS = 1 << 20
_NOBODY = -1 << ms.CHOICE_BITS  # an actor that does not exist


def describe(trial: Trial, what: int, witness: Sequence[int]) -> tuple[str, str, NDArray[np.int64]]:
    """Kind, message and further actions for a violation in whose state the pod is; leaves the pod somewhere else."""
    pod, nothing = trial.pod, np.zeros(0, np.int64)
    _forget_latent(pod)
    if what == cs.MACHINE:
        return messages.error_kind(pod), str(report.violation(pod)), nothing
    if what == cs.DEADLOCK:
        actions = _finish(pod)  # those that were searched apart from the blocked ones
        if pod.state[ms.ERROR]:
            return messages.error_kind(pod), str(report.violation(pod)), actions
        return kinds.DEADLOCK, str(report.deadlock(pod)), actions
    if what == cs.LIVELOCK:
        lines = ["livelock: cores go on, but no run from here comes to an end; the last actions lead round and round"]
        return kinds.LIVELOCK, "\n  ".join([*lines, *messages.not_done(pod)]), nothing
    if what in (cs.WRONG_BITS, cs.TOO_EARLY):
        actions = _finish(pod) if what == cs.WRONG_BITS else nothing
        first_due = sorted(trial.expected, key=lambda one: not messages.is_due(trial, one))
        wrong = (text for one in first_due if (text := messages.wrong_bits(trial, one)))
        return kinds.WRONG_BITS, next(wrong, ""), actions
    if what == cs.SET_TWICE:
        return kinds.BAD_INSTRUCTION, f"an event {messages.SET_AGAIN}", nothing
    if what == cs.UNWRITTEN:
        used = "padding is used that nobody has written" if witness[5] else "nobody has written some of these bytes"
        return kinds.UNWRITTEN_READ, f"{_access(trial, witness[:6])}, and {used}", nothing
    sides = sorted((witness[:6], witness[6:12]), key=lambda side: not _may_wait(pod, side))  # for what the other does
    kind = messages.race_kind(pod, witness[3], bool(witness[5] and witness[11]))
    message = race_message(trial, witness)
    return kind, message, _with_room(pod, [action for side in sides for action in _make(pod, side)])


def _forget_latent(pod: Pod) -> None:
    """From here on, what the search took to be visible is in flight like any other write, from a site of its kernel."""
    st = pod.state
    for die in {core // pod.spec.cores_per_die for core in pod.active_cores()}:
        ring = flight.block_of_die(st, die)
        for k in range(int(st[ring + ms.FLIGHT_COUNT])):
            st[flight.flight(st, ring, k) + ms.FLIGHT_SITE] &= cs.LATENT - 1


def spinning(pod: Pod, ck: NDArray[np.int64]) -> str:
    """Say which kernel goes round and round, and where it comes by, each place once."""
    core, n = int(ck[cs.WITNESS]), int(ck[cs.WITNESS + 1])
    sites = dict.fromkeys(ck[cs.WITNESS + 2 : cs.WITNESS + 2 + n].tolist())
    return ", then ".join(report.where(pod, core, int(site)) for site in sites)


def race_message(trial: Trial, witness: Sequence[int]) -> str:
    """Both accesses with their instructions."""
    one, other = (_access(trial, witness[i : i + 6]) for i in (0, 6))
    hint = messages.hint(trial.pod, [(witness[0], witness[1]), (witness[6], witness[7])])
    return f"nothing orders these two accesses:\n  {one}\n  {other}{hint}"


def _access(trial: Trial, access: Sequence[int]) -> str:
    core, site, _, start, nbytes, writes = access
    verb = "writes" if writes else "reads"
    return f"{report.where(trial.pod, core, site)} {verb} {nbytes} bytes at {report.symbolic_byte(trial.pod, start)}"


def _finish(pod: Pod) -> NDArray[np.int64]:
    """Let whatever can still run do so; returns its actions."""
    log = np.empty(_LOG_ACTIONS, np.int64)
    pod.state[[ms.CURSOR, ms.LOG_COUNT]] = 0
    with driver.arithmetic_of(pod.kernels):
        driver.policy("round-robin")(pod.memory, pod.state, log, _LOG_ACTIONS // 2)
    return log[: int(pod.state[ms.LOG_COUNT])].copy()


def _make(pod: Pod, access: Sequence[int]) -> list[int]:
    """Actions that make an access which is only possible yet; none if it has been made."""
    core, _, agent, start, _, _ = access
    st, base = pod.state, pod.core_base(core)
    if agent == rq.SCALAR:
        request, site = st[base + REQUEST : base + REQUEST + REQUEST_WORDS], access[1]
        line = polls_line(st, base) and _is_in(pod, base)  # while it waits it is open as it is
        looks = request[0] == rq.OP_POLL and flight.switched_off(st, base)  # as a load
        reads = line or looks or (ops.WORDS & ~ops.POLLS) >> request[0] & 1
        same = reads and request[ops.FIRST] == start
        which = _which_of(pod, core, start)
        same = (same or which > 0) and request[-1] == site
        fenced = ops.ATOMICS >> request[0] & 1 or (ops.STORES >> request[0] & 1 and not st[ms.CACHE_LINES])
        same = same and not (fenced and pipes.fence_ahead(st, base))  # else the access was one before that
        waiting = st[base + ms.STATUS] == ms.STATUS_RUNNING and same
        return [*_before_scalar(pod, core, start), _code(core, rq.SCALAR, max(0, which - 1))] if waiting else []
    if agent == rq.MTU_IN:
        queue = pipes.pipe_of(base, rq.MTU_IN)
        for j in range(int(st[queue + ms.PIPE_COUNT])):
            entry = pipes.entry_of(st, queue, j)
            source, nbytes, done = (
                int(st[entry + i]) for i in (ops.MTU_IN.source, ops.MTU_IN.nbytes, ms.ENTRY_PROGRESS)
            )
            if ops.COPIES_IN >> st[entry] & 1 and source <= start < source + nbytes:
                return _subtransfers(st, core, rq.MTU_IN, j, source, source, nbytes, done)
        return []
    if agent == rq.MTU_OUT:
        queue = pipes.pipe_of(base, rq.MTU_OUT)
        entry = pipes.entry_of(st, queue, 0)
        pending = st[queue + ms.PIPE_COUNT] and st[entry + ms.ENTRY_SITE] == access[1]
        return [*_making_room(pod, core), _code(core, rq.MTU_OUT, ms.CHOICE_ALL)] if pending else []
    if AGENT_DMA <= agent < AGENT_BEFORE:
        k = agent - AGENT_DMA
        slot = base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS
        done = int(st[slot + ms.ENTRY_PROGRESS])
        source, target, nbytes = (int(st[slot + i]) for i in (1, 2, 3))
        return _subtransfers(st, core, rq.DMA, k, source, target, nbytes, done) if st[slot] else []
    return []


def _with_room(pod: Pod, actions: Sequence[int]) -> NDArray[np.int64]:
    """Takes actions; before one of a core for which there is no room in flight a write becomes visible, each time."""
    taken, on_cores = list[int](), pod.spec.n_cores * ms.ACTORS_PER_CORE
    for action in actions:
        actor = action >> ms.CHOICE_BITS
        room = _making_room(pod, actor // ms.ACTORS_PER_CORE) if actor < on_cores else []
        for code in (*room, action):
            pod.state[ms.CURSOR] = 0
            with driver.arithmetic_of(pod.kernels):
                driver.policy("replay")(pod.memory, pod.state, np.array([code, _NOBODY], np.int64), 1)
            taken.append(code)
    return np.array(taken, np.int64)


def _making_room(pod: Pod, core: int) -> list[int]:
    """Return what a write of a core waits for where its die's writes in flight are full: that one becomes visible."""
    st, base = pod.state, pod.core_base(core)
    if flight.room_for_writes(st, base, 1):
        return []
    die = int(st[base + ms.DIE])
    full = range(int(st[ms.FLIGHT_CAPACITY]))
    return [
        _code(pod.spec.n_cores, 0, k) + (die << ms.CHOICE_BITS) for k in full if flight.deliverable(st, die, k)
    ][:1]


def _is_in(pod: Pod, base: int) -> bool:
    """Can the first unit of a line be read?"""
    first, nbytes = line_part(pod.state, base, 0)
    return bool(flight.switched_off(pod.state, base) or flags_in(pod.memory, pod.state, base, first, nbytes))


def _which_of(pod: Pod, core: int, start: int) -> int:
    """Return which condition of several, from 1 on, polls a word and holds; 0 if there is none."""
    st, base = pod.state, pod.core_base(core)
    if st[base + REQUEST] != rq.OP_POLL_ANY or flight.switched_off(st, base):
        return 0
    for k in range(polls.n_conditions(st, base)):
        if st[polls.condition_at(base, k)] == start and which_holds(pod.memory, st, core, base, k) == k:
            return k + 1
    return 0


def _may_wait(pod: Pod, access: Sequence[int]) -> bool:
    """Return whether an access is an atomic or a poll, which another one may hold up: its core asks for it."""
    asks = pod.state[pod.core_base(access[0]) + REQUEST]
    return bool(access[2] == rq.SCALAR and (ops.ATOMICS | ops.POLLS) >> asks & 1)


def _before_scalar(pod: Pod, core: int, address: int) -> list[int]:
    """Return what an atomic, or an access to a line written back, waits for: that its own writes become visible."""
    st, base = pod.state, pod.core_base(core)
    waits = ops.ATOMICS >> st[base + REQUEST] & 1 and flight.own_write_pending(st, core, base, address)
    if not waits and not (through_cache(st, base) and _under_way(st, core, base, address >> LINE_SHIFT)):
        return []
    return [_code(pod.spec.n_cores, 0, ms.CHOICE_ALL) + (int(st[base + ms.DIE]) << ms.CHOICE_BITS)]


def _subtransfers(
    st: NDArray[np.int64], core: int, pipe: int, j: int, source: int, target: int, nbytes: int, done: int
) -> list[int]:
    subtransfers = range(int(pipes.n_subtransfers(st, source, target, nbytes)))
    return [_code(core, pipe, j | g << 4) for g in subtransfers if done >= 0 and not done >> g & 1]


def _code(core: int, pipe: int, choice: int) -> int:
    return (core * ms.ACTORS_PER_CORE + pipe) << ms.CHOICE_BITS | choice
