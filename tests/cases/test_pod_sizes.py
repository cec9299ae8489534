"""What any case may be asked of its pod: whether scalar units have a data cache."""

from pathlib import Path
from typing import Any

import pytest
from cli_support import invoke

from tests.testing.cases import telling
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import ASSERTION, VERIFIED, VIOLATION
from xccl_emu.protocol.registry import known, make
from xccl_emu.protocol.sequence import Sequence, Stage

TINY = {"slots": 2, "chunks": 3}


def test_a_ring_cleans_the_line_of_its_tail() -> None:
    """With a cache send/recv is right, and needs its dcci: else it takes the chunk ID of the chunk before."""
    cached = make("sendrecv", **TINY, scalar_cache=8)
    assert cached.build("sc").pod.spec.scalar_cache == 8
    assert check(cached).verdict == VERIFIED
    stale = check(cached, without="tail line")
    assert (stale.verdict, stale.violation and stale.violation.kind) == (VIOLATION, ASSERTION)
    assert check(make("sendrecv", **TINY), without="tail line").verdict == VERIFIED


def test_a_pod_as_usual_is_in_no_report() -> None:
    """A case that is not asked says nothing of its pod, and is the same as if 0 had been said."""
    usual, plain = make("sendrecv"), make("sendrecv", scalar_cache=0)
    assert usual.configuration == plain.configuration
    assert "scalar_cache" not in usual.configuration
    assert make("sendrecv", scalar_cache=2).configuration == {**usual.configuration, "scalar_cache": 2}


@pytest.mark.parametrize("value", ["x", "", -1, 257, 1.5, True, None])
def test_what_is_no_number_of_lines_is_refused(value: Any) -> None:
    """By name and value, before a pod is made."""
    with pytest.raises(ConfigError, match="scalar_cache="):
        make("sendrecv", scalar_cache=value)
    with pytest.raises(ConfigError, match="lines=1: must be one of scalar_cache"):
        make("sendrecv").with_pod_options(lines=1)


def test_a_function_has_it_too() -> None:
    """A case that is made of a function is on such a pod, and says so."""
    case = telling(value=5).with_pod_options(scalar_cache=2)
    assert dict(case.configuration) == {"value": 5, "scalar_cache": 2}
    assert case.build("sc").pod.spec.scalar_cache == 2
    assert telling().build("sc").pod.spec.scalar_cache == 0


def test_a_witness_is_replayed_on_such_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a violation says which pod it was found on; --each-sync names the dcci."""
    monkeypatch.chdir(tmp_path)
    sizes = ("--slots", "2", "--chunks", "3", "--scalar-cache", "8")
    code, out, _ = invoke("check", "sendrecv", *sizes, "--without", "tail line", "--out", "found.json")
    assert (code, "in its cache" in out) == (1, True)
    code, out, _ = invoke("check", "--replay", "found.json")
    assert (code, "protocol assertion" in out) == (1, True)


def test_a_sequence_of_calls_has_the_cache_that_it_asks_for() -> None:
    """All calls are on a pod with so many lines; two numbers of them on one pod are refused."""
    cached = Stage({"scalar_cache": 2})
    assert Sequence(known("sendrecv"), (cached, cached)).build("relaxed").pod.spec.scalar_cache == 2
    with pytest.raises(ConfigError, match="one pod cannot have"):
        Sequence(known("sendrecv"), (cached, Stage())).build("relaxed")
