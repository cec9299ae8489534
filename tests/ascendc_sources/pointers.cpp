/* Words of memory and of the data buffer by plain pointers, as `GetValue` and `SetValue` would have them. */
#include "kernel_operator.h"

struct Record {
    uint64_t before;
    int16_t small[3];
    uint8_t byte;
    bool is_set;
    float number;
};

extern "C" __global__ __aicore__ void raw(GM_ADDR from, GM_ADDR to)
{
    __gm__ int32_t *p = (__gm__ int32_t *)from;
    int32_t v = *p;
    p[3] = v + 1;
    __gm__ Record *record = reinterpret_cast<__gm__ Record *>(to);
    record->before = 0xffffffffffffffff;
    record->small[1] = -2;
    record->byte = 200;
    record->is_set = record->byte == 200 && record->small[1] == -2;
    record->number = 1.5f;
    record->number += v;
    __ubuf__ double *q = (__ubuf__ double *)AscendC::get_imm(64);
    q[1] = 0.5;
    record->number += q[1];
}

extern "C" __global__ __aicore__ void give(GM_ADDR data, GM_ADDR flag)
{
    *(__gm__ int32_t *)data = 7;
    *(__gm__ int32_t *)flag = 1;
}

extern "C" __global__ __aicore__ void take(GM_ADDR data, GM_ADDR flag)
{
    while (*(volatile __gm__ int32_t *)flag != 1) {}
    *(__gm__ int32_t *)(data + 32) = *(__gm__ int32_t *)data;
}

extern "C" __global__ __aicore__ void wild(GM_ADDR a, int64_t to)
{
    AscendC::PipeBarrier<PIPE_ALL>();
    auto p = (__gm__ int32_t *)(a + to);
    *p = 1;
}

extern "C" __global__ __aicore__ void wild_in_buffer(GM_ADDR a, int64_t to)
{
    AscendC::PipeBarrier<PIPE_ALL>();
    auto p = (__ubuf__ int32_t *)to;
    *p = 1;
}

extern "C" __global__ __aicore__ void wild_here(GM_ADDR a, int64_t to)
{
    AscendC::PipeBarrier<PIPE_ALL>();
    auto p = (volatile int32_t *)to;
    *p = 1;
}

#if XCCL_CONTEXTS
extern "C" __global__ __aicore__ void constants(GM_ADDR out)
{
    auto context = (__gm__ Record *)AscendC::GetHcclContext<0>();
    *(__gm__ float *)out = context->number + context->small[2];
}
#endif
