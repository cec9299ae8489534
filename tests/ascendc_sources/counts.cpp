/* Each block adds its numbers to those of all, by copies that add, and then writes its own, by a copy that does not. */
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void counts(GM_ADDR mine, GM_ADDR all, GM_ADDR copy, int64_t count)
{
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 32 * count);
    GlobalTensor<int32_t> from, sums, to;
    from.SetGlobalBuffer((__gm__ int32_t *)mine);
    sums.SetGlobalBuffer((__gm__ int32_t *)all);
    to.SetGlobalBuffer((__gm__ int32_t *)copy);
    LocalTensor<int32_t> local = buffer.Get<int32_t>();
    DataCopy(local, from, 8 * count);
    SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    SetAtomicAdd<int32_t>();
    DataCopy(sums, local, 8 * count);
    SetAtomicNone();
    DataCopy(to, local, 8 * count);
}
