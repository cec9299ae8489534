/* Loops of requests that move no payload, for bench_ascendc.py. */
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void scalar_steps(uint32_t n)
{
    TPipe pipe;
    TBuf<> room;
    pipe.InitBuffer(room, 32);
    LocalTensor<int32_t> block = room.Get<int32_t>();
    for (uint32_t i = 0; i < n; i++) {
        block.SetValue(0, i);
    }
}

extern "C" __global__ __aicore__ void flag_steps(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        SetFlag<HardEvent::MTE2_S>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_S>(EVENT_ID0);
    }
}
