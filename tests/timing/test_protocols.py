"""Virtual time is only a policy: the protocols do the same, bit for bit, and run again they take the same time."""

import itertools
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from xccl_emu.errors import ConfigError
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.protocols.expert_parallel import ExpertParallel
from xccl_emu.protocols.layout import EpConfig
from xccl_emu.protocols.sendrecv import SendRecv
from xccl_emu.timing.critical import breakdown
from xccl_emu.timing.run import Timing, VirtualTime
from xccl_emu.timing.trace import save_trace, trace

from .support import COSTS, ROUND

SPEC = small_pod(4, 3, app_bytes=1 << 20, managed_bytes=1 << 20, meta_bytes=1 << 16, ub_bytes=1 << 15)


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
    group.run_stand_in()
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


def transfer(nbytes: int, cores: int, log: bool = False, far: bool = True) -> tuple[VirtualTime, Pod]:
    """A payload from die 0 to die 3 or 1, whose bytes are checked."""
    policy = VirtualTime(ROUND, COSTS, log=log)
    pod = Pod(SPEC, policy=policy)
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype=np.uint8)
    target = pod.alloc(3 if far else 1, nbytes)
    comm = SendRecv(pod)
    comm.transfer(pod.put(0, data), target, event_id=1, cores=cores)
    comm.run()
    assert (pod.view(target) == data).all()
    return policy, pod


def test_more_bytes_take_longer_and_a_nearer_die_less() -> None:
    """Latency grows with the payload, and is smaller on a shorter path."""
    times = [transfer(nbytes, 2)[0].timing.latency_us for nbytes in (64, 4096, 65536)]
    assert times == sorted(times)
    assert transfer(4096, 2, far=False)[0].timing.latency_us < times[1]


def test_a_log_changes_no_time() -> None:
    """Keeping a log only adds the log; the critical path adds up to the latency."""
    with_log, without = transfer(9000, 2, log=True)[0].timing, transfer(9000, 2)[0].timing
    assert with_log.finished_us == without.finished_us
    assert sum(breakdown(with_log).values()) == pytest.approx(with_log.latency_us)
    assert len(without.records) == 0


def check_events(events: list[dict[str, object]]) -> None:
    """The trace event format: complete slices, flows that bind to slices, counters, no time below 0."""
    slices: dict[tuple[object, object], list[tuple[float, float]]] = {}
    flows: dict[object, dict[str, tuple[float, tuple[object, object]]]] = {}
    for event in events:
        phase, place = event["ph"], (event["pid"], event.get("tid"))
        assert phase in "MXsfC"
        if phase == "M":
            assert event["name"] in ("process_name", "thread_name")
            continue
        ts = event["ts"]
        assert isinstance(ts, float)
        assert ts >= 0
        if phase == "X":
            assert isinstance(event["dur"], float)
            assert event["dur"] > 0
            slices.setdefault(place, []).append((ts, ts + event["dur"]))
        elif phase in "sf":
            flows.setdefault(event["id"], {})[str(phase)] = (ts, place)
    for spans in slices.values():  # of one engine: one after the other
        spans.sort()
        assert all(b[0] >= a[1] - 1e-6 for a, b in itertools.pairwise(spans))
    for ends in flows.values():
        assert set(ends) == {"s", "f"}
        assert ends["s"][0] <= ends["f"][0]
        for ts, place in ends.values():
            assert any(start <= ts <= end for start, end in slices[place])
    assert slices
    assert flows


def test_trace_of_a_transfer(tmp_path: Path) -> None:
    """Every event of a trace is one that the format has, slices of an engine do not overlap, and flows bind."""
    policy, _ = transfer(9000, 2, log=True)
    save_trace(policy.timing, tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    check_events(events)
    steps = {event["args"]["step"] for event in events if event["ph"] == "X" and event["args"].get("step")}
    assert steps == set(range(1, 9))  # the paper's eight
    assert {event["pid"] for event in events} == {0, 3}


def test_trace_of_some_dies() -> None:
    """Only dies that are asked for are in a trace; one that took no part is refused, and so is a run without a log."""
    policy, _ = transfer(64, 1, log=True)
    assert {event["pid"] for event in trace(policy.timing, [3])["traceEvents"]} == {3}
    with pytest.raises(ConfigError, match=r"dies=\[2\]: did not take part"):
        trace(policy.timing, [2, 3])
    with pytest.raises(ConfigError, match="log=True"):
        trace(transfer(64, 1)[0].timing)
