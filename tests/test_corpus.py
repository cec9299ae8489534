"""The corpus: each bug is found and its mend proved, as its page and docs/records/corpus.md say."""

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from cli_support import printed, refusal

import xccl_emu
from xccl_emu.base.errors import ConfigError
from xccl_emu.base.jobs import Stopped, in_parts
from xccl_emu.check.check import check
from xccl_emu.check.verdict import DEADLOCK, UNFINISHED, VERIFIED, VIOLATION
from xccl_emu.cli.corpus import find, looked_at
from xccl_emu.protocol.corpus import Member, members
from xccl_emu.protocol.registry import make

MEMBERS = members()
EACH = [pytest.param(member, marks=pytest.mark.slow if member.tool == "fuzz" else ()) for member in MEMBERS]
"""Two hundred sequences take some seconds."""


def but_for_sequences(text: str) -> str:
    """A text without numbers of sequences: what Hypothesis draws differs from one version to the next."""
    return re.sub(r"\d+ sequences?", "sequences", text)


@pytest.mark.parametrize("member", EACH, ids=lambda member: member.name)
def test_member_is_as_its_page_says(member: Member, load_tool: Callable[[str], ModuleType], repository: Path) -> None:
    """The broken case is refuted as expected, the mended one is not, in a minute each, and both pages say so."""
    (result,), _ = find((member.name,), 60.0)
    assert result.right, result.to_json()
    assert max(result.broken.seconds, result.mended.seconds) < 60
    rows = (repository / "docs" / "records" / "corpus.md").read_text("utf-8").splitlines()
    row = f"| {' | '.join(load_tool('corpus').row(result))} |"
    assert but_for_sequences(row) in map(but_for_sequences, rows)
    page = but_for_sequences(" ".join(member.page.read_text(encoding="utf-8").split()))
    found = f"`Broken` has a {result.broken.kind}, found after {looked_at(result.broken)}."
    assert but_for_sequences(found) in page
    assert but_for_sequences(looked_at(result.mended)) in page
    assert all(f"`{source}`" in page for source in member.sources)


@pytest.mark.parametrize(
    "text", ["", "MEMBER = 3", "from xccl_emu.protocol.corpus import Member\nMEMBER = Member((), '', '')"]
)
def test_a_folder_that_is_no_member_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module without its Member, or without its two cases, is no traceback."""
    (tmp_path / "corpus" / "odd").mkdir(parents=True)
    (tmp_path / "corpus" / "odd" / "odd.py").write_text(text)
    monkeypatch.setattr(xccl_emu, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(ConfigError, match="must have a Member called MEMBER, and Broken and Mended"):
        members()


@pytest.mark.parametrize(
    ("sent", "stopped", "code"), [(KeyboardInterrupt(), "interrupted", 130), (SystemExit(143), "terminated", 143)]
)
def test_a_signal_ends_the_whole_corpus(
    sent: BaseException, stopped: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fuzz keeps what it has and says which signal came; the corpus keeps what is done and begins no other case."""
    from xccl_emu.fuzz import run

    def part(number: int) -> run.FuzzSummary:
        if number:
            raise sent
        return run.FuzzSummary("one", sequences=3)

    summary = run.FuzzSummary("one")
    summary.gather(in_parts(part, [0, 1], 1), lambda: False, None)
    assert (summary.sequences, summary.stopped, summary.interrupted) == (3, stopped, True)
    monkeypatch.setattr(run, "fuzz", lambda plan, *_, **__: summary)
    results, ended = find(("flag_cleared_early", "one_slot"), 60.0)
    assert [(result.member.name, result.broken.verdict) for result in results] == [
        ("flag_cleared_early", VIOLATION), ("one_slot", UNFINISHED),
    ]  # fmt: skip
    assert ended == Stopped(stopped, code)


def test_a_protocol_that_ends_the_process_is_no_signal() -> None:
    """Its SystemExit is an error of its own, and reaches the command."""
    from xccl_emu.fuzz import run

    with pytest.raises(SystemExit):
        run.FuzzSummary("one").gather(in_parts(sys.exit, [1], 1), lambda: False, None)


def test_what_check_prints_shows_a_case_of_a_file_again(tmp_path: Path, repository: Path) -> None:
    """The line that says how to show it again names the file of the case, and each command says whose a file is."""
    name = f"{repository}/corpus/credit_in_flight/credit_in_flight.py:Broken"
    kept = str(tmp_path / "kept.json")
    assert f"xccl-emu check --replay {kept} {name}" in printed("check", name, "--out", kept, code=1)
    printed("check", "--replay", kept, name, code=1)
    assert "is of xccl-emu check" in refusal("fuzz", "--replay", kept)


def test_a_member_is_known_by_its_name() -> None:
    """Without the way to its file, which a user of a wheel does not know; a name with hyphens is the same."""
    assert make("credit_in_flight:Broken") == members(("credit_in_flight",))[0].case("Broken")
    assert "data race" in printed("check", "expert-swap:Printed", "--out", os.devnull, code=1)
    assert "must be expert-swap:NAME; there is Mended, Printed, Broken" in refusal("check", "expert-swap:As")
    assert "MEMBER:NAME of xccl-emu corpus" in refusal("check", "no-such-bug:Broken")


def test_a_late_credit_needs_an_order_in_which_it_is_late() -> None:
    """The page of the credit in flight says that under `sc` nothing is late."""
    (member,) = members(("credit_in_flight",))
    assert check(member.case("Broken"), order="sc").verdict == VERIFIED


def test_command_tells_of_a_member_that_is_not_as_its_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 0 where all is found as expected, and 1 where something else is."""
    (member,) = members(("flag_cleared_early",))
    assert "all are as their pages say" in printed("corpus", member.name)
    monkeypatch.setattr("xccl_emu.protocol.corpus.members", lambda names: (replace(member, finding=DEADLOCK),))
    assert f"not as its page says: {member.name}" in printed("corpus", member.name, code=1)


def test_command_refuses_what_is_no_member() -> None:
    """An unknown name and a limit that is not positive are wrong usage, and say what would be right."""
    err = refusal("corpus", "no_such_bug")
    assert ("must be one of " in err, "counter_of_chunks" in err) == (True, True)
    assert "--seconds 0.0: must be positive" in refusal("corpus", "--seconds", "0")


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_member_is_a_file_as_any_other(member: Member) -> None:
    """Its cases are found as FILE.py:NAME, and differ in nothing but what the mend changes: sizes are the same."""
    broken, mended = make(f"{member.file}:Broken"), make(f"{member.file}:Mended")
    assert broken.configuration == mended.configuration


@pytest.mark.parametrize("order", ["sc", "fifo", "relaxed"])
def test_a_head_is_overtaken_under_unordered_only(order: str) -> None:
    """The page of the head that is overtaken says that no other order lets an older write land on a newer."""
    (member,) = members(("head_overtaken",))
    assert check(member.case("Broken"), order=order).verdict == VERIFIED
