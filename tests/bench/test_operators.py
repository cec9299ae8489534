"""Figure 3 of MixServe by runs: what its text says of it comes out of kernels on the paper's cluster."""

import pytest

from xccl_emu.papers.bench.operators import flat_kb, operators
from xccl_emu.papers.bench.setting import Setting


def test_where_a_curve_leaves_the_flat_part() -> None:
    """Twice the first time, between two sizes in proportion of logarithms."""
    assert flat_kb([1, 10, 100], [5.0, 5.0, 20.0]) == pytest.approx(10 ** (1 + 0.5))


@pytest.mark.slow
def test_what_the_paper_says_of_the_figure_holds() -> None:
    """Each claim, and times that grow with size and with the distance."""
    rows = operators(Setting(data=False))
    assert all(row.met for row in rows if row.published is not None)
    us = {row.what: row.emulated or 0.0 for row in rows if row.published is None}
    for operation in ("AR", "A2A"):
        for kb in (8, 512, 8192):
            within, between = (us[f"{operation}, {kb} KB, 4 devices {place} nodes"] for place in ("within", "between"))
            assert within < between
