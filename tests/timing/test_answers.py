"""What the environment answers in virtual time, and under round-robin: 0, a timer, or what is drawn."""

import pytest

from xccl_emu.base.errors import ConfigError
from xccl_emu.lang import choose, kernel, load, store
from xccl_emu.machine import Pod, small_pod
from xccl_emu.timing.run import VirtualTime

SPEC = small_pod(2, app_bytes=64, meta_bytes=64, managed_bytes=0)
TIME_OUT = "time-out"


@kernel
def wait_or_give_up(flag, rounds):
    """Wait for a flag until the time is up, so many times; how often it was up."""
    up = 0
    for i in range(rounds):
        seen = 0
        while seen == 0:
            seen = yield load(flag, sync="flag")
            if seen == 0:
                seen = yield choose(2, of=i, sync="time-out")
                up += seen
    return up


@kernel
def say(flag):
    """Set a flag."""
    yield store(flag, 1, sync="said")


@kernel
def ask(n, times):
    """The sum of some answers."""
    total = 0
    for _ in range(times):
        answer = yield choose(n)
        total += answer
    return total


def waited(say_at_us: float, rounds: int = 1, **options: object) -> tuple[int, float]:
    """How often the time was up, and until when it was waited, with a flag that is set at a time."""
    clock = VirtualTime(start_us={0: say_at_us}, **options)  # type: ignore[arg-type]
    pod = Pod(SPEC, policy=clock)
    grants = [pod.grant_meta("rw", 1)]
    pod.launch(say, 0, [0], {"flag": pod.meta(1)}, grants)
    waiting = pod.launch(wait_or_give_up, 1, [0], {"flag": pod.meta(1), "rounds": rounds}, grants)
    pod.run()
    return waiting.results[0], clock.timing.by_die_us[1]


def test_without_a_timer_time_is_never_up() -> None:
    """Who waits with a time-out that nobody has set waits as long as it takes."""
    up, until_us = waited(20.0)
    assert (up, until_us > 20.0) == (0, True)


def test_a_timer_is_up_after_its_time() -> None:
    """Who waits gives up when its time is up, within a round of its loop, and not if the flag is there before."""
    up, until_us = waited(20.0, timers_us={TIME_OUT: 5.0})
    assert up == 1
    assert 5.0 <= until_us < 6.0
    assert waited(3.0, timers_us={TIME_OUT: 5.0})[0] == 0


def test_a_timer_begins_anew_for_each_thing_that_is_asked_for() -> None:
    """Three waits of 5 us each are over after 15."""
    up, until_us = waited(40.0, rounds=3, timers_us={TIME_OUT: 5.0})
    assert up == 3
    assert 15.0 <= until_us < 17.0


@pytest.mark.parametrize(
    ("timers_us", "text"),
    [({"flag": 1.0}, "no kernel of the run has a choose"), ({TIME_OUT: 0.0}, "above 0"), ({TIME_OUT: -1.0}, "above 0"),
     ({TIME_OUT: float("nan")}, "above 0"), ({TIME_OUT: float("inf")}, "above 0")],
)  # fmt: skip
def test_timers_that_cannot_be(timers_us: dict[str, float], text: str) -> None:
    """A timer that nobody asks, and one of no time, are refused."""
    with pytest.raises(ConfigError, match=text):
        waited(1.0, timers_us=timers_us)


@pytest.mark.nojit
@pytest.mark.parametrize("timed", [False, True])
def test_answers_are_drawn_where_that_is_wanted(timed: bool) -> None:
    """Round-robin and virtual time answer 0; with `draw_answers` by the seed, the same each time, and all of them."""
    drawn = set()
    for seed in (1, 1, 2, 3):
        for draws in (False, True):
            policy = VirtualTime() if timed else "round-robin"
            pod = Pod(SPEC, policy=policy, seed=seed, draw_answers=draws)
            launch = pod.launch(ask, 0, [0], {"n": 5, "times": 400}, [])
            pod.run()
            if draws:
                assert 600 < launch.results[0] < 1000
                drawn.add((seed, launch.results[0]))
            else:
                assert launch.results == [0]
    assert len(drawn) == 3


def test_a_drawn_answer_is_in_the_schedule() -> None:
    """A run under round-robin with drawn answers is replayed with the same answers, on a pod that draws none."""
    pod = Pod(SPEC, seed=4, draw_answers=True, record=True)
    launch = pod.launch(ask, 0, [0], {"n": 5, "times": 40}, [])
    pod.run()
    again = Pod(SPEC)
    replayed = again.launch(ask, 0, [0], {"n": 5, "times": 40}, [])
    again.replay(pod.schedule)
    assert replayed.results == launch.results != [0]
