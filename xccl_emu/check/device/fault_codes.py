"""Numbers of what may break, as the device and `check.faults` know them."""

F_STOP, F_CUT, F_STALL, F_DUPLICATE, F_CORRUPT, F_LOSE = range(1, 7)
"""Kinds as the device knows them."""

STOP, CUT, DUPLICATE, CORRUPT, AGAIN, LOSE = range(1, 7)
"""Actions: a die stops; a link is cut; a write becomes visible and a copy remains; one does so with a bit flipped; the
copy becomes visible; bytes are lost."""

ANY_TARGET = 0xFFFF
