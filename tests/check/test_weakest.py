"""The weakest order of each request: a strong flag is needed, data may be relaxed, a quiet be a fence."""

import json

import numpy as np
import pytest

from tests.cli_support import invoke
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import MAX_STATES, check
from xccl_emu.check.verdict import VERIFIED, VIOLATION, Verdict
from xccl_emu.check.weakest import Weakened, weakest
from xccl_emu.lang import (
    MTU_IN,
    MTU_OUT,
    kernel,
    load,
    mtu_in,
    mtu_out,
    poll_ge,
    put,
    quiet,
    set_flag,
    store,
    wait_flag,
)
from xccl_emu.machine import Pod, small_pod
from xccl_emu.machine.launch import Grant
from xccl_emu.testing import Bench, protocol


@kernel
def publish(data, flag):
    """Data, then a strong flag; nothing waits before the end."""
    yield store(data, 7)
    yield store(flag, 1, order="strong")
    yield quiet()


@kernel
def count(data, flag):
    """A flag written twice behind data that a quiet makes visible."""
    yield store(data, 7)
    yield quiet(sync="data visible")
    yield put(flag, 1)
    yield put(flag, 2)


@kernel
def take(data, flag, out, last):
    """Wait for the last value of the flag, read the data and keep them."""
    yield poll_ge(flag, last)
    value = yield load(data)
    yield store(out, value)


@kernel
def spread(own, box, flag):
    """A chunk, a granule at a time, then a flag."""
    yield mtu_in(own, 0, 64)
    yield set_flag(MTU_IN, MTU_OUT, 0)
    yield wait_flag(MTU_IN, MTU_OUT, 0)
    for k in range(2):
        yield mtu_out(32 * k, box + 32 * k, 32)
    yield quiet(sync="data visible")
    yield put(flag, 1)


@kernel
def collect(flag, box, out):
    """Wait for the flag, and keep what is at the beginning of the second die."""
    yield poll_ge(flag, 1)
    yield mtu_in(box, 0, 32)
    yield set_flag(MTU_IN, MTU_OUT, 0)
    yield wait_flag(MTU_IN, MTU_OUT, 0)
    yield mtu_out(0, out, 32)


def pod_of(bench: Bench, sender: object, last: int) -> Pod:
    """Data and flag at die 1, on which the receiver keeps what it has read."""
    pod = bench.pod(small_pod(2, app_bytes=128, meta_bytes=64, managed_bytes=64))
    out = bench.wanted(1, (7).to_bytes(8, "little"), "taken")
    data, flag = pod.managed(1), pod.meta(1)
    pod.launch(sender, 0, [0], {"data": data, "flag": flag}, [pod.grant_managed("w", 1), pod.grant_meta("w", 1)])
    args = {"data": data, "flag": flag, "out": out.address, "last": last}
    pod.launch(take, 1, [0], args, [pod.grant_managed("r", 1), pod.grant_meta("r", 1), pod.grant(out, "w")])
    return pod


@protocol
def published(bench: Bench) -> None:
    """A strong flag behind its data."""
    pod_of(bench, publish, 1)


@protocol
def counted(bench: Bench) -> None:
    """A flag that is written twice."""
    pod_of(bench, count, 2)


def answers(case: object, order: str = "relaxed") -> list[tuple[str, str, str]]:
    """Operation, what it asks for and the weakest that will do, of each request."""
    found = weakest(case, order=order, max_states=MAX_STATES, certify=0.2)
    return [(one.site.operation, one.asks, one.weakest) for one in found]


@pytest.mark.parametrize("order", ["relaxed", "unordered"])
def test_a_flag_that_data_follow_has_to_be_strong(order: str) -> None:
    """Data may be relaxed and not without an order, the flag has to be strong, and the last quiet may be a fence."""
    assert answers(published(), order) == [
        ("store", "relaxed", "relaxed"),
        ("store", "strong", "strong"),
        ("quiet", "quiet", "fence"),
        ("store", "relaxed", "no-order"),
    ]


def test_a_counter_that_is_written_needs_the_order_of_its_granule() -> None:
    """A flag written twice may not lose its order, and what is on its die may be fenced; alone, the data need none."""
    assert answers(counted()) == [
        ("store", "relaxed", "no-order"),
        ("quiet", "quiet", "fence"),
        ("put", "relaxed", "relaxed"),
        ("put", "relaxed", "relaxed"),
        ("store", "relaxed", "no-order"),
    ]
    assert check(counted(), order="unordered").verdict == VIOLATION


@pytest.mark.parametrize("case", [published(), counted()])
def test_what_is_called_weak_enough_is_verified_and_what_is_not_is_refuted(case: object) -> None:
    """A check of each weakened protocol by other roads too: a certificate where it is enough, a replay where not."""
    for number, kernel_ in enumerate(case.build("relaxed").pod.kernels):
        for one in weakest(case, max_states=MAX_STATES):
            if one.kernel != kernel_.name:
                continue
            n = kernel_.sites.index(one.site)
            for to in [*one.refuted, *([one.weakest] if one.weakest != one.asks else [])]:
                said = check(Weakened(case, number, n, to), certify=2.0)
                assert said.verdict == (VIOLATION if to in one.refuted else VERIFIED), (one.site.text, to)
                assert said.certificate.disagreement == "", (one.site.text, to)


def test_advice_that_other_roads_contradict_is_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that calls everything enough is held against brute force and schedules: nothing wrong is advised."""
    right = [(one.asks, one.advice) for one in weakest(counted(), max_states=MAX_STATES)]

    def search(case: object, order: str, *_: object, **__: object) -> Verdict:
        return Verdict(VERIFIED, "forged", {}, order, "exhaustive", 0)

    monkeypatch.setattr("xccl_emu.check.weakest.search_once", search)
    believed = [one.advice for one in weakest(counted(), max_states=MAX_STATES, certify=None)]
    found = list(weakest(counted(), max_states=MAX_STATES))
    assert [(one.asks, one.advice) for one in found] == right
    assert believed == ["no-order", "fence", "no-order", "no-order", "no-order"]
    withdrawn = [dict(one.withdrawn) for one in found]
    assert [list(each) for each in withdrawn] == [[], [], ["no-order"], ["no-order"], []]
    assert "sampled schedules: " in withdrawn[2]["no-order"]
    assert found[1].certificates["fence"].agrees
    assert found[2].to_json()["withdrawn"] == withdrawn[2]


@protocol
def over_an_edge(bench: Bench) -> None:
    """Two granules on both sides of a die's edge, one site; behind a quiet the flag on the first of these dies."""
    data = np.arange(1, 65, dtype=np.uint8)
    pod = bench.pod(small_pod(4, app_bytes=512, meta_bytes=256, managed_bytes=256, ub_bytes=64))
    edge = pod.spec.die_bytes
    own, out = bench.filled(2, data, "data"), bench.wanted(3, data[32:], "taken")
    ranges = [Grant(None, 0, edge, "rw")]
    pod.launch(spread, 2, [0], {"own": own.address, "box": edge - 32, "flag": pod.meta(0)}, ranges)
    pod.launch(collect, 3, [0], {"flag": pod.meta(0), "box": edge, "out": out.address}, ranges)


def test_no_fence_is_advised_across_dies() -> None:
    """A fence orders nothing between dies: if a search takes it to, schedules take the advice back."""
    (one,) = [one for one in weakest(over_an_edge(), max_states=MAX_STATES) if one.site.operation == "quiet"]
    assert (one.weakest, one.refuted) == ("quiet", {"fence": "data race"})


def test_orders_that_keep_everything_are_refused() -> None:
    """Under sc and fifo it does not matter what a request asks for, and a site must be there to be weakened."""
    with pytest.raises(ConfigError, match="order='fifo'"):
        answers(published(), "fifo")
    pod = published().build("relaxed").pod
    bad = [(2, 0, "strong"), (0, 9, "strong"), (0, 0, "fence"), (0, 2, "strong"), (0, 0, "weak"), ("a", 0, "")]
    for kernel_, site, to in (*bad, (0, 0, ())):
        with pytest.raises(ConfigError):
            pod.weaken(kernel_, site, to)


def test_the_command_prints_them() -> None:
    """`check --weakest --json` has a line for each request."""
    code, out, err = invoke("check", "sendrecv", "--chunks", "2", "--weakest", "--advice-seconds", "0.2", "--json")
    assert code == 0, err
    found = json.loads(out)["each_request"]
    assert {"send", "recv"} == {one["kernel"] for one in found}
    assert all(one["weakest"] for one in found)
    assert all(one["certificates"][one["weakest"]]["agrees"] for one in found if one["advice"])
