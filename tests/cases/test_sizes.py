"""Sizes of cases that are none: an error that names them, whatever was given, and no truth of what is no switch."""

import contextlib
from dataclasses import fields
from typing import Any

import pytest

from xccl_emu.base.errors import ConfigError
from xccl_emu.cli.cases import sizes_of
from xccl_emu.protocol.registry import make, names

VALUES: list[Any] = ["x", "", " ", "1,0", -1, 0, 1.5, 10**30, True]
SWITCHES = [
    ("moe", "quantized"), ("a2e", "pull"), ("a2e", "masked"),
    ("fused", "quantized"), ("fused", "masked"), ("fused", "early_quantization"), ("fused", "preallocated"),
    ("fused", "pipelined"), ("fused", "double_buffered"),
]  # fmt: skip
EVEN = {("fused", "quantized"): {"granules": 2}}
"""What goes with a switch."""


@pytest.mark.parametrize("name", names())
def test_no_value_of_a_size_is_a_traceback(name: str) -> None:
    """Whatever a size is set to, the case is built or refused by a ConfigError: nothing else comes out of it."""
    sizes = [field.name for field in fields(make(name))]  # type: ignore[arg-type]
    for value in VALUES:
        built = 0
        for size in sizes:
            with contextlib.suppress(ConfigError):
                make(name, **{size: value}).build("relaxed")
                built += 1
        assert built < len(sizes), value


@pytest.mark.parametrize(("name", "which"), SWITCHES)
def test_a_switch_is_0_or_1(name: str, which: str) -> None:
    """What is neither is refused by name and value, and not taken for True because it is something."""
    for value in ("false", "off", "no", "maybe", "", " ", "0", 2, -3, 1.0, None):
        with pytest.raises(ConfigError) as caught:
            make(name, **{which: value})
        assert str(caught.value) == f"{which}={value!r}: must be 0 or 1"


@pytest.mark.parametrize(("name", "which"), SWITCHES)
def test_0_and_1_are_the_same_as_false_and_true(name: str, which: str) -> None:
    """Numbers, as the command line gives them, make the same case as truths, with numbers in it."""
    for given in (0, 1):
        case = make(name, **{which: given} | EVEN.get((name, which), {}))
        assert case == make(name, **{which: bool(given)} | EVEN.get((name, which), {}))
        assert (type(getattr(case, which)), getattr(case, which)) == (int, given)


@pytest.mark.parametrize("name", [name for name in names() if not name.startswith("sendrecv")])
def test_seeds_are_whole_numbers_from_0_on(name: str) -> None:
    """A negative seed, a text or a fraction is refused; a seed, where there is one, may be as large as it likes."""
    if "seed" not in [each.name for each in fields(make(name))]:
        return
    for seed in (-1, "x", 1.5, True):
        with pytest.raises(ConfigError, match=r"^seed=.*: must be (a whole number|at least 0)"):
            make(name, seed=seed)
    make(name, seed=10**30).build("relaxed")


def test_the_command_takes_numbers_for_numbers() -> None:
    """``--set`` gives whole numbers as such and all else as text, also digits that Python will not convert."""
    assert sizes_of(["a=0", "b=-12", "c=off", "d=1.5"]) == {"a": 0, "b": -12, "c": "off", "d": "1.5"}
    assert sizes_of(["seed=" + "9" * 5000]) == {"seed": "9" * 5000}
