"""Limits of machine and search: each has a row, which the message that a user sees and the how-to say."""

from pathlib import Path

import pytest

from tests.machine.support import small
from xccl_emu.check.search import limits
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.exhaustive import Found, Search
from xccl_emu.check.search.setup import Setup
from xccl_emu.machine import limits as of_machine
from xccl_emu.machine.device.layout import QUEUE_DEPTH


def test_each_limit_has_a_row() -> None:
    """Every `LIMIT_*` of the checker state has what, cause and remedy, each of them in words of its own."""
    numbers = {value for name, value in vars(cs).items() if name.startswith("LIMIT_")}
    assert numbers == {*limits.LIMITS}
    rows = (*of_machine.LIMITS, limits.CORES, limits.GRANULES, *limits.LIMITS.values())
    for words in ([row.what for row in rows], [row.cause for row in rows], [row.remedy for row in rows]):
        assert all(words)
        assert len({*words}) == len(rows)


def test_the_how_to_has_the_rows(repository: Path) -> None:
    """Its table of limits is made of the rows."""
    page = (repository / "docs" / "how-to.md").read_text("utf-8")
    table = page.partition("| limit | at most | most often | what helps |\n|---|---|---|---|\n")[2].partition("\n\n")[0]
    rows = (*of_machine.LIMITS, limits.CORES, limits.GRANULES, *limits.LIMITS.values())
    assert table.splitlines() == [f"| {row.what} | {row.most} | {row.cause} | {row.remedy} |" for row in rows]


@pytest.mark.nojit
@pytest.mark.parametrize(
    ("text", "more", "limit", "where", "most"),
    [
        ("store 1.4 1; store 1.5 1; store 1.6 1 | ge 1.6 1", {"flight_granules": 2}, cs.LIMIT_FLIGHT, "die 0", 2),
        ("store 1.4 1; dcci 1.4", {"scalar_cache": 1, "dies": 2}, cs.LIMIT_CACHE, "die 0 core 0, kernel ", 1),
    ],
)
def test_a_message_says_whose_and_how_many(text: str, more: dict[str, int], limit: int, where: str, most: int) -> None:
    """A search that meets a limit names the kernel or die, the number, the usual cause and the remedy."""
    made = Setup(small(text, **more).trial("relaxed", None), full=False)
    reason = Search(made, max_states=200, seconds=None, progress=None).run().reason
    row = limits.LIMITS[limit]
    assert reason.startswith(where)
    assert reason.endswith(f": {row.what} (at most {most}). Most often {row.cause}; {row.remedy}")


ACKNOWLEDGED = "store 1.4 1; ge 0.4 1; store 1.5 7 | ge 1.4 1; in 1.4 0 2; {}store 0.4 1"
SENT = "out m1.0 0 3; {}store 1.4 7 | ge 1.4 7; in m1.0 8 3"
NEXT_TO = "put m1.0 1; {}store m1.1 2 | load_named m1.0"
SEEN = "put 1.0 1; {}store 1.4 2 | load_named 1.4; load_named 1.0"


def _found(text: str, order: str, reduced: dict[str, bool]) -> Found:
    made = Setup(small(text, dies=2, memory={0o50: 1}).trial(order, None), **reduced)
    return Search(made, max_states=5000, seconds=None, progress=None).run()


FULL, LESS, MERGED = {"full": True}, {"full": True, "most": False}, {"full": False}


@pytest.mark.nojit
@pytest.mark.parametrize(
    ("text", "more", "order", "reduced"),
    [
        *((ACKNOWLEDGED, "in m1.0 8 0; ", "relaxed", reduced) for reduced in (FULL, LESS, MERGED)),
        (SENT, "put 0.0 1; ", "sc", MERGED),
        *((NEXT_TO, "put 0.0 1; ", order, FULL) for order in ("sc", "relaxed")),
        (SEEN, "put 0.0 1; ", "sc", MERGED),
    ],
)
def test_depth_proves_nothing(text: str, more: str, order: str, reduced: dict[str, bool]) -> None:
    """What a full queue alone orders leaves no proof; with one instruction fewer the search has both orders."""
    assert limits.LIMITS[cs.LIMIT_QUEUE].what in _found(text.format(QUEUE_DEPTH * more), order, reduced).reason
    assert not _found(text.format((QUEUE_DEPTH - 1) * more), order, reduced).reason


@pytest.mark.nojit
def test_a_write_that_is_awaited_is_ordered_whatever_the_depth() -> None:
    """An event after the write that waited for a place orders it, so there is a proof."""
    awaited = NEXT_TO.format(QUEUE_DEPTH * "put 0.0 1; " + "set 3 0 1; wait 3 0 1; ")
    assert _found(awaited, "sc", FULL).complete
