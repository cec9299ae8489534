"""The fabric between dies, as data: where each die is, and what a transfer from one to another costs.

A transfer's path has a class that depends on where its two ends are.  Each class has, for reads and for writes, a
latency and a bandwidth per die and direction.  What is on the way serves one transfer after the other.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import one_of

SAME_DIE, SIBLING_DIE, SAME_NODE, OTHER_NODE, NODE_CPU, OTHER_CPU = range(6)
PATHS = ("same die", "sibling die", "same node", "other node", "CPU of the same node", "CPU of another node")
"""Classes of paths, by number."""

WITHIN = ("ports", "switch", "mesh")
"""How dies of a node reach each other: through the ports that lead out of it too, through other ports to a switch of
the node, or over a link for each pair."""

PLANES_MAX, UPLINKS_MAX, BESIDE_MAX = 8, 16, 2

@dataclass(frozen=True)
class Rate:
    """Latency and bandwidth of one direction of a path."""

    latency_us: float
    """From the issue of a transfer of 512 bytes to its completion, as such tables are measured."""
    gb_s: float
    """Bandwidth of one die, in 10^9 bytes a second."""

    def __post_init__(self) -> None:
        if not (0 <= self.latency_us <= 1e6 and 1e-3 <= self.gb_s <= 1e6):
            raise ConfigError(f"latency_us={self.latency_us}, gb_s={self.gb_s}: must be 0 to 10^6, and 0.001 to 10^6")


@dataclass(frozen=True)
class Path:
    """What a class of paths costs, by direction; ``medium`` names the links that it takes."""

    medium: str
    read: Rate
    write: Rate


@dataclass(frozen=True)
class Cpus:
    """The CPU sockets of each node, whose memory dies read and write."""

    per_node: int
    gb_s: float
    """What a socket's port carries, each direction."""
    dram_gb_s: float
    """Its memory's bandwidth."""

    def __post_init__(self) -> None:
        if not (isinstance(self.per_node, int) and 1 <= self.per_node <= 64):
            raise ConfigError("per_node", self.per_node, "must be 1 to 64")
        for name in ("gb_s", "dram_gb_s"):
            if not 1e-3 <= getattr(self, name) <= 1e6:
                raise ConfigError(name, getattr(self, name), "must be 0.001 to 10^6")


@dataclass(frozen=True)
class Fabric:
    """A topology: how dies are grouped, the classes of paths between them, and the switches on the way.

    Die d is on chip ``d // dies_per_chip`` of node ``d // (dies_per_chip * chips_per_node)``.  Every die has a port to
    each plane; a plane has a switch in each node, with links to the switches of a second tier.  Each port of a die, and
    each link between switches, is a queue in each direction, and so is the memory at an end of a transfer.

    Raises ConfigError for numbers that cannot be.
    """

    name: str
    dies_per_chip: int
    chips_per_node: int
    paths: tuple[Path, ...]
    """By class: same die, sibling die, same node, other node; and to CPUs of the same and of another node."""
    within: str = "ports"
    """One of `WITHIN`. Over a mesh the rates of the path are one link's."""
    planes: int = 1
    """Parallel planes, each with a share of a path's bandwidth."""
    stripe_bytes: int = 512
    """Bytes of a transfer that go to one plane before the next takes more; a power of two."""
    by_address: bool = False
    """Has each block of ``stripe_bytes`` a plane and a link of its own, by its address?  Else transfers are striped:
    spread evenly over all planes, and over all links of each."""
    uplinks: int = 1
    """Links of a node's switch of a plane, each to another switch of the second tier."""
    uplink_gb_s: float = 0.0
    """What each of them carries, each direction; 0 if that never limits."""
    cpus: Cpus | None = None
    ordered: bool = False
    """Do the writes of a core arrive in their order, as by one queue of InfiniBand, so that a fence waits for none?"""
    nodes: int = 0
    """How many there are; 0 for as many as a pod has."""
    beside: tuple["Fabric", ...] = ()
    """Other networks of the same dies, with ports and switches of their own (`VirtualTime`, ``over``)."""

    def __post_init__(self) -> None:
        if len(self.paths) not in (4, 6) or (self.cpus and len(self.paths) != 6):
            raise ConfigError(f"paths: {len(self.paths)} of them; must be 4, or with paths to CPUs 6")
        one_of("within", self.within, WITHIN)
        if self.within != "ports" and self.planes != 1:
            raise ConfigError("planes", self.planes, f"must be 1 where nodes have links of their own ({self.within})")
        if self.within == "mesh" and (dies := self.dies_per_chip * self.chips_per_node) > PLANES_MAX:
            raise ConfigError("within", "mesh", f"{dies} dies a node; must be at most {PLANES_MAX}")
        most = {"planes": PLANES_MAX, "uplinks": UPLINKS_MAX, "dies_per_chip": 16, "chips_per_node": 1024}
        for name in most:
            if not (isinstance(value := getattr(self, name), int) and 1 <= value <= most[name]):
                raise ConfigError(name, value, f"must be 1 to {most[name]}")
        if not 0 <= self.nodes <= 1 << 20:
            raise ConfigError("nodes", self.nodes, f"must be 0 to {1 << 20}")
        if not 32 <= self.stripe_bytes <= 1 << 30 or self.stripe_bytes & (self.stripe_bytes - 1):
            raise ConfigError("stripe_bytes", self.stripe_bytes, "must be a power of two, 32 to 2^30")
        if self.uplink_gb_s and not 1e-3 <= self.uplink_gb_s <= 1e6:
            raise ConfigError("uplink_gb_s", self.uplink_gb_s, "must be 0, or 0.001 to 10^6")
        others = self.networks[1:]
        if len(others) > BESIDE_MAX or any(len(each.networks) > 1 for each in others):
            raise ConfigError(f"beside: at most {BESIDE_MAX} networks, none with others of its own")

    @property
    def networks(self) -> tuple["Fabric", ...]:
        """Return all networks of the dies: this one, and the others."""
        return (self, *self.beside)

    def node_of(self, die: Any) -> Any:
        """Number of a die's node; of each, for an array of dies."""
        return die // (self.dies_per_chip * self.chips_per_node)

    def path_of(self, source: int, target: int) -> int:
        """Class of the path between two dies."""
        return int(self.paths_of(np.array([source]), np.array([target]), max(source, target) + 1)[0])

    def paths_of(self, source: NDArray[np.int64], target: NDArray[np.int64], n_dies: int) -> NDArray[np.int64]:
        """Classes of the paths between dies, or CPUs, which follow ``n_dies`` dies."""
        nodes = [self.nodes_of(ends, n_dies) for ends in (source, target)]
        cpu = (source >= n_dies) | (target >= n_dies)
        same_chip = (source // self.dies_per_chip == target // self.dies_per_chip) & ~cpu
        near = np.where(source == target, SAME_DIE, np.where(same_chip, SIBLING_DIE, SAME_NODE + 2 * cpu))
        return np.where(nodes[0] == nodes[1], near, OTHER_NODE + 2 * cpu)

    def nodes_of(self, ends: NDArray[np.int64], n_dies: int) -> NDArray[np.int64]:
        """Nodes of dies, or of CPUs, which follow ``n_dies`` dies."""
        return np.where(ends < n_dies, self.node_of(ends), (ends - n_dies) // (self.cpus.per_node if self.cpus else 1))
