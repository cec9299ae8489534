"""Kernels that ask again and again instead of waiting come to an end under every policy."""

import pytest

from xccl_emu.lang import kernel, load, put
from xccl_emu.machine.pod import ORDERS, POLICIES, Pod
from xccl_emu.machine.spec import small_pod


@kernel
def call_and_spin(own, other, turns):
    """Count up in the other's field whenever the own one has caught up."""
    for i in range(turns):
        yield put(other, i + 1)
        seen = 0
        while seen < i + 1:
            seen = yield load(own)


@pytest.mark.nojit
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("policy", POLICIES)
def test_spinning_kernels_end(order: str, policy: str) -> None:
    """A scalar unit that never waits leaves its core's other pipes their turns: what it has queued is carried out."""
    pod = Pod(small_pod(2), order=order, policy=policy)
    for die in range(2):
        fields = {"own": pod.meta(die), "other": pod.meta(1 - die)}
        pod.launch(call_and_spin, die, [0], {**fields, "turns": 5}, [pod.grant_meta("rw")])
    pod.run()
    assert [pod.memory[pod.meta(die)] for die in range(2)] == [5, 5]
