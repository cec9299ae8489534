"""What the tests of A2E and E2A share: pods that just fit, drawn calls, and comparison with the oracle."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from xccl_emu import oracle
from xccl_emu.kernels.group import align
from xccl_emu.machine.pod import ORDERS, POLICIES, Pod
from xccl_emu.machine.spec import MIB, small_pod
from xccl_emu.protocols.a2e.calls import AttentionExperts
from xccl_emu.protocols.a2e.pull import A2EPull
from xccl_emu.protocols.a2e.session import A2E, A2EConfig, Call, Calls

from .ep_support import Case as Drawn
from .ep_support import assert_same_bits, check_rows, poison


@dataclass(frozen=True)
class Case(Drawn):
    """A configuration, how it is run, and what its calls are drawn from: tokens by [call][attention die]."""

    pull: bool = False
    first_die: int = 0

    def calls(self) -> list[Call]:
        """The same each time."""
        return [Call(batch.tokens, batch.topk, batch.weights) for batch in self.batches()]

    def pulled(self) -> "Case":
        """The same by plain pull, of one domain and one call at a time."""
        return replace(self, config=replace(self.config, n_domains=1, depth=1), pull=True)

    def group(self, **options: Any) -> AttentionExperts:
        """On a new, poisoned pod with room for nothing but data areas."""
        kind: type[AttentionExperts] = A2EPull if self.pull else A2E
        c = self.config
        dies, cores = self.first_die + c.n_dies, max(c.microbatches * c.cores, c.expert_cores)
        roomy = small_pod(dies, cores, app_bytes=MIB, meta_bytes=MIB, managed_bytes=1 << 30, ub_bytes=MIB)
        placed = kind.lays_out(c, roomy, self.first_die)
        spec = small_pod(
            dies, cores, app_bytes=MIB, meta_bytes=placed.meta_end, managed_bytes=placed.managed_end,
            ub_bytes=align(kind.lays_out.ub_bytes(c) + self.spare_ub), flight_granules=self.flight_granules,
        )  # fmt: skip
        pod = Pod(spec, **{"order": self.order, "policy": self.policy, "seed": self.seed, **options})
        poison(pod)
        return kind(pod, c, first_die=self.first_die)


def follow(case: Case, group: AttentionExperts | None = None) -> Calls:
    """Run all calls of a case in one launch, on a group of its own or a given one; compare outputs, and what the expert
    dies still have."""
    group = group or case.group()
    calls = Calls(group, case.calls())
    calls.launch()
    group.run_launched()
    check(case, calls, case.calls())
    return calls


def check(case: Case, calls: Calls, given: Sequence[Call]) -> None:
    """Compare everything that can be seen with the oracle."""
    c = case.config
    for number, call in enumerate(given):
        sent = oracle.dispatch(call.tokens, call.topk, c.n_experts, c.local_experts, c.quantized, c.quantizer)
        for i in range(c.n_attention):
            summed = sent.combined_for(i, call.weights[i], shared=c.shared)
            assert_same_bits(f"call {number}, attention die {i}", calls.output(number, i), summed)
        if number >= len(given) - c.depth:
            for die in range(c.n_experts):
                what, got = f"call {number}, expert die {die}", calls.received(number, die)
                check_rows(what, got, sent.received_by(die), die * c.local_experts)


@st.composite
def configs(draw: st.DrawFn, pull: bool) -> A2EConfig:
    """Small groups of every kind."""
    n_experts, local = draw(st.integers(1, 5)), draw(st.integers(1, 2))
    trampolines = draw(st.integers(1, min(3, n_experts)))
    n_attention = trampolines + (0 if pull else draw(st.integers(0, 3)))
    return A2EConfig(
        n_domains=1 if pull else draw(st.integers(1, 3)),
        n_attention=n_attention,
        n_experts=n_experts,
        local_experts=local,
        hidden=32 * draw(st.integers(1, 6)),
        top_k=draw(st.integers(1, min(4, n_experts * local))),
        tokens_max=draw(st.integers(1, 6)),
        dtype=draw(st.sampled_from(["bf16", "fp16"])),
        quantized=draw(st.booleans()),
        quantizer=draw(st.sampled_from(["xccl", "cann"])),
        shared=draw(st.booleans()),
        path=draw(st.sampled_from(A2EConfig.PATHS)),
        depth=1 if pull else draw(st.integers(1, 3)),
        cores=draw(st.integers(1, 2)),
        a2e_cores=draw(st.integers(1, 2)),
        compute_cores=draw(st.integers(1, 2)),
        e2a_cores=draw(st.integers(1, 3)),
        n_trampolines=trampolines,
        a2e_parts=1 if pull else draw(st.integers(1, 3)),
        e2a_parts=1 if pull else draw(st.integers(1, 3)),
        microbatches=1 if pull else draw(st.integers(1, 2)),
        counting=draw(st.sampled_from(A2EConfig.COUNTINGS)),
        listed=draw(st.integers(0, 3)),
    )


@st.composite
def cases(draw: st.DrawFn, pull: bool = False, calls: st.SearchStrategy[int] | None = None) -> Case:
    """A group, how it runs, and calls of uneven sizes; attention dies without tokens among them, and no call at all."""
    config = draw(configs(pull))
    lengths = st.tuples(*[st.one_of(st.just(0), st.integers(0, config.tokens_max))] * config.n_attention)
    return Case(
        config=config,
        order=draw(st.sampled_from(ORDERS)),
        policy=draw(st.sampled_from(POLICIES)),
        seed=draw(st.integers(0, 1 << 40)),
        lengths=tuple(draw(lengths) for _ in range(draw(st.integers(0, 5) if calls is None else calls))),
        masked=draw(st.sampled_from([0.0, 0.2, 0.8, 1.0])),
        routing=draw(st.sampled_from(["uniform", "one expert"])),
        payload=draw(st.sampled_from(["normal", "special"])),
        pull=pull,
        first_die=draw(st.integers(0, 1)),
        spare_ub=32 * draw(st.integers(0, 64)),
        flight_granules=draw(st.sampled_from([3, 16, 64])),
    )
