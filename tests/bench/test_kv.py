"""KV caches over each plane: as long as their bytes take there, what they change of a dispatch, and by protocols."""

import pytest

from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.kv import WAYS, by_protocols, transfer
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


def test_send_and_receive_is_slower_than_a_pull_until_its_ring_hides_acknowledgments() -> None:
    """A small cache by each protocol: bit for bit, and the same times without data.

    By DMA no core moves it; with two chunks each waits for the one before; with eight, two cores do at once what one
    does in a pull.
    """
    cache = {"layers": 2, "blocks": 1, "granules": 1 << 15, "slots": 2, "pool": 4, "tasks": 4, "requests": 1}
    with_data, without = ([*by_protocols(Setting(data=data), cache)] for data in (True, False))
    assert [row.wrong for row in with_data] == [0] * len(WAYS)
    assert [row.emulated for row in with_data] == [row.emulated for row in without]
    pulled, by_dma, ring_of_2, ring_of_8 = (row.emulated for row in without)
    assert by_dma < ring_of_8 < pulled < ring_of_2
