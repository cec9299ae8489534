"""Replays a schedule one action at a time and reads off the machine's state what each of them did."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from xccl_emu.base.errors import CapacityError, ReplayError
from xccl_emu.check.device import accesses as rows
from xccl_emu.check.device.fault_codes import AGAIN, CORRUPT, DUPLICATE, REVIVE
from xccl_emu.check.faults import decode, is_fault, words
from xccl_emu.check.messages import core_name, words_of_sites
from xccl_emu.check.trial import Trial
from xccl_emu.check.witness import format, trace
from xccl_emu.check.witness.format import number
from xccl_emu.check.witness.replayer import Replayer
from xccl_emu.check.witness.writes import COPIES_TO_MEMORY, Writes, joined
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import LONGEST_REQUEST_WORDS, REQUEST, REQUEST_WORDS
from xccl_emu.machine import report
from xccl_emu.machine.device import cache
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.flight import DMA_READ_DONE, read_word, switched_off
from xccl_emu.machine.device.pipes import entry_of, n_subtransfers, pipe_of, signals_next
from xccl_emu.machine.device.polls import can_be_polled, n_conditions
from xccl_emu.machine.device.scalar import which_holds
from xccl_emu.machine.device.touched import read_by
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.stats import PIPE_NAMES

_READ_DONE = -1  # progress of a transfer that is read
_FURTHER_ACTIONS = 2000
"""How far blocked cores are followed to see what they would write next."""

_Asked = Mapping[int, tuple[int, list[int], int]]
"""Operation, operands and site of the request of each blocked core."""


@dataclass(frozen=True)
class _Instruction:
    """What a core has queued on a pipe, or rung."""

    number: int
    """Number of the step that did it."""
    op: int
    words: format.Formatted
    site: int


@dataclass
class _Queued:
    """What is queued on a core, in addition to the machine's own queues."""

    pipes: dict[int, list[_Instruction]] = field(
        default_factory=lambda: {pipe: [] for pipe in (rq.MTU_IN, rq.VECTOR, rq.MTU_OUT)}
    )
    descriptors: dict[int, _Instruction] = field(default_factory=dict)


class Stepper:
    """A launched pod, advanced action by action; it is used up by `run`."""

    def __init__(self, pod: Pod) -> None:
        self._pod, self._st, self._mem = pod, pod.state, pod.memory
        self._replayer = Replayer(pod)
        self._writes = Writes(pod)
        self._named = words_of_sites(pod)
        self._rows = np.zeros((rows.ACCESSES_MAX, rows.ACCESS_WORDS), np.int64)
        self._queued = {core: _Queued() for core in pod.active_cores()}
        self._number = 0
        self._copied: trace.Write | None = None
        """The write whose copy is still to become visible."""

    def run(self, actions: Sequence[int]) -> trace.RunTrace:
        """Take the actions, where the last may be a violation; ReplayError for one that is not enabled."""
        return self._trace(tuple(self._step(code) for code in actions))

    def draw(self, late: bool, tries: int) -> trace.RunTrace:
        """Let all go on in turn, until nobody can or that number of actions has been tried.

        Writes become visible when each has had its turn, or ``late``: when no core can go on without that.
        """
        taken, moved = list[trace.TraceStep](), True
        first_die = self._pod.spec.n_cores * ms.ACTORS_PER_CORE
        while moved and self._number < tries:
            before = len(taken)
            taken += filter(None, (self._tried(actor) for core in self._queued for actor in self._actors(core)))
            if not late or len(taken) == before:
                taken += filter(None, (self._tried(first_die + die) for die, of in self._writes.flying.items() if of))
            moved = len(taken) > before
        return self._trace(tuple(taken))

    def _trace(self, taken: tuple[trace.TraceStep, ...]) -> trace.RunTrace:
        spec, end, writes = self._pod.spec, self._replayer.end(), tuple(replace(each) for each in self._writes.all)
        waiting = self._waiting() if end == "deadlock" else ()
        return trace.RunTrace(
            taken, writes, end, spec.die_bytes, spec.n_dies, spec.n_homes, spec.cores_per_die, waiting
        )

    def _waiting(self) -> tuple[trace.Waiting, ...]:
        """The blocked cores, what each waits for, and the line about it in the report of the deadlock."""
        blocked = report.running(self._pod)
        lines = str(report.deadlock(self._pod)).splitlines()[1:]
        found = [self._blocked(core, line.strip()) for core, line in zip(blocked, lines, strict=True)]
        asked = {core: self._request(core) for core in blocked}
        writers = self._writers({core: self._polled(core, *asked[core][:2]) for core in blocked})
        return tuple(replace(one, on=self._ends(one.step.core, asked, writers)) for one in found)

    def _blocked(self, core: int, why: str) -> trace.Waiting:
        op, operands, site = self._request(core)
        words = format.formatted(self._pod, int(self._st[self._pod.core_base(core) + ms.UB_BASE]), op, operands)
        step = trace.TraceStep(
            0, 0, core, core_name(self._pod, core), PIPE_NAMES[rq.SCALAR], rq.OPERATIONS[op], words.action,
            source_of(self._pod, core, site), words.address, words.nbytes, words.place,
            self._seen(core, op, operands, words, ms.CHOICE_ALL) if op == rq.OP_POLL else "", blocked=True,
        )  # fmt: skip
        return trace.Waiting(step, why, ())

    def _ends(self, core: int, asked: _Asked, writers: Mapping[int, set[int]]) -> tuple[int, ...]:
        """Blocked cores that a core waits for."""
        if asked[core][0] == rq.OP_AWAIT_GROUP:
            to_come = (n for n in asked if asked[n][0] != rq.OP_AWAIT_GROUP)
            return tuple(n for n in to_come if self._pod.launch_of(n) is self._pod.launch_of(core))
        return tuple(n for n in asked if n in writers[core])

    def _polled(self, core: int, op: int, operands: Sequence[int]) -> list[int]:
        """Addresses of the words that a core polls."""
        n = {rq.OP_POLL: 1, rq.OP_POLL_ANY: n_conditions(self._st, self._pod.core_base(core))}.get(op, 0)
        return [int(address) for address in operands[: 3 * n : 3]]

    def _writers(self, polled: Mapping[int, Sequence[int]]) -> dict[int, set[int]]:
        """Other cores that wrote what a core polls last, or are blocked and would write it if nothing held them up."""
        landed = sorted((write for write in self._writes.all if write.visible), key=lambda write: write.visible)
        further = self._further([*polled]) if any(polled.values()) else []
        cores = {core: set[int]() for core in polled}
        for core, address in ((core, address) for core, ats in polled.items() for address in ats):
            wrote = [[w.by.core for w in ws if w.covers(address) and w.by.core != core] for ws in (landed, further)]
            cores[core] |= {*wrote[0][-1:], *wrote[1]}
        return cores

    def _further(self, blocked: Sequence[int]) -> list[trace.Write]:
        """Return what blocked cores write if one of them, each in its turn, waits for nothing; spoils the pod."""
        switches = int(self._st[ms.SWITCH_BASE])
        self._st[switches : switches + len(self._pod.kernels) * ms.MAX_SITES] &= ~ms.SITE_OFF
        try:
            before = self._pod.snapshot()
        except CapacityError:
            return []
        found = list[trace.Write]()
        for core in blocked:
            self._pod.restore(before)
            other = copy.copy(self)
            other._queued, other._writes = copy.deepcopy(self._queued), self._writes.again()
            found += other._followed(core, blocked, _FURTHER_ACTIONS // len(blocked))
        return found

    def _followed(self, core: int, blocked: Sequence[int], actions: int) -> list[trace.Write]:
        """Return what blocked cores write within some actions if what one of them waits at is switched off."""
        dies = [self._pod.spec.n_cores * ms.ACTORS_PER_CORE + die for die in self._writes.flying]
        end = self._number + actions
        while self._number < end and self._let_go(core):
            while any([self._goes_far(actor, end) for one in blocked for actor in self._actors(one)]
                      + [self._goes_far(die, end) for die in dies]):  # fmt: skip
                pass
        return self._writes.all

    def _goes_far(self, actor: int, end: int) -> bool:
        """Return True if an actor has taken actions, as many as it can."""
        before = taken = self._number
        while self._number < end and self._goes_on(actor):
            taken = self._number
        return taken > before

    def _actors(self, core: int) -> list[int]:
        """The scalar unit of a core that runs, and its pipes that have something to do."""
        queued = self._queued[core]
        busy = [rq.SCALAR] if self._st[self._pod.core_base(core) + ms.STATUS] == ms.STATUS_RUNNING else []
        busy += [pipe for pipe, known in queued.pipes.items() if known] + [rq.DMA][: len(queued.descriptors)]
        return [core * ms.ACTORS_PER_CORE + pipe for pipe in busy]

    def _goes_on(self, actor: int) -> bool:
        """Return True if an actor has taken its next action, and nothing was wrong with it."""
        return (step := self._tried(actor)) is not None and not step.failed

    def _tried(self, actor: int) -> trace.TraceStep | None:
        """Take the next action of an actor and return the step; None if it cannot go on."""
        try:
            return self._step(actor << ms.CHOICE_BITS | ms.CHOICE_ALL)
        except ReplayError:
            return None

    def _let_go(self, core: int) -> bool:
        """Switch off what a core waits at; False where that is nothing to wait at, or all is over."""
        op, _, site = self._request(core)
        if not ops.WAITS >> op & 1 or site == ms.AT_END or self._st[ms.ERROR]:
            return False
        kernel = int(self._st[self._pod.core_base(core) + ms.KERNEL])
        self._st[self._st[ms.SWITCH_BASE] + kernel * ms.MAX_SITES + site] |= ms.SITE_OFF
        return True

    def _request(self, core: int) -> tuple[int, list[int], int]:
        """Operation, operands and site of the request that a core has come to."""
        base = self._pod.core_base(core)
        op, *operands, site = (int(word) for word in self._st[base + REQUEST :][:REQUEST_WORDS])
        if op == rq.OP_POLL_ANY:
            operands += self._st[base + REQUEST + REQUEST_WORDS : base + REQUEST + LONGEST_REQUEST_WORDS].tolist()
        return op, operands, ms.AT_END if op == rq.OP_RETURN else site

    def _step(self, code: int) -> trace.TraceStep:
        self._number += 1
        if code < 0:
            return self._fault(code)
        actor, choice = code >> ms.CHOICE_BITS, code & ms.CHOICE_ALL
        core, pipe = divmod(actor, ms.ACTORS_PER_CORE)
        if core >= self._pod.spec.n_cores:
            return self._perform(code, actor - self._pod.spec.n_cores * ms.ACTORS_PER_CORE, choice)
        if core not in self._queued:
            raise self._not_enabled()
        if pipe == rq.SCALAR:
            return self._scalar(code, core, choice)
        return self._dma(code, core, choice) if pipe == rq.DMA else self._pipe(code, core, pipe, choice)

    # ---- a core's scalar unit

    def _scalar(self, code: int, core: int, choice: int) -> trace.TraceStep:
        """The core's request is granted, or queued on a pipe; of a line, a part is read."""
        base = self._pod.core_base(core)
        op, operands, site = self._request(core)
        cached, evicts = self._pod.spec.scalar_cache > 0, ms.CHOICE_EVICT <= choice < ms.CHOICE_ALL
        line = int(cache.written_back(self._st, core, base, choice)) if cached else -1
        if (line >= 0 and op != rq.OP_DCCI) or evicts:
            step = self._writes_back(code, core, line, "evict" if evicts else "write back")
            return self._with_writes(self._take(step))
        out = int(cache.crowded_out(self._st, core, base, choice)) if cached else -1
        room = self._writes_back(code, core, out, "write back") if out >= 0 else None
        off = bool(switched_off(self._st, base))
        words = format.formatted(self._pod, int(self._st[base + ms.UB_BASE]), op, operands)
        step = self._begin(code, core, _Instruction(self._number, op, words, site), choice)
        step = replace(step, value=self._seen(core, op, operands, words, choice), switched_off=off)
        step = self._take(step)
        if room is not None and not step.failed:
            step = replace(step, room=self._with_writes(room))
        if off and not ops.LOADS >> op & 1:
            return step
        if self._note_queued(core, base, _Instruction(self._number, op, words, site)):
            return replace(step, issues=True, accesses=())
        return self._with_writes(step)

    def _writes_back(self, code: int, core: int, line: int, how: str) -> trace.TraceStep:
        """A line of the cache is about to be written back: evicted, by a return, or to make room for another one; the
        step is blamed on what changed it."""
        if line < 0:
            raise self._not_enabled()
        place, address = int(cache.place_of(self._st, core, line)), int(cache.address_of(self._st, core, line))
        data = self._st[place + ms.CACHED_DATA : place + ms.CACHED_WORDS].tobytes()
        site = self._st[place + ms.CACHED_DIRTY] - 1
        words = format.Formatted(how, address, len(data), report.symbolic(self._pod, address), format.some_bytes(data))
        step = self._begin(code, core, _Instruction(self._number, rq.OP_DCCI, words, int(site)), ms.CHOICE_EVICT)
        return replace(step, accesses=(trace.TracedAccess(address, len(data), True, False),))

    def _seen(self, core: int, op: int, operands: Sequence[int], words: format.Formatted, choice: int) -> str:
        """The value that a request of the scalar unit is about to read, or to write."""
        a, base = operands[0], self._pod.core_base(core)
        if op == rq.OP_CHOOSE:
            return f"answer {0 if choice == ms.CHOICE_ALL else choice}"
        if op == rq.OP_POLL_ANY and can_be_polled(self._st, base, self._mem.size):
            return f"condition {which_holds(self._mem, self._st, core, base, choice)} holds"
        if op == rq.OP_POLL and words.nbytes > 8 and 0 <= a <= self._mem.size - words.nbytes:
            return f"saw {format.some_bytes(self._mem[a : a + words.nbytes].tobytes())}"
        if op == rq.OP_LOAD_LINE and 0 <= a <= self._mem.size - words.nbytes:
            seen = [int(read_word(self._mem, self._st, core, base, a + at, 8)) for at in (0, 8)]
            return f"saw {format.some_bytes(np.array(seen, np.int64).tobytes())}"
        if op == rq.OP_LOAD and self._pod.spec.scalar_cache and words.nbytes <= 8 and 0 <= a <= self._mem.size - 8:
            value = number(int(cache.value_seen(self._mem, self._st, core, a, words.nbytes, choice)))
            return f"saw {value}" + (" in its cache" if cache.is_hit(self._st, core, a, choice) else "")
        # What is not inside is a violation.
        if (ops.WORDS & ops.READS) >> op & 1 and words.nbytes <= 8 and 0 <= a <= self._mem.size - 8:
            value = number(int(read_word(self._mem, self._st, core, base, a, words.nbytes)))
            return f"was {value}" if ops.ATOMICS >> op & 1 else f"saw {value}"
        if ops.BUFFER_READS >> op & 1 and words.address is not None:
            data = self._mem[words.address : words.address + words.nbytes].tobytes()
            return f"saw {number(int.from_bytes(data, 'little', signed=True))}"
        return words.value

    def _note_queued(self, core: int, base: int, instruction: _Instruction) -> bool:
        """Return whether the machine's queues, or descriptors, have grown by the instruction."""
        queued = self._queued[core]
        for pipe, known in queued.pipes.items():
            if self._st[pipe_of(base, pipe) + ms.PIPE_COUNT] > len(known):
                known.append(instruction)
                return True
        for k in range(ms.N_DMA_SLOTS):
            if self._st[_descriptor(base, k)] and k not in queued.descriptors:
                queued.descriptors[k] = instruction
                return True
        return False

    # ---- its other pipes

    def _pipe(self, code: int, core: int, pipe: int, choice: int) -> trace.TraceStep:
        """mtu-in, vector or mtu-out carries out an instruction of its queue, or a part of one."""
        queue, known = int(pipe_of(self._pod.core_base(core), pipe)), self._queued[core].pipes[pipe]
        j = choice & 15 if pipe == rq.MTU_IN and choice != ms.CHOICE_ALL else 0
        if j >= len(known):
            raise self._not_enabled()
        step = self._begin(code, core, self._signal(queue, known[j]), choice)
        if known[j].op == rq.OP_MTU_IN:
            step = self._reading(step, int(entry_of(self._st, queue, j)), choice)
        step = self._with_writes(self._take(step))
        del known[: len(known) - int(self._st[queue + ms.PIPE_COUNT])]
        return step

    def _signal(self, queue: int, instruction: _Instruction) -> _Instruction:
        """Return the signal of a `put_signal` whose signal is next; else the instruction itself."""
        entry = int(entry_of(self._st, queue, 0))
        if not signals_next(self._st, entry):
            return instruction
        address, value = (int(self._st[entry + place]) for place in (ops.PUT_SIGNAL.signal, ops.PUT_SIGNAL.value))
        adds = self._st[entry + ops.PUT_SIGNAL.how] == rq.SIGNAL_ADD
        words = format.Formatted(
            "signal, adds" if adds else "signal", address, 8, report.symbolic(self._pod, address), number(value)
        )
        return replace(instruction, op=rq.OP_ADD if adds else rq.OP_PUT, words=words)

    def _reading(self, step: trace.TraceStep, entry: int, choice: int) -> trace.TraceStep:
        """An mtu-in transfer: which of its sub-transfers, from where, and their first bytes."""
        source, nbytes = map(int, read_by(self._st, entry, rq.OP_MTU_IN))
        count = int(n_subtransfers(self._st, source, source, nbytes))
        first = step.accesses[0] if step.accesses else trace.TracedAccess(source, nbytes, False, False)
        return replace(
            step,
            part=_subtransfers(count, choice, int(self._st[entry + ms.ENTRY_PROGRESS])),
            address=first.start,
            place=report.symbolic(self._pod, first.start),
            value=f"saw {format.some_bytes(self._mem[first.start : first.start + first.nbytes].tobytes())}",
        )

    def _dma(self, code: int, core: int, choice: int) -> trace.TraceStep:
        """A descriptor copies a sub-transfer, or all that it can."""
        base, known = self._pod.core_base(core), self._queued[core].descriptors
        can_copy = [k for k in known if self._st[_descriptor(base, k) + ms.ENTRY_PROGRESS] != DMA_READ_DONE]
        k = min(can_copy, default=-1) if choice == ms.CHOICE_ALL else choice & 15
        if k not in known:
            raise self._not_enabled()
        step = self._with_writes(self._take(self._begin(code, core, known[k], choice)))
        self._forget_done(core)
        return step

    def _forget_done(self, core: int) -> None:
        """Descriptors that the machine has freed are free."""
        base, known = self._pod.core_base(core), self._queued[core].descriptors
        for k in [k for k in known if self._st[_descriptor(base, k)] == 0]:
            del known[k]

    # ---- writes

    def _with_writes(self, step: trace.TraceStep) -> trace.TraceStep:
        """The step with the writes that it has begun, or done at once."""
        writes = self._writes.note_left(step)
        left, landed = (w.number for w in writes), (w.number for w in writes if w.visible)
        step = replace(step, left=tuple(left), landed=tuple(landed))
        if step.operation not in COPIES_TO_MEMORY or not writes:
            return step
        first = writes[0]
        return replace(step, part=joined(writes), address=first.address, place=first.place, value=first.value)

    def _perform(self, code: int, die: int, choice: int) -> trace.TraceStep:
        """A die makes a write visible, or all that it has in flight."""
        flying = self._writes.flying.get(die, [])
        k = 0 if choice == ms.CHOICE_ALL else choice
        if k >= len(flying):
            raise self._not_enabled()
        step = self._take(self._step_of_write(code, flying[k]))
        landed = flying[: len(flying) - self._writes.left_in_flight(die)] if choice == ms.CHOICE_ALL else [flying[k]]
        for write in landed:
            write.visible = self._number
            flying.remove(write)
            self._forget_done(write.by.core)
        touched = tuple(trace.TracedAccess(write.address, write.nbytes, True, False) for write in landed)
        return replace(step, landed=tuple(write.number for write in landed), accesses=touched)

    # ---- what breaks

    def _fault(self, code: int) -> trace.TraceStep:
        """A die stops or begins again, a link is cut, or a write becomes visible otherwise than it should."""
        if not is_fault(code, self._pod.spec.n_homes):
            raise self._not_enabled()
        kind, die, place, _ = decode(code)
        if kind in (DUPLICATE, CORRUPT):
            return self._perform_wrongly(code, die, place)
        if kind == AGAIN:
            step = self._again(code)
        else:
            spec, actor = self._pod.spec, die * self._pod.spec.cores_per_die
            said = words(code, self._pod)
            step = trace.TraceStep(self._number, code, actor, spec.home(die), trace.PERFORM, "fault", said, None)
        step = self._take(step)
        if kind == REVIVE:
            self._writes.flying[die] = []
            of_die = (core for core in self._queued if core // self._pod.spec.cores_per_die == die)
            self._queued |= {core: _Queued() for core in of_die}
        return step

    def _perform_wrongly(self, code: int, die: int, k: int) -> trace.TraceStep:
        flying = self._writes.flying.get(die, [])
        if k >= len(flying):
            raise self._not_enabled()
        write = flying[k]
        said = words(code, self._pod)
        step = replace(self._perform(code, die, k), pipe=trace.PERFORM, operation="fault", fault=said)
        if decode(code)[0] == DUPLICATE:
            self._copied = write
        else:
            data = self._mem[write.address : write.address + write.nbytes].tobytes()
            step = replace(step, value=f"now {format.some_bytes(data)}")
        return step

    def _again(self, code: int) -> trace.TraceStep:
        """The copy of a write."""
        if self._copied is None:
            raise self._not_enabled()
        step = self._step_of_write(code, self._copied)
        return replace(step, operation="fault", landed=(self._copied.number,), fault=words(code, self._pod))

    def _step_of_write(self, code: int, write: trace.Write) -> trace.TraceStep:
        by = write.by
        return trace.TraceStep(
            self._number, code, by.core, by.who, trace.PERFORM, by.operation, by.action, by.source, write.address,
            write.nbytes, write.place, write.value, by.instruction, write.part,
        )  # fmt: skip

    # ---- what all have in common

    def _begin(self, code: int, core: int, doing: _Instruction, choice: int) -> trace.TraceStep:
        """The step that is about to be taken, as far as its instruction says."""
        base, pipe, words = self._pod.core_base(core), (code >> ms.CHOICE_BITS) % ms.ACTORS_PER_CORE, doing.words
        n = rows.accesses(self._st, base, pipe, choice, self._named, self._rows)
        return trace.TraceStep(
            self._number, code, core, core_name(self._pod, core), PIPE_NAMES[pipe], rq.OPERATIONS[doing.op],
            words.action, source_of(self._pod, core, doing.site), words.address, words.nbytes, words.place, words.value,
            doing.number, accesses=tuple(self._access(row) for row in self._rows[:n].tolist()),
        )  # fmt: skip

    def _access(self, row: Sequence[int]) -> trace.TracedAccess:
        start, flags, spec = row[rows.START], row[rows.FLAGS], self._pod.spec
        inside = 0 <= start - spec.memory_bytes < spec.n_cores * spec.ub_bytes
        place = f"ub+{(start - spec.memory_bytes) % spec.ub_bytes:#x}" if inside else ""
        return trace.TracedAccess(start, row[rows.NBYTES], bool(flags & rows.WRITE), bool(flags & rows.SYNC), place)

    def _take(self, step: trace.TraceStep) -> trace.TraceStep:
        """Take the step's action, which may be the violation that ends the run."""
        taken = self._replayer.take(step.code)
        failed = bool(self._st[ms.ERROR] != 0)
        if not taken and not failed:
            raise self._not_enabled()
        return replace(step, failed=failed)

    def _not_enabled(self) -> ReplayError:
        return ReplayError(f"the schedule does not fit: action {self._number} of it is not enabled")


def source_of(pod: Pod, core: int, site: int) -> trace.RequestSource | None:
    """The place in the kernel that a core runs; None for its return, which has none."""
    launch, place = pod.launch_of(core), report.site_of(pod, core, site)
    return None if launch is None or place is None else trace.RequestSource(**vars(place), kernel=launch.kernel.name)


def _descriptor(base: int, k: int) -> int:
    return base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS


def _subtransfers(count: int, choice: int, done: int) -> trace.SubTransfer:
    """The sub-transfer that a choice names, or those that are not in the mask of what is done."""
    if choice != ms.CHOICE_ALL:
        return trace.SubTransfer((choice >> 4) + 1, (choice >> 4) + 1, count)
    left = [g + 1 for g in range(count) if done != _READ_DONE and not done >> g & 1]
    return trace.SubTransfer(min(left, default=1), max(left, default=count), count)


def steps(trial: Trial, actions: Iterable[int]) -> trace.RunTrace:
    """Replay a schedule on a fresh trial, which is used up, and say what each action did.

    Raises ReplayError if an action is not enabled, KernelError where the arithmetic of a kernel fails.
    """
    return Stepper(trial.pod).run([int(code) for code in actions])


def drawn(trial: Trial, *, late: bool, tries: int) -> trace.RunTrace:
    """Run a fresh trial, which is used up, with all in turn (`Stepper.draw`), and say what each action did."""
    return Stepper(trial.pod).draw(late, tries)
