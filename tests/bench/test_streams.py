"""Streams on a die: what overlapping gains follows from what is run, and from nothing else that was published."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli_support import as_json
from xccl_emu.papers.bench.setting import DEFAULT
from xccl_emu.papers.bench.streams import USUAL, Paths


@dataclass(frozen=True)
class Told(Paths):
    """Dispatch and combine as they are told here: so much, and so much a token, more on fewer cores."""

    start_us: float = 50.0
    token_us: float = 1.0

    def sent_us(self, tokens: int, cores: int) -> float:
        """See the class."""
        return self.start_us + self.token_us * tokens * (48 / cores) ** 0.5


@given(st.floats(0, 200), st.floats(0, 3), st.integers(8, 128))
def test_streams_hide_the_shorter_path(start_us: float, token_us: float, requests: int) -> None:
    """The usual batch takes what was put in; without streams both paths add up, and more tokens take longer."""
    paths = Told(DEFAULT, start_us=start_us, token_us=token_us)
    assert paths.overlapped_us(paths.tokens(USUAL)) == pytest.approx(1200)
    tokens = paths.tokens(2 * requests)
    assert paths.overlapped_us(tokens) < paths.overlapped_us(2 * tokens)
    without = paths.in_a_row_us(tokens) - paths.sent_us(tokens, 48)
    assert without == pytest.approx(2 * tokens / 96 * (400 + paths.computed_us / 3))


@pytest.mark.slow
def test_the_command_runs_dispatch_and_combine() -> None:
    """Inputs as they are, rows of prefill without a value and with the reason, and gains that are finite."""
    rows = {row["what"]: row for row in as_json("bench", "streams", "--no-data")["results"]}
    assert rows["attention of a microbatch"]["emulated"] == 600
    assert rows["layer of prefill by streams, 4K"]["note"]
    gains = [rows[f"throughput by streams, {n} requests"] for n in (64, 96, 128)]
    assert all(0 < row["emulated"] < 20 and row["role"] == "check" for row in gains)
    assert max(gains, key=lambda row: row["emulated"]) is gains[1]
