"""A stage in the data buffer is refilled before the pipe that copies it out has read it.

    xccl-emu check corpus/stage_refilled/stage_refilled.py:Broken
"""

from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.check.verdict import DATA_RACE
from xccl_emu.corpus import parts
from xccl_emu.lang import MTU_IN, MTU_OUT, kernel, mtu_in, mtu_out, quiet, set_flag, wait_flag
from xccl_emu.machine import small_pod
from xccl_emu.protocol import Bench, payload, size
from xccl_emu.protocol.corpus import Member

MEMBER = Member(
    ("deepseek-ai/DeepEP#621", "deepseek-ai/DeepEP#632", "deepseek-ai/DeepEP#642", "deepseek-ai/DeepEP@d4f41e4"),
    DATA_RACE, "two chunks; the pipe that fills overtakes the one that empties",
)  # fmt: skip


@kernel
def forward(own, out, chunks, nbytes, mended):
    """Copy chunks from memory to memory, all through the start of the data buffer."""
    for i in range(chunks):
        if mended and i > 0:
            yield wait_flag(MTU_OUT, MTU_IN, i - 1, sync="stage is free")
        yield mtu_in(own + i * nbytes, 0, nbytes)
        yield set_flag(MTU_IN, MTU_OUT, i)
        yield wait_flag(MTU_IN, MTU_OUT, i)
        yield mtu_out(0, out + i * nbytes, nbytes)
        if mended and i < chunks - 1:
            yield set_flag(MTU_OUT, MTU_IN, i, sync="stage is free")
    yield quiet()


@dataclass(frozen=True)
class Mended(parts.OneCore):
    """The pipe that fills waits for the one that empties."""

    chunks: int = size(2, "Chunks.", most=32)
    nbytes: int = size(32, "Of a chunk.", least=32)
    mended: ClassVar[int] = 1

    def lay_out(self, bench: Bench) -> None:
        """One core of die 0 copies to die 1."""
        data = payload(self.chunks * self.nbytes, 0)
        pod = bench.pod(small_pod(2, app_bytes=data.nbytes, meta_bytes=32, managed_bytes=32, ub_bytes=self.nbytes))
        own, out = bench.filled(0, data, "chunks"), bench.wanted(1, data, "copied")
        sizes = {"chunks": self.chunks, "nbytes": self.nbytes, "mended": self.mended}
        args = {"own": own.address, "out": out.address, **sizes}
        self.start(bench, pod, forward, 0, args, [pod.grant(own, "r"), pod.grant(out, "w")])


@dataclass(frozen=True)
class Broken(Mended):
    """The stage is refilled as soon as the copy out of it has been asked for."""

    mended = 0
