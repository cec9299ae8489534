"""SP-TP-SP: tokens of packed prompts get to the heads of all ranks and back, bit for bit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.refused import refuses
from xccl_emu.kernels.collectives.sp_tp_sp import segment
from xccl_emu.protocol import Case
from xccl_emu.protocols.collectives.sp_tp_sp import SpTpSpCase

from .case_support import orders, policies, wrong_bytes


@settings(max_examples=50, deadline=None)
@given(
    case=st.builds(
        SpTpSpCase, ranks=st.integers(2, 6), tokens=st.integers(1, 20), latent=st.integers(1, 40),
        part=st.integers(1, 40), layers=st.integers(1, 3), dtype=st.sampled_from(["bf16", "fp16"]),
    ),
    order=orders,
    policy=policies,
)  # fmt: skip
def test_any_prompts_go_there_and_back(case: Case, order: str, policy: str) -> None:
    """Fewer tokens than ranks, segments that differ by one, odd sizes, layer after layer."""
    assert wrong_bytes(case, order, policy) == {}


@pytest.mark.nojit
@given(tokens=st.integers(0, 1000), ranks=st.integers(1, 50))
def test_segments_are_as_long_as_each_other(tokens: int, ranks: int) -> None:
    """They cover all tokens, and no two differ by more than one, whatever the lengths of the prompts were."""
    lengths = [segment(rank + 1, ranks, tokens) - segment(rank, ranks, tokens) for rank in range(ranks)]
    assert sum(lengths) == tokens
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.nojit
@refuses(SpTpSpCase, ({"tokens": 65536, "latent": 16384, "ranks": 64}, "tokens=65536: buffers take "))
def test_too_many_tokens_are_refused() -> None:
    """By name, before memory is taken."""
