"""What the hostile tests share: values that nobody should give, and a limit of time for one call."""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from xccl_emu.base.errors import XcclEmuError

SECONDS_MAX = 120
"""Time limit of one call: far more than any takes, on a busy machine too."""

INT64_MAX = (1 << 63) - 1

NUMBERS = (
    0, 1, -1, 2, 3, 7, 31, 32, 33, 64, 255, 256, 1 << 16, (1 << 31) - 1, 1 << 31, -(1 << 31), 1 << 40, INT64_MAX,
    1 << 63, -(1 << 63), -(1 << 63) - 1, 1 << 64, 10**30, True, False, 0.0, 1.0, 1.5, -0.5, 1e300, float("inf"),
    float("nan"), np.int8(1), np.int8(-1), np.uint8(2), np.int16(1), np.int32(3), np.int64(1), np.uint64(1 << 63),
    np.float32(2.0), np.float64("nan"), np.bool_(True), 1j,
)  # fmt: skip

OTHERS = (
    None, "", "a", "mtu", "dma", "sc", "relaxed", "1", "tail", "\x00", "é", "x" * 500, b"", b"ab", (), (1, 2), [],
    [1, 2], ["tail"], [None], {}, {"a": 1}, {1}, frozenset(), range(3), object(), int, len, Ellipsis, slice(3),
    np.zeros(3), np.zeros(0), np.zeros((2, 2), np.int32), np.array(5), np.array(["a"]), np.array([None]),
    np.zeros(2, np.uint8), iter(()), (x for x in (1, 2)), Exception("e"), memoryview(b"abc"), bytearray(b"x"),
)  # fmt: skip


def each_kind_once(wrong: Iterable[tuple[str, str]]) -> list[str]:
    """What went wrong, of (kind, what) the first of each kind; a call that ended well has an empty what."""
    found: dict[str, str] = {}
    for kind, what in wrong:
        if what:
            found.setdefault(kind, what)
    return [*found.values()]


class WithoutEnd(BaseException):
    """A call took longer than any should."""


@contextmanager
def limited(what: str) -> Iterator[None]:
    """`WithoutEnd` if what is done inside takes longer."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise WithoutEnd(f"{what}: more than {SECONDS_MAX} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS_MAX)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(what: str, call: Callable[[], Any]) -> str:
    """``""`` if the call returns or raises an error of the emulator, else what it raised instead."""
    try:
        with limited(what):
            call()
    except (XcclEmuError, DeprecationWarning):  # NumPy's warning of what it was given is an error in tests alone
        return ""
    except Exception as error:
        return f"{what}: {type(error).__name__}: {error}"
    return ""
