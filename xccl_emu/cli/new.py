"""``xccl-emu new``: a protocol of one's own to begin with, written where no file of those names exists."""

import keyword
import re
import sys
from dataclasses import dataclass
from importlib import resources
from importlib.machinery import PathFinder
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

import typer

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import option
from xccl_emu.base.output import write_text
from xccl_emu.cli.app import App, command_of
from xccl_emu.cli.files import writing

_FILES = {"{}_kernel.py": "kernel.txt", "{}.py": "case.txt", "test_{}.py": "test.txt"}
_RESERVED = ("own", "out", "nbytes", "inbox", "flag", "kernel", "payload", "size", "quiet", "put", "xccl_emu", "test")


@dataclass(frozen=True)
class NewOptions:
    """Write a small protocol to begin with: NAME_kernel.py, NAME.py with the case, and test_NAME.py.

    It sends a chunk to the next die. Check it, run the tests, and then change it to what you have in mind. Or copy one
    of the examples, as it is.

    \b
      xccl-emu new my_gather
      xccl-emu check my_gather.py:MyGather --each-sync
      pytest test_my_gather.py
      xccl-emu new --example prefix_sum

    Exit code: 0, 2 wrong usage, or a file that is there.
    """

    name: str = option("", "Of the kernel and its files; lower case with underscores.", argument=True, metavar="NAME")
    example: str = option("", "Copy this example in place of it; any other word lists them.")
    folder: Path = option(Path("."), "Where to write; made if it is not there.")


def act(options: NewOptions) -> None:
    """Run the command; ConfigError for a name that is none, or a file that is there, before anything is written."""
    texts = _copied(options) if options.example else _filled_in(options)
    for path in texts:
        if path.exists() or path.is_symlink():
            raise ConfigError(f"{options.name or options.example}: {path} is there already, and is not overwritten")
    with writing("--folder", options.folder):
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, text)
    typer.echo("\n".join(f"written: {path}" for path in texts))
    if options.name:
        typer.echo(f"now: xccl-emu check {options.folder / options.name}.py:{_case_of(options.name)}")


def _filled_in(options: NewOptions) -> dict[Path, str]:
    name = options.name
    taken = keyword.iskeyword(name) or name in _RESERVED
    if taken or not re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]", name, re.ASCII):
        raise ConfigError(f"NAME {name!r}: must be a name such as my_gather, which Python and the kernel do not use")
    if name in sys.stdlib_module_names or _is_installed(name, options.folder):
        raise ConfigError(f"NAME {name!r}: is a module that Python has; {name}.py would hide it from what imports it")
    words = {"name": name, "Name": _case_of(name), "file": f"{name}.py:{_case_of(name)}"}
    recipe = resources.files("xccl_emu.cli") / "recipe"
    return {
        options.folder / shape.format(name): Template((recipe / source).read_text("utf-8")).substitute(words)
        for shape, source in _FILES.items()
    }


def _is_installed(name: str, folder: Path) -> bool:
    """Return True if a module of that name is elsewhere than in the working directory and in the folder."""
    here = (Path.cwd(), folder.resolve())
    return PathFinder.find_spec(name, [each for each in sys.path if Path(each).resolve() not in here]) is not None


def _case_of(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _copied(options: NewOptions) -> dict[Path, str]:
    examples = {entry.name.removesuffix(".py"): entry for entry in _entries(resources.files("xccl_emu") / "examples")}
    if options.name or options.example not in examples:
        known = f"must be one of {', '.join(sorted(examples))}, without a NAME"
        raise ConfigError(f"--example {options.example}: {known}")
    entry, folder = examples[options.example], options.folder
    if entry.is_file():
        return {folder / entry.name: entry.read_text("utf-8")}
    return {folder / entry.name / file.name: file.read_text("utf-8") for file in _entries(entry)}


def _entries(folder: Traversable) -> list[Traversable]:
    return [entry for entry in folder.iterdir() if not entry.name.startswith(("_", "."))]


app = App.of(command_of(NewOptions, act), no_args_is_help=True)
