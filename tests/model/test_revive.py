"""A die that begins again, in the model, in brute force and under the monitor, on random programs."""

from collections import Counter
from dataclasses import replace

import pytest

from xccl_emu.check import verdict as kinds
from xccl_emu.check.faults import parse
from xccl_emu.check.sampling.sample import sample
from xccl_emu.check.search.every_fault import FaultySearch
from xccl_emu.check.trial import Expected, Judge
from xccl_emu.guards.campaign.programs import ORDERS, Small, program

from . import spec
from .compare import Limits
from .draw import draw
from .translate import Unknown, said

SMALL = Limits(model=3_000, brute=6_000)
RACES = (kinds.DATA_RACE, kinds.TORN_METADATA, kinds.UNWRITTEN_READ)


def compare(small: Small, order: str, die: int, limits: Limits) -> Counter[str]:
    """Assert that all come to the same, where a program is right unless a die begins again; count what was compared."""
    whole = said(small, order)
    if small.gives_up:
        return Counter()
    usual = spec.explore(whole, limits.model)
    race, complete = (None, True) if whole.lines else spec.find_race(whole, limits.model)
    if race or usual.errors or usual.deadlock or not (usual.complete and complete):
        return Counter()
    model = spec.explore(whole, limits.model, again=die)
    if not model.complete:
        return Counter()
    trial, fault = small.trial(order, None), parse(f"revive:die{die}")
    ranges, any_end = tuple(small.observed(trial.pod)), Judge("end", tuple(small.observed(trial.pod)), lambda *_: True)
    trial = replace(trial, expected=(Expected("end", ranges[0][0], b"", judge=any_end),))
    found = FaultySearch(trial, fault, max_states=limits.brute, seconds=limits.seconds).run()
    counted = Counter[str]()
    if found.reason:
        return counted
    assert bool(model.errors) == (found.actions is not None), (model.errors, found.actions)
    counted["errors"] += bool(model.errors)
    if found.actions is None:
        ends = {b"".join(end[first : first + size] for first, size in ranges) for end in model.outcomes}
        assert ends == set(any_end.accepted), (len(ends - {*any_end.accepted}), len({*any_end.accepted} - ends))
        assert model.deadlock == (" 0 blocked" not in found.ends)
        counted["ends"] += 1
        counted["other ends"] += model.outcomes != usual.outcomes
        counted["blocked"] += model.deadlock
        counted["caches"] += whole.lines > 0
    race, complete = (None, False) if whole.lines else spec.find_race(whole, limits.model, again=die)
    if complete:
        drawn = sample(small.trial(order, None), schedules=60, fault=fault)
        seen = drawn.violation is not None and drawn.violation.kind in RACES
        assert race or not seen, drawn.violation
        counted["races"] += race is not None
        counted["races seen"] += seen
    return counted


def agree(seed: int, first: int, programs: int, limits: Limits) -> Counter[str]:
    """Compare so many programs under each order, on die 0 or 1."""
    counted = Counter[str]()
    for number in range(first, first + programs):
        small = draw(seed, number)
        for order in ORDERS:
            try:
                counted += compare(small, order, number % min(small.n_dies, 2), limits)
            except Unknown:
                continue
    return counted


def test_ends_and_races_of_a_few_programs() -> None:
    """Ends, blocked runs and errors by brute force; and no race is drawn that the model does not have."""
    counted = agree(3, 0, 30, SMALL)
    assert counted["ends"] > 20
    assert counted["races seen"] > 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 8))
def test_ends_and_races(seed: int) -> None:
    """The same of more programs; most races are drawn."""
    counted = agree(seed, 0, 120, Limits())
    assert counted["ends"] > 50
    assert counted["other ends"] > 5
    assert counted["races seen"] > counted["races"] // 2


@pytest.mark.parametrize("order", ORDERS)
def test_what_a_word_from_before_tells(order: str) -> None:
    """Die 1 waits for two additions of die 0, which makes them again if it begins again: it hears of one as of two."""
    once = Small((program("add 1.4 1; quiet"), program("ge 1.4 2; load 1.4")), dies=2)
    assert spec.explore(said(once, order)).deadlock
    assert spec.explore(said(once, order), again=0).outcomes
