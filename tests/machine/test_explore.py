"""The brute-force search finds every run: it equals a search in plain Python that compares whole states, not
fingerprints."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import AccessError, CapacityError, ConfigError, DeadlockError
from xccl_emu.lang import (
    FP32,
    add,
    atomic_add,
    dma,
    kernel,
    load,
    maps,
    mtu_in,
    mtu_out,
    poll_eq,
    put,
    store,
    v_map,
    wait_flag,
)
from xccl_emu.lang.abi import RESULT
from xccl_emu.lang.requests import DMA, SCALAR
from xccl_emu.machine import driver
from xccl_emu.machine import explore as explore_module
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.driver import begin
from xccl_emu.machine.explore import Bounds, explore
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384

from .support import ORDERS, tiny_pod


@kernel
def worker(program, base, other):
    """Up to eight operations of 5 bits: kind (3) and place (2); ends when all its events are consumed."""
    events = 0
    seen = 0
    while program > 0:
        kind = program & 7
        place = base + 32 * (program >> 3 & 3)
        program = program >> 5
        if kind == 1:
            yield store(place, 1 + (other >> 5) % 7)
        elif kind == 2:
            yield put(place + 0, 5, 6)
        elif kind == 3:
            yield add(place, 1)
        elif kind == 4:
            yield mtu_in(place, 0, 32)
        elif kind == 5:
            yield mtu_out(0, place, 32)
        elif kind == 6:
            yield dma(place, other, 8, events)
            events += 1
        else:
            word = yield load(place)
            seen = seen * 8 + word
    for i in range(events):
        yield wait_flag(DMA, SCALAR, i)
    return seen


@kernel
def lock(first, second, times):
    """Take two locks one after the other; in opposite orders two of these can block each other."""
    for _ in range(times):
        old = 1
        while old != 0:
            old = yield atomic_add(first, 1)
            if old != 0:
                yield atomic_add(first, -1)
                yield poll_eq(first, 0)
        yield poll_eq(second, 0)
        yield atomic_add(first, -1)


def launch_lock(pod: Pod, die: int, first: int, second: int) -> None:
    """A core that takes two locks."""
    pod.launch(lock, die, [0], {"first": first, "second": second, "times": 1}, [pod.grant_meta("rw")])


@kernel
def maybe_bad(flag, me):
    """Whoever reads the flag as set by the other makes a bad access."""
    yield store(flag + 8 * me, 1)
    other = yield load(flag + 8 - 8 * me)
    if other == 1:
        yield load(-8)


def launched(order: str, programs: tuple[int, ...], **options: object) -> Pod:
    """Two cores on two dies with a program each."""
    pod = tiny_pod(2, order, **options)
    for die, program in enumerate(programs):
        args = {"program": program, "base": pod.meta(0), "other": pod.meta(0, 160 + 32 * die)}
        pod.launch(worker, die, [0], args, [pod.grant_meta("rw")])
    return pod


def run(pod: Pod) -> tuple[int, ...]:
    """What the cores return."""
    launches = [pod.launch_of(core) for core in pod.active_cores()]
    pod.run()
    return tuple(launch.results[0] for launch in launches)


def _key(pod: Pod) -> bytes:
    """All of memory and of the state that is no counter, byte for byte; equal states may have different keys."""
    st = pod.state.copy()
    st[ms.ACTIVE_BASE : ms.ERROR] = 0
    st[ms.ACTIONS : ms.STEP_TABLE] = 0
    writers = int(pod.state[ms.WRITER_BASE])
    st[writers : writers + int(pod.state[ms.WRITER_SLOTS]) * ms.WRITER_WORDS] = 0
    return pod.memory.tobytes() + st.tobytes()


def _actions(pod: Pod) -> list[int]:
    """Every action that could exist in so small a pod."""
    cores = [c * ms.ACTORS_PER_CORE + pipe for c in pod.active_cores() for pipe in range(ms.ACTORS_PER_CORE)]
    dies = [pod.spec.n_cores * ms.ACTORS_PER_CORE + die for die in range(pod.spec.n_dies)]
    return [actor << ms.CHOICE_BITS | choice for actor in cores + dies for choice in range(8)]


def outcomes_by_whole_states(pod: Pod, word: int, limit: int) -> set[tuple[int, ...]] | None:
    """Outcomes found by a search that keeps whole states; None if there are more than the limit."""
    begin(pod)
    replay, ends = driver.policy("replay"), set[tuple[int, ...]]()
    start = pod.snapshot()
    seen, stack = {_key(pod)}, [start]
    while stack:
        state = stack.pop()
        if state.state[ms.N_LIVE] == 0:
            ends.add((int(state.memory.view(np.int64)[word // 8]), *_results(pod, state.state)))
            continue
        for action in _actions(pod):
            pod.restore(state)
            pod.state[ms.CURSOR] = 0
            replay(pod.memory, pod.state, np.array([action, -1 << ms.CHOICE_BITS], np.int64), 1)
            if pod.state[ms.CURSOR] == 1 and (key := _key(pod)) not in seen:
                seen.add(key)
                stack.append(pod.snapshot())
        if len(seen) > limit:
            return None
    return ends


def _results(pod: Pod, state: np.ndarray) -> list[int]:
    return [int(state[pod.core_base(core) + RESULT]) for core in pod.active_cores()]


one_op = st.tuples(st.integers(1, 7), st.integers(0, 1)).map(lambda op: op[0] | op[1] << 3)
program = st.lists(one_op, min_size=1, max_size=3).map(lambda ops: sum(op << 5 * i for i, op in enumerate(ops)))


@settings(max_examples=12)
@given(st.tuples(program, program), st.sampled_from(ORDERS))
def test_fingerprints_lose_no_outcome(programs: tuple[int, ...], order: str) -> None:
    """The search by fingerprints of canonical states ends as the one that compares whole states."""
    pod = launched(order, programs)
    observed = pod.meta(0)
    found = explore(pod, [(observed, 8)])
    exact = outcomes_by_whole_states(launched(order, programs), observed, 700)
    assert found.complete
    assert exact is None or found.outcomes == exact


@pytest.mark.nojit
@pytest.mark.parametrize("order", ORDERS)
def test_exploring_leaves_the_pod_as_it_was(order: str) -> None:
    """Explored twice, a pod gives the same answer, and it still runs to one of the outcomes."""
    pod = launched(order, (1 | 7 << 5, 2 | 7 << 5))
    first = explore(pod, [(pod.meta(0), 8)])
    assert explore(pod, [(pod.meta(0), 8)]) == first
    assert first.bounds == Bounds(
        subtransfers=62, queue_depth=8, dma_descriptors=8, flight_granules=0 if order == "sc" else 8
    )
    results = run(pod)
    word = int(pod.memory[pod.meta(0) :][:8].view(np.int64)[0])
    assert (word, *results) in first.outcomes


@pytest.mark.parametrize("seed", range(20))
def test_sampled_runs_end_in_explored_outcomes(seed: int) -> None:
    """Whatever a random run ends with was found by the search."""
    programs = (1 | 4 << 5 | 13 << 10 | 7 << 15, 2 | 15 << 5 | 3 << 10)
    found = explore(launched("relaxed", programs), [(0, 0)])
    assert len(found.outcomes) > 1
    assert run(launched("relaxed", programs, policy="random", seed=seed)) in found.outcomes


def test_deadlocks_are_counted_and_other_runs_go_on() -> None:
    """Two cores that take two locks in opposite orders can block each other, and can also both finish."""
    pod = tiny_pod(2)
    locks = [pod.meta(0), pod.meta(0, 32)]
    for die in range(2):
        launch_lock(pod, die, locks[die], locks[1 - die])
    found = explore(pod, [(locks[0], 40)])
    assert found.deadlocks == 1
    assert found.outcomes == {(0, 0, 0, 0, 0, 0, 0)}


def test_violations_are_reported_and_not_gone_beyond() -> None:
    """A bad access that only some schedules reach is found, with its place; the others end well."""
    pod = tiny_pod(2)
    for die in range(2):
        pod.launch(maybe_bad, die, [0], {"flag": pod.meta(0), "me": die}, [pod.grant_meta("rw")])
    found = explore(pod)
    assert len(found.errors) == 2
    assert all("kernel maybe_bad" in text and "is not permitted" in text for text in found.errors)
    assert {text[:5] for text in found.errors} == {"die 0", "die 1"}
    assert found.complete


def test_a_limit_of_states_makes_the_search_incomplete() -> None:
    """A search that meets its limit says so, and has then found no outcome that a whole one lacks."""
    programs = (1 | 10 << 5 | 7 << 10, 2 | 9 << 5 | 15 << 10)
    whole = explore(launched("relaxed", programs))
    part = explore(launched("relaxed", programs), max_states=whole.states // 2)
    assert whole.complete
    assert not part.complete
    assert part.states < whole.states
    assert part.outcomes <= whole.outcomes
    assert explore(launched("relaxed", programs), max_states=whole.states) == whole


def test_a_state_with_more_choices_than_rows_is_explored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows for outcomes and errors grow with what one state can have: the search ends, with the same answer."""
    whole = explore(launched("relaxed", (1 | 7 << 5, 2 | 7 << 5)))
    monkeypatch.setattr(explore_module, "_ROWS", 1)
    assert explore(launched("relaxed", (1 | 7 << 5, 2 | 7 << 5))) == whole


def test_what_cannot_be_explored_is_refused() -> None:
    """Ranges that are no whole words, pods too large to copy, of generators, and that failed are errors."""
    with pytest.raises(ConfigError, match="the locals of plain generators are not in the state"):
        explore(tiny_pod(1, generators=True))
    pod = launched("sc", (1, 1))
    for bad in ((4, 8), (0, 4), (-8, 8), (pod.memory.nbytes, 8), (1 << 62, 8)):
        with pytest.raises(ConfigError, match="multiples of 8"):
            explore(pod, [bad])
    with pytest.raises(CapacityError, match="take a smaller one"):
        explore(Pod(CLOUDMATRIX384))
    stuck = tiny_pod(1)
    launch_lock(stuck, 0, stuck.meta(0), stuck.meta(0))
    with pytest.raises(DeadlockError):
        stuck.run()
    with pytest.raises(ConfigError, match="call clear"):
        explore(stuck)


def test_a_search_stops_at_a_limit_of_time_or_memory() -> None:
    """It is incomplete then, and with room enough it is the same search in whatever slices."""
    programs = (1 | 7 << 5 | 6 << 10, 2 | 7 << 5 | 4 << 10 | 9 << 15)
    whole = explore(launched("relaxed", programs))
    assert whole.complete
    assert not explore(launched("relaxed", programs), seconds=0.0).complete
    assert not explore(launched("relaxed", programs), max_bytes=1 << 16).complete
    assert explore(launched("relaxed", programs), seconds=600.0, max_bytes=1 << 30) == whole


@kernel
def overlap(word, function):
    """Map elements to where they are read, shifted by one, while a put is under way."""
    yield put(word, 0, 5)
    yield v_map(0, 4, 8, function)


@pytest.mark.parametrize("function", [0, maps.function("add", FP32), 1 << 20])
def test_brute_force_says_what_a_run_says_of_a_bad_function(function: int) -> None:
    """The message is made of the error's own words: the search has put the core's request back by then."""
    pod = tiny_pod(1, "relaxed")
    pod.launch(overlap, 0, [0], {"word": pod.meta(0), "function": function}, [pod.grant_meta("rw")])
    found = explore(pod)
    with pytest.raises(AccessError) as error:
        pod.run()
    assert found.errors == {str(error.value)}
