"""The beginning and the end of a run: the trial put back to its start, and its bytes compared."""

from xccl_emu.check.device.monitor.clocks import (
    ahead_row,
    clear_row,
    clear_sync,
    dma_row,
    engine_word,
    fence_row,
    group_row,
    pipe_row,
)
from xccl_emu.check.device.monitor.layout import (
    CAPACITY,
    CHAINED,
    CORE_NUMBER,
    DMA_EPOCHS,
    FENCES,
    FOUND_WRONG,
    FREE_ROWS,
    GENERATION,
    JUDGE_NOTHING,
    JUDGED,
    N_DMA,
    N_GROUPS,
    N_SYNC,
    N_SYNC_KNOWN,
    N_UNDO,
    RECORD_FREE,
    RECORD_TOP,
    RECORD_WORDS,
    RUN_DONE,
    S_FIXED,
    SERIAL,
    SHADOW_WORDS,
    SIGNALLED,
    SIGNALS,
    STOP,
    SYNC_GRANULES,
    SYNC_SHIFT,
    TAKEN_OK,
    UNDO_WORDS,
    V_AT,
    V_SITE,
    X_PAYLOAD,
    X_SIGNAL,
)
from xccl_emu.check.device.monitor.step import poll_begins
from xccl_emu.lang.requests import MTU_OUT, SCALAR
from xccl_emu.machine.device.flight import block_of_core
from xccl_emu.machine.device.layout import (
    FAULT_HAPPENED,
    GRANULE_BYTES,
    N_ACTIVE,
    N_ACTIVE_DIES,
    N_DMA_SLOTS,
    N_LIVE,
    ORDER,
    ORDER_FIFO,
    STATUS,
    STATUS_DONE,
)
from xccl_emu.machine.device.words import jit, store_i64


@jit
def begin(space, run, forget):
    """Put the trial back to its start; with ``forget``, also what an earlier run found out about synchronizations."""
    undo_writes(space)
    st, m, clocks = space.st, space.m, space.clocks
    start, parts = run.start, run.parts
    source = 0
    for p in range(parts.shape[0]):
        for i in range(parts[p, 0], parts[p, 0] + parts[p, 1]):
            st[i] = start[source]
            source += 1
    m[GENERATION] += 1
    m[RECORD_TOP], m[RECORD_FREE], m[STOP], m[SERIAL] = RECORD_WORDS, 0, 0, 0
    if forget:
        _forget_syncs(space)
    for number in range(m[N_SYNC]):
        clear_sync(st, m, clocks, number)
    for group in range(m[N_GROUPS]):
        for which_row in range(3):
            clear_row(m, clocks, group_row(m, group, which_row))
    m[X_PAYLOAD] = m[X_SIGNAL] = 0
    for i in range(st[N_ACTIVE]):
        m[m[SIGNALLED] + i] = 0
        for k in range(m[SIGNALS]):
            m[m[CHAINED] + i * m[SIGNALS] + k] = 0
        for pipe in range(SCALAR, MTU_OUT + 1):
            clear_row(m, clocks, pipe_row(m, i, pipe))
            clocks[pipe_row(m, i, pipe) + engine_word(m, i, pipe)] = 1
        if st[ORDER] == ORDER_FIFO:
            clear_row(m, clocks, ahead_row(m, i))
        if m[FENCES]:
            clear_row(m, clocks, fence_row(m, i))
        for k in range(m[N_DMA]):
            clear_row(m, clocks, dma_row(m, i, k))
            m[m[DMA_EPOCHS] + i * N_DMA_SLOTS + k] = 0
    for d in range(st[N_ACTIVE_DIES]):
        stack = m[FREE_ROWS] + d * (m[CAPACITY] + 1)
        m[stack] = m[CAPACITY]
        for k in range(m[CAPACITY]):
            m[stack + 1 + k] = k
    for i in range(st[N_ACTIVE]):
        poll_begins(space, i, block_of_core(st, m[m[CORE_NUMBER] + i]))


@jit
def undo_writes(space):
    """Put back every granule of memory that the last run has written."""
    mem, m, undo = space.mem, space.m, space.undo
    for u in range(m[N_UNDO]):
        place = u * UNDO_WORDS
        for w in range(4):
            store_i64(mem, undo[place] * GRANULE_BYTES + 8 * w, undo[place + 1 + w])
    m[N_UNDO] = 0


@jit
def _forget_syncs(space):
    m, shadow = space.m, space.shadow
    for number in range(m[N_SYNC_KNOWN], m[N_SYNC]):
        shadow[m[m[SYNC_GRANULES] + number] * SHADOW_WORDS + S_FIXED] &= (1 << SYNC_SHIFT) - 1
    m[N_SYNC] = m[N_SYNC_KNOWN]


@jit
def ended(space, run):
    """All kernels have returned: `RUN_DONE`, or `FOUND_WRONG` with the first wrong byte and which range it is of.

    If something broke: of the ranges of which the answering cores have returned.
    """
    return FOUND_WRONG if _any_wrong(space, run, space.st[FAULT_HAPPENED] != 0) else RUN_DONE


@jit
def returned(space, run, live):
    """After an action, before which ``live`` kernels ran: is what the returned cores own there?"""
    st = space.st
    if st[N_LIVE] == live or st[N_LIVE] == 0 or space.m[JUDGED] == JUDGE_NOTHING:
        return TAKEN_OK  # none has returned; or all have, which `ended` judges
    return FOUND_WRONG if _any_wrong(space, run, True) else TAKEN_OK


@jit
def _any_wrong(space, run, answered):
    """Return whether a byte is wrong, if ``answered`` where all owners have returned; take down the first."""
    mem, m, expected, data = space.mem, space.m, run.expected, run.expected_bytes
    for e in range(expected.shape[0]):
        for b in range(0 if answered and not _answered(space.st, run.owners, e) else expected[e, 1]):
            if mem[expected[e, 0] + b] != data[expected[e, 2] + b]:
                m[V_AT], m[V_SITE] = expected[e, 0] + b, e
                return True
    return False


@jit
def _answered(st, answers, e):
    """Have all owners of a range returned?"""
    for a in range(answers.shape[0]):
        if answers[a, 0] == e and st[block_of_core(st, answers[a, 1]) + STATUS] != STATUS_DONE:
            return False
    return True
