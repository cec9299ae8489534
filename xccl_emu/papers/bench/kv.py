"""KV caches from die to die by each plane of the pod, alone and during a dispatch ([CloudMatrix384] 3.2, 4.3.3).

A cache moves by DMA, a block for each layer, from a die to one of another node.  What is published is the bandwidth of
the plane; the rows have the time that the bytes take at it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from xccl_emu.kernels.transfers import copy_blocks
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.published import Published
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import DEFAULT, Setting
from xccl_emu.protocols.pull.case import MoeCase
from xccl_emu.timing.run import VirtualTime

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


def kv(setting: Setting = DEFAULT, rows: Sequence[Published] | None = None) -> list[Result]:
    """Every published row, or some; with all of them what caches change of a dispatch."""
    results = []
    for row in published.rows("kv") if rows is None else rows:
        with setting.stage(row.what):
            results.append(transfer(setting, row))
    return results if rows is not None else [*results, *with_dispatch(setting)]
