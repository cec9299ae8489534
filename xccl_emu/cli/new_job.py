"""What ``xccl-emu new`` does: it fills in the files of a folder, none of which may be there."""

import keyword
import re
from importlib import resources
from string import Template

import typer

from xccl_emu.cli.files import writing
from xccl_emu.cli.new import NewOptions
from xccl_emu.errors import ConfigError
from xccl_emu.output import write_text

_FILES = {"{}_kernel.py": "kernel.txt", "{}.py": "case.txt", "test_{}.py": "test.txt"}
_RESERVED = ("own", "out", "nbytes", "inbox", "flag", "kernel", "payload", "size", "quiet", "put", "xccl_emu", "test")


def act(options: NewOptions) -> None:
    """Run the command; ConfigError for a name that is none, or a file that is there, before anything is written."""
    name = options.name
    taken = keyword.iskeyword(name) or name in _RESERVED
    if taken or not re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]", name, re.ASCII):
        raise ConfigError(f"NAME {name!r}: must be a name such as my_gather, which Python and the kernel do not use")
    paths = {options.folder / shape.format(name): source for shape, source in _FILES.items()}
    for path in paths:
        if path.exists() or path.is_symlink():
            raise ConfigError(f"NAME {name}: {path} is there already, and is not overwritten")
    case = "".join(word.capitalize() for word in name.split("_"))
    words = {"name": name, "Name": case, "file": f"{name}.py:{case}"}
    recipe = resources.files("xccl_emu.cli") / "recipe"
    with writing("--folder", options.folder):
        options.folder.mkdir(parents=True, exist_ok=True)
        for path, source in paths.items():
            write_text(path, Template((recipe / source).read_text("utf-8")).substitute(words))
    said = [*(f"written: {path}" for path in paths), f"now: xccl-emu check {options.folder / name}.py:{case}"]
    typer.echo("\n".join(said))
