"""Where lowered text lives: a file for each distinct text, so that Numba's cache, keyed on the file, is never stale."""

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMESPACE = "xccl_emu.lang.kernel"
"""Module that lowered functions claim to be in; Numba imports it when it loads a cached function."""


def folder() -> Path:
    """Return the folder of the lowered files: below NUMBA_CACHE_DIR, or one that this process removes at its end."""
    base = os.environ.get("NUMBA_CACHE_DIR")
    return Path(base) / "lowered" if base else _own_folder()


@functools.cache
def _own_folder() -> Path:
    path = Path(tempfile.mkdtemp(prefix="xccl_emu-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def digest(text: str) -> str:
    """Return the digest of a lowered text: all that it calls and every constant stand in it.

    Versions and settings that change the machine code are no part of it: they choose the folder (`xccl_emu._cache`).
    """
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def write(name: str, text: str) -> Path:
    """Write a lowered text unless its file is there; return the file."""
    path = folder() / f"{name}-{digest(text)}.py"
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another process may write the same file: each writes its own and renames, and either one is right.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{name}-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def load(path: Path, text: str, names: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    """Execute a lowered text as the file ``path`` and return the functions ``names`` of it.

    Each gets a qualified name that no other kernel's has: the linker of the JIT tells compiled functions apart by it.
    """
    namespace: dict[str, Any] = {"__name__": NAMESPACE, "__file__": str(path)}
    exec(compile(text, str(path), "exec"), namespace)
    tag = path.stem.rpartition("-")[2]
    for name in names:
        namespace[name].__qualname__ = f"{name}_{tag}"
    return {name: namespace[name] for name in names}
