"""What the tests of the kernel language share: modules from text, and three ways to walk a kernel."""

import importlib.util
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import numba
import numpy as np
import pytest

from xccl_emu.lang import Kernel, Step, abi
from xccl_emu.lang.requests import OP_RETURN

HEADER = "from xccl_emu.lang import *\n"
BASE = 40
GUARD = 77
_numbers = itertools.count()


@contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    """Have machine code and Numba's cache below ``folder``, so that generated kernels leave nothing behind."""
    before = os.environ["NUMBA_CACHE_DIR"], numba.config.CACHE_DIR
    os.environ["NUMBA_CACHE_DIR"] = numba.config.CACHE_DIR = str(folder / "numba")
    try:
        yield
    finally:
        os.environ["NUMBA_CACHE_DIR"], numba.config.CACHE_DIR = before


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what this module's kernels leave in a folder of its own."""
    with cache_in(tmp_path_factory.mktemp("cache")):
        yield


def module_of(folder: Path, text: str) -> ModuleType:
    """Write ``text`` to a file of its own and import it."""
    name = f"lang_case_{next(_numbers)}"
    path = folder / f"{name}.py"
    path.write_text(HEADER + text)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


def grant(number: int, request: tuple[int, ...]) -> int:
    """Return the value granted for the request ``number``: small, of both signs, sometimes 0."""
    return (17 * number + 3 * request[0] + request[1]) % 23 - 5


@dataclass
class Walk:
    """What a kernel did: its requests, each with its place, and how it ended."""

    requests: list[tuple[int, ...]] = field(default_factory=list)
    places: list[tuple[str, int, tuple[tuple[str, int], ...]]] = field(default_factory=list)
    result: int | None = None
    error: str = ""


Grant = Callable[[int, tuple[int, ...]], int]


def walk_generator(kernel: Kernel, arguments: tuple[int, ...], limit: int = 60, granted: Grant = grant) -> Walk:
    """Walk the plain generator, arguments one for each word; places come from its frames."""
    walk = Walk()
    generator = kernel(*kernel.arguments(arguments))
    value: int | None = None
    try:
        while len(walk.requests) < limit:
            request = generator.send(value)  # type: ignore[arg-type]
            lines, inner = [], generator
            while inner is not None:
                lines.append((inner.gi_frame.f_code.co_filename, inner.gi_frame.f_lineno))
                inner = inner.gi_yieldfrom
            walk.places.append((*lines[-1], tuple(lines[:-1])))
            walk.requests.append(tuple(map(int, request)))
            value = granted(len(walk.requests), walk.requests[-1])
    except StopIteration as stop:
        walk.result = int(stop.value or 0)
    except (ArithmeticError, ValueError) as error:
        walk.error = type(error).__name__
    return walk


def new_state(kernel: Kernel, arguments: tuple[int, ...]) -> np.ndarray:
    """Return a state array that ends with the kernel's last register, guard words in all that is not its own."""
    state = np.full(BASE + abi.REGISTERS + kernel.n_registers, GUARD, np.int64)
    state[[BASE + abi.PC, BASE + abi.RESULT]] = 0
    state[BASE + abi.REQUEST : BASE + abi.REQUEST + abi.REQUEST_WORDS] = 0
    state[BASE + abi.REGISTERS :] = 0
    state[BASE + abi.REGISTERS : BASE + abi.REGISTERS + len(arguments)] = arguments
    return state


def request_of(state: np.ndarray) -> tuple[int, ...]:
    """Return the eight words of the request in a state."""
    return tuple(state[BASE + abi.REQUEST : BASE + abi.REQUEST + abi.REQUEST_WORDS].tolist())


def registers_of(state: np.ndarray) -> list[int]:
    """Return the registers in a state."""
    return list(state[BASE + abi.REGISTERS :].tolist())


def walk_step(kernel: Kernel, step: Step, arguments: tuple[int, ...], limit: int = 60, granted: Grant = grant) -> Walk:
    """Walk a step function, and check what every one must keep to: its own words, and nothing left at its return."""
    walk = Walk()
    state = new_state(kernel, arguments)
    try:
        while len(walk.requests) < limit:
            operation = step(state, BASE)
            *request, site = request_of(state)
            assert operation == request[0]
            assert (state[: BASE + 1] == GUARD).all()
            assert (state[BASE + abi.REQUEST + abi.REQUEST_WORDS : BASE + abi.REGISTERS] == GUARD).all()
            if operation == OP_RETURN:
                walk.result = request[1]
                assert not any(registers_of(state))
                break
            where = kernel.sites[site]
            walk.requests.append(tuple(request))
            walk.places.append((where.file, where.line, where.callers))
            state[BASE + abi.RESULT] = granted(len(walk.requests), tuple(request))
    except (ArithmeticError, ValueError) as error:
        walk.error = type(error).__name__
    return walk


def check_forms(kernel: Kernel, *arguments: int, compiled: bool = True) -> Walk:
    """Walk every form of a kernel, require that all agree, and return what they did."""
    expected = walk_generator(kernel, arguments)
    forms = [kernel.lowered, kernel.plain_step(), *([kernel.step] if compiled else [])]
    for step in forms:
        assert walk_step(kernel, step, arguments) == expected
    return expected
