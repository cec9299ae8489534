"""The decode budget of disaggregated attention and experts (xDeepServe 5.2, 7.1), of layers that are run.

Three domains with two microbatches each go through the persistent streams of the expert dies, layer after layer, and
what the layers take comes of that run.  Attention and experts take as long as published: vector instructions stand in
for them.  Layers behind those that are run take as long as the last of these.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from xccl_emu.bench import a2e, published
from xccl_emu.bench.a2e import ONE_DOMAIN, Call1, Deployment, time_call
from xccl_emu.bench.layers import TOP_K, bytes_needed
from xccl_emu.bench.result import Result
from xccl_emu.bench.setting import DEFAULT, Setting
from xccl_emu.kernels.a2e_parameters import BUSY_ENTRIES
from xccl_emu.lang.requests import SCALAR
from xccl_emu.protocols.a2e import A2E, A2EConfig, Call, Calls
from xccl_emu.timing.array import PS_PER_US
from xccl_emu.timing.costs import PASSES, Costs
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.run import Timing

DOMAINS, MICROBATCHES = 3, 2
"""Domains of attention dies, and microbatches of each that take turns."""

LAYERS = 3
"""That are run."""

TOKENS, CHIPS = DOMAINS * 160 * 96, 384
"""Global batch, and chips of 768 dies."""


@dataclass(frozen=True)
class Layers:
    """What the layers that were run took."""

    run_us: float
    """From the start until the last microbatch is back from the last of them."""
    each_us: float
    """From the last but one to the last."""
    layers: int

    def all_ms(self, layers: float) -> float:
        """Of so many."""
        return (self.run_us + (layers - self.layers) * self.each_us) / 1000


def instructions(us: float, costs: Costs) -> int:
    """How many vector instructions of `BUSY_ENTRIES` take that long."""
    each = costs.vector_start_ns + BUSY_ENTRIES * PASSES["v_count"] / costs.vector_gelem_s
    return max(0, round(1000 * us / each))


def config_of(one: Call1, setting: Setting, deployment: Deployment, local_experts: int) -> A2EConfig:
    """For all domains: each microbatch on half of the cores, with attention and experts as long as published."""
    given = {row.what: 1000 * row.value for row in published.rows("tpot", "input")}
    d, costs = deployment, setting.costs
    return replace(
        d.config(local_experts), n_domains=DOMAINS, microbatches=MICROBATCHES, depth=2,
        cores=max(1, d.cores // MICROBATCHES),
        attention_work=instructions(given["attention, of a microbatch and layer"], costs),
        expert_work=instructions(given["MoE, of a microbatch and layer"] - one.compute_us, costs),
    )  # fmt: skip


def time_layers(one: Call1, setting: Setting, deployment: Deployment, layers: int = LAYERS) -> Layers:
    """Run some layers of all domains and microbatches, without payload, with choices that are the same each time."""
    d = deployment
    what, turns = f"{layers} layers of {DOMAINS} domains", DOMAINS * MICROBATCHES
    rows, cores = d.attention * d.tokens * (TOP_K + 1), DOMAINS * d.attention * d.cores + 3 * d.experts * d.stream_cores
    setting = replace(setting, data=False)
    setting.check_memory(f"{what}:", bytes_needed(layers * turns * rows, cores, d.hidden, data=False))
    placement, routed = d.placed(setting.seed)
    attention = [d.experts + domain * d.attention for domain in range(DOMAINS)]
    pod, policy = setting.pod(log=attention)
    group = A2E(pod, config_of(one, setting, d, placement.local_experts))
    call = Call(list(setting.tokens(d.attention, d.tokens, d.hidden)), routed.topk, routed.weights)
    calls = Calls(group, [call] * (layers * turns))
    calls.launch()
    with setting.stage(what) as progress:
        group.run_launched(progress)
    return _layers(policy.timing, layers)


def _layers(timing: Timing, layers: int) -> Layers:
    """By when the rows of each layer were back, on the cores of the attention dies that are in the log."""
    cores = [core for core, kernel in timing.kernels.items() if kernel.name == "attention"]
    sites = [n for n, site in enumerate(timing.kernels[cores[0]].sites) if site.sync == "rows returned"]
    records = timing.records[timing.records[:, tl.RECORD_ENGINE] == SCALAR]
    records = records[np.isin(records[:, tl.RECORD_SITE], sites) & np.isin(records[:, tl.RECORD_CORE], cores)]
    logged = sorted(set(records[:, tl.RECORD_CORE].tolist()))
    ends = np.array([np.sort(records[records[:, tl.RECORD_CORE] == core, tl.RECORD_END]) for core in logged])
    each = (ends[:, -1] - ends[:, -2]) if layers > 1 else ends[:, -1]
    return Layers(max(timing.finished_us[core] for core in cores), float(each.mean()) / PS_PER_US, layers)


def budget(given: Mapping[str, float], a2e_ms: float, e2a_ms: float, layers_ms: float) -> dict[str, float]:
    """What follows from what was run, by the names of the published rows."""
    forward = given["scheduler"] + given["MTP layer"] + layers_ms
    tpot = forward / (1 + given["acceptance"])
    rate = TOKENS / CHIPS / tpot * 1000
    return {
        "A2E": a2e_ms, "E2A": e2a_ms, "forward": forward, "TPOT": tpot, "tokens a second and chip, at 50 ms": rate,
    }  # fmt: skip


def rows_of(one: Call1, ran: Layers, deployment: Deployment) -> list[Result]:
    """The published budget, and what becomes of it with what was run."""
    given = {row.what: row.value for row in published.rows("tpot", "input")}
    ours = budget(given, one.a2e_us / 1000, one.e2a_us / 1000, ran.all_ms(given["layers"]))
    shape = deployment.shape
    wrong = {"A2E": one.wrong_rows, "E2A": one.wrong_sums}
    rows = [
        Result.of(row, ours.get(row.what, row.value), configuration=shape, wrong=wrong.get(row.what))
        for row in published.rows("tpot")
    ]
    return [*rows, Result("tpot", "a layer of all microbatches, run", ran.each_us / 1000, "ms", configuration=shape)]


def tpot(setting: Setting = DEFAULT, deployment: Deployment = ONE_DOMAIN) -> list[Result]:
    """Time one call, then layers of all domains."""
    one = time_call(setting, deployment)
    return rows_of(one, time_layers(one, setting, deployment), deployment)


def tpot_and_a2e(setting: Setting = DEFAULT, deployment: Deployment = ONE_DOMAIN) -> list[Result]:
    """Time one call, for its own rows and for the budget; then layers of all domains."""
    one = time_call(setting, deployment)
    return [*a2e.rows_of(one, deployment), *rows_of(one, time_layers(one, setting, deployment), deployment)]
