"""Who is who in a cluster that runs MixServe, and where what is ([MixServe] III-B and III-D)."""

from dataclasses import dataclass

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.group import align
from xccl_emu.kernels.mixserve.rows import FIELD_BYTES, PLACES, Inboxes
from xccl_emu.protocol import Region, Regions


@dataclass(frozen=True)
class Degrees:
    """How attention and experts are laid on ``nodes`` nodes of ``ranks`` ranks (Figure 6).

    Where both degrees are more than the nodes, a part of a node counts as a node: ``nodes`` and ``ranks`` below are
    the algorithm's, the lesser of the two degrees and what is left of the ranks.
    """

    world: int
    dp: int
    """Groups with tokens of their own."""
    ep: int
    """Groups with experts of their own."""

    @property
    def nodes(self) -> int:
        """Nodes of the algorithm."""
        return min(self.dp, self.ep)

    @property
    def ranks(self) -> int:
        """Ranks of a node."""
        return self.world // self.nodes

    @property
    def dp_groups(self) -> int:
        """Groups of a node with tokens of their own."""
        return self.dp // self.nodes

    @property
    def ep_groups(self) -> int:
        """Groups of a node with experts of their own."""
        return self.ep // self.nodes

    @property
    def shards(self) -> int:
        """Ranks of a group; each of them moves a shard of the columns."""
        return self.ranks // (self.dp_groups * self.ep_groups)

    def group(self, local: int) -> int:
        """Group of a rank of a node."""
        return local // self.shards

    def tokens_of(self, node: int, group: int) -> int:
        """Number of the tokens that a group of a node has."""
        return node * self.dp_groups + (group if self.dp_groups > 1 else 0)

    def tokens_on(self, die: int) -> int:
        """Number of the tokens that a die has."""
        node, local = divmod(die, self.ranks)
        return self.tokens_of(node, self.group(local))

    def experts_of(self, node: int, group: int) -> int:
        """Number of the experts that a group of a node has."""
        return node * self.ep_groups + (group if self.ep_groups > 1 else 0)

    def same_experts(self, local: int) -> range:
        """Ranks of a node with the same experts."""
        return range(self.ranks) if self.ep_groups == 1 else self._of_group(local)

    def same_tokens(self, local: int) -> range:
        """Ranks of a node with the same tokens."""
        return range(self.ranks) if self.dp_groups == 1 else self._of_group(local)

    def _of_group(self, local: int) -> range:
        return range(self.group(local) * self.shards, (self.group(local) + 1) * self.shards)


def degrees(nodes: int, ranks: int, dp: int, ep: int) -> Degrees:
    """Checked: ConfigError for degrees whose groups would be of several nodes, or not of equal size."""
    world = nodes * ranks
    made = Degrees(world, dp or nodes, ep or nodes)
    for name, degree in (("dp", made.dp), ("ep", made.ep)):
        if degree % nodes or world % degree:
            raise ConfigError(name, degree, f"must be a multiple of the {nodes} nodes that divides {world} ranks")
    if max(made.dp, made.ep) % made.nodes:
        raise ConfigError("ep", made.ep, f"one of dp={made.dp} and ep must be a multiple of the other")
    return made


@dataclass(frozen=True)
class MovedSizes:
    """Sizes of what is moved."""

    of: Degrees
    cores: int
    tokens: int
    top_k: int
    experts: int
    hidden: int

    def tokens_of(self, core: int) -> range:
        """Tokens of each group that a core moves."""
        return range(self.tokens * core // self.cores, self.tokens * (core + 1) // self.cores)

    @property
    def capacity(self) -> int:
        """Rows of a core that a group may have for a node."""
        return -(-self.tokens // self.cores) * self.top_k

    @property
    def row_bytes(self) -> int:
        """Bytes of a hidden state."""
        return 2 * self.hidden

    @property
    def part_bytes(self) -> int:
        """Bytes of a shard of a hidden state."""
        return self.row_bytes // self.of.shards

    @property
    def head(self) -> int:
        """Bytes of the counts of a block, in whole granules."""
        return align(8 * self.experts)

    @property
    def room(self) -> int:
        """Bytes of a place in the data buffer, for a row or counts."""
        return max(self.row_bytes, self.head)

    @property
    def acc(self) -> int:
        """Bytes before the FP32 sum in the data buffer: rows and terms."""
        return (PLACES + 2) * self.room

    @property
    def ub_bytes(self) -> int:
        """Bytes of the data buffer: after `acc` the sum, which takes two places, and two for sums that leave."""
        return self.acc + 4 * self.room


class MixServeLayout:
    """Inboxes and fields of each core."""

    def __init__(self, regions: Regions, shape: MovedSizes) -> None:
        of, cores = shape.of, shape.cores
        self.shape = shape
        blocks = cores * 2 * of.nodes
        self.sent = regions.managed("sent", shape.head + shape.capacity * shape.part_bytes, blocks)
        self.heads = regions.managed("heads", shape.head, blocks * of.dp_groups)
        rows = 2 * of.dp * shape.capacity
        self.gathered = regions.managed("gathered", rows * shape.row_bytes, cores)
        self.terms = regions.managed("terms", of.ranks * shape.capacity * shape.part_bytes, cores * 2)
        self.returned = regions.managed("returned", shape.capacity * shape.part_bytes, blocks)
        self.results = regions.managed("results", of.ranks * shape.tokens * shape.part_bytes, cores * 2)
        fields = (2 * of.nodes, 2 * of.nodes * of.ranks, of.ranks, of.nodes, of.ranks)
        names = ("sent", "gathered", "terms", "returned", "results")
        self.fields = [
            regions.meta(f"{name}_field", FIELD_BYTES, cores * n) for name, n in zip(names, fields, strict=True)
        ]

    def inboxes(self, core: int) -> Inboxes:
        """Return the inboxes of a core of any rank, on die 0."""
        sent, gathered, terms, returned, results = (self._of(field, core) for field in self.fields)
        return Inboxes(
            self._of(self.sent, core), sent, self._of(self.heads, core), self._of(self.gathered, core), gathered,
            self._of(self.terms, core), terms, self._of(self.returned, core), returned,
            self._of(self.results, core), results,
        )  # fmt: skip

    def _of(self, region: Region, core: int) -> int:
        n = region.count // self.shape.cores
        return region.at(0, core * n, n)
