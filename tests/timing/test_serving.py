"""KV caches beside a dispatch: over the RDMA plane they leave it alone, over UB they hold it up."""

import pytest

from xccl_emu.papers.bench.kv import BESIDE_BLOCKS, BLOCK_BYTES, dispatch_us


@pytest.mark.slow
def test_caches_over_rdma_change_no_dispatch() -> None:
    """[CloudMatrix384] 4.3.3: to the picosecond the dispatch is as without, while the caches come
    later; over UB it takes 3% more."""
    alone, _ = dispatch_us(None)
    over_rdma, slow = dispatch_us("RDMA plane")
    over_ub, fast = dispatch_us("")
    assert over_rdma == alone
    assert over_ub / alone == pytest.approx(1.04, abs=0.01)
    assert slow > BESIDE_BLOCKS * BLOCK_BYTES / 25e3 > fast
