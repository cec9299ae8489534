"""Cores of CPUs before every judge: searched, drawn, broken, replayed and told as those of dies are."""

import pytest

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.faults import parse
from xccl_emu.check.verdict import DATA_RACE, TORN_METADATA, VERIFIED, VIOLATION, Verdict
from xccl_emu.check.witness.exported import mermaid, perfetto
from xccl_emu.check.witness.picture import svg
from xccl_emu.check.witness.render import rows
from xccl_emu.check.witness.tracer import steps
from xccl_emu.guards.campaign import judge
from xccl_emu.guards.campaign.generate import AN_END, ProgramCase, draw
from xccl_emu.guards.campaign.programs import ORDERS, Small, program
from xccl_emu.lang import DMA, SCALAR, dma, fence, kernel, poll_eq, poll_ge, quiet, store, wait_flag
from xccl_emu.machine import small_pod
from xccl_emu.testing import Bench, protocol, witness_text

from .witness_support import shows_again

SPEC = small_pod(2, app_bytes=64, meta_bytes=64, managed_bytes=0).with_(cpus_per_node=1)


@kernel
def serve(request, source, target, answer, how):
    """Copy a granule when it is asked to, by DMA (0) or stores, and say so: behind a fence (2), or at once (3)."""
    yield poll_eq(request, 1, sync="asked")
    if how == 0:
        yield dma(source, target, 32, 0)
        yield wait_flag(DMA, SCALAR, 0, sync="copied")
    else:
        for word in range(4):
            yield store(target + word * 8, 7)
        if how == 1:
            yield quiet(sync="stores before answer")
        elif how == 2:
            yield fence(sync="stores before answer")
    yield store(answer, 1)
    yield quiet()


@kernel
def ask(request, answer, target, out):
    """Ask, wait for the answer, and copy what came."""
    yield store(request, 1)
    yield poll_ge(answer, 1, sync="answered")
    yield dma(target, out, 32, 0)
    yield wait_flag(DMA, SCALAR, 0)


@protocol
def served(bench: Bench, how: int = 0) -> None:
    """A CPU serves die 0 from its own memory."""
    pod = bench.pod(SPEC)
    cpu, data = pod.cpu(1), b"\7\0\0\0\0\0\0\0" * 4
    source = bench.filled(cpu, data, "source")
    target, out = pod.alloc(0, 32), bench.wanted(0, data, "out", owners="die0")
    words = {"request": pod.meta(cpu), "answer": pod.meta(0), "target": target.address}
    grants = [pod.grant_meta("r", cpu), pod.grant_meta("w", 0), pod.grant(source, "r"), pod.grant(target, "w")]
    pod.launch(serve, cpu, [0], {**words, "source": source.address, "how": how}, grants)
    grants = [pod.grant_meta("w", cpu), pod.grant_meta("r", 0), pod.grant(target, "r"), pod.grant(out, "w")]
    pod.launch(ask, 0, [0], {**words, "out": out.address}, grants)
    bench.tolerates("stop", "cut", "stall")


def judged(small: Small, order: str) -> judge.JudgedProgram:
    """What all judges say of a program."""
    return judge.judge_scene(judge.Scene(small, order, None, judge.BUDGET))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("writer", "right"),
    [
        ("store m0.1 5; store 0.1 1", ("sc", "fifo")),
        ("store m0.1 5; quiet; store 0.1 1", ORDERS),
        ("store m0.1 5; fence; store 0.1 1", ORDERS),
        ("dma 1.0 3; wait 4 0 0; store 0.1 1", ORDERS),
        ("dma 1.0 3; store 0.1 1; wait 4 0 0", ()),
    ],
)
def test_message_passing_from_a_cpu(writer: str, right: tuple[str, ...], order: str) -> None:
    """Data and flag of a CPU's core: all judges agree on where it needs a quiet, a fence, or to wait for its DMA."""
    reader = "eq 0.1 1; load 0.3" if "dma" in writer else "eq 0.1 1; load m0.1"
    found = judged(Small((program(reader), program(writer)), cpu=True, memory={8: 9}), order)
    assert not found.contradictions
    assert (found.verdicts["full"] == VERIFIED) == (order in right)
    assert order in right or found.verdicts["full"] in (DATA_RACE, TORN_METADATA)


@pytest.mark.parametrize("order", ORDERS)
def test_store_buffering_with_a_cpu(order: str) -> None:
    """A CPU's stores are in flight as those of a die are: both may read 0, but under sc."""
    small = Small(tuple(program(f"store {d}.0 1; load_named {1 - d}.0") for d in range(2)), cpu=True)
    reads = {(words[8], words[48]) for words in small.naive(order).outcomes}  # behind the shared words of each
    assert reads == {(0, 1), (1, 0), (1, 1)} | ({(0, 0)} if order != "sc" else set())


@pytest.mark.parametrize("how", [0, 1, 2])
@pytest.mark.parametrize("order", ORDERS)
def test_a_server_is_verified(order: str, how: int) -> None:
    """Every schedule of a CPU that serves a die is right, by DMA and by stores, and needs what orders its answer."""
    found = check(served(how=how), order=order)
    assert found.verdict == VERIFIED
    if order == "relaxed":
        names = ["answered", "copied" if how == 0 else "stores before answer"]
        assert {check(served(how=how), without=[name]).verdict for name in names} == {VIOLATION}


def shown(found: Verdict, how: int) -> str:
    """A witness that replays, as text; and its charts name the CPU."""
    assert found.violation is not None
    assert shows_again(served(how=how).build(found.order, found.without), found.violation)
    trace = steps(served(how=how).build(found.order, found.without), found.violation.actions)
    assert "cpu1.core0" in mermaid(trace)
    assert "'name': 'cpu1'" in str(perfetto(trace))
    assert ">cpu1</text>" in svg(trace, rows(trace))
    return witness_text(served(how=how), found)


def test_a_witness_names_the_cpu() -> None:
    """Text, chart, picture and trace of an answer that overtakes its data."""
    found = check(served(how=3))
    assert (found.verdict, found.violation and found.violation.kind) == (VIOLATION, DATA_RACE)
    assert "cpu1.core0" in shown(found, 3)


@pytest.mark.parametrize("fault", ["stop:cpu1", "cut:cpu1-0", "cut:0-cpu1", "stall:cpu1-0", "stop:cpu1@1"])
@pytest.mark.parametrize("policy", ["portfolio", "exhaustive"])
def test_cpus_break_as_dies_do(policy: str, fault: str) -> None:
    """A socket that stops, or whose links are cut: nobody takes wrong bits for right."""
    found = check(served(), fault=fault, policy=policy, schedules=200)
    assert found.verdict == ("no violation found" if policy == "portfolio" else VERIFIED)


@pytest.mark.parametrize("policy", ["portfolio", "exhaustive"])
def test_a_copy_that_a_cpu_answers_twice(policy: str) -> None:
    """Behind a flipped bit the bytes are wrong, and the witness says what became of the write of the CPU."""
    found = check(served(), fault="corrupt:cpu1-0", policy=policy, seconds=60)
    assert found.verdict == VIOLATION
    assert "flipped" in shown(found, 0)


@pytest.mark.parametrize("text", ["stop:cpu2", "cut:0-cpu2", "stop:die2", "stop:diecpu0", "cut:cpu0-cpu0"])
def test_what_does_not_break(text: str) -> None:
    """A socket that the pod has not, and what is no name of one."""
    with pytest.raises(ConfigError, match=r"out of range 0\.\.1|must be a die|two different dies"):
        parse(text, SPEC)


def test_the_campaign_draws_cpus() -> None:
    """Programs of CPU cores are drawn, some of them refused, some with a socket that breaks; judges agree on some."""
    cases = [draw(7, number) for number in range(11, 800, 16)]
    assert all(case.small.cpu for case in cases)
    assert any("cpu0" in case.fault for case in cases)
    for case in cases[:12]:
        assert not [wrong for found in judge.judge(case, ("relaxed",)) for wrong in found.contradictions], str(case)


def test_a_request_that_a_cpu_lacks_is_told_alike() -> None:
    """Search, brute force and sampling all end with the refusal."""
    case = ProgramCase(Small((program("store 0.0 1"), program("put 0.4 1")), cpu=True), AN_END)
    (found,) = judge.judge(case, ("relaxed",))
    assert not found.contradictions
    assert found.verdicts["full"] == "bad instruction"


def test_a_line_that_a_cpu_polls_is_refused_at_once() -> None:
    """The search does not take it for a core that waits until its flags are in, with lines in its cache."""
    lines = program("line 1.4 1 5; dcci m1.0; load m1.0")
    case = ProgramCase(
        Small((program("out m1.0; quiet; store 1.4 1"), lines), dies=2, scalar_cache=8, cpu=True), AN_END
    )
    for found in judge.judge(case, ORDERS):
        assert not found.contradictions
        assert found.verdicts["full"] == "bad instruction"
