"""Tentative reads: a seqlock is verified if it is right, and refuted without what makes it so; in every judge."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu import lang as xl
from xccl_emu.base.errors import AccessError, RunError
from xccl_emu.check import verdict as kinds
from xccl_emu.check.check import check
from xccl_emu.check.sampling.sample import replay
from xccl_emu.check.trial import Trial
from xccl_emu.guards.campaign import judge
from xccl_emu.guards.campaign.generate import ProgramCase
from xccl_emu.guards.campaign.programs import ORDERS, Small, program
from xccl_emu.kernels.common import fetch
from xccl_emu.kernels.group import hand_over
from xccl_emu.machine import Pod, small_pod
from xccl_emu.testing import Bench, protocol, witness_text
from xccl_emu.timing.run import VirtualTime

SEARCHES = ({}, {"reduction": "less"}, {"reduction": "merged"}, {"breadth_first": True})
TWICE, USED, UNREAD = "a write met the read", "used before they are validated", "before the read that brings them"


@xl.kernel
def write(seq, values, nbytes, data, versions):
    """Versions of the data, odd while they are written."""
    for v in range(versions):
        yield xl.mtu_in(values + v * nbytes, v * nbytes, nbytes)
        yield from hand_over(xl.MTU_IN, xl.MTU_OUT, v, "value in buffer")
        yield xl.put(seq, 2 * v + 1, sync="odd")
        yield xl.quiet(sync="odd before data")
        yield xl.mtu_out(v * nbytes, data, nbytes)
        yield xl.quiet(sync="data before even")
        yield xl.put(seq, 2 * v + 2, sync="even")
        yield xl.quiet(sync="even before odd")


@xl.kernel
def read(seq, data, nbytes, out, looks):
    """A version that is whole, as that of its number; with one look nothing says that it is."""
    before = 1
    after = 0
    while before != after:
        before = yield xl.load(seq, sync="first look")
        after = before
        if before % 2 == 0 and before > 0:
            yield xl.mtu_in(data, 0, nbytes, tentative=True)
            yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "data in buffer")
            if looks == 2:
                after = yield xl.load(seq, sync="second look")
        else:
            after = before + 1
    yield xl.validate(0, nbytes, sync="validated")
    yield xl.mtu_out(0, out + before // 2 * nbytes, nbytes)


@protocol
def seqlock(bench: Bench, versions: int = 2, nbytes: int = 32, looks: int = 2, readers: int = 1) -> None:
    """A writer, and readers that take any version."""
    pod = bench.pod(
        small_pod(1 + readers, app_bytes=1024, meta_bytes=64, managed_bytes=64, ub_bytes=128, flight_granules=16)
    )
    values = bench.filled(0, np.arange(versions * nbytes, dtype=np.uint8), "values")
    args = {"seq": pod.meta(0), "data": pod.managed(0), "nbytes": nbytes}
    grants = [pod.grant(values, "r"), pod.grant_meta("rw", 0), pod.grant_managed("rw", 0)]
    pod.launch(write, 0, [0], {"values": values.address, "versions": versions, **args}, grants)
    for die in range(1, 1 + readers):
        out = pod.alloc(die, (versions + 1) * nbytes)
        pod.launch(read, die, [0], {"out": out.address, "looks": looks, **args}, [*grants[1:], pod.grant(out, "w")])


def _said(trial: Trial) -> str:
    """The verdict of the full search."""
    return judge.verdict_of(judge.searched(trial, "full", judge.BUDGET))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("options", SEARCHES)
def test_a_right_seqlock_is_verified_and_one_look_is_refuted(order: str, options: dict) -> None:
    """Each search, in each order: with the second look no read that a write met is validated; with one look one is."""
    right = check(seqlock(), order=order, certify=0.3, **options)
    assert (right.verdict, right.certificate.disagreement) == (kinds.VERIFIED, "")
    wrong = check(seqlock(looks=1), order=order, **options)
    assert (wrong.violation.kind, TWICE in wrong.violation.message) == (kinds.UNDEFINED, True)
    assert replay(seqlock(looks=1).build(order), wrong.violation.actions).kind == kinds.UNDEFINED


LITMUS = {
    "odd before data": {"sc": 1, "fifo": 1, "relaxed": 0, "unordered": 0},
    "data before even": {"sc": 1, "fifo": 1, "relaxed": 0, "unordered": 0},
    "even before odd": {"sc": 1, "fifo": 1, "relaxed": 1, "unordered": 0},
    "validated": dict.fromkeys(ORDERS, 0),
    "data in buffer": dict.fromkeys(ORDERS, 0),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", LITMUS)
def test_what_a_seqlock_needs_in_each_order(order: str, name: str) -> None:
    """The quiets of the writer where nothing else keeps its writes in order; validation, and the event, in all."""
    found = check(seqlock(), order=order, without=name)
    assert (found.verdict == kinds.VERIFIED) == LITMUS[name][order]
    if not found.ok and name != "data in buffer":
        assert found.violation.kind == kinds.UNDEFINED


@pytest.mark.parametrize("order", ORDERS)
def test_fences_do_for_the_writer(order: str) -> None:
    """Version and data are on one die, so each of its quiets may be a fence but the last, of which nobody is told."""
    trial = seqlock().build(order)
    for site, each in enumerate(write.sites):
        if each.operation == "quiet":
            trial.pod.weaken(trial.pod.kernels.index(write), site, "fence")
    assert _said(trial) == kinds.VERIFIED


@pytest.mark.parametrize("policy", ["random", "weights", "pct", "eager", "late", "lifo", "skew"])
def test_drawn_schedules_tell_no_race_of_a_tentative_read(policy: str) -> None:
    """Nothing is found in the right one, and in the wrong one what the searches say."""
    assert check(seqlock(readers=2), policy=policy, schedules=20).ok
    found = check(seqlock(looks=1, versions=4), policy=policy, schedules=300, order="relaxed")
    assert found.violation is None or found.violation.kind == kinds.UNDEFINED
    assert found.violation is not None or policy != "weights"


def test_a_witness_names_the_read_and_the_validation() -> None:
    """Its text has both, and what is wrong."""
    text = witness_text(seqlock(looks=1), check(seqlock(looks=1)))
    assert "mtu_in tentative 32 B" in text
    assert "validate 32 B" in text
    assert TWICE in text


@xl.kernel
def apart(data, first, second, whole):
    """Two reads, and a validation of some bytes."""
    yield xl.mtu_in(data, first, 32, tentative=1)
    yield xl.mtu_in(data + 32, second, 32, tentative=1)
    yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "in buffer")
    yield xl.validate(whole, 64)


@xl.kernel
def use(data, how):
    """What is not validated is used, in some way, or written over before."""
    yield xl.mtu_in(data, 0, 32, tentative=1)
    yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "in buffer")
    if how == 0:
        yield xl.ub_load(28)
    elif how == 1:
        yield xl.mtu_out(24, data + 64, 16)
    elif how == 2:
        yield xl.v_copy(0, 64, 8)
    elif how == 3:
        yield xl.v_add(64, 0, 4, xl.FP32)
    elif how == 4:
        yield xl.put_signal(0, data + 64, 32, data + 96, 1)
    elif how == 5:
        yield xl.v_fill(0, 16)
        yield xl.ub_load(0)
    elif how == 6:
        yield xl.v_fill(0, 64)
        yield from hand_over(xl.VECTOR, xl.SCALAR, 0, "filled")
        yield xl.ub_load(0)
    elif how == 7:
        yield from fetch(data, 0, 64, 0, "read again")
        yield xl.ub_load(32)
        yield xl.validate(0, 8)
    elif how == 8:
        yield xl.mtu_out(32, data + 64, 32)
        yield xl.quiet()
        yield xl.validate(0, 32)


def _run(kernel: xl.Kernel, **args: int) -> None:
    pod = Pod(small_pod(1, app_bytes=64, meta_bytes=128, managed_bytes=0, ub_bytes=128))
    pod.launch(kernel, 0, [0], {"data": pod.meta(0), **args}, [pod.grant_meta("rw", 0)])
    pod.run()


@pytest.mark.nojit
@pytest.mark.parametrize("how", range(9))
def test_which_uses_are_refused(how: str) -> None:
    """Loads, writes and vector instructions of what is not validated; not what is written over whole, or beside it."""
    if how > 5:
        _run(use, how=how)
        return
    with pytest.raises(RunError, match=rf"test_tentative.py:\d+.*bytes at ub\+0x.*{USED}"):
        _run(use, how=how)


@pytest.mark.nojit
def test_tentative_reads_that_are_validated_together_touch_each_other() -> None:
    """Two that do are validated by one request that covers both; others are refused, and so is a part."""
    _run(apart, first=32, second=0, whole=0)
    with pytest.raises(AccessError, match=r"tentative read of 32 bytes to ub\+0x40: must touch"):
        _run(apart, first=0, second=64, whole=0)
    with pytest.raises(AccessError, match=r"validate of 64 bytes at ub\+0x20: must cover all"):
        _run(apart, first=0, second=32, whole=32)


def test_in_virtual_time_a_read_that_meets_a_write_takes_until_that_is_visible() -> None:
    """Whenever the reader begins, its second look tells of what it has met: a right seqlock never ends in an error."""
    ends = set[tuple[int, str]]()
    for late in range(120):
        for looks in (1, 2):
            pod = seqlock(4, 32, looks=looks).build("sc").pod
            pod.policy = VirtualTime(start_us={1: late / 15})
            try:
                pod.run()
                ends.add((looks, ""))
            except RunError as error:
                ends.add((looks, str(error).partition(f" {TWICE}")[1].strip()))
    assert ends == {(1, ""), (1, TWICE), (2, "")}


def test_validation_waits_for_the_read() -> None:
    """Without the event it comes before the bytes do."""
    found = check(seqlock(), without="data in buffer")
    assert UNREAD in found.violation.message or found.violation.kind == kinds.DATA_RACE


WRITES = st.sampled_from([
    "put 1.4 1", "put 1.4 2", "quiet", "fence", "store m1.0 3", "put m1.0 3", "out m1.0 0 2", "add m1.0 1",
    "dma_data 0.0 8 2; wait 4 0 2", "atomic m1.1 1", "store 1.4 2",
])  # fmt: skip
READS = st.sampled_from([
    "tentative m1.0 0 2", "tentative m1.0 0 2; set 1 0 1; wait 1 0 1", "load_named 1.4; skip_unless 0 2 1",
    "validate 0 0 2", "ub_load 0 0", "quiet", "in m1.0 0 2", "tentative m1.0 4 2", "ge 1.4 1", "out m0.0 0 2",
])  # fmt: skip


@settings(max_examples=20)
@given(st.lists(WRITES, min_size=1, max_size=4), st.lists(READS, min_size=1, max_size=5), st.sampled_from(ORDERS))
def test_all_judges_agree(writes: list[str], reads: list[str], order: str) -> None:
    """Four searches, brute force and drawn schedules, on random writers and readers."""
    case = ProgramCase(
        Small(tuple(program("; ".join(one)) for one in (["ub_store 3 0; ub_store 3 2", *writes], reads)))
    )
    for judged in judge.judge(case, (order,)):
        assert not judged.contradictions


def test_a_write_before_the_read_that_nothing_orders_is_met_in_another_schedule() -> None:
    """The write is visible long before in some runs; the search finds the one in which it is not, in each order."""
    reader = "tentative m1.0 0 2; quiet; validate 0 0 2"
    one = Small((program("put m1.0 3; quiet"), program(reader)))
    for order in ORDERS:
        assert _said(one.trial(order, None)) == kinds.UNDEFINED
    other = Small((program("put m1.0 3; quiet; put 1.4 1"), program(f"ge 1.4 1; {reader}")))
    for order in ORDERS:
        assert _said(other.trial(order, None)) == kinds.VERIFIED
