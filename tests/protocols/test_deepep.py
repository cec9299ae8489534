"""What DeepEP's low-latency mode has of its own; bits, orders and schedules stand with those of other groups."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli_support import as_json
from tests.refused import refuses
from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.machine.pod import POLICIES
from xccl_emu.protocols.deepep.case import DeepEpCase, HookedCase
from xccl_emu.protocols.deepep.session import DeepEpConfig, Hooked

from .ep_support import DEEPEP, Case, cases, check_outputs, check_round, check_rounds, columns

SMALL = DeepEpConfig(n_ranks=3, local_experts=2, hidden=64, top_k=3, tokens_max=4, cores=2)
CASE = Case(SMALL, "relaxed", "random", seed=4, lengths=((4, 1, 3), (0, 3, 2), (2, 2, 4)))


@pytest.mark.parametrize("policy", POLICIES)
def test_which_set_is_next_carries_over(policy: str) -> None:
    """From calls to runs of rounds and back, also behind an odd number of calls."""
    group, batches = replace(CASE, policy=policy).group(), CASE.batches()
    for some in (batches, batches[::-1]):
        check_round(group, batches[0])
        group.dispatch(batches[1].tokens, batches[1].topk)
        for outputs, batch in zip(group.run_rounds(*columns(some)), some, strict=True):
            check_outputs(SMALL, batch, outputs)


@settings(max_examples=40)
@given(cases(DEEPEP, ranks=st.integers(2, 4), rounds=st.integers(1, 5)))
def test_rounds_side_by_side_give_what_the_oracle_gives(case: Case) -> None:
    """By the receive hooks, any small group, an even or odd number of rounds; calls behind them are right, too."""
    batches = case.batches()
    group = case.group(made=Hooked)
    group.run_rounds(*columns(batches))
    check_rounds(group, batches)
    check_round(group, batches[0])


@pytest.mark.nojit
def test_two_rounds_side_by_side_without_the_jit() -> None:
    """The same kernels in plain Python."""
    case = Case(DeepEpConfig(n_ranks=2, hidden=32, top_k=2, tokens_max=2), "relaxed", "random", 5, ((2, 1), (1, 2)))
    group = case.group(made=Hooked)
    group.run_rounds(*columns(case.batches()))
    check_rounds(group, case.batches())


READ_BACK = {"cores": 2, "experts": 2, "rounds": 1, "seed": 1}
"""A core reads back what it sent to its own rank, of which another core has the flag."""


@pytest.mark.parametrize("made", [DeepEpCase, HookedCase])
@pytest.mark.parametrize(
    ("sizes", "order"),
    [
        *((sizes, "unordered") for sizes in ({}, {"tokens": "0,2"}, {"cores": 2, "tokens": 1}, READ_BACK)),
        (READ_BACK, "relaxed"),
    ],
)
def test_every_schedule_is_right(sizes: dict[str, Any], made: type[DeepEpCase], order: str) -> None:
    """Two ranks and rounds, one rank without tokens, and two cores a rank, side by side too.  Of relaxed order are the
    proofs (`tests/cases/test_verified.py`)."""
    assert check(made(**sizes), order=order).verdict == VERIFIED


@pytest.mark.parametrize(
    "without", ["next buffer clean", "tokens before counts", "counts in", "rows before flags", "flags in", "rows left"]
)
def test_what_it_needs_is_needed(without: str) -> None:
    """Without it a schedule shows what goes wrong."""
    assert check(DeepEpCase(cores=2, tokens=3), without=[without]).verdict == VIOLATION


@refuses(
    partial(DeepEpConfig, n_ranks=2),
    ({"quantized_back": True}, "quantized_back=True: combine sends"),
    ({"counting": "scalar"}, "counting='scalar': must be"),
    ({"path": "dma"}, "path='dma': must be"),
    ({"opaque_bytes": 32}, "opaque_bytes=32: must be a multiple of 32, and quantized=False"),
    ({"opaque_bytes": 33, "quantized": False}, "opaque_bytes=33: must be a multiple of 32"),
)
def test_what_this_mode_has_not_is_refused() -> None:
    """By the name of the option, before there is a group."""


def test_a_small_layer_on_the_whole_pod() -> None:
    """By the command: groups of calls, of experts in order and by a routing with a shared one; no element is wrong."""
    sizes = ("--ranks", "4", "--tokens", "5", "--hidden", "64", "--cores", "2", "--top-k", "3", "--rounds", "2")
    for more in (("--routing", "", "--experts", "4"), ()):
        assert as_json("run", "deepep-ll", *sizes, *more)["wrong"] == 0


@pytest.mark.slow
def test_the_published_shape_is_right() -> None:
    """128 tokens of 7,168 elements on each of 8 dies, 8 of 256 experts and the shared one: no element is wrong."""
    told = as_json("run", "deepep-ll")
    assert (told["wrong"], told["facts"]["messages"]) == (0, 8 * 128 * 9)
