"""Rounds of a layer that may be rolled back, however its tokens travel ([xDeepServe] 6.2, stage 3).

The first core of a rank agrees with the other ranks, as in `kernels/rollback`, and writes for its siblings a word that
says where they go on.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.aborts import Abort, unaborted
from xccl_emu.kernels.experts.parameters import Group
from xccl_emu.kernels.group import barrier
from xccl_emu.kernels.rollback import RankWords, go_on


def settle():
    """Wait until all is done that the cores of the rank have issued, as between two launches."""
    yield xl.quiet(sync="attempt over")
    yield from barrier(0, "attempt of all cores over")


def share_word(core, word, resume):
    """Share with the other cores of the rank where it goes on; returns that."""
    if core == 0:
        yield xl.put(resume, word, sync="go on")
        yield xl.quiet(sync="told")
    yield from barrier(0, "all cores are told")
    yield xl.dcci(resume, sync="told line")
    word = yield xl.load(resume, sync="told in")
    return word


def next_round(core, i, broken, resume, c: Group, r: RankWords, x: Abort):
    """End an attempt of round ``i``, ``broken`` or not: return epoch and round of the next one, or the end."""
    word = 0
    if core == 0:
        good = 0
        if not broken:
            good = yield from unaborted(x)
        word = yield from go_on(i + good, x.epoch, good, r)
    if c.cores > 1:
        word = yield from share_word(core, word, resume)
    return word
