"""What the tests of dispatch and combine share, by pull, fused and DeepEP's: pods that just fit, drawn batches, and
comparison with the oracle."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from xccl_emu import oracle
from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.experts.counts import INDEX_BYTES
from xccl_emu.kernels.experts.messages import ROUTE_BYTES
from xccl_emu.kernels.group import align
from xccl_emu.machine.pod import ORDERS, POLICIES, Pod
from xccl_emu.machine.spec import MIB, PodSpec, small_pod
from xccl_emu.protocols.deepep.session import DeepEp, DeepEpConfig, DeepEpLayout, deepep_buffer_bytes
from xccl_emu.protocols.experts.config import INT8, EpConfig, buffer_bytes
from xccl_emu.protocols.experts.layout import EpLayout, Received
from xccl_emu.protocols.fused.session import FusedConfig, FusedExpertParallel, FusedLayout, fused_buffer_bytes
from xccl_emu.protocols.pull.session import ExpertParallel

POISON = 0xA5
WAYS = [(order, policy) for order in ORDERS for policy in POLICIES]


@dataclass(frozen=True, eq=False)
class Kind:
    """A way in which groups move their data."""

    config: Any
    group: Any
    lay_out: Any
    buffer_bytes: Any
    switches: tuple[dict[str, Any], ...]
    """Each choice that it has on its own."""


PULL = Kind(EpConfig, ExpertParallel, EpLayout, buffer_bytes, ({"path": "dma"}, {"quantized": False}))
FUSED = Kind(
    FusedConfig, FusedExpertParallel, FusedLayout, fused_buffer_bytes,
    ({"path": "sdma"}, {"early_quantization": False}, {"preallocated": False}, {"pipelined": False}),
)  # fmt: skip
DEEPEP = Kind(DeepEpConfig, DeepEp, DeepEpLayout, deepep_buffer_bytes, ({"quantized": False},))
KINDS = {"pull": PULL, "fused": FUSED, "deepep": DEEPEP}
EITHER = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
EITHER_WAY = pytest.mark.parametrize(
    ("kind", "switches"), [pytest.param(k, s, id=f"{name}-{s}") for name, k in KINDS.items() for s in ({}, *k.switches)]
)
"""Each kind as it is, and with each of its choices."""


def kind_of(config: EpConfig) -> Kind:
    """By what the group of a configuration moves its data."""
    return next(kind for kind in KINDS.values() if type(config) is kind.config)


SPECIAL_BITS = {
    "bf16": {"zero": 0, "minus zero": 0x8000, "subnormal": 0x0003, "smallest normal": 0x0080, "huge": 0x7F7F},
    "fp16": {"zero": 0, "minus zero": 0x8000, "subnormal": 0x0003, "smallest normal": 0x0400, "huge": 0x7BFF},
}
"""Bits of values at the edges of each type."""


@dataclass(frozen=True, eq=False)
class Batch:
    """One round's input: for each rank tokens [T, hidden], choices [T, top_k] and weights [T, top_k]."""

    tokens: list[Any]
    topk: list[Any]
    weights: list[Any]


@dataclass(frozen=True)
class Case:
    """A configuration, how it is run, and what its batches are drawn from."""

    config: Any
    order: str
    policy: str
    seed: int
    lengths: tuple[tuple[int, ...], ...]
    """[round][rank] tokens."""
    masked: float = 0.2
    """Share of choices that are masked."""
    routing: str = "uniform"
    """``"uniform"``, ``"one expert"`` (first choice of all tokens) or ``"own rank"``."""
    payload: str = "normal"
    """``"normal"`` or ``"special"``: rows at the edges of the type among them."""
    spare_ub: int = 0
    """Bytes of the data buffer beyond what the group needs."""
    flight_granules: int = 64
    more_app: int = 0
    """App data that is left, for buffers of the test's own."""

    def batches(self) -> list[Batch]:
        """The rounds' inputs, the same each time."""
        rng = np.random.default_rng(self.seed)
        return [self._batch(rng, lengths) for lengths in self.lengths]

    def _batch(self, rng: np.random.Generator, lengths: Sequence[int]) -> Batch:
        k = self.config.top_k
        favourite = int(rng.integers(self.config.n_slots))
        tokens = [self._states(rng, n) for n in lengths]
        topk = [self._choices(rng, rank, n, favourite) for rank, n in enumerate(lengths)]
        return Batch(tokens, topk, [rng.standard_normal((n, k)).astype(np.float32) for n in lengths])

    def _states(self, rng: np.random.Generator, n: int) -> Any:
        states = rng.standard_normal((n, self.config.hidden)).astype(self.config.numpy_dtype())
        if self.payload == "special":
            edges = np.array(list(SPECIAL_BITS[self.config.dtype].values()), np.uint16)
            for row in states.view(np.uint16):
                kind = rng.integers(4)
                if kind == 0:
                    row[:] = rng.choice(edges)
                elif kind == 1:
                    row[:] = rng.choice(edges, len(row)) | rng.integers(2, size=len(row), dtype=np.uint16) << 15
                elif kind == 2:
                    row[rng.integers(len(row))] = rng.choice(edges)
        return states

    def _choices(self, rng: np.random.Generator, rank: int, n: int, favourite: int) -> Any:
        c = self.config
        choices = np.full((n, c.top_k), -1, np.int32)
        for row in choices:
            slots = rng.permutation(c.n_slots)[: c.top_k]
            if self.routing == "one expert":
                slots = np.array([favourite, *(s for s in slots if s != favourite)])[: c.top_k]
            if self.routing == "own rank":
                slots = rank * c.local_experts + rng.permutation(c.local_experts)[: c.top_k]
            if c.repeats:
                slots = rng.choice(slots, c.top_k)
            row[: len(slots)] = slots
        choices[rng.random(choices.shape) < self.masked] = -1
        return choices

    def group(self, **options: Any) -> Any:
        """A group on a new, poisoned pod."""
        return self.group_in(self.order, self.policy, self.seed, **options)

    def group_in(self, order: str, policy: str, seed: int, made: Any = None, **options: Any) -> Any:
        """The same under another order, policy or seed of the policy, or made by something else."""
        pod = Pod(self.spec(), order=order, policy=policy, seed=seed, **options)
        poison(pod)
        return (made or kind_of(self.config).group)(pod, self.config, rounds=max(1, len(self.lengths)))

    def spec(self) -> PodSpec:
        """A pod on which the group and its rounds in one run fit; areas exactly, but for app data."""
        c, kind, rounds = self.config, kind_of(self.config), max(1, len(self.lengths))
        tokens = c.tokens_max * (2 * c.row_bytes + 2 * INDEX_BYTES + c.position_bytes)
        rows = c.rows_max * (c.payload_bytes + ROUTE_BYTES + c.row_bytes)
        tables = c.cores * 5 * rounds * 512 + 32
        app = rounds * (tokens + rows + align(4 * c.n_slots) + 128) + tables + self.more_app
        dies, ub = c.first_die + c.n_ranks, align(kind.buffer_bytes(c) + self.spare_ub)
        roomy = Pod(small_pod(dies, c.cores, app_bytes=MIB, meta_bytes=MIB, managed_bytes=64 * MIB, ub_bytes=ub))
        layout = kind.lay_out(c, roomy)
        return small_pod(
            dies, c.cores, app_bytes=app, meta_bytes=layout.meta_end, managed_bytes=layout.managed_end, ub_bytes=ub,
            flight_granules=self.flight_granules,
        )  # fmt: skip


def poison(pod: Pod) -> None:
    """Fill the app areas, the managed areas and the data buffers: what is used without being written shows."""
    dies = spans_of_dies(pod)
    dies[:, : pod.spec.meta_start] = POISON
    dies[:, pod.spec.managed_start :] = POISON
    pod.memory[pod.spec.n_dies * pod.spec.die_bytes :] = POISON


def spans_of_dies(pod: Pod) -> Any:
    """[dies, die_bytes] view of the memory."""
    return pod.memory[: pod.spec.n_dies * pod.spec.die_bytes].reshape(pod.spec.n_dies, -1)


def columns(batches: Sequence[Batch]) -> tuple[list[Any], ...]:
    """Tokens, choices and weights of rounds."""
    return tuple([getattr(batch, name) for batch in batches] for name in ("tokens", "topk", "weights"))


def run_round(group: Any, batch: Batch) -> tuple[list[Received], list[Any]]:
    """Dispatch, expert, combine in three runs."""
    received = group.dispatch(batch.tokens, batch.topk)
    group.run_dummy()
    return received, group.combine(batch.weights)


def digests_of(case: Case, ways: Sequence[tuple[str, str]]) -> set[str]:
    """Digests of all memory after the case's rounds, for each (order, policy) of ``ways`` and two seeds."""
    digests = set()
    for order, policy in ways:
        for seed in (case.seed, case.seed + 1):
            group = case.group_in(order, policy, seed)
            for batch in case.batches():
                run_round(group, batch)
            digests.add(group.pod.digest())
    return digests


def refused(pod: Pod, call: Callable[[], Any], message: str) -> None:
    """The call raises ConfigError with this message, leaves nothing launched and changes no byte of the dies."""
    before = pod.digest(), pod.mark_app(), pod.active_cores()
    with pytest.raises(ConfigError, match=message):
        call()
    assert (pod.digest(), pod.mark_app(), pod.active_cores()) == before


# ---- comparison


def oracle_of(c: EpConfig, batch: Batch) -> oracle.Dispatched:
    """What the oracle makes of a batch."""
    return oracle.dispatch(batch.tokens, batch.topk, c.n_ranks, c.local_experts, c.quantized, c.quantizer)


def rule_back(c: EpConfig) -> str | None:
    """By what rule expert outputs are quantized; None if they are not."""
    return c.quantizer if c.quantized_back else None


def assert_same_bits(name: str, got: Any, want: Any) -> None:
    """Compare shapes and bits, so that -0 is not 0 and a NaN equals itself."""
    assert got.shape == want.shape, name
    got, want = np.ascontiguousarray(got), np.ascontiguousarray(want)
    assert got.itemsize == want.itemsize, name
    bits = np.dtype(f"u{got.itemsize}")
    np.testing.assert_array_equal(got.view(bits), want.view(bits), err_msg=name)


def check_rows(what: str, got: Any, want: oracle.ReceivedRows, first_slot: int) -> None:
    """Compare all that dispatch brought to a die, whose experts begin with this slot."""
    assert_same_bits(f"{what}: x", got.x, want.x)
    assert_same_bits(f"{what}: scales", got.scales, want.scales)
    for name in ("source", "token", "choice", "counts"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name), err_msg=f"{what}: {name}")
    np.testing.assert_array_equal(got.slot, want.expert + first_slot, err_msg=f"{what}: slot")


def check_received(c: EpConfig, batch: Batch, rank: int, got: Received) -> None:
    """Compare all that dispatch brought to a rank."""
    want = oracle_of(c, batch).received_by(rank)
    check_rows(f"rank {rank}", got, want, rank * c.local_experts)
    np.testing.assert_array_equal(got.expert_counts, want.counts.sum(axis=1))


def check_outputs(c: EpConfig, batch: Batch, outputs: Sequence[Any]) -> None:
    """Compare what combine gave each rank."""
    dispatched = oracle_of(c, batch)
    for rank, got in enumerate(outputs):
        want = dispatched.combined_for(rank, batch.weights[rank], shared=c.shared, quantizer=rule_back(c))
        assert_same_bits(f"output of rank {rank}", got, want)


def check_round(group: Any, batch: Batch) -> None:
    """Run a round and compare everything that it gives."""
    received, outputs = run_round(group, batch)
    for rank, got in enumerate(received):
        check_received(group.config, batch, rank, got)
    check_outputs(group.config, batch, outputs)


def check_rounds(group: Any, batches: Sequence[Batch]) -> None:
    """Compare what each of several rounds left."""
    config = group.config
    for i, batch in enumerate(batches):
        for rank in range(config.n_ranks):
            check_received(config, batch, rank, group.received(rank, i))
        check_outputs(config, batch, [group.output(rank, i) for rank in range(config.n_ranks)])


def follow(case: Case) -> None:
    """Run all rounds of a case on one group; compare each with the oracle, and what none may touch with the poison."""
    group = case.group()
    touched = Touched(group)
    for batch in case.batches():
        touched.add(batch)
        check_round(group, batch)
    touched.check()


def follow_in_one_run(case: Case) -> None:
    """The same rounds in one run."""
    batches, group = case.batches(), case.group()
    group.run_rounds(*columns(batches))
    check_rounds(group, batches)


# ---- what may change


class Touched:
    """The bytes of a pod that rounds may write, those of what is sent and of buffers down to the row."""

    def __init__(self, group: Any) -> None:
        self.group, self.pod, self.config = group, group.pod, group.config
        self.before = spans_of_dies(self.pod).copy()
        self.may = np.zeros_like(self.before, dtype=bool)

    def add(self, batch: Batch) -> None:
        """Allow what a round with this batch writes."""
        c, layout, spec = self.config, self.group.layout, self.pod.spec
        messages = np.stack([np.bincount(t[t >= 0] // c.local_experts, minlength=c.n_ranks) for t in batch.topk])
        for rank in range(c.n_ranks):
            die = self.may[c.first_die + rank]
            self._app(rank, len(batch.tokens[rank]), int(messages[:, rank].sum()))
            die[spec.meta_start + layout.meta_start : spec.meta_start + layout.meta_end] = True
            managed = die[spec.managed_start :]
            sent = {PULL: self._pull, FUSED: self._fused, DEEPEP: self._deepep}[kind_of(c)]
            for start, nbytes in sent(rank, messages, batch.topk):
                managed[start : start + nbytes] = True

    def _pull(self, rank: int, messages: Any, _: Any) -> Iterator[tuple[int, int]]:
        """What a rank lays out for each peer: messages, and rows on their way back."""
        c, layout = self.config, self.group.layout
        yield layout.staging.offset, layout.managed_end - layout.staging.offset
        blocks, back = layout.dispatch_blocks, layout.combine_blocks
        for other in range(c.n_ranks):
            yield blocks.offset + other * blocks.step, messages[rank, other] * c.message_bytes
            yield back.offset + other * back.step, messages[other, rank] * c.returned_bytes

    def _fused(self, rank: int, messages: Any, topk: Any) -> Iterator[tuple[int, int]]:
        """What a rank is sent: messages, packed or by source, and contributions by choice."""
        c, layout = self.config, self.group.layout
        sent = max(layout.dispatch.end, layout.combine.end)
        yield sent, layout.managed_end - sent
        regions = messages[:, rank] if c.preallocated else [int(messages[:, rank].sum())]
        for source, n in enumerate(regions):
            yield layout.dispatch.offset + source * c.max_tokens * c.message_bytes, n * c.message_bytes
        for choice in np.flatnonzero(topk[rank] >= 0):
            yield layout.combine.offset + choice * c.row_bytes, c.row_bytes

    def _deepep(self, rank: int, _: Any, topk: Any) -> Iterator[tuple[int, int]]:
        """What a rank is sent: in the second buffer set messages by source and expert, in the first contributions."""
        c, first = self.config, self.group.layout.data.offset
        for source, choices in enumerate(topk):
            for e in range(c.local_experts):
                n = int((choices == rank * c.local_experts + e).sum())
                block = (source * c.local_experts + e) * c.slots * c.message_bytes
                yield first + c.set_bytes + block, n * c.message_bytes
        for choice in np.flatnonzero(topk[rank] >= 0):
            yield first + choice * c.row_bytes, c.row_bytes

    def _app(self, rank: int, tokens: int, rows: int) -> None:
        c, b = self.config, self.group._of(rank)
        states, table = tokens * c.row_bytes, tokens * INDEX_BYTES
        sizes = {
            "batches": c.batch_bytes, "x": states, "topk": table, "pos": tokens * c.position_bytes, "weights": table,
            "recv_x": rows * c.payload_bytes, "route": rows * ROUTE_BYTES, "counts": 4 * c.n_slots,
            "y": rows * c.row_bytes, "out": states,
        }  # fmt: skip
        for name, size in sizes.items():
            start = b[name].address
            self.may.reshape(-1)[start : start + size] = True

    def check(self) -> None:
        """Everything else is as it was."""
        changed = np.argwhere((spans_of_dies(self.pod) != self.before) & ~self.may)
        assert len(changed) == 0, f"die and offset of bytes that changed: {changed[:5].tolist()}"


# ---- strategies


@st.composite
def configs(draw: st.DrawFn, kind: Kind, ranks: st.SearchStrategy[int]) -> EpConfig:
    """Small groups, with any of their switches."""
    n_ranks, local, repeats = draw(ranks), draw(st.integers(1, 4)), draw(st.sampled_from([False, False, True]))
    rule = draw(st.sampled_from(kind.config.RULES))
    own = {PULL: {"quantized_back"}, FUSED: {"early_quantization", "preallocated", "pipelined"}, DEEPEP: set()}
    return kind.config(
        **{name: draw(st.booleans()) for name in sorted({"quantized", "shared", *own[kind]})},
        n_ranks=n_ranks,
        local_experts=local,
        hidden=(32 if rule in INT8 else 128) * draw(st.integers(1, 8)),
        top_k=draw(st.integers(1, 16 if repeats else min(16, n_ranks * local))),
        tokens_max=draw(st.integers(1, 6)),
        dtype=draw(st.sampled_from(["bf16", "fp16"])),
        quantizer=rule,
        cores=draw(st.integers(1, 4)),
        path=draw(st.sampled_from(kind.config.PATHS)),
        first_die=draw(st.integers(0, 1)),
        repeats=repeats,
        counting=draw(st.sampled_from(kind.config.COUNTINGS)),
    )


@st.composite
def cases(draw: st.DrawFn, kind: Kind, ranks: st.SearchStrategy[int], rounds: st.SearchStrategy[int]) -> Case:
    """A group, how it runs, and batches of uneven sizes for its rounds; ranks without tokens among them."""
    config = draw(configs(kind, ranks))
    length = st.one_of(st.just(0), st.integers(0, config.tokens_max))
    lengths = st.tuples(*[length] * config.n_ranks)
    return Case(
        config=config,
        order=draw(st.sampled_from(ORDERS)),
        policy=draw(st.sampled_from(POLICIES)),
        seed=draw(st.integers(0, 1 << 40)),
        lengths=tuple(draw(lengths) for _ in range(draw(rounds))),
        masked=draw(st.sampled_from([0.0, 0.2, 0.8, 1.0])),
        routing=draw(st.sampled_from(["uniform", "one expert", "own rank"])),
        payload="normal" if config.quantized_back else draw(st.sampled_from(["normal", "special"])),
        spare_ub=32 * draw(st.integers(0, 64)),
        flight_granules=draw(st.sampled_from([3, 16, 64])),
    )
