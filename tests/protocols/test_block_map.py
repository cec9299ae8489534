"""A block of on-chip memory is lost, at any moment: requests without it are right, and no undefined byte is used."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.check.mutants import Of, Planted
from xccl_emu.check.check import check
from xccl_emu.check.faults import parse
from xccl_emu.check.sampling.sample import sample
from xccl_emu.check.verdict import UNDEFINED, VERIFIED
from xccl_emu.machine.state import ORDERS
from xccl_emu.protocols.serving.block_map import BlockMap

LOSS = "lose:die0:block"
of = Of("serving.block_map")
LOOK = "gone = yield xl.load(b.map + block * FIELD_BYTES"
READ = '        yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "blocks read", step=1)\n'

BUGS = {
    "nobody looks at the map": (of("lost = lost | gone", "lost = lost | gone * 0"),),
    "the map is looked at before the blocks are read": (
        of(READ, ""), of("        if lost == 0:\n", READ + "        if lost == 0:\n")),
    "only the first block is looked up": (of("lost = lost | gone", "lost = lost | gone * (k == 1)"),),
    "blocks are read plainly": (of("b.nbytes, tentative=1", "b.nbytes"),),
    "what was read is copied out all the same": (
        of("            yield xl.v_fill(0, size, step=4)", "            yield xl.mtu_out(0, b.out + r * size, size)\n"
           "            yield xl.quiet()\n            yield xl.v_fill(0, size, step=4)"),),
    "the map of another block": (of.at(LOOK, "+ block", "+ (block + 1) % 3"),),
    "what was read is not dropped": (of("xl.v_fill(0, size, step=4)", "xl.v_fill(0, 4)"),),
}  # fmt: skip
"""What is wrong, and how it is planted."""


@settings(max_examples=15, deadline=None)
@given(*(st.integers(1, most) for most in (5, 3, 5, 3, 3)), st.integers(0, 9), st.sampled_from(ORDERS))
def test_requests_without_the_block_are_right(
    requests: int, each: int, blocks: int, cores: int, granules: int, seed: int, order: str
) -> None:
    """For drawn sizes and orders, the block lost at a drawn moment, on some drawn schedules."""
    case = BlockMap(requests, each, max(each, blocks), min(cores, requests), granules=granules, seed=seed)
    assert check(case, policy="random", schedules=5, order=order, fault=LOSS).violation is None


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("what", ["one core", "two cores"])
def test_lost_at_every_moment(what: str, order: str) -> None:
    """Every schedule, by brute force: the others' bytes are right, and nobody uses what nobody can say."""
    found = check(BlockMap.proofs()[what], order=order, fault=LOSS, policy="exhaustive", seconds=60)
    assert (found.verdict, "0 blocked" in found.reason) == (VERIFIED, True)


@pytest.mark.parametrize("name", BUGS)
def test_bugs_show_where_a_block_is_lost(name: str) -> None:
    """Planted, each is refuted by every judge, and the schedule replays; without a loss some are right."""
    planted = Planted(BlockMap(requests=3, blocks=3), BUGS[name])
    found = check(planted, fault=LOSS, policy="exhaustive", seconds=60)
    drawn = check(planted, fault=LOSS, schedules=600)
    assert [each.violation is not None and each.violation.kind for each in (found, drawn)] == [UNDEFINED] * 2


def test_a_request_says_how_it_ended() -> None:
    """Before anything is read it is lost for all that have it; the others end right."""
    trial = BlockMap(requests=3).build("relaxed")
    assert sample(trial, schedules=40, fault=parse(f"{LOSS}@0", trial.pod.spec)).violation is None
    last = BlockMap(requests=3).build("sc")
    last.pod.run()
    ended = next(each for each in last.labels if each.name == "die0.ended")
    assert last.pod.span(ended.address, 24).view(np.int64).tolist() == [1, 1, 1]


def test_nothing_is_lost_that_has_no_name() -> None:
    """Where nothing may be lost all bytes are expected, and the fault is refused by its name."""
    with pytest.raises(Exception, match="'block' is nothing that die0 may lose: must be one of app, meta, managed"):
        check(replace(BlockMap(), loses=0), fault=LOSS)
