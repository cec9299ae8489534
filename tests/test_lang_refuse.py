"""What the kernel language refuses: each with file, line and reason, none silently."""

import re
from pathlib import Path

import numba
import pytest
from lang_support import BASE, module_of, new_state, own_cache

from xccl_emu.base.errors import KernelError
from xccl_emu.lang import Kernel, kernel

__all__ = ["own_cache"]


OUTSIDE = """
import math
WORD = "word"
RATIO = 0.5
BIG = 2 ** 63
NUMBERS = [1, 2]
def sub(p, sync="none"):
    yield quiet(sync=sync)
def ends(p):
    if p:
        return p
    yield quiet()
def bare(p):
    yield quiet()
    return
def again(p):
    yield from again(p - 1)
    yield quiet()
def around(p):
    yield from back(p)
def back(p):
    yield from around(p)
def renames(p, sync="none"):
    sync = "other" if p else sync
    yield quiet()
def reads(p, q):
    yield load(p + q)
def counts(p, q):
    q = p
    yield load(q)
def plain(p):
    return p + 1
def halves(p):
    return p / 2
def looping(p):
    return looping(p - 1) if p else 0
def many(*p):
    yield quiet()
def defaults(p, q=0.5):
    yield store(p, q)
"""

REFUSED: dict[str, tuple[str, int | str, str]] = {
    "try": ("try:\n    yield quiet()\nfinally:\n    a = 1", 1, "try cannot be lowered"),
    "with": ("with a:\n    yield quiet()", 1, "with cannot be lowered"),
    "comprehension": ("yield quiet()\na = [i for i in range(3)][0]", 2, "a comprehension cannot"),
    "lambda": ("yield quiet()\na = (lambda: 1)()", 2, "lambda cannot be lowered"),
    "nested def": ("yield quiet()\ndef f():\n    yield quiet()", 2, "a nested function cannot be lowered"),
    "class": ("yield quiet()\nclass C:\n    pass", 2, "a class cannot be lowered"),
    "global": ("global G\nG = 1\nyield quiet()", 1, "global cannot be lowered"),
    "del": ("yield quiet()\ndel a", 2, "del cannot be lowered"),
    "import": ("yield quiet()\nimport os", 2, "import cannot be lowered"),
    "match": ("yield quiet()\nmatch a:\n    case 1:\n        pass", 2, "match cannot be lowered"),
    "raise": ("yield quiet()\nraise ValueError", 2, "stops a run with `yield fail"),
    "assert": ("yield quiet()\nassert a", 2, "stops a run with `yield fail"),
    "yield in the middle": ("a = 1 + (yield load(b))", 1, "middle of an expression"),
    "yield in a condition": ("if (yield load(b)):\n    a = 1", 1, "middle of an expression"),
    "yield in return": ("return (yield load(b))", 1, "middle of an expression"),
    "yield in an argument": ("yield store(a, (yield load(b)))", 1, "middle of an expression|two yields"),
    "augmented yield": ("a += yield load(b)", 1, "middle of an expression"),
    "yield to two names": ("a, b = yield load(b)", 1, "only one name can be assigned here"),
    "yield to names in a row": ("a = b = yield load(b)", 1, "goes to one name"),
    "two yields on a line": ("yield load(a); yield load(b)", 1, "two yields stand on one line"),
    "bare yield": ("a = 1\nyield", 2, "a yield has the form `yield load(...)`"),
    "yield of a value": ("yield a", 1, "a yield has the form `yield load(...)`"),
    "yield from a value": ("yield from a", 1, "a yield has the form `yield from subroutine(...)`"),
    "yield of another function": ("yield plain(a)", 1, "'plain' is not a request constructor"),
    "yield of a subroutine": ("yield sub(a)", 1, "'sub' is not a request constructor; use yield from"),
    "yield from a function": ("yield from plain(a)", 1, "'plain' is not a subroutine"),
    "yield from a request": ("yield from load(a)", 1, "'load' is not a subroutine"),
    "yield from range": ("yield from range(3)", 1, "'range' is not a subroutine"),
    "request without yield": ("yield quiet()\nload(a)", 2, "load(...) does nothing without yield"),
    "subroutine without yield from": ("yield quiet()\nsub(a)", 2, "does nothing without yield from"),
    "recursion": ("yield from again(a)", "yield from again(p - 1)", "calls itself"),
    "mutual recursion": ("yield from around(a)", "yield from around(p)", "calls itself"),
    "value of a subroutine that may have none": ("a = yield from ends(a)", "def ends(p):", "may end without the value"),
    "value of a bare return": ("a = yield from bare(a)", "return", "takes a value"),
    "string assigned": ("yield from renames(a)", 'sync = "other" if p else sync', "a string may only name the sync"),
    "string to an assigned parameter": ("yield from counts(a, 'x')", "def counts(p, q):", "'q', a string here"),
    "missing argument": ("yield store(a)", 1, "missing a required argument: 'value'"),
    "unknown argument": ("yield load(a, size=4)", 1, "unexpected keyword argument 'size'"),
    "too many arguments": ("yield from sub(a, 'x', 3)", 1, "too many positional arguments"),
    "star-arguments": ("yield store(*a)", 1, "star-arguments"),
    "double star": ("yield store(a, **b)", 1, "star-arguments"),
    "subroutine with star-arguments": ("yield from many(a)", "def many(*p):", "'many' takes star-arguments"),
    "for over a tuple": ("for i in (1, 2):\n    yield load(i)", 1, "goes over range(...) only"),
    "return in a for over a tuple": (
        "yield quiet()\nfor i in (1, 2):\n    if a == i:\n        return i", 2, "goes over range(...) only"
    ),
    "range with a variable step": ("for i in range(a, b, a):\n    yield load(i)", 1, "the step of range must be"),
    "range with step 0": ("for i in range(a, b, 0):\n    yield load(i)", 1, "the step of range must be"),
    "range without bounds": ("for i in range():\n    yield load(i)", 1, "one to three arguments"),
    "for-else": ("for i in range(a):\n    yield load(i)\nelse:\n    b = 1", 4, "else of a loop"),
    "while-else": ("while a:\n    yield load(a)\nelse:\n    b = 1", 4, "else of a loop"),
    "for over two names": ("for i, j in range(3):\n    yield load(i)", 1, "only one name can be assigned here"),
    "unknown name": ("yield load(a)\nyield load(nowhere)", 2, "'nowhere' is not defined"),
    "unknown attribute": ("yield load(math.nowhere)", 1, "'math.nowhere' is not defined"),
    "unknown function": ("yield load(nowhere(a))", 1, "'nowhere' is not defined"),
    "unknown builtin": ("yield load(sorted(a))", 1, "the builtin 'sorted' cannot be lowered"),
    "library function": ("yield load(math.gcd(a, b))", 1, "'math.gcd' is not a plain Python function"),
    "attribute of a local": ("yield load(a.b)", 1, "'a' is a local integer"),
    "call of a local": ("yield load(a(1))", 1, "'a' is a local integer"),
    "function as a value": ("yield load(plain)", 1, "a function, not a value"),
    "maybe unassigned": ("if a:\n    x = 1\nyield load(x)", 3, "'x' may be read before it is assigned"),
    "unassigned after a loop": ("for i in range(a):\n    yield quiet()\nyield load(i)", 3, "'i' may be read"),
    "unassigned in place": ("x += 1\nyield load(x)", 1, "'x' may be read before it is assigned"),
    "unassigned in plain code": (
        "yield quiet()\nfor j in range(b):\n    if j:\n        b = x\n    x = j", 4, "'x' may be read before"
    ),
    "reserved name": ("_xk_a = 1\nyield load(_xk_a)", 1, "'_xk_a' begins with '_xk_'"),
    "float": ("yield load(a + 0.5)", 1, "0.5 is not an integer"),
    "complex": ("yield load(2j)", 1, "2j is not an integer"),
    "none": ("a = None\nyield load(a)", 1, "None is not an integer"),
    "true division": ("yield load(a / b)", 1, "/ gives a float"),
    "true division in place": ("a /= b\nyield load(a)", 1, "/ gives a float"),
    "true division in a helper": ("yield load(halves(a))", "return p / 2", "/ gives a float"),
    "recursive helper": ("yield load(looping(a))", "return looping(p - 1) if p else 0", "'looping' calls itself"),
    "float constant": ("yield load(RATIO)", 1, "'RATIO' is no integer"),
    "float constant of a module": ("yield load(math.pi)", 1, "'math.pi' is no integer"),
    "float default": ("yield from defaults(a)", 1, "the default of 'q', 0.5, is neither"),
    "list constant": ("yield load(NUMBERS[0])", 1, "'NUMBERS' is no integer"),
    "big constant": ("yield load(BIG)", 1, "'BIG' is no integer of 64 bits"),
    "big literal": ("yield load(9223372036854775808)", 1, "does not fit into 64 bits"),
    "big result": ("yield load(2 ** 62 * 2)", 1, "does not fit into 64 bits"),
    "negative exponent": ("yield load(a ** -1)", 1, "the exponent of ** must be"),
    "variable exponent": ("yield load(a ** b)", 1, "the exponent of ** must be"),
    "negative shift": ("yield load(a << -1)", 1, "no shift count from 0 to 63"),
    "is": ("yield load(a is b)", 1, "`is` cannot be lowered"),
    "list": ("a = [1, 2][b]\nyield load(a)", 1, "a list cannot be lowered"),
    "dict": ("a = {1: 2}[b]\nyield load(a)", 1, "a dict cannot be lowered"),
    "walrus": ("yield load((b := a))", 1, "an assignment inside an expression"),
    "assignment to an element": ("a[0] = 1\nyield load(a)", 1, "a name or a tuple of names can be assigned"),
    "string": ("x = 'no'\nyield quiet()", 1, "a string may only name the sync"),
    "string constant": ("yield load(WORD)", 1, "'WORD' is no integer"),
    "string operand": ("yield load('a')", 1, "address must be an integer, not 'a'"),
    "string as a value": ("yield from reads(a, 'x')", "yield load(p + q)", "'q' is a string"),
    "f-string": ("yield quiet(sync=f'{a}')", 1, "a string cannot be lowered"),
    "order of a variable": ("yield store(a, b, order=b)", 1, "order must be a literal, not 'b'"),
    "order unknown": ("yield store(a, b, order='weak')", 1, "order='weak': must be one of no-order, relaxed"),
    "order of a read": ("yield load(a, order='strong')", 1, "order"),
    "sync of a variable": ("yield quiet(sync=a)", 1, "sync must be a literal, not 'a'"),
    "step of a variable": ("yield quiet(step=a)", 1, "step must be a literal, not 'a'"),
    "step of a string": ("yield quiet(step='x')", 1, "step must be a literal, not \"'x'\""),
    "matrix product": ("yield load(a @ b)", 1, "@ cannot be lowered"),
}  # fmt: skip
"""A body for ``def k(a, b)``, the line named (its number in the body, or its text), part of the reason."""


def module_text(body: str) -> str:
    """Return the module for a refused body; the body begins right under its ``def``."""
    indented = "".join(f"    {line}\n" for line in body.split("\n"))
    return OUTSIDE + f"@kernel\ndef k(a, b):\n{indented}"


@pytest.mark.nojit
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    """The construct is refused, and the message names file, line and reason."""
    body, line, reason = REFUSED[name]
    text = module_text(body)
    refused: Kernel = module_of(tmp_path, text).k
    with pytest.raises(KernelError) as caught:
        _ = refused.source
    file, number, message = re.fullmatch(r"(.*?\.py):(\d+): (.*)", str(caught.value), re.DOTALL).groups()  # type: ignore[union-attr]
    assert file == refused.generator.__code__.co_filename
    assert any(part in message for part in reason.split("|")), message
    lines = Path(file).read_text().split("\n")
    expected = line if isinstance(line, str) else body.split("\n")[line - 1].strip()
    assert lines[int(number) - 1].strip() == expected


def test_refused_at_once(tmp_path: Path) -> None:
    """What is not a generator function is refused where it is decorated."""
    with pytest.raises(KernelError, match=r"lang_case_\d+\.py:2: .* not a generator function"):
        module_of(tmp_path, "@kernel\ndef k(a):\n    return a\n")
    with pytest.raises(KernelError, match="not a generator function"):
        kernel(3)  # type: ignore[arg-type]


def test_parameters(tmp_path: Path) -> None:
    """A kernel's own parameters are plain, for the host writes them into registers."""
    for parameters, reason in (("a, b=1", "no defaults"), ("a, *, b", "no defaults"), ("*a", "star-arguments")):
        text = f"@kernel\ndef k({parameters}):\n    yield quiet()\n"
        with pytest.raises(KernelError, match=reason):
            _ = module_of(tmp_path, text).k.source


def test_no_source() -> None:
    """A kernel typed at a prompt has no source and is refused when it is lowered, but its generator runs."""
    space: dict[str, Kernel] = {}
    exec("from xccl_emu.lang import *\n@kernel\ndef k(a):\n    yield store(a, 1)\n", space)
    assert len(list(space["k"](1))) == 1
    with pytest.raises(KernelError, match="has no source to lower; write it to a file"):
        _ = space["k"].source


def test_refused_when_compiled(tmp_path: Path) -> None:
    """What only types can tell, a tuple in place of an integer, is refused at compile time and in plain Python."""
    text = "@kernel\ndef k(a):\n    x = (a, a)\n    yield store(a, 1)\n    yield store(x[0], 1)\n"
    kernel = module_of(tmp_path, text).k
    state = new_state(kernel, (1,))
    with pytest.raises(TypeError, match="unsupported operand"):
        kernel.lowered(state, BASE)
    if not numba.config.DISABLE_JIT:
        with pytest.raises(KernelError, match=r"\.py:2: 'k' does not compile; every value must be an integer"):
            _ = kernel.step


@pytest.mark.nojit
def test_float_in_plain_python(tmp_path: Path) -> None:
    """A float is refused by the plain form too, not truncated."""
    kernel = module_of(tmp_path, "def whole(a):\n    return a\n\n@kernel\ndef k(a):\n    yield store(whole(a), 1)\n").k
    state = new_state(kernel, (1,))
    step, lowered = kernel.plain_step(), kernel.lowered
    kernel.generator.__globals__["whole"] = lambda a: a * 0.5
    with pytest.raises(KernelError, match=r"a request is 7 integers, not \(2, 0\.5"):
        step(state, BASE)
    lowered.__globals__[next(n for n in lowered.__globals__ if n.endswith("_whole"))] = lambda a: a * 0.5  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="unsupported operand"):
        lowered(new_state(kernel, (1,)), BASE)


def test_a_value_beyond_64_bits_is_loud_in_the_plain_generator(tmp_path: Path) -> None:
    """The author's own Python does not wrap around silently: a value of more than 64 bits cannot be stored."""
    kernel = module_of(tmp_path, "@kernel\ndef k(a):\n    yield store(a, a * a * a)\n").k
    with pytest.raises(OverflowError):
        kernel.plain_step()(new_state(kernel, (2**40,)), BASE)


def test_an_expression_that_is_nested_too_deeply(tmp_path: Path) -> None:
    """Six hundred terms are refused with the place of the kernel, and not by the recursion of who lowers it."""
    terms = " + ".join(["a"] * 600)
    body = f"from xccl_emu.lang import kernel, store\n\n\n@kernel\ndef k(box, a):\n    yield store(box, {terms})\n"
    module = module_of(tmp_path, body)
    with pytest.raises(KernelError, match=r"\.py:\d: 'k' has an expression that is nested too deeply: take it apart"):
        _ = module.k.source
