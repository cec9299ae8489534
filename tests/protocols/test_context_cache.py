"""A memory pool of several servers: prompts get the right blocks, wherever these come from, whichever server stops."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.check.mutants import Planted
from tests.check.mutants_memory_pool import WAITS
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.kernels.serving import context_cache as device
from xccl_emu.machine.state import ORDERS
from xccl_emu.oracle import prefixes
from xccl_emu.protocol.case import reached_syncs
from xccl_emu.protocols.serving.memory_pool.context import ContextCase
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.topologies import CLOUDMATRIX384

ONCE = ContextCase(length=1)


@settings(max_examples=20, deadline=None)
@given(
    st.fixed_dictionaries({
        "servers": st.integers(1, 3), "clients": st.integers(1, 3), "requests": st.integers(1, 3),
        "length": st.integers(1, 3), "shared": st.integers(0, 1), "places": st.integers(1, 3),
        "volume": st.integers(1, 4), "points": st.integers(1, 3), "granules": st.integers(1, 3),
        "leaves": st.integers(0, 3), "seed": st.integers(0, 99),
    }),
    st.sampled_from(ORDERS),
)  # fmt: skip
def test_blocks_are_the_oracles(sizes: dict[str, int], order: str) -> None:
    """Bit for bit, for drawn sizes and orders, on some drawn schedules."""
    leaves = sizes["leaves"] if 1 < sizes["servers"] >= sizes["leaves"] else 0
    assert (
        check(ContextCase(**{**sizes, "leaves": leaves}), policy="random", schedules=2, order=order).violation is None
    )


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("sizes", [{"length": 1}, {"length": 1, "leaves": 1}])
def test_it_is_verified_under_every_order(sizes: dict[str, int], order: str) -> None:
    """A version before and after a block that says whose it is do under all of them."""
    assert check(ContextCase(**sizes), order=order, seconds=60).verdict == VERIFIED


@pytest.mark.parametrize("server", [0, 1])
def test_a_server_stops_and_every_get_returns(server: int) -> None:
    """At every moment, in every schedule: every other core returns, with the bits of the oracle."""
    found = check(ONCE, fault=f"stop:die{server}", policy="exhaustive")
    assert (found.verdict, found.recovery is None) == (VERIFIED, False)


def test_a_client_that_waits_for_a_server_is_refuted_where_one_stops() -> None:
    """It is right without a fault; where a server stops, the search finds that another core does not return."""
    waits = Planted(ONCE, (WAITS,))
    assert check(waits).verdict == VERIFIED
    found = [check(waits, fault=f"stop:die{server}", policy="exhaustive").verdict for server in range(2)]
    assert VIOLATION in found


def sources(case: ContextCase) -> Counter[str]:
    """How many blocks clients did not have to compute, by what region they were read from, in virtual time."""
    trial, policy = case.build("sc"), VirtualTime(CLOUDMATRIX384, log=True)
    trial.pod.policy = policy
    trial.pod.run()
    assert not any(trial.wrong_bytes().values())
    timing, found = policy.timing, Counter[str]()
    read = dict[int, str]()
    for row in timing.records:
        site, core = timing.site(row), int(row[tl.RECORD_CORE])
        if site and site.operation == "mtu_in" and row[tl.RECORD_READ] >= 0:
            read[core] = timing.labels.name(int(row[tl.RECORD_READ])).partition("[")[0]
        if site and (site.sync, site.operation) == ("buffer free", "wait_flag"):
            found[read[core]] += 1
    return found


def test_blocks_come_from_either_server_and_from_the_tier() -> None:
    """DRAM of both servers has some of 8 blocks that are asked for again and again, and the volumes have the rest."""
    found = sources(ContextCase(requests=20, length=8, shared=8, places=4, volume=64))
    assert set(found) == {"die0.block", "die1.block", "die3.volume"}
    assert sources(ContextCase(requests=4, length=8, shared=0, places=4, volume=64)) == Counter()


def loads(generator: Any, memory: dict[int, int]) -> int:
    """What a subroutine returns that only loads, of a memory by address."""
    try:
        request = next(generator)
        while True:
            request = generator.send(memory.get(request[1], 0))
    except StopIteration as stop:
        return int(stop.value)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 5), st.integers(1, 8), st.integers(0, 99), st.data())
def test_a_ring_moves_the_keys_of_who_leaves_and_no_other(
    servers: int, points: int, seed: int, data: st.DataObject
) -> None:
    """The server of a key is that of the next point, and stays so while others leave."""
    ring = ContextCase(servers=servers, points=points, seed=seed).ring()
    memory = {1000 + 8 * i: int(word) for i, word in enumerate(ring.reshape(-1))}
    record = device.Cache(*[0] * len(device.Cache._fields))._replace(view=1, points=1000, n_points=len(ring))
    left = data.draw(st.integers(0, servers - 1))
    for key in prefixes.keys(np.arange(20, dtype=np.int64) + seed):
        found = []
        for view in ((1 << servers) - 1, (1 << servers) - 1 - (1 << left)):
            near = [((at - key) % 2**31, s) for at, s in ring.tolist() if view >> s & 1]
            found.append(loads(device.server_of(key, record), {**memory, 1: view}))
            assert found[-1] == min(near)[1]
        assert found[0] in (found[1], left)


def test_keys_are_of_all_tokens_so_far() -> None:
    """Equal prefixes have equal keys, and a block after another prefix has another one."""
    one, same, other = (prefixes.keys(np.array(each)) for each in ([1, 2, 3], [1, 2, 4], [5, 2, 3]))
    assert one[:2] == same[:2]
    assert one[2] != same[2]
    assert not {*one} & {*other}


@pytest.mark.parametrize("sizes", [{"shared": 3}, {"leaves": 3}, {"servers": 1, "leaves": 1}])
def test_what_cannot_be(sizes: dict[str, int]) -> None:
    """A prompt has no more shared blocks than blocks, and one server stays."""
    with pytest.raises(ConfigError, match="must be at most"):
        ContextCase(**sizes)


@pytest.mark.slow
def test_what_it_needs_is_needed() -> None:
    """Without any synchronization but one some schedule shows what goes wrong; what an old view has is in a volume."""
    cases = [ContextCase(), ContextCase(length=1, shared=0, volume=1, requests=3)]
    syncs = {name for case in cases for name in reached_syncs(case, "relaxed")}
    found = {name for name in syncs for case in cases if check(case, without=[name], seconds=60).verdict == VIOLATION}
    assert syncs - found == {"view in"}
