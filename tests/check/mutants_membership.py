"""Bugs in going on with fewer ranks."""

from collections.abc import Collection
from dataclasses import dataclass

from xccl_emu.check.trial import Trial
from xccl_emu.protocols.serving.membership import Membership

from .kinds import FAILED, LIVELOCK, LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug, ends_with


@dataclass(frozen=True)
class AllThrough(Membership):
    """All must say that they are through and have waited for nobody in vain, as they are where no time-out passes."""

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """Expect what they say."""
        ranks = {f"die{rank}.said": (self.iterations, -1) for rank in range(self.ranks)}
        return ends_with(super().build(order, without), {**ranks, f"die{self.ranks}.said": (0, -1)})


THREE = Membership()
PAIR = Membership(ranks=2, lost=1)
TIMED = Membership(ranks=2, lost=2, timed=1)
THROUGH_ALL = AllThrough(ranks=2, lost=2, timed=1)
JOINS = Membership(ranks=2, lost=1, joins=1)
JOINS_LATER = Membership(ranks=2, lost=1, joins=1, iterations=2)

of = Of("serving.membership")

# ---- what stands in the kernels

FENCE = '    yield xl.fence(step=1, sync="rows before fields")\n'
FIELD = "yield xl.put(there, g.epoch * EPOCH + i + 1, step=1"
FIELD_IN = "(field, xl.CMP_GE, g.epoch * EPOCH + i + 1)"
WORD_IN = "(g.word + here, xl.CMP_GE, (g.epoch + 1) * EPOCH),\n                    step=2"
THROUGH = "            through = max(through, i + 1)\n"
DONE = "yield xl.put(g.dones + g.me * FIELD_BYTES, epoch + 1"
DONE_IN = "yield xl.poll_ge(g.dones + rank * FIELD_BYTES, epoch + 1"
INHERITS = "        if heir == g.me:\n"
EXCLUDED = "            over = lost == g.me\n"
TO_OTHERS = "        rank = (g.me + j) % g.ranks\n        if rank != g.lost and least > END:\n            ready = "

IN_TIME = (
    of('        late = yield xl.choose(2, of=rank, step=step, sync="time-out")\n', "        late = 0\n"),
    of('                late = yield xl.choose(2, of=rank, step=6, sync="time-out")\n', "                late = 0\n"),
)
"""No time-out passes."""
BEGINS = "    while now > END:\n        i = now"
SAYS = "yield from say(through, END - 1 - now, g)"
JOIN_ASKED = "            asked = yield from look(g.joins, 7)\n"

KNOWN = (
    bug("membership: no fence between rows and fields", PAIR, RACE | UNWRITTEN, of(FENCE, ""), quick=True),
    bug("membership: a rank goes on at its own iteration", THREE,
        LOCKED | WRONG | FAILED | RACE | TORN | UNWRITTEN, of("least = min(least, seen % EPOCH)", "least = i")),
    bug("membership: fields do not say of which epoch they are", THREE,
        LOCKED | FAILED | WRONG | RACE | TORN | UNWRITTEN, of(FIELD, FIELD.replace("g.epoch * EPOCH + ", "")),
        of(FIELD_IN, FIELD_IN.replace("g.epoch * EPOCH + ", "")), quick=True),
    bug("membership: done before the loss counts as done", THREE, LOCKED | WRONG | FAILED | RACE | TORN,
        of(DONE_IN, DONE_IN.replace("epoch + 1", "1")), quick=True),
    bug("membership: nobody tells again that it is through", PAIR, LOCKED, of(DONE, DONE.replace("epoch + 1", "1")),
        quick=True),
    bug("membership: the heir does not send what it has inherited", THREE, LOCKED,
        of(INHERITS, "        if heir == g.me + g.ranks:\n"), quick=True),
    bug("membership: who is given up goes on", PAIR, LOCKED | WRONG | FAILED | RACE | TORN | UNWRITTEN,
        of(EXCLUDED, "            over = 0\n"), quick=True),
    bug("membership: those that are left wait for who was lost", THREE, LOCKED | FAILED | RACE,
        of(TO_OTHERS, TO_OTHERS.replace("rank != g.lost", "rank != g.me"))),
    bug("membership: the supervisor passes over a rank", THREE, LOCKED,
        of("            for each in range(g.ranks):\n                word =",
           "            for each in range(1, g.ranks):\n                word ="), quick=True),
    bug("membership: a time-out counts as rows that are there", TIMED, RACE | TORN | UNWRITTEN | WRONG | FAILED,
        of("good = came == 0", "good = came != 1"), quick=True),
    bug("membership: a rank that waited in vain says nobody is lost", TIMED, WRONG,
        of("now = END - 1 - (came - LATE)", "now = END"), quick=True),
    bug("membership: who waits for a rank says that the supervisor is lost", TIMED, WRONG,
        of("came += owner", "came += g.ranks"), quick=True),
    bug("membership: an iteration counts before its rows are there", TIMED, WRONG | UNWRITTEN,
        of(THROUGH, ""), of("        if came >= LATE:\n", THROUGH[4:] + "        if came >= LATE:\n"), quick=True),
    bug("membership: who asks too late to join hears of no end", JOINS, LOCKED,
        of("if each != lost or g.joins:", "if each != lost:"), quick=True),
    bug("membership: who waits for a rank that joins hears of no loss", JOINS, LOCKED,
        of("(news, xl.CMP_GE, (g.epoch + 1) * EPOCH)", "(news, xl.CMP_GE, (g.epoch + 9) * EPOCH)"), quick=True),
    bug("membership: a rank is taken in twice for one question", JOINS, LOCKED,
        of("joins = joins and late", "joins = joins > 0"), quick=True),
    bug("membership: a rank that joins has rows of all iterations", JOINS_LATER,
        WRONG | UNWRITTEN, of("xl.store(joined, max(now, 0) % EPOCH", "xl.store(joined, 0"), quick=True),
    bug("membership: who waited in vain names itself", TIMED, WRONG, of("came += owner", "came += g.me"), quick=True),
    bug("membership: who waited in vain names a rank that is not there", TIMED, WRONG,
        of("came += owner", "came += 77")),
    bug("membership: a rank that has not heard of the end says nobody is lost", TIMED, WRONG,
        of("i = END - 1 - g.ranks", "i = END"), quick=True),
    bug("membership: the supervisor says nobody is lost though it waited in vain", TIMED, WRONG,
        of("yield from say(0, silent, g)", "yield from say(0, -1, g)"), quick=True),
    bug("membership: all return at once and blame each other", THROUGH_ALL, LIVELOCK | WRONG,
        of(BEGINS, f"    now = END - 1 - (g.me + 1) % g.ranks\n{BEGINS}"), base=IN_TIME),
    bug("membership: a rank says that it has no rows", THROUGH_ALL, WRONG,
        of(SAYS, SAYS.replace("through", "0")), base=IN_TIME),
    bug("membership: a rank that joins says that it has no rows", JOINS_LATER, WRONG,
        of("xl.store(joined + 8, through,", "xl.store(joined + 8, 0,"), quick=True),
    bug("membership: a rank that joins has rows to the end, it says", JOINS_LATER, WRONG | UNWRITTEN,
        of("xl.store(joined + 8, through,", "xl.store(joined + 8, g.iterations + 1,")),
)  # fmt: skip
OWN = ()

NOBODY_JOINS = of(JOIN_ASKED, "            asked = 0\n            joins = 0\n")
"""The supervisor answers no join: nothing is wrong then, but that nobody joins."""

LIVED = "            before = yield from lived(lives)\n"
LIVES = {
    "it goes on where the life before began": (of(LIVED, f"{LIVED}            before = 0\n"),),
    "its life is not kept before others hear of it": (
        of("    yield xl.quiet(step=7)\n    return before", "    return before"),
    ),
}
"""Bugs that show only where the die of a rank begins again."""
