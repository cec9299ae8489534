"""Bugs in probes of a link."""

from dataclasses import replace

from xccl_emu.protocols.serving.kv.probe import ProbeCase

from .kinds import LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

FULL = ProbeCase(probes=2, patient=1)
CUT = replace(FULL, answers=1)
AT_TIMES = replace(FULL, stands=0, requests=3)

of = Of("serving.kv.probe")

# ---- what stands in the kernels

DEFERRED = "(c.probe, xl.CMP_GE, answered + 1), (c.freed"
LOOK = '        number = yield xl.load(c.answer, step=4, sync="answer in")\n'
LATE = '        yield xl.put(c.late, 1, step=4, sync="time-out")\n'

KNOWN = (
    bug("probe: probes go through the ring of the blocks", FULL, LOCKED,
        of(DEFERRED, "(c.probe, xl.CMP_GE, c.probes + 1), (c.freed"), quick=True),
    bug("probe: an answer does not say to what", CUT, WRONG,
        of("(c.answer, xl.CMP_GE, i + 1)", "(c.answer, xl.CMP_GE, 1)"),
        of("links + i * 8, number <= i", "links + i * 8, number == 0"), quick=True),
    bug("probe: a time-out counts though the answer is there", CUT, WRONG,
        of("        yield xl.poll_any((c.answer", "        came = yield xl.poll_any((c.answer"),
        of("yield from came_to(c.answer", "came = yield from came_to(c.answer"),
        of("links + i * 8, number <= i", "links + i * 8, came"), quick=True),
    bug("probe: a time-out that passes before the answers are there", CUT, WRONG | TORN,
        of.without("answers before time-out"), quick=True),
    bug("probe: a block is ready before it is visible", AT_TIMES, RACE | UNWRITTEN | WRONG,
        of.without("block before ready"), quick=True),
    bug("probe: slots that were freed do not count as free", replace(AT_TIMES, requests=2, slots=3, probes=1), WRONG,
        of("c.n_slots - (pulled - freed), step=3", "c.n_slots - 1 - pulled, step=3"), quick=True),
)  # fmt: skip
OWN = ()
