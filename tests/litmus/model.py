"""A tiny operational explorer of the memory orders, independent of the emulator.

It enumerates every execution of a litmus program in plain Python and returns the set of final outcomes. It shares
no code with `xccl_emu`, so that where the two agree, the agreement means something. The rules:

- A write is issued into flight and lands later. Writes of one *channel* land in issue order, channels are
  unordered, and the memory order is nothing but the choice of the channel: none (`sc`, lands at once),
  (source die, destination die) (`fifo`), or (core, address) (`relaxed`).
- fetch_add travels in its channel as a write does, acts when it lands, and blocks its thread until then.
- A scalar read blocks, and sees the youngest own write in flight to its address, otherwise memory.
- With pulls (asynchronous reads) a read samples memory at some later moment, in any order except that reads of one
  address stay in order; a later own write or fetch_add to that address waits for it. A pull cannot see what is in
  flight, so a read of an address that its thread has written before is a scalar read.
- A quiet waits until its thread has neither writes in flight nor pulls outstanding.
- A fence waits for nothing. A write (or fetch_add) lands only when those of its thread to the same die that it issued
  before its latest fence have landed; addresses are on one die unless the order says otherwise.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Write = tuple[Literal["w"], str, int]
Read = tuple[Literal["r"], str, str]
Quiet = tuple[Literal["f"]]
Fence = tuple[Literal["s"]]
FetchAdd = tuple[Literal["u"], str, str, int]
Op = Write | Read | Quiet | Fence | FetchAdd
Program = Sequence[Sequence[Op]]
Channel = tuple[int | str, int | str]
Outcome = frozenset[tuple[str, int]]


@dataclass(frozen=True)
class Order:
    """A memory order: `channel(thread, address)` names a FIFO of writes (None: no delay); `pulls`: reads are late.

    `home` maps an address to its die, for fences; without it all are on one.
    """

    channel: Callable[[int, str], Channel] | None
    pulls: bool = False
    home: Mapping[str, int] | None = None


def sc(pulls: bool = False) -> Order:
    """Every write is visible at once; with scalar reads this is sequential consistency."""
    return Order(None, pulls)


def relaxed(pulls: bool = False, home: Mapping[str, int] | None = None) -> Order:
    """Writes of one core to one address stay in order, all others do not, unless a fence stands between them."""
    return Order(lambda thread, addr: (thread, addr), pulls, home)


def fifo(home: Mapping[str, int], die: Sequence[int] | None = None, pulls: bool = False) -> Order:
    """Writes from one source die to one destination die stay in order.

    `home` maps an address to its die, `die[thread]` a thread to its own; without `die` each thread has its own.
    """
    return Order(lambda thread, addr: (die[thread] if die is not None else thread, home[addr]), pulls, home)


class Flight(NamedTuple):
    """A write in flight, or a fetch_add if `reg` (where its old value goes) is not None."""

    channel: Channel
    thread: int
    addr: str
    value: int
    reg: str | None
    fences: int
    """How many its thread had issued before it."""


class Pull(NamedTuple):
    """An asynchronous read that has been issued and has not sampled memory yet."""

    thread: int
    addr: str
    reg: str


class State(NamedTuple):
    """One state. `flight` is grouped by channel and in issue order within one, so equal states compare equal."""

    pcs: tuple[int, ...]
    values: Outcome
    flight: tuple[Flight, ...]
    pulls: tuple[Pull, ...]

    def value(self, key: str) -> int:
        """The value of an address, or of a register as "thread:register"."""
        return next(value for name, value in self.values if name == key)

    def put(self, key: str, value: int) -> "State":
        """The state with one address or register set."""
        return self._replace(values=frozenset(item for item in self.values if item[0] != key) | {(key, value)})


def outcomes(program: Program, order: Order) -> set[Outcome]:
    """All final outcomes of `program`: each a set of (name, value), names being "x" or "thread:register".

    Raises AssertionError if a state is neither final nor able to go on (the model would be wrong).
    """
    start = State((0,) * len(program), _zeros(program), (), ())
    seen, stack, final = {start}, [start], set[Outcome]()
    while stack:
        state = stack.pop()
        successors = set(_successors(program, order, state))
        if not successors:
            assert _is_final(program, state), f"stuck: {state}"
            final.add(state.values)
        stack.extend(successors - seen)
        seen |= successors
    return final


def reachable(program: Program, order: Order, asked: Mapping[str, int]) -> bool:
    """Whether some final outcome has every value that `asked` gives."""
    return any(asked.items() <= outcome for outcome in outcomes(program, order))


def _zeros(program: Program) -> Outcome:
    return frozenset((op[1], 0) for thread in program for op in thread if op[0] not in ("f", "s"))


def _is_final(program: Program, state: State) -> bool:
    done = all(pc == len(thread) for pc, thread in zip(state.pcs, program, strict=True))
    return done and not state.flight and not state.pulls


def _successors(program: Program, order: Order, state: State) -> Iterator[State]:
    for thread, pc in enumerate(state.pcs):
        if pc < len(program[thread]) and not _is_in_atomic(state, thread):
            issued = _issue(program[thread], order, state, thread)
            if issued is not None:
                yield issued._replace(pcs=(*state.pcs[:thread], pc + 1, *state.pcs[thread + 1 :]))
    for i, write in enumerate(state.flight):
        first = i == 0 or state.flight[i - 1].channel != write.channel
        if first and not any(_comes_first(order, other, write) for other in state.flight):
            yield _land(state._replace(flight=state.flight[:i] + state.flight[i + 1 :]), write)
    for i, pull in enumerate(state.pulls):
        if not any(pull[:2] == earlier[:2] for earlier in state.pulls[:i]):
            rest = state._replace(pulls=state.pulls[:i] + state.pulls[i + 1 :])
            yield rest.put(f"{pull.thread}:{pull.reg}", state.value(pull.addr))


def _comes_first(order: Order, one: Flight, other: Flight) -> bool:
    """Whether a fence of their thread stands between two writes to one die."""
    home = order.home
    return (
        one.thread == other.thread
        and one.fences < other.fences
        and (home is None or home[one.addr] == home[other.addr])
    )


def _is_in_atomic(state: State, thread: int) -> bool:
    return any(write.thread == thread and write.reg is not None for write in state.flight)


def _issue(ops: Sequence[Op], order: Order, state: State, thread: int) -> State | None:
    """The state after `thread` issued its next operation (its pc not yet moved), or None if it has to wait."""
    op = ops[state.pcs[thread]]
    if op[0] == "s":
        return state
    if op[0] == "f":
        busy = {write.thread for write in state.flight} | {pull.thread for pull in state.pulls}
        return None if thread in busy else state
    if op[0] == "r":
        return _issue_read(ops, order, state, thread, op)
    if any(pull[:2] == (thread, op[1]) for pull in state.pulls):
        return None
    reg, value = (None, op[2]) if op[0] == "w" else (op[2], op[3])
    if order.channel is None:
        return _land(state, Flight((0, 0), thread, op[1], value, reg, 0))
    fences = sum(prior[0] == "s" for prior in ops[: state.pcs[thread]])
    write = Flight(order.channel(thread, op[1]), thread, op[1], value, reg, fences)
    grouped = sorted((*state.flight, write), key=lambda item: tuple(map(str, item.channel)))
    return state._replace(flight=tuple(grouped))


def _issue_read(ops: Sequence[Op], order: Order, state: State, thread: int, op: Read) -> State:
    _, addr, reg = op
    earlier = ops[: state.pcs[thread]]
    if order.pulls and not any(prior[0] in ("w", "u") and prior[1] == addr for prior in earlier):
        pulls = sorted((*state.pulls, Pull(thread, addr, reg)), key=lambda pull: pull[:2])
        return state._replace(pulls=tuple(pulls))
    own = [write.value for write in state.flight if (write.thread, write.addr) == (thread, addr)]
    return state.put(f"{thread}:{reg}", own[-1] if own else state.value(addr))


def _land(state: State, write: Flight) -> State:
    """The state after `write` became visible at its home."""
    if write.reg is None:
        return state.put(write.addr, write.value)
    old = state.value(write.addr)
    return state.put(f"{write.thread}:{write.reg}", old).put(write.addr, old + write.value)
