"""KV caches arrive whole with whom they belong to, by every path; and which rank each decode rank pulls from."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.cli_support import as_json, refusal
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import DEADLOCK, VERIFIED, VIOLATION
from xccl_emu.machine.state import ORDERS
from xccl_emu.protocol.case import reached_syncs
from xccl_emu.protocols.serving.kv.case import KvCase
from xccl_emu.protocols.serving.kv.session import InstancePair, balanced


@st.composite
def cases(draw: st.DrawFn) -> KvCase:
    """Transfers of any shape that fit their pools and slots."""
    blocks, layers, tp, decode = (draw(st.integers(1, n)) for n in (3, 2, 3, 3))
    least, path = blocks * -(-decode // tp), draw(st.sampled_from(["mtu", "dma", "push", "sendrecv"]))
    return KvCase(
        prefill=draw(st.integers(1, 2)), tp=tp, decode=decode, blocks=blocks, requests=draw(st.integers(1, 4)),
        layers=layers, pool=draw(st.integers(least, 9)), slots=draw(st.integers(blocks * layers, 8)), quota=blocks,
        tasks=draw(st.integers(1, 3)), cores=1 if path == "sendrecv" else draw(st.integers(1, 3)),
        shared=draw(st.integers(0, 1)), path=path, granules=draw(st.integers(1, 3)), piece=draw(st.integers(1, 2)),
        ring=draw(st.integers(1, 3)), seed=draw(st.integers(0, 99)),
    )  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(cases(), st.sampled_from(ORDERS))
def test_caches_of_any_shape_arrive(case: KvCase, order: str) -> None:
    """Bit for bit with the right die, for drawn sizes and orders, on some drawn schedules."""
    assert check(case, policy="random", schedules=2, order=order).violation is None


@pytest.mark.parametrize("order", ["unordered", "sc"])
@pytest.mark.parametrize("what", KvCase.proofs())
def test_every_path_is_verified_under_other_orders(what: str, order: str) -> None:
    """Not under `relaxed` alone (`tests/cases/test_verified.py`): an older count or task never takes the place of a
    newer one."""
    assert check(KvCase.proofs()[what], order=order, seconds=60).verdict == VERIFIED


PULL, PUSH = {"blocks": 3, "pool": 4, "slots": 4, "tasks": 1}, {"path": "push", "blocks": 3, "slots": 4}
SHARED = {"shared": 1, "decode": 2, "requests": 2, "blocks": 1, "pool": 2, "slots": 1}
SURPLUS = {
    "room": "the compare-and-swap decides; the poll says when to look again",
    "place free": "all blocks of a task fit the data buffer, and a quiet or event ends it",
}
"""Synchronizations that a configuration may do without, and why."""


@pytest.mark.parametrize(
    ("sizes", "surplus"),
    [
        pytest.param(PULL, {"room"}, id="pull", marks=pytest.mark.slow),
        pytest.param({**PULL, "cores": 2, "requests": 2}, {"room"}, id="two cores", marks=pytest.mark.slow),
        pytest.param({"path": "dma", "slots": 2}, {"place free", "room"}, id="dma", marks=pytest.mark.slow),
        pytest.param(PUSH, {"room"}, id="push"),
        pytest.param(SHARED, {"place free", "room"}, id="shared", marks=pytest.mark.slow),
    ],
)
def test_what_it_needs_is_needed(sizes: Mapping[str, int | str], surplus: set[str]) -> None:
    """Without any other synchronization that it comes to a schedule shows what goes wrong."""
    case = KvCase(**sizes)
    assert check(case).verdict == VERIFIED
    found = {name: check(case, without=[name], seconds=60).verdict for name in reached_syncs(case, "relaxed")}
    assert {name for name, verdict in found.items() if verdict != VIOLATION} == surplus <= SURPLUS.keys()


STOPPED = {"decode": 2, "stopped": 1, "requests": 1, "blocks": 2, "pool": 2, "slots": 2}


def test_a_decode_die_that_stands_holds_up_its_own_pair_alone() -> None:
    """With a pool for each pair, or a quota in a shared one, the other decode die gets all; with neither it may wait
    for ever for blocks that nobody pulls."""
    assert check(KvCase(**STOPPED)).verdict == VERIFIED
    assert check(KvCase(**{**STOPPED, "requests": 2, "pool": 4, "shared": 1, "quota": 2})).verdict == VERIFIED
    verdict = check(KvCase(**STOPPED, shared=1))
    assert verdict.violation is not None
    assert verdict.violation.kind == DEADLOCK
    assert "kernel decode" in verdict.violation.message


@dataclass(frozen=True)
class Circle(KvCase):
    """Two instances and two decode dies that stream by parts, with pools that any pair may use up."""

    def _refuse_circles(self) -> None:
        """Let it pass."""


def test_shared_pools_and_slots_that_are_held_make_a_circle() -> None:
    """Each decode die holds all its slots for one instance, whose pool is full of blocks for the other: refuted, and
    refused by the case; with a pool for each pair, or whole caches in one task, it is verified."""
    sizes = {"prefill": 2, "decode": 2, "requests": 1, "blocks": 1, "layers": 2, "pool": 1, "slots": 2}
    verdict = check(Circle(**sizes, shared=1), seconds=60)
    assert verdict.violation is not None
    assert verdict.violation.kind == DEADLOCK
    assert "12 of 12 cores are blocked" in verdict.violation.message
    with pytest.raises(ConfigError, match="pool=1: must be at least 2, a part for each decode die, with several parts"):
        KvCase(**sizes, shared=1)
    with pytest.raises(ConfigError, match="quota=2: must be 1 to 1 with several parts"):
        KvCase(**{**sizes, "pool": 2, "quota": 2}, shared=1)
    assert check(KvCase(**sizes)).verdict == VERIFIED
    assert check(KvCase(**{**sizes, "layers": 1, "slots": 1}, shared=1)).verdict == VERIFIED


@pytest.mark.parametrize("fault", ["stop:die0", "stop:die2", "cut:0-1", "cut:2-0", "stall:0-2"])
def test_no_fault_makes_it_take_wrong_bits_for_right(fault: str) -> None:
    """Exhaustively: a decode step that ends has the right cache, whoever else has stopped."""
    case = KvCase(decode=2, requests=1, blocks=2, slots=2)
    assert check(case, fault=fault, policy="exhaustive", seconds=60).violation is None


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"blocks": 4}, "pool=3: must be at least 4, the blocks of a part"),
        ({"blocks": 2, "layers": 2}, "slots=3: must be at least 4, the blocks of a request, which are taken at once"),
        ({"quota": 1}, "quota=1: must be at least 2, the blocks of a part"),
        ({"path": "push", "stopped": 1}, "stopped=1: must be 0 with path='push'"),
        ({"path": "sendrecv", "cores": 2}, "cores=2: must be 1 with path='sendrecv'"),
        ({"pool": 63}, "pool=63: must be at most 62"),
    ],
)
def test_sizes_that_could_never_go_on_are_refused(sizes: Mapping[str, int | str], says: str) -> None:
    """A request that no pool or decode die has room for would wait for ever."""
    with pytest.raises(ConfigError, match=says):
        KvCase(**sizes)


def test_on_the_whole_pod_ranks_are_halved() -> None:
    """Half are of a prefill instance, half decode; each pair's caches are held against what was drawn for it."""
    found = as_json("run", "kv", "--ranks", "6", "--layers", "2", "--granules", "3", "--slots", "2")
    assert (found["wrong"], found["facts"]) == (0, {"pairs": 3, "nbytes": 2 * 3 * 32})
    by_ring = as_json("run", "kv-sendrecv", "--ranks", "6", "--layers", "2", "--granules", "3", "--slots", "2")
    assert (by_ring["wrong"], by_ring["facts"]) == (0, found["facts"])
    assert (found["configuration"]["tp"], found["configuration"]["decode"]) == (3, 3)
    for sizes in (("--ranks", "3"), ("--ranks", "4", "--decode", "3")):
        told = refusal("run", "kv", *sizes)
        assert f"--ranks {sizes[1]}: must be an even number, and cannot be combined with" in told
    assert "--stopped 1: must be 0 on the whole pod" in refusal("run", "kv", "--stopped", "1")


# ---- the mapping


def as_printed(shape: InstancePair, dp: int, tp: int) -> int:
    """The rank by the equations of the paper in whole numbers: ratio, group size, group, rank.

    Raises ConfigError where they divide by zero, name no rank, or the ratio is not whole: all ranks of a shape have one
    where ``decode_tp`` divides ``prefill_tp``, and the ratio divides ``decode_dp``.
    """
    shape.check(dp, tp)
    ratio, rest = divmod(shape.prefill_tp, shape.decode_tp)
    if rest or ratio == 0:
        raise ConfigError(
            f"prefill_tp={shape.prefill_tp}: must be a multiple of decode_tp={shape.decode_tp}, else the ratio is none"
        )
    group_size = shape.decode_dp // ratio
    if group_size == 0:
        raise ConfigError(
            f"decode_dp={shape.decode_dp}: must be at least {ratio}, the ratio {shape.prefill_tp} / {shape.decode_tp}; "
            f"else the size of a group is 0, by which the equations divide"
        )
    rank = dp // group_size * shape.decode_tp + tp
    if rank >= shape.prefill_tp:
        raise ConfigError(
            f"decode_dp={shape.decode_dp}: must be a multiple of the ratio {ratio}, else decode rank ({dp}, {tp}) is "
            f"given prefill rank {rank}, and there are {shape.prefill_tp}"
        )
    return rank


GRID = [InstancePair(p, t, d) for p in (1, 2, 4, 8, 16, 32) for t in (1, 2, 4, 8) for d in range(1, 321)]
"""TP of prefill and decode by powers of two, DP of decode up to that of CloudMatrix384."""


def why_not(shape: InstancePair) -> str:
    """The reason for which the printed equations have no rank for some decode rank of a shape; "" if all have one."""
    try:
        for dp in (0, shape.decode_dp - 1):
            as_printed(shape, dp, shape.decode_tp - 1)
    except ConfigError as error:
        return next(why for why in ("multiple of decode_tp", "divide", "is given") if why in str(error))
    return ""


def test_the_printed_equations_fail_for_most_shapes() -> None:
    """Among 7,680 shapes 1,920 have no whole ratio, 3,252 name a rank that is not there, 98 divide by zero."""
    found = {shape: why_not(shape) for shape in GRID}
    assert Counter(found.values()) == {"": 2410, "multiple of decode_tp": 1920, "is given": 3252, "divide": 98}
    told = [shape for shape, why in found.items() if why == "is given"]
    assert min(told) == (2, 1, 3)
    with pytest.raises(ConfigError, match=r"decode_dp=3: .* \(2, 0\) is given prefill rank 2, and there are 2"):
        as_printed(InstancePair(2, 1, 3), 2, 0)


def test_the_printed_equations_are_right_where_all_divides() -> None:
    """All decode ranks have one exactly if TP divides TP, and the ratio divides DP; then it is that of fractions."""
    for shape in GRID:
        divides = shape.prefill_tp % shape.decode_tp == 0
        divides = divides and shape.decode_dp % (shape.prefill_tp // shape.decode_tp) == 0
        assert (why_not(shape) == "") == divides
        if divides:
            last = shape.decode_dp - 1, shape.decode_tp - 1
            assert as_printed(shape, *last) == balanced(shape, *last) == shape.prefill_tp - 1


@given(st.sampled_from(GRID))
def test_ranks_exist_and_are_used_evenly(shape: InstancePair) -> None:
    """In exact fractions each decode rank has a rank that exists, and each rank serves as many as any other, or one
    more."""
    assume(shape.prefill_tp % shape.decode_tp == 0)
    ranks = [(dp, tp) for dp in range(shape.decode_dp) for tp in range(shape.decode_tp)]
    served = Counter(balanced(shape, *rank) for rank in ranks)
    each = [served[rank] for rank in range(shape.prefill_tp)]
    assert served.keys() <= {*range(shape.prefill_tp)}
    assert max(each) - min(each) <= 1
    if why_not(shape) == "":
        assert [as_printed(shape, *rank) for rank in ranks] == [balanced(shape, *rank) for rank in ranks]


@pytest.mark.parametrize(
    ("shape", "rank", "says"),
    [
        (InstancePair(0, 1, 1), (0, 0), "prefill_tp=0: must be at least 1"),
        (InstancePair(4, 1, 2), (2, 0), r"decode rank \(2, 0\): ranks are \(0, 0\) to \(1, 0\)"),
        (InstancePair(1, 2, 2), (0, 0), "prefill_tp=1: must be a multiple of decode_tp=2"),
    ],
)  # fmt: skip
def test_what_is_no_shape_or_rank_is_refused(shape: InstancePair, rank: tuple[int, int], says: str) -> None:
    """Both forms say which number is wrong, and what would be right."""
    for form in (as_printed, balanced):
        with pytest.raises(ConfigError, match=says):
            form(shape, *rank)
