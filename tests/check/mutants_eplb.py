"""Bugs in the loop of expert balance."""

from dataclasses import replace

from xccl_emu.protocols.serving.eplb import EplbLoop

from .kinds import FAILED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

ONE = EplbLoop(granules=1, tokens="0,3", rounds=3)
FIVE, SLICES = replace(ONE, tokens="5,0"), replace(ONE, slices=2)

of, of_swap = Of("serving.eplb"), Of("serving.reconfigure")

# ---- what is in the kernels

ANY = RACE | WRONG | FAILED | TORN | UNWRITTEN
GRACE = "    if s.grace:\n"
REPORTED = "                    yield xl.ub_store(4 * expert, n + 1, step=1)\n"
DECIDED = "        yield xl.put(decided + period * FIELD_BYTES, expert, slot, step=3)\n"

KNOWN = (
    bug("eplb-loop: a report before its counts", ONE, ANY, of.without("counts before report")),
    bug("eplb-loop: the leader does not wait for the reports of all ranks", ONE, ANY, of.without("report in"),
        quick=True),
    bug("eplb-loop: a choice is not counted", ONE, WRONG,
        of(REPORTED, REPORTED.replace("n + 1", "n + (t > 0)")), quick=True),
    bug("eplb-loop: a replica takes none of its expert's load", FIVE, ANY,
        of.at("load += tokens * (2 - (expert == replicated))\n        if", " * (2 - (expert == replicated))", " * 2")),
    bug("eplb-loop: the map has another slot than the one that is loaded", ONE, ANY,
        of_swap.at("yield from publish(2 * i + 2, expert, slot, between, s)", "slot,", "slot + 2,")),
    bug("eplb-loop: the weights of another expert", ONE, ANY,
        of_swap("storage + expert * s.nbytes", "storage + (expert + 1) % s.experts * s.nbytes")),
    bug("eplb-loop: no grace period", ONE, ANY, of_swap(GRACE, "    if s.grace == 2:\n")),
    bug("eplb-loop: weights on another rank with no quiet", ONE, ANY, of_swap.without("weights before map")),
    bug("eplb-loop: the load of the first slice alone", SLICES, ANY,
        of("    for piece in range(k.slices):\n        expert = yield from hottest",
           "    for piece in range(1):\n        expert = yield from hottest")),
)  # fmt: skip
OWN = ()
