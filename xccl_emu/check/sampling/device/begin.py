"""The beginning and the end of a run: the trial put back to its start, and its bytes compared."""

from xccl_emu.check.device import results
from xccl_emu.check.sampling.device.monitor import clocks as monitor_clocks
from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.sampling.device.monitor.step import poll_begins
from xccl_emu.lang.requests import MTU_OUT, SCALAR
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.flight import block_of_core
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
    m[ml.GENERATION] += 1
    m[ml.RECORD_TOP], m[ml.RECORD_FREE], m[ml.STOP], m[ml.SERIAL] = ml.RECORD_WORDS, 0, 0, 0
    if forget:
        _forget_syncs(space)
    for number in range(m[ml.N_SYNC]):
        monitor_clocks.clear_sync(st, m, clocks, number)
    for group in range(m[ml.N_GROUPS]):
        for which_row in range(3):
            monitor_clocks.clear_row(m, clocks, monitor_clocks.group_row(m, group, which_row))
    m[ml.X_PAYLOAD] = m[ml.X_SIGNAL] = 0
    for i in range(st[ms.N_ACTIVE]):
        m[m[ml.SIGNALLED] + i] = 0
        for k in range(m[ml.SIGNALS]):
            m[m[ml.CHAINED] + i * m[ml.SIGNALS] + k] = 0
        for k in range(i * st[ms.CACHE_LINES], (i + 1) * st[ms.CACHE_LINES]):
            m[m[ml.LINES] + 2 * k] = 0
        for pipe in range(SCALAR, MTU_OUT + 1):
            monitor_clocks.clear_row(m, clocks, monitor_clocks.pipe_row(m, i, pipe))
            clocks[monitor_clocks.pipe_row(m, i, pipe) + monitor_clocks.engine_word(m, i, pipe)] = 1
        if st[ms.ORDER] == ms.ORDER_FIFO:
            monitor_clocks.clear_row(m, clocks, monitor_clocks.ahead_row(m, i))
        monitor_clocks.forget_seen(m, clocks, i)
        if m[ml.FENCES]:
            monitor_clocks.clear_row(m, clocks, monitor_clocks.fence_row(m, i))
        for event in range(m[ml.N_DMA]):
            m[monitor_clocks.dma_epoch(m, i, event)] = 0
        for k in range(ms.N_DMA_SLOTS):
            m[monitor_clocks.dma_ring(m, i, k)] = 0
    for d in range(st[ms.N_ACTIVE_DIES]):
        stack = m[ml.FREE_ROWS] + d * (m[ml.CAPACITY] + 1)
        m[stack] = m[ml.CAPACITY]
        for k in range(m[ml.CAPACITY]):
            m[stack + 1 + k] = k
    for i in range(st[ms.N_ACTIVE]):
        poll_begins(space, i, block_of_core(st, m[m[ml.CORE_NUMBER] + i]))


@jit
def undo_writes(space):
    """Put back every granule of memory that the last run has written."""
    mem, m, undo = space.mem, space.m, space.undo
    for u in range(m[ml.N_UNDO]):
        place = u * ml.UNDO_WORDS
        for w in range(4):
            store_i64(mem, undo[place] * ms.GRANULE_BYTES + 8 * w, undo[place + 1 + w])
    m[ml.N_UNDO] = 0


@jit
def _forget_syncs(space):
    m, shadow = space.m, space.shadow
    for number in range(m[ml.N_SYNC_KNOWN], m[ml.N_SYNC]):
        shadow[m[m[ml.SYNC_GRANULES] + number] * ml.SHADOW_WORDS + ml.S_FIXED] &= (1 << ml.SYNC_SHIFT) - 1
    m[ml.N_SYNC] = m[ml.N_SYNC_KNOWN]


@jit
def ended(space, run):
    """All kernels have returned: `RUN_DONE`, or `FOUND_WRONG` with the first wrong byte and which range it is of.

    If something broke: only of ranges whose owners have all returned.
    """
    return ml.FOUND_WRONG if _any_wrong(space, run, space.st[ms.FAULT_HAPPENED] != 0) else ml.RUN_DONE


@jit
def returned(space, run, live):
    """After an action, before which ``live`` kernels ran: is what the returned cores own there?"""
    st = space.st
    if st[ms.N_LIVE] == live or st[ms.N_LIVE] == 0 or space.m[ml.JUDGED] == ml.JUDGE_NOTHING:
        return ml.TAKEN_OK  # none has returned; or all have, which `ended` judges
    return ml.FOUND_WRONG if _any_wrong(space, run, True) else ml.TAKEN_OK


@jit
def _any_wrong(space, run, answered):
    """Return whether a byte is wrong, if ``answered`` where all owners have returned; take down the first."""
    m, expected = space.m, run.expected
    for e in range(expected.shape[0]):
        if not answered or _answered(space.st, run.owners, expected[e, results.NUMBER]):
            wrong = results.first_wrong(space.mem, expected, run.expected_bytes, e)
            if wrong >= 0:
                m[ml.V_AT], m[ml.V_SITE] = wrong, expected[e, results.NUMBER]
                return True
    return False


@jit
def _answered(st, answers, e):
    """Have all owners of a range returned?"""
    for a in range(answers.shape[0]):
        if answers[a, 0] == e and st[block_of_core(st, answers[a, 1]) + ms.STATUS] != ms.STATUS_DONE:
            return False
    return True
