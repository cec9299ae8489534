"""Topologies that are known."""

from xccl_emu.timing.fabric import Fabric, Path, Rate

CLOUDMATRIX384 = Fabric(
    name="CloudMatrix384",
    dies_per_chip=2,
    chips_per_node=8,
    paths=(
        # Local memory: 1,600 GB/s a die (CloudMatrix384 3.3); its latency is an assumption, as Table 1 has no such row.
        Path("HBM", read=Rate(0.6, 1600.0), write=Rate(0.6, 1600.0)),
        # The package's own link: 270 GB/s a direction (3.3); latency assumed between local and same node.
        Path("die to die", read=Rate(0.9, 270.0), write=Rate(0.9, 270.0)),
        Path("UB, one tier", read=Rate(1.2, 167.0), write=Rate(1.3, 137.0)),  # Table 1, intra
        Path("UB, two tiers", read=Rate(1.9, 164.0), write=Rate(2.1, 135.0)),  # Table 1, inter
    ),
    planes=7,
    node_uplink_gb_s=7 * 448.0,  # one L1 switch chip a plane, 16 links of 28 GB/s each
)
"""CloudMatrix384 3.2-3.3 and Table 1: seven UB sub-planes, one tier within a node and two between nodes."""

ATLAS_800T_A2 = Fabric(
    name="Atlas 800T A2, 4 nodes",
    dies_per_chip=1,
    chips_per_node=8,
    paths=(
        Path("HBM", read=Rate(0.6, 1600.0), write=Rate(0.6, 1600.0)),
        Path("none: one die a chip", read=Rate(0.9, 270.0), write=Rate(0.9, 270.0)),
        Path("HCCS", read=Rate(1.5, 56.0), write=Rate(1.5, 56.0)),
        Path("RoCE", read=Rate(5.0, 25.0), write=Rate(5.0, 25.0)),
    ),
)
"""Four servers of eight NPUs: full-mesh HCCS inside, 200 Gbit/s RoCE between (MixServe); latencies are assumptions."""

TOPOLOGIES = {"cloudmatrix384": CLOUDMATRIX384, "atlas-800t-a2": ATLAS_800T_A2}
"""By the names that the command knows."""
