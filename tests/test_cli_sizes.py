"""`xccl-emu sizes`: what buffers a configuration takes, and what published libraries reserve for the same."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli_support import printed, refusal
from xccl_emu.cli.sizes import Sizes, sizes
from xccl_emu.protocol.case import Case
from xccl_emu.protocol.registry import make
from xccl_emu.protocols.deepep.session import DeepEpConfig


def of(name: str, **more: int) -> Sizes:
    """The sizes of a case that ships."""
    case = make(name, **more)
    assert isinstance(case, Case)
    return sizes(name, case)


@settings(max_examples=10)
@given(slots=st.integers(1, 9), granules=st.integers(1, 5))
def test_regions_are_what_the_protocol_keeps(slots: int, granules: int) -> None:
    """Send/recv has a ring of slots on the receiver, a flag line on each side, and two halves of a data buffer."""
    found = of("sendrecv", slots=slots, granules=granules)
    ring = next(each for each in found.regions if each.region == "ring")
    assert (ring.area, ring.count, ring.bytes) == ("managed data", slots, 32 * granules * slots)
    assert {each.region for each in found.regions if each.area == "metadata"} == {"ack", "tail"}
    assert found.ub_bytes == 2 * 32 * granules


def test_two_sets_of_deepep_are_within_its_hint() -> None:
    """The hint is that of its formula, computed by hand for a message of 256 elements, and covers what is received."""
    found = of("deepep-ll", ranks=4, tokens=2, experts=3, granules=8, rounds=1)
    (hint,) = found.published_bytes.values()
    dispatched, combined = 16 + 2 * 256, 2 * 4 + 2 * 256
    assert hint == 2 * (24 * combined + 24 * dispatched + 128) + 128
    config = DeepEpConfig(4, local_experts=3, hidden=256, tokens_max=2, top_k=1)
    kept = next(each for each in found.regions if each.region == "set" and each.area == "managed data")
    assert kept.bytes == 2 * config.set_bytes


def test_buffer_of_hccl_is_that_of_the_operator() -> None:
    """At 16 ranks, 128 tokens, hidden 7168 and 8 choices, CANN asks for 2 x (15,360 x 128 x 16 + 14,336 x 128 x 8)."""
    (needed,) = make("fused", ranks=16, granules=224, tokens=128, top_k=8).published_bytes.values()
    assert needed == 2 * 128 * (-(-(14336 + 44) // 512) * 512 * 16 + 14336 * 8)


def test_command_prints_both_forms() -> None:
    """A table with the formula below it, and JSON with the same numbers."""
    said = printed("sizes", "deepep-ll", "--ranks", "2", "--tokens", "1")
    told = json.loads(printed("sizes", "deepep-ll", "--ranks", "2", "--tokens", "1", "--json"))
    assert f"{told['managed_bytes']:,}" in said
    assert "get_low_latency_rdma_size_hint" in said
    assert "must be a name of xccl-emu list" in refusal("sizes", "--ranks", "2")


@pytest.mark.parametrize("name", ["a2e", "kv", "membership", "barrier"])
def test_areas_hold_their_regions(name: str) -> None:
    """No region is larger than its area, whatever the protocol."""
    found = of(name)
    areas = {"app data": found.app_bytes, "metadata": found.meta_bytes, "managed data": found.managed_bytes}
    assert found.regions
    assert all(0 < each.bytes <= areas[each.area] for each in found.regions)
