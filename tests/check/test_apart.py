"""Where docs/soundness.md says that a reduction and a feature do not meet: tests that notice when they begin to."""

from dataclasses import replace

import pytest

from tests.machine.support import small
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import granules
from xccl_emu.check.search.exhaustive import Search
from xccl_emu.check.search.setup import Setup
from xccl_emu.guards.campaign.programs import Small

FIELD = small("put 1.0 1 1; quiet | ge 1.0 1; load 1.1")
ADDED = small("put 1.0 1 1; add 1.0 1; quiet | ge 1.0 2; load 1.1")
COPIED = small("put 1.0 1 1; quiet | ge 1.0 1; dma 1.1 0.1; wait 4; in 1.0 8; quiet", flags=True)
BESIDE_A_SIGNAL = small("put 1.0 1 1; quiet; signal 0.0 | ge 1.0 1; load 1.1")
IN_A_UNIT = small("put 1.0 1 1; quiet | | ge 1.0 1; load 1.0", cores_per_die=2)
UNITS = (8, 16, 64, 128)
PULLED = small("store m0.0 5; quiet; arrive; await | arrive; await; in m0.0 8; quiet", cores_per_die=2)
TOLD = small("store m0.0 5; quiet; put 0.0 1 | ge 0.0 1; in m0.0 8; quiet", cores_per_die=2)


def searched(small: Small, order: str, most: bool = True) -> tuple[Setup, int]:
    """Search a program, which is right, and return the facts that the search went by, and the number of states."""
    setup = Setup(small.trial(order, None), full=True, most=most)
    found = Search(setup, max_states=10_000, seconds=60, progress=None).run()
    assert found.complete, found.message or found.reason
    return setup, found.states


def has_fields(small: Small) -> bool:
    """Return whether a granule was searched as a field."""
    setup, _ = searched(small, "relaxed")
    return granules.FIELD in setup.table()[:, granules.CLASS]


def test_what_is_a_field_else() -> None:
    """Without what the next test adds there is one."""
    assert has_fields(FIELD)


@pytest.mark.parametrize(
    "small",
    [ADDED, COPIED, BESIDE_A_SIGNAL, *(replace(IN_A_UNIT, atomic_bytes=nbytes) for nbytes in UNITS)],
    ids=["added to", "copied as flags", "beside a signal", *(f"units of {nbytes}" for nbytes in UNITS)],
)
def test_what_is_no_field(small: Small) -> None:
    """Beside additions, copies of flags, signals and units of other sizes nothing is searched as a field."""
    assert not has_fields(small)


@pytest.mark.parametrize("asks", [{}, {"store0": "no-order"}, {"store0": "strong"}], ids=["", "no order", "strong"])
@pytest.mark.parametrize("order", ["relaxed", "unordered"])
def test_in_which_order_writes_come_decides_of_no_read(order: str, asks: dict[str, str]) -> None:
    """Where barriers alone order, data are read early whatever writes ask for; beside a flag that is explored nowhere.

    Less reduced, the search has more states where a read is early, and as many where none is.
    """
    for case, told in ((replace(PULLED, asks=asks), False), (replace(TOLD, asks=asks | {"put0": "no-order"}), True)):
        setup, states = searched(case, order)
        early = states < searched(case, order, most=False)[1]
        assert early == (setup.checker[cs.EXPLORED] == 0) == (not told)
