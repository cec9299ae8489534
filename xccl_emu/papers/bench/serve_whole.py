"""Serving from arrival to last token ([xDeepServe] 4.3, 5.1, 7.2): prefill, caches on their way, decode.

A request comes to the prefill instance with least to do, whose leader deals it (`prefill`), and has its first token
from there.  Its cache stays until a decode instance, the one with least cache, has a group with room: a policy chooses
it.  Then the cache goes over a plane, one after the other through each port, and is decoded step by step (`serve`).  A
die of decode that stops takes its caches with it; prefill computes them again, with the tokens that were made since.

A cache takes what the copies of `kv` take in virtual time, run at some lengths.  What caches on their way change of a
dispatch is not in it: `kv` has that.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import one_of
from xccl_emu.papers.bench import kv, prefill, published, serve
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.protocols.serving.kv.session import InstancePair, balanced

PREFILL = prefill.Executors()
DIES_OF_GROUP = 4
"""Dies of a group of prefill, two chips; each has the whole cache."""
POD_DIES = 768
PLANES = {way.lower(): plane for way, plane in kv.PLANES.items()}
RAN_AT = (256, 4096, 65_536)
"""Tokens of a cache at which its copy is run, alone and with a copy to each die of a node."""
BENCH = "serve whole"


@dataclass(frozen=True)
class WholeDeployment:
    """Instances of both kinds, and what is between them; as in production (7.2)."""

    prefill: int = 4
    decode: int = 1
    plane: str = "ub"
    """One of `PLANES`."""
    pod: serve.ServingPod = field(default=serve.ServingPod(groups=128))
    """A decode instance."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a plane that is not there, and for more dies than a pod has."""
        one_of("plane", self.plane, PLANES)
        dies = self.prefill * PREFILL.groups * DIES_OF_GROUP + self.decode * self.pod.groups
        if dies > POD_DIES:
            raise ConfigError("prefill", self.prefill, f"needs {dies} dies with decode, a pod has {POD_DIES}")


@dataclass(frozen=True, eq=False)
class Paces:
    """What was run, and what was put in: all else follows."""

    decode: serve.Pace
    cache_ms: serve.OperatorTimes
    """Milliseconds of a cache that goes alone."""
    port_ms: serve.OperatorTimes
    """How long it keeps a port from the next one."""
    node_shares: bool
    """Whether the dies of a node have one port of the plane together."""
    status_us: float
    tokens_a_second: float = published.rows("prefill", "input")[0].value * PREFILL.chips
    """What a group of prefill computes."""

    @classmethod
    def run(cls, setting: Setting, of: WholeDeployment) -> "Paces":
        """Run dispatch and combine, copies of caches, and the all-gather of prefill, without payload."""
        tokens = np.array(RAN_AT, np.float64)
        with setting.stage(f"caches over {of.plane}"):
            alone, all_of_node = (
                np.array([kv.caches_ms(setting, dies, each, PLANES[of.plane]) for each in RAN_AT])
                for dies in (1, kv.NODE)
            )
        shares = bool(all_of_node[-1] > 1.5 * alone[-1])
        port = serve.OperatorTimes(tokens, all_of_node / kv.NODE if shares else alone)
        status_us = prefill.status_us(replace(setting, data=False), PREFILL.groups)
        decode = serve.Colocated.run(setting, of.pod.groups)
        return cls(decode, serve.OperatorTimes(tokens, alone), port, shares, status_us)


@dataclass
class WholeRequest(serve.ArrivedRequest):
    """A request, and when it got what; if its cache is lost, tokens that it has are of its prompt from then on."""

    output: int
    source: tuple[int, int] = (0, 0)
    """Instance and group of prefill that have its cache."""
    first_ms: float = 0.0
    joined_ms: float = 0.0
    """When its cache was there for a step of decode, the first time."""
    ended_ms: float = 0.0


class Front:
    """All that is before decode: requests that arrive, prefill, and the ports of the plane."""

    def __init__(self, of: WholeDeployment, load: serve.ServedRequests, paces: Paces, seed: int) -> None:
        self.of, self.load, self.paces = of, load, paces
        self.requests, self.open = list[WholeRequest](), set[int]()
        self.recomputed, self.moves_ms = 0, list[float]()
        self._rng, self._next_ms = np.random.default_rng((seed, 13)), 0.0
        step = PREFILL.groups, paces.status_us, paces.tokens_a_second
        self._leaders = [prefill.Leader(*step) for _ in range(of.prefill)]
        self._free_ms = defaultdict[object, float](float)

    def until(self, ms: float) -> Iterator[WholeRequest]:
        """Go on to a time, which never goes back; yield each request whose cache prefill has by then."""
        while self._next_ms <= ms:
            self._ask()
        for instance, leader in enumerate(self._leaders):
            leader.step_before(ms)
            while leader.dealt and leader.dealt[0].ends_ms <= ms:
                done = leader.dealt.popleft()
                request = self.requests[done.number]
                self.recomputed += request.prompt if request.first_ms else 0
                request.source, request.first_ms = (instance, done.group), request.first_ms or done.ends_ms
                yield request

    def _ask(self) -> None:
        prompt = max(1, int(min(self._rng.exponential(self.load.prompt), PREFILL.longest)))
        output, number = max(2, int(self.load.output * self._rng.uniform(0.5, 1.5))), len(self.requests)
        self.requests.append(WholeRequest(number, self._next_ms, prompt, output - 1, output))
        self.open.add(number)
        self.give(self.requests[-1], self._next_ms)
        self._next_ms += self._rng.exponential(1000 / self.load.rate)

    def give(self, request: WholeRequest, ms: float) -> None:
        """A prompt, or one whose cache was lost, comes to the instance with least to do."""
        prompt = prefill.Prompt(request.number, ms, request.prompt)
        min(self._leaders, key=lambda one: one.backlog_ms(ms)).come(prompt)

    def move(self, request: WholeRequest, decode: int, group: int, ms: float) -> float:
        """Return when a cache is there that a group asks for: after others, through the ports at both ends."""
        instance, of_instance = request.source
        source = of_instance * DIES_OF_GROUP + balanced(InstancePair(DIES_OF_GROUP, 1, self.of.pod.groups), group, 0)
        node = kv.NODE if self.paces.node_shares else 1
        ports = ("prefill", instance, source // node), ("decode", decode, group // node)
        begins = max(ms, *(self._free_ms[port] for port in ports))
        self._free_ms.update(dict.fromkeys(ports, begins + self.paces.port_ms.at(request.prompt)))
        self.moves_ms.append(begins + self.paces.cache_ms.at(request.prompt) - ms)
        return ms + self.moves_ms[-1]

    @property
    def known(self) -> list[int]:
        """Return the numbers of requests that prefill has."""
        return [one.number for leader in self._leaders for one in (*leader.pending, *leader.dealt)]


class DecodeInstance(serve.DecodeGroups):
    """A decode instance, whose requests come from prefill."""

    def __init__(self, number: int, front: Front, policy: str, seed: int) -> None:
        load = replace(front.load, lost_at=front.load.lost_at if number == 0 else -1)
        super().__init__(front.of.pod, load, front.paces.decode, seed)
        self.number, self.front, self.choose = number, front, serve.POLICIES[policy]()
        self.peers: Sequence[DecodeInstance] = [self]
        self.lost_requests = self.lost_tokens = 0
        self._coming = dict[tuple[int, int], float]()

    @property
    def tokens_max(self) -> int:
        """Return the tokens that all caches and all requests that wait may come to."""
        return int(self.reserved.sum()) + sum(one.prompt + one.left for one in self.waiting)

    def arrive(self) -> None:
        """Requests that prefill has done wait at the instance with least cache; caches that are here are decoded."""
        for done in self.front.until(self.served.ms):
            min(self.peers, key=lambda one: one.tokens_max).waiting.append(done)
        for slot in [slot for slot, ms in self._coming.items() if ms <= self.served.ms]:
            del self._coming[slot]
            request = self.asked(slot)
            request.joined_ms = request.joined_ms or self.served.ms
            super().put(request, slot)

    def asked(self, slot: tuple[int, int]) -> WholeRequest:
        """Return the request that has a slot."""
        return self.front.requests[int(self._number[slot])]

    def put(self, request: serve.ArrivedRequest, slot: tuple[int, int]) -> None:
        """The cache goes from prefill to its slot, and is there after a while."""
        self._coming[slot] = self.front.move(self.asked(slot), self.number, slot[0], self.served.ms)

    def lose(self, group: int) -> None:
        """A die stops: caches on their way to it go to others, and those that it had are computed again."""
        for slot in [slot for slot in self._coming if slot[0] == group]:
            del self._coming[slot]
            self.waiting.appendleft(self.asked(slot))
        for slot in [(group, int(each)) for each in np.flatnonzero(self.left[group])]:
            request = self.asked(slot)
            request.prompt, request.left = int(self.used[slot]), int(self.left[slot])
            self.front.give(request, self.served.ms)
            self.lost_tokens += request.prompt
            self.lost_requests += 1
        self.left[group] = 0
        super().lose(group)

    def finish(self, ended: NDArray[np.bool_]) -> None:
        """See the base; the requests are no longer open."""
        super().finish(ended)
        for number in self._number[ended].tolist():
            self.front.requests[number].ended_ms = self.served.ms
            self.front.open.remove(number)


@dataclass(frozen=True, eq=False)
class ServedWhole:
    """A run with one policy."""

    front: Front
    decodes: Sequence[DecodeInstance]
    counted: Sequence[WholeRequest]
    """Requests that arrived in the last three quarters of the steps, since the pod fills before; each has ended."""

    @property
    def wrong(self) -> int:
        """Return how many requests were lost, or served twice."""
        known = [*self.front.known, *(number for decode in self.decodes for number in decode.known)]
        return serve.wrong_numbers(len(self.front.requests), known)

    def rows(self) -> Iterator[Result]:
        """Yield times of requests, with median and slowest, and what else there is to say."""
        counted, decodes, load = self.counted, self.decodes, self.front.load
        for what, ms in {
            "TTFT": [one.first_ms - one.arrived_ms for one in counted],
            "TPOT": [(one.ended_ms - one.first_ms) / (one.output - 1) for one in counted],
            "from the first token to decode": [one.joined_ms - one.first_ms for one in counted],
            "cache on its way": self.front.moves_ms,
        }.items():
            extra = {f"p{n}": float(np.percentile(ms, n)) for n in (50, 99) if ms}
            yield Result(BENCH, what, float(np.mean(ms)) if ms else None, "ms", extra=extra)
        steps = slice(load.steps // 4, load.steps)
        rates = [sum(one.served.made[steps]) / max(1.0, sum(one.served.step_ms[steps])) for one in decodes]
        yield Result(BENCH, "tokens a second", 1000 * sum(rates), "1/s")
        uneven = np.mean([value for one in decodes for value in one.served.uneven[steps]])
        yield Result(BENCH, "fullest cache over the mean", float(uneven), "ratio")
        if load.lost_at >= 0:
            yield Result(BENCH, "requests on the lost die", sum(one.lost_requests for one in decodes), "count")
            yield Result(BENCH, "tokens of caches lost", sum(one.lost_tokens for one in decodes), "count")
            yield Result(BENCH, "tokens computed again", self.front.recomputed, "count")
        yield Result(BENCH, "requests counted", len(counted), "count", wrong=self.wrong)


def simulate(of: WholeDeployment, load: serve.ServedRequests, paces: Paces, policy: str, seed: int) -> ServedWhole:
    """Go through the steps of the first decode instance, and on until all have ended that had arrived by then.

    Requests go on to arrive meanwhile, the same for each policy.
    """
    front = Front(of, load, paces, seed)
    decodes = [DecodeInstance(number, front, policy, seed) for number in range(of.decode)]
    for one in decodes:
        one.peers = decodes
    taken, begun = decodes[0].served.step_ms, list[int]()

    def go_on() -> None:
        one = min(decodes, key=lambda decode: decode.served.ms)
        one.step(len(one.served.step_ms))

    for steps in (load.steps // 4, load.steps):
        while len(taken) < steps:
            go_on()
        begun.append(len(front.requests))
    while any(number < begun[-1] for number in front.open):
        go_on()
    return ServedWhole(front, decodes, front.requests[slice(*begun)])


def rows_of(ran: ServedWhole, policy: str) -> Iterator[Result]:
    """Yield the rows of a policy, TTFT and TPOT with what was published of such a deployment, at any rate."""
    of, load = ran.front.of, ran.front.load
    shape = {**vars(of.pod), **vars(load), **vars(of), "balance": policy}
    del shape["pod"]
    usual = of == WholeDeployment(plane=of.plane) and (load.prompt, load.output) == (13_000, 2100)
    given = {row.what: row for row in published.rows(BENCH)} if usual else {}
    at = f"at {load.rate:g} requests a second; no rate was published"
    for row in ran.rows():
        known = Result.of(given[row.what], row.emulated, extra=row.extra, note=at) if row.what in given else row
        yield replace(known, what=f"{row.what}, {policy}", configuration=shape)


def serve_whole(
    setting: Setting, of: WholeDeployment, load: serve.ServedRequests, policies: Sequence[str]
) -> Iterator[Result]:
    """Run the kernels, and then each policy on the same requests; ``wrong`` counts requests lost or served twice.

    Raises ConfigError for a policy that there is not, no rate, or requests that are too long.
    """
    for policy in policies:
        one_of("balance", policy, serve.POLICIES)
    if load.rate == 0:
        raise ConfigError("rate", load.rate, "must be above 0 with prefill")
    if load.prompt > PREFILL.longest:
        raise ConfigError("prompt", load.prompt, f"must be at most {PREFILL.longest} with prefill")
    if (most := PREFILL.longest + int(1.5 * load.output)) > of.pod.kv_tokens:
        raise ConfigError("output", load.output, f"caches of {most} tokens, a group has room for {of.pod.kv_tokens}")
    paces = Paces.run(setting, of)
    for policy in policies:
        with setting.stage(f"{load.steps} steps, {policy}"):
            ran = simulate(of, load, paces, policy, setting.seed)
            if not ran.counted:
                raise ConfigError("rate", load.rate, f"must be more: nobody arrives in {load.steps} steps")
            yield from rows_of(ran, policy)
