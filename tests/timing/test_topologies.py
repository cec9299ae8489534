"""Topologies are data: the same protocols on another cluster, and the planes of CloudMatrix384 beside each other."""

import ml_dtypes
import numpy as np
import pytest

from xccl_emu.errors import ConfigError
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import ATLAS_800T_A2 as ATLAS_POD
from xccl_emu.machine.spec import CLOUDMATRIX384 as POD
from xccl_emu.machine.spec import KIB, PodSpec, small_pod
from xccl_emu.protocols.expert_parallel import ExpertParallel
from xccl_emu.protocols.layout import EpConfig
from xccl_emu.timing.fabric import OTHER_NODE, SAME_DIE, SAME_NODE, SIBLING_DIE, Fabric, Path, Rate
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.topologies import ATLAS_800T_A2, CLOUDMATRIX384, PLANES

from .support import COSTS, write_often


def layer_us(fabric: Fabric, spec: PodSpec, ranks: int, tokens: int = 16, hidden: int = 7168) -> dict[str, float]:
    """Latency of dispatch and combine of one layer, one expert a rank and four a token, without data."""
    policy = VirtualTime(fabric, data=False)
    config = EpConfig(ranks, hidden=hidden, top_k=4, tokens_max=tokens, cores=4)
    group = ExpertParallel(Pod(spec, policy=policy), config)
    rng = np.random.default_rng(ranks)
    topk = [np.argsort(rng.random((tokens, ranks)), axis=1)[:, :4].astype(np.int32) for _ in range(ranks)]
    group.dispatch([np.zeros((tokens, hidden), ml_dtypes.bfloat16)] * ranks, topk)
    took = {"dispatch": policy.timing.latency_us}
    group.combine([np.ones((tokens, 4), np.float32)] * ranks)
    return took | {"combine": policy.timing.latency_us}


def test_the_second_topology_runs_the_same_protocols() -> None:
    """32 ranks on four Atlas 800T A2 servers: slower than on the supernode, and slower than 8 ranks of one server."""
    atlas = layer_us(ATLAS_800T_A2, ATLAS_POD, 32)
    one_server = layer_us(ATLAS_800T_A2, ATLAS_POD, 8)
    supernode = layer_us(CLOUDMATRIX384, POD, 32)
    for operator, took in atlas.items():
        assert took > 1.3 * supernode[operator], operator
        assert took > 1.2 * one_server[operator], operator
    # Three quarters of what a rank gets, 64 rows on the average, come through 25 GB/s.
    assert atlas["dispatch"] > 48 * 7680 / 25e3
    assert atlas["combine"] > 48 * 14336 / 25e3


def test_where_dies_are() -> None:
    """The 32 NPUs of the second topology are chips of their own in four nodes; those of CloudMatrix384 are pairs."""
    assert [ATLAS_800T_A2.path_of(0, die) for die in (0, 1, 7, 8, 31)] == [
        SAME_DIE, SAME_NODE, SAME_NODE, OTHER_NODE, OTHER_NODE,
    ]  # fmt: skip
    assert [CLOUDMATRIX384.path_of(2, die) for die in (2, 3, 4, 15, 16)] == [
        SAME_DIE, SIBLING_DIE, SAME_NODE, SAME_NODE, OTHER_NODE,
    ]  # fmt: skip
    assert CLOUDMATRIX384.node_of(33) == 2


def bandwidth(fabric: Fabric, pairs: list[tuple[int, int]], cores: int = 4) -> float:
    """GB/s that the first of some pairs of dies gets where each writes from one to the other, all at once.

    From the difference of a longer and a shorter run, so without latency.
    """
    short, longer = (_writes_us(fabric, pairs, cores, times) for times in (_TIMES, 2 * _TIMES))
    return cores * _TIMES * _BLOCK / (longer - short) / 1000


_BLOCK, _TIMES = 16 * KIB, 40


def _writes_us(fabric: Fabric, pairs: list[tuple[int, int]], cores: int, times: int) -> float:
    policy = VirtualTime(fabric, COSTS_FAST)
    pod = Pod(small_pod(33, cores, app_bytes=cores * _BLOCK * 2, ub_bytes=_BLOCK), policy=policy)
    for source, target in pairs:
        block = pod.alloc(target, cores * _BLOCK)
        for core in range(cores):
            args = {"target": block.address + core * _BLOCK, "nbytes": _BLOCK, "times": times}
            pod.launch(write_often, source, [core], args, [pod.grant(block, "w")])
    pod.run()
    return policy.timing.by_die_us[pairs[0][0]]


COSTS_FAST = COSTS.__class__(**{**vars(COSTS), "core_gb_s": 1e4, "launch_us": 0.0})


@pytest.mark.parametrize(
    ("plane", "gb_s"), [("ub", 135.0), ("ub-cpu", 107.0), ("rdma", 25.0), ("vpc", 50.0)]
)
def test_each_plane_has_its_bandwidth(plane: str, gb_s: float) -> None:
    """Writes from a die to another node reach what the plane has, and no more."""
    assert bandwidth(PLANES[plane], [(0, 32)]) == pytest.approx(gb_s, rel=0.05)


def test_the_dies_of_a_node_share_its_card_but_not_their_own_links() -> None:
    """Two dies that write to other nodes halve each other's share of the VPC plane; on the RDMA plane they do not."""
    both = [(0, 32), (2, 30)]
    assert bandwidth(PLANES["vpc"], both) == pytest.approx(25.0, rel=0.05)
    assert bandwidth(PLANES["rdma"], both) == pytest.approx(25.0, rel=0.05)


def test_a_full_mesh_gives_one_pair_one_link() -> None:
    """Over HCCS a transfer has a seventh of a die's bandwidth."""
    assert bandwidth(ATLAS_800T_A2, [(0, 1)], cores=1) == pytest.approx(28.0, rel=0.05)


def test_a_path_has_links() -> None:
    """A path without any link is refused."""
    with pytest.raises(ConfigError, match="links=0"):
        Path("none", Rate(1.0, 1.0), Rate(1.0, 1.0), links=0)
