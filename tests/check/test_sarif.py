"""What a check has found as SARIF: its shape, and that it names the lines of the kernel."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

from tests.cli_support import invoke, refusal
from xccl_emu.check.verdict import KINDS


def log_of(*words: str, code: int) -> dict[str, Any]:
    """The log that a check writes."""
    assert invoke("check", *words, "--sarif", "found.sarif")[0] == code
    return json.loads(Path("found.sarif").read_text())


def check_shape(log: dict[str, Any]) -> list[dict[str, Any]]:
    """Hold what SARIF 2.1.0 requires of each part that there is, and what a review needs beyond that; the results."""
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"]
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(ids) == len(set(ids)) == len(KINDS)
    for result in run["results"]:
        assert result["message"]["text"]
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert len(result["locations"]) == 1
        for each in (*result["locations"], *result.get("relatedLocations", ())):
            place = each["physicalLocation"]
            assert place["region"]["startLine"] >= 1
            uri = urlparse(place["artifactLocation"]["uri"])
            assert uri.scheme == "" or (uri.scheme == "file" and uri.path.startswith("/"))
            assert Path(unquote(uri.path)).is_file()
    return run["results"]


def test_lines_of_a_kernel_are_annotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A race has both its lines, by a URI relative to the working directory; what is right has no result."""
    monkeypatch.chdir(tmp_path)
    assert invoke("new", "ring", "--folder", "own files")[0] == 0
    name = "own files/ring.py:Ring"
    first, *_ = check_shape(log_of(name, "--without", "chunk before flag", code=1))
    places = [one["physicalLocation"] for one in (*first["locations"], *first["relatedLocations"])]
    assert {place["artifactLocation"]["uri"] for place in places} == {"own%20files/ring_kernel.py"}
    source = Path("own files/ring_kernel.py").read_text().splitlines()
    assert all("yield" in source[place["region"]["startLine"] - 1] for place in places)
    assert first["ruleId"] == "data-race"
    assert check_shape(log_of(name, code=0)) == []


def test_the_file_is_one_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is asked before anything is searched."""
    monkeypatch.chdir(tmp_path)
    assert "--sarif none/x.sarif: must be a file in a folder" in refusal("check", "sendrecv", "--sarif", "none/x.sarif")
