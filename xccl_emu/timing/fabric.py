"""The fabric between dies, as data: where each die is, and what a transfer from one to another costs.

A transfer's path has a class that depends on where its two ends are.  Each class has, for reads and for writes, a
latency and a bandwidth per die and direction; a die sends through one egress and receives through one ingress, each a
queue that serves one transfer after the other.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.errors import ConfigError

SAME_DIE, SIBLING_DIE, SAME_NODE, OTHER_NODE = range(4)
PATHS = ("same die", "sibling die", "same node", "other node")
"""Classes of paths, by number."""


@dataclass(frozen=True)
class Rate:
    """Latency and bandwidth of one direction of a path."""

    latency_us: float
    """From the issue of a transfer of 512 bytes to its completion, as such tables are measured."""
    gb_s: float
    """Bandwidth of one die, in 10^9 bytes a second."""

    def __post_init__(self) -> None:
        if not (self.latency_us >= 0 and self.gb_s > 0):
            raise ConfigError(f"latency_us={self.latency_us}, gb_s={self.gb_s}: must be at least 0, and above 0")


@dataclass(frozen=True)
class Path:
    """What a class of paths costs, by direction; ``medium`` names the links that it takes."""

    medium: str
    read: Rate
    write: Rate
    links: int = 1
    """Equal links, each to another die, that have the bandwidth together: a transfer takes one of them."""

    def __post_init__(self) -> None:
        if not (isinstance(self.links, int) and self.links >= 1):
            raise ConfigError(f"links={self.links!r}: must be at least 1")


@dataclass(frozen=True)
class Fabric:
    """A topology: how dies are grouped, and the four classes of paths between them.

    Die d is on chip ``d // dies_per_chip`` of node ``d // (dies_per_chip * chips_per_node)``.
    """

    name: str
    dies_per_chip: int
    chips_per_node: int
    paths: tuple[Path, Path, Path, Path]
    """By class: same die, sibling die, same node, other node."""
    planes: int = 1
    """Parallel planes over which a transfer is striped."""
    stripe_bytes: int = 512
    """Of a transfer, what goes to one plane before the next takes more."""
    node_uplink_gb_s: float = 0.0
    """What the dies of a node share towards other nodes, each direction; 0 if that never limits."""

    nodes: int = 0
    """How many there are; 0 for as many as a pod has."""

    def node_of(self, die: Any) -> Any:
        """Number of a die's node; of each, for an array of dies."""
        return die // (self.dies_per_chip * self.chips_per_node)

    def path_of(self, source: int, target: int) -> int:
        """Class of the path between two dies."""
        return int(self.paths_of(np.array([source]), np.array([target]))[0])

    def paths_of(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.int64]:
        """Classes of the paths between dies."""
        same_chip = source // self.dies_per_chip == target // self.dies_per_chip
        same_node = self.node_of(source) == self.node_of(target)
        near = np.where(source == target, SAME_DIE, np.where(same_chip, SIBLING_DIE, SAME_NODE))
        return np.where(same_node, near, OTHER_NODE)
