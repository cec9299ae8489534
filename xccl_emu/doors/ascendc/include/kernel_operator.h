/* Names of Ascend C as kernels use them, with bodies that ask the machine of xccl_emu (docs/bring-your-own.md).
 *
 * Nothing here is Huawei's.  Whatever makes a request takes one argument more, which says where it is called.
 */
#pragma once
#include "xccl_emu.h"
#include "xccl_numbers.h"
#include <stddef.h>
#include <type_traits>
#include <utility>

#define __global__
#define __aicore__
#ifdef XCCL_SPACE__gm /* the compiler is a clang: xccl_emu/lang/foreign/pointers.py makes requests of what follows them */
#define __gm__ __attribute__((address_space(XCCL_SPACE__gm)))
#define __ubuf__ __attribute__((address_space(XCCL_SPACE__ubuf)))
#else
#define __gm__
#define __ubuf__
#endif
#define __inout_pipe__(...)
#define GM_ADDR __gm__ uint8_t *
#define ASCEND_IS_AIV constexpr (true)
#define ASCEND_IS_AIC constexpr (false)
#define HCCL_GROUP_ID_0 0
#define likely(condition) (condition)
#define unlikely(condition) (condition)

enum pipe_t { PIPE_S, PIPE_MTE2, PIPE_V, PIPE_MTE3, PIPE_ALL, PIPE_MTE1, PIPE_M, PIPE_FIX }; /* the last three: cube */
enum event_t { EVENT_ID0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7 };

/* ---- places: a request finds its site by what is called, where, and the operation (xccl_emu/doors/ascendc/sites.py) */

struct xccl_call {
    int32_t line, mention;
    int16_t name, operation;
    const char *file;
};
extern "C" const struct xccl_site *xccl_site_of(const struct xccl_call *calls, int64_t n, int64_t name,
                                                const char *file, int64_t line, int64_t operation, int64_t mention);
extern "C" int64_t xccl_kept(int64_t word);
extern "C" void xccl_keep(int64_t word, int64_t value);
extern const struct xccl_call xccl_calls[];
extern const int64_t xccl_n_calls;

#if XCCL_HAZARDS_WORD
struct xccl_place;
/* Never inlined, and given a copy of the place: what they keep is not on the stack at a request. */
[[gnu::noinline]] void xccl_watch(xccl_place at, int64_t operation, int64_t a, int64_t b, int64_t c, int64_t d,
                                  int64_t e);
[[gnu::noinline]] void xccl_call_begins();
#define XCCL_WATCH(...) __VA_ARGS__
#define XCCL_HERE [[gnu::always_inline]] inline
#else
#define XCCL_WATCH(...)
#define XCCL_HERE constexpr
#endif

struct xccl_place {
    int name;
    const char *file;
    int line;
    const xccl_site *site = nullptr; /* if it is known */

    int64_t operator()(int64_t operation, int64_t a = 0, int64_t b = 0, int64_t c = 0, int64_t d = 0, int64_t e = 0,
                       int64_t f = 0) const {
        XCCL_WATCH(xccl_watch(*this, operation, a, b, c, d, e);)
        return xccl_ask(site ? site : of(operation), operation, a, b, c, d, e, f);
    }
    const xccl_site *of(int64_t operation, int mention = -1) const {
        return xccl_site_of(xccl_calls, xccl_n_calls, name, file, line, operation, mention);
    }
    void fail(int64_t operation, int64_t code, int64_t value) const {
        xccl_ask(site ? site : of(operation), XCCL_OP_FAIL, code, value, 0, 0, 0, 0);
    }
};
XCCL_HERE xccl_place xccl_here(int name, const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    XCCL_WATCH(xccl_call_begins();)
    return {name, file, line};
}
#ifdef XCCL_SPACE__gm
/* What a pointer that is followed asks for; constants that the host gives are read where they are. */
extern "C" [[gnu::used]] inline int64_t xccl_follow(const xccl_site *site, int64_t operation, int64_t address,
                                                    int64_t one, int64_t other) {
    if (operation == XCCL_OP_LOAD && address >= XCCL_CONSTANTS) {
        int64_t word = 0;
        for (int64_t i = 0; i < one; i++) word |= int64_t(reinterpret_cast<const uint8_t *>(address)[i]) << 8 * i;
        return word;
    }
    XCCL_WATCH(xccl_call_begins();)
    return xccl_place{0, nullptr, 0, site}(operation, address, one, other);
}
#endif
#define XCCL_AT(name) xccl_place at = xccl_here(XCCL_NAME_##name)

#define XCCL_REFUSED(what) [[gnu::error(what " is not in xccl_emu's header for Ascend C")]]

/* An argument of a kernel, as whatever it takes. */
struct xccl_argument {
    int64_t value;
    template <class T> operator T *() const { return reinterpret_cast<T *>(value); }
    template <class T> operator T() const { return static_cast<T>(value); }
};

namespace AscendC {
using ::event_t;
using ::pipe_t;

/* What stops a run (xccl_emu/doors/ascendc/launch.py says it in words). */
enum {
    XCCL_NO_BUFFER = 0xa500, XCCL_EMPTY_QUEUE, XCCL_MANY_BUFFERS, XCCL_NOT_WHOLE_BLOCKS, XCCL_BAD_MASK, XCCL_NOT_CONTIGUOUS,
    XCCL_NO_SUCH_ORDER, XCCL_NO_ATOMIC_COPY, XCCL_NO_SUCH_SCALAR, XCCL_SCALAR_HAZARD, XCCL_VECTOR_HAZARD,
    XCCL_MANY_RANGES, XCCL_ASSERTED, XCCL_FLAG_IS_SET, XCCL_FLAG_IS_NOT_SET, XCCL_NO_PADDING, XCCL_WIDE_PADDING,
};

/* ---- numbers of 16 bits: kept, converted, and computed with by the vector unit alone */

struct half {
    uint16_t bits;
    half() = default;
    constexpr half(float value) : bits(xccl_half_of(value)) {}
    explicit constexpr operator float() const { return xccl_of_half(bits); }
    explicit constexpr operator int32_t() const { return int32_t(xccl_of_half(bits)); }
    explicit constexpr operator int64_t() const { return int64_t(xccl_of_half(bits)); }
    explicit constexpr operator uint32_t() const { return uint32_t(xccl_of_half(bits)); }
    static constexpr half of(uint16_t bits) {
        half made = 0.0f;
        made.bits = bits;
        return made;
    }
};
/* A clang's own type can be stored by a pointer into a space of the machine, as a class cannot. */
#ifdef XCCL_SPACE__gm
using float16_t = _Float16;
#else
using float16_t = half;
#endif
struct bfloat16_t {
    uint16_t bits;
    bfloat16_t() = default;
    constexpr bfloat16_t(float value) : bits(xccl_bfloat_of(value)) {}
    static constexpr bfloat16_t of(uint16_t bits) {
        bfloat16_t made = 0.0f;
        made.bits = bits;
        return made;
    }
};

constexpr float ToFloat(bfloat16_t value) { return xccl_float(uint32_t(value.bits) << 16); }

template <class T, class U> constexpr bool xccl_same = false;
template <class T> constexpr bool xccl_same<T, T> = true;
template <class T, class U> struct IsSameType { static constexpr bool value = xccl_same<T, U>; };

/* The bits of a value, sign-extended if it is an integer. */
template <class T> constexpr int64_t xccl_word(T value) {
    if constexpr (xccl_same<T, float>) return xccl_bits(value);
    else if constexpr (xccl_same<T, double>) return __builtin_bit_cast(int64_t, value);
    else if constexpr (xccl_same<T, half> || xccl_same<T, bfloat16_t>) return value.bits;
    else if constexpr (xccl_same<T, float16_t>) return __builtin_bit_cast(uint16_t, value);
    else return static_cast<int64_t>(value);
}
template <class T> constexpr T xccl_value(int64_t word) {
    if constexpr (xccl_same<T, float>) return xccl_float(static_cast<uint32_t>(word));
    else if constexpr (xccl_same<T, double>) return __builtin_bit_cast(double, word);
    else if constexpr (xccl_same<T, half> || xccl_same<T, bfloat16_t>) return T::of(static_cast<uint16_t>(word));
    else if constexpr (xccl_same<T, float16_t>) return __builtin_bit_cast(T, static_cast<uint16_t>(word));
    else return static_cast<T>(word);
}

/* ---- tensors */

enum class TPosition { GM, VECIN, VECOUT, VECCALC, A1, A2, B1, B2, C1, C2, CO1, CO2, C2PIPE2GM };
using QuePosition = TPosition;

/* An element of a tensor, `tensor(i)`: read where its value is asked for, written where it is assigned. */
template <class T, class TENSOR> struct xccl_element {
    TENSOR tensor;
    uint64_t index;
    xccl_place at;
    operator T() const { return tensor.GetValue(index, at); }
    T operator=(T value) const {
        tensor.SetValue(index, value, at);
        return value;
    }
    T operator=(const xccl_element &other) const { return *this = T(other); }
    T operator+=(T value) const { return *this = T(*this) + value; }
    T operator-=(T value) const { return *this = T(*this) - value; }
    T operator++() const { return *this += 1; }
    T operator++(int) const {
        T before = *this;
        *this = before + 1;
        return before;
    }
};

template <class T> class GlobalTensor {
public:
    xccl_element<T, GlobalTensor> operator()(uint64_t index, XCCL_AT(element)) const { return {*this, index, at}; }
    void SetL2CacheHint(int) const {}
    void SetGlobalBuffer(__gm__ T *buffer, [[maybe_unused]] uint64_t elements = 0) {
        address = reinterpret_cast<int64_t>(buffer);
        XCCL_SIZED(size = elements;)
    }
    /* As it was given, 0 if it was not; sources that never ask for it are spared a word of each tensor. */
    XCCL_SIZED(uint64_t GetSize() const { return size; } uint64_t size = 0;)
    GlobalTensor operator[](uint64_t index) const {
        GlobalTensor moved;
        moved.address = address + static_cast<int64_t>(index * sizeof(T));
        return moved;
    }
    const __gm__ T *GetPhyAddr(uint64_t index = 0) const {
        return reinterpret_cast<const __gm__ T *>(address + static_cast<int64_t>(index * sizeof(T)));
    }
    T GetValue(uint64_t index, XCCL_AT(GetValue)) const {
        return xccl_value<T>(at(XCCL_OP_LOAD, (*this)[index].address, sizeof(T)));
    }
    void SetValue(uint64_t index, T value, XCCL_AT(SetValue)) const {
        at(XCCL_OP_STORE, (*this)[index].address, xccl_word(value), sizeof(T));
    }
    int64_t address = 0;
};

/* Addresses of tensors in memory; the first word says how many bytes after itself they begin. */
class ListTensorDesc {
public:
    void Init(__gm__ void *list) { address = reinterpret_cast<int64_t>(list); }
    template <class T> T *GetDataPtr(uint32_t index, XCCL_AT(GetDataPtr)) const {
        int64_t first = address + at(XCCL_OP_LOAD, address, 8);
        return reinterpret_cast<T *>(at(XCCL_OP_LOAD, first + 8 * index, 8));
    }
    int64_t address = 0;
};

/* Where a local tensor begins in the data buffer; its queue does not matter here. */
struct xccl_nothing {
    template <class T> void operator=(T) {}
};
struct TBuffAddr {
    [[no_unique_address]] xccl_nothing logicPos;
    uint32_t bufferAddr;
};

template <class T> class LocalTensor {
public:
    void SetAddr(const TBuffAddr &at) { start = at.bufferAddr; }
    xccl_element<T, LocalTensor> operator()(uint32_t index, XCCL_AT(element)) const { return {*this, index, at}; }
    LocalTensor operator[](uint32_t index) const { return {start + index * uint32_t(sizeof(T)), nbytes}; }
    template <class U> LocalTensor<U> ReinterpretCast() const { return {start, nbytes}; }
    int64_t GetPhyAddr() const { return start; }
    uint32_t GetSize() const { return nbytes / sizeof(T); }
    T GetValue(uint32_t index, XCCL_AT(GetValue)) const {
        return xccl_value<T>(at(XCCL_OP_UB_LOAD, (*this)[index].start, sizeof(T)));
    }
    void SetValue(uint32_t index, T value, XCCL_AT(SetValue)) const {
        at(XCCL_OP_UB_STORE, (*this)[index].start, xccl_word(value), sizeof(T));
    }
    union {
        uint32_t start = 0;
        TBuffAddr address_;
    };
    uint32_t nbytes = 0;
};
inline int64_t get_imm(int64_t offset) { return offset; }

/* ---- events and barriers */

/* The pipes of an event, and which mention of them in the source this is: so calls of a function that takes an event as
 * a template argument have sites of their own (sites.py). */
struct HardEvent {
    constexpr explicit HardEvent(int pipes, int mention = -1) : pipes(pipes), mention(mention) {}
    constexpr operator int() const { return pipes; }
#define XCCL_EVENT(name, pipes) static constexpr HardEvent at_##name(int mention) { return HardEvent(pipes, mention); }
    XCCL_EVENT(S_MTE2, 0x01) XCCL_EVENT(S_V, 0x02) XCCL_EVENT(S_MTE3, 0x03)
    XCCL_EVENT(MTE2_S, 0x10) XCCL_EVENT(MTE2_V, 0x12) XCCL_EVENT(MTE2_MTE3, 0x13)
    XCCL_EVENT(V_S, 0x20) XCCL_EVENT(V_MTE2, 0x21) XCCL_EVENT(V_MTE3, 0x23)
    XCCL_EVENT(MTE3_S, 0x30) XCCL_EVENT(MTE3_MTE2, 0x31) XCCL_EVENT(MTE3_V, 0x32)
    int pipes, mention;
};
#define S_MTE2 at_S_MTE2(__COUNTER__)
#define S_V at_S_V(__COUNTER__)
#define S_MTE3 at_S_MTE3(__COUNTER__)
#define MTE2_S at_MTE2_S(__COUNTER__)
#define MTE2_V at_MTE2_V(__COUNTER__)
#define MTE2_MTE3 at_MTE2_MTE3(__COUNTER__)
#define V_S at_V_S(__COUNTER__)
#define V_MTE2 at_V_MTE2(__COUNTER__)
#define V_MTE3 at_V_MTE3(__COUNTER__)
#define MTE3_S at_MTE3_S(__COUNTER__)
#define MTE3_MTE2 at_MTE3_MTE2(__COUNTER__)
#define MTE3_V at_MTE3_V(__COUNTER__)
enum { XCCL_QUEUE_EVENT = 8, XCCL_QUEUE_EVENTS = 21, XCCL_BARRIER_EVENT = 29, XCCL_FETCHED_EVENT = 30 };

/* Two readings of a fetched event: it is set or not, or it counts to 2. Then two take turns, a bit says whose it is. */
inline int32_t xccl_turn(int32_t event, int bit) {
#if XCCL_EVENTS_WORD
    if (event == XCCL_FETCHED_EVENT) {
        int64_t turns = xccl_kept(XCCL_EVENTS_WORD);
        xccl_keep(XCCL_EVENTS_WORD, turns ^ int64_t(1) << bit);
        return event + (turns >> bit & 1);
    }
#endif
    return event;
}
template <HardEvent E> void SetFlag(int32_t event, XCCL_AT(SetFlag)) {
    int32_t turn = int(E) & 15 ? xccl_turn(event, (int(E) >> 4) * 4 + (int(E) & 15)) : event;
    at.site = at.of(XCCL_OP_SET_FLAG, E.mention);
    at(XCCL_OP_SET_FLAG, int(E) >> 4, int(E) & 15, turn);
}
template <HardEvent E> void WaitFlag(int32_t event, XCCL_AT(WaitFlag)) {
    int32_t turn = int(E) & 15 ? xccl_turn(event, 16 + (int(E) >> 4) * 4 + (int(E) & 15)) : event;
    at.site = at.of(XCCL_OP_WAIT_FLAG, E.mention);
    at(XCCL_OP_WAIT_FLAG, int(E) >> 4, int(E) & 15, turn);
}

/* Two readings of a barrier: what was issued is done and visible, or the pipes are empty. */
XCCL_WATCH([[gnu::noinline]] inline void xccl_settle(xccl_place at, int64_t operation, bool vector_alone);)
constexpr int64_t XCCL_OP_OF_BARRIER = XCCL_BARRIER_IS_VISIBLE ? XCCL_OP_QUIET : XCCL_OP_SET_FLAG;
inline void xccl_barrier(xccl_place at) {
    XCCL_WATCH(xccl_settle(at, XCCL_OP_OF_BARRIER, false);)
#if XCCL_BARRIER_IS_VISIBLE
    at(XCCL_OP_QUIET);
#else
    for (int pipe = PIPE_MTE2; pipe <= PIPE_MTE3; pipe++) at(XCCL_OP_SET_FLAG, pipe, PIPE_S, XCCL_BARRIER_EVENT);
    for (int pipe = PIPE_MTE2; pipe <= PIPE_MTE3; pipe++) at(XCCL_OP_WAIT_FLAG, pipe, PIPE_S, XCCL_BARRIER_EVENT);
#endif
}
/* A pipe does one instruction after the other, so that a barrier of one alone orders nothing but writes. */
template <pipe_t P> void PipeBarrier(XCCL_AT(PipeBarrier)) {
    static_assert(P <= PIPE_ALL, "PipeBarrier of a pipe of cubes is not in xccl_emu's header for Ascend C");
    if constexpr (P == PIPE_ALL) xccl_barrier(at);
    XCCL_WATCH(if constexpr (P == PIPE_V) xccl_settle(at, XCCL_OP_OF_BARRIER, true);)
#if XCCL_BARRIER_IS_VISIBLE
    if constexpr (P == PIPE_MTE3) at(XCCL_OP_FENCE);
#endif
}
template <bool = true> void SyncAll(XCCL_AT(SyncAll)) {
#if XCCL_SYNC_ALL_DRAINS
    xccl_barrier(at);
#endif
    at(XCCL_OP_AWAIT_GROUP, at(XCCL_OP_ARRIVE));
}
/* Above the number of a block: do copies to memory add?  From SetAtomicAdd on, until SetAtomicNone. */
constexpr int64_t XCCL_ADDING = int64_t(1) << 32;
inline int64_t GetBlockIdx() { return xccl_kept(0) & (XCCL_ADDING - 1); }
inline void xccl_copy_out(xccl_place at, int64_t from, int64_t to, int64_t nbytes) {
    if (xccl_kept(0) & XCCL_ADDING)
        at(XCCL_OP_MTU_ADD, from, to, nbytes);
    else
        at(XCCL_OP_MTU_OUT, from, to, nbytes);
}
template <class T> void SetAtomicAdd() {
    static_assert(xccl_same<T, int32_t>, "SetAtomicAdd of other elements than int32_t is not in xccl_emu's header");
    xccl_keep(0, xccl_kept(0) | XCCL_ADDING);
}
inline void SetAtomicNone() { xccl_keep(0, xccl_kept(0) & ~XCCL_ADDING); }
inline int64_t GetBlockNum() { return xccl_kept(1); }

/* Flags between the blocks (mode 0): a core arrives when one of its pipes has come so far.  Above `XCCL_ADDING` is the
 * flag that a core has set and not waited for, and in which phase it arrived: one at a time. */
XCCL_REFUSED("a flag between the cores of one block, or by a pipe of cubes (CrossCoreSetFlag, CrossCoreWaitFlag: mode 0 "
             "and PIPE_MTE2, PIPE_V or PIPE_MTE3, or SyncAll; a flag in memory for less than all blocks)")
void xccl_of_one_block();
constexpr int XCCL_CROSS_SHIFT = 33;
template <uint8_t MODE, pipe_t P> void CrossCoreSetFlag(uint16_t flag, XCCL_AT(CrossCoreSetFlag)) {
    if constexpr (MODE != 0 || P < PIPE_MTE2 || P > PIPE_MTE3) {
        xccl_of_one_block();
    } else {
        if (flag > 10 || xccl_kept(0) >> XCCL_CROSS_SHIFT) at.fail(XCCL_OP_ARRIVE, XCCL_FLAG_IS_SET, flag);
        at(XCCL_OP_SET_FLAG, P, PIPE_S, XCCL_BARRIER_EVENT);
        at(XCCL_OP_WAIT_FLAG, P, PIPE_S, XCCL_BARRIER_EVENT);
        int64_t phase = at(XCCL_OP_ARRIVE);
        xccl_keep(0, xccl_kept(0) | (phase << 4 | (flag + 1)) << XCCL_CROSS_SHIFT);
    }
}
template <uint8_t MODE = 0, pipe_t = PIPE_S> void CrossCoreWaitFlag(uint16_t flag, XCCL_AT(CrossCoreWaitFlag)) {
    if constexpr (MODE != 0) {
        xccl_of_one_block();
    } else {
        int64_t held = xccl_kept(0) >> XCCL_CROSS_SHIFT;
        if ((held & 15) != flag + 1) at.fail(XCCL_OP_AWAIT_GROUP, XCCL_FLAG_IS_NOT_SET, flag);
        xccl_keep(0, xccl_kept(0) & ((int64_t(1) << XCCL_CROSS_SHIFT) - 1));
        at(XCCL_OP_AWAIT_GROUP, held >> 4);
    }
}
/* Constants that the host gives (`ascendc.constant`), in memory that can be read by pointers. */
template <uint32_t N> GM_ADDR GetHcclContext() {
    static_assert(N < XCCL_CONTEXTS, "GetHcclContext: ascend_kernel(contexts=...) says how many there are");
    return reinterpret_cast<GM_ADDR>(xccl_kept(2 + N));
}
/* A clock that does not move: what a kernel does by the time is not shown. */
inline int64_t GetSystemCycle() { return 0; }

/* An event between two pipes by its number. */
template <pipe_t FROM, pipe_t TO> struct TQueSync {
    static_assert(FROM < PIPE_ALL && TO < PIPE_ALL, "TQueSync of these pipes is not in xccl_emu's header for Ascend C");
    static constexpr HardEvent event = HardEvent(FROM << 4 | TO);
    void SetFlag(int32_t id, XCCL_AT(SetFlag)) const { AscendC::SetFlag<event>(id, at); }
    void WaitFlag(int32_t id, XCCL_AT(WaitFlag)) const { AscendC::WaitFlag<event>(id, at); }
};

constexpr int32_t ONE_BLK_SIZE = 32;
constexpr uint32_t TOTAL_UB_SIZE = 192 * 1024;
constexpr int64_t GetDataBlockSizeInBytes() { return ONE_BLK_SIZE; }
template <class A, class B> constexpr auto Ceil(A a, B b) { return (a + b - 1) / b; }
template <class A, class B> constexpr auto min(A a, B b) { return a < b ? a : b; }
template <class A, class B> constexpr auto max(A a, B b) { return a > b ? a : b; }

/* ---- caches: what is asked of L2 is nothing here */

enum CacheMode { CACHE_MODE_DISABLE };

enum class CacheLine { SINGLE_CACHE_LINE, ENTIRE_DATA_CACHE };
enum class DcciDst { CACHELINE_OUT };
template <class T, CacheLine C, DcciDst = DcciDst::CACHELINE_OUT>
void DataCacheCleanAndInvalid(const GlobalTensor<T> &line, XCCL_AT(DataCacheCleanAndInvalid)) {
    static_assert(C == CacheLine::SINGLE_CACHE_LINE, "ENTIRE_DATA_CACHE is not in xccl_emu's header for Ascend C");
    at(XCCL_OP_DCCI, line.address);
}
} // namespace AscendC

#define pipe_barrier(pipe) AscendC::PipeBarrier<pipe>()

/* Waits until all that the core has written to memory is visible.  Of the data buffer alone it says nothing here. */
enum mem_dsb_t { DSB_ALL, DSB_DDR, DSB_UB, DSB_SEQ };
inline void dsb(mem_dsb_t of, XCCL_AT(dsb)) {
    if (of == DSB_ALL || of == DSB_DDR) at(XCCL_OP_QUIET);
}

/* Reads the struct word by word with the scalar unit, the last one whole. */
template <class T> void xccl_tiling(T &data, GM_ADDR from, XCCL_AT(xccl_tiling)) {
    constexpr int64_t n = (sizeof(T) + 7) / 8;
    int64_t words[n];
    for (int64_t i = 0; i < n; i++) words[i] = at(XCCL_OP_LOAD, reinterpret_cast<int64_t>(from) + 8 * i, 8);
    __builtin_memcpy(&data, words, sizeof(T));
}
#define GET_TILING_DATA_WITH_STRUCT(type, name, from)                                                                  \
    type name;                                                                                                         \
    xccl_tiling(name, from)

#include "xccl_queues.h"
#include "xccl_framework.h"
#if XCCL_HAZARDS_WORD
#include "xccl_hazards.h"
#endif
#include "xccl_copies.h"
#include "xccl_vector.h"
using AscendC::GetTPipePtr;
