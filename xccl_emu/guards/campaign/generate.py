"""Programs at random: protocols in miniature, patterns that have fooled a search, and free ones; mutated.

Some are varied: with fences in place of quiets, requests that signal, compare-and-swaps, polls of lines and of bits,
writes that ask for an order, other units than granules that become visible at once, caches of scalar units.

A program depends on two numbers only, the seed of the campaign and its own, so that any one is made again alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from xccl_emu.guards.campaign import patterns
from xccl_emu.guards.campaign.interpreter import SIZE_MAX, interpret
from xccl_emu.guards.campaign.programs import (
    DATA,
    EDGE,
    LOOSE,
    OTHER,
    WITH_WORD,
    WITHOUT_WORD,
    WRITING,
    Instruction,
    Small,
    program,
)
from xccl_emu.lang.requests import NO_ACQUIRE, ORDERS
from xccl_emu.machine.device.layout import ATOMIC_BYTES, GRANULE_BYTES

NOTHING, AN_END, SPOILED, ANY_END = "nothing", "an end", "a spoiled end", "any end"
"""What memory is to hold at the end: anything, what a run under `sc` leaves, that with one word changed, or what any of
these runs leaves, as a predicate says."""
WORDS = (0, 1, 3, 4, 5)
SYNCS = tuple(dict.fromkeys(site.sync for site in interpret.sites if site.sync not in ("", "signal", "choose", "any")))
"""Names of synchronizations in the kernel that interprets; one is switched off in some programs."""
_FAULTS = tuple(
    (
        "stop:die0", f"stop:{other}",
        *(f"{kind}:{way}" for kind in ("cut", "stall", "duplicate", "corrupt") for way in (f"0-{to}", f"{to}-0")),
    )
    for other, to in (("die1", "1"), ("cpu0", "cpu0"))
)  # fmt: skip
"""What breaks, by whether a CPU takes part."""
_REVIVALS = tuple(("revive:die0", f"revive:{other}") for other in ("die1", "cpu0"))
_ADDS_ROW, _LINE = "mtu_add0", "store_line0"
_LINED = {
    "load": "load_line", "load_named": "load_line_named", "ge": "load_line_named",
    "store": "store_line", "add": "store_line", "put": "store_line", "put_one": "store_line", "out": "store_line",
}  # fmt: skip
"""Accesses of 16 bytes, and what they take the place of."""
_LOSSES = ("", "lose:die0:meta", "lose:die0:managed", "lose:die1:meta", "lose:die1:managed", "lose:die1")
CROSSED = (12, 20, 24)
"""Programs of these numbers, of 32, take any features together; in the others features drawn late seldom meet."""
_FREE_SIZE = 6
_DIES_MAX = 3

Programs = list[list[Instruction]]
Change = Callable[[Random, Instruction], Instruction]


@dataclass(frozen=True)
class ProgramCase:
    """A program and what is expected of it."""

    small: Small
    expects: str = NOTHING
    pick: int = 0
    """Which end, and which word of it is spoiled."""
    fault: str = ""
    """What breaks, as `check.faults.parse` reads it, in further runs of what is verified."""

    @property
    def size(self) -> tuple[int, int, int]:
        """Return its size, by which a smaller case is found."""
        operands = sum(one.a + one.b + one.c for each in self.small.programs for one in each)
        return self.small.size + 2 * (self.expects != NOTHING) + (self.fault != ""), operands, self.pick

    def to_json(self) -> dict[str, Any]:
        """Return the case as a JSON object."""
        return {"small": self.small.to_json(), "expects": self.expects, "pick": self.pick, "fault": self.fault}

    @classmethod
    def of_json(cls, given: dict[str, Any]) -> "ProgramCase":
        """Read what `to_json` returned."""
        return cls(Small.of_json(given["small"]), given["expects"], given["pick"], given.get("fault", ""))

    def __str__(self) -> str:
        expects = self.expects if self.expects == NOTHING else f"{self.expects}, number {self.pick}"
        return f"{self.small}\nexpects {expects}{self.fault and f', fault {self.fault}'}"


def draw(seed: int, number: int) -> ProgramCase:
    """Program ``number`` of a campaign."""
    rng = Random(f"{seed}/{number}")
    if number % 32 in CROSSED:
        small, expects = _crossed(rng), rng.choice((NOTHING, AN_END, AN_END, SPOILED))
        fault = rng.choice((*_FAULTS[small.cpu], *_LOSSES)) if rng.random() < 0.4 else ""
        reviving = Random(f"{seed}/{number}/revive")
        fault = reviving.choice(_REVIVALS[small.cpu]) if fault and reviving.random() < 0.15 else fault
        giving = Random(f"{seed}/{number}/gives up")
        small = _giving_up(giving, small) if giving.random() < 0.2 else small
        return ProgramCase(small, expects, rng.randrange(1 << 16), fault)
    small = rng.choice((*4 * (_of_miniatures,), *4 * (_of_pattern,), _free))(rng)
    small = _optimistic(Random(f"{seed}/{number}/tentative")) if number % 8 == 3 else small
    small = _drawn(patterns.beside_signals, Random(f"{seed}/{number}/signals")) if number % 64 == 19 else small
    cleans = any(one.name == "dcci" for each in small.programs for one in each)
    for varied, likely in _VARIATIONS:
        small = varied(rng, small) if rng.random() < (0.6 if cleans and varied is _cached else likely) else small
    without = (rng.choice(SYNCS),) if rng.random() < 0.08 else ()
    small = replace(small, fresh=rng.random() < 0.1, without=without)
    asking = Random(f"{seed}/{number}/choose")
    small = _asking(asking, small) if asking.random() < 0.12 else small
    small = _each(_polling_any, Random(f"{seed}/{number}/any"), small) if number % 8 == 5 else small
    small = _each(_adding, Random(f"{seed}/{number}/sum"), small) if number % 2 else small
    small = _sum_of_rows(Random(f"{seed}/{number}/rows")) if number % 32 == 21 else small
    small = _falling(Random(f"{seed}/{number}/fallen")) if number % 64 == 55 else small
    small = _drawn(patterns.events, Random(f"{seed}/{number}/events")) if number % 64 == 41 else small
    small = _adding_rows(Random(f"{seed}/{number}/row"), small) if number % 64 == 57 else small
    small = _drawn(patterns.sums, Random(f"{seed}/{number}/sums")) if number % 64 == 25 else small
    small = _on_cpu(Random(f"{seed}/{number}/cpu"), small) if number % 16 in (11, 13) else small
    small = _with_flags(Random(f"{seed}/{number}/flags"), small) if number % 8 == 7 else small
    small = _copied_flags(Random(f"{seed}/{number}/copies")) if number % 32 == 31 else small
    small = _giving_up(Random(f"{seed}/{number}/gives up"), small) if number % 16 in (1, 10) else small
    small = _of_lines(Random(f"{seed}/{number}/lines"), small) if number % 16 == 15 else small
    small = _loose(Random(f"{seed}/{number}/reads"), small) if number % 16 == 4 else small
    expects = rng.choice((NOTHING, AN_END, AN_END, SPOILED if rng.random() < 0.2 else AN_END))
    expects = ANY_END if expects == AN_END and number % 4 == 2 else expects
    pick, fault = rng.randrange(1 << 16), rng.choice(_FAULTS[small.cpu]) if rng.random() < 0.15 else ""
    fault = Random(f"{seed}/{number}/lose").choice(_LOSSES) if number % 16 == 6 else fault
    fault = Random(f"{seed}/{number}/revive").choice(_REVIVALS[small.cpu]) if number % 16 == 14 else fault
    return ProgramCase(small, expects, pick, fault)


# ---- variations of what is drawn


def _fenced(rng: Random, small: Small) -> Small:
    """Fences for some of the quiets, and perhaps one more."""
    fence = Instruction("fence")
    programs = [[fence if i.name == "quiet" and rng.random() < 0.7 else i for i in one] for one in small.programs]
    if rng.random() < 0.4 and len(one := rng.choice(programs)) < SIZE_MAX:
        one.insert(rng.randrange(len(one) + 1), fence)
    return replace(small, programs=tuple(map(tuple, programs)))


def _each(change: Change, rng: Random, small: Small) -> Small:
    """Put some instructions in place of others."""
    return replace(small, programs=tuple(tuple(change(rng, one) for one in each) for each in small.programs))


def _of_lines(rng: Random, small: Small) -> Small:
    """Most loads and stores are of 16 bytes, where the machine has such accesses."""
    if small.scalar_cache or small.atomic_bytes < 16:
        return small
    asks = {**small.asks, _LINE: rng.choice(ORDERS[1:])} if small.asks else small.asks
    return _each(_lined, rng, replace(small, asks=asks))


def _lined(rng: Random, one: Instruction) -> Instruction:
    name = _LINED.get(one.name, "")
    return Instruction(name, one.a, one.b, rng.randrange(4)) if name and rng.random() < 0.7 else one


def _signalled(rng: Random, one: Instruction) -> Instruction:
    """A request that signals for half of the transfers out and some of the puts: of a word or two, to a word."""
    if one.name not in ("out", "put", "put_one", "add") or rng.random() < 0.5:
        return one
    word = one.a & (7 if one.a & EDGE == EDGE else ~DATA)
    return Instruction("signal", word, rng.randrange(8) | rng.randrange(3) << 3, rng.randrange(2) << 3)


def _swapped(rng: Random, one: Instruction) -> Instruction:
    """A compare-and-swap for half of the atomics, and for some stores."""
    likely = {"atomic": 0.5, "atomic_taken": 0.5, "store": 0.1}.get(one.name, 0.0)
    return Instruction("swap", one.a, rng.randrange(3), rng.randrange(1, 4)) if rng.random() < likely else one


def _polled(rng: Random, one: Instruction) -> Instruction:
    """A poll of some bytes, or some bits, of a word, or of a line, for half of the polls."""
    name = one.name.removesuffix("_taken")
    if name not in ("ge", "eq", "ne") or rng.random() < 0.5:
        return one
    if rng.random() < 0.7:
        return Instruction(f"part_{name}", one.a, one.b, rng.randrange(16))
    size, line = rng.randrange(3), "line_ne" if name == "ne" else "line"
    return Instruction(line, one.a >> size + 1 << size + 1, one.b, size | rng.randrange(4) << 2)


def _ordering(rng: Random, small: Small) -> Small:
    """Half of the kinds of writes ask for an order; those that add a row do where such are drawn."""
    usual = [line for line in WRITING if line not in (_ADDS_ROW, _LINE)]
    return replace(small, asks={line: rng.choice(ORDERS[1:]) for line in usual if rng.random() < 0.5})


def _loose(rng: Random, small: Small) -> Small:
    """Most reads do not acquire, and some quiets let none before them acquire."""
    asks = {name: NO_ACQUIRE for name in LOOSE if rng.random() < (0.2 if name.startswith("quiet") else 0.7)}
    return replace(small, asks={**asks, **small.asks})


def _of_units(rng: Random, small: Small) -> Small:
    """Less than a granule becomes visible at once, or several; then areas begin with one, for two cores a die."""
    unit = rng.choice([nbytes for nbytes in ATOMIC_BYTES if nbytes != GRANULE_BYTES])
    cores = 2 if unit > GRANULE_BYTES else small.cores_per_die
    return replace(small, cores_per_die=cores, atomic_bytes=unit, flight_granules=16)


def _cached(rng: Random, small: Small) -> Small:
    """Scalar units cache lines; most lines are cleaned after a store, and dropped before a load."""
    programs = tuple(_cleaned(rng, one) for one in small.programs)
    return replace(small, programs=programs, scalar_cache=rng.choice((1, 2, 5, 5, 8, 8)), flight_granules=16)


def _asking(rng: Random, small: Small) -> Small:
    """Some programs ask the environment, which of two or three instructions they take."""
    programs = [list(one) for one in small.programs]
    for _ in range(rng.choice((1, 1, 2))):
        one = rng.choice(programs)
        k, answers = rng.randrange(len(one) + 1), rng.randrange(2)
        asked = [Instruction("choose", c=answers), Instruction("skip_unless", b=rng.randrange(2 + answers), c=1)]
        if len(one) + len(asked) <= SIZE_MAX:
            one[k:k] = asked
    off = ("choose",) if rng.random() < 0.005 else small.without
    return replace(small, programs=tuple(map(tuple, programs)), without=off)


def _giving_up(rng: Random, small: Small) -> Small:
    """Some programs give up, or not, as the environment answers; most codes with which runs then end are declared."""
    programs = [list(one) for one in small.programs]
    for _ in range(rng.choice((1, 1, 2))):
        one = rng.choice(programs)
        asked = [Instruction("choose"), Instruction("fail_unless", rng.choice((5, 5, 6, 7)), rng.randrange(2))]
        k, answered = rng.randrange(len(one) + 1), rng.random() < 0.8
        if len(one) + 2 <= SIZE_MAX:
            one[k:k] = asked if answered else asked[1:]
    declared = (5, 6, 7) if rng.random() < 0.6 else (5, 6) if rng.random() < 0.9 else (6,)
    return replace(small, programs=tuple(map(tuple, programs)), gives_up=declared)


def _with_flags(rng: Random, small: Small) -> Small:
    """Metadata areas are windows of flags; some of what waits copies a word in a loop instead."""
    return _each(_copying, rng, replace(small, flags=True))


def _copied_flags(rng: Random) -> Small:
    """Windows of flags, copied two at a time or in rounds of one buffer."""
    return replace(_drawn(patterns.flags, rng), flags=True)


def _copying(rng: Random, one: Instruction) -> Instruction:
    likely = {"spin": 0.7, "eq": 0.4, "ge": 0.2}.get(one.name, 0.0)
    return Instruction("spin_in", one.a, one.b) if rng.random() < likely else one


def _polling_any(rng: Random, one: Instruction) -> Instruction:
    """A poll of two words for some of the polls of one."""
    if one.name.removesuffix("_taken") not in ("ge", "eq", "ne") or one.a & DATA or rng.random() < 0.4:
        return one
    other = (one.a & ~7 if rng.random() < 0.5 else rng.randrange(2) << 3) | rng.choice(WORDS)
    return Instruction("any", one.a, other, rng.randrange(16))


def _falling(rng: Random) -> Small:
    """A poll of two words, one set at first and then cleared."""
    small = replace(_drawn(patterns.fallen, rng), together=rng.random() < 0.5)
    return replace(small, memory={**small.memory, 4: 1})


def _adding(rng: Random, one: Instruction) -> Instruction:
    """A sum of two rows in place of a copy by the vector pipe: what it copied is either of them."""
    if one.name != "v_copy" or one.a > 7:
        return one
    rows = rng.choice(((0, one.a), (4, one.a), (one.a, 4)))
    return Instruction("v_add", rows[0] | OTHER * rows[1], one.b, one.c)


def _adding_rows(rng: Random, small: Small) -> Small:
    """Copies that add for most of what mtu-out copies, adds or puts; some ask for an order."""
    asks = {**small.asks, _ADDS_ROW: rng.choice(ORDERS[1:])} if small.asks else small.asks
    return replace(_each(_adding_row, rng, small), asks=asks)


def _adding_row(rng: Random, one: Instruction) -> Instruction:
    likely = {"out": 0.8, "add": 0.7, "put": 0.3, "atomic": 0.5, "store": 0.1}.get(one.name, 0.0)
    if rng.random() >= likely:
        return one
    return Instruction(
        "add_out", one.a, rng.choice((0, 0, 1, 4)), one.c if one.name == "out" else rng.choice((0, 2, 2, 4, 5, 13))
    )


def _sum_of_rows(rng: Random) -> Small:
    """A sum of two rows that come in from memory; the wait for one of them may come too late."""
    late, missing = rng.randrange(2), rng.random() < 0.7
    waits = ["wait 1 2 0", "wait 1 2 1"]
    after = waits[late] if missing else "quiet"
    waits[late] = "fence" if missing else waits[late]
    brings = "; ".join(f"in 1.{4 * k} {4 * k} 2; set 1 2 {k}; {waits[k]}" for k in (0, 1))
    sums = f"v_add 32 8 2; {after}; set 2 3; wait 2 3; out m0.0 8 2; quiet; put 0.4 1"
    return _small((f"{brings}; {sums}", "ge 0.4 1; load m0.0"), 1)


def _on_cpu(rng: Random, small: Small) -> Small:
    """The last die's programs on a CPU, most without what a core there has not; some keep it, and are refused."""
    kept, per_die = rng.random() < 0.1, small.cores_per_die
    first = (len(small.programs) - 1) // per_die * per_die
    moved = [[i for one in each for i in (one,) * kept or _of_scalar(one)] for each in small.programs[first:]]
    return replace(small, programs=(*small.programs[:first], *map(tuple, moved)), cpu=True)


_SCALAR = {
    "put": "store", "put_named": "store", "put_one": "store", "out": "store", "signal": "store", "signals": "store",
    "outs": "stores", "puts": "stores", "in": "load", "add": "atomic", "line": "ge", "line_ne": "ne",
    "tentative": "load", "add_out": "store", "spin_in": "spin",
}  # fmt: skip


def _of_scalar(one: Instruction) -> tuple[Instruction, ...]:
    """Return what a scalar unit does in place of an instruction, if anything: no pipe, no data buffer."""
    event = one.name in ("set", "wait")
    if one.name.startswith(("ub_", "v_", "validate")) or (event and (one.a not in (0, 4) or one.b)):
        return ()
    name = _SCALAR.get(one.name)
    if name is None:
        return (one,)
    return (Instruction(name, one.a, max(one.b, 1) if name != "load" else 0, one.c if name == "stores" else 0),)


def _launched(rng: Random, small: Small) -> Small:
    """The cores of a die in launches of one or two, which have barriers of their own."""
    return replace(small, launched=rng.randrange(1, small.cores_per_die) if small.cores_per_die > 1 else 0)


def _crowded(rng: Random, small: Small) -> Small:
    """Hardly any room for writes in flight."""
    least = max(2, 64 // small.atomic_bytes if small.scalar_cache else 0)
    return replace(small, flight_granules=rng.randrange(least, least + 4))


def _cleaned(rng: Random, one: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
    """A program with `dcci` next to some of its loads and stores."""
    cleaned = list(one)
    for k in reversed(range(len(one))):
        stores = one[k].name.startswith("store")
        if (stores or one[k].name.startswith("load")) and rng.random() < 0.6 and len(cleaned) < SIZE_MAX:
            cleaned.insert(k + stores, Instruction("dcci", one[k].a))
    return tuple(cleaned)


_VARIATIONS: tuple[tuple[Callable[[Random, Small], Small], float], ...] = (
    (_fenced, 0.4), *((partial(_each, change), 0.2) for change in (_signalled, _swapped, _polled)), (_ordering, 0.2),
    (_of_units, 0.3), (_cached, 0.2), (_launched, 0.15), (_crowded, 0.05),
)  # fmt: skip
"""And how likely each is."""


# ---- what is varied


def _mutated(rng: Random, small: Small, most: int) -> Small:
    """Move, drop, change, add, or make depend on a racy load, at most ``most`` instructions."""
    programs, dies = [list(one) for one in small.programs], small.n_dies
    for _ in range(rng.randrange(most + 1)):
        _change(rng, rng.choice(programs), dies)
    if rng.random() < 0.2:
        dies = max(dies, _make_rare(rng, programs, small.cores_per_die))
    return replace(small, programs=tuple(map(tuple, programs)), dies=dies)


def _with_memory(rng: Random, small: Small) -> Small:
    """Fill some words that are 0 otherwise."""
    areas = (0, DATA) if rng.random() < 0.3 else (0,)
    words = [area | die << 3 for die in range(small.n_dies) for area in areas if rng.random() < 0.4]
    return replace(small, memory={**small.memory, **{word: rng.randrange(1, 4) for word in words}})


def _of_miniatures(rng: Random) -> Small:
    cores_per_die, texts = rng.choice(patterns.MINIATURES)
    small = _with_memory(rng, _mutated(rng, _small(texts, cores_per_die), rng.choice((1, 2, 3))))
    if rng.random() < 0.25:
        small = _moved_to_data(rng, small)
    return replace(small, together=rng.random() < 0.6, flight_granules=8)


def _of_pattern(rng: Random) -> Small:
    small = _drawn(rng.choice(patterns.PATTERNS), rng, (0, 1, 2))
    return replace(small, together=rng.random() < 0.5)


def _drawn(pattern: Callable[[Random], patterns.Texts], rng: Random, most: Sequence[int] = (0, 0, 1)) -> Small:
    """A pattern with at most as many mutations as one number drawn from ``most``."""
    cores_per_die, texts = pattern(rng)
    return replace(_mutated(rng, _small(texts, cores_per_die), rng.choice(most)), flight_granules=8)


def _optimistic(rng: Random) -> Small:
    """Tentative reads: a pattern of its own, or what another program reads, validated further on or not."""
    if rng.random() < 0.5:
        small = _drawn(patterns.seqlock, rng, (0, 0, 1, 2))
    else:
        small = rng.choice((_of_miniatures, _of_pattern))(rng)
    return replace(_read_tentatively(rng, small), together=rng.random() < 0.6, flight_granules=8)


def _read_tentatively(rng: Random, small: Small) -> Small:
    return replace(small, programs=tuple(_tentatively(rng, one) for one in small.programs))


def _tentatively(rng: Random, one: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
    """A program whose reads are tentative, most of them validated where what follows waits for them."""
    programs, after = list(one), len(one)
    for k in reversed(range(len(one))):
        if one[k].name in ("quiet", "wait"):
            after = k + 1
        if one[k].name == "in" and rng.random() < 0.8:
            programs[k] = replace(one[k], name="tentative")
            if rng.random() < 0.8 and len(programs) < SIZE_MAX:
                programs.insert(after, Instruction("validate", b=one[k].b, c=one[k].c & 7))
    return tuple(programs)


def _free(rng: Random) -> Small:
    cores_per_die, n = rng.choice(((1, 2), (1, 2), (1, 3), (2, 2), (2, 3), (2, 4), (4, 4)))
    dies = max(-(-n // cores_per_die), rng.randrange(1, _DIES_MAX + 1))
    programs = [[_instruction(rng, dies) for _ in range(rng.randrange(1, _FREE_SIZE))] for _ in range(n)]
    small = Small(tuple(map(tuple, programs)), cores_per_die, dies, flight_granules=8, together=rng.random() < 0.5)
    return _with_memory(rng, small)


def _small(texts: tuple[str, ...], cores_per_die: int) -> Small:
    programs = tuple(program(text) for text in texts)
    named = [1 if word & EDGE == EDGE else word >> 3 & 3 for each in programs for one in each for word in one.words]
    return Small(programs, cores_per_die, max([-(-len(programs) // cores_per_die), *(1 + die for die in named)]))


def _crossed(rng: Random) -> Small:
    """Whatever a feature begins with, and each other feature with some chance on top of that."""
    small = rng.choice(_BASES)(rng)
    for change, likely in (*_VARIATIONS, *_LATE):
        small = change(rng, small) if rng.random() < likely else small
    return replace(small, fresh=rng.random() < 0.1, together=rng.random() < 0.5)


def _copied(rng: Random, small: Small) -> Small:
    """A copy by DMA, and most often a wait for it, somewhere in one of the programs."""
    programs = [list(one) for one in small.programs]
    one, word, other = rng.choice(programs), _word(rng, small.n_dies), _word(rng, small.n_dies)
    copy = Instruction("dma", *_operands(rng, "dma", word, 0, other))
    copies = [copy, Instruction("wait", 4, 0, copy.c)][: rng.choice((1, 2, 2))]
    k = rng.randrange(len(one) + 1)
    one[k:k] = copies if len(one) + len(copies) <= SIZE_MAX else []
    return replace(small, programs=tuple(map(tuple, programs)))


_BASES: tuple[Callable[[Random], Small], ...] = (
    _of_miniatures, _of_pattern, _optimistic, _copied_flags, _sum_of_rows, _falling,
    *(lambda rng, pattern=one: _drawn(pattern, rng, (0, 1, 2)) for one in (patterns.beside_signals, patterns.sums)),
)  # fmt: skip
_LATE: tuple[tuple[Callable[[Random, Small], Small], float], ...] = (
    (_copied, 0.25), (_read_tentatively, 0.3), (partial(_each, _polling_any), 0.3), (partial(_each, _adding), 0.5),
    (_asking, 0.5), (_adding_rows, 0.15), (_with_flags, 0.2), (_on_cpu, 0.2),
)  # fmt: skip


# ---- mutations


def _change(rng: Random, one: list[Instruction], dies: int) -> None:
    k, what = rng.randrange(len(one) or 1), rng.randrange(6)
    if what == 0 and one:
        one.pop(k)
    elif what == 1 and k + 1 < len(one):
        one[k], one[k + 1] = one[k + 1], one[k]
    elif what == 2 and one:
        one[k] = _instruction(rng, dies)
    elif what == 3 and one and one[k].name in WITH_WORD:
        word = _word(rng, dies)
        one[k] = replace(one[k], a=word & ~3 if one[k].name.startswith("put") else word)
    elif what == 4 and one and len(one) < SIZE_MAX:
        one.insert(k, one[k])
    elif len(one) < SIZE_MAX:
        one.insert(rng.randrange(len(one) + 1), _instruction(rng, dies))


def _make_rare(rng: Random, programs: Programs, cores_per_die: int) -> int:
    """Let an instruction depend on what a load meets that races with a counter; returns how many dies that takes."""
    one, hint = rng.choice(programs), rng.choice((6, 7))
    k = rng.randrange(len(one) + 1)
    other = [_instruction(rng, 2)] if rng.random() < 0.5 else []
    guard = [Instruction("load_named", hint), Instruction("skip_unless", 0, 1, 1), *one[k : k + 1]]
    guard += [Instruction("skip_if", 0, 1, 1), *other] if other else []
    if len(one) + len(guard) <= SIZE_MAX and len(programs) < _DIES_MAX * cores_per_die:
        one[k : k + 1] = guard
        programs.append([Instruction("store", hint, value) for value in range(1, rng.randrange(2, 4))])
    return -(-len(programs) // cores_per_die)


def _moved_to_data(rng: Random, small: Small) -> Small:
    """Move some granules, wherever they are named, to the managed data area."""
    granules = {die << 3 | granule for die in range(small.n_dies) for granule in (0, 4) if rng.random() < 0.4}

    def moved(one: Instruction) -> Instruction:
        if one.name == "dma" and one.b & ~3 in granules:
            one = replace(one, name="dma_data")
        return replace(one, a=one.a | DATA) if one.name in WITH_WORD and one.a & ~3 in granules else one

    memory = {word | (DATA if word & ~3 in granules else 0): value for word, value in small.memory.items()}
    return replace(small, programs=tuple(tuple(map(moved, one)) for one in small.programs), memory=memory)


# ---- instructions

_VARIED = (
    "tentative", "any", "swap", "line", "line_ne", "signal", "dcci", "part_ge", "part_eq", "part_ne", "spin_plain",
    "spin_in", "add_out",
)  # fmt: skip
_NAMES = (
    *(name for name in WITH_WORD if name not in ("spin", *_VARIED)),
    *(name for name in WITHOUT_WORD if name not in ("end", "fence", "choose", "validate")), "end", "quiet", "spin",
)  # fmt: skip


def _word(rng: Random, dies: int) -> int:
    if rng.random() < 0.08:
        return EDGE | rng.choice((0, 0, 1, 3, 4)) | DATA * (rng.random() < 0.3)
    return rng.randrange(dies) << 3 | rng.choice(WORDS) | (DATA if rng.random() < 0.2 else 0)


def _instruction(rng: Random, dies: int) -> Instruction:
    """Any instruction, with operands that often coincide with other instructions' operands."""
    name, word, value, other = rng.choice(_NAMES), _word(rng, dies), rng.choice((0, 1, 1, 2, 3)), _word(rng, dies)
    return Instruction(name, *_operands(rng, name, word, value, other))


def _operands(rng: Random, name: str, word: int, value: int, other: int) -> tuple[int, ...]:
    match name:
        case "in" | "out":
            return word, rng.choice((0, 0, 1, 2, 4)), rng.choice((0, 0, 0, 1, 2, 4, 5, 13))
        case "dma" | "dma_data":
            return word, other % DATA, rng.choice((0, 0, 0, 1, 2, 5))
        case "dmas":
            return word, other % DATA, rng.randrange(8)
        case "outs" | "signals":
            return word, rng.choice((0, 0, 4)), rng.randrange(4)
        case "puts" | "stores":
            return rng.choice((word, DATA | 4, DATA | 7)), value, rng.randrange(4)
        case "put" | "put_named":
            return word & ~3, value, rng.randrange(3)
        case "put_one":
            return word, value, rng.randrange(3)
        case "ub_load":
            return 0, rng.choice((0, 0, 1, 2, 4))
        case "ub_store":
            return value, rng.choice((0, 0, 1, 2, 4))
        case "skip_unless" | "skip_if":
            return 0, value, rng.randrange(1, 3)
        case "fail_unless":
            return 7, value
        case "v_copy" | "v_add":
            first = (0, 4) if name == "v_copy" else (0, 4, OTHER * 4, OTHER * 4 | 4)
            return rng.choice(first), rng.choice((0, 4, 8)), rng.choice((0, 2))
        case "store4" | "load4":
            return word, value * (name == "store4"), rng.choice((0, 8))
        case "set":
            return rng.randrange(4), rng.choice((0, 0, 1, 2, 3)), rng.randrange(2)
        case "wait":
            return rng.choice((1, 1, 3, 4, 0, 2)), rng.choice((0, 0, 1, 3)), rng.randrange(2)
        case "quiet" | "arrive" | "await" | "end":
            return ()
    return word, value
