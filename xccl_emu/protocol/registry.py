"""Cases by what a user types: ``file.py:Name``, a module of `xccl_emu.protocols`, or an entry point of another package;
``member:Name`` is a case of a member of the corpus.

The entry points are of the group ``xccl_emu.protocols``; each is a class derived from `Case` or a protocol function.
"""

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, cast

import xccl_emu
from xccl_emu.base import words as w
from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import NoSuchSize, meant
from xccl_emu.lang import heads
from xccl_emu.protocol.case import POD_SIZES, Case, FunctionCase, Preset, Size, first_sentence, sizes_of
from xccl_emu.protocol.folder import module_of

Maker = Callable[..., Any]
"""Called with sizes it makes a case."""

GROUP = "xccl_emu.protocols"
_QUOTED = re.compile(r'"([a-z0-9-]+)"')
_ALIKE = 6
"""Words that may be meant by one that is no name."""


def is_maker(thing: Any) -> bool:
    """Return whether it is a class derived from `Case` that lays itself out, or a function made by `protocol`."""
    if isinstance(thing, type):
        lays_out = issubclass(thing, Case) and thing.lay_out is not Case.lay_out
        return lays_out and thing is not FunctionCase and not inspect.isabstract(thing)
    return callable(thing) and getattr(thing, "makes_case", False)


def makers_of(module: ModuleType) -> dict[str, Maker]:
    """Return what a module defines, and does not import; names with an underscore are its own."""
    return {
        name: thing
        for name, thing in vars(module).items()
        if not name.startswith("_") and is_maker(thing) and thing.__module__ == module.__name__
    }


@dataclass(frozen=True)
class Known:
    """What a name means: the class or function that makes the case, and what is particular."""

    maker: Maker
    preset: Preset

    @property
    def family(self) -> str:
        """The folder of `xccl_emu.protocols` that has it, or the first package of its module."""
        return self.maker.__module__.removeprefix(f"{GROUP}.").partition(".")[0]

    def listed(self) -> Iterator["ListedSize"]:
        """Yield the sizes, with the defaults under this name."""
        for size in sizes_of(self.maker):
            default = self.preset.sizes.get(size.name, size.default)
            yield ListedSize(replace(size, default=default), (self.preset.on_pod or {}).get(size.name, default))

    def made(self, sizes: Mapping[str, Any]) -> Case:
        """The case with its usual sizes, some of them changed, or `POD_SIZES`; ConfigError as for `make`."""
        there = [each.name for each in sizes_of(self.maker)]
        of_pod = {each.name: sizes[each.name] for each in POD_SIZES if each.name in sizes and each.name not in there}
        own = {given: value for given, value in sizes.items() if given not in of_pod}
        for given, value in own.items():
            if given not in there:
                raise NoSuchSize(given, value, f"{self.preset.name} has no such size, but {', '.join(there)}", there)
        made: Case = self.maker(**{**self.preset.sizes, **own})
        return made.with_pod_options(**of_pod) if of_pod else made


@dataclass(frozen=True)
class Named(w.Printed):
    """A protocol in a list."""

    protocol: w.Protocol
    family: Annotated[str, "folder of `protocols/` that has it, or package of another distribution"]
    about: w.About


@dataclass(frozen=True)
class NamedProtocols(w.Printed):
    """All protocols."""

    protocols: Annotated[list[Named], "in alphabetical order"]


@dataclass(frozen=True)
class ListedSize(w.Printed):
    """A size or choice of a protocol."""

    RECORD = "Size"
    size: Annotated[Size, w.INLINE]
    """Its default is the one under this name."""
    on_pod: Annotated[int | str, "what `run` takes by default, on the whole pod"]


@dataclass(frozen=True)
class Described(w.Printed):
    """What can be chosen of a protocol, and what is to be proved of it."""

    protocol: w.Protocol
    about: w.About
    papers: Annotated[list[str], "what it is made after, with the section"]
    sizes: Annotated[list[ListedSize], "what can be chosen"]
    synchronizations: Annotated[tuple[str, ...], "names that `--without` takes"]
    proofs: Annotated[dict[str, w.Configuration], "configurations that are to be proved, by what each is for"]


def _ours(wanted: str = "") -> Iterator[Known]:
    """Cases that modules of `xccl_emu.protocols` have; of a wanted name only modules that say it, first as a preset."""
    sources, said = _sources(), (f'"{wanted}"', f"class{wanted}(", f"def{wanted}(")
    modules = [name for name, text in sources.items() if not wanted or any(each in text for each in said)]
    for name in sorted(modules, key=lambda name: f'Preset("{wanted}"' not in sources[name]):
        for maker in makers_of(import_module(name)).values():
            yield from _by_name(maker)


@functools.cache
def _sources() -> dict[str, str]:
    """Return the text of each module of `xccl_emu.protocols`, without spaces and ends of lines."""
    folder = Path(import_module(GROUP).__path__[0])
    files = sorted(folder.rglob("*.py"))
    names = (".".join((GROUP, *path.relative_to(folder).with_suffix("").parts)) for path in files)
    texts = ("".join(path.read_text("utf-8").split()) for path in files)
    return {name.removesuffix(".__init__"): text for name, text in zip(names, texts, strict=True)}


def _by_name(maker: Maker) -> list[Known]:
    if isinstance(maker, type):
        return [Known(maker, preset) for preset in cast(type[Case], maker).known_as()]
    return [_known(maker, maker.__name__)]


def known_of(maker: Maker) -> Known:
    """Return what the first name of a class derived from `Case`, or of a protocol function, means."""
    return _by_name(maker)[0]


def _known(maker: Maker, name: str) -> Known:
    return Known(maker, Preset(name, first_sentence(maker)))


def names() -> tuple[str, ...]:
    """Names of the cases of `xccl_emu.protocols` and of entry points of other packages, in alphabetical order."""
    ours = (each.preset.name for each in _ours())
    return tuple(sorted({*ours, *(entry.name for entry in entry_points(group=GROUP))}))


def known(name: str) -> Known:
    """Return what a name of `names`, or ``file.py:Name``, means; ConfigError if there is no such thing."""
    if isinstance(name, str) and is_of_file(name):
        return _known(of_file(name), name.rpartition(":")[2])
    found = _found(name)
    if found is None:
        must = f"must be a name that xccl-emu list prints, or FILE.py:NAME{meant(name, alike(str(name)))}"
        raise ConfigError(f"protocol {name!r}: {must}")
    return found


def alike(name: str) -> list[str]:
    """Return some of `names` that are like another one; imports only modules that say them, not all."""
    said = {word for text in _sources().values() for word in _QUOTED.findall(text)}
    words = sorted({*said, *(entry.name for entry in entry_points(group=GROUP))})
    return [each for each in difflib.get_close_matches(name, words, _ALIKE) if is_known(each)]


def is_known(name: str) -> bool:
    """Return whether it is one of `names`."""
    return _found(name) is not None


def _found(name: str) -> Known | None:
    found = _found_of_ours(name) if isinstance(name, str) else None
    if found is None:
        for entry in entry_points(group=GROUP, name=name):  # no other package is loaded for the sake of a name of ours
            return _known(entry.load(), name)
    return found


@functools.cache
def _found_of_ours(name: str) -> Known | None:
    return next((each for each in _ours(wanted=name) if each.preset.name == name), None)


def make(name: str, **sizes: Any) -> Case:
    """The case of that name, or of ``file.py:Name``, with its usual sizes, some of them changed, or `POD_SIZES`.

    Raises ConfigError for an unknown name, a size that the case does not have, or one out of range.
    """
    return known(name).made(sizes)


def on_pod(name: str, **sizes: Any) -> Case:
    """The same with the sizes that it has on the whole pod; ConfigError if it runs on none."""
    usual = known(name).preset.on_pod
    if usual is None:
        raise ConfigError(f"protocol {name!r}: has no sizes for the whole pod")
    return make(name, **{**usual, **sizes})


def proofs() -> Mapping[str, Case]:
    """Return what is to be verified of all protocols, by name and what is particular, as in ``"fused: one core"``."""
    return {f"{name}: {what}": case for name in names() for what, case in proofs_of(name).items()}


def proofs_of(name: str) -> Mapping[str, Case]:
    """Return what is to be verified of one protocol, by what is particular."""
    maker = known(name).maker
    if not isinstance(maker, type):
        return {"usual sizes": maker()}
    many = len(cast(type[Case], maker).known_as()) > 1
    return {what: case for what, case in cast(type[Case], maker).proofs().items() if not many or case.name == name}


def is_of_file(name: str) -> bool:
    """Return whether it is ``FILE:NAME``, or a file of cases or of kernels; there may be no such file."""
    return ":" in name or name.endswith((".py", *heads.SUFFIXES))


def of_file(text: str) -> Maker:
    """Return what ``file.py:Name`` names, or ``member:Name`` of the corpus; ConfigError, saying what would be right, if
    there is no such thing."""
    file, _, name = (text if ":" in text else f"{text}:").rpartition(":")
    member = file.replace("-", "_")
    in_corpus = Path(xccl_emu.__file__).parent / "corpus" / member / f"{member}.py"
    path = in_corpus if member.isidentifier() and in_corpus.is_file() else Path(file)
    if path.suffix in heads.SUFFIXES and path.is_file():
        raise heads.no_case(text, path, name)
    if path.suffix != ".py" or not path.is_file():
        there = "of xccl-emu list, FILE.py:NAME, or MEMBER:NAME of xccl-emu corpus"
        raise ConfigError(f"protocol {text!r}: there is no file {file!r}; must be {there}")
    makers = makers_of(module_of(path.resolve()))
    if name not in makers:
        those = ", ".join(makers) or "none, a frozen dataclass derived from xccl_emu.protocol.Case"
        raise ConfigError(f"protocol {text!r}: must be {file}:NAME; there is {those}")
    return makers[name]
