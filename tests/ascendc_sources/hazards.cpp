/* Blocks with a number put into each, twice added to, through one buffer: with what a core's own hazards need, or without. */
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void hazards(GM_ADDR source, GM_ADDR target, uint32_t count)
{
    TPipe pipe;
    TBuf<> room;
    pipe.InitBuffer(room, 96);
    LocalTensor<float> block = room.Get<float>(), sum = block[8], spare = block[16];
    GlobalTensor<float> from, to;
    from.SetGlobalBuffer((__gm__ float *)source);
    to.SetGlobalBuffer((__gm__ float *)target);
    for (uint32_t i = 0; i < count; i++) {
        spare.SetValue(0, 1.0f);
        DataCopy(block, from[i * 8], 8);
        SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
        Adds(sum, block, 1.0f, 8);
        PipeBarrier<PIPE_V>();
        Adds(sum, sum, -1.0f, 8);
        SetFlag<HardEvent::V_S>(EVENT_ID0);
        WaitFlag<HardEvent::V_S>(EVENT_ID0);
        sum.SetValue(0, sum.GetValue(0));
        SetFlag<HardEvent::S_MTE3>(EVENT_ID0);
        WaitFlag<HardEvent::S_MTE3>(EVENT_ID0);
        DataCopy(to[i * 8], sum, 8);
        SetFlag<HardEvent::MTE3_V>(EVENT_ID0);
        WaitFlag<HardEvent::MTE3_V>(EVENT_ID0);
    }
}
