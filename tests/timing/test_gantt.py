"""Gantt charts of timed runs: when a die computes, and when it writes to others."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError
from xccl_emu.protocols.mixserve.case import MixServeCase
from xccl_emu.timing.gantt import busy_us, gantt, lines, merged
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.topologies import ATLAS_800T_A2

BARS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)).map(lambda bar: (bar[0], bar[0] + bar[1])))


@pytest.mark.nojit
@given(BARS)
def test_merged_bars_are_busy_when_some_bar_was(bars: list[tuple[float, float]]) -> None:
    """They lie apart, and cover what the bars covered and nothing else."""
    together = merged(bars)
    assert all(one[1] < other[0] for one, other in pairwise(together))
    covered = {i for begin, end in bars for i in range(int(begin), int(end))}
    assert covered == {i for begin, end in together for i in range(int(begin), int(end))}
    assert busy_us(together) == len(covered)


@pytest.mark.nojit
def test_a_chart_as_text() -> None:
    """Half of a column's time and more is a #, less a dot; bars end where they end."""
    drawn = lines({"a": [(0.0, 5.0)], "bb": [(5.0, 5.4), (8.0, 10.0)]}, 10.0, 10)
    assert [line[4:14] for line in drawn[1:]] == ["#####     ", "     .  ##"]
    assert drawn[2].endswith("2.4")


def test_dispatch_writes_between_and_within_nodes() -> None:
    """Steps of the paper by the links that they take, and no die that was not logged."""
    trial = MixServeCase(nodes=2, ranks=8, hidden=256, tokens=4, part="dispatch").build("sc")
    policy = trial.pod.policy = VirtualTime(ATLAS_800T_A2, log=[3])
    trial.pod.run()
    bars = gantt(policy.timing, 3)
    assert list(bars) == ["step 8, RoCE", "step 13, HCCS"]
    assert max(end for each in bars.values() for _, end in each) < policy.timing.latency_us
    with pytest.raises(ConfigError, match="die=2: the run has no log of it"):
        gantt(policy.timing, 2)
