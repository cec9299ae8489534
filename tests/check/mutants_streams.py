"""Bugs in the hand-over of microbatches between two streams."""

from dataclasses import replace

from xccl_emu.protocols.serving.two_streams import TwoStreams

from .kinds import LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

PAIR = TwoStreams()
THREE, FIVE = replace(PAIR, microbatches=3), replace(PAIR, microbatches=5)
CORES = replace(PAIR, attention=2, tokens=2)
BAD = RACE | WRONG | UNWRITTEN | TORN

of = Of("serving.two_streams")

# ---- what stands in the kernels

WRITE, READ = "s.ready + (turn % 2 * s.tokens + first) * s.nbytes", "s.ready + rows"
HANDED, HANDED_IN = "xl.add(s.handed + place", "s.handed + place, (turn // 2 + 1)"
TAKEN = """        yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "microbatch in buffer", step=4)
        yield xl.add(s.taken + place, 1, step=4, sync="taken")
"""
READ_IN = """        if turn >= 2:
            yield xl.poll_ge(s.read + place, turn // 2 * s.attention_cores, step=8, sync="read in")
"""
TAKE = "        yield xl.poll_ge(s.handed"

KNOWN = (
    bug("two streams: one buffer from attention to MoE", PAIR, BAD,
        of(WRITE, "s.ready + first * s.nbytes"), of(READ, "s.ready + first * s.nbytes"), quick=True),
    bug("two streams: what is handed over is counted by layer, not by microbatch", PAIR, BAD,
        of(HANDED, "xl.add(s.handed"), of(HANDED_IN, "s.handed, (turn // s.microbatches + 1)"), quick=True),
    bug("two streams: the return of microbatch 0 is taken for that of 1", PAIR, BAD,
        of("s.returned + place, (earlier", "s.returned, (earlier"), quick=True),
    bug("two streams: fields of tokens have the layer, not the turn", PAIR, BAD,
        of("FIELD_BYTES, turn + 1, step=5", "FIELD_BYTES, turn // s.microbatches + 1, step=5"),
        of("FIELD_BYTES, turn + 1, step=6, sync=\"sent in\"",
           "FIELD_BYTES, turn // s.microbatches + 1, step=6, sync=\"sent in\""), quick=True),
    bug("two streams: no fence between rows and count", PAIR, BAD, of.without("rows before handed")),
)  # fmt: skip
OWN = (
    bug("two streams: a buffer is written before MoE has read it", THREE, BAD, of.without("taken in")),
    bug("two streams: a buffer is written before attention has read it", THREE, BAD, of.without("read in")),
    bug("two streams: a buffer is given back before it is read", THREE, BAD,
        of(TAKEN, "".join(reversed(TAKEN.splitlines(keepends=True))))),
    bug("two streams: MoE takes nothing while a buffer of results is full", FIVE, LOCKED,
        of(READ_IN, ""), of(TAKE, READ_IN + TAKE)),
    bug("two streams: MoE waits for one core of attention", CORES, BAD,
        of("(turn // 2 + 1) * s.attention_cores", "turn // 2 + 1"), quick=True),
)  # fmt: skip
