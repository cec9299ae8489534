"""Bugs in the reconfiguration of experts."""

from xccl_emu.protocols.serving.reconfigure import ReconfigureCase

from .kinds import FAILED, RACE, TORN, WRONG
from .mutants import Of, bug

PAIR = ReconfigureCase()
TWICE = ReconfigureCase(sources=1, rounds=3, swaps=2)

of = Of("serving.reconfigure")

# ---- what stands in the kernels

ADOPT = "        version = yield from adopt(version, s)\n"
LOOK = '            now = yield xl.load(s.version + s.me * s.pitch, step=2, sync="version in")\n'
CHOOSE = "            slot = yield from slot_by(version, expert, t, s)\n"
TABLE = "(version % 2 * s.experts + e) * FIELD_BYTES"
BACK = "        for t in range(s.tokens):\n            yield xl.poll_ge(results"
GRACE = "    if s.grace:\n"
LOADED = "    yield xl.mtu_out(0, s.weights + slot * s.nbytes, s.nbytes, step=3)\n"
ENABLED = "    yield from publish(2 * i + 2, expert, slot, between, s)\n"

KNOWN = (
    bug("reconfigure: no grace period", PAIR, RACE | WRONG | FAILED | TORN, of(GRACE, "    if s.grace == 2:\n"),
        quick=True),
    bug("reconfigure: a map is adopted before the tokens of the last one are back", PAIR, RACE | WRONG | FAILED,
        of(ADOPT, ""), of(BACK, ADOPT + BACK), quick=True),
    bug("reconfigure: a map is read again for each token", PAIR, RACE | WRONG | FAILED | TORN,
        of(CHOOSE, LOOK + CHOOSE.replace("version", "now"))),
    bug("reconfigure: one table for all maps", PAIR, RACE | WRONG | FAILED | TORN,
        of(TABLE, "e * FIELD_BYTES"), of("(version % 2 * s.experts + expert)", "expert")),
    bug("reconfigure: weights with no quiet", PAIR, RACE | WRONG | FAILED, of.without("weights before map"),
        quick=True),
)  # fmt: skip

OWN = (
    bug("reconfigure: the slot is enabled before it is loaded", PAIR, RACE | WRONG | FAILED,
        of(ENABLED, ""), of(LOADED, ENABLED + LOADED)),
    bug("reconfigure: a version before its map", PAIR, RACE | WRONG | FAILED | TORN, of.without("map before version")),
    bug("reconfigure: a table is written while it may be in use", TWICE, RACE | WRONG | FAILED | TORN,
        of("        yield from await_adopted(2 * i, s)\n", "        pass\n")),
)  # fmt: skip
