"""Base classes of commands: whole numbers of 64 bits, and errors that name the option that was given."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import typer
import typer.core

from xccl_emu.errors import ConfigError

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
                raise type(error)(f"{option}: {error.must}") from error
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
    for words in (words for words in given.values() if isinstance(words, list)):
        if f"{argument}={value}" in words:
            return f"--set {argument}={value}"
        if f"{size}={value}" in words or (size, value) in pairwise(words):
            return f"{size} {value}"
    name = argument if given.get(argument) is not None else name
    said = given.get(name)
    is_said = str(said) == value or (isinstance(said, list | tuple) and value in said)
    return f"{options[name]} {value}" if name in options and is_said else ""
