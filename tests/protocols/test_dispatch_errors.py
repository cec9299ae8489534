"""What dispatch and combine refuse, that a refused call changes nothing, and the way back from a failed run."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from xccl_emu.base.errors import AccessError, CapacityError, ConfigError, DeadlockError
from xccl_emu.kernels.group import align
from xccl_emu.lang import kernel, quiet
from xccl_emu.machine.pod import ORDERS, Pod
from xccl_emu.machine.spec import CLOUDMATRIX384, MIB, PodSpec
from xccl_emu.protocols.fused.session import FusedConfig, FusedLayout
from xccl_emu.protocols.pull.session import ExpertParallel

from .ep_support import (
    DEEPEP,
    EITHER,
    EITHER_WAY,
    FUSED,
    KINDS,
    PULL,
    Batch,
    Case,
    Kind,
    check_round,
    columns,
    kind_of,
    refused,
)
from .refused_batches import EACH, INF, NAN, Change, changed

SIZES: dict[str, Any] = {"n_ranks": 3, "local_experts": 2, "hidden": 64, "top_k": 2, "tokens_max": 4, "cores": 2}
CASES = {
    kind: Case(kind.config(**SIZES), "relaxed", "random", seed=9, lengths=((3, 0, 4), (1, 4, 2)))
    for kind in KINDS.values()
}
CASE, CONFIG = CASES[PULL], CASES[PULL].config
PUBLISHED = FusedConfig(n_ranks=320, top_k=8, tokens_max=96, cores=4)


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
    layout = FusedLayout(replace(PUBLISHED, double_buffered=False), Pod(CLOUDMATRIX384))
    assert layout.dispatch.offset == layout.combine.offset
    assert layout.managed_end - layout.dispatch.offset == 420 * MIB


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_ranks": 4}, "n_ranks=4 from die 0: the pod has 3 dies"),
        ({"first_die": 1}, "n_ranks=3 from die 1: the pod has 3 dies"),
        ({"cores": 3}, "cores=3: a die has 2"),
    ],
)
@EITHER
def test_a_group_larger_than_the_pod_is_refused(kind: Kind, changes: dict[str, Any], message: str) -> None:
    """The pod's dies and cores are named."""
    with pytest.raises(ConfigError) as caught:
        kind.group(CASES[kind].group().pod, replace(CASES[kind].config, **changes))
    assert str(caught.value) == message


def exact(case: Case) -> PodSpec:
    """A pod whose three areas end where those of the group do."""
    spec, kind = case.spec(), kind_of(case.config)
    layout = kind.lay_out(case.config, Pod(spec))
    return spec.with_(
        managed_bytes=layout.managed_end, meta_bytes=layout.meta_end, ub_bytes=align(kind.buffer_bytes(case.config))
    )


@pytest.mark.parametrize(
    ("area", "field"),
    [("managed data area", "managed_bytes"), ("metadata area", "meta_bytes"), ("data buffer", "ub_bytes")],
)
@EITHER_WAY
def test_an_area_that_is_too_small_is_named(kind: Kind, switches: dict[str, Any], area: str, field: str) -> None:
    """One granule less than is needed is refused with both sizes; a group on exactly what is needed runs right."""
    case = replace(CASES[kind], config=replace(CASES[kind].config, **switches))
    tight = exact(case)
    group = kind.group(Pod(tight, order="relaxed", policy="random", seed=1), case.config)
    for batch in case.batches():
        check_round(group, batch)
    less = getattr(tight, field) - 32
    with pytest.raises(CapacityError, match=rf"^{area}.*{less}"):
        kind.group(Pod(tight.with_(**{field: less})), case.config)


def test_an_app_area_that_is_too_small_is_named() -> None:
    """Buffers that do not fit the app data area are a CapacityError."""
    spec = CASE.spec()
    small = spec.with_(die_bytes=spec.die_bytes, managed_bytes=spec.managed_bytes + spec.app_bytes - 64)
    with pytest.raises(CapacityError, match="do not fit the app data area"):
        ExpertParallel(Pod(small), CONFIG)


# ---- arguments of dispatch and combine


@EACH
@EITHER
def test_batches_that_do_not_fit_are_refused(kind: Kind, part: str, change: Change, message: str) -> None:
    """Rank, token and value are named, nothing has moved, and the next rounds are right; for a run of rounds too."""
    group, (first, second) = CASES[kind].group(), CASES[kind].batches()
    check_round(group, second)
    bad = replace(first, **{part: changed(getattr(first, part), 2, change)})
    refused(group.pod, lambda: group.dispatch(bad.tokens, bad.topk), f"{part} of rank 2{message}")
    refused(group.pod, lambda: group.run_rounds(*columns([second, bad])), f"{part} (of round 1 )?of rank 2{message}")
    check_round(group, first)


@EITHER
def test_combine_refuses_weights_that_do_not_fit(kind: Kind) -> None:
    """Weights must be float32 and fit the last dispatch; before any dispatch there is nothing to combine."""
    group, (first, second) = CASES[kind].group(), CASES[kind].batches()
    refused(group.pod, lambda: group.combine(first.weights), "combine: nothing was dispatched")
    group.dispatch(first.tokens, first.topk)
    wrong_shape = r"weights of rank 0: \[1, 2\] float32, must be \[3, 2\] float32"
    refused(group.pod, lambda: group.combine(second.weights), wrong_shape)
    doubles = [w.astype(np.float64) for w in first.weights]
    refused(group.pod, lambda: group.combine(doubles), r"weights of rank 0: \[3, 2\] float64, must be \[3, 2\] float32")
    check_round(group, first)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_unquantized_dispatch_takes_nan_and_infinity(value: float) -> None:
    """Without quantization NaN and infinity arrive with the bits that they had."""
    case = replace(CASE, config=replace(CONFIG, quantized=False))
    group, batch = case.group(), case.batches()[0]
    batch.tokens[0][1, 5] = value
    received = group.dispatch(batch.tokens, batch.topk)
    sent = batch.tokens[0].view(np.uint16)[1]
    rows = [r.x.view(np.uint16)[(r.source == 0) & (r.token == 1)] for r in received]
    found = np.concatenate(rows)
    assert len(found) == (batch.topk[0][1] >= 0).sum() > 0
    assert (found == sent).all()


# ---- failed runs


def _without_a_rank(group: Any, batch: Batch, missing: int) -> str:
    """Run a dispatch in which one rank's launch is missing; the report of its deadlock."""
    pod, die = group.pod, group.die_of(missing)
    launch = pod.launch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pod, "launch", lambda kernel, on, *rest, **more: on != die and launch(kernel, on, *rest, **more))
        with pytest.raises(DeadlockError) as caught:
            group.dispatch(batch.tokens, batch.topk)
    return str(caught.value)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rounds_before", [0, 1, 2])
@EITHER
def test_a_rank_that_does_not_take_part_is_a_deadlock(kind: Kind, order: str, rounds_before: int) -> None:
    """Every core of the others is listed with the poll it stands at, no row passes for a result, though an earlier
    round had one, and after `reset` rounds are right again, counted from the start."""
    group, batches = CASES[kind].group_in(order, "random", 3), CASES[kind].batches()
    for batch in batches[:rounds_before]:
        check_round(group, batch)
    text = _without_a_rank(group, batches[1], missing=1)
    assert text.startswith("deadlock: 4 of 4 cores are blocked")
    for die in (0, 2):
        for core in range(2):
            assert f"die {die} core {core}, kernel {kind.group.dispatches.kernel.name}" in text
    step = 3 if kind is FUSED else 5
    assert f"step {step}, sync 'counts in'" in text
    assert f"saw {rounds_before}, wants == {rounds_before + 1};" in text or kind is not PULL  # which has one table
    assert f"wants {'!= 0' if kind is DEEPEP else f'== {rounds_before + 1}'};" in text
    lost = (group.received, group.expert_output, group.output)
    for call in (lambda: group.dispatch(batches[0].tokens, batches[0].topk), *(partial(call, 0) for call in lost)):
        with pytest.raises(ConfigError, match=r"call reset\(\) first"):
            call()
    group.reset()
    assert group.next_dispatch() == 1
    for batch in batches:
        check_round(group, batch)


@pytest.mark.parametrize("value", [0, 7, -1, 1 << 62])
def test_a_damaged_event_is_a_deadlock_with_what_was_seen(value: int) -> None:
    """An acknowledgement overwritten between rounds: a lower one blocks, naming address and value; a higher passes."""
    group, batches = CASE.group(), CASE.batches()
    check_round(group, batches[0])
    address = group.pod.meta(1, group.layout.dispatch_done.offset + 2 * 32)
    group.pod.memory[address : address + 8].view(np.int64)[0] = value
    if value >= 1:
        check_round(group, batches[1])
        return
    where = rf"die1\.meta\+{group.layout.dispatch_done.offset + 64:#x}"
    with pytest.raises(DeadlockError, match=rf"{where}.*saw {value}, wants >= 1"):
        check_round(group, batches[1])
    group.reset()
    check_round(group, batches[1])


def test_a_failed_combine_is_left_by_reset() -> None:
    """A deadlock in combine: after `reset` combine refuses until the next dispatch, and then all is right."""
    group, batches = CASE.group(), CASE.batches()
    check_round(group, batches[0])
    address = group.pod.meta(0, group.layout.combine_done.offset + 32)
    group.pod.memory[address : address + 8] = 0
    with pytest.raises(DeadlockError, match=r"kernel combine .*sync 'combine blocks free'"):
        check_round(group, batches[1])
    group.reset()
    with pytest.raises(ConfigError, match="combine: nothing was dispatched"):
        group.combine(batches[1].weights)
    check_round(group, batches[1])


@pytest.mark.parametrize("dies_too_far", [3, 64, 1 << 30])
def test_an_address_on_no_die_is_refused(dies_too_far: int) -> None:
    """Permission for any die is for the pod's dies: an address behind them is an AccessError, whatever lies there."""
    group, batch = CASE.group(), CASE.batches()[0]
    right = group.shape()
    shapes = iter([right._replace(die_bytes=dies_too_far * right.die_bytes)])
    group.shape = lambda: next(shapes, right)  # type: ignore[method-assign]
    with pytest.raises(AccessError, match=r"\(no die\) is not permitted"):
        group.dispatch(batch.tokens, batch.topk)
    del group.shape
    group.reset()
    check_round(group, batch)


def test_reset_leaves_other_fields_alone() -> None:
    """`reset` zeroes the group's own metadata fields and no others."""
    spec = CASE.spec()
    pod = Pod(spec.with_(meta_bytes=spec.meta_bytes + 128))
    group = ExpertParallel(pod, CONFIG, field_offset=64)
    pod.memory[pod.meta(0) : pod.meta(0) + pod.spec.meta_bytes] = 0x5A
    group.reset()
    meta = pod.memory[pod.meta(0) : pod.meta(0) + pod.spec.meta_bytes]
    assert (meta[:64] == 0x5A).all()
    assert (meta[64 : group.layout.meta_end] == 0).all()
    assert (meta[group.layout.meta_end :] == 0x5A).all()
    assert len(meta) > group.layout.meta_end


@EITHER
def test_two_groups_share_a_pod(kind: Kind) -> None:
    """Groups side by side in the managed and metadata areas do not disturb each other."""
    spec, config = CASES[kind].spec(), CASES[kind].config
    layout = kind.lay_out(config, Pod(spec))
    sizes = {"managed_bytes": 2 * layout.managed_end, "meta_bytes": 2 * layout.meta_end}
    pod = Pod(spec.with_(die_bytes=4 * spec.die_bytes, **sizes), order="relaxed", policy="random", seed=1)
    one = kind.group(pod, config)
    other = kind.group(pod, config, managed_offset=layout.managed_end, field_offset=layout.meta_end)
    for batch in CASES[kind].batches():
        check_round(one, batch)
        check_round(other, batch)


@kernel
def rest():
    """Do nothing."""
    yield quiet()


def test_a_taken_core_is_refused_before_anything_changes() -> None:
    """If a core of the group runs something else, dispatch says so, changes nothing, and is right once it is free."""
    group, batches = CASE.group(), CASE.batches()
    check_round(group, batches[0])
    group.pod.launch(rest, 1, [1], {}, [])
    message = "on die 1 one of them is taken"
    refused(group.pod, lambda: group.dispatch(batches[1].tokens, batches[1].topk), message)
    group.pod.run()
    check_round(group, batches[1])


def test_a_snapshot_goes_with_the_rounds() -> None:
    """A pod that is restored to before a round can run that round, or another one, again."""
    group, batches = CASE.group_in("relaxed", "random", 5), CASE.batches()
    check_round(group, batches[0])
    snapshot = group.pod.snapshot()
    check_round(group, batches[1])
    after = group.pod.digest()
    group.pod.restore(snapshot)
    check_round(group, batches[1])
    assert group.pod.digest() == after
    group.pod.restore(snapshot)
    check_round(group, batches[0])


def test_numpy_integers_are_numbers() -> None:
    """Small NumPy integers are taken as the numbers they are, and do not overflow in sizes."""
    config = replace(CONFIG, tokens_max=np.int8(100), hidden=np.int16(64))
    assert type(config.tokens_max) is int
    assert config.rows_per_block == replace(CONFIG, tokens_max=100, hidden=64).rows_per_block


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_outputs_that_cannot_be_quantized_are_refused(value: float) -> None:
    """On the way back, too, before anything moves, by rank, row and column; as they are they may travel."""
    for back in (True, False):
        case = replace(CASE, config=replace(CONFIG, quantized_back=back))
        group, batch = case.group(), case.batches()[0]
        group.dispatch(batch.tokens, batch.topk)
        for rank in range(group.config.n_ranks):
            group.expert_output(rank)[:] = 1
        group.expert_output(1)[2, 3] = value
        if back:
            with pytest.raises(ConfigError, match=r"expert_output of rank 1, row 2, column 3: (inf|nan) cannot be"):
                group.combine(batch.weights)
            group.expert_output(1)[2, 3] = 1
        group.combine(batch.weights)


def test_a_new_group_takes_over_and_begins_afresh() -> None:
    """Where another one was: event IDs and counts that still stand there are not its own, and the older one refuses,
    for it would read the new one's."""
    older, batches = CASE.group_in("relaxed", "random", 7), CASE.batches()
    for batch in batches:
        check_round(older, batch)
    newer = ExpertParallel(older.pod, older.config)
    with pytest.raises(ConfigError, match="ExpertParallel: a communicator made later has taken its part"):
        older.dispatch(batches[0].tokens, batches[0].topk)
    for batch in batches[::-1]:
        check_round(newer, batch)
