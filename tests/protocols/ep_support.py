"""What the tests of dispatch and combine share: pods that just fit, drawn batches, and comparison with the oracle."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from xccl_emu import oracle
from xccl_emu.kernels.counts import INDEX_BYTES
from xccl_emu.kernels.dispatch import ROUTE_BYTES
from xccl_emu.kernels.group import align
from xccl_emu.machine.pod import ORDERS, POLICIES, Buffer, Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.protocols.expert_parallel import ExpertParallel, Received
from xccl_emu.protocols.layout import QUANTIZERS, EpConfig, buffer_bytes

POISON = 0xA5
WAYS = [(order, policy) for order in ORDERS for policy in POLICIES]
ROUND_REGISTERS = 288
"""Enough for the kernel that runs whole rounds."""

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

    config: EpConfig
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

    def group(self, **options: Any) -> ExpertParallel:
        """A group on a new, poisoned pod."""
        return self.group_in(self.order, self.policy, self.seed, **options)

    def group_in(self, order: str, policy: str, seed: int, **options: Any) -> ExpertParallel:
        """The same under another order, policy or seed of the policy."""
        spare = {
            "spare_ub": self.spare_ub,
            "flight_granules": self.flight_granules,
            "rounds": max(1, len(self.lengths)),
        }
        pod = pod_for(self.config, order=order, policy=policy, seed=seed, **spare, **options)
        return ExpertParallel(pod, self.config)


def pod_for(
    c: EpConfig, *, spare_ub: int = 0, flight_granules: int = 64, rounds: int = 1, spare: int = 128, **options: Any
) -> Pod:
    """A pod on which the group and so many rounds in one launch fit; app areas, managed areas and buffers poisoned."""
    tokens = c.tokens_max * (2 * c.row_bytes + 3 * INDEX_BYTES)
    rows = c.rows_max * (c.payload_bytes + ROUTE_BYTES + c.row_bytes)
    app = (rounds + 1) * (tokens + rows + align(4 * c.n_slots) + 128)
    blocks = c.rows_max * (c.message_bytes + c.returned_bytes)
    managed = c.cores * 2 * c.row_bytes + blocks + c.tallies_bytes + spare
    spec = small_pod(
        c.first_die + c.n_ranks,
        c.cores,
        app_bytes=app,
        meta_bytes=align(32 * (c.n_slots + 3 * c.n_ranks) + spare),
        managed_bytes=align(managed),
        ub_bytes=align(buffer_bytes(c) + spare_ub),
        flight_granules=flight_granules,
    ).with_(registers=ROUND_REGISTERS)
    pod = Pod(spec, **options)
    poison(pod)
    return pod


def poison(pod: Pod) -> None:
    """Fill the app areas, the managed areas and the data buffers: what is used without being written shows."""
    dies = spans_of_dies(pod)
    dies[:, : pod.spec.meta_start] = POISON
    dies[:, pod.spec.managed_start :] = POISON
    pod.memory[pod.spec.n_dies * pod.spec.die_bytes :] = POISON


def spans_of_dies(pod: Pod) -> Any:
    """[dies, die_bytes] view of the memory."""
    return pod.memory[: pod.spec.n_dies * pod.spec.die_bytes].reshape(pod.spec.n_dies, -1)


def run_round(group: ExpertParallel, batch: Batch) -> tuple[list[Received], list[Any]]:
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


def check_received(c: EpConfig, batch: Batch, rank: int, got: Received) -> None:
    """Compare all that dispatch brought to a rank."""
    want = oracle_of(c, batch).received_by(rank)
    assert_same_bits(f"x of rank {rank}", got.x, want.x)
    assert_same_bits(f"scales of rank {rank}", got.scales, want.scales)
    for name in ("source", "token", "choice", "counts"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name), err_msg=f"{name} of rank {rank}")
    np.testing.assert_array_equal(got.slot, want.expert + rank * c.local_experts, err_msg=f"slot of rank {rank}")
    np.testing.assert_array_equal(got.expert_counts, want.counts.sum(axis=1))


def check_outputs(c: EpConfig, batch: Batch, outputs: Sequence[Any]) -> None:
    """Compare what combine gave each rank."""
    dispatched = oracle_of(c, batch)
    for rank, got in enumerate(outputs):
        want = dispatched.combined_for(rank, batch.weights[rank], shared=c.shared, quantizer=rule_back(c))
        assert_same_bits(f"output of rank {rank}", got, want)


def check_round(group: ExpertParallel, batch: Batch) -> None:
    """Run a round and compare everything that it gives."""
    received, outputs = run_round(group, batch)
    for rank, got in enumerate(received):
        check_received(group.config, batch, rank, got)
    check_outputs(group.config, batch, outputs)


# ---- what may change


class Touched:
    """The bytes of a pod that rounds may write, those of the dispatch blocks and buffers down to the row."""

    def __init__(self, group: ExpertParallel) -> None:
        self.group, self.pod, self.config = group, group.pod, group.config
        self.before = spans_of_dies(self.pod).copy()
        self.may = np.zeros_like(self.before, dtype=bool)

    def add(self, batch: Batch) -> None:
        """Allow what a round with this batch writes."""
        c, layout, spec = self.config, self.group.layout, self.pod.spec
        rows_of = self._rows(batch)
        for rank in range(c.n_ranks):
            die = self.may[c.first_die + rank]
            self._app(rank, len(batch.tokens[rank]), int(rows_of[:, rank].sum()))
            die[spec.meta_start + layout.dispatch_fields : spec.meta_start + layout.meta_end] = True
            managed = die[spec.managed_start :]
            managed[layout.staging : layout.managed_end] = True
            for other in range(c.n_ranks):
                start = layout.dispatch_blocks + other * layout.dispatch_block_bytes
                managed[start : start + rows_of[rank, other] * c.message_bytes] = True
                start = layout.combine_blocks + other * layout.combine_block_bytes
                managed[start : start + rows_of[other, rank] * c.returned_bytes] = True

    def _rows(self, batch: Batch) -> Any:
        """[source, expert rank] messages."""
        c = self.config
        ranks = [choices[choices >= 0] // c.local_experts for choices in batch.topk]
        return np.stack([np.bincount(r, minlength=c.n_ranks) for r in ranks])

    def _app(self, rank: int, tokens: int, rows: int) -> None:
        c, b = self.config, self.group._ranks[rank]
        table = tokens * INDEX_BYTES
        sizes: list[tuple[Buffer, int]] = [
            (b.batches, 8), (b.x, tokens * c.row_bytes), (b.topk, table), (b.pos, table), (b.weights, table),
            (b.recv_x, rows * c.payload_bytes), (b.route, rows * ROUTE_BYTES), (b.counts, 4 * c.n_slots),
            (b.y, rows * c.row_bytes), (b.out, tokens * c.row_bytes),
        ]  # fmt: skip
        flat = self.may.reshape(-1)
        for buffer, size in sizes:
            flat[buffer.address : buffer.address + size] = True

    def check(self) -> None:
        """Everything else is as it was."""
        changed = np.argwhere((spans_of_dies(self.pod) != self.before) & ~self.may)
        assert len(changed) == 0, f"die and offset of bytes that changed: {changed[:5].tolist()}"


# ---- strategies


@st.composite
def configs(draw: st.DrawFn, ranks: st.SearchStrategy[int]) -> EpConfig:
    """Small groups of every kind."""
    n_ranks, local, repeats = draw(ranks), draw(st.integers(1, 4)), draw(st.sampled_from([False, False, True]))
    return EpConfig(
        n_ranks=n_ranks,
        local_experts=local,
        hidden=32 * draw(st.integers(1, 8)),
        top_k=draw(st.integers(1, 16 if repeats else min(16, n_ranks * local))),
        tokens_max=draw(st.integers(1, 6)),
        dtype=draw(st.sampled_from(["bf16", "fp16"])),
        quantized=draw(st.booleans()),
        quantizer=draw(st.sampled_from(sorted(QUANTIZERS))),
        shared=draw(st.booleans()),
        cores=draw(st.integers(1, 4)),
        path=draw(st.sampled_from(["mtu", "dma"])),
        first_die=draw(st.integers(0, 1)),
        repeats=repeats,
        quantized_back=draw(st.booleans()),
        counting=draw(st.sampled_from(EpConfig.COUNTINGS)),
    )


@st.composite
def cases(draw: st.DrawFn, ranks: st.SearchStrategy[int], rounds: st.SearchStrategy[int]) -> Case:
    """A group, how it runs, and batches of uneven sizes for its rounds; ranks without tokens among them."""
    config = draw(configs(ranks))
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
