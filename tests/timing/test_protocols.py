"""Virtual time is only a policy: the protocols do the same, bit for bit, and run again they take the same time."""

import ml_dtypes
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from xccl_emu.machine.pod import Pod
from xccl_emu.protocols.experts.config import EpConfig
from xccl_emu.protocols.pull.session import ExpertParallel
from xccl_emu.timing.run import Timing, VirtualTime

from .support import COSTS, ROUND, SPEC, transfer


def layer(policy: str | VirtualTime, cores: int, seed: int) -> tuple[list[NDArray[np.uint16]], dict[str, Timing]]:
    """One layer of a group of four ranks with drawn batches: bits of the outputs, and timings if there are any."""
    rng = np.random.default_rng(seed)
    group = ExpertParallel(Pod(SPEC, policy=policy), EpConfig(4, hidden=64, top_k=2, tokens_max=5, cores=cores))
    lengths = rng.integers(0, 6, 4)
    tokens = [rng.standard_normal((n, 64), dtype=np.float32).astype(ml_dtypes.bfloat16) for n in lengths]
    topk = [np.stack([rng.permutation(4)[:2] for _ in range(n)] or [np.zeros(2)])[:n].astype(np.int32) for n in lengths]
    timings = {}
    group.dispatch(tokens, topk)
    if isinstance(policy, VirtualTime):
        timings["dispatch"] = policy.timing
    group.run_dummy()
    outputs = group.combine([rng.uniform(0, 1, (n, 2)).astype(np.float32) for n in lengths])
    if isinstance(policy, VirtualTime):
        timings["combine"] = policy.timing
    return [np.array(rows.view(np.uint16)) for rows in outputs], timings


@settings(max_examples=15, deadline=None)
@given(cores=st.integers(1, 3), seed=st.integers(0, 1 << 16))
def test_the_same_bits_and_the_same_time_again(cores: int, seed: int) -> None:
    """A timed layer gives the bits of an untimed one, and the same time whenever it is run."""
    policy = VirtualTime(ROUND, COSTS)
    expected, _ = layer("round-robin", cores, seed)
    got, timings = layer(policy, cores, seed)
    again, timings_again = layer(policy, cores, seed)
    for one, other, third in zip(expected, got, again, strict=True):
        assert (one == other).all()
        assert (one == third).all()
    for phase, timing in timings.items():
        assert timing.finished_us == timings_again[phase].finished_us
        assert timing.latency_us > 0


def test_more_bytes_take_longer_and_a_nearer_die_less() -> None:
    """Latency grows with the payload, and is smaller on a shorter path."""
    times = [transfer(nbytes, 2)[0].timing.latency_us for nbytes in (64, 4096, 65536)]
    assert times == sorted(times)
    assert transfer(4096, 2, far=False)[0].timing.latency_us < times[1]
