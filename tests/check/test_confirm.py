"""Second opinions on what is verified: who agrees, what is confirmed and at which sizes, and what contradicts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.refused import refuses
from tests.testing.cases import telling
from xccl_emu.base.errors import ConfigError
from xccl_emu.check import check as front
from xccl_emu.check import confirm
from xccl_emu.check.check import check, opinions
from xccl_emu.check.confirm import confirmed
from xccl_emu.check.verdict import (
    BRUTE_FORCE,
    SEARCH,
    UNFINISHED,
    VERIFIED,
    VIOLATION,
    Certificate,
    Confirmation,
    Opinion,
    Verdict,
)
from xccl_emu.lang import atomic_add, kernel, store
from xccl_emu.machine import small_pod
from xccl_emu.machine.launch import Grant
from xccl_emu.protocol import Bench, Case, choice, protocol, size
from xccl_emu.protocol.registry import make, names

from .test_certify import FORGED, meeting
from .test_recovery import half_told


def test_a_small_proof_is_agreed_with_and_confirmed() -> None:
    """Both searches that reduce less end, and so does brute force of the configuration itself."""
    verdict = check(telling(), confirm_seconds=5.0)
    told = verdict.confirmation
    assert verdict.ok
    assert [(one.by, one.verdict, one.smaller) for one in told.opinions] == [
        ("less", VERIFIED, {}), ("merged", VERIFIED, {}), (BRUTE_FORCE, VERIFIED, {})
    ]  # fmt: skip
    assert told.confirmed.states > verdict.states
    merged, brute = f"{told.opinions[1].states:,}", f"{told.confirmed.states:,}"
    assert f"agreed by merged (reductions 1, 2, 5): {merged} states; " in told.words()
    assert told.words().endswith(f"confirmed by brute force: {brute} states")
    assert verdict.to_json()["confirmation"]["confirmed"]["states"] == told.confirmed.states


def test_nothing_is_asked_unless_it_is_asked_for() -> None:
    """Neither of a proof in the library, nor of anything else than a proof."""
    assert check(telling()).confirmation is None
    wrong = check(telling(), without="word before flag", confirm_seconds=5.0)
    assert (wrong.verdict, wrong.confirmation) == (VIOLATION, None)
    assert check(telling(), policy="random", schedules=3, confirm_seconds=5.0).confirmation is None


def test_a_reduction_is_asked_of_those_that_reduce_less_than_it() -> None:
    """What `merged` has verified no search confirms, brute force does."""
    for reduction, agreed in (("less", ["merged"]), ("merged", [])):
        told = check(telling(), reduction=reduction, confirm_seconds=5.0).confirmation
        assert [one.by for one in told.agreed] == agreed
        assert told.confirmed is not None


@pytest.mark.parametrize(("sizes", "kind"), [({"wanted": 2}, "deadlock"), ({"word": 6}, "wrong bits")])
def test_a_search_that_reduces_less_contradicts(sizes: dict[str, int], kind: str) -> None:
    """A proof that nobody has made is refuted by `less`, with a schedule that shows it; nobody else is asked."""
    case = meeting(**sizes)
    given = list(opinions(case, FORGED, seconds=20.0))
    assert [(one.by, one.because) for one in given] == [("less", kind)]
    verdict = confirmed(case, FORGED, given, 20.0)
    assert (verdict.verdict, verdict.violation.kind, verdict.contradicted) == (VIOLATION, kind, True)
    said = f"CONTRADICTED: the exhaustive search had said verified, but less (reductions 1 to 6): {kind}"
    assert verdict.reason.startswith(said)


@pytest.fixture
def _believes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake that all searches share: whatever they are asked is verified."""
    monkeypatch.setattr(front, "_searched", lambda verdict, *_: (replace(verdict, verdict=VERIFIED), False))


@pytest.mark.usefixtures("_believes")
def test_brute_force_contradicts_a_mistake_that_all_searches_share() -> None:
    """A deadlock is found by brute force alone, and drawn schedules show it."""
    verdict = check(meeting(wanted=2), confirm_seconds=20.0)
    assert [one.by for one in verdict.confirmation.agreed] == ["less", "merged"]
    assert (verdict.verdict, verdict.violation.kind, verdict.contradicted) == (VIOLATION, "deadlock", True)
    assert "brute force: deadlock in 1 state" in verdict.reason


@pytest.mark.usefixtures("_believes")
def test_without_a_schedule_a_contradiction_is_no_proof_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no schedule shows what brute force has found, the verdict is unfinished and says both."""
    monkeypatch.setattr(confirm, "_drawn", lambda *_: None)
    verdict = check(meeting(wanted=2), confirm_seconds=20.0)
    assert (verdict.verdict, verdict.violation, verdict.contradicted) == (UNFINISHED, None, True)
    assert "had said verified, but brute force: " in verdict.reason


def test_the_order_itself_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict under sc is handed over from relaxed; the searches that are asked then look at sc."""
    searched, search = [], front._searched

    def noted(verdict: Verdict, trial: Any, again: Any, options: Any) -> tuple[Verdict, bool]:
        searched.append((options.reduction, verdict.order))
        return search(verdict, trial, again, options)

    monkeypatch.setattr(front, "_searched", noted)
    verdict = check(telling(), order="sc", confirm_seconds=10.0)
    assert verdict.confirmation.confirmed is not None
    assert searched == [("full", "relaxed"), ("less", "sc"), ("merged", "sc")]


def test_under_a_fault_it_is_asked_again_where_a_search_has_judged_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A die that stops: brute force has the stop at every moment, finds who waits for ever, and knows a schedule."""
    stop = {"fault": "stop:die0", "policy": "exhaustive"}
    rests = check(make("heartbeat", masters=1, turns=1, hangs=-1, patient=0), **stop, confirm_seconds=20.0)
    assert rests.recovery is not None
    assert [one.verdict for one in rests.confirmation.opinions] == [VERIFIED] * 3
    assert rests.confirmation.confirmed.states > 3 * rests.states
    monkeypatch.setattr(front, "_without_die", lambda verdict, *_: replace(verdict, verdict=VERIFIED))
    verdict = check(half_told(), **stop, confirm_seconds=20.0)
    assert (verdict.verdict, verdict.violation.kind, verdict.contradicted) == (VIOLATION, "deadlock", True)
    assert verdict.violation.found_by == BRUTE_FORCE


def test_what_brute_force_has_judged_is_not_asked_of_it_again() -> None:
    """Where bytes are lost the verdict is brute force itself, so the search without the loss is asked."""
    case = make("block-map")
    verdict = check(case, fault="lose:die0:block", policy="exhaustive", confirm_seconds=20.0)
    assert verdict.confirmation.agreed[0].states == check(case, reduction="less").states


# ---- smaller configurations


@kernel
def stores(word):
    """Store once."""
    yield store(word, 1)


@dataclass(frozen=True)
class Rounds(Case):
    """A case with sizes that are not all allowed together."""

    ranks: int = size(6, least=2)
    slots: int = size(3)
    rounds: int = size(5)
    aborts: int = size(2, least=0)
    value: int = size(4)
    mode: str = choice("near", of=("near", "far"))
    seed: int = size(9, least=0, most=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ranks % 2 or self.slots > self.rounds:
            raise ConfigError(f"ranks={self.ranks}, slots={self.slots}: refused")

    def lay_out(self, bench: Any) -> None:
        """A kernel that nobody runs: who asks is a fake."""
        pod = bench.pod(small_pod(1))
        pod.launch(stores, 0, [0], {"word": pod.meta(0)}, [Grant(None, 0, pod.spec.die_bytes, "rw")])


class Clock:
    """Time that passes when somebody asks, a second for each 100 states."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wrong: Mapping[str, int] | None = None) -> None:
        self.now, self.allowed, self.wrong, self.factor = 0.0, list[float](), wrong, 5
        monkeypatch.setattr(confirm, "working_seconds", lambda: self.now)
        monkeypatch.setattr(confirm, "by_brute_force", self.explore)

    def takes(self, states: int, seconds: float) -> bool:
        """Whether a question is answered within its time."""
        self.allowed.append(seconds)
        self.now += min(states / 100, seconds)
        return states / 100 <= seconds

    def explore(self, case: Rounds, verdict: Verdict, seconds: float, *_: Any) -> Certificate:
        """Brute force: states grow by all sizes."""
        states = case.ranks * case.slots * case.rounds * self.factor
        return Certificate(states, self.takes(states, seconds))

    def ask(self, case: Rounds, by: str, seconds: float) -> Verdict:
        """A search: `merged` has more states than there is ever time for."""
        states = 10**6 if by == "merged" else case.ranks + case.slots + case.rounds
        actions = states + case.aborts
        said = VERIFIED if self.takes(states, seconds) else UNFINISHED
        if by == "full" and self.wrong is not None and self.wrong.items() <= case.configuration.items():
            said = VIOLATION
        return replace(FORGED, verdict=said, configuration=case.configuration, states=states, actions=actions)

    def opinions(self, case: Rounds, seconds: float) -> Iterator[Opinion]:
        """Opinions on a proof of a case."""
        proof = replace(FORGED, states=14, actions=16, configuration=case.configuration)
        yield from confirm.opinions(case, proof, self.ask, seconds=seconds, reduction="full", progress=None)


def test_smaller_ones_are_asked_from_the_least_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes refused together are passed by; a choice, a seed and what makes nothing smaller stay as they are."""
    given = list(Clock(monkeypatch).opinions(Rounds(), 60.0))
    brute = [one for one in given if one.by == BRUTE_FORCE]
    assert brute[0].smaller == {"ranks": 2, "slots": 1, "rounds": 1, "aborts": 1}
    assert all(one.verdict == VERIFIED for one in brute)
    assert [one.states for one in brute] == sorted(one.states for one in brute)
    assert len(brute) > 3
    assert not any(one.smaller.keys() & {"value", "mode", "seed"} or one.smaller.get("ranks", 2) % 2 for one in brute)
    words = confirmed(Rounds(), FORGED, given, 60.0).confirmation.words()
    assert f"; confirmed by {brute[-1].words()}" in words


def test_the_budget_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """No question is given more than is left, so that all of them together end in time."""
    for seconds in (0.5, 2.0, 7.0, 60.0, 1000.0):
        clock = Clock(monkeypatch)
        given = list(clock.opinions(Rounds(), seconds))
        assert clock.now <= seconds + 0.5
        assert clock.allowed[0] <= seconds / 2
        assert given[0].by == "less"


def test_nothing_that_ends_in_time_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what was tried: the least configuration that did not end, no time for one, or none that is smaller."""
    least = Rounds(ranks=2, slots=1, rounds=1, aborts=1, value=1)
    for case, seconds, why in (
        (Rounds(), 0.9, "nor at ranks 2, slots 1, rounds 1, aborts 1"),
        (Rounds(), 0.3, "no time was left for a smaller one"),
        (least, 0.1, "no smaller configuration fits"),
    ):
        clock = Clock(monkeypatch)
        clock.factor = 500
        told = confirmed(case, FORGED, list(clock.opinions(case, seconds)), seconds)
        assert (told.verdict, told.contradicted) == (VERIFIED, False)
        assert f"not confirmed within {seconds} s, {why}" in told.confirmation.words()


def test_a_smaller_one_that_is_wrong_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """It contradicts nothing: the search says so itself, of sizes that nobody has asked it for."""
    given = list(Clock(monkeypatch, wrong={"slots": 1}).opinions(Rounds(), 60.0))
    assert any(one.by == SEARCH and one.smaller == {"ranks": 2, "slots": 1} for one in given)
    told = confirmed(Rounds(), FORGED, given, 60.0).confirmation
    assert told.contradicted is None
    assert told.confirmed.smaller.get("slots", 3) > 1
    assert "but a smaller one is wrong, exhaustive search at ranks 2, slots 1" in told.words()


def test_a_smaller_one_whose_search_does_not_end_is_not_wrong() -> None:
    """There was no time for it, which says nothing of it."""
    late = Opinion(SEARCH, UNFINISHED, {"slots": 1}, 9, 0.1, "more than 0.1 seconds")
    assert "wrong" not in Confirmation(1.0, (late,)).words()


@kernel
def adds(word, n):
    """Add several times."""
    for _ in range(n):
        yield atomic_add(word, 1)


@protocol
def algorithms(bench: Bench, algorithm: int = 2, n: int = 4) -> None:
    """Algorithm 1 stores, algorithm 2 adds: a number that is a choice."""
    pod = bench.pod(small_pod(2))
    word = pod.meta(0)
    for die in range(algorithm):
        launched, given = (stores, {}) if algorithm == 1 else (adds, {"n": n})
        pod.launch(launched, die, [0], {"word": word, **given}, [Grant(None, 0, pod.spec.die_bytes, "rw")])


def test_a_configuration_with_other_kernels_confirms_nothing() -> None:
    """A number that chooses between kernels is no size: brute force of another algorithm is not asked."""
    verdict = check(algorithms(), confirm_seconds=20.0)
    asked = [one.smaller for one in verdict.confirmation.opinions if one.by == BRUTE_FORCE]
    assert asked
    assert not any("algorithm" in smaller for smaller in asked)
    case = algorithms(n=1000)
    given = list(opinions(case, check(case), seconds=5.0))
    assert not any("algorithm" in one.smaller for one in given)


def test_sizes_of_cases_of_all_kinds(tmp_path: Path) -> None:
    """In a class, a function and a file: numbers go down to the least, none to 0, and the pod's options stay."""
    sizes = {"ranks": range(2, 7), "slots": range(1, 4), "rounds": range(1, 6), "aborts": range(1, 3)}
    sizes["value"] = range(1, 5)
    assert Rounds().lesser() == sizes
    cached = make("sendrecv", slots=3, scalar_cache=4)
    assert cached.resized({"slots": 2}).configuration == {**cached.configuration, "slots": 2}
    for case in map(make, names()):
        assert case.resized({}).configuration == case.configuration
    assert make("dispatch").lesser()["tokens"] == range(1, 3)
    assert make("a2e").resized({"attention": 1}).configuration["tokens"] == "1"
    told = telling(value=3)
    assert (told.lesser(), told.resized({"value": 2})) == ({"value": range(1, 4)}, telling(value=2))
    source = Path(__file__).parents[1] / "testing" / "cases.py"
    (tmp_path / "own.py").write_text(source.read_text())
    own = make(f"{tmp_path / 'own.py'}:telling", value=3)
    assert own.resized({"value": 2}).build("sc").expected[0].data[0] == 2


@refuses(partial(check, telling()), ({"confirm_seconds": 0}, "confirm_seconds=0: must be a number, and positive"))
def test_bad_seconds_are_refused() -> None:
    """They are positive."""
