"""Arguments and calls that make no sense, in every group: a ConfigError, memory as it was, and a group that goes on."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.refused import refuses
from xccl_emu.base.errors import ConfigError
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.protocols.a2e.pull import A2EPull
from xccl_emu.protocols.a2e.session import A2E, A2EConfig, Calls
from xccl_emu.protocols.pull.session import ExpertParallel
from xccl_emu.protocols.sendrecv.session import SendRecv

from .a2e_support import Case as A2ECase
from .a2e_support import check
from .ep_support import EITHER, FUSED, KINDS, PULL, Case, Kind, check_round, columns, refused

SIZES: dict[str, Any] = {"n_ranks": 2, "local_experts": 2, "hidden": 32, "top_k": 2, "tokens_max": 2}
GROUPS = {
    kind: Case(kind.config(**SIZES), "relaxed", "random", seed=3, lengths=((2, 1), (1, 2))) for kind in KINDS.values()
}
CALLS = A2ECase(
    A2EConfig(1, 2, 3, hidden=32, top_k=2, tokens_max=2, depth=1), "relaxed", "random", seed=3, lengths=((2, 0), (1, 2))
)
EITHER_A2E = pytest.mark.parametrize("case", [CALLS, replace(CALLS, pull=True)], ids=["a2e", "a2e-pull"])


# ---- configurations


def wrong(config: Any, message: str, **values: list[Any]) -> list[tuple[Any, str]]:
    """For each field and each value a configuration with it, and all that is said of it."""
    each = [(name, value) for name, of in values.items() for value in of]
    return [((config, {name: value}), f"^{re.escape(f'{name}={value!r}: {message}')}$") for name, value in each]


PULLED, FUSED_ONE, SERVED = GROUPS[PULL].config, GROUPS[FUSED].config, CALLS.config


@refuses(
    lambda config, change: replace(config, **change),
    *wrong(PULLED, "must be a whole number, 2 to 65536", n_ranks=[1, (1 << 16) + 1, 2.0]),
    *wrong(PULLED, "must be a whole number, 1 to 4096", local_experts=[0, True]),
    *wrong(PULLED, "must be a whole number, 1 to 16", top_k=[0, 17]),
    *wrong(PULLED, "must be a whole number, 1 to 1048576", tokens_max=[0, "8"]),
    *wrong(PULLED, "must be a whole number, 1 to 1024", cores=[0, None]),
    *wrong(PULLED, "must be a whole number, 32 to 1048576", hidden=[0, -32, 64.0]),
    *wrong(PULLED, "must be a multiple of 32", hidden=[48]),
    *wrong(PULLED, "must be a whole number, 0 to 1048576", first_die=[-1, False]),
    *wrong(PULLED, "must be one of bf16, fp16", dtype=["fp32", {}]),
    *wrong(PULLED, "must be one of mtu, dma", path=["urma", None]),
    *wrong(PULLED, "must be one of xccl, cann", quantizer=["fp8", ["xccl"]]),
    *wrong(PULLED, "must be True or False", quantized=["no"], shared=[1]),
    *wrong(FUSED_ONE, "must be a whole number, 2 to 65536", n_ranks=[1]),
    *wrong(FUSED_ONE, "must be one of aiv, sdma", path=["mtu"]),
    *wrong(FUSED_ONE, "there are 4 expert slots", top_k=[5]),
    *wrong(FUSED_ONE, "must be True or False", early_quantization=[1], preallocated=[None], pipelined=["no"]),
    *wrong(FUSED_ONE, "must be True or False", double_buffered=[0]),
    *wrong(SERVED, "must be a whole number, 1 to 65536", n_domains=[0, True], n_experts=[0], local_experts=[0]),
    *wrong(SERVED, "must be a whole number, 1 to 65536", tokens_max=[0]),
    *wrong(SERVED, "must be at most n_experts=3", n_attention=[4]),
    *wrong(SERVED, "must be a whole number, 1 to 16", top_k=[17]),
    *wrong(SERVED, "there are 3 expert slots", top_k=[4]),
    *wrong(SERVED, "must be a multiple of 32", hidden=[48]),
    *wrong(SERVED, "must be a whole number, 1 to 8", depth=[9]),
    *wrong(SERVED, "must be a whole number, 1 to 1024", e2a_cores=[0]),
    *wrong(SERVED, "must be one of bf16, fp16", dtype=["fp32"]),
    *wrong(SERVED, "must be one of mtu, urma", path=["dma"]),
    *wrong(SERVED, "must be one of xccl, cann", quantizer=["fp8"]),
    *wrong(SERVED, "must be True or False", shared=[1]),
)
def test_a_config_out_of_range_is_refused() -> None:
    """Each field names itself, its value and what would be right."""


# ---- a misspelt synchronization


@EITHER
def test_a_misspelt_synchronization_breaks_no_group(kind: Kind) -> None:
    """Every call refuses it before anything changes, and goes on once it is gone."""
    group, (batch, other) = GROUPS[kind].group(without=["nonsense"]), GROUPS[kind].batches()
    message = r"without=\['nonsense'\]: no kernel launched so far has it"
    refused(group.pod, lambda: group.dispatch(batch.tokens, batch.topk), message)
    refused(group.pod, lambda: group.run_rounds(*columns([batch])), message)
    group.pod.without = []
    group.dispatch(batch.tokens, batch.topk)
    group.pod.without = ["nonsense"]
    refused(group.pod, group.run_dummy, message)
    refused(group.pod, lambda: group.combine(batch.weights), message)
    group.pod.without = []
    check_round(group, batch)
    check_round(group, other)


@EITHER_A2E
def test_a_misspelt_synchronization_breaks_no_calls(case: A2ECase) -> None:
    """`run` refuses it before anything changes; what is launched already runs once it is gone."""
    group = case.group(without=["nonsense"])
    refused(group.pod, lambda: group.run(case.calls()), "without=")
    calls = Calls(group, case.calls())
    calls.launch()
    with pytest.raises(ConfigError, match="without="):
        group.run_launched()
    group.pod.without = []
    group.run_launched()
    check(case, calls, case.calls())


def test_a_misspelt_synchronization_breaks_no_communicator() -> None:
    """Send and receive refuse it and keep what is queued; an asynchronous pass too."""
    pod = Pod(small_pod(2), without=["nonsense"])
    comm = SendRecv(pod, slots=2, slot_bytes=32, channels_max=1)
    sources = [pod.put(0, np.full(64, value, np.uint8)) for value in (5, 6)]
    targets = [pod.alloc(1, 64) for _ in sources]
    comm.transfer(sources[0], targets[0], event_id=1, cores=1)
    refused(pod, comm.run, "without=")
    pod.without = []
    comm.run()
    send = comm.isend(sources[1], 1, event_id=2, cores=1)
    receive = comm.irecv(targets[1], 0, event_id=2, cores=1)
    pod.without = ["nonsense"]
    refused(pod, send.test, "without=")
    pod.without = []
    while not all([send.test(), receive.test()]):
        pass
    assert [int(pod.view(target).min()) for target in targets] == [5, 6]


@pytest.mark.nojit
def test_a_kernel_with_too_many_registers_is_refused_before_tokens_are_loaded() -> None:
    """On a pod with few registers dispatch changes no byte."""
    case = GROUPS[PULL]
    group = ExpertParallel(Pod(case.spec().with_(registers=8)), case.config)
    batch = case.batches()[0]
    refused(group.pod, lambda: group.dispatch(batch.tokens, batch.topk), "registers, a core has 8")


# ---- arguments of the wrong kind


@EITHER
def test_what_is_no_list_is_refused(kind: Kind) -> None:
    """None or a number in place of arrays, or of rounds, is named, the rank that has none, and one too few or many."""
    group, batch = GROUPS[kind].group(), GROUPS[kind].batches()[0]
    group.dispatch(batch.tokens, batch.topk)
    for n in (1, 3):
        tokens, topk, weights = ((2 * arrays)[:n] for arrays in (batch.tokens, batch.topk, batch.weights))
        refused(group.pod, lambda: group.dispatch(tokens, batch.topk), f"tokens: {n} arrays for 2 ranks")  # noqa: B023
        refused(group.pod, lambda: group.dispatch(batch.tokens, topk), f"topk: {n} arrays for 2 ranks")  # noqa: B023
        refused(group.pod, lambda: group.combine(weights), f"weights: {n} arrays for 2 ranks")  # noqa: B023
    refused(group.pod, lambda: group.dispatch(None, batch.topk), "tokens=None: must be 2 arrays, for 2 ranks")  # type: ignore[arg-type]
    refused(group.pod, lambda: group.dispatch(batch.tokens, 3), "topk=3: must be 2 arrays")  # type: ignore[arg-type]
    refused(group.pod, lambda: group.dispatch([None, None], batch.topk), "tokens of rank 0:")  # type: ignore[list-item]
    refused(group.pod, lambda: group.combine(None), "weights=None: must be 2 arrays")  # type: ignore[arg-type]
    refused(group.pod, lambda: group.run_rounds(3, 3, 3), "tokens=3: must be a list of rounds")
    given = *columns([batch])[:2], [None]
    refused(group.pod, lambda: group.run_rounds(*given), "weights of round 0=None: must be 2 arrays")
    check_round(group, batch)


@EITHER_A2E
def test_calls_that_are_none_are_refused(case: A2ECase) -> None:
    """None in place of calls, of a call, or of a call's arrays is named; so is what is no triple, or of other dies."""
    group, call = case.group(), case.calls()[0]
    run: Callable[[Any], Any] = group.run
    refused(group.pod, lambda: run(None), r"calls=None: must be a list of calls, each \(tokens, topk, weights\)")
    for none in (None, call[:2]):
        refused(group.pod, lambda: run([none]), r"^call 0: must be \(tokens, topk, weights\)")  # noqa: B023
    refused(group.pod, lambda: run([call._replace(tokens=None)]), "call 0: tokens=None: must be 2 arrays, for 2 att")
    for name in ("topk", "weights"):
        short = call._replace(**{name: getattr(call, name)[:1]})
        refused(group.pod, lambda: run([short]), f"^call 0: {name}: 1 arrays for 2 attention dies")  # noqa: B023
    calls = [call, call._replace(weights=[w.astype(np.float64) for w in call.weights])]
    refused(group.pod, lambda: run(calls), r"^call 1: weights of rank 0: \[2, 2\] float64, must be")


@EITHER_A2E
def test_calls_may_come_one_by_one(case: A2ECase) -> None:
    """A generator of calls gives what their list gives."""
    given = case.calls()
    one, other = case.group().run(call for call in given), case.group().run(given)
    assert len(one) == len(given)
    for mine, theirs in zip(one, other, strict=True):
        assert [x.tobytes() for x in mine] == [x.tobytes() for x in theirs]


@pytest.mark.nojit
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"field_offset": "a"}, "field_offset='a': must be a whole number"),
        ({"managed_offset": 1.5}, "managed_offset=1.5: must be a whole number"),
        ({"field_offset": 16}, "field_offset=16: must be a multiple of 32 and not negative"),
        ({"first_die": "x"}, "first_die='x': must be a whole number"),
    ],
)
@pytest.mark.parametrize("group", [PULL.group, FUSED.group, A2E, A2EPull])
def test_places_are_numbers(group: Any, options: dict[str, Any], message: str) -> None:
    """An offset or a die that is none is refused by name, and nothing is allocated."""
    configs = {kind.group: case.config for kind, case in GROUPS.items()}
    if group in configs and "first_die" in options:
        return  # a field of the configuration there
    pod = Pod(small_pod(5, 3, managed_bytes=1 << 20))
    refused(pod, lambda: group(pod, configs.get(group, CALLS.config), **options), message)


# ---- results that there are not


@EITHER
def test_results_are_those_of_the_last_calls(kind: Kind) -> None:
    """Before dispatch there is nothing to read or compute, before combine no output, and neither after `reset`."""
    group, (batch, other) = GROUPS[kind].group(), GROUPS[kind].batches()
    nothing = {
        "received": lambda: group.received(0), "expert_output": lambda: group.expert_output(0),
        "run_dummy": group.run_dummy, "output": lambda: group.output(0),
    }  # fmt: skip
    for name, call in nothing.items():
        refused(group.pod, call, f"{name}: nothing was dispatched")
    group.dispatch(batch.tokens, batch.topk)
    refused(group.pod, lambda: group.output(0), "output: nothing was combined")
    check_round(group, other)
    group.output(0)
    group.dispatch(batch.tokens, batch.topk)
    refused(group.pod, lambda: group.output(0), "output: nothing was combined")
    group.reset()
    refused(group.pod, lambda: group.received(0), "received: nothing was dispatched")


@EITHER
def test_ranks_and_rounds_that_there_are_not(kind: Kind) -> None:
    """Too large, negative, or no number: refused by name, with what would be right."""
    group, batches = GROUPS[kind].group(), GROUPS[kind].batches()
    check_round(group, batches[0])
    for call in (group.received, group.output, group.expert_output, group.n_tokens, group.die_of):
        for rank in (2, -1, "x", None, True):
            with pytest.raises(ConfigError, match=rf"^rank={rank!r}: must be a whole number, 0 to 1$"):
                call(rank)  # type: ignore[arg-type]
    results = (group.received, group.output, group.expert_output)
    for result in results:
        with pytest.raises(ConfigError, match="nothing was dispatched"):
            result(0, 1)
    group.run_rounds(*columns(batches))
    for result in results:
        result(1, 1)
        with pytest.raises(ConfigError, match=r"^round=-1: must be a whole number, 0 to 1$"):
            result(0, -1)


@EITHER_A2E
def test_calls_and_dies_that_there_are_not(case: A2ECase) -> None:
    """Results of calls are there when they have run, for calls and dies that there are."""
    group = case.group()
    calls = Calls(group, case.calls())
    for call in (lambda: calls.output(0, 0), lambda: calls.received(1, 0)):
        refused(group.pod, call, r"call=\d: the calls have not run to their end")
    calls.launch()
    with pytest.raises(ConfigError, match="call=1: the calls have not run to their end"):
        calls.received(1, 0)
    group.run_launched()
    check(case, calls, case.calls())
    with pytest.raises(ConfigError, match=r"^call=9: must be a whole number, 0 to 1$"):
        calls.output(9, 0)
    with pytest.raises(ConfigError, match=r"^i=-1: must be a whole number, 0 to 1$"):
        calls.output(0, -1)
    with pytest.raises(ConfigError, match=r"^die=7: must be a whole number, 0 to 2$"):
        calls.received(1, 7)
    with pytest.raises(ConfigError, match=r"^call='x': must be a whole number$"):
        calls.received("x", 0)  # type: ignore[arg-type]
    none = Calls(group, [])
    with pytest.raises(ConfigError, match=r"^call=0: must be one of those that there are, and there are none$"):
        none.output(0, 0)
