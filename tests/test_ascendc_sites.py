"""Sites of kernels in Ascend C: one for each caller, none for a user's own methods, and what a cut takes."""

from typing import Any

import numpy as np
import pytest

from tests.cli_support import printed
from tests.foreign_support import ROOT, has_compiler
from xccl_emu.check import check, verdict
from xccl_emu.check.reach import without_requests
from xccl_emu.doors import ascendc
from xccl_emu.doors.ascendc import sites
from xccl_emu.machine.spec import small_pod
from xccl_emu.protocol import registry
from xccl_emu.testing import Bench, protocol

needs_cxx = pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: Ascend C is not tested here")
SOURCES = ROOT / "tests" / "ascendc_sources"
FLAGS = ("MTE2_MTE3, line 20", "MTE3_MTE2, line 22", "MTE2_MTE3, line 24")


@protocol
def through(bench: Bench, source: str = "callers") -> None:
    """Two blocks copied by one core, by a kernel of a source in tests/ascendc_sources."""
    pod = bench.pod(small_pod(1, app_bytes=1024, ub_bytes=256))
    data = np.arange(1, 17, dtype=np.float32)
    own, out = bench.filled(0, data, "own"), bench.wanted(0, data, "out", owners="die0")
    kernel = ascendc.ascend_kernel(SOURCES / f"{source}.cpp", source, include=SOURCES / "common")
    args = {"source": own.address, "target": out.address, "count": 2}
    ascendc.launch(bench, pod, kernel, 0, [0], args, [pod.grant(own, "r"), pod.grant(out, "w")])


def pod_of(case: Any) -> Any:
    """A pod that is laid out, and not run."""
    return case.build("sc").pod


@needs_cxx
def test_a_call_of_a_function_for_all_events_is_a_site_of_its_own() -> None:
    """Each is named by the line that calls it, also through another function; a user's methods have no site."""
    (kernel,) = pod_of(through()).kernels
    named = [site for site in kernel.sites if site.sync]
    assert [site.sync for site in named if site.operation == "set_flag" and site.callers] == [*FLAGS]
    assert [site.sync for site in named if site.operation == "wait_flag" and site.callers] == [*FLAGS]
    assert {site.line for site in named if site.callers} == {7, 8}
    assert {file for site in named for file, _ in site.callers} == {str(SOURCES / "callers.cpp")}
    assert [site.sync for site in named if not site.callers and site.operation != "wait_flag"] == [
        "PipeBarrier, line 30 of steps.h", "dsb, line 28", "PipeBarrier, line 29", "PipeBarrier, line 30",
    ]  # fmt: skip


@needs_cxx
def test_each_call_of_such_a_function_is_needed() -> None:
    """All is verified, and not without one of them: a cut takes what it sets and what it waits for, and no other's."""
    assert check.check(through()).verdict == verdict.VERIFIED
    for name in FLAGS:
        found = check.check(through(), without=[name])
        assert found.violation is not None
        assert found.violation.kind in (verdict.DATA_RACE, verdict.UNWRITTEN_READ)


@needs_cxx
def test_what_makes_no_request_is_not_said_to_be_never_reached() -> None:
    """What has no effect has a line of its own; a barrier of the vector pipe has one where hazards are open."""
    out = printed("check", f"{__file__}:through", "--each-sync")
    assert "without effect here: dsb, line 28, PipeBarrier, line 29" in " ".join(out.split())
    assert "never reached" not in out
    for hazards in ("resolved", "open"):
        pod = pod_of(through("hazards").with_pod_options(hazards=hazards))
        assert without_requests(pod) == {"PipeBarrier, line 21": hazards == "open"}


@needs_cxx
def test_what_cleans_a_cache_matters_where_there_is_one() -> None:
    """On a pod without caches nobody can reach it, and nothing follows from that."""
    message = registry.make(f"{ROOT}/examples/ascendc/sendrecv.py:Message")
    names = [f"DataCacheCleanAndInvalid, line {line}" for line in (14, 16, 30)]
    assert [*without_requests(pod_of(message))] == names
    assert without_requests(pod_of(message.with_pod_options(scalar_cache=8))) == {}


def named(text: str) -> list[str]:
    """The lines by which events of a source are named."""
    return [name.rpartition(" ")[2] for name in sites.names(sites.calls(f'# 1 "k.cpp"\n{text}', "own"))]


@pytest.mark.parametrize(
    ("calls", "lines"),
    [
        ("S0 { W0 S0 } W0", "1 1 1 1"),
        ("{ S0 W0 } S0 W0", "2 2 5 5"),
        ("S0 f W0 S0 f W0", "1 1 4 4"),
        ("S0 f W0 { W0 f S0 }", "1 1 1 1"),
        ("S0 W0 { W0 f S0 }", "1 1 6 6"),
        ("S0 W0 Si f W0 Wi", "1 1 3 3 3"),
        ("{ S0 } { W0 }", "2 2"),
    ],
)
def test_a_cut_leaves_no_half_of_a_pair(calls: str, lines: str) -> None:
    """What sets an event and what may wait for it are cut together, over blocks, functions and rounds of a loop."""
    kinds = {"S": "SetFlag<HardEvent::MTE2_V>(", "W": "WaitFlag<HardEvent::MTE2_V>(", "f": "step("}
    text = "\n".join(f"{kinds[each[0]]}{each[1:]});" if each[0] in kinds else each for each in calls.split())
    assert named(text) == lines.split()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("void SetFlag(int at);\nbox.SetFlag(1);\nSetFlag(1);\nSetFlag<HardEvent::V_S>(0);", "4"),
        ("void Box<T>::WaitFlag(int at) {\n}\nBox<T>::WaitFlag(1);\nAscendC::WaitFlag<HardEvent::V_S>(0);", "4"),
        ("TQueSync<PIPE_S, PIPE_V> sync;\nvoid SetFlag(int at);\nsync.SetFlag(0);\nbox.SetFlag(0);", "3"),
        ("void SyncAll() {\n}\nthis->SyncAll();\nAscendC::SyncAll();", "4"),
        ("sync.SetFlag(0);", "1"),
        ("#pragma unroll\nSetFlag<HardEvent::V_S>(0);\nAC::WaitFlag<HardEvent::V_S>(0);", "2 2"),
        ('Log("SetFlag<HardEvent::V_S>(0) {");\nSetFlag<HardEvent::V_S>(0);', "2"),
    ],
)
def test_methods_of_a_user_are_no_calls_of_ascend_c(text: str, lines: str) -> None:
    """A name that the source declares is the user's, except where an event or a TQueSync says that it is not."""
    assert named(text) == lines.split()
