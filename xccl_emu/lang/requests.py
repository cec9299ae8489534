"""The requests a kernel can make of its machine, one function each.

A kernel is a generator; ``yield load(address)`` hands the machine a request *before* anything happens, and the
kernel goes on when the machine has granted it.  A request is seven integers, the operation and six operands; only
`poll_any` has twelve.  A row of `TABLE` says of each operation what the machine, its judges and its clock all ask:
codes follow from it, and what `operations` makes of it: sets of operations, and places of operands.

Every function takes two more keywords that never reach the machine: ``step``, the step of the paper that the
request implements, and ``sync``, the name of a synchronization, by which a run can switch it off.  Both must be
literals; they are recorded with the source line as the request's site.  So is ``order`` of requests that write: one of
`ORDERS`, or empty for what the pod's memory order makes of a request that asks for nothing.

Addresses are global (die * die_bytes + offset) unless they are called ``ub``: those are byte offsets into the data
buffer of the core that runs the kernel.
"""

import dataclasses
from typing import Literal, TypeAlias

Request: TypeAlias = tuple[int, ...]
Condition: TypeAlias = tuple[int, int, int]
"""Address of a word, how it is compared (`CMP_EQ`, `CMP_NE`, `CMP_GE`), and with what."""

# The four in-order pipes of a core, and its DMA descriptors, which complete in any order.
SCALAR, MTU_IN, VECTOR, MTU_OUT, DMA = range(5)

# How a poll compares what is in memory with the value it waits for.
CMP_EQ, CMP_NE, CMP_GE = range(3)
CMP_UNUSED = -1
CONDITION_WORDS, CONDITIONS_MOST = 3, 4
UNUSED: Condition = (-1, CMP_UNUSED, 0)
"""No condition of a `poll_any`, nor are the later ones; -1 is the address of no word."""

TENTATIVE = 1
"""Fourth operand of an mtu-in that is tentative."""

SIGNAL_SET, SIGNAL_ADD = 1, 2
"""How a `put_signal` signals: is the word set to the value, or is the value added?"""

ANSWERS_MOST = 64
"""Answers that `choose` may have at most."""

LINE_BYTES = 16
"""Bytes that `load_line` and `store_line` access at once."""

# Element types that the vector pipe reads and writes; FP32 is for what is added to an accumulator.
BF16, FP16, FP32 = range(3)

# Rules by which it makes INT8 of them: XCCL's, and the one of CANN's public kernels.
RULE_XCCL, RULE_CANN, RULE_FP8, RULE_FP8_UE8M0 = range(4)
FP8_BLOCK = 128
"""Elements for which FP8 has a scale."""

ORDERS = ("", "no-order", "relaxed", "strong")
"""What a write may ask for, as URMA's requests do, under `relaxed` and `unordered` (`sc` and `fifo` keep all in order).

Of a core's writes to one die a strong one becomes visible after the earlier relaxed and strong ones; those without an
order wait for nothing, and nothing waits for them.  What asks for nothing is relaxed.  A fence orders all of them.
"""
NO_ACQUIRE = "no-acquire"
"""What loads, polls and atomics may ask for: what their core does next is ordered after the write that they see by a
later quiet alone, but for one that asks for this too (as a release does not make earlier reads acquire).  Drawn
schedules judge by it; for a search every read acquires."""

Bytes: TypeAlias = tuple[str, str | int] | None
"""A range of memory: the operand that is its address, and its size or the operand that is."""
Hinge: TypeAlias = Literal["", "memory", "event", "barrier", "visible"]
"""What a request waits for or releases: what memory holds, an event, its group's barrier, or that all is visible."""


@dataclasses.dataclass(frozen=True)
class Operation:
    """A row of `TABLE`."""

    name: str
    pipe: int = SCALAR
    """Where it is carried out; an event waits for its turn on a pipe that its operands name."""
    operands: str = ""
    """Their names, in their places."""
    reads: Bytes = None
    writes: Bytes = None
    """Memory; `poll_any` reads a word for each of its conditions."""
    takes: Bytes = None
    fills: Bytes = None
    """The data buffer; of a vector instruction the size is in elements (`machine.device.touched`)."""
    adds: bool = False
    """It adds what it writes to what is there."""
    unit: int = 1
    """Addresses of memory are multiples of this."""
    waits: Hinge = ""
    releases: Hinge = ""
    """What it waits for, and what it releases; what it writes it releases to whom polls it, in any case."""
    word: bool = False
    """It accesses 1, 2, 4 or 8 bytes, at a multiple of their number."""
    says: str = ""
    shows: str = ""
    """What a witness says of its operands next to its name, and what it writes, as formats of the operands."""

    @classmethod
    def atomic(cls, name: str, operands: str, says: str, adds: bool = False) -> "Operation":
        """Make a row of what reads and writes a word of 8 bytes at once."""
        return cls(name, SCALAR, operands, reads=("address", 8), writes=("address", 8), adds=adds, unit=8, says=says)

    @classmethod
    def out(cls, name: str, operands: str, adds: bool = False) -> "Operation":
        """Make a row of what mtu-out copies from the data buffer."""
        out = ("target", "nbytes")
        return cls(name, MTU_OUT, operands, takes=("ub", "nbytes"), writes=out, adds=adds, says="{nbytes:d} B")

    @classmethod
    def vector(cls, name: str, operands: str, takes: str = "ub", fills: str = "target_ub") -> "Operation":
        """Make a row of the vector pipe, which works on ``count`` elements; a sum reads what it fills, too."""
        return cls(name, VECTOR, operands, takes=(takes, "count") if takes else None, fills=(fills, "count"))


_EVENT = "{source:pipe}→{target:pipe} {event:d}"

TABLE = (
    Operation("return", SCALAR, "value", waits="visible", says="{value}"),
    # the scalar unit and memory
    Operation("load", SCALAR, "address nbytes", reads=("address", "nbytes"), word=True),
    Operation("store", SCALAR, "address value nbytes", writes=("address", "nbytes"), word=True, shows="{value}"),
    Operation.atomic("atomic_add", "address value", says="{value}", adds=True),
    Operation.atomic("compare_swap", "address value expected", says="to {value}"),
    Operation(
        "poll", SCALAR, "address compare value nbytes mask ub", reads=("address", "nbytes"), waits="memory", word=True
    ),
    # its order, its group, the data buffer, events
    Operation("quiet", waits="visible"),
    Operation("arrive", releases="barrier"),
    Operation("await_group", SCALAR, "phase", waits="barrier", says="{phase}"),
    Operation("ub_load", SCALAR, "ub nbytes", takes=("ub", "nbytes"), word=True),
    Operation("validate", SCALAR, "ub nbytes", takes=("ub", "nbytes"), says="{nbytes:d} B"),
    Operation("ub_store", SCALAR, "ub value nbytes", fills=("ub", "nbytes"), word=True, shows="{value}"),
    Operation("set_flag", SCALAR, "source target event", releases="event", says=_EVENT),
    Operation("wait_flag", SCALAR, "source target event", waits="event", says=_EVENT),
    Operation("fail", SCALAR, "code info", says="{code}", shows="{info}"),
    Operation("dcci", SCALAR, "address"),
    Operation("choose", SCALAR, "n of", says="{n}"),
    Operation("poll_any", SCALAR, "first compare value", waits="memory"),
    # pipes and DMA
    Operation(
        "dma", DMA, "source target nbytes event", reads=("source", "nbytes"), writes=("target", "nbytes"),
        releases="event", says="{nbytes:d} B, event {event:d}",
    ),
    Operation(
        "mtu_in", MTU_IN, "source ub nbytes tentative", reads=("source", "nbytes"), fills=("ub", "nbytes"),
        says="{nbytes:d} B",
    ),
    Operation.out("mtu_out", "ub target nbytes"),
    Operation.out("mtu_add", "ub target nbytes", adds=True),
    Operation.out("put_signal", "ub target nbytes signal value how"),
    Operation("put", MTU_OUT, "target word0 word1 word2 word3", writes=("target", 32), unit=32),
    Operation("add", MTU_OUT, "target value", writes=("target", 8), adds=True, unit=8, says="{value}"),
    Operation("fence", MTU_OUT),
    Operation.vector("v_quantize", "ub target_ub count dtype rule"),
    Operation.vector("v_dequantize", "ub target_ub count scale_ub rule"),
    Operation.vector("v_copy", "ub target_ub count function other"),
    Operation.vector("v_fill", "ub count byte", takes="", fills="ub"),
    Operation.vector("v_widen", "ub target_ub count dtype"),
    Operation.vector("v_axpy", "ub acc_ub weight count dtype", fills="acc_ub"),
    Operation.vector("v_add", "ub acc_ub count dtype", fills="acc_ub"),
    Operation.vector("v_scale", "acc_ub count factor", takes="", fills="acc_ub"),
    Operation.vector("v_narrow", "acc_ub target_ub count dtype", takes="acc_ub"),
    Operation.vector("v_count", "ub target_ub count low high"),
    # lines of the scalar unit
    Operation("load_line", SCALAR, "address high", reads=("address", LINE_BYTES), unit=LINE_BYTES),
    Operation(
        "store_line", SCALAR, "address value high", writes=("address", LINE_BYTES), unit=LINE_BYTES,
        shows="{value}, {high}",
    ),
)  # fmt: skip

OPERATIONS = tuple(row.name for row in TABLE)
"""Name of each operation, indexed by its code."""

(
    OP_RETURN, OP_LOAD, OP_STORE, OP_ATOMIC_ADD, OP_COMPARE_SWAP, OP_POLL, OP_QUIET, OP_ARRIVE, OP_AWAIT_GROUP,
    OP_UB_LOAD, OP_VALIDATE, OP_UB_STORE, OP_SET_FLAG, OP_WAIT_FLAG, OP_FAIL, OP_DCCI, OP_CHOOSE, OP_POLL_ANY, OP_DMA,
    OP_MTU_IN, OP_MTU_OUT, OP_MTU_ADD, OP_PUT_SIGNAL, OP_PUT, OP_ADD, OP_FENCE, OP_V_QUANTIZE, OP_V_DEQUANTIZE,
    OP_V_COPY, OP_V_FILL, OP_V_WIDEN, OP_V_AXPY, OP_V_ADD, OP_V_SCALE, OP_V_NARROW, OP_V_COUNT, OP_LOAD_LINE,
    OP_STORE_LINE,
) = range(len(TABLE))  # fmt: skip

# ---- scalar: memory


def load(address: int, nbytes: int = 8, step: int = 0, sync: str = "", order: str = "") -> Request:
    """Read ``nbytes`` (1, 2, 4 or 8, aligned) as a signed integer; sees the core's own scalar stores in flight."""
    return (OP_LOAD, address, nbytes, 0, 0, 0, 0)


def store(address: int, value: int, nbytes: int = 8, step: int = 0, sync: str = "", order: str = "") -> Request:
    """Write ``nbytes`` (1, 2, 4 or 8, aligned); becomes visible as the memory order says."""
    return (OP_STORE, address, value, nbytes, 0, 0, 0)


def load_line(address: int, step: int = 0, sync: str = "", order: str = "") -> Request:
    """Read 16 bytes, aligned, at once, as `load` reads a word; returns the low 8 (a kernel in C: the rest too).

    The machine refuses it, and `store_line`, where a core has a cache or less than 16 bytes become visible at once.
    """
    return (OP_LOAD_LINE, address, 0, 0, 0, 0, 0)


def store_line(address: int, value: int, high: int, step: int = 0, sync: str = "", order: str = "") -> Request:
    """Write 16 bytes, aligned, at once, the low 8 and the high 8; becomes visible as the memory order says."""
    return (OP_STORE_LINE, address, value, high, 0, 0, 0)


def atomic_add(address: int, value: int, step: int = 0, sync: str = "", order: str = "") -> Request:
    """Add to the aligned 8-byte word at its home memory and return the old value; blocks the core."""
    return (OP_ATOMIC_ADD, address, value, 0, 0, 0, 0)


def compare_swap(
    address: int, expected: int, value: int, step: int = 0, sync: str = "", order: str = ""
) -> Request:  # fmt: skip
    """If the aligned 8-byte word is ``expected`` make it ``value``, at its home memory; return the old one.

    It blocks the core as `atomic_add` does, and counts as a write whether it swaps or not.
    """
    return (OP_COMPARE_SWAP, address, value, expected, 0, 0, 0)


def poll_eq(
    address: int, value: int, nbytes: int = 8, mask: int = -1, step: int = 0, sync: str = "", order: str = ""
) -> Request:  # fmt: skip
    """Wait until the word, of ``nbytes`` (1, 2, 4 or 8, aligned), equals ``value`` in the bits of ``mask``.

    Returns the whole word, as `load` does, and so do `poll_ne` and `poll_ge`; where the name ``sync`` is switched off,
    the word that is there.
    """
    return (OP_POLL, address, CMP_EQ, value, nbytes, mask, 0)


def poll_ne(
    address: int, value: int, nbytes: int = 8, mask: int = -1, step: int = 0, sync: str = "", order: str = ""
) -> Request:  # fmt: skip
    """Wait until the word differs from ``value`` in the bits of ``mask``."""
    return (OP_POLL, address, CMP_NE, value, nbytes, mask, 0)


def poll_ge(
    address: int, value: int, nbytes: int = 8, mask: int = -1, step: int = 0, sync: str = "", order: str = ""
) -> Request:  # fmt: skip
    """Wait until the word is at least ``value``, both in the bits of ``mask`` alone."""
    return (OP_POLL, address, CMP_GE, value, nbytes, mask, 0)


def poll_line_eq(
    address: int, ub: int, nbytes: int, words: int, value: int, step: int = 0, sync: str = "", order: str = ""
) -> Request:  # fmt: skip
    """Read a line of ``nbytes`` (16, 32, 64 or 128, aligned) to the data buffer, over and over until its flags are in.

    Bit w of ``words`` says that word w, of 4 bytes, is a flag: it must equal the low 4 bytes of ``value`` if w is even,
    the high 4 if it is odd.  A line is read granule by granule in any order; it sees nothing in flight.  What is read
    in vain is dropped, and is no race.  Returns nothing.
    """
    return (OP_POLL, address, CMP_EQ, value, nbytes, words, ub)


def poll_line_ne(
    address: int, ub: int, nbytes: int, words: int, value: int, step: int = 0, sync: str = "", order: str = ""
) -> Request:  # fmt: skip
    """Read a line as `poll_line_eq` does, until each of the words differs from its half of ``value``."""
    return (OP_POLL, address, CMP_NE, value, nbytes, words, ub)


def poll_any(
    first: Condition, second: Condition = UNUSED, third: Condition = UNUSED, fourth: Condition = UNUSED, step: int = 0,
    sync: str = "", order: str = "",
) -> Request:  # fmt: skip
    """Wait until one of up to four words, of 8 bytes and aligned, is as its condition says; return which, from 0 on.

    It is granted when any condition holds; where several do it returns any of them, as a loop that loads one word after
    the other does: after a 1 nothing is known of the first word, which may have come meanwhile.  It acquires what came
    before the write that it sees in the word that it returns.  In virtual time it goes on when the first condition
    holds, and of several returns the lowest.  Switched off it returns 0.
    """
    return (OP_POLL_ANY, *first, *second, *third, *fourth)


def dcci(address: int, step: int = 0, sync: str = "") -> Request:
    """Write back the line of 64 bytes with this address, if the scalar unit's data cache has changed it, and drop it.

    The write-back goes into flight as a store does, all 64 bytes of it; nothing waits until it is visible.  What the
    cache is, `machine.device.cache` says; on a pod without one the machine passes over the request.
    """
    return (OP_DCCI, address, 0, 0, 0, 0, 0)


def quiet(step: int = 0, sync: str = "", order: str = "") -> Request:
    """Wait until all that this core issued is done and every write of it, DMA included, is visible."""
    return (OP_QUIET, 0, 0, 0, 0, 0, 0)


# ---- scalar: data buffer, events, group


def ub_load(ub: int, nbytes: int = 4, step: int = 0, sync: str = "") -> Request:
    """Read ``nbytes`` (1, 2, 4 or 8, aligned) of the data buffer as a signed integer."""
    return (OP_UB_LOAD, ub, nbytes, 0, 0, 0, 0)


def validate(ub: int, nbytes: int, step: int = 0, sync: str = "") -> Request:
    """Say that what was read tentatively is right: a look at a version, or the like, shows that nobody wrote meanwhile.

    It covers all that was read so and is not validated yet.  If a write to these bytes became visible while they were
    being read, or in another schedule may have, it is a violation: then that look does not show what it should.
    """
    return (OP_VALIDATE, ub, nbytes, 0, 0, 0, 0)


def ub_store(ub: int, value: int, nbytes: int = 4, step: int = 0, sync: str = "") -> Request:
    """Write ``nbytes`` (1, 2, 4 or 8, aligned) of the data buffer."""
    return (OP_UB_STORE, ub, value, nbytes, 0, 0, 0)


def set_flag(source: int, target: int, event: int, step: int = 0, sync: str = "") -> Request:
    """Queue on pipe ``source``: set the binary event ``event`` (0-31) for pipe ``target``."""
    return (OP_SET_FLAG, source, target, event, 0, 0, 0)


def wait_flag(source: int, target: int, event: int, step: int = 0, sync: str = "") -> Request:
    """Queue on pipe ``target``: wait for the event that pipe ``source`` sets, and consume it."""
    return (OP_WAIT_FLAG, source, target, event, 0, 0, 0)


def arrive(step: int = 0, sync: str = "") -> Request:
    """Arrive at the barrier of the core's group; returns the phase that ``await_group`` takes."""
    return (OP_ARRIVE, 0, 0, 0, 0, 0, 0)


def await_group(phase: int, step: int = 0, sync: str = "") -> Request:
    """Wait until every core of the group has arrived in ``phase``."""
    return (OP_AWAIT_GROUP, phase, 0, 0, 0, 0, 0)


def fail(code: int, info: int = 0, step: int = 0, sync: str = "") -> Request:
    """Stop the run with a protocol error: a code that the protocol's host side explains, and a value."""
    return (OP_FAIL, code, info, 0, 0, 0, 0)


def choose(n: int, of: int = 0, step: int = 0, sync: str = "") -> Request:
    """Ask the environment, which answers with a number from 0 to ``n`` - 1 (``n`` from 1 to `ANSWERS_MOST`).

    It models what a kernel cannot know: has a time-out passed, is a peer suspected, has a request arrived.  The answer
    is an action of the schedule: a search takes every one at every moment, sampled schedules draw one, and a recorded
    schedule has it.  It touches no memory and orders nothing.  0 should be the quiet answer, "not yet": it is given
    by round-robin and in virtual time unless asked otherwise (`Pod`, `VirtualTime`), and where the name
    ``sync`` is switched off.  A kernel that asks again and again gets each answer some day: no livelock is reported
    for a loop that one of them leaves.

    ``of`` is what it is asked for, such as the number of a request: a timer of virtual time begins again with each.
    """
    return (OP_CHOOSE, n, of, 0, 0, 0, 0)


# ---- DMA


def dma(source: int, target: int, nbytes: int, event: int, step: int = 0, sync: str = "") -> Request:
    """Ring the DMA engine to copy memory to memory; its event (DMA, SCALAR, ``event``) says that all is visible."""
    return (OP_DMA, source, target, nbytes, event, 0, 0)


# ---- mtu-in and mtu-out


def mtu_in(source: int, ub: int, nbytes: int, tentative: int = 0, step: int = 0, sync: str = "") -> Request:
    """Copy memory to the data buffer.

    A ``tentative`` one (1 or True) may meet writes: that is no race, but until `validate` nobody may use these bytes
    but to write over all of them.  Several that touch are validated as one; one that covers all begins again.
    """
    return (OP_MTU_IN, source, ub, nbytes, tentative, 0, 0)


def mtu_out(ub: int, target: int, nbytes: int, step: int = 0, sync: str = "", order: str = "") -> Request:
    """Copy the data buffer to memory."""
    return (OP_MTU_OUT, ub, target, nbytes, 0, 0, 0)


def mtu_add(ub: int, target: int, nbytes: int, step: int = 0, sync: str = "", order: str = "") -> Request:
    """Add integers of 4 bytes of the data buffer to those in memory, as a copy by mtu-out that adds.

    Offset, address and size are multiples of 4.  What becomes visible at once is added at once; what does not fit into
    4 bytes is left out.  Additions of several cores to the same bytes are no race.
    """
    return (OP_MTU_ADD, ub, target, nbytes, 0, 0, 0)


def put_signal(
    ub: int, target: int, nbytes: int, signal: int, value: int, how: int = SIGNAL_SET, step: int = 0, sync: str = "",
    order: str = "",
) -> Request:  # fmt: skip
    """Copy the data buffer to memory as `mtu_out` does, and when all of that is visible, and only then, signal there.

    The signal sets an aligned 8-byte word to ``value``, or adds to it (``how``: `SIGNAL_SET` or `SIGNAL_ADD`), at once.
    The word is in the metadata area of the target's die, outside of what is copied.  What this request copies is
    visible before the signal, whatever the order; to other writes both stand as what asks for this ``order`` does.
    """
    return (OP_PUT_SIGNAL, ub, target, nbytes, signal, value, how)


def put(
    target: int, word0: int, word1: int = 0, word2: int = 0, word3: int = 0, step: int = 0, sync: str = "",
    order: str = "",
) -> Request:
    """Write one aligned 32-byte granule that the scalar unit built, by mtu-out."""
    return (OP_PUT, target, word0, word1, word2, word3, 0)


def add(target: int, value: int, step: int = 0, sync: str = "", order: str = "") -> Request:
    """Add to an aligned 8-byte word at its home memory by mtu-out; returns nothing and does not wait."""
    return (OP_ADD, target, value, 0, 0, 0, 0)


def fence(step: int = 0, sync: str = "") -> Request:
    """Queue on mtu-out: on each die, this core's writes behind it become visible after those before it.

    Nothing waits until anything is visible, and the kernel goes on.  It covers scalar stores, atomics and all that
    mtu-out writes; not DMA, which is ordered by its events, and no other core.  A store or atomic after it is granted
    when mtu-out has come to it.
    """
    return (OP_FENCE, 0, 0, 0, 0, 0, 0)


# ---- vector (all on the data buffer; offsets multiples of 4)


def v_quantize(
    ub: int, target_ub: int, count: int, dtype: int, rule: int = RULE_XCCL, step: int = 0, sync: str = ""
) -> Request:
    """Quantize ``count`` elements at ``target_ub`` by a rule, to INT8 with the FP32 scale behind them.

    By the rules of FP8, to e4m3, ``count`` a multiple of `FP8_BLOCK`, with an FP32 scale for each block after them,
    and zeros up to a multiple of 32 bytes (docs/records/quantizers.md).
    """
    return (OP_V_QUANTIZE, ub, target_ub, count, dtype, rule, 0)


def v_dequantize(
    ub: int, target_ub: int, count: int, scale_ub: int, rule: int = RULE_XCCL, step: int = 0, sync: str = ""
) -> Request:
    """Widen ``count`` INT8 values to FP32 and multiply each by the FP32 at ``scale_ub``.

    By the rules of FP8 they are e4m3, and each block has a scale of its own there.
    """
    return (OP_V_DEQUANTIZE, ub, target_ub, count, scale_ub, rule, 0)


def v_copy(ub: int, target_ub: int, nbytes: int, step: int = 0, sync: str = "") -> Request:
    """Copy within the data buffer (ranges must not overlap)."""
    return (OP_V_COPY, ub, target_ub, nbytes, 0, 0, 0)


def v_map(
    ub: int, target_ub: int, count: int, function: int, other: int = 0, step: int = 0, sync: str = ""
) -> Request:  # fmt: skip
    """Make ``count`` results of as many elements, or one of them all, by a function of `lang.maps`.

    ``other`` is where its second operand is, or the bits of a scalar.  What is read is where the results go, or does
    not overlap it.
    """
    return (OP_V_COPY, ub, target_ub, count, function, other, 0)


def v_fill(ub: int, nbytes: int, byte: int = 0, step: int = 0, sync: str = "") -> Request:
    """Fill bytes of the data buffer."""
    return (OP_V_FILL, ub, nbytes, byte, 0, 0, 0)


def v_widen(ub: int, target_ub: int, count: int, dtype: int, step: int = 0, sync: str = "") -> Request:
    """Cast ``count`` elements to FP32."""
    return (OP_V_WIDEN, ub, target_ub, count, dtype, 0, 0)


def v_axpy(ub: int, acc_ub: int, weight: int, count: int, dtype: int, step: int = 0, sync: str = "") -> Request:
    """FP32 accumulator += weight x element: multiply, round, add, round.  ``weight`` is the bits of an FP32.

    Elements may be FP32, too; here and in `v_add`.
    """
    return (OP_V_AXPY, ub, acc_ub, weight, count, dtype, 0)


def v_add(ub: int, acc_ub: int, count: int, dtype: int, step: int = 0, sync: str = "") -> Request:
    """FP32 accumulator += element."""
    return (OP_V_ADD, ub, acc_ub, count, dtype, 0, 0)


def v_scale(acc_ub: int, count: int, factor: int, step: int = 0, sync: str = "") -> Request:
    """FP32 accumulator *= factor.  ``factor`` is the bits of an FP32."""
    return (OP_V_SCALE, acc_ub, count, factor, 0, 0, 0)


def v_narrow(acc_ub: int, target_ub: int, count: int, dtype: int, step: int = 0, sync: str = "") -> Request:
    """Round ``count`` FP32 values to ``dtype``, half to even."""
    return (OP_V_NARROW, acc_ub, target_ub, count, dtype, 0, 0)


def v_count(ub: int, target_ub: int, count: int, low: int, high: int, step: int = 0, sync: str = "") -> Request:
    """Count those of ``count`` signed 4-byte integers that are at least ``low`` and below ``high``, into one more."""
    return (OP_V_COUNT, ub, target_ub, count, low, high, 0)
