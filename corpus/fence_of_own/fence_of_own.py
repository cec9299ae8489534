"""The core that writes the tail fences its own writes, and the payload was written by others too.

    xccl-emu check corpus/fence_of_own/fence_of_own.py:Broken
"""

from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.check.verdict import DATA_RACE
from xccl_emu.corpus.parts import read
from xccl_emu.lang import arrive, await_group, fence, kernel, mtu_out, poll_ge, put, quiet
from xccl_emu.protocol import Bench, Case, Regions, payload, size
from xccl_emu.protocol.corpus import Member

MEMBER = Member(
    ("AMD-AGI/Primus-Turbo#482", "ROCm/iris#462", "ROCm/iris#465", "ROCm/mori#522"),
    DATA_RACE, "two cores that write one payload",
)  # fmt: skip


@kernel
def send(own, slot, tail, nbytes, is_first, mended):
    """Write a part of the payload; when all cores have, the first one says so."""
    yield from read(own, nbytes)
    yield mtu_out(0, slot, nbytes)
    if mended:
        yield quiet(sync="part before the others know")
    yield from meet()
    if is_first:
        yield fence()
        yield put(tail, 1)
    yield quiet()


def meet():
    """Wait for the other cores of the die."""
    phase = yield arrive()
    yield await_group(phase)


@kernel
def receive(out, slot, tail, nbytes):
    """Wait for the tail, and copy the payload out."""
    yield poll_ge(tail, 1)
    yield from read(slot, nbytes)
    yield mtu_out(0, out, nbytes)
    yield quiet()


@dataclass(frozen=True)
class Mended(Case):
    """Each core waits until its part is visible before it meets the others."""

    cores: int = size(2, "Cores that write the payload together.", least=2, most=8)
    nbytes: int = size(32, "Of a core's part.", least=32)
    mended: ClassVar[int] = 1

    def lay_out(self, bench: Bench) -> None:
        """The cores of die 0 send to die 1; the first one writes the tail."""
        data, regions = payload(self.cores * self.nbytes, 0), Regions(2)
        slot, tail = regions.managed("slot", data.nbytes), regions.meta("tail")
        pod = bench.pod(regions.tight_pod(app_bytes=data.nbytes, ub_bytes=data.nbytes, cores=self.cores))
        regions.place(bench, pod)
        own, out = bench.filled(0, data, "payload"), bench.wanted(1, data, "received", owners="die1")
        grants = [pod.grant(own, "r"), slot.grant(1, "w"), tail.grant(1, "w")]
        cores = range(self.cores)
        args = {
            "own": [own.address + core * self.nbytes for core in cores],
            "slot": [slot.at(1) + core * self.nbytes for core in cores],
            "tail": tail.at(1), "nbytes": self.nbytes, "is_first": [core == 0 for core in cores], "mended": self.mended,
        }  # fmt: skip
        pod.launch(send, 0, cores, args, grants)
        args = {"out": out.address, "slot": slot.at(1), "tail": tail.at(1), "nbytes": data.nbytes}
        pod.launch(receive, 1, [0], args, [pod.grant(out, "w"), slot.grant(1, "r"), tail.grant(1, "r")])


@dataclass(frozen=True)
class Broken(Mended):
    """The cores meet when they have issued their parts; the fence after that covers the first core's writes alone."""

    mended = 0
