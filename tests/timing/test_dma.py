"""The DMA engine of a die in time: a queue for each core, descriptors started one after the other, nothing idle."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.transfers import copy_blocks
from xccl_emu.lang import DMA, SCALAR, dma, kernel, wait_flag
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.timing.costs import Costs
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.run import VirtualTime

from .support import COSTS, ROUND

START_US, US_A_BYTE = COSTS.dma_start_us, 0.5 / 1000
LATENCY_US = 2 * 5.0 - START_US
"""Constants of `ROUND` and `COSTS`, for a write to another node."""


def copies(
    cores: int, times: int, nbytes: int, starts: list[float], engines: int = 1, **more: float
) -> tuple[VirtualTime, bool]:
    """Each core of a die copies some blocks to a die of another node; the policy, and whether all arrived."""
    policy = VirtualTime(ROUND, replace(COSTS, dma_engines=engines, **more), log=True, start_us=dict(enumerate(starts)))
    pod = Pod(small_pod(6, cores, app_bytes=1 << 16), policy=policy)
    data = np.arange(cores * times * nbytes) % 251
    source, target = pod.put(0, data.astype(np.uint8)), pod.alloc(5, data.size)
    each = times * nbytes
    args = {
        "source": [source.address + core * each for core in range(cores)],
        "target": [target.address + core * each for core in range(cores)], "nbytes": nbytes, "times": times,
    }  # fmt: skip
    pod.launch(copy_blocks, 0, range(cores), args, [pod.grant(source, "r"), pod.grant(target, "w")])
    pod.run()
    return policy, bool((pod.view(target) == pod.view(source)).all())


@pytest.mark.nojit
def test_a_core_stops_and_waits() -> None:
    """Each descriptor of a core is started when the one before it is done, whatever its place: N times all of it."""
    policy, right = copies(1, 12, 256, [])
    assert right
    once = START_US + 256 * US_A_BYTE + LATENCY_US
    assert policy.timing.latency_us == pytest.approx(12 * once, rel=0.01)


def test_the_engine_serves_others_while_a_core_waits() -> None:
    """With many cores it starts one descriptor after the other; only the last one's bytes and latency come on top."""
    policy, right = copies(3, 8, 64, [])
    assert right
    assert policy.timing.latency_us == pytest.approx(24 * START_US + 64 * US_A_BYTE + LATENCY_US, rel=0.01)


@pytest.mark.nojit
@pytest.mark.parametrize("engines", [1, 2, 3, 8])
def test_engines_share_the_descriptors_of_a_die(engines: int) -> None:
    """Each starts by itself: of descriptors that are rung together, so many are started at once."""
    policy, right = copies(6, 1, 32, [], engines)
    assert right
    rounds = -(-6 // engines)
    expected = rounds * START_US + 6 / rounds * 32 * US_A_BYTE + LATENCY_US
    assert policy.timing.latency_us == pytest.approx(expected, rel=0.01)


@pytest.mark.nojit
@pytest.mark.parametrize("under_way", [1, 2, 3, 8])
def test_descriptors_of_a_core_overlap(under_way: int) -> None:
    """With so many under way one is started when the engine is free, and the one so many before it is done."""
    policy, right = copies(1, 12, 256, [], dma_in_flight=under_way, dma_start_us=1.0)
    assert right
    once = 1.0 + 256 * US_A_BYTE + (2 * 5.0 - 1.0)
    expected = -(-12 // under_way) * once + (12 - 1) % under_way * 1.0
    assert policy.timing.latency_us == pytest.approx(expected, rel=0.05)


@pytest.mark.nojit
@pytest.mark.parametrize("under_way", [1, 8])
def test_a_queue_has_its_own_rate(under_way: int) -> None:
    """What a core's descriptors move passes one after the other, slower than the link if its rate is less."""
    policy, right = copies(1, 8, 4096, [], dma_in_flight=under_way, dma_start_us=1.0, dma_gb_s=0.4)
    assert right
    expected = 8 * 4096 * 2.5 / 1000 + (8 if under_way == 1 else 1) * 10.0
    assert policy.timing.latency_us == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("name", ["dma_engines", "dma_in_flight"])
@pytest.mark.parametrize("number", [0, 9, 1.5])
def test_a_die_has_a_whole_number_of_engines(name: str, number: float) -> None:
    """Another number is refused by name, of engines and of descriptors that are under way."""
    with pytest.raises(ConfigError, match=name):
        Costs(**{name: number})


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(0, 60), min_size=2, max_size=6))
def test_the_earliest_that_is_ready_goes_first(starts: list[float]) -> None:
    """Cores that ring at drawn times are served in the order of ringing, and the engine idles only when none is ready:
    each starts when it is ready, or when the one before it was started."""
    policy, right = copies(len(starts), 1, 32, starts)
    assert right
    records = policy.timing.records
    done = records[records[:, tl.RECORD_ENGINE] == DMA][:, [tl.RECORD_CORE, tl.RECORD_END]]
    rung = sorted((start, core) for core, start in enumerate(starts))
    free, expected = 0.0, []
    for start, _ in rung:
        free = max(free, start + 0.03) + START_US
        expected.append(free + 32 * US_A_BYTE)
    found = sorted(end / 1e6 for _, end in done.tolist())
    assert found == pytest.approx(expected, abs=0.11)  # cores are in order to 50 ns, and so are their turns


@kernel
def ring_back(source, target, nbytes):
    """Ring descriptors of high event IDs before those of low ones, then wait for all."""
    for i in range(4):
        yield dma(source + i * nbytes, target + i * nbytes, nbytes, 7 - i)
    for i in range(4):
        yield wait_flag(DMA, SCALAR, 7 - i, sync="copied")


def test_slots_are_no_order() -> None:
    """A core's descriptors are done as they were rung, not by number of their slot, and each moves its own bytes."""
    policy = VirtualTime(ROUND, COSTS, log=True)
    pod = Pod(small_pod(6, 1, app_bytes=1 << 16), policy=policy)
    source, target = pod.put(0, np.arange(256, dtype=np.uint8)), pod.alloc(5, 256)
    args = {"source": source.address, "target": target.address, "nbytes": 64}
    pod.launch(ring_back, 0, [0], args, [pod.grant(source, "r"), pod.grant(target, "w")])
    pod.run()
    records = policy.timing.records
    done = records[records[:, tl.RECORD_ENGINE] == DMA]
    assert (np.diff(done[:, tl.RECORD_READ]) == 64).all()
    assert (np.diff(done[:, tl.RECORD_END]) > 0).all()
    assert (pod.view(target) == pod.view(source)).all()
