"""Rollback of A2E and E2A: whenever they are aborted, tokens come back as without it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.check import mutants_a2e_rollback
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.sampling.sample import replay
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.protocols.a2e.case import A2ERollback
from xccl_emu.protocols.a2e.session import A2E

SIZES = {
    "domains": st.integers(1, 2), "attention": st.integers(1, 3), "experts": st.integers(1, 3),
    "local": st.integers(2, 3), "rounds": st.integers(1, 4), "top_k": st.integers(1, 2), "depth": st.integers(1, 3),
    "trampolines": st.just(1), "aborts": st.integers(0, 3), "failures": st.integers(0, 2), "seed": st.integers(0, 9),
    "path": st.sampled_from(["mtu", "urma"]), "counting": st.sampled_from(["vector", "scalar"]),
    "tokens": st.integers(1, 3), "cores": st.integers(1, 2), "masked": st.integers(0, 1),
    "a2e_parts": st.integers(1, 2), "e2a_parts": st.integers(1, 2),
}  # fmt: skip
USUAL = A2ERollback(attention=1, experts=1, rounds=1)


@settings(max_examples=6)
@given(st.fixed_dictionaries(SIZES))
def test_bits_are_those_of_a_run_without_aborts(sizes: dict[str, int]) -> None:
    """Bit for bit those of the oracle, for drawn sizes, switches, aborts and failures, on some drawn schedules."""
    assert check(A2ERollback(**sizes), policy="random", schedules=2).violation is None


def test_a_stream_that_nothing_aborts_knows_of_none() -> None:
    """What `run` and `bench` launch polls as it did before there were aborts, and has no register for one."""
    for kernel in A2E.kernels:
        assert not {site.operation for site in kernel.sites} & {"poll_any", "choose", "dcci"}
        assert not [register for register in kernel.registers if "abort" in register]


@pytest.mark.parametrize("wrong", [{"microbatches": 2}, {"attention_work": 1}, {"pull": 1}, {"rounds": 0}])
def test_what_cannot_be_rolled_back_is_refused(wrong: dict[str, int]) -> None:
    """Sizes by which there is nothing to roll back, or no epoch to count from, are errors that say what is right."""
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))}=.*must be"):
        replace(USUAL, **wrong)


NEEDED = (
    "tokens in", "tokens announced", "counts of messages", "messages announced", "rows gathered", "rows computed",
    "arrivals", "call returned", "rows returned", "acknowledgments forgotten",
    "rows forgotten", "staging forgotten", "at rest", "at rest in", "go on", "told in",
    "abort in", "ready", "ready in", "done", "end", "end in",
)  # fmt: skip
"""All words of the rollback but "done in", which is redundant here: one attention die alone says what is done."""


@pytest.mark.slow
@pytest.mark.parametrize("without", NEEDED)
def test_what_it_needs_is_needed(without: str) -> None:
    """Without it a schedule shows what goes wrong."""
    assert check(USUAL, without=[without]).verdict == VIOLATION


@pytest.mark.slow
@pytest.mark.parametrize("order", ["sc", "fifo", "unordered"])
def test_proved_under_other_orders(order: str) -> None:
    """An abort at any moment of a call is survived under every memory order."""
    assert check(USUAL, order=order).verdict == VERIFIED


@pytest.mark.slow
def test_a_bug_that_drawn_schedules_miss() -> None:
    """A call that is handed back without its rows is found by the search, and the witness replays."""
    planted = mutants_a2e_rollback.RARE.planted
    found = check(planted)
    assert found.verdict == VIOLATION
    assert replay(planted.build("relaxed"), found.violation.actions).kind in mutants_a2e_rollback.ANY


@pytest.mark.slow
@pytest.mark.parametrize("without", ["given up", "given up before all meet", "all cores agree"])
def test_what_cores_need_to_agree(without: str) -> None:
    """Each synchronization by which the cores of a stream leave a call together is needed."""
    assert check(replace(USUAL, cores=2, tokens=2), without=[without]).verdict == VIOLATION


@pytest.mark.nightly
def test_two_domains() -> None:
    """An abort at any moment while the calls of two domains are under way."""
    assert check(replace(USUAL, domains=2, rounds=2), policy="exhaustive").verdict == VERIFIED


@pytest.mark.slow
def test_many_dies() -> None:
    """Two domains of four attention dies, six expert dies, 4 aborts, a failure each, by the portfolio of policies."""
    case = A2ERollback(domains=2, attention=4, experts=6, tokens=2, top_k=2, rounds=4, depth=2, aborts=4, failures=1)
    assert check(case, policy="portfolio", schedules=8).violation is None
