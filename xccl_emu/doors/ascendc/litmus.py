"""Litmus programs as an operator in Ascend C (docs/machine.md): what each may come to, and what results refute.

The programs are in `operators/litmus_programs.h`.  What is allowed is what an exhaustive search finds of the very
operator that runs on hardware.
"""

import csv
import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError, UnfinishedError
from xccl_emu.base.options import must_be_one_of
from xccl_emu.doors.ascendc.kernel import BARRIERS, KEPT, AscendKernel, ascend_kernel
from xccl_emu.machine import explore
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod

OPERATORS = Path(__file__).with_name("operators")
ORDERS = ("sc", "fifo", "relaxed", "unordered")
"""Memory orders, each allows what those before it allow."""
LOADS = ("awaited", "flight")
"""How reads are made: each before what follows it, or as one that nobody awaits.  Such a read is in flight: it may be
made later than what follows it, up to a fence, but not later than an access to its own cell."""
HOMES = {"one": (0, 0, 0), "own": (0, 1, 2)}
"""The dies of x, y and z: all on thread 0's, or each on one of its own."""
CELLS = "xyz"
COMMENT = "#"
"""First in a line of a results file that says something of the machine."""
THREADS_MOST, LINE_WORDS, LINE_BYTES = 4, 8, 64

Outcome = frozenset[tuple[str, int]]
"""Registers as ``1:a``, and the last values of the cells, each with its value."""
Results = Mapping[str, Mapping[Outcome, int]]
"""How often each program came to what, by its name."""

_PROGRAM = re.compile(r"^PROGRAM\((\w+), (.*)\)$", re.MULTILINE)
_OPERATION = re.compile(r"([WCLRPA])\((\w), (\w)\)|([FS])")


class LitmusOperation(NamedTuple):
    """``W``, ``C``, ``L`` with a cell and a value, ``R``, ``P``, ``A`` with a cell and a register, or ``F``, ``S``."""

    kind: str
    cell: str = ""
    what: str = ""

    @property
    def text(self) -> str:
        """Return it as the header has it."""
        return f"{self.kind}({self.cell}, {self.what})" if self.cell else self.kind

    def may_pass(self, later: "LitmusOperation") -> bool:
        """Return True if nothing awaits it, so that it may be made after another one of its thread."""
        return self.kind in "RP" and later.kind not in "FL" and later.cell != self.cell


Operations = tuple[LitmusOperation, ...]


@dataclass(frozen=True)
class LitmusTest:
    """A litmus program; ``text`` is as the header has it, and ``number`` what the operator gets."""

    name: str
    number: int
    text: str

    @property
    def texts(self) -> list[str]:
        """Each thread as the header has it."""
        return re.split(r"(?<=[)FS]), (?=[WCLRPAFS])", self.text)

    @property
    def threads(self) -> tuple[Operations, ...]:
        """The operations of each thread."""
        found = (_OPERATION.finditer(text) for text in self.texts)
        return tuple(tuple(LitmusOperation(m[1] or m[4], m[2] or "", m[3] or "") for m in each) for each in found)

    @property
    def cells(self) -> str:
        """The cells that it touches."""
        return "".join(sorted({op.cell for thread in self.threads for op in thread if op.cell}))

    @property
    def registers(self) -> tuple[tuple[str, ...], ...]:
        """The registers of each thread, in the order in which it reads."""
        return tuple(
            tuple(f"{i}:{op.what}" for op in thread if op.kind in "RPA") for i, thread in enumerate(self.threads)
        )

    def outcome(self, cells: Sequence[int], seen: Sequence[int]) -> Outcome:
        """Return the outcome that x, y and z, and each thread's word, show."""
        last = [(cell, int(cells[CELLS.index(cell)])) for cell in self.cells]
        read = [
            (name, int(word) >> 8 * i & 255)
            for word, names in zip(seen, self.registers, strict=False)
            for i, name in enumerate(names)
        ]
        return frozenset([*last, *read])


@functools.cache
def programs() -> Mapping[str, LitmusTest]:
    """The programs by name, in the order of the header."""
    text = (OPERATORS / "litmus_programs.h").read_text()
    return {name: LitmusTest(name, i, threads) for i, (name, threads) in enumerate(_PROGRAM.findall(text))}


@functools.cache
def in_flight() -> Mapping[str, tuple[LitmusTest, ...]]:
    """Each program by its name, and after it the same with reads of its threads made later; all have numbers."""
    found, number = dict[str, tuple[LitmusTest, ...]](), len(programs())
    for program in programs().values():
        more = with_later_reads(program, number)
        found[program.name], number = (program, *more), number + len(more)
    return found


def with_later_reads(program: LitmusTest, number: int) -> list[LitmusTest]:
    """Return it with reads of its threads made later, in each way but its own; numbers are from this one on."""
    _, *later = itertools.product(*map(_orders, program.threads))
    texts = [", ".join(" ".join(op.text for op in thread) for thread in threads) for threads in later]
    return [LitmusTest(f"{program.name}__{i}", number + i, text) for i, text in enumerate(texts)]


def _orders(thread: Operations) -> list[Operations]:
    """The orders in which the operations of a thread may be made if its reads are in flight; its own is the first."""
    if not thread:
        return [()]
    return [
        (op, *rest)
        for i, op in enumerate(thread)
        if all(earlier.may_pass(op) for earlier in thread[:i])
        for rest in _orders(thread[:i] + thread[i + 1 :])
    ]


def variants(program: LitmusTest, loads: str) -> tuple[LitmusTest, ...]:
    """The programs that a program is, by a reading of its loads (`LOADS`): itself, and with reads in flight others."""
    return in_flight()[program.name] if loads == "flight" else (program,)


def named(names: Iterable[str]) -> list[LitmusTest]:
    """The programs of these names, or all; ConfigError for one that there is not."""
    known = programs()
    for name in names:
        if name not in known:
            raise ConfigError(f"program {name!r}: {must_be_one_of(name, known)}")
    return [known[name] for name in names] or [*known.values()]


def text_of(outcome: Outcome) -> str:
    """An outcome as files and reports have it: registers, then cells."""
    return " ".join(f"{name}={value}" for name, value in sorted(outcome, key=lambda each: (len(each[0]) == 1, each)))


# ---- the operator on a pod


@functools.cache
def operator(barrier: str) -> AscendKernel:
    """The kernel, with a reading of its barriers, and with the programs whose reads are made later (`in_flight`)."""
    later = [each for _, *found in in_flight().values() for each in found]
    defines = {"MORE_PROGRAMS": " ".join(f"PROGRAM({each.name}, {each.text})" for each in later)}
    return ascend_kernel(OPERATORS / "litmus.cpp", "litmus", barrier=barrier, defines=defines)


def launched(program: LitmusTest, order: str, barrier: str, homes: str, rounds: int = 1, seed: int = 0) -> "Launched":
    """A pod with a die for each thread, ready to run the operator; seed is for random schedules."""
    threads, home, lines = len(program.threads), HOMES[homes], (4 + THREADS_MOST) * rounds + THREADS_MOST
    dies = max(threads, 1 + max(home))
    spec = small_pod(dies, app_bytes=0, meta_bytes=lines * LINE_BYTES, managed_bytes=0, ub_bytes=320, flight_granules=8)
    pod = Pod(spec, order=order, policy="random", seed=seed)
    cells = [pod.meta(die, i * rounds * LINE_BYTES) for i, die in enumerate(home)]
    seen, ready = (pod.meta(0, i * rounds * LINE_BYTES) for i in (3, 3 + THREADS_MOST))
    args = dict(zip((*CELLS, "seen", "ready"), (*cells, seen, ready), strict=True))
    args |= {"program": program.number, "threads": threads, "rounds": rounds, KEPT[0]: 0, KEPT[1]: 1}
    for thread in range(threads):
        pod.launch(operator(barrier), thread, [0], {**args, "first": thread}, [pod.grant_meta("rw")])
    return Launched(pod, (*cells, seen))


class Launched(NamedTuple):
    """A pod, and where x, y, z and the words of threads begin."""

    pod: Pod
    starts: tuple[int, ...]


@functools.cache
def allowed(program: LitmusTest, order: str, barrier: str, homes: str = "one") -> frozenset[Outcome]:
    """All outcomes that the operator has on the machine, by an exhaustive search.

    Raises:
        UnfinishedError: if the search ends at its limit.
        KernelError: without a compiler.
    """
    pod, starts = launched(program, order, barrier, homes)
    threads = len(program.threads)
    seen = [starts[3] + i * LINE_BYTES for i in range(threads)]
    found = explore.explore(pod, [(address, 8) for address in (*starts[:3], *seen)], max_states=5_000_000)
    if not found.complete:
        raise UnfinishedError(f"litmus program {program.name}: the search of {order} has more than 5 million states")
    assert not found.errors, (program.name, found.errors)
    return frozenset(program.outcome(words[:3], words[3 : 3 + threads]) for words in found.outcomes)


def ran(program: LitmusTest, order: str, barrier: str, homes: str, rounds: int, seed: int = 0) -> NDArray[np.int64]:
    """Return what a run of some rounds leaves in memory, under a random schedule: [7 * rounds lines of 8 words]."""
    pod, starts = launched(program, order, barrier, homes, rounds, seed)
    pod.run()
    counts = (rounds, rounds, rounds, THREADS_MOST * rounds)
    raw = [pod.span(start, n * LINE_BYTES) for start, n in zip(starts, counts, strict=True)]
    return np.concatenate(raw).view(np.int64)


def counted(program: LitmusTest, dump: NDArray[np.int64]) -> Counter[Outcome]:
    """Count the outcomes: of x, y, z and the words of threads, copied from memory in sequence.

    Raises:
        ConfigError: if these are no seven lines of 64 bytes a round.
    """
    if dump.size == 0 or dump.size % (7 * LINE_WORDS):
        raise ConfigError(f"dump of {program.name}: {8 * dump.size} bytes: must be 7 lines of 64 bytes for each round")
    words = dump.reshape(7, -1, LINE_WORDS)[:, :, 0]
    rows = np.concatenate([words[:3] & 0xFFFFFFFF, words[3:]]).T
    each, counts = np.unique(rows, axis=0, return_counts=True)
    outcomes = Counter[Outcome]()
    for row, n in zip(each, counts, strict=True):
        outcomes[program.outcome(row[:3], row[3:])] += int(n)
    return outcomes


# ---- results of a machine


def csv_of(results: Results) -> str:
    """A results file: program, outcome, count."""
    rows = [f"{name},{text_of(outcome)},{n}" for name, counts in results.items() for outcome, n in counts.items()]
    return "\n".join(["program,outcome,count", *rows, ""])


def read(file: Path) -> Results:
    """The results of a file; counts of one outcome are added up.

    Raises:
        ConfigError: for a file or a row that is none, with its line.
    """
    lines = [(i, text) for i, text in _lines(file).items() if not text.startswith(COMMENT)]
    results = dict[str, Counter[Outcome]]()
    for line, text in lines[1:]:
        try:
            row = next(csv.DictReader([lines[0][1], text]))
            program = programs()[row["program"]]
            outcome, n = _outcome(program, row["outcome"]), int(row["count"])
            if n < 0:
                raise ValueError("a count is not negative")
        except (KeyError, TypeError, ValueError, AttributeError, csv.Error) as error:
            why = "must be program,outcome,count, as in `MP,1:a=1 1:b=0 x=1 y=1,12`"
            raise ConfigError(f"{file}:{line}: `{text}`: {why} ({error})") from error
        if n > 0:
            results.setdefault(program.name, Counter())[outcome] += n
    if not results:
        raise ConfigError(f"{file}: no results: must have a line `program,outcome,count`, and rows after it")
    return results


def made_by(file: Path) -> list[str]:
    """Return what a results file says of its machine, in comments; raises ConfigError as `read` does."""
    return [line.lstrip(f"{COMMENT} ") for line in _lines(file).values() if line.startswith(COMMENT)]


def _lines(file: Path) -> dict[int, str]:
    """The lines that are not empty, by their numbers."""
    try:
        return {i: line for i, line in enumerate(file.read_text("utf-8-sig").splitlines(), 1) if line.strip()}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--read {file}: cannot be read ({error})") from error


def _outcome(program: LitmusTest, text: str) -> Outcome:
    found = [(name, int(value)) for name, value in (item.split("=") for item in text.split())]
    wanted = {*program.cells, *(name for names in program.registers for name in names)}
    if {name for name, _ in found} != wanted or len(found) != len(wanted):
        raise ValueError(f"an outcome of {program.name} has {', '.join(sorted(wanted))}")
    return frozenset(found)


@dataclass(frozen=True)
class MachineModel:
    """A machine as the emulator has it, and what of the results it does not allow."""

    order: str
    barrier: str
    loads: str
    refuted_by: list[tuple[str, Outcome, int]] = field(default_factory=list)
    """Program, outcome, and how often it came."""

    def allows_no_more_than(self, other: "MachineModel") -> bool:
        """Return True if it is the same or stronger."""
        own, others = (self.order, self.barrier, self.loads), (other.order, other.barrier, other.loads)
        choices = zip((ORDERS, BARRIERS, LOADS), own, others, strict=True)
        return all(known.index(one) <= known.index(another) for known, one, another in choices)


def models(results: Results, homes: str) -> list[MachineModel]:
    """Return what each model says of the results, strongest first."""
    return [
        MachineModel(order, barrier, loads, [
            (name, outcome, n)
            for name, counts in results.items()
            for outcome, n in _not_allowed(counts, variants(programs()[name], loads), (order, barrier, homes)).items()
        ])
        for order in ORDERS for barrier in BARRIERS for loads in LOADS
    ]  # fmt: skip


def _not_allowed(
    counts: Mapping[Outcome, int], tests: Sequence[LitmusTest], machine: tuple[str, str, str]
) -> Mapping[Outcome, int]:  # fmt: skip
    """Return what none of the programs may come to, which are one by a reading of its loads."""
    for test in tests:
        if counts:  # else no search is needed
            may = allowed(test, *machine)
            counts = {outcome: n for outcome, n in counts.items() if outcome not in may}
    return counts


def strongest(found: Sequence[MachineModel]) -> list[MachineModel]:
    """Return what nothing refutes, but for machines that are weaker than another one of these.

    Loads are in flight only if no machine that awaits them fits, since no other tool of the emulator has them so.
    """
    fits = [model for model in found if not model.refuted_by]
    left = [model for model in fits if model.loads == LOADS[0]] or fits
    return [
        model for model in left
        if not any(other != model and other.allows_no_more_than(model) for other in left)
    ]  # fmt: skip


def by_flight_alone(found: Sequence[MachineModel], left: Sequence[MachineModel]) -> list[str]:
    """Names of programs with outcomes that machines which are left have only since loads are in flight."""
    set_to = {(model.order, model.barrier) for model in left if model.loads != LOADS[0]}
    awaited = [model for model in found if model.loads == LOADS[0] and (model.order, model.barrier) in set_to]
    return [*dict.fromkeys(name for model in awaited for name, _, _ in model.refuted_by)]
