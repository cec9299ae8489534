"""Shrinking: a program gets as small as what it shows allows."""

from tests.machine.support import small
from xccl_emu.guards.campaign.generate import NOTHING, SPOILED, ProgramCase
from xccl_emu.guards.campaign.run import shrunk

LONG = small(
    "store 1.0 5; quiet; put 1.4 3 2; ge 0.4 1; store 1.0 6 | ge 1.4 3; load_named 1.0; store 0.4 1 | "
    "quiet; dma 0.0 1.1 2", dies=3, memory={0: 2, 8: 1},
)  # fmt: skip


def names_of(case: ProgramCase) -> list[list[str]]:
    """Names of the instructions of each core."""
    return [[one.name for one in each] for each in case.small.programs]


def test_a_made_up_contradiction_is_shrunk_to_what_makes_it() -> None:
    """All that is left is a put on one core and a poll on another one, with the smallest operands."""

    def still(case: ProgramCase) -> bool:
        names = names_of(case)
        return any("put" in a and "ge" in b for a in names for b in names if a is not b)

    case = shrunk(ProgramCase(LONG, SPOILED, 77), still)
    assert case == ProgramCase(small("put 0.0 | ge 0.0"), NOTHING, 0)


def test_what_cannot_be_smaller_stays() -> None:
    """Nothing is changed if every step loses what is to be shown."""
    case = ProgramCase(LONG, SPOILED, 77)
    assert shrunk(case, lambda smaller: smaller == case) is case
