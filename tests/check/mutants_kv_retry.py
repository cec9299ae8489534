"""Bugs in requests whose transfer is given up and tried again."""

from dataclasses import replace

from xccl_emu.protocols.serving.kv.retry import KvRetryCase

from .kinds import FAILED, LIVELOCK, LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

LATE = KvRetryCase()
ABORTED = KvRetryCase(instances=1, mortal=0, aborts=1, requests=2)
BETWEEN = replace(ABORTED, receivers=2, requests=1, layers=1, slots=1)

TIMED = KvRetryCase(instances=1, mortal=0, layers=1, slots=1, timed=1)

of = Of("serving.kv.retry")

# ---- what stands in the kernels

QUIET = '            yield xl.quiet(step=8, sync="nothing under way")\n'
IF_THERE = '            if seen == CAME:\n                yield xl.quiet(step=8, sync="nothing under way")\n'
FREED = '            if mask:\n                yield xl.add(r.taken, -mask, step=8, sync="slots freed")\n'
TAG = "                tag = epoch * EPOCH + layer + 1\n"
TASK = "yield xl.put(task, epoch * EPOCH + layer + 1, request"
HEARD = "(ask, xl.CMP_GE, (epoch + 1) * EPOCH), (done"
ANY = RACE | WRONG | TORN | UNWRITTEN | FAILED

KNOWN = (
    bug("kv-retry: slots are released while the pull goes on", BETWEEN, ANY, of(QUIET, IF_THERE), quick=True),
    bug("kv-retry: a task of an attempt that was aborted is taken", ABORTED, ANY | LOCKED,
        of(TAG, "                tag = layer + 1\n"), of(TASK, TASK.replace("epoch * EPOCH + ", "")), quick=True),
    bug("kv-retry: no time-out", LATE, LIVELOCK,
        of('            late = yield xl.choose(2, tag, step=6, sync="time-out")\n            seen = late * LATE\n',
           "            seen = WAITING\n"), quick=True),
    bug("kv-retry: slots of an aborted request stay taken", ABORTED, LOCKED,
        of(FREED, FREED.replace("if mask:", "if seen == CAME:")), quick=True),
    bug("kv-retry: an instance that waits for room does not hear of an abort", ABORTED, LOCKED,
        of(HEARD, HEARD.replace("EPOCH), (done", "EPOCH * EPOCH), (done")), quick=True),
    bug("kv-retry: what was read before counts for the new attempt", ABORTED, ANY,
        of("(done, xl.CMP_GE, before + layer + 1 - r.pool)", "(done, xl.CMP_GE, layer + 1 - r.pool)"), quick=True),
    bug("kv-retry: a request that nobody served counts as served", TIMED, WRONG | UNWRITTEN,
        of("there * (instance + 1)", "min(instance + 1, r.instances)"), quick=True),
    bug("kv-retry: an instance whose time is up takes a block that is not pulled yet",
        replace(TIMED, layers=2, slots=2), ANY, of("came = heard == CAME", "came = heard != ABORTED"), quick=True),
)  # fmt: skip

OWN = (
    bug("kv-retry: who is given up is not told the end", LATE, LOCKED,
        of("for each in range(r.instances)", "for each in range(1, r.instances)")),
    bug("kv-retry: a task before its block", LATE, ANY, of.without("block before task")),
    bug("kv-retry: done before the block is in the data buffer", replace(ABORTED, aborts=0), ANY,
        of('    yield from move_row(block, slot, r.nbytes, 0, turn, 7)\n', ""),
        of('    yield xl.add(r.done + instance * r.pitch, 1, step=8, sync="done")\n',
           '    yield xl.add(r.done + instance * r.pitch, 1, step=8, sync="done")\n'
           "    yield from move_row(block, slot, r.nbytes, 0, turn, 7)\n")),
)  # fmt: skip
