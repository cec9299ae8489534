// All-reduces without a flag of their own: what says that data are there comes in the same 16 bytes.
//
// PTX promises nothing of it: to its model a store of a vector is one store for each element.
#ifndef LOOK
#define LOOK "ld.volatile.global.v4.u32"
#define PUT "st.volatile.global.v4.u32"
#endif

constexpr int RANKS_MOST = 8, SLOTS = 2;

struct alignas(16) Packet {
    unsigned low, flag, high, again;
};

struct Ranks {
    Packet *packets[RANKS_MOST];  // [slot, rank, packet] on each rank
};

__device__ void put(Packet *at, uint2 data, unsigned flag)
{
    asm volatile(PUT " [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(data.x), "r"(flag), "r"(data.y), "r"(flag) : "memory");
}

__device__ uint2 take(const Packet *at, unsigned flag)
{
    unsigned low, first, high, second;
    do {
        asm volatile(LOOK " {%0, %1, %2, %3}, [%4];"
                     : "=r"(low), "=r"(first), "=r"(high), "=r"(second) : "l"(at) : "memory");
    } while (first != flag || second != flag);
    return make_uint2(low, high);
}

// NCCL's LL: each half of a packet has a flag, the number of the call.  A slot is written again two calls later.
template <int N>
__global__ void all_reduce(const uint2 *in, uint2 *out, Ranks ranks, int rank, int calls, int packets)
{
    for (int call = 1; call <= calls; call++) {
        for (int i = threadIdx.x; i < packets; i += blockDim.x) {
            int first = call % SLOTS * N, own = (call - 1) * packets + i;
            for (int peer = 0; peer < N; peer++) {
                put(ranks.packets[peer] + (first + rank) * packets + i, in[own], call);
            }
            uint2 sum = make_uint2(0, 0);
            for (int peer = 0; peer < N; peer++) {
                uint2 data = take(ranks.packets[rank] + (first + peer) * packets + i, call);
                sum = make_uint2(sum.x + data.x, sum.y + data.y);
            }
            out[own] = sum;
        }
    }
}

// Lamport's way: data are there when no word of them is POISON any more.  Before a rank sends anything it puts POISON
// back for the next call, in which others send when they have what it sends now.
constexpr unsigned POISON = 0x80000000;

__device__ void put(Packet *at, uint4 data)
{
    asm volatile(PUT " [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(data.x), "r"(data.y), "r"(data.z), "r"(data.w) : "memory");
}

__device__ uint4 take(const Packet *at)
{
    uint4 data;
    do {
        asm volatile(LOOK " {%0, %1, %2, %3}, [%4];"
                     : "=r"(data.x), "=r"(data.y), "=r"(data.z), "=r"(data.w) : "l"(at) : "memory");
    } while (data.x == POISON || data.y == POISON || data.z == POISON || data.w == POISON);
    return data;
}

template <int N>
__global__ void poisoned(const uint4 *in, uint4 *out, Ranks ranks, int rank, int calls, int packets)
{
    for (int call = 1; call <= calls; call++) {
        for (int i = threadIdx.x; i < packets; i += blockDim.x) {
            int first = call % SLOTS * N, next = (call + 1) % SLOTS * N, own = (call - 1) * packets + i;
            for (int peer = 0; peer < N; peer++) {
                put(ranks.packets[rank] + (next + peer) * packets + i, make_uint4(POISON, POISON, POISON, POISON));
            }
            __threadfence_system();
            for (int peer = 0; peer < N; peer++) {
                put(ranks.packets[peer] + (first + rank) * packets + i, in[own]);
            }
            uint4 sum = make_uint4(0, 0, 0, 0);
            for (int peer = 0; peer < N; peer++) {
                uint4 data = take(ranks.packets[rank] + (first + peer) * packets + i);
                sum = make_uint4(sum.x + data.x, sum.y + data.y, sum.z + data.z, sum.w + data.w);
            }
            out[own] = sum;
        }
    }
}
