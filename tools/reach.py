"""Measure how far the house is from "declare once": a table of counts, of this tree or of another one.

python tools/reach.py            this tree
python tools/reach.py FOLDER     a clone at another commit
python tools/reach.py --walk     also which files a payload of dispatch, and one of send, passes
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from walk import on_host, walks

ROOT = Path(__file__).parents[1]
NOT_CORE = (
    "base/pages", "doors", "guards", "papers", "kernels/a2e", "kernels/mixserve", "kernels/serving", "protocols/a2e",
    "protocols/mixserve", "protocols/serving",
)  # fmt: skip
_OFFSET = re.compile(r"(?:\bREQUEST|\bentry|\bslot|\be) \+ [1-6]\]|\brequest\[[1-6]\]|\b_?[mr]\[ml\.X_[ABC]\]")
_ORDER = re.compile(r"(?:<=?|>=?) *(?:rq\.)?OP_[A-Z_]+|(?:rq\.)?OP_[A-Z_]+ *(?:<=?|>=?) ")
_CODES = re.compile(r"\b(?:rq\.)?OP_[A-Z_]+")
_GRANT = re.compile(r"\.grant(?:_meta|_managed)?\(")


def files(folder: Path) -> Iterator[Path]:
    """Python files of the package, with the two folders that it links to."""
    for part in ("xccl_emu", "kernels", "protocols"):
        yield from sorted((folder / part).rglob("*.py"))


def device(path: Path) -> bool:
    """Return whether a file is device code."""
    return "device" in path.parts


def _of_protocols(path: Path) -> bool:
    return "protocols" in path.parts


def lines_with(folder: Path, pattern: re.Pattern[str], which: Callable[[Path], bool]) -> int:
    """Count what a pattern matches in some files."""
    return sum(len(pattern.findall(path.read_text("utf-8"))) for path in files(folder) if which(path))


def classes(folder: Path) -> dict[str, set[Path]]:
    """Return the names of classes that several modules define, with these modules."""
    found = defaultdict[str, set[Path]](set)
    for path in files(folder):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].add(path)
    return {name: modules for name, modules in found.items() if len(modules) > 1}


def aliases(folder: Path) -> Counter[str]:
    """Count the modules by each alias under which modules are imported."""
    found = defaultdict[str, set[str]](set)
    for path in files(folder):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                for name in node.names:
                    if name.asname in ("at", "ck"):
                        found[name.asname].add(f"{node.module}.{name.name}")
    return Counter({alias: len(modules) for alias, modules in found.items()})


def sizes(folder: Path) -> tuple[int, int, int]:
    """Return the lines and files of the package, and the lines of its core."""
    counted = {path: len(path.read_text("utf-8").splitlines()) for path in files(folder)}
    outside = tuple(f"{name}/" for name in NOT_CORE)
    core = sum(
        n for path, n in counted.items()
        if not path.relative_to(folder).as_posix().removeprefix("xccl_emu/").startswith(outside)
    )  # fmt: skip
    return sum(counted.values()), len(counted), core


def table(folder: Path) -> dict[str, int]:
    """Measure everything."""
    lines, number, core = sizes(folder)
    named = aliases(folder)
    on_codes = [path for path in files(folder) if _CODES.search(path.read_text("utf-8"))]
    return {
        "operands by raw offset in device code": lines_with(folder, _OFFSET, device),
        "comparisons of codes by their order": lines_with(folder, _ORDER, lambda path: path.name != "requests.py"),
        "uses of codes of operations": lines_with(folder, _CODES, lambda path: path.name != "requests.py"),
        "files that use them": len(on_codes),
        "grants by hand in protocols/": lines_with(folder, _GRANT, _of_protocols),
        "class names in several modules": len(classes(folder)),
        "modules imported as at": named["at"],
        "modules imported as ck": named["ck"],
        "lines of the package": lines,
        "Python files": number,
        "lines of the core": core,
    }


if __name__ == "__main__":
    given = [each for each in sys.argv[1:] if each != "--walk"]
    tree = Path(given[0]) if given else ROOT
    for what, count in table(tree).items():
        print(f"{count:8,}  {what}")
    for call, walk in walks(tree).items() if "--walk" in sys.argv else ():
        print(f"{len(walk.files):8,}  files of a payload of {call} ({walk.before} of the host before the first action)")
        print(*(f"          {'host    ' if on_host(path) else 'machine '} {path}" for path in walk.files), sep="\n")
