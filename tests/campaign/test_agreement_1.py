"""All judges agree on random programs: half 1 of them."""

import pytest

from .chunks import CHUNK, CHUNKS, contradictions


@pytest.mark.parametrize("chunk", range(0 * CHUNKS, 1 * CHUNKS))
def test_judges_agree(chunk: int) -> None:
    """What one search verifies, no other search, brute force or schedule refutes; and every witness replays."""
    assert not contradictions(chunk * CHUNK)
