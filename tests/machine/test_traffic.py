"""Counters of traffic between dies: what counts, on which die, and against a count by hand of random requests."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.lang import DMA, SCALAR, add, atomic_add, dma, kernel, load, mtu_in, mtu_out, put, quiet, store, wait_flag
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod

DIES = 70  # more than the bits of a word of the masks
DIE = 1 << 12
KINDS = ("load", "store", "atomic_add", "mtu_in", "mtu_out", "put", "add", "dma")
WRITES = {"mtu_out": 64, "dma": 64}
FLAGS = {"store": 4, "atomic_add": 8, "put": 32, "add": 8}
READS = {"load": 8, "mtu_in": 96, "dma": 64}


@kernel
def talk(n, kinds, ours, theirs, die_bytes):
    """For each of ``n`` 8-byte entries of two tables, a kind of request and a die, make that request."""
    for i in range(n):
        kind = yield load(kinds + 8 * i)
        die = yield load(theirs + 8 * i)
        there = die * die_bytes + 1024
        if kind == 0:
            yield load(there)
        elif kind == 1:
            yield store(there, 1, 4)
        elif kind == 2:
            yield atomic_add(there, 1)
        elif kind == 3:
            yield mtu_in(there, 0, 96)
        elif kind == 4:
            yield mtu_out(0, there, 64)
        elif kind == 5:
            yield put(there, 1)
        elif kind == 6:
            yield add(there, 1)
        else:
            source = yield load(ours + 8 * i)
            yield dma(source * die_bytes + 2048, there, 64, 0)
            yield wait_flag(DMA, SCALAR, 0)
        yield quiet()


Asked = list[tuple[str, int, int]]
asked = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, DIES - 1), st.integers(0, DIES - 1)), max_size=20)


def _launch(pod: Pod, die: int, requests: Asked) -> None:
    tables = [[KINDS.index(kind) for kind, _, _ in requests], [s for _, s, _ in requests], [t for _, _, t in requests]]
    kinds, ours, theirs = (pod.put(die, np.array(table or [0], np.int64)).address for table in tables)
    args = {"n": len(requests), "kinds": kinds, "ours": ours, "theirs": theirs, "die_bytes": DIE}
    pod.launch(talk, die, [0], args, [Grant(None, 0, DIE, "rw")])


def _by_hand(die: int, requests: Asked) -> dict[str, int]:
    """What the counters of the die must be."""
    found: Counter[str] = Counter()
    written, read = set(), set()
    for kind, source, target in requests:
        if target != die and kind in WRITES | FLAGS:
            found["writes" if kind in WRITES else "flags"] += 1
            found["write_bytes"] += (WRITES | FLAGS)[kind]
            written.add(target)
        read_from = source if kind == "dma" else target
        if read_from != die and kind in READS:
            found["reads"] += 1
            found["read_bytes"] += READS[kind]
            read.add(read_from)
    return {**found, "dies_written": len(written), "dies_read": len(read)}


@pytest.mark.nojit
@pytest.mark.boundscheck
@settings(max_examples=20)
@given(asked, asked, st.sampled_from(["sc", "relaxed"]))
def test_requests_for_other_dies_are_counted(first: Asked, second: Asked, order: str) -> None:
    """Two dies ask for anything anywhere: writes, flags, reads, bytes and dies are those counted by hand, and the next
    run counts from the start."""
    pod = Pod(small_pod(DIES, app_bytes=DIE, meta_bytes=0, managed_bytes=0, ub_bytes=1 << 10), order=order)
    for requests in ((first, second), (second, [])):
        for die, wanted in zip((3, 66), requests, strict=True):
            _launch(pod, die, wanted)
        pod.run()
        traffic = pod.traffic()
        for die, wanted in zip((3, 66), requests, strict=True):
            expected = _by_hand(die, wanted)
            assert {name: int(values[die]) for name, values in vars(traffic).items()} == {
                name: expected.get(name, 0) for name in vars(traffic)
            }
        others = np.delete(np.stack([*vars(traffic).values()]), (3, 66), axis=1)
        assert not others.any()
