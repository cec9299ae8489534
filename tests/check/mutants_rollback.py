"""Bugs in the rollback of an iteration."""

from dataclasses import replace

from xccl_emu.protocols.rollback import Rollback

from .kinds import FAILED, LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

PAIR = Rollback()
ONE = replace(PAIR, iterations=1)
BROKEN, TWICE = replace(PAIR, failures=1, aborts=0), replace(PAIR, aborts=2)

of = Of("rollback")

# ---- what stands in the kernels

FENCE = '    yield xl.fence(step=1, sync="rows before fields")\n'
SENT = "came = yield from wait(field, epoch * EPOCH + i + 1, epoch, r,"
DONE_IN = "came = yield from wait(r.dones + rank * FIELD_BYTES, ended + 1, epoch"
ENDED = "                    ended = epoch\n"

KNOWN = (
    bug("rollback: no fence between rows and fields", ONE, RACE | UNWRITTEN, of(FENCE, ""), quick=True),
    bug("rollback: who waits for rows does not hear of an abort", BROKEN, LOCKED,
        of(SENT, SENT.replace("epoch, r,", "EPOCH, r,")), quick=True),
    bug("rollback: who waits for others does not hear of the end", PAIR, LOCKED,
        of("(over, xl.CMP_GE, 1)", "(over, xl.CMP_GE, 2)")),
    bug("rollback: a rank goes on at its own iteration", PAIR, LOCKED | WRONG | FAILED | RACE | TORN,
        of("least = min(least, seen % EPOCH)", "least = i"), quick=True),
    bug("rollback: fields do not say of which epoch they are", PAIR, FAILED | WRONG | RACE | TORN,
        of("epoch * EPOCH + i + 1, step=1", "i + 1, step=1"), of(SENT, SENT.replace("epoch * EPOCH + i", "i")),
        quick=True),
    bug("rollback: done before the rollback counts as done", ONE, LOCKED | WRONG | FAILED | RACE | TORN,
        of(DONE_IN, DONE_IN.replace("ended + 1", "1")), quick=True),
    bug("rollback: what was told in the epoch before is taken for this one's", TWICE, RACE | LOCKED | WRONG | TORN,
        of("wait(ready, epoch * EPOCH, epoch", "wait(ready, EPOCH, epoch")),
    bug("rollback: the supervisor passes over a rank", PAIR, LOCKED,
        of("            for rank in range(r.ranks):\n                yield xl.put(r.abort",
           "            for rank in range(1, r.ranks):\n                yield xl.put(r.abort"), quick=True),
)  # fmt: skip
OWN = ()
