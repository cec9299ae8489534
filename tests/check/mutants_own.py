"""Bugs in the small protocols of `mutants_kernels`, and their configurations."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from xccl_emu.check.trial import Expected, Trial
from xccl_emu.check.verdict import DATA_RACE, DEADLOCK, TORN_METADATA, UNWRITTEN_READ, WRONG_BITS
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.protocol import payload

from . import mutants_kernels as device
from .mutants import Edit, Mutant

NBYTES = 64
ROUNDS = 4
VALUE = 0x0102030405060708
Build = Callable[[Pod], Trial]


@dataclass(frozen=True)
class Own:
    """A small protocol as a thing to check."""

    name: str
    dies: int
    cores: int
    make: Build
    syncs: tuple[str, ...] = ()

    @property
    def configuration(self) -> Mapping[str, int | str]:
        """Its pod."""
        return {"dies": self.dies, "cores": self.cores}

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """Launched on a pod of a kilobyte a die."""
        spec = small_pod(
            self.dies, self.cores, app_bytes=512, meta_bytes=256, managed_bytes=256, ub_bytes=256, flight_pieces=32
        )
        return self.make(Pod(spec, order=order, without=without))

    def __str__(self) -> str:
        return self.name


def _all(pod: Pod) -> list[Grant]:
    return [Grant(None, 0, pod.spec.die_bytes, "rw")]


def _inputs(pod: Pod, dies: int, nbytes: int) -> list[Buffer]:
    return [pod.put(die, payload(nbytes, 1 + die)) for die in range(dies)]


def _holds(pod: Pod, out: Buffer, *sources: Buffer) -> Expected:
    data = b"".join(pod.view(source).tobytes() for source in sources)
    return Expected(f"output on die {out.die}", out.address, data, _owners(pod, out))


def _owners(pod: Pod, out: Buffer) -> tuple[int, ...]:
    """The first core of the die: it writes what stands there, and returns when it has."""
    return (out.die * pod.spec.cores_per_die,)


def _push(pod: Pod, name: str) -> Trial:
    given = _inputs(pod, 2, ROUNDS * NBYTES)
    outs = [pod.alloc(die, ROUNDS * NBYTES) for die in range(2)]
    for die in range(2):
        peer = 1 - die
        args = {
            "x": given[die].address, "nbytes": NBYTES, "inbox": pod.managed(die), "outbox": pod.managed(peer),
            "flag": pod.meta(die), "peer_flag": pod.meta(peer), "out": outs[die].address, "rounds": ROUNDS,
        }  # fmt: skip
        pod.launch(getattr(device, name), die, [0], args, _all(pod))
    return Trial(pod, tuple(_holds(pod, outs[die], given[1 - die]) for die in range(2)), tuple(given))


def push_counted(pod: Pod) -> Trial:
    """Two ranks, flags that hold the round's number."""
    return _push(pod, "push_counted")


def push_boolean(pod: Pod) -> Trial:
    """Two ranks, flags that reset."""
    return _push(pod, "push_boolean")


def arrivals(pod: Pod) -> Trial:
    """Two experts and the die of the token, with a slot for each of them."""
    given = [pod.put(die, payload(NBYTES, die)) for die in (1, 2)]
    out = pod.alloc(0, 2 * NBYTES)
    for i, x in enumerate(given):
        slot = pod.managed(0, i * NBYTES)
        args = {"x": x.address, "nbytes": NBYTES, "slot": slot, "counter": pod.meta(0)}
        pod.launch(device.contribute, x.die, [0], args, _all(pod))
    args = {"slots": pod.managed(0), "nbytes": NBYTES, "n": 2, "counter": pod.meta(0), "out": out.address}
    pod.launch(device.collect, 0, [0], args, _all(pod))
    return Trial(pod, (_holds(pod, out, *given),), tuple(given))


def counter_barrier(pod: Pod) -> Trial:
    """Two dies; each one's word is on the other's die, the counter on a third."""
    outs = [pod.alloc(die, 8) for die in range(2)]
    for die in range(2):
        words = {"mine": pod.meta(1 - die, 32), "theirs": pod.meta(die, 32)}
        args = {"counter": pod.meta(2), "n": 2, "value": VALUE + die, "out": outs[die].address}
        pod.launch(device.meet, die, [0], words | args, _all(pod))
    words = [(VALUE + 1 - out.die).to_bytes(8, "little") for out in outs]
    expected = [
        Expected(f"word of die {out.die}", out.address, word, _owners(pod, out))
        for out, word in zip(outs, words, strict=True)
    ]
    return Trial(pod, tuple(expected))


def two_cores(pod: Pod) -> Trial:
    """Two cores of die 0 send together to die 1."""
    (x,) = _inputs(pod, 1, 2 * NBYTES)
    out = pod.alloc(1, 2 * NBYTES)
    slot, tail = pod.managed(1), pod.meta(1)
    args: dict[str, int | list[int]] = {"core": [0, 1], "x": x.address, "nbytes": NBYTES, "slot": slot, "tail": tail}
    pod.launch(device.send_together, 0, [0, 1], args, _all(pod))
    args = {"slot": slot, "nbytes": 2 * NBYTES, "tail": tail, "out": out.address}
    pod.launch(device.receive_together, 1, [0], args, _all(pod))
    return Trial(pod, (_holds(pod, out, x),), (x,))


def cleared(pod: Pod) -> Trial:
    """Calls one after the other on a slot whose ack field is cleared between them."""
    (x,) = _inputs(pod, 1, ROUNDS * NBYTES)
    out = pod.alloc(1, ROUNDS * NBYTES)
    both = {"nbytes": NBYTES, "slot": pod.managed(1), "tail": pod.meta(1), "ack": pod.meta(0), "rounds": ROUNDS}
    pod.launch(device.send_cleared, 0, [0], both | {"x": x.address}, _all(pod))
    pod.launch(device.receive_cleared, 1, [0], both | {"out": out.address}, _all(pod))
    return Trial(pod, (_holds(pod, out, x),), (x,))


PUSH = Own("push dispatch, counted flags", 2, 1, push_counted)
PUSH_BOOLEAN = Own("push dispatch, boolean flags", 2, 1, push_boolean)
ARRIVALS = Own("combine that counts arrivals", 3, 1, arrivals)
BARRIER = Own("counter barrier", 3, 1, counter_barrier)
TWO_CORES = Own("two cores, one tail", 2, 2, two_cores)
CLEARED = Own("ring cleared between calls", 2, 1, cleared)

edit = partial(Edit, "mutants_kernels")
"""A change of the kernels: old text, new text."""

BOOLEAN_FLAG = '        yield put(peer_flag + half * 32, 1, sync="flag")\n'
CLEAR = '        yield put(flag + half * 32, 0, sync="clear flag")\n'
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
MEET_QUIET = '    yield quiet(sync="word visible")\n'
PART_QUIET = '    yield quiet(sync="part visible")\n'
PARTS_WRITTEN = '    yield from barrier(0, "all parts written")\n    if core == 0:\n'
CLEAR_QUIET = '        yield quiet(sync="token visible, flag cleared")\n'
TAIL_IN = '        yield poll_eq(tail, r + 1, sync="tail in")\n'
READ_SLOT = "        yield mtu_in(slot"
ALL_ARRIVED = 'poll_ge(counter, n, sync="all arrived")'
ACKED = '        yield poll_eq(ack, 1, sync="acknowledged")\n'

KNOWN = (
    Mutant(
        "push: single buffer instead of double", PUSH,
        (
            edit(BUFFERS, BUFFERS.replace("half * nbytes", "0 * nbytes")),
            edit(INBOX, INBOX.replace("inbox + half * nbytes", "inbox")),
        ), (DATA_RACE,), quick=True,
    ),
    Mutant(
        "push: boolean flags that are never reset", PUSH_BOOLEAN, (edit(CLEAR, ""),), (DATA_RACE, WRONG_BITS),
    ),
    Mutant(
        "push: flag cleared after the peer may have set it again", PUSH_BOOLEAN,
        (edit(CLEAR, ""), edit(BOOLEAN_FLAG, ONE_FLAG_LATE_CLEAR)), (DEADLOCK,),
    ),
    Mutant(
        "combine: arrivals counted by read-modify-write", ARRIVALS,
        (edit(ARRIVAL, "    seen = yield load(counter, sync=\"arrival\")\n    yield store(counter, seen + 1)\n"),),
        (DEADLOCK,), quick=True,
    ),
    Mutant(
        "counter barrier with fetch_add and no quiet before it", BARRIER,
        (edit(MEET_QUIET, ""),), (TORN_METADATA, DATA_RACE),
    ),
    Mutant(
        "quiet issued by core 0, payload written by core 1", TWO_CORES,
        (edit(PART_QUIET + PARTS_WRITTEN, PARTS_WRITTEN + "    " + PART_QUIET),), (DATA_RACE, UNWRITTEN_READ),
    ),
    Mutant(
        "ring cleared without waiting for the ack in flight", CLEARED, (
            edit(ACKED, "        if r % 2:\n    " + ACKED),
            edit(TAIL_IN + READ_SLOT, TAIL_IN.replace("poll_eq", "poll_ge") + READ_SLOT),
        ), (DATA_RACE, DEADLOCK),
    ),
)  # fmt: skip

OWN = (
    Mutant(
        "push: flag's clearing lands after the peer has set it again", PUSH_BOOLEAN,
        (edit(CLEAR_QUIET + BOOLEAN_FLAG, BOOLEAN_FLAG + CLEAR_QUIET),),
        (DATA_RACE,),
    ),
    Mutant(
        "ring cleared by a put that nothing waits for", CLEARED,
        (
            edit('        yield quiet(sync="ack cleared")\n', ""),
            edit('        yield quiet(sync="data before tail")\n', ""),
        ), (DATA_RACE,),
    ),
    Mutant(
        "barrier left out between the parts and the tail", TWO_CORES,
        (edit('    yield from barrier(0, "all parts written")\n', ""),), (DATA_RACE, UNWRITTEN_READ),
    ),
    Mutant(
        "combine: waits for one arrival too few", ARRIVALS,
        (edit(ALL_ARRIVED, ALL_ARRIVED.replace("n,", "n - 1,")),), (DATA_RACE,),
    ),
)  # fmt: skip
