"""A memory pool: a Get returns a whole block of the key that it asked for, whatever is evicted meanwhile."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.machine.state import ORDERS
from xccl_emu.protocol.case import reached_syncs
from xccl_emu.protocols.serving.memory_pool import MemoryPoolCase, ModelCase, PutCase


@settings(max_examples=30, deadline=None)
@given(
    st.builds(
        MemoryPoolCase, clients=st.integers(1, 4), buckets=st.integers(1, 3), puts=st.integers(1, 5),
        gets=st.integers(1, 5), granules=st.integers(1, 3), spaces=st.integers(1, 3), seed=st.integers(0, 99),
        unpinned=st.integers(0, 1), cpu=st.integers(0, 1),
    ),
    st.sampled_from(ORDERS),
)  # fmt: skip
def test_blocks_are_whole(case: MemoryPoolCase, order: str) -> None:
    """Bit for bit, for drawn sizes and orders, on some drawn schedules."""
    assert check(case, policy="random", schedules=2, order=order).violation is None


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "what", ["one client, a place used twice", "two clients", "two namespaces", "the server on a CPU"]
)
def test_it_is_verified_under_every_order(what: str, order: str) -> None:
    """Atomics act where the word is, so that no order lets a pin come late."""
    assert check(MemoryPoolCase.proofs()[what], order=order, seconds=60).verdict == VERIFIED


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("what", [{}, {"clients": 2, "gets": 1}, {"puts": 3, "gets": 3}, {"granules": 2}, {"cpu": 1}])
def test_two_looks_do_for_a_pin(what: dict[str, int], order: str) -> None:
    """A Get without a pin is verified under every order; fences do, and a quiet where DMA copies blocks."""
    assert check(MemoryPoolCase(unpinned=1, **what), order=order, seconds=60).verdict == VERIFIED


@pytest.mark.parametrize("order", ORDERS)
def test_a_load_has_blocks_of_one_version(order: str) -> None:
    """While versions change; a word of two bits comes round to a version that is gone, and is refuted."""
    assert check(ModelCase(versions=3), order=order, seconds=60).verdict == VERIFIED
    assert check(ModelCase(versions=3, bits=2), order=order).verdict == VIOLATION


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("waits", [0, 1])
def test_a_block_that_many_put_is_written_once(order: str, waits: int) -> None:
    """Who finds it claimed waits for it, or goes on with its own."""
    assert check(PutCase(putters=3, waits=waits), order=order, seconds=60).verdict == VERIFIED


@settings(max_examples=10, deadline=None)
@given(
    st.one_of(
        st.builds(ModelCase, loaders=st.integers(1, 3), blocks=st.integers(1, 4), versions=st.integers(1, 4)),
        st.builds(PutCase, putters=st.integers(1, 5), waits=st.integers(0, 1), granules=st.integers(1, 3)),
    ),
    st.sampled_from(ORDERS),
)
def test_models_and_blocks_are_whole(case: ModelCase | PutCase, order: str) -> None:
    """Bit for bit, for drawn sizes and orders, on some drawn schedules."""
    assert check(case, policy="random", schedules=2, order=order).violation is None


@pytest.mark.slow
def test_what_it_needs_is_needed() -> None:
    """Without any synchronization but two a schedule shows what goes wrong: a poll before a compare-and-swap says when
    it is worth trying, and the data buffer is not used again where each client gets one block."""
    case = MemoryPoolCase(gets=1)
    found = {name: check(case, without=[name], seconds=60).verdict for name in reached_syncs(case, "relaxed")}
    assert {name for name, verdict in found.items() if verdict != VIOLATION} == {"no pins", "buffer free"}
