"""Protocols on the command line: their sizes as options, and commands for those that have none of their own."""

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import NoSuchSize, meant
from xccl_emu.cli.app import Group

if TYPE_CHECKING:
    from xccl_emu.protocol.case import Case

Options = TypeVar("Options")
ANY_SIZE = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Settings of a command whose protocol has sizes that the command does not know: they are options as all others."""


class CaseGroup(Group):
    """A group of commands by protocol, in which ``case`` serves protocols without a command of their own."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first argument names."""
        if not args or not self._is_case(args[0]):
            if args and args[0] not in self.commands and not args[0].startswith("-"):
                from xccl_emu.protocol.registry import alike

                own = [name for name in self.list_commands(ctx) if name != "case"]
                there = ", ".join([*own, "a name that xccl-emu list prints"])
                near = meant(args[0], [*own, *alike(args[0])])
                raise ConfigError(f"{args[0]!r}: must be {there} or FILE.py:NAME{near}")
            return super().resolve_command(ctx, args)
        _, command, rest = super().resolve_command(ctx, ["case", *args])
        if command is not None and "--help" in args:
            command = copy(command)
            command.epilog = _sizes_text(args[0])
            command.params = [each for each in command.params if each.name != "protocol"]  # it has been named
        return args[0], command, rest

    def _is_case(self, name: str) -> bool:
        if name in self.commands or name.startswith("-"):
            return False
        from xccl_emu.protocol.registry import is_known, is_of_file

        return is_of_file(name) or is_known(name)


def sizes_of(given: Iterable[str]) -> dict[str, int | str]:
    """Return what ``--set`` says; ConfigError for what is not NAME=VALUE."""
    sizes: dict[str, int | str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise ConfigError(f"--set {text}: must be NAME=VALUE, for example experts=2")
        sizes[name] = number_or_text(value)
    return sizes


def sizes_from(rest: Sequence[str], protocol: str | None = None) -> dict[str, int | str]:
    """Sizes given as options, ``--dies 4`` or ``--dies=4``; ConfigError for anything else that was left over.

    Of a protocol that is named, switches may be given as ``--NAME`` and ``--no-NAME``, and sizes by other names.
    """
    others, sizes = split_sizes(rest if protocol is None else [*_as_named(rest, protocol)])
    if others:
        raise _no_option(others[0])
    return sizes


def _as_named(rest: Sequence[str], protocol: str) -> Iterator[str]:
    """Yield the words with the names that a protocol's sizes have in it."""
    from xccl_emu.protocol.case import sizes_of
    from xccl_emu.protocol.registry import known

    plain = dict[str, str]()
    for each in sizes_of(known(protocol).maker):
        if each.also and each.is_switch:
            on, _, off = each.also.partition("/")
            plain |= {f"--{on}": f"--{each.name}=1", f"--{off or f'no-{on}'}": f"--{each.name}=0"}
        elif each.also:
            plain |= {f"--{each.also}": f"--{each.name}"}
    for word, following in zip_longest(rest, rest[1:]):
        option, equals, value = word.partition("=")
        named = plain.get(option, option)
        if equals or following in ("0", "1"):  # a switch as sizes are given: --NAME 1
            if named.endswith("=0"):
                raise ConfigError(f"{word}: takes no value; or say {named[:-2].replace('_', '-')} 0")
            named = named.partition("=")[0]
        yield named + equals + value


def named(options: Options, words: Sequence[str] | None, more: Sequence[str] | None) -> Options:
    """The options with the protocol and the sizes that were given: one word that is no option, if there is one, options
    that the command does not know, and what ``--set`` says; ConfigError for more words."""
    others, sizes = split_sizes(words or ())
    if len(others) > 1:
        raise _no_option(others[1])
    changes: dict[str, Any] = {"protocol": others[0] if others else None, "sizes": {**sizes_of(more or ()), **sizes}}
    return replace(options, **changes)  # type: ignore[type-var]


def _no_option(word: str) -> ConfigError:
    """Return the error about a word that is left over, perhaps an option without its dashes."""
    name, equals, value = word.partition("=")
    must = "must be an option, as in --ranks 4"
    return NoSuchSize(name, value, must) if equals else ConfigError(f"{word}: {must}")


def check_syncs(case: "Case", names: Collection[str]) -> None:
    """ConfigError, with those that a case has and the most alike first, for a synchronization that it has not."""
    known = case.syncs
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, len(known), 0.5)
            listed = ", ".join(repr(n) for n in [*close, *(n for n in known if n not in close)])
            raise ConfigError(f"--without {name!r}: {case.name} has no such synchronization, but {listed}")


def check_runs(case: "Case") -> None:
    """ConfigError for a case with what only a check judges."""
    from xccl_emu.protocol.case import ONLY_CHECKED

    for name in ONLY_CHECKED:
        if name in case.pod_sizes:
            raise ConfigError(name, case.pod_sizes[name], "is nothing of a run; xccl-emu check has it")


def check_seconds(seconds: float | None) -> None:
    """ConfigError for a limit that is not positive."""
    if seconds is not None and not seconds > 0:
        raise ConfigError(f"--seconds {seconds}: must be positive")


def split_sizes(rest: Sequence[str]) -> tuple[list[str], dict[str, int | str]]:
    """Words that are no options, and sizes given as options; ConfigError for an option without a value."""
    others, sizes, waiting = list[str](), dict[str, int | str](), list(rest)
    while waiting:
        word = waiting.pop(0)
        option, equals, value = word.partition("=")
        if not option.startswith("--"):
            others.append(word)
            continue
        if not equals:
            if not waiting or waiting[0].startswith("--"):
                raise ConfigError(f"{option}: must have a value, as in {option} 4")
            value = waiting.pop(0)
        sizes[option[2:].replace("-", "_")] = number_or_text(value)
    return others, sizes


def number_or_text(value: str) -> int | str:
    """A whole number if it is one."""
    number = value.removeprefix("-").isdecimal() and len(value) <= 1000  # Python converts no longer ones
    return int(value) if number else value


def _sizes_text(protocol: str) -> str:
    """Return what can be chosen of a protocol, for people."""
    from xccl_emu.cli.list import sizes_text
    from xccl_emu.protocol.registry import known

    it = known(protocol)
    return "\b\n" + "\n".join([f"{protocol}: {it.preset.about}", *sizes_text(it)])
