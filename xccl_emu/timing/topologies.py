"""Topologies that are known, as data, and the planes of [CloudMatrix384] beside its UB plane."""

from xccl_emu.errors import ConfigError
from xccl_emu.timing.fabric import Cpus, Fabric, Path, Rate

# Local memory: 1,600 GB/s a die (CloudMatrix384 3.3); its latency is an assumption, as Table 1 has no such row.
_HBM = Path("HBM", read=Rate(0.6, 1600.0), write=Rate(0.6, 1600.0))
# The package's own link: 270 GB/s a direction (3.3); latency assumed between local and same node.
_PACKAGE = Path("die to die", read=Rate(0.9, 270.0), write=Rate(0.9, 270.0))

_RDMA = Path("RoCE", read=Rate(5.0, 25.0), write=Rate(4.0, 25.0))  # 200 Gbit/s a die; latencies are assumptions
RDMA = Fabric(name="RDMA plane", dies_per_chip=2, chips_per_node=8, paths=(_HBM, _PACKAGE, _RDMA, _RDMA))
"""CloudMatrix384 3.2-3.3: the plane to other supernodes, on links of its own; here between the dies of one."""

_VPC = Path("Ethernet", read=Rate(30.0, 50.0), write=Rate(30.0, 50.0))  # 400 Gbit/s a node; latencies are assumptions
VPC = Fabric(
    name="VPC plane",
    dies_per_chip=2,
    chips_per_node=8,
    paths=(_HBM, _PACKAGE, _VPC, _VPC, _VPC, _VPC),
    uplink_gb_s=50.0,
)
"""CloudMatrix384 3.2-3.3: the datacenter's network, one card a node, which its dies share."""

CLOUDMATRIX384 = Fabric(
    name="CloudMatrix384",
    dies_per_chip=2,
    chips_per_node=8,
    nodes=48,
    paths=(
        _HBM,
        _PACKAGE,
        Path("UB, one tier", read=Rate(1.2, 167.0), write=Rate(1.3, 137.0)),  # Table 1, intra
        Path("UB, two tiers", read=Rate(1.9, 164.0), write=Rate(2.1, 135.0)),  # Table 1, inter
        Path("UB to a CPU, one tier", read=Rate(1.0, 151.0), write=Rate(1.1, 110.0)),  # Table 1, NPU-CPU
        Path("UB to a CPU, two tiers", read=Rate(1.7, 147.0), write=Rate(1.9, 107.0)),
    ),
    planes=7,
    uplinks=16,  # one switch chip a plane and node, and a link to each of 16 of the second tier
    uplink_gb_s=28.0,
    cpus=Cpus(4, 160.0, 200.0),  # the bandwidth of their memory is an assumption
    beside=(RDMA, VPC),
)
"""CloudMatrix384 3.2-3.3 and Table 1: seven UB sub-planes, one tier within a node and two between nodes."""

ATLAS_800T_A2 = Fabric(
    name="Atlas 800T A2, 4 nodes",
    dies_per_chip=1,
    chips_per_node=8,
    nodes=4,
    paths=(
        _HBM,
        Path("none: one die a chip", read=Rate(0.9, 270.0), write=Rate(0.9, 270.0)),
        Path("HCCS", read=Rate(1.5, 30.0), write=Rate(1.5, 30.0)),  # 480 Gbit/s a pair, both ways together
        Path("RoCE", read=Rate(5.0, 25.0), write=Rate(4.0, 25.0)),  # 200 Gbit/s a chip
    ),
    within="mesh",
)
"""MixServe IV-A: four servers of eight NPUs, full-mesh HCCS inside, RoCE between, a port a chip. Latencies are
assumptions, and that 480 Gbit/s is a pair's (other sources have 56 GB/s for it)."""

_H20_HBM = Path("HBM", read=Rate(0.6, 4000.0), write=Rate(0.6, 4000.0))
H20 = Fabric(
    name="H20, 2 nodes",
    dies_per_chip=1,
    chips_per_node=8,
    nodes=2,
    paths=(
        _H20_HBM,
        Path("none: one die a chip", read=Rate(0.9, 270.0), write=Rate(0.9, 270.0)),
        Path("NVLink", read=Rate(1.0, 450.0), write=Rate(1.0, 450.0)),  # 900 GB/s, both ways together
        Path("InfiniBand", read=Rate(4.0, 50.0), write=Rate(3.0, 50.0)),  # 400 Gbit/s
    ),
    within="switch",
)
"""MixServe IV-A: two servers of eight GPUs, NVLink inside, InfiniBand between. Latencies are assumptions, and a port of
InfiniBand for each GPU. Only the fabric is modelled so: its ends are the cores of the pod."""

TOPOLOGIES = {"cloudmatrix384": CLOUDMATRIX384, "atlas-800t-a2": ATLAS_800T_A2, "h20": H20}
"""By the names that the command knows."""


def topology(name: str) -> Fabric:
    """One of them; ConfigError for another name."""
    if name not in TOPOLOGIES:
        raise ConfigError(f"--fabric {name}: must be one of {', '.join(TOPOLOGIES)}")
    return TOPOLOGIES[name]
