"""Both orders of each two actions, in each state of small programs, held against the table of dependences."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from xccl_emu.check.device import dependence as table
from xccl_emu.guards.campaign.programs import Small, _registers, address_of
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REGISTERS, REQUEST, RESULT
from xccl_emu.machine import driver
from xccl_emu.machine.device import explore as device
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device import pipes
from xccl_emu.machine.device.actions import choices, nth_choice
from xccl_emu.machine.device.cache import address_of as line_of
from xccl_emu.machine.device.cache import written_back
from xccl_emu.machine.device.flight import block_of_core, block_of_die, flight
from xccl_emu.machine.device.policies import n_actors, nth_actor
from xccl_emu.machine.device.polls import condition_at, line_part, n_conditions, polls_line
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.device.touched import other_range, queued_on, ranges
from xccl_emu.machine.driver import begin
from xccl_emu.machine.explore import changing

WAITED = {"memory": table.POLL, "event": table.WAIT, "barrier": table.AWAIT, "visible": table.QUIET}
RELEASED = {"memory": table.WRITE, "event": table.SET, "barrier": table.ARRIVE, "visible": table.LEAVE}
"""The effects of a wait for what a row names, and of its release."""
PARALLEL = (rq.MTU_IN, rq.DMA)
"""Pipes of which several things may be possible at once."""


class Touch(NamedTuple):
    """An effect of an action, and on what."""

    effect: int
    core: int
    die: int
    space: object
    start: int
    end: int


def _range(touched: rq.Bytes, given: Mapping[str, int]) -> tuple[int, int]:
    """Return the first byte and the size of what a row says that it touches."""
    assert touched is not None
    address, size = touched
    return given[address], size if isinstance(size, int) else given[size]


class Taken(NamedTuple):
    """An action that is possible in a state, and what it leads to."""

    agent: object
    """Whoever takes it: of one, actions are in program order, or exclude each other."""
    state: object
    actor: int
    choice: int
    behind: object
    """Fingerprint of the state behind it; a text for an error."""


class Machine:
    """A pod on which one program after the other of the same shape is run, state by state."""

    def __init__(self, small: Small, order: str) -> None:
        self.pod = small.pod(order)
        for core in range(self.pod.spec.n_dies * small.cores_per_die):  # data buffers that hold something
            self.pod.memory[self._buffer(core)] = np.resize(np.array([1, -1, 7, 1 << 31], "<i8").view(np.uint8), 320)
        self.before = self.pod.state.copy(), self.pod.memory.copy()
        st = self.pod.state
        self.unit = max(8, 1 << int(st[ms.ATOMIC_SHIFT]))
        self.parts = self._without_results(changing(self.pod))
        self.space = (self.pod.memory, st, self.pod.memory.view(np.uint64), st.view(np.uint64))
        self.words = int(self.parts[:, 2].sum())
        self.row = np.zeros((1, self.words), np.uint64)
        self.cores = int(st[ms.N_CORES])
        self.bases = [int(block_of_core(st, core)) for core in range(self.cores)]
        pitch, die = small.pitch, self.pod.spec.die_bytes
        self.results = {
            self.pod.meta(0, 64 + pitch * k) + die * d for k in range(small.cores_per_die) for d in range(2)
        }

    def _buffer(self, core: int) -> slice:
        base = self.pod.spec.memory_bytes + core * self.pod.spec.ub_bytes
        return slice(base, base + self.pod.spec.ub_bytes)

    @staticmethod
    def _without_results(parts: np.ndarray) -> np.ndarray:
        """Not what a request returned: the kernel has gone on, and what it took of that is in its registers."""
        rows = []
        for kind, first, n in parts.tolist():
            if kind == device.PLAIN and n == ms.PIPES:
                rows += [(kind, first, RESULT), (kind, first + RESULT + 1, n - RESULT - 1)]
            else:
                rows.append((kind, first, n))
        return np.array(rows, np.int64)

    def begin(self, small: Small, memory: dict[int, int]) -> object:
        """The first state of a program of this shape."""
        st = self.pod.state
        st[:], self.pod.memory[:] = self.before
        for core, one in zip(self.pod.active_cores(), small.programs, strict=True):
            words = _registers(one)
            base = self.pod.core_base(core) + REGISTERS
            st[base : base + len(words)] = words
        for word, value in memory.items():
            address = address_of(self.pod, word)
            self.pod.memory[address : address + 8].view(np.int64)[0] = value
        begin(self.pod)
        self.order = int(table.order_of(st))
        self.rows: dict[object, bytes] = {}
        self.known: dict[object, dict[object, Taken]] = {}
        return self._keep()

    def _keep(self) -> object:
        device.save(self.space, self.parts, self.row, 0)
        state = device.fingerprint(self.space, self.parts)
        if state not in self.rows:
            self.rows[state] = self.row.tobytes()
        return state

    def put(self, state: object) -> None:
        """Let the pod be in a state."""
        self.row[0] = np.frombuffer(self.rows[state], np.uint64)
        device.restore(self.space, self.parts, self.row, 0)

    def actions(self, state: object) -> dict[object, Taken]:
        """All that is possible in a state, by names that hold in other states, too."""
        if state in self.known:
            return self.known[state]
        self.put(state)
        st, mem, found = self.pod.state, self.pod.memory, {}
        for a in range(n_actors(st)):
            actor = nth_actor(st, a)
            for k in range(choices(st, actor)):
                choice = nth_choice(st, actor, k)
                name = self._name(actor, choice)
                if name is not None and (act_once(mem, st, actor, choice) or st[ms.ERROR]):
                    behind = f"error {st[ms.ERROR]}" if st[ms.ERROR] else self._keep()
                    found.setdefault(name, Taken(self._agent(actor, name), state, actor, choice, behind))
                    self.put(state)
        self.known[state] = found
        return found

    def _agent(self, actor: int, name: tuple[object, ...]) -> object:
        many = actor >= self.cores * ms.ACTORS_PER_CORE or actor % ms.ACTORS_PER_CORE in PARALLEL
        return name if many or "evict" in name else actor

    def _name(self, actor: int, choice: int) -> Any:
        """What an action is called in every state, by what is there; None if it only stores a result."""
        st, core, pipe = self.pod.state, actor // ms.ACTORS_PER_CORE, actor % ms.ACTORS_PER_CORE
        if core >= self.cores:
            e = int(flight(st, block_of_die(st, actor - self.cores * ms.ACTORS_PER_CORE), choice))
            fences = e + ms.FLIGHT_FENCES
            return actor, st[e:fences].tobytes(), st[fences + 1 : e + int(st[ms.FLIGHT_WORDS])].tobytes()
        base = self.bases[core]
        if pipe == rq.MTU_IN:
            entry = int(pipes.entry_of(st, pipes.pipe_of(base, pipe), choice & 15))
            return actor, st[entry : entry + 4].tobytes(), choice >> 4
        if choice >= ms.CHOICE_EVICT and pipe == rq.SCALAR:
            back = int(written_back(st, core, base, choice))
            return (actor, "evict", int(line_of(st, core, back))) if back >= 0 else None
        return None if pipe == rq.SCALAR and st[base + REQUEST + 1] in self.results else (actor, choice)

    def touches(self, taken: Taken) -> tuple[str, tuple[Touch, ...]]:
        """Words for an action, and its effects."""
        self.put(taken.state)
        what, touches = self._look(taken.actor, taken.choice)
        return what, tuple(touches)

    def word(self, state: object, address: int) -> int:
        """A word of memory in a state."""
        self.put(state)
        return int(self.pod.memory[address & ~7 : (address & ~7) + 8].view(np.int64)[0])

    # ---- what an action does

    def _look(self, actor: int, choice: int) -> Any:
        """Words for an action, and its effects."""
        st, core, pipe = self.pod.state, actor // ms.ACTORS_PER_CORE, actor % ms.ACTORS_PER_CORE
        if core >= self.cores:
            return self._delivery(actor - self.cores * ms.ACTORS_PER_CORE, choice)
        base = self.bases[core]
        self.core, self.die = core, int(st[base + ms.DIE])
        if pipe == rq.SCALAR:
            return self._scalar(base, choice)
        if pipe == rq.DMA:
            return self._dma(base, choice)
        return self._piped(base, pipe, choice)

    def _on(self, effect: int, start: int, nbytes: int) -> Touch:
        return Touch(effect, self.core, self.die, "bytes", int(start), int(start) + int(nbytes))

    def _of(self, effect: int, space: object = None, number: int = 0) -> Touch:
        return Touch(effect, self.core, self.die, space, number, number + 1)

    def _queue(self, effect: int, pipe: int) -> Touch:
        return self._of(effect, ("queue", self.core, pipe))

    def _event(self, effect: int, source: int, target: int, event: int) -> Touch:
        return self._of(effect, ("event", self.core, int(source), int(target)), int(event))

    def _written(self, effect: int, off: int, address: int, nbytes: int) -> list[Touch]:
        """A write: it takes off, and under `sc` it is visible."""
        visible = [self._on(effect, address, nbytes)] if self.order == 0 else []
        return [self._on(off, address, nbytes), *visible]

    def _delivery(self, die: int, k: int) -> Any:
        st = self.pod.state
        e = int(flight(st, block_of_die(st, die), k))
        self.core, self.die, kind = int(st[e + ms.FLIGHT_CORE]), die, int(st[e + ms.FLIGHT_KIND])
        address, nbytes = st[e + ms.FLIGHT_ADDRESS], st[e + ms.FLIGHT_NBYTES]
        effect = {ms.KIND_ADD: table.ADD, ms.KIND_ADD_ROW: table.ADD_ROW}.get(kind, table.WRITE)
        touches = [self._on(effect, address, nbytes), self._on(table.LEAVE, address, nbytes)]
        if kind >= ms.KIND_DMA:
            slot = block_of_core(st, self.core) + ms.DMA_SLOTS + (kind - ms.KIND_DMA) * ms.ENTRY_WORDS
            if st[slot + ms.ENTRY_PROGRESS] == -1 and st[slot + ms.ENTRY_IN_FLIGHT] == 1:
                touches += [self._of(table.FINISH), self._event(table.SET, rq.DMA, rq.SCALAR, st[slot + 4])]
        return f"deliver {kind} of {self.core} to {address}+{nbytes}", touches

    def _scalar(self, base: int, choice: int) -> Any:
        st = self.pod.state
        r = [int(x) for x in st[base + REQUEST : base + REQUEST + 13]]
        op, back = r[0], -1
        if st[ms.CACHE_LINES]:
            back = int(written_back(st, self.core, base, choice))
        touches: list[Touch] = []
        if back >= 0:
            address = int(line_of(st, self.core, back))
            touches = self._written(table.WRITE, table.STORE_OFF, address, ms.CACHE_LINE_BYTES)
            touches.append(self._of(table.CACHED))
            if choice >= ms.CHOICE_EVICT:
                return "evict", touches
        return rq.OPERATIONS[op], touches + self._request(base, r, choice)

    def _request(self, base: int, r: list[int], choice: int) -> list[Touch]:
        st, op = self.pod.state, r[0]
        row, pipe = rq.TABLE[op], rq.DMA if op == rq.OP_DMA else int(queued_on(op, r[1], r[2]))
        if pipe != rq.SCALAR:
            held = [self._on(table.HOLD, r[1], r[3])] if op == rq.OP_MTU_IN and r[4] else []
            rung = [self._of(table.RING)] if op == rq.OP_DMA else []
            return [*rung, self._queue(table.ISSUE, pipe), *held]
        by_hand = {
            # how it compares, and a line that it reads in parts and leaves in the data buffer, are not in the row
            rq.OP_POLL: lambda: self._poll(base, r, choice),
            # a row has one address, and this has several
            rq.OP_POLL_ANY: lambda: [
                self._on(table.POLL, st[condition_at(base, k)], 8) for k in range(n_conditions(st, base)) if k == choice
            ],
            # it looks at what was read tentatively, not at the bytes
            rq.OP_VALIDATE: lambda: [self._of(table.VALIDATE)],
            # it touches what the cache holds, if anything
            rq.OP_DCCI: lambda: [self._of(table.CACHED)],
        }
        if st[ms.CACHE_LINES] and ops.CACHED >> op & 1:
            anew = [self._on(table.POLL, r[1] & -64, 64)] if row.reads and choice == ms.CHOICE_ANEW else []
            return [self._on(table.READ, r[1] & -64, 64), self._of(table.CACHED), *anew]
        return by_hand[op]() if op in by_hand else self._of_row(base, row, r)

    def _of_row(self, base: int, row: rq.Operation, r: list[int]) -> list[Touch]:
        """Effects of what the scalar unit does by itself, as its row says."""
        st, given = self.pod.state, dict(zip(row.operands.split(), r[1:], strict=False))
        ub, group = int(st[base + ms.UB_BASE]), ("group", int(st[base + ms.GROUP]))
        touches = []
        if row.reads:
            effect = table.FETCH if row.writes else table.READ
            touches.append(self._on(effect, *_range(row.reads, given)))
        elif row.writes:
            touches += self._written(table.WRITE, table.STORE_OFF, *_range(row.writes, given))
        for effect, buffer in ((table.READ, row.takes), (table.WRITE, row.fills)):
            if buffer:
                start, nbytes = _range(buffer, given)
                touches.append(self._on(effect, ub + start, nbytes))
        for hinge, effects in ((row.waits, WAITED), (row.releases, RELEASED)):
            if hinge == "event":
                touches.append(self._event(effects[hinge], *r[1:4]))
            elif hinge:
                touches.append(self._of(effects[hinge], group if hinge == "barrier" else None))
        return touches

    def _poll(self, base: int, r: list[int], choice: int) -> list[Touch]:
        st = self.pod.state
        if polls_line(st, base):
            first, nbytes = line_part(st, base, choice)
            return [
                self._on(table.POLL, r[1] + first, nbytes),
                self._on(table.WRITE, st[base + ms.UB_BASE] + r[6] + first, nbytes),
            ]
        return [self._on(table.POLL_GE if r[2] == rq.CMP_GE and r[5] == -1 else table.POLL, r[1], r[4])]

    def _dma(self, base: int, choice: int) -> Any:
        st, slot = self.pod.state, base + ms.DMA_SLOTS + (choice & 15) * ms.ENTRY_WORDS
        source, target, nbytes = (int(x) for x in st[slot + 1 : slot + 4])
        start, end = pipes.subtransfer(st, source, target, nbytes, choice >> 4)
        touches = [self._queue(table.STEP, rq.DMA), self._on(table.READ, source + start, end - start)]
        touches += self._written(table.WRITE, table.DMA_OFF, target + start, end - start)
        left = int(pipes.n_subtransfers(st, source, target, nbytes)) - int(st[slot + ms.ENTRY_PROGRESS]).bit_count()
        if self.order == 0 and left == 1:
            touches += [self._of(table.FINISH), self._event(table.SET, rq.DMA, rq.SCALAR, st[slot + 4])]
        return "dma", touches

    def _piped(self, base: int, pipe: int, choice: int) -> Any:
        st, queue = self.pod.state, pipes.pipe_of(base, pipe)
        j = choice & 15 if pipe == rq.MTU_IN else 0
        e = int(pipes.entry_of(st, queue, j))
        r = [int(x) for x in st[e : e + ms.ENTRY_WORDS]]
        op, ub, touches = r[0], int(st[base + ms.UB_BASE]), [self._queue(table.STEP, pipe)]
        if ops.FLAGS >> op & 1:
            touches += self._of_row(base, rq.TABLE[op], r)
            touches += self._opened(queue) if pipe == rq.MTU_IN else []
        elif op == rq.OP_MTU_IN:
            start, end = pipes.subtransfer(st, r[1], r[1], r[3], choice >> 4)
            touches += [
                self._on(table.READ, r[1] + start, end - start),
                self._on(table.WRITE, ub + r[2] + start, end - start),
            ]
            touches += [self._on(table.HOLD, r[1], r[3])] if r[4] else []
        elif op == rq.OP_FENCE:
            touches.append(self._of(table.FENCE))
        elif pipe == rq.MTU_OUT:
            touches += self._out(base, e, r)
        else:
            source, read, target, written = ranges(st, e, op)
            other, more = other_range(st, e, op)
            touches += [self._on(table.READ, ub + x, n) for x, n in ((source, read), (other, more)) if n]
            touches.append(self._on(table.WRITE, ub + target, written))
        return f"{rq.OPERATIONS[op]} by {pipe}", touches

    def _opened(self, queue: int) -> list[Touch]:
        """Tentative transfers behind a flag at the head of a queue."""
        st, touches = self.pod.state, []
        for j in range(int(st[queue + ms.PIPE_COUNT])):
            e = int(pipes.entry_of(st, queue, j))
            if st[e] == rq.OP_MTU_IN and st[e + 4]:
                touches.append(self._on(table.HOLD, st[e + 1], st[e + 3]))
        return touches

    def _out(self, base: int, e: int, r: list[int]) -> list[Touch]:
        st, row, done, unit = self.pod.state, rq.TABLE[r[0]], r[8], 1 << int(self.pod.state[ms.ATOMIC_SHIFT])
        target, nbytes = _range(row.writes, dict(zip(row.operands.split(), r[1:], strict=False)))
        if row.adds and not row.takes:  # a word, at once
            return self._written(table.ADD, table.OUT_OFF, target, nbytes)
        if pipes.signals_next(st, e):
            return self._written(table.ADD if r[6] == rq.SIGNAL_ADD else table.WRITE, table.OUT_OFF, r[4], 8)
        size = min(unit - (target + done) % unit, nbytes - done)
        read = [self._on(table.READ, st[base + ms.UB_BASE] + r[1] + done, size)] if row.takes else []
        effect = table.ADD_ROW if row.adds else table.WRITE
        return read + self._written(effect, table.OUT_OFF, target + done, size)

    # ---- two actions

    def near(self, a: Touch, b: Touch) -> int:
        """How near two effects are."""
        near = table.CORE | table.DIE if a.core == b.core else table.DIE if a.die == b.die else 0
        if a.space is None or a.space != b.space:
            return near
        if a.space != "bytes":
            return near | (table.BYTES if a.start == b.start else 0)
        end, unit = self.pod.spec.memory_bytes, self.unit
        if a.start < b.end and b.start < a.end:
            return near | table.BYTES
        if a.start // unit <= (b.end - 1) // unit and b.start // unit <= (a.end - 1) // unit:
            near |= table.UNIT | table.HOME
        if max(a.start, b.start) < end and a.start // self.pod.spec.die_bytes == b.start // self.pod.spec.die_bytes:
            near |= table.HOME
        return near


@dataclass
class Result:
    """What both orders of many pairs have shown."""

    pairs: int = 0
    states: int = 0
    programs: int = 0
    unsaid: dict[tuple[str, str], str] = field(default_factory=dict)
    """Differences that no row has, by the actions, and one program of each."""
    shown: Counter[tuple[int, int, int, int, int]] = field(default_factory=Counter)
    """Row, effects, order and what came of it: differences that this row alone has."""
    with_others: Counter[tuple[int, int, int, int, int]] = field(default_factory=Counter)
    """Likewise, which other rows have as well."""


HOW = {table.DIFFER: "differ", table.PREVENT: "one prevents the other", table.ENABLE: "enabled"}


@cache
def rows_of(one: int, other: int, order: int, asked: int) -> tuple[tuple[int, bool, int, bool], ...]:
    """Rows of two effects: number, whether they are in this order, how near they must be, and whether at a bound."""
    found = []
    for n, row in enumerate(table.TABLE):
        bound = not row.how & asked
        if not row.orders >> order & 1 or (bound and not row.how & table.BOUND):
            continue
        straight = row.one >> one & row.other >> other & 1 == 1
        crossed = row.one >> other & row.other >> one & 1 == 1 and asked != table.ENABLE
        if straight or crossed:
            found.append((n, straight, row.near, bound))
    return tuple(found)


class Judge:
    """Runs both orders of each two actions, and compares with the table."""

    def __init__(self) -> None:
        self.result = Result()

    def run(self, machine: Machine, small: Small, memory: dict[int, int], most: int = 400) -> None:
        """Judge all states of a program, or so many."""
        with np.errstate(over="ignore"), driver.arithmetic_of(machine.pod.kernels):
            self.machine, self.small = machine, small
            todo = [machine.begin(small, memory)]
            seen = set(todo)
            while todo and len(seen) < most:
                state = todo.pop()
                self._state(state)
                for taken in reversed(machine.actions(state).values()):  # a scalar unit goes on first
                    if not isinstance(taken.behind, str) and taken.behind not in seen:
                        seen.add(taken.behind)
                        todo.append(taken.behind)
            self.result.states += len(seen)
            self.result.programs += 1

    def _state(self, state: object) -> None:
        possible = self.machine.actions(state)
        items = list(possible.items())
        for i, (name, one) in enumerate(items):
            for other_name, other in items[:i]:
                if one.agent != other.agent:
                    self._pair(state, name, one, other_name, other)
            if not isinstance(one.behind, str):
                for other_name, other in self.machine.actions(one.behind).items():
                    if other_name not in possible and other.agent != one.agent:
                        self._note(state, other, one, table.ENABLE)

    def _pair(self, state: object, a: object, one: Taken, b: object, other: Taken) -> None:
        self.result.pairs += 1
        errors = [isinstance(each.behind, str) for each in (one, other)]
        ab = None if errors[0] else self.machine.actions(one.behind).get(b)
        ba = None if errors[1] else self.machine.actions(other.behind).get(a)
        if all(errors):
            return
        if any(errors):  # then the other does not change that
            wrong, later = (one, ba) if errors[0] else (other, ab)
            self._note(state, one, other, 0 if later and later.behind == wrong.behind else table.PREVENT)
        elif ab is None or ba is None or isinstance(ab.behind, str) or isinstance(ba.behind, str):
            self._note(state, one, other, table.PREVENT)
        else:
            self._note(state, one, other, 0 if ab.behind == ba.behind else table.DIFFER)

    def _note(self, state: object, one: Taken, other: Taken, how: int) -> None:
        """Note that something came of two actions, and which rows have it."""
        if not how:
            return
        (what, touches), (other_what, others) = self.machine.touches(one), self.machine.touches(other)
        rows, bounds = self._rows(state, one, other, touches, others, how)
        if not rows and not bounds:
            text = f"{what} | {other_what}: {HOW[how]} ({self.machine.order})\n{touches}\n{others}\n{self.small}"
            self.result.unsaid.setdefault((what, other_what), text)
        if not rows:
            rows = bounds
        of = self.result.shown if len({key[0] for key in rows}) == 1 else self.result.with_others
        of.update(rows)

    def _rows(self, state: object, one: Taken, other: Taken, touches: Any, others: Any, how: int) -> Any:
        """Rows that say so, and those that say so at a bound alone, each with the effects and the order."""
        asked = table.ENABLE if how == table.ENABLE else table.DIFFER | table.PREVENT
        rows, bounds = [], []
        for x in touches:
            for y in others:
                near = self.machine.near(x, y)
                if table.POLL_GE in (x.effect, y.effect) and near & table.SAME and how == table.PREVENT:
                    near |= self._falls(state, x if x.effect == table.POLL_GE else y, one, other)
                for n, straight, near_least, bound in rows_of(x.effect, y.effect, self.machine.order, asked):
                    if not near_least & ~near:
                        pair = (x.effect, y.effect) if straight else (y.effect, x.effect)
                        (bounds if bound else rows).append((n, *pair, self.machine.order, asked))
        return rows, bounds

    def _falls(self, state: object, poll: Touch, one: Taken, other: Taken) -> int:
        write = other if poll in self.machine.touches(one)[1] else one
        before, after = (self.machine.word(s, poll.start) for s in (state, write.behind))
        return table.FALLS if after < before else 0
