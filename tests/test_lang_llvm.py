"""Machine code against the lowered text in plain Python: the same words after every step, for every kernel here."""

import importlib
import pkgutil
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numba
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from lang_support import BASE, cache_in, module_of, new_state

from xccl_emu import kernels
from xccl_emu.base.errors import KernelError
from xccl_emu.lang import OP_RETURN, Kernel, Step, abi

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")

MODULES = [each.name for each in pkgutil.walk_packages(kernels.__path__, "xccl_emu.kernels.")]
MODULES += ["examples.ring_all_gather", "xccl_emu.guards.campaign.interpreter"]
EDGES = (-(2**63), -(2**63) + 1, -(2**32), -3, -2, -1, 0, 1, 2, 3, 31, 62, 63, 64, 65, 2**31, 2**62, 2**63 - 1)


def shipped() -> Iterator[Kernel]:
    """Yield every kernel of the project, once."""
    for name in MODULES:
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, Kernel) and value.generator.__module__ == name:
                yield value


def words_of(kernel: Kernel, step: Step, arguments: tuple[int, ...], seed: int = 0) -> list[object]:
    """Return the core's words after each step, of which the last may fail; what is granted is drawn."""
    draw, state, words = random.Random(seed), new_state(kernel, arguments), list[object]()
    try:
        while len(words) < 150 and step(state, BASE) != OP_RETURN:
            words.append(state.tolist())
            state[BASE + abi.RESULT] = draw.choice((0, 1, 2, draw.randint(-2, 70)))
    except (ArithmeticError, ValueError, IndexError) as error:
        words.append(type(error))
    return [*words, state.tolist()]


@pytest.mark.parametrize("kernel", [*shipped()], ids=lambda k: k.name)
def test_shipped_kernels(kernel: Kernel) -> None:
    """Machine code and plain Python leave the same words, whatever the machine grants."""
    for seed in range(20):
        draw = random.Random(seed)
        arguments = tuple(draw.randint(0, 12) for _ in kernel.words)
        assert words_of(kernel, kernel.step, arguments, seed) == words_of(kernel, kernel.lowered, arguments, seed)


PRELUDE = """
TABLE = (3, -1, 4, 1)

def both(x, y=-2):
    return x - y, y

def some(x, y):
    for i, j in ((x, 1), (y, 2)):
        if i > y:
            return j
    while x > 7 and y:
        x //= 3
        if x % 5 == 2:
            break
    for i in range(x % 6, -3, -2):
        if i == 3:
            continue
        y += i
    return x ^ y

"""
LEAVES = ("a", "b", "c", "0", "1", "-1", "7")
FORMS = (
    "({} + {})", "({} - {})", "({} * {})", "({} // {})", "({} % {})", "({} & {})", "({} | {})", "({} ^ {})",
    "({} << {})", "({} >> {})", "({} << ({} & 63))", "({} >> ({} & 63))", "({} // 8)", "({} % 16)", "({} // -8)",
    "({} % -3)", "({} ** 5)", "({} ** 0)", "(-{})", "(~{})", "(+{})", "(not {})", "abs({})", "min({}, {})",
    "max({}, {}, {})", "divmod({}, {})[0]", "divmod({}, {})[1]", "int({})", "bool({})", "({} < {})", "({} >= {})",
    "({} == {} != {})", "({} < {} <= {})", "({} and {})", "({} or {} and {})", "({} if {} else {})", "TABLE[{}]",
    "TABLE[{} & 3]", "(({}, {}) < ({}, {}))", "(({}, {}) == ({}, {}))", "({} in ({}, 1, {}))", "({} not in TABLE)",
    "({} in range(-2, 40, 3))", "len(range({} % 99, {} % 77, -4))", "both({})[0]", "both({}, {})[1]", "some({}, {})",
    "((1, {}) + TABLE)[{} % 6]", "range(9, -9, -2)[{}]",
)  # fmt: skip


def grow(smaller: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return the expressions made of one operation on smaller ones."""
    return st.sampled_from(FORMS).flatmap(
        lambda form: st.tuples(*[smaller] * form.count("{}")).map(lambda parts: form.format(*parts))
    )


EXPRESSIONS = st.recursive(st.sampled_from(LEAVES), grow, max_leaves=8)
NUMBERS = st.sampled_from(EDGES) | st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=150)
@given(st.lists(EXPRESSIONS, min_size=1, max_size=5), st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1))
def test_arithmetic(expressions: list[str], numbers: list[tuple[int, int, int]]) -> None:
    """Whatever is computed, of whatever numbers, both forms have the same result or fail alike."""
    text = PRELUDE + "@kernel\ndef k(a, b, c):\n" + "".join(f"    yield store({e}, 1)\n" for e in expressions)
    with tempfile.TemporaryDirectory() as folder, cache_in(Path(folder)):
        kernel = module_of(Path(folder), text).k
        try:
            assert kernel.source
        except KernelError:
            reject()  # a literal that does not fit
        for given_ in numbers:
            assert words_of(kernel, kernel.step, given_) == words_of(kernel, kernel.lowered, given_)
