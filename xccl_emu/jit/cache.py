"""Machine code that is never stale: it is kept in folders named by a digest of everything that shapes it.

Numba keys a cached function on the file that holds it, the signature, the CPU and its own version. It notices
neither an edit of a helper in another file nor ``NUMBA_BOUNDSCHECK``. So the package gives every such state a folder
of its own, ``<base>/xccl_emu/<digest>``, and removes the oldest ones. There is a folder for each family of functions,
over the sources that this family depends on: an edit of the checker does not compile the machine again, and an edit
of host code compiles nothing. The package's own functions are in these (`kept.py`); Numba itself gets a folder for
other people's, before it can be imported. Kernels are kept by content, next to them (`lang/_machine_code.py`).
"""

import contextlib
import functools
import hashlib
import os
import re
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

FOLDERS_KEPT = 24
"""How many digest folders stay; a run of the tests alone uses three states (JIT, bounds checks, JIT off) of each."""

_LANGUAGE = ("lang/abi.py", "lang/maps.py", "lang/operations.py", "lang/requests.py")
_MACHINE = ("jit/bare.py", "jit/kept.py", "jit/parts.py", "machine/device", *_LANGUAGE)
FAMILIES = {
    "numba": (),
    "machine": _MACHINE,
    "check": (*_MACHINE, "check/device", *(f"check/{each}/device" for each in ("sampling", "search", "witness"))),
    "timing": (*_MACHINE, "timing/device"),
}
"""What each family is compiled from, below the package."""

listeners: list[Callable[[str], None]] = []
"""Listeners for the family of each function that is about to be compiled because its folder lacks it."""

YOUNG_SECONDS = 600
"""A folder used this recently is never removed: another process may be compiling into it."""

_CHECK_BYTES = 16
_OWN_FOLDER = "xccl_emu"
_DIGEST_NAME = re.compile(r"[0-9a-f]{32}")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_DISTRIBUTIONS = ("numba", "llvmlite", "numpy")
_WITHOUT_EFFECT = frozenset({"NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS", "NUMBA_COLOR_SCHEME"})
"""The one list of settings: Numba's others change machine code, as far as is known."""


def activate() -> str:
    """Point Numba at a folder for what it keeps itself, also in the processes started from here, and return its path.

    A Numba that is already imported gets it too. Never raises for a folder that cannot be written: see `base_folder`.
    """
    folder = folder_of("numba")
    os.environ["NUMBA_CACHE_DIR"] = folder
    numba = sys.modules.get("numba")
    if numba is not None and hasattr(numba, "config"):
        numba.config.CACHE_DIR = folder
    return folder


@functools.cache
def folder_of(family: str) -> str:
    """The folder of a family of functions in this state of their sources, marked as used."""
    digest = state_digest(_PACKAGE, os.environ, FAMILIES[family])
    parent = os.path.join(_base(), _OWN_FOLDER)
    folder = os.path.join(parent, digest)
    if _claim(folder):
        prune(parent, digest)
    return folder


@functools.cache
def _base() -> str:
    """`base_folder` of this process, chosen once: it may warn."""
    return base_folder(os.environ)


def tell_compiling(family: str) -> None:
    """Call the listeners."""
    for listener in listeners:
        listener(family)


def read_kept(path: str) -> bytes | None:
    """Return what `keep` has written to a file, which counts as used now; None if nothing whole is there."""
    try:
        with open(path, "rb") as file:
            check, content = file.read(_CHECK_BYTES), file.read()
        os.utime(path)
    except OSError:
        return None
    return content if _check_of(content) == check else None


def keep(path: str, content: bytes) -> None:
    """Write a file, with a checksum, whole or not at all; a folder or a disk that takes none is a warning.

    Another process may write the same file: each writes its own and renames, and either one is right.
    """
    import tempfile  # as much as the rest of an ordinary start

    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_check_of(content) + content)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        warnings.warn(f"compiled code cannot be kept in {folder}: {error}", RuntimeWarning, stacklevel=2)


def _check_of(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_CHECK_BYTES).digest()


def base_folder(environ: Mapping[str, str]) -> str:
    """Return where the digest folders go, by falling precedence.

    ``XCCL_EMU_CACHE_DIR``; ``NUMBA_CACHE_DIR`` (one inherited from a parent process gives that process's base, so
    that folders do not nest); ``XDG_CACHE_HOME``; ``~/.cache``; and, where the choice cannot be written, or can be
    written by others, a folder of this user alone among the temporary files, with a warning: what is kept is executed.
    A choice that nobody made explicitly and that cannot be written is left without a word.
    """
    explicit = environ.get("XCCL_EMU_CACHE_DIR") or _without_digest(environ.get("NUMBA_CACHE_DIR", ""))
    xdg = environ.get("XDG_CACHE_HOME", "")
    base = explicit or (xdg if os.path.isabs(xdg) else os.path.expanduser("~/.cache"))
    base = os.path.abspath(base)
    folder = os.path.join(base, _OWN_FOLDER)
    if not _writable(folder):
        trouble = f"cannot write the cache folder {base!r}" if explicit else ""
    elif not _private(folder):
        trouble = f"others can write or replace the cache folder {folder!r}, whose code is executed (chmod go-w)"
    else:
        return base
    fallback = _private_temporary_folder()
    if trouble:
        warnings.warn(f"{trouble}; using {fallback!r}", RuntimeWarning, stacklevel=5)
    return fallback


def state_digest(package: str, environ: Mapping[str, str], parts: Sequence[str] = ("",)) -> str:
    """32 hex digits over sources under the folder `package`, Python, Numba, llvmlite, NumPy and Numba's settings.

    `parts` are the files and folders that count; links to folders are followed. Where a package is installed does
    not matter, Numba keys on that itself.
    """
    digest = hashlib.blake2b(digest_size=16)

    def add(*parts: bytes) -> None:
        for part in parts:
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)

    add(sys.version.encode())
    for name, version in sorted(_installed_versions(sys.path).items()):
        add(name.encode(), version.encode())
    for name in sorted(environ):
        if name.startswith("NUMBA_") and name not in _WITHOUT_EFFECT:
            add(name.encode(), environ[name].encode(errors="surrogateescape"))
    for part in parts:
        for relative, content in _sources(package, part):
            add(relative.encode(errors="surrogateescape"), content)
    return digest.hexdigest()


def prune(parent: str, own: str) -> None:
    """Remove digest folders under `parent` but the `FOLDERS_KEPT` last used, `own` and young ones.

    Other processes may prune at the same time, so whatever has vanished is no error. Nothing is touched whose name is
    not a digest.
    """
    ages = []
    now = time.time()
    with os.scandir(parent) as entries:
        for entry in entries:
            if _DIGEST_NAME.fullmatch(entry.name) and entry.name != own:
                try:
                    ages.append((now - entry.stat(follow_symlinks=False).st_mtime, entry.path))
                except OSError:
                    continue
    doomed = [path for age, path in sorted(ages)[FOLDERS_KEPT - 1 :] if age > YOUNG_SECONDS]
    if doomed:
        import shutil  # 10 ms that an ordinary start need not pay

        for path in doomed:
            shutil.rmtree(path, ignore_errors=True)


def _claim(folder: str) -> bool:
    """Mark `folder` as used now; True if this call made it."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        with contextlib.suppress(OSError):  # another user's, or just pruned: Numba makes it again when it compiles
            os.utime(folder)
        return False
    except OSError:
        return False
    return True


def _without_digest(folder: str) -> str:
    """The base of a ``NUMBA_CACHE_DIR`` that this module has set; any other one as it is."""
    parent, name = os.path.split(folder)
    if os.path.basename(parent) == _OWN_FOLDER and _DIGEST_NAME.fullmatch(name):
        return os.path.dirname(parent)
    return folder


def _writable(folder: str) -> bool:
    try:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
    except OSError:
        return False
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _private(folder: str) -> bool:
    """Nobody else can have filled the folder; from now on nobody else gets into it, whatever the umask.

    It may be reached by a link of one's own, but not lie where anybody may put another one in its place.
    """
    try:
        status, owner, around = os.stat(folder), os.lstat(folder).st_uid, os.stat(os.path.dirname(folder)).st_mode
    except OSError:
        return False
    if around & stat.S_IWOTH and not around & stat.S_ISVTX:
        return False
    private = status.st_uid == owner == os.getuid() and not status.st_mode & 0o022
    if private and status.st_mode & 0o077:
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
    return private and stat.S_ISDIR(status.st_mode)


def _private_temporary_folder() -> str:
    import tempfile

    path = os.path.join(tempfile.gettempdir(), f"{_OWN_FOLDER}-{os.getuid()}")
    if _writable(path) and _private(path) and _writable(os.path.join(path, _OWN_FOLDER)):
        return path
    path = tempfile.mkdtemp(prefix=f"{_OWN_FOLDER}-")
    os.mkdir(os.path.join(path, _OWN_FOLDER))
    return path


def _installed_versions(search_path: list[str]) -> dict[str, str]:
    """Versions by the names of the metadata folders; importlib.metadata would take longer than all the rest."""
    found: dict[str, str] = {}
    pattern = re.compile(rf"({'|'.join(_DISTRIBUTIONS)})-(.+)\.(?:dist|egg)-info")
    for folder in search_path:
        try:
            names = sorted(os.listdir(folder or os.curdir))
        except OSError:
            continue
        for match in filter(None, map(pattern.fullmatch, names)):
            found.setdefault(match[1], match[2])
    return found


def _sources(package: str, part: str) -> Iterator[tuple[str, bytes]]:
    """Relative path and content of every source of a part, in one fixed order."""
    path = os.path.join(package, part)
    if os.path.isfile(path):
        with open(path, "rb") as file:
            yield part, file.read()
    for folder, folders, files in os.walk(path, followlinks=True):
        folders[:] = sorted(name for name in folders if name.isidentifier() and name != "__pycache__")
        for name in sorted(files):
            if name.endswith(".py") and not name.startswith("."):  # an editor's lock file is a dangling link
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    yield os.path.relpath(path, package), file.read()
