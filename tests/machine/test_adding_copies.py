"""mtu_add: copies by mtu-out that add integers of 4 bytes, on the machine, to the judges, in virtual time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import RunError
from xccl_emu.check.verdict import DATA_RACE, VERIFIED
from xccl_emu.guards.campaign import judge
from xccl_emu.guards.campaign.generate import ProgramCase, draw
from xccl_emu.lang import MTU_IN, MTU_OUT, kernel, mtu_add, mtu_in, mtu_out, set_flag, wait_flag
from xccl_emu.machine import Pod, small_pod
from xccl_emu.timing.run import VirtualTime

from .support import ORDERS, small

ROOM = 160


@kernel
def adds(source, target, nbytes, times):
    """Bring a row in and add it to another one, several times."""
    yield mtu_in(source, 32, nbytes)
    yield set_flag(MTU_IN, MTU_OUT, 0)
    yield wait_flag(MTU_IN, MTU_OUT, 0)
    for _ in range(times):
        yield mtu_add(32, target, nbytes)


@st.composite
def rows(draw):
    """Numbers that were there; and of each core its row, where it adds that, how often."""
    n = st.integers(-(1 << 31), (1 << 31) - 1)
    there = draw(st.lists(n, min_size=ROOM // 4, max_size=ROOM // 4))
    each = st.tuples(st.lists(n, min_size=1, max_size=12), st.integers(0, 20), st.integers(1, 3))
    return np.array(there, np.int32), draw(st.lists(each, min_size=4, max_size=4))


@pytest.mark.parametrize("order", ORDERS)
@settings(max_examples=25)
@given(given_rows=rows(), unit=st.sampled_from((4, 16, 32, 64)), seed=st.integers(0, 1 << 30))
def test_they_are_sums(order, given_rows, unit, seed):
    """Four cores add at once, at any place, in any schedule: what comes of it is NumPy's sum, modulo 2**32."""
    there, cores = given_rows
    spec = small_pod(2, cores=2, meta_bytes=512, ub_bytes=128).with_(atomic_bytes=unit)
    pod = Pod(spec, order=order, policy="random", seed=seed)
    goal = pod.meta(1)
    pod.memory[goal : goal + ROOM].view(np.int32)[:] = there
    wanted = there.copy()
    for number, (row, at, times) in enumerate(cores):
        die, core = divmod(number, 2)
        source = pod.meta(die, 256 + 64 * core)
        pod.memory[source : source + 4 * len(row)].view(np.int32)[:] = row
        with np.errstate(over="ignore"):
            wanted[at : at + len(row)] += np.array(row, np.int32) * np.int32(times)
        args = {"source": source, "target": goal + 4 * at, "nbytes": 4 * len(row), "times": times}
        pod.launch(adds, die, [core], args, [pod.grant_meta("rw")])
    pod.run()
    assert (pod.memory[goal : goal + ROOM].view(np.int32) == wanted).all()


def test_virtual_time_has_the_same_sums():
    """Under virtual time, too; and a copy that adds takes the time of one that does not."""
    times = []
    for number in (0, 1):
        pod = Pod(small_pod(2, meta_bytes=512, ub_bytes=128), policy=VirtualTime())
        pod.memory[pod.meta(0) : pod.meta(0) + 64].view(np.int32)[:] = 7
        kernels = (adds, copies)
        pod.launch(kernels[number], 0, [0], {"source": pod.meta(0), "target": pod.meta(1), "nbytes": 64, "times": 3},
            [pod.grant_meta("rw")])  # fmt: skip
        times.append(pod.run())
        assert (pod.memory[pod.meta(1) : pod.meta(1) + 64].view(np.int32) == (21, 7)[number]).all()


@kernel
def copies(source, target, nbytes, times):
    """The same without adding."""
    yield mtu_in(source, 32, nbytes)
    yield set_flag(MTU_IN, MTU_OUT, 0)
    yield wait_flag(MTU_IN, MTU_OUT, 0)
    for _ in range(times):
        yield mtu_out(32, target, nbytes)


@pytest.mark.parametrize(("offset", "nbytes"), [(2, 8), (0, 6)])
def test_halves_of_numbers_are_refused(offset, nbytes):
    """An address or size that is no multiple of 4 ends the run with the line."""
    pod = Pod(small_pod(1, meta_bytes=512, ub_bytes=128))
    args = {"source": pod.meta(0), "target": pod.meta(0, 256 + offset), "nbytes": nbytes, "times": 1}
    pod.launch(adds, 0, [0], args, [pod.grant_meta("rw")])
    with pytest.raises(RunError, match="mtu_add"):
        pod.run()


LITMUS = {
    "two add, a third waits for the sum": (
        ("ub_store 3 0; add_out 0.0 0 0", "ub_store 4 0; add_out 0.0 0 0", "ge 0.0 7; load 0.0"), VERIFIED, VERIFIED,
    ),
    "a flag behind a sum": (
        ("ub_store 3 0; add_out m0.0 0 2; quiet; put 0.4 1", "ge 0.4 1; load m0.0"), VERIFIED, VERIFIED,
    ),
    "a flag with no order": (("ub_store 3 0; add_out m0.0 0 2; put 0.4 1", "ge 0.4 1; load m0.0"), VERIFIED, DATA_RACE),
    "a sum beside a plain read": (("ub_store 3 0; add_out m0.0 0 2", "load m0.0"), DATA_RACE, DATA_RACE),
    "a sum is a flag": (
        ("out m0.0 0 2; quiet; ub_store 1 0; add_out 0.4 0 0", "ge 0.4 1; in m0.0 0 2"), VERIFIED, VERIFIED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LITMUS)
def test_what_the_judges_say(name):
    """Each says the same under all orders: two sums are no race, a sum tells of what is before it as an `add` does."""
    texts, strong, weak = LITMUS[name]
    for said in judge.judge(ProgramCase(small("|".join(texts), flight_granules=8))):
        assert said.contradictions == []
        assert said.verdicts["full"] == (strong if said.order in ("sc", "fifo") else weak)


def test_campaigns_draw_them():
    """In one of 32 programs, under orders that requests ask for, too."""
    drawn = [draw(0, number).small for number in range(25, 32 * 40, 32)]
    having = [each for each in drawn if any(one.name == "add_out" for of in each.programs for one in of)]
    assert len(having) > 15
    assert any("mtu_add0" in each.asks for each in having)
