"""What a transfer takes: its core's pipe, the egress of the die it leaves, the ingress of the die it goes to.

Each die's egress, ingress and memory, and its link to its sibling, is a queue: a transfer occupies it for its bytes at
the bandwidth of its path, and waits until those before it are through.  They are taken in the order of time, to within
`LIMIT` of each other.
"""

from xccl_emu.machine.device.layout import DIE_SHIFT
from xccl_emu.machine.device.words import jit
from xccl_emu.timing.device.layout import (
    C_UPLINK,
    DIE_BASE,
    DIE_WORDS,
    DIES_PER_CHIP,
    DIES_PER_NODE,
    EGRESS,
    INGRESS,
    LINK,
    LINKS,
    MEMORY,
    NODE_BASE,
    NODE_IN,
    NODE_OUT,
    NODE_WORDS,
    PATH_WORDS,
    PATHS,
    PLANES,
    READ_LATENCY,
    READ_RATE,
    STRIPE_BYTES,
    WRITE_LATENCY,
    WRITE_RATE,
)


@jit
def die_at(st, address):
    """The die of an address."""
    return address >> st[DIE_SHIFT]


@jit
def path_between(tm, source, target):
    """Class of the path between two dies (`fabric.PATHS`)."""
    if source == target:
        return 0
    if source // tm[DIES_PER_CHIP] == target // tm[DIES_PER_CHIP]:
        return 1
    return 2 if source // tm[DIES_PER_NODE] == target // tm[DIES_PER_NODE] else 3


@jit
def latency_of(tm, path, write):
    """Of a path, one way."""
    return tm[PATHS + path * PATH_WORDS + (WRITE_LATENCY if write else READ_LATENCY)]


@jit
def rate_of(tm, path, write):
    """Femtoseconds a byte."""
    return tm[PATHS + path * PATH_WORDS + (WRITE_RATE if write else READ_RATE)]


@jit
def _through(tm, queue, time, busy):
    """Pass a queue that serves one transfer after the other; returns when the last byte of this one is through."""
    tm[queue] = max(time, tm[queue]) + busy
    return tm[queue]


@jit
def pass_fabric(tm, source, target, nbytes, write, time):
    """Send ``nbytes`` from die to die from ``time`` on; returns when the last byte is through all queues on the way.

    Transfers of all cores are striped into each other, so one that waits in a queue leaves none behind it idle: it
    takes its turn in each of them from the start.  A short one takes fewer planes, and one over a path of several links
    takes one of them, each at its share of the rate, so it takes longer than it occupies the queues.
    """
    path = path_between(tm, source, target)
    busy = nbytes * rate_of(tm, path, write) // 1000
    here = tm[DIE_BASE] + source * DIE_WORDS
    if path < 2:  # memory, or the link on the package
        return _through(tm, here + (MEMORY if path == 0 else LINK), time, busy)
    end = _through(tm, here + EGRESS, time, busy)
    if path == 3 and tm[C_UPLINK]:
        shared = nbytes * tm[C_UPLINK] // 1000
        out, into = source // tm[DIES_PER_NODE], target // tm[DIES_PER_NODE]
        end = max(end, _through(tm, tm[NODE_BASE] + out * NODE_WORDS + NODE_OUT, time, shared))
        end = max(end, _through(tm, tm[NODE_BASE] + into * NODE_WORDS + NODE_IN, time, shared))
    end = max(end, _through(tm, tm[DIE_BASE] + target * DIE_WORDS + INGRESS, time, busy))
    used = min(tm[PLANES], (nbytes + tm[STRIPE_BYTES] - 1) // tm[STRIPE_BYTES])
    own = max(busy * tm[PLANES] // used, busy * tm[PATHS + path * PATH_WORDS + LINKS])
    return end - busy + own
