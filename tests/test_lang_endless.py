"""A loop that goes on without a request ends a run by a typed error with its line, in every form of a kernel."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lang_support import own_cache

from xccl_emu.base.errors import KernelFaultError
from xccl_emu.check import verdict as kinds
from xccl_emu.check.check import check
from xccl_emu.lang import Kernel, abi, kernel, quiet
from xccl_emu.machine import Pod, small_pod
from xccl_emu.protocol import Bench
from xccl_emu.testing import protocol

__all__ = ["own_cache"]

MOST = abi.TURNS_MAX


def goes_on(n):
    """A plain function that ends for 0 alone."""
    while n:
        pass
    return n


def adds_up(n):
    """A plain function with as many turns as its argument says."""
    total = 0
    for i in range(n):
        total += i
    return total


@kernel
def in_a_statement(n):
    """Between two requests."""
    yield quiet()
    while n > 0:  # here
        n += 2
    yield quiet()


@kernel
def in_a_function(n):
    """In a function that is called."""
    yield quiet()
    n = goes_on(n)  # here
    return n


@kernel
def beside_a_request(n):
    """On the way of a loop that comes to no request."""
    while True:  # here
        if n == 0:
            return 0
        if n == 1:
            yield quiet()
            n = 0


@kernel
def over_a_range(n):
    """In a loop that has an end, some day."""
    total = 0
    for i in range(n << 50):  # here
        total += i
    yield quiet()
    return total


@kernel
def turn_by_turn(n):
    """In a loop and a function that have an end each, and together go on for an hour."""
    total = 0
    for _ in range(n * (MOST >> 2)):
        total += adds_up(MOST >> 2)  # here
    yield quiet()
    return total


ENDLESS = (in_a_statement, in_a_function, beside_a_request, over_a_range, turn_by_turn)


@kernel
def with_turns(n):
    """Many turns, behind each other and behind requests."""
    total = adds_up(n)
    for i in range(n):
        total += i
    yield quiet()
    for i in range(n):
        total += i
    for _ in range(3):
        yield quiet()
    return total


@protocol
def alone(bench: Bench, number: int = 0) -> None:
    """One core with one of the kernels."""
    bench.pod(small_pod(1, 1)).launch(ENDLESS[number], 0, [0], {"n": 2}, [])


def returned(which: Kernel, n: int) -> int:
    """What a kernel returns for an argument."""
    pod = Pod(small_pod(1, 1))
    launch = pod.launch(which, 0, [0], {"n": n}, [])
    pod.run()
    return launch.results[0]


@pytest.mark.nojit
@pytest.mark.parametrize("which", ENDLESS, ids=lambda each: each.name)
def test_an_endless_loop_is_an_error_with_its_line(which: Kernel) -> None:
    """A run ends by an error that names the loop, or what calls the function with it; for 0 there is nothing to say."""
    with open(__file__) as file:
        lines = list(file)
    first = which.generator.__code__.co_firstlineno
    line = next(number for number, text in enumerate(lines, 1) if number > first and "# here" in text)
    with pytest.raises(KernelFaultError, match=rf"{which.name} .*:{line}\).*without a request"):
        returned(which, 2)
    assert returned(which, 0) == 0


@pytest.mark.nojit
@settings(max_examples=10)
@given(n=st.sampled_from([0, 1, 1000, MOST // 4]))
def test_loops_that_end_are_counted_anew_behind_each_request(n: int) -> None:
    """As many turns as there may be between two requests, or in a function, change no result."""
    assert returned(with_turns, n) == 3 * (n * (n - 1) // 2)


@pytest.mark.parametrize("policy", ["exhaustive", "portfolio"])
@pytest.mark.parametrize("number", range(len(ENDLESS)))
def test_an_endless_loop_is_a_violation(number: int, policy: str) -> None:
    """A check ends with it, by search and by drawn schedules."""
    found = check(alone(number), policy=policy)
    assert found.violation is not None
    assert found.violation.kind == kinds.KERNEL_FAULT


def test_a_loop_with_a_request_in_each_turn_is_not_counted() -> None:
    """Its text has no counter: there is nothing that could go on without a request."""

    @kernel
    def asks(n):
        while n:
            yield quiet()
            n -= 1

    assert "turns" not in asks.source
    assert "turns" in in_a_statement.source
