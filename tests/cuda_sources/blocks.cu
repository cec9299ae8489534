// What threads of a block do together: shared memory, and instructions of warps.
#ifndef MEET
#define MEET __syncthreads()
#endif

// Each thread of a block gets the other end's element, and what the first one has counted.
__global__ void turned(int *out, const int *in)
{
    __shared__ int held[4];
    __shared__ int count;
    int me = threadIdx.x;
    if (me == 0) {
        count = blockDim.x;
    }
    held[me] = in[me] * 2;
    MEET;
    out[me] = held[blockDim.x - 1 - me] + count;
}

// As before, and then each thread clears what it has brought.
__global__ void cleared(int *out, const int *in)
{
    __shared__ int held[4];
    int me = threadIdx.x;
    held[me] = in[me] * 2;
    __syncthreads();
    out[me] = held[blockDim.x - 1 - me] + blockDim.x;
    MEET;
    held[me] = 0;
}

// As the first one, in memory whose size a launch says.
__global__ void opened(int *out, const int *in)
{
    extern __shared__ __align__(16) int more[];
    int me = threadIdx.x;
    more[me] = in[me] * 2;
    MEET;
    out[me] = more[blockDim.x - 1 - me] + blockDim.x;
}

__global__ void shuffled(int *out, const int *in)
{
    int value = in[threadIdx.x];
    int *own = out + 9 * threadIdx.x;
    own[0] = __shfl_sync(~0u, value, 1);
    own[1] = __shfl_xor_sync(~0u, value, 1);
    own[2] = __shfl_down_sync(~0u, value, 2);
    own[3] = __shfl_up_sync(~0u, value, 1);
    own[4] = __shfl_sync(~0u, value, 1, 2);
    own[5] = (int)__shfl_xor_sync(~0u, (double)value, 2);
    own[6] = __ballot_sync(~0u, value > 2);
    own[7] = __any_sync(~0u, value > 3);
    own[8] = __all_sync(~0u, value > 1);
}

// The sum over a warp, in each of its threads.
__global__ void summed(int *out, const int *in)
{
    int sum = in[threadIdx.x];
    for (int by = blockDim.x / 2; by; by /= 2) {
        sum += __shfl_xor_sync(~0u, sum, by);
    }
    out[threadIdx.x] = sum;
}

struct Masks {
    int each[8];
};

// Lanes meet by masks; each gets what the next lane of the mask has brought.
__global__ void met(int *out, Masks masks, int n)
{
    int me = threadIdx.x, sum = 0;
    for (int i = 0; i < n; i++) {
        int mask = masks.each[i];
        if (mask >> me & 1) {
            int next = me;
            do next = (next + 1) % 3; while (!(mask >> next & 1));
            sum = sum * 3 + __shfl_sync(mask, 10 * i + me, next);
        }
    }
    out[me] = sum;
}

// Lane 0 writes what lane 1 reads; they may have met.
__global__ void handed(int *out, Masks masks, int n)
{
    __shared__ int held[1];
    int me = threadIdx.x;
    if (me == 0) held[0] = 7;
    if (masks.each[0] >> me & 1) __syncwarp(masks.each[0]);
    if (me == 1) out[1] = held[0];
    else out[me] = 0;
}
