"""An action: one actor takes one step.  Everything that happens in a pod is a sequence of these.

Actors are numbered: five for each core (scalar, mtu-in, vector, mtu-out, DMA), then one for each die, which makes its
writes in flight visible.  The choice says which of several things the actor does, or `CHOICE_ALL` for the plain next.
"""

from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device import pipes
from xccl_emu.machine.device.cache import nth_scalar, scalar_choices
from xccl_emu.machine.device.flight import block_of_core, block_of_die, deliver, go_on
from xccl_emu.machine.device.scalar import step_scalar
from xccl_emu.machine.device.words import jit, put


@jit
def start(st):
    """Run every newly launched kernel up to its first request."""
    for i in range(st[ms.N_ACTIVE]):
        base = block_of_core(st, st[st[ms.ACTIVE_BASE] + i])
        if st[base + ms.STATUS] == ms.STATUS_IDLE:
            put(st, base + ms.STATUS, ms.STATUS_RUNNING)
            go_on(st, base)


@jit
def step_core(mem, st, core, base, pipe, choice):
    """Let one pipe of a core do one thing; False, and nothing changed, if it cannot."""
    if pipe == rq.SCALAR:
        done = step_scalar(mem, st, core, base, choice)
    elif pipe == rq.MTU_IN:
        done = pipes.step_mtu_in(mem, st, core, base, choice)
    elif pipe == rq.VECTOR:
        done = pipes.step_vector(mem, st, core, base, choice)
    elif pipe == rq.MTU_OUT:
        done = pipes.step_mtu_out(mem, st, core, base, choice)
    else:
        done = pipes.step_dma(mem, st, core, base, choice)
    if done:
        st[ms.ACTIONS] += 1
    return done


@jit
def deliver_some(mem, st, die, choice):
    """Make the chosen write of a die visible, or with `CHOICE_ALL` all in issue order, up to one that is an error."""
    if choice != ms.CHOICE_ALL:
        done = deliver(mem, st, die, choice)
    else:
        done = False
        while st[ms.ERROR] == 0 and deliver(mem, st, die, 0):  # a delivery that completes a DMA sets its event
            done = True
    if done:
        st[ms.ACTIONS] += 1
    return done


@jit
def act(mem, st, actor, choice):
    """Take one action; False, and nothing changed, if it is not enabled or does not exist."""
    if actor < 0 or choice < 0 or choice > ms.CHOICE_ALL or st[ms.ERROR] != 0:
        return False
    core = actor // ms.ACTORS_PER_CORE
    if core < st[ms.N_CORES]:
        return step_core(mem, st, core, block_of_core(st, core), actor % ms.ACTORS_PER_CORE, choice)
    die = actor - st[ms.N_CORES] * ms.ACTORS_PER_CORE
    if die >= st[ms.N_HOMES]:
        return False
    return deliver_some(mem, st, die, choice)


@jit
def choices(st, actor):
    """Choices 0 .. n-1 of this actor may be enabled now, as `nth_choice` numbers them."""
    core = actor // ms.ACTORS_PER_CORE
    if core >= st[ms.N_CORES]:
        return st[block_of_die(st, actor - st[ms.N_CORES] * ms.ACTORS_PER_CORE) + ms.FLIGHT_COUNT]
    base, pipe = block_of_core(st, core), actor % ms.ACTORS_PER_CORE
    if pipe == rq.SCALAR:
        return scalar_choices(st, base)
    if pipe == rq.VECTOR or pipe == rq.MTU_OUT:
        return min(1, st[pipes.pipe_of(base, pipe) + ms.PIPE_COUNT])
    total = 0
    for j in range(_entries(st, base, pipe)):
        total += _subtransfers_of(st, base, pipe, j)
    return total


@jit
def evicts(st, actor, choice):
    """Does an action evict a changed line from a cache?  That need never happen."""
    scalar = actor < st[ms.N_CORES] * ms.ACTORS_PER_CORE and actor % ms.ACTORS_PER_CORE == rq.SCALAR
    return scalar and choice != ms.CHOICE_ALL and choice >= ms.CHOICE_EVICT


@jit
def nth_choice(st, actor, n):
    """The n-th possible choice of an actor."""
    core, pipe = actor // ms.ACTORS_PER_CORE, actor % ms.ACTORS_PER_CORE
    if core < st[ms.N_CORES] and pipe == rq.SCALAR:
        return nth_scalar(st, block_of_core(st, core), n)
    if core >= st[ms.N_CORES] or pipe == rq.VECTOR or pipe == rq.MTU_OUT:
        return n
    base = block_of_core(st, core)
    for j in range(_entries(st, base, pipe)):
        subtransfers = _subtransfers_of(st, base, pipe, j)
        if n < subtransfers:
            return j | n << 4
        n -= subtransfers
    return 0


@jit
def _entries(st, base, pipe):
    return st[pipes.pipe_of(base, rq.MTU_IN) + ms.PIPE_COUNT] if pipe == rq.MTU_IN else ms.N_DMA_SLOTS


@jit
def _subtransfers_of(st, base, pipe, j):
    """In how many sub-transfers the j-th transfer of mtu-in or DMA is copied; a flag counts as one."""
    if pipe == rq.MTU_IN:
        entry = pipes.entry_of(st, pipes.pipe_of(base, rq.MTU_IN), j)
        return pipes.subtransfers_of(st, entry) if ops.COPIES_IN >> st[entry] & 1 else 1
    slot = base + ms.DMA_SLOTS + j * ms.ENTRY_WORDS
    return pipes.subtransfers_of(st, slot) if st[slot] else 0
