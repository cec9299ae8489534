"""Synchronizations of pull dispatch, expert and combine removed by name: a sampled schedule shows what goes wrong.

A search of a small configuration says whether one is needed (docs/records/synchronizations.md); these are larger.
"""

import pytest

from xccl_emu.check.sampling.sample import sample
from xccl_emu.check.verdict import DEADLOCK
from xccl_emu.protocol import Case
from xccl_emu.protocol.registry import make

NEEDED = (
    "tokens visible", "all cores have written", "rows visible", "counts loaded", "counts in", "rows in", "message made",
    "message left", "choices loaded", "copy half full", "contribution in", "sum made", "expert output left",
)  # fmt: skip
NEEDED_BY_DISPATCH = ("dispatch blocks free", "all rows pulled")
"""Its rounds alone are kept apart by nothing else."""
WAITS = {
    "counts": "counts in", "rows offered": "rows in",
    "dispatch ack": "dispatch blocks free", "combine ack": "combine blocks free",
}  # fmt: skip
"""The poll that waits for an announcement."""


def case(name: str, path: str) -> Case:
    """Three rounds of three ranks, with rows enough that a core comes back to each half of its data buffer."""
    return make(name, path=path, ranks=3, tokens=6, top_k=2, rounds=3, cores=2)


@pytest.mark.parametrize("path", ["mtu", "dma"])
@pytest.mark.parametrize(
    ("name", "sync"), [*(("moe", sync) for sync in NEEDED), *(("dispatch", sync) for sync in NEEDED_BY_DISPATCH)]
)
def test_without_it_a_schedule_goes_wrong(name: str, sync: str, path: str) -> None:
    """Without the synchronization one of a few schedules goes wrong."""
    assert sample(case(name, path).build("relaxed", [sync]), schedules=20).violation is not None


@pytest.mark.parametrize("path", ["mtu", "dma"])
@pytest.mark.parametrize("name", ["moe", "dispatch"])
def test_with_all_of_them_none_does(name: str, path: str) -> None:
    """The same schedules are right where nothing was removed."""
    assert sample(case(name, path).build("relaxed"), schedules=20).violation is None


@pytest.mark.parametrize("sync", WAITS)
def test_without_an_announcement_everybody_waits(sync: str) -> None:
    """A field or acknowledgement that is never written is a deadlock, naming the poll that waits."""
    found = sample(case("moe", "mtu").build("relaxed", [sync]), schedules=20).violation
    assert (found.kind, f"sync '{WAITS[sync]}'" in found.message) == (DEADLOCK, True)
