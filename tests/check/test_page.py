"""The page and the picture of a violation, read as text and, where there is one, in a browser."""

import functools
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli_support import printed, refusal
from xccl_emu.check.check import check
from xccl_emu.check.verdict import Verdict
from xccl_emu.check.witness import page, picture, render, trace
from xccl_emu.check.witness.highlight import marks
from xccl_emu.check.witness.replay_file import LINE, Witness
from xccl_emu.errors import ReplayError
from xccl_emu.protocol.case import Case
from xccl_emu.protocol.registry import make

SVG = "{http://www.w3.org/2000/svg}"
OFF = ("slot free",)


@functools.cache
def broken() -> tuple[Case, Verdict]:
    """Send/recv that does not wait for a free slot, and what is found."""
    case = make("sendrecv", slots=1, chunks=3)
    return case, check(case, without=OFF)


def run_of(case: Case, verdict: Verdict) -> tuple[trace.Trace, list[render.Row]]:
    """Its run, and the lines of it."""
    assert verdict.violation is not None
    run = trace.steps(case.build(verdict.order, verdict.without), verdict.violation.actions.tolist())
    return run, render.rows(run, marks(run, verdict.violation))


def drawn() -> str:
    """The page."""
    case, verdict = broken()
    assert verdict.violation is not None
    return page.page(lambda: case.build(verdict.order, verdict.without), verdict.violation, "a <title> & more")


def test_picture_has_a_dot_a_row_and_an_arrow_a_landing() -> None:
    """Rows are told in words, both accesses of the race are marked, and each write that landed has an arrow there."""
    run, lines = run_of(*broken())
    root = ElementTree.fromstring(picture.svg(run, lines))
    assert len(root.findall(f"{SVG}circle")) == len(lines)
    assert len(root.findall(f"{SVG}rect[@class='band']")) == 2
    landed = [line for line in lines if line.step.pipe == trace.PERFORM]
    arrows = root.findall(f"{SVG}line[@class='write']")
    assert {float(arrow.get("y2", "")) for arrow in arrows} == {picture.y_of(lines.index(line)) for line in landed}
    assert sum("SWITCHED OFF" in (text.text or "") for text in root.findall(f"{SVG}text")) == 2


def test_a_deadlock_says_who_waits_for_what() -> None:
    """Below the last row, in as many lines as there are cores that wait."""
    case = make("sendrecv", slots=1, chunks=3)
    run, lines = run_of(case, check(case, without=["tail"]))
    assert run.waiting
    assert picture.svg(run, lines).count("blocked: ") == len(run.waiting)


def test_page_needs_nothing_else() -> None:
    """No address of a network in it but the name of SVG, the title is escaped, and memory is told for every step."""
    text = drawn()
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "<title>a &lt;title&gt; &amp; more</title>" in text
    shown = json.loads(text.partition('id="shown">')[2].partition("</script>")[0])
    run, lines = run_of(*broken())
    assert len(shown["memory"]) == len(run.steps) + 1
    assert len(shown["rows"]) == len(lines)
    tail = shown["flags"].index("die1.meta.tail[0→1]+0x10")
    visible = next(write.visible for write in run.writes if write.place == "die1.meta.tail[0→1]")
    assert [words[tail] for words in shown["memory"]] == ["0"] * visible + ["1"] * (len(run.steps) + 1 - visible)


def test_command_writes_the_page_of_a_file_and_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named as the file is, and a line that names the same violation writes the same page."""
    monkeypatch.chdir(tmp_path)
    case, verdict = broken()
    assert verdict.violation is not None
    witness = Witness.of(case, verdict.violation, verdict.order, verdict.without)
    witness.save("kept.json")
    assert "written: kept.html" in printed("show", "kept.json", "--svg", "kept.svg")
    assert "written: witness.html" in printed("show", witness.to_line())
    assert Path("kept.html").read_text() == Path("witness.html").read_text()
    assert ElementTree.parse("kept.svg").getroot().tag == f"{SVG}svg"
    assert Witness.load(witness.to_line()).to_text() == witness.to_text()
    assert "must be a replay file, or a line" in refusal("show", "--svg", "x.svg")


@pytest.mark.parametrize("line", ["", "zzz", "!!", "eNq1UtGu2jAM", "eJyrBgABDQCn", "ü"])
def test_a_damaged_line_is_refused(line: str) -> None:
    """With the beginning of the line."""
    with pytest.raises(ReplayError, match=f"replay file {LINE}.*(is damaged|is not a witness)"):
        Witness.load(LINE + line)


def test_page_is_gone_through_by_keys(browser: Any, tmp_path: Path) -> None:
    """It opens at the first mark; keys move by steps and marks; source and flags follow; axe has no complaint."""
    (tmp_path / "page.html").write_text(drawn())
    browser.get((tmp_path / "page.html").as_uri())

    def chosen() -> str:
        cells = browser.find_elements("css selector", "tr[aria-selected=true] td")
        return " ".join(cell.text for cell in cells[:2])

    def press(keys: str) -> str:
        browser.find_element("tag name", "body").send_keys(keys)
        return chosen()

    assert chosen() == "A 28"
    assert press("m") == "B 35"
    assert press("\ue011") == " 1"  # Home
    assert press("\ue015") == " 2-3"  # down
    assert "mtu_in" in browser.find_element("css selector", "#source mark").text
    assert press("\ue010") == "B 35"  # End
    browser.find_elements("css selector", ".steps tbody tr")[20].click()
    assert chosen() == " 29"
    assert browser.find_elements("css selector", "#memory .changed")
    axe = pytest.importorskip("axe_core_python.selenium").Axe()
    assert [found["id"] for found in axe.run(browser)["violations"]] == []
