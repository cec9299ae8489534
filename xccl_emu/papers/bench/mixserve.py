"""Closed forms of MixServe's fused algorithms, with timed runs of the kernels ([MixServe] III-B and III-D).

They are Eqs. (12) and (13) with a pod's own links, latencies and fixed costs.

An algorithm is a list of steps, and a step is a level of links between nodes and one within them.  A level takes what
its busiest link needs, or what a core needs for its own rows, whichever is longer; then a flag follows.  Rows are those
that the tokens choose, so loads are as uneven as in the run.  Nothing is fitted.

- `sum_us`: all levels one after the other, (13); (12) where no rank has TP.
- `overlapped_us`: of the levels that overlap (III-D) the longer one.
- `least_us`: the busiest link alone, or what one core writes and the flags that it waits for.

Without overlap a run is between the last and the first: cores share links and nothing else, and each waits for its own
rows alone, so one core gathers while another sends.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.papers.bench.setting import Setting
from xccl_emu.protocols.mixserve.case import MixServeCase
from xccl_emu.timing.costs import PASSES, Costs
from xccl_emu.timing.fabric import OTHER_NODE, SAME_DIE, SAME_NODE, SIBLING_DIE, Fabric, Rate


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

    def acked(self, path: int) -> float:
        """Return what a write takes there, and its acknowledgement back."""
        return self.latency(path, write=True) * (1 + self.costs.ack_share)

    def poll(self) -> float:
        """Return the time of a poll from the moment that a flag is visible."""
        return self.costs.poll_ns * 1e-3

    def loads(self, times: float) -> float:
        """Return the time of loads and polls of flags that are there already."""
        return times * (self.costs.load_ns + self.costs.issue_cycles * self.costs.clock_ns) * 1e-3

    def barrier(self) -> float:
        """Return the time of a barrier between the cores of a die, in us."""
        return self.costs.barrier_us(self.fabric.paths[SAME_DIE].write.latency_us)

    def _rate(self, path: int, write: bool) -> Rate:
        chosen = self.fabric.paths[min(path, OTHER_NODE)]
        return chosen.write if write else chosen.read


FLAG_BYTES = 16
"""What a put of a flag writes."""

Times = NDArray[np.floating[Any]]
"""us, [places] or [places, cores]; a place is a group of a node."""


@dataclass(frozen=True)
class Level:
    """What a step moves over links of one kind; us."""

    link: Times
    """Time on the busiest link of each place."""
    into: Times
    """Time that a core needs to load its rows, or to add them up."""
    out: Times
    """Time that a core needs to write its rows."""
    flag: Times
    """From then on, until the receiver goes on, and the first row of its next level is in the data buffer; by place."""

    @property
    def most(self) -> Times:
        """Time that each core needs, at the place where it has most to do."""
        most: Times = np.maximum(self.link.max(), np.maximum(self.into, self.out).max(0))
        return most

    def __mul__(self, part: float) -> "Level":
        """Return the level scaled by ``part``, without its flags."""
        return Level(self.link * part, self.into * part, self.out * part, self.flag * 0)


@dataclass(frozen=True)
class AlgorithmStep:
    """A step of an algorithm: dispatch goes between nodes, then within one; combine within a node, then between."""

    between: Level
    within: Level


@dataclass(frozen=True)
class AlgorithmForm:
    """An algorithm as steps, and what it does before and after them; us."""

    steps: Sequence[AlgorithmStep]
    before: float
    after: float
    shared: bool
    """Do both levels pass the same ports?"""

    def both(self, one: Level, other: Level) -> Times:
        """Return the time of two levels that overlap: links do, but a core has one pipe in and one out for both."""
        link = one.link + other.link if self.shared else np.maximum(one.link, other.link)
        pipes = np.maximum((one.into + other.into).max(0), (one.out + other.out).max(0))
        both: Times = np.maximum(link.max(), pipes)
        return both

    @property
    def levels(self) -> Iterable[Level]:
        """All of them."""
        return [level for step in self.steps for level in (step.between, step.within)]

    @property
    def sum_us(self) -> float:
        """Add up all levels, one after the other, of the core that takes longest: Eq. (13), or (12)."""
        each = sum((level.most + level.flag.max() for level in self.levels), np.zeros(1))
        return self.before + float(each.max()) + self.after

    @property
    def links_us(self) -> tuple[float, float]:
        """Time on the links of the busiest place, between nodes and within them."""
        between = np.sum([step.between.link for step in self.steps], 0)
        within = np.sum([step.within.link for step in self.steps], 0)
        return float(between.max()), float(within.max())

    @property
    def parts(self) -> Mapping[str, float]:
        """Return what the sum is made of; cores, as far as they take longer than links."""
        between, within = self.links_us
        flags = float(sum(level.flag.max() for level in self.levels))
        parts = {"between nodes": between, "within nodes": within, "flags": flags, "ends": self.before + self.after}
        return {**parts, "cores": self.sum_us - sum(parts.values())}

    @property
    def least_us(self) -> float:
        """No run without overlap takes less: links do not rest, or a core does nothing but wait for flags and write."""
        own = sum(((level.out.T + level.flag).min(1) for level in self.levels), np.zeros(1))
        links = sum(self.links_us) if self.shared else max(self.links_us)
        return self.before + max(links, float(own.max())) + self.after


class Loads:
    """Rows of each core, [cores, dp, ep], of a case with the prices of a fabric; and the levels that they make."""

    def __init__(self, case: MixServeCase, prices: Prices) -> None:
        self.case, self.of, self.shape, self.prices = case, case.degrees, case.shape, prices
        experts = case.data(payload=False).choices[0] // case.experts
        dealt = [self.shape.tokens_of(core) for core in range(case.cores)]
        self.rows = np.array(
            [[np.bincount(chosen[own].ravel(), minlength=self.of.ep) for chosen in experts] for own in dealt]
        )

    @property
    def places(self) -> list[tuple[int, int]]:
        """Node and group."""
        return list(np.ndindex(self.of.nodes, self.of.dp_groups * self.of.ep_groups))

    def of_step(self, step: int, sender: bool) -> NDArray[np.int64]:
        """Rows for the experts ``step`` nodes on, or from the tokens as many back, [places, cores]."""
        ends = [(node, (node + step) % self.of.nodes) if sender else ((node - step) % self.of.nodes, node)
                for node in range(self.of.nodes)]  # fmt: skip
        return np.array([
            self.rows[:, self.of.tokens_of(ends[node][0], group), self.of.experts_of(ends[node][1], group)]
            for node, group in self.places
        ])  # fmt: skip

    def core(self, nbytes: float, transfers: int = 1) -> float:
        """us of a core's pipe."""
        return self.prices.core(nbytes, transfers)

    @property
    def own(self) -> float:
        """Latency of a load from the own die."""
        return self.prices.latency(SAME_DIE, write=False)

    def flags_us(self, path: int, first: float, peers: int = 1) -> float:
        """us of flags to ``peers``, and of the load after them, which takes ``first``; 0 if there are none."""
        flags = peers * self.core(FLAG_BYTES) + self.prices.latency(path, write=True) + self.prices.poll()
        return flags + self.own + first if peers else 0.0

    def paths(self, step: int) -> list[int]:
        """Classes of the paths to the same rank ``step`` nodes on."""
        dies = [node * self.of.ranks + group * self.of.shards for node, group in self.places]
        world = self.of.world
        return [self.prices.fabric.path_of(die, (die + step * self.of.ranks) % world) for die in dies]

    def over(self, path: int, nbytes: float, peers: int) -> float:
        """us of the busiest link to ``peers`` dies that get as many bytes each: a port, or a link for each."""
        own_link = path == SAME_NODE and self.prices.fabric.within == "mesh"
        return self.prices.stream(nbytes * (1 if own_link else peers), path)

    def between(self, step: int, rows: NDArray[np.int64], into: Times, head: float = 0.0, first: float = 0.0) -> Level:
        """A shard of each row to the same rank of another node, after ``head`` bytes of each core."""
        part, paths = self.shape.part_bytes, self.paths(step)
        if step == 0:
            return Level(np.zeros(len(rows)), into, rows * self.core(part), np.zeros(len(rows)))
        nbytes = rows.sum(1) * part + rows.shape[1] * head
        link = [self.over(path, one, 1) for path, one in zip(paths, nbytes.tolist(), strict=True)]
        out = rows * self.core(part) + (self.core(head) if head else 0.0)
        return Level(np.array(link), into, out, np.array([self.flags_us(path, first) for path in paths]))


def dispatch(case: MixServeCase, prices: Prices) -> AlgorithmForm:
    """AG-Dispatch, Algorithm 2: counts and rows to the node i steps on, then round the node."""
    x = Loads(case, prices)
    part, row, head = x.shape.part_bytes, x.shape.row_bytes, 8 * case.experts
    steps = []
    for i in range(x.of.nodes):
        sent, came = x.of_step(i, True), x.of_step(i, False)
        between = x.between(i, sent * (i > 0), sent * x.core(part) * (i > 0), head, x.core(part))
        peers = len(x.of.same_experts(0)) - (1 if i else x.of.shards)
        link = (peers > 0) * np.array([x.over(SAME_NODE, each * part, peers) for each in came.sum(1).tolist()])
        kept = x.core(part) if i else x.core(row)
        flag = np.full(len(came), x.flags_us(SAME_NODE, x.core(part), peers))
        within = Level(link, came * kept, came * (kept + peers * x.core(part)), flag)
        steps.append(AlgorithmStep(between, within))
    return AlgorithmForm(steps, x.own, prices.acked(SAME_DIE), prices.fabric.within == "ports")


def dispatch_overlapped_us(form: AlgorithmForm) -> float:
    """Half of the rows for the next node leave, then those from the last one are awaited; the others leave while these
    go round the node.  Their flag leaves when half of that is done, so the other half hides of its latency."""
    nexts = [*(step.between for step in form.steps[1:]), form.steps[0].between * 0.0]
    taken: Times = np.zeros(1)
    last: Times = np.zeros(1)
    for step, coming in zip(form.steps, nexts, strict=True):
        taken = taken + np.maximum(coming.most / 2, step.between.flag.max() - last / 2)
        last = form.both(coming * 0.5, step.within)
        taken = taken + last
    return form.before + float(taken.max() + form.steps[-1].within.flag.max()) + form.after


def combine(case: MixServeCase, prices: Prices) -> AlgorithmForm:
    """RS-Combine, Algorithm 1: terms round the node, their sum to the node i steps on, the own one last; outputs."""
    x = Loads(case, prices)
    part, row, shards = x.shape.part_bytes, x.shape.row_bytes, x.of.shards
    groups = x.of.dp_groups
    add = shards * prices.vector("v_add", part // 2) + prices.vector("v_narrow", part // 2)
    load = x.core(row, 3)
    each = max(load, add, (x.own + load + add) / 2)  # there are two places for terms
    steps = []
    for i in range(1, x.of.nodes + 1):
        step = i % x.of.nodes
        ends = [(node, (node + step) % x.of.nodes, group) for node, group in x.places]
        # Rows of each group of that node, where each rank has a term: [groups, places, cores].
        terms = np.array([
            [x.rows[:, x.of.tokens_of(there, of), x.of.experts_of(here, group)] for here, there, group in ends]
            for of in range(groups)
        ])  # fmt: skip
        peers = len(x.of.same_experts(0)) - 1
        rows = terms.sum(0)
        mesh = prices.fabric.within == "mesh"
        busiest = terms.sum(2).max(0) if mesh else terms.sum(2).sum(0) * peers / groups
        link = np.array([prices.stream(some * part, SAME_NODE) for some in busiest.tolist()])
        flag = np.full(len(rows), x.flags_us(SAME_NODE, add, peers))
        within = Level(link * (peers > 0), rows * x.core(row), rows * peers / groups * x.core(part), flag)
        own = np.array([terms[group if groups > 1 else 0, place] for place, (_, group) in enumerate(x.places)])
        steps.append(AlgorithmStep(x.between(step, own, own * groups * each, first=x.core(row)), within))
    return AlgorithmForm(steps, x.own + x.core(row), outputs_us(x), prices.fabric.within == "ports")


def outputs_us(x: Loads) -> float:
    """After the steps: tokens are summed over their choices, shard by shard, and go round the node: the second half of
    an all-reduce."""
    p, part, row, k = x.prices, x.shape.part_bytes, x.shape.row_bytes, x.case.top_k
    ranks, tokens = len(x.of.same_tokens(0)), len(x.shape.tokens_of(x.case.cores - 1))
    chosen = k / x.of.ep_groups
    add, moved = chosen * p.vector("v_axpy", part // 2) + p.vector("v_narrow", part // 2), chosen * x.core(part)
    token = max(p.loads(2 * k + chosen), (x.own + moved + add) / 2, moved, ranks * x.core(part))
    link = x.over(SAME_NODE, x.case.tokens * part, ranks - 1) if ranks > 1 else 0.0
    weighed = x.own + token + max(link, (tokens - 1) * token, tokens * ranks * x.core(part))
    visible = p.acked(SAME_NODE if ranks > 1 else SAME_DIE)
    announced = x.flags_us(SAME_NODE, x.core(row), ranks - 1) or x.own + x.core(row)
    whole = (tokens * (ranks // x.of.shards) - 1) * x.core(row) + x.core(row)
    return p.acked(SAME_DIE) + weighed + visible + announced + whole + p.acked(SAME_DIE)


def combine_overlapped_us(form: AlgorithmForm) -> float:
    """While terms go round the node, the sums of the step before leave; then the terms are awaited."""
    nothing = form.steps[0].within * 0.0
    levels = [nothing, *(step.between for step in form.steps)], [*(step.within for step in form.steps), nothing]
    taken: Times = np.zeros(1)
    last: Times = np.zeros(1)
    for leaving, going in zip(*levels, strict=True):
        last = form.both(leaving, going)
        taken = taken + last + going.flag.max()
    far = form.steps[-2].between.flag.max() if len(form.steps) > 1 else 0.0
    return form.before + float((taken + np.maximum(0.0, far - last)).max()) + form.after


# ---- with the timed run

ALGORITHMS: Mapping[str, tuple[Callable[[MixServeCase, Prices], AlgorithmForm], Callable[[AlgorithmForm], float]]] = {
    "dispatch": (dispatch, dispatch_overlapped_us), "combine": (combine, combine_overlapped_us),
}  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """A case without overlap and with it: what the forms say, and what was run; us."""

    form: AlgorithmForm
    run_us: float
    overlapped_us: float
    overlapped_run_us: float


def compared(case: MixServeCase, setting: Setting) -> Compared:
    """Compare one of the two algorithms by both, without payload."""
    make, overlapped = ALGORITHMS[case.part]
    form = make(case, Prices(setting.fabric, setting.costs))
    bare = replace(setting, data=False)
    runs = [bare.run(replace(case, overlap=overlap))[1] for overlap in (0, 1)]
    return Compared(form, runs[0], overlapped(form), runs[1])


def of_cluster(fabric: Fabric, part: str, tokens: int, degrees: str) -> MixServeCase:
    """DeepSeek-R1's layer on all of a cluster, as many tokens in all for each of `DEGREES`."""
    nodes, ranks = fabric.nodes, fabric.dies_per_chip * fabric.chips_per_node
    times, more = DEGREES[degrees]
    dp, ep = (nodes * (ranks if each == ALL else each) for each in (times, more))
    own = tokens * nodes // dp
    return MixServeCase(
        nodes=nodes, ranks=ranks, dp=dp, ep=ep, tokens=own, cores=min(CORES, own), hidden=7168, experts=256 // ep,
        top_k=8, rounds=1, part=part,
    )  # fmt: skip


ALL, CORES = 0, 32
DEGREES = {"d_DP = d_EP": (1, 1), "d_DP > d_EP": (2, 1), "d_DP < d_EP": (1, 2), "EP": (ALL, ALL)}
"""Groups of a node with tokens, and with experts, of their own: Figure 6; and the baseline, where every rank is one."""
