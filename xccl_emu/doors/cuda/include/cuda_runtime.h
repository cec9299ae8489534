/* Names of CUDA C++ as kernels use them; what has an order is PTX, which xccl_emu/doors/cuda/ptx.py reads.
 *
 * Nothing here is NVIDIA's (docs/bring-your-own.md).
 */
#pragma once
#include "xccl_cuda.h"
#include <stddef.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

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
