"""Bugs in the rollback of pull dispatch and combine."""

from dataclasses import replace

from xccl_emu.kernels.rollback import EPOCH
from xccl_emu.protocols.pull.case import DispatchRollback, MoeRollback

from .kinds import FAILED, LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

ONE = DispatchRollback(tokens=1, granules=1, rounds=1)
TWO = replace(ONE, rounds=2)
LAYERS = MoeRollback(tokens=1, granules=2, rounds=2)
FAILING = replace(TWO, failures=1, aborts=0)
CORES = replace(ONE, cores=2)
ANY = RACE | TORN | WRONG | UNWRITTEN | FAILED | LOCKED

aborts, pull, rounds = Of("aborts"), Of("pull.abortable_experts"), Of("experts.rounds")
dispatched, combined = Of("pull.dispatch"), Of("pull.combine")

# ---- what stands in the kernels

FREE = "least = least * (event > x.first)"
GO_ON = "word = yield from go_on(i + good, x.epoch, good, r)\n"
OWN_ROUND = GO_ON + f"        if word // {EPOCH} > x.epoch:\n            word = word // {EPOCH} * {EPOCH} + i\n"

KNOWN = (
    bug("rolled back: fields do not say of which attempt they are", ONE, ANY,
        pull("core, tokens, word + 1,", "core, tokens, i + 1,"), pull("first = word + 1", "first = i + 1"),
        quick=True),
    bug("rolled back: a rank waits for acknowledgments of the epoch before", ONE, LOCKED,
        aborts(FREE, "least = event - 1")),
    bug("rolled back: blocks are free in all rounds", TWO, ANY, aborts(FREE, "least = 0")),
    bug("rolled back: who waits for counts does not hear of an abort", TWO, LOCKED,
        dispatched("until(came, field, event, x,", "until(came, field, event, Abort(),")),
    bug("rolled back: who waits for rows does not hear of an abort", LAYERS, LOCKED,
        combined("until(came, field, event, x,", "until(came, field, event, Abort(),")),
    bug("rolled back: counts that did not come are taken", ONE, ANY,
        dispatched("            if came:\n                n = yield", "            if 1:\n                n = yield")),
    bug("rolled back: rows that did not come are summed", LAYERS, ANY,
        combined("            if came:\n", "            if 1:\n")),
    bug("rolled back: rows are offered though some of them never came", LAYERS, ANY,
        combined("    if received:\n", "    if 1:\n"), quick=True),
    bug("rolled back: who has heard acknowledges nothing", FAILING, LOCKED,
        dispatched("    yield from acknowledge(rank, core, event, a.done, c, x)\n",
                   "    good = yield from unaborted(x)\n    if good:\n"
                   "        yield from acknowledge(rank, core, event, a.done, c, x)\n"),
        dispatched("import Abort, may_offer, until", "import Abort, may_offer, unaborted, until")),
    bug("rolled back: a rank says that it has come to an epoch while it still pulls", CORES, ANY,
        dispatched('    yield from barrier(7, "all rows pulled")\n', ""),
        rounds('    yield from barrier(0, "attempt of all cores over")\n', "")),
    bug("rolled back: a rank goes on at its own round", TWO, ANY, rounds(GO_ON, OWN_ROUND)),
    bug("rolled back: each core goes on by itself", CORES, ANY,
        rounds("    if c.cores > 1:\n", "    if c.cores > 1 and core == 0:\n")),
    bug("rolled back: a round counts as through though an abort was heard", TWO, ANY,
        rounds("good = yield from unaborted(x)", "good = 1"), quick=True),
    bug("rolled back: where to go on is told before it is there", CORES, ANY, rounds.without("told")),
)  # fmt: skip
OWN = ()
