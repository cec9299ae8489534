"""The replay file: what was saved is loaded and replays; what is missing, damaged or of something else is refused."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import ReplayError, XcclEmuError
from xccl_emu.check.verdict import Violation
from xccl_emu.check.witness.replay_file import FORMAT, Witness

from .witness_support import everything, judge, relay, some_violation

names = st.text(max_size=8)
witnesses = st.builds(
    Witness,
    protocol=names,
    configuration=st.dictionaries(names, st.integers() | names, max_size=3),
    order=st.sampled_from(("sc", "fifo", "relaxed")),
    without=st.lists(names, max_size=3).map(tuple),
    fault=names,
    kind=names,
    message=names,
    fingerprint=names,
    actions=st.lists(st.integers(0, (1 << 63) - 1), max_size=40).map(lambda codes: np.array(codes, np.int64)),
)
FILES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a test's file goes."""
    return tmp_path / "witness.json"


def saved(path: Path) -> Witness:
    """A violation of the relay, saved."""
    violation = some_violation(relay(2), "relaxed")
    witness = Witness.of(relay(2), violation, "relaxed")
    witness.save(path)
    return witness


@FILES
@given(witnesses)
def test_what_is_saved_is_loaded(path: Path, witness: Witness) -> None:
    """Every field comes back as it was."""
    witness.save(path)
    loaded = Witness.load(path)
    assert loaded.actions.dtype == np.int64
    assert loaded.actions.tolist() == witness.actions.tolist()
    assert {**vars(loaded), "actions": None} == {**vars(witness), "actions": None}


def test_a_file_shows_the_violation_again(path: Path) -> None:
    """What is loaded replays, on a trial that the file makes, to the violation that was saved."""
    witness = saved(path)
    loaded = Witness.load(path)
    found = judge(loaded.trial(relay(2)), loaded.violation().actions)
    assert (found.kind, found.message) == (witness.kind, witness.message)
    assert (loaded.violation().kind, loaded.violation().message) == (witness.kind, witness.message)


@FILES
@given(st.data())
def test_damaged_files_are_refused_or_harmless(path: Path, data: st.DataObject) -> None:
    """A file with some bytes changed or cut off gives a ReplayError, or a witness of a trial: never another error."""
    if not path.exists():
        saved(path)
        path.with_suffix(".good").write_bytes(path.read_bytes())
    raw = bytearray(path.with_suffix(".good").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw)) | st.just(len(raw)))])
    with suppress(XcclEmuError):
        assert Witness.load(path).trial(relay(2)).pod.fingerprint() == Witness.load(path).fingerprint


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", "xccl_emu witness 0", "its format is 'xccl_emu witness 0'"),
        ("format", None, "it names no format"),
        ("actions", "0, 1", "actions='0, 1' is damaged"),
        ("actions", [0, -1], "action 2 is damaged, it is -1"),
        ("actions", [1 << 63], "action 1 is damaged"),
        ("actions", [0.5], "action 1 is damaged, it is 0.5"),
        ("actions", [True], "action 1 is damaged, it is True"),
        ("order", "strong", "order='strong' must be one of sc, fifo, relaxed"),
        ("without", [3], "without=3 is damaged"),
        ("configuration", [], r"configuration=\[\] is damaged"),
        ("configuration", {"rounds": 1.5}, "configuration rounds=1.5 is damaged"),
        ("kind", None, "kind=None is damaged"),
    ],
)
def test_a_bad_field_is_named(path: Path, field: str, value: object, message: str) -> None:
    """A field of a wrong type or value is a ReplayError that names it."""
    saved(path)
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {field: value}), "utf-8")
    with pytest.raises(ReplayError, match=message):
        Witness.load(path)


def test_what_is_no_file_of_ours_is_refused(path: Path) -> None:
    """A missing file, a folder, text, other JSON and too deep JSON are ReplayErrors that name the file."""
    with pytest.raises(ReplayError, match=r"witness\.json: does not exist"):
        Witness.load(path)
    with pytest.raises(ReplayError, match="cannot be read"):
        Witness.load(path.parent)
    for text, message in (("hello", "not JSON"), ("[]", "names no format"), ("[" * 100_000, "not JSON"), ("", "JSON")):
        path.write_text(text, "utf-8")
        with pytest.raises(ReplayError, match=message):
            Witness.load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ReplayError, match="not JSON"):
        Witness.load(path)


def test_a_foreign_file_says_what_differs(path: Path) -> None:
    """Another protocol, configuration, kernel or pod is a ReplayError that says which."""
    witness = saved(path)
    with pytest.raises(ReplayError, match="is of protocol 'relay', not of 'everything'"):
        witness.trial(everything())
    with pytest.raises(ReplayError, match="another configuration: rounds=2, not 3"):
        witness.trial(relay(3))
    with pytest.raises(ReplayError, match="another configuration: size=1, not None"):
        replace(witness, configuration={"rounds": 2, "forbidden": 0, "size": 1}).trial(relay(2))
    with pytest.raises(ReplayError, match="another version of relay"):
        replace(witness, fingerprint="00").trial(relay(2))
    with pytest.raises(ReplayError, match="action 1 is of no actor"):
        replace(witness, actions=np.array([12 << 16])).trial(relay(2))
    assert witness.trial(relay(2)).pod.order == "relaxed"


def test_the_file_can_be_read_by_people(path: Path) -> None:
    """One field a line, and a dozen actions."""
    actions = np.arange(30, dtype=np.int64)
    Witness.of(relay(), Violation("deadlock", "a\nb", actions, "", 0), "sc", ("flag in",), "").save(path)
    lines = path.read_text("utf-8").splitlines()
    assert f'  "format": "{FORMAT}",' in lines
    assert "    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11," in lines
    assert max(map(len, lines)) < 100
