"""Bugs in the rollback of A2E and E2A."""

from dataclasses import replace

from xccl_emu.protocols.a2e.case import A2ERollback

from .kinds import FAILED, LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

ONE = A2ERollback(attention=1, experts=1, rounds=1)
TWO = replace(ONE, rounds=2)
FAILING = replace(TWO, failures=1, aborts=0)
CORES = replace(ONE, cores=2, tokens=2)
SPREAD = replace(ONE, experts=2, tokens=2, failures=1, aborts=0)
"""A row comes back from another die than the trampoline."""
ABORTED = replace(SPREAD, failures=0, aborts=1)
ANY = RACE | TORN | WRONG | UNWRITTEN | FAILED | LOCKED

again, attends, forwards, experts, returns, aborts = (
    Of(name) for name in ("a2e.abortable_calls", "a2e.attention", "a2e.trampoline", "a2e.expert", "a2e.e2a", "aborts")
)

# ---- what stands in the kernels

FORGET = "        yield from forget(die, first_call(word, n.stride), c, m, at)\n"
GO_ON = '    yield xl.put(n.resume + here, word, sync="go on")\n'
IF_ON = "    if word != END:\n"

AGREED = '''    """Return whether all cores that run this together go on; a core alone does as it likes."""
    if x.given_up:
'''
ALONE = AGREED.replace("x.given_up", "x.given_up < 0")
SEEN = '        yield from barrier(step, "all cores agree")\n        return seen <= x.epoch\n'

KNOWN = (
    bug("a2e, rolled back: calls have the same numbers in every epoch", ONE, ANY,
        again("return word // EPOCH * stride + word % EPOCH", "return word % EPOCH"), quick=True),
    bug("a2e, rolled back: slots of the first call are waited for", ONE, LOCKED,
        attends("call * (call > first)", "call")),
    bug("a2e, rolled back: arrivals of an aborted attempt count", SPREAD, ANY, again.without("arrivals forgotten")),
    bug("a2e, rolled back: acknowledgments are those of the epoch before", ONE, LOCKED,
        again.without("acknowledgments forgotten")),
    bug("a2e, rolled back: rows are waited for that nobody will send back", ONE, LOCKED,
        again.without("rows forgotten")),
    bug("a2e, rolled back: the other streams go on before arrivals are forgotten", SPREAD, ANY,
        again(IF_ON + FORGET + GO_ON, GO_ON + IF_ON + FORGET)),
    bug("a2e, rolled back: what is forgotten is not yet when the other streams go on", ABORTED, ANY,
        again.without("all forgotten")),
    bug("a2e, rolled back: a die says that it has come to an epoch while a stream is in the one before", ONE, ANY,
        again.without("at rest in"), quick=True),
    bug("a2e, rolled back: who waits for rows does not hear of an abort", ONE, LOCKED,
        attends.at("until_all(core, 1, at.returned_in, call + 1, x,", " x,", " Abort(),")),
    bug("a2e, rolled back: a trampoline that waits for tokens does not hear of an abort", FAILING, LOCKED,
        forwards.at("came = yield from until_least(going, field, calls, x,", " x,", " Abort(),")),
    bug("a2e, rolled back: who waits for rows to compute does not hear of an abort", FAILING, LOCKED,
        experts.at("until_all(core, 1, at.assembled + here, call + 1, x,", " x,", " Abort(),")),
    bug("a2e, rolled back: who waits for rows to send back does not hear of an abort", FAILING, LOCKED,
        returns.at("until_all(core, 1, at.computed + die * c.die_bytes, call + 1, x,", " x,", " Abort(),")),
    bug("a2e, rolled back: rows that did not come are summed", ONE, ANY,
        attends("    if going:\n        yield from sum_tokens", "    if 1:\n        yield from sum_tokens")),
    bug("a2e, rolled back: messages are told that were not forwarded", ONE, ANY,
        forwards("    if going:\n        yield from announce(", "    if 1:\n        yield from announce(")),
    bug("a2e, rolled back: rows are computed that never came", ONE, ANY,
        experts('        if core == 0 and going:\n            yield xl.put(at.computed',
                '        if core == 0:\n            yield xl.put(at.computed')),
    bug("a2e, rolled back: a call counts as through though an abort was heard", TWO, ANY,
        attends("        if going:\n            token = token", "        if 1:\n            token = token")),
    bug("a2e, rolled back: the cores of a stream do not agree", CORES, ANY,
        aborts("def agreed(going, x: Abort, step):\n" + AGREED, "def agreed(going, x: Abort, step):\n" + ALONE)),
    bug("a2e, rolled back: a core that has heard does not write that", CORES, ANY, aborts.without("given up")),
    bug("a2e, rolled back: cores meet before it is visible that one has heard", CORES, ANY,
        aborts.without("given up before all meet")),
    bug("a2e, rolled back: a core goes on before all have seen that all do", CORES, ANY,
        aborts.without("all cores agree")),
    bug("a2e, rolled back: cores that have given up an attempt give up the next one too", CORES, ANY,
        aborts.at(SEEN, "seen <= x.epoch", "seen < 1")),
    bug("a2e, rolled back: a core gathers rows of which another core's were not announced", CORES, ANY,
        experts('going = yield from meet(going, x, 3, "all messages are announced")',
                'yield from barrier(3, "all messages are announced")')),
)  # fmt: skip
OWN = ()
RARE = bug("a2e, rolled back: a call is handed back of which rows are missing", ONE, ANY,
           returns("            if core == 0 and going:\n", "            if core == 0:\n"))  # fmt: skip
"""A bug that the search finds after 25,000 states, and a portfolio of a thousand schedules does not."""
