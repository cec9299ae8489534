"""Reads that do not acquire: what they have seen is known behind a quiet, and the flag itself races with nobody."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.check.monitor_support import ORDERS, found, make_pod, trial_of
from xccl_emu import lang
from xccl_emu.base.errors import KernelError
from xccl_emu.check.check import IF_ALL_ACQUIRE, check
from xccl_emu.check.trial import Trial
from xccl_emu.check.verdict import DATA_RACE, NO_VIOLATION, VERIFIED, VIOLATION
from xccl_emu.lang import kernel
from xccl_emu.lang.kernel import kernel_of

WORDS = {"word": 0, "flag": 64, "other": 128}


@kernel
def give(word, flag, other):
    """A word, and a flag that says so."""
    yield lang.store(word, 7)
    yield lang.quiet()
    yield lang.store(flag, 1)


@kernel
def take(word, flag, other):
    """No quiet between flag and word."""
    yield lang.poll_eq(flag, 1, order="no-acquire")
    last = yield lang.load(word)
    return last


@kernel
def take_by_loads(word, flag, other):
    """The same in a loop of loads."""
    last = 0
    while last != 1:
        last = yield lang.load(flag, sync="flag", order="no-acquire")
    yield lang.load(word)


@kernel
def take_by_swap(word, flag, other):
    """The same by an atomic."""
    last = 0
    while last != 1:
        last = yield lang.compare_swap(flag, 1, 2, order="no-acquire")
    yield lang.load(word)


@kernel
def take_any(word, flag, other):
    """The same by a poll of two words."""
    yield lang.poll_any((flag, lang.CMP_EQ, 1), (other, lang.CMP_EQ, 5), sync="any", order="no-acquire")
    yield lang.load(word)


@kernel
def take_fenced(word, flag, other):
    """With a quiet."""
    yield lang.poll_eq(flag, 1, order="no-acquire")
    yield lang.quiet()
    yield lang.load(word)


@kernel
def take_released(word, flag, other):
    """With a quiet as a release makes it."""
    yield lang.poll_eq(flag, 1, order="no-acquire")
    yield lang.quiet(order="no-acquire")
    yield lang.load(word)


@kernel
def take_twice(word, flag, other):
    """A second read of the flag acquires."""
    yield lang.poll_eq(flag, 1, order="no-acquire")
    yield lang.poll_eq(flag, 1)
    yield lang.load(word)


@kernel
def put_back(word, flag, other):
    """The flag is overwritten, twice."""
    yield lang.poll_eq(flag, 1, order="no-acquire")
    yield lang.store(flag, 2)
    yield lang.store(flag, 3)


@kernel
def overwrite(word, flag, other):
    """The word is."""
    yield lang.poll_eq(flag, 1, order="no-acquire")
    yield lang.store(word, 2)


@kernel
def pass_on(word, flag, other):
    """Another flag says that this one was there."""
    yield lang.poll_eq(flag, 1, order="no-acquire")
    yield lang.quiet(order="no-acquire")
    yield lang.store(other, 1)


@kernel
def pass_on_fenced(word, flag, other):
    """The same behind a quiet."""
    yield lang.poll_eq(flag, 1, order="no-acquire")
    yield lang.quiet()
    yield lang.store(other, 1)


@kernel
def take_other(word, flag, other):
    """The word after the other flag."""
    yield lang.poll_eq(other, 1)
    yield lang.load(word)


def case(readers: list[Any], order: str = "relaxed", without: tuple[str, ...] = ()) -> Trial:
    """`give` on die 0 beside readers on die 1; the words are in the managed area of die 0."""
    pod = make_pod(order=order, cores=2, without=without)
    places = {name: pod.spec.managed_start + at for name, at in WORDS.items()}
    return trial_of(pod, [(give, 0, 0, places), *((each, 1, core, places) for core, each in enumerate(readers))])


RACES: Mapping[Any, bool] = {
    take: True, take_by_loads: True, take_by_swap: True, take_any: True, take_released: True, overwrite: True,
    take_fenced: False, take_twice: False, put_back: False,
}  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("reader", RACES, ids=lambda each: each.name)
def test_a_read_that_does_not_acquire_orders_nothing_before_a_quiet(reader: Any, order: str) -> None:
    """A data race on the word, which names the read of the flag; nothing where a quiet or an acquire is between."""
    shown = found(case([reader], order))
    assert (shown is not None) == RACES[reader]
    if shown is not None:
        assert shown.kind == DATA_RACE
        assert "yield lang.store(word, 7)" in shown.message
        assert "the first was seen by a read that does not acquire: die 1 core 0" in shown.message
        assert "order=\"no-acquire\"" in shown.message.splitlines()[-1]


def test_what_was_not_acquired_is_not_passed_on() -> None:
    """A release behind such a read tells nobody of what was before the flag; with a quiet between it does."""
    assert found(case([pass_on, take_other])) is not None
    assert found(case([pass_on_fenced, take_other])) is None


@kernel
def overwrite_unseen(word, flag, other):
    """The first flag is overwritten by who has seen the other one."""
    yield lang.poll_eq(other, 1, order="no-acquire")
    yield lang.store(flag, 2)


@kernel
def overwrite_seen(word, flag, other):
    """The same by who has seen both."""
    yield lang.poll_eq(other, 1, order="no-acquire")
    yield lang.poll_eq(flag, 1, order="no-acquire")
    yield lang.store(flag, 2)


@kernel
def stay_out():
    """Nothing."""
    yield lang.quiet()


@pytest.mark.parametrize("apart", [1, 48, 60])
def test_what_another_core_has_seen_excuses_nobody(apart: int) -> None:
    """To overwrite a flag that another core alone has seen is a race, however many cores are between the two."""
    kinds = []
    for last in (overwrite_unseen, overwrite_seen):
        pod = make_pod(cores=32)
        places = {name: pod.spec.managed_start + at for name, at in WORDS.items()}
        who = {0: give, 1: pass_on, 1 + apart: last}
        sides = [(each, core // 32, core % 32, places) for core, each in who.items()]
        for die in range(2):
            pod.launch(stay_out, die, [core for core in range(32) if 32 * die + core not in who], {}, [])
        shown = found(trial_of(pod, sides))
        kinds.append(None if shown is None else shown.kind)
    assert kinds == [DATA_RACE, None]


class Given:
    """What a check takes: a trial by its order."""

    name, configuration = "given", dict[str, int | str]()

    def __init__(self, reader: Any) -> None:
        self.reader = reader

    def build(self, order: str, without: Any = ()) -> Trial:
        """`give` beside the reader."""
        return case([self.reader], order, tuple(without))


def test_a_check_searches_and_draws() -> None:
    """The search has every read acquire; so that is said, and nothing is verified where some do not."""
    right, wrong = check(Given(take_fenced)), check(Given(take))
    assert (right.verdict, right.policy, right.reason) == (NO_VIOLATION, "exhaustive", IF_ALL_ACQUIRE)
    assert right.states > 0
    assert right.schedules == 1000
    assert (wrong.verdict, wrong.reason) == (VIOLATION, IF_ALL_ACQUIRE)
    assert wrong.violation is not None
    assert wrong.violation.kind == DATA_RACE
    acquires = check(Given(take_other_way))
    assert (acquires.verdict, acquires.states) == (VERIFIED, right.states)


@kernel
def take_other_way(word, flag, other):
    """As `take_fenced`, but the poll acquires."""
    yield lang.poll_eq(flag, 1)
    yield lang.quiet()
    yield lang.load(word)


@pytest.mark.parametrize(("text", "known"), [
    ("lang.load(at, order='strong')", "no-acquire"), ("lang.store(at, 1, order='no-acquire')", "no-order"),
    ("lang.quiet(order='relaxed')", "no-acquire"),
])  # fmt: skip
def test_what_a_request_cannot_ask_for_is_refused(text: str, known: str) -> None:
    """A read has no order among writes, and a write acquires nothing; the message says what may be asked for."""
    refused = kernel_of("refused", f"def refused(at):\n    yield {text}\n", {"lang": lang})
    with pytest.raises(KernelError, match=f"must be one of {known}"):
        _ = refused.sites


def test_a_fault_makes_no_proof_of_it() -> None:
    """What a stop of a die adds is judged by the search too, and schedules are drawn all the same."""
    stopped = check(Given(take_fenced), policy="exhaustive", fault="stop:die0")
    assert (stopped.verdict, stopped.reason.startswith(IF_ALL_ACQUIRE)) == (NO_VIOLATION, True)
    assert stopped.schedules == 1000
