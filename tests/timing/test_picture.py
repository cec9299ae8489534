"""The picture and the page of a timed run, read as text and, where there is one, in a browser."""

import functools
import itertools
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.browser_support import DOWN, END, HOME, browser, chosen, complaints, narrow, press  # noqa: F401  a fixture
from tests.cli_support import printed, refusal
from xccl_emu.protocol.registry import make
from xccl_emu.testing import measure
from xccl_emu.timing.picture import Timeline, _ticks, page
from xccl_emu.timing.run import Timing

SVG = "{http://www.w3.org/2000/svg}"


@functools.cache
def timed() -> Timing:
    """Send/recv with a single slot, so that both sides wait."""
    return measure(make("sendrecv", slots=1, chunks=3)).timing


def test_the_path_is_drawn_from_the_start_to_the_end_without_a_gap() -> None:
    """Its level parts add up to the width of the latency, and each begins where the one before has ended."""
    run = Timeline(timed(), 1000)
    lines = ElementTree.fromstring(run.svg()).findall(f"{SVG}line[@class='path']")
    ends = [tuple(float(line.get(name, "")) for name in ("x1", "y1", "x2", "y2")) for line in lines]
    assert all(one[2:] == other[:2] for one, other in itertools.pairwise(ends))
    assert sum(x2 - x1 for x1, y1, x2, y2 in ends if y1 == y2) == pytest.approx(1000, rel=1e-3)
    assert sum(part.end_us - part.start_us for one in run.shown for part in one.path) == pytest.approx(
        timed().latency_us
    )


@settings(max_examples=20)
@given(most=st.integers(0, 80))
def test_what_is_left_out_is_not_on_the_path(most: int) -> None:
    """Actions of the path are kept first, and what is kept stays in the order of time."""
    run = Timeline(timed(), most)
    on_path = sum(bool(one.path) for one in run.actions)
    assert sum(bool(one.path) for one in run.shown) == min(most, on_path)
    assert len(run.shown) == min(most, len(run.actions))
    assert run.shown == sorted(run.shown, key=lambda one: run.actions.index(one))


@given(st.floats(1e-3, 1e6), st.floats(1, 100))
def test_ticks_are_few_and_round(until: float, about: float) -> None:
    """From 0 on, in equal steps of 1, 2 or 5, and no more than were asked for."""
    ticks = _ticks(until, about)
    assert ticks[0] == 0
    assert len(ticks) <= about + 2


def test_command_writes_the_page_and_the_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the trace; both are of all dies, which --dies is refused for."""
    monkeypatch.chdir(tmp_path)
    said = printed("trace", "sendrecv", "--html", "run.html", "--svg", "run.svg")
    assert "written: run.html" in said
    assert ElementTree.parse("run.svg").getroot().tag == f"{SVG}svg"
    assert "critical path, us: " in Path("run.html").read_text()
    assert "--html run.html: shows all dies" in refusal("trace", "sendrecv", "--html", "run.html", "--dies", "0")


@pytest.mark.slow
def test_page_is_gone_through_along_the_path(browser: Any, tmp_path: Path) -> None:  # noqa: F811  the fixture
    """It opens at the first action of the path; boxes choose their line; axe has no complaint, nor on a phone."""
    (tmp_path / "page.html").write_text(page(timed(), "timed"))
    browser.get((tmp_path / "page.html").as_uri())
    run = Timeline(timed(), 1000)
    assert chosen(browser) == "● 0.000"
    second = [one for one in run.shown if one.path][1]
    assert press(browser, "m") == f"● {second.start_us:.3f}"
    assert second.name in browser.find_element("id", "step").text
    assert press(browser, DOWN) != f"● {second.start_us:.3f}"
    assert press(browser, END) == f"● {run.shown[-1].start_us:.3f}"
    box = browser.find_element("css selector", "rect.mtu-in")
    browser.execute_script("arguments[0].dispatchEvent(new Event('click'))", box)
    assert "mtu_in" in browser.find_element("css selector", "#source mark").text
    assert complaints(browser) == []
    narrow(browser)
    assert complaints(browser) == []
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_page_of_a_timed_a2e(browser: Any, tmp_path: Path) -> None:  # noqa: F811  the fixture
    """The path goes from attention through both streams of the experts; axe has no complaint, nor on a phone."""
    timing = measure(make("a2e")).timing
    (tmp_path / "page.html").write_text(page(timing, "a2e", most=100))
    browser.get((tmp_path / "page.html").as_uri())
    first = chosen(browser)
    kernels = {press(browser, "m") and browser.find_element("id", "place").text.rpartition(" ")[2] for _ in range(40)}
    assert {"attention", "a2e_stream", "e2a_stream"} <= kernels
    assert press(browser, HOME) == first
    assert "left out" in browser.find_element("id", "found").text
    for _ in range(2):
        assert complaints(browser) == []
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        narrow(browser)
