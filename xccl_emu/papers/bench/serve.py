"""Decode of a pod, step by step: arrivals, uneven experts, stragglers, and a die that is lost ([xDeepServe] 4.3-7.1).

A *group* is a die with requests of its own (DP); experts are spread over all of them (EP), or are on dies of their own
(`serve_apart`).  In a step every request gets one token, and with multi-token prediction perhaps a second one.  All
groups wait for each other in each layer, so a step is as long as the fullest group's: attention, dispatch,
experts and combine of each layer, and what the scheduler takes.

Operators take what their kernels take in virtual time (`OperatorTimes`), run at some sizes of a batch; between these it
is interpolated.  Attention and experts are inputs, in proportion to tokens of the cache and to rows.

Which group gets which request is said by pure functions of what a scheduler knows (4.3).
"""

import heapq
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xccl_emu import routing
from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.layers import Layer, time_layer
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import DEFAULT, Setting

FULL = -1


def least_used(kv_tokens: NDArray[np.int64], running: NDArray[np.int64], batch: int, capacity: int, need: int) -> int:
    """The group of decode that gets a request: of those with room, the one whose KV cache is least used.

    kv_tokens: [groups] tokens of the cache in use or reserved.  running: [groups] requests.
    batch, capacity: most requests of a group, and tokens of its cache.  need: tokens that the request may come to.
    Returns the number of the group, or FULL if none has room.
    """
    room = (running < batch) & (kv_tokens + need <= capacity)
    return int(np.where(room, kv_tokens, np.iinfo(np.int64).max).argmin()) if room.any() else FULL


class ByTurns:
    """What `least_used` is compared with: the next group with room after the one that was chosen last."""

    _last = -1

    def __call__(
        self, kv_tokens: NDArray[np.int64], running: NDArray[np.int64], batch: int, capacity: int, need: int
    ) -> int:
        """Takes and returns what `least_used` does."""
        room = np.flatnonzero((running < batch) & (kv_tokens + need <= capacity))
        if not len(room):
            return FULL
        self._last = int(next(iter(room[room > self._last]), room[0]))
        return self._last


Policy = Callable[[NDArray[np.int64], NDArray[np.int64], int, int, int], int]
POLICIES: Mapping[str, Callable[[], Policy]] = {"least-kv": lambda: least_used, "round-robin": ByTurns}
"""How a group of decode is chosen, by name: a function that makes the policy."""


def longest_first(costs: ArrayLike, groups: int) -> NDArray[np.int64]:
    """The group of prefill of each request: the most costly first, each to the group that has least so far.

    costs: [requests] what each takes, less what of its prompt is cached.  Returns [requests] groups.
    """
    given = np.asarray(costs, np.float64)
    chosen = np.zeros(len(given), np.int64)
    loads = [(0.0, group) for group in range(groups)]
    for request in np.argsort(-given, kind="stable"):
        load, group = heapq.heappop(loads)
        chosen[request] = group
        heapq.heappush(loads, (load + float(given[request]), group))
    return chosen


RAN_AT = (8, 32, 120)
"""Tokens of a rank at which dispatch and combine are run."""
ATTENTION_TOKENS = 48 * 3072
"""Tokens of the caches for which attention of a layer takes as published: a microbatch has 96 tokens, two of each of 48
requests, of 2K and 2K in the mean."""
EXPERT_ROWS = 160 * 96 * 9 / 288
"""Rows of an expert die for which its computing takes as published."""
EXPERT_BYTES, DRAM_GB_S = 3 * 7168 * 2048, 147.0
"""Weights of an expert in INT8, and how fast a die reads them from a CPU's memory ([CloudMatrix384], Table 1)."""


DRIFT = 0.1
"""How far loads move, of the way to unrelated ones, from one placement of replicas to the next: an assumption."""


@dataclass(frozen=True)
class ServingPod:
    """Dies, and what a request may take of them."""

    groups: int = 288
    domains: int = 0
    """Domains that the groups form, apart from the experts; 0 if every group's die has experts too."""
    expert_dies: int = 288
    """Apart from the groups, if there are domains."""
    batch: int = 60
    """Most requests of a group."""
    kv_tokens: int = 400_000
    """Tokens of a group's cache: 28 GB of DeepSeek-R1's 70,272 bytes each."""
    layers: int = 61
    experts: int = 256
    top_k: int = 9
    """Choices of a token, the shared expert among them."""
    acceptance: float = 0.9
    """How often the second token of a step is accepted."""
    scheduler_ms: float = 2.0

    @property
    def chips(self) -> float:
        """Chips of all dies."""
        return (self.groups + self.expert_dies * bool(self.domains)) / 2


@dataclass(frozen=True)
class ServedRequests:
    """Requests, and what goes wrong."""

    steps: int = 10_000
    rate: float = 0.0
    """Requests a second; 0 for as many as fit."""
    prompt: int = 2048
    """Tokens of a prompt, in the mean; drawn from half to one and a half of it where requests arrive by a rate."""
    output: int = 2048
    """Tokens of an answer, likewise."""
    rebalance: int = 1000
    """Steps between two placements of replicas, by the loads of the steps before; 0 for no replicas."""
    stall: float = 0.0
    """How often a group comes late to a step."""
    stall_ms: float = 100.0
    """By how much."""
    lost_at: int = -1
    """The step in which a die stops; -1 for none."""
    lost: str = "attention"
    """Which, where the groups are apart from the experts: attention or experts."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a step of the loss that there is not."""
        if self.lost_at >= self.steps:
            raise ConfigError("lost_at", self.lost_at, f"must be below steps={self.steps}")


@dataclass(frozen=True, eq=False)
class OperatorTimes:
    """What an operator takes, by tokens of a rank: microseconds, if nothing else is said."""

    tokens: NDArray[np.float64]
    us: NDArray[np.float64]

    def at(self, tokens: float) -> float:
        """Interpolated; above the largest that was run, in proportion."""
        if tokens > self.tokens[-1]:
            return float(self.us[-1] * tokens / self.tokens[-1])
        return float(np.interp(tokens, self.tokens, self.us))


@dataclass(frozen=True, eq=False)
class StepLoad:
    """What a step is for."""

    busy: NDArray[np.bool_]
    """[groups, slots] that have a request."""
    used: NDArray[np.int64]
    """[groups, slots] tokens in its cache."""
    hot: float
    """Rows of the hottest expert die over the mean."""
    expert_dies: int
    late_ms: NDArray[np.float64]
    """[groups] by how much each comes late."""

    @cached_property
    def attention_us(self) -> float:
        """Return what attention of a layer takes for a token of the cache: as published, in proportion."""
        return 1000 * published.row("tpot", "attention, of a microbatch and layer").value / ATTENTION_TOKENS

    def experts_us(self, tokens: float, top_k: int) -> float:
        """Return what the hottest expert die computes for tokens of all groups: as published, in proportion."""
        us = 1000 * published.row("tpot", "MoE, of a microbatch and layer").value
        return us * tokens * top_k / self.expert_dies * self.hot / EXPERT_ROWS


class Pace(Protocol):
    """What the layers of a step take."""

    def layers_ms(self, load: StepLoad, of: ServingPod) -> float:
        """Milliseconds of all layers, with those that are late."""


@dataclass(frozen=True)
class Colocated:
    """Every die has attention and experts: dispatch and combine together go from all to all."""

    both: OperatorTimes

    @classmethod
    def run(cls, setting: Setting, ranks: int) -> "Colocated":
        """Run both at some sizes, without payload: mean rank, and launch."""
        taken = []
        for tokens in RAN_AT:
            timed = time_layer(replace(setting, data=False), Layer(ranks=ranks, tokens=tokens, replicas=ranks))
            taken.append(sum(setting.operator_us(each) for _, each, _ in timed.operators))
        return cls(OperatorTimes(np.array(RAN_AT, np.float64), np.array(taken)))

    def layers_ms(self, load: StepLoad, of: ServingPod) -> float:
        """Add up the layers, each as long as in the fullest group."""
        requests = load.busy.sum(axis=1)
        layer_us = load.attention_us * int(load.used.sum(axis=1).max(initial=0))
        layer_us += self.both.at(2 * int(requests.max(initial=0))) + load.experts_us(2 * int(requests.sum()), of.top_k)
        return of.layers * layer_us / 1000 + float(load.late_ms.max(initial=0))


@dataclass
class ArrivedRequest:
    """One that has arrived."""

    number: int
    arrived_ms: float
    prompt: int
    """Tokens that are in its cache when decode begins."""
    left: int
    """Tokens that it is still to get."""


@dataclass
class Served:
    """What a simulation came to."""

    ms: float = 0.0
    tokens: int = 0
    finished: list[int] = field(default_factory=list)
    """Numbers of requests, in the order of their ends."""
    tpot_ms: list[float] = field(default_factory=list)
    """Milliseconds a token of each finished request, from its first step to its last."""
    waited_ms: list[float] = field(default_factory=list)
    """How long each waited for room."""
    step_ms: list[float] = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    """Tokens, by step."""
    uneven: list[float] = field(default_factory=list)
    """Tokens of the fullest cache over the mean, by step."""


class DecodeGroups:
    """Groups with slots for requests; `step` goes on by one token or two for each of them."""

    choose: Policy = staticmethod(least_used)

    def __init__(self, deployment: ServingPod, workload: ServedRequests, pace: Pace, seed: int) -> None:
        self.of, self.load, self.pace = deployment, workload, pace
        self._rng = np.random.default_rng((seed, 11))
        shape = deployment.groups, deployment.batch
        self.left, self.used, self.reserved = (np.zeros(shape, np.int64) for _ in range(3))
        self._number, self._tokens = np.full(shape, -1), np.zeros(shape, np.int64)
        self._began = np.zeros(shape)
        self.alive = np.ones(deployment.groups, bool)
        self.waiting: deque[ArrivedRequest] = deque()
        self.served, self._arrived, self._next_ms = Served(), 0, 0.0
        self._hot, self._expert_dies = 1.0, deployment.expert_dies if deployment.domains else deployment.groups
        self._mtp_ms = published.row("tpot", "MTP layer").value

    # ---- requests

    def arrive(self) -> None:
        """Requests that have arrived by now wait; without a rate, as many as there are free slots."""
        if self.load.rate == 0:
            for _ in range(int((self.left[self.alive] == 0).sum()) - len(self.waiting)):
                done = int(self._rng.integers(self.load.output)) if not self.served.ms else 0  # as if long under way
                self._ask(self.load.prompt + done, self.load.output - done)
            return
        while self._next_ms <= self.served.ms:
            spread = self._rng.uniform(0.5, 1.5, 2)
            self._ask(int(self.load.prompt * spread[0]), max(1, int(self.load.output * spread[1])))
            self._next_ms += self._rng.exponential(1000 / self.load.rate)

    def _ask(self, prompt: int, output: int) -> None:
        self.waiting.append(ArrivedRequest(self._arrived, max(self._next_ms, 0.0), prompt, output))
        self._arrived += 1

    def admit(self) -> None:
        """Requests get slots in the order of their arrival, as long as the first one has room somewhere."""
        reserved = self.reserved.sum(axis=1)
        running = np.where(self.alive, (self.reserved > 0).sum(axis=1), self.of.batch)
        while self.waiting:
            first = self.waiting[0]
            need = first.prompt + first.left
            group = self.choose(reserved, running, self.of.batch, self.of.kv_tokens, need)
            if group == FULL:
                return
            self.waiting.popleft()
            reserved[group] += need
            running[group] += 1
            slot = int(np.argmin(self.reserved[group] > 0))
            self.reserved[group, slot], self._number[group, slot] = need, first.number
            self.served.waited_ms.append(self.served.ms - first.arrived_ms if self.load.rate else 0.0)
            self.put(first, (group, slot))

    def put(self, request: ArrivedRequest, slot: tuple[int, int]) -> None:
        """The cache of a request is there: it decodes from the next step on."""
        self.left[slot], self.used[slot], self._tokens[slot] = request.left, request.prompt, 0
        self._began[slot] = self.served.ms

    def lose_die(self) -> float:
        """Lose a die of attention, of experts, or of both; return the milliseconds until its weights are there."""
        if not self.of.domains or self.load.lost == "attention":
            self.lose(int(np.flatnonzero(self.alive)[0]))
        if self.of.domains and self.load.lost == "attention":
            return 0.0
        self._expert_dies -= 1
        return 1000 * self.of.layers * EXPERT_BYTES / (DRAM_GB_S * 1e9)

    def lose(self, group: int) -> None:
        """A die stops: its requests wait again, first of all, and take what they have as their prompt."""
        for slot in np.flatnonzero(self.left[group] > 0):
            has, left = int(self.used[group, slot]), int(self.left[group, slot])
            self.waiting.appendleft(ArrivedRequest(int(self._number[group, slot]), self.served.ms, has, left))
        self.alive[group] = False
        for each in (self.left, self.used, self.reserved):
            each[group] = 0

    # ---- time

    def rebalance(self, number: int) -> None:
        """Loads drift; experts have replicas by the loads at the last placement, if there are any."""
        before, now = (routing.skewed_loads(self.of.experts, n) for n in (number, number + 1))
        dies = self.of.expert_dies if self.of.domains else self.of.groups
        redundancy = routing.Redundancy(dies, before, slots_per_rank=1, top_k=self.of.top_k - 1)
        placement = routing.place_experts(
            dies, self.of.experts, redundancy=redundancy if self.load.rebalance else None
        )  # fmt: skip
        self._hot = hottest(placement, (1 - DRIFT) * before + DRIFT * now, self.of.top_k - 1)

    def step_ms(self, late_ms: NDArray[np.float64]) -> float:
        """A step of the requests that there are, if groups are late by so much, [groups]."""
        load = StepLoad(self.left > 0, self.used, self._hot, self._expert_dies, late_ms)
        return self.pace.layers_ms(load, self.of) + self._mtp_ms + self.of.scheduler_ms

    def step(self, number: int) -> None:
        """Arrivals, admission, and a token or two for each request."""
        served = self.served
        if number % max(1, self.load.rebalance) == 0:
            self.rebalance(number)
        self.arrive()
        self.admit()
        late = self.alive & (self._rng.random(self.of.groups) < self.load.stall)
        taken = self.step_ms(np.where(late, self.load.stall_ms, 0.0))
        if number == self.load.lost_at:  # the iteration is executed again, by those that are left
            taken += self.step_ms(np.zeros(self.of.groups)) + self.lose_die()
        busy = self.left > 0
        served.ms += taken
        served.step_ms.append(taken)
        mean = self.used[self.alive].sum(axis=1).mean()
        served.uneven.append(float(self.used.sum(axis=1).max() / mean) if mean else 1.0)
        made = np.minimum(busy * (1 + (self._rng.random(busy.shape) < self.of.acceptance)), self.left)
        self.left -= made
        self.used += made
        self._tokens += made
        served.tokens += int(made.sum())
        served.made.append(int(made.sum()))
        self.finish(busy & (self.left == 0))

    def finish(self, ended: NDArray[np.bool_]) -> None:
        """Requests of these slots, [groups, slots], have their last token."""
        served = self.served
        served.finished += self._number[ended].tolist()
        served.tpot_ms += ((served.ms - self._began[ended]) / self._tokens[ended]).tolist()
        self.used[ended] = self.reserved[ended] = self._tokens[ended] = 0

    def check(self) -> int:
        """Return how many requests were lost, or served twice."""
        return wrong_numbers(self._arrived, self.known)

    @property
    def known(self) -> list[int]:
        """Return the numbers of requests that have finished, have a slot, or wait for one."""
        slots = self._number[self.reserved > 0].tolist()
        return [*self.served.finished, *slots, *(one.number for one in self.waiting)]


def wrong_numbers(arrived: int, known: list[int]) -> int:
    """Return how many of the requests that have arrived are missing among those known, or there twice."""
    return len(set(range(arrived)).symmetric_difference(known)) + len(known) - len(set(known))


def hottest(placement: routing.Placement, loads: NDArray[np.float64], top_k: int) -> float:
    """Rows of the die that has most over the mean: copies of an expert share its load, and so does the shared one's.

    loads: [experts] of routed experts; a token chooses ``top_k``.
    """
    rows = np.zeros(placement.n_ranks)
    for load, slots in zip(loads, placement.copies, strict=True):
        np.add.at(rows, np.array(slots) // placement.local_experts, load / len(slots))
    rows[placement.routed_ranks :] += loads.sum() / top_k / placement.shared_ranks
    return float(rows.max() / rows.mean())


def simulate(deployment: ServingPod, workload: ServedRequests, pace: Pace, setting: Setting) -> DecodeGroups:
    """All steps; the decode as it is then."""
    decode = DecodeGroups(deployment, workload, pace, setting.seed)
    with setting.stage(f"{workload.steps} steps of {deployment.groups} groups"):
        for number in range(workload.steps):
            decode.step(number)
    return decode


def rows_of(decode: DecodeGroups, usual: ServingPod = ServingPod()) -> list[Result]:
    """Return what was published for full groups, and what else there is to say; ``usual`` is as published."""
    served, deployment, load = decode.served, decode.of, decode.load
    bench = "serve apart" if deployment.domains else "serve"
    shape = {**vars(deployment), **vars(load)}
    rate = 1000 * served.tokens / served.ms
    made = {
        "step": served.ms / len(served.step_ms), "TPOT": float(np.mean(served.tpot_ms or [0.0])),
        "tokens a second": rate, "tokens a second and chip": rate / deployment.chips,
    }  # fmt: skip
    as_published = replace(load, steps=ServedRequests.steps) == ServedRequests() and deployment == usual
    rows = [
        Result.of(row, made[row.what], configuration=shape)
        if as_published
        else Result(bench, row.what, made[row.what], row.unit, configuration=shape)
        for row in published.rows(bench)
    ]
    more = {
        "TPOT, 99% below": (float(np.quantile(served.tpot_ms or [0.0], 0.99)), "ms"),
        "longest step": (max(served.step_ms), "ms"),
        "wait for room, 99% below": (float(np.quantile(served.waited_ms or [0.0], 0.99)), "ms"),
        "fullest cache over the mean": (float(np.mean(served.uneven)), "ratio"),
        "requests finished": (len(served.finished), "count"),
    }
    rows += [Result(bench, what, value, unit, configuration=shape) for what, (value, unit) in more.items()]
    return [*rows, Result(bench, "requests waiting", len(decode.waiting), "count", wrong=decode.check())]


def serve(
    setting: Setting = DEFAULT, deployment: ServingPod = ServingPod(), workload: ServedRequests = ServedRequests()
) -> list[Result]:
    """Run the operators, and go through all steps; ``wrong`` of the last row counts requests lost or served twice."""
    return rows_of(simulate(deployment, workload, Colocated.run(setting, deployment.groups), setting))
