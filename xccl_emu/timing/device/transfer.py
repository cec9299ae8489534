"""What a transfer takes: its core's pipe, memory at its ends, ports and switches on its way.

Each of these is a queue that a transfer occupies for its bytes at a rate, waiting until those before it are through.
They are taken in the order of time, to within `LIMIT` of each other.
"""

from typing import NamedTuple

from xccl_emu.machine.device.layout import DIE_SHIFT
from xccl_emu.machine.device.words import jit
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.device import records

FROM_MEMORY, TO_MEMORY = 1, 2
"""Which ends of a transfer are memory: the other one is a core's data buffer."""

_BLOCKS_MAX = 512  # a transfer of more is as good as spread evenly


@jit
def die_at(st, address):
    """The die of an address, or the CPU after the dies."""
    return address >> st[DIE_SHIFT]


@jit
def _block(tm, die):
    return tm[tl.DIE_BASE] + die * tl.DIE_WORDS


@jit
def written_by(tm, die):
    """Index of the time at which all that was written to a die's memory so far is visible."""
    return _block(tm, die) + tl.WRITTEN_BY


@jit
def path_to(tm, here, there, address):
    """The path from a die to the memory at an address, on ``there``: its network and its class (`fabric.PATHS`)."""
    if here == there:
        return 0
    mine, other = _block(tm, here), _block(tm, there)
    if tm[mine + tl.CHIP] == tm[other + tl.CHIP]:
        return 1
    near = 2 if tm[mine + tl.NODE] == tm[other + tl.NODE] else 3
    path = near + 2 if tm[mine + tl.IS_CPU] or tm[other + tl.IS_CPU] else near
    return path + tl.CLASSES * _network(tm, address) if tm[tl.N_ROUTES] else path


@jit
def _network(tm, address):
    """The network over which an address is reached: the first, unless there is a route to it."""
    for i in range(tm[tl.N_ROUTES]):
        route = tl.ROUTES + i * tl.ROUTE_WORDS
        if tm[route + tl.ROUTE_START] <= address < tm[route + tl.ROUTE_END]:
            return tm[route + tl.ROUTE_NETWORK]
    return 0


@jit
def latency_of(tm, path, write):
    """Return the latency of a path: of a read, there and back; of a write, until it is visible."""
    return tm[tl.PATHS + path * tl.PATH_WORDS + (tl.WRITE_LATENCY if write else tl.READ_LATENCY)]


@jit
def round_trips(tm, path):
    """Return what a descriptor takes after its engine's part and its bytes: two round trips in all.

    The latency of a read is a round trip, with the part of the core that asks for it; a descriptor has no such part.
    """
    return max(0, 2 * (latency_of(tm, path, False) - tm[tl.C_DMA_LESS]) - tm[tl.C_DMA_START])


@jit
def acknowledge(tm, who, row, path, visible, number):
    """Have a core wait at its next quiet or fence until what is visible then is acknowledged, by the way back."""
    acked = visible + latency_of(tm, path, True) * tm[tl.C_ACK] // 1000
    records.set_later(tm, who, row + tl.ALL_ACKED, acked, number)


@jit
def _through(tm, queue, time, busy):
    """Pass a queue that serves one transfer after the other; returns when the last byte of this one is through."""
    tm[queue] = max(time, tm[queue]) + busy
    return tm[queue]


@jit
def pass_fabric(tm, path, source, target, address, nbytes, write, ends, time):
    """Send ``nbytes`` from die to die from ``time`` on; returns when the last byte is through all queues on the way.

    ``address`` is where it reads or writes on the other die; ``ends`` says which ends are memory.  Transfers of all
    cores are striped into each other, so one that waits in a queue leaves no later one idle: it takes its turn in
    each of them from the start.
    """
    if path == 0:
        return _memory(tm, source, 2 * nbytes if ends == FROM_MEMORY | TO_MEMORY else nbytes, time)
    end = time
    if ends & FROM_MEMORY:
        end = _memory(tm, source, nbytes, time)
    if ends & TO_MEMORY:
        end = max(end, _memory(tm, target, nbytes, time))
    words = tl.PATHS + path * tl.PATH_WORDS
    rate = tm[words + (tl.WRITE_RATE if write else tl.READ_RATE)]
    if path == 1:
        return max(end, _through(tm, _block(tm, source) + tl.LINK, time, nbytes * rate // 1000))
    network = tl.NETWORKS + path // tl.CLASSES * tl.NETWORK_WORDS
    if tm[words + tl.WITHIN]:
        return max(end, _within(tm, network, source, target, nbytes * rate // 1000, tm[words + tl.WITHIN], time))
    way = _way_between(tm, network, source, target, rate)
    if tm[network + tl.BY_ADDRESS] and nbytes <= _BLOCKS_MAX << tm[network + tl.STRIPE_SHIFT]:
        return max(end, _by_address(tm, network, way, address, nbytes, time))
    return max(end, _striped(tm, network, way, address, nbytes, time))


@jit
def _within(tm, network, source, target, busy, kind, time):
    """The own links of a node: the one of these two dies, or the ports of both to a switch.

    Of up to eight dies in a row no two are as far on from a third, modulo eight, so this separates its links.
    """
    out = tm[network + tl.PORTS] + source * tl.PORT_WORDS + tl.PORT_OUT
    if kind == tl.AT_MESH:
        return _through(tm, out + (target - source & tl.PLANES_MAX - 1), time, busy)
    into = tm[network + tl.PORTS] + target * tl.PORT_WORDS + tl.PORT_IN
    return max(_through(tm, out + 1, time, busy), _through(tm, into + 1, time, busy))


@jit
def _memory(tm, die, nbytes, time):
    """The memory of a die, or of a CPU.

    It is seldom full and all pass it, so who comes a little earlier than the one before (`LIMIT`) must not wait for it:
    it has the time in which the memory was idle before.
    """
    block = _block(tm, die)
    busy = nbytes * (tm[tl.C_DRAM] if tm[block + tl.IS_CPU] else tm[tl.C_MEMORY]) // 1000
    if time >= tm[block + tl.MEMORY]:
        tm[block + tl.IDLE_FROM], tm[block + tl.IDLE_UNTIL] = tm[block + tl.MEMORY], time
        tm[block + tl.MEMORY] = time + busy
        return time + busy
    end = max(time, tm[block + tl.IDLE_FROM]) + busy
    if end > tm[block + tl.IDLE_UNTIL]:
        return _through(tm, block + tl.MEMORY, time, busy)
    tm[block + tl.IDLE_FROM] = end
    return end


class _Way(NamedTuple):
    """The first port of one die out and of another in, the rate of each, and the first link up from the node of the one
    and down to the other's; 0 where both are in one node, or nothing is slow between nodes."""

    out: int
    into: int
    rate_out: int
    rate_in: int
    up: int
    down: int


@jit
def _way_between(tm, network, source, target, rate):
    """A port has the rate of the path, a CPU's one of its own."""
    one, other = _block(tm, source), _block(tm, target)
    far = tm[one + tl.NODE] != tm[other + tl.NODE] and tm[network + tl.UPLINK_RATE] > 0
    return _Way(
        tm[network + tl.PORTS] + source * tl.PORT_WORDS + tl.PORT_OUT,
        tm[network + tl.PORTS] + target * tl.PORT_WORDS + tl.PORT_IN,
        tm[tl.C_CPU] if tm[one + tl.IS_CPU] else rate,
        tm[tl.C_CPU] if tm[other + tl.IS_CPU] else rate,
        tm[network + tl.SWITCHES] + tm[one + tl.NODE] * tl.SWITCH_WORDS + tl.SWITCH_UP if far else 0,
        tm[network + tl.SWITCHES] + tm[other + tl.NODE] * tl.SWITCH_WORDS + tl.SWITCH_DOWN if far else 0,
    )


@jit
def _striped(tm, network, way, address, nbytes, time):
    """A transfer is spread evenly over all planes, and in each over all links to the second tier; a short one has fewer
    stripes than there are planes, and its address decides."""
    planes, shift = tm[network + tl.PLANES], tm[network + tl.STRIPE_SHIFT]
    first, used, share = 0, planes, nbytes
    if nbytes <= (planes - 1) << shift:
        used = (nbytes + (1 << shift) - 1) >> shift
        first = (address >> shift) % planes
        share = nbytes * planes // used
    busy_out, busy_in = share * way.rate_out // 1000, share * way.rate_in // 1000
    busy = share * tm[network + tl.UPLINK_SHARE] // 1000000
    end = time
    for i in range(first, first + used):
        plane = i if i < planes else i - planes
        end = max(end, _through(tm, way.out + plane, time, busy_out), _through(tm, way.into + plane, time, busy_in))
        if way.up:
            link = plane * tl.UPLINKS_MAX
            end = max(end, _through(tm, way.up + link, time, busy), _through(tm, way.down + link, time, busy))
    return end


@jit
def _by_address(tm, network, way, address, nbytes, time):
    """Each block of addresses has one plane and one switch of its second tier, and all bytes of it go there."""
    planes, links, shift = tm[network + tl.PLANES], tm[network + tl.UPLINKS], tm[network + tl.STRIPE_SHIFT]
    end, last = time, address + nbytes
    while address < last:
        size = min(last, ((address >> shift) + 1) << shift) - address
        chosen = _spread(address >> shift)
        plane, share = chosen % planes, size * planes
        end = max(end, _through(tm, way.out + plane, time, share * way.rate_out // 1000))
        end = max(end, _through(tm, way.into + plane, time, share * way.rate_in // 1000))
        if way.up:
            link = plane * tl.UPLINKS_MAX + chosen // tl.PLANES_MAX % links
            busy = size * tm[network + tl.UPLINK_RATE] // 1000
            end = max(end, _through(tm, way.up + link, time, busy), _through(tm, way.down + link, time, busy))
        address += size
    return end


@jit
def _spread(number):
    """A number that looks drawn at random, at least 0, for a block's."""
    mixed = (number ^ number >> 15) & 0x7FFFFFFF  # so that no product wraps around
    mixed = mixed * 0x2C1B3C6D & 0x7FFFFFFF
    mixed = (mixed ^ mixed >> 12) * 0x297A2D39 & 0x7FFFFFFF
    return mixed ^ mixed >> 15
