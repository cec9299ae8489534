"""One mixture-of-experts layer in virtual time: dispatch, dummy expert, combine, held against the oracle."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from xccl_emu import routing
from xccl_emu.bench.setting import Setting
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol.registry import known
from xccl_emu.protocols.compared import count_wrong
from xccl_emu.protocols.expert_group import ExpertGroup
from xccl_emu.timing.arrival import Taken, arrivals, on_cores

__all__ = ["Layer", "Timed", "count_wrong", "group_on", "time_layer"]

EXPERTS, TOP_K, HIDDEN = 256, 8, 7168
"""Routed experts, routed choices of a token, and elements of a hidden state, of DeepSeek-V3."""

CORES = 48
"""Of a die."""

Shape = dict[str, int | float | str | bool]


def bytes_needed(rows: int, cores: int, hidden: int, data: bool) -> int:
    """Memory that a timed run touches, estimated: interpreter, arrays of times, and rows in all their places."""
    payload = rows * 8 * hidden if data else 0
    return (700 << 20) + cores * 20_000 + rows * 200 + payload


@dataclass(frozen=True)
class Layer:
    """A batch of tokens on every rank, and where its experts are."""

    ranks: int
    tokens: int
    """Of each rank."""
    hidden: int = HIDDEN
    experts: int = EXPERTS
    top_k: int = TOP_K
    cores: int = CORES
    """Of each die."""
    replicas: int = 0
    """Of the hottest routed experts, in a slot that each rank has for one; then loads are skewed, else uniform."""
    counting: str = "auto"
    """How places of messages are counted, as `EpConfig.counting`."""

    def bytes_needed(self, data: bool) -> int:
        """Memory that a run touches, estimated."""
        return bytes_needed(self.ranks * self.tokens * (self.top_k + 1), self.ranks * self.cores, self.hidden, data)

    def placed(self, seed: int, number: int = 0) -> tuple[routing.Placement, routing.Routing]:
        """Experts in order, the shared one on its own ranks, and choices as expert slots, the shared last.

        ``number`` is that of a layer of a model: with replicas each has loads of its own.
        """
        rng = np.random.default_rng((seed, 1, number) if number else (seed, 1))
        loads = routing.skewed_loads(self.experts, number) if self.replicas else np.ones(self.experts)
        redundancy = routing.Redundancy(self.replicas, loads, slots_per_rank=1, top_k=self.top_k)
        placement = routing.place_experts(
            self.ranks, self.experts, redundancy=redundancy if self.replicas else None
        )
        drawn = routing.draw_routing(loads, self.ranks, self.tokens, self.top_k, rng, self.loads)
        return placement, routing.place_choices(drawn, placement)

    @property
    def loads(self) -> str:
        """How the loads of experts are called."""
        return "Zipf-like" if self.replicas else "uniform"

    def config(self, local_experts: int) -> dict[str, Any]:
        """Fields of a group's configuration; ``local_experts`` slots a rank, the shared expert's too."""
        return {
            "n_ranks": self.ranks, "local_experts": local_experts, "hidden": self.hidden,
            "top_k": self.top_k + 1, "tokens_max": max(1, self.tokens), "shared": True, "cores": self.cores,
            "counting": self.counting,
        }  # fmt: skip

    @property
    def shape(self) -> Shape:
        """What results say was run."""
        return {
            "ranks": self.ranks, "tokens": self.tokens, "hidden": self.hidden, "experts": self.experts,
            "top_k": self.top_k, "cores": self.cores, "routing": self.loads, "replicas": self.replicas,
        }  # fmt: skip


@dataclass(frozen=True)
class Timed:
    """What a layer took."""

    dispatch: Taken
    combine: Taken
    wrong_rows: int | None
    """Elements of rows, routes and counts that differ from the oracle's; None if nothing was compared."""
    wrong_sums: int | None
    """The same of outputs."""

    @property
    def operators(self) -> tuple[tuple[str, Taken, int | None], ...]:
        """Name, latencies and wrong elements of both."""
        return ("dispatch", self.dispatch, self.wrong_rows), ("combine", self.combine, self.wrong_sums)


def group_on(pod: Pod, shape: dict[str, Any], protocol: str = "dispatch") -> ExpertGroup[Any]:
    """A group as the case of that name has them, of a shape as `Layer.config` gives it."""
    of: Any = known(protocol).maker
    group: ExpertGroup[Any] = of.group(pod, of.config(**shape))
    return group


def time_layer(setting: Setting, layer: Layer, protocol: str = "dispatch", number: int = 0, **switches: Any) -> Timed:
    """Run a layer once on a pod of its own.

    ``protocol`` is a case of layers, ``number`` that of the layer in a model; ``switches`` are more fields of the
    group's configuration.

    Ranks arrive apart at both operators (`Costs.skew_us`): there is computing before each of them.
    """
    name = f"{layer.ranks} ranks, {layer.tokens} tokens: "
    setting.check_memory(name.strip(), layer.bytes_needed(setting.data))
    placement, routed = layer.placed(setting.seed, number)
    before = [arrivals(layer.ranks, setting.costs.skew_us, (setting.seed, 3 + op, number)) for op in range(2)]
    pod, policy = setting.pod()
    group = group_on(pod, layer.config(placement.local_experts) | switches, protocol)
    tokens = setting.tokens(layer.ranks, layer.tokens, layer.hidden)
    policy.start_us = on_cores(before[0], range(layer.cores), pod.spec.cores_per_die)
    with setting.stage(name + "dispatch") as progress:
        group.dispatch(list(tokens), routed.topk, progress)
    dispatch = Taken.of(policy.timing, before[0])
    if setting.data:
        policy.start_us = {}
        with setting.stage(name + "expert") as progress:
            group.run_dummy(progress)
    policy.start_us = on_cores(before[1], range(layer.cores), pod.spec.cores_per_die)
    with setting.stage(name + "combine") as progress:
        group.combine(routed.weights, progress)
    combine = Taken.of(policy.timing, before[1])
    with setting.stage(name + "comparison"):
        wrong = count_wrong(group, tokens, routed.topk, routed.weights) if setting.data else (None, None)
    return Timed(dispatch, combine, *wrong)
