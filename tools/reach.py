"""Measure how far the house is from "declare once": a table of counts, of this tree or of another one.

python tools/reach.py            this tree
python tools/reach.py FOLDER     a clone at another commit
python tools/reach.py --walk     also which files a payload of dispatch, and one of send, passes
python tools/reach.py --page     write docs/records/reach.md: this tree next to the commit where it began, and wheels
python tools/reach.py --speed    write its table of speeds, each in pairs with an older commit (20 minutes)
"""

import ast
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from walk import on_host, walks

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "records" / "reach.md"
BEGAN, BEFORE = "8b4d1b6a", "251eae8"
"""Where the work began, and the commit whose searches were the fastest."""
ASKED = {
    "operands by raw offset in device code": "0", "ways to say rights": "1", "ways to launch": "1",
    "class names in several modules": "≤ 25", "modules imported as at": "0", "modules imported as ck": "0",
    "circles of modules": "≤ 1", "results taken apart by number": "0", "lines of the package": "2,800 fewer",
    "Python files": "90 fewer", "lines of the core": "2,500 fewer", "files of a payload of dispatch": "≤ 28",
    "files of the host before its first action": "≤ 10", "files of a payload of send": "≤ 24",
    "files of the host before its first action, of send": "≤ 9", "files that a new request touches": "≤ 6",
}  # fmt: skip
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


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imports(folder: Path) -> dict[str, set[str]]:
    """Return what each module imports of the package, in functions and for types too."""
    name_of = {}
    for path in files(folder):
        parts = path.relative_to(folder).with_suffix("").parts
        parts = parts if parts[0] == "xccl_emu" else ("xccl_emu", *parts)
        name_of[path] = ".".join(parts).removesuffix(".__init__")
    known = {*name_of.values()}
    found = {name: set[str]() for name in known}
    for path, name in name_of.items():
        for node in ast.walk(_tree(path)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [f"{node.module}.{each.name}" for each in node.names]
                names = [each if each in known else node.module for each in names]
            found[name] |= {each for each in names if each in known and each not in (name, "xccl_emu")}
    return found


def circles(folder: Path) -> list[list[str]]:
    """Return groups of modules that import each other, by way of others too; facades of packages are left out."""
    graph = imports(folder)
    facades = {name for name in graph if any(other.startswith(f"{name}.") for other in graph)}
    graph = {name: found - facades for name, found in graph.items() if name not in facades}

    def reached(name: str) -> set[str]:
        seen, left = set[str](), [name]
        while left:
            new = graph[left.pop()] - seen
            seen |= new
            left += new
        return seen

    beyond = {name: reached(name) for name in graph}
    inside = {name for name in graph if name in beyond[name]}
    return sorted({tuple(sorted(x for x in beyond[name] if name in beyond[x])): [] for name in inside})


def launches(folder: Path) -> list[str]:
    """Return functions that put a kernel on cores, with their files: none that only warns that it has moved."""
    found = []
    for path in files(folder):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.FunctionDef) and node.name.removeprefix("_") == "launch":
                takes = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
                if takes & {"kernel", "work", "phase", "step"} and "DeprecationWarning" not in ast.unparse(node):
                    found.append(f"{path.relative_to(folder).as_posix()}: {node.name}")
    return found


RIGHTS = {
    "annotations of kernels": re.compile(r"\bxl\.(?:Reads|Writes|Updates)\b"),
    "Region.used": re.compile(r"\.used\("),
    "names in texts": re.compile(r"\bUse\("),
    "rights of a phase": re.compile(r"^ +rights: (?:ClassVar\[)?Mapping", re.MULTILINE),
    "grants by hand": _GRANT,
}
"""Ways to say who may touch what, by what a use of each looks like in `kernels` and `protocols`."""


def rights(folder: Path) -> list[str]:
    """Return the ways to say rights that kernels and protocols use."""
    texts = [path.read_text("utf-8") for path in files(folder) if {"kernels", "protocols"} & {*path.parts}]
    return [way for way, pattern in RIGHTS.items() if any(map(pattern.search, texts))]


def tuples_by_number(folder: Path) -> int:
    """Count what device code of a witness takes out of an action's name by a number."""
    return lines_with(folder, re.compile(r"\bname\[\d\]"), lambda path: path.name == "attempts.py")


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
        "circles of modules": len(circles(folder)),
        "results taken apart by number": tuples_by_number(folder),
        "ways to say rights": len(rights(folder)),
        "ways to launch": len(launches(folder)),
        "lines of the package": lines,
        "Python files": number,
        "lines of the core": core,
    }


def since() -> ModuleType:
    """benchmarks/bench_since.py, which checks other commits out and measures them."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    return import_module("bench_since")


def walked(folder: Path) -> dict[str, int]:
    """Follow payloads in a process that imports a tree."""
    words = [sys.executable, __file__, str(folder), "--walk"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found = re.findall(r" (\d+)  files of a payload of (\w+) \((\d+) of the host", said)
    names = ("files of the host before its first action", "files of the host before its first action, of send")
    return {
        name: int(count)
        for (every, call, before), host in zip(found, names, strict=True)
        for name, count in ((f"files of a payload of {call}", every), (host, before))
    }


def of_a_request() -> int:
    """Count the files that the recipe for a request touches, its litmus test one of them."""
    sys.path.insert(0, str(ROOT / "tests" / "machine"))
    import test_toy_request as toy

    return len({name for name, _, _ in toy.ADDED} | {*toy.MADE, "its litmus test"})


def wheel(folder: Path) -> set[str]:
    """Build the wheel of a tree, and return the names of its files."""
    with tempfile.TemporaryDirectory() as made:
        words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", made, str(folder)]
        subprocess.run([sys.executable, *words], check=True)
        with zipfile.ZipFile(next(Path(made).glob("*.whl"))) as archive:
            return {name for name in archive.namelist() if ".dist-info/" not in name}


def in_wheels(then: Collection[str], now: Collection[str]) -> str:
    """Say what wheels hold that is no module, where they differ."""
    gone = [name for name in sorted({*then} - {*now}) if not name.endswith(".py")]
    moved = {Path(name).name for name in now}
    lost = [name for name in gone if Path(name).name not in moved]
    return (
        f"The wheel has {len(now):,} files, {len(then):,} at {BEGAN}. Of those that are no Python {len(gone)} are"
        f" elsewhere now, and {len(lost)} nowhere: {', '.join(f'`{name}`' for name in lost) or 'none'}."
    )


def page(text: str) -> str:
    """The page with its counts made again."""
    from pages import between
    from pages import table as rows

    checkout = since().checkout
    with checkout(BEGAN) as folder:
        then, made = table(folder) | walked(folder), wheel(folder)
    with checkout("HEAD") as folder:
        wheels = made, wheel(folder)
    now = table(ROOT) | walked(ROOT) | {"files that a new request touches": of_a_request()}
    then |= {"files that a new request touches": 18, "lines of the core": 45_174}  # by hand: it had no such rooms then
    cells = ((what, f"{then[what]:,}", f"{count:,}", ASKED.get(what, "")) for what, count in now.items())
    parts = [rows(("what", BEGAN, "now", "asked"), cells), in_wheels(*wheels)]
    parts += [f"Ways to say rights: {', '.join(rights(ROOT))}. Launches: {', '.join(launches(ROOT))}."]
    parts += ["Circles: " + ("; ".join(" ↔ ".join(each) for each in circles(ROOT)) or "none") + "."]
    return between(text, "reach", *parts)


SPEEDS: Mapping[str, Sequence[str]] = {
    BEFORE: (
        "transitions of a search, full", "transitions of dispatch, merged", "transitions of all-reduce-ring, merged",
        "transitions of a search, merged", "copies of 24 messages that stay in the cache",
    ),
    BEGAN: (
        "transitions of a search, full", "transitions of dispatch, merged", "transitions of all-reduce-ring, merged",
        "events set and waited for", "stores to the data buffer", "words to and fro between two cores",
    ),
}  # fmt: skip
"""Jobs of benchmarks/since_jobs.py that fit into half an hour, by the commit that they are compared with."""


def speeds(text: str, starts: int = 1, pairs: int = 3) -> str:
    """The page with its speeds measured again, in pairs by CPU seconds; it is written after each of them."""
    from pages import between
    from pages import table as rows

    cells, bench_since = [], since()
    for revision, jobs in SPEEDS.items():
        with bench_since.checkout(revision) as folder:
            for job in jobs:
                found = bench_since.measured(folder, job, starts, pairs)
                shown = (f"{found[0] / 1e6:.3g}", f"{found[1]:.2f}") if found else ("", "cannot")
                cells.append((job, revision, *shown))
                head = "what", "next to", "M a CPU second, now", "of what it was"
                text = between(text, "speeds", rows(head, cells))
                PAGE.write_text(text, "utf-8")
    return text


if __name__ == "__main__":
    given = [each for each in sys.argv[1:] if each not in ("--walk", "--page", "--speed")]
    tree = Path(given[0]) if given else ROOT
    for asked, make in {"--page": page, "--speed": speeds}.items():
        if asked in sys.argv:
            PAGE.write_text(make(PAGE.read_text("utf-8")), "utf-8")
            sys.exit()
    for what, count in table(tree).items():
        print(f"{count:8,}  {what}")
    for call, walk in walks(tree).items() if "--walk" in sys.argv else ():
        print(f"{len(walk.files):8,}  files of a payload of {call} ({walk.before} of the host before the first action)")
        print(*(f"          {'host    ' if on_host(path) else 'machine '} {path}" for path in walk.files), sep="\n")
