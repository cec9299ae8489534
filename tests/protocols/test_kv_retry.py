"""A KV transfer that is aborted or times out is tried again, and what arrives is right whenever that happens."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.check import mutants_kv_retry as mutants
from tests.check.mutants import Planted
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import LIVELOCK, VERIFIED, VIOLATION
from xccl_emu.machine.state import ORDERS
from xccl_emu.protocol import Bench
from xccl_emu.protocols.serving.kv.retry import KvRetryCase

DIES = KvRetryCase()


@st.composite
def cases(draw: st.DrawFn) -> KvRetryCase:
    """Sizes of any kind, with slots for one request at least."""
    instances, layers = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    return KvRetryCase(
        instances=instances, receivers=draw(st.integers(1, 3)), requests=draw(st.integers(1, 3)), layers=layers,
        pool=draw(st.integers(1, 3)), slots=draw(st.integers(layers, 8)), aborts=draw(st.integers(0, 3)),
        mortal=draw(st.integers(0, int(instances > 1))), granules=draw(st.integers(1, 3)), seed=draw(st.integers(0, 9)),
    )  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(cases(), st.sampled_from(ORDERS))
def test_caches_arrive_whatever_is_given_up(case: KvRetryCase, order: str) -> None:
    """Bit for bit, for drawn sizes and orders, on some drawn schedules, with drawn answers of the environment."""
    assert check(case, policy="random", schedules=3, order=order).violation is None


@pytest.mark.parametrize("order", ["sc", "fifo", "unordered"])
@pytest.mark.parametrize("what", [what for what in KvRetryCase.proofs() if "an abort, and" not in what])
def test_proved_under_other_orders(what: str, order: str) -> None:
    """Not under `relaxed` alone (`tests/cases/test_verified.py`)."""
    assert check(KvRetryCase.proofs()[what], order=order, seconds=60).verdict == VERIFIED


@pytest.mark.parametrize(
    "without",
    ["ask", "asked", "block before task", "done", "nothing under way", "part pulled", "row in", "room taken",
     "slots freed", "task", "task in"],
)  # fmt: skip
def test_what_it_needs_is_needed(without: str) -> None:
    """Without it a schedule shows what goes wrong, by a time-out or an abort."""
    assert check(replace(DIES, aborts=1), without=[without]).verdict == VIOLATION


def test_without_a_time_out_a_death_holds_up_the_receiver_for_ever() -> None:
    """The receiver would look again and again for a task of an instance that has died, and keep its slots."""
    verdict = check(DIES, without=["time-out"])
    assert verdict.violation is not None
    assert verdict.violation.kind == LIVELOCK


@dataclass(frozen=True)
class Returns(KvRetryCase):
    """The same, in which each core that is left must return, whoever stops."""

    def lay_out(self, bench: Bench) -> None:
        """Say that none may wait for ever."""
        super().lay_out(bench)
        bench.tolerates("stop", may_block=False)


def test_not_all_others_return_when_the_last_instance_stops() -> None:
    """Exhaustively; if another one stops they do, which the case declares (`test_detection`)."""
    held = check(Returns(mortal=0, layers=1), fault="stop:die1", policy="exhaustive", seconds=60)
    assert held.verdict == VIOLATION  # of the last instance no time-out passes


@pytest.mark.slow
@pytest.mark.parametrize("die", range(2))
@pytest.mark.parametrize("requests", [1, 2])
def test_where_all_have_time_outs_any_die_may_stop(requests: int, die: int) -> None:
    """Exhaustively, the only instance or decode: the other returns, and says which requests nobody served."""
    case = KvRetryCase(instances=1, requests=requests, layers=1, slots=1, timed=1)
    found = check(case, fault=f"stop:die{die}", policy="exhaustive")
    assert (found.verdict, found.recovery is None) == (VERIFIED, False)


def test_where_no_time_out_passes_all_is_served() -> None:
    """In every schedule the instance serves all, and neither waits in vain: so they do not give up always."""
    assert check(Planted(replace(mutants.SERVED, requests=2), mutants.IN_TIME)).verdict == VERIFIED


@pytest.mark.parametrize("die", range(4))
def test_one_of_three_instances_or_decode_stops(die: int) -> None:
    """Sampled, with two receivers: no core that is left waits for ever."""
    found = check(KvRetryCase(3, 2, requests=2, aborts=1, timed=1), fault=f"stop:die{die}", schedules=30)
    assert (found.violation, found.ended["blocked"]) == (None, 0)
    assert found.ended["right"] > 0


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"layers": 3}, "slots=2: must be at least 3, the parts of a request"),
        ({"instances": 1}, "mortal=1: must be 0 with one instance, for which no other could stand in"),
    ],
)
def test_sizes_that_could_never_go_on_are_refused(sizes: Mapping[str, int], says: str) -> None:
    """A request that has no room, and one that nobody is left to answer, would wait for ever."""
    with pytest.raises(ConfigError, match=says):
        KvRetryCase(**sizes)
