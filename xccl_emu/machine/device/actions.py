"""An action: one actor takes one step.  Everything that happens in a pod is a sequence of these.

Actors are numbered: five for each core (scalar, mtu-in, vector, mtu-out, DMA), then one for each die, which makes its
writes in flight visible.  The choice says which of several things the actor does, or `CHOICE_ALL` for the plain next.
"""

from xccl_emu.lang.requests import MTU_IN, MTU_OUT, OP_MTU_IN, SCALAR, VECTOR
from xccl_emu.machine.device.cache import nth_scalar, scalar_choices
from xccl_emu.machine.device.flight import block_of_core, block_of_die, deliver
from xccl_emu.machine.device.layout import (
    ACTIONS,
    ACTORS_PER_CORE,
    CHOICE_ALL,
    CHOICE_EVICT,
    DMA_SLOTS,
    ENTRY_WORDS,
    ERROR,
    FLIGHT_COUNT,
    N_CORES,
    N_DIES,
    N_DMA_SLOTS,
    PIPE_COUNT,
)
from xccl_emu.machine.device.pipes import (
    entry_of,
    n_subtransfers,
    pipe_of,
    step_dma,
    step_mtu_in,
    step_mtu_out,
    step_vector,
)
from xccl_emu.machine.device.scalar import step_scalar
from xccl_emu.machine.device.words import jit


@jit
def step_core(mem, st, core, base, pipe, choice):
    """Let one pipe of a core do one thing; False, and nothing changed, if it cannot."""
    if pipe == SCALAR:
        done = step_scalar(mem, st, core, base, choice)
    elif pipe == MTU_IN:
        done = step_mtu_in(mem, st, core, base, choice)
    elif pipe == VECTOR:
        done = step_vector(mem, st, core, base, choice)
    elif pipe == MTU_OUT:
        done = step_mtu_out(mem, st, core, base, choice)
    else:
        done = step_dma(mem, st, core, base, choice)
    if done:
        st[ACTIONS] += 1
    return done


@jit
def deliver_some(mem, st, die, choice):
    """Make the chosen write of a die visible, or with `CHOICE_ALL` all in issue order, up to one that is an error."""
    if choice != CHOICE_ALL:
        done = deliver(mem, st, die, choice)
    else:
        done = False
        while st[ERROR] == 0 and deliver(mem, st, die, 0):  # a delivery that completes a DMA sets its event
            done = True
    if done:
        st[ACTIONS] += 1
    return done


@jit
def act(mem, st, actor, choice):
    """Take one action; False, and nothing changed, if it is not enabled or does not exist."""
    if actor < 0 or choice < 0 or choice > CHOICE_ALL or st[ERROR] != 0:
        return False
    core = actor // ACTORS_PER_CORE
    if core < st[N_CORES]:
        return step_core(mem, st, core, block_of_core(st, core), actor % ACTORS_PER_CORE, choice)
    die = actor - st[N_CORES] * ACTORS_PER_CORE
    if die >= st[N_DIES]:
        return False
    return deliver_some(mem, st, die, choice)


@jit
def choices(st, actor):
    """Choices 0 .. n-1 of this actor may be enabled now, as `nth_choice` numbers them."""
    core = actor // ACTORS_PER_CORE
    if core >= st[N_CORES]:
        return st[block_of_die(st, actor - st[N_CORES] * ACTORS_PER_CORE) + FLIGHT_COUNT]
    base, pipe = block_of_core(st, core), actor % ACTORS_PER_CORE
    if pipe == SCALAR:
        return scalar_choices(st, base)
    if pipe == VECTOR or pipe == MTU_OUT:
        return min(1, st[pipe_of(base, pipe) + PIPE_COUNT])
    total = 0
    for j in range(_entries(st, base, pipe)):
        total += _subtransfers_of(st, base, pipe, j)
    return total


@jit
def evicts(st, actor, choice):
    """Does an action evict a changed line from a cache?  That need never happen."""
    scalar = actor < st[N_CORES] * ACTORS_PER_CORE and actor % ACTORS_PER_CORE == SCALAR
    return scalar and choice != CHOICE_ALL and choice >= CHOICE_EVICT


@jit
def nth_choice(st, actor, n):
    """The n-th possible choice of an actor."""
    core, pipe = actor // ACTORS_PER_CORE, actor % ACTORS_PER_CORE
    if core < st[N_CORES] and pipe == SCALAR:
        return nth_scalar(st, block_of_core(st, core), n)
    if core >= st[N_CORES] or pipe == VECTOR or pipe == MTU_OUT:
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
    return st[pipe_of(base, MTU_IN) + PIPE_COUNT] if pipe == MTU_IN else N_DMA_SLOTS


@jit
def _subtransfers_of(st, base, pipe, j):
    """In how many sub-transfers the j-th transfer of mtu-in or DMA is copied; a flag counts as one."""
    if pipe == MTU_IN:
        entry = entry_of(st, pipe_of(base, MTU_IN), j)
        return n_subtransfers(st, st[entry + 1], st[entry + 1], st[entry + 3]) if st[entry] == OP_MTU_IN else 1
    slot = base + DMA_SLOTS + j * ENTRY_WORDS
    return n_subtransfers(st, st[slot + 1], st[slot + 2], st[slot + 3]) if st[slot] else 0
