"""What the planted bugs showed about the checker: three minimal tests, each of which must pass."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.check.check import check
from xccl_emu.check.sampling.sample import replay
from xccl_emu.check.search.exhaustive import Search
from xccl_emu.check.search.setup import Setup
from xccl_emu.check.trial import Expected, Trial
from xccl_emu.check.verdict import BAD_INSTRUCTION, DATA_RACE, UNWRITTEN_READ, VERIFIED, VIOLATION, WRONG_BITS
from xccl_emu.lang import (
    MTU_IN,
    MTU_OUT,
    VECTOR,
    kernel,
    load,
    mtu_in,
    mtu_out,
    poll_eq,
    put,
    quiet,
    set_flag,
    wait_flag,
)
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.protocol import payload
from xccl_emu.protocol.registry import make
from xccl_emu.protocols.sendrecv_case import AsyncCase


@kernel
def put_payload(source, target, flag):
    """Write a payload into the other die's app data, and raise its flag with no quiet between."""
    yield mtu_in(source, 0, 64)
    yield set_flag(MTU_IN, MTU_OUT, 0)
    yield wait_flag(MTU_IN, MTU_OUT, 0)
    yield mtu_out(0, target, 64)
    yield put(flag, 1, sync="flag")
    yield quiet()


@kernel
def take_payload(flag):
    """Wait for the flag; when this returns, the payload must be there."""
    yield poll_eq(flag, 1, sync="flag in")


@kernel
def read_word(word):
    """Read a word."""
    yield load(word)


@kernel
def set_twice():
    """Mtu-in may set event 0 anew, as soon as the vector pipe has set event 1, though that has not taken it yet."""
    yield set_flag(MTU_IN, VECTOR, 0)
    yield set_flag(VECTOR, MTU_IN, 1)
    yield wait_flag(MTU_IN, VECTOR, 0)
    yield wait_flag(VECTOR, MTU_IN, 1)
    yield set_flag(MTU_IN, VECTOR, 0)
    yield wait_flag(MTU_IN, VECTOR, 0)


@dataclass(frozen=True)
class Twice:
    """One core that runs `set_twice`."""

    name: str = "set twice"
    configuration: ClassVar[dict[str, int | str]] = {}

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """Launched."""
        pod = Pod(small_pod(2, 1, app_bytes=256, meta_bytes=64, managed_bytes=64, ub_bytes=64), order=order)
        pod.launch(set_twice, 0, [0], {}, [])
        return Trial(pod, ())


@dataclass(frozen=True)
class OneSided:
    """A put from die 0 into the app data of die 1, whose kernel returns when it has the flag."""

    name: str = "one-sided put"
    configuration: ClassVar[dict[str, int | str]] = {}

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """Launched."""
        pod = Pod(small_pod(2, 1, app_bytes=256, meta_bytes=64, managed_bytes=64, ub_bytes=64), order=order)
        source, target = pod.put(0, payload(64, 1)), pod.alloc(1, 64)
        everything = [Grant(None, 0, pod.spec.die_bytes, "rw")]
        args = {"source": source.address, "target": target.address, "flag": pod.meta(1)}
        pod.launch(put_payload, 0, [0], args, everything)
        pod.launch(take_payload, 1, [0], {"flag": pod.meta(1)}, everything)
        return Trial(pod, (Expected("payload", target.address, pod.view(source).tobytes(), (1,)),), (source,))


@dataclass(frozen=True)
class Unwritten:
    """A read of memory that nobody has written."""

    name: str = "unwritten"
    configuration: ClassVar[dict[str, int | str]] = {}

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """Launched."""
        pod = Pod(small_pod(2, 1, app_bytes=256, meta_bytes=64, managed_bytes=64, ub_bytes=64), order=order)
        pod.launch(read_word, 0, [0], {"word": pod.managed(0)}, [Grant(None, 0, pod.spec.die_bytes, "rw")])
        return Trial(pod, ())


def test_flag_without_quiet_into_the_receivers_app_data() -> None:
    """C: a receiver that returns on a flag, though the payload may still be on its way, is a violation."""
    verdict = check(OneSided())
    assert verdict.verdict == VIOLATION
    assert verdict.violation is not None
    assert verdict.violation.kind in (DATA_RACE, WRONG_BITS)


def test_unwritten_read_is_told() -> None:
    """A: a read of never-written memory is reported, not a KernelError."""
    verdict = check(Unwritten())
    assert verdict.violation is not None
    assert verdict.violation.kind == UNWRITTEN_READ


def test_asynchronous_is_verified() -> None:
    """B: both sides repeat passes until they are done."""
    verdict = check(AsyncCase(slots=2, chunks=3, pieces=2))
    assert (verdict.verdict, verdict.reason) == (VERIFIED, "")


def test_event_set_again_before_it_is_taken_sampled() -> None:
    """D, the portfolio: it says so."""
    verdict = check(Twice(), policy="portfolio")
    assert verdict.violation is not None
    assert verdict.violation.kind == BAD_INSTRUCTION


def test_event_set_again_before_it_is_taken_searched() -> None:
    """D, the search: it must not call it verified."""
    verdict = check(Twice())
    assert verdict.violation is not None
    assert verdict.violation.kind == BAD_INSTRUCTION


def test_a_witness_may_have_more_under_way_than_the_search_compares() -> None:
    """Writes that the search took to be visible are in flight while its path is written down, and no limit is met."""
    case = make("a2e-pull", attention=1, experts=2, cores=2, tokens=5, top_k=2, rounds=2)
    search = Search(Setup(case.build("relaxed", ["sum left"]), True), max_states=1 << 20, seconds=60, progress=None)
    found = search.run()
    assert (found.kind, found.reason) == (DATA_RACE, "")
    assert replay(case.build("relaxed", ["sum left"]), found.actions, found.loop) is not None
