"""Phases: all of the path is in one, in order, and they add up to what the operator takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.bench.fused import FusedLayer
from xccl_emu.papers.bench.layers import Layer
from xccl_emu.papers.bench.phases import phased, phases, rows_of
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.timing.critical import RESOURCES, PathPart
from xccl_emu.timing.run import Timing

ORDER = ("arrival", "send", "wait", "receive")


@given(st.lists(st.tuples(st.sampled_from([r for r in RESOURCES if r != "skew"]), st.integers(0, 3)), min_size=1))
def test_every_part_has_one_phase_and_phases_follow_each_other(drawn: list[tuple[str, int]]) -> None:
    """Whatever the path: nothing is lost, no phase comes twice, and what is behind the last other die is no sending."""
    path = [PathPart(resource, core, 0, 0, 0, float(i), i + 1.0, i) for i, (resource, core) in enumerate(drawn)]
    found = [*phased([PathPart("skew", path[0].core, 0, 0, 0, -1.0, 0.0, 0), *path], 2)]
    assert [part for _, part in found[1:]] == path
    names = [ORDER.index(name) for name, _ in found]
    assert names == sorted(names)
    home = path[-1].core // 2
    assert all(part.core // 2 == home for name, part in found if name == "receive")
    assert all(name != "send" for name, part in found[1:] if all(p.core // 2 == home for p in path))


@pytest.mark.parametrize("protocol", ["fused", "dispatch"])
def test_phases_add_up_to_the_operator(protocol: str) -> None:
    """A small layer has all phases, in dispatch and in combine; each is sent on another die than it is received on."""
    seen: dict[str, tuple[float, list[str], float]] = {}
    layer, setting = Layer(4, 6, 512, 8, 2, 3), Setting(data=False)

    def look(operator: str, timing: Timing) -> None:
        rows = [*rows_of(operator, timing, layer)]
        named = [str(row.configuration["phase"]) for row in rows]
        seen[operator] = sum(float(row.emulated or 0) for row in rows), named, timing.latency_us

    FusedLayer(setting, layer, protocol, look).run(setting.costs)
    for total, named, latency_us in seen.values():
        assert total == pytest.approx(latency_us)
        assert {"send", "wait", "receive"} <= set(named)
    assert [*seen] == ["dispatch", "combine"]


@pytest.mark.parametrize(("more", "said"), [({"protocol": "moe"}, "protocol='moe'"), ({"ranks": (128,)}, "ranks=128")])
def test_what_has_no_phases_is_refused(more: dict[str, object], said: str) -> None:
    """Another protocol, and more ranks than the log has room for: before anything runs."""
    with pytest.raises(ConfigError, match=said):
        phases(Setting(data=False), **more)  # type: ignore[arg-type]
