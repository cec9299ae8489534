/* Litmus programs as an operator in CUDA C++, for GPUs and for xccl_emu (docs/records/litmus.md).  Each thread of a
 * program is the first thread of a block of its own; other warps of a block store and load meanwhile.
 *
 *     W, R  a store, a load of 4 bytes, as ACCESS says         L, A  st.release, ld.acquire (in MORE_PROGRAMS alone)
 *     C, P  bulk copies of 16 bytes, if COPIES is defined      F     own bulk copies are complete, then fence.FENCE
 *                                                              S     own bulk copies are complete, no fence
 *
 *     nvcc -arch=sm_90 -DCOPIES litmus.cu -o litmus && ./litmus > results.csv && xccl-emu litmus --read results.csv
 *
 * With -DAWAITED a load has its value before what follows it.  -DSCOPE=sys, -DFENCE=sc and -DACCESS=weak are others.
 * Without COPIES, for GPUs before sm_90, programs with C or P do nothing and main leaves them out.  It has not run on a
 * GPU yet.
 */
#ifndef SCOPE
#define SCOPE gpu
#endif
#ifndef FENCE
#define FENCE acq_rel
#endif
#ifndef ACCESS
#define ACCESS relaxed.SCOPE
#endif
#define TEXT_OF(...) #__VA_ARGS__
#define TEXT(...) TEXT_OF(__VA_ARGS__)

constexpr unsigned LINE_BYTES = 64, THREADS_MOST = 4, WARP = 32, NOISE_LINES = 1024;

#define PROGRAM(name, ...) P_##name,
enum {
#include "litmus_programs.h"
};
#undef PROGRAM

__device__ inline int *LineOf(char *start, unsigned long long i) { return (int *)(start + i * LINE_BYTES); }
__device__ inline void Store(int *at, int value)
{
    asm volatile("st." TEXT(ACCESS) ".u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ inline int Load(const int *at)
{
    int value;
    asm volatile("ld." TEXT(ACCESS) ".u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

/* A thread in one round: its cells, and what it has read, eight bits for each register. */
struct Thread {
    int *x, *y, *z;
    long long seen = 0;
    unsigned registers = 0;

    __device__ inline void Seen(int value)
    {
#ifdef AWAITED
        asm volatile("{ .reg .pred p; setp.eq.s32 p, %0, -1; @p trap; }" ::"r"(value) : "memory");
#endif
        seen |= (long long)value << 8 * registers++;
    }
    __device__ inline void Acquire(const int *cell)
    {
        int value;
        asm volatile("ld.acquire." TEXT(SCOPE) ".u32 %0, [%1];" : "=r"(value) : "l"(cell) : "memory");
        Seen(value);
    }
    __device__ inline void Release(int *cell, int value)
    {
        asm volatile("st.release." TEXT(SCOPE) ".u32 [%0], %1;" ::"l"(cell), "r"(value) : "memory");
    }
#ifdef COPIES
    static constexpr unsigned BLOCK_BYTES = 16, BLOCKS = 8, BAR_BYTES = 8, BARS = 4;
    unsigned room, phase, copies = 0, pulled = 0; /* room: blocks, then an mbarrier for each register */

    __device__ inline unsigned Block(unsigned i)
    {
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        return room + i * BLOCK_BYTES;
    }
    __device__ inline unsigned Bar(unsigned i) { return room + BLOCKS * BLOCK_BYTES + i * BAR_BYTES; }
    __device__ inline void Begin()
    {
        for (unsigned i = 0; i < BARS; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(Bar(i)) : "memory");
        }
    }
    __device__ inline void Copy(int *cell, int value)
    {
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(room + copies * BLOCK_BYTES), "r"(value) : "memory");
        unsigned from = Block(copies++);
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 16;" ::"l"(cell), "r"(from) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
    __device__ inline void Pull(const int *cell)
    {
        unsigned bar = Bar(registers), to = Block(BARS + registers);
        pulled |= 1u << registers++;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(bar) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%2];" ::"r"(to),
                     "l"(cell), "r"(bar)
                     : "memory");
    }
    __device__ inline void Copied() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
    __device__ inline void Pulled()
    {
        for (unsigned i = 0; i < registers; i++) {
            for (unsigned done = !(pulled >> i & 1); !done;) {
                asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                             : "=r"(done)
                             : "r"(Bar(i)), "r"(phase)
                             : "memory");
            }
        }
    }
    __device__ inline void End()
    {
        Copied();
        Pulled();
        for (unsigned i = 0; i < registers; i++) {
            int value = 0;
            if (pulled >> i & 1) {
                asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(Block(BARS + i)) : "memory");
            }
            seen |= (long long)value << 8 * i;
        }
    }
#else
    __device__ inline void Copied() {}
    __device__ inline void Pulled() {}
    __device__ inline void End() {}
#endif
    __device__ inline void Fence()
    {
        Copied();
        Pulled();
        asm volatile("fence." TEXT(FENCE) "." TEXT(SCOPE) ";" ::: "memory");
    }
};

/* All threads of a group begin a round together, but for some steps: what they then do overlaps. */
__device__ inline void Meet(char *ready, unsigned me, unsigned threads, int round)
{
    Store(LineOf(ready, me), round);
    for (unsigned i = 0; i < threads; i++) {
        while (Load(LineOf(ready, i)) < round) {
        }
    }
    for (unsigned steps = (round * 2654435761u + me * 40503u) >> 8 & 127; steps > 0; steps--) {
        asm volatile("");
    }
}

__device__ inline void Noise(char *noise, unsigned rounds)
{
    unsigned drawn = blockIdx.x * 1024 + threadIdx.x;
    for (unsigned i = 0; i < 8 * rounds; i++) {
        drawn = drawn * 1664525u + 1013904223u;
        Store(LineOf(noise, drawn >> 16 & NOISE_LINES - 1), Load(LineOf(noise, drawn >> 4 & NOISE_LINES - 1)));
    }
}

#define W(cell, value) Store(thread.cell, value);
#define R(cell, name) thread.Seen(Load(thread.cell));
#define L(cell, value) thread.Release(thread.cell, value);
#define A(cell, name) thread.Acquire(thread.cell);
#ifdef COPIES
#define C(cell, value) thread.Copy(thread.cell, value);
#define P(cell, name) thread.Pull(thread.cell);
#else
#define C(cell, value)
#define P(cell, name)
#endif
#define F thread.Fence();
#define S thread.Copied();
#define THREADS(t0, t1, t2, t3, ...)                                                                                   \
    switch (me) {                                                                                                      \
        case 0: t0 break;                                                                                              \
        case 1: t1 break;                                                                                              \
        case 2: t2 break;                                                                                              \
        case 3: t3 break;                                                                                              \
    }
#define PROGRAM(name, ...)                                                                                             \
    case P_##name: THREADS(__VA_ARGS__, , , , ) break;

/* Blocks of `threads` threads of a program are a group, with cells of its own in each round; `first` is the thread of
 * the first block, where a launch has but one. */
extern "C" __global__ void litmus(char *x, char *y, char *z, char *seen, char *ready, char *noise, unsigned program,
                                  unsigned first, unsigned threads, unsigned groups, unsigned rounds)
{
    if (threadIdx.x > 0) {
        return threadIdx.x < WARP ? void() : Noise(noise, rounds);
    }
    const unsigned me = (first + blockIdx.x) % threads, group = (first + blockIdx.x) / threads;
#ifdef COPIES
    __shared__ alignas(16) char room[Thread::BLOCKS * Thread::BLOCK_BYTES + Thread::BARS * Thread::BAR_BYTES];
#endif
    for (unsigned i = 0; i < rounds; i++) {
        const unsigned long long line = (unsigned long long)group * rounds + i;
        Thread thread;
        thread.x = LineOf(x, line), thread.y = LineOf(y, line), thread.z = LineOf(z, line);
#ifdef COPIES
        thread.room = (unsigned)__cvta_generic_to_shared(room), thread.phase = i & 1;
        if (i == 0) {
            thread.Begin();
        }
#endif
        if (rounds > 1) {
            Meet(ready + group * THREADS_MOST * LINE_BYTES, me, threads, i + 1);
        }
        switch (program) {
#include "litmus_programs.h"
        }
        thread.End();
        if (thread.registers > 0) {
            *(long long *)LineOf(seen, (unsigned long long)me * groups * rounds + line) = thread.seen;
        }
    }
}
#undef PROGRAM
#undef W
#undef R
#undef L
#undef A
#undef C
#undef P
#undef F
#undef S
#undef THREADS

#if defined(__NVCC__) && !defined(__CUDACC_RTC__)
/* ---- the host: a results file, with the machine in its comments */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#ifdef AWAITED
#define LOADS "awaited"
#else
#define LOADS "in flight"
#endif
#ifdef COPIES
#define HAS_COPIES true
#else
#define HAS_COPIES false
#endif
#define PROGRAM(name, ...) {#name, #__VA_ARGS__},
static const struct {
    const char *name, *text;
} PROGRAMS[] = {
#include "litmus_programs.h"
};

static void Check(cudaError_t error)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "litmus: %s\n", cudaGetErrorString(error));
        exit(3);
    }
}

/* Where a value of an outcome is: x, y, z, and what each of four threads has seen, are blocks of a line a round. */
struct Place {
    unsigned block, shift, mask;
};
struct Test {
    std::map<std::string, Place> places; /* registers, then cells: `1:a` is less than `x` */
    unsigned threads = 1;
    bool copies = false;

    explicit Test(const char *text)
    {
        unsigned registers = 0;
        for (const char *at = text; *at; at++) {
            if (*at == ',') {
                threads++, registers = 0;
            } else if (at[1] == '(') { /* such as `R(x, a)` */
                copies |= strchr("CP", *at) != nullptr;
                places[std::string(1, at[2])] = {unsigned(at[2] - 'x'), 0, ~0u};
                if (strchr("RPA", *at)) {
                    places[std::to_string(threads - 1) + ":" + at[5]] = {2 + threads, 8 * registers++, 255};
                }
                at += 6;
            }
        }
    }
};

int main(int count, char **arguments)
{
    const unsigned rounds = 1000, launches = count > 1 ? atoi(arguments[1]) : 60;
    cudaDeviceProp device;
    int driver, runtime;
    Check(cudaGetDeviceProperties(&device, 0));
    Check(cudaDriverGetVersion(&driver));
    Check(cudaRuntimeGetVersion(&runtime));
    char today[32];
    time_t now = time(nullptr);
    strftime(today, sizeof today, "%Y-%m-%d", gmtime(&now));
    printf("# %s, sm_%d%d, CUDA of the driver %d.%d, of the program %d.%d, %s\n", device.name, device.major,
           device.minor, driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10, today);
    printf("# W and R are %s, F is fence.%s.%s, loads are %s\n", TEXT(ACCESS), TEXT(FENCE), TEXT(SCOPE), LOADS);
    printf("program,outcome,count\n");
    for (unsigned program = 0; program < sizeof PROGRAMS / sizeof *PROGRAMS; program++) {
        const Test test(PROGRAMS[program].text);
        if (test.copies && !HAS_COPIES) {
            continue;
        }
        const unsigned most = device.multiProcessorCount / test.threads, groups = most < 32 ? most : 32;
        const size_t bytes = size_t(groups) * rounds * LINE_BYTES, ready = groups * THREADS_MOST * LINE_BYTES;
        const size_t all = 7 * bytes + ready + NOISE_LINES * LINE_BYTES;
        char *memory;
        Check(cudaMalloc(&memory, all));
        std::vector<char> held(7 * bytes);
        std::map<std::vector<unsigned>, long> counted;
        for (unsigned launch = 0; launch < launches; launch++) {
            Check(cudaMemset(memory, 0, all));
            litmus<<<groups * test.threads, 4 * WARP>>>(memory, memory + bytes, memory + 2 * bytes, memory + 3 * bytes,
                                                        memory + 7 * bytes, memory + 7 * bytes + ready, program, 0,
                                                        test.threads, groups, rounds);
            Check(cudaGetLastError());
            Check(cudaMemcpy(held.data(), memory, held.size(), cudaMemcpyDeviceToHost));
            for (size_t line = 0; line < bytes; line += LINE_BYTES) {
                std::vector<unsigned> values;
                for (const auto &each : test.places) {
                    const Place &place = each.second;
                    values.push_back(*(unsigned *)&held[place.block * bytes + line] >> place.shift & place.mask);
                }
                counted[values]++;
            }
        }
        for (const auto &each : counted) {
            size_t i = 0;
            printf("%s", PROGRAMS[program].name);
            for (const auto &place : test.places) {
                printf("%c%s=%u", i ? ' ' : ',', place.first.c_str(), each.first[i]);
                i++;
            }
            printf(",%ld\n", each.second);
        }
        Check(cudaFree(memory));
    }
}
#endif
