"""Where everything is in the array of times: an int64 array next to the machine's state, all times in picoseconds.

A second array of the same shape, `who`, says for each time which record (of the log of timed actions, plus 1) made it
so; that is what the critical path is walked along.  Without a log it is empty.
"""

from xccl_emu.lang.requests import CONDITIONS_MOST, OPERATIONS
from xccl_emu.machine.device import layout as ms

# ---- header
HEAP_COUNT, NOW, N_RECORDS, RECORD_CAPACITY, LIMIT = range(5)
HEAP_BASE, CORE_BASE, DIE_BASE, GROUP_BASE, GRANULE_BASE, GRANULE_SLOTS, GRANULES_USED = range(5, 12)
VERSION_BASE, VERSIONS, VERSIONS_MADE, VERSIONS_LEFT, VERSION_FREE = 12, 14, 15, 16, 20  # the last: of a list
N_ROUTES = 13  # ranges of memory that are reached over another network
HEAP_SLOTS, GRANULES_A_DIE = 17, 18  # with this many in the heap a core is not entered twice
SITE_BASE = 19  # a word for each site of each kernel, of the bits below
RELEASES, CHOSEN = 1, 2  # it releases something, or looks (`array._mark_sites`); a log of chosen sites has it
TIMER_NUMBER, TIMER_SHIFT = 2, 4  # above them which of the core's timers it asks, and after how long that answers 1
TIMERS_MOST = 4  # of a kernel
ANY_WAITER = 21  # who waits for one of several words, and looks again whenever a word becomes visible
SOME_OFF = 22  # whether any synchronization is switched off
COSTS = 24
(
    C_ISSUE, C_LOAD, C_POLL, C_QUIET, C_BARRIER, C_EVENT, C_MTU_START, C_CORE, C_VECTOR_START, C_VECTOR, C_DMA_START,
    C_DMA_ISSUE, C_MEMORY, C_DRAM, C_CPU, C_DMA_ENGINES, C_DMA_LESS, C_DMA, C_DMA_IN_FLIGHT, C_FENCE, C_ACK, ORDERED,
) = range(COSTS, COSTS + 22)  # fmt: skip
PASSES = 48  # of the vector pipe, in sixteenths, by operation
PATHS = PASSES + len(OPERATIONS) + 1  # of each network, by class of path
CLASSES, PATH_WORDS = 6, 5
READ_LATENCY, READ_RATE, WRITE_LATENCY, WRITE_RATE, WITHIN = range(PATH_WORDS)  # rates in femtoseconds a byte
AT_PORTS, AT_SWITCH, AT_MESH = range(3)  # WITHIN of a path: `fabric.WITHIN`
NETWORKS_MAX = 3
NETWORKS = PATHS + NETWORKS_MAX * CLASSES * PATH_WORDS
PORTS, SWITCHES, PLANES, STRIPE_SHIFT, BY_ADDRESS, UPLINK_RATE, UPLINKS = range(7)  # of a network; the first two: where
UPLINK_SHARE = 7  # of what a transfer has on one plane, over all links: attoseconds a byte of the whole transfer
NETWORK_WORDS = 8
ROUTES_MAX = 16
ROUTES = NETWORKS + NETWORKS_MAX * NETWORK_WORDS
ROUTE_START, ROUTE_END, ROUTE_NETWORK = range(3)
ROUTE_WORDS = 3
HEADER_WORDS = 256

ENDED_GRANULES_FULL = 100  # the table of polled words is, or what they held is; the machine has the other ways

# ---- a core's block
SCALAR_AT, READS_DONE, ALL_ACKED, NEXT_WAITER, WAITS_AT, HEAP_AT, FINISHED, CORE_DIE = range(8)
FREE = 8  # by pipe
QUEUED, RUN = FREE + ms.N_PIPES, FREE + 2 * ms.N_PIPES  # by pipe: instructions so far
ISSUED = FREE + 3 * ms.N_PIPES  # by pipe, a ring of the last instructions: when the scalar unit had issued it
POPPED = ISSUED + ms.N_PIPES * ms.QUEUE_DEPTH  # when it had left the queue
RUNG = POPPED + ms.N_PIPES * ms.QUEUE_DEPTH  # by DMA descriptor
DMA_DONE = RUNG + ms.N_DMA_SLOTS  # a ring: when each of the core's last descriptors was done
DMA_STARTED, DMA_FREE = range(DMA_DONE + ms.N_DMA_SLOTS, DMA_DONE + ms.N_DMA_SLOTS + 2)  # how many; and bytes left
DMA_READY, DMA_MOVES, DMA_SLOT = range(DMA_FREE + 1, DMA_FREE + 4)  # of the one that the engine starts, if it does
EVENT_AT = DMA_FREE + 4  # by source pipe, target pipe and event
FENCE_AT = EVENT_AT + ms.N_PIPES * ms.N_PIPES * ms.N_EVENTS  # when mtu-out passed its last fence
CORE_SITES = FENCE_AT + 1  # where the words of its kernel's sites begin
TIMERS = FENCE_AT + 2  # of each, when it began, plus 1, or 0; and what it was asked for
SHOWN = TIMERS + 2 * TIMERS_MOST  # addresses of words that memory holds an earlier version of, or -1 (`poll_any`)
CORE_WORDS = SHOWN + CONDITIONS_MOST

# ---- the block of a die, or of a CPU's socket after them: when its memory and its link to its sibling are free; are
# the actions of its cores written down; where it is; and when its DMA engines are free
MEMORY, LINK, LOGGED, CHIP, NODE, IS_CPU = range(6)
IDLE_FROM, IDLE_UNTIL = 6, 7  # when its memory had last nothing to do
DMA_ENGINE, DMA_ENGINES_MAX = 8, 8
WRITTEN_BY = 16  # when all that was written to its memory so far is visible
DIE_WORDS = 17

# ---- its ports in a network: when each plane is free, out and in; or after the only plane a node's own links: to
# its switch, or one to each other die, by how far on that is
PLANES_MAX = 8
PORT_OUT, PORT_IN = 0, PLANES_MAX
PORT_WORDS = 2 * PLANES_MAX

# ---- the switches of a node in a network: when each link between its switch of a plane and one of the second tier is
# free, up and down, by plane and link; striped over all links of a plane the first represents them
UPLINKS_MAX = 16
SWITCH_UP, SWITCH_DOWN = 0, PLANES_MAX * UPLINKS_MAX
SWITCH_WORDS = 2 * PLANES_MAX * UPLINKS_MAX

# ---- a core group's block: by phase of its barrier, last arrival and release; and who waits
ARRIVED_AT, RELEASED_AT, GROUP_WAITER = 0, 2, 4
GROUP_WORDS = 5

# ---- a granule that is polled or was written by itself: a line of the cache.  Who polls it; its last version, which is
# what memory holds; and where the version before that is, or 0.  A version: when it became visible, and its words
GRANULE_KEY, GRANULE_WAITER, GRANULE_AT, GRANULE_BEFORE, GRANULE_VALUE = range(5)
GRANULE_WORDS = 8

# ---- a record
RECORD_CORE, RECORD_ENGINE, RECORD_OP, RECORD_SITE, RECORD_START, RECORD_END, RECORD_NBYTES, RECORD_PEER = range(8)
RECORD_CAUSE, RECORD_QUEUED, RECORD_VISIBLE, RECORD_READ, RECORD_WRITTEN = range(8, 13)  # the last two: where, or -1
RECORD_WORDS = 13

assert COSTS + 22 <= PASSES
assert ROUTES + ROUTES_MAX * ROUTE_WORDS <= HEADER_WORDS
