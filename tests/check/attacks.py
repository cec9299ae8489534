"""Protocols that attack a search where its reductions meet the edges of dies, scalar caches and half words.

Each was once called verified though it is wrong, or wrong though it is right.
"""

from dataclasses import dataclass

import numpy as np

from xccl_emu.check import verdict as kinds
from xccl_emu.lang import (
    DMA,
    MTU_IN,
    MTU_OUT,
    SCALAR,
    SIGNAL_SET,
    dcci,
    dma,
    fence,
    kernel,
    load,
    mtu_in,
    mtu_out,
    poll_ge,
    put,
    put_signal,
    quiet,
    set_flag,
    store,
    ub_store,
    wait_flag,
)
from xccl_emu.machine import Pod, small_pod
from xccl_emu.machine.launch import Grant
from xccl_emu.protocol.bench import Bench
from xccl_emu.testing import protocol

DATA = np.arange(1, 65, dtype=np.uint8)


def pod_of(bench: Bench, dies: int, **sizes: int) -> Pod:
    """A pod whose managed areas end where the next die's app area begins."""
    return bench.pod(small_pod(dies, app_bytes=512, meta_bytes=256, managed_bytes=256, ub_bytes=256, **sizes))


def everything(pod: Pod) -> list[Grant]:
    """The whole memory of every die."""
    return [Grant(None, 0, pod.spec.die_bytes, "rw")]


# ---- over the edge of a die


@kernel
def writes_over_edge(x, box, step, flag, all_flag):
    """Write two granules from one site, then a flag behind a fence and another behind a quiet."""
    yield mtu_in(x, 0, 64)
    yield set_flag(MTU_IN, MTU_OUT, 0)
    yield wait_flag(MTU_IN, MTU_OUT, 0)
    for k in range(2):
        yield mtu_out(32 * k, box + step * k, 32)
    yield fence(sync="data before flag")
    yield put(flag, 1)
    yield quiet(sync="all before flag")
    yield put(all_flag, 1)


@kernel
def signals_over_edge(x, box, flag, step):
    """Write two granules to two dies, each with a signal of its own."""
    yield mtu_in(x, 0, 64)
    yield set_flag(MTU_IN, MTU_OUT, 0)
    yield wait_flag(MTU_IN, MTU_OUT, 0)
    for k in range(2):
        yield put_signal(32 * k, box + 32 * k, 32, flag + step * k, 1, SIGNAL_SET)


@kernel
def reads(flag, box, out, all_flag, rest):
    """Read a granule behind a flag, and another one behind a second flag."""
    yield poll_ge(flag, 1)
    yield mtu_in(box, 0, 32)
    if rest:
        yield poll_ge(all_flag, 1)
        yield mtu_in(rest, 32, 32)
    yield set_flag(MTU_IN, MTU_OUT, 0)
    yield wait_flag(MTU_IN, MTU_OUT, 0)
    yield mtu_out(0, out, 64 if rest else 32)


@protocol
def flag_behind_fence(bench: Bench, flag_die: int = 0) -> None:
    """Die 2 writes over the edge of dies 0 and 1; die 3 reads what lies on die 1 behind a flag on ``flag_die``."""
    pod = pod_of(bench, 4)
    edge, flags = pod.spec.die_bytes, {"flag": pod.meta(flag_die), "all_flag": pod.meta(flag_die, 64)}
    x, out = bench.filled(2, DATA, "x"), bench.wanted(3, np.concatenate([DATA[32:], DATA[:32]]), "out")
    pod.launch(writes_over_edge, 2, [0], {"x": x.address, "box": edge - 32, "step": 32, **flags}, everything(pod))
    pod.launch(reads, 3, [0], {"box": edge, "out": out.address, "rest": edge - 32, **flags}, everything(pod))


@protocol
def signal_of_another_die(bench: Bench) -> None:
    """The same by two signals: that on die 0 tells nothing of what lies on die 1."""
    pod = pod_of(bench, 4)
    edge, flag = pod.spec.die_bytes, pod.meta(0)
    x, out = bench.filled(2, DATA, "x"), bench.wanted(3, DATA[32:], "out")
    args = {"x": x.address, "box": edge - 32, "flag": flag, "step": edge}
    pod.launch(signals_over_edge, 2, [0], args, everything(pod))
    args = {"flag": flag, "box": edge, "out": out.address, "all_flag": flag, "rest": 0}
    pod.launch(reads, 3, [0], args, everything(pod))


@kernel
def reads_back(x, box, step, flag, ack, out):
    """Write two granules from one site and a flag behind a fence; read the first back behind an answer."""
    yield mtu_in(x, 0, 64)
    yield set_flag(MTU_IN, MTU_OUT, 0)
    yield wait_flag(MTU_IN, MTU_OUT, 0)
    for k in range(2):
        yield mtu_out(32 * k, box + step * k, 32)
    yield fence(sync="data before flag")
    yield put(flag, 1)
    yield poll_ge(ack, 1, sync="answer")
    yield mtu_in(box, 128, 32)
    yield set_flag(MTU_IN, MTU_OUT, 1)
    yield wait_flag(MTU_IN, MTU_OUT, 1)
    yield mtu_out(128, out, 32)


@kernel
def answers(flag, ack):
    """Answer a flag."""
    yield poll_ge(flag, 1)
    yield put(ack, 1)


@protocol
def answered(bench: Bench, step: int = 32) -> None:
    """A core reads its own write at the end of die 0 back; with ``step`` 32 its other write begins die 1."""
    pod = pod_of(bench, 4)
    x, out, flags = bench.filled(2, DATA, "x"), bench.wanted(2, DATA[:32], "out"), (pod.meta(0), pod.meta(2))
    args = {"x": x.address, "box": pod.spec.die_bytes - 32, "step": step, "out": out.address}
    pod.launch(reads_back, 2, [0], args | {"flag": flags[0], "ack": flags[1]}, everything(pod))
    pod.launch(answers, 3, [0], {"flag": flags[0], "ack": flags[1]}, everything(pod))


# ---- scalar units with a cache


@kernel
def stores_own_line(x, box, mine, clean):
    """Write data and tell nobody; then store to a line that nobody else uses, and clean it or return."""
    yield mtu_in(x, 0, 32)
    yield set_flag(MTU_IN, MTU_OUT, 0)
    yield wait_flag(MTU_IN, MTU_OUT, 0)
    yield mtu_out(0, box, 32)
    yield set_flag(MTU_OUT, SCALAR, 1)
    yield wait_flag(MTU_OUT, SCALAR, 1)
    yield store(mine, 1)
    if clean:
        yield dcci(mine)


@kernel
def reads_at_once(box, out):
    """Read data without waiting for anything."""
    yield mtu_in(box, 0, 32)
    yield set_flag(MTU_IN, MTU_OUT, 0)
    yield wait_flag(MTU_IN, MTU_OUT, 0)
    yield mtu_out(0, out, 32)


@protocol
def own_line(bench: Bench, lines: int = 8, clean: int = 0) -> None:
    """Nothing orders the data of die 0 and the read of die 1, whatever becomes of die 0's own line."""
    pod = pod_of(bench, 2, scalar_cache=lines)
    x, box, out = bench.filled(0, DATA[:32], "x"), bench.filled(1, DATA[:32], "box"), bench.wanted(1, DATA[:32], "out")
    args = {"x": x.address, "box": box.address, "mine": pod.meta(0, 128), "clean": clean}
    pod.launch(stores_own_line, 0, [0], args, everything(pod))
    pod.launch(reads_at_once, 1, [0], {"box": box.address, "out": out.address}, everything(pod))


FENCE, EVENT_AFTER, EVENT_BEFORE, FENCE_AND_ATOMIC = range(4)


@kernel
def stores_flag(x, box, flag, spare, how):
    """Write data, and set a flag through the cache: it may be evicted before the data has left, unless an event is in
    front of the store."""
    yield mtu_in(x, 0, 32)
    yield set_flag(MTU_IN, MTU_OUT, 0)
    yield wait_flag(MTU_IN, MTU_OUT, 0)
    yield mtu_out(0, box, 32)
    if how == FENCE or how == FENCE_AND_ATOMIC:
        yield fence()
    else:
        yield set_flag(MTU_OUT, SCALAR, 1)
    if how == EVENT_BEFORE:
        yield wait_flag(MTU_OUT, SCALAR, 1)
    yield store(flag, 1)
    if how == EVENT_AFTER:
        yield wait_flag(MTU_OUT, SCALAR, 1)
    if how == FENCE_AND_ATOMIC:
        yield store(spare, 1)
        yield dcci(spare)
    yield dcci(flag)


@protocol
def flag_through_cache(bench: Bench, how: int = FENCE, lines: int = 8) -> None:
    """Die 1 reads behind a flag that die 0 has stored."""
    pod = pod_of(bench, 2, scalar_cache=lines)
    x, out = bench.filled(0, DATA[:32], "x"), bench.wanted(1, DATA[:32], "out")
    flag, box = pod.meta(1), pod.managed(1)
    args = {"x": x.address, "box": box, "flag": flag, "spare": pod.meta(0, 128), "how": how}
    pod.launch(stores_flag, 0, [0], args, everything(pod))
    args = {"flag": flag, "box": box, "out": out.address, "all_flag": flag, "rest": 0}
    pod.launch(reads, 1, [0], args, everything(pod))


# ---- units of four bytes


@kernel
def stores_word(word, nbytes, mine):
    """Store to a word, or to half of it."""
    yield store(word, 1, nbytes)
    yield store(mine, 5)


@protocol
def half_and_whole(bench: Bench, atomic_bytes: int = 4) -> None:
    """Two dies store to one word, one of them to its upper half; nothing orders them, so either may be there."""
    pod = pod_of(bench, 2, atomic_bytes=atomic_bytes)
    word = pod.meta(0, 32)
    bench.expect(word, np.array([1 + (1 << 32)], np.int64), "word")
    for die in range(2):
        args = {"word": word + 4 * die, "nbytes": 8 - 4 * die, "mine": pod.meta(die, 128)}
        pod.launch(stores_word if die == 0 else stores_half, die, [0], args, everything(pod))


@kernel
def stores_half(word, nbytes, mine):
    """Store to half a word."""
    yield store(word, 1, 4)
    yield store(mine, nbytes)


@kernel
def loads_own(word, out):
    """Load a word that the own mtu-out may not have written yet."""
    yield ub_store(8, 2, 8)
    yield mtu_out(8, word, 8)
    value = yield load(word, sync="look")
    yield store(out, value)


@protocol
def loaded_early(bench: Bench, seen: int = 0) -> None:
    """Whatever is expected, there is a run with the other value."""
    pod = pod_of(bench, 2, atomic_bytes=4)
    bench.expect(pod.meta(0, 128), np.array([seen], np.int64), "seen")
    pod.launch(loads_own, 1, [0], {"word": pod.meta(0, 32), "out": pod.meta(0, 128)}, everything(pod))


# ---- more copies than descriptors


LOOK_NEVER, LOOK_BEHIND, LOOK_EARLY = range(3)


@kernel
def copies(x, out, n, look):
    """Ring copies with an event each, then wait for all; read what the first wrote behind its event, or without it."""
    for k in range(n):
        yield dma(x + 32 * k, out + 32 * k, 32, k)
    if look == LOOK_EARLY:
        yield mtu_in(out, 0, 32)
    for k in range(n):
        yield wait_flag(DMA, SCALAR, k)
        if look == LOOK_BEHIND and k == 0:
            yield mtu_in(out, 0, 32)


@protocol
def nine_copies(bench: Bench, n: int = 9, look: int = LOOK_NEVER) -> None:
    """A core copies on its eight descriptors, some of them used anew before their event is waited for."""
    pod = pod_of(bench, 2)
    data = np.arange(32 * n, dtype=np.uint16).astype(np.uint8)
    x, out = bench.filled(0, data, "x"), bench.wanted(1, data, "out")
    pod.launch(copies, 0, [0], {"x": x.address, "out": out.address, "n": n, "look": look}, everything(pod))


# ---- what is right of each

OVERTAKEN = frozenset({kinds.DATA_RACE, kinds.UNWRITTEN_READ, kinds.WRONG_BITS})
WRONG = frozenset({kinds.WRONG_BITS})
JUDGES = ("full", "merged", "breadth first", "portfolio")
FEW = ("full", "portfolio")
"""Judges for programs that need not visit all orders of many copies."""
SC, FIFO, RELAXED, UNORDERED = "sc", "fifo", "relaxed", "unordered"


@dataclass(frozen=True)
class Attack:
    """A case, and under which orders it is wrong, in which ways."""

    name: str
    case: object
    wrong_under: tuple[str, ...] = ()
    ways: frozenset[str] = OVERTAKEN
    judges: tuple[str, ...] = JUDGES


ALL, LATE = (SC, FIFO, RELAXED, UNORDERED), (FIFO, RELAXED, UNORDERED)
ATTACKS = [
    Attack("fence on another die", flag_behind_fence(flag_die=0), LATE),
    Attack("fence on the die of the data", flag_behind_fence(flag_die=1)),
    Attack("signal of another die", signal_of_another_die(), ALL),
    Attack("read back on one die", answered(step=64)),
    Attack("read back at the edge", answered(step=32)),
    *(
        Attack(f"own line, {lines} lines, clean {clean}", own_line(lines=lines, clean=clean), ALL)
        for lines, clean in ((8, 0), (8, 1), (0, 0))
    ),
    *(
        Attack(f"flag through a cache, {name}", flag_through_cache(how=how), ALL)
        for how, name in enumerate(("fence", "event behind it", "event", "fence and clean"))
        if how != EVENT_BEFORE
    ),
    Attack("flag through a cache, event in front", flag_through_cache(how=EVENT_BEFORE), (RELAXED, UNORDERED)),
    Attack("nine copies", nine_copies(), judges=FEW),
    Attack("eleven copies, the first read behind its event", nine_copies(n=11, look=LOOK_BEHIND), judges=FEW),
    Attack("eleven copies, the first read early", nine_copies(n=11, look=LOOK_EARLY), ALL, judges=FEW),
    Attack("flag without a cache", flag_through_cache(how=FENCE, lines=0)),
    *(Attack(f"half and whole, {n} bytes", half_and_whole(atomic_bytes=n), ALL, WRONG) for n in (4, 8, 32)),
    *(Attack(f"loaded early, {seen}", loaded_early(seen=seen), ALL, WRONG) for seen in (0, 2)),
]
