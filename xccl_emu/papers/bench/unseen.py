"""Tables that the model was not made by, each on its own machine, and nothing is fitted to them.

Operators of experts are run as their benchmarks are: on GPUs as DeepEP's test (`bench.deepep`), on the A3 as Table 7.
DeepEP's older table of the H800, where all goes over RDMA, is shown: up to EP64, as beyond it is a copy of the new.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from xccl_emu.machine.spec import KIB
from xccl_emu.papers.bench import links, operators, published
from xccl_emu.papers.bench.deepep import BF16, Own, drawn, time_test
from xccl_emu.papers.bench.fused import MESSAGE_BYTES, TOKENS, degree_of
from xccl_emu.papers.bench.layers import TOP_K, Layer, OnPod, Timed
from xccl_emu.papers.bench.published import Published
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import DEFAULT, TARGETS, Setting
from xccl_emu.timing.arrival import arrivals
from xccl_emu.timing.fabric import OTHER_NODE

READS, OTHER = 128, TARGETS["pod"]
"""Reads that MORI-IO has in a row, and a die of another node."""
OLDER_MAX = 64
"""EP degree up to which the older table has numbers of its own."""


def unseen(setting: Setting = DEFAULT) -> Iterator[Result]:
    """All of them, without payload; each machine has the costs of its file."""
    bare = replace(setting, data=False)
    for row in published.rows("unseen hixl"):
        overlaps = 2 if row.what.startswith("write") else 1
        yield from links.hixl(replace(bare, costs=replace(bare.costs, dma_in_flight=overlaps)), [row])
    yield from operators.hccl(bare, published.rows("unseen hccl"))
    yield from low_latency(bare, published.rows("unseen a3"), time_on_a3)
    yield from low_latency(bare.on("h100"), published.rows("unseen nccl-ep"), partial(in_test, Own(dtype=BF16)))
    yield from low_latency(bare.on("mi300x"), published.rows("unseen uccl-ep"), partial(in_test, Own()))
    h800 = bare.on("h800")
    far = h800.fabric.paths[OTHER_NODE]
    all_far = replace(h800.fabric, chips_per_node=1, within="ports", paths=(*h800.fabric.paths[:2], far, far))
    older = [row for row in published.rows("fused_h800") if row.unit == "us" and degree_of(row) <= OLDER_MAX]
    yield from low_latency(replace(h800, fabric=all_far), older, partial(in_test, Own()))
    yield from reads(bare.on("mi300x"))


def in_test(own: Own, setting: Setting, ranks: int) -> Timed:
    """Both operators as DeepEP's test has them."""
    return time_test(setting, Layer(ranks, TOKENS, cores=own.cores), own)


def time_on_a3(setting: Setting, ranks: int) -> Timed:
    """FusedDispatch and FusedCombine without a shared expert: arrivals as in Table 7, uniform routing."""
    layer = Layer(ranks, TOKENS)
    found, starts = drawn(setting, layer), arrivals(ranks, setting.costs.skew_us, (setting.seed, 3))
    group = OnPod(setting, layer, layer.experts // ranks, "fused", top_k=layer.top_k, shared=False)
    dispatch = group.dispatch(found.topk, starts)
    combine = group.combine(found.weights, dispatch.ends_us - dispatch.ends_us.min())
    return Timed(dispatch, combine, None, None)


def low_latency(setting: Setting, rows: Sequence[Published], time: Callable[[Setting, int], Timed]) -> Iterator[Result]:
    """Both operators at each EP degree: latencies, or what 14,336 bytes of each choice make of them in GB/s."""
    moved = TOKENS * TOP_K * MESSAGE_BYTES["combine"] / 1000
    for ranks in dict.fromkeys(map(degree_of, rows)):
        us = {name: setting.operator_us(taken) for name, taken, _ in time(setting, ranks).operators}
        for row in rows:
            if degree_of(row) == ranks:
                took = us[row.what.split()[0]]
                shape = {"ranks": ranks, "tokens": TOKENS, **setting.fabric_words}
                yield Result.of(row, moved / took if row.unit == "GB/s" else took, configuration=shape)


def reads(setting: Setting) -> Iterator[Result]:
    """One core's reads of a block each from another node."""
    for row in published.rows("unseen mori-io"):
        block = int(row.what.split()[-2]) * KIB
        us, _ = links.copied_us(setting, "read", block, OTHER, READS * block)
        yield Result.of(row, us, configuration=setting.fabric_words)
