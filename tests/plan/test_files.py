"""Files of models and clusters: what is missing, unknown or absurd is refused by name."""

import tomllib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refused import refuses
from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.plan.cluster import SHIPPED as CLUSTERS
from xccl_emu.papers.plan.cluster import load_cluster
from xccl_emu.papers.plan.model import SHIPPED as MODELS
from xccl_emu.papers.plan.model import load_model


def shipped(name: str) -> str:
    """The text of a file in xccl_emu/papers/plan/data."""
    return files("xccl_emu.papers.plan").joinpath("data", f"{name}.toml").read_text("utf-8")


def test_a_copy_of_a_shipped_file_is_the_same(tmp_path: Path) -> None:
    """By its path, whatever its name: a user begins with such a copy."""
    for known, load in ((MODELS, load_model), (CLUSTERS, load_cluster)):
        for name, file in known.items():
            copy = tmp_path / "mine.toml"
            copy.write_text(shipped(file))
            assert load(str(copy)) == load(name)


WRONG_MODELS = [
    ("hidden = 4096", "", "mine.toml: hidden is missing: elements of a hidden state, 1 to"),
    ("hidden = 4096", "hidden = 0", "mine.toml: hidden=0: must be a whole number, 1 to"),
    ("hidden = 4096", "hidden = -4096", "hidden=-4096: must be a whole number"),
    ("hidden = 4096", "hidden = 4096.0", "hidden=4096.0: must be a whole number"),
    ("hidden = 4096", "hidden = true", "hidden=True: must be a whole number"),
    ("hidden = 4096", 'hidden = "4096"', "hidden='4096': must be a whole number"),
    ("hidden = 4096", "hidden = {of = 4096}", r"hidden=.*must be a whole number"),
    ("hidden = 4096", "hidden = 1000000000", "hidden=1000000000: must be a whole number, 1 to"),
    ("weight_bytes = 2", "weight_bytes = nan", "weight_bytes=nan: must be a number, 0.1 to 8"),
    ("weight_bytes = 2", "weight_bytes = inf", "weight_bytes=inf: must be a number"),
    ("hidden = 4096", "hidden = 4096\nheads = 3", "mine.toml: heads=3: no such field; there are name, attention"),
    ('name = "Qwen3-235B-A22B"', "name = 3", "name=3: must be a text"),
    ("[experts]", "[expert]", "mine.toml: expert=.*: no such field"),
    ("top_k = 8", "top_k = 129", "mine.toml: experts: top_k=129: must be at most routed=128"),
    ("top_k = 8", "", "mine.toml: experts: top_k is missing: routed experts of a token, 1 to"),
    ("kv_heads = 4", "kv_heads = 5", "mine.toml: attention: kv_heads=5: must divide heads=64"),
    ('kind = "gqa"', 'kind = "gpa"', "mine.toml: attention: kind='gpa': must be one of mla, gqa"),
    ('kind = "gqa"', 'kind = ["gqa"]', "attention: kind=.*: must be one of mla, gqa"),
    ('kind = "gqa"', "", "mine.toml: attention: kind is missing: must be one of mla, gqa"),
    ('kind = "gqa"', 'kind = "mla"', "attention: kv_heads=4: no such field; there are heads, query_rank"),
    ("layers = 94", "layers = 94\ndense_layers = 94", "dense_layers=94: must be below layers=94"),
    ("layers = 94", "layers = = 94", "is no TOML"),
]
WRONG_CLUSTERS = [
    ("nodes = 4", "nodes = 3", "mine.toml: nodes=3: must be a power of two, as all degrees are"),
    ("devices_per_node = 8", "devices_per_node = 6", "devices_per_node=6: must be a power of two"),
    ("gb_s = 60", "gb_s = 0", "mine.toml: intra: gb_s=0: must be a number, 0.001 to"),
    ("ways = 2", "ways = 3", "mine.toml: intra: ways=3: must be a whole number, 1 to 2"),
    ("mesh = true", "mesh = 1", "mine.toml: intra: mesh=1: must be true or false"),
    ("efficiency = 0.5", "efficiency = 1.5", "efficiency=1.5: must be a number, 0.01 to 1 .part of tflops"),
    ("[inter]\ngb_s = 25", "[inter]", "mine.toml: inter: gb_s is missing: 10.9 bytes a second"),
    ("[inter]", "[between]", "between=.*: no such field"),
    ("[inter]\ngb_s = 25\nways = 1", "", "mine.toml: inter is missing: must be given"),
    ("memory_gb = 64", "memory_gb = -64", "memory_gb=-64: must be a number"),
]


@pytest.mark.parametrize(
    ("load", "name", "old", "new", "message"),
    [(load_model, "qwen3-235b-a22b", *row) for row in WRONG_MODELS]
    + [(load_cluster, "910b", *row) for row in WRONG_CLUSTERS],
)
def test_models_and_clusters_that_cannot_be(
    load: Callable[[str], object], name: str, old: str, new: str, message: str, tmp_path: Path
) -> None:
    """Each by file, table, field and value, with what would be right."""
    text = shipped(name)
    assert old in text
    file = tmp_path / "mine.toml"
    file.write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        load(str(file))


@refuses(
    load_model,
    ("GPT", "model='GPT': must be DeepSeek-R1, Qwen3-235B-A22B, or a file that ends with .toml"),
    ("", "model='': must be"),
    ("nowhere.toml", "model='nowhere.toml': cannot be read .No such file"),
    ("a\0.toml", "is no TOML"),
)
def test_no_file() -> None:
    """What is neither a shipped name nor a file is refused with the names that there are."""


ODD = st.one_of(
    st.integers(-(10**30), 10**30), st.floats(), st.booleans(), st.text(max_size=5), st.lists(st.integers()),
    st.dictionaries(st.sampled_from(["kind", "heads", "gb_s", "x"]), st.integers(), max_size=2), st.none(),
)  # fmt: skip
"""What may stand in a field; None for nothing."""


@given(st.sampled_from([*MODELS.values(), *CLUSTERS.values()]), st.data())
def test_any_field_may_be_anything(file: str, data: st.DataObject) -> None:
    """With one field of a file changed or left out it is loaded, or refused by an error that names the file."""
    tables = tomllib.loads(shipped(file))
    places = [(tables, name) for name in tables] + [
        (inner, name) for inner in tables.values() if isinstance(inner, dict) for name in inner
    ]
    table, name = data.draw(st.sampled_from(places))
    value = data.draw(ODD)
    table[name] = value
    if value is None:
        del table[name]
    load = load_model if file in MODELS.values() else load_cluster
    with patch("xccl_emu.papers.plan.model.tomllib.loads", return_value=tables):
        said = ""
        try:
            load("DeepSeek-R1" if load is load_model else "910B")
        except ConfigError as error:
            said = str(error)
        assert not said or said.startswith(("DeepSeek-R1: ", "910B: "))


def test_a_number_where_a_table_stands(tmp_path: Path) -> None:
    """It is refused by name."""
    head, _, _ = shipped("qwen3-235b-a22b").partition("[experts]")
    file = tmp_path / "mine.toml"
    file.write_text("experts = 8\n" + head)
    with pytest.raises(ConfigError, match=r"mine.toml: experts: must be a table with routed, shared"):
        load_model(str(file))
