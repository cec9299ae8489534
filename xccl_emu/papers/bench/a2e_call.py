"""A2E and E2A by themselves: one call of one domain of attention dies ([xDeepServe] 3.3).

Attention dies arrive at A2E apart, as ranks do at every operator; and so, on the average, does an expert die that waits
for them.  At E2A expert dies are apart by what A2E and their rows made of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from xccl_emu import routing
from xccl_emu.lang.requests import MTU_OUT
from xccl_emu.papers.bench.layers import EXPERTS, HIDDEN, TOP_K, Shape, bytes_needed
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.protocols.a2e import data
from xccl_emu.protocols.a2e.session import A2E, A2EConfig, Call, Calls
from xccl_emu.timing.array import PS_PER_US
from xccl_emu.timing.arrival import arrivals, on_cores
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.run import Timing

WATCHED = 32
"""Expert dies, evenly spaced, whose log is kept: their mean represents the mean over all."""

GATHERED, COMPUTED = "rows gathered", "rows computed"
"""What the log has of them: the flags by which an expert die says so."""


@dataclass(frozen=True)
class A2EDeployment:
    """Attention dies of one domain, and expert dies; the other domains wait for their turn meanwhile."""

    attention: int = 160
    experts: int = 288
    """Expert dies."""
    tokens: int = 96
    """Tokens on each attention die."""
    hidden: int = HIDDEN
    cores: int = 48
    """Cores used on each attention die."""
    stream_cores: int = 16
    """Cores of each of the three streams of an expert die."""
    trampolines: int = 0
    """Expert dies that forward; 0 means as many as there are attention dies."""
    a2e_parts: int = 1
    """In which a batch goes to the experts."""
    e2a_parts: int = 1
    """In which it comes back."""
    path: str = "mtu"
    """How data travels."""

    def config(self, local_experts: int) -> A2EConfig:
        """Return the configuration for one domain."""
        return A2EConfig(
            1, self.attention, self.experts, local_experts=local_experts, hidden=self.hidden, top_k=TOP_K + 1,
            tokens_max=self.tokens, shared=True, depth=1, cores=self.cores, a2e_cores=self.stream_cores,
            compute_cores=self.stream_cores, e2a_cores=self.stream_cores, n_trampolines=self.trampolines,
            a2e_parts=self.a2e_parts, e2a_parts=self.e2a_parts, path=self.path,
        )  # fmt: skip

    def placed(self, seed: int) -> tuple[routing.Placement, routing.Routing]:
        """Experts in order, the shared one on its own dies, and uniform choices of one call."""
        placement = routing.place_experts(self.experts, EXPERTS)
        rng = np.random.default_rng((seed, 1))
        drawn = routing.draw_routing(np.ones(EXPERTS), self.attention, self.tokens, TOP_K, rng, "uniform")
        return placement, routing.place_choices(drawn, placement)

    @property
    def shape(self) -> Shape:
        """Return what results say was run."""
        return {
            "attention": self.attention, "experts": self.experts, "tokens": self.tokens, "hidden": self.hidden,
            "cores": self.cores, "stream_cores": self.stream_cores, "routing": "uniform", "path": self.path,
            "a2e_parts": self.a2e_parts, "e2a_parts": self.e2a_parts,
        }  # fmt: skip


ONE_DOMAIN = A2EDeployment(a2e_parts=2, e2a_parts=4)
"""The published one; nothing was published of parts."""

@dataclass(frozen=True)
class Call1:
    """What one call took."""

    a2e_us: float
    """From the mean arrival until an expert die has all its rows, in the mean over expert dies."""
    e2a_us: float
    """From when an expert die has computed until an attention die has its outputs, each in the mean over dies."""
    compute_us: float
    """Between the two."""
    wrong_rows: int | None
    """Elements that the expert dies received wrong; None if nothing was compared."""
    wrong_sums: int | None
    """The same of outputs."""


def time_call(setting: Setting, deployment: A2EDeployment = ONE_DOMAIN) -> Call1:
    """Run one call on a pod of its own, with a log in which the moments between the operators are found."""
    d = deployment
    rows, cores = d.attention * d.tokens * (TOP_K + 1), d.attention * d.cores + 3 * d.experts * d.stream_cores
    what = f"{d.attention} attention dies, {d.experts} expert dies"
    setting = setting.fitting(what, lambda data: bytes_needed(rows, cores, d.hidden, data))
    placement, routed = d.placed(setting.seed)
    pod, policy = setting.pod(log=watched(d.experts), sites=[GATHERED, COMPUTED])
    tokens = setting.tokens(d.attention, d.tokens, d.hidden)
    group = A2E(pod, d.config(placement.local_experts))
    call = Call(list(tokens), [*routed.topk], [*routed.weights])
    calls = Calls(group, [call])
    calls.launch()
    starts = arrivals(d.attention, setting.costs.skew_us, (setting.seed, 3))
    policy.start_us = on_cores(starts, range(d.cores), pod.spec.cores_per_die, calls.dies(0)[0])
    with setting.stage(what) as progress:
        group.run_launched(progress)
    with setting.stage("comparison"):
        wrong = data.count_wrong(calls, 0, call) if setting.data else (None, None)
    assembled, computed, returned = moments(policy.timing, d.cores)
    return Call1(assembled - float(starts.mean()), returned - computed, computed - assembled, *wrong)


def watched(dies: int, most: int = WATCHED) -> range:
    """Evenly spaced ones of this many dies."""
    each = max(1, dies // most)
    return range(each // 2, dies, each)


def moments(timing: Timing, cores: int) -> tuple[float, float, float]:
    """Return when a logged die had gathered and computed, and an attention die with ``cores`` cores summed, the first
    call, in us, each in the mean."""
    gathered, computed = _first(timing, "a2e_stream", GATHERED), _first(timing, "compute_stream", COMPUTED)
    return _mean_us(gathered), _mean_us(computed), fmean(summed_us(timing, cores).values())


def summed_us(timing: Timing, cores: int) -> dict[tuple[int, int], float]:
    """Return by attention die and microbatch, each on ``cores`` cores, when the sums of its last call were in memory.

    The first core of a microbatch announces the end of the streams after its sums, so that core is left out if there
    are others.
    """
    last: dict[tuple[int, int], float] = {}
    for core, kernel in timing.kernels.items():
        die, on_die = divmod(core, timing.cores_per_die)
        microbatch, index = divmod(on_die, cores)
        if kernel.name == "attention" and (index or cores == 1):
            last[die, microbatch] = max(timing.finished_us[core], last.get((die, microbatch), 0.0))
    return last


def _mean_us(last: Mapping[int, int]) -> float:
    """Return the mean over dies, of picoseconds."""
    return fmean(last.values()) / PS_PER_US


def records_at(timing: Timing, kernel: str, sync: str, engine: int = MTU_OUT) -> NDArray[np.int64]:
    """Return what an engine of cores that run a kernel did at the sites of a synchronization."""
    cores = [core for core, running in timing.kernels.items() if running.name == kernel]
    wanted = [number for number, site in enumerate(timing.kernels[cores[0]].sites) if site.sync == sync]
    records = timing.records[timing.records[:, tl.RECORD_ENGINE] == engine]
    records = records[np.isin(records[:, tl.RECORD_SITE], wanted)]
    return np.asarray(records[np.isin(records[:, tl.RECORD_CORE], cores)])


def _first(timing: Timing, kernel: str, sync: str) -> Mapping[int, int]:
    """Return, for each die, when the last of its cores' first writes became visible: the first call's, since the end is
    announced, too."""
    found = records_at(timing, kernel, sync)
    found = found[np.argsort(found[:, tl.RECORD_VISIBLE], kind="stable")]
    cores, first = np.unique(found[:, tl.RECORD_CORE], return_index=True)
    last: dict[int, int] = {}
    for core, visible in zip(cores.tolist(), found[first, tl.RECORD_VISIBLE].tolist(), strict=True):
        die = core // timing.cores_per_die
        last[die] = max(visible, last.get(die, 0))
    return last
