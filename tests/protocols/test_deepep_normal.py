"""DeepEP's normal mode: rows by rank, source and token, through rings of any size; sums in order of the ranks."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.refused import refuses
from xccl_emu.base.errors import ConfigError, ViolationError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED
from xccl_emu.kernels.group import align
from xccl_emu.machine.pod import ORDERS, POLICIES, Pod
from xccl_emu.machine.spec import MIB, small_pod
from xccl_emu.oracle import normal as oracle
from xccl_emu.protocols.deepep.case import NormalCase
from xccl_emu.protocols.deepep.normal import NormalConfig, NormalLayout, NormalMode, layout_of, normal_buffer_bytes
from xccl_emu.testing import Watched

from .ep_support import assert_same_bits, poison, refused

SMALL = NormalConfig(n_ranks=3, local_experts=2, hidden=64, top_k=3, tokens_max=5, cores=4, places=2, chunk=1)


@dataclass(frozen=True, eq=False)
class Round:
    """One round's input, drawn by a seed: for each rank tokens, choices and weights, and what it will return."""

    config: NormalConfig
    lengths: tuple[int, ...]
    seed: int

    def given(self) -> tuple[list[Any], list[Any], list[Any]]:
        """Tokens, choices and weights of all ranks."""
        c, rng = self.config, np.random.default_rng(self.seed)
        tokens = [self._rows(rng, n, c.opaque_bytes) for n in self.lengths]
        slots = c.n_ranks * c.local_experts
        topk = [np.full((n, c.top_k), -1, np.int32) for n in self.lengths]
        for row in (row for table in topk for row in table):
            chosen = rng.integers(0, slots, c.top_k) if c.repeats else rng.permutation(slots)[: c.top_k]
            row[:] = np.where(rng.random(c.top_k) < 0.3, -1, chosen)
        return tokens, topk, [rng.standard_normal((n, c.top_k)).astype(np.float32) for n in self.lengths]

    def _rows(self, rng: np.random.Generator, n: int, opaque_bytes: int = 0) -> NDArray[Any]:
        if opaque_bytes:
            return rng.integers(0, 256, (n, opaque_bytes)).astype(np.uint8)
        spread = 2.0 ** rng.choice([-12, 0, 12], (n, self.config.hidden))  # so that sums show their order
        return (rng.standard_normal(spread.shape) * spread).astype(self.config.numpy_dtype())

    def check(self, group: NormalMode) -> None:
        """Dispatch, return rows of its own, combine twice; compare everything with the oracle."""
        c, rng, (tokens, topk, weights) = self.config, np.random.default_rng((self.seed, 1)), self.given()
        arrived = group.dispatch_rows(tokens, topk, weights)
        want = [oracle.rows_of(tokens, topk, weights, rank, c.local_experts) for rank in range(c.n_ranks)]
        returned = [self._rows(rng, len(rows.x)) for rows in want]
        for rank, (got, rows) in enumerate(zip(arrived, want, strict=True)):
            for name in ("x", "token", "experts", "weights"):
                assert_same_bits(f"{name} of rank {rank}", getattr(got, name), getattr(rows, name))
            np.testing.assert_array_equal(got.counts.sum(axis=1), np.bincount(rows.source, minlength=c.n_ranks))
            group.expert_output(rank)[:] = returned[rank]
        others = [rng.standard_normal(rows.weights.shape).astype(np.float32) for rows in want]
        numbers = rng.integers(0, c.biases + 1, c.n_ranks)
        drawn = [self._rows(rng, m * n).reshape(m, n, c.hidden) for m, n in zip(numbers, self.lengths, strict=True)]
        begun = drawn if c.biases else None
        for back, bias in ((others if c.weighed else None, begun), (None, None)):
            for rank, out in enumerate(group.combine_rows(back, bias)):
                first = () if bias is None else bias[rank]
                sums = oracle.sums_of(want, returned, rank, self.lengths[rank], first, c.by_choice)
                assert_same_bits(f"output of rank {rank}", out, sums)
                if back is not None:
                    sums = oracle.sums_of(want, back, rank, self.lengths[rank])
                    assert_same_bits(f"weights of rank {rank}", group.weights(rank), sums)


def group_of(config: NormalConfig, **options: Any) -> NormalMode:
    """A group on a poisoned pod on which it just fits."""
    ub = align(normal_buffer_bytes(config))
    roomy = small_pod(config.n_ranks, config.cores, app_bytes=MIB // 4, meta_bytes=MIB, managed_bytes=MIB, ub_bytes=ub)
    layout = NormalLayout(config, Pod(roomy))
    pod = Pod(roomy.with_(meta_bytes=layout.meta_end, managed_bytes=layout.managed_end), **options)
    poison(pod)
    return NormalMode(pod, config)


@settings(max_examples=40)
@given(st.data())
def test_rounds_give_what_the_oracle_gives(data: st.DataObject) -> None:
    """Any small group, ring and batch, in any order and policy; rows of any type."""
    n_ranks, local, places = (data.draw(st.integers(*bounds)) for bounds in ((2, 4), (1, 3), (1, 4)))
    config = NormalConfig(
        n_ranks=n_ranks,
        local_experts=local,
        hidden=32 * data.draw(st.integers(1, 4)),
        top_k=data.draw(st.integers(1, n_ranks * local)),
        tokens_max=6,
        cores=2 * data.draw(st.integers(1, 3)),
        dtype=data.draw(st.sampled_from(["bf16", "fp16"])),
        places=places,
        chunk=data.draw(st.integers(1, places)),
        opaque_bytes=32 * data.draw(st.integers(0, 5)),
        weighed=data.draw(st.booleans()),
        biases=data.draw(st.integers(0, 3)),
        by_choice=data.draw(st.booleans()),
        repeats=data.draw(st.booleans()),
    )
    options = {"order": data.draw(st.sampled_from(ORDERS)), "policy": data.draw(st.sampled_from(POLICIES))}
    group, seed = group_of(config, seed=data.draw(st.integers(0, 1 << 20)), **options), data.draw(st.integers(0, 99))
    for i in range(data.draw(st.integers(1, 3))):
        lengths = tuple(data.draw(st.integers(0, 6)) for _ in range(n_ranks))
        Round(config, lengths, seed + i).check(group)


@pytest.mark.nojit
def test_a_round_without_the_jit() -> None:
    """The same kernels in plain Python."""
    config = replace(SMALL, n_ranks=2, cores=2, hidden=32, top_k=2, weighed=True, biases=2, by_choice=True)
    Round(config, (3, 2), 2).check(group_of(config, order="relaxed", policy="random"))


@pytest.mark.parametrize("weighed", [False, True])
def test_rounds_under_watch(tmp_path: Path, weighed: bool) -> None:
    """Poisoned, judged alone and together with the calls before: nothing goes wrong, with what may be added or not."""
    config = replace(SMALL, n_ranks=2, cores=2, weighed=weighed, biases=2 * weighed, by_choice=weighed)
    group = group_of(config, order="relaxed", policy=Watched(schedules=3, together=2, witnesses=tmp_path))
    for seed in range(2):
        Round(config, (3, 5), seed).check(group)


@pytest.mark.parametrize("order", ["unordered", "fifo"])
def test_every_schedule_is_right(order: str) -> None:
    """Two rounds of two ranks, rings of one place.  Of relaxed order are the proofs."""
    assert check(NormalCase(tokens=2, places=1), order=order).verdict == VERIFIED


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 5), st.integers(0, 999))
def test_the_layout_counts_what_is_sent(n_ranks: int, local: int, n: int, seed: int) -> None:
    """Tokens for each rank and expert, once however often they are chosen, against loops."""
    topk = np.random.default_rng(seed).integers(-1, n_ranks * local, (n, 3))
    per_rank, per_expert, in_rank = layout_of(topk, n_ranks, local)
    for rank in range(n_ranks):
        goes = [any(slot >= 0 and slot // local == rank for slot in row) for row in topk]
        assert in_rank[:, rank].tolist() == goes
        assert per_rank[rank] == sum(goes)
    assert per_expert.tolist() == [sum(slot in row for row in topk.tolist()) for slot in range(n_ranks * local)]


@refuses(
    partial(NormalConfig, n_ranks=2),
    ({"quantized": True}, "quantized=True: normal mode sends rows as they are"),
    ({"cores": 3}, "cores=3: must be even"),
    ({"chunk": 5}, "chunk=5: must be at most places=4"),
    ({"n_ranks": 33}, "n_ranks=33: must be"),
)
def test_what_this_mode_has_not_is_refused() -> None:
    """By the name of the option, before there is a group."""


def test_calls_of_other_modes_are_refused() -> None:
    """Calls that take weights at the wrong end, or come too early: nothing moves."""
    group, (tokens, topk, weights) = group_of(SMALL), Round(SMALL, (1, 2, 0), 1).given()
    refused(group.pod, partial(group.dispatch, tokens, topk), "call dispatch_rows")
    refused(group.pod, group.combine_rows, "combine_rows: nothing was dispatched")
    group.dispatch_rows(tokens, topk, weights)
    refused(group.pod, partial(group.combine, weights), "call combine_rows")
    refused(group.pod, group.run_dummy, "run_dummy: rows of normal mode")
    refused(group.pod, partial(group.combine_rows, weights), "weighed=False: must be True for weights")
    group = group_of(replace(SMALL, weighed=True))
    rows = [each.weights.copy() for each in group.dispatch_rows(tokens, topk, weights)]
    many = r"weights of rank 0=.\[9, 3\] float32.: must be \[\d, 3\]"
    refused(group.pod, partial(group.combine_rows, [np.zeros((9, 3), np.float32), *rows[1:]]), many)
    rows[1] = rows[1].astype(float)
    refused(group.pod, partial(group.combine_rows, rows), r"weights of rank 1=.\[\d, 3\] float64")
    bias = [np.zeros((1, n, 64), tokens[0].dtype) for n in (1, 2, 0)]
    refused(group.pod, partial(group.combine_rows, None, bias), r"bias of rank 0=.\[1, 1, 64\] .*: must be up to 0 of")
    group = group_of(replace(SMALL, biases=1))
    group.dispatch_rows(tokens, topk, weights)
    for wrong in (np.repeat(bias[1], 2, 0), bias[0], bias[1][..., :32], bias[1].astype(float)):
        what = r"bias of rank 1=.*: must be up to 1 of \[2, 64\] bfloat16"
        refused(group.pod, partial(group.combine_rows, None, [bias[0], wrong, bias[2]]), what)
    with pytest.raises(ConfigError, match="topk: must be"):
        layout_of(np.full((1, 1), 6), 3, 2)


NEEDED = sorted(
    {site.sync for phase in (NormalMode.dispatches, NormalMode.combines) for site in phase.kernel.sites if site.sync}
)


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDED)
def test_each_synchronization_is_found_in_equal_calls(name: str, tmp_path: Path) -> None:
    """Whichever is switched off, three equal rounds raise, or give wrong bits, for one of 20 seeds; what orders a call
    and the next when they are judged together."""
    config = replace(SMALL, n_ranks=2, cores=2, places=1, top_k=2, tokens_max=6, weighed=True, biases=2)
    for seed in range(20):
        watched = Watched(seed=seed, schedules=6, witnesses=tmp_path, together=1 + (name == "ring empty"))
        group = group_of(config, order="relaxed", policy=watched, without=[name])
        try:
            for _ in range(3):
                Round(config, (6, 6), 1).check(group)
        except (ViolationError, AssertionError):
            return
    pytest.fail(f"{name}: not found")
