"""One kernel for each construct of the kernel language, with the arguments to run it with (`CASES`)."""

from collections.abc import Callable, Generator
from typing import Any

from xccl_emu.lang import Kernel, Request, kernel, load, put, quiet, store

Running = Generator[Request, int, Any]
CASES: dict[str, tuple[Kernel, tuple[tuple[int, ...], ...]]] = {}


def case(*arguments: tuple[int, ...]) -> Callable[[Callable[..., Running]], Kernel]:
    """Make a kernel and put it into `CASES`."""

    def make(function: Callable[..., Running]) -> Kernel:
        made = kernel(function)
        CASES[function.__name__] = (made, arguments)
        return made

    return make


@case((3,))
def straight(a: int) -> Running:
    """A docstring is no code."""
    yield store(a, 1)
    pass
    yield quiet()


@case((3,), (-9,))
def value(a: int) -> Running:
    later: int
    x = yield load(a)
    y: int = yield load(x)
    later = x + y
    return later


@case((0, 3), (1, 3))
def goes_on_either_way(a: int, n: int) -> Running:
    """Both ways of the last branch lead to the same block."""
    for i in range(n):
        yield load(i)
        if a:
            continue
    yield put(a, n)


@case((0,), (2,), (5,))
def if_elif_else(a: int) -> Running:
    if a > 2:
        yield load(1)
    elif a > 1:
        a = yield load(2)
    else:
        a = 7
    yield store(0, a)


@case((0,), (3,))
def while_(n: int) -> Running:
    while n > 0:
        n -= 1
        yield store(n, n)
    return n


@case((0,), (5,), (8,))
def while_true(n: int) -> Running:
    while True:
        x = yield load(n)
        if x == n:
            break
        n += 1
        if n > 9:
            return -4
    return n


@case((0,), (4,))
def for_ranges(n: int) -> Running:
    for i in range(n):
        yield store(i, n)
    for i in range(2, n):
        yield load(i)
    for i in range(n, -2, -2):
        yield load(i)


@case((0,), (5,))
def for_keeps_its_bounds(n: int) -> Running:
    i = 2
    for i in range(i, n + i, 2):  # noqa: B020
        n += 1
        yield store(i, n)
    for k in range(n):
        n -= 1
        yield store(k, n)
    return i


@case((0,), (4,))
def for_assigns_its_variable(n: int) -> Running:
    i = 0
    for i in range(n):
        i *= 3
        yield store(i, n)
    return i


@case((0,), (2,), (3,), (9,))
def for_leaves_its_last_value(n: int) -> Running:
    i = -1
    for i in range(n):
        yield load(i)
        if i == 2:
            break
    return i


@case((5,))
def continue_(n: int) -> Running:
    for i in range(n):
        if i % 2:
            continue
        yield store(i, i)
    while n:
        n -= 1
        if n == 2:
            continue
        yield load(n)


def square(i: int, add: int = 1) -> int:
    """A plain helper."""
    return i * i + add


@case((4,))
def nested_loops(n: int) -> Running:
    total = 0
    for i in range(n):
        for i in range(i):  # noqa: B020
            total += square(i)
            x = yield load(total)
            if x < 0:
                break
        last = i
        yield store(last, total)
    return total


@case((2,), (6,))
def return_inside(n: int) -> Running:
    for i in range(n):
        for j in range(3):
            if i * j == 4:
                return j
        yield store(i, 0)
    return


@case((0,), (3,), (40,))
def plain_code(n: int) -> Running:
    a, (b, c) = n, (n + 1, 2)
    a = b = a + b
    a <<= 2
    for j in range(4):
        for x in (1, 2, 3):
            if x == j:
                continue
            b += x if j > 1 else -x
    while c < 9:
        c += 4
        if c == 6 or (not n and c > 7):
            break
    q, r = divmod(b, c)
    square(b, add=2)
    yield put(min(a, b), max(a, c, 3), abs(-b), q, r)
    return 0 < a <= 99


@case((5, 3), (-5, 2), (5, -1), (-1, 63))
def shifts(a: int, n: int) -> Running:
    yield store(a >> n, a << (n & 7))
    a <<= n
    a >>= n
    return a


@case((7, -2), (-7, 2), (7, 0))
def division(a: int, b: int) -> Running:
    yield store(a, 1)
    yield store(a // b, a % b)


@case((7, -2), (7, 0))
def division_in_place(a: int, b: int) -> Running:
    x = yield load(a)
    x %= b
    return x


@case((0,), (1,))
def no_request_on_one_way(a: int) -> Running:
    if a:
        yield quiet()
    return 5


@case((1, 2, 3, 4, 5, 6, 7))
def names_of_generated_code(state: int, base: int, out: int, pc: int, step: int, int: int, min: int) -> Running:
    for range_ in range(2):
        x = yield store(state + range_, base)
        yield put(out, pc, step, int, min + x)
    result = min
    return result


def borrow(p: int, q: int = 4) -> Running:
    """A subroutine that leaves its parameters alone."""
    p2 = p + q
    x = yield load(p)
    yield store(p, q)
    return x + p2


@case((1, 2))
def subroutine_into_its_own_argument(a: int, b: int) -> Running:
    for i in range(3):
        a = yield from borrow(a, i)
        b = yield from borrow(a + b)
        yield from borrow(i)
    return a - b


@case((0,), (3,))
def jumps_without_requests(n: int) -> Running:
    t = 0
    for i in range(5):
        if i == n:
            t = 8
        elif i > n:
            t += 1
        if t > 9:
            break
        if t == 3:
            continue
        u = t
        for j in range(i):
            if j > 2:
                return t
            u += j
        t = u
    yield store(t, n)


@case((0, 3), (1, 3))
def assigned_on_one_way(a: int, b: int) -> Running:
    x = yield load(b)
    yield quiet()
    if a:
        x = 1
    yield quiet()
    return x


@case((3,), (40,))
def assigned_before_every_break(a: int) -> Running:
    while True:
        x = yield load(a)
        if x < 5:
            break
        a += 1
    return x
