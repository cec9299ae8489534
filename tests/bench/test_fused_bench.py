"""Table 7's workload: balanced routing, skewed starts, the latency that is reported, and the baselines."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.base.free_memory import resident_bytes
from xccl_emu.machine.spec import small_pod
from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.fused import FusedLayer, balanced_choices, between, degree_of
from xccl_emu.papers.bench.layers import Layer, time_layer
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.timing.arrival import arrivals
from xccl_emu.timing.costs import Costs

SMALL = Layer(ranks=8, tokens=8, hidden=256, experts=64, cores=8)


@given(st.sampled_from([2, 8, 16, 64]), st.integers(1, 40), st.integers(0, 3))
def test_choices_are_balanced(ranks: int, tokens: int, seed: int) -> None:
    """No expert gets more than one token of a rank more than another, none twice in a row, and a shared one each."""
    experts, local = 64, -(-64 // ranks) + 1
    for rank, table in enumerate(balanced_choices(ranks, tokens, experts, 8, seed)):
        routed = table[:, :8] // local * (local - 1) + table[:, :8] % local
        counts = np.bincount(routed.ravel(), minlength=experts)
        assert counts.max() - counts.min() <= 1
        assert (table[:, 8] % local == local - 1).all()
        assert table[0, 8] // local == rank


@pytest.mark.parametrize("protocol", ["fused", "deepep-ll"])
def test_dispatch_absorbs_the_skew_and_combine_does_not(protocol: str) -> None:
    """Skew makes the mean dispatch longer by what the last rank is late by, and hardly touches combine; without
    payload, as the fit runs them, both take as long as with it."""
    layer, bare = (FusedLayer(Setting(data=data), SMALL, protocol) for data in (True, False))
    together, apart = (layer.run(replace(Costs(), skew_us=skew)) for skew in (0.0, 100.0))
    again = bare.run(replace(Costs(), skew_us=100.0))
    assert (again.dispatch.us == apart.dispatch.us).all()
    assert (again.combine.us == apart.combine.us).all()
    starts = arrivals(SMALL.ranks, 100.0, 0)
    late = apart.dispatch.mean_us - together.dispatch.mean_us
    assert late == pytest.approx(starts.max() - starts.mean(), rel=0.1)
    assert apart.combine.mean_us == pytest.approx(together.combine.mean_us, rel=0.02)
    assert (apart.wrong_rows, apart.wrong_sums) == (0, 0)


def test_what_fit_rows_alone_say_passes_through_them() -> None:
    """Interpolation is exact at the fit rows, and is not taken for the emulator's."""
    rows = [row for row in published.rows("fused") if row.unit == "us"]
    made = between(rows)
    assert [result.bench for result in made] == ["fused, interpolated"] * len(rows)
    assert [result.error_percent for result in made if result.role == "fit"] == pytest.approx([0.0] * 6)
    assert {degree_of(row) for row in rows} == {8, 16, 32, 64, 128, 256}


@pytest.mark.parametrize("data", [True, False])
def test_layers_on_a_pod_that_is_kept_take_as_long(data: bool) -> None:
    """With other choices, cores and ways of counting, and after one of another size: the same to the bit, all right."""
    apart, usual = Setting(data=data), Layer(8, 16)
    layers = [usual, replace(usual, cores=16), replace(usual, counting="scalar"), Layer(4, 8), usual, usual]

    def times(setting: Setting) -> list[list[float]]:
        timed = [time_layer(setting, layer, number=number) for number, layer in enumerate(layers)]
        assert {bad for one in timed for _, _, bad in one.operators} == {0 if data else None}
        return [taken.us.tolist() for one in timed for _, taken, _ in one.operators]

    kept = times(apart.keeping())  # an assertion would hold the pod, and there is room for one
    assert kept == times(apart)


def test_a_pod_is_kept_as_long_as_there_is_room() -> None:
    """The next layer has the same pod, but a new one where both together would be more than may be used."""
    setting, spec = Setting(data=False).keeping(), small_pod(2)
    first = weakref.ref(setting.pod(spec)[0])
    assert setting.fitting("a layer", lambda data: 1 << 20).pod(spec)[0] is first()
    replace(setting, free_bytes=resident_bytes()).fitting("a layer", lambda data: 1 << 20)
    gc.collect()
    assert first() is None
