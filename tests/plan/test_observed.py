"""Observations: constants that made them are found again, and files that cannot be are refused by name."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli_support import as_json, invoke, refusal
from tests.plan.support import cluster, model
from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.plan.cluster import Link
from xccl_emu.papers.plan.costs import CORRECTED, LITERAL, PlanSetting, compute_s
from xccl_emu.papers.plan.grammar import strategies
from xccl_emu.papers.plan.observed import OPERATIONS, Computed, Observed, ObservedTransfer, load_observed

FILE = Path(__file__).parent / "observed.toml"
SIZES = st.lists(st.sampled_from([1.0, 10.0, 1e3, 1e5]), min_size=2, max_size=4, unique=True)


@given(
    st.floats(0.1, 1000), st.floats(0, 1000), st.integers(1, 2), st.booleans(), st.sampled_from([CORRECTED, LITERAL]),
    SIZES, st.sampled_from([*OPERATIONS]), st.sampled_from([2, 4, 8]),
)  # fmt: skip
def test_a_link_is_found_again(
    gb_s: float, start_us: float, ways: int, mesh: bool, form: object, sizes: list[float], operation: str, ranks: int
) -> None:
    """From times that the equations say, whatever the operation and however they are read."""
    true = Link(gb_s, ways, mesh, start_us)
    of = PlanSetting(model(), cluster(intra=replace(true, gb_s=1.0, start_us=3.0)), form=form)  # type: ignore[arg-type]
    made = [ObservedTransfer(operation, "intra", ranks, kb, 1.0) for kb in sizes]
    made = [replace(one, us=1e6 * one.seconds(true, of.form)) for one in made]
    found, points = Observed("mine.toml", tuple(made), ()).fit(of)
    for one in made:
        assert one.seconds(found.cluster.intra, of.form) == pytest.approx(one.us / 1e6, rel=1e-6)
    assert found.cluster.intra.gb_s == pytest.approx(gb_s, rel=1e-3)
    assert found.cluster.inter == of.cluster.inter
    assert all(abs(point.off_percent) < 1e-3 for point in points)


@given(st.floats(0.02, 0.98), st.floats(1, 1e4), st.floats(0, 100), st.data())
def test_a_device_is_found_again(efficiency: float, hbm_gb_s: float, layer_us: float, data: st.DataObject) -> None:
    """From layers bound by operations and by memory, in any mixture: the equations say the observed times again."""
    of = PlanSetting(model(hidden=1024), cluster())
    true = replace(of, cluster=cluster(efficiency=efficiency, hbm_gb_s=hbm_gb_s, layer_us=layer_us))
    chosen = st.sampled_from([*strategies(8, 8)])
    made = []
    for batch, tokens in ((1, 1), (16, 1), (64, 16), (16, 512), (64, 4096)):
        strategy = data.draw(chosen)
        us = 1e6 * compute_s(strategy, replace(true, batch=batch), tokens)
        made.append(Computed(str(strategy), batch, tokens, us))
    _, points = Observed("mine.toml", (), tuple(made)).fit(of)
    assert max(abs(point.off_percent) for point in points) < 0.1


def test_noise_is_told() -> None:
    """What contradicts the equations is off, by as much as is said of it."""
    made = tuple(ObservedTransfer("P2P", "inter", 2, kb, us) for kb, us in ((1.0, 10.0), (1e4, 1e3), (2e4, 3e3)))
    _, points = Observed("mine.toml", made, ()).fit(PlanSetting(model(), cluster()))
    assert max(abs(point.off_percent) for point in points) > 5


def sent(**others: object) -> ObservedTransfer:
    """Ten KB between two ranks of a node."""
    return ObservedTransfer(**{"operation": "AR", "link": "intra", "ranks": 2, "kb": 10.0, "us": 5.0, **others})  # type: ignore[arg-type]


LAYER = Computed("TP=8", 1, 1, 10.0)


@pytest.mark.parametrize(
    ("communication", "computing", "message"),
    [
        ((sent(), sent(us=6.0)), (), "mine.toml: intra: bandwidth and start cannot be separated"),
        ((sent(us=50.0), sent(kb=20.0, us=5.0)), (), "intra: what was measured does not grow with the size"),
        ((sent(ranks=16), sent(kb=1.0)), (), "ranks=16 of AR of 10 KB over 16 ranks: must be at most 8"),
        ((sent(), sent(kb=1e9, us=6.0)), (), "mine.toml: gb_s=.*must be a number, 0.001 to 1e.06"),
        ((), (LAYER, LAYER), "computing: must be at least 3 different observations"),
        ((), (LAYER, replace(LAYER, strategy="TP=3")), "strategy='TP=3': each block must use 8 devices"),
        (
            (),
            tuple(replace(LAYER, us=n * 1e-6, tokens=n * 10**8) for n in (1, 2, 9)),
            "mine.toml: computing: .*must be a number",
        ),
    ],
)
def test_observations_that_fit_nothing(
    communication: tuple[ObservedTransfer, ...], computing: tuple[Computed, ...], message: str
) -> None:
    """Each by file, kind and number, with what would be right."""
    with pytest.raises(ConfigError, match=message):
        Observed("mine.toml", communication, computing).fit(PlanSetting(model(), cluster()))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('operation = "AR"', 'operation = "ALL"', "communication 1: operation='ALL': must be one of RS, AG, AR"),
        ('operation = "AR"', "operation = [1]", "communication 1: operation=.1.: must be one of"),
        ('link = "inter"', 'link = "up"', "communication 3: link='up': must be one of intra, inter"),
        ("us = 40", "us = 0", "communication 1: us=0: must be a number, 1e-06 to"),
        ("us = 40", "us = 40\nms = 1", "communication 1: ms=1: no such field"),
        ("us = 2000", "", "computing 2: us is missing: measured, of one layer"),
        ('strategy = "TP=8 + DP=4, TP=8 + EP=4"', "strategy = 8", "computing 1: strategy=8: must be a text"),
        ("[[computing]]", "[[computed]]", "computed=.*: no such field; there are where, communication, computing"),
    ],
)
def test_files_that_cannot_be(old: str, new: str, message: str, tmp_path: Path) -> None:
    """By file, table, field and value."""
    text = FILE.read_text()
    assert old in text
    file = tmp_path / "mine.toml"
    file.write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=f"mine.toml: {message}"):
        load_observed(str(file))


def test_an_empty_file_and_no_list(tmp_path: Path) -> None:
    """Nothing observed is no observation; a table that is no list is refused, and so is a file that is not there."""
    file = tmp_path / "mine.toml"
    for text, message in (("", "must have at least one"), ("computing = 3", "computing: must be tables, each under")):
        file.write_text(text)
        assert message in refusal("plan", "--observed", str(file))
    assert "--observed nowhere: must be a file that ends with .toml" in refusal("plan", "--observed", "nowhere")
    assert "cannot be combined with" in refusal("plan", "--published", "--observed", str(FILE))


def test_the_plan_is_of_what_was_observed() -> None:
    """The table says constants and errors; JSON has each observation, and slower links make a slower plan."""
    code, out, _ = invoke("plan", "--observed", str(FILE), "--top", "1")
    assert code == 0
    assert "intra: 8.84 GB/s, 17.2 us before a round; 2 observations, off by 0.0%" in out.replace("\n", " ")
    told, usual = as_json("plan", "--observed", str(FILE)), as_json("plan")
    assert [one["kind"] for one in told["observed"]] == ["intra"] * 2 + ["inter"] * 2 + ["computing"] * 3
    assert told["cluster_constants"]["inter"]["gb_s"] < usual["cluster_constants"]["inter"]["gb_s"]
    assert told["ranked"][0]["itl_s"] > usual["ranked"][0]["itl_s"]
    assert usual["observed"] == []
