"""What the analyzer knows of a cluster: nodes, what a device can do, and two kinds of links, from a TOML file."""

from dataclasses import dataclass

from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.plan.model import check_names, check_numbers, load, number, record, whole

SHIPPED = {"910B": "910b", "H20": "h20"}
"""Clusters that come with the package, and their files."""


@dataclass(frozen=True)
class Link:
    """How devices reach each other."""

    gb_s: float = number("10^9 bytes a second, as printed", 1e-3, 1e6)
    ways: int = whole("2 if gb_s counts both directions together", 1, 2)
    mesh: bool = False
    """True if gb_s belongs to a link to each peer, all at once; else to one port of the device for all of them."""
    start_us: float = number("before the first byte of a round", 0, 1e6, default=0)

    def __post_init__(self) -> None:
        """Raises ConfigError for a field out of range."""
        check_numbers(self)
        if not isinstance(self.mesh, bool):
            raise ConfigError("mesh", self.mesh, "must be true or false")

    def seconds(self, size: float) -> float:
        """Return the time of one round in which ``size`` bytes go to one peer, in seconds."""
        return self.start_us / 1e6 + size / (self.gb_s * 1e9 / self.ways)


@dataclass(frozen=True)
class Cluster:
    """Nodes of equal devices."""

    name: str
    intra: Link
    inter: Link
    nodes: int = whole("nodes, a power of two", 1, 1 << 16)
    devices_per_node: int = whole("devices of a node, a power of two", 1, 1 << 10)
    memory_gb: float = number("10^9 bytes of a device's memory", 1e-3, 1e6)
    tflops: float = number("10^12 operations a second of a device", 1e-3, 1e6)
    efficiency: float = number("part of tflops that is reached", 0.01, 1)
    hbm_gb_s: float = number("10^9 bytes a second of a device's memory", 1e-3, 1e7)
    layer_us: float = number("of computing one layer, however little it is", 0, 1e6, default=0)
    weight_bytes_least: float = number("bytes of the narrowest weight that it computes with", 0.1, 8, default=0.1)

    def __post_init__(self) -> None:
        """Raises ConfigError for a field out of range, or a count that no strategy of the grammar can have."""
        check_numbers(self)
        for name in ("nodes", "devices_per_node"):
            if getattr(self, name).bit_count() != 1:
                raise ConfigError(name, getattr(self, name), "must be a power of two, as all degrees are (III-B1)")

    @property
    def devices(self) -> int:
        """Devices of all nodes."""
        return self.nodes * self.devices_per_node

    def link(self, span: int) -> Link:
        """Return the link of a group within ``span`` consecutive devices: the slower kind if it leaves a node."""
        return self.intra if span <= self.devices_per_node else self.inter


def load_cluster(name_or_path: str) -> Cluster:
    """A cluster by its name or the path of a TOML file; ConfigError, naming the field, if it is none."""
    tables, where = load(name_or_path, SHIPPED, "cluster")
    given = dict(check_names(Cluster, tables, where))
    for kind in ("intra", "inter"):
        given[kind] = record(Link, given[kind], f"{where}: {kind}")
    return record(Cluster, given, where)
