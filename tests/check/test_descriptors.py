"""What DMA descriptors did before they were used anew, and when a search may forget it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.check.check import check
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import clocks, inside
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.lang import DMA, SCALAR, dma, kernel, load, poll_ge, put, wait_flag
from xccl_emu.machine import small_pod
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.pipes import pipe_of
from xccl_emu.testing import Bench, protocol

AGENTS = range(inside.AGENT_BEFORE, inside.AGENT_BEFORE + inside.N_BEFORE)
some = st.sets(st.sampled_from(AGENTS))


def bits(agents: set[int]) -> int:
    """A vector that knows of these agents."""
    return sum(1 << clocks.DMA_SHIFT + agent - clocks.AGENT_DMA for agent in agents)


@given(scalar=some, pipes=st.tuples(some, some, some), queues=st.tuples(*[st.lists(some, max_size=3)] * 3))
def test_what_is_forgotten_is_known_to_all_that_can_still_come(
    scalar: set[int], pipes: tuple[set[int], ...], queues: tuple[list[set[int]], ...]
) -> None:
    """An access stays unless the scalar unit knows of it and so does each instruction of each queue when it runs."""
    state, ck = np.zeros(1 << 12, np.int64), np.zeros(1 << 12, np.int64)
    ck[cs.VECTORS] = bits(scalar)
    came: list[set[int]] = []
    for pipe, (known, queue) in enumerate(zip(pipes, queues, strict=True), 1):
        ck[cs.VECTORS + pipe] = bits(known)
        at_issue: set[int] = set()
        for j, more in enumerate(queue):
            at_issue = at_issue | more & scalar  # the scalar unit forgets nothing, so later ones know no less
            ck[clocks.snapshot_at(state, 0, pipe, j)] = bits(at_issue)
            came.append(known | at_issue)
        state[pipe_of(0, pipe) + ms.PIPE_COUNT] = len(queue)
    for n, agent in enumerate(AGENTS):
        ck[cs.RECORDS + n * cs.RECORD_WORDS + 2] = agent
    ck[cs.N_RECORDS] = len(AGENTS)
    inside._forget_known(state, ck, 0, 0)
    left = {int(ck[cs.RECORDS + n * cs.RECORD_WORDS + 2]) for n in range(ck[cs.N_RECORDS])}
    assert left == {agent for agent in AGENTS if not all(agent in each for each in (scalar, *came))}


@kernel
def copy_one_by_one(source, target, flag, copies):
    """Copies by DMA, each awaited before the next; a flag leaves behind each. Then the last one is read."""
    for i in range(copies):
        yield dma(source + 32 * i, target + 32 * i, 32, 0)
        yield wait_flag(DMA, SCALAR, 0, sync="copied")
        yield put(flag, i + 1)
    yield dma(source + 32 * copies, target + 32 * copies, 32, 1)
    yield wait_flag(DMA, SCALAR, 1, sync="last copied")
    yield load(target + 32 * copies)


@kernel
def await_all(flag, copies):
    """Read the flag of each copy."""
    for i in range(copies):
        yield poll_ge(flag, i + 1)


@protocol
def copies(bench: Bench) -> None:
    """Thirteen copies to the other die, one after the other."""
    pod, values = bench.pod(small_pod(2)), np.arange(104, dtype=np.int32)
    source, target = bench.filled(0, values, "source"), bench.wanted(1, values, "target", owners="die0")
    args = {"source": source.address, "target": target.address, "flag": pod.meta(1), "copies": 12}
    grants = [pod.grant(source, "r"), pod.grant(target, "rw"), pod.grant_meta("w", 1)]
    pod.launch(copy_one_by_one, 0, [0], args, grants)
    pod.launch(await_all, 1, [0], {"flag": pod.meta(1), "copies": 12}, [pod.grant_meta("r", 1)])


@pytest.mark.parametrize(("without", "said"), [((), VERIFIED), (("last copied",), VIOLATION), (("copied",), VIOLATION)])
def test_copies_that_were_awaited_take_no_room(without: tuple[str, ...], said: str) -> None:
    """More of them than a search has agents for are verified; of one that was not awaited the race is found."""
    verdict = check(copies(), without=without)
    assert verdict.verdict == said, verdict.reason
