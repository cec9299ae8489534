"""The corpus: bugs that were found in the wild, each as a broken and a mended case that share all but the mend.

A member is a folder ``NAME`` with ``NAME.py`` and a page, ``README.md``.  The module has a `Member` called ``MEMBER``
and two cases, ``Broken`` and ``Mended``; it is a file as any other to the commands: ``corpus/NAME/NAME.py:Broken``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import xccl_emu
from xccl_emu.errors import ConfigError
from xccl_emu.protocol.case import Case
from xccl_emu.protocol.folder import module_of

CASES = ("Broken", "Mended")


@dataclass(frozen=True)
class Member:
    """A bug: where it was found, and what finds it here."""

    sources: tuple[str, ...]
    """Threads and commits: ``owner/repo#number``, ``owner/repo@commit``."""
    finding: str
    """The kind of violation that the broken case has (`xccl_emu.check.verdict`)."""
    shown_by: str
    """Which order, atomicity, sequence or fault shows it, in a few words."""
    tool: str = "check"
    """Who finds it: ``"check"``, every schedule of one configuration, or another command."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options that the tool is given, for the broken and the mended case alike."""
    folder: Path = Path()
    """Where it lies."""

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.folder.name

    @property
    def file(self) -> Path:
        """The module."""
        return self.folder / f"{self.name}.py"

    @property
    def page(self) -> Path:
        """Return the file that says what happened."""
        return self.folder / "README.md"

    def case(self, name: str, **sizes: Any) -> Case:
        """``"Broken"`` or ``"Mended"``, with its usual sizes, some of them changed."""
        return cast(Case, getattr(module_of(self.file), name)(**sizes))


def members(names: tuple[str, ...] = ()) -> tuple[Member, ...]:
    """Return the members with these names, or all, in alphabetical order; ConfigError for a name that none has."""
    folder = Path(xccl_emu.__file__).parent / "corpus"
    there = {path.parent.name: path for path in sorted(folder.glob("*/*.py")) if path.stem == path.parent.name}
    for name in names:
        if name not in there:
            raise ConfigError(f"member {name!r}: must be one of {', '.join(there)}")
    return tuple(_member(path) for name, path in there.items() if not names or name in names)


def _member(path: Path) -> Member:
    module = module_of(path.resolve())
    found = getattr(module, "MEMBER", None)
    if not isinstance(found, Member) or not all(hasattr(module, name) for name in CASES):
        raise ConfigError(f"member {path.stem!r}: {path} must have a Member called MEMBER, and {' and '.join(CASES)}")
    return replace(found, folder=path.resolve().parent)
