"""MixServe's fused algorithms: every bit as plain all-to-all and all-reduce give it."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.refused import refuses
from xccl_emu.oracle.mixserve import combined, rows_for
from xccl_emu.protocols.collectives.case import numbers
from xccl_emu.protocols.mixserve.case import MixServeCase
from xccl_emu.protocols.mixserve.layout import degrees
from xccl_emu.timing.gantt import busy_us, gantt
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.topologies import ATLAS_800T_A2

from .case_support import orders, policies, wrong_bytes

R1 = {"hidden": 7168, "experts": 64, "top_k": 8, "rounds": 1}
"""DeepSeek-R1 on four nodes: 256 experts."""


@st.composite
def cases(draw: st.DrawFn) -> MixServeCase:
    """Any cluster, with any of the three relations of the degrees."""
    nodes, shards, groups, cores = (draw(st.integers(1, most)) for most in (3, 3, 3, 2))
    split = draw(st.sampled_from(["dp", "ep", "both", "neither"]))
    degree = {"dp": (groups, 1), "ep": (1, groups), "both": (groups, groups), "neither": (1, 1)}[split]
    ranks = shards * (1 if split == "neither" else groups)
    experts = draw(st.integers(1, 3))
    top_k = draw(st.integers(1, 4))
    assume(top_k <= nodes * degree[1] * experts)
    return MixServeCase(
        nodes=nodes, ranks=ranks, dp=nodes * degree[0], ep=nodes * degree[1], cores=cores,
        tokens=draw(st.integers(cores, 4)), hidden=16 * shards * draw(st.integers(1, 3)), experts=experts, top_k=top_k,
        rounds=draw(st.integers(1, 3)), part=draw(st.sampled_from(["both", "dispatch", "combine"])),
        overlap=draw(st.integers(0, 1)), dtype=draw(st.sampled_from(["bf16", "fp16"])), seed=draw(st.integers(0, 9)),
    )  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(cases(), orders, policies)
def test_any_cluster_gives_the_bits_of_plain_collectives(case: MixServeCase, order: str, policy: str) -> None:
    """Any nodes and ranks, d_DP equal to, above and below d_EP, several cores, experts and rounds, in any order."""
    assert wrong_bytes(case, order, policy) == {}


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [1, 0])
@pytest.mark.parametrize("relation", [{}, {"dp": 8}, {"ep": 8, "experts": 32}])
def test_deepseek_r1_on_four_nodes_of_eight(relation: dict[str, int], overlap: int) -> None:
    """At full size too, and for the degrees of the paper's ablation: DP8 with EP4, DP4 with EP8."""
    assert wrong_bytes(MixServeCase(nodes=4, ranks=8, tokens=16, overlap=overlap, **R1 | relation)) == {}


@pytest.mark.nojit
def test_plain_python_gives_the_same() -> None:
    """Kernels run without compilation, too."""
    assert wrong_bytes(MixServeCase(dp=4, hidden=16)) == {}


@pytest.mark.nojit
def test_figure_6() -> None:
    """Who shares tokens and experts in the three cases of the figure, of four ranks a node."""
    equal, more, fewer = degrees(2, 4, 2, 2), degrees(2, 4, 4, 2), degrees(2, 4, 2, 4)
    assert [equal.shards, more.shards, fewer.shards] == [4, 2, 2]
    assert [d.same_experts(3) for d in (equal, more, fewer)] == [range(4), range(4), range(2, 4)]
    assert [d.same_tokens(3) for d in (equal, more, fewer)] == [range(4), range(2, 4), range(4)]
    assert degrees(2, 4, 4, 4).nodes == 4


@pytest.mark.nojit
def test_the_oracle_by_hand() -> None:
    """One token, two experts of two ranks each: (1 + 2) / 2 + (3 + 4) / 4."""
    outputs = [np.array([[[1]], [[2]]], np.float16), np.array([[[3]], [[4]]], np.float16)]
    choices, weights = np.array([[1, 0]]), np.array([[0.25, 0.5]], np.float32)
    assert combined(choices, weights, [[range(1), range(1, 2)]], outputs).tolist() == [[3.25]]
    assert rows_for(np.array([[3, 0], [1, 3], [0, 2]]), range(2)).tolist() == [1, 4, 2]


@pytest.mark.nojit
def test_the_order_of_the_choices_is_in_the_bits() -> None:
    """Weighed sums of the test data in another order have other bits."""
    choices, weights = np.tile(np.arange(4), (8, 1)), np.ones((8, 4), np.float32)
    experts = [[range(e, e + 1) for e in range(4)]]
    outputs = list(numbers((4, 1, 8, 64), "bf16", 0))
    backwards = combined(choices[:, ::-1], weights, experts, outputs)
    assert (backwards != combined(choices, weights, experts, outputs)).any()


@pytest.mark.nojit
@refuses(
    lambda **sizes: MixServeCase(**sizes).build("sc"),
    ({"dp": 3}, "dp=3: must be a multiple of the 2 nodes that divides 4 ranks"),
    ({"nodes": 1, "ranks": 6, "dp": 2, "ep": 3}, "ep=3: one of dp=2 and ep must be a multiple of the other"),
    ({"hidden": 48}, "hidden=48: must be a multiple of 16 x 2 shards"),
    ({"cores": 2}, "cores=2: must be at most 1, one for each token"),
    ({"top_k": 3}, "top_k=3: there are 2 experts"),
    ({"hidden": 65536}, "hidden=65536: rows and sums need "),
    ({"tokens": 65536, "top_k": 8, "experts": 8, "hidden": 4096}, "tokens=65536: rows take .* at most 4294967296$"),
    ({"tokens": 65536, "top_k": 8, "experts": 8, "hidden": 4096, "rounds": 3}, "rows take .* at most 68719476736$"),
    ({"part": "gather"}, "part='gather': must be one of both, dispatch, combine"),
)
def test_sizes_that_do_not_fit_are_refused() -> None:
    """By name and value, before there is a pod."""


@pytest.mark.slow
@pytest.mark.parametrize(("part", "inter", "intra"), [("dispatch", 8, 13), ("combine", 9, 14)])
def test_overlap_leaves_the_longer_of_both_levels_and_a_round(part: str, inter: int, intra: int) -> None:
    """At DeepSeek-R1's sizes, up to the last step that overlaps: no more than the synchronous run, and than 1.1 times
    what the busier level of links takes there, and one of its rounds."""
    bars = []
    for overlap in (0, 1):
        case = MixServeCase(nodes=4, ranks=8, tokens=64, cores=32, part=part, overlap=overlap, **R1)
        trial = case.build("sc")
        policy = trial.pod.policy = VirtualTime(ATLAS_800T_A2, log=[0])
        trial.pod.run()
        bars.append(gantt(policy.timing, 0))
    between, within = f"step {inter}, RoCE", f"step {intra}, HCCS"
    apart, together = (max(each[name][-1][1] for name in (between, within)) for each in bars)
    rounds = {between: 3, within: 4 if part == "combine" else 3}
    longest = max(busy_us(bars[0][name]) * (1 + 1 / rounds[name]) for name in rounds)
    assert together <= apart
    assert together <= 1.1 * longest
