"""Every construct of the kernel language, in every form: plain generator, plain step, lowered, compiled."""

from pathlib import Path

import numba
import numpy as np
import pytest
from lang_kernels import CASES
from lang_support import BASE, check_forms, module_of, new_state, own_cache, registers_of, request_of, walk_step

from xccl_emu.base.errors import KernelError
from xccl_emu.lang import OP_LOAD, OP_RETURN, OP_STORE, Kernel, abi
from xccl_emu.machine.device.words import call_step, handle_of

pytestmark = [pytest.mark.nojit, pytest.mark.boundscheck]
__all__ = ["own_cache"]


def kernel_of(folder: Path, text: str) -> Kernel:
    """Return the kernel ``k`` of a module with this text."""
    kernel = module_of(folder, text).k
    assert isinstance(kernel, Kernel)
    return kernel


@pytest.mark.parametrize("name", CASES)
def test_construct(name: str) -> None:
    """Each construct makes the same requests, at the same places, with the same end, in all forms."""
    kernel, cases = CASES[name]
    walks = [check_forms(kernel, *arguments) for arguments in cases]
    assert any(walk.requests for walk in walks)


def test_request_words_and_result(tmp_path: Path) -> None:
    """Requests hold the operation, the operands with their defaults and the site; the granted value goes on."""
    kernel = kernel_of(
        tmp_path, "@kernel\ndef k(a):\n    x = yield load(a, 4)\n    yield store(a + 8, x)\n    return x\n"
    )
    state = new_state(kernel, (64,))
    assert kernel.step(state, BASE) == OP_LOAD
    assert request_of(state) == (OP_LOAD, 64, 4, 0, 0, 0, 0, 0)
    state[BASE + abi.RESULT] = -6
    assert kernel.step(state, BASE) == OP_STORE
    assert request_of(state) == (OP_STORE, 72, -6, 8, 0, 0, 0, 1)
    assert state[BASE + abi.RESULT] == 0
    for _ in range(2):
        last = -6 if state[BASE + abi.PC] >= 0 else 0
        assert kernel.step(state, BASE) == OP_RETURN
        assert request_of(state) == (OP_RETURN, last, 0, 0, 0, 0, 0, 0)
        assert state[BASE + abi.PC] == -1


def test_sites(tmp_path: Path) -> None:
    """A site holds file, line, text, operation, step, sync, and the calls on the way to a subroutine."""
    text = (
        "def inner(a, sync, step=3):\n    yield quiet(step=step, sync=sync)\n\n"
        "def outer(a, name='tail'):\n    yield from inner(a, name)\n    yield from inner(a, sync='ack', step=STEP)\n\n"
        "STEP = 9\n\n@kernel\ndef k(a):\n    yield from outer(a)\n    yield (\n        store(a, 0, step=4)\n    )\n"
    )
    kernel = kernel_of(tmp_path, text)
    file = kernel.generator.__code__.co_filename
    assert [(s.operation, s.step, s.sync, s.line, s.text) for s in kernel.sites] == [
        ("quiet", 3, "tail", 3, "yield quiet(step=step, sync=sync)"),
        ("quiet", 9, "ack", 3, "yield quiet(step=step, sync=sync)"),
        ("store", 4, "", 14, "yield ("),
    ]
    assert [s.callers for s in kernel.sites] == [((file, 13), (file, 6)), ((file, 13), (file, 7)), ()]
    check_forms(kernel, 1)


SUBROUTINES = """
import common_{0} as common
from common_{0} import CONSTANT, Layout, LAYOUT

def last(p, q=CONSTANT, *, r=5):
    for i in range(p):
        x = yield load(i + q)
        if x < r:
            return x
    return -1

def twice(p):
    p += 1
    a = yield from last(p)
    p = yield from last(p, r=a + 1, q=a)
    return p

@kernel
def k(p, a):
    a = yield from twice(a)
    yield from common.both(p, a)
    p = yield from twice(p)
    yield store(LAYOUT.offset, common.CONSTANT + Layout.FIELD * p)
    return a + common.TABLE[p % 3] + p
"""
COMMON = """
import dataclasses, enum
CONSTANT = -3
TABLE = (5, 6, 7)
class Layout(enum.IntEnum):
    FIELD = 32
@dataclasses.dataclass(frozen=True)
class Offsets:
    offset: int = 128
LAYOUT = Offsets()
def helper(a, b=2):
    "Adds."
    total: int
    total = 0
    for i in range(a % 4):
        total += other(i, b=b)
    return total
def other(i, b):
    if i > 1:
        return i
    return CONSTANT * b
def both(p, a):
    yield store(helper(p), helper(p, a))
    if a < 0:
        return
    yield quiet()
"""


def test_subroutines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Subroutines, helpers and constants, of this module and another, with defaults and keywords, are found."""
    monkeypatch.syspath_prepend(tmp_path)
    name = f"{abs(hash(tmp_path)):x}"
    (tmp_path / f"common_{name}.py").write_text("from xccl_emu.lang import *\n" + COMMON)
    kernel = kernel_of(tmp_path, SUBROUTINES.format(name))
    for arguments in ((0, 0), (3, 2), (5, 1)):
        assert check_forms(kernel, *arguments).result is not None


def test_kernel_as_subroutine_and_closure(tmp_path: Path) -> None:
    """A kernel can call another kernel, and one made inside a function sees that function's variables."""
    text = (
        "@kernel\ndef part(a):\n    x = yield load(a)\n    return x\n\n"
        "def make(offset):\n    @kernel\n    def k(a):\n        x = yield from part(a + offset)\n        return x\n"
        "    return k\n\n"
        "k, other = make(3), make(4)\n"
    )
    module = module_of(tmp_path, text)
    assert check_forms(module.k, 1).requests[0][1] == 4
    assert check_forms(module.other, 1).requests[0][1] == 5


def test_what_is_dead_is_zero(tmp_path: Path) -> None:
    """Locals that live across no yield have no register, and a register is 0 from the last read of its value on."""
    text = (
        "@kernel\ndef k(a, b):\n    t = a * 2\n    x = yield load(t)\n    for i in range(2):\n        u = x + i\n"
        "        yield store(u, 0)\n    b = 5\n    yield quiet()\n    return b\n"
    )
    kernel = kernel_of(tmp_path, text)
    assert kernel.registers == ("a", "b", "x", "i")
    state = new_state(kernel, (3, 4))
    seen = []
    for granted in (0, 9, 0, 0):
        state[BASE + abi.RESULT] = granted
        kernel.step(state, BASE)
        seen.append(registers_of(state))
    assert seen == [[0, 0, 0, 0], [0, 0, 9, 0], [0, 0, 9, 1], [0, 5, 0, 0]]


def test_equal_situations_are_equal_states(tmp_path: Path) -> None:
    """Two ways to the same request, on which other values were seen and dropped, leave the same words."""
    text = (
        "@kernel\ndef k(a):\n    while True:\n        x = yield load(a)\n        if x > 3:\n            y = x * 2\n"
        "            yield store(a, y)\n            yield store(a, x + y)\n"
    )
    kernel = kernel_of(tmp_path, text)
    states = []
    for granted in ([0, 1], [0, 9, 0, 0], [0, 8, 5, 5]):
        state = new_state(kernel, (16,))
        for value in granted:
            state[BASE + abi.RESULT] = value
            kernel.step(state, BASE)
        states.append(state)
    assert request_of(states[0])[0] == OP_LOAD
    assert (states[0] == states[1]).all()
    assert (states[0] == states[2]).all()


def test_steps_called_by_address(tmp_path: Path) -> None:
    """Steps of different kernels are called by one function, and of arithmetic that fails it hears what and where."""
    module = module_of(
        tmp_path,
        "def scaled(a):\n    return 3 * a\n\n"
        "@kernel\ndef one(a):\n    while True:\n        yield store(scaled(a), 1)\n\n"
        "@kernel\ndef two(a, b):\n    for i in range(9):\n        b = yield load(a // b)\n",
    )

    @numba.njit
    def run(state, steps, base, n):  # type: ignore[no-untyped-def]
        total = 0
        for i in range(n):
            done = call_step(steps[i % 2], state, base + (i % 2) * 1024)
            if done < 0:
                return done
            total += done
            state[base + 1024 + 3] = i < 4
        return total

    state = np.zeros(4096, np.int64)
    state[BASE + abi.REGISTERS] = state[BASE + 1024 + abi.REGISTERS] = 5
    state[BASE + 1024 + abi.REGISTERS + 1] = 1
    steps = np.array([handle_of(module.one.entry), handle_of(module.two.entry)])
    assert run(state, steps, BASE, 4) == 2 * (OP_STORE + OP_LOAD)
    assert run(state, steps, BASE, 6) == abi.DIVISION_BY_ZERO
    assert [place.line - module.two.places[0].line for place in module.two.places] == [0]


def test_a_failed_step_keeps_the_request(tmp_path: Path) -> None:
    """A step that divides by zero raises and leaves program counter and request as they were."""
    kernel = kernel_of(tmp_path, "@kernel\ndef k(a):\n    yield store(a, 1)\n    yield store(2, a // (a - 3))\n")
    for step in (kernel.step, kernel.lowered):
        state = new_state(kernel, (3,))
        step(state, BASE)
        before = state.copy()
        with pytest.raises(ZeroDivisionError):
            step(state, BASE)
        assert (state == before).all()


def test_deep_nesting(tmp_path: Path) -> None:
    """A long chain of guards does not exceed what Python's parser can nest."""
    lines = ["@kernel", "def k(n):", "    for i in range(n):"]
    for j in range(60):
        lines += [f"        if i == {j}:", "            continue"]
    lines += ["        yield store(i, n)"]
    kernel = kernel_of(tmp_path, "\n".join(lines) + "\n")
    assert len(walk_step(kernel, kernel.lowered, (63,)).requests) == 3
    check_forms(kernel, 62, compiled=False)


def test_plain_step_cannot_resume(tmp_path: Path) -> None:
    """The plain form says so when it is given the state of a run that it did not drive."""
    kernel = kernel_of(tmp_path, "@kernel\ndef k(a):\n    yield store(a, 1)\n    yield quiet()\n")
    state = new_state(kernel, (3,))
    kernel.plain_step()(state, BASE)
    with pytest.raises(KernelError, match="cannot go on from a snapshot"):
        kernel.plain_step()(state, BASE)


def test_the_kernel_object(tmp_path: Path) -> None:
    """A kernel keeps name, parameters, documentation and generator, and calling it gives the plain generator."""
    kernel = kernel_of(tmp_path, "@kernel\ndef k(a, b):\n    'Copies.'\n    yield store(a, b)\n")
    assert (kernel.name, kernel.params, kernel.__doc__) == ("k", ("a", "b"), "Copies.")
    assert repr(kernel) == "<kernel k(a, b)>"
    assert list(kernel(1, 2)) == [(OP_STORE, 1, 2, 8, 0, 0, 0)]
