"""What shipped protocols do stays as it was recorded: memory, time, verdicts and the states of searches."""

import pytest

from tools.record import recorded, run_of, search_of
from xccl_emu.protocol.registry import names

RECORDED = recorded()


def test_every_protocol_is_recorded() -> None:
    """A protocol that comes or goes is in the table too."""
    assert set(RECORDED) == set(names())


@pytest.mark.parametrize("name", names())
def test_bytes_and_times_are_those_recorded(name: str) -> None:
    """Not a byte of any area differs, in turn and in virtual time, and not a fraction of a microsecond."""
    assert run_of(name) == RECORDED[name]["run"]


@pytest.mark.parametrize("name", names())
def test_verdicts_and_states_are_those_recorded(name: str) -> None:
    """A search comes to the same verdict over the same states."""
    assert search_of(name) == RECORDED[name]["search"]
