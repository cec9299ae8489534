"""Data caches of scalar units: what is refused, what a full one does; a dcci costs nothing where there is none."""

from typing import Any

import numpy as np
import pytest

from xccl_emu.base.errors import AccessError, ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import UNFINISHED, UNSUPPORTED, VERIFIED
from xccl_emu.lang import dcci, kernel, load, store
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.testing import Bench, protocol
from xccl_emu.timing.run import VirtualTime

AREAS = {"app_bytes": 512, "meta_bytes": 256, "managed_bytes": 256, "ub_bytes": 32}


@kernel
def double(table, words, step):
    """Double each word of a table, in two passes, and clean nothing; or clean what it has never touched."""
    for i in range(words):
        value = yield load(table + 8 * i)
        yield store(table + 8 * i, 2 * value)
        if step:
            yield dcci(table + step)
    for i in range(words):
        value = yield load(table + 8 * i)
        yield store(table + 8 * i, value + 1)


@protocol
def doubling(bench: Bench, lines: int = 8, words: int = 32) -> None:
    """One core doubles a table of four lines."""
    pod = bench.pod(small_pod(1, scalar_cache=lines, **AREAS))
    table = bench.filled(0, np.arange(1, words + 1))
    bench.expect(table.address, 2 * np.arange(1, words + 1) + 1, "doubled")
    pod.launch(double, 0, [0], {"table": table.address, "words": words, "step": 0}, [pod.grant(table, "rw")])


@kernel
def store_and_load(word):
    """Store a word, clean its line, and load it."""
    yield store(word, 1)
    yield dcci(word)
    value = yield load(word)
    yield store(word + 8, value + 1)


@protocol
def reloading(bench: Bench) -> None:
    """One core, by itself."""
    pod = bench.pod(small_pod(1, scalar_cache=4, **AREAS))
    bench.expect(pod.meta(0), np.array([1, 2]), "words")
    pod.launch(store_and_load, 0, [0], {"word": pod.meta(0)}, [pod.grant_meta("rw", 0)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"scalar_cache": -1}, "scalar_cache=-1"), ({"scalar_cache": 257}, "scalar_cache=257"),
     ({"scalar_cache": 1, "atomic_bytes": 4, "flight_granules": 15}, "flight_granules=15: must be at least 16"),
     ({"scalar_cache": 1, "die_bytes": 32, "meta_bytes": 0, "managed_bytes": 0}, "die_bytes=32: must be at least 64")],
)  # fmt: skip
def test_a_cache_that_cannot_be_is_refused(changes: dict[str, int], message: str) -> None:
    """Too few or too many lines, or no room for one on its way to memory, are refused before a pod is made."""
    with pytest.raises(ConfigError, match=message):
        small_pod(1).with_(**changes)


@pytest.mark.parametrize("order", ["sc", "relaxed"])
@pytest.mark.parametrize("policy", ["round-robin", "random"])
@pytest.mark.parametrize("lines", [0, 1, 3, 8])
def test_a_core_by_itself_sees_no_cache(lines: int, policy: str, order: str) -> None:
    """With fewer lines than it needs, and with more, a core computes the same, and all is in memory when it returns."""
    pod = Pod(small_pod(1, scalar_cache=lines, **AREAS), order=order, policy=policy)
    table = pod.put(0, np.arange(32))
    for _ in range(2):
        pod.launch(double, 0, [0], {"table": table.address, "words": 32, "step": 8}, [pod.grant(table, "rw")])
        pod.run()
    assert pod.view(table, np.int64).tolist() == [2 * (2 * i + 1) + 1 for i in range(32)]


def test_a_search_that_would_need_more_lines_proves_nothing() -> None:
    """A cache that is full leaves the search unfinished; with one line more than is needed it is verified."""
    short, enough = (check(doubling(lines=lines)) for lines in (4, 5))
    assert short.verdict == UNFINISHED
    assert "scalar_cache" in short.reason
    assert enough.verdict == VERIFIED
    assert enough.bounds["cache_lines"] == 5


@pytest.mark.parametrize("order", ["sc", "fifo", "relaxed", "unordered"])
@pytest.mark.parametrize("reduction", ["full", "merged"])
def test_a_line_that_was_cleaned_can_be_loaded_again(reduction: str, order: str) -> None:
    """A load that waits for the write-back of its line goes on when that is visible, where nobody can tell too."""
    assert check(reloading(), order=order, reduction=reduction).verdict == VERIFIED


def test_what_goes_without_caches_says_so() -> None:
    """Faults are not checked where there are caches, and virtual time knows none."""
    assert check(doubling(), fault="stop:die0").verdict == UNSUPPORTED
    pod = Pod(small_pod(1, scalar_cache=1, **AREAS), policy=VirtualTime())
    table = pod.put(0, np.arange(4))
    pod.launch(double, 0, [0], {"table": table.address, "words": 4, "step": 0}, [pod.grant(table, "rw")])
    with pytest.raises(ConfigError, match="scalar_cache=1: must be 0"):
        pod.run()


def test_a_dcci_outside_of_what_a_core_may_touch_is_refused() -> None:
    """Where there is a cache, its address is checked as any other."""
    pod = Pod(small_pod(1, scalar_cache=1, **AREAS))
    table = pod.put(0, np.arange(4))
    pod.launch(double, 0, [0], {"table": table.address, "words": 4, "step": 1 << 40}, [pod.grant(table, "rw")])
    with pytest.raises(AccessError, match="dcci"):
        pod.run()


@pytest.mark.parametrize("step", [64, 1 << 40])
def test_without_a_cache_a_dcci_is_passed_over(step: int) -> None:
    """It takes no action and no time, wherever it points."""

    def run(step: int) -> tuple[Any, ...]:
        policy = VirtualTime()
        pod = Pod(small_pod(1, **AREAS), policy=policy)
        table = pod.put(0, np.arange(4))
        pod.launch(double, 0, [0], {"table": table.address, "words": 4, "step": step}, [pod.grant(table, "rw")])
        stats = pod.run()
        return stats.actions, policy.timing.latency_us, pod.view(table).tobytes()

    assert run(step) == run(0)
