"""What states can come to, by the graph of all runs: from the start it is what brute force finds."""

from dataclasses import replace

import numpy as np
import pytest

from tests.machine.support import ORDERS, small
from xccl_emu.guards.campaign.generate import draw
from xccl_emu.machine.ends import DEADLOCK, FOR_EVER, Ends, ends
from xccl_emu.machine.explore import changing
from xccl_emu.machine.pod import Pod


def of_start(pod: Pod, observe: list[tuple[int, int]], most: int = 20_000) -> Ends | None:
    """Ends of a pod from where it begins."""
    return ends(pod, np.zeros((0, int(changing(pod)[:, 2].sum())), np.uint64), observe, most)


@pytest.mark.parametrize("order", ORDERS)
def test_ends_of_the_start_are_those_of_brute_force(order: str) -> None:
    """Outcomes, deadlocks and errors of drawn programs are the same, and as many states lead there."""
    compared = 0
    for number in range(60):
        program = replace(draw(3, number).small, gives_up=())  # `ends` knows no codes that are declared
        naive = program.naive(order, 2_000)
        if not naive.complete:
            continue
        pod = program.pod(order)
        found = of_start(pod, program.observed(pod))
        assert found is not None
        names = set(found.of(found.sets[0])) - {FOR_EVER}
        plain = {name for name in names if name.startswith("words ")}
        assert found.states == naive.states
        assert len(plain) == len(naive.outcomes)
        assert (DEADLOCK in names) == (naive.deadlocks > 0)
        assert names - plain - {DEADLOCK} == naive.errors
        compared += 1
    assert compared > 20


def test_what_never_ends_is_an_end() -> None:
    """A core that looks for a flag that never comes goes on for ever; where the flag may come that is no end."""
    for text, names in (("spin 0.0 1", [FOR_EVER]), ("spin 0.0 1 | store 0.0 1", ["words 0: 1"])):
        program = small(text)
        pod = program.pod("relaxed")
        found = of_start(pod, program.observed(pod))
        assert found is not None
        assert found.of(found.sets[0]) == names


def test_too_many_states_are_refused() -> None:
    """With less room than the graph takes nothing is said of it."""
    program = small("put 0.0 1; put 0.4 1 | put 0.0 2")
    assert of_start(program.pod("relaxed"), [], 3) is None
