"""Files that a command writes: whole or not at all, and nothing but a regular file is ever replaced.

Those that it reads have an end.
"""

import contextlib
import errno
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_READ_BYTES_MAX = 1 << 30


def read_bytes(path: str | Path) -> bytes:
    """Return what is in a file; raises OSError, for one that is larger than a GiB too, as a device that never ends."""
    with open(path, "rb") as file:
        content = file.read(_READ_BYTES_MAX + 1)
    if len(content) > _READ_BYTES_MAX:
        raise OSError(errno.EFBIG, "larger than 1 GiB", str(path))
    return content


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text to a path, as `write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file: a regular one is replaced when all is written, links are followed.

    What is no regular file (a device, a FIFO), has further names, or is in a folder that takes no new file is
    written in place; so is stdout's file.  Raises OSError.
    """
    target = Path(os.path.realpath(path))
    if _is_replaced(path, target):
        with contextlib.suppress(PermissionError):
            return _replace(target, content)
    with _opened(path) as file:
        file.write(content)


def check_writable(path: str | Path) -> None:
    """Raises OSError or ValueError if nothing can be written there; leaves what is there unchanged."""
    if os.path.exists(path):
        if os.path.isdir(path):
            raise IsADirectoryError(0, "is a folder", str(path))
        if not os.access(path, os.W_OK):
            raise PermissionError(0, "no permission", str(path))
        return
    target = Path(os.path.realpath(path))
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    target.unlink()


def _is_replaced(path: str | Path, target: Path) -> bool:
    """Return whether a new file replaces what is there."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return True
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and target.exists() and _stream(path) is None


def _stream(path: str | Path) -> int | None:
    """Return the stream, stdout (1) or stderr (2), that a path is another name of, as ``/dev/stdout`` is; or None."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(path), os.fstat(number)):
                return number
    return None


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[IO[bytes]]:
    stream = _stream(path)
    if stream is not None and sys.stdout is not None:
        sys.stdout.flush()  # what was printed comes before it
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666) if stream is None else os.dup(stream)
    with os.fdopen(number, "wb") as file:
        yield file


def _replace(target: Path, content: bytes) -> None:
    """Replace a file by one whose name nobody else had, with the rights of the one that it replaces."""
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:40]}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _mode(target: Path) -> int:
    with contextlib.suppress(OSError):
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
