"""What A2E and E2A refuse, that a refused call changes nothing, and the way back from a failed run."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from xccl_emu.errors import AccessError, CapacityError, ConfigError, DeadlockError
from xccl_emu.kernels.expert import dummy_expert
from xccl_emu.kernels.parameters import Buffers
from xccl_emu.protocols.a2e import A2E, A2EConfig, Call, Calls
from xccl_emu.protocols.a2e_pull import A2EPull

from .a2e_support import Case, follow

CONFIG = A2EConfig(2, 2, 3, local_experts=2, hidden=64, top_k=2, tokens_max=4, cores=2)
CASE = Case(CONFIG, "relaxed", "random", seed=9, lengths=((3, 0), (1, 4), (2, 2)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_domains": 0}, "n_domains=0: must be a whole number, 1 to 65536"),
        ({"n_attention": 4}, "n_attention=4: must be at most n_experts=3"),
        ({"n_experts": 0}, "n_experts=0: must be a whole number, 1 to 65536"),
        ({"local_experts": 0}, "local_experts=0: must be a whole number, 1 to 65536"),
        ({"tokens_max": 0}, "tokens_max=0: must be a whole number, 1 to 65536"),
        ({"top_k": 17}, "top_k=17: must be a whole number, 1 to 16"),
        ({"top_k": 7}, "top_k=7: there are 6 expert slots"),
        ({"n_domains": True}, "n_domains=True: must be a whole number, 1 to 65536"),
        ({"hidden": 48}, "hidden=48: must be a multiple of 32"),
        ({"depth": 9}, "depth=9: must be a whole number, 1 to 8"),
        ({"e2a_cores": 0}, "e2a_cores=0: must be a whole number, 1 to 1024"),
        ({"dtype": "fp32"}, "dtype='fp32': must be one of bf16, fp16"),
        ({"path": "dma"}, "path='dma': must be one of mtu, urma"),
        ({"quantizer": "fp8"}, "quantizer='fp8': must be one of xccl, cann"),
        ({"shared": 1}, "shared=1: must be True or False"),
    ],
)
def test_a_config_out_of_range_is_refused(changes: dict[str, Any], message: str) -> None:
    """Each field names itself, its value and what would be right."""
    with pytest.raises(ConfigError) as caught:
        replace(CONFIG, **changes)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"n_experts": 4}, {}, "8 dies from die 0: the pod has 7 dies"),
        ({}, {"first_die": 1}, "7 dies from die 1: the pod has 7 dies"),
        ({"compute_cores": 2}, {}, "cores=2, 4 of an expert die: a die has 3"),
        ({"cores": 4}, {}, "cores=4, 3 of an expert die: a die has 3"),
        ({}, {"managed_offset": 16}, "managed_offset=16: must be a multiple of 32 and not negative"),
        ({}, {"field_offset": -32}, "field_offset=-32: must be a multiple of 32 and not negative"),
    ],
)
def test_a_group_that_does_not_fit_the_pod_is_refused(
    changes: dict[str, Any], options: dict[str, int], message: str
) -> None:
    """The pod's dies and cores are named, and offsets that are none."""
    pod = CASE.group().pod
    with pytest.raises(ConfigError) as caught:
        A2E(pod, replace(CONFIG, **changes), **options)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("area", "field"),
    [("managed data area", "managed_bytes"), ("metadata area", "meta_bytes"), ("data buffer", "ub_bytes")],
)
@pytest.mark.parametrize("pull", [False, True])
def test_an_area_that_is_too_small_is_named(area: str, field: str, pull: bool) -> None:
    """One granule less than is needed is refused with both sizes; exactly what is needed is enough (`Case.group`)."""
    config = replace(CONFIG, n_domains=1, depth=1) if pull else CONFIG
    fits = replace(CASE, config=config, pull=pull).group().pod.spec
    smaller = fits.with_(**{field: getattr(fits, field) - 32})
    with pytest.raises(CapacityError, match=rf"^{area}.*: needs \d+ bytes, has {getattr(smaller, field)};"):
        (A2EPull if pull else A2E)(type(CASE.group().pod)(smaller), config)


@pytest.mark.parametrize("changes", [{"n_domains": 2}, {"depth": 2}, {"microbatches": 2}])
def test_pulling_takes_one_domain_and_one_call(changes: dict[str, int]) -> None:
    """More than one domain or microbatch, or memory for more than one call, is refused."""
    with pytest.raises(ConfigError, match="=2: pulling, it must be 1"):
        A2EPull(CASE.group().pod, replace(CONFIG, **{"n_domains": 1, "depth": 1, **changes}))


def changed(part: str, die: int, change: Callable[[Any], Any]) -> list[Call]:
    """The calls of the case, of which the second has one array changed."""
    calls = CASE.calls()
    arrays = list(getattr(calls[1], part))
    arrays[die] = change(arrays[die].copy())
    calls[1] = calls[1]._replace(**{part: arrays})
    return calls


def with_value(row: int, column: int, value: float) -> Callable[[Any], Any]:
    """Puts a value into an array."""

    def change(array: Any) -> Any:
        array[row, column] = value
        return array

    return change


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("tokens", lambda x: x[:, :32], r"call 1: tokens of rank 1: \[4, 32\] bfloat16, must be \[tokens, 64\] bf16"),
        ("tokens", lambda x: x.astype(np.float16), "call 1: tokens of rank 1: .* float16, must be"),
        ("tokens", lambda x: np.concatenate([x, x]), "call 1: tokens of rank 1: 8 exceed tokens_max=4"),
        ("tokens", with_value(2, 7, np.inf), "call 1: tokens of rank 1, token 2, column 7: inf cannot be quantized"),
        ("topk", lambda x: x[:3], r"call 1: topk of rank 1: \[3, 2\] int32, must be \[4, 2\] integers"),
        ("topk", with_value(0, 0, 6), "call 1: topk of rank 1, token 0: 6 must be -1 or a slot below 6"),
        ("topk", lambda x: np.zeros_like(x), "call 1: topk of rank 1, token 0: expert slot 0 is chosen twice"),
        ("weights", lambda x: x.astype(np.float64), r"call 1: weights of rank 1: \[4, 2\] float64, must be"),
    ],
)
def test_a_bad_call_is_refused_before_anything_changes(part: str, change: Callable[[Any], Any], message: str) -> None:
    """Call, die, token and value are named; memory is as it was, nothing is allocated, and the group goes on."""
    group = CASE.group()
    before, used = group.pod.digest(), group.pod.mark_app()
    with pytest.raises(ConfigError, match=message):
        group.run(changed(part, 1, change))
    assert (group.pod.digest(), group.pod.mark_app()) == (before, used)
    follow(CASE, group)


def test_calls_of_the_wrong_form_are_refused() -> None:
    """A call that is no triple, or has arrays for another number of dies, says so."""
    group, call = CASE.group(), CASE.calls()[0]
    with pytest.raises(ConfigError, match=r"^call 0: must be \(tokens, topk, weights\)"):
        group.run([call[:2]])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=r"^call 0: topk: 1 arrays for 2 attention dies"):
        group.run([call._replace(topk=call.topk[:1])])


def test_rows_of_an_older_call_are_refused() -> None:
    """Only the last ``depth`` calls have their rows on the expert dies."""
    calls = follow(CASE)
    with pytest.raises(ConfigError, match="call=0: of 3 calls the last 2 are kept"):
        calls.received(0, 1)
    with pytest.raises(ConfigError, match="call=3: of 3 calls"):
        calls.received(3, 1)


def test_a_taken_core_is_refused_before_anything_is_launched() -> None:
    """A core that somebody else has launched on is named by its die, and nothing of the calls is launched."""
    group = CASE.group()
    shape = group.config.group(1, group.pod.spec.die_bytes)
    args = {"first": 0, "last": 0, "c": shape, "b": Buffers()}
    group.pod.launch(dummy_expert, 4, [1], args, [])
    taken = group.pod.active_cores()
    with pytest.raises(ConfigError, match="cores=2: on die 4 one is taken by another launch"):
        group.run(CASE.calls())
    assert group.pod.active_cores() == taken


def test_after_a_failed_run_reset_brings_the_group_back() -> None:
    """A run that fails, here for want of a permission, must be reset; then calls are right again."""
    group = CASE.group()
    Calls(group, CASE.calls()).launch()
    core = group.pod.active_cores()[0]
    group.pod.state[group.pod.core_base(core) + 8] = 0  # its windows
    with pytest.raises(AccessError):
        group.run_launched()
    with pytest.raises(ConfigError, match="call reset"):
        group.run(CASE.calls())
    group.reset()
    follow(CASE, group)


def test_a_later_group_takes_over() -> None:
    """Of two groups in the same part of the areas the earlier one is refused."""
    first = CASE.group()
    A2E(first.pod, CONFIG)
    with pytest.raises(ConfigError, match="made later has taken its part"):
        first.run(CASE.calls())


@pytest.mark.parametrize("sync", ["tokens in", "counts of messages", "rows gathered", "rows computed", "call returned"])
def test_without_an_announcement_all_wait(sync: str) -> None:
    """The streams never go on by themselves: without the flag between two of them the run ends in a deadlock."""
    group = CASE.group(without=[sync])
    Calls(group, CASE.calls()).launch()
    with pytest.raises(DeadlockError):
        group.run_launched()
