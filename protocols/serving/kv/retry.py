"""Requests that are aborted, time out and are tried again, as a case ([xDeepServe] 5.1)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu import protocol
from xccl_emu.base import errors
from xccl_emu.kernels import common
from xccl_emu.kernels.serving.kv import pair, retry
from xccl_emu.machine.pod import Buffer


@dataclass(frozen=True)
class KvRetryCase(protocol.Case):
    """Receivers of a decode die ask the first prefill instance for requests, and the next one when a time-out passes.

    The user may abort a request at any moment; it comes again.  Time-outs pass at any moment, whether the instance has
    died or not; of the last one none does, unless all are ``timed``: then it is said which requests nobody served.
    """

    presets: ClassVar[tuple[protocol.Preset, ...]] = (
        protocol.Preset(
            "kv-retry", "KV caches whose transfer is aborted or times out, and is tried again", {},
            {"aborts": 1},
        ),
    )  # fmt: skip
    papers = protocol.read_papers("serving.kv", "Transfer of KV caches")

    instances: int = protocol.size(2, "Prefill instances; each has a time-out but for the last.", most=64)
    receivers: int = protocol.size(1, "Receivers of the decode die, which share its slots.", most=32)
    requests: int = protocol.size(1, "Requests of each receiver.", most=1 << 10)
    layers: int = protocol.size(2, "Parts of a request, a block each, pulled as they are ready.", most=pair.PLACES_MAX)
    pool: int = protocol.size(1, "Blocks of an instance for each receiver.", most=1 << 10)
    slots: int = protocol.size(2, "Blocks of the decode die.", most=pair.PLACES_MAX)
    aborts: int = protocol.size(0, "Times that the user aborts a request of each receiver, at most.", least=0, most=64)
    mortal: int = protocol.switch(1, "May the first instance die at any part?")
    granules: int = protocol.size(1, "Granules of 32 bytes of a block.", most=1 << 10)
    seed: int = protocol.size(0, "Of the caches.", least=0, most=None)
    timed: int = protocol.switch(0, "Do all give up waiting at any moment, so that any die may stop?", advanced=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.slots < self.layers:
            raise errors.ConfigError("slots", self.slots, f"must be at least {self.layers}, the parts of a request")
        if self.mortal and self.instances == 1 and not self.timed:
            raise errors.ConfigError("mortal", 1, "must be 0 with one instance, for which no other could stand in")

    @property
    def payload_bytes(self) -> int:
        """Bytes that all receivers get."""
        return self.receivers * self.requests * self.layers * 32 * self.granules

    def caches(self) -> NDArray[np.uint8]:
        """Caches of all requests, [receivers, requests, layers, bytes]; instances have the same."""
        shape = self.receivers, self.requests, self.layers, 32 * self.granules
        return protocol.payload(self.payload_bytes, self.seed).reshape(shape)

    def lay_out(self, bench: protocol.Bench) -> None:
        """Instances are the first dies, with a core for each receiver; these are cores of the last die."""
        n, nbytes, decode, caches = self.receivers, 32 * self.granules, self.instances, self.caches()
        regions, parts = protocol.Regions(self.instances + 1), self.instances * self.pool
        blocks, slots = regions.managed("block", nbytes, n * self.pool), regions.managed("slot", nbytes, self.slots)
        ask, done = (regions.meta(name, retry.FIELD_BYTES, n) for name in ("ask", "done"))
        tasks, taken = regions.meta("task", retry.FIELD_BYTES, n * parts), regions.meta("taken")
        app = caches.nbytes + self.timed * n * 32 * (1 + self.requests)
        pod = regions.pod(bench, app_bytes=app, ub_bytes=common.ROWS * nbytes, cores=n)
        prompts = [bench.filled(die, caches, "caches", travels=True) for die in range(self.instances)]
        for q in range(n):
            own, mine = range(q * self.pool, (q + 1) * self.pool), range(q, q + 1)
            asked = tasks.at(decode, q * parts, parts)
            params = retry.Retry(
                blocks.at(0, own.start).within(own), ask.at(0, q).within(mine), done.at(0, q).within(mine),
                asked, slots.at(decode), taken.at(decode),
                ask.at(1) - ask.at(0), self.instances, self.pool, self.slots, self.layers, nbytes, self.requests,
                self.aborts, 0,
            )  # fmt: skip
            for die, prompt in enumerate(prompts):
                first = q * parts + die * self.pool
                given = params._replace(tasks=asked.only(range(first, first + self.pool)))
                if self.timed:
                    bench.label_buffer(said := pod.alloc(die, 8), f"said{q}")
                    given = given._replace(said=said.address)
                    right, asks = _Waited(bool(self.mortal and not die)), Buffer(die, ask.at(die, q), 8)
                    bench.judged_by(right, said, asks, name=f"said{q} of die {die}", owners=f"die{die}.core{q}")
                args: dict[str, Any] = {"caches": prompt.address, "instance": die, "r": given}
                pod.launch(retry.answer, die, [q], {**args, "mortal": int(self.mortal and not die)})
            owner = f"die{decode}.core{q}"
            if self.timed:
                said, out = pod.alloc(decode, 8 * self.requests), pod.alloc(decode, caches[q].nbytes)
                bench.label_buffer(said, f"said{q}")
                bench.label_buffer(out, f"out{q}")
                bench.judged_by(_Served(self.instances, caches[q]), said, out, name=f"out{q}", owners=owner)
                asks = Buffer(0, ask.at(0, q), 8)
                bench.judged_by(_Asked(self.instances, self.aborts), said, asks, name=f"attempts{q}", owners="drained")
                params = params._replace(said=said.address)
            else:
                out = bench.wanted(decode, caches[q], f"out{q}", owners=owner)
            args = {"out": out.address, "first": q * self.requests, "r": params}
            pod.launch(retry.request_all, decode, [q], args)
        bench.stop(retry.PAIRING, "a task of a request that was not asked for")
        bench.tolerates("stop", "cut", "stall")
        bench.recovers(*range(self.instances + 1 if self.timed else self.instances - 1))

    proof_rows: ClassVar = {
        "an instance dies, or is slow": {},
        "the user aborts": dict(instances=1, mortal=0, aborts=1, requests=2),
        "the user aborts twice": dict(instances=1, mortal=0, aborts=2, pool=2),
        "an abort, and an instance dies": dict(aborts=1),
        "two receivers, the user aborts": dict(instances=1, mortal=0, receivers=2, aborts=1, layers=1, slots=1),
        "blocks of two granules": dict(granules=2),
        "all give up waiting": dict(timed=1, mortal=0, instances=1, layers=1, slots=1),
    }


@dataclass(frozen=True)
class _Served:
    """What a receiver has left that may be served by nobody: the caches of the requests that it says came."""

    instances: int
    caches: NDArray[np.uint8]
    """Caches of its requests, [requests, layers, bytes]."""

    def __call__(self, said: NDArray[np.uint8], out: NDArray[np.uint8]) -> bool | str:
        served = said.view(np.int64)
        if not ((served >= 0) & (served <= self.instances)).all():
            return f"requests are served by {served.tolist()}"
        wrong = (out.reshape(self.caches.shape) != self.caches).any(axis=(1, 2)) & (served > 0)
        return f"caches of requests {np.flatnonzero(wrong).tolist()}" if wrong.any() else True


@dataclass(frozen=True)
class _Asked:
    """Whom a receiver says that it was served by, and how often it has asked, when all has ended.

    Each attempt has an epoch, and one more where a time-out passed; so their number says whether time-outs did.
    """

    instances: int
    aborts: int

    def __call__(self, said: NDArray[np.uint8], asks: NDArray[np.uint8]) -> bool | str:
        served, asked = said.view(np.int64), int(asks.view(np.int64)[0])
        epochs = asked // retry.EPOCH - (asked % retry.EPOCH == retry.END)
        least = int(np.where(served > 0, 2 * served - 1, 2 * self.instances).sum())
        return least <= epochs <= least + self.aborts or f"{epochs} epochs, served by {served.tolist()}"


@dataclass(frozen=True)
class _Waited:
    """What an instance has left: that it has not waited in vain it says only if it has heard that nothing more is asked
    for, or may die.  Time-outs may pass wrongly: so that it has is not judged."""

    mortal: bool

    def __call__(self, said: NDArray[np.uint8], asks: NDArray[np.uint8]) -> bool | str:
        waited, (epoch, asked) = int(said.view(np.int64)[0]), divmod(int(asks.view(np.int64)[0]), retry.EPOCH)
        if waited not in (0, 1):
            return f"it says {waited}"
        heard = epoch > 0 and asked < retry.FIRST
        return waited == 1 or heard or self.mortal or f"it says that it heard the end, not {asked}, {epoch}"
