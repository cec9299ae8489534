/* Blocks go through the data buffer; the event between two pipes is fetched, and set again for each. */
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void twice(GM_ADDR source, GM_ADDR target, int64_t count)
{
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 32 * count);
    GlobalTensor<float> from, to;
    from.SetGlobalBuffer((__gm__ float *)source);
    to.SetGlobalBuffer((__gm__ float *)target);
    LocalTensor<float> local = buffer.Get<float>();
    for (int64_t i = 0; i < count; i++) {
        DataCopy(local[8 * i], from[8 * i], 8);
        SetFlag<HardEvent::MTE2_MTE3>(GetTPipePtr()->FetchEventID(HardEvent::MTE2_MTE3));
        WaitFlag<HardEvent::MTE2_MTE3>(GetTPipePtr()->FetchEventID(HardEvent::MTE2_MTE3));
        DataCopy(to[8 * i], local[8 * i], 8);
    }
}
