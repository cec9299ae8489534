"""The halves of a line of 128 bytes become visible apart, and the flag vouches for data that are not in.

    xccl-emu check corpus/halves_of_a_line/halves_of_a_line.py:Broken
"""

from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.check.verdict import WRONG_BITS
from xccl_emu.lang import MTU_IN, MTU_OUT, SCALAR, kernel, mtu_in, mtu_out, poll_line_eq, set_flag, ub_store, wait_flag
from xccl_emu.protocol import Bench, Case, Regions, payload, size
from xccl_emu.protocol.corpus import Member

MEMBER = Member(
    ("NVIDIA/nccl#2053", "NVIDIA/nccl#740", "NVIDIA/nccl#786", "NVIDIA/nccl#831"), WRONG_BITS,
    "64 bytes that become visible at once, where the line has 128",
)  # fmt: skip
LINE, HALF = 128, 64


@kernel
def send(own, lines, n_lines, flags):
    """Send lines of 128 bytes, each in one write; ``flags`` are in the last word, or in the last of each half."""
    for i in range(n_lines):
        yield mtu_in(own + LINE * i, 0, LINE)
        yield set_flag(MTU_IN, SCALAR, 0)
        yield wait_flag(MTU_IN, SCALAR, 0)
        for word in range(32):
            if flags >> word & 1:
                yield ub_store(4 * word, i + 1)
        yield mtu_out(0, lines + LINE * i, LINE)
        yield set_flag(MTU_OUT, SCALAR, 1)
        yield wait_flag(MTU_OUT, SCALAR, 1)


@kernel
def receive(out, lines, n_lines, flags):
    """Read each line over and over until its flags are in, and leave it at ``out``."""
    for i in range(n_lines):
        yield poll_line_eq(lines + LINE * i, 0, LINE, flags, i + 1 << 32)
        yield mtu_out(0, out + LINE * i, LINE)
        yield set_flag(MTU_OUT, SCALAR, 1)
        yield wait_flag(MTU_OUT, SCALAR, 1)


@dataclass(frozen=True)
class Mended(Case):
    """Each half of a line has a flag of its own, as a line of LL has."""

    lines: int = size(1, "Lines that are sent.", most=64)
    flags: ClassVar[int] = 1 << 31 | 1 << 15

    def lay_out(self, bench: Bench) -> None:
        """Die 0 sends lines to die 1; what is at the place of a flag is lost, for both alike."""
        regions = Regions(2)
        lines = regions.managed("line", LINE, self.lines)
        data = payload(LINE * self.lines, 0).reshape(self.lines, 32, 4)
        spec = regions.tight_pod(app_bytes=data.nbytes, ub_bytes=LINE).with_(atomic_bytes=HALF)
        pod = bench.pod(spec.with_(meta_bytes=LINE, die_bytes=4 * spec.die_bytes))
        regions.place(bench, pod)
        came = data.copy()
        for word in range(32):
            if self.flags >> word & 1:
                came[:, word] = 0
                came[:, word, 0] = range(1, self.lines + 1)
        own, out = bench.filled(0, data, "lines"), bench.wanted(1, came, "received", owners="die1")
        shared = {"lines": lines.at(1), "n_lines": self.lines, "flags": self.flags}
        pod.launch(send, 0, [0], {"own": own.address, **shared}, [pod.grant(own, "r"), lines.grant(1, "w")])
        pod.launch(receive, 1, [0], {"out": out.address, **shared}, [pod.grant(out, "w"), lines.grant(1, "r")])


@dataclass(frozen=True)
class Broken(Mended):
    """A line has one flag, in its last word."""

    flags = 1 << 31
