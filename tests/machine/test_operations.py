"""The table of operations: its rows say what the functions of the language make, and sets follow from them."""

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq

DESIGNATORS = ("step", "sync", "order")
ALIASES = {"words": "mask", "nbytes": "count"}
"""Operands that one function of an operation calls by another name: the flags of a line, the bytes of a `v_copy`."""


def functions() -> Iterator[Callable[..., rq.Request]]:
    """The functions that make requests, but for `poll_any`, whose operands are conditions."""
    for function in vars(rq).values():
        if inspect.isfunction(function) and function is not rq.poll_any:
            yield function


@pytest.mark.parametrize("function", list(functions()), ids=lambda function: function.__name__)
def test_a_row_names_the_operands_in_their_places(function: Callable[..., rq.Request]) -> None:
    """Each operand of a function is where the row of its operation says, and no other place is used by two."""
    names = [name for name in inspect.signature(function).parameters if name not in DESIGNATORS]
    given = {name: 100 + k for k, name in enumerate(names)}
    operation, *words = function(**given)
    places = rq.TABLE[operation].operands.split()
    found = {name: words[places.index(name if name in places else ALIASES[name])] for name in names}
    assert found == given


def test_codes_are_places_in_the_table() -> None:
    """The name of each code is that of its row, and all fit into a set."""
    codes = {name: value for name, value in vars(rq).items() if name.startswith("OP_")}
    assert {name.removeprefix("OP_").lower(): code for name, code in codes.items()} == {
        row.name: code for code, row in enumerate(rq.TABLE)
    }
    assert len(rq.TABLE) < 63


def test_sets_follow_from_rows() -> None:
    """What each set has, by hand: a row that is wrong changes one of them."""
    assert ops.names(ops.ATOMICS) == {"atomic_add", "compare_swap"}
    assert ops.names(ops.SCALAR_WRITES) == {"store", "atomic_add", "compare_swap", "store_line"}
    assert ops.names(ops.WORDS) == {"load", "store", "atomic_add", "compare_swap", "poll", "load_line", "store_line"}
    assert ops.names(ops.BUFFER_WORDS) == {"ub_load", "validate", "ub_store"}
    assert ops.names(ops.TRANSFERS) == {"mtu_in", "mtu_out", "mtu_add", "put_signal", "put", "add", "fence"}
    assert ops.names(ops.COPIES_OUT) == {"mtu_out", "mtu_add", "put_signal"}
    assert ops.names(ops.COPIES_IN) == {"mtu_in"}
    assert ops.names(ops.COPIES) == {"mtu_in", "mtu_out", "mtu_add", "put_signal", "dma"}
    assert ops.names(ops.FETCHES) == {"load", "mtu_in", "dma", "load_line"}
    assert ops.names(ops.VECTORS) == {name for name in rq.OPERATIONS if name.startswith("v_")}
    assert ops.names(ops.LOOKS) == {"load", "poll", "poll_any", "load_line"}
    assert (ops.names(ops.LOADS), ops.names(ops.STORES)) == ({"load", "load_line"}, {"store", "store_line"})
    assert ops.names(ops.DRAINS) == {"quiet", "return"}
    assert ops.names(ops.FLAGS) == {"set_flag", "wait_flag"}
    assert (ops.names(ops.EVENT_SETS), ops.names(ops.EVENT_WAITS)) == ({"set_flag"}, {"wait_flag"})
    assert ops.names(ops.FENCES) == {"fence"}
    assert ops.names(ops.MARKERS) == {"set_flag", "wait_flag", "fence"}
    assert ops.names(ops.BARRIERS) == {"arrive", "await_group"}
    assert (ops.names(ops.ARRIVALS), ops.names(ops.GROUP_WAITS)) == ({"arrive"}, {"await_group"})
    assert ops.names(ops.AWAITS_OTHERS) == {"poll", "poll_any", "await_group"}
    assert ops.names(ops.ADDS) == {"atomic_add", "mtu_add", "add"}
    assert ops.names(ops.LINES) == {"load_line", "store_line"}
    assert ops.names(ops.CACHED) == {"load", "store"}
    assert ops.names(ops.WAITS) == {"return", "poll", "poll_any", "quiet", "await_group", "wait_flag"}
    assert ops.names(ops.POLLS) == {"poll", "poll_any"}
    assert ops.names(ops.RINGS) == {"dma"}
    assert ops.QUEUED == ops.VECTORS | ops.TRANSFERS | ops.RINGS


def test_the_page_is_made_of_the_rows(load_tool: Callable[[str], ModuleType]) -> None:
    """docs/records/requests.md has a line for each function, as tools/requests_page.py writes it from its row."""
    tool = load_tool("requests_page")
    page = tool.PAGE.read_text("utf-8")
    assert tool.page(page) == page
    assert page.count("| `") == len([*functions()]) + 1
