"""The closed forms against timed runs of the same thing, under the same costs."""

from dataclasses import replace

import numpy as np
import pytest

from tests.bench import closed
from xccl_emu.papers.bench.a2e_call import A2EDeployment, time_call
from xccl_emu.papers.bench.fused import FusedLayer, balanced_choices
from xccl_emu.papers.bench.layers import EXPERTS, Layer, group_on
from xccl_emu.papers.bench.mixserve import Prices
from xccl_emu.papers.bench.sendrecv import Sweep, measure
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.routing import place_experts
from xccl_emu.timing.costs import Costs
from xccl_emu.timing.topologies import CLOUDMATRIX384

TOGETHER = replace(Costs(), skew_us=0.0, launch_us=0.0, ack_share=0.0)
PRICES = Prices(CLOUDMATRIX384, TOGETHER)


def percent(stages: closed.Stages, run_us: float) -> float:
    """How far the closed form is from the run."""
    return 100.0 * abs(sum(stages.values()) / run_us - 1.0)


@pytest.mark.parametrize(
    ("ranks", "tokens"), [(8, 16), (8, 128), (16, 48), pytest.param(64, 128, marks=pytest.mark.slow)]
)
def test_fused_operators_take_what_the_closed_forms_say(ranks: int, tokens: int) -> None:
    """Sums of stages come as close to the timed run as they claim, for small and for large batches."""
    run = FusedLayer(Setting(data=False), Layer(ranks, tokens)).run(TOGETHER)
    shape = closed.Shape(ranks, tokens, local_experts=-(-256 // ranks) + 1)
    assert percent(closed.fused_dispatch(shape, PRICES), run.dispatch.mean_us) < closed.CLAIMED_PERCENT
    assert percent(closed.fused_combine(shape, PRICES), run.combine.mean_us) < closed.CLAIMED_PERCENT


@pytest.mark.parametrize(
    ("ranks", "tokens"),
    [(8, 16), (16, 48), pytest.param(64, 48, marks=pytest.mark.slow), pytest.param(64, 128, marks=pytest.mark.slow)],
)
def test_pull_operators_take_what_the_closed_forms_say(ranks: int, tokens: int) -> None:
    """From EP8 to EP64, with balanced choices, as far as the forms claim to hold."""
    setting = Setting(costs=TOGETHER, data=False)
    pod, policy = setting.pod()
    local = -(-EXPERTS // ranks) + 1
    group = group_on(pod, Layer(ranks, tokens).config(local))
    topk = balanced_choices(ranks, tokens, EXPERTS, 8, 0)
    group.dispatch(list(setting.tokens(ranks, tokens, 7168)), topk)
    shape = closed.Shape(ranks, tokens, local_experts=local)
    assert percent(closed.pull_dispatch(shape, PRICES), policy.timing.latency_us) < closed.CLAIMED_PERCENT
    group.combine([np.ones((tokens, 9), np.float32)] * ranks)
    assert percent(closed.pull_combine(shape, PRICES), policy.timing.latency_us) < closed.CLAIMED_PERCENT


@pytest.mark.parametrize(
    "sizes",
    [
        (8, 16, 24),
        pytest.param((40, 72, 96), marks=pytest.mark.slow),
        pytest.param((160, 288, 96), marks=pytest.mark.slow),
    ],
)
def test_a2e_and_e2a_take_what_the_closed_forms_say(sizes: tuple[int, int, int]) -> None:
    """Attention dies, expert dies and tokens up to the published deployment; 256 experts and the shared one."""
    attention, experts, tokens = sizes
    call = time_call(Setting(costs=TOGETHER, data=False), A2EDeployment(attention, experts, tokens))
    shape = closed.Disaggregated(
        attention, experts, tokens, local_experts=place_experts(experts, EXPERTS).local_experts
    )
    assert percent(closed.a2e(shape, PRICES), call.a2e_us) < closed.CLAIMED_PERCENT
    assert percent(closed.e2a(shape, PRICES), call.e2a_us) < closed.CLAIMED_PERCENT


def test_send_and_receive_take_what_the_closed_form_says() -> None:
    """From a few kilobytes to megabytes, on few cores and on all, within a node and between nodes, if rings hold it."""
    few = Sweep(sizes=(4 << 10, 64 << 10, 512 << 10), cores=(2,), to=("node", "pod"))
    all_cores = replace(few, sizes=(*few.sizes, 4 << 20), cores=(48,))
    for result in (one for sweep in (few, all_cores) for one in measure(sweep, Setting(data=False, costs=TOGETHER))):
        c = result.configuration
        path = {"node": 2, "pod": 3}[str(c["to"])]
        stages = closed.send_receive(int(c["bytes"]), int(c["cores"]), path, PRICES)
        assert percent(stages, float(result.emulated or 0)) < closed.CLAIMED_PERCENT, result.what


def test_the_fabric_reaches_the_closed_forms() -> None:
    """A slower fabric makes the wire longer by as much, and only the wire."""
    shape = closed.Shape(64, 128)
    paths = [replace(path, write=replace(path.write, gb_s=0.8 * path.write.gb_s)) for path in CLOUDMATRIX384.paths]
    slow = Prices(replace(CLOUDMATRIX384, paths=tuple(paths)), TOGETHER)
    fast, slower = (closed.fused_combine(shape, prices) for prices in (PRICES, slow))
    assert slower["send"] == pytest.approx(fast["send"] / 0.8)
    assert {name: us for name, us in slower.items() if name != "send"} == {
        name: us for name, us in fast.items() if name != "send"
    }
