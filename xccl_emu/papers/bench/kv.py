"""KV caches from die to die by each plane of the pod, alone and during a dispatch ([CloudMatrix384] 3.2, 4.3.3).

A cache moves by DMA, a block for each layer, from a die to one of another node.  What is published is the bandwidth of
the plane; the rows have the time that the bytes take at it.

Nothing is published of the protocols that decide when blocks go ([xDeepServe] 5.1).  Their rows have how long blocks
are on their way in the kernels of the case ``kv``: when decode pulls them, and by send and receive, over UB.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from xccl_emu.kernels.transfers import copy_blocks
from xccl_emu.lang.requests import MTU_OUT
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.published import Published
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import DEFAULT, Setting
from xccl_emu.protocols.pull.case import MoeCase
from xccl_emu.protocols.serving.kv.case import DEEPSEEK_R1, KvCase
from xccl_emu.timing.array import PS_PER_US
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.run import Timing, VirtualTime

LAYERS = 61
TOKEN_BYTES = 576 * 2
"""A token in a layer of DeepSeek-R1's cache: 512 numbers and 64 of the position, in BF16."""
NODE = 16
"""Dies of a node."""
PLANES = {"UB": "", "RDMA": "RDMA plane", "VPC": "VPC plane"}
"""What rows call the networks, and their names; "" is the first."""
RANKS, CORES, TOKENS, HIDDEN, TOP_K = 8, 8, 32, 7168, 4
"""Sizes of the dispatch during which caches move."""
BESIDE_BLOCKS, BLOCK_BYTES = 16, 1 << 18
"""What each rank gets meanwhile: 4 MiB."""
WAYS: Mapping[str, Mapping[str, Any]] = {
    "pulled by one core": {"path": "mtu"},
    "pulled by DMA": {"path": "dma"},
    "by send and receive, ring of 2 chunks": {"path": "sendrecv", "ring": 2},
    "by send and receive, ring of 8 chunks": {"path": "sendrecv", "ring": 8},
}
"""Sizes of `KvCase` by the way a cache goes, where a cache of 4,096 tokens has others by itself."""
GRANTED, READY = "grant in", "ready"
"""The receiver knows its slots; all blocks of the task are there."""


class Copies(NamedTuple):
    """Caches that go to some dies, to each from a die of the next node."""

    dies: int
    core: int
    """Number of the core that rings the descriptors."""
    blocks: int
    nbytes: int
    """Bytes of a block."""
    plane: str
    """Name of the network; "" is the first."""
    pushed: bool = False
    """Does the source write?  Else the target reads."""

    def launch(self, pod: Pod, policy: VirtualTime) -> list[tuple[Buffer, Buffer]]:
        """Launch them; returns source and target of each."""
        cache_bytes = self.blocks * self.nbytes
        ends = [(pod.alloc(NODE + die, cache_bytes), pod.alloc(die, cache_bytes)) for die in range(self.dies)]
        policy.over = {self.plane: [source for source, _ in ends]} if self.plane else {}
        for die, (source, target) in enumerate(ends):
            args = {"source": source.address, "target": target.address, "nbytes": self.nbytes, "times": self.blocks}
            ringing = source.die if self.pushed else die
            pod.launch(copy_blocks, ringing, [self.core], args, [pod.grant(source, "r"), pod.grant(target, "w")])
        return ends


def transfer(setting: Setting, row: Published) -> Result:
    """Milliseconds until a cache is there, or the row's number of caches, which then move no payload."""
    size, way, *many = row.what.split(", ")
    plane, _, how = way.partition(" ")
    tokens, dies = int(size.split()[0].replace(",", "")), int(many[0].split()[0]) if many else 1
    setting = setting if dies == 1 else replace(setting, data=False)
    pod, policy = setting.pod()
    ends = Copies(dies, 0, LAYERS, tokens * TOKEN_BYTES, PLANES[plane], how == "write").launch(pod, policy)
    for source, _ in ends if setting.data else ():
        pod.view(source)[:] = np.random.default_rng(setting.seed).integers(0, 256, source.nbytes, np.uint8)
    pod.run()
    compared = ends if setting.data else ()
    wrong = sum(int(np.count_nonzero(pod.view(source) != pod.view(target))) for source, target in compared)
    return Result.of(row, policy.timing.latency_us / 1e3, wrong=wrong if setting.data else None)


def caches_ms(setting: Setting, dies: int, tokens: int, plane: str) -> float:
    """Milliseconds until some dies of a node have a cache each, of equal size, without payload."""
    pod, policy = replace(setting, data=False).pod()
    Copies(dies, 0, LAYERS, tokens * TOKEN_BYTES, plane).launch(pod, policy)
    pod.run()
    return policy.timing.latency_us / 1e3


def dispatch_us(plane: str | None, setting: Setting = DEFAULT) -> tuple[float, float]:
    """Microseconds until the last of 8 ranks has its tokens, and until each has a cache from a die of the next node.

    Caches come over a plane of that name, over UB (""), or there are none (None).  No payload moves.
    """
    policy = replace(setting, data=False).clock()
    spec = small_pod(32, CORES + 1, app_bytes=1 << 26, meta_bytes=1 << 16, managed_bytes=1 << 25, ub_bytes=192 << 10)
    pod = Pod(spec, policy=policy)
    shape: dict[str, Any] = {"local_experts": 2, "hidden": HIDDEN, "top_k": TOP_K, "tokens_max": TOKENS, "cores": CORES}
    group = MoeCase.group(pod, MoeCase.config(n_ranks=RANKS, **shape))
    blocks = 0 if plane is None else BESIDE_BLOCKS
    Copies(RANKS, CORES, blocks, BLOCK_BYTES, plane or "").launch(pod, policy)
    rank, token, choice = np.ix_(range(RANKS), range(TOKENS), range(TOP_K))
    topk = [*((rank + token + 3 * choice) % (2 * RANKS))]
    group.dispatch([np.zeros((TOKENS, HIDDEN), ml_dtypes.bfloat16)] * RANKS, topk)
    finished = policy.timing.finished_us
    caches = [core for core in finished if core % (CORES + 1) == CORES]
    return max(finished[core] for core in finished.keys() - caches), max(finished[core] for core in caches)


def with_dispatch(setting: Setting) -> list[Result]:
    """Return what caches over each plane change of a dispatch, in percent, and how long they take during it."""
    sizes = {"ranks": RANKS, "tokens": TOKENS, "cache_bytes": BESIDE_BLOCKS * BLOCK_BYTES}
    alone, _ = dispatch_us(None, setting)
    results = [Result("kv", "dispatch, no caches", alone, "us", configuration=sizes)]
    for way, plane in PLANES.items():
        with setting.stage(f"dispatch, caches over {way}"):
            took, caches = dispatch_us(plane, setting)
        results.append(
            Result("kv", f"dispatch beside caches over {way}", took, "us", configuration=sizes,
                   note=f"{100 * (took / alone - 1):+.1f}% by the caches")
        )  # fmt: skip
        results.append(Result("kv", f"caches over {way} beside a dispatch", caches, "us", configuration=sizes))
    return results


def by_protocols(setting: Setting, cache: Mapping[str, Any] = DEEPSEEK_R1) -> Iterator[Result]:
    """Yield how long a cache is on its way to another node in each protocol, in milliseconds.

    cache: its sizes; by default 4,096 tokens.
    """
    setting = replace(setting, fabric=replace(setting.fabric, dies_per_chip=1, chips_per_node=1))
    for way, sizes in WAYS.items():
        with setting.stage(way):
            trial, _ = setting.run(KvCase(**{**cache, **sizes}), True, (GRANTED, READY))
        wrong = sum(trial.wrong_bytes().values()) if setting.data else None
        assert isinstance(trial.pod.policy, VirtualTime)
        ms = on_their_way_us(trial.pod.policy.timing) / 1e3
        yield Result("kv", f"4,096 tokens, {way}", ms, "ms", configuration=dict(sizes), wrong=wrong)


def on_their_way_us(timing: Timing) -> float:
    """Microseconds from `GRANTED` to `READY` in a log of these, of all tasks of a receiver: the mean of all receivers.

    What prefill and decode do before and after is not part of it.
    """
    seen = defaultdict[str, dict[int, list[int]]](lambda: defaultdict(list))
    for row in timing.records:
        site, core = timing.site(row), int(row[tl.RECORD_CORE])
        if site and site.sync == GRANTED:
            seen[GRANTED][core].append(int(row[tl.RECORD_END]))
        elif row[tl.RECORD_ENGINE] == MTU_OUT:
            seen[READY][core].append(int(row[tl.RECORD_VISIBLE]))
    took = [np.subtract(ready, seen[GRANTED][core]).sum() for core, ready in seen[READY].items()]
    return float(np.mean(took)) / PS_PER_US


def kv(setting: Setting = DEFAULT, rows: Sequence[Published] | None = None) -> list[Result]:
    """Every published row, or some; with all of them what protocols take, and what caches change of a dispatch."""
    results = []
    for row in published.rows("kv") if rows is None else rows:
        with setting.stage(row.what):
            results.append(transfer(setting, row))
    return results if rows is not None else [*results, *by_protocols(setting), *with_dispatch(setting)]
