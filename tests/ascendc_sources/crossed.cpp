/* Each block writes a row, and when all have set their flag it copies the next block's, twice. */
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void crossed(GM_ADDR rows, GM_ADDR out, int64_t times)
{
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 64);
    GlobalTensor<int32_t> shared, target;
    shared.SetGlobalBuffer((__gm__ int32_t *)rows);
    target.SetGlobalBuffer((__gm__ int32_t *)out);
    LocalTensor<int32_t> row = buffer.Get<int32_t>();
    uint32_t block = GetBlockIdx(), next = (block + 1) % GetBlockNum();
    for (int64_t i = 0; i < times; i++) {
        Duplicate(row, int32_t(block + 10 * i), 8);
        SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
        WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
        DataCopy(shared[8 * block], row, 8);
        dsb(DSB_DDR);
        CrossCoreSetFlag<0x0, PIPE_MTE3>(5);
        CrossCoreWaitFlag(5);
        DataCopy(row[8], shared[8 * next], 8);
        CrossCoreSetFlag<0x0, PIPE_MTE2>(6);
        CrossCoreWaitFlag<0x0>(6);
    }
    SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    DataCopy(target[8 * block], row[8], 8);
    PipeBarrier<PIPE_ALL>();
#ifdef AFTER
    AFTER;
#endif
}
