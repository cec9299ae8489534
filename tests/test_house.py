"""The house is in order: what takes any protocol names none."""

import ast
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PLACES = (
    "check", "cli", "doors/cli", "guards", "lang", "machine", "papers/cli", "protocol", "testing", "timing",
)  # fmt: skip
NAMED = re.compile(r"send_?recv|\bmoe\b|\ba2e|\be2a|\bfused|expert_parallel|Moe[A-Z]|A2E|Fused|SendRecv|urma")
"""Names of protocols, their modules and classes.  *Dispatch*, which is also what a command does, is not among them."""


def words(module: Path) -> Iterator[tuple[int, str]]:
    """Names, imports and texts of a module, with their lines; not what its docstrings say by way of example."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in said:
                yield node.lineno, text
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.ImportFrom(module=str(text)) | ast.arg(arg=text):
                yield node.lineno, text
            case ast.FunctionDef(name=text) | ast.ClassDef(name=text):
                yield node.lineno, text


OF_ONE = (
    "a2e", "a2e_call", "a2e_domains", "compare", "deepep", "fit", "fused", "kv",
    "mixserve", "phases", "sendrecv", "sensitivity", "serve_apart", "streams", "tables", "unseen",
)  # fmt: skip
"""Modules of `papers.bench` that make rows which were published of one protocol, or put those of several together."""
BENCHES = [path for path in sorted((ROOT / "xccl_emu" / "papers" / "bench").glob("*.py")) if path.stem not in OF_ONE]
MODULES = [path for place in PLACES for path in sorted((ROOT / "xccl_emu" / place).rglob("*.py"))] + BENCHES


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_protocol_is_named(module: Path) -> None:
    """A protocol comes with its files, and none of those that are there already has to know it."""
    assert [f"line {line}: {text}" for line, text in words(module) if NAMED.search(text)] == []


def test_a_name_would_be_seen() -> None:
    """The test above can fail: the modules of a protocol name it."""
    found = [text for _, text in words(ROOT / "protocols" / "a2e" / "case.py") if NAMED.search(text)]
    assert {"A2ECase", "a2e-urma", "xccl_emu.protocols.a2e.session"} <= set(found)


OUTSIDE = {"papers", "doors", "guards", "serving", "corpus", "examples"}
"""What the core does not import: rooms of the package, the family of serving systems, and what is loaded as files."""


def test_the_contract_names_all_of_the_core() -> None:
    """import-linter is asked about every part of the core, so one that is added later cannot be forgotten."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (contract,) = (each for each in config["contracts"] if each["name"].startswith("The core imports none of"))
    core = {f"xccl_emu.{path.parent.name}" for path in (ROOT / "xccl_emu").glob("*/__init__.py")}
    core -= {"xccl_emu.kernels", "xccl_emu.protocols"}
    for folder in ("kernels", "protocols"):
        paths = [path for path in (ROOT / folder).iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
        core |= {f"xccl_emu.{folder}.{path.stem}" for path in paths if path.stem != "__init__"}
    assert {*contract["source_modules"]} == {name for name in core if name.rpartition(".")[2] not in OUTSIDE}


@pytest.mark.parametrize("room", ["papers", "doors", "guards", "kernels.serving", "protocols.serving"])
def test_the_core_does_not_name_what_is_outside(room: str) -> None:
    """No text of the core has the name of such a module, to import it later; but for the names that users import."""
    inside = [path for path in (ROOT / "xccl_emu").rglob("*.py") if path.relative_to(ROOT).parts[1] not in OUTSIDE]
    facade = {ROOT / "xccl_emu" / "__init__.py", ROOT / "xccl_emu" / "base" / "moved.py"}
    found = [path for path in inside if path not in facade for _, text in words(path) if f"xccl_emu.{room}" in text]
    assert found == []


NO_SUBJECT = re.compile(r'^ *"""(?:Of|That|Those|Is|Are)\b', re.MULTILINE)


def test_docstrings_have_a_subject() -> None:
    """A docstring is a sentence about what it stands at, not the end of one ("Of ...") or a question ("Is ...?")."""
    found = {}
    for folder in ("xccl_emu", "kernels", "protocols", "tests", "tools", "benchmarks", "corpus", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if n := len(NO_SUBJECT.findall(path.read_text(encoding="utf-8"))):
                found[path.relative_to(ROOT).as_posix()] = n
    assert found == {}


SHARED_MAX = 25
"""Names of classes that several modules define: those of `--json`, and few others that users import."""


def test_a_class_has_a_name_of_its_own(load_tool: Callable[[str], ModuleType]) -> None:
    """A reader who meets the name of a class finds one class of that name, but for a few."""
    shared = load_tool("reach").classes(ROOT)
    assert len(shared) <= SHARED_MAX, sorted(shared)


MANY = {"check.py: check", "kernel.py: ascend_kernel"}
"""What may be chosen of a check, and said of a build, each by name."""


def test_host_functions_have_few_parameters() -> None:
    """What takes ten or more wants a record; in kernels and device code each is a register, in faces upstream's."""
    folders = ("xccl_emu", "protocols", "tools", "benchmarks")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    found = set()
    for path in (path for path in paths if not {"device", "kernels", "faces"} & {*path.parts}):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and len(node.args.args) + len(node.args.kwonlyargs) >= 10:
                found.add(f"{path.name}: {node.name}")
    assert found == MANY


AS_TEXT = re.compile(r'(?:ConfigError|CapacityError)\(\s*f?"(?:\w+|\{[^{}"]*\})=(?:\{[^{}"]+\}|\w+): ')
"""An error about one argument that has its name only in its text, such as ``ConfigError(f"dies={dies}: must ...")``."""


def test_errors_about_an_argument_have_its_name() -> None:
    """A command finds the option that was given by the name, as no message is read back."""
    assert AS_TEXT.search('raise ConfigError(f"dies={self.dies}: must be even")')
    folders = ("xccl_emu", "kernels", "protocols", "examples")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert [path.name for path in paths if AS_TEXT.search(path.read_text(encoding="utf-8"))] == []


ELSEWHERE = re.compile(
    r"^(?:>>> )?from xccl_emu(?:\.testing|\.\w+\.\w+)? import .*\b(?:Bench|Case|protocol|small_pod)\b", re.M
)
"""An import of what a protocol's file needs from a module that only has it too."""


def test_what_a_reader_copies_imports_from_one_place() -> None:
    """Pages, templates and examples have `Bench`, `Case` and `protocol` of `protocol`, `small_pod` of `machine`."""
    assert ELSEWHERE.search("from xccl_emu.testing import Bench, protocol")
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "xccl_emu/cli/recipe").glob("*.txt")]
    pages += [path for folder in ("examples", "corpus") for path in (ROOT / folder).rglob("*.py")]
    assert [path.name for path in pages if ELSEWHERE.search(path.read_text("utf-8"))] == []
