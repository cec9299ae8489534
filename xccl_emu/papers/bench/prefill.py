"""Prefill of requests that arrive, a step at a time ([xDeepServe] 4.3, 7.2).

All requests are shared by the DP groups of a task executor.  In each step the groups gather their status, which takes
what the all-gather's kernels take in virtual time, and the leader deals the requests that have come: the longest first,
each to the group that has least.  The group with most tokens decides how long a step is; tokens of a chip and second
are an input.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.serve import longest_first
from xccl_emu.papers.bench.setting import DEFAULT, Setting
from xccl_emu.protocol.registry import make

STATUS_BYTES = 64
"""What a group reports of itself in a step."""


@dataclass(frozen=True)
class Executors:
    """Prefill of a deployment, and what arrives."""

    executors: int = 4
    """Task executors; requests come to them by turns."""
    groups: int = 8
    """DP groups of each."""
    chips: int = 2
    """Chips of a group."""
    rate: float = 1.0
    """Requests a second, of all executors together; with so few, hardly any waits for another."""
    prompt: int = 13_000
    """Tokens of a prompt in the mean; exponentially distributed up to ``longest``."""
    longest: int = 65_536
    requests: int = 20_000


def status_us(setting: Setting, groups: int) -> float:
    """Microseconds in which all groups have the status of all."""
    return setting.run(make("all-gather", ranks=groups, elements=STATUS_BYTES // 2, calls=1))[1] if groups > 1 else 0.0


class Prompt(NamedTuple):
    """A prompt that comes to an executor, and what becomes of it."""

    number: int
    arrived_ms: float
    tokens: float
    group: int = -1
    """Which one computes it, until when."""
    ends_ms: float = 0.0


@dataclass
class Leader:
    """The leader of an executor, which deals all that has come by a step to the groups."""

    groups: int
    step_us: float
    """What a step takes apart from computing."""
    tokens_a_second: float
    """What a group computes."""
    ends_ms: float = 0.0
    """When its last step ends."""
    pending: list[Prompt] = field(default_factory=list)
    dealt: deque[Prompt] = field(default_factory=deque)
    """In the order of their ends."""

    def backlog_ms(self, ms: float) -> float:
        """Return how long what has come takes from a time on, if it is spread evenly."""
        self.step_before(ms)
        tokens = sum(prompt.tokens for prompt in self.pending)
        return max(0.0, self.ends_ms - ms) + 1000 * tokens / self.tokens_a_second / self.groups

    def come(self, prompt: Prompt) -> None:
        """Take a prompt; prompts come in the order of their arrival."""
        self.step_before(prompt.arrived_ms)
        self.pending.append(prompt)

    def step_before(self, ms: float) -> None:
        """Deal what is pending, if the step for it begins before a time."""
        if not self.pending or (begins := max(self.ends_ms, self.pending[0].arrived_ms)) >= ms:
            return
        tokens = np.array([prompt.tokens for prompt in self.pending])
        groups = longest_first(tokens, self.groups)
        computed = np.bincount(groups, tokens, self.groups).max() / self.tokens_a_second * 1000
        self.ends_ms = float(begins + (computed + self.step_us / 1000))
        dealt = zip(self.pending, groups.tolist(), strict=True)
        self.dealt += [prompt._replace(group=group, ends_ms=self.ends_ms) for prompt, group in dealt]
        self.pending = []


def first_tokens_ms(given: Executors, step_us: float, tokens_a_second: float, seed: int) -> NDArray[np.float64]:
    """Milliseconds from arrival to first token, [requests], without what the network adds; as `Leader` has them."""
    rng = np.random.default_rng((seed, 12))
    tokens = np.minimum(rng.exponential(given.prompt, given.requests), given.longest)
    arrived = np.cumsum(rng.exponential(1000 / given.rate, given.requests))
    ended = np.zeros(given.requests, np.float64)
    leaders = [Leader(given.groups, step_us, tokens_a_second) for _ in range(given.executors)]
    for number, (ms, length) in enumerate(zip(arrived.tolist(), tokens.tolist(), strict=True)):
        leaders[number % given.executors].come(Prompt(number, ms, length))
    for leader in leaders:
        leader.step_before(np.inf)
        for prompt in leader.dealt:
            ended[prompt.number] = prompt.ends_ms
    return ended - arrived


def prefill(setting: Setting = DEFAULT, given: Executors = Executors()) -> list[Result]:
    """The first token's time, in the mean and of the slowest; the mean with what was published for production."""
    (rate,) = published.rows("prefill", "input")
    step_us = status_us(setting, given.groups)
    ms = first_tokens_ms(given, step_us, rate.value * given.chips, setting.seed)
    (row,) = published.rows("prefill", "shown")
    shape = {**vars(given), "tokens_a_second_and_chip": rate.value}
    mean = float(ms.mean())
    return [
        Result.of(row, mean, configuration=shape)
        if given == Executors()
        else Result("prefill", row.what, mean, row.unit, configuration=shape),
        Result("prefill", "TTFT, 99% below", float(np.quantile(ms, 0.99)), "ms", configuration=shape),
        Result("prefill", "status of all groups", step_us, "us", configuration=shape),
    ]
