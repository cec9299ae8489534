"""Bugs in heartbeats."""

from dataclasses import replace

from xccl_emu.protocols.serving.heartbeat import NONE, Heartbeat

from .kinds import FAILED, LOCKED, WRONG
from .mutants import Of, bug

FIRST = Heartbeat(patient=1)
LATER = Heartbeat(beats=2, turns=2, hangs=1, patient=1)
TWO = Heartbeat(masters=2, turns=2, patient=1)
IDLE = Heartbeat(beats=2, turns=2, hangs=NONE, patient=1)

of = Of("serving.heartbeat")

KNOWN = (
    bug("heartbeat: a master answers before its executors have replied", FIRST, WRONG | FAILED,
        of("        if going:\n            beat =", "        if turns >= 0:\n            beat ="), quick=True),
    bug("heartbeat: a master does not wait for its executors", FIRST, WRONG | FAILED,
        of("(reply, xl.CMP_GE, number)", "(reply, xl.CMP_GE, 0)"), quick=True),
    bug("heartbeat: a reply to any turn counts", LATER, FAILED,
        of("(reply, xl.CMP_GE, number)", "(reply, xl.CMP_GE, 1)"), quick=True),
    bug("heartbeat: an answer to any beat counts", replace(LATER, beats=3), FAILED,
        of("(word, xl.CMP_GE, number)", "(word, xl.CMP_GE, 1)"), of("return seen >= number", "return seen > 0"),
        quick=True),
    bug("heartbeat: the time-out of one master counts for all", TWO, FAILED,
        of("stalled = t.stalled + m * FIELD_BYTES", "stalled = t.stalled"), quick=True),
    bug("heartbeat: a time-out that passes before the hang is known", FIRST, FAILED,
        of.without("hang before time-out"), quick=True),
    bug("heartbeat: the silence of one master is told of another", replace(TWO, hangs=0), FAILED | WRONG,
        of("silences | 1 << m", "silences | 2 >> m"), quick=True),
    bug("heartbeat: a master that is idle answers no more", IDLE, LOCKED,
        of("(t.beat + here, xl.CMP_GE, number)", "(t.beat + here, xl.CMP_GE, t.beats + 1)"), quick=True),
    bug("heartbeat: an end is not told on", TWO, LOCKED,
        of("        yield from announce(t.over + (first + e) * t.pitch, 1, 5)", "        pass"), quick=True),
)  # fmt: skip
OWN = ()
