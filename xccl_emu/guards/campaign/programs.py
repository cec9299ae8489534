"""Programs as data: a list of instructions on a few shared words for each core, and the pod that runs them.

A program is text (`program`), or drawn (`campaign.generate`); one kernel interprets all (`campaign.interpreter`).  At
its end a program writes what it has read to a cell that only its core uses; so all that can come out is in memory.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.trial import Expected, Judge, Trial
from xccl_emu.guards.campaign.interpreter import (
    A_BITS,
    B_BITS,
    BITS,
    C_BITS,
    IN_REGISTER,
    INSTRUCTIONS,
    OPERATION_BITS,
    OPERATIONS,
    REGISTERS,
    SIZE_MAX,
    WordAreas,
    interpret,
)
from xccl_emu.lang.operations import ASK_FOR_ORDER, orders_of
from xccl_emu.lang.requests import NO_ACQUIRE
from xccl_emu.machine.device.layout import QUEUE_DEPTH
from xccl_emu.machine.explore import Explored, explore
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import small_pod

ORDERS = ("sc", "fifo", "relaxed", "unordered")
WORDS_A_DIE = 8
"""Shared words in a die's metadata area; as many are in its managed data area."""
UB_BYTES = 320
DATA = 32
"""Added to a word that lies in the managed data area."""
EDGE = 24
"""Such words are the first of die 1, right after the managed area of die 0; with `DATA`, of a CPU's memory."""
OTHER = 8
"""Factor of the second operand's word of the data buffer, added to the first operand's word, for ``v_add``."""
LOOPS = tuple(name for name, does in INSTRUCTIONS.items() if "in range(" in does)
"""Instructions that take several requests of one site, to addresses side by side."""
WITH_WORD = tuple(name for name, does in INSTRUCTIONS.items() if "word" in does)
"""Instructions whose first operand is a word."""
WITHOUT_WORD = tuple(name for name in OPERATIONS if name not in WITH_WORD)
WITH_TARGET = tuple(name for name, does in INSTRUCTIONS.items() if "target" in does)
"""Instructions whose second operand is one, too."""

ASKING = {
    f"{site.operation}{sum(s.operation == site.operation for s in interpret.sites[:number])}": number
    for number, site in enumerate(interpret.sites)
    if len(orders_of(site.operation)) > 1
}
"""Sites of the interpreter that may ask for something: ``store0`` is the site of the first kind of store, and so on."""
WRITING = {name: number for name, number in ASKING.items() if interpret.sites[number].operation in ASK_FOR_ORDER}
"""Sites that write."""
LOOSE = tuple(name for name, number in ASKING.items() if NO_ACQUIRE in orders_of(interpret.sites[number].operation))
"""Names of those that may ask not to acquire."""

Words = tuple[int, ...]
Outcome = Words | frozenset[Words]
"""What memory is to hold at the end: these words, or any of some."""


@dataclass(frozen=True)
class Instruction:
    """One instruction; ``a`` is most often a word: die << 3 | word, with `DATA` if it is in the managed data area."""

    name: str
    a: int = 0
    b: int = 0
    c: int = 0

    def __post_init__(self) -> None:
        known = self.name in OPERATIONS
        if not known or self.a >> A_BITS or self.b >> B_BITS or self.c >> C_BITS:
            raise ConfigError(f"{self.name} {self.a} {self.b} {self.c}: is no instruction of a small program")

    @property
    def words(self) -> list[int]:
        """The words that it names."""
        words = [self.a] if self.name in WITH_WORD else []
        return words + ([self.b | DATA * (self.name == "dma_data")] if self.name in WITH_TARGET else [])

    @property
    def reads(self) -> bool:
        """Return whether its scalar unit reads memory."""
        does = INSTRUCTIONS[self.name]
        return any(f"lang.{name}" in does for name in ("load", "poll", "atomic", "compare"))

    def code(self) -> int:
        """Return it as bits, the operation lowest."""
        a, b = OPERATION_BITS, OPERATION_BITS + A_BITS
        return OPERATIONS.index(self.name) | self.a << a | self.b << b | self.c << b + B_BITS

    def __str__(self) -> str:
        """Return it as text that `program` reads."""
        first = word_text(self.a) if self.name in WITH_WORD else str(self.a)
        second = word_text(self.b) if self.name in ("dma", "dmas", "any") else str(self.b)
        operands = [first, second, str(self.c)]
        while operands and operands[-1] == "0":
            operands.pop()
        return " ".join([self.name, *operands])


def program(text: str) -> tuple[Instruction, ...]:
    """Instructions as text, for example ``"store 0.1 1; quiet; put 1.0 1"``.

    ``d.w`` is word w of die d's metadata area, ``md.w`` of its managed data area; ``e.w`` is one of the first words of
    die 1, at the edge between two dies, ``c.w`` of a CPU's memory.  Raises ConfigError for another.
    """
    parts = [part.split() for part in text.split(";") if part.strip()]
    return tuple(Instruction(name, *map(_operand, operands)) for name, *operands in parts)


_HOMES = {"e": EDGE, "c": EDGE | DATA}


def _operand(text: str) -> int:
    die, dot, word = text.removeprefix("m").partition(".")
    home = _HOMES.get(die)
    try:
        value = (int(die) << 3 if home is None else home) | int(word) if dot else int(text)
    except ValueError as error:
        raise ConfigError(f"{text}: is no operand of a small program") from error
    return value | DATA if text.startswith("m") else value


def word_text(word: int) -> str:
    """A word as `program` reads it."""
    if word & EDGE == EDGE:
        return f"{'c' if word & DATA else 'e'}.{word & 7}"
    return f"{'m' if word & DATA else ''}{word >> 3 & 3}.{word & 7}"


@dataclass(frozen=True)
class Small:
    """A configuration that every judge can finish: a program for each core, one die after the other."""

    programs: tuple[tuple[Instruction, ...], ...]
    cores_per_die: int = 1
    dies: int = 0
    """At least as many as hold the cores."""
    memory: Mapping[int, int] = field(default_factory=dict)
    """Words that are not 0 at first."""
    without: tuple[str, ...] = ()
    flight_granules: int = 16
    together: bool = True
    """Does nobody own what memory is to hold at the end, or do the cores of each die what is on theirs?"""
    fresh: bool = False
    """Have data buffers never been written at the start, so that reading them is a violation?"""
    atomic_bytes: int = 32
    """Become visible, and are read, at once."""
    scalar_cache: int = 0
    """Lines that a scalar unit caches."""
    asks: Mapping[str, str] = field(default_factory=dict)
    """What requests ask for, by their names in `ASKING`."""
    launched: int = 0
    """Cores of a launch, with a barrier of their own; 0: all of a die."""
    flags: bool = False
    """Whether metadata areas are windows of flags."""
    cpu: bool = False
    """Do cores of a CPU run the programs of the last die that has any?"""
    filled: bool = False
    """Does each word of a data buffer hold another value at first, or do all hold 0?"""
    gives_up: tuple[int, ...] = ()
    """Codes of `fail` with which a run may end."""

    @property
    def n_dies(self) -> int:
        """Dies of the pod."""
        return max(self.dies, -(-len(self.programs) // self.cores_per_die))

    @property
    def words(self) -> set[int]:
        """Return all words that are named."""
        return {*self.memory, *(word for each in self.programs for one in each for word in one.words)}

    @property
    def far(self) -> list[int]:
        """Return which of `EDGE` and ``EDGE | DATA`` are in use, so that the pod has these words."""
        loops = any(one.name in LOOPS for each in self.programs for one in each)
        edge = loops or any(word & (EDGE | DATA) == EDGE for word in self.words)
        return edge * [EDGE] + any(word & (EDGE | DATA) == EDGE | DATA for word in self.words) * [EDGE | DATA]

    @property
    def pitch(self) -> int:
        """Return the distance from one core's result to the next: a granule, or a line."""
        return 64 if self.scalar_cache else 32

    @property
    def size(self) -> int:
        """Return its size, by which a smaller program is found."""
        instructions = sum(len(one) for one in self.programs)
        options = len(self.memory) + len(self.without) + len(self.asks) + (self.atomic_bytes != 32) + self.scalar_cache
        options += (self.launched != 0) + self.cpu + self.flags + len(self.gives_up)
        return 4 * instructions + 2 * len(self.programs) + self.n_dies + options

    @property
    def acquiring(self) -> "Small":
        """Return the same program, in which every read acquires."""
        return replace(self, asks={name: order for name, order in self.asks.items() if order != NO_ACQUIRE})

    @property
    def with_quiets(self) -> "Small | None":
        """Return it with a quiet after each read, by which that acquires; None if that is too long."""
        quiet = Instruction("quiet")
        longer = tuple(tuple(i for one in each for i in (one, quiet)[: 1 + one.reads]) for each in self.programs)
        asks = {name: order for name, order in self.asks.items() if not name.startswith("quiet")}
        return replace(self, programs=longer, asks=asks) if max(map(len, longer)) <= SIZE_MAX else None

    @property
    def spins(self) -> bool:
        """May it load for ever?"""
        return any(one.name.startswith("spin") for each in self.programs for one in each)

    def fits_queues(self) -> bool:
        """Return whether its programs are too short for any queue of a pipe to fill."""
        return all(len(one) <= QUEUE_DEPTH and all(i.name not in LOOPS for i in one) for one in self.programs)

    # ---- the pod

    def pod(self, order: str) -> Pod:
        """The pod with everything launched."""
        spec = small_pod(
            self.n_dies,
            self.cores_per_die,
            app_bytes=8 * WORDS_A_DIE * (len(self.far) > 0),
            meta_bytes=8 * WORDS_A_DIE + self.pitch * self.cores_per_die,
            managed_bytes=8 * WORDS_A_DIE,
            ub_bytes=UB_BYTES,
            flight_granules=self.flight_granules,
            atomic_bytes=self.atomic_bytes,
            scalar_cache=self.scalar_cache,
        ).with_(cpus_per_node=self.cpu or EDGE | DATA in self.far)
        off = () if any(one.name.startswith("signal") for each in self.programs for one in each) else ("signal",)
        pod = Pod(spec, order=order, without=(*self.without, *off))  # what may signal is searched with less left out
        for word, value in self.memory.items():
            address = address_of(pod, word)
            pod.memory[address : address + 8].view(np.int64)[0] = value
        last = (len(self.programs) - 1) // self.cores_per_die
        for die in range(last + 1):
            cores = range(len(self.programs))[die * self.cores_per_die : (die + 1) * self.cores_per_die]
            size = self.launched or self.cores_per_die
            for first in range(0, len(cores), size):
                home = pod.cpu(0) if self.cpu and die == last else die
                self._launch(pod, home, cores[first : first + size])
        if self.filled:
            for core in pod.active_cores():
                buffer = pod.memory[spec.memory_bytes + core * UB_BYTES :][:UB_BYTES].view(np.int32)
                buffer[:] = [_filling(core, k) for k in range(len(buffer))]
        for line, order in self.asks.items():
            pod.weaken(0, ASKING[line], order)
        return pod

    def _launch(self, pod: Pod, home: int, cores: Sequence[int]) -> None:
        words = [_registers(self.programs[core]) for core in cores]
        places = [core % self.cores_per_die for core in cores]
        edge = pod.spec.die_bytes * (self.n_dies > 1)
        args: dict[str, Any] = {f"p{k}": [row[k] for row in words] for k in range(REGISTERS)}
        args["areas"] = WordAreas(
            pod.meta(0),
            pod.spec.die_bytes,
            pod.managed(0) - pod.meta(0),
            edge,
            self.n_dies * pod.spec.die_bytes - edge,
        )
        args["result"] = [pod.meta(home, 8 * WORDS_A_DIE + self.pitch * place) for place in places]
        rights = "rwf" if self.flags else "rw"
        grants = [pod.grant_meta(rights), pod.grant_managed("rw"), pod.grant_meta(rights, home)]
        grants += [Grant(pod.cpu(0) if far & DATA else None, 0, 8 * WORDS_A_DIE, "rw") for far in self.far]
        pod.launch(interpret, home, places, args, grants)

    # ---- what comes out

    def observed(self, pod: Pod) -> list[tuple[int, int]]:
        """Return all that a run leaves in memory, as (address, bytes): the shared words and the results."""
        areas = [(pod.meta(die), pod.spec.meta_bytes) for die in range(self.n_dies)]
        areas += [(pod.managed(die), 8 * WORDS_A_DIE) for die in range(self.n_dies)]
        areas += [(pod.meta(pod.cpu(0)), pod.spec.meta_bytes)] if self.cpu else []
        return areas + [(address_of(pod, far), 8 * WORDS_A_DIE) for far in self.far]

    def n_words(self) -> int:
        """Words of what is observed."""
        own = self.n_dies * (2 * WORDS_A_DIE + self.pitch // 8 * self.cores_per_die)
        on_cpu = WORDS_A_DIE + self.pitch // 8 * self.cores_per_die if self.cpu else 0
        return own + on_cpu + WORDS_A_DIE * len(self.far)

    def naive(self, order: str, max_states: int = 1_000_000) -> Explored:
        """Run brute force and return what it finds."""
        pod = self.pod(order)
        return explore(pod, self.observed(pod), max_states, gives_up=self.gives_up)

    def trial(self, order: str, outcome: Outcome | None) -> Trial:
        """A trial that expects the words of an outcome in memory, or of any of several, or nothing."""
        return self.trial_on(self.pod(order), outcome)

    def trial_on(self, pod: Pod, outcome: Outcome | None) -> Trial:
        """A trial on a pod that was made before."""
        outside = [address_of(pod, word) & ~31 for word in self.memory if word & DATA or word & EDGE == EDGE]
        written = [Buffer(address // pod.spec.die_bytes, address, 32) for address in outside]
        if not self.fresh:
            buffers = pod.spec.memory_bytes
            cores = [(core, buffers + core * UB_BYTES) for core in pod.active_cores()]
            written += [Buffer(core // self.cores_per_die, address, UB_BYTES) for core, address in cores]
        expected = () if outcome is None else self._expected(pod, outcome)
        stops = dict.fromkeys(self.gives_up, "given up")
        return Trial(pod, expected, tuple(written), stops=stops, gives_up=frozenset(self.gives_up))

    def _expected(self, pod: Pod, outcome: Outcome) -> tuple[Expected, ...]:
        ends = outcome if isinstance(outcome, frozenset) else frozenset([outcome])
        right, ranges = [np.array(end, np.int64).tobytes() for end in ends], self.observed(pod)
        if self.together and isinstance(outcome, frozenset):
            return (_judged(tuple(ranges), frozenset(right), ()),)
        at, expected, active = 0, [], pod.active_cores()
        for address, nbytes in ranges:
            data = frozenset(end[at : at + nbytes] for end in right)
            on_die = [core for core in active if core // self.cores_per_die == address // pod.spec.die_bytes]
            cores = () if self.together else tuple(on_die)
            if isinstance(outcome, frozenset):
                expected.append(_judged(((address, nbytes),), data, cores))
            else:
                expected.append(Expected(f"memory at {address}", address, next(iter(data)), cores))
            at += nbytes
        return tuple(expected)

    # ---- as text and as data

    def __str__(self) -> str:
        """Return it as Python, to be pasted into a test."""
        lines = [f'    program("{"; ".join(map(str, one))}"),' for one in self.programs]
        options = [f"{name}={value!r}" for name, value in self._options().items()]
        return "\n".join(["Small((", *lines, f"), {', '.join(options)})"])

    def _options(self) -> dict[str, Any]:
        """Return the options that differ from the defaults."""
        usual = vars(Small(self.programs))
        options = {name: value for name, value in vars(self).items() if value != usual[name]}
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in options.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the program as a JSON object."""
        return {**self._options(), "programs": ["; ".join(map(str, one)) for one in self.programs]}

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> "Small":
        """Read what `to_json` returned."""
        small = cls(**{**given, "programs": tuple(program(text) for text in given["programs"])})
        memory = {int(word): int(value) for word, value in small.memory.items()}
        return replace(small, memory=memory, without=tuple(small.without), gives_up=tuple(small.gives_up))


def _judged(ranges: tuple[tuple[int, int], ...], right: frozenset[bytes], cores: tuple[int, ...]) -> Expected:
    """Bytes that must have one of some contents, as a predicate says."""
    name = f"memory at {ranges[0][0]}"
    judge = Judge(name, ranges, lambda *there: b"".join(each.tobytes() for each in there) in right)
    return Expected(name, ranges[0][0], b"", cores, judge=judge)


def address_of(pod: Pod, word: int) -> int:
    """Return the address of a word of an `Instruction`."""
    if word & EDGE == EDGE:
        home = pod.cpu(0) if word & DATA else min(1, pod.spec.n_dies - 1)
        return pod.address(home, 8 * (word & 7))
    area = pod.managed if word & DATA else pod.meta
    return area(word >> 3 & 3, 8 * (word & 7))


def _filling(core: int, k: int) -> int:
    """Return the k-th integer of a core's data buffer: low halves of words carry, or overflow, when added to."""
    return (-1, 0x7FFFFFFF, -0x80000000, 1000 + k)[k // 2 % 4] if k % 2 == 0 else 101 * core + 7 * k + 3


def _registers(instructions: Collection[Instruction]) -> list[int]:
    codes = [instruction.code() for instruction in instructions]
    if len(codes) > SIZE_MAX:
        raise ConfigError(f"a program of {len(codes)} instructions: a core takes {SIZE_MAX}")
    triples = [codes[first : first + IN_REGISTER] for first in range(0, SIZE_MAX, IN_REGISTER)]
    return [sum(code << BITS * k for k, code in enumerate(triple)) for triple in triples]
