"""A second notification to one cell is never seen: the waiting scalar unit looks at the line that it has cached.

xccl-emu check corpus/stale_line/stale_line.py:Broken
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xccl_emu.check.verdict import LIVELOCK
from xccl_emu.corpus import parts
from xccl_emu.lang import add, dcci, kernel, load, poll_eq, quiet, store
from xccl_emu.protocol import Bench, Regions, size
from xccl_emu.protocol.corpus import Member

MEMBER = Member(
    ("hw-native-sys/PTOAS#797", "sgl-project/sgl-kernel-npu@8d83ca0e", "sgl-project/sgl-kernel-npu#291"),
    LIVELOCK,
    "a pod whose scalar units have a data cache, and two calls",
)


@kernel
def notify(cell, seen, times):
    """Count the cell up with an atomic of mtu-out, and go on when the peer has seen it."""
    for i in range(times):
        yield add(cell, 1)
        yield poll_eq(seen, i + 1)


@kernel
def wait(cell, peer_seen, out, times, mended):
    """Look at the cell until it says that the next notification is there, and say so."""
    for i in range(times):
        count = 0
        while count != i + 1:
            if mended:
                yield dcci(cell, sync="fresh line")
            count = yield load(cell, sync="notified")
        yield add(peer_seen, 1)
    yield store(out, times)
    yield quiet()


@dataclass(frozen=True)
class Mended(parts.OneCore):
    """Each look drops the line first."""

    times: int = size(2, "Notifications, one after the other.")
    lines: int = size(4, "Lines that a scalar unit caches; 0: it has no cache.", least=0, most=16)
    mended: ClassVar[int] = 1

    def lay_out(self, bench: Bench) -> None:
        """Die 0 notifies die 1, which has the cell."""
        regions = Regions(2)
        cell, seen = regions.meta("cell"), regions.meta("seen")
        spec = regions.tight_pod(app_bytes=64, ub_bytes=32)
        pod = bench.pod(spec.with_(scalar_cache=self.lines, die_bytes=max(spec.die_bytes, 256)))
        regions.place(bench, pod)
        out = bench.wanted(1, np.array([self.times]), "count", owners="die1")
        args = {"cell": cell.at(1), "seen": seen.at(0), "times": self.times}
        self.start(bench, pod, notify, 0, args, [cell.grant(1, "w"), seen.grant(0, "r")])
        args = {
            "cell": cell.at(1), "peer_seen": seen.at(0), "out": out.address, "times": self.times, "mended": self.mended
        }  # fmt: skip
        self.start(bench, pod, wait, 1, args, [cell.grant(1, "r"), seen.grant(0, "w"), pod.grant(out, "w")])


@dataclass(frozen=True)
class Broken(Mended):
    """It looks again and again, at its own copy."""

    mended = 0
