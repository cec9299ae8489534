"""Experts that change while layers run: tokens are computed by the experts that they chose, whatever the map."""

import pytest

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED
from xccl_emu.protocols.serving.swap import DispatchSwap


@pytest.mark.slow
def test_pull_dispatch_and_combine_are_verified() -> None:
    """Two ranks, two rounds, one swap, under every schedule."""
    assert check(DispatchSwap(granules=1), seconds=200).verdict == VERIFIED
