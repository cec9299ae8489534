"""FusedDispatch and FusedCombine in time: no two ranks begin with the same peer, and all cores have the same to do."""

import ml_dtypes
import numpy as np

from xccl_emu.lang.requests import MTU_OUT
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import MIB, small_pod
from xccl_emu.protocols.fused.session import FusedConfig, FusedExpertParallel
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.run import Timing, VirtualTime

from .support import COSTS, ROUND

RANKS, HIDDEN, TOKENS = 5, 64, 10
ALL_TO_ALL = (np.arange(TOKENS)[:, None] + np.arange(2)) % RANKS
"""Choices by which each rank has four tokens for every rank, and gets four rows of each."""


def timings(cores: int) -> dict[str, Timing]:
    """Timings of dispatch and combine of a group in which everybody has the same for everybody."""
    policy = VirtualTime(ROUND, COSTS, log=True)
    spec = small_pod(RANKS, cores, app_bytes=MIB, meta_bytes=MIB, managed_bytes=MIB, ub_bytes=16384)
    config = FusedConfig(RANKS, hidden=HIDDEN, top_k=2, tokens_max=TOKENS, cores=cores)
    group = FusedExpertParallel(Pod(spec, policy=policy), config)
    group.dispatch([np.ones((TOKENS, HIDDEN), ml_dtypes.bfloat16)] * RANKS, [ALL_TO_ALL] * RANKS)
    dispatch = policy.timing
    group.run_dummy()
    group.combine([np.ones((TOKENS, 2), np.float32)] * RANKS)
    return {"dispatch": dispatch, "combine": policy.timing}


def writes(timing: Timing, step: int, nbytes: int) -> list[tuple[int, int]]:
    """Core and peer of each write of a step and size, in order of time."""
    (kernel,) = {timing.kernels[core] for core in timing.kernels}
    log = timing.records[np.argsort(timing.records[:, tl.RECORD_START], kind="stable")]
    of_step = np.array([site.step == step for site in kernel.sites])[log[:, tl.RECORD_SITE]]
    chosen = log[of_step & (log[:, tl.RECORD_ENGINE] == MTU_OUT) & (log[:, tl.RECORD_NBYTES] == nbytes)]
    return [(int(row[tl.RECORD_CORE]), int(row[tl.RECORD_PEER])) for row in chosen]


def test_every_rank_begins_with_itself_and_goes_round() -> None:
    """On one core, counts and contributions go to the own rank first, then to the next, and last to the one before."""
    found = timings(1)
    for phase, step, nbytes, each in (("dispatch", 2, 32, 1), ("combine", 1, 2 * HIDDEN, 4)):
        everybody = writes(found[phase], step, nbytes)
        for rank in range(RANKS):
            expected = np.repeat((rank + np.arange(RANKS)) % RANKS, each)
            assert [peer for core, peer in everybody if core == rank] == expected.tolist()


def test_all_cores_have_the_same_to_do() -> None:
    """With twice as many cores as ranks, each brings two of the twenty rows in order, and sends two back."""
    found = timings(10)
    for phase, step, nbytes in (("dispatch", 3, HIDDEN), ("combine", 1, 2 * HIDDEN)):
        cores = [core for core, _ in writes(found[phase], step, nbytes)]
        assert np.bincount(cores, minlength=10 * RANKS).tolist() == [2] * 10 * RANKS
