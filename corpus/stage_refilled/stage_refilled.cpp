/* A stage in the data buffer is refilled before it has been read; stage_refilled.py in Ascend C. */
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void forward(GM_ADDR own, GM_ADDR out, uint32_t chunks, uint32_t nbytes,
                                              uint32_t mended)
{
    TPipe pipe;
    TBuf<> room;
    pipe.InitBuffer(room, nbytes);
    LocalTensor<int8_t> stage = room.Get<int8_t>();
    GlobalTensor<int8_t> from, to;
    from.SetGlobalBuffer((__gm__ int8_t *)own);
    to.SetGlobalBuffer((__gm__ int8_t *)out);
    for (uint32_t i = 0; i < chunks; i++) {
        if (mended && i > 0) {
            WaitFlag<HardEvent::MTE3_MTE2>(i - 1);
        }
        DataCopy(stage, from[i * nbytes], nbytes);
        SetFlag<HardEvent::MTE2_MTE3>(i);
        WaitFlag<HardEvent::MTE2_MTE3>(i);
        DataCopy(to[i * nbytes], stage, nbytes);
        if (mended && i + 1 < chunks) {
            SetFlag<HardEvent::MTE3_MTE2>(i);
        }
    }
    PipeBarrier<PIPE_ALL>();
}
