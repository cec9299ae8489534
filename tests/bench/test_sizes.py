"""Sizes and numbers of the command line."""

from functools import partial

import pytest

from tests.refused import itself, refuses
from xccl_emu.base.sizes import parse_size, parse_whole, size_text, sizes_from


@pytest.mark.parametrize(
    ("text", "nbytes"), [("1", 1), ("512B", 512), ("64K", 65536), ("64kib", 65536), ("1.5M", 3 << 19), ("1G", 1 << 30)]
)
def test_sizes_with_units(text: str, nbytes: int) -> None:
    """K, M and G are powers of 1024, in either case, with or without a B."""
    assert parse_size("-b", text) == nbytes


def test_a_range_of_sizes() -> None:
    """From the least, by the factor, not beyond the largest."""
    assert sizes_from("1K", "5000", 2) == [1024, 2048, 4096]
    assert sizes_from("7", "7", 2) == [7]


def test_whole_numbers() -> None:
    """Numbers with commas between them."""
    assert parse_whole("--cores", "2, 48") == [2, 48]


NO_SIZES, NO_NUMBERS = ("", "K", "0", "-1K", "1.3", "nan", "1T", "inf", "1 2"), ("", "0", "2,x", "-1", "2,")


@refuses(
    itself,
    *((partial(parse_size, "-b", text), f"-b {text}: must be a size such as") for text in NO_SIZES),
    *((partial(parse_whole, "--cores", text), f"--cores {text}: must be whole numbers above 0") for text in NO_NUMBERS),
    (lambda: sizes_from("1", "2", 1), "-f 1: must be at least 2"),
    (lambda: sizes_from("2K", "1K", 2), "-e 1K: must be at least -b 2K"),
)
def test_what_is_no_size_number_or_range() -> None:
    """Anything else, and a range without end or members, is refused with the option's name."""


def test_sizes_as_text() -> None:
    """The largest unit that goes into a size."""
    assert [size_text(n) for n in (1, 1024, 9 << 20, 1 << 30, 1500)] == ["1 B", "1 KB", "9 MB", "1 GB", "1500 B"]
