"""What `measure` says of a protocol, and how a sweep of one is shown."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli_support import as_json, printed
from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.bench.result import Result, even
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.papers.cli.bench_plot import _axis_of, _drawn
from xccl_emu.papers.cli.perf import Perf, case_jobs
from xccl_emu.protocol.registry import make
from xccl_emu.testing import measure
from xccl_emu.timing.costs import Costs
from xccl_emu.timing.topologies import CLOUDMATRIX384


def swept(**sizes: str) -> list[Result]:
    """Rows of a sweep."""
    return [job.run() for job in case_jobs("moe", sizes, Perf(), Setting())]


@settings(max_examples=5)
@given(chunks=st.integers(1, 9), slots=st.integers(1, 4))
def test_parts_add_up_to_the_latency(chunks: int, slots: int) -> None:
    """The critical path has no gaps; works by pipe, waits, and what the fabric takes are all of it."""
    took = measure(make("sendrecv", chunks=chunks, slots=slots))
    assert took.wrong_bytes == 0
    assert sum(took.by_resource_us.values()) == pytest.approx(took.latency_us)
    fabric = sum(took.by_resource_us.get(name, 0.0) for name in ("latency", "skew"))
    parts = sum(took.by_pipe_us.values()) + sum(took.by_wait_us.values()) + fabric
    assert parts == pytest.approx(took.latency_us)


def test_bandwidth_fabric_and_costs() -> None:
    """Bandwidths are those of nccl-tests; a fabric may be a name or one's own; costs count."""
    case = make("all-reduce-ring", ranks=4, elements=4096)
    took = measure(case)
    assert took.algbw_gb_s == pytest.approx((case.payload_bytes or 0) / took.latency_us / 1000)
    assert took.busbw_gb_s == pytest.approx(took.algbw_gb_s * 1.5)
    assert measure(case, fabric=CLOUDMATRIX384).latency_us == took.latency_us
    assert measure(case, costs=replace(Costs(), poll_ns=5000.0)).latency_us > took.latency_us
    assert measure(make("sendrecv")).algbw_gb_s is None
    with pytest.raises(ConfigError, match="fabric a3"):
        measure(case, fabric="a3")


def test_sweep_is_shown_by_what_differs() -> None:
    """Lists of one number are this number, what is the same stands in the title, and curves go along one size."""
    rows = swept(ranks="2,4", tokens="1,2,4")
    assert [row.swept for row in rows] == [("ranks", "tokens")] * 6
    assert [row.what for row in rows][:2] == ["ranks=2 tokens=1,1", "ranks=2 tokens=2,2"]
    assert _axis_of(rows) == "tokens"
    (panel,) = _drawn(rows, CLOUDMATRIX384).axes
    assert [line.get_label() for line in panel.lines] == ["ranks 2", "ranks 4"]
    assert panel.get_xscale() == panel.get_yscale() == "log"
    assert [list(line.get_xdata()) for line in panel.lines] == [[1, 2, 4]] * 2
    out = printed("bench", "moe", "--ranks", "2,4", "--tokens", "1")
    assert "published" not in out
    assert "tokens=1" in " ".join(out.split())


@pytest.mark.parametrize(("value", "is_"), [("4,4", 4), ("4", 4), ("4,5", "4,5"), ("fp16", "fp16"), (3, 3), ("", "")])
def test_even_lists_are_a_number(value: int | str, is_: int | str) -> None:
    """Anything else is as it was."""
    assert even(value) == is_


def test_prices_follow_the_latency_of_a_case() -> None:
    """A row for each name that a run comes to, with its interval; what has no price has a note that says why."""
    words = ("bench", "case", "sendrecv", "--chunks", "3", "--slots", "2", "--price", "--band", "--no-data")
    latency, *prices = as_json(*words)["results"]
    by_name = {row["what"]: row for row in prices}
    assert latency["emulated"] > by_name["slot free"]["emulated"] > 0
    assert by_name["slot free"]["low"] < by_name["slot free"]["emulated"] < by_name["slot free"]["high"]
    assert (by_name["tail"]["emulated"], by_name["tail"]["note"]) == (None, "without it deadlock")
    assert "DMA before tail" not in by_name
