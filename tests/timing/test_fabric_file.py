"""Fabrics from files: what is shipped, every field that is wrong by name, and costs as words."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import Modelled
from xccl_emu.timing import topologies
from xccl_emu.timing.costs import Costs

ROOT = Path(__file__).parents[2]
RATE = "{ latency_us = 1.0, gb_s = 100.0 }"
PATHS = "\n".join(f'{name} = {{ medium = "wire", both = {RATE} }}' for name in topologies.CLASSES[:4])
SMALL = f'name = "small"\ndies_per_chip = 1\nchips_per_node = 2\n[paths]\n{PATHS}\n'


def read(tmp_path: Path, text: str) -> topologies.Fabric:
    """The fabric of a file with that text."""
    path = tmp_path / "own.toml"
    path.write_text(text, "utf-8")
    return topologies.topology(str(path))


def test_the_least_file_is_a_fabric(tmp_path: Path) -> None:
    """What has a default may be left out, and both directions may be said at once."""
    fabric = read(tmp_path, SMALL)
    assert (fabric.name, fabric.chips_per_node, len(fabric.paths)) == ("small", 2, 4)
    assert fabric.paths[3].read == fabric.paths[3].write


@pytest.mark.parametrize("name", topologies.NAMES)
def test_each_shipped_fabric_is_read(name: str) -> None:
    """By its name, with costs that are those of the release or stand in its file."""
    fabric, costs = topologies.model(name)
    assert fabric.name
    card = ["dma_less_us=2", "dma_start_us=0.1", "dma_in_flight=8"] if name == "mi300x" else []
    assert costs == topologies.costs_of(card, Costs())


def test_help_names_each_shipped_fabric() -> None:
    """The option is declared where nothing is imported, so its words are held against the files."""
    (fabric,) = (each for each in fields(Modelled) if each.name == "fabric")
    assert all(name in fabric.metadata["help"] for name in topologies.NAMES)
    assert sorted(topologies.NAMES) == sorted(path.stem for path in (ROOT / "xccl_emu/timing/fabrics").glob("*.toml"))


def test_the_example_is_what_the_name_means() -> None:
    """A file that stands beside the examples is the shipped one."""
    assert topologies.topology(str(ROOT / "examples" / "fabrics" / "h800.toml")) == topologies.topology("h800")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (SMALL.replace("chips_per_node = 2", ""), "chips_per_node: is missing; must be a whole number"),
        (SMALL.replace("chips_per_node = 2", "chips_per_node = 0"), "chips_per_node=0"),
        (SMALL.replace("chips_per_node = 2", "chips_per_node = true"), "chips_per_node = True: must be a whole number"),
        (SMALL.replace("chips_per_node = 2", "chips = 2"), "chips: no such entry"),
        (SMALL.replace("gb_s = 100.0", "gb_s = nan", 1), "paths.same_die.read.gb_s = nan: must be a number"),
        (SMALL.replace("gb_s = 100.0", "gb_s = 0", 1), "paths.same_die.read: latency_us"),
        (SMALL.replace("gb_s = 100.0", "gb_s = 1e-9", 1), "paths.same_die.read: latency_us"),
        (SMALL.replace("latency_us", "latency_ns", 1), "paths.same_die.read.latency_ns: no such entry"),
        (SMALL.replace("other_node", "another_node"), "paths.another_node: must be one of same_die"),
        (SMALL.replace('medium = "wire", ', "", 1), "paths.same_die.medium: is missing"),
        (SMALL + "[cpus]\nper_node = 4\n", "paths.node_cpu: is missing"),
        (SMALL + "[costs]\nskew = 1\n", "costs.skew: no such constant; there are clock_ns"),
        (SMALL + "[costs]\npoll_ns = '1'\n", "costs.poll_ns = '1': must be a number"),
        (SMALL + "[costs]\ncore_gb_s = 0\n", "core_gb_s=0: must be above 0"),
        ("name = ", "own.toml: "),
        ("paths = 3", "paths: must be a table"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, names: str) -> None:
    """The error has the file, the entry, and what would be right."""
    with pytest.raises(ConfigError, match=re.escape(names)) as found:
        read(tmp_path, text)
    assert "own.toml" in str(found.value)


ENTRIES = st.sampled_from(["name", "paths", "cpus", "beside", "costs", "nodes", "x"])


@given(st.dictionaries(ENTRIES, st.integers() | st.text()))
def test_nothing_but_typed_errors(given_: dict[str, object]) -> None:
    """Whatever stands where tables have to be, it is a ConfigError."""
    with pytest.raises(ConfigError):
        topologies._fabric(given_, "")


@pytest.mark.parametrize(
    "word", ["poll_ns", "poll_ns=", "poll_ns=x", "poll=1", "poll_ns=-1", "dma_engines=1.5", "poll_ns=nan"]
)
def test_a_cost_that_is_none_is_refused(word: str) -> None:
    """The word is in the error, behind the option."""
    with pytest.raises(ConfigError, match="--cost"):
        topologies.costs_of([word], Costs())


def test_costs_of_words() -> None:
    """The last of two counts, and a whole number stays one where it has to be."""
    costs = topologies.costs_of(["poll_ns=100", "poll_ns=120", "dma_engines=2"], Costs())
    assert (costs.poll_ns, costs.dma_engines) == (120, 2)


def test_another_name_is_refused() -> None:
    """With all that there are."""
    with pytest.raises(ConfigError, match=r"must be FILE\.toml or one of cloudmatrix384, atlas-800t-a2"):
        topologies.topology("h900")
    with pytest.raises(ConfigError, match="No such file"):
        topologies.topology("h900.toml")
