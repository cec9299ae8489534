"""Bugs in the rollback of FusedDispatch and FusedCombine."""

from dataclasses import replace

from xccl_emu.protocols.fused.case import FusedRollback

from .kinds import FAILED, LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

TWO = FusedRollback(ranks=2, cores=1, tokens=1, rounds=2)
ONE = replace(TWO, rounds=1)
CORES = replace(ONE, cores=2)
PACKED = replace(ONE, preallocated=0)
FAILING = replace(TWO, failures=1, aborts=0)
ANY = RACE | TORN | WRONG | UNWRITTEN | FAILED | LOCKED

fused, rounds = Of("fused.abortable_layer"), Of("experts.rounds")
dispatched, combined = Of("fused.dispatch"), Of("fused.combine")

# ---- what stands in the kernels

FORGET = "    yield from forget(r.me, core, tokens, c, f)\n"
OFFER = "    yield from offer_tokens(r.me, core, tokens, event, c, b, f, x)\n"

KNOWN = (
    bug("fused, rolled back: fields do not say of which attempt they are", ONE, ANY,
        fused("core, tokens, word + 1,", "core, tokens, i + 1,"), quick=True),
    bug("fused, rolled back: arrivals of an aborted attempt count", ONE, ANY, fused(FORGET, ""), quick=True),
    bug("fused, rolled back: arrivals are forgotten when counts are told", ONE, ANY,
        fused(FORGET + OFFER, OFFER + FORGET)),
    bug("fused, rolled back: who waits for counts does not hear of an abort", FAILING, LOCKED,
        dispatched.at("until(going, own + i * FIELD_BYTES, event, x,", "x,", "Abort(),")),
    bug("fused, rolled back: who waits for arrivals does not hear of an abort", ONE, LOCKED,
        combined.at("until_least(going, f.arrivals + own, due, x,", "x,", "Abort(),")),
    bug("fused, rolled back: who waits for room does not hear of an abort", replace(FAILING, preallocated=0),
        LOCKED,
        dispatched.at("until(going, granted, event, x,", "x,", "Abort(),"),
        dispatched.at("until(going, asked, event, x,", "x,", "Abort(),")),
    bug("fused, rolled back: messages go where no room was granted", PACKED, ANY,
        dispatched("    if granted:\n        early", "    if 1:\n        early")),
    bug("fused, rolled back: messages are told that were not sent", PACKED, ANY,
        dispatched("        granted = yield from unaborted(x)\n", "        granted = 1\n")),
    bug("fused, rolled back: counts that did not come are taken", ONE, ANY,
        dispatched("complete = yield from unaborted(x)", "complete = 1")),
    bug("fused, rolled back: rows are computed that never came", ONE, ANY,
        fused("    received = yield from unaborted(x)\n", "    received = 1\n")),
    bug("fused, rolled back: rows are sent back that never came", ONE, ANY,
        combined("    received = yield from unaborted(x)\n", "    received = 1\n")),
    bug("fused, rolled back: contributions that did not come are summed", ONE, ANY,
        combined("        if going:\n", "        if 1:\n")),
    bug("fused, rolled back: a rank says that it has come to an epoch while another core is in the one before", CORES,
        ANY, rounds('    yield from barrier(0, "attempt of all cores over")\n', "")),
    bug("fused, rolled back: a round counts as through though an abort was heard", TWO, ANY,
        rounds("good = yield from unaborted(x)", "good = 1"), quick=True),
)  # fmt: skip
OWN = ()
