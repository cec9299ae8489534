"""What commands share: options from fields of a dataclass, errors that name the option, and what ``--json`` prints."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
import typer.core

from xccl_emu import __version__
from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import NoSuchSize, Option
from xccl_emu.base.words import Printed

_SENTENCE = 1 << 10
"""Letters that are more than any has."""
_INT64 = range(-(1 << 63), 1 << 63)
_OPTION_OF = {
    "n_ranks": "ranks", "tokens_max": "tokens", "max_states": "states", "max_bytes": "memory", "quantized": "quantize",
    "n_domains": "domains", "n_attention": "attention", "n_experts": "experts", "n_trampolines": "trampolines",
}  # fmt: skip
"""The option of each argument whose name differs from it."""


class Command(typer.core.TyperCommand):
    """A command that checks its numbers, and puts an option in place of the argument that an error is about."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read its options; an error names the wrong value, which the library leaves out."""
        given = [part for word in args for part in (word.split("=", 1) if word.startswith("--") else [word])]
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            names = getattr(getattr(error, "param", None), "opts", ())
            values = [value for name, value in pairwise(given) if name in names]
            if values and hasattr(error, "message"):
                error.message += f", not {values[-1]}"
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run it; raises ConfigError."""
        options = {param.name: max(param.opts, key=len) for param in self.params if param.param_type_name == "option"}
        for name, value in ctx.params.items():
            if isinstance(value, int) and value not in _INT64:
                end = f"at most {_INT64[-1]}" if value > 0 else f"at least {_INT64[0]}"
                raise ConfigError(f"{options.get(name, name)} {value}: must be a whole number, {end}")
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            if option := _option_of(error, options, ctx.params | {"": ctx.args}):
                known = [each[2:] for each in options.values() if each.startswith("--")]
                must = error.among(known) if isinstance(error, NoSuchSize) else error.must
                raise type(error)(f"{option}: {must}") from error
            raise

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return what a list of commands says of it: the first sentence whole, which the list wraps."""
        return str(super().get_short_help_str(_SENTENCE))


class Group(typer.core.TyperGroup):
    """A group of such commands."""

    def get_short_help_str(self, limit: int = 45) -> str:
        """Do the same as `Command`."""
        return str(super().get_short_help_str(_SENTENCE))


class App(typer.Typer):
    """Commands of this kind, with plain help: drawing it with rich would double the time of ``--help``."""

    def __init__(self, **named: Any) -> None:
        super().__init__(add_completion=False, rich_markup_mode=None, **named)

    @classmethod
    def of(cls, function: Callable[..., None], **settings: Any) -> "App":
        """An app that is one command."""
        app = cls()
        app.command(**settings)(function)
        return app

    def command(self, *words: Any, **named: Any) -> Callable[[Any], Any]:
        """Do as `typer.Typer.command`, with our class of commands."""
        return super().command(*words, **{"cls": Command, **named})


def _option_of(error: ConfigError, options: Mapping[str, str], given: Mapping[str, Any]) -> str:
    """Return the argument of an error as the user has given it, ``--name value`` or ``--set name=value``, or nothing.

    Sizes of a protocol are options that no command declares: they are among the ``given`` words.
    """
    argument, value = error.argument, str(error.value)
    name = _OPTION_OF.get(argument, argument)
    size = f"--{name.replace('_', '-')}"
    for of, words in ((of, words) for of, words in given.items() if isinstance(words, list)):
        if f"{argument}={value}" in words:
            return f"{'--set ' * (of == SET.name)}{argument}={value}"
        if f"{size}={value}" in words or (size, value) in pairwise(words):
            return f"{size} {value}"
    name = argument if given.get(argument) is not None else name
    said = given.get(name)
    is_said = str(said) == value or (isinstance(said, list | tuple) and value in said)
    return f"{options[name]} {value}" if name in options and is_said else ""


# ---- options

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Protocol = Annotated[
    str, typer.Argument(metavar="PROTOCOL", help="FILE.py:NAME, or a name of xccl-emu list.", show_default=False)
]


def parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """A parameter of a command in addition to the fields of its options."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def words(name: str, metavar: str, help: str) -> inspect.Parameter:
    """Its arguments."""
    shown = typer.Argument(metavar=metavar, help=help, show_default=False)
    return parameter(name, Annotated[list[str] | None, shown])


def file(name: str, help: str) -> inspect.Parameter:
    """An option that names a file."""
    return parameter(name, Annotated[Path | None, typer.Option(f"--{name}", metavar="FILE", help=help)])


JSON = parameter("as_json", AsJson, False)
"""``--json``, as every command has it."""
CTX = parameter("ctx", typer.Context, inspect.Parameter.empty)
"""The context, for options that no command declares, and what was given."""
WORDS = words("words", "PROTOCOL", "A name of xccl-emu list, or FILE.py:NAME; its sizes are options.")
"""A protocol and its sizes, which are options that no command declares."""
_MORE = typer.Option("--set", metavar="NAME=VALUE", help="A size of the protocol; also as --NAME VALUE.")
SET = parameter("more", Annotated[list[str] | None, _MORE])
"""The same for sizes whose names are also names of options."""

_STANDS_FOR = {int: "N", float: "X", Path: "FILE"}
"""What help has for a value, by its type; for another the name of the option."""


def command_of(
    kind: type, act: Callable[..., None], *others: inspect.Parameter, first: tuple[inspect.Parameter, ...] = ()
) -> Callable[..., None]:
    """A function for typer that makes a ``kind`` of its options and calls ``act(made, **others)``.

    The docstring of ``kind`` is its help.  ``first`` come before the fields, ``others`` after them; ``act`` gets both
    by name.  Fields of a base class come after the fields of the class itself.
    """
    options = [*_options_of(kind)]
    parameters = [*first, *options, *others]
    several = {each.name for each in fields(kind) if isinstance(each.default, tuple)}

    def command(**given: Any) -> None:
        own = {each.name: given.pop(each.name) for each in options}
        act(kind(**own | {name: tuple(own[name] or ()) for name in several}), **given)

    command.__doc__ = inspect.getdoc(kind)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _options_of(kind: type) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(kind)
    depth = {name: i for i, base in reversed([*enumerate(kind.__mro__)]) for name in inspect.get_annotations(base)}
    for each in sorted(fields(kind), key=lambda each: depth[each.name]):
        if "help" in each.metadata:
            yield _parameter(Option.of(each), hints[each.name])


def _parameter(option: Option, kind: Any) -> inspect.Parameter:
    default: Any = option.default
    named = option.named
    if kind == tuple[str, ...]:
        kind, default = list[str] | None, None
    what: dict[str, Any] = {"help": option.help, "min": option.least, "max": option.most, "metavar": option.metavar}
    if kind is bool:
        named = named or (f"--{option.name.replace('_', '-')}",)  # and no --no-NAME
    elif not option.argument:
        words = (word for of, word in _STANDS_FOR.items() if of in (kind, *get_args(kind)))
        what["metavar"] = option.metavar or next(words, option.name.upper())
    shown = typer.Argument(**what) if option.argument else typer.Option(*named, **what)
    return parameter(option.name, Annotated[kind, shown], default)


# ---- JSON


@dataclass(frozen=True)
class Envelope(Printed):
    """Words of every object: the same words say the same in all commands.

    Another schema number means that a word has gone or changed its type; new words come without one.
    """

    FIRST = ("schema",)
    command: Annotated[str, "the command that printed it"]
    schema: Annotated[str, "`xccl-emu/1`, this page"] = "xccl-emu/1"
    version: Annotated[str, "version of xccl_emu"] = __version__


def print_json(command: str, result: Printed) -> None:
    """Print the object of a command to stdout, in one line."""
    typer.echo(json.dumps(Envelope(command).to_json() | result.to_json()))
