"""Send and receive between two dies, by size, number of cores and class of path ([xDeepServe], Figure 5)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import one_of
from xccl_emu.base.sizes import size_text
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import CLOUDMATRIX384, KIB, MIB
from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.result import Result, total_wrong
from xccl_emu.papers.bench.setting import DEFAULT, TARGETS, Setting
from xccl_emu.protocols.communicator import number_in
from xccl_emu.protocols.sendrecv.session import SendRecv
from xccl_emu.timing.run import VirtualTime

TRANSFERS_MAX = 1000
"""Transfers of each size: virtual time has no noise, so more would only take longer."""
SIZES = tuple(KIB << i for i in range(17))
CORES = (2, 4, 8, 16, 32, 48)


@dataclass(frozen=True)
class Sweep:
    """What is sent, and how often."""

    sizes: Sequence[int] = SIZES
    """Bytes of a payload."""
    cores: Sequence[int] = CORES
    """Cores used on each side."""
    to: Sequence[str] = ("pod",)
    """Where the receiver is, of `TARGETS`."""
    iterations: int = 1
    """Runs that the time is the mean of; virtual time has no noise, but the ring's slots may be other ones."""
    warmup: int = 1
    """Runs before them that are not counted; the first one connects the pair."""
    path: str = "mtu"
    """As `SendRecv` knows it."""
    slots: int = 4
    """Slots in the ring of each core."""
    slot_bytes: int | None = None
    """As `SendRecv` has it."""

    def __post_init__(self) -> None:
        for name, least in (("iterations", 1), ("warmup", 0)):
            object.__setattr__(self, name, number_in(name, getattr(self, name), least, TRANSFERS_MAX))
        for place in self.to:
            one_of("to", place, TARGETS)
        most = CLOUDMATRIX384.cores_per_die
        if bad := [n for n in self.cores if not 1 <= n <= most]:
            raise ConfigError("cores", bad[0], f"must be 1 to {most}")


DEFAULT_SWEEP = Sweep()

SMALL_BYTES, LARGE_BYTES, FEW, MANY = 512 * KIB, 9 * MIB, 2, CLOUDMATRIX384.cores_per_die
"""What the paper's text says of Figure 5 is about."""

OTHERS: Mapping[str, tuple[dict[str, Any], dict[str, float]]] = {
    "slots of 32 KB": ({"slot_bytes": 32 * KIB, "slots": 8}, {}),
    "slots of 16 KB": ({"slot_bytes": 16 * KIB, "slots": 16}, {}),
    "by DMA": ({"path": "dma"}, {}),
    "zero-copy": ({"path": "zero-copy"}, {}),
    "cores of 44 GB/s": ({}, {"core_gb_s": 44.0}),
    "cores of 60 GB/s": ({}, {"core_gb_s": 60.0}),
    "slots of 32 KB, cores of 60 GB/s": ({"slot_bytes": 32 * KIB, "slots": 8}, {"core_gb_s": 60.0}),
}
"""What no paper says, in other ways: fields of `Sweep`, and costs."""


class _Pair:
    """Die 0, and a die that it sends to."""

    def __init__(self, setting: Setting, sweep: Sweep, to: str) -> None:
        most = max(sweep.sizes)
        setting = setting.fitting(f"a payload of {size_text(most)}", lambda data: 3 * most if data else 0)
        self._setting, self._sweep, self._to = setting, sweep, to
        self._pod: Pod
        self._policy: VirtualTime
        setting.drop_kept()  # a pair that is connected would stay so
        self._pod, self._policy = setting.pod()
        self._comm = SendRecv(self._pod, slots=sweep.slots, slot_bytes=sweep.slot_bytes)
        self._source, self._target = self._pod.alloc(0, most), self._pod.alloc(TARGETS[to], most)
        if setting.data:
            self._view(self._source)[:] = np.random.default_rng(setting.seed).integers(0, 256, most, np.uint8)
        self._event = 0

    def measure(self, nbytes: int, cores: int) -> Result:
        """Send as often as the sweep says; the mean time of those that count, and wrong bytes of all."""
        with self._setting.stage(f"{size_text(nbytes)} on {cores} cores"):
            runs = [self._once(nbytes, cores) for _ in range(self._sweep.warmup + self._sweep.iterations)]
        counted = [us for us, _ in runs[self._sweep.warmup :]]
        shape: dict[str, int | str] = {
            "bytes": nbytes, "cores": cores, "to": self._to, "path": self._sweep.path, "slots": self._sweep.slots,
        }  # fmt: skip
        what = f"{size_text(nbytes)} on {cores} cores, {self._to}"
        wrong = total_wrong(bad for _, bad in runs)
        return Result("sendrecv", what, sum(counted) / len(counted), "us", configuration=shape, wrong=wrong)

    def _once(self, nbytes: int, cores: int) -> tuple[float, int | None]:
        """Microseconds from the start of a send to its end, and wrong bytes; None without data."""
        self._event += 1
        source, target = (Buffer(b.die, b.address, nbytes) for b in (self._source, self._target))
        if self._setting.data:
            self._view(target)[:] = 0
        self._comm.transfer(source, target, event_id=self._event, cores=cores, path=self._sweep.path)
        self._comm.run()
        latency_us = self._policy.timing.by_die_us[source.die] + self._setting.costs.launch_us
        if not self._setting.data:
            return latency_us, None
        return latency_us, int(np.count_nonzero(self._view(source) != self._view(target)))

    def _view(self, buffer: Buffer) -> NDArray[np.uint8]:
        return self._pod.view(buffer)


def measure(sweep: Sweep, setting: Setting = DEFAULT) -> list[Result]:
    """Every size on every number of cores, to every place; microseconds."""
    results = []
    for to in sweep.to:
        pair = _Pair(setting, sweep, to)
        results += [pair.measure(nbytes, cores) for cores in sweep.cores for nbytes in sweep.sizes]
        del pair  # before the next pod
    return results


def claims(setting: Setting = DEFAULT) -> Iterator[Result]:
    """Yield what the paper's text says of Figure 5, within a node and between nodes."""
    small, large = published.rows("sendrecv")
    for to in ("node", "pod"):
        one, faster, wrong = _claimed(replace(DEFAULT_SWEEP, to=(to,)), setting)
        where = {"to": to, "path": DEFAULT_SWEEP.path, "slots": DEFAULT_SWEEP.slots}
        yield _named(Result.of(small, one.emulated, wrong=one.wrong, configuration=where))
        yield _named(Result.of(large, faster, wrong=wrong, configuration=where))


def _claimed(sweep: Sweep, setting: Setting) -> tuple[Result, float, int | None]:
    """The small payload on few cores, by how much many are faster with the large one, and wrong bytes of that."""
    runs = measure(replace(sweep, sizes=(SMALL_BYTES, LARGE_BYTES), cores=(FEW, MANY)), setting)
    small, large, _, many = runs
    faster = float(large.emulated or 0) / float(many.emulated or 1)
    return small, faster, total_wrong((large.wrong, many.wrong))


def _named(result: Result) -> Result:
    return replace(result, what=f"{result.what}, {result.configuration['to']}")


def rows_beside(setting: Setting = DEFAULT) -> Iterator[Result]:
    """Return rows between nodes in other ways, for which nothing was published."""
    for name, (fields, costs) in OTHERS.items():
        sweep, changed = replace(DEFAULT_SWEEP, **fields), replace(setting, costs=replace(setting.costs, **costs))
        one, faster, wrong = _claimed(sweep, changed)
        where: dict[str, Any] = {"to": "pod", **fields, **costs}
        yield replace(one, what=f"512 KB on 2 cores, pod, {name}", configuration=where)
        what = f"9 MB on 48 cores, times faster than on 2, pod, {name}"
        yield Result("sendrecv", what, faster, "x", configuration=where, wrong=wrong)


def sendrecv(setting: Setting = DEFAULT, sweep: Sweep = DEFAULT_SWEEP) -> list[Result]:
    """The paper's claims, if rings are as they take them, and then every size on every number of cores."""
    as_published = (sweep.path, sweep.slots) == (DEFAULT_SWEEP.path, DEFAULT_SWEEP.slots)
    others = (*claims(setting), *rows_beside(setting)) if as_published else ()
    return [*others, *measure(sweep, setting)]
