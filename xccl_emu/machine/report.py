"""What went wrong, in words: the errors that end a run, with kernel, source line, step of the paper and address."""

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from xccl_emu.base import errors
from xccl_emu.lang import Site, abi, maps
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.flight import block_of_die, flight, read_word
from xccl_emu.machine.device.memory import large_slot
from xccl_emu.machine.device.pipes import entry_of, pipe_of
from xccl_emu.machine.device.polls import condition_at, is_line, n_conditions
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.stats import PIPE_NAMES

if TYPE_CHECKING:
    from xccl_emu.machine.pod import Pod


_FAILED = {
    abi.DIVISION_BY_ZERO: "a division by zero",
    abi.BAD_VALUE: "a shift count that is negative or too large, or a range with step 0",
    abi.BAD_INDEX: "an index out of range",
    abi.NO_VALUE: "a function ended without the value that its caller takes",
}

_FAULTS = {
    abi.STACK_FULL: "more of its stack is live than fits the core's registers (`stack_words`), or it calls too deeply",
    abi.FAULT: "it touched memory that is not its own, ran what is no instruction, or called abort",
    abi.POINTER: "it follows a pointer, to memory of the machine or to none; of that clang makes a request, and its "
    "compiler, such as g++, does not: pip install 'xccl_emu[cpp]', which brings a clang",
    abi.ENDLESS: "a loop goes on without a request; time passes, and others go on, at requests alone",
}


def is_fault(pod: "Pod") -> bool:
    """Did a kernel in C end its step by a fault?"""
    st = pod.state
    return bool(st[ms.ERROR] == ms.ERR_ARITHMETIC and -int(st[ms.ERROR_A]) in _FAULTS)


def is_refused(pod: "Pod") -> bool:
    """Does a kernel in C follow a pointer, where its compiler makes no requests of them?"""
    return is_fault(pod) and -int(pod.state[ms.ERROR_A]) == abi.POINTER


_UNDEFINED = {
    ms.UNDEFINED_USED: "were read tentatively and are used before they are validated",
    ms.UNDEFINED_RACED: "are validated, and a write met the read that brought them: nobody can say what they are",
    ms.UNDEFINED_UNREAD: "are validated before the read that brings them is complete",
}


SIGNS = {rq.CMP_EQ: "==", rq.CMP_NE: "!=", rq.CMP_GE: ">="}
"""How comparisons of polls are written."""


def symbolic(pod: "Pod", address: int) -> str:
    """An address by its label (`Pod.labels`), else as die, area and offset, for example ``die1.meta+0x40``."""
    spec = pod.spec
    die, offset = divmod(address, spec.die_bytes)
    if not 0 <= die < spec.n_homes:
        return f"{address:#x} (no die)"
    if name := pod.labels.name(address):
        return name
    for name, start in (("managed", spec.managed_start), ("meta", spec.meta_start)):
        if offset >= start:
            return f"{spec.home(die)}.{name}+{offset - start:#x}"
    return f"{spec.home(die)}.app+{offset:#x}"


def symbolic_byte(pod: "Pod", index: int) -> str:
    """Name a byte of the pod's memory array, where the data buffers come after the dies: ``die0.core1.ub+0x20``."""
    offset = index - pod.spec.memory_bytes
    if offset < 0:
        return symbolic(pod, index)
    core, offset = divmod(offset, pod.spec.ub_bytes)
    die, core = divmod(core, pod.spec.cores_per_die)
    return f"{pod.spec.home(die)}.core{core}.ub+{offset:#x}"


def where(pod: "Pod", core: int, site: int) -> str:
    """Core, kernel, source line and step of a request."""
    return _named(pod, core, site_of(pod, core, site))


def named(pod: "Pod", core: int) -> str:
    """Core and kernel."""
    launch = pod.launch_of(core)
    name = f"{pod.spec.home(core // pod.spec.cores_per_die, ' ')} core {core % pod.spec.cores_per_die}"
    return name if launch is None else f"{name}, kernel {launch.kernel.name}"


def _named(pod: "Pod", core: int, place: Site | None) -> str:
    launch = pod.launch_of(core)
    if launch is None or place is None:
        return f"{named(pod, core)}{'' if launch is None else ' at its end'}"
    return f"{named(pod, core).partition(', kernel ')[0]}, {place.of(launch.kernel.name)}"


def site_of(pod: "Pod", core: int, site: int) -> Site | None:
    """The place in the kernel that a core runs; None for its return, which has none."""
    launch = pod.launch_of(core)
    if launch is None or site == ms.AT_END:
        return None
    if site == ms.AT_PLACE:
        site = int(pod.state[pod.core_base(core) + abi.REQUEST + 2])
        return launch.kernel.places[site]
    return launch.kernel.sites[site]


def last_writer(pod: "Pod", address: int) -> str:
    """Say who last wrote the 32-byte granule of an address, as far as the table of writers knows."""
    slot, said = _writer_slot(pod, address)
    core, site = int(pod.state[slot + ms.WRITER_CORE]), int(pod.state[slot + ms.WRITER_SITE])
    return said or "last written by " + where(pod, core, site)


def _writer_slot(pod: "Pod", address: int) -> tuple[int, str]:
    """Return where the table of writers has the granule of an address, and why it says nothing of it, if so."""
    st = pod.state
    granule = address // ms.GRANULE_BYTES
    slot = int(st[ms.WRITER_BASE]) + granule % int(st[ms.WRITER_SLOTS]) * ms.WRITER_WORDS
    large = int(st[large_slot(st, address >> ms.LARGE_SHIFT)])
    if st[slot] == 0 and large == 0:
        return slot, "no write there is visible"
    return slot, "last writer not known" if st[slot] != granule + 1 or large > st[slot + ms.WRITER_WHEN] else ""


def _writer_now(pod: "Pod", address: int) -> str:
    """Return who last wrote there, and whether that core still runs: one that has returned writes nothing more."""
    slot, unknown = _writer_slot(pod, address)
    returned = not unknown and pod.state[pod.core_base(pod.state[slot + ms.WRITER_CORE]) + ms.STATUS] == ms.STATUS_DONE
    return last_writer(pod, address) + ", which has returned" * bool(returned)


def _waits_for(pod: "Pod", base: int, core: int) -> str:
    """Say what a blocked core's request waits for."""
    st = pod.state
    op, a, b, c = (int(st[base + abi.REQUEST + i]) for i in range(4))
    if op == rq.OP_POLL:
        return _polls(pod, base, core)
    if op == rq.OP_POLL_ANY:
        return _polls_any(pod, base, core)
    if ops.EVENT_WAITS >> op & 1 and b == 0:
        return f"waits for event {c} of {PIPE_NAMES[a]}, which is not set"
    if ops.GROUP_WAITS >> op & 1:
        group = int(st[ms.GROUP_BASE]) + int(st[base + ms.GROUP]) * ms.GROUP_WORDS
        return f"waits at a barrier: {st[group + ms.GROUP_ARRIVED]} of {st[group + ms.GROUP_SIZE]} cores have arrived"
    if ops.DRAINS >> op & 1:
        return f"waits in {rq.OPERATIONS[op]} for its queues to drain: " + "; ".join(_stuck_pipes(pod, base))
    return f"cannot issue {rq.OPERATIONS[op]}: " + "; ".join(_stuck_pipes(pod, base))


def _polls(pod: "Pod", base: int, core: int) -> str:
    """Say what a poll saw, of a line all its words, and what it waits for."""
    a, compare, wanted, nbytes, mask = (int(pod.state[base + abi.REQUEST + i]) for i in range(1, 6))
    sign = SIGNS.get(compare, "!=")
    if is_line(nbytes):
        words = pod.memory[a : a + nbytes].view(np.uint32)
        flags = " ".join(f"{words[w]:#x}" for w in range(len(words)) if mask >> w & 1)
        saw, wants = f"saw flags {flags}", f"wants each {sign} its half of {wanted:#x}"
    else:
        some = "" if mask == -1 else f" in the bits {mask:#x}"
        saw = f"saw {int(read_word(pod.memory, pod.state, core, base, a, nbytes))}"
        wants = f"wants {sign} {wanted}{some}"
    return f"polls {symbolic(pod, a)} (address {a:#x}): {saw}, {wants}; {_writer_now(pod, a)}"


def _polls_any(pod: "Pod", base: int, core: int) -> str:
    """Say what a poll of several words saw in each, and what it waits for there."""
    st, words = pod.state, []
    for k in range(n_conditions(st, base)):
        a, compare, wanted = (int(word) for word in st[condition_at(base, k) :][:3])
        saw = int(read_word(pod.memory, st, core, base, a, 8))
        words.append(
            f"{symbolic(pod, a)} (address {a:#x}): saw {saw}, wants {SIGNS[compare]} {wanted}; {_writer_now(pod, a)}"
        )
    return "polls " + " or ".join(words)


def _stuck_pipes(pod: "Pod", base: int) -> list[str]:
    st = pod.state
    stuck = []
    for pipe in range(rq.MTU_IN, rq.DMA):
        queue = pipe_of(base, pipe)
        if st[queue + ms.PIPE_COUNT]:
            entry = entry_of(st, queue, 0)
            words = ", ".join(str(int(st[entry + 1 + i])) for i in range(3))
            stuck.append(f"{PIPE_NAMES[pipe]} is at {rq.OPERATIONS[st[entry]]}({words})")
    return [*stuck, *_in_flight(pod, base)] or ["nothing is queued"]


def _in_flight(pod: "Pod", base: int) -> list[str]:
    """Say how many writes of a core are in flight to each die."""
    st, ring = pod.state, block_of_die(pod.state, int(pod.state[base + ms.DIE]))
    entries = [flight(st, ring, k) for k in range(st[ring + ms.FLIGHT_COUNT])]
    own = [int(st[entry + ms.FLIGHT_ADDRESS]) for entry in entries if pod.core_base(st[entry + ms.FLIGHT_CORE]) == base]
    homes = Counter(pod.spec.home(address // pod.spec.die_bytes) for address in own)
    return [f"{count} of its writes in flight to {home}" for home, count in sorted(homes.items())]


def _bad_signal(pod: "Pod", word: int, target: int) -> str:
    """Say what is wrong with a signal."""
    if target == ms.UNKNOWN:
        return f"how={word}: a signal sets ({rq.SIGNAL_SET}) or adds ({rq.SIGNAL_ADD})"
    right = "must be a word of the metadata area of the die that it copies to, outside of what it copies"
    return f"signal at {symbolic(pod, word)}: {right}"


def _bad_map(function: int, places: int) -> str:
    """Say what is wrong with a function of elements: there is none, or what it reads and writes overlap."""
    if function and function not in maps.KNOWN:
        kind, rounding = function & 15 | function >> maps.KIND_SHIFT << 4, function >> maps.ROUNDING_SHIFT & 7
        if not (0 <= kind < len(maps.KINDS) and rounding < len(maps.ROUNDINGS)):
            return f"function={function}: must be one of lang.maps.function"
        return f"{maps.text(function)}, rounding {maps.ROUNDINGS[rounding]}: no such function"
    target, source = divmod(places, 1 << ms.ERROR_SHIFT)
    name = maps.text(function) if function else "copy"
    return f"{name} from ub+{source:#x} to ub+{target:#x}: must be in place, or not overlap"


def _bad_operand(pod: "Pod", op: int, a: int, b: int) -> str:
    """Say what is wrong with an operand, where no other kind of error says more of it."""
    if op == rq.OP_CHOOSE:
        return f"n={a}: must be 1 to {b} answers"
    if op == rq.OP_POLL_ANY:
        return f"condition {a}: comparison {b} must be CMP_EQ, CMP_NE or CMP_GE"
    if op == rq.OP_PUT_SIGNAL:
        return _bad_signal(pod, a, b)
    if op == rq.OP_VALIDATE:
        return f"validate of {b} bytes at ub+{a:#x}: must cover all that was read tentatively and is not validated"
    if op == rq.OP_V_COPY:
        return _bad_map(a, b)
    if ops.COPIES_IN >> op & 1 and b != rq.TENTATIVE:
        return f"tentative read of {b} bytes to ub+{a:#x}: must touch what was read so before and is not validated"
    return f"operand out of range ({a}, {b})"


def running(pod: "Pod") -> list[int]:
    """Global numbers of the cores whose kernels have not returned."""
    return [core for core in pod.active_cores() if pod.state[pod.core_base(core) + ms.STATUS] == ms.STATUS_RUNNING]


def request(pod: "Pod", core: int) -> str:
    """Name a core, and the request at which its kernel is."""
    words = pod.state[pod.core_base(core) + abi.REQUEST :][: abi.REQUEST_WORDS]
    return where(pod, core, ms.AT_END if words[0] == rq.OP_RETURN else int(words[-1]))


def deadlock(pod: "Pod") -> errors.DeadlockError:
    """The error that lists every blocked core."""
    blocked = running(pod)
    lines = [f"deadlock: {len(blocked)} of {len(pod.active_cores())} cores are blocked and nothing can go on"]
    lines += [f"  {request(pod, core)}: {_waits_for(pod, pod.core_base(core), core)}" for core in blocked]
    return errors.DeadlockError("\n".join(lines))


def lacks_right(pod: "Pod") -> bool:
    """Has an access been refused to bytes for which its core has a grant, only not with the right that it takes?"""
    code, core, _, _, a, b = (int(pod.state[ms.ERROR + i]) for i in range(6))
    return code == ms.ERR_ACCESS and bool(_grants_at(pod, core, a, b))


def _grants_at(pod: "Pod", core: int, address: int, nbytes: int) -> list[Grant]:
    """A core's grants that hold bytes, whatever their rights."""
    die, start = divmod(address, pod.spec.die_bytes)
    dies = (die, None) if die < pod.spec.n_dies else (die,)
    return [g for g in pod.grants_of(core) if g.die in dies and g.start <= start and start + nbytes <= g.end]


def _rights(pod: "Pod", core: int, op: int, address: int, nbytes: int) -> str:
    """Return which right an access takes that its core has not, and what it has."""
    here = _grants_at(pod, core, address, nbytes)
    missing = sorted({"r", "w"}.difference(*(grant.rights for grant in here)))
    takes = "rw" if ops.ATOMICS >> op & 1 else "".join(missing)
    needs = f": {'an' if rq.OPERATIONS[op][0] in 'aeiou' else 'a'} {rq.OPERATIONS[op]} takes {takes!r}" if here else ""
    has = "; ".join(_granted(pod, grant) for grant in here or pod.grants_of(core))
    return f"{needs}; it has {has or 'no grant'}"


def _granted(pod: "Pod", grant: Grant) -> str:
    """A grant by the names of what it begins and ends with, if they have any."""
    first_die = (grant.die or 0) * pod.spec.die_bytes
    ends = (pod.labels.name(first_die + offset).partition("+0x")[0] for offset in (grant.start, grant.end - 1))
    names = [name if grant.die is not None else f"any die's {name.partition('.')[2]}" for name in ends if name]
    return f"{grant.rights} {' to '.join(dict.fromkeys(names))}" if names else str(grant)


def violation(pod: "Pod") -> errors.RunError:
    """The error for what the machine recorded."""
    st = pod.state
    code, core, site, op, a, b = (int(st[ms.ERROR + i]) for i in range(6))
    if code == ms.ERR_ARITHMETIC:
        failed = pod.kernels[st[pod.core_base(core) + ms.KERNEL]].places[b]
        if is_fault(pod):
            place = f"{_named(pod, core, failed)}{', or after it' if failed.operation else ''}"
            if is_refused(pod):
                return errors.PointerError(f"{place}: the kernel cannot be judged: {_FAULTS[-a]}")
            return errors.KernelFaultError(f"{place}: the kernel faulted: {_FAULTS[-a]}")
        return errors.KernelArithmeticError(f"{_named(pod, core, failed)}: arithmetic failed: {_FAILED[-a]}")
    place = where(pod, core, site)
    if code == ms.ERR_FAIL:
        return errors.ProtocolError(f"{place}: the kernel failed with code {a}, value {b}", a, b, core)
    if code == ms.ERR_ACCESS:
        refused = f"{place}: {rq.OPERATIONS[op]} of {b} bytes at {symbolic(pod, a)} is not permitted"
        return errors.AccessError(f"{refused}{_rights(pod, core, op, a, b)}")
    texts = {
        ms.ERR_CPU: "a core of a CPU has a scalar unit and DMA, no other pipe and no data buffer",
        ms.ERR_UB: f"{b} bytes at {a} lie outside of the data buffer of {pod.spec.ub_bytes} bytes",
        ms.ERR_ALIGN: f"{a:#x} must be a multiple of {b}",
        ms.ERR_SIZE: f"size out of range ({a}, {b})",
        ms.ERR_OPERAND: _bad_operand(pod, op, a, b),
    }
    if code == ms.ERR_UNDEFINED and b == ms.UNDEFINED_LOST:
        return errors.RunError(f"{place}: the bytes at {symbolic(pod, a)} are lost, and are read")
    if code == ms.ERR_UNDEFINED:
        lost = ", or of what is lost" * (b == ms.UNDEFINED_RACED and bool(st[ms.LOST_END]))
        return errors.RunError(f"{place}: bytes at ub+{a:#x} {_UNDEFINED[b]}{lost}")
    if code == ms.ERR_DOUBLE_SET:
        source, target = PIPE_NAMES[a // 8], PIPE_NAMES[a % 8]
        return errors.RunError(f"{place}: event {b} from {source} to {target} is set while it is still set")
    if code == ms.ERR_LEFT_SET:
        source, target = PIPE_NAMES[a // 8], PIPE_NAMES[a % 8]
        return errors.RunError(f"{place}: event {b} from {source} to {target} is still set, nothing has waited for it")
    return errors.AccessError(f"{place}: {rq.OPERATIONS[op]}: {texts[code]}")
