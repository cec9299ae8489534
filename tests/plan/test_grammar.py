"""Strategies are what the grammar of III-B1 derives, each once."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.plan.grammar import LayerStrategy, StrategyBlock, blocks, parse, strategies


def derived(devices: int, per_node: int) -> set[tuple[int, int, bool]]:
    """Blocks by brute force: every derivation of the rules for ``block``, degrees multiplied by kind."""
    powers = [1 << i for i in range(devices.bit_length())]
    one = [((kind, degree),) for kind in ("TP", "X") for degree in powers]
    two = [(*a, *b) for a, b in product(one, one) if a[0][1] <= per_node]
    found = set()
    for parts in (*one, *two):
        tensor = spread = 1
        for kind, degree in parts:
            tensor, spread = (tensor * degree, spread) if kind == "TP" else (tensor, spread * degree)
        if tensor * spread == devices:
            outside = len(parts) == 2 and parts[0][0] == "X" and parts[1][0] == "TP" and min(tensor, spread) > 1
            found.add((tensor, spread, outside))
    return found


@pytest.mark.parametrize("per_node", [1, 2, 8, 64])
@pytest.mark.parametrize("devices", [1, 2, 4, 16, 32])
def test_blocks_are_those_of_a_brute_force_derivation(devices: int, per_node: int) -> None:
    """As many, and the same ones."""
    listed = [(each.tensor, each.spread, each.tensor_outside) for each in blocks(devices, per_node)]
    assert len(listed) == len(set(listed))
    assert set(listed) == derived(devices, per_node)


@pytest.mark.parametrize(("devices", "per_node", "count"), [(32, 8, 185), (16, 8, 121), (1, 8, 1), (2, 1, 5)])
def test_strategies_are_pairs_of_blocks_for_each_number_of_stages(devices: int, per_node: int, count: int) -> None:
    """Their count is the sum of squares of the counts of blocks; the paper's clusters have 185 and 121."""
    every = [*strategies(devices, per_node)]
    stages = [devices >> i for i in range(devices.bit_length())]
    assert len(every) == len(set(every)) == sum(len(derived(each, per_node)) ** 2 for each in stages) == count
    assert {each.devices for each in every} == {devices}


@given(st.sampled_from([*strategies(32, 8)]))
def test_what_is_written_is_read(strategy: LayerStrategy) -> None:
    """A strategy's text names that strategy."""
    assert parse(str(strategy), 32, 8) == strategy


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("TP=8 [PP=4]", LayerStrategy(StrategyBlock(8, 1), StrategyBlock(8, 1), 4)),
        ("TP=8 + DP=4, EP=32", LayerStrategy(StrategyBlock(8, 4), StrategyBlock(1, 32))),
        ("TP=4+DP=8,TP=8+EP=4", LayerStrategy(StrategyBlock(4, 8), StrategyBlock(8, 4))),
        ("DP=8 + TP=4, EP=8 + TP=4", LayerStrategy(StrategyBlock(4, 8, True), StrategyBlock(4, 8, True))),
    ],
)
def test_strategies_as_the_paper_writes_them(text: str, meant: LayerStrategy) -> None:
    """With or without blanks; one block alone stands for both."""
    assert parse(text, 32, 8) == meant


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' must be TP=degree or DP=degree"),
        ("TP=8 + DP=4", "experts are missing"),
        ("TP=8 + DP=4, TP=8 + EP=4, EP=4", "must be attention, experts"),
        ("TP=8 + EP=4, EP=32", "'EP=4' must be TP=degree or DP=degree"),
        ("TP=8 + TP=4, EP=32", "'TP=4' must be .*, each kind once"),
        ("TP=8 + DP=4, DP=32", "'DP=32' must be TP=degree or EP=degree"),
        ("TP=8, TP=8 [TP=4]", "'TP=4' must be PP=degree"),
        ("TP=8 + DP=3, EP=24", "must use 32 devices"),
        ("TP=16 + DP=2, EP=32", "the first degree of two within a node of 8"),
        ("TP=8 + DP=4, EP=16", "must use 32 devices"),
        ("TP=8, TP=8 [PP=0]", "must use 32 devices"),
    ],
)
def test_what_the_grammar_does_not_derive_is_refused(text: str, message: str) -> None:
    """By the part that is wrong, with what would be right."""
    with pytest.raises(ConfigError, match=f"strategy='.*': .*{message}"):
        parse(text, 32, 8)


def test_spans_of_groups() -> None:
    """What is inside lies side by side; what is outside is spread over all devices of the block."""
    inside, outside = StrategyBlock(8, 4), StrategyBlock(4, 8, tensor_outside=True)
    assert (inside.tensor_span, inside.spread_span) == (8, 32)
    assert (outside.tensor_span, outside.spread_span) == (32, 8)
    assert (StrategyBlock(1, 4).tensor_span, StrategyBlock(1, 4).spread_span, StrategyBlock(4, 1).tensor_span) == (
        1,
        4,
        4,
    )
