"""Sensitivity: which constants are moved, where to, and what becomes of the results."""

from dataclasses import fields

import pytest

from xccl_emu.papers.bench import sensitivity
from xccl_emu.papers.bench.a2e_call import A2EDeployment
from xccl_emu.papers.bench.layers import Layer
from xccl_emu.papers.bench.sensitivity import SWITCHES, End, ends, jobs, results_of
from xccl_emu.papers.bench.setting import DEFAULT, Setting
from xccl_emu.timing.costs import ASSUMED, Costs

BARE = Setting(data=False)


def test_every_assumed_constant_is_moved_to_both_ends() -> None:
    """No fitted or published one is, and none to where it is already."""
    moved = [end for end in ends() if not end.switched]
    assumed = {f.name: f.metadata["range"] for f in fields(Costs) if f.metadata["kind"] == ASSUMED}
    assert {end.constant for end in moved} == set(assumed)
    assert all(end.value in assumed[end.constant] for end in moved)
    assert all(end.value != getattr(Costs(), end.constant) for end in moved)


def test_results_are_percent_of_what_they_are() -> None:
    """From the runs of all jobs, in whatever order they come, and for each constant by its own run."""
    n = len(jobs(DEFAULT))
    done = [(0, {"A2E": 100.0}), *((i, {"A2E": 100.0 + i}) for i in range(1, n))]
    rows = results_of(dict(reversed(done)))
    assert [row.emulated for row in rows] == pytest.approx([float(i) for i in range(1, n)])
    assert [row.configuration["constant"] for row in rows] == [end.constant for end in ends()]
    assert (results_of(dict(done[:3])), results_of(dict(done[1:]))) == (rows[:2], [])


def take(monkeypatch: pytest.MonkeyPatch, layer: Layer) -> None:
    """Have a small layer, and a small deployment, in place of large ones."""
    for name, of in (("FUSED", layer), ("PULL", layer), ("ONE_DOMAIN", A2EDeployment(2, 3, 1, 64, 2, 1))):
        monkeypatch.setattr(sensitivity, name, of)


def test_a_constant_moves_what_depends_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slower core makes a send take longer than it does with the constants as they are."""
    take(monkeypatch, Layer(2, 1, 64, 2, 1, 2))
    slow, base = (sensitivity.latencies(end, BARE.keeping()) for end in (End("core_gb_s", 20.0), End()))
    assert slow["send/recv 512 KB on 2 cores"] > 1.1 * base["send/recv 512 KB on 2 cores"]
    assert slow.keys() == base.keys()


def test_cores_and_counting_are_moved_where_a_layer_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer cores, and with loops in place of an instruction, a dispatch of some tokens takes longer."""
    take(monkeypatch, Layer(2, 32, 64, 2, 1, 4))
    base, few, loops = (sensitivity.latencies(end, BARE) for end in (End(), End("cores", 1), End("counting", "scalar")))
    for what in ("fused dispatch EP2", "dispatch EP2, batch 32"):
        assert few[what] > 1.05 * base[what]
        assert loops[what] > 1.05 * base[what]
    assert [end.constant for end in ends() if end.switched] == list(SWITCHES)
    assert all(end.value != end.usual for end in ends())
