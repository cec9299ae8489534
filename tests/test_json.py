"""``--json``: every command prints one object with a schema, and docs/records/json.md says what is in it."""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, UnionType
from typing import Annotated, Any, get_args, get_origin

import numpy as np
import pytest
import typer

from tests.cli_support import invoke
from tests.foreign_support import has_compiler
from xccl_emu.base.words import INLINE, As, Printed, words_of
from xccl_emu.cli.app import Envelope
from xccl_emu.cli.main import app
from xccl_emu.papers.bench import fit

PREFIX_SUM = str(Path(__file__).parents[1] / "examples" / "prefix_sum" / "prefix_sum.py:PrefixSum")
TINY = "check sendrecv --slots 1 --chunks 1 --granules 1"
OBSERVED = str(Path(__file__).parent / "plan" / "observed.toml")
CASES = [
    ("list", "list", 0),
    ("list PROTOCOL", "list sendrecv", 0),
    ("list PROTOCOL", "list dispatch", 0),
    ("run", "run sendrecv --nbytes 64", 0),
    ("run", "run dispatch --ranks 4 --tokens 5 --hidden 64 --cores 2", 0),
    ("run", "run a2e --domains 1 --attention 2 --experts 3 --tokens 3 --hidden 64", 0),
    ("run", f"run {PREFIX_SUM} --dies 2", 0),
    ("run --on", "run sendrecv --on native --runs 2", 0),
    ("check", f"{TINY} --certify --certify-seconds 0.1", 0),
    ("check", f"{TINY} --confirm-seconds 1", 0),
    ("check", f"{TINY} --each-sync --advice-seconds 0.1", 0),
    ("check", f"{TINY} --on native --runs 2 --confirm-seconds 0", 0),
    ("check", f"{TINY} --weakest --advice-seconds 0.1", 0),
    ("check", f"{TINY} --fault stop:die1 --schedules 20", 0),
    ("check", f"check {PREFIX_SUM} --dies 2 --without 'chunk before tail' --policy portfolio", 1),
    ("fuzz", f"fuzz {PREFIX_SUM} --examples 2 --workers 1", 0),
    ("fuzz", f"fuzz {PREFIX_SUM} --examples 5 --workers 1 --without 'chunk before tail'", 1),
    ("trace", "trace sendrecv --slots 1 --chunks 1 --granules 1 --gantt 0", 0),
    ("sizes", "sizes deepep-ll --ranks 2 --tokens 1", 0),
    ("bench", "bench buffers", 0),
    ("bench", f"bench {PREFIX_SUM} --dies 2", 0),
    ("compare", f"compare {PREFIX_SUM} --dies 2", 0),
    ("plan", "plan --strategy TP=8+DP=4,EP=32", 0),
    ("plan", f"plan --observed {OBSERVED}", 0),
    ("plan --published", "plan --published", 0),
    ("fit", "fit", 0),
    ("litmus", "litmus MP CoWW", 0),
    ("litmus --read", "litmus --read results.csv", 0),
    ("explain", "explain flags.npz", 1),
    ("corpus", "corpus head_overtaken", 0),
    ("campaign", "campaign --programs 2 --workers 1 --orders sc", 0),
]  # fmt: skip
"""The words of docs/records/json.md that hold for a command line, and its exit code."""


@pytest.fixture
def commands(load_tool: Callable[[str], ModuleType]) -> Mapping[str, type[Printed]]:
    """The records that commands print."""
    found: Mapping[str, type[Printed]] = load_tool("json_page").COMMANDS
    return found


@pytest.fixture
def _quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files go to the working directory; the real fit takes minutes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results.csv").write_text("program,outcome,count\nCoWW,x=1,2\n")
    words: Any = {"num_ranks": 2, "num_experts": 2, "rank0/signals": np.array([[-1, 0], [0, 2]], np.int32)}
    np.savez(tmp_path / "flags.npz", **words)
    row = fit.fit_rows()[0]
    found = fit.FittedConstants(
        {"a_ns": 1.0}, (row,), {row.what: 9.5}, {"a_ns": {row.what: 0.25}}, {"a_ns": (0.5, 2.0)}, 3
    )
    monkeypatch.setattr(fit, "fit_published", lambda *_: found)


ENVELOPE = set(words_of(Envelope))


def words(kind: Any) -> dict[str, Any]:
    """Words of a record and their types; none of anything else."""
    found = words_of(kind) if isinstance(kind, type) and get_origin(kind) is None else {}
    return {name: word.kind for name, word in found.items() if name not in ENVELOPE}


def is_a(origin: Any, kind: type) -> bool:
    """Whether the origin of a type is a class of that kind."""
    return isinstance(origin, type) and issubclass(origin, kind)


def misfits(value: Any, kind: Any, where: str = "") -> Iterator[str]:
    """Where a value is not of a type: words that are missing, unknown, or of another type."""
    origin, parts = get_origin(kind), get_args(kind)
    if words(kind) and isinstance(value, dict):
        yield from (f"{where}.{name}: only in one of the two" for name in words(kind).keys() ^ value.keys())
        for name in words(kind).keys() & value.keys():
            yield from misfits(value[name], words(kind)[name], f"{where}.{name}")
    elif origin is Annotated:
        yield from misfits(value, parts[0], where)
    elif origin is UnionType:
        if all(any(misfits(value, part)) for part in parts):
            yield f"{where}: {value!r:.60} is none of {kind}"
    elif is_a(origin, Sequence) and isinstance(value, list):
        for i, each in enumerate(value):
            yield from misfits(each, parts[0 if ... in parts else i % len(parts)], f"{where}[]")
    elif is_a(origin, Mapping) and isinstance(value, dict):
        for each in value.values():
            yield from misfits(each, parts[-1], f"{where}{{}}")
    elif kind is not Any and type(value) not in {float: (int, float), Path: (str,)}.get(kind, (kind,)):
        yield f"{where}: {value!r:.60} is no {kind}"


def read(text: str) -> Any:
    """An object in one line, in which no number is NaN or infinite."""
    (line,) = text.splitlines()
    return json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize(("kind", "line", "code"), CASES, ids=lambda case: str(case).removeprefix("/")[:40])
def test_what_is_printed_is_what_is_documented(
    kind: str, line: str, code: int, commands: Mapping[str, type[Printed]]
) -> None:
    """Each command prints the words of its schema, all of them and no other, of these types."""
    if (kind.startswith("litmus") or "--on native" in line) and not has_compiler(False):
        pytest.skip("no C++ compiler")
    ended, out, err = invoke(*shlex.split(line), "--json")
    assert ended == code, err
    told = read(out)
    assert [*misfits({name: it for name, it in told.items() if name not in ENVELOPE}, commands[kind])] == []
    assert (told.keys() & ENVELOPE, told["schema"], told["command"]) == (ENVELOPE, "xccl-emu/1", kind.split()[0])


def test_every_command_with_json_is_documented(commands: Mapping[str, type[Printed]]) -> None:
    """A command that has ``--json`` has a schema, and a case above; so has each that is in a group."""
    context = typer.Context(typer.main.get_command(app))
    having = set()
    for name, command in context.command.commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", {"": command}).values()
        if any(param.name == "as_json" for each in inner for param in each.params):
            having.add(name)
    assert having == {name.split()[0] for name in commands}
    assert {kind for kind, _, _ in CASES} == {*commands}


def test_a_word_has_one_type(commands: Mapping[str, type[Printed]]) -> None:
    """The same word is of the same type in all commands, or of a part of it; where it is a record, it is one."""

    def plain(kind: Any) -> frozenset[str]:
        origin, parts = get_origin(kind), get_args(kind)
        if origin is None:
            return frozenset(["record" if words(kind) else str({Path: str}.get(kind, kind))])
        if origin is Annotated:
            return plain(parts[0])
        is_object = is_a(origin, Mapping)
        below = frozenset().union(*(plain(part) for part in parts[is_object:] if part is not ...))
        inside = "object" if is_object else "array"
        return below if origin is UnionType else frozenset(f"{inside} {one}" for one in below)

    def inside(kind: Any) -> Iterator[tuple[str, frozenset[str]]]:
        for name, each in words(kind).items():
            yield name, plain(each)
            yield from inside(each)
        for each in get_args(kind):
            yield from inside(each)

    found = dict[str, set[frozenset[str]]]()
    for kind in commands.values():
        for name, parts in inside(kind):
            found.setdefault(name, set()).add(parts)
    assert {name: kinds for name, kinds in found.items() if not max(kinds, key=len) >= frozenset().union(*kinds)} == {}


@dataclass
class Inner(Printed):
    """A record for the tests below."""

    x: Annotated[float, "a number", As(digits=1)]
    path: Annotated[Path, "a path", As("file")]


@dataclass
class Pair(Printed):
    """Another one."""

    FIRST = ("b",)
    a: Annotated[int, "a count"]
    b: Annotated[float | None, "a number or none"]
    inner: Annotated[Inner, INLINE]
    more: Annotated[Mapping[str, tuple[Inner, ...]], "records inside"]
    hidden: object = None

    @property
    def double(self) -> Annotated[int, "computed"]:
        """Printed, as its type has a text."""
        return 2 * self.a

    @property
    def secret(self) -> int:
        """Not printed."""
        return 1


def test_json_is_made_of_what_has_a_text() -> None:
    """Fields, then properties; renamed, rounded and in line as they are declared, in the order asked for."""
    inner, printed = Inner(0.25, Path("x")), {"x": 0.2, "file": "x"}
    said = {"b": None, "a": 1, **printed, "more": {"k": [printed]}, "double": 2}
    assert [*Pair(1, None, inner, {"k": (inner,)}).to_json().items()] == [*said.items()]
    assert words_of(Pair)["file"].says == "a path"
    assert words_of(Pair)["file"].path == "inner.path"


@dataclass
class Two(Printed):
    """A record for the test below."""

    a: Annotated[int, "a count"]
    b: Annotated[float | None, "a number or none"]


@pytest.mark.parametrize("value", [{"a": 1}, {"a": True, "b": 1}, {"a": 1, "b": "x"}, {"a": 1, "b": [1]}, []])
def test_a_misfit_is_seen(value: Any) -> None:
    """The tests above can fail: a word that is missing, or of another type, is said."""
    assert not any(misfits({"a": 1, "b": None}, Two))
    assert any(misfits(value, Two))


def test_the_page_is_made_of_the_schema(load_tool: Callable[[str], ModuleType]) -> None:
    """docs/records/json.md has a table for each command and each record, as tools/json_page.py writes them."""
    tool = load_tool("json_page")
    page = tool.PAGE.read_text("utf-8")
    assert tool.page(page) == page
