"""The reference dispatch and combine, against hand-computed cases and a list-based model."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli_support import python
from tests.refused import itself, refuses
from xccl_emu.oracle import (
    BF16,
    FP16,
    Dispatched,
    dispatch,
    dummy_expert,
    expert_factors,
    quantize_int8,
)
from xccl_emu.oracle.numerics import QUANTIZERS


@dataclass
class Case:
    """A dispatch of random tokens with random choices."""

    tokens: list[np.ndarray]
    topk: list[np.ndarray]
    n_ranks: int
    local_experts: int
    quantized: bool

    def dispatched(self) -> Dispatched:
        return dispatch(self.tokens, self.topk, self.n_ranks, self.local_experts, self.quantized)

    def choices(self) -> list[tuple[int, int, int, int]]:
        """(expert, source, token, k) of every choice that is not masked."""
        return [
            (int(expert), source, token, k)
            for source, ids in enumerate(self.topk)
            for (token, k), expert in np.ndenumerate(ids)
            if expert >= 0
        ]

    def expected_at(self, rank: int) -> list[tuple[int, int, int, int]]:
        """The choices that arrive at a rank, in order, by sorting plain tuples."""
        return sorted(choice for choice in self.choices() if choice[0] // self.local_experts == rank)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n_ranks, n_sources, local_experts, k = (draw(st.integers(1, 4)) for _ in range(4))
    hidden = draw(st.integers(1, 5))
    dtype = draw(st.sampled_from([BF16, FP16]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = [draw(st.integers(0, 5)) for _ in range(n_sources)]
    tokens = [rng.standard_normal((size, hidden)).astype(dtype) for size in sizes]
    topk = [rng.integers(-1, n_ranks * local_experts, (size, k)).astype(np.int32) for size in sizes]
    return Case(tokens, topk, n_ranks, local_experts, draw(st.booleans()))


def combine_one(outputs: list[float], weights: list[float], shared: bool = False, dtype: np.dtype[Any] = BF16) -> Any:
    """Combine one token of hidden size 1 whose k-th expert output is `outputs[k]`."""
    k = len(outputs)
    d = dispatch([np.ones((1, 1), dtype)], [np.arange(k)[None, :]], 1, k, False)
    values = np.array(outputs, np.float32).astype(dtype)[:, None]
    return d.combined_for(0, np.array([weights], np.float32), lambda _ranks, rows: values[rows], shared)[0, 0]


def test_dispatch_by_hand() -> None:
    """Two ranks of two experts: rows come by local expert, then source, then token, and are counted so."""
    tokens = [np.array([[1.0], [2.0]]).astype(BF16), np.array([[3.0]]).astype(BF16)]
    topk = [np.array([[3, 0], [2, -1]]), np.array([[2, 3]])]
    d = dispatch(tokens, topk, n_ranks=2, local_experts=2, quantized=False)
    got = d.received_by(1)
    assert got.x.astype(float).ravel().tolist() == [2.0, 3.0, 1.0, 3.0]
    assert got.expert.tolist() == [0, 0, 1, 1]
    assert got.source.tolist() == [0, 1, 0, 1]
    assert got.token.tolist() == [1, 0, 0, 0]
    assert got.choice.tolist() == [0, 0, 0, 1]
    assert got.counts.tolist() == [[1, 1], [1, 1]]
    assert got.counts.dtype == np.int32
    assert got.scales.tolist() == [0.0] * 4
    ranks, rows = d.rows_of(0)
    assert ranks.tolist() == [[1, 0], [1, -1]]
    assert rows.tolist() == [[2, 0], [0, -1]]


@given(case=cases())
def test_rows_arrive_in_order_and_nothing_else_does(case: Case) -> None:
    """What each rank receives equals a sort of plain tuples, with counts by local expert and source; over all ranks
    every choice arrives exactly once, also of a token that chooses an expert twice."""
    d = case.dispatched()
    arrived: Counter[tuple[int, int, int, int]] = Counter()
    for rank in range(case.n_ranks):
        got = d.received_by(rank)
        counts = np.zeros((case.local_experts, len(case.tokens)), np.int32)
        for expert, source, _, _ in case.expected_at(rank):
            counts[expert % case.local_experts, source] += 1
        assert np.array_equal(got.counts, counts)
        slots = got.expert + rank * case.local_experts
        described = list(zip(*(a.tolist() for a in (slots, got.source, got.token, got.choice)), strict=True))
        assert described == case.expected_at(rank)
        arrived.update(described)
    assert arrived == Counter(case.choices())


@given(case=cases())
def test_payloads_and_scales_are_the_senders(case: Case) -> None:
    """Each row holds its token's bytes: as quantized alone, or as given."""
    d = case.dispatched()
    for rank in range(case.n_ranks):
        got = d.received_by(rank)
        for row, (_, source, token, _) in enumerate(case.expected_at(rank)):
            sent = case.tokens[source][token : token + 1]
            if case.quantized:
                q, scales = quantize_int8(sent)
                assert np.array_equal(got.x[row], q[0])
                assert got.scales[row] == scales[0]
            else:
                assert got.x[row].tobytes() == sent.tobytes()
                assert got.scales[row] == 0


@given(case=cases())
def test_each_choice_finds_its_row(case: Case) -> None:
    """Going from a token to expert rank and row leads back to that token and choice."""
    d = case.dispatched()
    received = [d.received_by(rank) for rank in range(case.n_ranks)]
    for source, ids in enumerate(case.topk):
        ranks, rows = d.rows_of(source)
        assert np.array_equal(ranks < 0, ids < 0)
        assert np.array_equal(rows < 0, ids < 0)
        for (token, k), rank in np.ndenumerate(ranks):
            if rank >= 0:
                there, row = received[rank], rows[token, k]
                assert (there.source[row], there.token[row], there.choice[row]) == (source, token, k)


@given(case=cases(), seed=st.integers(0, 99), shared=st.booleans())
def test_combine_agrees_with_scalars(case: Case, seed: int, shared: bool) -> None:
    """Combined rows equal FP32 scalar arithmetic, choice by choice, over the dummy experts' outputs."""
    d = case.dispatched()
    outputs = {}
    for rank in range(case.n_ranks):
        got = d.received_by(rank)
        y = dummy_expert(got.x, got.scales, got.expert + rank * case.local_experts, d.dtype)
        outputs.update({choice[1:]: y[row] for row, choice in enumerate(case.expected_at(rank))})
    rng = np.random.default_rng(seed)
    for source, ids in enumerate(case.topk):
        weights = rng.random(ids.shape, dtype=np.float32)
        combined = d.combined_for(source, weights, shared=shared)
        for (token, column), value in np.ndenumerate(combined):
            acc = np.float32(0)
            for k in range(d.n_choices):
                if ids[token, k] >= 0:
                    y = np.float32(outputs[source, token, k][column])
                    is_shared = shared and k == d.n_choices - 1
                    acc = acc + (y if is_shared else weights[token, k] * y)
            assert value.tobytes() == np.array(acc).astype(d.dtype).tobytes()


def test_the_dummy_expert_by_hand() -> None:
    """Neighbouring experts scale by different exact factors, and INT8 rows are restored first."""
    assert expert_factors(np.arange(8)).tolist() == [1.0, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.0]
    x = np.array([[4.0], [4.0]]).astype(FP16)
    plain = dummy_expert(x, np.zeros(2, np.float32), np.array([4, 9]), FP16)
    assert plain.tolist() == [[6.0], [5.0]]
    q = np.array([[8]], np.int8)
    restored = dummy_expert(q, np.array([0.5], np.float32), np.array([1]), BF16)
    assert restored.dtype == BF16
    assert float(restored[0, 0]) == 4.5


def test_the_dummy_expert_rounds_after_each_product() -> None:
    """Rows for which a single rounding of q * scale * factor gives another FP16 follow the scalar steps instead."""
    n = 1 << 18
    rng = np.random.default_rng(0)
    q = rng.integers(1, 128, (n, 1)).astype(np.int8)
    scales = rng.random(n, dtype=np.float32)
    got = dummy_expert(q, scales, np.full(n, 5), FP16)[:, 0]
    once = (q[:, 0].astype(np.float64) * scales.astype(np.float64) * 1.625).astype(np.float16)
    differing = np.flatnonzero(got != once)
    assert differing.size
    for row in differing:
        assert got[row] == np.float16(np.float32(np.float32(q[row, 0]) * scales[row]) * np.float32(1.625))


def test_combine_adds_in_key_order() -> None:
    """A small number is lost beside a large one before it, and kept when it comes first with another."""
    big = 2.0**24
    assert float(combine_one([big, 1, 1, -big], [1, 1, 1, 1])) == 0
    assert float(combine_one([1, 1, big, -big], [1, 1, 1, 1])) == 2


def test_combine_does_not_fuse_multiply_and_add() -> None:
    """3 * FP32(1/3) rounds to 1 before it is added to -1; fused, 2.98e-8 would be left."""
    third = np.float32(1) / np.float32(3)
    assert float(third) * 3 - 1 != 0
    assert float(combine_one([-1, 3], [1, float(third)])) == 0


def test_combine_rounds_once_at_the_end() -> None:
    """Two halves of a BF16 step add up, though each alone would be rounded away."""
    assert float(combine_one([1, 2.0**-8, 2.0**-8], [1, 1, 1])) == 1 + 2.0**-7


def test_the_shared_expert_comes_last_and_unweighted() -> None:
    """Its weight is not used; without `shared` the same column is weighted."""
    assert float(combine_one([2, 3], [0.5, 7], shared=True)) == 4
    assert float(combine_one([2, 3], [0.5, 7], shared=False)) == 22


@pytest.mark.parametrize("quantizer", ["xccl", "cann"])
@pytest.mark.parametrize("shared", [False, True])
def test_outputs_in_int8_are_widened_before_they_are_weighed(quantizer: str, shared: bool) -> None:
    """Element by element: value times scale, rounded; times the weight, rounded, but for the shared one; the sum."""
    rng = np.random.default_rng(7)
    outputs = rng.standard_normal((2, 8)).astype(BF16)
    d = dispatch([np.ones((1, 8), BF16)], [np.array([[0, 1]])], 1, 2, False)
    weights = np.array([[0.3, 0.7]], np.float32)
    combined = d.combined_for(0, weights, lambda _, rows: outputs[rows], shared, quantizer)
    for column in range(8):
        acc = np.float32(0)
        for k in range(2):
            q, scale = QUANTIZERS[quantizer](outputs[k : k + 1])
            value = np.float32(q[0, column]) * scale[0]
            acc += value if shared and k == 1 else weights[0, k] * value
        assert combined[0, column] == acc.astype(BF16)


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_a_token_without_choices_gives_zeros(dtype: np.dtype[Any]) -> None:
    """All choices masked: every byte of the combined row is zero."""
    d = dispatch([np.ones((1, 3), dtype)], [np.array([[-1, -1]])], 1, 1, True)
    assert d.combined_for(0, np.ones((1, 2), np.float32)).tobytes() == bytes(6)
    assert d.received_by(0).x.shape == (0, 3)


def test_an_overflow_is_an_infinity() -> None:
    """FP16 sums above 65504 become infinite, without a warning."""
    assert np.isposinf(combine_one([65504, 65504], [1, 1], dtype=FP16))


def test_one_array_and_a_list_are_the_same() -> None:
    """Tokens and choices may be given as one array over all ranks; it is then not copied."""
    rng = np.random.default_rng(0)
    tokens, topk = rng.standard_normal((3, 4, 5)).astype(BF16), rng.integers(-1, 6, (3, 4, 2))
    one, many = dispatch(tokens, topk, 3, 2, False), dispatch(list(tokens), list(topk), 3, 2, False)
    for rank in range(3):
        assert one.received_by(rank).x.tobytes() == many.received_by(rank).x.tobytes()
    assert np.shares_memory(one._rows, tokens)


ONE = [np.ones((2, 3), BF16)]
IDS = [np.zeros((2, 2), np.int32)]


@refuses(
    lambda tokens=ONE, topk=IDS, n_ranks=3, local_experts=2, quantizer="xccl": dispatch(
        tokens, topk, n_ranks, local_experts, True, quantizer
    ),
    (([], []), "tokens has 0 ranks"),
    ((ONE, [*IDS, *IDS]), "tokens has 1 ranks and topk 2"),
    (([np.ones((2, 3), np.float32)],), "bfloat16 or float16"),
    (([ONE[0], ONE[0].astype(FP16)], IDS * 2), r"tokens\[1\] is float16"),
    (([ONE[0], np.ones((2, 4), BF16)], IDS * 2), r"tokens\[1\] is bfloat16 \(2, 4\)"),
    (([np.ones(3, BF16)],), r"tokens\[0\] is bfloat16 \(3,\)"),
    (([ONE[0], np.full((2, 3), np.nan, BF16)], IDS * 2), r"tokens\[1\]: x\[0, 0\] is nan"),
    ({"topk": [np.zeros((1, 2), np.int32)]}, r"topk\[0\] is int32 \(1, 2\).*\(2, 2\)"),
    ({"topk": [np.zeros((2, 2))]}, r"topk\[0\] is float64"),
    ({"topk": [np.zeros((2, 0), np.int32)]}, r"topk\[0\] is int32 \(2, 0\)"),
    ({"topk": [np.array([[0, 1], [6, 0]])]}, r"topk\[0\]\[1, 0\] is 6; it must be -1 or in 0..5"),
    ({"topk": [np.array([[0, -2], [0, 0]])]}, r"topk\[0\]\[0, 1\] is -2"),
    ({"n_ranks": 0}, "must be at least 1"),
    ({"local_experts": 0}, "must be at least 1"),
    ({"quantizer": "fp4"}, "quantizer is 'fp4'; it must be one of xccl, cann, fp8, fp8-ue8m0"),
)
def test_dispatch_refuses_what_does_not_fit() -> None:
    """Wrong numbers of ranks, shapes, types, ids and values, no experts and unknown rules are refused by name."""


RIGHT = dispatch(ONE, IDS, 3, 2, True)


@refuses(
    itself,
    (lambda: RIGHT.received_by(3), r"rank is 3; it must be in 0\.\.2"),
    (lambda: RIGHT.rows_of(-1), r"source is -1; it must be in 0\.\.0"),
    (lambda: RIGHT.combined_for(0, np.ones((2, 2))), "weights of source rank 0 are float64"),
    (
        lambda: RIGHT.combined_for(0, np.ones((2, 2), np.float32), lambda _, rows: np.ones((len(rows), 3), np.float16)),
        "fetch gave float16",
    ),
)
def test_ranks_weights_and_outputs_are_checked() -> None:
    """Unknown ranks, weights of another shape or type, and fetched rows of another type are refused."""


def test_the_references_need_no_numba() -> None:
    """Importing oracle and routing leaves Numba and every layer of the emulator unloaded."""
    code = (
        "import sys, xccl_emu.oracle, xccl_emu.routing\n"
        "layers = ('numba', *('xccl_emu.' + x for x in ('lang', 'machine', 'kernels', 'protocols', 'cli')))\n"
        "print([m for m in layers if m in sys.modules])"
    )
    assert python(code, check=True).stdout.strip() == "[]"
