"""Names of a package that are imported when they are first used: importing the package imports next to nothing."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names(namespace: dict[str, Any], homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package, given its ``globals()``.

    ``homes`` maps a module to the names that are imported from it, such as ``"Pod, check as check_pod"``.
    For other names ``__getattr__`` raises AttributeError.
    """
    found = {each.split()[-1]: (home, each.split()[0]) for home, text in homes.items() for each in text.split(",")}

    def find(name: str) -> Any:
        if name not in found:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        module, original = found[name]
        namespace[name] = getattr(import_module(module), original)
        return namespace[name]

    return find, lambda: sorted(namespace["__all__"])
