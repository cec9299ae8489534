"""Commands whose options are the fields of a dataclass."""

from dataclasses import dataclass, field
from pathlib import Path

import typer
from typer.testing import CliRunner

from xccl_emu.base.options import option
from xccl_emu.cli.app import JSON, App, command_of


@dataclass(frozen=True)
class Common:
    """What all of them have."""

    seed: int = option(0, "Of the payload.", least=0)


@dataclass(frozen=True)
class Ride(Common):
    """Go somewhere.

    By day or by night.
    """

    wheels: int = option(4, "Of the car.", least=2, most=6)
    night: bool = option(False, "When.", named=("--night/--day",))
    fast: bool = option(False, "How.")
    through: tuple[str, ...] = option((), "Places on the way.", metavar="PLACE")
    file: Path | None = option(None, "A map.")
    to: tuple[str, ...] = option((), "Where to.", argument=True)
    notes: dict[str, int] = field(default_factory=dict)


def ride(*words: str) -> tuple[int, str, list[tuple[Ride, bool]]]:
    """Exit code, output, and what the command was given."""
    given: list[tuple[Ride, bool]] = []

    def act(made: Ride, as_json: bool) -> None:
        given.append((made, as_json))

    app = App()
    app.command("ride")(command_of(Ride, act, JSON))
    app.command("walk")(lambda: typer.echo("walked"))  # one alone would be no group
    done = CliRunner().invoke(app, ["ride", *words])
    return done.exit_code, done.output, given


def test_without_options_all_have_their_defaults() -> None:
    """What the command makes is what the class makes."""
    assert ride() == (0, "", [(Ride(), False)])


def test_options_arguments_and_switches_reach_the_fields() -> None:
    """Each under its own name or the one it was given, those that may come again as tuples."""
    words = ("--wheels", "3", "--night", "--fast", "--through", "here", "--through", "there", "--seed", "7")
    words = (*words, "--file", "map.txt")
    made = Ride(7, 3, True, True, ("here", "there"), Path("map.txt"), ("home", "away"))
    assert ride(*words, "home", "away", "--json")[2] == [(made, True)]
    assert ride("--day")[2] == [(Ride(), False)]
    assert ride("--no-fast")[0] == 2


def test_help_has_the_docstring_ranges_and_the_own_options_first() -> None:
    """Fields of the base class come last, and a field that is no option is none."""
    _, text, _ = ride("--help")
    assert "By day or by night." in text
    assert "--wheels N" in text
    assert "--file FILE" in text
    assert "2<=x<=6" in text
    assert text.index("--wheels") < text.index("--through PLACE") < text.index("--seed") < text.index("--json")
    assert "--notes" not in text


def test_what_is_out_of_range_is_refused() -> None:
    """By the option's name, before anything is made."""
    code, text, given = ride("--wheels", "7")
    assert (code, given) == (2, [])
    assert "--wheels" in text
