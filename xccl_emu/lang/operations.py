"""Sets of operations, and places of operands, as constants of device code: all made of the rows of `requests.TABLE`.

A set is a number: ``ops.VECTORS >> op & 1`` says whether ``op`` is in it.
"""

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.lang import requests as rq
from xccl_emu.lang.requests import SCALAR, TABLE, Bytes, Operation

N_OPERATIONS = len(TABLE)
PIPES = np.array([row.pipe for row in TABLE])
"""The pipe that carries out each operation."""
QUEUES = np.where(PIPES == rq.DMA, SCALAR, PIPES)
"""The pipe whose queue each goes to, but for events; SCALAR: none."""


def _those(has: Callable[[Operation], object]) -> int:
    return sum(1 << code for code, row in enumerate(TABLE) if has(row))


VECTORS = _those(lambda row: row.pipe == rq.VECTOR)
"""What the vector pipe carries out."""
TRANSFERS = _those(lambda row: row.pipe in (rq.MTU_IN, rq.MTU_OUT))
"""What mtu-in and mtu-out carry out, a fence included."""
QUEUED = _those(lambda row: row.pipe != SCALAR)
"""What is not carried out when the scalar unit asks for it."""
READS, WRITES = _those(lambda row: row.reads), _those(lambda row: row.writes)
"""What reads memory, and what writes it."""
TAKES, FILLS = _those(lambda row: row.takes), _those(lambda row: row.fills)
"""What reads the data buffer, and what writes it; a sum reads what it writes, too (`ACCUMULATES`)."""
ACCUMULATES = _those(lambda row: row.pipe == rq.VECTOR and row.fills and row.fills[0] == "acc_ub")
"""What reads, in the data buffer, what it writes."""
ON_DIE = _those(lambda row: row.takes or row.fills or (row.pipe == rq.MTU_OUT and row.writes))
"""What needs a data buffer and pipes, which a core of a CPU has not; its stores pass a fence."""
FETCHES = _those(lambda row: row.reads and not row.waits and (row.pipe == rq.DMA or not row.writes))
"""What reads memory, but for polls, and for atomics, which count as writes."""
COPIES = _those(lambda row: row.pipe != SCALAR and (row.writes or row.reads or ("", ""))[1] == "nbytes")
"""What moves as many bytes as an operand says between memory and the data buffer, or within memory."""
COPIES_TO_MEMORY = COPIES & WRITES
CARRIES = COPIES & ~_those(lambda row: row.adds)
"""What copies bytes as they are: padding that nobody has written may travel with them."""
RINGS = _those(lambda row: row.pipe == rq.DMA)
"""What a DMA descriptor carries out."""
SCALAR_WRITES = _those(lambda row: row.pipe == SCALAR and row.writes)
"""What the scalar unit writes to memory by itself: stores and atomics."""
ATOMICS = _those(lambda row: row.pipe == SCALAR and row.reads and row.writes)
"""What reads and writes a word at its home memory, while the scalar unit waits."""
WORDS = _those(lambda row: row.pipe == SCALAR and (row.reads or row.writes))
"""What the scalar unit reads or writes in memory by itself: one word, or a line that it polls."""

WAITS = _those(lambda row: row.waits)
"""What waits for something but a place in a queue."""
POLLS = _those(lambda row: row.waits == "memory")
"""What waits for what memory holds."""
LOOKS = POLLS | _those(lambda row: row.pipe == SCALAR and row.reads and not row.writes)
"""What the scalar unit reads in memory and leaves as it is; it does so where its name is switched off, too."""
LOADS, STORES = LOOKS & ~POLLS, SCALAR_WRITES & ~ATOMICS
"""What the scalar unit only reads in memory, and only writes, and does not wait for."""
DRAINS = _those(lambda row: row.waits == "visible")
"""What waits until all that its core issued is done and visible."""
FLAGS = _those(lambda row: row.pipe == SCALAR and "event" in (row.waits, row.releases))
"""What sets an event or waits for it, in its turn on a pipe that an operand names."""
BARRIERS = _those(lambda row: "barrier" in (row.waits, row.releases))
"""What is about the barrier of a group."""
GROUP_WAITS, ARRIVALS = BARRIERS & WAITS, BARRIERS & ~WAITS
ADDS = _those(lambda row: row.adds)
"""What adds to what is in memory."""
AWAITS_OTHERS = _those(lambda row: row.waits in ("memory", "barrier"))
"""What waits for other cores."""
EVENT_WAITS, EVENT_SETS = FLAGS & WAITS, FLAGS & ~WAITS
FENCES = _those(lambda row: row.pipe != SCALAR and not (row.reads or row.writes or row.takes or row.fills))
MARKERS = FLAGS | FENCES
"""What a pipe passes, and touches nothing: events and fences."""
CACHED = _those(lambda row: row.word and (row.reads or row.writes) and not row.waits)
"""What goes through the cache of a scalar unit that has one."""
LINES = _those(lambda row: row.unit == rq.LINE_BYTES)
"""What the scalar unit reads or writes of 16 bytes at once."""

BUFFER_READS = _those(lambda row: row.pipe == SCALAR and row.takes)
BUFFER_WORDS = BUFFER_READS | _those(lambda row: row.pipe == SCALAR and row.fills)
"""What the scalar unit reads, or reads or writes, in the data buffer."""
COPIES_OUT = _those(lambda row: row.takes and row.writes)
"""What mtu-out copies from the data buffer."""
COPIES_IN = _those(lambda row: row.reads and row.fills)
"""What mtu-in copies to the data buffer."""


def names(operations: int) -> frozenset[str]:
    """Names of the members of a set."""
    return frozenset(row.name for code, row in enumerate(TABLE) if operations >> code & 1)


def orders_of(operation: str) -> tuple[str, ...]:
    """Return what a request may ask for, by the name of its operation or constructor."""
    asks = rq.ORDERS if operation in ASK_FOR_ORDER else ("",)
    sees = operation.startswith("poll_") or operation in names(LOOKS | ATOMICS | DRAINS)
    return (*asks, rq.NO_ACQUIRE) if sees else asks


ASK_FOR_ORDER = names(SCALAR_WRITES | (WRITES & TRANSFERS))
"""Requests that may ask for an order, as writes."""


def _places(name: str) -> Any:
    """The place of each operand in a request, by its name; the operation itself has place 0."""
    row = TABLE[rq.OPERATIONS.index(name)]
    return namedtuple(row.name.title(), row.operands)(*range(1, 1 + len(row.operands.split())))


FIRST, SECOND, THIRD = 1, 2, 3
"""Places of the first operands of any request."""
LOAD, STORE, POLL, POLL_ANY, DCCI = map(_places, ("load", "store", "poll", "poll_any", "dcci"))
LOAD_LINE, STORE_LINE = map(_places, ("load_line", "store_line"))
ATOMIC, COMPARE_SWAP, UB_STORE, FLAG = map(_places, ("atomic_add", "compare_swap", "ub_store", "set_flag"))
RETURN, AWAIT, CHOOSE, FAIL = map(_places, ("return", "await_group", "choose", "fail"))
MTU_IN, OUT, PUT_SIGNAL, PUT, ADD, DMA = map(_places, ("mtu_in", "mtu_out", "put_signal", "put", "add", "dma"))
QUANTIZE, DEQUANTIZE, COPY, FILL = map(_places, ("v_quantize", "v_dequantize", "v_copy", "v_fill"))
AXPY, SCALE, COUNT = map(_places, ("v_axpy", "v_scale", "v_count"))
"""Places of operands: ``st[base + REQUEST + ops.POLL.value]``; `FLAG` is of both flags, `OUT` of all `COPIES_OUT`."""


def _ranges(of: Callable[[Operation], Bytes]) -> NDArray[np.int64]:
    """For each operation the place of an address, and of a size, or minus the size itself; zeros for none."""
    made = np.zeros((len(TABLE), 2), np.int64)
    for code, row in enumerate(TABLE):
        if touched := of(row):
            address, size = touched
            places = ["", *row.operands.split()]
            made[code] = places.index(address), -size if isinstance(size, int) else places.index(size)
    return made


READ, WRITTEN = _ranges(lambda row: row.reads), _ranges(lambda row: row.writes)
TAKEN, FILLED = _ranges(lambda row: row.takes), _ranges(lambda row: row.fills)
"""Where in a request its memory and its data buffer are said; `machine.device.touched` reads it."""
WORD = 0
UNIT = np.array([WORD if row.word else row.unit for row in TABLE])
"""What its addresses are multiples of; `WORD`: of the size of the word that it accesses."""
DTYPE = np.array([row.operands.split().index("dtype") + 1 if "dtype" in row.operands else 0 for row in TABLE])
"""Where an instruction of the vector pipe has its element type; 0: it has none."""
