// Kernels that follow each other on a rank: words, a flag that says so, and who takes them.
#ifndef SAY
#define SAY "st.relaxed.sys.u32"
#endif

__device__ int me()
{
    return blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ void tell(unsigned *flag)
{
    if (me() == 0) {
        asm volatile(SAY " [%0], %1;" ::"l"(flag), "r"(1) : "memory");
    }
}

__device__ void await(unsigned *flag)
{
    unsigned seen = 0;
    while (seen != 1) {
        asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    }
}

__device__ void put(int *words)
{
    words[me()] = 7 + me();
}

__global__ void nothing(int *words, unsigned *flag, int n)
{
}

__global__ void fill(int *words, unsigned *flag, int n)
{
    put(words);
}

__global__ void say(int *words, unsigned *flag, int n)
{
    tell(flag);
}

__global__ void fill_and_say(int *words, unsigned *flag, int n)
{
    put(words);
    tell(flag);
}

__global__ void fill_and_fence(int *words, unsigned *flag, int n)
{
    put(words);
    __threadfence_system();
}

__global__ void swap_in(int *words, unsigned *flag, int n)
{
    atomicExch_system(&words[me()], 7 + me());
}

__global__ void fill_and_count(int *words, unsigned *flag, int n)
{
    put(words);
    atomicAdd_system(&words[4], 1);
}

// A thread writes over what its neighbour has written before.
__global__ void fill_other(int *words, unsigned *flag, int n)
{
    words[n - 1 - me()] += 0;
}

// A thread writes what it, or its neighbour, has written before, and all of them are told.
__global__ void add_own(int *words, unsigned *flag, int n)
{
    words[threadIdx.x] += 0;
    __threadfence_system();
    __syncthreads();
    tell(flag);
}

__global__ void add_other(int *words, unsigned *flag, int n)
{
    words[n - 1 - threadIdx.x] += 0;
    __threadfence_system();
    __syncthreads();
    tell(flag);
}

// The last thread writes; thread 0 sees it in the next kernel, and tells of it, by a store alone or behind a fence.
__global__ void fill_all(int *words, unsigned *flag, int n)
{
    if (me() == n - 1) {
        for (int i = 0; i < n; i++) {
            words[i] = 7 + i;
        }
    }
}

__device__ bool sees(int *words, int n)
{
    for (int i = 0; i < n; i++) {
        if (words[i] != 7 + i) {
            return false;
        }
    }
    return true;
}

__global__ void see(int *words, unsigned *flag, int n)
{
    if (sees(words, n)) {
        tell(flag);
    }
}

__global__ void see_and_fence(int *words, unsigned *flag, int n)
{
    if (sees(words, n)) {
        __threadfence_system();
        tell(flag);
    }
}

__global__ void take(int *words, unsigned *flag, int n, int *out)
{
    await(flag);
    for (int i = 0; i < n; i++) {
        out[i] = words[i];
    }
}

__global__ void take_volatile(int *words, unsigned *flag, int n, int *out)
{
    await(flag);
    for (int i = 0; i < n; i++) {
        out[i] = ((volatile int *)words)[i];
    }
}

__global__ void idle(int *words, unsigned *flag, int n, int *out)
{
}

__global__ void hear(int *words, unsigned *flag, int n, int *out)
{
    await(flag);
}

__global__ void read(int *words, unsigned *flag, int n, int *out)
{
    for (int i = 0; i < n; i++) {
        out[i] = words[i];
    }
}

__global__ void add(int *words, int by)
{
    words[threadIdx.x] += by;
}

__global__ void multiply(int *words, int by)
{
    words[threadIdx.x] *= by;
}
