"""Numbers of what may break, as the device and `check.faults` know them."""

F_STOP, F_CUT, F_STALL, F_DUPLICATE, F_CORRUPT, F_LOSE, F_REVIVE = range(1, 8)
"""Kinds as the device knows them."""

STOP, CUT, DUPLICATE, CORRUPT, AGAIN, LOSE, REVIVE = range(1, 8)
"""Actions: a die stops; a link is cut; a write becomes visible and a copy remains; one does so with a bit flipped; the
copy becomes visible; bytes are lost; the kernels of a die start again."""

ACTIONS = (0, STOP, CUT, 0, DUPLICATE, CORRUPT, LOSE, REVIVE)
"""By kind, the action with which it begins; a stalled link has none."""

OF_DIE = 1 << F_STOP | 1 << F_LOSE | 1 << F_REVIVE
AT_ONCE = OF_DIE | 1 << F_CUT
"""Kinds, a bit each, that are of one die; and that are actions by themselves, which no write goes with."""

ANY_TARGET = 0xFFFF
