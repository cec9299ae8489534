"""Calls under watch: right ones go through with the oracle's bits, wrong ones raise in the call that shows them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.protocols.ep_support import EITHER, Case, Kind, check_round, run_round
from tests.refused import refuses
from xccl_emu.base.errors import ConfigError, ReplayError, ViolationError
from xccl_emu.machine import Pod, small_pod
from xccl_emu.machine.pod import ORDERS
from xccl_emu.protocols.deepep.session import DeepEpConfig
from xccl_emu.protocols.sendrecv.session import SendRecv
from xccl_emu.testing import Watched
from xccl_emu.testing.watched import Together

SMALL = DeepEpConfig(n_ranks=3, local_experts=2, hidden=64, top_k=3, tokens_max=4, cores=2)
CASE = Case(SMALL, "relaxed", "random", seed=4, lengths=((4, 1, 3), (0, 3, 2)))
NEEDED = (
    "message left", "token loaded", "message made", "tokens before counts", "count", "counts in", "counts noted",
    "all counts are in", "counts loaded", "pull half full", "row counts loaded", "row loaded", "expert output made",
    "received counts loaded", "routes loaded", "row in", "rows before flags", "flag", "rows left", "flags in",
    "all flags are in", "contribution in", "sum made",
)  # fmt: skip
ACROSS = ("next buffer clean", "all cores have cleaned")
"""What `check deepep-ll --each-sync` calls needed; the last two order a call and the next."""


def three_calls(watched: Watched, **options: Any) -> None:
    """Three rounds of DeepEP's mode with equal inputs, as scripts have them."""
    group = CASE.group_in("relaxed", watched, 0, **options)  # type: ignore[arg-type]
    for _ in range(3):
        check_round(group, CASE.batches()[0])


@EITHER
@pytest.mark.parametrize("order", ORDERS)
def test_right_calls_go_through(kind: Kind, order: str, tmp_path: Path) -> None:
    """Rounds of each kind of group, watched on a poisoned pod, give the oracle's bits and write nothing."""
    config = kind.config(n_ranks=2, local_experts=2, hidden=64, top_k=2, tokens_max=3, cores=2)
    case = replace(CASE, config=config, lengths=((3, 1), (0, 2), (3, 3)))
    watched = Watched(schedules=4, witnesses=tmp_path)
    group = case.group_in(order, watched, 0)  # type: ignore[arg-type]
    for batch in case.batches():
        check_round(group, batch)
    assert watched.runs == 9
    assert not any(tmp_path.iterdir())


def test_what_is_missing_is_found_though_inputs_repeat(tmp_path: Path) -> None:
    """Without the fence the first of three equal calls raises; its file replays that run, and no other."""
    with pytest.raises(ViolationError, match="data race") as raised:
        three_calls(Watched(schedules=6, witnesses=tmp_path), without=["tokens before counts"])
    (path,) = tmp_path.iterdir()
    assert raised.value.kind == "data race"
    assert raised.value.witness == path
    with pytest.raises(ViolationError, match="data race"):
        three_calls(Watched(replay=path, witnesses=tmp_path), without=["tokens before counts"])
    assert [*tmp_path.iterdir()] == [path]
    with pytest.raises(ReplayError, match="of another version"):
        three_calls(Watched(replay=path, witnesses=tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NEEDED, *ACROSS])
def test_each_needed_synchronization_is_found(name: str, tmp_path: Path) -> None:
    """Whichever is switched off, three equal calls raise, or give wrong bits, for one of 20 seeds."""
    for seed in range(20):
        try:
            watched = Watched(seed=seed, witnesses=tmp_path, together=3 if name in ACROSS else 1)
            three_calls(watched, without=[name])
        except ViolationError:
            return
    pytest.fail(f"{name}: not found")


TINY = replace(
    CASE, config=DeepEpConfig(n_ranks=2, hidden=32, tokens_max=1, top_k=1), lengths=((1, 1),) * 3, masked=0.0
)  # fmt: skip


def test_what_orders_a_call_and_the_next_is_found_together(tmp_path: Path) -> None:
    """Without it each call alone is right; two runs together are a deadlock, which the file replays."""

    def calls(together: int, **more: Any) -> None:
        watched = Watched(schedules=6, witnesses=tmp_path, together=together, **more)
        group = TINY.group_in("relaxed", watched, 0, without=["next buffer clean"])  # type: ignore[arg-type]
        for _ in range(2):
            check_round(group, TINY.batches()[0])

    calls(1)
    with pytest.raises(ViolationError, match="deadlock") as raised:
        calls(2)
    with pytest.raises(ViolationError, match="deadlock"):
        calls(2, replay=raised.value.witness)


def test_runs_together_are_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one run, with what the hosts write in between, runs leave the bytes that they leave one by one: calls of
    different batches, with what the host makes of rows between them."""
    trials, built = list[Any](), Together.trial
    monkeypatch.setattr(Together, "trial", lambda self, pod: trials.append(built(self, pod)) or trials[-1])
    case = replace(CASE, config=replace(SMALL, cores=1), lengths=((4, 1, 3), (0, 3, 2), (2, 2, 4)), more_app=1 << 14)
    group = case.group_in("relaxed", Watched(schedules=1, witnesses=tmp_path, together=3), 0)  # type: ignore[arg-type]
    for batch in case.batches():
        received = group.dispatch(batch.tokens, batch.topk)
        for rank, got in enumerate(received):
            group.expert_output(rank)[:] = got.x[:, :1].astype(np.float32)
        group.combine(batch.weights)
        if trials[-1] is not None:
            trials[-1].pod.run()
            for rank, buffers in enumerate(group.buffers):
                out = (pod.view(buffers["out"])[: group.output(rank).nbytes] for pod in (trials[-1].pod, group.pod))
                np.testing.assert_array_equal(*out)
    assert [trial is None for trial in trials] == [True, False, False, False, False, False]


def test_after_a_violation_a_group_is_reset(tmp_path: Path) -> None:
    """The group that raised can be called again when it was reset and its pod mended."""
    case = replace(CASE, lengths=((1, 1, 1),))
    watched = Watched(schedules=2, witnesses=tmp_path)
    group = case.group_in("relaxed", watched, 0, without=["tokens before counts"])  # type: ignore[arg-type]
    (batch,) = case.batches()
    with pytest.raises(ViolationError):
        run_round(group, batch)
    with pytest.raises(ConfigError, match="reset"):
        run_round(group, batch)
    group.pod.without = ()
    group.reset()
    check_round(group, batch)


def test_transfers_under_watch(tmp_path: Path) -> None:
    """A send that no receive answers is a deadlock, with a witness; one that is answered arrives."""
    pod = Pod(small_pod(2, 2), order="relaxed", policy=Watched(schedules=2, witnesses=tmp_path))
    ring, data = SendRecv(pod), np.arange(100, dtype=np.uint8)
    source, target = pod.put(0, data), pod.alloc(1, 100)
    ring.transfer(source, target, event_id=1)
    _ = ring.run()
    assert (pod.view(target) == data).all()
    ring.send(source, 1, event_id=2)
    with pytest.raises(ViolationError, match="deadlock"):
        _ = ring.run()


@refuses(
    Watched,
    ({"policy": "exhaustive"}, "policy='exhaustive'"),
    ({"schedules": 0}, "schedules=0"),
    ({"seed": -1}, "seed=-1"),
    ({"together": 0}, "together=0: must be 1 to 8"),
)
def test_refusals() -> None:
    """What cannot be is refused by name when the policy is made."""


def test_poison_shows_what_is_read_too_late() -> None:
    """A managed area holds nothing of a call when it is over, and app data that a launch only writes begins spoilt."""
    group = CASE.group_in("sc", "round-robin", 0)
    group.pod.poison = True
    received, _ = run_round(group, CASE.batches()[0])
    layout, pod = group.layout, group.pod
    managed = pod.span(pod.managed(0, layout.managed_start), layout.managed_end - layout.managed_start)
    assert (managed == 0xFF).all()
    rows = len(received[0].x)
    beyond = pod.view(group.buffers[0]["recv_x"])[rows * SMALL.payload_bytes :][: SMALL.payload_bytes]
    assert (beyond == 0xFF).all()
