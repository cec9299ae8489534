"""Protocols of other people: a case in a file of its own is a protocol in every command."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from cli_support import as_json, invoke, refusal

from tests.refused import refuses
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.lang import kernel, mtu_in, mtu_out, poll_ge, put, quiet
from xccl_emu.protocol import Bench, Case, Preset, Regions, choice, registry, size
from xccl_emu.protocol.registry import make
from xccl_emu.testing import assert_verified

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "prefix_sum"
SCAN = f"{EXAMPLE / 'prefix_sum.py'}:PrefixSum"


@kernel
def push(source, target, flag):
    """Copy 32 bytes to another die, and then say so."""
    yield mtu_in(source, 0, 32)
    yield quiet(sync="read")
    yield mtu_out(0, target, 32)
    yield quiet(sync="data before flag")
    yield put(flag, 1, sync="flag")


@kernel
def take(slot, target, flag):
    """Wait for the flag and copy what came."""
    yield poll_ge(flag, 1, sync="arrived")
    yield mtu_in(slot, 0, 32)
    yield quiet(sync="read")
    yield mtu_out(0, target, 32)


@dataclass(frozen=True)
class Push(Case):
    """One payload from die 0 to die 1."""

    seed: int = size(1, "Of the payload.", least=0)
    kind: str = choice("plain", "Nothing, yet.", of=("plain", "other"))

    def lay_out(self, bench: Bench) -> None:
        """A slot and a flag on die 1."""
        regions = Regions(2)
        slot, flag = regions.managed("slot", 32), regions.meta("flag")
        pod = bench.pod(regions.tight_pod(app_bytes=64, ub_bytes=32))
        regions.place(bench, pod)
        data = np.random.default_rng(self.seed).integers(1, 256, 32, np.uint8)
        own, out = bench.filled(0, data, "own"), bench.wanted(1, data, "out", owners="die1")
        bench.role("sender", [0])
        bench.role("receiver", [1])
        sent = {"source": own.address, "target": slot.at(1), "flag": flag.at(1)}
        pod.launch(push, 0, [0], sent, [pod.grant(own, "r"), slot.grant(1, "w"), flag.grant(1, "w", 0)])
        taken = {"slot": slot.at(1), "target": out.address, "flag": flag.at(1)}
        pod.launch(take, 1, [0], taken, [slot.grant(1, "r"), flag.grant(1, "r"), pod.grant(out, "w")])


def test_a_case_is_verified_and_each_of_its_orderings_is_needed() -> None:
    """What derives from `Case` is checked as shipped protocols are, and without its quiet it is refuted."""
    assert_verified(Push())
    assert check(Push(), without=["data before flag"]).violation is not None
    assert Push().syncs == ("read", "data before flag", "flag", "arrived")


@refuses(
    Push,
    ({"seed": -1}, "seed=-1: must be at least 0"),
    ({"seed": 1 << 20}, "seed=1048576: must be at most 65536"),
    ({"seed": "x"}, "seed='x': must be a whole number"),
    ({"seed": True}, "seed=True: must be a whole number"),
    ({"kind": "green"}, "kind='green': must be one of plain, other"),
)
def test_sizes_are_checked_when_a_case_is_made() -> None:
    """Each field is held against its range, by name, before anything is built."""


@dataclass(frozen=True)
class Pull(Push):
    """The same, known by two names."""

    presets = (Preset("pull", "As usual"), Preset("pull-again", "With another seed", {"seed": 2}))


def test_a_case_goes_by_the_name_whose_sizes_it_has() -> None:
    """The last one that fits, else the first; a class that says no names has its own, and inherits none."""
    assert (Pull().name, Pull(seed=2).name, Pull(seed=3).name) == ("pull", "pull-again", "pull")
    assert [preset.name for preset in Pull.known_as()] == ["pull", "pull-again"]
    assert (Push().name, Push.known_as()[0].about) == ("Push", "One payload from die 0 to die 1.")


@pytest.mark.parametrize("name", registry.names())
def test_a_name_makes_a_case_of_that_name(name: str) -> None:
    """Whatever is listed can be made, tells what it is, and has proofs of its own."""
    assert make(name).name == name
    assert registry.known(name).preset.about
    assert all(case.name == name for case in registry.proofs_of(name).values())
    assert registry.proofs_of(name)


def test_regions_do_not_overlap_and_have_names() -> None:
    """Elements are on granules of their own, one behind the other, labelled on each die, and out of range is an
    error."""
    trial = Push().build("sc")
    names = {label.name: label for label in trial.labels}
    assert {"die0.slot", "die1.slot", "die0.flag", "die1.flag"} <= names.keys()
    spans = sorted((label.address, label.address + label.nbytes) for label in trial.labels)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    regions = Regions(2)
    ring = regions.managed("ring", 40, count=3)
    with pytest.raises(ConfigError, match="has no addresses yet"):
        ring.at(0)
    with pytest.raises(ConfigError, match=r"ring\[3\]: there are elements 0 to 2"):
        ring.at(0, 3)
    with pytest.raises(ConfigError, match="at least one of each"):
        regions.meta("none", 8, 0)
    with pytest.raises(ConfigError, match="region 'ring': there is one already"):
        regions.meta("ring")
    assert regions.bytes_of("managed") == 3 * 64


@refuses(
    Bench("sc", ()).wanted,
    ((0, "abc"), "must be one whose bytes are its values .* is text"),
    ((0, np.array([object()])), "must be one whose bytes are its values"),
)
def test_an_output_that_has_no_bytes() -> None:
    """What must be in memory in the end is an array of numbers."""


@refuses(size, ({"default": 1, "least": "2"}, "least='2': must be a whole number"))
def test_a_range_that_is_none() -> None:
    """A case cannot be declared with it."""


@refuses(
    make,
    ("nowhere.py:Name", "there is no file 'nowhere.py'"),
    (f"{EXAMPLE / 'prefix_sum.py'}:Wrong", "prefix_sum.py:NAME; there is PrefixSum"),
    (f"{EXAMPLE}:PrefixSum", "there is no file"),
    ("nothing", "must be a name that xccl-emu list prints, or FILE.py:NAME"),
)
def test_a_name_that_is_none() -> None:
    """The error names the file or the name, and what there is."""


@pytest.mark.parametrize(("fails", "told"), [("1 / 0", "ZeroDivisionError"), ("raise SystemExit(0)", "SystemExit")])
def test_a_file_that_fails_is_named(tmp_path: Path, fails: str, told: str) -> None:
    """A module that fails or ends is a typed error; two files of one name do not get in each other's way."""
    for folder, text in (("a", fails), ("b", "from xccl_emu.protocol import protocol\n@protocol\ndef p(b): ...\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same_name.py").write_text(text)
    with pytest.raises(ConfigError, match=rf"cannot be imported \(.*same_name.py:1: {told}"):
        registry.of_file(f"{tmp_path}/a/same_name.py:P")
    assert registry.of_file(f"{tmp_path}/b/same_name.py:p").__name__ == "p"


def test_a_launch_that_is_refused_is_shown_by_its_line(tmp_path: Path) -> None:
    """The command names the line of the user's file whose call was refused."""
    file = tmp_path / "own.py"
    file.write_text(
        "from xccl_emu.lang import kernel, put\nfrom xccl_emu.machine import small_pod\n"
        "from xccl_emu.protocol import protocol\n@kernel\ndef k(flag): yield put(flag, 1)\n"
        "@protocol\ndef p(bench): bench.pod(small_pod(1)).launch(k, 0, [0], {})\n"
    )
    assert "arguments missing: ['flag'], unknown: [] (own.py:7)" in refusal("check", f"{file}:p").replace(
        os.path.relpath(file), "own.py"
    )


def test_a_protocol_that_ends_the_process_is_told(tmp_path: Path) -> None:
    """To leave through SystemExit while a protocol is built is an error, and no verdict."""
    file = tmp_path / "leaves.py"
    file.write_text("from xccl_emu.protocol import protocol\n@protocol\ndef p(bench): raise SystemExit(0)\n")
    for command in ("check", "run"):
        assert "the protocol ended the process (SystemExit: 0)" in refusal(command, f"{file}:p")


def test_the_sum_is_the_oracles() -> None:
    """The result equals an independent sum, for both types and several sizes, and a wrong byte would be seen."""
    for sizes in ("--dies 2", "--dies 5 --elements 40 --slots 3 --dtype bf16", "--dies 4 --elements 7"):
        assert as_json("run", SCAN, *sizes.split())["wrong"] == 0
    trial = make(SCAN).build("sc")
    trial.pod.run()
    trial.pod.memory[trial.expected[0].address] ^= 1
    assert list(trial.wrong_bytes().values()) == [1]


def test_check_takes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verified; refuted without a quiet; that replays; each synchronization gets an answer; faults are drawn."""
    monkeypatch.chdir(tmp_path)
    assert as_json("check", SCAN, "--dies", "2")["verdict"] == "verified"
    assert invoke("check", SCAN, "--dies=2", "--without", "chunk before tail", "--out", "w.json")[0] == 1
    assert invoke("check", SCAN, "--replay", "w.json")[0] == 1
    assert invoke("check", "--replay", "w.json")[0] == 1  # it knows its file
    each = as_json("check", SCAN, "--dies", "2", "--each-sync")["each_sync"]
    assert {one["sync"]: one["finding"] for one in each}["chunk before tail"] == "needed"
    assert as_json("check", SCAN, "--dies", "2", "--fault", "stop:die1", "--schedules", "20")["schedules"] == 20


def test_bench_trace_and_compare_take_a_file(tmp_path: Path) -> None:
    """Times of each combination of sizes, a picture, and what each role asks of others."""
    rows = as_json("bench", SCAN, "--dies", "2,3", "--elements", "16,64")["results"]
    assert [row["configuration"]["dies"] for row in rows] == [2, 2, 3, 3]
    assert all(row["emulated"] > 0 and row["wrong"] == 0 for row in rows)
    algbw, busbw = rows[-1]["beside"].values()
    assert busbw == pytest.approx(algbw)
    out = tmp_path / "t.json"
    assert "as they must be" in invoke("trace", SCAN, "--out", str(out))[1]
    assert json.loads(out.read_text())
    lines = as_json("compare", SCAN, "--dies", "4")["results"]
    assert [(line["part"], line["n_dies"], line["dies_written"]) for line in lines] == [("die", 4, [1.5, 2])]


def test_options_of_the_comparison_are_sizes_of_named_protocols() -> None:
    """``--ranks`` is an option of the command and a size of the protocol: what is given reaches the protocol, and
    what it does not have is refused."""
    compared = as_json("compare", "moe", "fused", "--ranks", "3", "--tokens", "1", "--experts", "2")
    assert [line["n_dies"] for line in compared["results"]] == [3, 3]
    assert compared["configuration"] == {"ranks": 3, "tokens": 1, "experts": 2}
    assert "--attention 2: moe has no such size" in refusal("compare", "moe", "--attention", "2")


def test_roles_are_compared_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that names roles gets a line for each: the sender writes one payload and one flag, the receiver none."""
    monkeypatch.setattr(registry, "of_file", lambda name: Push)
    lines = as_json("compare", "here.py:Push")["results"]
    assert [(line["part"], line["flags"]) for line in lines] == [("sender", [1.0, 1]), ("receiver", [0.0, 0])]


def test_list_shows_what_can_be_chosen() -> None:
    """All names; of one its sizes with help and range, its synchronizations and what is to be proved."""
    names = invoke("list")[1]
    assert re.search(r"sendrecv +Send and receive .*\(also -async,\s+-both", names)
    assert max(map(len, names.splitlines())) <= 80
    told = as_json("list", SCAN)
    assert [each["name"] for each in told["sizes"]] == ["dies", "elements", "chunks", "slots", "dtype", "seed"]
    assert "chunk before tail" in told["synchronizations"]
    assert len(told["proofs"]) == 3
    told = invoke("list", "sendrecv")[1]
    assert "--slots 4" in told
    assert "--nbytes  Payload" in told
    assert "(also --permutation, --no-permutation)" in told
    assert invoke("list", "nothing")[0] == 2


@pytest.mark.parametrize("proof", ["three dies", "two dies, two slots", "two dies, chunks of two granules"])
def test_the_example_is_verified(proof: str) -> None:
    """Each configuration that the example names is right under every schedule."""
    assert_verified(registry.of_file(SCAN).proofs()[proof])


@pytest.mark.slow
def test_two_files_make_a_shipped_protocol(tmp_path: Path) -> None:
    """Moved into kernels/ and protocols/ of a copy of the tree, the example is found by every command and proof."""
    for name in ("xccl_emu", "kernels", "protocols"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(EXAMPLE / "prefix_sum_kernel.py", tmp_path / "kernels" / "prefix_sum.py")
    text = (EXAMPLE / "prefix_sum.py").read_text()
    moved = text.replace("from prefix_sum_kernel import", "from xccl_emu.kernels.prefix_sum import")
    (tmp_path / "protocols" / "prefix_sum.py").write_text(moved)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}

    def command(*words: str) -> str:
        line = [sys.executable, "-m", "xccl_emu", *words]
        return subprocess.run(line, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout

    assert "PrefixSum" in command("list")
    assert "#wrong 0" in command("run", "PrefixSum", "--dies", "2")
    assert "verified" in command("check", "PrefixSum", "--dies", "2")
    assert json.loads(command("bench", "PrefixSum", "--dies", "2", "--json"))["wrong"] == 0
    assert "as they must be" in command("trace", "PrefixSum", "--out", "t.json")
    assert "PrefixSum" in command("compare", "PrefixSum")
    proofs = "from xccl_emu.protocol.registry import proofs; print(*proofs(), sep='\\n')"
    line = [sys.executable, "-c", proofs]
    listed = subprocess.run(line, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout
    assert "PrefixSum: two dies, two slots" in listed
