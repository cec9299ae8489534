"""Topologies that are known: the files of `fabrics`, each with the source of its numbers."""

from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from xccl_emu.errors import ConfigError
from xccl_emu.timing import fabric_file
from xccl_emu.timing.costs import Costs
from xccl_emu.timing.fabric import Fabric

NAMES = ("cloudmatrix384", "atlas-800t-a2", "atlas-900-a3", "h20", "h800")
"""By which the command knows them."""


def model(name: str, costs: Sequence[str] = ()) -> tuple[Fabric, Costs]:
    """Return a fabric by its name or its file, and the costs there, changed by ``name=value`` words.

    Raises ConfigError for another name, a file that is no fabric, and a word that is no cost.
    """
    if name in NAMES:
        with as_file(files("xccl_emu.timing") / "fabrics" / f"{name}.toml") as path:
            fabric, there = fabric_file.read(path)
    elif name.endswith(".toml"):
        fabric, there = fabric_file.read(Path(name))
    else:
        raise ConfigError(f"--fabric {name}: must be FILE.toml or one of {', '.join(NAMES)}")
    return fabric, fabric_file.costs_of(costs, there)


def topology(name: str) -> Fabric:
    """Return a fabric by its name or its file; ConfigError for another name."""
    return model(name)[0]


CLOUDMATRIX384 = topology("cloudmatrix384")
"""CloudMatrix384 3.2-3.3 and Table 1: seven UB sub-planes, one tier within a node and two between nodes."""

RDMA = CLOUDMATRIX384.networks[1]
"""CloudMatrix384 3.2-3.3: the plane to other supernodes, on links of its own."""

VPC = CLOUDMATRIX384.networks[2]
"""CloudMatrix384 3.2-3.3: the datacenter's network, one card a node, which its dies share."""

ATLAS_800T_A2 = topology("atlas-800t-a2")
"""MixServe IV-A: four servers of eight NPUs, full-mesh HCCS inside, RoCE between, a port a chip."""

H20 = topology("h20")
"""MixServe IV-A: two servers of eight GPUs, NVLink inside, InfiniBand between."""
