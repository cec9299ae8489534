"""Where docs/soundness.md says that a reduction and a feature do not meet: tests that notice when they begin to."""

from dataclasses import replace

import pytest

from tests.machine.support import small
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


def has_fields(small: Small) -> bool:
    """Return whether a granule of a program, which is right, was searched as a field."""
    setup = Setup(small.trial("relaxed", None), full=True)
    found = Search(setup, max_states=10_000, seconds=60, progress=None).run()
    assert found.complete, found.message or found.reason
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
