"""Bugs in requests whose transfer is given up and tried again."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from xccl_emu.check.trial import Trial
from xccl_emu.protocols.serving.kv.retry import KvRetryCase

from .kinds import FAILED, LIVELOCK, LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug, ends_with


@dataclass(frozen=True)
class AllServed(KvRetryCase):
    """The first instance must serve all, and nobody wait in vain, as it is where no time-out passes."""

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """Expect what they say."""
        instances = {f"die{die}.said{q}": (0,) for die in range(self.instances) for q in range(self.receivers)}
        receivers = {f"die{self.instances}.said{q}": (1,) * self.requests for q in range(self.receivers)}
        return ends_with(super().build(order, without), {**instances, **receivers})


LATE = KvRetryCase()
ABORTED = KvRetryCase(instances=1, mortal=0, aborts=1, requests=2)
BETWEEN = replace(ABORTED, receivers=2, requests=1, layers=1, slots=1)

TIMED = KvRetryCase(instances=1, mortal=0, layers=1, slots=1, timed=1)
TIMED_TWO = replace(TIMED, instances=2)
SERVED = AllServed(instances=1, mortal=0, layers=1, slots=1, timed=1)

of = Of("serving.kv.retry")

# ---- what stands in the kernels

QUIET = '            yield xl.quiet(step=8, sync="nothing under way")\n'
IF_THERE = '            if seen == CAME:\n                yield xl.quiet(step=8, sync="nothing under way")\n'
FREED = '            if mask:\n                yield xl.add(r.taken, -mask, step=8, sync="slots freed")\n'
TAG = "                tag = epoch * EPOCH + layer + 1\n"
TASK = "yield xl.put(task, epoch * EPOCH + layer + 1, request"
HEARD = "(ask, xl.CMP_GE, (epoch + 1) * EPOCH), (done"
ANY = RACE | WRONG | TORN | UNWRITTEN | FAILED
IN_TIME = (
    of('        late = yield xl.choose(2, epoch, step=8, sync="time-out")\n', "        late = 0\n"),
    of('            late = yield xl.choose(2, tag, step=6, sync="time-out")\n', "            late = 0\n"),
)
"""No time-out passes."""
SERVED_BY = "there * (instance + 1), step=8"
WAITED = "xl.store(r.said, heard == LATE)"

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
    bug("kv-retry: a receiver says that nobody served it", TIMED, WRONG, of(SERVED_BY, "0, step=8"), quick=True),
    bug("kv-retry: a receiver names the last instance", TIMED_TWO, WRONG,
        of(SERVED_BY, "there * r.instances, step=8"), quick=True),
    bug("kv-retry: an instance says that it has not waited in vain", TIMED, WRONG, of(WAITED, "xl.store(r.said, 0)"),
        quick=True),
    bug("kv-retry: an instance says that it has waited in vain, and has not", SERVED, WRONG,
        of(WAITED, "xl.store(r.said, 1)"), base=IN_TIME, quick=True),
    bug("kv-retry: a receiver asks nobody", SERVED, WRONG,
        of("while not there and instance < r.instances:", "while not there and instance < 0:"), base=IN_TIME),
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
