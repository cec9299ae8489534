"""Serving from arrival to last token ([xDeepServe] 4.3, 5.1, 7.2): prefill, caches on their way, and decode in one run.

A request comes to the prefill instance with least to do, whose leader deals it (`prefill`), and has its first token from
there.  Its cache stays until a decode instance, the one with least cache, has a group with room: a policy chooses it.
Then the cache goes over a plane, one at a time through each port, and decode goes on step by step (`serve`).  A die of
decode that stops takes its caches with it, and prefill computes them again, with the tokens that were made since.

A cache takes what the copies of `kv` take in virtual time, run at some lengths.  What caches on their way change of a
dispatch is not in it: `kv` has that.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.bench import kv, prefill, published, serve
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.protocols.serving.kv.session import InstancePair, balanced

Prefill = prefill.Executors
PLANES = {way.lower(): plane for way, plane in kv.PLANES.items()}
RAN_AT = (256, 4096, 65_536)
"""Tokens of a cache at which its copy is run, alone and with those of all dies of a node."""
DIES_OF_GROUP = 4
"""Of prefill: two chips; each has the whole cache."""
POD_DIES = 768
BENCH, USUAL = "serve whole", (13_000, 2100)
"""Name of the published rows, and tokens of prompts and answers that they are of; their rate is not published."""
NOT_YET = -1.0


@dataclass(frozen=True)
class WholeDeployment:
    """Instances of both kinds, and what is between them; as in production ([xDeepServe] 7.2)."""

    prefill: int = 4
    decode: int = 1
    plane: str = "ub"
    """One of `PLANES`."""
    pod: serve.ServingPod = serve.ServingPod(groups=128)
    """A decode instance."""

    def check(self, load: serve.ServedRequests) -> None:
        """Raises ConfigError for more dies than a pod has, or requests that no group has room for."""
        dies = self.prefill * Prefill.groups * DIES_OF_GROUP + self.decode * self.pod.groups
        if dies > POD_DIES:
            raise ConfigError(f"--prefill {self.prefill}: needs {dies} dies with decode's, a pod has {POD_DIES}")
        if (most := Prefill.longest + int(1.5 * load.output)) > self.pod.kv_tokens:
            raise ConfigError(f"--output {load.output}: up to {most} tokens of a cache, a group has room for "
                              f"{self.pod.kv_tokens}")  # fmt: skip


@dataclass(frozen=True, eq=False)
class Paces:
    """What was run, and what was put in: of these all else follows."""

    decode: serve.Pace
    cache_ms: serve.OperatorTimes
    """By tokens, of a cache that goes alone."""
    port_ms: serve.OperatorTimes
    """How long it keeps a port from the next one."""
    node_shares: bool
    """Whether the dies of a node have one port of the plane together."""
    status_us: float
    tokens_a_second: float
    """Of a group of prefill."""

    @classmethod
    def run(cls, setting: Setting, of: WholeDeployment) -> "Paces":
        """Run dispatch and combine, copies of caches, and the all-gather of prefill, without payload."""
        setting, plane = replace(setting, data=False), PLANES[of.plane]
        with setting.stage(f"caches over {of.plane}"):
            alone, together = (np.array([kv.caches_ms(setting, dies, tokens, plane) for tokens in RAN_AT])
                               for dies in (1, kv.NODE))  # fmt: skip
        shares = bool(together[-1] > 1.5 * alone[-1])
        (rate,) = published.rows("prefill", "input")
        return cls(
            serve.Colocated.run(setting, of.pod.groups),
            serve.OperatorTimes(np.array(RAN_AT, np.float64), alone),
            serve.OperatorTimes(np.array(RAN_AT, np.float64), together / kv.NODE if shares else alone), shares,
            prefill.status_us(setting, Prefill.groups), rate.value * Prefill.chips,
        )  # fmt: skip


@dataclass
class WholeRequest:
    """A request, and when it got what; milliseconds."""

    prompt: int
    output: int
    arrived_ms: float
    left: int
    """Tokens that decode is still to make when prefill has its cache."""
    first_ms: float = NOT_YET
    second_ms: float = NOT_YET
    ended_ms: float = NOT_YET


@dataclass(order=True, frozen=True)
class Due:
    """A request that gets somewhere at a time."""

    ms: float
    number: int
    where: tuple[int, int]
    """Instance and group of prefill, or group and slot of decode."""
    request: serve.ArrivedRequest = field(compare=False)


class Front:
    """All that is before decode: requests that arrive, prefill, and the ports of the plane."""

    def __init__(self, of: WholeDeployment, load: serve.ServedRequests, paces: Paces, seed: int) -> None:
        self.of, self.load, self.paces = of, load, paces
        self.requests: list[WholeRequest] = []
        self.open = set[int]()
        """Numbers of those that have not ended."""
        self.recomputed = 0
        """Tokens of caches that were lost, which prefill has computed again."""
        self.moves_ms: list[float] = []
        """How long each cache was on its way, waits for ports in it."""
        self._rng, self._next_ms = np.random.default_rng((seed, 13)), 0.0
        self._leaders = [prefill.Leader(Prefill.groups, paces.status_us, paces.tokens_a_second)
                         for _ in range(of.prefill)]  # fmt: skip
        self._ending: list[Due] = []
        self._source: dict[int, tuple[int, int]] = {}
        self._free_ms = defaultdict[object, float](float)

    def until(self, ms: float) -> Iterator[serve.ArrivedRequest]:
        """Go on to a time, which never goes back; yield each request whose cache prefill has by then."""
        while self._next_ms <= ms:
            self._ask()
        self._step(ms)
        while self._ending and self._ending[0].ms <= ms:
            done = heapq.heappop(self._ending)
            self._source[done.number] = done.where
            request = self.requests[done.number]
            if request.first_ms == NOT_YET:
                request.first_ms = done.ms
            else:
                self.recomputed += done.request.prompt
            yield done.request

    def _ask(self) -> None:
        prompt = min(self._rng.exponential(self.load.prompt), Prefill.longest)
        output = max(2, int(self.load.output * self._rng.uniform(0.5, 1.5)))
        number = len(self.requests)
        self.requests.append(WholeRequest(max(1, int(prompt)), output, self._next_ms, output - 1))
        self.open.add(number)
        self.give(number, self.requests[number].prompt, self._next_ms)
        self._next_ms += self._rng.exponential(1000 / self.load.rate)

    def give(self, number: int, tokens: int, ms: float) -> None:
        """A prompt, or a cache that was lost, comes to the instance with least to do."""
        self._step(ms)
        one = min(self._leaders, key=lambda leader: self._backlog_ms(leader, ms))
        one.pending.append(prefill.Prompt(number, ms, tokens))

    def _backlog_ms(self, leader: prefill.Leader, ms: float) -> float:
        tokens = sum(prompt.tokens for prompt in leader.pending)
        return max(0.0, leader.ends_ms - ms) + 1000 * tokens / leader.tokens_a_second / leader.groups

    def _step(self, ms: float) -> None:
        for instance, leader in enumerate(self._leaders):
            for prompt, group in leader.step_before(ms):
                left = self.requests[prompt.number].left
                done = serve.ArrivedRequest(prompt.number, leader.ends_ms, int(prompt.tokens), left)
                heapq.heappush(self._ending, Due(leader.ends_ms, prompt.number, (instance, group), done))

    def move_ms(self, request: serve.ArrivedRequest, decode: int, group: int, ms: float) -> float:
        """Return when a cache is there that a group asks for: after others, through the ports at both ends."""
        instance, of_instance = self._source[request.number]
        pair = InstancePair(DIES_OF_GROUP, 1, self.of.pod.groups)
        source = of_instance * DIES_OF_GROUP + balanced(pair, group, 0)
        node = kv.NODE if self.paces.node_shares else 1
        ports = ("prefill", instance, source // node), ("decode", decode, group // node)
        begins = max(ms, *(self._free_ms[port] for port in ports))
        self._free_ms.update(dict.fromkeys(ports, begins + self.paces.port_ms.at(request.prompt)))
        ends = begins + self.paces.cache_ms.at(request.prompt)
        self.moves_ms.append(ends - ms)
        return ends

    @property
    def known(self) -> list[int]:
        """Return the numbers of requests that prefill has."""
        pending = [prompt.number for leader in self._leaders for prompt in leader.pending]
        return [*pending, *(one.number for one in self._ending)]


class Decode(serve.DecodeGroups):
    """A decode instance, whose requests come from prefill."""

    def __init__(self, number: int, front: Front, policy: str, seed: int) -> None:
        load = front.load if number == 0 else replace(front.load, lost_at=-1)
        super().__init__(front.of.pod, load, front.paces.decode, seed)
        self.choose = serve.POLICIES[policy]()
        self.number, self.front, self.peers = number, front, [self]
        self.lost_requests = self.lost_tokens = 0
        self._coming: list[Due] = []
        self._fresh = set[int]()
        """Numbers of requests that are in their first step."""

    @property
    def cache_tokens(self) -> int:
        """Return the tokens of all caches, with what is reserved for tokens to come, and of requests that wait."""
        return int(self.reserved.sum()) + sum(one.prompt + one.left for one in self.waiting)

    def arrive(self) -> None:
        """What prefill has by now waits at the instance with least cache; caches that are here decode from now on."""
        for request in self.front.until(self.served.ms):
            min(self.peers, key=lambda one: one.cache_tokens).waiting.append(request)
        while self._coming and self._coming[0].ms <= self.served.ms:
            there = heapq.heappop(self._coming)
            self._fresh.add(there.number)
            super().put(there.request, there.where)

    def put(self, request: serve.ArrivedRequest, slot: tuple[int, int]) -> None:
        """The cache goes from prefill to its slot, and is there after a while."""
        ms = self.front.move_ms(request, self.number, slot[0], self.served.ms)
        heapq.heappush(self._coming, Due(ms, request.number, slot, request))

    def lose(self, group: int) -> None:
        """A die stops: caches on their way to it go to others, and those that it had are computed again."""
        for slot in np.flatnonzero(self.left[group] > 0):
            number, tokens = int(self._number[group, slot]), int(self.used[group, slot])
            self.front.requests[number].left = int(self.left[group, slot])
            self.front.give(number, tokens, self.served.ms)
            self._fresh.discard(number)
            self.lost_tokens += tokens
            self.lost_requests += 1
        self.left[group] = 0
        self.waiting.extendleft(one.request for one in self._coming if one.where[0] == group)
        self._coming = [one for one in self._coming if one.where[0] != group]
        heapq.heapify(self._coming)
        super().lose(group)

    def step(self, number: int) -> None:
        """See the base; requests have their second token when their first step has ended."""
        super().step(number)
        for request in (self.front.requests[number] for number in self._fresh):
            request.second_ms = self.served.ms if request.second_ms == NOT_YET else request.second_ms
        self._fresh.clear()

    def finish(self, ended: NDArray[np.bool_]) -> None:
        """See the base; a request has ended."""
        super().finish(ended)
        for number in self._number[ended].tolist():
            self.front.requests[number].ended_ms = self.served.ms
            self.front.open.discard(number)


class Mark(NamedTuple):
    """How far a run is."""

    requests: int
    ms: float
    tokens: int


@dataclass(frozen=True, eq=False)
class ServedWhole:
    """A run with one policy.  Requests count that arrive between the marks: before them the pod fills."""

    front: Front
    decodes: Sequence[Decode]
    begin: Mark
    end: Mark

    @property
    def requests(self) -> Sequence[WholeRequest]:
        """Return the requests that count; each has ended."""
        return self.front.requests[self.begin.requests : self.end.requests]

    @property
    def wrong(self) -> int:
        """Return how many requests were lost, or served twice."""
        known = [*self.front.known, *(number for decode in self.decodes for number in decode.known)]
        return serve.wrong_numbers(len(self.front.requests), known)


def simulate(
    of: WholeDeployment, load: serve.ServedRequests, paces: Paces, policy: str, seed: int
) -> ServedWhole:
    """Go through the steps of the first decode instance, and on until all have ended that had arrived by then.

    Requests go on to arrive meanwhile, the same for each policy.
    """
    front = Front(of, load, paces, seed)
    decodes = [Decode(number, front, policy, seed) for number in range(of.decode)]
    for one in decodes:
        one.peers = decodes
    first, marks = decodes[0].served, list[Mark]()

    def go_on() -> None:
        one = min(decodes, key=lambda decode: decode.served.ms)
        one.step(len(one.served.step_ms))

    for steps in (load.steps // 4, load.steps):
        while len(first.step_ms) < steps:
            go_on()
        marks.append(Mark(len(front.requests), first.ms, sum(one.served.tokens for one in decodes)))
    while any(number < marks[-1].requests for number in front.open):
        go_on()
    return ServedWhole(front, decodes, *marks)


def rows_of(ran: ServedWhole, policy: str) -> list[Result]:
    """Return the rows of a policy: what was published, with median and slowest, and what else there is to say."""
    of, load, counted = ran.front.of, ran.front.load, ran.requests
    shape = {**vars(of.pod), **vars(load), "prefill": of.prefill, "decode": of.decode, "plane": of.plane,
             "balance": policy}  # fmt: skip
    usual = of == replace(WholeDeployment(), plane=of.plane) and (load.prompt, load.output) == USUAL
    times = {
        "TTFT": [one.first_ms - one.arrived_ms for one in counted],
        "TPOT": [(one.ended_ms - one.first_ms) / (one.output - 1) for one in counted],
        "TTST": [one.second_ms - one.first_ms for one in counted],
        "cache on its way": ran.front.moves_ms,
    }
    given = {row.what: row for row in published.rows(BENCH)} if usual else {}
    rows = []
    for what, ms in times.items():
        p50, p99 = np.quantile(ms or [0.0], (0.5, 0.99)).tolist()
        row = Result(BENCH, what, float(np.mean(ms or [0.0])), "ms")
        row = Result.of(given[what], row.emulated) if what in given else row
        rows.append(replace(row, extra={"p50": p50, "p99": p99}))
    steps = slice(load.steps // 4, load.steps)
    uneven = [value for decode in ran.decodes for value in decode.served.uneven[steps]]
    made, seconds = ran.end.tokens - ran.begin.tokens, (ran.end.ms - ran.begin.ms) / 1000
    more = {
        "tokens a second": (made / seconds, "1/s"),
        "fullest cache over the mean": (float(np.mean(uneven or [1.0])), "ratio"),
        "requests on the lost die": (sum(one.lost_requests for one in ran.decodes), "count"),
        "tokens of caches lost": (sum(one.lost_tokens for one in ran.decodes), "count"),
        "tokens computed again": (ran.front.recomputed, "count"),
    }
    rows += [Result(BENCH, what, value, unit) for what, (value, unit) in more.items()]
    rows.append(Result(BENCH, "requests counted", len(counted), "count", wrong=ran.wrong))
    return [replace(row, what=f"{row.what}, {policy}", configuration=shape) for row in rows]


def serve_whole(
    setting: Setting, of: WholeDeployment, load: serve.ServedRequests, policies: Sequence[str]
) -> list[Result]:
    """Run the kernels, and then each policy on the same requests; ``wrong`` counts requests lost or served twice.

    Raises ConfigError for more dies than a pod has, or requests that no group has room for.
    """
    of.check(load)
    paces, rows = Paces.run(setting, of), list[Result]()
    for policy in policies:
        with setting.stage(f"{load.steps} steps, {policy}"):
            rows += rows_of(simulate(of, load, paces, policy, setting.seed), policy)
    return rows
