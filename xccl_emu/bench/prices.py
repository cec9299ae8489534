"""What single steps take on a fabric under some costs: the terms of closed forms."""

from xccl_emu.timing.costs import PASSES, Costs
from xccl_emu.timing.fabric import OTHER_NODE, SAME_DIE, SIBLING_DIE, Fabric, Rate


class Prices:
    """Prices of single steps, in microseconds."""

    def __init__(self, fabric: Fabric, costs: Costs) -> None:
        self.fabric, self.costs = fabric, costs

    def scalar(self, requests: float) -> float:
        """Return the time of this many requests of the scalar unit."""
        return requests * self.costs.issue_cycles * self.costs.clock_ns * 1e-3

    def vector(self, operation: str, elements: float, times: float = 1) -> float:
        """An operation of the vector pipe, some times."""
        passes = elements * PASSES[operation] / self.costs.vector_gelem_s
        return times * (self.costs.vector_start_ns + passes) * 1e-3

    def core(self, nbytes: float, transfers: float = 1) -> float:
        """Bytes through a core's transfer unit."""
        return (transfers * self.costs.mtu_start_ns + nbytes / self.costs.core_gb_s) * 1e-3

    def latency(self, path: int, write: bool) -> float:
        """Return the latency of one way, by class of path."""
        return self._rate(path, write).latency_us

    def far(self, ranks: int, write: bool) -> float:
        """Latency of the longest path between dies 0 to ``ranks`` - 1."""
        return self.latency(max(self.fabric.path_of(0, ranks - 1), SAME_DIE), write)

    def wire(self, nbytes: float, ranks: int, write: bool) -> float:
        """Bytes that a die spreads evenly over ``ranks`` dies: those that leave the chip, through its egress."""
        times = 0.0
        for peer in range(ranks):
            path = self.fabric.path_of(0, peer)
            if path not in (SAME_DIE, SIBLING_DIE):
                times += nbytes / ranks / self._rate(path, write).gb_s
        return times * 1e-3

    def stream(self, nbytes: float, path: int) -> float:
        """Bytes that a die writes to another one, or to many on the same class of path."""
        return nbytes / self._rate(path, write=True).gb_s * 1e-3

    def poll(self) -> float:
        """Return the time of a poll from the moment that a flag is visible."""
        return self.costs.poll_ns * 1e-3

    def loads(self, times: float) -> float:
        """Return the time of loads and polls of flags that are there already."""
        return times * (self.costs.load_ns + self.costs.issue_cycles * self.costs.clock_ns) * 1e-3

    def barrier(self) -> float:
        """Return the time of a barrier between the cores of a die, in us."""
        return self.costs.barrier_ns * 1e-3

    def _rate(self, path: int, write: bool) -> Rate:
        chosen = self.fabric.paths[min(path, OTHER_NODE)]
        return chosen.write if write else chosen.read
