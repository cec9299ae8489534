"""Cases by what a user types: ``file.py:Name``, a module of `xccl_emu.protocols`, or an entry point of another package.

The entry points are of the group ``xccl_emu.protocols``; each is a class derived from `Case` or a protocol function.
"""

import hashlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from xccl_emu.errors import ConfigError
from xccl_emu.protocol.case import Case, FunctionCase, sizes_of

Maker = Callable[..., Any]
"""Called with sizes it makes a case."""

GROUP = "xccl_emu.protocols"


def is_maker(thing: Any) -> bool:
    """Is it a class derived from `Case`, or a function made by `protocol`?"""
    if isinstance(thing, type):
        return issubclass(thing, Case) and thing not in (Case, FunctionCase)
    return callable(thing) and getattr(thing, "makes_case", False)


def makers_of(module: ModuleType) -> dict[str, Maker]:
    """What a module defines, and does not import."""
    return {
        name: thing for name, thing in vars(module).items() if is_maker(thing) and thing.__module__ == module.__name__
    }


def found() -> Mapping[str, Maker]:
    """Cases that modules of `xccl_emu.protocols` and entry points of other packages have, by name."""
    return dict(_of_modules()) | {entry.name: entry.load() for entry in entry_points(group=GROUP)}


def _of_modules() -> Iterator[tuple[str, Maker]]:
    package = import_module(GROUP)
    for each in pkgutil.iter_modules(package.__path__):
        yield from makers_of(import_module(f"{GROUP}.{each.name}")).items()


def of_file(text: str) -> Maker:
    """What ``file.py:Name`` names; ConfigError, saying what would be right, if there is no such thing."""
    file, _, name = text.rpartition(":")
    path = Path(file)
    if path.suffix != ".py" or not path.is_file():
        raise ConfigError(f"protocol {text!r}: there is no file {file!r}; must be FILE.py:NAME, or of xccl-emu list")
    there = makers_of(_module_of(path.resolve()))
    if name not in there:
        known = ", ".join(there) or "none: derive a frozen dataclass from xccl_emu.protocol.Case"
        raise ConfigError(f"protocol {text!r}: {file} has no protocol {name!r}, but {known}")
    return there[name]


def _module_of(path: Path) -> ModuleType:
    """The module of a file; modules beside it can be imported by it.  ConfigError for one that fails."""
    folder, parts = path.parent, [path.stem]
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    name = ".".join(parts)
    loaded = sys.modules.get(name)
    if loaded is not None and Path(getattr(loaded, "__file__", None) or "").resolve() == path:
        return loaded
    try:
        return import_module(name) if loaded is None else _aside(path)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"protocol {path}: cannot be imported ({type(error).__name__}: {error})") from error


def _aside(path: Path) -> ModuleType:
    """The module of a file whose name another module has."""
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def make(maker: Maker, title: str, sizes: Mapping[str, Any]) -> Any:
    """The case with its usual sizes, some of them changed; ConfigError for one that it does not have."""
    known = [each.name for each in sizes_of(maker)]
    for name, value in sizes.items():
        if name not in known:
            raise ConfigError(f"{name}={value!r}: {title} has no such size, but {', '.join(known)}")
    return maker(**sizes)
