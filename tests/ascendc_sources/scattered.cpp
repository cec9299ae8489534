/* Blocks copied, and a number put into every other element of what is left of the buffer. */
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void scattered(GM_ADDR source, GM_ADDR target, uint32_t count)
{
    TPipe pipe;
    TBuf<> room;
    pipe.InitBuffer(room, 256);
    LocalTensor<float> block = room.Get<float>();
    GlobalTensor<float> from, to;
    from.SetGlobalBuffer((__gm__ float *)source);
    to.SetGlobalBuffer((__gm__ float *)target);
    for (uint32_t i = 0; i < count; i++) {
        DataCopy(block, from[i * 8], 8);
        SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
        DataCopy(to[i * 8], block, 8);
        SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
        WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
        block.SetValue(16 + 2 * i, 1.0f);
        block.SetValue(16 + 2 * i, 2.0f);
    }
}
