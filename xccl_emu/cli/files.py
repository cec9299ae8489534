"""Files that a command writes: whether it can is asked before the run, not after it."""

import os
from pathlib import Path

from xccl_emu.errors import ConfigError


def check_file(option: str, path: Path | None) -> None:
    """ConfigError, naming the option, if a file cannot be written there; nothing is asked of None."""
    if path is None:
        return
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise ConfigError(f"{option} {path}: must be a file in a folder that exists")
    if not os.access(path if path.exists() else path.resolve().parent, os.W_OK):
        raise ConfigError(f"{option} {path}: cannot be written (no permission)")
