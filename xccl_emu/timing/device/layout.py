"""Where everything is in the array of times: an int64 array beside the machine's state, all times in picoseconds.

A second array of the same shape, `who`, says for each time which record (of the log of timed actions, plus 1) made it
so; that is what the critical path is walked along.  Without a log it is empty.
"""

from xccl_emu.lang.requests import OPERATIONS
from xccl_emu.machine.device.layout import N_DMA_SLOTS, N_EVENTS, N_PIPES, QUEUE_DEPTH

# ---- header
HEAP_COUNT, NOW, N_RECORDS, RECORD_CAPACITY, LIMIT = range(5)
HEAP_BASE, CORE_BASE, DIE_BASE, NODE_BASE, GROUP_BASE, PIECE_BASE, PIECE_SLOTS, PIECES_USED = range(5, 13)
DIES_PER_CHIP, DIES_PER_NODE, PLANES, STRIPE_BYTES = range(13, 17)
HEAP_SLOTS, PIECES_A_DIE = 17, 18  # with so many in the heap a core is not entered twice
SITE_BASE = 19  # a word for each site of each kernel: is it a load that is a synchronization?
COSTS = 24
(
    C_ISSUE, C_LOAD, C_POLL, C_QUIET, C_BARRIER, C_EVENT, C_MTU_START, C_CORE, C_VECTOR_START, C_VECTOR, C_DMA_START,
    C_DMA_ISSUE, C_UPLINK,
) = range(COSTS, COSTS + 13)  # fmt: skip
PASSES = 48  # of the vector pipe, in sixteenths, by operation
PATHS = PASSES + len(OPERATIONS) + 1
PATH_WORDS = 5
READ_LATENCY, READ_RATE, WRITE_LATENCY, WRITE_RATE, LINKS = range(PATH_WORDS)  # rates in femtoseconds a byte
HEADER_WORDS = 128

ENDED_PIECES_FULL = 100  # the table of polled words is; the machine has the other ways to end

# ---- a core's block
SCALAR_AT, READS_DONE, ALL_VISIBLE, NEXT_WAITER, WAITS_AT, HEAP_AT, FINISHED, CORE_DIE = range(8)
FREE = 8  # by pipe
QUEUED, RUN = FREE + N_PIPES, FREE + 2 * N_PIPES  # by pipe: instructions so far
ISSUED = FREE + 3 * N_PIPES  # by pipe, a ring of the last instructions: when the scalar unit had issued it
POPPED = ISSUED + N_PIPES * QUEUE_DEPTH  # when it had left the queue
RUNG = POPPED + N_PIPES * QUEUE_DEPTH  # by DMA descriptor
DMA_DONE = RUNG + N_DMA_SLOTS  # when the core's last descriptor was done, which the next one waits for
DMA_READY, DMA_MOVES, DMA_SLOT = range(DMA_DONE + 1, DMA_DONE + 4)  # of the one that the engine starts, if it does
EVENT_AT = DMA_DONE + 4  # by source pipe, target pipe and event
CORE_WORDS = EVENT_AT + N_PIPES * N_PIPES * N_EVENTS

# ---- a die's block: when each of its queues is free
EGRESS, INGRESS, MEMORY, LINK, DMA_ENGINE, LOGGED = range(6)  # the last: are the actions of its cores written down?
DIE_WORDS = 6
NODE_OUT, NODE_IN = range(2)
NODE_WORDS = 2

# ---- a core group's block: by phase of its barrier, last arrival and release; and who waits
ARRIVED_AT, RELEASED_AT, GROUP_WAITER = 0, 2, 4
GROUP_WORDS = 5

# ---- a piece that was written by itself: when that became visible, and who polls it
PIECE_KEY, PIECE_AT, PIECE_WAITER = range(3)
PIECE_WORDS = 3

# ---- a record
RECORD_CORE, RECORD_ENGINE, RECORD_OP, RECORD_SITE, RECORD_START, RECORD_END, RECORD_NBYTES, RECORD_PEER = range(8)
RECORD_CAUSE, RECORD_QUEUED, RECORD_VISIBLE, RECORD_READ, RECORD_WRITTEN = range(8, 13)  # the last two: where, or -1
RECORD_WORDS = 13

assert COSTS + 13 <= PASSES
assert PATHS + 4 * PATH_WORDS <= HEADER_WORDS
