"""Two ranks combine: a barrier of pipes says that a store was issued, and its flag is seen before the store.

xccl-emu check corpus/store_issued/store_issued.py:Broken
"""

from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.check.verdict import DATA_RACE
from xccl_emu.corpus import parts
from xccl_emu.lang import MTU_OUT, SCALAR, kernel, mtu_out, poll_eq, quiet, set_flag, store, wait_flag
from xccl_emu.protocol import Bench, Regions, size
from xccl_emu.protocol.corpus import Member

MEMBER = Member(
    ("hw-native-sys/PTOAS#744", "hw-native-sys/PTOAS#757"),
    DATA_RACE,
    "a flag that overtakes the store before it; a barrier that only drains the pipes",
)


@kernel
def combine(own, out, window, flag, peer_window, peer_flag, nbytes, mended):
    """Give the peer its part, and take what it gives."""
    yield from parts.read(own, nbytes)
    yield mtu_out(0, peer_window, nbytes)
    yield set_flag(MTU_OUT, SCALAR, 1, sync="store issued")
    yield wait_flag(MTU_OUT, SCALAR, 1, sync="store issued")
    if mended:
        yield quiet(sync="store propagated")
    yield store(peer_flag, 1)
    yield poll_eq(flag, 1, sync="part is there")
    yield from parts.read(window, nbytes)
    yield mtu_out(0, out, nbytes)


@dataclass(frozen=True)
class Mended(parts.OneCore):
    """After the barrier a `dsb` waits until the store is visible."""

    words: int = size(4, "Words of 8 bytes that a rank gives, a multiple of 4.", least=4)
    mended: ClassVar[int] = 1

    def lay_out(self, bench: Bench) -> None:
        """A window and a flag on both dies."""
        sent = parts.numbered(0, self.words, self.words)
        nbytes, regions = 8 * self.words, Regions(2)
        window, flag = regions.managed("window", nbytes), regions.meta("flag", 64)
        pod = bench.pod(regions.tight_pod(app_bytes=2 * nbytes, ub_bytes=nbytes))
        regions.place(bench, pod)
        for me, peer in ((0, 1), (1, 0)):
            own = bench.filled(me, sent[me], "own")
            out = bench.wanted(me, sent[peer], "out", owners=f"die{me}")
            args = {
                "own": own.address, "out": out.address, "window": window.at(me), "flag": flag.at(me),
                "peer_window": window.at(peer), "peer_flag": flag.at(peer), "nbytes": nbytes, "mended": self.mended,
            }  # fmt: skip
            grants = [pod.grant(own, "r"), pod.grant(out, "w"), window.grant(me, "r"), flag.grant(me, "r")]
            grants += [window.grant(peer, "w"), flag.grant(peer, "w")]
            self.start(bench, pod, combine, me, args, grants)


@dataclass(frozen=True)
class Broken(Mended):
    """The barrier alone, which says that the pipe has issued the store."""

    mended = 0
