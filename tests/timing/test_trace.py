"""Traces of timed runs: the format, what can be read off, and how they stay small."""

import itertools
import json
from typing import Any

import numpy as np
import pytest

from xccl_emu.base.errors import ConfigError
from xccl_emu.lang.requests import MTU_OUT, SCALAR
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.trace import save_trace, trace

from .support import copy_by_dma, timed_pod, transfer
from .trace_format import check_events

Event = dict[str, Any]


def of_phase(events: list[Event], phase: str) -> list[Event]:
    """The events of one kind."""
    return [event for event in events if event["ph"] == phase]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """Events of a transfer of several chunks on two channels, read back from its file."""
    path = tmp_path_factory.mktemp("trace") / "t.json"
    save_trace(transfer(9000, 2, log=True)[0].timing, path)
    found: list[Event] = json.loads(path.read_text("utf-8"))["traceEvents"]
    return found


def test_every_event_is_one_of_the_format(events: list[Event]) -> None:
    """Every event of a trace has what the format demands, slices do not overlap, and arrows bind to slices."""
    check_events(events)
    assert {event["pid"] for event in of_phase(events, "X")} == {0, 3}
    assert {event["name"] for event in of_phase(events, "s")} == {"flag", "data"}


def test_counters_add_up_to_the_bytes_that_a_link_carried(events: list[Event]) -> None:
    """The rate of a die's egress over the run is what its transfers to other dies move, and so is the ingress there."""
    sent = sum(e["args"]["bytes"] for e in of_phase(events, "X") if e["pid"] == 0 and e["args"].get("die") == 3)
    for die, link in ((0, "egress, node GB/s"), (3, "ingress, node GB/s")):
        samples = [e for e in of_phase(events, "C") if e["pid"] == die and e["name"] == link]
        steps = itertools.pairwise(samples)
        moved = sum(a["args"]["value"] * 1000 * (b["ts"] - a["ts"]) for a, b in steps)
        rounded = sum(sample["args"]["value"] for sample in samples)  # times are whole nanoseconds
        assert moved == pytest.approx(sent, abs=rounded)
        assert samples[-1]["args"]["value"] == 0


def test_a_trace_of_some_dies() -> None:
    """Only dies that are asked for are in a trace, from a whole log or from one of theirs alone, with equal slices."""
    alone = trace(transfer(64, 1, log=[3])[0].timing, [3])
    chosen = trace(transfer(64, 1, log=True)[0].timing, [3])
    assert {event["pid"] for event in alone.events} == {3}
    assert of_phase(alone.events, "X") == of_phase(chosen.events, "X")
    assert [e for e in alone.events if e["ph"] == "C"] == [e for e in chosen.events if e["ph"] == "C"]


def test_a_trace_keeps_within_its_number_of_events() -> None:
    """What begins when there are enough events is left out and counted, and what is shown is right in itself."""
    timing = transfer(9000, 2, log=True)[0].timing
    whole, part = trace(timing), trace(timing, events_max=60)
    assert (whole.left_out, whole.until_us) == (0, timing.latency_us)
    assert part.left_out > 0
    assert 60 <= part.slices + 2 * part.arrows < 64
    assert part.until_us < timing.latency_us
    check_events(part.events)
    assert max(event["ts"] for event in of_phase(part.events, "X")) <= part.until_us
    assert part.to_json({})["otherData"]["actions left out"] == str(part.left_out)


def test_copies_by_dma_have_threads_of_their_own() -> None:
    """Descriptors of a core run beside each other, so their slices do, each on a thread."""
    pod, policy = timed_pod(2)
    source, target = pod.alloc(0, 4096), pod.alloc(1, 4096)
    pod.view(source)[:] = 1
    args = {"source": source.address, "target": target.address, "nbytes": 4096}
    pod.launch(copy_by_dma, 0, [0], args, [pod.grant(source, "r"), pod.grant(target, "w")])
    pod.run()
    events = trace(policy.timing).events
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    (copy,) = [event for event in of_phase(events, "X") if names[event["tid"]] == "core 0 dma"]
    assert copy["name"] == "dma"
    assert copy["args"]["bytes"] == 4096


def test_what_cannot_be_drawn() -> None:
    """Dies that took no part or are not in the log, a run without a log and no events at all are refused."""
    timing = transfer(64, 1, log=[3])[0].timing
    with pytest.raises(ConfigError, match=r"dies=\[2\]: did not take part"):
        trace(timing, [2, 3])
    with pytest.raises(ConfigError, match=r"dies=\[0\]: are not in the log"):
        trace(timing)
    with pytest.raises(ConfigError, match="events_max=0"):
        trace(timing, [3], events_max=0)
    with pytest.raises(ConfigError, match="log=True"):
        trace(transfer(64, 1)[0].timing)
    with pytest.raises(ConfigError, match="die 4: the pod has dies 0 to 3"):
        transfer(64, 1, log=[4])


def test_a_log_of_sites_has_when_these_were_granted() -> None:
    """It has the rows of a whole log that are of these sites, polls and writes, but no causes; the run is the same."""
    chosen = {"tail", "tail in"}
    whole, some = transfer(9000, 2, log=True)[0].timing, transfer(9000, 2, log=[0, 3], sites=chosen)[0].timing
    sites = [whole.site(row) for row in whole.records]
    wanted = whole.records[[site is not None and site.sync in chosen for site in sites]]
    assert {int(engine) for engine in wanted[:, tl.RECORD_ENGINE]} == {SCALAR, MTU_OUT}
    without_cause = np.arange(tl.RECORD_WORDS) != tl.RECORD_CAUSE
    assert (some.records[:, without_cause] == wanted[:, without_cause]).all()
    assert (some.records[:, tl.RECORD_CAUSE] == -1).all()
    assert some.finished_us == whole.finished_us
    with pytest.raises(ConfigError, match=r"are not in the log, which is of \[\]"):
        trace(some)
    with pytest.raises(ConfigError, match="sites='no such'"):
        transfer(64, 1, log=True, sites=["no such"])
