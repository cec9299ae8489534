"""Who may go next in a run: each pipe with something to do that does not sleep, and each write in flight."""

from xccl_emu.check.sampling.device.breaks import atomic_held, held, holds
from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.sampling.device.monitor.calls import call
from xccl_emu.check.sampling.device.monitor.clocks import index_of
from xccl_emu.check.sampling.device.policies import draw_below
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.cache import request_choices, through_cache
from xccl_emu.machine.device.flight import DMA_READ_DONE, block_of_core, block_of_die
from xccl_emu.machine.device.pipes import entry_of, pipe_of, subtransfers_of
from xccl_emu.machine.device.sites import note_came, waits_at
from xccl_emu.machine.device.words import jit

EVICTED_EVERY = 4
"""Steps of a scalar unit, on average, before a place of its cache is drawn, and a changed line there evicted."""


@jit
def gather(space, run, policy):
    """List the candidates; returns how many, and how many of them are of cores."""
    st, m, flights, keys = space.st, space.m, space.flights, space.keys
    candidates, keys_now, serials = run.candidates, run.candidate_keys, run.serials
    actor_keys, asleep = run.actor_keys, run.asleep
    n = 0
    broken = holds(st, m)
    for i in range(st[ms.N_ACTIVE]):
        base = block_of_core(st, m[m[ml.CORE_NUMBER] + i])
        for pipe in range(ms.ACTORS_PER_CORE):
            a = i * ms.ACTORS_PER_CORE + pipe
            if asleep[a] or not _busy(st, m, base, pipe):
                continue
            if broken and pipe == rq.SCALAR and atomic_held(st, m, base):
                continue
            candidates[n] = m[m[ml.CORE_NUMBER] + i] * ms.ACTORS_PER_CORE + pipe
            keys_now[n] = actor_keys[a]
            n += 1
    n_cores = n
    for d in range(st[ms.N_ACTIVE_DIES] if m[ml.CAPACITY] else 0):
        die = st[st[ms.ACTIVE_BASE] + st[ms.N_ACTIVE] + d]
        for k in range(st[block_of_die(st, die) + ms.FLIGHT_COUNT]):
            if broken and held(st, m, die, k):
                continue
            candidates[n] = (st[ms.N_CORES] * ms.ACTORS_PER_CORE + die) << ms.CHOICE_BITS | k
            keys_now[n] = keys[d * m[ml.CAPACITY] + k]
            serials[n] = flights[(d * m[ml.CAPACITY] + k) * 2 + 1]
            n += 1
    return n, n_cores


@jit
def _busy(st, m, base, pipe):
    """May a pipe have something to do?"""
    if pipe == rq.SCALAR:
        return st[base + ms.STATUS] == ms.STATUS_RUNNING
    if pipe == rq.DMA:
        for k in range(ms.N_DMA_SLOTS if m[ml.N_DMA] else 0):
            if st[base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS]:
                return True
        return False
    return st[pipe_of(base, pipe) + ms.PIPE_COUNT] != 0


@jit
def try_candidate(space, run, candidate, of_core):
    """Let a candidate act; returns the code and the choice. The sub-transfers of a transfer go in any order."""
    st, m = space.st, space.m
    actor, choice, choices = candidate, 0, 1
    base, pipe = 0, rq.SCALAR
    if of_core:
        base, pipe = block_of_core(st, candidate // ms.ACTORS_PER_CORE), candidate % ms.ACTORS_PER_CORE
        choices = _live(st, base, pipe) if pipe == rq.MTU_IN or pipe == rq.DMA else 1
        if pipe == rq.SCALAR:
            note_came(st, base, space.sites)
            choices = request_choices(st, base)
            if st[ms.CACHE_LINES] and m[ml.NEXT_NUMBER] & 1:  # every other run keeps what it has, as long as it can
                choices = 1 if through_cache(st, base) else choices
            elif st[ms.CACHE_LINES] and draw_below(run.rng, EVICTED_EVERY) == 0:
                choice = ms.CHOICE_EVICT + draw_below(run.rng, st[ms.CACHE_LINES])
                code = call(m[ml.WATCHED], space, actor, choice)
                if code != ml.NOT_ENABLED:
                    return code, choice
    else:
        actor, choice = candidate >> ms.CHOICE_BITS, candidate & 0xFFFF
    first = draw_below(run.rng, choices) if choices > 1 else 0
    for c in range(choices):
        if of_core:
            choice = (first + c) % choices
        if pipe == rq.MTU_IN or pipe == rq.DMA:
            choice = _nth_live(st, base, pipe, choice)
        code = call(m[ml.WATCHED], space, actor, choice)
        if code != ml.NOT_ENABLED:
            return code, choice
    if of_core:
        run.asleep[index_of(m, candidate // ms.ACTORS_PER_CORE) * ms.ACTORS_PER_CORE + pipe] = 1
        site = waits_at(st, base, pipe)
        if site >= 0:
            space.sites[site] |= ms.MAY_WAIT
    return ml.NOT_ENABLED, 0


@jit
def _live(st, base, pipe):
    """Count the sub-transfers, or flags, of mtu-in or DMA that may be taken now."""
    total, queue = 0, pipe_of(base, rq.MTU_IN)
    for j in range(ms.N_DMA_SLOTS if pipe == rq.DMA else st[queue + ms.PIPE_COUNT]):
        entry = base + ms.DMA_SLOTS + j * ms.ENTRY_WORDS if pipe == rq.DMA else entry_of(st, queue, j)
        if pipe == rq.MTU_IN and not ops.COPIES_IN >> st[entry] & 1:
            return total + (1 if j == 0 else 0)
        total += _missing(st, entry, pipe)
    return total


@jit
def _missing(st, entry, pipe):
    """Count the sub-transfers of a transfer that have not been read."""
    mask = st[entry + ms.ENTRY_PROGRESS]
    if st[entry] == 0 or mask == DMA_READ_DONE:
        return 0
    n = subtransfers_of(st, entry)
    while mask:
        n -= mask & 1
        mask >>= 1
    return n


@jit
def _nth_missing(mask, n):
    g = 0
    while True:
        if not mask >> g & 1:
            if n == 0:
                return g
            n -= 1
        g += 1


@jit
def _nth_live(st, base, pipe, n):
    """The choice that is the n-th of `_live`."""
    queue = pipe_of(base, rq.MTU_IN)
    for j in range(ms.N_DMA_SLOTS if pipe == rq.DMA else st[queue + ms.PIPE_COUNT]):
        entry = base + ms.DMA_SLOTS + j * ms.ENTRY_WORDS if pipe == rq.DMA else entry_of(st, queue, j)
        if pipe == rq.MTU_IN and not ops.COPIES_IN >> st[entry] & 1:
            return j
        missing = _missing(st, entry, pipe)
        if n < missing:
            return j | _nth_missing(st[entry + ms.ENTRY_PROGRESS], n) << 4
        n -= missing
    return 0


@jit
def drop(space, run, c, n, n_cores):
    """Strike a candidate that cannot act."""
    candidates, keys_now, serials = run.candidates, run.candidate_keys, run.serials
    hole = c
    if c < n_cores:
        n_cores -= 1
        candidates[c], keys_now[c] = candidates[n_cores], keys_now[n_cores]
        hole = n_cores
    n -= 1
    candidates[hole], keys_now[hole], serials[hole] = candidates[n], keys_now[n], serials[n]
    return n, n_cores
