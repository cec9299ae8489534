"""Bugs in DeepEP's low-latency dispatch and combine."""

from dataclasses import replace

from xccl_emu.protocols.deepep.case import DeepEpCase

from .kinds import LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

PAIR = DeepEpCase(ranks=2, tokens=2, rounds=2)
THREE = replace(PAIR, ranks=3, tokens=1)
IDLE = replace(PAIR, tokens="2,0")
CORES = replace(PAIR, cores=2)

of_dispatch, of_combine = (Of(module) for module in ("deepep.dispatch", "deepep.combine"))
"""Modules of kernels, to be changed."""

# ---- what stands in both

CLEAN = "    for i in range(first, last):\n        yield xl.store(signals + i * SIGNAL_BYTES, 0, step=1)\n"
ALL_CLEAN = "    yield from all_clean()\n"
SETS = "SETS = 2\n"

# ---- what stands in dispatch

COUNTS_IN = 'count = yield xl.poll_ne(signals + i * SIGNAL_BYTES, 0, step=5, sync="counts in")\n'
LOADED = "count = yield xl.load(signals + i * SIGNAL_BYTES, step=5)\n"
SENT = "    yield from send_tokens(rank, tokens, first, last, call, c, b, s)\n"
TOLD = "    yield from announce(rank, first, last, call, c, s)\n"
PLACE = "    place = (rank * c.n_local + slot % c.n_local) * s.slots + n\n"

KNOWN = (
    bug("deepep: counts as they are, so that nobody sees zero tokens", PAIR, LOCKED,
        of_dispatch.at('SIGNAL_BYTES, -n - 1, step=4, sync="count")', "-n - 1", "-n"),
        of_dispatch.at("-count - 1, 4, step=5)", "-count - 1", "-count"), quick=True),
    bug("deepep: one buffer set", PAIR, LOCKED | RACE | UNWRITTEN | WRONG | TORN, of_dispatch(SETS, "SETS = 1\n")),
    bug("deepep: the next buffer set is not cleaned", PAIR, RACE | UNWRITTEN | WRONG | TORN | LOCKED,
        of_dispatch.at(CLEAN, "last", "first")),
    bug("deepep: the next buffer set is cleaned behind the counts", PAIR, RACE | LOCKED | TORN,
        of_dispatch(ALL_CLEAN, ""), of_dispatch(TOLD, TOLD + ALL_CLEAN), quick=True),
    bug("deepep: counts on the queue before the tokens", PAIR, RACE | UNWRITTEN | WRONG | LOCKED,
        of_dispatch(SENT + TOLD, TOLD + SENT)),
    bug("deepep: a rank with no tokens tells nobody", IDLE, LOCKED,
        of_dispatch(TOLD, "    if tokens > 0:\n    " + TOLD)),
)  # fmt: skip

OWN = (
    bug("deepep: counts are not awaited", PAIR, RACE | UNWRITTEN | WRONG | LOCKED | TORN,
        of_dispatch(COUNTS_IN, LOADED)),
    bug("deepep: no order of tokens and counts", PAIR, RACE | UNWRITTEN, of_dispatch.without("tokens before counts")),
    bug("deepep: no order of rows and flags", PAIR, RACE | UNWRITTEN, of_combine.without("rows before flags")),
    bug("deepep: cores clean and do not meet", replace(CORES, tokens=3), RACE | LOCKED | TORN | WRONG | UNWRITTEN,
        of_dispatch.without("all cores have cleaned")),
    bug("deepep: blocks of all sources in one place", THREE, RACE | WRONG | UNWRITTEN,
        of_dispatch(PLACE, "    place = slot % c.n_local * s.slots + n\n")),
    bug("deepep: a core adds up when its own flags are in", CORES, RACE | UNWRITTEN | WRONG,
        of_combine.without("all flags are in")),
)  # fmt: skip
