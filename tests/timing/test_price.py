"""What a synchronization costs in virtual time: worked out by hand from the constants, with its interval."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError
from xccl_emu.lang import (
    MTU_IN,
    SCALAR,
    arrive,
    await_group,
    kernel,
    load,
    mtu_in,
    mtu_out,
    poll_ge,
    put,
    quiet,
    set_flag,
    wait_flag,
)
from xccl_emu.machine.spec import small_pod
from xccl_emu.protocol import Bench, Case, size
from xccl_emu.protocol.registry import make
from xccl_emu.timing.costs import Costs, ranges
from xccl_emu.timing.price import DEADLOCK, ENDLESS, FAILS, OTHER_WORK, Price, Prices
from xccl_emu.timing.run import VirtualTime

from .support import COSTS, ROUND

EXAMPLES = Path(__file__).parents[2] / "examples"


@kernel
def announce(target, nbytes, flag):
    """Write a block and, when it is visible, a flag."""
    yield mtu_out(0, target, nbytes)
    yield quiet(sync="data visible")
    yield put(flag, 1, sync="flag")


@kernel
def take(flag, source, nbytes):
    """Wait for the flag, then read the block."""
    yield poll_ge(flag, 1, sync="flag in")
    yield mtu_in(source, 0, nbytes)
    yield set_flag(MTU_IN, SCALAR, 0, sync="data in")
    yield wait_flag(MTU_IN, SCALAR, 0, sync="data in")


@dataclass(frozen=True)
class Announced(Case):
    """Die 0 writes a block to die 1, on the same chip, and a flag."""

    granules: int = size(32, "Granules of 32 bytes of the block.")

    def lay_out(self, bench: Bench) -> None:
        """A block and a flag on die 1."""
        nbytes = 32 * self.granules
        pod = bench.pod(small_pod(2, 1, app_bytes=1 << 16, ub_bytes=1 << 15))
        block = pod.alloc(1, nbytes)
        args = {"target": block.address, "nbytes": nbytes, "flag": pod.meta(1)}
        pod.launch(announce, 0, [0], args, [pod.grant(block, "w"), pod.grant_meta("w", 1)])
        args = {"flag": pod.meta(1), "source": block.address, "nbytes": nbytes}
        pod.launch(take, 1, [0], args, [pod.grant(block, "r"), pod.grant_meta("r", 1)])


@kernel
def meet_between(word, first, second):
    """Load a word some times, meet the other cores, and load it some times more."""
    for _ in range(first):
        yield load(word)
    phase = yield arrive(sync="both are here")
    yield await_group(phase, sync="both are here")
    for _ in range(second):
        yield load(word)


@dataclass(frozen=True)
class Met(Case):
    """Two cores of a die meet: one works before that, the other one after it."""

    first: int = size(3, "Loads of the core that works before.", least=0)
    second: int = size(5, "Loads of the core that works after.", least=0)

    def lay_out(self, bench: Bench) -> None:
        """Both load the same word, which nobody writes."""
        pod = bench.pod(small_pod(1, 2))
        args = {"word": pod.meta(0), "first": [self.first, 0], "second": [0, self.second]}
        pod.launch(meet_between, 0, [0, 1], args, [pod.grant_meta("r", 0)])


def prices_of(case: Case, costs: Costs = COSTS) -> Mapping[str, Price]:
    """The price of each name, in the fabric with round numbers."""
    prices = Prices(case, fabric=ROUND, costs=costs)
    return {name: prices.of([name]) for name in case.syncs}


# ---- by hand, in microseconds; COSTS: issue 0.001, load 0.01, poll 0.1, quiet 0.05, event 0.005, start of mtu 0.02


@pytest.mark.nojit
@given(st.integers(1, 1024))
@settings(max_examples=20, deadline=None)
def test_prices_of_an_announced_block_follow_from_the_constants(granules: int) -> None:
    """A quiet costs the way that it waits for; a flag what follows it; waiting for a read is in the return already.

    From die 0 the block is visible at v = 0.001 + 0.02 + 0.02 ns a byte + 2.0. With the quiet, which takes 0.05, the
    put is issued after it (0.001); without it the put starts as soon as the block has left mtu-out, 2.0 before v. The
    put is on its way as long in both. So the price is 2.0 + 0.05 + 0.001.

    The reader sees the flag when it arrives, 0.1 for the poll later it goes on, and returns after 0.001 + 0.02 + 0.1
    and 0.001 ns a byte for the block, and 0.001 + 0.005 for the wait. Without the poll it has long returned when the
    flag arrives, at which the writer returns. So the price is all of that.

    Without the wait for the block a return waits for it as well. So the price is 0.001 + 0.005.
    """
    found = prices_of(Announced(granules))
    taken = 0.001 + 0.02 + 0.1 + 32 * granules * 0.001 / 1000 + 0.001 + 0.005
    assert found["data visible"].us == pytest.approx(2.0 + 0.05 + 0.001, abs=2e-6)
    assert found["flag in"].us == pytest.approx(0.1 + taken, abs=2e-6)
    assert found["data in"].us == pytest.approx(0.001 + 0.005, abs=2e-6)
    assert found["flag"] == Price(None, DEADLOCK)


@pytest.mark.nojit
@given(st.integers(0, 40), st.integers(0, 40))
@settings(max_examples=20, deadline=None)
def test_the_price_of_a_barrier_follows_from_the_constants(first: int, second: int) -> None:
    """A load takes 0.001 + 0.01. The last core arrives after its loads and 0.001; 0.62 later both go on, by a request
    of 0.001; then come the other loads. Without the barrier both load at the same time: the shorter work is saved too.
    """
    load_us = 0.001 + 0.01
    (price,) = prices_of(Met(first, second)).values()
    assert price.us == pytest.approx(0.001 + 0.62 + 0.001 + min(first, second) * load_us, abs=1e-6)
    assert price.low_us == price.us == price.high_us  # nothing is open: all constants but those of DMA are set


def test_an_interval_follows_from_the_ranges_of_the_constants() -> None:
    """The price of the barrier is a sum of constants, so each end of a range moves it by as much; added in squares."""

    def by_hand(costs: Costs) -> float:
        issue_ns = costs.issue_cycles * costs.clock_ns
        return (2 * issue_ns + 1000 * costs.barrier_us(0.2) + 3 * (issue_ns + costs.load_ns)) / 1000

    (price,) = prices_of(Met(3, 5), Costs()).values()
    usual = by_hand(Costs())
    moves = [by_hand(replace(Costs(), **{name: end})) - usual for name, of in ranges().items() for end in of]
    assert price.us == pytest.approx(usual, abs=1e-5)
    assert price.low_us == pytest.approx(usual - math.hypot(*(min(0.0, move) for move in moves)), abs=1e-4)
    assert price.high_us == pytest.approx(usual + math.hypot(*(max(0.0, move) for move in moves)), abs=1e-4)


# ---- what has no price, and what has one


def test_a_synchronization_without_a_price_says_why() -> None:
    """A deadlock, a run that fails, one without end, and one that does other work."""
    kv, fused = Prices(make("kv"), banded=False), Prices(make("fused"), banded=False)
    assert kv.of(["task"]) == Price(None, DEADLOCK)
    assert kv.of(["task in"]) == Price(None, FAILS)
    assert kv.of(["room taken"]) == Price(None, ENDLESS)
    assert fused.of(["row counts loaded"]) == Price(None, OTHER_WORK)


@pytest.mark.parametrize("name", ["sendrecv", "dispatch", "combine"])
def test_a_price_is_the_difference_of_two_runs(name: str) -> None:
    """Runs from a kept pod take as long as those of pods that are made for them."""
    case = make(name)
    prices = Prices(case, banded=False)

    def latency_us(without: tuple[str, ...] = ()) -> float:
        trial = case.build("sc", without)
        policy = trial.pod.policy = VirtualTime()
        trial.pod.run()
        return policy.timing.latency_us

    priced = {sync: price.us for sync in prices.reached if (price := prices.of([sync])).us is not None}
    assert len(priced) > 3
    assert any(priced.values())
    assert priced == {sync: pytest.approx(latency_us() - latency_us((sync,)), abs=1e-6) for sync in priced}


def test_kernels_in_c_have_prices() -> None:
    """A ping of chunks: a chunk's way into the buffer is waited for, and nobody gets there without a tail."""
    prices = Prices(make(f"{EXAMPLES}/c_ping/ping.py:Ping"), banded=False)
    found = {name: prices.of([name]) for name in prices.reached}
    assert found["tail"] == Price(None, DEADLOCK)
    assert found["chunk arrived"] == Price(None, FAILS)
    assert (found["chunk before tail"].us or 0) > 0
    assert found["chunk in buffer"].us > 1


def test_operators_in_ascend_c_have_prices() -> None:
    """So have those in C++."""
    prices = Prices(make(f"{EXAMPLES}/ascendc/sendrecv.py:Message"), banded=False)
    assert any(prices.of([name]).us for name in prices.reached)


def test_what_virtual_time_cannot_run_has_no_prices() -> None:
    """A pod with caches is refused, before anything runs."""
    with pytest.raises(ConfigError, match="virtual time knows no caches"):
        Prices(make("sendrecv").with_pod_options(scalar_cache=8))
