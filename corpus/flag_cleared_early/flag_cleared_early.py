"""A slot's ready flag is cleared before the token has been copied out of the slot.

    xccl-emu check corpus/flag_cleared_early/flag_cleared_early.py:Broken
"""

from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.check.verdict import DATA_RACE
from xccl_emu.corpus import parts
from xccl_emu.lang import fence, kernel, mtu_out, poll_eq, put, quiet
from xccl_emu.protocol import Bench, Regions, payload, size
from xccl_emu.protocol.corpus import Member

MEMBER = Member(("sgl-project/sgl-kernel-npu#720", "sgl-project/sgl-kernel-npu@0990a9bd"), DATA_RACE, "two tokens")


@kernel
def send(own, slot, ready, tokens, nbytes):
    """Put each token into the slot when its flag is clear, and set the flag."""
    for i in range(tokens):
        yield from parts.read(own + i * nbytes, nbytes)
        yield poll_eq(ready, 0)
        yield mtu_out(0, slot, nbytes)
        yield fence()
        yield put(ready, 1)
        yield quiet()


@kernel
def receive(out, slot, ready, tokens, nbytes, mended):
    """Wait for the flag, copy the token out, and clear the flag."""
    for i in range(tokens):
        yield poll_eq(ready, 1)
        if not mended:
            yield put(ready, 0)
            yield quiet()
        yield from parts.read(slot, nbytes)
        if mended:
            yield put(ready, 0)
        yield mtu_out(0, out + i * nbytes, nbytes)
        yield quiet()


@dataclass(frozen=True)
class Mended(parts.OneCore):
    """The flag is cleared when the token has been read."""

    tokens: int = size(2, "Tokens, one after the other through the slot.")
    nbytes: int = size(32, "Of a token.", least=32)
    mended: ClassVar[int] = 1

    def lay_out(self, bench: Bench) -> None:
        """Die 0 sends to die 1, where slot and flag are."""
        data, regions = payload(self.tokens * self.nbytes, 0), Regions(2)
        slot, ready = regions.managed("slot", self.nbytes), regions.meta("ready")
        pod = bench.pod(regions.tight_pod(app_bytes=data.nbytes, ub_bytes=self.nbytes))
        regions.place(bench, pod)
        own, out = bench.filled(0, data, "tokens"), bench.wanted(1, data, "received", owners="die1")
        args = {"slot": slot.at(1), "ready": ready.at(1), "tokens": self.tokens, "nbytes": self.nbytes}
        grants = [pod.grant(own, "r"), slot.grant(1, "w"), ready.grant(1, "rw")]
        self.start(bench, pod, send, 0, {"own": own.address, **args}, grants)
        grants = [pod.grant(out, "w"), slot.grant(1, "r"), ready.grant(1, "rw")]
        self.start(bench, pod, receive, 1, {"out": out.address, **args, "mended": self.mended}, grants)


@dataclass(frozen=True)
class Broken(Mended):
    """The flag is cleared as soon as it has been seen."""

    mended = 0
