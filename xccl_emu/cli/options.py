"""Commands whose options are the fields of a dataclass (`xccl_emu.options`)."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from xccl_emu.options import Option

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
