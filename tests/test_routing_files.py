"""Reading measured routing, whole and damaged."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xccl_emu.base.errors import ConfigError
from xccl_emu.routing import (
    ExpertLoads,
    RecordedChoices,
    deal_routing,
    draw_topk,
    inclusion_probabilities,
    load_expert_loads,
    load_topk_jsonl,
    open_routing,
    place_choices,
    place_experts,
    skewed_loads,
)

LOADS_FILES = ["deepseek_v3_decode_in2000out100.json", "deepseek_v3_prefill_in4096.json"]
CHOICES_FILE = "qwen1.5_moe_layer12.jsonl"
GOOD_LINE = '{"topk_ids": [3, 0], "topk_weights": [0.5, 0.25]}\n'


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "routing"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_reads_loads(tmp_path: Path) -> None:
    """Counts come as given; dense layers are known and refused as a source of choices."""
    loads = load_expert_loads(written(tmp_path, '{"logical_count": [[0, 0], [3, 5]]}'))
    assert loads.counts.tolist() == [[0, 0], [3, 5]]
    assert loads.moe_layers == [1]
    assert loads.layer(1).tolist() == [3, 5]
    assert loads.source == "routing"
    with pytest.raises(ConfigError, match="layer is 0; in routing that layer routes no tokens"):
        loads.layer(0)
    with pytest.raises(ConfigError, match=r"layer is 2; routing has layers 0\.\.1"):
        loads.layer(2)


def test_reads_choices(tmp_path: Path) -> None:
    """Ids and weights come in file order; blank lines do not count; the number of experts may be told."""
    path = written(tmp_path, GOOD_LINE + "\n" + GOOD_LINE.replace("3, 0", "1, 2"))
    choices = load_topk_jsonl(path)
    assert choices.topk.tolist() == [[3, 0], [1, 2]]
    assert choices.weights.tolist() == [[0.5, 0.25]] * 2
    assert (choices.topk.dtype, choices.weights.dtype) == (np.int32, np.float32)
    assert choices.n_experts == 4
    assert load_topk_jsonl(path, n_experts=60).n_experts == 60


@pytest.mark.parametrize("indent", [None, 2])
def test_tells_the_kinds_apart(tmp_path: Path, indent: int | None) -> None:
    """Loads on one line or many, and choices, are each recognized."""
    assert isinstance(open_routing(written(tmp_path, "\n" + GOOD_LINE)), RecordedChoices)
    content = json.dumps({"logical_count": [[1, 2]]}, indent=indent)
    assert isinstance(open_routing(written(tmp_path, content)), ExpertLoads)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "routing:1: not JSON"),
        ('{"logical_count": [[1, 2]', "routing:1: not JSON"),
        ("{\n\n!", "routing:3: not JSON"),
        ("[" * 100_000, "routing:1: not JSON"),
        (b"\xff\xfe\x00", "routing:1: not text in UTF-8"),
        ("[1, 2]", "expected an object with logical_count"),
        ('{"counts": [[1]]}', "expected an object with logical_count"),
        ('{"logical_count": []}', "expected an object with logical_count"),
        ('{"logical_count": [[]]}', "expected an object with logical_count"),
        ('{"logical_count": [[1, 2], [3]]}', "layer 1 of logical_count must be a list of 2"),
        ('{"logical_count": [[1], 7]}', "layer 1 of logical_count must be a list of 1"),
        ('{"logical_count": [[1, -2]]}', "layer 0 of logical_count has a negative count"),
        ('{"logical_count": [[1, "2"]]}', r"logical_count\[0\] has 2; expected a finite number"),
        ('{"logical_count": [[1, true]]}', "has True"),
        ('{"logical_count": [[1, NaN]]}', "has nan"),
        ('{"logical_count": [[1, 1' + "0" * 400 + "]]}", "has 10000"),
        ('{"logical_count": [[1, 1' + "0" * 5000 + "]]}", "routing:1: not JSON that can be read"),
    ],
)
def test_refuses_damaged_loads(tmp_path: Path, content: str | bytes, message: str) -> None:
    """A damaged or foreign file is refused with its name, the line and the reason, by either entrance."""
    path = written(tmp_path, content)
    for load in (load_expert_loads, open_routing):
        with pytest.raises(ConfigError, match=message):
            load(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"topk_ids": [3, 0], "topk_wei', "routing:2: not JSON"),
        ("[" * 100_000, "routing:2: not JSON"),
        ("[1, 2]", "routing:2: expected an object with topk_ids"),
        ('{"topk_ids": [3, 0]}', "routing:2: expected an object with topk_ids and topk_weights"),
        ('{"topk_ids": [3, 0], "topk_weights": [1]}', "of one length"),
        ('{"topk_ids": [], "topk_weights": []}', "of one length"),
        ('{"topk_ids": [3], "topk_weights": [1]}', "routing:2: 1 choices; the tokens before have 2"),
        ('{"topk_ids": [3, -1], "topk_weights": [1, 1]}', "topk_ids has -1"),
        ('{"topk_ids": [3, 1.5], "topk_weights": [1, 1]}', "topk_ids has 1.5"),
        ('{"topk_ids": [3, true], "topk_weights": [1, 1]}', "topk_ids has True"),
        ('{"topk_ids": [3, 9999999999], "topk_weights": [1, 1]}', "topk_ids has 9999999999"),
        ('{"topk_ids": [3, 3], "topk_weights": [1, 1]}', "chooses an expert twice"),
        ('{"topk_ids": [3, 0], "topk_weights": [1, Infinity]}', "topk_weights has inf"),
        ('{"topk_ids": [3, 0], "topk_weights": [1, 1e39]}', "topk_weights has 1e"),
        ('{"topk_ids": [3, 0], "topk_weights": [1, null]}', "topk_weights has None"),
    ],
)
def test_refuses_damaged_choices(tmp_path: Path, line: str, message: str) -> None:
    """A damaged second line is refused with its number and the reason, by either entrance."""
    path = written(tmp_path, GOOD_LINE + line)
    for load in (load_topk_jsonl, open_routing):
        with pytest.raises(ConfigError, match=message):
            load(path)


def test_refuses_ids_beyond_the_experts(tmp_path: Path) -> None:
    """An id that the told number of experts does not reach, and no experts at all, are refused."""
    path = written(tmp_path, GOOD_LINE)
    with pytest.raises(ConfigError, match=r"topk_ids has 3; an id must be an integer in 0\.\.2"):
        load_topk_jsonl(path, n_experts=3)
    with pytest.raises(ConfigError, match="n_experts is 0"):
        load_topk_jsonl(path, n_experts=0)


def test_refuses_files_without_tokens_or_without_a_file(tmp_path: Path) -> None:
    """An empty file, a folder and a missing file are ConfigErrors that name the path."""
    with pytest.raises(ConfigError, match="no tokens"):
        load_topk_jsonl(written(tmp_path, "\n\n"))
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ConfigError, match=f"{path}: cannot be read"):
            open_routing(path)


@pytest.mark.parametrize("name", LOADS_FILES)
def test_measured_loads_are_as_described(data_dir: Path, name: str) -> None:
    """58 of 61 layers route, with a hottest expert of 2.6 to 13.4 times the mean."""
    loads = open_routing(data_dir / name)
    assert isinstance(loads, ExpertLoads)
    assert loads.counts.shape == (61, 256)
    assert loads.moe_layers == list(range(3, 61))
    hottest = [loads.layer(layer).max() / loads.layer(layer).mean() for layer in loads.moe_layers]
    assert 2.6 <= min(hottest) < max(hottest) <= 13.4


def test_generated_loads_are_in_the_middle_of_measured_ones(data_dir: Path) -> None:
    """The generated hottest expert is within 3% of the median over all measured layers."""
    hottest = []
    for name in LOADS_FILES:
        loads = load_expert_loads(data_dir / name)
        hottest += [loads.layer(layer).max() / loads.layer(layer).mean() for layer in loads.moe_layers]
    assert skewed_loads(256, seed=0).max() == pytest.approx(np.median(hottest), rel=0.03)


@pytest.mark.parametrize("name", LOADS_FILES)
def test_a_pod_draws_the_measured_shares(data_dir: Path, name: str) -> None:
    """17,280 tokens of 8 choices meet each expert's share of the hottest layer within 5 standard deviations."""
    loads = load_expert_loads(data_dir / name)
    hottest: Any = max(loads.moe_layers, key=lambda layer: loads.layer(layer).max())
    p = inclusion_probabilities(loads.layer(hottest), 8)
    chosen = draw_topk(loads.layer(hottest), 17_280, 8, np.random.default_rng(0))
    measured = np.bincount(chosen.ravel(), minlength=256) / 17_280
    assert (np.abs(measured - p) <= 5 * np.sqrt(p * (1 - p) / 17_280)).all()


def test_recorded_tokens_are_dealt_and_placed(data_dir: Path) -> None:
    """Recorded choices of 60 experts go to 24 ranks in request order and find their slots."""
    choices = open_routing(data_dir / CHOICES_FILE)
    assert isinstance(choices, RecordedChoices)
    assert choices.topk.shape == choices.weights.shape == (4357, 4)
    assert choices.n_experts == 60
    routing = deal_routing(choices, 24, 32)
    assert np.array_equal(np.concatenate(routing.topk), choices.topk[: 24 * 32])
    placement = place_experts(24, 60)
    placed = place_choices(routing, placement)
    assert placed.k == 5
    assert placed.loads()[placement.slots].sum() == 24 * 32 * 4
