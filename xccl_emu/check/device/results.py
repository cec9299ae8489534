"""What must be in memory at the end, compared with what is there: any of several contents of some ranges."""

from xccl_emu.machine.device.words import jit

ADDRESS, NBYTES, PLACE, RANGES, CONTENTS, NUMBER = range(6)
"""Words of a row: a range, where its bytes begin, one content after the other; in the last row of what is
judged together, how many ranges that are and how many contents are right; which expectation it is of."""

@jit
def first_wrong(mem, rows, data, e):
    """Return the first byte that is in no content of the ranges that end with a row, -1 if they have one of these."""
    ranges, wrong = rows[e, RANGES], rows[e, ADDRESS] if rows[e, RANGES] else -1
    for c in range(rows[e, CONTENTS]):
        wrong = -1
        for r in range(e + 1 - ranges, e + 1):
            wrong = _differs(mem, rows, data, r, c) if wrong < 0 else wrong
        if wrong < 0:
            return wrong
    return wrong


@jit
def _differs(mem, rows, data, r, c):
    place = rows[r, PLACE] + c * rows[r, NBYTES]
    for b in range(rows[r, NBYTES]):
        if mem[rows[r, ADDRESS] + b] != data[place + b]:
            return rows[r, ADDRESS] + b
    return -1
