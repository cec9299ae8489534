// Kernels that follow each other on a rank, with shared variables of their own.
#include "streams.cu"

__global__ void fill_shared(int *words, unsigned *flag, int n)
{
    __shared__ int held[4];
    held[threadIdx.x] = 7 + threadIdx.x;
    words[threadIdx.x] = held[threadIdx.x];
    __threadfence_system();
}

__global__ void say_shared(int *words, unsigned *flag, int n)
{
    __shared__ int before[4];
    __shared__ int other[4];
    before[n - 1 - threadIdx.x] = 1;
    other[n - 1 - threadIdx.x] = 2;
    tell(flag);
}
