"""Bugs in the rollback of pull dispatch and combine."""

from dataclasses import replace

from xccl_emu.protocols.pull.rollback import DispatchRollback, MoeRollback

from .kinds import FAILED, LIVELOCK, LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

ONE = DispatchRollback(tokens=1, granules=1, rounds=1)
TWO = replace(ONE, rounds=2)
LAYERS = MoeRollback(tokens=1, granules=2, rounds=2)
CORES = replace(ONE, cores=2)
ANY = RACE | TORN | WRONG | UNWRITTEN | FAILED | LOCKED

aborts, pull, agreed = Of("aborts"), Of("pull.rollback"), Of("rollback")
dispatched, combined = Of("pull.dispatch"), Of("pull.combine")

# ---- what stands in the kernels

FREE = "least = least * (event != x.first)"

KNOWN = (
    bug("rolled back: fields do not say of which attempt they are", ONE, ANY,
        pull("core, tokens, word + 1, whole", "core, tokens, i + 1, whole"), pull("first = word + 1", "first = i + 1"),
        quick=True),
    bug("rolled back: a rank waits for acknowledgments of the epoch before", ONE, LOCKED,
        aborts(FREE, "least = event - 1"), quick=True),
    bug("rolled back: blocks are free in all rounds", TWO, ANY, aborts(FREE, "least = 0")),
    bug("rolled back: who waits for counts does not hear of an abort", TWO, LOCKED,
        dispatched("until(came, field, xl.CMP_EQ, event, x, 5", "until(1, field, xl.CMP_EQ, event, Abort(), 5"),
        quick=True),
    bug("rolled back: who waits for blocks does not hear of an abort", TWO, LOCKED,
        aborts("until(1, acked, xl.CMP_GE, least, x,", "until(1, acked, xl.CMP_GE, least, Abort(),")),
    bug("rolled back: counts that did not come are taken", ONE, ANY,
        dispatched("        if came:\n            n = yield", "        if 1:\n            n = yield"), quick=True),
    bug("rolled back: what is told was not written", TWO, ANY,
        dispatched("    if all_written:\n", "    if 1:\n")),
    bug("rolled back: a block is written that is not free", TWO, ANY,
        dispatched("            if free:\n", "            if 1:\n")),
    bug("rolled back: rows are told that are not laid out", LAYERS, ANY,
        combined("    if all_laid_out:\n", "    if 1:\n")),
    bug("rolled back: rows are laid out over what is not free", LAYERS, ANY,
        combined("                if free:\n", "                if 1:\n")),
    bug("rolled back: rows that did not come are summed", LAYERS, ANY,
        combined("            if came:\n", "            if 1:\n")),
    bug("rolled back: a rank says that it has come to an epoch while a core still pulls", CORES, ANY,
        pull('    yield from barrier(0, "attempt of all cores over")\n', "")),
    bug("rolled back: a rank goes on at its own round", TWO, ANY,
        agreed("least = min(least, seen % EPOCH)", "least = i")),
    bug("rolled back: each core goes on by itself", CORES, ANY,
        pull("        if c.cores > 1:\n", "        if c.cores > 1 and core == 0:\n")),
    bug("rolled back: a round counts as through though an abort was heard", TWO, ANY,
        pull("good = yield from unaborted(Abort(abort, epoch), 0)", "good = 1"), quick=True),
    bug("rolled back: where to go on is told before it is there", CORES, ANY, pull.without("told")),
)  # fmt: skip
OWN = ()
