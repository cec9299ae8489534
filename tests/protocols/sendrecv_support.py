"""What the tests of send and receive share: payloads between guard bytes, and pods and transfers to draw from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from xccl_emu.machine.pod import ORDERS, POLICIES, Buffer, Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.protocols.sendrecv.session import SendRecv

GUARD = 40
"""Bytes on each side of a target that must stay as they are; no multiple of 32, so that targets are not aligned."""


def payload(nbytes: int, seed: int = 0) -> NDArray[np.uint8]:
    """Random bytes."""
    return np.random.default_rng([seed, nbytes]).integers(0, 256, nbytes, dtype=np.uint8)


def make_pod(
    dies: int = 2, cores: int = 4, order: str = "relaxed", policy: str = "random", ub_bytes: int = 512, **more: Any
) -> Pod:
    """A small pod, under the hardest memory order if nothing else is asked for."""
    return Pod(small_pod(dies, cores, ub_bytes=ub_bytes), order=order, policy=policy, **more)


@dataclass
class Sent:
    """A payload in the sender's app data area and, between guards, the room for it on the other die."""

    pod: Pod
    data: NDArray[np.uint8]
    source: Buffer
    target: Buffer
    around: Buffer

    def arrived(self) -> bool:
        """Whether the target holds the payload; source and guards must be as they were in any case."""
        self._check_rest()
        return bool(np.array_equal(self.pod.view(self.target), self.data))

    def sent_by(self, comm: SendRecv, **how: Any) -> bool:
        """Whether it arrives by a transfer in a run of its own."""
        comm.transfer(self.source, self.target, **{"event_id": 1} | how)
        comm.run()
        return self.arrived()

    def untouched(self) -> bool:
        """Whether the target is as it was."""
        self._check_rest()
        return not (self.pod.view(self.target) != 0xEE).any()

    def _check_rest(self) -> None:
        around = self.pod.view(self.around)
        assert np.array_equal(self.pod.view(self.source), self.data), "the source has changed"
        assert (around[:GUARD] == 0xEE).all(), "bytes before the target have changed"
        assert (around[GUARD + self.data.size :] == 0xEE).all(), "bytes behind the target have changed"


def place(pod: Pod, source: int, target: int, nbytes: int, seed: int = 0) -> Sent:
    """Put a payload on one die and make room on the other."""
    data = payload(nbytes, seed)
    around = pod.put(target, np.full(nbytes + 2 * GUARD, 0xEE, np.uint8))
    room = Buffer(target, around.address + GUARD, nbytes)
    return Sent(pod, data, pod.put(source, data), room, around)


SMALL = {"slots": 2, "slot_bytes": 32}
"""A ring that payloads go around."""


def communicator(*pod: Any, rings: dict[str, Any] = SMALL, **pod_options: Any) -> SendRecv:
    """On a pod of its own."""
    return SendRecv(make_pod(*pod, **pod_options), **rings)


def one_way(nbytes: int = 300, rings: dict[str, Any] = SMALL, **pod_options: Any) -> tuple[SendRecv, Sent]:
    """A communicator, and a payload for die 1 on die 0."""
    comm = communicator(rings=rings, **pod_options)
    return comm, place(comm.pod, 0, 1, nbytes)


def both_ways(comm: SendRecv, there: int = 300, back: int = 200) -> list[Sent]:
    """A payload for die 1 on die 0, and one the other way."""
    return [place(comm.pod, 0, 1, there), place(comm.pod, 1, 0, back, 1)]


@dataclass(frozen=True)
class Setting:
    """A pod and a communicator to make."""

    dies: int
    cores: int
    slots: int
    slot_bytes: int
    order: str
    policy: str
    seed: int

    def make(self) -> tuple[Pod, SendRecv]:
        """Make them."""
        pod = make_pod(self.dies, self.cores, self.order, self.policy, seed=self.seed)
        return pod, SendRecv(pod, slots=self.slots, slot_bytes=self.slot_bytes)


settings_of_pods = st.builds(
    Setting,
    dies=st.integers(1, 4),
    cores=st.integers(2, 6),
    slots=st.integers(1, 4),
    slot_bytes=st.sampled_from([32, 64, 96, 256]),
    order=st.sampled_from(ORDERS[:3]),  # tails by DMA want order at their address
    policy=st.sampled_from(POLICIES),
    seed=st.integers(0, 1 << 40),
)
sizes = st.integers(1, 100) | st.integers(1, 3000)
