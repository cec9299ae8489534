/* Names of CUDA C++ as kernels use them; what has an order is PTX, which xccl_emu/doors/cuda/ptx.py reads.
 *
 * Nothing here is NVIDIA's (docs/bring-your-own.md).
 */
#pragma once
#include "xccl_cuda.h"
#include "xccl_host.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __restrict__ __restrict
#define __shared__ static __attribute__((section("xccl_shared")))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};
struct uint3 {
    unsigned x, y, z;
};
static inline uint3 xccl_sizes(int64_t sizes) { return {xccl_size(sizes, 0), xccl_size(sizes, 1), xccl_size(sizes, 2)}; }
static inline uint3 xccl_index(int64_t number, int64_t sizes) {
    uint3 of = xccl_sizes(sizes);
    return {unsigned(number % of.x), unsigned(number / of.x % of.y), unsigned(number / of.x / of.y)};
}
#define blockDim xccl_sizes(xccl_kept(XCCL_BLOCK_DIM))
#define gridDim xccl_sizes(xccl_kept(XCCL_GRID_DIM))
#define threadIdx xccl_index(xccl_kept(XCCL_THREAD), xccl_kept(XCCL_BLOCK_DIM))
#define blockIdx xccl_index(xccl_kept(XCCL_BLOCK), xccl_kept(XCCL_GRID_DIM))

static inline void __syncthreads() { asm volatile("bar.sync 0;" ::: "memory"); }
static inline void __threadfence_block() { asm volatile("fence.acq_rel.cta;" ::: "memory"); }
static inline void __threadfence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
static inline void __threadfence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
static inline void __nanosleep(unsigned) {}

/* ---- warps */

#define warpSize 32
static inline void __syncwarp(unsigned mask = ~0u) { asm volatile("bar.warp.sync %0;" ::"r"(mask) : "memory"); }
static inline unsigned __ballot_sync(unsigned mask, int predicate) {
    unsigned lanes;
    asm volatile("vote.sync.ballot.b32 %0, %1, %2;" : "=r"(lanes) : "r"(predicate), "r"(mask) : "memory");
    return lanes;
}
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
#define XCCL_SHUFFLE(name, mode, last)                                                                                 \
    template <class T> static inline T name(unsigned mask, T value, int by, int width = warpSize) {                    \
        static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles of 4 and 8 bytes are in xccl_emu's header for CUDA"); \
        struct { unsigned words[sizeof(T) / 4]; } held = __builtin_bit_cast(decltype(held), value);                    \
        for (unsigned &word : held.words)                                                                              \
            asm volatile("shfl.sync." mode ".b32 %0, %1, %2, %3, %4;"                                                  \
                         : "=r"(word) : "r"(word), "r"(by), "r"((warpSize - width) << 8 | last), "r"(mask) : "memory"); \
        return __builtin_bit_cast(T, held);                                                                            \
    }
XCCL_SHUFFLE(__shfl_sync, "idx", 31)
XCCL_SHUFFLE(__shfl_up_sync, "up", 0)
XCCL_SHUFFLE(__shfl_down_sync, "down", 31)
XCCL_SHUFFLE(__shfl_xor_sync, "bfly", 31)

/* ---- vectors: what is copied whole is several accesses, as in PTX's model */

#define XCCL_VECTORS(T, name, align)                                                                                   \
    struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                                                 \
    struct name##3 { T x, y, z; };                                                                                     \
    struct alignas(align) name##4 { T x, y, z, w; };                                                                   \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                                  \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
XCCL_VECTORS(int, int, 16)
XCCL_VECTORS(float, float, 16)
XCCL_VECTORS(short, short, 8)
XCCL_VECTORS(unsigned short, ushort, 8)
XCCL_VECTORS(long long, longlong, 16)
XCCL_VECTORS(unsigned long long, ulonglong, 16)
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
template <class T> static inline T __ldg(const T *at) { return *at; }
template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }

/* ---- atomics of CUDA: relaxed, for a GPU, or by their last word for all or for a block */

#define XCCL_ATOMICS_OF(name, op, T, type)                                                                             \
    XCCL_ATOMIC_OF(name, "gpu." op, T, type)                                                                           \
    XCCL_ATOMIC_OF(name##_system, "sys." op, T, type)                                                                  \
    XCCL_ATOMIC_OF(name##_block, "cta." op, T, type)
#define XCCL_ATOMIC_OF(name, op, T, type)                                                                              \
    static inline T name(T *at, T value) {                                                                             \
        T old;                                                                                                         \
        asm volatile("atom.relaxed." op "." type " %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(value) : "memory");       \
        return old;                                                                                                    \
    }
#define XCCL_ATOMICS_OF_ALL(name, op, of_signed)                                                                       \
    XCCL_ATOMICS_OF(name, op, int, of_signed)                                                                          \
    XCCL_ATOMICS_OF(name, op, unsigned, "u32")                                                                         \
    XCCL_ATOMICS_OF(name, op, unsigned long long, "u64")
XCCL_ATOMICS_OF_ALL(atomicAdd, "add", "s32")
XCCL_ATOMICS_OF_ALL(atomicExch, "exch", "s32")
XCCL_ATOMICS_OF_ALL(atomicMin, "min", "s32")
XCCL_ATOMICS_OF_ALL(atomicMax, "max", "s32")
XCCL_ATOMICS_OF_ALL(atomicAnd, "and", "s32")
XCCL_ATOMICS_OF_ALL(atomicOr, "or", "s32")
XCCL_ATOMICS_OF_ALL(atomicXor, "xor", "s32")
XCCL_ATOMICS_OF(atomicInc, "inc", unsigned, "u32")
XCCL_ATOMICS_OF(atomicDec, "dec", unsigned, "u32")

#define XCCL_CAS_OF(name, scope, T, type)                                                                              \
    static inline T name(T *at, T compare, T value) {                                                                  \
        T old;                                                                                                         \
        asm volatile("atom.relaxed." scope ".cas." type " %0, [%1], %2, %3;"                                           \
                     : "=r"(old) : "l"(at), "r"(compare), "r"(value) : "memory");                                      \
        return old;                                                                                                    \
    }
#define XCCL_CASES_OF(T, type)                                                                                         \
    XCCL_CAS_OF(atomicCAS, "gpu", T, type)                                                                             \
    XCCL_CAS_OF(atomicCAS_system, "sys", T, type)                                                                      \
    XCCL_CAS_OF(atomicCAS_block, "cta", T, type)
XCCL_CASES_OF(int, "b32")
XCCL_CASES_OF(unsigned, "b32")
XCCL_CASES_OF(unsigned long long, "b64")
