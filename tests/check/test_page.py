"""The page and the picture of a violation, read as text and, where there is one, in a browser."""

import functools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.browser_support import DOWN, END, HOME, browser, chosen, complaints, narrow, press  # noqa: F401  a fixture
from tests.check import test_livelock
from tests.cli_support import printed, refusal
from xccl_emu.base.errors import ReplayError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import Verdict
from xccl_emu.check.witness import picture, render, tracer
from xccl_emu.check.witness.highlight import LOOP, marks
from xccl_emu.check.witness.replay_file import LINE, Witness
from xccl_emu.check.witness.trace import PERFORM, RunTrace
from xccl_emu.lang import add, kernel, poll_ge
from xccl_emu.protocol import Bench, Regions, protocol
from xccl_emu.protocol.case import Case
from xccl_emu.protocol.registry import make

SVG = "{http://www.w3.org/2000/svg}"
OFF = ("slot free",)


@functools.cache
def broken() -> tuple[Case, Verdict]:
    """Send/recv that does not wait for a free slot, and what is found."""
    case = make("sendrecv", slots=1, chunks=3)
    return case, check(case, without=OFF)


def run_of(case: Case, verdict: Verdict) -> tuple[RunTrace, list[render.RenderedRow]]:
    """Its run, and the lines of it."""
    assert verdict.violation is not None
    run = tracer.steps(case.build(verdict.order, verdict.without), verdict.violation.actions.tolist())
    return run, render.rows(run, marks(run, verdict.violation))


def drawn() -> str:
    """The page."""
    case, verdict = broken()
    assert verdict.violation is not None
    return picture.page(lambda: case.build(verdict.order, verdict.without), verdict.violation, "a <title> & more")


def test_picture_has_a_dot_a_row_and_an_arrow_a_landing() -> None:
    """Rows are told in words, both accesses of the race are marked, and each write that landed has an arrow there."""
    run, lines = run_of(*broken())
    root = ElementTree.fromstring(picture.svg(run, lines))
    assert len(root.findall(f"{SVG}circle")) == len(lines)
    assert [band.get("data-row") for band in root.findall(f"{SVG}rect[@class='band']")] == [
        str(row) for row, line in enumerate(lines) if line.mark
    ]
    assert sum(line.mark != "" for line in lines) == 2
    landed = [line for line in lines if line.step.pipe == PERFORM]
    arrows = root.findall(f"{SVG}line[@class='write']")
    assert {float(arrow.get("y2", "")) for arrow in arrows} == {picture.y_of(lines.index(line)) for line in landed}
    assert sum("SWITCHED OFF" in (text.text or "") for text in root.findall(f"{SVG}text")) == 2


def test_a_deadlock_says_who_waits_for_whom() -> None:
    """Below the last row a line for each core that waits; both wait for each other, and an arrow leads to the next."""
    case = make("sendrecv", slots=1, chunks=3)
    run, lines = run_of(case, check(case, without=["tail"]))
    assert [(one.step.core, one.on, one.step.place) for one in run.cycle] == [
        (0, (1,), "die0.meta.ack[0→1]+0x10"),
        (1, (0,), "die1.meta.tail[0→1]+0x10"),
    ]
    root = ElementTree.fromstring(picture.svg(run, lines))
    assert sum("blocked: poll >= 1" in (text.text or "") for text in root.findall(f"{SVG}text")) == 2
    arrows = [float(line.get("y2", "")) for line in root.findall(f"{SVG}line[@class='path']")]
    assert sorted(arrows) == [picture.y_of(len(lines)), picture.y_of(len(lines) + 1)]
    ring = "↻  each waits for what the next one wrote last, or writes next: die0.core0 → die1.core0 → die0.core0"
    assert list(render.below(run, {})) == [ring]


@kernel
def ring_once(first, second):
    """Rings both bells, and that was all."""
    yield add(first, 1)
    yield add(second, 1)


@kernel
def hear_twice(bell):
    """Waits for two rings."""
    yield poll_ge(bell, 2)


@protocol
def one_ring(bench: Bench) -> None:
    """Each of two dies waits for a second ring of the third; all may write on all dies, and only one does."""
    regions = Regions(3)
    bells = regions.meta("bell")
    pod = bench.pod(regions.tight_pod(app_bytes=32, ub_bytes=32))
    regions.place(bench, pod)
    pod.launch(ring_once, 0, [0], {"first": bells.at(1), "second": bells.at(2)}, [bells.grant(None, "rw")])
    for die in (1, 2):
        pod.launch(hear_twice, die, [0], {"bell": bells.at(die)}, [bells.grant(None, "rw")])


def test_who_may_write_and_never_does_is_in_no_ring() -> None:
    """Both that wait have a grant for the words of the other, and write none; who wrote them last has returned."""
    run, _ = run_of(one_ring(), check(one_ring()))
    assert [one.on for one in run.waiting] == [(), ()]
    assert list(render.below(run, {})) == []
    assert all(one.why.endswith(", which has returned") for one in run.waiting)


def test_who_waits_for_nobody_is_in_no_ring() -> None:
    """Without the last acknowledgments everybody else has returned, and nobody is left who could write one."""
    case = make("sendrecv", slots=2, chunks=4)
    run, _ = run_of(case, check(case, without=["ack"]))
    alone = replace(run, waiting=tuple(replace(one, on=()) for one in run.waiting))
    assert run.waiting
    assert {line.mark for line in render.blocked(alone)} == {"✗"}


def test_a_livelock_goes_back_to_where_its_loop_begins() -> None:
    """An arrow on the left leads from the last row up to the first of the loop; all rows of the loop are marked."""
    violation = test_livelock.found()
    run = tracer.steps(test_livelock.spin().build("relaxed"), violation.actions.tolist())
    lines = render.rows(run, marks(run, violation))
    (first,) = (row for row, line in enumerate(lines) if line.mark == LOOP)
    root = ElementTree.fromstring(picture.svg(run, lines))
    (arrow,) = root.findall(f"{SVG}line[@class='path']")
    bands = [int(band.get("data-row", "")) for band in root.findall(f"{SVG}rect[@class='band']")]
    assert bands == [*range(first, len(lines))]
    assert float(arrow.get("y2", "")) == pytest.approx(picture.y_of(first) - picture.ROW / 2 + 2)
    assert float(arrow.get("y1", "")) == pytest.approx(picture.y_of(len(lines) - 1) + picture.ROW / 2 - 2)


def test_page_needs_nothing_else() -> None:
    """No address of a network in it but the name of SVG, the title is escaped, and memory is told for every step."""
    text = drawn()
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "<title>a &lt;title&gt; &amp; more</title>" in text
    shown = json.loads(text.partition('id="shown">')[2].partition("</script>")[0])
    run, lines = run_of(*broken())
    assert len(shown["memory"]) == len(run.steps) + 1
    assert len(shown["rows"]) == len(lines)
    tail = shown["words"].index("die1.meta.tail[0→1]+0x10")
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


def test_page_is_gone_through_by_keys(browser: Any, tmp_path: Path) -> None:  # noqa: F811  the fixture
    """It opens at the first mark; keys move by steps and marks; source and flags follow; axe has no complaint."""
    (tmp_path / "page.html").write_text(drawn())
    browser.get((tmp_path / "page.html").as_uri())

    assert chosen(browser) == "A 28"
    assert press(browser, "m") == "B 35"
    assert press(browser, HOME) == " 1"
    assert press(browser, DOWN) == " 2-3"
    assert "mtu_in" in browser.find_element("css selector", "#source mark").text
    assert press(browser, END) == "B 35"
    browser.find_elements("css selector", ".steps tbody tr")[20].click()
    assert chosen(browser) == " 29"
    assert browser.find_elements("css selector", "#words .changed")
    assert complaints(browser) == []
    narrow(browser)
    assert complaints(browser) == []
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def test_page_of_a_livelock(browser: Any, tmp_path: Path) -> None:  # noqa: F811  the fixture
    """It opens where the loop begins, and says who is not done; axe has no complaint, nor on a phone."""
    text = picture.page(lambda: test_livelock.spin().build("relaxed"), test_livelock.found(), "livelock")
    (tmp_path / "page.html").write_text(text)
    browser.get((tmp_path / "page.html").as_uri())
    assert chosen(browser) == "↻ 6"
    assert press(browser, DOWN) == " 7"
    assert "another look" in browser.find_element("css selector", "#source mark").text
    assert press(browser, "m") == "↻ 6"
    assert LOOP in browser.find_element("id", "found").text
    for _ in range(2):
        assert complaints(browser) == []
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        narrow(browser)


@pytest.mark.slow
def test_a_page_of_200_steps_opens_in_a_second(browser: Any, tmp_path: Path) -> None:  # noqa: F811  the fixture
    """From the request to the first line that is chosen, at the best of three."""
    case = make("sendrecv", slots=8, chunks=16)
    verdict = check(case, without=["ack"])
    assert verdict.violation is not None
    text = picture.page(lambda: case.build(verdict.order, verdict.without), verdict.violation, "long")
    (tmp_path / "page.html").write_text(text)
    took = []
    for _ in range(3):
        browser.get((tmp_path / "page.html").as_uri())
        took.append(browser.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert len(verdict.violation.actions) >= 200
    assert min(took) < 1000
