"""The corpus: bugs that were found in the wild, each as a broken and a mended case that share all but the mend.

A member is a folder ``NAME`` with ``NAME.py`` and a page, ``README.md``.  The module has a `Member` called ``MEMBER``
and two cases, ``Broken`` and ``Mended``; it is a file as any other to the commands: ``corpus/NAME/NAME.py:Broken``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, cast

import xccl_emu
from xccl_emu.base import words as w
from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import must_be_one_of
from xccl_emu.protocol.case import Case
from xccl_emu.protocol.folder import module_of

CASES = ("Broken", "Mended")


@dataclass(frozen=True)
class Member(w.Printed):
    """A bug: where it was found, and what finds it here."""

    FIRST = ("member", "sources", "tool", "shown_by")
    sources: Annotated[tuple[str, ...], "issues, commits and pages"]
    """Threads and commits are ``owner/repo#number``, ``owner/repo@commit``."""
    finding: Annotated[str, "kind of violation that its page says", w.As("expected")]
    """The broken case has it (`xccl_emu.check.verdict`)."""
    shown_by: Annotated[str, "what it takes to see it"]
    """An order, atomicity, sequence or fault, in a few words."""
    tool: Annotated[str, "`check` or `fuzz`"] = "check"
    """Who finds it: every schedule of one configuration, or sequences of calls."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options that the tool is given, for the broken and the mended case alike."""
    folder: Path = Path()
    """Where it lies."""

    @property
    def name(self) -> Annotated[str, "name of its folder", w.As("member")]:
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


@dataclass(frozen=True)
class Outcome(w.Printed):
    """What a tool says of one case."""

    verdict: Annotated[str, "`verified`, `no violation found`, `violation`, `unfinished` or `unsupported`"]
    kind: w.Kind
    """Empty if there is no violation."""
    seconds: w.Seconds
    refuted: Annotated[bool, "whether the tool found a violation"]
    clean: Annotated[bool, "as right as the tool can say"]
    """It says whether it is verified, or nothing found by all that it was asked to try."""
    states: w.States = 0
    sequences: Annotated[int, "sequences of calls that were drawn"] = 0


@dataclass(frozen=True)
class Result(w.Printed):
    """A bug of a published library."""

    RECORD = "Member"
    member: Annotated[Member, w.INLINE]
    broken: Annotated[Outcome, "of the broken case"]
    mended: Annotated[Outcome, "of the mended case"]

    @property
    def right(self) -> Annotated[bool, "whether it is as its page says"]:
        """Return True if it is as its page says."""
        return self.broken.refuted and self.broken.kind == self.member.finding and self.mended.clean


@dataclass(frozen=True)
class FoundMembers(w.Printed):
    """What was found of some members."""

    results: Annotated[Sequence[Result], "a line for each member"]



def members(names: tuple[str, ...] = ()) -> tuple[Member, ...]:
    """Return the members with these names, or all, in alphabetical order; ConfigError for a name that none has."""
    folder = Path(xccl_emu.__file__).parent / "corpus"
    there = {path.parent.name: path for path in sorted(folder.glob("*/*.py")) if path.stem == path.parent.name}
    for name in names:
        if name not in there:
            raise ConfigError(f"member {name!r}: {must_be_one_of(name, there)}")
    return tuple(_member(path) for name, path in there.items() if not names or name in names)


def _member(path: Path) -> Member:
    module = module_of(path.resolve())
    found = getattr(module, "MEMBER", None)
    if not isinstance(found, Member) or not all(hasattr(module, name) for name in CASES):
        raise ConfigError(f"member {path.stem!r}: {path} must have a Member called MEMBER, and {' and '.join(CASES)}")
    return replace(found, folder=path.resolve().parent)
