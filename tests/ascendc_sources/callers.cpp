/* A buffer that is used twice, with a function for all events that is called for each of them. */
#include "kernel_operator.h"
#include "steps.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void callers(GM_ADDR source, GM_ADDR target, uint32_t count)
{
    TPipe pipe;
    TBuf<> room;
    pipe.InitBuffer(room, 64);
    LocalTensor<float> buffer = room.Get<float>();
    GlobalTensor<float> from, to;
    from.SetGlobalBuffer((__gm__ float *)source);
    to.SetGlobalBuffer((__gm__ float *)target);
    Mailbox<int32_t> box;
    box.SetFlag(2);
    box.PipeBarrier();
    DataCopy(buffer, from, 8);
    SyncFunc<HardEvent::MTE2_MTE3>();
    DataCopy(to, buffer, 8);
    SyncFunc<HardEvent::MTE3_MTE2>();
    DataCopy(buffer, from[8], 8);
    Both<HardEvent::MTE2_MTE3>();
    if (box.WaitFlag(3) == 3) {
        DataCopy(to[8], buffer, 8);
    }
    dsb(DSB_UB);
    PipeBarrier<PIPE_V>();
    PipeBarrier<PIPE_ALL>();
    Settle();
}
