"""What a file imports from its folder is its own: modules that are found by path and content, not by a bare name.

``v1/case.py`` and ``v2/case.py`` may each import a ``kernels.py`` of its own.  Each folder is a package of a
name that nothing else has, and an ``import kernels`` in one of its files means a module of that package.  A folder in
which a file has changed since is another package, so what was made before stays as it was.

As for a script, the folder comes before the standard library and installed packages, and after what is built in.
"""

import builtins
import contextlib
import dataclasses
import hashlib
import importlib
import importlib.util
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from xccl_emu.base.errors import ConfigError
from xccl_emu.lang.loader import KeepingLoader

Contents = Mapping[str, str]
"""A digest of each file that was loaded, by its path."""

_SHARED = "xccl_emu"
"""No folder has a copy of it."""
_INSTALLED = ("site-packages", "dist-packages")
"""Folders whose modules are known by their names."""
_LOCK = threading.RLock()
_folders: dict[str, "Folder"] = {}
"""By the names of their packages; a folder that has changed is in it again."""


@dataclasses.dataclass(eq=False)
class Folder:
    """The modules of a folder as it was when they were loaded."""

    path: list[str]
    """The folder, after those that its files have added to ``sys.path``: there modules of its own are looked for."""
    package: str
    contents: dict[str, str] = dataclasses.field(default_factory=dict)
    meant: dict[str, str | None] = dataclasses.field(default_factory=dict)
    """Where each name that its files import was found; None for what is no module of its own."""
    _sys_path: Sequence[str] | None = None
    """``sys.path`` before a module that is being loaded has added to it."""

    def __post_init__(self) -> None:
        self._module = ModuleType(self.package)
        self._module.__path__ = self.path
        _folders[self.package] = self

    @property
    def root(self) -> str:
        """The folder."""
        return self.path[-1]

    @property
    def unchanged(self) -> bool:
        """Would all that was loaded be loaded again?"""
        return same(self.contents) and all(self._found(name) == where for name, where in self.meant.items())

    def load(self, name: str) -> ModuleType:
        """The module of this dotted name; raises what the module raises."""
        sys.modules.setdefault(self.package, self._module)
        return importlib.import_module(f"{self.package}.{name}")

    def import_(
        self, name: str, space: Any = None, local: Any = None, names: Sequence[str] | None = (), level: int = 0
    ) -> ModuleType:
        """In place of `__import__` for its modules."""
        first = name.partition(".")[0]
        if level or not self._owns(first):
            return __import__(name, space, local, names or (), level)
        self.load(name)
        return __import__(f"{self.package}.{name}", space, local, names, 0) if names else self.load(first)

    def _owns(self, name: str) -> bool:
        self.meant[name] = self._found(name)
        return self.meant[name] is not None

    def _found(self, name: str) -> str | None:
        """Return where the folder, or one that its files have added to ``sys.path``, has a module of this name."""
        if name == _SHARED or BuiltinImporter.find_spec(name) or FrozenImporter.find_spec(name):
            return None
        spec = self.find(f"{self.package}.{name}")
        if spec is not None and spec.origin is None and _is_elsewhere(name):
            return None  # a folder without __init__.py comes last
        return None if spec is None else spec.origin or ""

    def find(self, name: str) -> ModuleSpec | None:
        """A module of its package by its full name, in what is being added to ``sys.path`` and in its path."""
        added = [] if self._sys_path is None else [each for each in sys.path if each not in self._sys_path]
        return PathFinder.find_spec(name, [*added, *self.path])

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Keep what a module adds to ``sys.path`` for the modules of its folder alone."""
        if self._sys_path is not None:  # another module of the folder is being loaded, and imports this one
            yield
            return
        self._sys_path = before = [*sys.path]
        try:
            yield
        finally:
            self.path[:0] = [each for each in sys.path if each not in before]
            sys.path[:], self._sys_path = before, None


def _is_elsewhere(name: str) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module that was not imported but made
        return True
    return spec is not None and spec.origin is not None


class _Loader(KeepingLoader):
    """Has the imports of a module go through its folder."""

    folder: Folder

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": self.folder.import_}
        with self.folder.loading():
            super().exec_module(module)

    def get_data(self, path: str) -> bytes:
        data = super().get_data(path)
        self.folder.contents[path] = _digest(data)
        return data


class _FolderFinder:
    """Finds modules of packages that are folders."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        folder = _folders.get(name.partition(".")[0])
        if folder is None or path is None:
            return None
        spec = folder.find(name) if name.count(".") == 1 else PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
            spec.loader.folder, spec.cached = folder, None
        return spec


sys.meta_path.insert(0, _FolderFinder)
if not sys.warnoptions:  # what a script hears of old names, as ``__main__``
    warnings.filterwarnings("default", category=DeprecationWarning, module="folder_")


def module_of(path: Path) -> ModuleType:
    """The module of a file, of its content as it is now; raises ConfigError, naming the line, for one that fails."""
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    shared = parts[0] == _SHARED or root.name in _INSTALLED
    try:
        return (importlib.import_module if shared else _folder_of(str(root)).load)(".".join(parts))
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # a file that ends the process would end a check with code 0
        raise ConfigError(f"protocol {path}: cannot be imported ({_error_text(error)})") from error


def _folder_of(root: str) -> Folder:
    with _LOCK:
        importlib.invalidate_caches()  # a file that is written within the tick of a clock is not missed
        of_root = [each for each in _folders.values() if each.root == root]
        package = f"folder_{_digest(f'{len(of_root)} {root}'.encode())[:12]}"
        return next((each for each in of_root if each.unchanged), None) or Folder([root], package)


def _error_text(error: BaseException) -> str:
    """Say what has failed, and the last line of a folder's files on the way there."""
    where, what = place_of(error), f"{type(error).__name__}: {error}"
    return (where and f"{where}: ") + re.sub(r"\bfolder_[0-9a-f]{12}\.", "", what)


def place_of(error: BaseException) -> str:
    """Return the last line of a folder's files on the way to an error, as FILE:LINE; empty if it came through none."""
    loaded = {file for folder in _folders.values() for file in folder.contents}
    frames = traceback.extract_tb(error.__traceback__)
    return next((f"{each.filename}:{each.lineno}" for each in frames[::-1] if each.filename in loaded), "")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ---- in other processes


def contents_of(module: str) -> Contents:
    """The files that the folder of a module has loaded; none for a module that is no file of a folder."""
    folder = _folders.get(module.partition(".")[0])
    return {} if folder is None else dict(folder.contents)


def same(contents: Contents) -> bool:
    """Have these files the same content now?"""
    return all(Path(file).is_file() and _digest(Path(file).read_bytes()) == digest for file, digest in contents.items())


@dataclasses.dataclass(frozen=True)
class ClassThere:
    """A class or a function of a folder as it is sent to another process, which loads the same files, or refuses."""

    module: str
    qualname: str
    path: tuple[str, ...]
    """Path of the folder, as `Folder.path`."""
    contents: Contents

    @classmethod
    def of(cls, kind: Any) -> "ClassThere | None":
        """None if any process can import it by its name."""
        folder = _folders.get(kind.__module__.partition(".")[0])
        if folder is None:
            return None
        return cls(kind.__module__, kind.__qualname__, tuple(folder.path), dict(folder.contents))

    def load(self) -> Any:
        """The class or the function; ConfigError if its files are not the same here."""
        package, _, name = self.module.partition(".")
        with _LOCK:
            folder = _folders.get(package)
            here = {} if folder is None else folder.contents
            if not all(here[file] == it if file in here else same({file: it}) for file, it in self.contents.items()):
                files = ", ".join(self.contents)
                raise ConfigError(f"{name}.{self.qualname}: one of {files} has changed; the case has to be made again")
            found: Any = (folder or Folder([*self.path], package)).load(name)
        for part in self.qualname.split("."):
            found = getattr(found, part)
        return found


def blank(kind: ClassThere) -> Any:
    """An instance without values, for `pickle` to fill in."""
    found = kind.load()
    return found.__new__(found)
