"""Collectives: every bit as the oracle sums it, for any sizes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.refused import refuses
from xccl_emu.check.check import check
from xccl_emu.check.verdict import NO_VIOLATION
from xccl_emu.oracle.collectives import by_level, by_rank, by_ring
from xccl_emu.protocol import Case
from xccl_emu.protocol.registry import make
from xccl_emu.protocols.collectives.case import ALGORITHMS, CollectiveCase, numbers
from xccl_emu.protocols.collectives.two_level import ALGORITHMS as TWO_LEVEL
from xccl_emu.protocols.collectives.two_level import TwoLevelCase

from .case_support import orders, policies, wrong_bytes


@settings(max_examples=100, deadline=None)
@given(
    case=st.builds(
        CollectiveCase, collective=st.sampled_from([*ALGORITHMS]), ranks=st.integers(2, 7), cores=st.integers(1, 3),
        elements=st.integers(1, 130), slot=st.integers(8, 64), calls=st.integers(1, 3),
        dtype=st.sampled_from(["bf16", "fp16"]), in_place=st.integers(0, 1), seed=st.integers(0, 9),
    ),
    order=orders,
    policy=policies,
)  # fmt: skip
def test_any_sizes_give_the_bits_of_the_oracle(case: Case, order: str, policy: str) -> None:
    """Odd lengths, slices that do not fit, more cores than elements, in place, one call after the other."""
    assert wrong_bytes(case, order, policy) == {}


@settings(max_examples=50, deadline=None)
@given(
    case=st.builds(
        lambda group, groups, **sizes: TwoLevelCase(ranks=group * groups, group=group, **sizes),
        group=st.integers(2, 3), groups=st.integers(1, 4),
        collective=st.sampled_from([*TWO_LEVEL]), cores=st.integers(1, 3), elements=st.integers(1, 130),
        slot=st.integers(8, 64), calls=st.integers(1, 3), dtype=st.sampled_from(["bf16", "fp16"]),
        in_place=st.integers(0, 1), seed=st.integers(0, 9),
    ),
    order=orders,
    policy=policies,
)  # fmt: skip
def test_two_levels_give_the_bits_of_the_oracle(case: Case, order: str, policy: str) -> None:
    """The same for groups of two and three, one of them or several."""
    assert wrong_bytes(case, order, policy) == {}


@pytest.mark.nojit
@pytest.mark.parametrize("name", [*ALGORITHMS, *TWO_LEVEL])
def test_plain_python_gives_the_same(name: str) -> None:
    """Kernels run without compilation, too."""
    assert wrong_bytes(make(name, elements=5, calls=2)) == {}


@pytest.mark.nojit
def test_the_order_of_summation_is_in_the_bits() -> None:
    """Sums by rank, from the other end, around the ring and in two levels differ, so a mistake would show."""
    for dtype in ("bf16", "fp16"):
        values = numbers((4, 4, 64), dtype, 1)
        one, end, *others = by_rank(values), by_rank(values[::-1]), by_ring(values), by_level(values, 2)
        for other in (end, *others):
            assert (one != other).any()
        assert (others[0] != others[1]).any()
        assert np.isfinite(np.stack([one, end, *others]).astype(np.float32)).all()


@pytest.mark.nojit
def test_the_oracle_sums_by_hand() -> None:
    """1, then 2^-8 twice, in BF16: by rank 1 + 2^-7 is exact; on the ring each addition rounds, share 2 starts at 0."""
    small = 2.0**-8
    values = numbers((3, 3, 1), "bf16", 0)
    values[:, :, 0] = np.array([1, small, small])[:, None]
    assert by_rank(values)[:, 0].tolist() == [1 + 2 * small] * 3
    assert by_ring(values)[:, 0].tolist() == [1 + 2 * small, 1, 1]


@pytest.mark.nojit
def test_the_oracle_rounds_the_sum_of_each_group() -> None:
    """1 and 2^-8 are 1 in BF16, twice 2^-8 is 2^-7; by rank the same four come to more."""
    small = 2.0**-8
    values = numbers((4, 4, 1), "bf16", 0)
    values[:, :, 0] = np.array([1, small, small, small])[:, None]
    assert by_level(values, 2)[:, 0].tolist() == [1 + 2 * small] * 4
    assert by_rank(values)[:, 0].tolist() == [1 + 4 * small] * 4  # 1 + 3 * small is rounded to even


@pytest.mark.nojit
@refuses(
    TwoLevelCase,
    ({"group": 3}, "group=3: must divide the ranks, 4"),
    ({"group": 0}, "group=0: must be at least 1"),
    ({"collective": "all-gather"}, "collective='all-gather': must be one of all-reduce-two-level, "),
)
def test_groups_that_do_not_fit_are_refused() -> None:
    """Before any memory is touched."""


@pytest.mark.nojit
@refuses(
    CollectiveCase,
    ({"collective": "gather"}, "collective='gather': must be one of all-reduce-ring, "),
    ({"ranks": 1}, "ranks=1: must be at least 2"),
    ({"slot": 1 << 20}, "slot=1048576: must be at most 24576"),
    ({"elements": 1 << 28, "ranks": 16}, "elements=268435456: operands take "),
    ({"dtype": "fp32"}, "dtype='fp32': must be one of bf16, fp16"),
    ({"in_place": 2}, "in_place=2: must be 0 or 1"),
)
def test_sizes_out_of_range_are_refused() -> None:
    """Before any memory is touched, by name and value."""


def asked(name: str, ranks: int, elements: int, **sizes: int) -> tuple[int, int, int]:
    """Writes, flags and bytes of writes of the most active die, of one call that is one slice."""
    trial = make(name, ranks=ranks, elements=elements, calls=1, **sizes).build("sc")
    trial.pod.run()
    traffic = trial.pod.traffic()
    return int(traffic.writes.max()), int(traffic.flags.max()), int(traffic.write_bytes.max())


@pytest.mark.parametrize(("groups", "group"), [(2, 2), (2, 3), (3, 2)])
def test_the_page_counts_what_ranks_write_in_two_levels(groups: int, group: int) -> None:
    """As many writes and bytes as in one level, to fewer dies, so with fewer flags."""
    n, elements = groups * group, 160
    for name in (name for name in TWO_LEVEL if not TWO_LEVEL[name].reads):
        times = 1 + (name == "all-reduce-two-level")
        writes, flags = times * (n - 1), times * (groups - 1 + group - 1)
        nbytes = writes * 2 * elements + 32 * flags
        assert asked(name, n, elements, group=group) == (writes, flags, nbytes), name


@pytest.mark.parametrize(("groups", "group"), [(2, 2), (2, 3), (3, 1)])
def test_who_reads_writes_flags_alone_to_others(groups: int, group: int) -> None:
    """Each rank is told by each that it reads and by each that reads it, and no data go through an inbox."""
    n = groups * group
    told = 2 * (groups - 1 + group - 1)
    assert asked("all-gather-by-reads", n, 160, group=group) == (0, told, 32 * told)
    for name in ("all-gather-by-cores", "reduce-scatter-by-reads"):
        assert asked(name, n, 160) == (0, 2 * (n - 1), 64 * (n - 1)), name


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_the_page_counts_what_ranks_write(ranks: int) -> None:
    """Writes, flags and bytes are those of docs/protocols.md."""
    n, elements = ranks, 160
    share, steps = 2 * elements, (ranks - 1).bit_length()
    twice = ("all-reduce-ring", "all-reduce-two-shot")
    writes = dict.fromkeys(ALGORITHMS, n - 1) | {"all-to-all-ring": n * (n - 1) // 2}
    writes |= dict.fromkeys(twice, 2 * (n - 1))
    for name in (name for name in ALGORITHMS if not ALGORITHMS[name].reads):
        each = share * (n if name == "all-reduce-one-shot" else 1)
        told = {"barrier": steps, "barrier-sense": n + 1}.get(name, (1 + (name in twice)) * (n - 1))
        flags = told * (1 + name.endswith("ring"))
        nbytes = writes[name] * each + 32 * flags - (24 if name == "barrier-sense" else 0)  # an atomic has 8
        assert asked(name, n, elements) == (writes[name], flags, nbytes), name


@pytest.mark.parametrize("fault", ["stop:die1", "cut:0-1", "stall:0-1"])
@pytest.mark.parametrize("name", [*ALGORITHMS, *TWO_LEVEL, "mixserve", "sp-tp-sp"])
def test_after_a_fault_nobody_returns_with_wrong_bits(name: str, fault: str) -> None:
    """A die stops, a link is cut or stalls: ranks wait without end, or what they return with is right."""
    verdict = check(make(name), policy="portfolio", fault=fault, schedules=20)
    assert verdict.verdict == NO_VIOLATION, verdict.reason
    assert sum(verdict.ended.values()) > 0
