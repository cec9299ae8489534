"""One mixture-of-experts layer in virtual time: dispatch, dummy expert, combine, held against the oracle."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu import routing
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384, PodSpec
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.protocol.pod_run import INTERPRETER_BYTES
from xccl_emu.protocol.registry import known
from xccl_emu.protocols.experts.data import count_wrong
from xccl_emu.protocols.experts.group import ExpertGroup
from xccl_emu.protocols.experts.routed import PAGE
from xccl_emu.timing.arrival import Microseconds, Taken, arrivals, on_cores
from xccl_emu.timing.run import Progress, Timing

EXPERTS, TOP_K, HIDDEN = 256, 8, 7168
"""Routed experts, routed choices of a token, and elements of a hidden state, of DeepSeek-V3."""

CORES = 48
"""Cores used on each die."""

Shape = dict[str, int | float | str | bool]
Look = Callable[[str, Timing], None]
"""A function that is given the name of an operator, and its timing."""


def bytes_needed(rows: int, cores: int, hidden: int, data: bool) -> int:
    """Memory that a timed run touches, estimated: interpreter, arrays of times, and rows in all their places.

    Without payload a row has a page on its way there, and one on its way back, for what comes with it.
    """
    return INTERPRETER_BYTES + cores * 20_000 + rows * (8 * hidden + 200 if data else 2 * PAGE + 200)


@dataclass(frozen=True)
class Layer:
    """A batch of tokens on every rank, and where its experts are."""

    ranks: int
    tokens: int
    """Tokens on each rank."""
    hidden: int = HIDDEN
    experts: int = EXPERTS
    top_k: int = TOP_K
    cores: int = CORES
    """Cores used on each die."""
    replicas: int = 0
    """Replicas of the hottest routed experts, one on each rank; if there are any, loads are skewed, else uniform."""
    counting: str = "auto"
    """How places of messages are counted, as `EpConfig.counting`."""

    def bytes_needed(self, data: bool) -> int:
        """Memory that a run touches, estimated."""
        return bytes_needed(self.ranks * self.tokens * (self.top_k + 1), self.ranks * self.cores, self.hidden, data)

    def placed(self, seed: int, number: int = 0) -> tuple[routing.Placement, routing.Routing]:
        """Experts in order, the shared one on its own ranks, and choices as expert slots, the shared last.

        ``number`` is a layer's in a model: with replicas each has loads of its own.
        """
        rng = np.random.default_rng((seed, 1, number) if number else (seed, 1))
        loads = routing.skewed_loads(self.experts, number) if self.replicas else np.ones(self.experts)
        redundancy = routing.Redundancy(self.replicas, loads, slots_per_rank=1, top_k=self.top_k)
        placement = routing.place_experts(self.ranks, self.experts, redundancy=redundancy if self.replicas else None)
        drawn = routing.draw_routing(loads, self.ranks, self.tokens, self.top_k, rng, self.loads)
        return placement, routing.place_choices(drawn, placement)

    @property
    def loads(self) -> str:
        """Return the name of the loads of experts."""
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
        """Return what results say was run."""
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

    def rows(self, setting: Setting, bench: str, what: str, shape: Shape) -> list[Result]:
        """Latency of both, each with its launch."""
        return [
            Result(bench, f"{name}, {what}", setting.operator_us(taken), "us", configuration=shape, wrong=wrong)
            for name, taken, wrong in self.operators
        ]


def group_on(pod: Pod, shape: dict[str, Any], protocol: str = "dispatch") -> ExpertGroup[Any]:
    """A group as the case of that name has them, of a shape as `Layer.config` gives it."""
    of: Any = known(protocol).maker
    group: ExpertGroup[Any] = of.group(pod, of.config(**shape))
    return group


class OnPod:
    """The group of a layer on a pod, with tokens of its shape."""

    def __init__(
        self, setting: Setting, layer: Layer, local_experts: int, protocol: str = "dispatch",
        spec: PodSpec = CLOUDMATRIX384, look: Look | None = None, **switches: Any,
    ) -> None:  # fmt: skip
        """``protocol`` is a case of layers; ``switches`` are more fields of the group's configuration.

        Each operator's timing, with the log of all actions, is given to ``look``.
        """
        name = f"{layer.ranks} ranks, {layer.tokens} tokens"
        setting = setting.fitting(name, layer.bytes_needed)
        spec = replace(spec, cores_per_die=max(spec.cores_per_die, layer.cores))
        self._name, self._setting, self._layer = f"{name}: ", setting, layer
        pod, self.policy = setting.pod(spec, log=look is not None)
        self._look = look
        self._group = group_on(pod, layer.config(local_experts) | switches, protocol)
        self._cores_per_die, nbytes = pod.spec.cores_per_die, switches.get("opaque_bytes", 0)
        shape = layer.ranks, layer.tokens
        self._tokens = np.zeros((*shape, nbytes), np.uint8) if nbytes else setting.tokens(*shape, layer.hidden)

    def dispatch(self, topk: Sequence[NDArray[Any]], starts_us: Microseconds) -> Taken:
        """From when each rank starts."""
        return self._time("dispatch", starts_us, lambda starts: self._group.dispatch(list(self._tokens), topk, starts))

    def combine(self, weights: Sequence[NDArray[np.float32]], starts_us: Microseconds) -> Taken:
        """The same of combine, after the dummy expert, whose time does not count."""
        if self._setting.data:
            self.policy.start_us = {}
            with self._setting.stage(self._name + "expert") as progress:
                self._group.run_dummy(progress)
        return self._time("combine", starts_us, lambda starts: self._group.combine(weights, starts))

    def _time(self, what: str, starts_us: Microseconds, run: Callable[[Progress | None], object]) -> Taken:
        self.policy.start_us = on_cores(starts_us, range(self._layer.cores), self._cores_per_die)
        with self._setting.stage(self._name + what) as progress:
            run(progress)
        if self._look is not None:
            self._look(what, self.policy.timing)
        return Taken.of(self.policy.timing, starts_us)

    def count_wrong(
        self, topk: Sequence[NDArray[Any]], weights: Sequence[NDArray[np.float32]]
    ) -> tuple[int | None, int | None]:
        """Elements of rows and of outputs that are not the oracle's; None without data."""
        if not self._setting.data:
            return None, None
        with self._setting.stage(self._name + "comparison"):
            return count_wrong(self._group, self._tokens, topk, weights)


def time_layer(setting: Setting, layer: Layer, protocol: str = "dispatch", number: int = 0, **switches: Any) -> Timed:
    """Run a layer once on a pod of its own, as `OnPod` has it; ``number`` is the layer's in a model.

    Ranks arrive apart at both operators (`Costs.skew_us`): there is computing before each of them.
    """
    placement, routed = layer.placed(setting.seed, number)
    before = [arrivals(layer.ranks, setting.costs.skew_us, (setting.seed, 3 + op, number)) for op in range(2)]
    on = OnPod(setting, layer, placement.local_experts, protocol, **switches)
    dispatch, combine = on.dispatch(routed.topk, before[0]), on.combine(routed.weights, before[1])
    return Timed(dispatch, combine, *on.count_wrong(routed.topk, routed.weights))
