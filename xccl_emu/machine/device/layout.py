"""Where everything is in the machine's int64 array.

The array is: a header, the blocks of the cores, the blocks of the dies (writes in flight), the blocks of the core
groups, the switches of named synchronizations, and regions that no program can observe: the tables of last writers
and of large writes, kept for reports, the counters of traffic between dies, and the list of cores that take part in
the run.
"""

from xccl_emu.lang.abi import REGISTERS, REQUEST_WORDS
from xccl_emu.lang.requests import ANSWERS_MOST, OPERATIONS

# ---- header
N_CORES, CORES_PER_DIE, N_DIES, DIE_SHIFT, UB_BYTES, ORDER = range(6)
CORE_BASE, CORE_WORDS, DIE_BASE, DIE_WORDS, FLIGHT_CAPACITY, GROUP_BASE, SWITCH_BASE = range(6, 13)
WRITER_BASE, WRITER_SLOTS = range(13, 15)
ACTIVE_BASE, N_ACTIVE, N_ACTIVE_DIES, N_LIVE, CURSOR, RANDOM_1, RANDOM_2, LOG_COUNT = range(15, 23)
ERROR, ERROR_CORE, ERROR_SITE, ERROR_OP, ERROR_A, ERROR_B = range(24, 30)
ACTIONS = 30
LARGE_BASE, LARGE_SLOTS = 23, 31
COUNT_BY_OP = 32
BYTES_BY_PIPE = 72  # of the vector pipe: elements
DRAWS_ANSWERS = 77  # are answers drawn by those policies that answer 0 else?
SOME_SIGNAL = 78  # may requests signal?  Not under `sc` and `fifo`, where a signal is a write like any other.
SIGNALS_START, SIGNALS_END = 79, 80  # of a die: its metadata area, where signals may go
STEP_TABLE = 81  # where each kernel's step function is, for `words.call_step`
TRAFFIC_BASE, TRAFFIC_WORDS = 97, 98
SPARSE = 99  # where in memory the dirty bits begin if what would change nothing is left out, or `ALL_DIRTY`; else 0
ACT = 100  # where the machine's action is, for `single.act_once`
N_HOMES = 101  # dies, and CPUs after them, which have cores, too
REQUEST_ORDERS = 102  # do some requests ask for no order (1), or for a strong one (2)?  Not under `sc` and `fifo`.
ATOMIC_SHIFT = 103  # log2 of the bytes that become visible, and are read, at once
FLIGHT_WORDS = 104  # of a write in flight: as many as its largest data need
FLIGHT_WORDS_MOST = 22
FAULT_CUT, FAULT_COPY, FAULT_HAPPENED = 105, 106, 128  # what a check has broken; the copy is of a write in flight
CACHE_BASE, CACHE_LINES, CACHE_WORDS = range(129, 132)  # lines that a core's scalar unit caches; words of a core's
SOME_TENTATIVE = 132  # has a core read tentatively?  It saves a look at each write, and is no part of the state
SOME_FLAGS = 133  # are there windows of flags?
LOST_START, LOST_END = 134, 135  # bytes that a check has lost; no end: none
LOSSES, LOSS_WORDS, LOSSES_MOST = 136, 3, 4  # what may be lost by name: start, end, and the word that reports it, or -1
HEADER_WORDS = LOSSES + LOSS_WORDS * LOSSES_MOST

# ---- memory orders
ORDER_SC, ORDER_FIFO, ORDER_RELAXED, ORDER_UNORDERED = range(4)

# ---- a core's block; PC, RESULT, REQUEST and REGISTERS are in lang.abi
KERNEL, STATUS, DIE, GROUP, IN_FLIGHT, UB_BASE, N_WINDOWS = 0, 2, 4, 5, 6, 7, 8
HELD_START, HELD_END, RACED = 9, 10, 11  # of the data buffer, read tentatively and not validated; has a write met it?
N_PIPES = 5  # scalar, mtu-in, vector, mtu-out, DMA
EVENTS = 32  # a word of 32 binary events for each (source pipe, target pipe)
N_EVENTS = 32
POLLED = 60  # of a line that is polled: a bit for each granule that has been read
AT_END = -1  # the site of a return, which has none
PIPES = 64  # three queues: mtu-in, vector, mtu-out
PIPE_HEAD, PIPE_COUNT, PIPE_ENTRIES = 0, 1, 2
QUEUE_DEPTH = 8
ENTRY_WORDS = 10
ENTRY_SITE, ENTRY_PROGRESS, ENTRY_IN_FLIGHT = 7, 8, 9  # after the operation and six operands
ENTRY_CUT = 5  # of a DMA descriptor, in an unused operand: sub-transfer + 1 and bytes of it that are copied
PIPE_WORDS = PIPE_ENTRIES + QUEUE_DEPTH * ENTRY_WORDS
DMA_SLOTS = PIPES + 3 * PIPE_WORDS
N_DMA_SLOTS = 8
WINDOWS = DMA_SLOTS + N_DMA_SLOTS * ENTRY_WORDS
WINDOW_WORDS = 4
WINDOW_DIE, WINDOW_START, WINDOW_END, WINDOW_RIGHTS = range(WINDOW_WORDS)
MAX_WINDOWS = (REGISTERS - WINDOWS) // WINDOW_WORDS

STATUS_IDLE, STATUS_RUNNING, STATUS_DONE, STATUS_STOPPED = range(4)  # stopped: by a fault
READ, WRITE, FLAGS = 1, 2, 4  # rights of a window; flags: what loads and mtu-in read of it synchronizes
ANY_DIE = -1

# ---- a die's block: its writes in flight, a ring in issue order
FLIGHT_HEAD, FLIGHT_COUNT, FLIGHT_ENTRIES = 0, 1, 2
FLIGHT_CORE, FLIGHT_KIND, FLIGHT_ADDRESS, FLIGHT_NBYTES, FLIGHT_SITE, FLIGHT_FENCES, FLIGHT_DATA = range(7)
"""Words of a write in flight; fences: how many its core has passed since; not for DMA, nor under `fifo`."""
FENCES_MASK, ASKED_SHIFT = (1 << 20) - 1, 20  # above the fences: the order that its request asks for
PART_SHIFT = 22  # above that: is it what a request copies that signals, or the signal?
IS_PAYLOAD, IS_SIGNAL = 1, 2
KIND_SCALAR, KIND_MTU, KIND_ADD, KIND_ADD_ROW, KIND_DMA = range(5)  # KIND_DMA + slot for a write of that DMA descriptor

# ---- the lines that a core's scalar unit caches, in order of addresses, those in use first (`cache`)
CACHE_LINE_BYTES = 64
CACHED_LINE, CACHED_DIRTY, CACHED_DATA = range(3)  # number of the line + 1, is it changed, its words
CACHED_WORDS = CACHED_DATA + CACHE_LINE_BYTES // 8

# ---- a core group's block
GROUP_SIZE, GROUP_ARRIVED, GROUP_PHASE = range(3)
GROUP_WORDS = 4

# ---- a die's counters of traffic: requests of its cores for memory of other dies, and two bit masks of these dies
TRAFFIC_WRITES, TRAFFIC_FLAGS, TRAFFIC_READS, TRAFFIC_WRITE_BYTES, TRAFFIC_READ_BYTES, TRAFFIC_MASKS = range(6)
TRAFFIC_MASK_BITS = 32  # in a word

# ---- a word for each site of a kernel: is its synchronization off, which order does it ask for, is its quiet a fence?
SITE_OFF, SITE_ORDER, SITE_FENCE = 1, 1, 8  # the order is above the first bit
ASKS_NO, ASKS_RELAXED, ASKS_STRONG = range(1, 4)
ASKS_SOME_STRONG = 2  # in `REQUEST_ORDERS`

MAX_KERNELS = 16
MAX_SITES = 1024  # of one kernel, the last of them for what is no request of it
AT_PLACE = MAX_SITES - 1  # the site of arithmetic that failed; the request says at which place (`Kernel.places`)

# ---- what runs show of a site: a core comes to it; it may have to wait there, or it is none at which one waits
CAME, MAY_WAIT = 4, 8

WRITER_GRANULE, WRITER_CORE, WRITER_SITE, WRITER_WHEN = range(4)  # granule + 1; `ACTIONS`, from 1 on
WRITER_WORDS = 4
NOTED_BYTES_MAX = 256  # a larger write under `sc` is not noted granule by granule
LARGE_SHIFT = 12  # of such a write it is noted when it touched each block of 4 KiB

GRANULE_BYTES = 32
CHUNK_SHIFT = 9  # of bytes with a dirty bit: 512, as a message's slot
CHUNK_BYTES = 1 << CHUNK_SHIFT
ALL_DIRTY = -1  # no bits: any byte may be something else than zero
ATOMIC_BYTES = (4, 8, 16, 32, 64, 128)  # that may become visible at once; a granule is usual
LINE_BYTES_LEAST, LINE_BYTES_MOST = 16, 128  # of what a poll reads at least and at most, if not a word
MAX_SUBTRANSFERS = 62  # a transfer is read in at most this many, so that one word can say which are done

# ---- an action: an actor and a choice
ACTORS_PER_CORE = N_PIPES  # after them one actor a die, which delivers writes
CHOICE_BITS = 16
CHOICE_ANEW, CHOICE_EVICT = 1, 64  # of a scalar unit with a cache: fetch a line again; from here on, evict a line
# of a scalar unit at `choose`: the answer, or `CHOICE_ALL` for 0
CHOICE_ALL = (1 << CHOICE_BITS) - 1  # the whole of the next transfer, or every write in flight in issue order

# ---- errors that end a run
ERR_ACCESS, ERR_UB, ERR_ALIGN, ERR_SIZE, ERR_DOUBLE_SET, ERR_FAIL, ERR_OPERAND, ERR_LEFT_SET = range(1, 9)
ERR_ARITHMETIC, ERR_CPU, ERR_UNDEFINED = 9, 10, 11
UNDEFINED_USED, UNDEFINED_RACED, UNDEFINED_UNREAD, UNDEFINED_LOST = range(4)  # why bytes are in error

# ---- how a policy's run ended
ENDED_DONE, ENDED_PAUSED, ENDED_DEADLOCK, ENDED_ERROR, ENDED_LOG_FULL, ENDED_NOT_ENABLED = range(6)

assert WINDOWS + MAX_WINDOWS * WINDOW_WORDS <= REGISTERS
assert REQUEST_WORDS == ENTRY_PROGRESS
assert BYTES_BY_PIPE + N_PIPES <= DRAWS_ANSWERS
assert COUNT_BY_OP + len(OPERATIONS) <= BYTES_BY_PIPE
assert ANSWERS_MOST <= CHOICE_EVICT
assert FAULT_HAPPENED == FAULT_COPY + FLIGHT_WORDS_MOST == CACHE_BASE - 1
assert FLIGHT_DATA + max(ATOMIC_BYTES) // 8 == FLIGHT_WORDS_MOST
