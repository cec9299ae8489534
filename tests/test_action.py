"""The GitHub Action: its own step is run as a runner does, and the issue template asks for what it gives."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from xccl_emu.check.witness.replay_file import Witness


@pytest.fixture
def action(repository: Path) -> dict[str, Any]:
    """What action.yml says."""
    return yaml.safe_load((repository / "action.yml").read_text())


def checked(action: dict[str, Any], repository: Path, tmp_path: Path, protocol: str, arguments: str) -> tuple[int, str]:
    """Exit code and summary of the step `check`, with these inputs."""
    (step,) = (step for step in action["runs"]["steps"] if step.get("id") == "check")
    given = {"inputs.protocol": protocol, "inputs.arguments": arguments, "runner.temp": str(tmp_path)}
    own = {name: value for name, value in step["env"].items()}
    for name, value in given.items():
        own = {key: text.replace(f"${{{{ {name} }}}}", value) for key, text in own.items()}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    runner = {"PATH": path, "GITHUB_ACTION_PATH": str(repository), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    runner |= {"GITHUB_OUTPUT": str(tmp_path / "outputs")}
    done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env={**os.environ, **own, **runner})
    return done.returncode, (tmp_path / "summary.md").read_text()


def test_what_is_right_passes(action: dict[str, Any], repository: Path, tmp_path: Path) -> None:
    """A verified protocol ends the step with 0, and no witness is kept."""
    code, summary = checked(action, repository, tmp_path, "sendrecv", "--slots 1 --chunks 1 --granules 1")
    assert (code, "Nothing is wrong" in summary) == (0, True)
    assert not (tmp_path / "xccl-emu" / "witness.html").exists()


def test_a_violation_fails_and_is_kept(action: dict[str, Any], repository: Path, tmp_path: Path) -> None:
    """Its page is where the next step takes it from, and the line in the summary is the same violation."""
    broken = "--slots 1 --chunks 1 --granules 1 --without 'data before tail'"
    code, summary = checked(action, repository, tmp_path, "sendrecv", broken)
    kept = tmp_path / "xccl-emu"
    (line,) = (line for line in summary.splitlines() if line.startswith("xe1:"))
    assert code == 1
    assert "<html" in (kept / "witness.html").read_text()
    assert Witness.load(line).to_text() == Witness.load(kept / "witness.json").to_text()
    assert json.loads((kept / "check.sarif").read_text())["runs"][0]["results"]
    assert action["outputs"]["sarif"]["value"] == "${{ steps.check.outputs.sarif }}"
    assert (tmp_path / "outputs").read_text() == f"sarif={kept / 'check.sarif'}\n"
    (upload,) = (step for step in action["runs"]["steps"] if "upload-artifact" in step.get("uses", ""))
    assert upload["with"]["path"] == "${{ runner.temp }}/xccl-emu"


def test_documented_inputs_are_those_of_the_action(action: dict[str, Any], repository: Path) -> None:
    """docs/how-to.md uses inputs that there are, the one that must be given among them."""
    page = (repository / "docs" / "how-to.md").read_text().partition("```yaml\n")[2].partition("```")[0]
    used = yaml.safe_load(page)["steps"][-1]["with"].keys()
    required = {name for name, about in action["inputs"].items() if about.get("required")}
    assert required <= used <= action["inputs"].keys()


def test_templates_and_citation_are_as_their_readers_want(repository: Path) -> None:
    """Issue forms have a name, a description and a body, one asks for a witness line; the citation has what it must."""
    forms = [yaml.safe_load(path.read_text()) for path in (repository / ".github" / "ISSUE_TEMPLATE").glob("*.yml")]
    assert all({"name", "description", "body"} <= form.keys() for form in forms)
    assert any(part.get("id") == "witness" and "xe1:" in str(part) for form in forms for part in form["body"])
    citation = yaml.safe_load((repository / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    import xccl_emu

    assert citation["version"] == xccl_emu.__version__
