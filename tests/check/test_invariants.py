"""The layouts of machine, search and monitor say of their words what holds between actions; here it is asked.

The functions that take actions run as Python, with the JIT off, so that the arrays can be looked at after each.
"""

import re
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from numba import config

from tests.check.invariants import Ledger, of_machine, of_monitor, of_one_run, of_search
from tests.check.traps import NAMED
from tests.machine.support import small
from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.sampling.watch import Monitor
from xccl_emu.check.search import setup
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import linked, run_local
from xccl_emu.check.search.exhaustive import Search
from xccl_emu.guards.campaign.generate import draw
from xccl_emu.guards.campaign.programs import ORDERS, Small
from xccl_emu.machine.device import actions, single
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.policies import n_actors, nth_actor
from xccl_emu.machine.driver import begin

plainly = pytest.mark.skipif(not config.DISABLE_JIT, reason="looks at the arrays after each action of Python functions")
DRAWN = (*range(4), 27, 32, 87)
"""Numbers of drawn programs: together they cache, read tentatively, use barriers, DMA and fences, and signal."""
STEPS, STATES, WALK_STEPS = 60, 15, 30


def _programs() -> list[Small]:
    named = ("a barrier behind a quiet", "DMA that was waited for", "a fence before a barrier")
    late = small("out m1.0 0 0; set 3 0 0; fence; put 1.4 1; ge 1.5 1; wait 3 0 0 | ge 1.4 1; load m1.0; store 1.5 1")
    return [late, *(NAMED[name].small() for name in named), *(draw(44, number).small for number in DRAWN)]


@pytest.mark.nojit
@plainly
def test_of_the_machine() -> None:
    """After each action of random runs under every order, what the machine's layout says of its words holds."""
    ledger, rng = Ledger(), Random(44)
    for order in ORDERS:
        for program in _programs():
            pod = program.pod(order)
            begin(pod)
            mem, st = pod.memory, pod.state
            for _ in range(STEPS):
                actors = [nth_actor(st, a) for a in range(n_actors(st))]
                tried = [(actor, n) for actor in actors for n in range(actions.choices(st, actor))]
                rng.shuffle(tried)
                taken = any(single.act_once(mem, st, actor, actions.nth_choice(st, actor, n)) for actor, n in tried)
                ledger.take(of_machine(st))
                ledger.take(of_one_run(st))
                if not taken or st[ms.ERROR]:
                    break
    assert ledger.unseen() == []
    assert len(ledger.seen) >= 30


@pytest.mark.nojit
@plainly
def test_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each transition of every search, also one that was none, what the checker state's layout says holds.

    Walks are passed by: in the middle of one what is known of granules may change.
    """
    ledger, walks = Ledger(), False

    class Searched(Search):
        def _walk(self) -> None:
            nonlocal walks
            walks = True
            super()._walk()
            walks = False

    def watched(mem, st, ck, rows, named, process, n):  # type: ignore[no-untyped-def]
        done = run_local.make_transition(mem, st, ck, rows, named, process, n)
        if not walks and not run_local.over(ck):
            ledger.take(of_search(st, ck))
            ledger.take(of_machine(st, undone=True))
        return done

    monkeypatch.setitem(setup._LINKED, linked.TRANSITION, watched)
    for number, program in enumerate(_programs()):
        for order in ORDERS:
            made = setup.Setup(program.trial(order, None), full=number % 3 != 0, most=number % 3 == 1)
            if number % 2 == 0:
                made.explore_flags()  # so that what others answer shows a core what of its own is visible
            search = Searched(made, max_states=STATES, seconds=None, progress=None, breadth_first=number % 5 == 0)
            search.walk_steps, search.quiet_walks = WALK_STEPS, 1
            search.run()
    assert ledger.unseen() == []
    assert len(ledger.seen) >= 60


@pytest.mark.nojit
@plainly
def test_of_the_monitor() -> None:
    """After each action of sampled runs under every order, what the layout of the monitor says of its words holds."""
    ledger = Ledger()

    class Watched(Monitor):
        def _piece_of(self, function, *arguments):  # type: ignore[no-untyped-def]
            self._piece = 1
            code = super()._piece_of(function, *arguments)
            if code == ml.RUN_PAUSED and self._judged != ml.JUDGE_NOTHING:
                ledger.take(of_monitor(arguments[0]))
                Ledger().take(of_machine(self.trial.pod.state))
            return code

    for order in ORDERS:
        for program in _programs():
            if not program.spins:
                Watched(program.trial(order, None)).runs(ml.P_RANDOM, 44, 0, 1)
    assert ledger.unseen() == []
    assert len(ledger.seen) >= 20


@pytest.mark.parametrize(("layout", "first", "last"), [(ms, "N_CORES", "LOST_START"), (cs, "N", "SPARED"),
                                                       (ml, "GENERATION", "AHEAD_ROWS"), (ms, "KERNEL", "RACED"),
                                                       (cs, "VECTORS", "DMA_SNAPSHOTS")])  # fmt: skip
def test_each_word_has_its_sentence(layout: ModuleType, first: str, last: str) -> None:
    """From the first word of a header or block to the last, each line that names words says what they hold."""
    lines = Path(str(layout.__file__)).read_text("utf-8").splitlines()
    begun, end = (next(n for n, line in enumerate(lines) if re.match(rf" *{name}\b", line)) for name in (first, last))
    named = [line for line in lines[begun : end + 1] if re.match(r" *[A-Z][A-Z_0-9]*(, [A-Z_0-9]+)*( =|,  #|,$)", line)]
    assert len(named) >= 9
    assert [line for line in named if not re.search(r"  # \S+ \S+", line) and "_MOST = " not in line] == []
