"""Where everything is in the machine's int64 array.

The array is: a header, the blocks of the cores, the blocks of the dies (writes in flight), the blocks of the core
groups, the switches of named synchronizations, and regions that no program can observe: the tables of last writers
and of large writes, kept for reports, the counters of traffic between dies, and the list of cores that take part in
the run.
"""

from xccl_emu.lang.abi import REGISTERS, REQUEST_WORDS
from xccl_emu.lang.requests import ANSWERS_MOST, OPERATIONS

# ---- header.  Each line says what the word holds, then what holds of it between actions; most are fixed for a pod.
N_CORES = 0  # counts the cores of all homes
N_DIES = 2  # counts the dies; `N_HOMES` counts CPUs too
DIE_SHIFT = 3  # holds log2 of the bytes of memory of a home: an address shifted by it is the home's number
UB_BYTES = 4  # holds the bytes of a data buffer
ORDER = 5  # holds the memory order; a search changes it within an action alone (`record.step_machine`)
CORE_BASE, CORE_WORDS = 6, 7  # say where the cores' blocks begin, and how many words each has
DIE_BASE, DIE_WORDS = 8, 9  # say so of the homes' rings
FLIGHT_CAPACITY = 10  # holds how many writes a ring has places for; 0 under `sc`
GROUP_BASE = 11  # says where the blocks of the core groups begin, `GROUP_WORDS` each
SWITCH_BASE = 12  # says where the words of the sites begin, `MAX_SITES` a kernel
WRITER_BASE, WRITER_SLOTS = 13, 14  # say where the table of last writers begins, and how many rows it has, a power of 2
ACTIVE_BASE = 15  # says where the cores that take part are listed, in rising order, and after them their homes
N_ACTIVE = 16  # counts these cores
N_ACTIVE_DIES = 17  # counts these homes
N_LIVE = 18  # counts the cores that run; a search steps back without it, so there it counts no more than these
CURSOR = 19  # says where a policy goes on: which actor is next, or which action of a schedule
RANDOM_1 = 20  # holds the first generator of the random policy: from 1 to 2147483562
RANDOM_2 = 21  # holds the second one: from 1 to 2147483398
LOG_COUNT = 22  # counts the actions in the log of this slice; no more than that has room for
LARGE_BASE, LARGE_SLOTS = 23, 31  # say where the table of large writes begins, and how many words it has
ERROR = 24  # holds `ERR_*` of the first violation, 0 for none; then no action is taken any more
ERROR_CORE, ERROR_SITE = 25, 26  # hold whose it is and at which site; as all words of the error they are 0 without one
ERROR_OP = 27  # holds the operation that the core was at
ERROR_A, ERROR_B = 28, 29  # hold what the error is about, by its kind
ERROR_SHIFT = 32  # of the second of two places in the data buffer that are in `ERROR_B`
UNKNOWN = -1  # as `ERROR_B`: `ERROR_A` holds an invalid code; places are never negative
ACTIONS = 30  # counts the actions of the run; a search that steps back leaves it
COUNT_BY_OP = 32  # counts granted requests, a word for each operation; together no more than `ACTIONS`
BYTES_BY_PIPE = 72  # counts bytes, a word for each pipe; of the vector pipe: elements
DRAWS_ANSWERS = 77  # are answers drawn by those policies that answer 0 else?
SOME_SIGNAL = 78  # may requests signal?  Not under `sc` and `fifo`, where a signal is a write like any other.
SIGNALS_START, SIGNALS_END = 79, 80  # of a die: its metadata area, where signals may go
STEP_TABLE = 81  # where each kernel's step function is, for `words.call_step`
TRAFFIC_BASE, TRAFFIC_WORDS = 97, 98  # say where the counters of traffic begin, and how many words each home has
SPARSE = 99  # where in memory the dirty bits begin if what would change nothing is left out, or `ALL_DIRTY`; else 0
ACT = 100  # where the machine's action is, for `single.act_once`; 0 where round-robin alone runs, which contains it
N_HOMES = 101  # dies, and CPUs after them, which have cores, too
REQUEST_ORDERS = 102  # do some requests ask for no order (1), or for a strong one (2)?  Not under `sc` and `fifo`.
ATOMIC_SHIFT = 103  # log2 of the bytes that become visible, and are read, at once: of one of `ATOMIC_BYTES`
FLIGHT_WORDS = 104  # of a write in flight: as many as its largest data need, `FLIGHT_WORDS_MOST` at most
FLIGHT_WORDS_MOST = 22
FAULT_CUT = 105  # holds 1 + (source | target << 16) of a link that a check has cut; 0 for none
FAULT_COPY = 106  # holds a copy of a write in flight that is to arrive twice; its `FLIGHT_NBYTES` is 0 if there is none
FAULT_HAPPENED = 128  # has a bit for each kind of action by which something broke; in a run bits only come
CACHE_BASE, CACHE_LINES, CACHE_WORDS = range(129, 132)  # lines that a core's scalar unit caches; words of a core's
SOME_TENTATIVE = 132  # has a core read tentatively?  It saves a look at each write, and is no part of the state
SOME_FLAGS = 133  # are there windows of flags?
LOST_START, LOST_END = 134, 135  # bytes that a check has lost; no end: none
LOSSES, LOSS_WORDS, LOSSES_MOST = 136, 3, 4  # what may be lost by name: start, end, and the word that reports it, or -1
LAUNCHED = LOSSES + LOSS_WORDS * LOSSES_MOST  # says where each core's registers are kept as its launch wrote them
REVIVED = LAUNCHED + 1  # holds 1 + the die whose cores have started again in this run; 0 for none
HEADER_WORDS = REVIVED + 1

# ---- memory orders
ORDER_SC, ORDER_FIFO, ORDER_RELAXED, ORDER_UNORDERED = range(4)

# ---- a core's block; PC, RESULT, REQUEST and REGISTERS are in lang.abi
KERNEL = 0  # holds the number of the kernel that the core runs
STATUS = 2  # holds `STATUS_*`; of a core that is done nothing is queued or in flight, and no event is set
DIE = 4  # holds the home of the core
GROUP = 5  # holds the number of its core group
IN_FLIGHT = 6  # counts the core's writes in the ring of its home; 0 under `sc`
UB_BASE = 7  # holds the first byte of its data buffer
N_WINDOWS = 8  # counts what it may touch, `MAX_WINDOWS` at most
HELD_START, HELD_END = 9, 10  # of the data buffer, read tentatively and not validated; both 0 if nothing is
RACED = 11  # has a write met what is held?  0 if nothing is
N_PIPES = 5  # scalar, mtu-in, vector, mtu-out, DMA
EVENTS = 32  # a word of 32 binary events for each (source pipe, target pipe)
N_EVENTS = 32
POLLED = 60  # of a line that is polled: a bit for each granule that has been read, never all; 0 at any other request
AT_END = -1  # the site of a return, which has none
PIPES = 64  # three queues: mtu-in, vector, mtu-out
PIPE_HEAD = 0  # says which entry is the oldest; 0 where the queue is empty
PIPE_COUNT = 1  # counts the entries in use, `QUEUE_DEPTH` at most; all words of the others are 0, but of a stopped core
PIPE_ENTRIES = 2
QUEUE_DEPTH = 8
ENTRY_WORDS = 10
ENTRY_SITE = 7  # after the operation and six operands: the site
ENTRY_PROGRESS = 8  # sub-transfers that are read, a bit each, or bytes that mtu-out has written; -1: all is read
ENTRY_IN_FLIGHT = 9  # counts the writes in flight of a DMA descriptor; of other entries 0
ENTRY_CUT = 5  # of a DMA descriptor, in an unused operand: sub-transfer + 1 and bytes of it that are copied
PIPE_WORDS = PIPE_ENTRIES + QUEUE_DEPTH * ENTRY_WORDS
DMA_SLOTS = PIPES + 3 * PIPE_WORDS  # one entry a descriptor; all words of a free one are 0
N_DMA_SLOTS = 8
WINDOWS = DMA_SLOTS + N_DMA_SLOTS * ENTRY_WORDS
WINDOW_WORDS = 4
WINDOW_DIE, WINDOW_START, WINDOW_END, WINDOW_RIGHTS = range(WINDOW_WORDS)
MAX_WINDOWS = (REGISTERS - WINDOWS) // WINDOW_WORDS

STATUS_IDLE, STATUS_RUNNING, STATUS_DONE, STATUS_STOPPED = range(4)  # stopped: by a fault
READ, WRITE, FLAGS = 1, 2, 4  # rights of a window; flags: what loads and mtu-in read of it synchronizes
ANY_DIE = -1

# ---- a die's block: its writes in flight, a ring in issue order
FLIGHT_HEAD = 0  # says which place holds the oldest: 0, or less than `FLIGHT_CAPACITY`
FLIGHT_COUNT = 1  # counts the writes in flight, `FLIGHT_CAPACITY` at most; of the other places nobody reads anything
FLIGHT_ENTRIES = 2
FLIGHT_CORE, FLIGHT_KIND, FLIGHT_ADDRESS, FLIGHT_NBYTES, FLIGHT_SITE, FLIGHT_FENCES, FLIGHT_DATA = range(7)
"""Words of a write in flight; fences: how many its core has passed since; not for DMA, nor under `fifo`.

The core is one of the die; the bytes lie in memory and within what becomes visible at once, but for an addition to 8
bytes, which may be to two units of 4.  Data are 0 after the last byte of the write."""
FENCES_MASK, ASKED_SHIFT = (1 << 20) - 1, 20  # above the fences: the order that its request asks for
PART_SHIFT = 22  # above that: is it what a request copies that signals, or the signal?
IS_PAYLOAD, IS_SIGNAL = 1, 2
KIND_SCALAR, KIND_MTU, KIND_ADD, KIND_ADD_ROW, KIND_DMA = range(5)  # KIND_DMA + slot for a write of that DMA descriptor

# ---- the lines that a core's scalar unit caches, in order of addresses, those in use first (`cache`); others are 0
CACHE_LINE_BYTES = 64
CACHED_LINE, CACHED_DIRTY, CACHED_DATA = range(3)  # number of the line + 1; 0, or the site of its last store + 1; words
CACHED_WORDS = CACHED_DATA + CACHE_LINE_BYTES // 8

# ---- a core group's block
GROUP_SIZE = 0  # counts the cores of the group
GROUP_ARRIVED = 1  # counts those that have arrived in this phase: less than `GROUP_SIZE`
GROUP_PHASE = 2  # is 0 or 1, and changes with the last arrival
GROUP_WORDS = 4

# ---- a die's counters of traffic: requests of its cores for memory of other dies, and two bit masks of these dies
TRAFFIC_WRITES, TRAFFIC_FLAGS, TRAFFIC_READS, TRAFFIC_WRITE_BYTES, TRAFFIC_READ_BYTES, TRAFFIC_MASKS = range(6)
TRAFFIC_MASK_BITS = 32  # in a word

# ---- a word for each site of a kernel: is its synchronization off, which order does it ask for, is its quiet a fence,
# does its read (or do those before its quiet) not acquire?
SITE_OFF, SITE_ORDER, SITE_FENCE, SITE_NO_ACQUIRE = 1, 1, 8, 16  # the order is above the first bit
ASKS_NO, ASKS_RELAXED, ASKS_STRONG = range(1, 4)
ASKS_SOME_STRONG = 2  # in `REQUEST_ORDERS`

MAX_KERNELS = 16
MAX_SITES = 1024  # of one kernel, the last of them for what is no request of it
AT_PLACE = MAX_SITES - 1  # the site of arithmetic that failed; the request says at which place (`Kernel.places`)

# ---- what runs show of a site: a core comes to it; it may have to wait there, or it is none at which one waits
CAME, MAY_WAIT = 4, 8

WRITER_GRANULE, WRITER_CORE, WRITER_SITE, WRITER_WHEN = range(4)  # granule + 1; `ACTIONS`, from 1 on
WRITER_WORDS = 4  # the row of a granule is its number modulo the rows
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
