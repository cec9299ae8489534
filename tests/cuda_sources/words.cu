// What a kernel may do to memory: kinds of accesses, one after the other.
#include <cuda/atomic>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct Many {
    float numbers[4];
    short small[2];
};

__global__ void accesses(const float4 *from, float4 *to, Many *many, double half_of, volatile int *word)
{
    float4 read = *from;
    Many own = *many;
    own.numbers[threadIdx.x] += read.w;
    own.small[1] = -3;
    float4 made = make_float4(read.x + own.numbers[0], read.y * 0.5f, float(half_of), -read.z);
    to[1] = made;
    *to = read;
    *many = own;
    *word = *word + 1;
    memset(to + 2, 0x11, sizeof *to);
}

__global__ void vectors(unsigned long long *out, const unsigned *in, unsigned short *narrow)
{
    unsigned a, b, c, d;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(in));
    float f;
    asm volatile("ld.global.nc.L1::no_allocate.f32 %0, [%1+16];" : "=f"(f) : "l"(in));
    unsigned short h;
    asm volatile("ld.global.u16 %0, [%1]; // a half" : "=h"(h) : "l"(in));
    asm volatile("st.global.v2.b64 [%0], {%1, %2};" ::"l"(out), "l"((unsigned long long)a + d), "l"((unsigned long long)b - c));
    asm volatile("st.relaxed.sys.global.b16 [%0], %1;\n\tst.global.u16 [%0+2], 7;" ::"l"(narrow), "h"(h));
    out[2] = (unsigned)f;
    narrow[2] = __float2half(f * 2).bits;
    narrow[3] = __hadd(__nv_bfloat16(1.5f), __float2bfloat16(f)).bits;
}

__global__ void atomics(unsigned *words, unsigned long long *wide, int *seen)
{
    seen[0] = atomicAdd(words, 5);
    seen[1] = atomicAdd(words + 1, 0xffffffffu);
    seen[2] = atomicCAS(words + 1, 1u, 9u);
    seen[3] = atomicCAS(words + 1, 0u, 9u);
    seen[4] = (int)atomicAdd_system(wide, 1ull << 33);
    seen[5] = atomicMax((int *)words + 2, -7);
    seen[6] = atomicMax(words + 2, 3u);
    seen[7] = atomicExch(words + 3, 0xffffffffu);
    seen[8] = atomicInc(words + 3, 8u);
    cuda::atomic_ref<unsigned, cuda::thread_scope_system> ref(words[0]);
    ref.store(ref.load(cuda::std::memory_order_acquire) + 1, cuda::std::memory_order_release);
    seen[9] = ref.fetch_add(2);
    unsigned expected = 8;
    seen[10] = ref.compare_exchange_strong(expected, 1);
    seen[11] = ref.exchange(4, cuda::std::memory_order_relaxed);
    asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(wide), "l"(2ll) : "memory");
}
