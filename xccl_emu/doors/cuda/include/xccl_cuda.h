/* What accesses and PTX of a kernel in CUDA C++ ask of the machine (xccl_emu/doors/cuda/lowering.py calls these). */
#pragma once
#include "xccl_emu.h"
#include <stddef.h>
#include <string.h>

extern "C" int64_t xccl_kept(int64_t word);
extern "C" void xccl_keep(int64_t word, int64_t value);

/* What the host says of a thread is in words that `kernel.KEPT` names; three sizes are in one. */
static inline uint32_t xccl_size(int64_t sizes, int i) { return sizes >> XCCL_SIZE_BITS * i & ((1 << XCCL_SIZE_BITS) - 1); }
static inline int64_t xccl_count(int64_t sizes) {
    return int64_t(xccl_size(sizes, 0)) * xccl_size(sizes, 1) * xccl_size(sizes, 2);
}

/* An argument of a kernel, as whatever it takes: a class is where the host has put its bytes. */
struct xccl_argument {
    int64_t value;
    template <class T> operator T *() const { return reinterpret_cast<T *>(value); }
    template <class T> operator T() const {
        if constexpr (__is_class(T)) return *reinterpret_cast<const T *>(value);
        else if constexpr (__is_same(T, float)) return __builtin_bit_cast(float, int32_t(value));
        else if constexpr (__is_same(T, double)) return __builtin_bit_cast(double, value);
        else return static_cast<T>(value);
    }
};

#define XCCL_OURS extern "C" __attribute__((used)) inline
#define XCCL_OURS_INLINED extern "C" __attribute__((used, always_inline)) inline

/* ---- accesses: of a variable on the stack, or of a constant of the host, as they are */

/* Shared variables have addresses at the end of the image, where nobody touches anything: a block's are where its launch
 * says.  What is beyond them is beyond those, too. */
extern "C" const char xccl_shared_begin[];
extern "C" int64_t xccl_has_shared(void);
#define XCCL_IS_SHARED(pointer)                                                                                        \
    (xccl_has_shared() && uint64_t(pointer) - uint64_t(xccl_shared_begin) < XCCL_SHARED_MOST)

/* The compiler sees it where it knows the variable; else the address says so when it runs. */
#define XCCL_IS_OWN(pointer)                                                                                           \
    (!XCCL_IS_SHARED(pointer) && (__builtin_object_size(pointer, 0) != ~0ull || int64_t(pointer) >= XCCL_LOCAL))
XCCL_OURS_INLINED int64_t xccl_place(const void *at) {
    return XCCL_IS_SHARED(at) ? xccl_kept(XCCL_SHARED) + ((const char *)at - xccl_shared_begin) : int64_t(at);
}

XCCL_OURS_INLINED int64_t xccl_ours_read_own(const void *from, int64_t nbytes) {
    switch (nbytes) {
    case 1: return *(const int8_t *)from;
    case 2: return *(const int16_t *)from;
    case 4: return *(const int32_t *)from;
    default: return *(const int64_t *)from;
    }
}
XCCL_OURS_INLINED void xccl_ours_write_own(void *to, int64_t word, int64_t nbytes) {
    switch (nbytes) {
    case 1: *(int8_t *)to = word; break;
    case 2: *(int16_t *)to = word; break;
    case 4: *(int32_t *)to = word; break;
    default: *(int64_t *)to = word;
    }
}
/* Where the end of a kernel is local, others see a rank's memory apart: what its threads store there before a later
 * kernel they store on a die of its own too, which only what publishes waits for, and loads of other ranks read both.
 * What relaxed stores and atomics write is in the second half there: it races with plain loads alone.  A half is as
 * large as a die was without them, a quarter of what it is (`launch.gpus`). */
static inline int64_t xccl_home(int64_t address) { return address / xccl_kept(XCCL_RANK_BYTES); }
static inline int64_t xccl_apart(int64_t address, int64_t is_strong) {
    int64_t bytes = xccl_kept(XCCL_RANK_BYTES), half = bytes / 4, die = xccl_home(address) + xccl_kept(XCCL_RANKS);
    return die * bytes + __builtin_labs(xccl_kept(XCCL_APART)) + is_strong * half + address % half;
}
XCCL_OURS_INLINED void xccl_load_apart(const xccl_site *site, int64_t address, int64_t nbytes) {
#if XCCL_IS_LOCAL
    if (xccl_home(address) == xccl_kept(XCCL_RANK)) return;
    int64_t step = nbytes < 8 ? nbytes : 8, apart = xccl_apart(address, 0), strong = xccl_apart(address, 1);
    for (int64_t i = 0; i < nbytes; i += step)
        if (*site->sync) {
            xccl_load(apart + i, step);
        } else {
            xccl_ask(site, XCCL_OP_LOAD, apart + i, step, 0, 0, 0, 0);
            xccl_ask(site, XCCL_OP_LOAD, strong + i, step, 0, 0, 0, 0);
        }
#endif
}
XCCL_OURS_INLINED int64_t xccl_loaded(const xccl_site *site, int64_t address, int64_t nbytes) {
    int64_t word = xccl_ask(site, XCCL_OP_LOAD, address, nbytes, 0, 0, 0, 0);
    xccl_load_apart(site, address, nbytes);
    return word;
}
XCCL_OURS_INLINED int64_t xccl_ours_read(const xccl_site *site, const void *from, int64_t nbytes) {
    if (XCCL_IS_OWN(from)) return xccl_ours_read_own(from, nbytes);
    return xccl_loaded(site, xccl_place(from), nbytes);
}
/* A request that writes; where order is narrow, or the end of a kernel local, the thread knows to which ranks it has
 * written. */
#define XCCL_IS_TOLD (!XCCL_IS_WIDE || XCCL_IS_LOCAL)
XCCL_OURS_INLINED int64_t xccl_written(const xccl_site *site, int64_t operation, int64_t address, int64_t one,
                                       int64_t two) {
    if (XCCL_IS_TOLD) xccl_keep(XCCL_WROTE, xccl_kept(XCCL_WROTE) | 1ll << xccl_home(address) % XCCL_RANKS_MOST);
    return xccl_ask(site, operation, address, one, two, 0, 0, 0);
}
XCCL_OURS_INLINED void xccl_write_apart(const xccl_site *site, int64_t operation, const void *to, int64_t nbytes,
                                        int64_t is_strong) {
    int64_t address = xccl_place(to);
    if (!XCCL_IS_LOCAL || XCCL_IS_SHARED(to) || xccl_home(address) != xccl_kept(XCCL_RANK)) return;
    if (xccl_kept(XCCL_APART) > 0) xccl_written(site, operation, xccl_apart(address, is_strong), 0, nbytes);
}
XCCL_OURS_INLINED void xccl_stored(const xccl_site *site, int64_t operation, void *to, int64_t one, int64_t two,
                                   int64_t is_strong) {
    xccl_written(site, operation, xccl_place(to), one, two);
    xccl_write_apart(site, operation, to, two, is_strong);
}
XCCL_OURS_INLINED void xccl_ours_write(const xccl_site *site, void *to, int64_t word, int64_t nbytes,
                                       int64_t is_strong) {
    if (XCCL_IS_OWN(to)) xccl_ours_write_own(to, word, nbytes);
    else xccl_stored(site, XCCL_OP_STORE, to, word, nbytes, is_strong);
}
/* What one instruction accesses, up to 16 bytes: at once where vectors are whole (XCCL_IS_WHOLE), else by elements. */
typedef unsigned __int128 xccl_line;
XCCL_OURS_INLINED xccl_line xccl_ours_read_vector(const xccl_site *line, const xccl_site *load, const void *from,
                                                  int64_t nbytes, int64_t step) {
    if (XCCL_IS_WHOLE && !XCCL_IS_OWN(from)) {
        if (nbytes < 16) return uint64_t(xccl_loaded(load, xccl_place(from), nbytes));
        xccl_load_apart(line, xccl_place(from), nbytes); /* first: xccl_high is of the last load */
        uint64_t low = xccl_ask(line, XCCL_OP_LOAD_LINE, xccl_place(from), 0, 0, 0, 0, 0);
        return xccl_line(uint64_t(xccl_high())) << 64 | low;
    }
    xccl_line words = 0, mask = (xccl_line(1) << 8 * step) - 1;
    for (int64_t i = 0; i < nbytes; i += step) {
        const char *at = (const char *)from + i;
        int64_t word = XCCL_IS_WHOLE ? xccl_ours_read_own(at, step) : xccl_ours_read(load, at, step);
        words |= (xccl_line(word) & mask) << 8 * i;
    }
    return words;
}
XCCL_OURS_INLINED void xccl_ours_write_vector(const xccl_site *line, const xccl_site *store, void *to, xccl_line words,
                                              int64_t nbytes, int64_t step, int64_t is_strong) {
    if (XCCL_IS_WHOLE && !XCCL_IS_OWN(to)) {
        if (nbytes < 16) xccl_stored(store, XCCL_OP_STORE, to, int64_t(words), nbytes, is_strong);
        else xccl_stored(line, XCCL_OP_STORE_LINE, to, int64_t(words), int64_t(words >> 64), is_strong);
        return;
    }
    for (int64_t i = 0; i < nbytes; i += step) {
        char *at = (char *)to + i;
        if (XCCL_IS_WHOLE) xccl_ours_write_own(at, int64_t(words >> 8 * i), step);
        else xccl_ours_write(store, at, int64_t(words >> 8 * i), step, is_strong);
    }
}
XCCL_OURS_INLINED void xccl_ours_copy(const xccl_site *load_line, const xccl_site *load, const xccl_site *store_line,
                                      const xccl_site *store, void *to, const void *from, int64_t nbytes, int64_t step) {
    int64_t part = step < 8 ? step : 8;
    for (int64_t i = 0; i < nbytes; i += step) {
        xccl_line words = xccl_ours_read_vector(load_line, load, (const char *)from + i, step, part);
        xccl_ours_write_vector(store_line, store, (char *)to + i, words, step, part, 0);
    }
}
XCCL_OURS_INLINED void xccl_ours_fill(const xccl_site *store, void *to, uint8_t byte, int64_t nbytes, int64_t step) {
    int64_t word = 0x0101010101010101 * byte;
    bool to_own = XCCL_IS_OWN(to);
    for (int64_t i = 0; i < nbytes; i += step) {
        char *target = (char *)to + i;
        if (to_own) xccl_ours_write_own(target, word, step);
        else xccl_stored(store, XCCL_OP_STORE, target, word, step, 0);
    }
}

/* ---- order.  What is ordered for a block or a GPU alone, by barriers or by scopes, is either so for all ranks
 * (XCCL_IS_WIDE), or makes nothing visible.  Then a thread says at a barrier, by strong writes, which its earlier writes
 * to that rank do not come after, that it has come there, and where it has written; so it does where its whole warp
 * meets in order, if anything publishes.  What publishes waits for these words of its block, then for its own writes.
 * How far a thread has come is its kernels, then its barriers, then its warp's meetings since: lanes of a warp come to
 * all in one order, threads of other warps are awaited at barriers alone, threads of other blocks at ends of kernels.
 * Meetings beyond what the count holds are not awaited. */

extern "C" int64_t xccl_has_release(void);
static inline int64_t xccl_at_barrier(int64_t came) { return came & -(1ll << XCCL_MET_BITS); }
static inline int64_t xccl_at_end(int64_t came) { return came & -(1ll << XCCL_ENDED_BITS); }

/* Threads are counted over the blocks of the rank's grid. */
static inline int64_t xccl_threads(void) { return xccl_count(xccl_kept(XCCL_BLOCK_DIM)); }
static inline int64_t xccl_all_threads(void) { return xccl_threads() * xccl_count(xccl_kept(XCCL_GRID_DIM)); }
static inline int64_t xccl_first_thread(void) { return xccl_threads() * xccl_kept(XCCL_BLOCK); }
static inline int64_t xccl_this_thread(void) { return xccl_first_thread() + xccl_kept(XCCL_THREAD); }

static inline int64_t xccl_said(int64_t rank, int64_t thread) {
    return rank * xccl_kept(XCCL_RANK_BYTES) + xccl_kept(XCCL_SAID) + 8 * thread;
}

/* Wait until this rank's memory has what others wrote there before a barrier of the block, or the end of a kernel. */
static inline void xccl_await_said(const xccl_site *poll, int64_t at, int64_t first, int64_t threads) {
    int64_t here = xccl_kept(XCCL_RANK), word = at << XCCL_RANKS_MOST;
    for (int64_t thread = first; thread < first + threads; thread++)
        if (thread != xccl_this_thread())
            xccl_ask(poll, XCCL_OP_POLL, xccl_said(here, thread), XCCL_CMP_GE, word, 8, -1, 0);
}

/* Say how far this thread has come, on its rank and on all others where it has written. */
static inline void xccl_say(const xccl_site *store, int64_t came) {
    int64_t me = xccl_this_thread(), here = xccl_kept(XCCL_RANK);
    int64_t ranks = xccl_kept(XCCL_WROTE) & ~(1ll << here), word = came << XCCL_RANKS_MOST | ranks;
    xccl_keep(XCCL_CAME, came);
    xccl_ask(store, XCCL_OP_STORE, xccl_said(here, me), word, 8, 0, 0, 0);
    for (int64_t rank = 0; ranks >> rank; rank++)
        if (ranks >> rank & 1) xccl_ask(store, XCCL_OP_STORE, xccl_said(rank, me), word, 8, 0, 0, 0);
}

XCCL_OURS void xccl_ours_publish(const xccl_site *poll, const xccl_site *quiet, int64_t is_for_all) {
    if (!is_for_all && !XCCL_IS_WIDE) return;
#if XCCL_IS_TOLD
    int64_t came = xccl_kept(XCCL_CAME);
    for (int64_t thread = 0; came && thread < xccl_all_threads(); thread++) {
        int64_t of_block = thread - xccl_first_thread(), warp = xccl_kept(XCCL_THREAD) / XCCL_WARP, at = came;
        if (of_block < 0 || of_block >= xccl_threads()) at = xccl_at_end(came);
        else if (of_block / XCCL_WARP != warp) at = xccl_at_barrier(came);
        if (thread == xccl_this_thread() || !at) continue;
        at <<= XCCL_RANKS_MOST;
        int64_t said = xccl_said(xccl_kept(XCCL_RANK), thread);
        int64_t word = xccl_ask(poll, XCCL_OP_POLL, said, XCCL_CMP_GE, at, 8, -1, 0);
        int64_t ranks = word & ((1ll << XCCL_RANKS_MOST) - 1); /* it may have come to a later barrier */
        for (int64_t rank = 0; ranks >> rank; rank++)
            if (ranks >> rank & 1)
                xccl_ask(poll, XCCL_OP_POLL, xccl_said(rank, thread), XCCL_CMP_GE, at, 8, -1, 0);
    }
#endif
    xccl_ask(quiet, XCCL_OP_QUIET, 0, 0, 0, 0, 0, 0);
}

XCCL_OURS void xccl_ours_barrier(const xccl_site *store, const xccl_site *quiet, const xccl_site *arrive,
                                 const xccl_site *await, const xccl_site *poll) {
#if XCCL_IS_WIDE
    xccl_ask(quiet, XCCL_OP_QUIET, 0, 0, 0, 0, 0, 0);
#else
    int64_t came = xccl_at_barrier(xccl_kept(XCCL_CAME)) + (1 << XCCL_MET_BITS);
    xccl_say(store, came);
#endif
    int64_t phase = xccl_ask(arrive, XCCL_OP_ARRIVE, 0, 0, 0, 0, 0, 0);
    xccl_ask(await, XCCL_OP_AWAIT_GROUP, phase, 0, 0, 0, 0, 0);
#if !XCCL_IS_WIDE
    /* it is for the block alone */
    if (xccl_has_shared()) xccl_await_said(poll, came, xccl_first_thread(), xccl_threads());
#endif
}

/* ---- warps: lanes meet in rooms, one of each two lanes, and one of all for a mask that names all.  To each room of a
 * meeting a lane writes a word, the mask, and how often it has been there, at once; then it awaits the same from the
 * others of its mask.  Two lines take turns: a lane comes to a room for the next time but one after all others have been
 * there for the next time, so they have read what it overwrites, and two bits of a count are enough.  Lanes whose masks
 * differ await each other for ever. */

static inline int64_t xccl_first_lane(void) { return xccl_kept(XCCL_THREAD) / XCCL_WARP * XCCL_WARP; }
static inline int64_t xccl_lanes_upto(int64_t count) { return count < XCCL_WARP ? count : XCCL_WARP; }
static inline int64_t xccl_lane_count(void) {
    return xccl_lanes_upto(xccl_threads() - xccl_first_lane());
}
static inline int64_t xccl_met(int64_t room) { return xccl_kept(XCCL_MEETINGS) >> 2 * room & 3; }
/* The line of a lane in its room with another one, or with itself: that is where it meets all. */
static inline int64_t xccl_met_at(int64_t lane, int64_t other, int64_t count) {
    int64_t most = xccl_lanes_upto(xccl_threads());
    return xccl_kept(XCCL_LANES) + ((xccl_first_lane() + lane) * most + other) * XCCL_MEETING_BYTES + 16 * (count & 1);
}

XCCL_OURS_INLINED void xccl_ours_meet(const xccl_site *quiet, const xccl_site *say, const xccl_site *store,
                                      const xccl_site *poll, const xccl_site *fail, int64_t mask, int64_t word,
                                      int64_t orders) {
    int64_t all = (1ll << xccl_lane_count()) - 1, lane = xccl_kept(XCCL_THREAD) - xccl_first_lane(), named = mask & all;
    if (!(named >> lane & 1)) xccl_ask(fail, XCCL_OP_FAIL, XCCL_NOT_NAMED, named, 0, 0, 0, 0);
    if (XCCL_IS_WIDE && orders) xccl_ask(quiet, XCCL_OP_QUIET, 0, 0, 0, 0, 0, 0);
    int64_t came = xccl_kept(XCCL_CAME) + 1;
    if (!XCCL_IS_WIDE && orders && named == all && xccl_has_release() && came != xccl_at_barrier(came))
        xccl_say(say, came);
    int64_t rooms = named == all ? 1ll << lane : named & ~(1ll << lane);
    for (int64_t room = 0; rooms >> room; room++) {
        if (!(rooms >> room & 1)) continue;
        int64_t count = xccl_met(room) + 1 & 3, others = ~(3ll << 2 * room);
        xccl_keep(XCCL_MEETINGS, (xccl_kept(XCCL_MEETINGS) & others) | count << 2 * room);
        xccl_ask(store, XCCL_OP_STORE_LINE, xccl_met_at(lane, room, count), word, count << XCCL_WARP | named, 0, 0, 0);
    }
    for (int64_t other = 0; named >> other; other++) {
        if (other == lane || !(named >> other & 1)) continue;
        int64_t count = xccl_met(named == all ? lane : other), room = named == all ? other : lane;
        int64_t at = xccl_met_at(other, room, count) + 8;
        xccl_ask(poll, XCCL_OP_POLL, at, XCCL_CMP_EQ, count << XCCL_WARP | named, 8, -1, 0);
    }
}

/* What a lane has brought to the last meeting of a mask, by a shuffle of PTX, or who has brought something. */
static inline int64_t xccl_brought(const xccl_site *load, int64_t from, int64_t named, int64_t word) {
    int64_t lane = xccl_kept(XCCL_THREAD) - xccl_first_lane(), is_of_all = named == (1ll << xccl_lane_count()) - 1;
    if (from == lane) return word;
    int64_t at = xccl_met_at(from, is_of_all ? from : lane, xccl_met(is_of_all ? lane : from));
    return xccl_ask(load, XCCL_OP_LOAD, at, 8, 0, 0, 0, 0);
}
XCCL_OURS int64_t xccl_ours_learn(const xccl_site *load, const xccl_site *fail, int64_t how, int64_t by, int64_t clamp,
                                  int64_t mask, int64_t word) {
    int64_t lane = xccl_kept(XCCL_THREAD) - xccl_first_lane(), n = xccl_lane_count(), found = 0;
    int64_t segment = clamp >> 8 & 31, low = lane & segment, high = low | (clamp & 31 & ~segment), from = lane;
    int64_t named = mask & ((1ll << n) - 1);
    switch (how) {
    case XCCL_LEARN_idx: from = low | (by & 31 & ~segment); break;
    case XCCL_LEARN_up: from = lane - (by & 31); break;
    case XCCL_LEARN_down: from = lane + (by & 31); break;
    case XCCL_LEARN_bfly: from = lane ^ (by & 31); break;
    default:
        for (int64_t each = 0; each < n; each++)
            if (named >> each & 1) found |= int64_t(xccl_brought(load, each, named, word) != 0) << each;
        return found;
    }
    bool is_there = (how == XCCL_LEARN_up ? from >= high : from <= high) && from < n;
    if (is_there && !(named >> from & 1)) xccl_ask(fail, XCCL_OP_FAIL, XCCL_NOT_NAMED, named, 0, 0, 0, 0);
    return xccl_brought(load, is_there ? from : lane, named, word);
}

/* A scope that is smaller than the system holds no thread of another rank. */
XCCL_OURS void xccl_ours_scope(const xccl_site *fail, const void *at, int64_t scope) {
    int64_t address = xccl_place(at);
    if (XCCL_IS_OWN(at) || address / xccl_kept(XCCL_RANK_BYTES) == xccl_kept(XCCL_RANK)) return;
    xccl_ask(fail, XCCL_OP_FAIL, XCCL_OUT_OF_SCOPE, scope, 0, 0, 0, 0);
}

/* ---- atomics: a word of 8 bytes is added to at once; of anything else the word around it is swapped. */

static inline int64_t xccl_result(int64_t how, int64_t old, int64_t value, int64_t compare, int64_t nbytes) {
    uint64_t mask = nbytes == 8 ? ~0ull : (1ull << 8 * nbytes) - 1, o = old & mask, v = value & mask;
    int64_t by = 64 - 8 * nbytes, so = int64_t(o << by) >> by, sv = int64_t(v << by) >> by;
    bool is_signed = how >= XCCL_ATOMICS;
    switch (is_signed ? how - XCCL_ATOMICS : how) {
    case XCCL_ATOMIC_add: return o + v;
    case XCCL_ATOMIC_exch: return v;
    case XCCL_ATOMIC_cas: return o == (compare & mask) ? v : o;
    case XCCL_ATOMIC_and: return o & v;
    case XCCL_ATOMIC_or: return o | v;
    case XCCL_ATOMIC_xor: return o ^ v;
    case XCCL_ATOMIC_min: return is_signed ? (so < sv ? so : sv) : (o < v ? o : v);
    case XCCL_ATOMIC_max: return is_signed ? (so > sv ? so : sv) : (o > v ? o : v);
    case XCCL_ATOMIC_inc: return o >= v ? 0 : o + 1;
    default: return o == 0 || o > v ? v : o - 1;
    }
}

XCCL_OURS int64_t xccl_ours_atomic(const xccl_site *load, const xccl_site *swap, const xccl_site *add, void *at,
                                   int64_t how, int64_t value, int64_t compare, int64_t nbytes) {
    int64_t address = xccl_place(at);
    if (XCCL_IS_OWN(at)) {
        int64_t old = xccl_ours_read_own(at, nbytes);
        xccl_ours_write_own(at, xccl_result(how, old, value, compare, nbytes), nbytes);
        return old;
    }
    int64_t word = address & -8, by = 8 * (address - word);
    xccl_write_apart(swap, XCCL_OP_STORE, at, nbytes, 1);
    if (nbytes == 8 && how % XCCL_ATOMICS == XCCL_ATOMIC_add)
        return xccl_written(add, XCCL_OP_ATOMIC_ADD, address, value, 0);
    uint64_t mask = (nbytes == 8 ? ~0ull : (1ull << 8 * nbytes) - 1) << by;
    for (;;) {
        int64_t before = xccl_ask(load, XCCL_OP_LOAD, word, 8, 0, 0, 0, 0), old = int64_t((before & mask) >> by);
        int64_t made = xccl_result(how, old, value, compare, nbytes);
        int64_t after = (before & ~mask) | (uint64_t(made) << by & mask);
        if (how % XCCL_ATOMICS == XCCL_ATOMIC_cas && old != (compare & int64_t(mask >> by))) return old;
        if (xccl_written(swap, XCCL_OP_COMPARE_SWAP, word, after, before) == before) return old;
    }
}
