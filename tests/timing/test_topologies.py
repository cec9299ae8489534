"""Topologies are data: the same protocols on another cluster; the networks of CloudMatrix384 are queues."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import ATLAS_800T_A2 as ATLAS_POD
from xccl_emu.machine.spec import CLOUDMATRIX384 as POD
from xccl_emu.machine.spec import KIB, PodSpec, small_pod
from xccl_emu.papers.plan.cluster import load_cluster
from xccl_emu.protocols.experts.config import EpConfig
from xccl_emu.protocols.pull.session import ExpertParallel
from xccl_emu.timing.fabric import OTHER_NODE, SAME_DIE, SAME_NODE, SIBLING_DIE, Fabric, Path, Rate
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.topologies import ATLAS_800T_A2, CLOUDMATRIX384, H20, RDMA, VPC

from .support import COSTS, ROUND, copy_by_dma, write_often


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


Pair = tuple[int, int] | tuple[int, int, str]
"""A die, another one or a CPU that it writes to, and over which network, if not the first."""


def bandwidth(fabric: Fabric, pairs: Sequence[Pair], cores: int = 4, nbytes: int = 16 * KIB) -> float:
    """GB/s that the first of some pairs gets where each writes from one to the other, all at once.

    From the difference of a longer and a shorter run, so without latency.
    """
    short, longer = (_writes_us(fabric, pairs, cores, times, nbytes) for times in (_TIMES, 2 * _TIMES))
    return cores * _TIMES * nbytes / (longer - short) / 1000


_TIMES = 40
CPU = 33
"""Where the first CPU of the pod here goes, whose dies are 0 to 32."""


def _writes_us(fabric: Fabric, pairs: Sequence[Pair], cores: int, times: int, nbytes: int) -> float:
    sources = Counter(source for source, *_ in pairs)
    all_cores = cores * max(sources.values())
    spec = small_pod(33, all_cores, app_bytes=8 * cores * nbytes, ub_bytes=-(-nbytes // 32) * 32).with_(cpus_per_node=1)
    policy = VirtualTime(fabric, COSTS_FAST)
    pod = Pod(spec, policy=policy)
    mine: list[int] = []
    for source, target, *over in pairs:
        block = pod.alloc(target, cores * nbytes)
        for name in over:
            policy.over[name] = [*policy.over.get(name, []), block]
        args = {
            "target": [block.address + core * nbytes for core in range(cores)], "nbytes": nbytes, "times": times,
        }  # fmt: skip
        sources[source] -= 1
        own = range(cores * sources[source], cores * (sources[source] + 1))
        pod.launch(write_often, source, own, args, [pod.grant(block, "w")])
        mine = mine or [source * all_cores + core for core in own]
    pod.run()
    return max(policy.timing.finished_us[core] for core in mine)


COSTS_FAST = COSTS.__class__(**{**vars(COSTS), "core_gb_s": 1e4, "launch_us": 0.0})


@pytest.mark.parametrize(
    ("target", "network", "gb_s"),
    [(32, (), 135.0), (2, (), 137.0), (CPU + 8, (), 107.0), (CPU, (), 110.0), (32, ("RDMA plane",), 25.0),
     (32, ("VPC plane",), 50.0), (CPU + 8, ("VPC plane",), 50.0)],
)  # fmt: skip
def test_each_network_has_its_bandwidth(target: int, network: tuple[str, ...], gb_s: float) -> None:
    """Writes from a die to a die or a CPU reach what the network has, and no more."""
    assert bandwidth(CLOUDMATRIX384, [(0, target, *network)]) == pytest.approx(gb_s, rel=0.05)  # type: ignore[list-item]


def test_the_dies_of_a_node_share_its_card_but_not_their_own_ports() -> None:
    """Two dies that write to other nodes halve each other's share of the VPC plane; on the RDMA plane they do not."""
    for name, gb_s in (("VPC plane", 25.0), ("RDMA plane", 25.0)):
        assert bandwidth(CLOUDMATRIX384, [(0, 32, name), (2, 30, name)]) == pytest.approx(gb_s, rel=0.05)


@pytest.mark.parametrize("first", ["", "RDMA plane", "VPC plane"])
def test_networks_beside_each_other_do_not_slow_each_other(first: str) -> None:
    """In one run dies of a node write over all three, to the same die, and each gets what it has alone."""
    alone = bandwidth(CLOUDMATRIX384, [(0, 32, first) if first else (0, 32)])
    others: list[Pair] = [(2, 32), (4, 32, "RDMA plane"), (6, 32, "VPC plane")]
    kept = [pair for pair in others if (*pair, "")[2] != first]
    assert bandwidth(CLOUDMATRIX384, [(0, 32, first) if first else (0, 32), *kept]) == pytest.approx(alone, rel=0.01)


def test_dies_share_the_port_of_a_cpu() -> None:
    """Dies that write to one socket have its port between them; to two they do not meet."""
    assert bandwidth(CLOUDMATRIX384, [(die, CPU) for die in (0, 2, 4, 6)]) == pytest.approx(160 / 4, rel=0.05)
    assert bandwidth(CLOUDMATRIX384, [(0, CPU), (2, CPU + 1)]) == pytest.approx(110, rel=0.05)


@pytest.mark.nojit
def test_short_transfers_meet_only_on_their_plane() -> None:
    """A granule has the plane of its address: those of seven planes pass at once, those of one plane wait in turn."""
    took = {}
    for stride in (512, 7 * 512):
        policy = VirtualTime(CLOUDMATRIX384, COSTS_FAST)
        pod = Pod(small_pod(17, 7), policy=policy)
        block = pod.alloc(16, 7 * stride)
        args = {"target": [block.address + core * stride for core in range(7)], "nbytes": 512, "times": 100}
        pod.launch(write_often, 0, range(7), args, [pod.grant(block, "w")])
        pod.run()
        took[stride] = policy.timing.latency_us - 2.1
    once = 100 * 512 * 7 / 135e3
    assert took[512] == pytest.approx(once + 100 * 0.02, rel=0.05)  # and the start of each
    assert took[7 * 512] == pytest.approx(7 * once, rel=0.05)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 20_000), st.integers(1, 8), st.sampled_from([512, 4096]), st.booleans())
def test_no_byte_is_lost_between_planes(nbytes: int, planes: int, stripe: int, by_address: bool) -> None:
    """However a transfer is cut over planes, ports are busy for all its bytes: many take what one plane would, or as
    much longer as the fullest plane has more than its share."""
    fabric = replace(CLOUDMATRIX384, planes=planes, stripe_bytes=stripe, by_address=by_address)
    took = _writes_us(fabric, [(0, 16)], 8, 20, nbytes) - 2.1
    wire = 8 * 20 * nbytes / 135e3
    assert took > 0.99 * wire
    if nbytes >= planes * stripe and not by_address:
        assert took < 1.01 * wire + 20 * 0.05


def test_links_between_switches_are_queues() -> None:
    """With one thin link a plane the dies of a node share it on the way to other nodes, up and down; within the node
    they do not pass it."""
    thin = replace(CLOUDMATRIX384, uplinks=1, uplink_gb_s=20.0)
    alone, to_two = (bandwidth(thin, pairs) for pairs in ([(0, 16)], [(0, 16), (2, 32)]))
    assert alone == pytest.approx(135, rel=0.05)
    assert to_two == pytest.approx(7 * 20 / 2, rel=0.05)
    assert bandwidth(thin, [(0, 16), (32, 18)]) == pytest.approx(7 * 20 / 2, rel=0.05)
    assert bandwidth(thin, [(0, 2), (4, 6)]) == pytest.approx(137, rel=0.05)


@pytest.mark.nojit
def test_blocks_by_address_collide() -> None:
    """Each block goes to one plane and link by its address: one core alone has less than a path's bandwidth, many
    blocks at once nearly all of it."""
    hashed = replace(CLOUDMATRIX384, by_address=True, stripe_bytes=4096)
    few, many = bandwidth(hashed, [(0, 16)], cores=1, nbytes=4096), bandwidth(hashed, [(0, 16)], cores=32)
    assert few == pytest.approx(4096 / (4096 * 7 / 135 + 20), rel=0.05)  # and its start
    assert 0.6 * 135 < many < 0.99 * 135


def test_remote_traffic_takes_time_of_memory() -> None:
    """Writes from outside and those of the own cores share a die's memory; a core's data buffer is none."""
    hbm = Path("thin", read=Rate(0.1, 100.0), write=Rate(0.1, 100.0))
    thin = replace(CLOUDMATRIX384, paths=(hbm, *CLOUDMATRIX384.paths[1:]))
    assert bandwidth(thin, [(0, 0)]) == pytest.approx(100, rel=0.05)
    assert bandwidth(thin, [(2, 0)]) == pytest.approx(100, rel=0.05)
    assert bandwidth(thin, [(2, 0), (0, 0)]) == pytest.approx(50, rel=0.1)
    assert bandwidth(thin, [(2, 0), (0, 4)]) == pytest.approx(100, rel=0.05)


def test_a_copy_by_dma_takes_memory_at_both_ends() -> None:
    """A die that copies its memory to another one by DMA has that much less of it for its own cores."""
    took = {}
    for copies in (1, 64):
        policy = VirtualTime(replace(ROUND, paths=(_THIN, *ROUND.paths[1:])), COSTS_FAST)
        pod = Pod(small_pod(2, 2, app_bytes=1 << 20), policy=policy)
        source, target, own = pod.alloc(0, 64 * 4096), pod.alloc(1, 64 * 4096), pod.alloc(0, 4096)
        args = {"source": source.address, "target": target.address, "nbytes": copies * 4096}
        pod.launch(copy_by_dma, 0, [0], args, [pod.grant(source, "r"), pod.grant(target, "w")])
        late = {"target": own.address, "nbytes": 4096, "times": 200}
        pod.launch(write_often, 0, [1], late, [pod.grant(own, "w")])
        pod.run()
        took[copies] = policy.timing.finished_us[1]
    assert took[64] - took[1] == pytest.approx(63 * 4096 / 50e3, rel=0.01)


_THIN = Path("thin", read=Rate(0.1, 50.0), write=Rate(0.1, 50.0))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"planes": 9}, "planes=9: must be 1 to 8"),
        ({"uplinks": 0}, "uplinks=0: must be 1 to 16"),
        ({"stripe_bytes": 100}, "stripe_bytes=100: must be a power of two"),
        ({"uplink_gb_s": -1.0}, "uplink_gb_s=-1.0"),
        ({"paths": CLOUDMATRIX384.paths[:4]}, "paths: 4 of them"),
        ({"within": "ring"}, "within='ring': must be one of ports, switch, mesh"),
        ({"within": "switch"}, "planes=7: must be 1 where nodes have links of their own"),
        ({"within": "mesh", "planes": 1}, "within='mesh': 16 dies a node; must be at most 8"),
        ({"beside": (RDMA, VPC, RDMA)}, "beside: at most 2"),
    ],
)
def test_impossible_fabrics(change: dict[str, Any], said: str) -> None:
    """Numbers that cannot be are refused by name."""
    with pytest.raises(ConfigError, match=said):
        replace(CLOUDMATRIX384, **change)


def test_impossible_routes() -> None:
    """A network that is not there, a CPU over one without its ports, CPUs that the fabric lacks, too many buffers."""
    with pytest.raises(ConfigError, match="over='moon': CloudMatrix384 also has RDMA plane, VPC plane"):
        bandwidth(CLOUDMATRIX384, [(0, 32, "moon")])
    with pytest.raises(ConfigError, match="is of a CPU"):
        bandwidth(CLOUDMATRIX384, [(0, CPU, "RDMA plane")])
    with pytest.raises(ConfigError, match="has no CPUs"):
        bandwidth(ROUND, [(0, CPU)])
    with pytest.raises(ConfigError, match="17 buffers; at most 16"):
        bandwidth(CLOUDMATRIX384, [(die, 32, "RDMA plane") for die in range(17)], nbytes=32)


def test_a_full_mesh_gives_every_pair_its_own_link() -> None:
    """Over HCCS one pair has 30 GB/s however many cores write; seven pairs of a die have that each, out and in, and the
    other way is free too."""
    mesh = ATLAS_800T_A2
    for cores in (1, 4):
        assert bandwidth(mesh, [(0, 1)], cores) == pytest.approx(30.0, rel=0.05)
    fan: list[Pair] = [(0, die) for die in range(1, 8)]
    for pairs in (fan, [pair[::-1] for pair in fan], [*fan, *(pair[::-1] for pair in fan)]):
        assert bandwidth(mesh, pairs, cores=1) == pytest.approx(30.0, rel=0.05)  # type: ignore[arg-type]
    assert bandwidth(mesh, [(1, 0), (9, 8), (1, 0)], cores=2) == pytest.approx(15.0, rel=0.05)
    assert bandwidth(mesh, [(1, 0), (0, 1), (2, 0), (1, 2), (9, 8)], cores=2) == pytest.approx(30.0, rel=0.05)


def test_ports_to_a_switch_are_shared_by_all_peers() -> None:
    """Over NVLink a die has 450 GB/s for all others of its node together, out and in."""
    assert bandwidth(H20, [(0, 1)]) == pytest.approx(450, rel=0.05)
    assert bandwidth(H20, [(0, 1), (0, 2)]) == pytest.approx(225, rel=0.05)
    assert bandwidth(H20, [(1, 0), (2, 0)]) == pytest.approx(225, rel=0.05)
    assert bandwidth(H20, [(0, 1), (2, 3), (1, 0)]) == pytest.approx(450, rel=0.05)


@pytest.mark.parametrize(("fabric", "inside", "between"), [(ATLAS_800T_A2, 30.0, 25.0), (H20, 450.0, 50.0)])
def test_links_of_a_node_and_ports_out_of_it_do_not_slow_each_other(
    fabric: Fabric, inside: float, between: float
) -> None:
    """A die writes to another one of its node and to one of another node at once: each has all of its link."""
    assert bandwidth(fabric, [(0, 1), (0, 9)]) == pytest.approx(inside, rel=0.05)
    assert bandwidth(fabric, [(0, 9), (0, 1)]) == pytest.approx(between, rel=0.05)
    assert bandwidth(fabric, [(0, 9), (1, 9)]) == pytest.approx(between / 2, rel=0.05)


def test_the_analyzer_has_the_same_links() -> None:
    """The clusters of `xccl_emu.papers.plan` are these topologies, in one direction."""
    for name, fabric in (("910B", ATLAS_800T_A2), ("H20", H20)):
        cluster = load_cluster(name)
        assert (cluster.nodes, cluster.devices_per_node) == (fabric.nodes, fabric.chips_per_node)
        for link, path in ((cluster.intra, SAME_NODE), (cluster.inter, OTHER_NODE)):
            assert fabric.paths[path].write.gb_s == fabric.paths[path].read.gb_s == link.gb_s / link.ways
        assert cluster.intra.mesh == (fabric.within == "mesh")
        assert cluster.hbm_gb_s == fabric.paths[SAME_DIE].read.gb_s
