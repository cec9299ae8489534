"""Bugs in layers that go on with fewer ranks."""

from dataclasses import replace

from xccl_emu.protocols.serving.survivors import DispatchMembership, FusedMembership

from .kinds import AREA, FAILED, LOCKED, RACE, RIGHT, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

PULL = DispatchMembership(ranks=2, tokens=1, granules=1, rounds=2)
ONE = replace(PULL, rounds=1)
FUSED = FusedMembership(ranks=2, cores=1, tokens=1, granules=1, rounds=1)
ANY = RACE | TORN | WRONG | UNWRITTEN | FAILED | LOCKED | AREA | RIGHT

aborts, replicas = Of("aborts"), Of("serving.survivors")
dispatched, combined, pull = Of("pull.dispatch"), Of("pull.combine"), Of("serving.surviving_pull")
sent, fused = Of("fused.dispatch"), Of("serving.surviving_fused")

DEAF = aborts.at(
    "came = yield from unless(1, acknowledged, xl.CMP_GE, least, x,", "x,", "x._replace(epoch=1 << 40),"
)  # fmt: skip
"""Who waits for an acknowledgment does not hear of a loss: of no harm where the lost rank is alive and sends it."""

KEPT = replicas("lost * c.n_ranks * c.n_local + slot", "c.n_ranks * c.n_ranks * c.n_local + slot")
"""A slot keeps the replica that was removed from it; with two ranks none is."""

KNOWN = (
    bug("survivors: counts of the lost rank are waited for", ONE, LOCKED,
        dispatched("        if i // c.n_local != x.left:\n", "        if 1:\n"), quick=True),
    bug("survivors: a message is offered that was left out", PULL, ANY,
        dispatched("    whole = yield from may_offer(x)\n", "    whole = 1\n")),
    bug("survivors: tokens go to slots of the lost rank", replace(ONE, lost=0), ANY,
        replicas("r.maps + lost * r.map_bytes", "r.maps + c.n_ranks * r.map_bytes"), quick=True),
    bug("survivors: fields do not have their attempt", ONE, ANY,
        pull("tokens, epoch * EPOCH + i + 1,", "tokens, i + 1,"), quick=True),
    bug("survivors: acknowledgments of the epoch before are waited for", PULL, LOCKED,
        pull("            first = epoch * EPOCH + i + 1\n", "            first = 1\n")),
    bug("survivors: a round counts as made though a loss was heard of", PULL, ANY,
        replicas("good = yield from unaborted(x)", "good = 1"), quick=True),
    bug("fused survivors: counts of the lost rank are waited for", FUSED, LOCKED,
        sent("        if i // c.n_local != x.left:\n", "        if 1:\n"), quick=True),
    bug("fused survivors: what the lost rank has sent back is taken for another's", replace(FUSED, tokens=2), ANY,
        fused("combine=f.combine + epoch * sets, ", "")),
    bug("fused survivors: arrivals from the lost rank count", FUSED, ANY,
        fused("arrivals=f.arrivals + fields, due=f.due + fields, ", "")),
    bug("fused survivors: counts of the lost rank are read", FUSED, ANY,
        sent("    if x.left == NOBODY:\n", "    if 1:\n"), quick=True),
)  # fmt: skip
OWN = ()
