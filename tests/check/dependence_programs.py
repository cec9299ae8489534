"""The programs that `test_dependence` runs: two instructions each, and some more for what two do not bring together."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from xccl_emu.guards.campaign.programs import ORDERS, Instruction, Small, program

from .dependence_support import Judge, Machine

KINDS = {
    "store": "store {} 3", "put": "put {} 1 3", "add": "add {} 1", "out": "out {} 0 0", "add_out": "add_out {} 0 0",
    "in": "in {} 8 0", "tentative": "tentative {} 8 0", "load": "load {}", "atomic": "atomic_taken {} 1",
    "swap": "swap {} 2 3", "ge": "ge {} 3", "ge, granted": "ge {} 2", "eq": "eq {} 3", "eq, granted": "eq {} 2",
    "any": "any {} 0.7 7", "dma": "dma 0.6 {} 0", "dma from": "dma {} 0.6 1", "signal": "signal {} 0 0",
    "fence": "fence", "quiet": "quiet",
}  # fmt: skip
"""Instructions that are taken in pairs, by their names; ``{}`` is the word."""
MORE = {
    "store of less": "store {} 1", "store4": "store4 {} 3", "out4": "out {} 2 5", "out 40": "out {} 0 3",
    "add_out4": "add_out {} 0 5", "in 40": "in {} 8 3", "load4": "load4 {}", "load_named": "load_named {}",
    "atomic, dropped": "atomic {} 1", "ne": "ne {} 2", "ne, granted": "ne {} 0", "part": "part_ge {} 3 2",
    "line": "line {} 2 0", "choose": "choose", "line_ne": "line_ne {} 9 0", "add 5": "add {} 5",
}  # fmt: skip
"""Further ones, every night."""
SECOND = {"same": "0.0", "near": "0.1", "apart": "0.4", "elsewhere": "1.0"}
"""Words of the second instruction; that of the first is 0.0."""
CORES = {"one core": (1, 1), "one die": (2, 2), "two dies": (2, 1)}
SMALL, TELLING, MOST = 2, 0xFFFFFFFF, (1 << 63) - 1
"""What each word of memory holds at first: what polls wait for, what carries, or what falls when it is added to."""
_SMALL_FOR = ("ge", "eq", "ne", "part", "any", "line", "swap")

WRITES = ("store", "store4", "put", "add", "out", "add_out", "signal", "atomic_taken")
STRONG = {name: "strong" for name in ("store0", "store2", "put0", "add0", "mtu_out0", "put_signal0", "atomic_add1")}
_SEPARATE = ("; ", " | ")
BESIDE = (
    # pipes of a core and its events
    ("add 0.0 1; set 3 0 0; wait 3 0 0; in 0.0 1 0; set 1 2 0; wait 1 2 0; v_copy 1 4", {}),
    ("set 3 0 0; set 3 0 0; wait 3 0 0; wait 3 0 0", {}),
    ("dma 0.0 1.0 0; wait 4 0 0; dma 0.4 1.4 0; wait 4 0 0", {}),
    ("dma 0.0 1.0 0; dma 0.4 1.4 0", {}),
    ("dma 0.1 1.2 3; load 0.0", {}),
    ("dmas 0.0 1.0 2", {}),
    ("dmas 0.0 1.0 11", {}),
    ("fence; " * 10, {}),
    ("in 0.0 1 0; v_copy 1 4; out 1.0 4; ub_store 7 4; ub_load 1; ub_store 7 1", {}),
    ("in 0.0 1 3; in 0.1 2 0; in 0.0 8 0; in 0.4 8 0", {}),
    # tentative reads
    ("tentative 0.0 8 0; validate 0 8 0", {}),
    ("tentative 0.0 8 3; quiet; validate 0 8 3 | store 0.4 3", {}),
    *(
        (f"wait 0 1 0; tentative 0.0 8 0; set 0 1 0 | {one}", {})
        for one in ("store 0.0 3", "add 0.0 1", "add_out 0.0 0 0", "atomic 0.0 1")
    ),
    # words that fall
    *((f"ge 0.0 2 | {one} 0.0 1", {"memory": MOST}) for one in ("add", "atomic_taken")),
    ("ge 0.0 2 | add_out 0.0 1", {}),
    # fences, strong requests, signals
    *(
        (f"put 0.0 1; fence; {one}; add 0.0 1", {})
        for one in ("store 0.4 3", "atomic_taken 0.4 1", "put 0.4 1", "store 1.0 3")
    ),
    *(
        (f"{one} 0.0 1 0; {other} {word} 1 0", {"asks": STRONG})
        for one in WRITES
        for other in WRITES
        for word in ("0.0", "0.4")
    ),
    ("signal 0.0 0 0; store m0.0 3", {}),
    ("signal 0.0 0 3; signal 0.4 4 0", {}),
    # barriers
    ("store 0.0 3; arrive; await | arrive; await; load 0.0", {"cores_per_die": 2}),
    # little room
    *(
        (f"{one} 0.0 1 0 | {other} 0.4 1 0", {"cores_per_die": 2, "flight_granules": 2, "atomic_bytes": 8})
        for one in ("store", "put", "dma")
        for other in ("store", "put", "dma")
    ),
    # other units
    *(
        (f"{one} 0.0 1 0{separate}{other} 0.0 1 0", {"atomic_bytes": unit, "cores_per_die": 2})
        for unit in (4, 8, 64)
        for separate in _SEPARATE
        for one in ("store", "add", "put")
        for other in ("store", "add", "load", "add_out", "in")
    ),
    # scalar units with caches
    *(
        (f"{one}{separate}{other}", {"scalar_cache": 2, "cores_per_die": 2})
        for separate in _SEPARATE
        for one in ("store 0.0 3", "store 0.0 3; dcci 0.0", "load 0.0")
        for other in (
            "load 0.1", "store 0.1 5", "put 0.0 1", "fence; load 1.0", "add 1.0 1; fence", "dcci 0.0",
            "load 1.0; load 0.4",
        )
    ),
)  # fmt: skip
"""Programs of more, or of other, instructions, divided by ``|`` between cores; and what is not usual of the pod."""


@cache
def parsed(text: str) -> tuple[Instruction, ...]:
    """A program as instructions."""
    return program(text)


_MACHINES: dict[str, Machine] = {}


def judge_small(judge: Judge, small: Small, order: str, memory: int) -> None:
    """Judge a program, on a machine that programs of the same shape share."""
    signals = any(one.name.startswith("signal") for each in small.programs for one in each)
    bare = parsed("signal 0.0 0 0" if signals else "quiet")
    shape = replace(small, programs=(bare,) * len(small.programs))
    key = f"{shape} {order}"
    if key not in _MACHINES:
        _MACHINES[key] = Machine(shape, order)
    judge.run(_MACHINES[key], small, {die << 3 | word: memory for die in range(2) for word in range(8)})


def pairs(kinds: Mapping[str, str], new: Mapping[str, str] = {}) -> Iterator[tuple[Small, int]]:
    """Programs of each two kinds, of which one is new if any is, near and far, on one core and two; and memory."""
    of = {**kinds, **new}
    for i, (one, first) in enumerate(of.items()):
        for other, second in list(of.items())[: i + 1]:
            if new and one not in new and other not in new:
                continue
            places = SECOND if "{}" in first and "{}" in second else ("same",)
            small = any(name.split(",")[0].removesuffix("_ne") in _SMALL_FOR for name in (one, other))
            for place in places:
                texts = first.format("0.0"), second.format(SECOND[place])
                for cores, per_die in CORES.values():
                    programs = (texts,) if cores == 2 else (("; ".join(texts),), ("; ".join(texts[::-1]),))
                    for each in dict.fromkeys(programs):
                        yield Small(tuple(map(parsed, each)), per_die, 2), SMALL if small else TELLING


def beside() -> Iterator[tuple[Small, str, int]]:
    """The programs of `BESIDE`, with their orders and memory."""
    for text, options in BESIDE:
        usual: dict[str, Any] = {"dies": 2, "memory": None, **options}
        memory = usual.pop("memory")
        small = Small(tuple(parsed(one) for one in text.split("|")), **usual)
        for order in ORDERS if "asks" not in options else ORDERS[2:]:
            for value in (memory,) if memory else (SMALL, TELLING):
                yield small, order, value
