"""Runs without data: the same times, the same control words, and memory only where something is not zero."""

import os
import resource
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.check.trial import Trial
from xccl_emu.kernels.transfers import copy_blocks
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device import memory
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import MIB, PodSpec, small_pod
from xccl_emu.protocol.case import Case
from xccl_emu.protocol.registry import make, names, proofs_of
from xccl_emu.protocols.experts.config import EpConfig
from xccl_emu.protocols.pull.session import ExpertParallel
from xccl_emu.timing.fabric import Fabric
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.topologies import CLOUDMATRIX384

from .support import COSTS, ROUND

_PAYLOAD = (".app.source", ".app.x", ".app.y", ".own", ".tokens")
_WIDE = ("sendrecv", "moe", "dispatch", "combine", "fused", "a2e")
_WORK = settings(max_examples=4, deadline=None)


@st.composite
def cases(draw: st.DrawFn, name: str) -> Case:
    """One that is to be proved, or where the sizes are known of any size."""
    if name.startswith(_WIDE) and not name.endswith(("-swap", "-membership")):
        return make(name, **draw(sizes(name)))
    return draw(st.sampled_from(list(proofs_of(name).values())))


@st.composite
def sizes(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Sizes of a case, in the order in which it may refuse them."""
    if name.startswith("sendrecv"):
        return {
            "cores": draw(st.integers(1, 2)),
            "chunks": draw(st.integers(1, 5)),
            "granules": draw(st.integers(1, 5)),
        }
    shared = {"cores": draw(st.integers(1, 2)), "rounds": draw(st.integers(1, 2)), "seed": draw(st.integers(0, 99))}
    ranks = draw(st.integers(2, 3))
    counts = draw(st.lists(st.integers(0, 3), min_size=ranks, max_size=ranks).filter(any))
    shared |= {"tokens": ",".join(map(str, counts)), "top_k": draw(st.integers(1, 2))}
    shared["granules"] = 2 * draw(st.integers(1, 9))
    return shared | ({"attention": ranks, "experts": ranks} if name.startswith("a2e") else {"ranks": ranks})


def fabric_for(spec: PodSpec) -> Fabric:
    """One of round numbers, or for a pod with CPUs one that has them."""
    return ROUND if spec.n_homes == spec.n_dies else CLOUDMATRIX384


def run(trial: Trial, data: bool, payload: bool) -> tuple[Any, str]:
    """When each core returned, and a hash of all memory; without payload its buffers are zeros."""
    if not payload:
        for label in trial.labels:
            if label.name.endswith(_PAYLOAD):
                trial.pod.memory[label.address : label.address + label.nbytes] = 0
    trial.pod.policy = policy = VirtualTime(fabric_for(trial.pod.spec), COSTS, data=data)
    trial.pod.run()
    return policy.timing.finished_us, trial.pod.digest()


DATA_ARE_FLAGS = ("all-reduce-lamport",)
"""What their polls wait for is payload, so which of two granules ends a wait depends on it."""


@pytest.mark.parametrize("name", names())
def test_times_are_the_same_without_data(name: str) -> None:
    """For every protocol and drawn sizes each core returns at the same picosecond, with payload moved and without; and
    leaving out what changes nothing changes nothing: memory ends the same, whatever the payload is."""

    @_WORK
    @given(cases(name))
    def holds(case: Case) -> None:
        moved, full = run(case.build("sc"), data=True, payload=True)
        sparse, same = run(case.build("sc"), data=False, payload=True)
        nothing, empty = run(case.build("sc"), data=False, payload=False)
        _, zeros = run(case.build("sc"), data=True, payload=False)
        assert moved == sparse
        assert nothing == sparse or name in DATA_ARE_FLAGS
        assert (same, empty) == (full, zeros)

    holds()


@pytest.mark.parametrize("name", names())
def test_a_log_changes_no_time(name: str) -> None:
    """Every protocol takes as long where each action is written down as where those that nobody else sees are taken at
    once."""
    ended = []
    for log in (False, True):
        trial = make(name).build("sc")
        trial.pod.policy = policy = VirtualTime(fabric_for(trial.pod.spec), COSTS, log=log)
        trial.pod.run()
        assert (len(policy.timing.records) > 0) == log
        ended.append((policy.timing.finished_us, trial.pod.digest()))
    assert ended[0] == ended[1]


def group(data: bool) -> tuple[ExpertParallel, list[Any], float]:
    """One layer of four ranks with rows of true size; also the counts that came, and how long dispatch took."""
    spec = small_pod(4, 2, app_bytes=64 * MIB, managed_bytes=64 * MIB, ub_bytes=MIB // 4)
    policy = VirtualTime(ROUND, COSTS, data=data)
    made = ExpertParallel(Pod(spec, policy=policy), EpConfig(4, hidden=7168, top_k=2, tokens_max=32, cores=2))
    tokens = [np.ones((32, 7168), ml_dtypes.bfloat16)] * 4
    topk = [np.array([[t % 4, (t + 1 + t // 4 % 3) % 4] for t in range(32)], np.int32)] * 4
    received = made.dispatch(tokens, topk)
    return made, [(r.counts, r.source, r.token, r.slot) for r in received], policy.timing.latency_us


def committed_by(data: bool) -> int:
    """Bytes that become resident while a layer is made and run."""

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    before = resident()
    kept = group(data)
    assert kept[0].pod.moves_data is data
    return resident() - before


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="this system does not tell what is resident")
def test_memory_stays_small() -> None:
    """Without data a layer takes a fraction of the memory, and what is not payload arrives as it always does."""
    _, rows, time_with = group(data=True)
    _, same_rows, time_without = group(data=False)
    assert time_with == time_without
    for one, other in zip(rows, same_rows, strict=True):
        assert all((a == b).all() for a, b in zip(one, other, strict=True))
    assert committed_by(data=False) < 0.4 * committed_by(data=True)


def first_that_nobody_marked(pod: Pod) -> int | None:
    """The first byte that is not zero in a chunk without a dirty bit."""
    memory, bits = pod.sparse_memory()
    assert bits > 0
    chunks = memory[:bits].reshape(-1, ms.CHUNK_BYTES).any(axis=1)
    marked = np.unpackbits(memory[bits : bits + -(-len(chunks) // 8)], bitorder="little")[: len(chunks)]
    wrong = np.flatnonzero(chunks & (marked == 0))
    return int(wrong[0]) * ms.CHUNK_BYTES if len(wrong) else None


@pytest.mark.parametrize("name", names())
def test_what_is_written_is_marked(name: str) -> None:
    """After runs of every protocol that leave zeros out, each byte that is something else has the dirty bit of its
    chunk, in data buffers too; so a chunk without one may be taken for zeros."""

    @_WORK
    @given(cases(name))
    def holds(case: Case) -> None:
        pod = case.build("sc").pod
        pod.policy = VirtualTime(fabric_for(pod.spec), COSTS, data=False)
        pod.run()
        assert first_that_nobody_marked(pod) is None

    holds()


def test_who_has_all_memory_may_write_anywhere() -> None:
    """A run after somebody was given all memory compares bytes, and finds what he has written since."""
    pod = Pod(small_pod(2, app_bytes=MIB), policy=VirtualTime(ROUND, COSTS, data=False))
    source, target = pod.alloc(0, 4096), pod.alloc(1, 4096)
    memory = pod.memory
    for byte in (7, 0, 9):
        memory[source.address : source.address + 4096] = byte
        args = {"source": source.address, "target": target.address, "nbytes": 2048, "times": 2}
        pod.launch(copy_blocks, 0, [0], args, [pod.grant(source, "r"), pod.grant(target, "w")])
        pod.run()
        assert (pod.view(target) == byte).all()


def test_payload_is_read_only_where_none_is_moved() -> None:
    """What only travels can be written where data is moved; else an attempt is refused, for nobody would look."""
    pod = Pod(small_pod(2, app_bytes=MIB))
    buffer = pod.alloc(1, 64)
    pod.payload(buffer)[:] = 1
    pod.policy = VirtualTime(ROUND, COSTS, data=False)
    assert (pod.payload(buffer, np.int16, (2, 16)) == 0x101).all()
    with pytest.raises(ValueError, match="read-only"):
        pod.payload(buffer)[:] = 2


SIZE = 16 * ms.CHUNK_BYTES


@pytest.mark.nojit
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_copies_that_leave_out_what_is_there(data: st.DataObject) -> None:
    """Copies and looks for zeros end as they would without dirty bits, wherever something is written, on a die or in a
    data buffer, and whoever may have written anywhere; and what is not zero stays marked."""
    mem, state = np.zeros(SIZE + 4096, np.uint8), np.zeros(ms.HEADER_WORDS, np.int64)
    state[ms.N_HOMES], state[ms.DIE_SHIFT] = 1, 12
    state[ms.SPARSE] = data.draw(st.sampled_from([SIZE, ms.ALL_DIRTY]))
    wanted = mem[:SIZE].copy()
    for _ in range(data.draw(st.integers(1, 8))):
        nbytes = data.draw(st.integers(1, 3000))
        target, source = (data.draw(st.integers(0, half - nbytes)) for half in (SIZE // 2, SIZE // 2))
        if data.draw(st.booleans()):
            target += SIZE // 2
        else:
            source += SIZE // 2
        if data.draw(st.booleans()):
            memory.mark(mem, state, source, 1)
            mem[source] = wanted[source] = data.draw(st.integers(0, 1))
        memory.copy_changed(mem, state, target, source, nbytes)
        wanted[target : target + nbytes] = wanted[source : source + nbytes]
        assert (mem[:SIZE] == wanted).all()
        assert memory.all_zero(mem, state, source, nbytes) == (not wanted[source : source + nbytes].any())
        if state[ms.SPARSE] > 0:
            marked = np.unpackbits(mem[SIZE : SIZE + 2], bitorder="little")
            assert (marked >= wanted.reshape(-1, ms.CHUNK_BYTES).any(axis=1)).all()
