"""Bytes that ranks move besides experts' calls: barriers and all-gathers of a group, transfers between two ranks."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels import sendrecv
from xccl_emu.kernels.collectives import barrier, exchange
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import PodSpec
from xccl_emu.protocol import tight_pod
from xccl_emu.protocols.collectives.session import Collectives
from xccl_emu.protocols.sendrecv.session import SendRecv
from xccl_emu.testing.watched import Watched
from xccl_emu.timing.run import VirtualTime

GRANULE = 32
_SLOT_BYTES = 1 << 14
"""Bytes that move at once."""
_MOST, _TABLES_BYTES = 1 << 31, 1 << 16


class PodSession:
    """A session of ``ranks`` ranks, one a die from 0 on, on a pod of its own."""

    pod: Pod
    ranks: int

    def drawn(self) -> int:
        """Return how many schedules its runs were judged by."""
        return self.pod.policy.drawn if isinstance(self.pod.policy, Watched) else 0

    def took_us(self) -> list[float]:
        """Virtual time of each rank in the last run; 0 where there is none."""
        policy = self.pod.policy
        by_die = policy.timing.by_die_us if isinstance(policy, VirtualTime) else {}
        return [by_die.get(die, 0.0) for die in range(self.ranks)]


class Moves(PodSession):
    """Barriers by dissemination, and all-gathers of up to ``nbytes`` bytes in which each rank writes to all others."""

    kernels: ClassVar[tuple[Kernel, ...]] = (barrier.meet, exchange.exchange)

    def __init__(self, make: Callable[[PodSpec], Pod], ranks: int, cores: int, nbytes: int) -> None:
        self.ranks, self._cores = ranks, cores

        def lay_out(pod: Pod) -> Any:
            for die in range(ranks):
                pod.alloc(die, (1 + ranks) * nbytes + _TABLES_BYTES)
            return self._place(pod)

        self.pod = make(tight_pod(ranks, cores, 4 * _SLOT_BYTES, lay_out))
        self._place(self.pod)

    def _place(self, pod: Pod) -> Any:
        """Make the session of the protocol there; returns its layout."""
        self._group = Collectives(pod, ranks=self.ranks, cores=self._cores, slot=_SLOT_BYTES // 2)
        return self._group.layout

    def run(self, call: str, sent: Sequence[NDArray[np.uint8] | None]) -> list[dict[str, NDArray[Any]]]:
        """Return [ranks, bytes] for each rank; nothing from a barrier, around which a granule of each goes to all."""
        words = [np.zeros(GRANULE, np.uint8) if each is None else each for each in sent]
        by = "barrier" if call == "barrier" else ""
        rows = self._group.all_gather([each.view(ml_dtypes.bfloat16) for each in words], by)
        return [{} if by else {"x": each.view(np.uint8)} for each in rows]


class PairTransfers(Moves):
    """Transfers from rank 0 to rank 1 of two, through the ring of the receiver."""

    kernels = (sendrecv.send, sendrecv.recv)

    def _place(self, pod: Pod) -> Any:
        self._ring = SendRecv(pod, slot_bytes=_SLOT_BYTES)
        return self._ring.layout

    def run(self, call: str, sent: Sequence[NDArray[np.uint8] | None]) -> list[dict[str, NDArray[Any]]]:
        """Return the bytes for the receiver."""
        if len(sent) != 2 or sent[0] is None or sent[1] is not None:
            raise ConfigError(f"{call}: x must come from rank 0 of two, and from no other")
        mark = self.pod.mark_app()
        source, target = self.pod.put(0, sent[0]), self.pod.alloc(1, sent[0].nbytes)
        self._ring.transfer(source, target, event_id=1, cores=self._cores)
        self._ring.run()
        self.pod.release_app(mark)
        return [{}, {"x": self.pod.view(target).copy()}]


def room_for(shape: Any) -> tuple[int, int]:
    """The bytes that a call says, and those that its session is made for; ConfigError for none."""
    nbytes = shape.get("nbytes") if isinstance(shape, dict) and len(shape) == 1 else None
    if type(nbytes) is not int or not 0 < nbytes <= _MOST or nbytes % GRANULE:
        raise ConfigError("shape", shape, f"must be nbytes, a multiple of {GRANULE} up to {_MOST}")
    return nbytes, 1 << (nbytes - 1).bit_length()
