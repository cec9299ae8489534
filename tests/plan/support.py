"""A small model and a cluster whose links take a second for 10^9 bytes, so that seconds are bytes."""

from typing import Any

from xccl_emu.papers.plan.cluster import Cluster, Link
from xccl_emu.papers.plan.model import DecoderModel, Experts, Grouped


def model(hidden: int = 64, routed: int = 8, top_k: int = 2, **others: Any) -> DecoderModel:
    """Two layers of grouped attention and experts; elements and weights of two bytes."""
    given = {"layers": 2, "weight_bytes": 2, "cache_bytes": 2, **others}
    return DecoderModel("small", Grouped(16, 4, 8), Experts(routed, 0, top_k, 32), hidden, **given)


def cluster(per_node: int = 8, nodes: int = 1, **others: Any) -> Cluster:
    """Ports of 1 GB/s everywhere, or as ``intra`` and ``inter`` say."""
    port = Link(1.0, 1)
    given = {
        "memory_gb": 1.0,
        "tflops": 1.0,
        "efficiency": 1.0,
        "hbm_gb_s": 1000.0,
        "intra": port,
        "inter": port,
        **others,
    }
    return Cluster(name="small", nodes=nodes, devices_per_node=per_node, **given)
