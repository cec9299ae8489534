"""Decode with attention and experts on dies of their own ([xDeepServe] 5.2, 7.1): domains take turns at the experts.

Each domain's groups have two microbatches.  In a layer a microbatch goes through attention, A2E, the experts and E2A;
a group's die computes attention of one microbatch after the other, and A2E, experts and E2A are three streams, each of
which takes one call after the other, in turns (Figure 19).  A step is all layers of all microbatches.  So times add up
and wait for each other, and nothing else happens: a step is simulated by these alone, with A2E and E2A as their
kernels take them.  That the streams themselves hand calls on so is what `a2e_domains` runs.

The decode budget (5.2, 7.1) is of layers that are run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.bench import a2e, published
from xccl_emu.papers.bench.a2e_call import ONE_DOMAIN, A2EDeployment, time_call
from xccl_emu.papers.bench.a2e_domains import DOMAINS, MICROBATCHES, Layers, time_layers
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.serve import OperatorTimes, ServedRequests, ServingPod, StepLoad, rows_of, simulate
from xccl_emu.papers.bench.setting import DEFAULT, Setting

TOKENS, CHIPS = DOMAINS * 160 * 96, 384
"""Global batch, and chips of 768 dies."""


def budget(given: Mapping[str, float], ran: Layers) -> dict[str, float]:
    """Return what follows from what was run, by the names of the published rows."""
    forward = given["scheduler"] + given["MTP layer"] + ran.all_ms(given["layers"])
    tpot = forward / (1 + given["acceptance"])
    rate = TOKENS / CHIPS / tpot * 1000
    return {
        "A2E": ran.a2e_us / 1000, "E2A": ran.e2a_us / 1000, "forward": forward, "TPOT": tpot,
        "tokens a second and chip, at 50 ms": rate,
    }  # fmt: skip


def budget_rows(ran: Layers, deployment: A2EDeployment) -> list[Result]:
    """The published budget, and what becomes of it with what was run."""
    given = {row.what: row.value for row in published.rows("tpot", "input")}
    ours, shape = budget(given, ran), deployment.shape | ran.shape
    each = Result("tpot", "a layer of all microbatches, run", ran.each_us / 1000, "ms", configuration=shape)
    rows = published.rows("tpot")
    return [*(Result.of(row, ours.get(row.what, row.value), configuration=shape) for row in rows), each]


def tpot(setting: Setting = DEFAULT, deployment: A2EDeployment = ONE_DOMAIN) -> list[Result]:
    """Time one call, without payload, for what the dummy expert takes; then layers of all domains."""
    one = time_call(replace(setting, data=False), deployment)
    return budget_rows(time_layers(one, setting, deployment), deployment)


def a2e_and_tpot(setting: Setting = DEFAULT, deployment: A2EDeployment = ONE_DOMAIN) -> list[Result]:
    """The rows of A2E and of the budget, of one run of the call and of the layers."""
    one = time_call(setting, deployment)
    ran = time_layers(one, setting, deployment)
    return [*a2e.rows_of(one, ran, deployment), *budget_rows(ran, deployment)]


RAN_AT = (8, 32, 96)
"""Tokens of a microbatch at which A2E and E2A are run."""
APART = ServingPod(groups=480, domains=3, expert_dies=288, batch=96, kv_tokens=640_000)
"""As published: 96 requests of 4K fit 45 GB of a die, on which no expert is."""


@dataclass(frozen=True)
class Turn:
    """A microbatch of a domain, and what it takes in a layer; us."""

    domain: int
    attention: float
    a2e: float
    experts: float
    e2a: float


def pipeline_us(turns: Sequence[Turn], layers: int, begins: Sequence[float]) -> float:
    """Return when the last microbatch is back from the last layer, in us; ``begins`` has when each domain begins."""
    attention, back = [*begins], [begins[turn.domain] for turn in turns]
    a2e = experts = e2a = 0.0
    for _ in range(layers):
        for i, turn in enumerate(turns):
            attention[turn.domain] = ready = max(attention[turn.domain], back[i]) + turn.attention
            a2e = max(a2e, ready) + turn.a2e
            experts = max(experts, a2e) + turn.experts
            e2a = back[i] = max(e2a, experts) + turn.e2a
    return max(back)


@dataclass(frozen=True)
class Apart:
    """What A2E and E2A take."""

    a2e: OperatorTimes
    e2a: OperatorTimes

    @classmethod
    def run(cls, setting: Setting, of: ServingPod) -> "Apart":
        """Run a call of one domain at some sizes, without payload."""
        one = replace(ONE_DOMAIN, attention=of.groups // of.domains, experts=of.expert_dies)
        calls = [time_call(replace(setting, data=False), replace(one, tokens=tokens)) for tokens in RAN_AT]
        tokens = np.array(RAN_AT, np.float64)
        return cls(OperatorTimes(tokens, np.array([each.a2e_us for each in calls])),
                   OperatorTimes(tokens, np.array([each.e2a_us for each in calls])))  # fmt: skip

    def turns(self, load: StepLoad, of: ServingPod) -> list[Turn]:
        """The calls of a layer in their order, each as long as the fullest group of its domain makes it."""
        shape = of.domains, of.groups // of.domains, -1
        found = []
        for first in range(MICROBATCHES):
            requests = load.busy[:, first::MICROBATCHES].sum(axis=1).reshape(shape[:2])
            cached = load.used[:, first::MICROBATCHES].sum(axis=1).reshape(shape[:2])
            for domain in range(of.domains):
                tokens = 2 * int(requests[domain].max(initial=0))
                found.append(Turn(
                    domain, load.attention_us * int(cached[domain].max(initial=0)), self.a2e.at(tokens),
                    load.experts_us(2 * int(requests[domain].sum()), of.top_k), self.e2a.at(tokens),
                ))  # fmt: skip
        return found

    def layers_ms(self, load: StepLoad, of: ServingPod) -> float:
        """Domains begin a part of an attention apart, as those that are run do, and later if a group of theirs is."""
        turns = self.turns(load, of)
        apart = max(turn.attention for turn in turns) / of.domains
        late_us = 1000 * load.late_ms.reshape(of.domains, -1).max(axis=1)
        return pipeline_us(turns, of.layers, [i * apart + us for i, us in enumerate(late_us.tolist())]) / 1000


def serve_apart(setting: Setting, deployment: ServingPod, workload: ServedRequests) -> list[Result]:
    """Do as `serve.serve`; ConfigError unless domains are of one size, with no more dies than there are of experts."""
    if deployment.groups % deployment.domains:
        raise ConfigError(f"--ranks {deployment.groups}: must be a multiple of --domains {deployment.domains}")
    if deployment.groups > deployment.domains * deployment.expert_dies:
        raise ConfigError(f"--expert-dies {deployment.expert_dies}: must be at least the dies of a domain, "
                          f"{deployment.groups // deployment.domains}")  # fmt: skip
    return rows_of(simulate(deployment, workload, Apart.run(setting, deployment), setting), APART)
