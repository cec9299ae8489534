"""A ring with several producers and one consumer: a ticket says which slot a message gets.

A producer takes the next ticket, an atomic at the consumer's die, and waits until the slot of that number is free; its
tail says that number, so a slot that is used again cannot be taken for the message before.  The consumer reads in order
of tickets, no matter who was faster, and each time adds to the heads of all producers what it has read, so that none of
these writes can take the place of a newer one.
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.group import hand_over

FIELD_BYTES = 32
"""Bytes of a tail, and of a head."""


class Tickets(NamedTuple):
    """Where ring, tails and tickets are on the consumer's die, the heads on the producers', and the sizes."""

    ring: int
    tails: int
    tickets: int
    heads: int
    """Address of producer 0's head; the head of producer p is ``p * pitch`` further on."""
    pitch: int
    slots: int
    nbytes: int
    """Bytes of a message."""
    producers: int
    messages: int
    """Messages of each producer."""
    done: int
    """Messages of each producer, in the launches before."""
    total: int
    """Messages of each producer, in all launches."""


class _Produces(Tickets):
    ring: xl.Writes
    tails: xl.Writes
    tickets: xl.Updates
    heads: xl.Own[xl.Reads]


class _Consumes(Tickets):
    ring: xl.Reads
    tails: xl.Reads
    heads: xl.Writes


def fetched(source, nbytes):
    """Bring a message into the data buffer."""
    yield xl.mtu_in(source, 0, nbytes)
    yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "message in buffer")


def written():
    """Wait until mtu-out has read the data buffer."""
    yield from hand_over(xl.MTU_OUT, xl.SCALAR, 1, "buffer free")


@xl.kernel
def produce(own: xl.Reads, me, r: _Produces):
    """Send ``own`` [messages, nbytes]; numbers go on from launch to launch, since the consumer may lag by one."""
    for i in range(r.messages):
        yield from fetched(own + i * r.nbytes, r.nbytes)
        ticket = yield xl.atomic_add(r.tickets, 1, sync="ticket")
        yield xl.poll_ge(r.heads + me * r.pitch, ticket + 1 - r.slots, sync="slot free")
        yield xl.mtu_out(0, r.ring + ticket % r.slots * r.nbytes, r.nbytes)
        yield xl.fence(sync="message before tail")
        yield xl.put(r.tails + ticket % r.slots * FIELD_BYTES, ticket + 1, me * r.total + r.done + i)
        yield from written()


@xl.kernel
def consume(out: xl.Writes, r: _Consumes):
    """Leave as many messages as all producers send in a launch at ``out`` [producers, total, nbytes]."""
    for ticket in range(r.producers * r.done, r.producers * (r.done + r.messages)):
        tail = r.tails + ticket % r.slots * FIELD_BYTES
        yield xl.poll_ge(tail, ticket + 1, sync="tail in")
        yield xl.dcci(tail, sync="tail line")
        number = yield xl.load(tail + 8)
        yield from fetched(r.ring + ticket % r.slots * r.nbytes, r.nbytes)
        for p in range(r.producers):
            yield xl.add(r.heads + p * r.pitch, 1)
        yield xl.mtu_out(0, out + number * r.nbytes, r.nbytes)
        yield from written()
