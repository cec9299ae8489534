"""Device code: it stands in folders of that name, imports nothing else, and is kept by what it depends on."""

import ast
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numba
import pytest

from tests.cli_support import python
from xccl_emu.jit import cache

PACKAGE = Path(cache.__file__).parent.parent
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if "kernels" not in path.parts)
DEVICE = [path for path in SOURCES if "device" in path.parts]
LANGUAGE = ("abi", "maps", "operations", "requests")
OUTSIDE = ("xccl_emu.jit.bare", "xccl_emu.jit.kept", *(f"xccl_emu.lang.{name}" for name in LANGUAGE))
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
DECORATORS = ("jit", "njit", "jit_arrays", "call", "entry", "linked", "part", "intrinsic", "compiled")


def imported(path: Path) -> set[str]:
    """Modules of the package that a source imports."""
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    found = [node for node in tree if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("xccl_emu")]
    return {_module(str(node.module), alias.name) for node in found for alias in node.names}


def _module(module: str, name: str) -> str:
    file = PACKAGE.parent.joinpath(*module.split("."), f"{name}.py")
    return f"{module}.{name}" if file.is_file() else module


@pytest.mark.parametrize("path", DEVICE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_device_code_imports_device_code_alone(path: Path) -> None:
    """All that shapes compiled code is in the folders over which its cache is keyed: nothing else is imported."""
    family = path.relative_to(PACKAGE).parts[0]
    allowed = {f"xccl_emu.{part.replace('/', '.')}" for part in cache.FAMILIES[family] if not part.endswith(".py")}
    for name in imported(path):
        assert name in OUTSIDE or any(name == folder or name.startswith(folder + ".") for folder in allowed), name


def test_nothing_else_is_compiled() -> None:
    """No function outside of the device folders has a decorator that compiles it."""
    for path in set(SOURCES) - set(DEVICE):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                names = {part.id for part in map(_called, node.decorator_list) if isinstance(part, ast.Name)}
                assert not names & set(DECORATORS), f"{path.relative_to(PACKAGE)}: {node.name}"


@pytest.mark.parametrize("path", DEVICE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_compiled_functions_read_constants_alone(path: Path) -> None:
    """Beside its arguments a compiled function reads functions, what is imported, and constants: nothing that changes.

    Numba takes the value of a global when it compiles, and what is kept on disk would keep it.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    statements = [node for node in tree.body if isinstance(node, ast.Assign)]
    assigned = [(name.id, node.value) for node in statements for name in _names(node.targets)]
    names = [name for name, _ in assigned]
    changing = {name for name, value in assigned if names.count(name) > 1 or isinstance(value, MUTABLE)}
    for function in compiled_functions(path):
        assert not changing & {name.id for name in _names([function])}, function.name
        assert not any(isinstance(node, ast.Global | ast.Nonlocal) for node in ast.walk(function)), function.name


def compiled_functions(path: Path) -> list[ast.FunctionDef]:
    """Return the functions of a module that have a decorator that compiles them."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    return [each for each in functions if set(DECORATORS) & {name.id for name in _names(each.decorator_list)}]


def meaning(function: ast.FunctionDef) -> str:
    """What it does, whatever it and its variables are called."""
    stored = [each.id for each in _names(function.body) if isinstance(each.ctx, ast.Store)]
    own = {name: f"v{i}" for i, name in enumerate(dict.fromkeys([*(a.arg for a in function.args.args), *stored]))}
    for each in _names(function.body):
        each.id = own.get(each.id, each.id)
    return "\n".join(ast.unparse(line) for line in function.body[ast.get_docstring(function) is not None :])


def test_no_compiled_function_stands_twice() -> None:
    """No two functions of the device folders do the same, by whatever names: what is said is said in one place.

    Intrinsics are left out: what they do is in a global of their module.
    """
    found: dict[str, list[str]] = {}
    for path in DEVICE:
        for function in compiled_functions(path):
            if "intrinsic" in {name.id for name in _names(function.decorator_list)}:
                continue
            found.setdefault(meaning(function), []).append(f"{path.relative_to(PACKAGE)}: {function.name}")
    assert len(found) > 400
    assert [names for names in found.values() if len(names) > 1] == []


def test_a_function_that_stands_twice_would_be_seen() -> None:
    """The test above can fail: names and docstrings make no difference, what is done does."""
    sources = ("def f(x, n):\n    'Doc.'\n    k = x + n\n    return k", "def g(a, b):\n    c = a + b\n    return c")
    one, same, other = (ast.parse(each).body[0] for each in (*sources, sources[1].replace("+", "-")))
    assert isinstance(one, ast.FunctionDef)
    assert isinstance(same, ast.FunctionDef)
    assert isinstance(other, ast.FunctionDef)
    assert meaning(one) == meaning(same) != meaning(other)


def _names(nodes: Sequence[ast.AST]) -> list[ast.Name]:
    return [each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)]


def _called(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


@pytest.mark.parametrize(
    ("edited", "families"),
    [
        ("cli/main.py", set()),
        ("check/search/setup.py", set()),
        ("check/search/device/checker_state.py", {"check"}),
        ("timing/device/heap.py", {"timing"}),
        ("machine/device/words.py", {"machine", "check", "timing"}),
        ("jit/bare.py", {"machine", "check", "timing"}),
        ("jit/parts.py", {"machine", "check", "timing"}),
        ("lang/requests.py", {"machine", "check", "timing"}),
        ("lang/operations.py", {"machine", "check", "timing"}),
        ("lang/maps.py", {"machine", "check", "timing"}),
    ],
)
def test_an_edit_compiles_only_what_depends_on_it(tmp_path: Path, edited: str, families: set[str]) -> None:
    """Host code is in no digest; device code is in that of its family and of those that are built on it."""
    for part in ("cli", "jit", "lang", "machine", "check", "timing"):
        for path in (PACKAGE / part).rglob("*.py"):
            copy = tmp_path / path.relative_to(PACKAGE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(path.read_text(encoding="utf-8"))

    def digests() -> dict[str, str]:
        return {name: cache.state_digest(str(tmp_path), {}, parts) for name, parts in cache.FAMILIES.items()}

    before = digests()
    with (tmp_path / edited).open("a", encoding="utf-8") as file:
        file.write("# edited\n")
    after = digests()
    assert {name for name in before if before[name] != after[name]} == families


PROGRAM = """
__name__ = "xccl_emu.machine.device.words"
from xccl_emu.jit import cache
from xccl_emu.machine.device.words import load_i64, jit

@jit
def total(a, b):
    return a + b

@jit
def both(a):
    return total(a, 1) + total(a, 2)

names = []
cache.listeners.append(names.append)
print(both(3), len(total.get_call_template.__self__._results), len(names))
"""


ARRAYS = """
__name__ = "xccl_emu.machine.device.words"
import numpy as np
from xccl_emu.machine.device.words import jit, jit_arrays

@jit
def add(words, table, i, j):
    words[i] += table[j, i]
    return words[i] + words.size + table.shape[0]

@jit_arrays
def halves(data, first, last):
    data[first : first + 2] = 0xFF
    return data[first:last].view(np.uint16)[0]

@jit_arrays
def call(words, table, data, i, j):
    return add(words, table, i, j), halves(data, 2, 8)

words, table, data = np.arange(3), np.arange(6).reshape(2, 3), np.zeros(8, np.uint8)
print(*call(words, table, data, 2, 1), words[2])
for i, j in ((3, 1), (-1, 1), (0, 2), (0, -1)):
    try:
        call(words, table, data, i, j)
    except IndexError:
        print("refused")
"""


FORMS = """
from collections import defaultdict
from numba.core.dispatcher import Dispatcher
from xccl_emu.jit import parts
from xccl_emu.check.check import check
from xccl_emu.protocol.registry import make
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.topologies import CLOUDMATRIX384

forms, wholes, as_part, as_whole = defaultdict(set), set(), parts.CompiledPart._compile, Dispatcher.compile

def name(function):
    return f"{function.__module__}.{function.__qualname__}"

def part(self, args):
    forms[name(self._compiler.py_func)].add(args)
    return as_part(self, args)

def whole(self, signature):
    wholes.add(name(self.py_func))
    return as_whole(self, signature)

parts.CompiledPart._compile, Dispatcher.compile = part, whole
small = make("sendrecv", slots=2, chunks=2, granules=1)
for policy in ("exhaustive", "portfolio"):
    check(small, policy=policy, schedules=2)
for case, policy in (("moe", "round-robin"), ("combine-int8", "random"), ("sendrecv", VirtualTime(CLOUDMATRIX384))):
    pod = make(case).build("sc").pod
    pod.policy = policy
    pod.run()
several = {each.rpartition(".")[2] for each, found in forms.items() if len(found) > 1}
both = {each.rpartition(".")[2] for each in wholes & forms.keys()}
print(len(forms) > 400, *sorted(several), *sorted(both))
"""


def run(folder: Path, program: str = PROGRAM, **settings: str) -> tuple[list[str], str]:
    """Words that the program prints, and what it warns of."""
    environment = os.environ | {"XCCL_EMU_CACHE_DIR": str(folder), "PYTHONWARNINGS": "default"} | settings
    done = python(program, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_kept_code_is_found_and_heals(tmp_path: Path) -> None:
    """A second process compiles nothing; damaged or empty files are compiled again and replaced.  Two calls with
    different numbers compile the callee once."""
    assert run(tmp_path)[0] == ["9", "1", "1"]
    assert run(tmp_path)[0][::2] == ["9", "0"]
    files = [path for path in tmp_path.rglob("machine.*") if path.is_file()]
    for number, path in enumerate(files):
        path.write_bytes(path.read_bytes()[: -7 if number % 2 else 0])
    assert run(tmp_path)[0][::2] == ["9", "1"]
    assert run(tmp_path)[0][::2] == ["9", "0"]


@pytest.mark.slow
@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_a_function_is_compiled_in_one_form(tmp_path: Path) -> None:
    """Machine, checker and virtual time, compiled anew: each function for one signature, but for that which looks
    through keys or serials; and three alone are called by the host and by compiled code too."""
    assert run(tmp_path, FORMS)[0] == ["True", "_largest", "freeze", "start", "undo_writes"]


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_bounds_of_bare_arrays_are_checked(tmp_path: Path) -> None:
    """A part reads, writes, slices and views what it is given; with bounds checks no index outside passes."""
    assert run(tmp_path, ARRAYS, NUMBA_BOUNDSCHECK="1")[0] == ["12", "65535", "7", *["refused"] * 4]


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_a_full_disk_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that cannot be kept is still there to run; the warning names the folder."""
    from xccl_emu.jit import kept

    def full(*where: object, **how: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", full)

    def twice(a):  # type: ignore[no-untyped-def]
        return 2 * a

    twice.__module__ = "xccl_emu.machine.device.words"
    made = kept.compiled()(twice)
    with pytest.warns(RuntimeWarning, match=r"cannot be kept in .*No space left"):
        assert made(4) == 8
