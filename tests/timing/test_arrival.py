"""Who comes when: ranks that arrive apart, and whose latency is told."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError
from xccl_emu.machine.pod import Pod
from xccl_emu.protocols.experts.config import EpConfig
from xccl_emu.protocols.pull.session import ExpertParallel
from xccl_emu.timing.arrival import Taken, arrivals, on_cores
from xccl_emu.timing.run import VirtualTime

from .support import COSTS, ROUND, SPEC


@given(st.integers(1, 300), st.floats(0, 100), st.integers(0, 5))
def test_ranks_arrive_by_one_distribution(ranks: int, spread: float, seed: int) -> None:
    """From zero on, with about the deviation that was asked for, the same for a seed, and symmetrical."""
    starts = arrivals(ranks, spread, seed)
    assert starts.min() == 0.0
    assert (starts == arrivals(ranks, spread, seed)).all()
    assert starts.mean() == pytest.approx((starts.max() + starts.min()) / 2, abs=1e-6)
    if ranks > 100:
        assert starts.std() == pytest.approx(spread, rel=0.05)


def test_the_last_of_many_is_later() -> None:
    """The last of more ranks is further behind the mean: of eight 1.6 deviations, of 256 2.3, and of no number 2.5."""
    behind = {n: (starts.max() - starts.mean()) for n in (8, 256) for starts in [arrivals(n, 1.0, 0)]}
    assert behind == pytest.approx({8: 6**0.5 * (1 - 8**-0.5), 256: 6**0.5 * 15 / 16}, abs=1e-9)


@pytest.mark.parametrize(("ranks", "spread"), [(0, 1.0), (2, -1.0), (2, float("nan"))])
def test_impossible_arrivals(ranks: int, spread: float) -> None:
    """No rank, or a spread that is none, is refused."""
    with pytest.raises(ConfigError, match=f"ranks={ranks}, spread_us={spread}"):
        arrivals(ranks, spread, 0)


def test_an_operator_absorbs_the_spread() -> None:
    """Ranks that start far apart leave dispatch nearly together: it took longest on the one that came first."""
    took: dict[str, Any] = {}
    starts = np.array([0.0, 900.0, 50.0, 300.0])
    for name, late in (("together", 0 * starts), ("apart", starts)):
        policy = VirtualTime(ROUND, COSTS, start_us=on_cores(late, range(2), SPEC.cores_per_die))
        group = ExpertParallel(Pod(SPEC, policy=policy), EpConfig(4, hidden=64, top_k=2, tokens_max=5, cores=2))
        topk = np.array([[t % 4, (t + 1 + t // 4) % 4] for t in range(5)], np.int32)
        group.dispatch([np.ones((5, 64), ml_dtypes.bfloat16)] * 4, [topk] * 4)
        took[name] = Taken.of(policy.timing, late)
    assert np.ptp(took["apart"].ends_us) < 10
    assert took["apart"].us.argmax() == 0
    waited = starts.max() - starts
    assert took["apart"].us == pytest.approx(took["together"].us + waited, abs=10)
    assert took["apart"].mean_us == pytest.approx(took["apart"].us.mean())
