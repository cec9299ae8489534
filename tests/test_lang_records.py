"""Records: parameters that are several named integers at once, the same in every form of a kernel."""

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lang_support import check_forms, module_of, own_cache

from xccl_emu.base.errors import ConfigError, KernelError
from xccl_emu.lang import Kernel, kernel, quiet, store, ub_store
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod

__all__ = ["own_cache"]

CLASSES = """
from typing import NamedTuple
class Shape(NamedTuple):
    rows: int
    width: int
class Twin(NamedTuple):
    rows: int
    width: int
def helper(a, b):
    return 10 * a + b
def inner(i, shape: Shape, twice=2):
    got = yield load(i * shape.width, step=1)
    return helper(got, shape.rows) * twice
def takes_integer(n):
    yield quiet()
    return n
"""
BODY = """
@kernel
def k(p0_rows, shape: "Shape", p1_rows, other: Shape):
    total = p0_rows - p1_rows
    for i in range(shape.rows):
        got = yield from inner(i, shape)
        more = yield from inner(shape=other, i=got)
        total += more
        again = yield from inner(i, other._replace(width=total + i))
        made = yield from inner(twice=3, i=i, shape=Shape(i + 1, width=again))
        total += again - made
    yield store(total, other.width + shape.width)
    return total
"""


class Place(NamedTuple):
    """Where a kernel of this module writes what."""

    address: int
    value: int


@kernel
def writes(core, at: Place):
    """Writes the value of a record to its address."""
    yield ub_store(0, core)
    yield store(at.address, at.value + core)
    yield quiet()


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    """The kernel of `CLASSES` and `BODY`."""
    made: Kernel = module_of(tmp_path_factory.mktemp("records"), CLASSES + BODY).k
    return made


@given(words=st.tuples(*[st.integers(-9, 9)] * 6))
def test_forms_agree(example: Kernel, words: tuple[int, ...]) -> None:
    """Generator, lowered function and plain step do the same with fields, passed on by position and by name."""
    check_forms(example, *words, compiled=False)


def test_compiled(example: Kernel) -> None:
    """Compiled, each field is a register, and registers are told under the names that the author uses."""
    check_forms(example, 1, 2, 3, 4, 5, 6)
    fields = ("p0_rows", "shape.rows", "shape.width", "p1_rows", "other.rows", "other.width")
    assert example.registers[:6] == fields
    assert example.params == ("p0_rows", "shape", "p1_rows", "other")


REFUSED = {
    "yield store(s, 1)": "address must be an integer, not a record",
    "yield store(1, helper(s, 1))": "is a record, not an integer",
    "yield store(s.height, 1)": "Shape has the fields rows, width",
    "yield from takes_integer(s)": "takes an integer as 'n', not a record",
    "yield from inner(1, 2)": "takes a Shape as 'shape', not an integer",
    "yield from inner(1, t)": "takes a Shape as 'shape', not Twin",
    "s = yield quiet()": "is a record and cannot be assigned",
    "yield from inner(1, s._replace(height=1))": "_replace takes fields of Shape by name: rows, width",
    "yield from inner(1, s._replace(1))": "_replace takes fields of Shape by name: rows, width",
    "yield from inner(1, Shape(1))": r"Shape\(...\): missing a required argument: 'width'",
    "x = Shape(1, 2)\n    yield quiet()": "is not a plain Python function",
    "x = s\n    yield quiet()": "is a record, not an integer: read a field of it",
}


@pytest.mark.parametrize("body", REFUSED)
def test_refused(body: str, tmp_path: Path) -> None:
    """What cannot be done with a record is refused, with the reason."""
    k = module_of(tmp_path, f"{CLASSES}\n@kernel\ndef k(s: Shape, t: Twin):\n    {body}\n").k
    with pytest.raises(KernelError, match=REFUSED[body]):
        _ = k.source


def test_launch() -> None:
    """A launch gives a record as an instance of its class, a field the same for all cores or one number for each."""
    pod = Pod(small_pod(2, 2))
    for fields, expected in (((7,), [7, 8]), (([20, 10],), [20, 11])):
        buffer = pod.alloc(0, 16)
        at = Place([buffer.address, buffer.address + 8], *fields)  # type: ignore[arg-type]
        pod.launch(writes, 0, range(2), {"core": range(2), "at": at}, [pod.grant(buffer, "w")])
        pod.run()
        assert pod.view(buffer, "<i8").tolist() == expected


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (3, "at=3 must be a Place"),
        ((1, 2), "must be a Place"),
        (Place(1.5, 0), "at.address=1.5 must be a 64-bit integer"),  # type: ignore[arg-type]
        (Place(0, [1]), "at.value has 1 values for 2 cores"),  # type: ignore[arg-type]
    ],
)
def test_bad_launch(at: object, reason: str) -> None:
    """What is not the record, or holds no numbers, is refused by the name of the argument and field."""
    pod = Pod(small_pod(1, 2))
    with pytest.raises(ConfigError, match=reason):
        pod.launch(writes, 0, range(2), {"core": 0, "at": at}, [])  # type: ignore[dict-item]
    assert not pod.active_cores()
