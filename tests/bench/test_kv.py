"""KV caches over each plane: as long as their bytes take there, and what they change of a dispatch."""

import pytest

from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.kv import transfer
from xccl_emu.papers.bench.setting import Setting

ROWS = published.rows("kv")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_a_cache_takes_as_long_as_its_bytes(row: published.Published) -> None:
    """Within a tenth of what the bandwidth of the plane says; 16 dies of a node share its card."""
    result = transfer(Setting(data=False), row)
    assert result.emulated == pytest.approx(row.value, rel=0.1)


@pytest.mark.slow
def test_a_cache_arrives_bit_for_bit() -> None:
    """With payload nothing is wrong, and the time is the same."""
    with_data, without = (transfer(Setting(data=data), ROWS[1]) for data in (True, False))
    assert (with_data.wrong, with_data.emulated) == (0, without.emulated)
