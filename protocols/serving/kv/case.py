"""Transfers of KV caches from prefill to decode as a case ([xDeepServe] 5.1)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from xccl_emu import protocol
from xccl_emu.base import errors
from xccl_emu.kernels.group import align
from xccl_emu.kernels.serving.kv import pair
from xccl_emu.protocol import streams as in_streams
from xccl_emu.protocols.serving.kv import session
from xccl_emu.protocols.serving.kv.session import KvRegions, PairSizes, RankPair

DEEPSEEK_R1 = {
    "layers": 61, "blocks": 1, "granules": 4096 * 576 * 2 // 32, "slots": 61, "pool": 4, "tasks": 4, "requests": 1,
}  # fmt: skip
"""Sizes of its cache of 4,096 tokens, 576 numbers of two bytes each a layer: 287.8 MB."""


@dataclass(frozen=True)
class KvCase(in_streams.StreamCase):
    """Prefill instances send ``requests`` to each decode die; the caches are read there by decode steps."""

    presets: ClassVar[tuple[protocol.Preset, ...]] = (
        protocol.Preset(
            "kv", "KV caches that decode pulls when it has room, through the data buffer", {},
            {"blocks": 3, "pool": 4, "slots": 4, "tasks": 1}, DEEPSEEK_R1,
        ),
        protocol.Preset(
            "kv-dma", "KV caches that decode pulls when it has room, by DMA", {"path": "dma"}, {"slots": 2}
        ),
        protocol.Preset(
            "kv-push", "KV caches that prefill writes to slots which decode offers", {"path": "push"},
            {"blocks": 3, "pool": 4, "slots": 4},
        ),
        protocol.Preset(
            "kv-layers", "KV caches that decode pulls layer by layer while prefill goes on", {"layers": 2, "blocks": 1}
        ),
        protocol.Preset(
            "kv-shared", "KV caches of two decode dies in one pool of prefill",
            {"shared": 1, "decode": 2, "requests": 2, "blocks": 1, "pool": 2, "slots": 1},
        ),
        protocol.Preset(
            "kv-sendrecv", "KV caches by send and receive, through a ring that instances share",
            {"path": "sendrecv"}, {"prefill": 2, "requests": 1, "blocks": 1, "pool": 1, "slots": 2}, DEEPSEEK_R1,
        ),
    )  # fmt: skip
    papers = protocol.read_papers("serving.kv", "Transfer of KV caches", "KV caches by send and receive")

    prefill: int = protocol.size(1, "Prefill instances.", most=64)
    tp: int = protocol.size(1, "Ranks of an instance; all have the cache, each serves some decode dies.", most=32)
    decode: int = protocol.size(1, "Decode dies.", most=384)
    ranks: int = protocol.size(
        0, "Ranks in all: half are of one prefill instance, half decode, a pair each.", least=0, most=64, advanced=True
    )
    requests: int = protocol.size(
        3, "Requests from each instance to each decode die.", most=1 << 12, examples=(1, 2, 4), each_call=True
    )
    blocks: int = protocol.size(2, "Blocks of the first request; each next one has one less, down to one, and so on.")
    layers: int = protocol.size(1, "Parts of a cache, each of that many blocks and with a task of its own.", most=64)
    pool: int = protocol.size(3, "Blocks of a prefill rank for each decode die.", most=pair.PLACES_MAX)
    shared: int = protocol.switch(0, "Is there one pool, of ``pool`` blocks, for all decode dies of a rank?")
    quota: int = protocol.size(0, "Blocks of a pool that a pair may use at once; 0: all.", least=0, advanced=True)
    slots: int = protocol.size(3, "Blocks of a decode die.", most=pair.PLACES_MAX)
    tasks: int = protocol.size(2, "Tasks of a pair that may be open.", most=1 << 12)
    cores: int = protocol.size(1, "Cores that move the blocks of a request.", most=8)
    path: str = protocol.choice("mtu", "Who moves blocks.", of=("mtu", "dma", "push", "sendrecv"))
    ring: int = protocol.size(
        2, "Chunks of the ring that receives of a decode die share, where path is sendrecv.", most=64, advanced=True
    )
    granules: int = protocol.size(1, "Granules of 32 bytes of a block.", most=1 << 20)
    piece: int = protocol.size(1 << 10, "Most granules of a piece in the data buffer, and of a chunk.", advanced=True)
    stopped: int = protocol.switch(
        0, "Has the last decode die stopped before? It is sent what its pool takes, and pulls nothing.", advanced=True
    )
    seed: int = protocol.size(0, "Of the caches.", least=0, most=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("prefill", "tp", "decode") if self.ranks else ():
            half = 1 if name == "prefill" else self.ranks // 2
            if self.ranks % 2 or getattr(self, name) not in (1, half):
                raise errors.ConfigError(
                    "ranks", self.ranks, "must be an even number, and cannot be combined with prefill, tp and decode"
                )
            object.__setattr__(self, name, half)
        for name, least, why in (
            ("pool", self.blocks, "the blocks of a part"),
            ("slots", self.blocks * self.layers, "the blocks of a request, which are taken at once"),
            ("quota", self.blocks if self.quota else 0, "the blocks of a part"),
        ):
            if getattr(self, name) < least:
                raise errors.ConfigError(name, getattr(self, name), f"must be at least {least}, {why}")
        if self.path == "sendrecv" and self.cores > 1:
            raise errors.ConfigError("cores", self.cores, "must be 1 with path='sendrecv', where a pair has a channel")
        if self.stopped and self.path == "push":
            why = "must be 0 with path='push', by which nothing leaves without an offer"
            raise errors.ConfigError("stopped", 1, why)
        self._refuse_circles()

    def _refuse_circles(self) -> None:
        """Raises ConfigError if a pair could use up a pool while decode dies hold slots for the next parts of others.

        Then each of two decode dies may wait for an instance whose pool is full of blocks for the other.
        """
        peers = -(-self.decode // self.tp)
        if not self.shared or self.path == "push" or min(self.layers, self.prefill, peers) < 2:
            return
        why = "with several parts, instances and decode dies, else all may wait in a circle"
        if self.pool < (least := peers * self.blocks):
            raise errors.ConfigError("pool", self.pool, f"must be at least {least}, a part for each decode die, {why}")
        if self._quota > (most := (self.pool - self.blocks) // (peers - 1)):
            raise errors.ConfigError("quota", self.quota, f"must be {self.blocks} to {most} {why}")

    # ---- who sends what to whom

    def links(self) -> list[RankPair]:
        """Return all pairs: each decode die with the rank of each instance that serves it."""
        shape, found = session.InstancePair(self.tp, 1, self.decode), list[RankPair]()
        for number in range(self.decode):
            for instance in range(self.prefill):
                source = instance * self.tp + session.balanced(shape, number, 0)
                peer, target = sum(link.source == source for link in found), self.prefill * self.tp + number
                found.append(RankPair(source, peer, target, instance, bool(self.stopped) and number == self.decode - 1))
        return found

    def lengths(self, link: RankPair) -> list[int]:
        """Blocks of a part of each request; a die that has stopped is sent what needs no answer."""
        each = [self.blocks - q % self.blocks for q in range(self.requests)]
        if link.stopped:
            room, tasks = min(self._quota, self.pool) // self.layers, self.tasks // self.layers
            return [n for q, n in enumerate(each) if sum(each[: q + 1]) <= room and q < tasks]
        return each

    def asked(self, link: RankPair, first: int) -> NDArray[np.int64]:
        """ID and blocks of a part of each request, [requests, 2], after the first ``first`` of each pair."""
        links = self.links()
        ids = (1 + links.index(link) + len(links) * (first + q) for q in range(self.requests))
        return np.array([*zip(ids, self.lengths(link), strict=False)], np.int64).reshape(-1, 2)

    def caches(self, number: int = 0) -> list[NDArray[np.uint8]]:
        """The caches of each pair's requests in a call, [requests x layers x blocks, bytes]."""
        blocks = [sum(self.lengths(link)) * self.layers for link in self.links()]
        data = protocol.payload(sum(blocks) * self._nbytes, self.seed + 101 * number)
        return np.split(data.reshape(-1, self._nbytes), np.cumsum(blocks)[:-1])

    @property
    def payload_bytes(self) -> int:
        """Payload of all pairs in bytes."""
        blocks = (sum(self.lengths(link)) for link in self.links() if not link.stopped)
        return sum(blocks) * self.layers * self._nbytes

    @property
    def _nbytes(self) -> int:
        return 32 * self.granules

    @property
    def _quota(self) -> int:
        return self.quota or self.pool

    # ---- where it is, and what runs

    def areas(self, regions: protocol.Regions) -> KvRegions:
        """Pools on the dies of prefill, slots on the dies of decode."""
        peers = max(link.peer for link in self.links()) + 1
        sizes = PairSizes(
            peers, self.prefill, self.pool, 1 if self.shared else peers, self._quota, self.slots, self.tasks,
            self.blocks, self.cores, self._nbytes, min(self._nbytes, 32 * self.piece), self.layers,
            self.ring if self.path == "sendrecv" else 0,
        )  # fmt: skip
        return KvRegions(regions, sizes)

    def lay_out_calls(self, bench: protocol.Bench, calls: Sequence[protocol.Call]) -> None:
        """Launches for each call, on a pod that the areas just fit."""
        cases, links = [call.case for call in calls if isinstance(call.case, KvCase)], self.links()
        regions = protocol.Regions(self.prefill * self.tp + self.decode)
        areas, caches = self.areas(regions), [case.caches(number) for number, case in enumerate(cases)]
        at_source, at_target = session.cores_of(self.path, self.cores)
        cores = max(areas.sizes.peers * at_source, self.prefill * at_target)
        tables = in_streams.Streams.table_bytes(len(cases), *session.kernels_of(self.path))
        app = dict.fromkeys(regions.dies, cores * tables)
        for case, call in zip(cases, caches, strict=True):
            for link, data in zip(links, call, strict=True):
                for die in (link.source, link.target):
                    app[die] += data.nbytes + align(16 * case.requests)
        pod = regions.pod(bench, app_bytes=max(app.values()), ub_bytes=areas.ub_bytes, cores=cores)
        streams = in_streams.Streams(bench, pod)
        transfers, first = session.Transfers(bench, pod, streams, areas, self.path), 0
        for number, case in enumerate(cases):
            for link, data in zip(links, caches[number], strict=True):
                if (requests := case.asked(link, first)).size and not (link.stopped and number):
                    transfers.launch(link, session.PairBatch(requests, data, first, in_streams.of_call(number)))
            first += case.requests
        streams.put()
        bench.stop(pair.PAIRING, "a request, or slots for one, that is not expected now")
        bench.tolerates("stop", "cut", "stall")

    def fit_to_memory(self, given: Collection[str], run: protocol.PodRun) -> tuple[Self, str]:
        """The case itself: what is sent is there, in decode's slots, and where the decode step has read it."""
        pools = (1 if self.shared else len(self.links())) * self.pool * self._nbytes
        run.fits(3 * self.payload_bytes + pools, "the caches need", "take fewer ranks or layers")
        return self, ""

    def run_on_pod(self, run: protocol.PodRun) -> None:
        """Run all requests of all pairs, and compare what decode steps have read with what was sent.

        A pair's caches are drawn when they are put in, and once more to compare: so they take memory on the pod alone.
        """
        if self.stopped:
            raise errors.ConfigError("stopped", 1, "must be 0 on the whole pod, where all caches are to arrive")
        pod, links, sent = run.pod, self.links(), list[session.PairLaunch]()
        areas = self.areas(protocol.Regions(self.prefill * self.tp + self.decode))
        areas.regions.fit(pod.spec, 0, 0, "take smaller blocks or fewer", areas.ub_bytes)
        bench = protocol.Bench.around(pod)
        bench.payload = False
        streams = in_streams.Streams(bench, pod)
        transfers = session.Transfers(bench, pod, streams, areas, self.path)
        with run.stage("prefill's caches"):
            for number, link in enumerate(links):
                data = self._cache(number)
                sent.append(transfers.launch(link, session.PairBatch(self.asked(link, 0), data, 0, "")))
                pod.view(sent[-1].own, shape=data.shape)[:] = data
        streams.put()
        run.facts |= {"pairs": len(links), "nbytes": self._cache(0).nbytes}
        with run.stage("transfer") as progress:
            run.rounds.append({"transfer": pod.run(progress)})
        with run.stage("compare"):
            for number, pair_sent in enumerate(sent):
                data = self._cache(number)
                run.wrong += int(np.count_nonzero(pod.view(pair_sent.out, shape=data.shape) != data))

    def _cache(self, number: int) -> NDArray[np.uint8]:
        """The blocks that a pair of that number sends on the whole pod, [blocks of all requests, bytes]."""
        blocks = sum(self.lengths(self.links()[number])) * self.layers
        return protocol.payload(blocks * self._nbytes, self.seed + 101 * number).reshape(-1, self._nbytes)

    proof_rows: ClassVar = {
        "blocks and slots used again": {},
        "one task at a time": dict(tasks=1, slots=2),
        "two cores": dict(cores=2, requests=2),
        "two prefill instances, slots for one request": dict(prefill=2, requests=1, slots=2),
        "two decode dies": dict(decode=2, requests=2, blocks=1, pool=1, slots=1),
        "three decode dies of an instance of two ranks": dict(tp=2, decode=3, requests=1, blocks=1),
        "by DMA": dict(path="dma"),
        "by DMA, two cores": dict(path="dma", cores=2, requests=2),
        "pushed": dict(path="push"),
        "pushed by two cores": dict(path="push", cores=2, requests=2),
        "pushed by two instances": dict(path="push", prefill=2, requests=1, slots=2),
        "layer by layer": dict(layers=2, blocks=1),
        "pushed layer by layer": dict(path="push", layers=2, blocks=1),
        "one pool for two decode dies": dict(shared=1, decode=2, requests=2, blocks=1, pool=2, slots=1),
        "one pool, a decode die that has stopped": dict(
            shared=1, decode=2, requests=2, blocks=1, pool=2, slots=1, stopped=1, quota=1
        ),
        "by send and receive": dict(path="sendrecv", requests=2, pool=2, slots=2),
        "by send and receive, two instances share a ring": dict(
            path="sendrecv", prefill=2, requests=1, blocks=1, pool=1, slots=2
        ),
        "by send and receive, slots for one instance": dict(
            path="sendrecv", prefill=2, requests=2, blocks=1, pool=1, slots=1
        ),
        "by send and receive, blocks of three chunks": dict(
            path="sendrecv", requests=1, blocks=1, granules=3, piece=1, ring=2
        ),
        "by send and receive, layer by layer": dict(path="sendrecv", requests=2, layers=2, blocks=1, pool=2, slots=2),
    }
