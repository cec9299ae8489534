/* Blocks copied through two buffers in turns, whose events are set at two places. */
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void pingpong(GM_ADDR source, GM_ADDR target, uint32_t count)
{
    TPipe pipe;
    TBuf<> room;
    pipe.InitBuffer(room, 64);
    LocalTensor<float> buffers = room.Get<float>();
    GlobalTensor<float> from, to;
    from.SetGlobalBuffer((__gm__ float *)source);
    to.SetGlobalBuffer((__gm__ float *)target);
    SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
    SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID1);
    for (uint32_t i = 0; i < count; i++) {
        int32_t event = i % 2 ? EVENT_ID1 : EVENT_ID0;
        WaitFlag<HardEvent::MTE3_MTE2>(event);
        DataCopy(buffers[i % 2 * 8], from[i * 8], 8);
        SetFlag<HardEvent::MTE2_MTE3>(event);
        WaitFlag<HardEvent::MTE2_MTE3>(event);
        DataCopy(to[i * 8], buffers[i % 2 * 8], 8);
        SetFlag<HardEvent::MTE3_MTE2>(event);
    }
    WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
    WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID1);
}
