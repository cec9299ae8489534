"""FusedDispatch and FusedCombine: published sizes, what is refused, and the way back from a failed run."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from xccl_emu.errors import CapacityError, ConfigError, DeadlockError
from xccl_emu.kernels.fused_layers import fused_layers
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384, MIB, small_pod
from xccl_emu.protocols.fused import FusedExpertParallel
from xccl_emu.protocols.fused_layout import FusedConfig, fused_buffer_bytes, lay_out_fused

from .ep_support import check_round
from .fused_support import SWITCHES, FusedCase, fused_rounds_of

CONFIG = FusedConfig(n_ranks=3, local_experts=2, hidden=64, top_k=2, tokens_max=4, cores=2)
CASE = FusedCase(CONFIG, "relaxed", "random", seed=9, lengths=((3, 0, 4), (1, 4, 2)))
PUBLISHED = FusedConfig(n_ranks=320, top_k=8, tokens_max=96, cores=4)


def test_buffers_have_the_published_sizes() -> None:
    """320 ranks × 96 tokens, one expert a die: 7,680-byte messages, 225 MiB and 420 MiB, and laid out so."""
    assert (PUBLISHED.message_bytes, PUBLISHED.row_bytes, PUBLISHED.max_tokens) == (7680, 14336, 96)
    assert PUBLISHED.dispatch_buffer_bytes == 225 * MIB
    assert PUBLISHED.combine_buffer_bytes == 420 * MIB
    layout = lay_out_fused(PUBLISHED, Pod(CLOUDMATRIX384))
    assert layout.combine - layout.dispatch == 225 * MIB
    assert layout.managed_end - layout.combine == 420 * MIB


@pytest.mark.parametrize(
    ("changes", "max_tokens"),
    [({"local_experts": 2}, 192), ({"local_experts": 16}, 768), ({"top_k": 1, "local_experts": 4}, 96)],
)
def test_regions_hold_what_a_rank_may_send(changes: dict[str, Any], max_tokens: int) -> None:
    """Eq. (2): the batch times choices or experts of a die, whichever are fewer."""
    config = replace(PUBLISHED, **changes)
    assert config.max_tokens == max_tokens
    assert config.dispatch_buffer_bytes == 320 * max_tokens * 7680


def test_one_buffer_for_both_is_as_large_as_the_larger() -> None:
    """Without the double buffer the managed area holds one buffer alone."""
    layout = lay_out_fused(replace(PUBLISHED, double_buffered=False), Pod(CLOUDMATRIX384))
    assert layout.dispatch == layout.combine
    assert layout.managed_end - layout.dispatch == 420 * MIB


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_ranks": 1}, "n_ranks=1: must be a whole number, 2 to 65536"),
        ({"hidden": 48}, "hidden=48: must be a multiple of 32"),
        ({"path": "mtu"}, "path='mtu': must be one of aiv, sdma"),
        ({"top_k": 7}, "top_k=7: there are 6 expert slots"),
        ({"early_quantization": 1}, "early_quantization=1: must be True or False"),
        ({"preallocated": None}, "preallocated=None: must be True or False"),
        ({"pipelined": "no"}, "pipelined='no': must be True or False"),
        ({"double_buffered": 0}, "double_buffered=0: must be True or False"),
    ],
)
def test_a_config_out_of_range_is_refused(changes: dict[str, Any], message: str) -> None:
    """Each field names itself, its value and what would be right."""
    with pytest.raises(ConfigError) as caught:
        replace(CONFIG, **changes)
    assert str(caught.value) == message


@pytest.mark.parametrize("switches", [{}, *SWITCHES])
@pytest.mark.parametrize(
    ("area", "field"),
    [("managed data area", "managed_bytes"), ("metadata area", "meta_bytes"), ("data buffer", "ub_bytes")],
)
def test_an_area_that_is_too_small_is_named(area: str, field: str, switches: dict[str, Any]) -> None:
    """One granule less than is needed is refused with both sizes; a group on exactly what is needed runs right."""
    case = replace(CASE, config=replace(CONFIG, **switches))
    group = case.group()
    spec, layout = group.pod.spec, group.layout
    exact = {
        "managed_bytes": layout.managed_end,
        "meta_bytes": layout.meta_end,
        "ub_bytes": (fused_buffer_bytes(case.config) + 31) // 32 * 32,
    }
    tight = spec.with_(**exact)
    check_round(FusedExpertParallel(Pod(tight, order="relaxed"), case.config), case.batches()[0])
    with pytest.raises(CapacityError, match=rf"^{area}.*{exact[field] - 32}"):
        FusedExpertParallel(Pod(tight.with_(**{field: exact[field] - 32})), case.config)


def test_a_group_larger_than_the_pod_is_refused() -> None:
    """The pod's dies and cores are named."""
    for changes, message in (({"n_ranks": 4}, "n_ranks=4 from die 0"), ({"cores": 3}, "cores=3: a die has 2")):
        with pytest.raises(ConfigError, match=message):
            FusedExpertParallel(CASE.group().pod, replace(CONFIG, **changes))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("tokens", np.nan, "tokens of rank 0, token 1, column 5: nan cannot be quantized"),
        ("topk", 6, "topk of rank 0, token 1: 6 must be -1 or a slot below 6"),
    ],
)
def test_batches_that_do_not_fit_are_refused(name: str, value: float, message: str) -> None:
    """Rank, token and value are named, nothing has moved, and the next round is right; for a launch of rounds too."""
    group, (first, second) = CASE.group(), CASE.batches()
    check_round(group, second)
    bad = CASE.batches()[0]
    getattr(bad, name)[0][1, 5 if name == "tokens" else 0] = value
    before = group.pod.digest()
    with pytest.raises(ConfigError, match=message):
        group.dispatch(bad.tokens, bad.topk)
    with pytest.raises(ConfigError, match=message):
        fused_rounds_of(group, [second, bad])
    assert group.pod.digest() == before
    check_round(group, first)


def test_combine_refuses_weights_that_do_not_fit() -> None:
    """Before any dispatch there is nothing to combine; weights must fit the last dispatch."""
    group, (first, second) = CASE.group(), CASE.batches()
    with pytest.raises(ConfigError, match="combine: nothing was dispatched"):
        group.combine(first.weights)
    group.dispatch(first.tokens, first.topk)
    with pytest.raises(ConfigError, match=r"weights of rank 0: \[1, 2\] float32, must be \[3, 2\] float32"):
        group.combine(second.weights)


@pytest.mark.parametrize("rounds_before", [0, 1, 2])
def test_a_rank_that_does_not_take_part_is_a_deadlock(rounds_before: int) -> None:
    """The others wait for its counts; after `reset` rounds are right again, counted from the start."""
    group, batches = CASE.group(), CASE.batches()
    for batch in batches[:rounds_before]:
        check_round(group, batch)
    launch = group._launch
    group._launch = lambda kernel, rank, *rest: None if rank == 1 else launch(kernel, rank, *rest)  # type: ignore[method-assign]
    with pytest.raises(DeadlockError, match=rf"sync 'counts in'.*wants == {rounds_before + 1};"):
        group.dispatch(batches[1].tokens, batches[1].topk)
    del group._launch
    with pytest.raises(ConfigError, match=r"call reset\(\) first"):
        group.dispatch(batches[1].tokens, batches[1].topk)
    group.reset()
    assert group.next_dispatch() == 1
    for batch in batches:
        check_round(group, batch)


def test_two_groups_share_a_pod() -> None:
    """Groups side by side in the managed and metadata areas do not disturb each other."""
    spec = CASE.group().pod.spec
    layout = lay_out_fused(CONFIG, Pod(spec))
    sizes = {"managed_bytes": 2 * layout.managed_end, "meta_bytes": 2 * layout.meta_end}
    pod = Pod(spec.with_(die_bytes=4 * spec.die_bytes, **sizes), order="relaxed", policy="random", seed=1)
    one = FusedExpertParallel(pod, CONFIG)
    other = FusedExpertParallel(pod, CONFIG, managed_offset=layout.managed_end, field_offset=layout.meta_end)
    for batch in CASE.batches():
        check_round(one, batch)
        check_round(other, batch)


def test_rounds_fit_the_registers_of_a_usual_pod() -> None:
    """The kernel of whole rounds needs no more registers than a pod has unless asked for more."""
    assert fused_layers.n_registers <= small_pod(2).registers
