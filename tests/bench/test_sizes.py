"""Sizes and numbers of the command line."""

import pytest

from xccl_emu.errors import ConfigError
from xccl_emu.sizes import parse_size, parse_whole, size_text, sizes_from


@pytest.mark.parametrize(
    ("text", "nbytes"), [("1", 1), ("512B", 512), ("64K", 65536), ("64kib", 65536), ("1.5M", 3 << 19), ("1G", 1 << 30)]
)
def test_sizes_with_units(text: str, nbytes: int) -> None:
    """K, M and G are powers of 1024, in either case, with or without a B."""
    assert parse_size("-b", text) == nbytes


@pytest.mark.parametrize("text", ["", "K", "0", "-1K", "1.3", "nan", "1T", "inf", "1 2"])
def test_what_is_no_size(text: str) -> None:
    """Anything else is refused with the option's name."""
    with pytest.raises(ConfigError, match=f"-b {text}: must be a size such as"):
        parse_size("-b", text)


def test_a_range_of_sizes() -> None:
    """From the least, by the factor, not beyond the largest; a range without end or members is refused."""
    assert sizes_from(1024, 5000, 2) == [1024, 2048, 4096]
    assert sizes_from(7, 7, 2) == [7]
    with pytest.raises(ConfigError, match="-f 1: must be at least 2"):
        sizes_from(1, 2, 1)
    with pytest.raises(ConfigError, match="-e 1: must be at least -b, which is 2"):
        sizes_from(2, 1, 2)


def test_whole_numbers() -> None:
    """Numbers with commas between them; zero, words and nothing are refused."""
    assert parse_whole("--cores", "2, 48") == [2, 48]
    for text in ("", "0", "2,x", "-1", "2,"):
        with pytest.raises(ConfigError, match=f"--cores {text}: must be whole numbers above 0"):
            parse_whole("--cores", text)


def test_sizes_as_text() -> None:
    """The largest unit that goes into a size."""
    assert [size_text(n) for n in (1, 1024, 9 << 20, 1 << 30, 1500)] == ["1 B", "1 KB", "9 MB", "1 GB", "1500 B"]
