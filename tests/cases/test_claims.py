"""``check --invariant``: outputs that depend on nothing but what they are of, in every schedule."""

from pathlib import Path
from typing import Any

import pytest
from cli_support import as_json, printed, refusal

from tests.check.mutants import Of, Planted
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import (
    NO_VIOLATION,
    UNFINISHED,
    UNSUPPORTED,
    VERIFIED,
    VIOLATION,
    WRONG_BITS,
    Verdict,
)
from xccl_emu.protocol.invariant import DRAWS, Invariance
from xccl_emu.protocol.registry import make

THREE = {"experts": 2, "top_k": 3}
"""Choices of a token: two summands commute, three need not."""
HOLD: list[tuple[str, str, dict[str, Any]]] = [
    ("dispatch", "batch", {}),
    ("moe", "batch", THREE),
    ("moe", "batch", {**THREE, "dtype": "fp16", "quantized": 0}),
    ("combine-int8", "batch", THREE),
    ("fused", "batch", THREE),
    ("deepep-ll", "batch", THREE),
    ("a2e", "batch", {"experts": 2, "local": 2, "top_k": 3, "tokens": 2}),
    ("rollback-moe", "batch", THREE),
    *((f"all-reduce-{name}", "batch", {}) for name in ("one-shot", "two-shot", "two-level")),
    *((f"all-reduce-{name}", "ranks", {}) for name in ("ring", "one-shot", "two-shot", "two-level")),
    ("reduce-scatter", "batch", {}),
    ("all-gather", "ranks", {}),
]


@pytest.mark.parametrize(("name", "claim", "sizes"), HOLD)
def test_the_oracle_has_the_same_bits(name: str, claim: str, sizes: dict[str, Any]) -> None:
    """No row of drawn data differs; and where there are sums of three, another order of them would differ."""
    found = Invariance.of(make(name, **sizes, invariant=claim))
    assert (found.claim, found.draws, found.differ) == (claim, DRAWS, 0)
    assert found.compared >= DRAWS
    assert (found.shown > 0) == (found.ordered > 0)
    assert found.shown <= found.outputs
    assert (found.ordered > DRAWS // 2) == (name not in ("dispatch", "all-gather"))


@pytest.mark.parametrize("name", ["all-reduce-ring", "reduce-scatter-ring"])
def test_a_ring_adds_in_an_order_that_depends_on_the_place(name: str) -> None:
    """The oracle itself refutes the claim: each share begins at another rank, so a column elsewhere has other bits."""
    assert Invariance.of(make(name, invariant="batch")).differ == DRAWS
    assert "does not hold, whatever the schedule" in printed("check", name, "--invariant", "batch", code=1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sendrecv", "--invariant", "batch"), "sendrecv of these sizes has none"),
        (("all-gather", "--invariant", "batch"), "all-gather of these sizes has ranks"),
        (("reduce-scatter", "--invariant", "ranks"), "reduce-scatter of these sizes has batch"),
        (("moe", "--routing", "zipf", "--invariant", "batch"), "moe of these sizes has none"),
        (("dispatch-swap", "--invariant", "batch"), "dispatch-swap of these sizes has none"),
        (("dispatch", "--invariant", "bits"), "must be one of batch, ranks"),
        (("dispatch", "--invariant", "batch", "--rank", "1:seed=3"), "cannot be combined with rank"),
        (("dispatch", "--invariant", "batch", "--fault", "stop:die1"), "cannot be combined with --fault"),
    ],
)
def test_a_case_without_the_claim_is_refused(words: tuple[str, ...], said: str) -> None:
    """Before anything is searched, by the names of the claims that it has."""
    assert said in refusal("check", *words)


@pytest.mark.parametrize(
    ("verdict", "due", "said"),
    [
        (UNFINISHED, ("out",), "not shown, since the search did not end"),
        (UNSUPPORTED, (), "not shown, since the search did not end"),
        (VIOLATION, ("out",), "not shown, since outputs need not be the oracle's"),
        (VERIFIED, (), "not shown: no outputs were judged"),
        (VERIFIED, ("out",), "holds in every schedule"),
        (NO_VIOLATION, ("out",), "holds in the schedules that were drawn"),
    ],
)
def test_a_claim_holds_only_of_what_is_judged(verdict: str, due: tuple[str, ...], said: str) -> None:
    """Nothing is shown without an end of the search, by a violation, or where no output is due."""
    case = make("all-gather", invariant="ranks")
    of = Verdict(verdict, case.name, case.configuration, "relaxed", "exhaustive", 0, due={"end": due} if due else {})
    assert said in Invariance.of(case).words(of)


def test_all_ranks_hold_the_same_bits_in_every_schedule(tmp_path: Path) -> None:
    """The verdict is a proof, and the line after it says what follows, and of how many draws."""
    words = ("check", "all-reduce-one-shot", "--invariant", "ranks", "--ranks", "2", "--calls", "1")
    result = as_json(*words)
    assert (result["verdict"], result["configuration"]["invariant"]) == (VERIFIED, "ranks")
    assert (result["invariance"]["claim"], result["invariance"]["differ"]) == ("ranks", 0)
    assert "ranks: holds in every schedule" in printed(*words)


ARRIVAL = Of("pull.combine")(
    """\
    came = 1
    for k in range(c.top_k):
        slot = yield xl.load(b.topk + t * INDEX_BYTES + 4 * k, 4, step=6)
""",
    """\
    came = 1
    head = yield xl.load(b.topk + t * INDEX_BYTES, 4, step=6)
    tail = yield xl.load(b.topk + t * INDEX_BYTES + 4 * (c.top_k - 1), 4, step=6)
    own = a.fields + rank * c.die_bytes
    one = own + head // c.n_local * FIELD_BYTES
    two = own + tail // c.n_local * FIELD_BYTES
    last = yield xl.poll_any((one, xl.CMP_EQ, event), (two, xl.CMP_EQ, event), step=5, sync="first in")
    for i in range(c.top_k):
        k = i
        if last:
            k = c.top_k - 1 - i
        slot = yield xl.load(b.topk + t * INDEX_BYTES + 4 * k, 4, step=6)
""",
)
"""Contributions are added from the rank on that has offered its rows first."""
SMALL = {"tokens": 1, "granules": 2, "rounds": 1, **THREE}


def test_sums_in_order_of_arrival_are_refuted() -> None:
    """Planted: some schedule gives a token other bits; with data as usual nothing shows it, since sums are rounded."""
    planted = Planted(make("combine", **SMALL, invariant="batch"), (ARRIVAL,))
    found = check(planted)
    assert found.violation is not None
    assert (found.violation.kind, found.violation.message.startswith("out of rank")) == (WRONG_BITS, True)
    assert check(Planted(make("combine", **SMALL), (ARRIVAL,))).verdict == VERIFIED
    assert check(make("combine", **SMALL, invariant="batch")).verdict == VERIFIED


BY_PLACE = Of("pull.combine")(
    """\
    for k in range(c.top_k):
        slot = yield xl.load(b.topk + t * INDEX_BYTES + 4 * k, 4, step=6)
""",
    """\
    for i in range(c.top_k):
        k = i
        if t >= 2:
            k = c.top_k - 1 - i
        slot = yield xl.load(b.topk + t * INDEX_BYTES + 4 * k, 4, step=6)
""",
)
"""Tokens from the third on add up their contributions in the opposite order."""


def test_an_order_that_depends_on_the_place_is_refuted_at_each_place() -> None:
    """Planted: every token of the data shows another order, not only the one that is at several places."""
    case = make("combine", **{**SMALL, "tokens": 3}, invariant="batch")
    assert check(Planted(case, (BY_PLACE,)), policy="portfolio", schedules=1).verdict == VIOLATION
    assert check(case, policy="portfolio", schedules=1).verdict == NO_VIOLATION
    assert case.reordered() == (6, 6)


@pytest.mark.parametrize("tokens", ["0,1", "1,0", "1,1", "0,2"])
@pytest.mark.parametrize("name", ["moe", "dispatch"])
def test_ranks_may_have_no_tokens(name: str, tokens: str) -> None:
    """The token is put at the first place that there is, and compared in larger batches."""
    case = make(name, tokens=tokens, rounds=1, **THREE, invariant="batch")
    assert case.build("relaxed").expected
    found = Invariance.of(case)
    assert (found.compared >= DRAWS, found.differ) == (True, 0)


def test_a_claim_on_batches_needs_a_token() -> None:
    """Without any there is nothing to compare."""
    with pytest.raises(ConfigError, match="tokens"):
        make("moe", tokens="0,0", rounds=1, invariant="batch")


def test_masked_choices_leave_the_others_cancelling() -> None:
    """A token of which a choice is masked has two summands; the data of all others show another order."""
    case = make("a2e", experts=2, local=2, top_k=3, tokens=2, masked=1, invariant="batch")
    shown, results = case.reordered()
    assert 0 < shown < results
    assert make("combine", **{**SMALL, "top_k": 2}, invariant="batch").reordered()[0] == 0


def test_data_that_cannot_show_another_order_show_nothing() -> None:
    """Drawn data would show it, but the search was of other data: it says so."""
    found = Invariance("batch", DRAWS, 64, 0, ordered=DRAWS, shown=0, outputs=4)
    assert "not shown: with these data" in found.words(
        Verdict(VERIFIED, "x", {}, "sc", "exhaustive", 0, due={"a": ("b",)})
    )
