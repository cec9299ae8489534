"""What the tests of the exhaustive search share: a kernel that interprets small programs, and a naive judge beside it.

A program is a list of instructions on a few shared words, so Hypothesis can draw it and nothing has to be compiled for
it.  Each kind of instruction has a site of its own, so a load with a name and one without are told apart.  At its end
a program writes what it has read to a cell that only its core uses; so everything that can come out is in memory.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from xccl_emu.check import verdict as kinds
from xccl_emu.check.search.exhaustive import Found, Search
from xccl_emu.check.search.setup import Setup
from xccl_emu.check.trial import Expected, Trial
from xccl_emu.errors import DeadlockError, ReplayError, RunError
from xccl_emu.lang import (
    add,
    arrive,
    atomic_add,
    await_group,
    dma,
    fail,
    fence,
    kernel,
    load,
    mtu_in,
    mtu_out,
    poll_eq,
    poll_ge,
    poll_ne,
    put,
    set_flag,
    store,
    ub_load,
    ub_store,
    v_copy,
    wait_flag,
)
from xccl_emu.machine.explore import Explored, explore
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.schedule import Schedule
from xccl_emu.machine.spec import small_pod

ORDERS = ("sc", "fifo", "relaxed")
OPERATIONS = (
    "end", "load", "load_named", "store", "store_seen", "atomic", "atomic_taken", "ge", "eq", "ne", "ge_taken",
    "ne_taken", "fence", "put", "add", "in", "out", "set", "wait", "ub_load", "ub_store", "dma", "arrive", "await",
    "skip_unless", "spin", "spin_plain", "fail_unless", "v_copy", "store4", "load4", "load_at",
)  # fmt: skip
"""The instructions of a program, by their code."""
NBYTES = (8, 16, 32, 40, 64, 4, 20, 28)
"""Sizes of transfers; plus 8 in the operand they begin 4 bytes later."""
WORDS_A_DIE = 8
SIZE_MAX = 12


@kernel
def interpret(p0, p1, p2, p3, home, stride, result):
    """Instructions of 19 bits, operation (5), a (5), b (5), c (4), three in a register; then store what was read."""
    seen, last, phase = 0, 0, 0
    program = p0
    while program > 0:
        op = program & 31
        a = program >> 5 & 31
        b = program >> 10 & 31
        c = program >> 15 & 15
        program = program >> 19
        if program == 0:
            program = p1
            p1 = p2
            p2 = p3
            p3 = 0
        word = home + (a >> 3) * stride + (a & 7) * 8
        nbytes = 8
        if c & 7 == 1:
            nbytes = 16
        elif c & 7 == 2:
            nbytes = 32
        elif c & 7 == 3:
            nbytes = 40
        elif c & 7 == 4:
            nbytes = 64
        elif c & 7 == 5:
            nbytes = 4
        elif c & 7 == 6:
            nbytes = 20
        elif c & 7 == 7:
            nbytes = 28
        if op == 1:
            last = yield load(word)
            seen = seen * 8 + last
        elif op == 2:
            last = yield load(word, sync="load")
            seen = seen * 8 + last
        elif op == 3:
            yield store(word, b)
        elif op == 4:
            yield store(word, seen)
        elif op == 5:
            yield atomic_add(word, b)
        elif op == 6:
            last = yield atomic_add(word, b, sync="atomic")
            seen = seen * 8 + last
        elif op == 7:
            yield poll_ge(word, b, sync="ge")
        elif op == 8:
            yield poll_eq(word, b, sync="eq")
        elif op == 9:
            yield poll_ne(word, b, sync="ne")
        elif op == 10:
            last = yield poll_ge(word, b)
            seen = seen * 8 + last
        elif op == 11:
            last = yield poll_ne(word, b)
            seen = seen * 8 + last
        elif op == 12:
            yield fence(sync="fence")
        elif op == 13:
            yield put(word & ~31, b, c, b + 1, c + 1)
        elif op == 14:
            yield add(word, b, sync="add")
        elif op == 15:
            yield mtu_in(word + (c >> 3) * 4, b * 8, nbytes)
        elif op == 16:
            yield mtu_out(b * 8, word + (c >> 3) * 4, nbytes)
        elif op == 17:
            yield set_flag(a & 3, b & 3, c)
        elif op == 18:
            yield wait_flag(a & 7, b & 3, c)
        elif op == 19:
            last = yield ub_load(b * 8, 8)
            seen = seen * 8 + last
        elif op == 20:
            yield ub_store(b * 8, a, 8)
        elif op == 21:
            yield dma(word + (c >> 3) * 4, home + (b >> 3) * stride + (b & 7) * 8, nbytes, c & 7)
        elif op == 22:
            phase = yield arrive()
        elif op == 23:
            yield await_group(phase, sync="await")
        elif op == 24:
            if last != b:
                for _ in range(c):
                    program = program >> 19
                    if program == 0:
                        program = p1
                        p1 = p2
                        p2 = p3
                        p3 = 0
        elif op == 25:
            last = yield load(word, sync="spin")
            while last != b:
                last = yield load(word, sync="spin again")
        elif op == 26:
            last = yield load(word)
            while last != b:
                last = yield load(word)
        elif op == 27:
            if last != b:
                yield fail(a, last)
        elif op == 28:
            yield v_copy(a * 8, b * 8, nbytes)
        elif op == 29:
            yield store(word + (c >> 3) * 4, b, 4)
        elif op == 30:
            last = yield load(word + (c >> 3) * 4, 4)
            seen = seen * 8 + last
        elif op == 31:
            last = yield load(word + (last & 3) * 8)
            seen = seen * 8 + last
    yield store(result, seen)


@dataclass(frozen=True)
class Instruction:
    """One instruction; ``a`` is most often a word: die << 3 | word."""

    name: str
    a: int = 0
    b: int = 0
    c: int = 0

    def __str__(self) -> str:
        return f"{self.name}({self.a},{self.b},{self.c})"

    def code(self) -> int:
        """As 19 bits."""
        assert 0 <= self.a < 32
        assert 0 <= self.b < 32
        assert 0 <= self.c < 16
        return OPERATIONS.index(self.name) | self.a << 5 | self.b << 10 | self.c << 15


def program(text: str) -> tuple[Instruction, ...]:
    """Instructions as text, for example ``"store 0 1; fence; put 8 1"``; ``d.w`` is word w of die d."""
    instructions = []
    for part in text.split(";"):
        if part.strip():
            name, *operands = part.split()
            instructions.append(Instruction(name, *(_operand(operand) for operand in operands)))
    return tuple(instructions)


def _operand(text: str) -> int:
    die, dot, word = text.partition(".")
    return int(die) << 3 | int(word) if dot else int(text)


@dataclass(frozen=True)
class Small:
    """A configuration that both searches can finish: a program for each core, one die after the other."""

    programs: tuple[tuple[Instruction, ...], ...]
    cores_per_die: int = 1
    dies: int = 0
    """At least as many as hold the cores."""
    memory: Mapping[int, int] = field(default_factory=dict)
    """Words (die << 3 | word) that are not 0 at first."""
    without: tuple[str, ...] = ()
    flight_pieces: int = 16

    @property
    def n_dies(self) -> int:
        """Dies of the pod."""
        return max(self.dies, -(-len(self.programs) // self.cores_per_die))

    def pod(self, order: str) -> Pod:
        """The pod with everything launched."""
        spec = small_pod(
            self.n_dies,
            self.cores_per_die,
            app_bytes=0,
            meta_bytes=64 + 32 * self.cores_per_die,
            managed_bytes=0,
            ub_bytes=320,
            flight_pieces=self.flight_pieces,
        )
        pod = Pod(spec, order=order, without=self.without)
        for word, value in self.memory.items():
            address = pod.meta(word >> 3) + 8 * (word & 7)
            pod.memory[address : address + 8].view(np.int64)[0] = value
        for first in range(0, len(self.programs), self.cores_per_die):
            self._launch(pod, first // self.cores_per_die, self.programs[first : first + self.cores_per_die])
        return pod

    def _launch(self, pod: Pod, die: int, programs: Sequence[tuple[Instruction, ...]]) -> None:
        words = [_registers(one) for one in programs]
        args = {f"p{k}": [row[k] for row in words] for k in range(4)}
        args["home"] = [pod.meta(0)] * len(programs)
        args["stride"] = [pod.spec.die_bytes] * len(programs)
        args["result"] = [self.result(pod, die, core) for core in range(len(programs))]
        pod.launch(interpret, die, range(len(programs)), args, [pod.grant_meta("rw")])

    def result(self, pod: Pod, die: int, core: int) -> int:
        """Where a core leaves what it has read."""
        return pod.meta(die, 8 * WORDS_A_DIE + 32 * core)

    def observed(self, pod: Pod) -> list[tuple[int, int]]:
        """All that a run leaves in memory: the shared words and the results."""
        return [(pod.meta(die), pod.spec.meta_bytes) for die in range(self.n_dies)]

    def n_words(self) -> int:
        """Words of what is observed."""
        return self.n_dies * (WORDS_A_DIE + 4 * self.cores_per_die)

    def naive(self, order: str, max_states: int = 1_000_000) -> Explored:
        """What the naive search finds."""
        pod = self.pod(order)
        return explore(pod, self.observed(pod), max_states)

    def trial(self, order: str, outcome: Sequence[int] | None) -> Trial:
        """A trial that expects the words of an outcome in memory, or nothing."""
        pod = self.pod(order)
        expected = []
        if outcome is not None:
            words, at = np.array(outcome, np.int64), 0
            for address, nbytes in self.observed(pod):
                data = words[at : at + nbytes // 8].tobytes()
                cores = tuple(pod.active_cores())  # nobody answers for anything before all are done
                expected.append(Expected(f"memory at {address}", address, data, cores))
                at += nbytes // 8
        return Trial(pod, tuple(expected))

    def search(
        self, order: str, outcome: Sequence[int] | None, full: bool, max_states: int = 1_000_000, seconds: float = 60.0
    ) -> Found:
        """What the search finds."""
        setup = Setup(self.trial(order, outcome), full=full)
        return Search(setup, max_states=max_states, seconds=seconds, progress=None).run()

    def __str__(self) -> str:
        lines = [f"{self.cores_per_die} cores a die, {self.n_dies} dies, memory {dict(self.memory)}, {self.without}"]
        return "\n".join(lines + ["  " + "; ".join(map(str, one)) for one in self.programs])


def _registers(instructions: Collection[Instruction]) -> list[int]:
    codes = [instruction.code() for instruction in instructions]
    assert len(codes) <= SIZE_MAX
    registers = []
    for first in range(0, SIZE_MAX, 3):
        registers.append(sum(code << 19 * k for k, code in enumerate(codes[first : first + 3])))
    return registers


def verdict_of(found: Found) -> str:
    """``verified``, ``unfinished``, or the kind of the violation."""
    if found.violation:
        return found.kind
    return f"{kinds.UNFINISHED}: {found.reason}" if found.reason else kinds.VERIFIED


RACES = (kinds.DATA_RACE, kinds.TORN_METADATA)
MACHINE_KINDS = (kinds.AREA_VIOLATION, kinds.ASSERTION, kinds.LEFTOVER, kinds.BAD_INSTRUCTION)


def replayed(small: Small, order: str, trial: Trial, found: Found) -> str:
    """How the actions of a violation end on the machine alone."""
    schedule = Schedule(found.actions, trial.pod.fingerprint())
    try:
        trial.pod.replay(schedule)
    except DeadlockError:
        return kinds.DEADLOCK
    except ReplayError as error:
        return "not enabled" if "not enabled" in str(error) else "open"
    except RunError as error:
        return str(error)
    for expected in trial.expected:
        there = trial.pod.memory[expected.address : expected.address + len(expected.data)].tobytes()
        if there != expected.data:
            return kinds.WRONG_BITS
    return "done"


def disagreements(
    small: Small, order: str, naive: Explored, outcome: Sequence[int] | None, monitor: bool = False
) -> list[str]:
    """What is wrong between the naive search and the two reduced ones; empty if nothing is."""
    outcomes = {words[: small.n_words()] for words in naive.outcomes}
    bad = bool(naive.deadlocks or naive.errors or any(words != outcome for words in outcomes))
    wrong, verdicts = [], []
    for full in (True, False):
        found = small.search(order, outcome, full)
        verdict, name = verdict_of(found), "full" if full else "merged"
        verdicts.append(verdict)
        if verdict == kinds.VERIFIED and bad:
            wrong.append(
                f"{name} says verified: {naive.deadlocks} deadlocks, {set(naive.errors)}, {len(outcomes)} ends"
            )
        if found.violation:
            wrong += [f"{name} {verdict}: {text}" for text in _unfounded(small, order, naive, outcomes, outcome, found)]
            wrong += [f"{name} {verdict}: {text}" for text in _not_replayed(small, order, outcome, found, monitor)]
    if kinds.VERIFIED in verdicts and len(set(verdicts)) > 1 and not any("unfinished" in v for v in verdicts):
        wrong.append(f"full {verdicts[0]}, merged {verdicts[1]}")
    return wrong


def _unfounded(
    small: Small,
    order: str,
    naive: Explored,
    outcomes: Collection[tuple[int, ...]],
    outcome: Sequence[int] | None,
    found: Found,
) -> list[str]:
    """A violation that the naive search does not have, if it is complete."""
    if not naive.complete:
        return []
    if found.kind == kinds.DEADLOCK and not naive.deadlocks and not _of_one_part(naive, found):
        return ["no deadlock there"]
    if found.kind == kinds.WRONG_BITS and all(words == outcome for words in outcomes):
        return ["no other outcome there"]
    if found.kind in MACHINE_KINDS and found.message not in naive.errors:
        return [f"not among {set(naive.errors)}: {found.message}"]
    return []


def _of_one_part(naive: Explored, found: Found) -> bool:
    """A deadlock of cores that were searched apart from others which go on for ever: the naive search never ends."""
    return len(found.parts) > 1 and not naive.outcomes


def _not_replayed(small: Small, order: str, outcome: Sequence[int] | None, found: Found, monitor: bool) -> list[str]:
    """A violation whose actions do not show it."""
    ended = replayed(small, order, small.trial(order, outcome), found)
    wrong = []
    apart = ended == "open" and len(found.parts) > 1  # those of other parts have not come so far
    if found.kind in (kinds.DEADLOCK, kinds.WRONG_BITS) and ended != found.kind and not apart:
        wrong.append(f"replay ends with {ended}")
    if found.kind in MACHINE_KINDS and ended != found.message:
        wrong.append(f"replay ends with {ended}, not {found.message}")
    if found.kind in RACES and ended == "not enabled":
        wrong.append(f"replay ends with {ended}: {found.message}")
    if monitor and not wrong and found.kind in RACES:
        from xccl_emu.check.sampling.sample import replay

        if replay(small.trial(order, outcome), found.actions) is None:
            wrong.append(f"the monitor sees nothing on its actions: {found.message}")
    return wrong
