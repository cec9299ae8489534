"""Bugs in the rollback of an iteration."""

from dataclasses import replace

from xccl_emu.protocols.rollback import Rollback

from .kinds import AREA, FAILED, LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

PAIR = Rollback(prompt=0)
ONE = replace(PAIR, iterations=1)
DECODES = replace(PAIR, prompt=1)
BROKEN, TWICE = replace(PAIR, failures=1, aborts=0), replace(PAIR, aborts=2)

of, tokens = Of("rollback"), Of("sampled")

# ---- what stands in the kernels

FENCE = '    yield xl.fence(step=1, sync="rows before fields")\n'
SENT = "came = yield from wait(field, epoch * EPOCH + i + 1, epoch, r,"
DONE_IN = "came = yield from wait(r.dones + rank * FIELD_BYTES, ended + 1, epoch"
BACK = "            yield from go_back(word % EPOCH, t)\n"
OFF = WRONG | UNWRITTEN | AREA
"""Among them an entry after the last one that the cache has room for."""
ENDED = "                    ended = epoch\n"

KNOWN = (
    bug("rollback: no fence between rows and fields", ONE, RACE | UNWRITTEN, of(FENCE, ""), quick=True),
    bug("rollback: who waits for rows does not hear of an abort", BROKEN, LOCKED,
        of(SENT, SENT.replace("epoch, r,", "EPOCH, r,")), quick=True),
    bug("rollback: who waits for others does not hear of the end", PAIR, LOCKED,
        of("(over, xl.CMP_GE, 1)", "(over, xl.CMP_GE, 2)")),
    bug("rollback: a rank goes on at its own iteration", PAIR, LOCKED | WRONG | FAILED | RACE | TORN,
        of("least = min(least, seen % EPOCH)", "least = i"), quick=True),
    bug("rollback: fields do not say of which epoch they are", PAIR, FAILED | WRONG | RACE | TORN,
        of("epoch * EPOCH + i + 1, step=1", "i + 1, step=1"), of(SENT, SENT.replace("epoch * EPOCH + i", "i")),
        quick=True),
    bug("rollback: done before the rollback counts as done", ONE, LOCKED | WRONG | FAILED | RACE | TORN,
        of(DONE_IN, DONE_IN.replace("ended + 1", "1")), quick=True),
    bug("rollback: what was told in the epoch before is taken for this one's", TWICE, RACE | LOCKED | WRONG | TORN,
        of("wait(ready, epoch * EPOCH, epoch", "wait(ready, EPOCH, epoch")),
    bug("rollback: the supervisor passes over a rank", PAIR, LOCKED,
        of("            for rank in range(r.ranks):\n                yield xl.put(r.abort",
           "            for rank in range(1, r.ranks):\n                yield xl.put(r.abort"), quick=True),
    bug("rollback: the cache keeps the entry of an iteration that does not count", DECODES, OFF,
        tokens("    yield xl.store(t.state, t.prompt + i, step=5)\n", ""), quick=True),
    bug("rollback: the cache goes back to the own iteration", DECODES, OFF, of.at(BACK, "word % EPOCH", "i")),
    bug("rollback: the last token stays that of an iteration ahead", DECODES, OFF,
        tokens("    yield xl.store(t.state + 8, token, step=5)\n", ""), quick=True),
    bug("rollback: the token goes back to that of the iteration after", DECODES, OFF,
        tokens("xl.load(t.sampled + i * 8, step=5)", "xl.load(t.sampled + (i + 1) * 8, step=5)")),
    bug("rollback: nothing of the tokens goes back", DECODES, OFF,
        of("if t.prompt and word // EPOCH > epoch:", "if t.prompt and word // EPOCH > EPOCH:")),
    bug("rollback: attention reads the cache before the entry is in it", DECODES, RACE | UNWRITTEN | WRONG,
        tokens.without("entry in cache")),
)  # fmt: skip
OWN = ()
