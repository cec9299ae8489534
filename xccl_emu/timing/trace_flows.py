"""Which write each action of a timed run saw: where the arrows of a trace begin."""

import numpy as np
from numpy.typing import NDArray

from xccl_emu.lang import operations as ops
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.run import Timing

NOTHING = -1
"""In place of the number of a record."""

_SEEING = ops.POLLS | (ops.FETCHES & ops.QUEUED)
_WORD = 8
_Numbers = NDArray[np.int64]


def seen_writes(timing: Timing, rows: _Numbers) -> _Numbers:
    """Return, for each of some records, the number of the write that it saw, of the same records, or `NOTHING`.

    That is, of the writes by other cores to what it reads which were visible when it began, the last to become so.
    Polls, transfers, DMA and the loads that are synchronizations see writes; other loads read what does not change.
    """
    saw = np.full(len(rows), NOTHING, np.int64)
    writes = _Writes(timing, rows)
    for i in np.flatnonzero(_sees(timing, rows)).tolist():
        saw[i] = writes.seen_by(timing.records[rows[i]])
    return saw


def _sees(timing: Timing, rows: _Numbers) -> NDArray[np.bool_]:
    records = timing.records[rows]
    asked = records[:, tl.RECORD_OP]
    sees: NDArray[np.bool_] = (_SEEING >> asked & 1 != 0) & (records[:, tl.RECORD_READ] >= 0)
    for i in np.flatnonzero(ops.LOADS >> asked & 1).tolist():
        site = timing.site(records[i])
        sees[i] = site is not None and bool(site.sync)
    return sees


class _Writes:
    """The writes among some records, by address."""

    def __init__(self, timing: Timing, rows: _Numbers) -> None:
        written = timing.records[rows, tl.RECORD_WRITTEN]
        numbers = rows[written >= 0]
        self._numbers = numbers[np.argsort(timing.records[numbers, tl.RECORD_WRITTEN], kind="stable")]
        found = timing.records[self._numbers]
        self._start, self._core = found[:, tl.RECORD_WRITTEN], found[:, tl.RECORD_CORE]
        sizes = np.maximum(found[:, tl.RECORD_NBYTES], _WORD)
        self._end, self._visible = self._start + sizes, found[:, tl.RECORD_VISIBLE]
        self._longest = int(sizes.max(initial=0))

    def seen_by(self, row: _Numbers) -> int:
        """Number of the write that a record saw, or `NOTHING`."""
        read = int(row[tl.RECORD_READ])
        end = read + max(int(row[tl.RECORD_NBYTES]), _WORD)
        first, last = np.searchsorted(self._start, [read - self._longest, end])
        near = slice(int(first), int(last))
        fits = (self._end[near] > read) & (self._core[near] != row[tl.RECORD_CORE])
        fits &= self._visible[near] <= row[tl.RECORD_START]
        if not fits.any():
            return NOTHING
        return int(self._numbers[near][np.where(fits, self._visible[near], -1).argmax()])
