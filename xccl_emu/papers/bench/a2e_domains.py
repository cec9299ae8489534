"""Layers of disaggregated attention and experts ([xDeepServe] 5.2), of all domains.

Three domains with two microbatches each go through the persistent streams of the expert dies, layer after layer, and
what the layers take comes of that run.  Attention and experts take as long as published: vector instructions stand in
for them.  Layers after the ones that are run take as long as the last of these.

Domains begin a third of an attention apart, so that their calls come evenly (Figure 19), and the dies of each as far
apart as ranks do at every operator.

The published A2E and E2A are of this deployment (3.3).  That one domain at a time interacts with the experts (5.2) is
said of each stream: one call in A2E, one in computing, one in E2A.  Were it said of a whole call, six of 172 and 193 us
would take 2.2 ms, and a layer takes 1.4 (7.1).  A die has 96 requests; MTP verifies two tokens of each, so that each
of its two microbatches has 96 tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from xccl_emu.kernels.experts.dummy import BUSY_ENTRIES
from xccl_emu.lang.requests import SCALAR
from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.a2e_call import COMPUTED, GATHERED, A2EDeployment, Call1, records_at, summed_us, watched
from xccl_emu.papers.bench.layers import TOP_K, Shape, bytes_needed
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.protocols.a2e.session import A2E, A2EConfig, Call, Calls
from xccl_emu.timing.array import PS_PER_US
from xccl_emu.timing.arrival import arrivals, on_cores
from xccl_emu.timing.costs import PASSES, Costs
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.run import Timing

DOMAINS, MICROBATCHES = 3, 2
"""Domains of attention dies, and microbatches of each that take turns."""

LAYERS = 2
"""Layers that are run."""

WATCHED = 8
"""Attention dies of a domain whose log is kept."""

LEFT, BACK = "die left", "rows returned"
"""What the log has of them: that attention is computed, and the poll that sees rows back."""


@dataclass(frozen=True)
class Layers:
    """What the layers that were run took."""

    run_us: float
    """From the start until the last microbatch is back from the last of them."""
    each_us: float
    """From the last but one to the last."""
    layers: int
    a2e_us: float = 0.0
    """From the mean arrival until an expert die has all its rows; in the mean over the calls of the last layer, but for
    the last call, which none follows."""
    e2a_us: float = 0.0
    """From when an expert die has computed until an attention die has its outputs; in the same mean."""

    @property
    def shape(self) -> Shape:
        """Return what results say was run."""
        return {"domains": DOMAINS, "microbatches": MICROBATCHES, "layers": self.layers}

    def all_ms(self, layers: float) -> float:
        """Return the milliseconds that ``layers`` layers take, extrapolated from those that were run."""
        return (self.run_us + (layers - self.layers) * self.each_us) / 1000


def instructions(us: float, costs: Costs) -> int:
    """Return how many vector instructions of `BUSY_ENTRIES` take that long."""
    each = costs.vector_start_ns + BUSY_ENTRIES * PASSES["v_count"] / costs.vector_gelem_s
    return max(0, round(1000 * us / each))


def config_of(one: Call1, setting: Setting, deployment: A2EDeployment, local_experts: int) -> A2EConfig:
    """Return all domains' configuration: each microbatch on half of the cores, with computing as long as published."""
    given = {row.what: 1000 * row.value for row in published.rows("tpot", "input")}
    d, costs = deployment, setting.costs
    return replace(
        d.config(local_experts), n_domains=DOMAINS, microbatches=MICROBATCHES, depth=2,
        cores=max(1, d.cores // MICROBATCHES),
        attention_work=instructions(given["attention, of a microbatch and layer"], costs),
        expert_work=instructions(given["MoE, of a microbatch and layer"] - one.compute_us, costs),
    )  # fmt: skip


def time_layers(one: Call1, setting: Setting, deployment: A2EDeployment, layers: int = LAYERS) -> Layers:
    """Run some layers of all domains and microbatches, without payload, with choices that are the same each time."""
    d = deployment
    what, turns = f"{layers} layers of {DOMAINS} domains", DOMAINS * MICROBATCHES
    rows, cores = d.attention * d.tokens * (TOP_K + 1), DOMAINS * d.attention * d.cores + 3 * d.experts * d.stream_cores
    setting = replace(setting, data=False)
    setting.fitting(what, lambda data: bytes_needed(MICROBATCHES * rows, cores, d.hidden, data))
    placement, routed = d.placed(setting.seed)
    starts = _starts(setting, d)
    seen = watched(d.attention, WATCHED)
    attention = {d.experts + die: us for die, us in enumerate(starts.tolist()) if die % d.attention in seen}
    sites = [GATHERED, COMPUTED, LEFT, BACK]
    pod, policy = setting.pod(log=[*watched(d.experts), *attention], sites=sites)
    policy.start_us = on_cores(starts, range(d.cores), pod.spec.cores_per_die, d.experts)
    group = A2E(pod, config_of(one, setting, d, placement.local_experts))
    call = Call(list(setting.tokens(d.attention, d.tokens, d.hidden)), routed.topk, routed.weights)
    calls = Calls(group, [call] * (layers * turns))
    calls.launch()
    with setting.stage(what) as progress:
        group.run_launched(progress)
    means = starts.reshape(DOMAINS, d.attention).mean(1)
    late = {die: us - float(means[(die - d.experts) // d.attention]) for die, us in attention.items()}
    a2e_us, e2a_us = _under_way(policy.timing, layers, d, late)
    return replace(_layers(policy.timing, layers), a2e_us=a2e_us, e2a_us=e2a_us)


def _starts(setting: Setting, deployment: A2EDeployment) -> NDArray[np.float64]:
    """[dies] of all domains, when they begin."""
    apart = 1000 * published.row("tpot", "attention, of a microbatch and layer").value / DOMAINS
    spread, n = setting.costs.skew_us, deployment.attention
    return np.concatenate([arrivals(n, spread, (setting.seed, 3, i)) + i * apart for i in range(DOMAINS)])


def _under_way(
    timing: Timing, layers: int, deployment: A2EDeployment, late: Mapping[int, float]
) -> tuple[float, float]:
    """Return what A2E and E2A took in the last layer; ``late`` is a logged attention die's delay in its domain."""
    turns, cores = DOMAINS * MICROBATCHES, max(1, deployment.cores // MICROBATCHES)
    gathered, computed = (
        _by_core(records_at(timing, kernel, sync), tl.RECORD_VISIBLE, (layers - 1) * turns, turns)
        for kernel, sync in (("a2e_stream", GATHERED), ("compute_stream", COMPUTED))
    )
    arrived: list[list[float]] = [[] for _ in range(turns)]
    returned: list[list[float]] = [[] for _ in range(turns)]
    for core, (left,) in _by_core(records_at(timing, "attention", LEFT), tl.RECORD_VISIBLE, layers - 1, 1).items():
        die, on_die = divmod(core, timing.cores_per_die)
        arrived[_turn_of(die, on_die // cores, deployment)].append(left - late[die])
    for (die, microbatch), us in summed_us(timing, cores).items():
        returned[_turn_of(die, microbatch, deployment)].append(us)
    there = np.mean([*gathered.values()], 0) - [fmean(each) for each in arrived]
    back = [fmean(each) for each in returned] - np.mean([*computed.values()], 0)
    return float(there[:-1].mean()), float(back[:-1].mean())


def _turn_of(die: int, microbatch: int, deployment: A2EDeployment) -> int:
    """Return the position of a microbatch's calls among the calls of an attention die's layer."""
    return microbatch * DOMAINS + (die - deployment.experts) // deployment.attention


def _by_core(records: NDArray[np.int64], column: int, first: int, n: int) -> dict[int, NDArray[np.float64]]:
    """Return, for each core, a column of ``n`` of its records by time, in us."""
    cores, of = np.unique(records[:, tl.RECORD_CORE], return_inverse=True)
    times = (np.sort(records[of == number, column]) for number in range(len(cores)))
    return {core: of_core[first : first + n] / PS_PER_US for core, of_core in zip(cores.tolist(), times, strict=True)}


def _layers(timing: Timing, layers: int) -> Layers:
    """Return when each layer's rows had returned, on the cores of the attention dies that are in the log."""
    back = _by_core(records_at(timing, "attention", BACK, SCALAR), tl.RECORD_END, 0, layers)
    ends = np.array([*back.values()])
    each = (ends[:, -1] - ends[:, -2]) if layers > 1 else ends[:, -1]
    run_us = max(timing.finished_us[core] for core, kernel in timing.kernels.items() if kernel.name == "attention")
    return Layers(run_us, float(each.mean()), layers)
