"""Bugs in the small protocols of `mutants_kernels`, and their configurations."""

import numpy as np

from xccl_emu.lang import Kernel
from xccl_emu.machine import Grant, Pod, small_pod
from xccl_emu.protocol import payload
from xccl_emu.testing import Bench, protocol

from . import mutants_kernels as device
from .kinds import LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

NBYTES = 64
ROUNDS = 4
VALUE = 0x0102030405060708


def _pod(bench: Bench, dies: int, cores: int) -> Pod:
    """A pod of a kilobyte a die."""
    return bench.pod(
        small_pod(dies, cores, app_bytes=512, meta_bytes=256, managed_bytes=256, ub_bytes=256, flight_granules=32)
    )


def _launch(pod: Pod, kernel: Kernel, die: int, **args: int | list[int]) -> None:
    """On all cores for which there are arguments, free to touch everything."""
    cores = max((len(each) for each in args.values() if isinstance(each, list)), default=1)
    pod.launch(kernel, die, range(cores), args, [Grant(None, 0, pod.spec.die_bytes, "rw")])


def _push(bench: Bench, dies: int, cores: int, kernel: Kernel) -> None:
    pod, nbytes = _pod(bench, dies, cores), ROUNDS * NBYTES
    for die in range(dies):
        peer = 1 - die
        given = bench.filled(die, payload(nbytes, 1 + die))
        out = bench.wanted(die, payload(nbytes, 1 + peer), owners=f"die{die}")
        _launch(
            pod, kernel, die, x=given.address, nbytes=NBYTES, inbox=pod.managed(die), outbox=pod.managed(peer),
            flag=pod.meta(die), peer_flag=pod.meta(peer), out=out.address, rounds=ROUNDS,
        )  # fmt: skip


@protocol
def push_counted(bench: Bench, dies: int = 2, cores: int = 1) -> None:
    """Two ranks, flags that hold the round's number."""
    _push(bench, dies, cores, device.push_counted)


@protocol
def push_boolean(bench: Bench, dies: int = 2, cores: int = 1) -> None:
    """Two ranks, flags that reset."""
    _push(bench, dies, cores, device.push_boolean)


@protocol
def arrivals(bench: Bench, dies: int = 3, cores: int = 1) -> None:
    """Two experts and the die of the token, with a slot for each of them."""
    pod = _pod(bench, dies, cores)
    for die in (1, 2):
        x, slot = bench.filled(die, payload(NBYTES, die)), pod.managed(0, (die - 1) * NBYTES)
        _launch(pod, device.contribute, die, x=x.address, nbytes=NBYTES, slot=slot, counter=pod.meta(0))
    out = bench.wanted(0, np.concatenate([payload(NBYTES, die) for die in (1, 2)]), owners="die0")
    counter = pod.meta(0)
    _launch(pod, device.collect, 0, slots=pod.managed(0), nbytes=NBYTES, n=2, counter=counter, out=out.address)


@protocol
def counter_barrier(bench: Bench, dies: int = 3, cores: int = 1) -> None:
    """Two dies; each one's word is on the other's die, the counter on a third."""
    pod = _pod(bench, dies, cores)
    for die in range(2):
        out = bench.wanted(die, np.array([VALUE + 1 - die]), owners=f"die{die}")
        words = {"mine": pod.meta(1 - die, 32), "theirs": pod.meta(die, 32)}
        _launch(pod, device.meet, die, **words, counter=pod.meta(2), n=2, value=VALUE + die, out=out.address)


@protocol
def two_cores(bench: Bench, dies: int = 2, cores: int = 2) -> None:
    """Two cores of die 0 send together to die 1."""
    pod, data = _pod(bench, dies, cores), payload(2 * NBYTES, 1)
    x, out = bench.filled(0, data), bench.wanted(1, data, owners="die1")
    slot, tail = pod.managed(1), pod.meta(1)
    _launch(pod, device.send_together, 0, core=[0, 1], x=x.address, nbytes=NBYTES, slot=slot, tail=tail)
    _launch(pod, device.receive_together, 1, slot=slot, nbytes=2 * NBYTES, tail=tail, out=out.address)


@protocol
def cleared(bench: Bench, dies: int = 2, cores: int = 1) -> None:
    """Calls one after the other on a slot whose ack field is cleared between them."""
    pod, data = _pod(bench, dies, cores), payload(ROUNDS * NBYTES, 1)
    x, out = bench.filled(0, data), bench.wanted(1, data, owners="die1")
    both = {"nbytes": NBYTES, "slot": pod.managed(1), "tail": pod.meta(1), "ack": pod.meta(0), "rounds": ROUNDS}
    _launch(pod, device.send_cleared, 0, **both, x=x.address)
    _launch(pod, device.receive_cleared, 1, **both, out=out.address)


PUSH, PUSH_BOOLEAN, ARRIVALS = push_counted(), push_boolean(), arrivals()
BARRIER, TWO_CORES, CLEARED = counter_barrier(), two_cores(), cleared()
edit = Of("mutants_kernels")
"""The kernels, to be changed."""

BOOLEAN_FLAG = '        yield put(peer_flag + half * 32, 1, sync="flag")\n'
BUFFERS = 'outbox + half * nbytes, 0, nbytes, 0)\n        yield quiet(sync="token visible")'
INBOX = """\
        yield from through_buffer(inbox + half * nbytes, out + r * nbytes, nbytes, nbytes, 1)
    return rounds


@kernel
def push_boolean"""
ONE_FLAG_LATE_CLEAR = """\
        yield put(peer_flag + half * 32, 1, sync="flag")
        if r > 0:
            yield put(flag + (1 - half) * 32, 0, sync="clear flag")
"""
ARRIVAL = '    yield atomic_add(counter, 1, sync="arrival")\n'
PART_QUIET = '    yield quiet(sync="part visible")\n'
PARTS_WRITTEN = '    yield from barrier(0, "all parts written")\n    if core == 0:\n'
CLEAR_QUIET = '        yield quiet(sync="token visible, flag cleared")\n'
ACKED = '        yield poll_eq(ack, 1, sync="acknowledged")\n'

KNOWN = (
    bug("push: single buffer instead of double", PUSH, RACE,
        edit.at(BUFFERS, "half * nbytes", "0 * nbytes"), edit.at(INBOX, "inbox + half * nbytes", "inbox"), quick=True),
    bug("push: boolean flags that are never reset", PUSH_BOOLEAN, RACE | WRONG, edit.without("clear flag")),
    bug("push: flag cleared after the peer may have set it again", PUSH_BOOLEAN, LOCKED,
        edit.without("clear flag"), edit(BOOLEAN_FLAG, ONE_FLAG_LATE_CLEAR)),
    bug("combine: arrivals counted by read-modify-write", ARRIVALS, LOCKED,
        edit(ARRIVAL, "    seen = yield load(counter, sync=\"arrival\")\n    yield store(counter, seen + 1)\n"),
        quick=True),
    bug("counter barrier with fetch_add and no quiet before it", BARRIER, TORN | RACE, edit.without("word visible")),
    bug("quiet issued by core 0, payload written by core 1", TWO_CORES, RACE | UNWRITTEN,
        edit(PART_QUIET + PARTS_WRITTEN, PARTS_WRITTEN + "    " + PART_QUIET)),
    bug("ring cleared without waiting for the ack in flight", CLEARED, RACE | LOCKED,
        edit(ACKED, "        if r % 2:\n    " + ACKED),
        edit.at('yield poll_eq(tail, r + 1, sync="tail in")\n        yield mtu_in(slot', "poll_eq", "poll_ge")),
)  # fmt: skip

OWN = (
    bug("push: flag's clearing lands after the peer has set it again", PUSH_BOOLEAN, RACE,
        edit(CLEAR_QUIET + BOOLEAN_FLAG, BOOLEAN_FLAG + CLEAR_QUIET)),
    bug("ring cleared by a put that nothing waits for", CLEARED, RACE,
        edit('        yield quiet(sync="ack cleared")\n', ""),
        edit('        yield quiet(sync="data before tail")\n', "")),
    bug("barrier left out between the parts and the tail", TWO_CORES, RACE | UNWRITTEN,
        edit('    yield from barrier(0, "all parts written")\n', "")),
    bug("combine: waits for one arrival too few", ARRIVALS, RACE,
        edit.at('poll_ge(counter, n, sync="all arrived")', "n,", "n - 1,")),
)  # fmt: skip
