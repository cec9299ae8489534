"""Files that a command writes: whether it can is asked before the run, and told in one line if it fails after it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xccl_emu.errors import ConfigError, OutputError
from xccl_emu.output import check_writable


def check_file(option: str, path: Path | None) -> None:
    """ConfigError, naming the option, if a file cannot be written there; nothing is asked of None."""
    if path is None:
        return
    try:
        check_writable(path)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise ConfigError(f"{option} {path}: must be a file in a folder that exists") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{option} {path}: cannot be written ({_why(error)})") from error


@contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """What is done inside writes a file that an option names; OutputError if it cannot."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{option} {path}: cannot be written ({_why(error)})") from error


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
